//! Files that nobody on this node has open any more, and the home still has: see the kernel's
//! `descriptor::leases`.
//!
//! ```text
//!   close ─► small, read only, named, unlocked at home? ─► a lease; else `return` is sent
//!   open  ─► a lease, and the home's memory says that the caller may ─► no message
//!   tick of the node's supervisor ─► ends those that are not as they were at home
//! ```
//!
//! Invariants
//! 1. A lease is of one opening: that of who takes it. A lock, a mapping or an offset is nobody
//!    else's.
//! 2. Rights are judged at each open, by what the home's memory says then.
//! 3. On other hosts there are none: nothing could be looked at.

use husk_abi::sys::general::{O_APPEND, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};
use husk_kernel::descriptor::leases;
use husk_kernel::descriptor::table;
use husk_kernel::fs::walk;
use husk_kernel::image::LEASES_MAX;
use husk_kernel::process;
use husk_proto::descriptor::Slot;
use husk_proto::fs::want;
use husk_proto::{Credentials, Files, Inode, Result, Shortcuts as _};
use husk_region::Without;
use husk_wire::AFAR;

use super::home::there;
use crate::Direct;

/// With these, and no others, a lease will do.
const FLAGS: u32 = O_APPEND | O_CLOEXEC | O_LARGEFILE | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
/// How many are ended at once, by one message, when there is no room for another.
const ENDED_AT_ONCE: u32 = LEASES_MAX / 2;

impl Direct {
    /// `Descriptors::close`: false if the home is to be told.
    #[inline(never)]
    pub(crate) fn far_keep(&mut self, files: Files, fd: u32) -> bool {
        self.keep_if(files, fd, (true, false))
    }

    /// The same of what is closed because something else is to have its number, in a table that is
    /// this thread's alone: nobody else takes the number meanwhile. `by_host`: the host has put it
    /// there.
    #[inline(never)]
    pub(super) fn keep_replaced(&mut self, files: Files, fd: u32, by_host: bool) -> bool {
        let is_alone = self.kernel.session.is_alone() && process::has_own_table(&self.kernel);
        is_alone && files == self.files() && self.keep_if(files, fd, (true, by_host))
    }

    /// The same where that is the description behind another number, if there is one.
    #[inline(never)]
    pub(crate) fn far_keep_replaced(&mut self, files: Files, by: u32, fd: u32) -> bool {
        let is_there = matches!(table::slot(&self.kernel, files, by), Slot::Husk(_));
        is_there && by != fd && self.keep_replaced(files, fd, false)
    }

    /// The same of what a process has open that ends, as far as there is room.
    pub(super) fn keep_all(&mut self, files: Files) {
        let mut next = 0;
        while let Some(fd) = self.next_number(files, next) {
            // What is not kept is closed.
            self.keep_if(files, fd, (false, false));
            next = fd + 1;
        }
    }

    fn keep_if(&mut self, files: Files, fd: u32, (makes_room, unplugs): (bool, bool)) -> bool {
        let slot = table::slot(&self.kernel, files, fd);
        let Slot::Husk(description) = slot else { return false };
        let stands_for = leases::stands_for(&self.kernel, description);
        let Ok(Some((inode, 1..))) = stands_for else { return false };
        if self.node() >= AFAR || self.without().has(Without::LEASES) {
            return false;
        }
        let fits = self.peek(|home| Ok(leases::is_fit(home, inode)? && !leases::is_watched(home)));
        if fits != Some(Ok(true)) {
            return false;
        }
        if !leases::has_room(&self.kernel) && makes_room {
            self.end_leases(|_, index, _| index < ENDED_AT_ONCE);
        }
        leases::keep(&self.kernel, files, fd, inode, unplugs).unwrap_or(false)
    }

    /// `Fs::open`: `None` if the home is to be asked.
    pub(super) fn far_reopen(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        numbers: (u32, u32),
    ) -> Result<Option<u32>> {
        let inode = there(inode);
        if flags & !FLAGS != 0 || !leases::any_of(&self.kernel, inode) {
            return Ok(None);
        }
        let may = self.peek(|home| {
            let step = walk::step(home, inode)?;
            let is_plain = !step.acl && leases::is_fit(home, inode)? && !leases::is_watched(home);
            Ok(is_plain && who.permit(&step, want::READ).is_ok())
        });
        match may {
            Some(Ok(true)) => leases::reopen(&self.kernel, files, inode, flags, numbers),
            _ => Ok(None),
        }
    }

    /// Ends the leases of files that are not as they were when they became leases: they have lost
    /// their names, say.
    pub fn end_old_leases(&mut self) {
        if self.is_away {
            self.end_leases(|me, _, inode| {
                let seen = me.peek(|home| leases::is_fit(home, inode));
                // Where it is being changed, it is looked at again the next time.
                seen.map_or(me.home.is_none(), |fits| fits != Ok(true))
            });
        }
    }

    fn end_leases(&mut self, mut goes: impl FnMut(&mut Self, u32, Inode) -> bool) {
        let mut gone = [0; LEASES_MAX as usize];
        for index in 0..LEASES_MAX {
            let Some(inode) = leases::at(&self.kernel, index) else { continue };
            if !goes(self, index, inode) {
                continue;
            }
            if let Ok(Some((own, hold))) = leases::end(&self.kernel, index, inode)
                && walk::step(&self.kernel, own).is_err()
            {
                gone[index as usize] = hold;
            }
        }
        self.far_return(&gone, true);
    }
}
