//! Whether a process can move to another node of the image at exec, and what moves with it.

use husk_proto::descriptor::Slot;
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Result, Services};

use crate::{Client, Host, Memory};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The numbers that its next program inherits, if all of them are the host's: they are put into
    /// `numbers`, and counted. `EBUSY` where one is a file of the image, or is waited for by the
    /// image, or there are too many.
    pub fn inherited_by_host(&mut self, numbers: &mut [u32]) -> Result<usize> {
        let files = self.services.files();
        let (mut count, mut from) = (0, 0);
        while let Some(fd) = self.services.next_number(files, from) {
            from = fd + 1;
            if self.is_kept(fd) || self.services.close_on_exec(files, fd)? {
                continue;
            }
            let beside = self.kept_beside(fd as usize);
            if self.services.slot(files, fd) != Slot::Host(None) || beside.stays() {
                return Err(Errno::EBUSY);
            }
            // Another node has none of this one's counts.
            self.give_event(fd as usize)?;
            *numbers.get_mut(count).ok_or(Errno::EBUSY)? = fd;
            count += 1;
        }
        Ok(count)
    }

    /// The path of the working directory, if it is in a tree; else nothing.
    pub fn directory_in_tree(&mut self) -> Result<&[u8]> {
        let WorkingDirectory::Husk(inode) = self.services.working_directory() else {
            return Ok(&[]);
        };
        self.prepare();
        let length = self.path_of(inode)?;
        Ok(&self.buffers.link[..length])
    }
}
