//! Locks of files that programs on other nodes ask for.
//!
//! ```text
//!   flock, OFD   the lock is that of the description here, which a hold keeps open
//!   POSIX        the lock is that of a descriptor table of that node, by its number
//!   mapping      one hold may map the file to write to it, while nobody does at home
//! ```
//!
//! Nobody waits here: who is to wait is told the word that the holder wakes, and asks again.
//!
//! Invariants
//! 1. A lock that was asked for twice is one lock: locks of one holder are never in each other's
//!    way. So no record of an answer is needed.
//! 2. Those of a hold end with it. Those of a table are given back by its process, by who cleans up
//!    after that, or when the node is dead (`bury`).
//! 3. A table's first lock of a file whose answer nobody takes is given back here: who cleans up
//!    after its program may have looked before there was one. Later ones are not: that would take
//!    what the table had before, which others may share.

use husk_carrier::By;
use husk_proto::lock::{Mode, Range};
use husk_proto::{Errno, Inode};
use husk_wire::record::{LockBy, LockMode, Object, Range as Bytes};
use husk_wire::{Failure, Header, message, reply, request};

use crate::agent::{Agent, Lock};
use crate::translate::{Handled, failure, inode, put};

fn range(said: Bytes) -> Result<Range, Failure> {
    let end = match said.length {
        0 => Some(u64::MAX),
        length => said.start.checked_add(length),
    };
    Ok(Range { start: said.start, end: end.ok_or(failure(Errno::EINVAL))? })
}

impl Agent {
    /// Locks a range: whether that was granted, or the word of those who wait.
    pub fn lock(&mut self, header: &Header, asked: request::Lock, room: &mut [u8]) -> Handled {
        let mode = match asked.mode {
            LockMode::Shared => Mode::Shared,
            LockMode::Exclusive => Mode::Exclusive,
        };
        let whose = (asked.by, asked.owner);
        let blocked = self.lock_by(header, whose, asked.object, asked.range, mode)?;
        let (is_granted, change) = (blocked.is_none(), blocked.unwrap_or(0).into());
        put::<message::Lock>(header, &reply::Lock { is_granted, change }, room)
    }

    /// Lets a range go.
    pub fn unlock(&mut self, header: &Header, asked: request::Unlock, room: &mut [u8]) -> Handled {
        let whose = (asked.by, asked.owner);
        self.lock_by(header, whose, asked.object, asked.range, Mode::Unlock)?;
        put::<message::Unlock>(header, &reply::Unlock {}, room)
    }

    fn lock_by(
        &mut self,
        header: &Header,
        (by, owner): (LockBy, u64),
        object: Object,
        bytes: Bytes,
        mode: Mode,
    ) -> Result<Option<u32>, Failure> {
        let (inode, range) = (inode(object).map_err(failure)?, range(bytes)?);
        let node = header.source;
        let blocked = match by {
            LockBy::Description => {
                self.direct().lock_held((owner, node), By::Ofd, inode, range, mode)
            }
            LockBy::Flock => self.direct().lock_held((owner, node), By::Flock, inode, range, mode),
            LockBy::Mapping => self.lock_to_map((owner, node), inode, range, mode),
            LockBy::Process => {
                let files = u32::try_from(owner).map_err(|_| failure(Errno::EINVAL))?;
                let whose = (node, files, header.behalf);
                let had_some = self.direct().has_lock_elsewhere((node, files), inode);
                let blocked = self.direct().lock_elsewhere(whose, inode, range, mode);
                // Who had some before has a program that lives, or that will be cleaned up after.
                if blocked == Ok(None) && mode != Mode::Unlock && had_some == Ok(false) {
                    self.unheard_lock = Some(Lock { node, files, inode, range });
                }
                blocked
            }
        };
        if mode != Mode::Unlock && self.sessions.is_fenced(header) {
            // Its node was declared dead meanwhile.
            let _ = self.direct().drop_locks_of(node);
            return Err(Failure::Fenced);
        }
        blocked.map_err(failure)
    }

    /// Lets a program of another node alone write to a file by a mapping, if nobody here does. Who
    /// wants to from now on finds the lock.
    fn lock_to_map(
        &mut self,
        whose: (u64, u16),
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<u32>, Errno> {
        let direct = self.direct();
        let blocked = direct.lock_held(whose, By::Mapping, inode, range, mode)?;
        if blocked.is_some() || mode == Mode::Unlock || !direct.is_mapped_to_write(inode)? {
            return Ok(blocked);
        }
        direct.lock_held(whose, By::Mapping, inode, range, Mode::Unlock)?;
        Ok(Some(0))
    }

    /// Nobody has taken the answer to the request of now: what it has locked is let go of.
    pub fn lock_was_not_heard(&mut self) {
        if let Some(Lock { node, files, inode, range }) = self.unheard_lock.take() {
            let whose = (node, files, 0);
            let _ = self.direct().lock_elsewhere(whose, inode, range, Mode::Unlock);
        }
    }
}
