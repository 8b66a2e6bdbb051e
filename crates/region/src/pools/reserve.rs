//! The reserve: free objects for operations that must work in a full image (`set_reserved`).
//!
//! ```text
//!   never used, the last RESERVED ─┐ lend, 2 at a time              freed ─► magazines, pools
//!                                  ├────────────────► magazine                    │
//!   paid back ─────────────────────┘                                              │
//!       ▲                        pay, before anybody else gets any of them        │
//!       └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. What is lent and not paid back is owed. While something of a class is owed, the ordinary gets
//!    none of it, wherever it lies (`is_kept`): who is refused pays first, from all that is free.
//!    So the reserve is used up only by as many as hold something of it at once.
//! 2. What is owed, what was paid back, and the bump pointers change under their one lock.

use husk_abi::Errno;

use crate::arena::layout::{CLASSES, NODE, RECORD, header};
use crate::arena::memory::Cell;
use crate::hooks::kill;
use crate::pools::magazine::{LOW, count_of, item};
use crate::txn::session::Session;

/// Objects of each class, the last never used ones, that only `refill_reserved` hands out: an image
/// full of names and bytes can still start the program that removes them.
pub(crate) const RESERVED: [u32; CLASSES] = [0, 0, 1024, 512];
/// Objects lent at a time.
const LENT: u64 = 2;
/// Rounds of paying, each of what one pool or magazine has.
const PAYS_MAX: u32 = 1024;

/// What was paid back of a class: the number of the first, and above it how many.
pub(crate) fn paid_back(class: usize) -> Option<Cell> {
    match class {
        NODE => Some(Cell::at(header::PAID_BACK)),
        RECORD => Some(Cell::at(header::PAID_BACK + 1)),
        _ => None,
    }
}

/// What is owed of a class: half of one word, which is on the line that says whether somebody
/// freezes the image, and read as often.
fn shift(class: usize) -> u32 {
    if class == RECORD { 32 } else { 0 }
}

impl Session {
    /// Whether this thread may have what is kept, from now on; and whether it might before.
    pub fn set_reserved(&self, may: bool) -> bool {
        self.reserved.replace(may)
    }

    /// Objects of `class` that are owed to the reserve.
    #[inline(always)]
    pub(crate) fn owed(&self, class: usize) -> u64 {
        match class {
            NODE | RECORD => self.region.load(Cell::at(header::OWED)) >> shift(class) & 0xffff_ffff,
            _ => 0,
        }
    }

    /// Whether this thread gets none of `class`, though there may be some.
    #[inline(always)]
    pub(crate) fn is_kept(&self, class: usize) -> bool {
        self.owed(class) != 0 && !self.reserved.get()
    }

    /// After `ENOSPC`, for what must not fail: two objects of each class from the reserve. False:
    /// nothing is left of it.
    #[cold]
    pub fn refill_reserved(&self) -> Result<bool, Errno> {
        if kill::refuses() {
            return Ok(false);
        }
        let base = self.base()?;
        let mut any = false;
        for class in (0..CLASSES).filter(|&class| RESERVED[class] > 0) {
            if self.region.load(count_of(base, class)) < LOW {
                any |= self.lend(class)?;
            }
        }
        Ok(any)
    }

    /// From what was paid back, then from what was never used.
    fn lend(&self, class: usize) -> Result<bool, Errno> {
        let (Some(paid), bump) = (paid_back(class), Cell::at(header::BUMP + class as u32)) else {
            return Ok(false);
        };
        let count = self.region.map.classes[class].count as u64;
        let first = count.saturating_sub(RESERVED[class] as u64);
        self.quiet(|txn| {
            txn.lock(Cell::at(header::BUMP_LOCK))?;
            txn.mind_thieves()?;
            let had = txn.get(count_of(txn.base, class));
            let (mut head, mut next, mut taken, mut owed) = (txn.get(paid), txn.get(bump), 0, 0);
            while taken < LENT && (head as u32 != 0 || next < count) {
                let number = if head as u32 != 0 { head & 0xffff_ffff } else { next };
                let object = txn.region.map.object(class, number as u32);
                if head as u32 != 0 {
                    head =
                        (head - (1 << 32)) & !0xffff_ffff | txn.get(object.word(1)) & 0xffff_ffff;
                    owed += 1;
                } else {
                    txn.meet_new(object);
                    owed += u64::from(next >= first);
                    next += 1;
                }
                txn.init(item(txn.base, class, had + taken), number);
                taken += 1;
            }
            txn.set(paid, head);
            txn.set(bump, next);
            let all = txn.get(Cell::at(header::OWED));
            txn.set(Cell::at(header::OWED), all + (owed << shift(class)));
            txn.set(count_of(txn.base, class), had + taken);
            Ok(taken > 0)
        })
    }

    /// Pays what is owed of `class` from what is free anywhere; whether all is paid.
    #[cold]
    pub(crate) fn pay(&self, class: usize) -> Result<bool, Errno> {
        for _ in 0..PAYS_MAX {
            self.pay_own(class)?;
            if self.owed(class) == 0 {
                return Ok(true);
            }
            if !self.refill_from_any(class)? && !self.steal(class)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Pays from the own magazine.
    fn pay_own(&self, class: usize) -> Result<(), Errno> {
        let Some(paid) = paid_back(class) else { return Ok(()) };
        self.quiet(|txn| {
            txn.lock(Cell::at(header::BUMP_LOCK))?;
            txn.mind_thieves()?;
            let (mut head, all) = (txn.get(paid), txn.get(Cell::at(header::OWED)));
            let had = txn.get(count_of(txn.base, class));
            let count = had.min(all >> shift(class) & 0xffff_ffff);
            for n in had - count..had {
                let number = txn.get(item(txn.base, class, n)) & 0xffff_ffff;
                txn.link(class, number, head);
                head = ((head & !0xffff_ffff) + (1 << 32)) | number;
            }
            txn.set(paid, head);
            txn.set(Cell::at(header::OWED), all - (count << shift(class)));
            txn.set(count_of(txn.base, class), had - count);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RESERVED;
    use crate::arena::layout::{INODE, Layout, NODE};

    #[test]
    fn nodes_are_enough_for_a_long_name_of_each_file_in_one_directory() {
        for memory_bytes in [4 << 20, 1 << 30, 16 << 30, 255 << 30] {
            let classes = Layout { kernels: 2, memory_bytes }.map().classes;
            let (inodes, nodes) = (classes[INODE].count, classes[NODE].count);
            assert!(nodes - RESERVED[NODE] >= inodes + inodes / 64 + 64, "{memory_bytes}");
        }
    }
}
