//! Locks of files of another node: asked of its agent, waited for in its memory.
//!
//! ```text
//!   flock, OFD   by the hold that keeps the description open at home: they end with it
//!   POSIX        by our table's number: given back when a number of the file is closed
//!   blocked      the answer says which value the home's word for waiters has; who waits sleeps on
//!                that word until somebody at home gives a lock back; on another host it asks again
//! ```

use core::sync::atomic::AtomicU32;

use husk_abi::sys::general::O_RDONLY;
use husk_kernel::descriptor::open;
use husk_kernel::fs::walk;
use husk_kernel::lock::{self, By};
use husk_proto::fs::Change;
use husk_proto::lock::{Held, Mode, Outcome, Owner, Range};
use husk_proto::{Description, Errno, Files, Inode, Result, Shortcuts as _};
use husk_wire::record::{LockBy, LockMode, Range as Bytes};
use husk_wire::{AFAR, message, request};

use super::home::there;
use super::{BUSY_MAX, BUSY_NAP_NS, nap, object};
use crate::Direct;

/// The mode of a stand-in of which a table of another host has POSIX locks.
const LOCKED: u32 = 0o604;
/// What waits for a lock on another host sleeps on: it asks again when that has been long enough.
static NOBODY_WAKES: AtomicU32 = AtomicU32::new(0);

/// Up to the end, wherever that is.
const ALL: Bytes = Bytes { start: 0, length: 0 };

fn bytes(range: Range) -> Result<Bytes> {
    let length = match range.end {
        u64::MAX => 0,
        end => end.checked_sub(range.start).filter(|length| *length > 0).ok_or(Errno::EINVAL)?,
    };
    Ok(Bytes { start: range.start, length })
}

impl Direct {
    /// The hold that keeps a description open at home. A file of home's host that another host
    /// reads has none before it has a lock.
    fn hold_behind(&mut self, description: Description) -> Result<u64> {
        let (own, hold) = self.held_behind(description)?;
        if hold != 0 {
            return Ok(hold);
        }
        let inode = self.home_of(own)?;
        self.far_own(inode, Some(u64::MAX))?;
        match self.far_hold(inode, O_RDONLY)? {
            0 => Err(Errno::ENOLCK),
            hold => {
                self.keep_hold(own, hold).inspect_err(|_| self.far_give_back(&[hold]))?;
                Ok(hold)
            }
        }
    }

    /// On another host, where the home's locks cannot be looked at: our table has locks of a file,
    /// which every number that it has for the file now is marked with.
    fn mark_locked(&mut self, inode: Inode) {
        let files = self.files();
        self.each_held(files, &mut |me, _, own, _| {
            if me.home_of(own) == Ok(inode) {
                let change = Change { mode: Some(LOCKED), ..Change::default() };
                // One that is not marked is given back with the node.
                let _ = me.change_own(own, change);
            }
        });
    }

    fn is_locked_by(&mut self, files: Files, inode: Inode) -> bool {
        let mut is = false;
        self.each_held(files, &mut |me, _, own, _| {
            let marked = walk::step(&me.kernel, own).is_ok_and(|step| step.mode == LOCKED);
            is |= marked && me.home_of(own) == Ok(inode);
        });
        is
    }

    fn whose(&mut self, owner: Owner) -> Result<(LockBy, u64)> {
        Ok(match owner {
            Owner::Process => (LockBy::Process, self.files().0.into()),
            Owner::Description(description) => {
                (LockBy::Description, self.hold_behind(description)?)
            }
            Owner::Flock(description) => (LockBy::Flock, self.hold_behind(description)?),
        })
    }

    /// `Locks::lock`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_lock(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Outcome> {
        self.far_forget();
        let is_table = owner == Owner::Process;
        let (by, owner) = self.whose(owner)?;
        let (object, range) = (object(inode), bytes(range)?);
        let mode = match mode {
            Mode::Unlock => {
                return self.far_unlock(inode, (by, owner), range).map(|()| Outcome::Granted);
            }
            Mode::Shared => LockMode::Shared,
            Mode::Exclusive => LockMode::Exclusive,
        };
        let asked = request::Lock { object, owner, range, mode, waits: false, by };
        let said = self.ask::<message::Lock>(&asked, &mut [0; 128], &mut [0; 128])?;
        if said.is_granted {
            if is_table && self.node() >= AFAR {
                self.mark_locked(inode);
            }
            return Ok(Outcome::Granted);
        }
        if self.node() >= AFAR {
            let address = (&raw const NOBODY_WAKES) as usize;
            return Ok(Outcome::Blocked { address, value: 0 });
        }
        let address = self.peek(|home| Ok(lock::wait_address(home, there(inode))));
        // Without the home's memory nobody can wait.
        let address = address.unwrap_or(Err(Errno::ENOLCK))?;
        Ok(Outcome::Blocked { address, value: said.change as u32 })
    }

    /// `Locks::test`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_test_lock(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Held>> {
        if self.node() >= AFAR {
            return Err(Errno::ENOLCK);
        }
        let (node, whose) = (self.node(), self.whose(owner)?);
        for _ in 0..BUSY_MAX {
            let seen = self.peek(|home| {
                let who = match whose {
                    (LockBy::Process, files) => lock::elsewhere(node, files as u32),
                    (by, hold) => {
                        let held = open::held_by_record(home, hold as u32);
                        let by = if by == LockBy::Flock { By::Flock } else { By::Ofd };
                        lock::of_description(held.ok_or(Errno::EAGAIN)?, by)
                    }
                };
                lock::test_as(home, who, there(inode), range, mode)
            });
            if let Some(seen) = seen {
                return seen;
            }
            nap(BUSY_NAP_NS);
        }
        Err(Errno::ENOLCK)
    }

    /// Before a number of the file is closed: our table's POSIX locks on it are given back.
    pub(super) fn far_drop_locks(&mut self, files: Files, own: Inode) {
        let Ok(inode) = self.home_of(own) else { return };
        let node = self.node();
        let who = lock::elsewhere(node, files.0);
        let has = match node {
            AFAR.. => Some(Ok(self.is_locked_by(files, inode))),
            _ => self.peek(|home| lock::has(home, there(inode), who)),
        };
        if let Some(Ok(false) | Err(_)) = has {
            return;
        }
        // What is not told stays until this node ends.
        let _ = self.far_unlock(inode, (LockBy::Process, files.0.into()), ALL);
    }

    fn far_unlock(&mut self, inode: Inode, (by, owner): (LockBy, u64), range: Bytes) -> Result<()> {
        let asked = request::Unlock { object: object(inode), owner, range, by };
        self.ask::<message::Unlock>(&asked, &mut [0; 128], &mut [0; 128]).map(drop)
    }
}
