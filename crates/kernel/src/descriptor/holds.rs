//! Holds: open-file descriptions that who serves other nodes keeps open for them.
//!
//! ```text
//!   record  0 lock   1 generation:32 tag:32   2 epoch:32 node:32   3 request:32 description:32
//!           4 process of the asker
//!   opened for a request ─► a number in the table of the agent ── `take` ──► a hold
//!   the asker gives it back, or its node is dead ── `end` ──► the description is let go of
//! ```
//!
//! A hold is in no table, so the next agent finds it when the one that took it was killed.
//!
//! Invariants
//! 1. A hold is one of the references of its description. It takes the place of a number in one
//!    transaction, so that it and the number are never both there, and never both gone.
//! 2. Its name is its record and the generation of that: no two holds ever have the same one.
//! 3. Holds are found by looking at all records, and are locked before they are believed: the tag
//!    is taken back with the transaction that fails.

use husk_proto::lock::{Mode, Range};
use husk_proto::{Errno, Files, Inode, Result};
use husk_region::observe::kill;
use husk_region::{RECORD, Region, Txn};

use crate::descriptor::open::{self, HELD as TARGET, TAG};
use crate::lock::{self, By};
use crate::state::{fd_table, high, low, pair, tag};
use crate::{Kernel, no_room};

const ASKER: u32 = 2;
const PROCESS: u32 = 4;

/// For whom a description is kept open, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The node.
    pub node: u16,
    /// Which life of it.
    pub epoch: u32,
    /// The request that it was opened for.
    pub request: u32,
    /// The process that has asked.
    pub process: u32,
}

/// The name of the hold in a record.
fn name(region: &Region, number: u32) -> u64 {
    let generation = high(region.load(open::cell(region, number).word(TAG)));
    // A mutant: names come again.
    pair(if kill::mutant() == 82 { 0 } else { generation }, number)
}

/// The hold in a record, and its description.
fn at(region: &Region, number: u32) -> Option<(Hold, u32)> {
    let cell = open::cell(region, number);
    if low(region.load(cell.word(TAG))) != tag::HOLD {
        return None;
    }
    let [asker, target, process] =
        [ASKER, TARGET, PROCESS].map(|word| region.load(cell.word(word)));
    let (node, epoch, request) = (low(asker) as u16, high(asker), high(target));
    Some((Hold { node, epoch, request, process: process as u32 }, low(target)))
}

/// What is open under `fd` of a table is kept open by a hold in its place: the name of that.
pub fn take(kernel: &Kernel, files: Files, fd: u32, hold: Hold) -> Result<u64> {
    let taken = kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let description = high(fd_table::husk(txn, table, fd)?);
        let number = txn.allocate(RECORD)?;
        let cell = open::cell(txn.region, number);
        txn.lock(cell)?;
        txn.init(cell.word(ASKER), pair(hold.epoch, hold.node.into()));
        txn.init(cell.word(TARGET), pair(hold.request, description));
        txn.init(cell.word(PROCESS), hold.process.into());
        let generation = high(txn.get(cell.word(TAG)));
        txn.set(cell.word(TAG), pair(generation, tag::HOLD));
        fd_table::put(txn, table, fd, 0)?;
        Ok(number)
    });
    let number = taken.map_err(no_room(Errno::ENFILE))?;
    Ok(name(&kernel.session.region, number))
}

/// The number of the record that a name says, if there is one.
fn record(kernel: &Kernel, hold: u64) -> Option<u32> {
    Some(low(hold)).filter(|&number| number != 0 && number < kernel.session.never_used(RECORD))
}

/// The description that the hold of that name keeps open, if it fits; its record is locked then.
fn locked(txn: &mut Txn<'_>, hold: u64, fits: impl Fn(&Hold) -> bool) -> Result<Option<u32>> {
    let number = low(hold);
    txn.lock(open::cell(txn.region, number))?;
    let found = at(txn.region, number).filter(|found| fits(&found.0));
    Ok(found.filter(|_| name(txn.region, number) == hold).map(|(_, description)| description))
}

/// Ends the hold of that name, if it fits; false: there is none, or another one. `quiet`: what was
/// only read was closed before, and who watches the file is not told now.
pub fn end(kernel: &Kernel, hold: u64, quiet: bool, fits: impl Fn(&Hold) -> bool) -> Result<bool> {
    let Some(number) = record(kernel, hold) else { return Ok(false) };
    let found = at(&kernel.session.region, number).filter(|found| fits(&found.0));
    let Some((_, description)) = found else {
        return Ok(false);
    };
    open::drop_locks(kernel, description)?;
    open::wake_after(kernel, fd_table::husk_entry(description, false), || {
        kernel.run(|txn| {
            let Some(description) = locked(txn, hold, &fits)? else { return Ok(false) };
            let cell = open::cell(txn.region, number);
            let generation = high(txn.get(cell.word(TAG)));
            txn.set(cell.word(TAG), pair(generation.wrapping_add(1), 0));
            txn.free(RECORD, number);
            if quiet {
                open::silence(txn, description)?;
            }
            open::release(txn, description)?;
            Ok(true)
        })
    })
}

/// Asks for a lock of the description that a hold keeps open, or gives it back: `None` if it was
/// done, else the word of its waiters. `EBADF`: there is no such hold.
pub fn lock(
    kernel: &Kernel,
    (hold, fits): (u64, &dyn Fn(&Hold) -> bool),
    by: By,
    inode: Inode,
    range: Range,
    mode: Mode,
) -> Result<Option<u32>> {
    let number = record(kernel, hold).ok_or(Errno::EBADF)?;
    let pid = match at(&kernel.session.region, number) {
        Some((held, _)) if by != By::Ofd => held.process,
        _ => u32::MAX,
    };
    lock::lock_of_another(kernel, inode, range, mode, pid, &|txn| {
        let description = locked(txn, hold, fits)?.ok_or(Errno::EBADF)?;
        if open::inode(txn.region, description) != inode {
            return Err(Errno::EBADF);
        }
        Ok(lock::of_description(description, by))
    })
}

/// Calls `emit` with the name of each hold.
pub fn each(kernel: &Kernel, emit: &mut dyn FnMut(u64, Hold)) {
    let region = &kernel.session.region;
    for number in 1..kernel.session.never_used(RECORD) {
        if let Some((hold, _)) = at(region, number) {
            emit(name(region, number), hold);
        }
    }
}
