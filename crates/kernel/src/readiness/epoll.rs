//! Service `epoll`: the epoll sets, their descriptors, and the pipes in them.
//!
//! 1. A set has a name (`state::numbers`: 24 bits of life, 8 of number), which a pipe's words
//!    carry, too.
//! 2. What is in it and what the host said lies beside the pipes (`region::epoll`), and is begun
//!    before a table names the new life.
//! 3. A second number of a set, or a third of a pipe in one, makes it the host's alone: another
//!    process may have it, whose end nobody sees.

use husk_proto::epoll::{Said, Set, Sight};
use husk_proto::pipe::Pipe;
use husk_proto::{Errno, Files, Result};
use husk_region::rings::epoll::{self, NUMBER_BITS, SETS_MAX};
use husk_region::rings::members::Members;
use husk_region::{Region, Txn};

use crate::Kernel;
use crate::image::{SETS, SETS_LIST};
use crate::pipe::ring;
use crate::state::fd_table;
use crate::state::numbers::Names;
use crate::state::process;
use crate::state::tree;
use crate::state::{high, pair};

/// The sets.
pub(crate) const NAMES: Names = Names { list: SETS_LIST, records: SETS, number_bits: NUMBER_BITS };

const _: () = assert!(husk_proto::epoll::SAID_BYTES == epoll::SAID_BYTES);
const _: () = assert!(husk_proto::epoll::EVENT_BYTES == epoll::EVENT_BYTES);

/// The set behind a table's entry.
#[inline(always)]
pub(crate) fn set_of(entry: u64) -> Option<Set> {
    (entry & fd_table::SET != 0).then(|| Set(high(entry)))
}

/// `Epolls::epoll_set`.
#[inline]
pub fn set(kernel: &Kernel, files: Files, fd: u32) -> Option<Set> {
    set_of(fd_table::entry(&kernel.session.region, files, fd))
}

fn entry_of(set: Set) -> u64 {
    pair(set.0, 0) | fd_table::SET
}

/// `Epolls::epoll_look`.
#[inline(always)]
pub fn look(kernel: &Kernel, fd: u32) -> Sight {
    let (region, files) = (&kernel.session.region, process::files(kernel));
    let Some(set) = set_of(fd_table::entry(region, files, fd)) else { return Sight::Other };
    match epoll::Set::of(set.0) {
        Some(set) if set.has_members() => Sight::Members,
        Some(set) if set.is_strange() || fd_table::sharers(region, files) != 1 => Sight::Hosts,
        Some(set) if set.is_quiet() => Sight::Quiet,
        Some(set) => match set.said() {
            Some(said) if said.count > 0 => {
                Sight::Known(Said { count: said.count, bytes: said.bytes })
            }
            _ => Sight::Unknown,
        },
        None => Sight::Hosts,
    }
}

/// `Epolls::epoll_is_quiet`.
#[inline(always)]
pub fn is_quiet(kernel: &Kernel, fd: u32) -> bool {
    let (region, files) = (&kernel.session.region, process::files(kernel));
    let set = set_of(entry_at_a_look(region, files, fd));
    let set = set.and_then(|set| epoll::Set::at_a_look(set.0));
    let own = |set: &epoll::Set| !set.is_strange() && fd_table::sharers(region, files) == 1;
    set.is_some_and(|set| own(&set) && set.is_quiet())
}

/// The word behind a number below 4,096 in a table that has such numbers only; 0 of all others.
#[inline(always)]
fn entry_at_a_look(region: &Region, files: Files, fd: u32) -> u64 {
    if let Some(entry) = fd_table::first_entry(region, files, fd) {
        return entry;
    }
    let root = region.load(fd_table::cell(region, files).word(fd_table::ROOT));
    let index = u64::from(fd);
    let two = high(root) == 2 && index < tree::reach(2);
    if two { tree::get_of_two(region, root, index) } else { 0 }
}

/// `Epolls::epoll_make`.
pub fn make(kernel: &Kernel, files: Files, fd: u32) -> Result<Set> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        let set = Set(NAMES.take(txn, SETS_MAX, 1)?);
        epoll::Set::of(set.0).ok_or(Errno::ENOMEM)?.begin();
        fd_table::put(txn, table, fd, old | entry_of(set))?;
        Ok(set)
    })
}

/// `Epolls::epoll_join`.
pub fn join(kernel: &Kernel, files: Files, fd: u32, set: Set) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        hold(txn, set)?;
        fd_table::put(txn, table, fd, old | entry_of(set))
    })
}

/// One more number names a set. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, set: Set) -> Result<()> {
    NAMES.hold(txn, set.0)?;
    stranger(set);
    Ok(())
}

/// One number less; without any, the set is free.
pub(crate) fn release(txn: &mut Txn<'_>, set: Set) -> Result<()> {
    txn.lock(NAMES.record(txn.region, set.0))?;
    let members = || epoll::Set::of(set.0).is_some_and(|set| set.has_members());
    if NAMES.is_last(txn, set.0) && members() {
        Members::end(set.0);
    }
    NAMES.release(txn, set.0)
}

/// `Epolls::epoll_enter`.
pub fn enter(kernel: &Kernel, set: Set, pipe: Pipe) -> bool {
    let Ok(ring) = ring(kernel, pipe) else { return false };
    // It stays in a set that nobody names any more until that number's next life.
    if let Some(old) = ring.set_name()
        && NAMES.references(&kernel.session.region, NAMES.number(old)) == Some(0)
    {
        ring.exit(old);
    }
    ring.mode().is_some() && ring.enter(set.0)
}

/// `Epolls::epoll_exit`.
pub fn exit(kernel: &Kernel, set: Set, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.exit(set.0);
    }
}

/// `Epolls::epoll_of`.
pub fn of(kernel: &Kernel, pipe: Pipe) -> Option<Set> {
    ring(kernel, pipe).ok()?.set_name().map(Set)
}

/// `Epolls::epoll_changed`.
pub fn changed(set: Set) {
    if let Some(set) = epoll::Set::of(set.0) {
        set.change();
    }
}

/// `Epolls::epoll_stranger`.
pub fn stranger(set: Set) {
    if let Some(set) = epoll::Set::of(set.0) {
        set.admit_stranger();
    }
}

/// `Epolls::epoll_show`.
pub fn show(kernel: &Kernel, set: Option<Set>) {
    let region = &kernel.session.region;
    let pipes = region.layout().pipes();
    match set {
        Some(set) => shown(set, pipes),
        None => NAMES.used(region).for_each(|number| shown(Set(NAMES.name(region, number)), pipes)),
    }
}

fn shown(set: Set, pipes: u32) {
    if let Some(set) = epoll::Set::of(set.0) {
        set.show(pipes);
    }
}

/// `Epolls::epoll_ask`.
pub fn ask(set: Set) -> Option<u64> {
    epoll::Set::of(set.0)?.ask()
}

/// `Epolls::epoll_remember`.
pub fn remember(set: Set, asked: u64, bytes: &[u8]) {
    if let Some(set) = epoll::Set::of(set.0) {
        set.remember(asked, bytes);
    }
}
