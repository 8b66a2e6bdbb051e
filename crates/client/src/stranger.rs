//! Host descriptors from elsewhere: in a message, through a pidfd, or with the first program.
//!
//! ```text
//!   descriptor ─ open for reading only, regular file ─ its path leads to the inode made from it
//!                                                        └─► a shadow, as if opened here
//! ```
//! Without that, what is changed through it would be changed on the host, and what the image has
//! changed would not be seen.
//!
//! Limits: what is open for writing, directories, and files that have another name in the image, or
//! none, stay the host's. A shadow made here has a description of its own.

use crate::path::{Aim, Place};
use crate::{Client, Host, Memory};
use husk_abi::PATH_MAX;
use husk_abi::sys::general::{AT_FDCWD, F_GETFL, O_ACCMODE, O_PATH, O_RDONLY};
use husk_proto::descriptor::{Shown, Slot};
use husk_proto::fs::Kind;
use husk_proto::{Inode, Services};

/// Highest number that a first program is asked about.
const INHERITED_MAX: u32 = 1023;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Notes the descriptors that the image's first program was started with.
    pub fn meet_inherited(&mut self) {
        let files = self.services.files();
        for fd in 0..=INHERITED_MAX {
            if self.is_kept(fd) || self.services.slot(files, fd) != Slot::Host(None) {
                continue;
            }
            if let Some(inode) = self.file_behind(fd) {
                let on_exec = self.services.close_on_exec(files, fd).unwrap_or(false);
                let _ = self.services.host_opened(files, fd, on_exec, Shown::File(inode));
            }
        }
    }

    /// What a host descriptor from elsewhere shows.
    pub(crate) fn shown_by(&mut self, fd: u32) -> Shown {
        self.file_behind(fd).map_or(Shown::Nothing, Shown::File)
    }

    /// The file of an overlay that a host descriptor reads.
    #[cold]
    fn file_behind(&mut self, fd: u32) -> Option<Inode> {
        if self.services.mounts() == 0 {
            return None;
        }
        let flags = u32::try_from(self.host_fcntl(fd as usize, F_GETFL, 0)).ok()?;
        if flags & (O_ACCMODE | O_PATH) != O_RDONLY {
            return None;
        }
        let fact = self.host_fact(fd as usize, None).ok()?;
        if fact.kind != Kind::File {
            return None;
        }
        let text = self.buffers.walks[0].text.as_mut_ptr() as usize;
        let length = usize::try_from(self.descriptor_path(fd, text)).ok()?;
        if length >= PATH_MAX {
            return None;
        }
        (self.buffers.walks[0].at, self.buffers.walks[0].length) = (0, length);
        let Ok(Place::Husk(target)) = self.find_text(AT_FDCWD, 0, Aim::STAY) else { return None };
        let inode = target.inode().ok()?;
        let origin = self.services.attributes(inode).ok()?.origin?;
        let known = self.services.host_identity(origin).ok()?;
        let same = (known.device, known.inode) == (fact.identity.device, fact.identity.inode);
        same.then_some(inode)
    }
}
