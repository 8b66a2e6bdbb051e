//! Host descriptors from elsewhere: in a message, through a pidfd, or with the first program.
//!
//! ```text
//!   open for reading only, regular file, below an overlay
//!     └─ its path leads to ─┬─ the inode made from it ──► a shadow, as if opened here
//!                           └─ another, or none       ──► a file without a name, with its bytes
//! ```
//! Without that, what is changed through it would be changed on the host, and what the image has
//! changed would not be seen.
//!
//! What the first program has open for writing stays the host's, and so does its name: that becomes
//! a portal, so that a program sees that both are one file.
//!
//! Limits: what others have open for writing, and directories, stay the host's, and nobody knows
//! that their names are the same. A shadow made here has a description of its own.

use crate::overlay::lower::Fact;
use crate::path::text::lies_below;
use crate::path::{Aim, Place};
use crate::{Client, Host, Memory};
use husk_abi::sys::general::{AT_FDCWD, F_GETFL, O_ACCMODE, O_CLOEXEC, O_PATH, O_RDONLY, SEEK_CUR};
use husk_abi::{PATH_MAX, nr};
use husk_proto::descriptor::{Shown, Slot};
use husk_proto::fs::{Change, Kind};
use husk_proto::image::Cover;
use husk_proto::{Credentials, Errno, Inode, Result, Services};

/// Highest number that a first program is asked about.
const INHERITED_MAX: u32 = 1023;
const INHERITED_WORDS: usize = (INHERITED_MAX / u64::BITS + 1) as usize;

/// Numbers of host descriptors, a bit each: a list, for few of a thousand are in use.
struct Inherited([u64; INHERITED_WORDS]);

