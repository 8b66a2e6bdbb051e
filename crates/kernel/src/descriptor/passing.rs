//! Open-file descriptions that other nodes use, too: kept open for them, and their shared offset.
//!
//! ```text
//!   program of this node, its exec goes on at another one ── `adopt` ──► a number in the table of
//!   who serves other nodes      only that program had it: the offset goes along, ours is void
//!                               others have it, too: the offset stays, each use is a request
//! ```
//!
//! Invariants
//! 1. Bytes at a shared offset are one asker's: who reads or writes moves the offset first, in one
//!    transaction that also takes the record of the request (`answers`), and then goes by place.
//! 2. What was given and not used goes back only if nobody has moved the offset since.

use husk_proto::descriptor::Open;
use husk_proto::{Description, Errno, Files, Result};
use husk_region::{Cell, INODE, RECORD, Txn};

use crate::descriptor::open::{self, OFFSET, REFERENCES, TAG};
use crate::image::answers::{self, Changes};
use crate::state::fd_table::{self, description_of, husk, husk_entry, lowest_free_of, next_used};
use crate::state::{high, ino, low, tag};
use crate::{Kernel, no_room};

/// A description, and which of those that had its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its number.
    pub description: Description,
    /// Which.
    pub generation: u32,
}

/// What has been kept open for another node.
#[derive(Clone, Copy, Debug)]
pub struct Adopted {
    /// The number in the table of who serves it.
    pub fd: u32,
    /// The description.
    pub named: Named,
    /// What is open, and how.
    pub open: Open,
    /// Where it stands.
    pub offset: u64,
    /// Others than the one process have it, too.
    pub is_shared: bool,
}

/// Keeps what is open under `fd` of the table `from` open in `to`, under a number of `range`.
pub fn adopt(
    kernel: &Kernel,
    (from, fd): (Files, u32),
    to: Files,
    (minimum, limit): (u32, u32),
) -> Result<Adopted> {
    let region = &kernel.session.region;
    let adopted = kernel.run_reserved(|txn| {
        for files in [from.0.min(to.0), from.0.max(to.0)] {
            txn.lock(fd_table::cell(region, Files(files)))?;
        }
        let [source, target] = [from, to].map(|files| fd_table::cell(region, files));
        for table in [source, target] {
            if low(txn.get(table.word(TAG))) != tag::FILES {
                return Err(Errno::ESRCH);
            }
        }
        let description = high(husk(txn, source, fd)?);
        let number = lowest_free_of(region, target, minimum, limit)?;
        let cell = open::cell(region, description);
        txn.lock(cell)?;
        let references = txn.get(cell.word(REFERENCES));
        let is_shared = references != numbers_of(kernel, from, description)
            || fd_table::sharers(region, from) > 1;
        txn.set(cell.word(REFERENCES), references + 1);
        fd_table::put(txn, target, number, husk_entry(description, false))?;
        let generation = high(txn.get(cell.word(TAG)));
        Ok((number, Named { description: Description(description), generation }, is_shared))
    });
    let (fd, named, is_shared) = adopted.map_err(no_room(Errno::ENOMEM))?;
    let open = open::description(kernel, named.description)?;
    let offset = open::offset(kernel, named.description)?;
    Ok(Adopted { fd, named, open, offset, is_shared })
}

/// How many numbers of a table name a description.
fn numbers_of(kernel: &Kernel, files: Files, description: u32) -> u64 {
    let (mut found, mut from) = (0, 0);
    while let Some((fd, entry)) = next_used(&kernel.session.region, files, from) {
        found += u64::from(description_of(entry) == Some(description));
        from = fd + 1;
    }
    found
}

/// The locked description of that name. `EBADF`: it is closed.
fn lock(kernel: &Kernel, txn: &mut Txn<'_>, named: Named) -> Result<Cell> {
    let number = named.description.0;
    if number == 0 || number >= kernel.session.never_used(RECORD) {
        return Err(Errno::EBADF);
    }
    let cell = open::cell(txn.region, number);
    txn.lock(cell)?;
    let word = txn.get(cell.word(TAG));
    let is_it = low(word) == tag::DESCRIPTION && high(word) == named.generation;
    if is_it { Ok(cell) } else { Err(Errno::EBADF) }
}

/// Takes `most` bytes from the offset on, or of them what the file has: where they begin, and how
/// many they are.
pub fn reserve(kernel: &Kernel, named: Named, most: u64, is_read: bool) -> Result<(u64, u64)> {
    kernel.run(|txn| {
        let cell = lock(kernel, txn, named)?;
        let offset = txn.get(cell.word(OFFSET));
        let count = if is_read {
            let inode = open::inode_number(txn.region, named.description.0);
            let size = txn.region.load(txn.region.map.object(INODE, inode).word(ino::SIZE));
            size.saturating_sub(offset).min(most)
        } else {
            most
        };
        let end = offset.checked_add(count).filter(|end| *end <= i64::MAX as u64);
        txn.set(cell.word(OFFSET), end.ok_or(Errno::EFBIG)?);
        let done = if is_read { count } else { 0 };
        answers::keep(kernel, txn, Changes::Bytes, Ok((offset, count)), |_| [offset, done])
    })
}

/// Which of those that had its number a description is that is open.
pub fn generation_of(kernel: &Kernel, description: Description) -> u32 {
    let region = &kernel.session.region;
    high(region.load(open::cell(region, description.0).word(TAG)))
}

/// What is open under that name.
pub fn named(kernel: &Kernel, named: Named) -> Result<Open> {
    kernel.run(|txn| lock(kernel, txn, named).map(drop))?;
    open::description(kernel, named.description)
}

/// The offset.
pub fn tell(kernel: &Kernel, named: Named) -> Result<u64> {
    kernel.run(|txn| {
        let cell = lock(kernel, txn, named)?;
        Ok(txn.get(cell.word(OFFSET)))
    })
}

/// Sets the offset; if that is to be at `from`, only where it is.
pub fn seek(kernel: &Kernel, named: Named, to: u64, from: Option<u64>) -> Result<()> {
    kernel.run(|txn| {
        let cell = lock(kernel, txn, named)?;
        if from.is_none_or(|from| txn.get(cell.word(OFFSET)) == from) {
            txn.set(cell.word(OFFSET), to);
        }
        answers::keep(kernel, txn, Changes::Bytes, Ok(()), |_| [to, 0])
    })
}
