//! Whether a process can move to another node of the image at exec, and what moves with it.

use husk_proto::descriptor::Slot;
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Result, Services};

use crate::{Client, Host, Memory};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The numbers that its next program inherits: those of the host into `numbers`, and those
    /// under which the image has something open into `passed`, both counted. `EBUSY` where one is
    /// waited for by the image, or there are too many.
    pub fn inherited_along(
        &mut self,
        numbers: &mut [u32],
        passed: &mut [u32],
    ) -> Result<(usize, usize)> {
        let files = self.services.files();
        let (mut count, mut along, mut from) = (0, 0, 0);
        let note = |list: &mut [u32], count: &mut usize, fd| {
            *list.get_mut(*count).ok_or(Errno::EBUSY)? = fd;
            *count += 1;
            Ok(())
        };
        while let Some(fd) = self.services.next_number(files, from) {
            from = fd + 1;
            if self.is_kept(fd) || self.services.close_on_exec(files, fd)? {
                continue;
            }
            // What the host shows of a file that is the image's by now becomes the image's.
            if self.described(fd as usize)?.is_some() {
                note(passed, &mut along, fd)?;
                continue;
            }
            if self.kept_beside(fd as usize).stays() {
                return Err(Errno::EBUSY);
            }
            if self.services.slot(files, fd) != Slot::Host(None) {
                note(passed, &mut along, fd)?;
            }
            // Another node has none of this one's counts.
            self.give_event(fd as usize)?;
            note(numbers, &mut count, fd)?;
        }
        Ok((count, along))
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