impl Inherited {
    fn each(&self, mut meet: impl FnMut(u32)) {
        for (word, base) in self.0.iter().zip((0..).step_by(u64::BITS as usize)) {
            let mut rest = *word;
            while rest != 0 {
                meet(base + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Notes the descriptors that the image's first program was started with.
    pub fn meet_inherited(&mut self) {
        let inherited = self.inherited();
        // Before anybody looks into the directories of these files.
        inherited.each(|fd| {
            self.leave_to_host(fd);
        });
        inherited.each(|fd| {
            if let Stranger::File(inode) = self.meet(fd) {
                let files = self.services.files();
                let on_exec = self.services.close_on_exec(files, fd).unwrap_or(false);
                let _ = self.services.host_opened(files, fd, on_exec, Shown::File(inode));
            }
        });
    }

    fn inherited(&mut self) -> Inherited {
        let (files, kept) = (self.services.files(), self.host.kept_fds());
        let mut found = Inherited([0; INHERITED_WORDS]);
        self.services.for_each(files, 0, INHERITED_MAX, &mut |fd, slot| {
            if slot == Slot::Host(None) && !kept.contains(&fd) {
                found.0[(fd / u64::BITS) as usize] |= 1 << (fd % u64::BITS);
            }
        });
        found
    }

    /// Makes the name of a file below an overlay that `fd` may write to a portal, so that it is the
    /// host's by its name as well: programs see that both are one file, and its size. `None`: it is
    /// no such file, or its directory was listed before.
    #[cold]
    fn leave_to_host(&mut self, fd: u32) -> Option<()> {
        let (fact, _) = self.file_below_overlay(fd, |access| access != O_RDONLY)?;
        let walk = &mut self.buffers.walks[0];
        walk.length = walk.directory_length();
        let Ok(Place::Husk(target)) = self.find_text(AT_FDCWD, 0, Aim::STAY) else { return None };
        let directory = target.inode().ok().filter(|&inode| {
            self.services.step(inode).is_ok_and(|step| step.kind == Kind::Directory)
        })?;
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let length = usize::try_from(self.descriptor_path(fd, bounce)).ok()?;
        let path = self.buffers.bounce.get(..length)?;
        let name = path.iter().rposition(|&byte| byte == b'/')? + 1;
        self.offer(directory, &[fact.as_portal(name, length)]).ok().map(drop)
    }

    /// The number of a host descriptor just received.
    pub(crate) fn note_stranger(&mut self, fd: u32) -> i64 {
        let on_exec = self.closes_on_exec(fd);
        if let Some(landed) = self.landed(fd, on_exec) {
            return landed.map_or_else(Errno::as_return, i64::from);
        }
        match self.meet(fd) {
            Stranger::Host => {
                let noted = self.note_opened(fd, on_exec, Shown::Nothing);
                if noted >= 0 {
                    self.meet_watcher(noted as u32);
                }
                noted
            }
            Stranger::File(inode) => self.note_opened(fd, on_exec, Shown::File(inode)),
            Stranger::Lost(root, fact) => {
                let copied = self.copy_lost(fd, root, &fact, on_exec);
                self.host_close(fd);
                copied.map_or_else(Errno::as_return, i64::from)
            }
        }
    }

    #[cold]
    fn meet(&mut self, fd: u32) -> Stranger {
        self.reads_a_tree(fd).unwrap_or(Stranger::Host)
    }

    /// What a host descriptor of a regular file is to the image; `None`: nothing.
    fn reads_a_tree(&mut self, fd: u32) -> Option<Stranger> {
        let (fact, root) = self.file_below_overlay(fd, |access| access == O_RDONLY)?;
        match self.find_text(AT_FDCWD, 0, Aim::STAY) {
            Ok(Place::Husk(target)) => {
                if target.step.is_some_and(|step| step.kind == Kind::Portal) {
                    return None;
                }
                let file = target.inode().ok().filter(|&inode| self.is_of(inode, &fact));
                Some(file.map_or(Stranger::Lost(root, fact), Stranger::File))
            }
            Ok(_) => None,
            Err(_) => Some(Stranger::Lost(root, fact)),
        }
    }

    /// What the host says of `fd`, and the root of its overlay, if it is open on a regular file
    /// below one with such an access mode; the file's path is in walk 0 then.
    fn file_below_overlay(&mut self, fd: u32, is_meant: fn(u32) -> bool) -> Option<(Fact, Inode)> {
        if self.services.mounts() == 0 {
            return None;
        }
        let flags = u32::try_from(self.host_fcntl(fd as usize, F_GETFL, 0)).ok()?;
        if flags & O_PATH != 0 || !is_meant(flags & O_ACCMODE) {
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
        self.overlay_above(0).map(|root| (fact, root))
    }

    /// The root of the overlay that the host's text of a walk lies in. A file that the host has
    /// removed is in none.
    fn overlay_above(&self, w: usize) -> Option<Inode> {
        let text = self.buffers.walks[w].whole();
        if text.ends_with(b" (deleted)") {
            return None;
        }
        let mounts = (0..self.services.mounts()).map(|index| self.services.mount(index));
        let nearest = mounts.filter(|mount| lies_below(text, mount.path));
        let mount = nearest.max_by_key(|mount| mount.path.len())?;
        (mount.cover == Cover::Overlay).then_some(mount.root)
    }

    /// Whether an inode was made from this file of the host.
    fn is_of(&mut self, inode: Inode, fact: &Fact) -> bool {
        let origin = self.services.attributes(inode).ok().and_then(|found| found.origin);
        let known = origin.and_then(|origin| self.services.host_identity(origin).ok());
        known.is_some_and(|known| known.object() == fact.identity.object())
    }

    /// A file without a name in the image that has bytes, owner and mode of the host's, at the same
    /// offset; its number.
    fn copy_lost(&mut self, fd: u32, root: Inode, fact: &Fact, on_exec: bool) -> Result<u32> {
        self.identify();
        let groups = &self.buffers.groups;
        let all = self.identity.credentials(groups);
        let who = Credentials { capabilities: u64::MAX, within: None, ..all };
        let file = self.services.create_nameless(&who, root, fact.mode, false)?;
        let owner = Change { uid: Some(fact.uid), gid: Some(fact.gid), ..Change::default() };
        let filled =
            self.services.change(&who, file, owner).and_then(|_| self.copy_open(fd, file, fact));
        let flags = if on_exec { O_CLOEXEC } else { 0 };
        let opened = filled.and_then(|()| self.open_inode(file, flags, true));
        self.services.unpin(file);
        let number = opened?;
        let offset = self.host.call(nr::lseek, [fd as usize, 0, SEEK_CUR as usize, 0, 0, 0]);
        if let Some(description) = self.described(number as usize)? {
            self.services.set_offset(description, offset.max(0) as u64)?;
        }
        Ok(number)
    }

    /// Copies what `fd` reads, by a descriptor of our own: the offset is others', too.
    fn copy_open(&mut self, fd: u32, file: Inode, fact: &Fact) -> Result<()> {
        let name = husk_abi::proc::descriptor(fd);
        let args = [AT_FDCWD as usize, name.as_ptr() as usize, O_CLOEXEC as usize, 0, 0, 0];
        let own = Errno::check(self.host.call(nr::openat, args))? as usize;
        let copied = self.copy_up(own, file, fact.identity.size);
        self.host_close(own as u32);
        copied
    }
}

/// What a host descriptor from elsewhere is.
enum Stranger {
    /// The host's.
    Host,
    /// A file of a tree.
    File(Inode),
    /// A file below the overlay with this root that has no name in the image, or another.
    Lost(Inode, Fact),
}
