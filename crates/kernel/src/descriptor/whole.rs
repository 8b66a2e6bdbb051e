//! Making, copying and removing whole descriptor tables.
//!
//! 1. A bit without its entry, which a death may leave (`hosts::put_alone`), counts for nothing.

use husk_proto::epoll::Set;
use husk_proto::pipe::{Event, Pipe};
use husk_proto::watch::Instance;
use husk_proto::{Files, Result};
use husk_region::{Cell, INODE, RECORD, RETRY, Txn};

use crate::Kernel;
use crate::descriptor::open;
use crate::pipe;
use crate::readiness::{epoll, eventfd};
use crate::state::fd_table::{self, EVENT, HOST, KIND, PIPE, SET, WATCH};
use crate::state::hold;
use crate::state::tree;
use crate::state::{high, pair, tag};
use crate::watch;

/// Makes an empty table.
pub(crate) fn make(txn: &mut Txn<'_>) -> Result<u32> {
    let number = txn.allocate(RECORD)?;
    let cell = txn.region.map.object(RECORD, number);
    txn.init(cell.word(fd_table::ROOT), 0);
    txn.init(cell.word(fd_table::SHARERS), 1);
    txn.init(cell.word(fd_table::FIRST), 0);
    let generation = high(txn.get(cell.word(fd_table::TAG)));
    txn.init(cell.word(fd_table::TAG), pair(generation, tag::FILES));
    Ok(number)
}

/// Copies number `fd` of one table to another nobody else uses yet.
pub(crate) fn copy_one(kernel: &Kernel, source: Files, target: Files, fd: u32) -> Result<()> {
    kernel.run_reserved(|txn| {
        // Tables in order of their records, as everywhere.
        let (one, two) = (source.0.min(target.0), source.0.max(target.0));
        fd_table::lock(txn, Files(one))?;
        fd_table::lock(txn, Files(two))?;
        let entry = fd_table::entry(txn.region, source, fd);
        let table = fd_table::cell(txn.region, target);
        match entry & KIND {
            _ if fd_table::description_of(entry).is_some() => open::hold(txn, high(entry))?,
            HOST if entry & PIPE != 0 => pipe::hold(txn, Pipe(high(entry)))?,
            HOST if entry & SET != 0 => epoll::hold(txn, Set(high(entry)))?,
            HOST if entry & EVENT != 0 => eventfd::hold(txn, Event(high(entry)))?,
            HOST if entry & WATCH != 0 => watch::hold(txn, Instance(high(entry)))?,
            HOST if high(entry) != 0 => {
                let inode = txn.region.map.object(INODE, high(entry));
                txn.lock(inode)?;
                hold::add_users(txn, inode, 1, 0);
            }
            HOST => {}
            _ => return Ok(()),
        }
        fd_table::put(txn, table, fd, entry)
    })
}

/// Frees the leaves and nodes of a table whose entries are all closed, then calls `last` in the
/// transaction that finds nothing left. All of it under the lock of `holder`, the record of the
/// process whose table it was.
pub(crate) fn dissolve(
    kernel: &Kernel,
    holder: Cell,
    files: Files,
    mut last: impl FnMut(&mut Txn<'_>) -> Result<()>,
) -> Result<()> {
    loop {
        let done = kernel.run(|txn| {
            txn.lock(holder)?;
            let table = fd_table::lock(txn, files)?;
            let root = txn.get(table.word(fd_table::ROOT));
            if let Some((node, base)) = tree::next_leaf(txn.region, root, 0) {
                if tree::is_used(txn.region, node) {
                    return Err(RETRY);
                }
                if base == 0 {
                    txn.set(table.word(fd_table::FIRST), 0);
                }
                tree::prune(txn, table.word(fd_table::ROOT), base);
                return Ok(false);
            }
            let generation = high(txn.get(table.word(fd_table::TAG))).wrapping_add(1);
            txn.set(table.word(fd_table::TAG), pair(generation, 0));
            txn.free(RECORD, files.0);
            last(txn)?;
            Ok(true)
        })?;
        if done {
            return Ok(());
        }
    }
}
