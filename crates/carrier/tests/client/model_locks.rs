//! The model's record locks and flocks: one list, looked through.

use super::Model;
use husk_proto::lock::{Held, Locks, Mode, Outcome, Owner, Range};
use husk_proto::{Inode, Result};

impl Locks for Model {
    fn lock(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
        _: bool,
    ) -> Result<Outcome> {
        if mode != Mode::Unlock && self.test(owner, inode, range, mode)?.is_some() {
            return Ok(Outcome::Blocked {
                address: (&raw const self.umask) as usize,
                value: self.umask,
            });
        }
        let (kind, id) = identity(owner);
        let mut kept = Vec::new();
        for lock in self.locks.drain(..) {
            let same = (lock.0, lock.1, lock.2) == (kind, id, inode);
            if !same || lock.3.end <= range.start || lock.3.start >= range.end {
                kept.push(lock);
                continue;
            }
            if lock.3.start < range.start {
                kept.push((
                    kind,
                    id,
                    inode,
                    Range { start: lock.3.start, end: range.start },
                    lock.4,
                ));
            }
            if lock.3.end > range.end {
                kept.push((kind, id, inode, Range { start: range.end, end: lock.3.end }, lock.4));
            }
        }
        self.locks = kept;
        if mode != Mode::Unlock {
            let mut range = range;
            self.locks.retain(|l| {
                let same = (l.0, l.1, l.2, l.4) == (kind, id, inode, mode);
                let joins = same && l.3.start <= range.end && range.start <= l.3.end;
                if joins {
                    range.start = range.start.min(l.3.start);
                    range.end = range.end.max(l.3.end);
                }
                !joins
            });
            self.locks.push((kind, id, inode, range, mode));
        }
        Ok(Outcome::Granted)
    }
    fn test(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Held>> {
        let (kind, id) = identity(owner);
        let found = self.locks.iter().find(|l| {
            l.2 == inode
                && (l.0 == 2) == (kind == 2)
                && (l.0, l.1) != (kind, id)
                && l.3.start < range.end
                && l.3.end > range.start
                && (mode == Mode::Exclusive || l.4 == Mode::Exclusive)
        });
        let pid = crate::plain::host(husk_abi::nr::getpid, [0; 6]) as i32;
        Ok(found.map(|l| Held { mode: l.4, range: l.3, pid: if l.0 == 0 { pid } else { -1 } }))
    }
}

fn identity(owner: Owner) -> (u8, u64) {
    match owner {
        Owner::Process => (0, 0),
        Owner::Description(d) => (1, u64::from(d.0)),
        Owner::Flock(d) => (2, u64::from(d.0)),
    }
}
