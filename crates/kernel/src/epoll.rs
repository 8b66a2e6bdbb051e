//! Service `epoll`: which sets there are, which numbers name them, which pipes are in them.
//!
//! ```text
//!   fixed words  list: 0 lock  1 first free  2 highest used
//!                set:  0 lock  1 references:32 next free:32  2 life
//!   name         life:24 number:8, what a table entry and a pipe's words carry
//! ```
//!
//! 1. A set's references are the numbers that name it, in all tables; who has none is free.
//! 2. What is in it and what the host said lies beside the pipes (`region::epoll`), and is begun
//!    before a table names the new life.
//! 3. A second number of a set, or a third of a pipe in one, makes it the host's alone: another
//!    process may have it, whose end nobody sees.

use husk_proto::epoll::{Said, Set, Sight};
use husk_proto::pipe::Pipe;
use husk_proto::{Errno, Files, Result};
use husk_region::epoll::{self, NUMBER_BITS, SETS_MAX};
use husk_region::{Cell, Region, Txn};

use crate::descriptor::table;
use crate::image::{SETS, SETS_LIST};
use crate::pipe::ring;
use crate::state::{high, low, pair};
use crate::{Kernel, process};

const FREE: u32 = 1;
const HIGH: u32 = 2;
const USES: u32 = 1;
const LIFE: u32 = 2;
const LIVES: u64 = 1 << 24;
const NUMBER: u32 = SETS_MAX - 1;

const _: () = assert!(husk_proto::epoll::SAID_BYTES == epoll::SAID_BYTES);
const _: () = assert!(husk_proto::epoll::EVENT_BYTES == epoll::EVENT_BYTES);

fn record(region: &Region, set: u32) -> Cell {
    region.map.fixed(SETS + (set & NUMBER) * 4)
}

fn list(region: &Region) -> Cell {
    region.map.fixed(SETS_LIST)
}

/// The set behind a table's entry.
#[inline(always)]
pub(crate) fn set_of(entry: u64) -> Option<Set> {
    (entry & table::SET != 0).then(|| Set(high(entry)))
}

/// `Epolls::epoll_set`.
#[inline]
pub fn set(kernel: &Kernel, files: Files, fd: u32) -> Option<Set> {
    set_of(table::entry(&kernel.session.region, files, fd))
}

fn entry_of(set: Set) -> u64 {
    pair(set.0, 0) | table::SET
}

/// `Epolls::epoll_look`.
#[inline(always)]
pub fn look(kernel: &Kernel, fd: u32) -> Sight {
    let (region, files) = (&kernel.session.region, process::files(kernel));
    let Some(set) = set_of(table::entry(region, files, fd)) else { return Sight::Other };
    match epoll::Set::of(set.0) {
        Some(set) if set.is_strange() || table::sharers(region, files) != 1 => Sight::Hosts,
        Some(set) => match set.said() {
            Some(said) => Sight::Known(Said { count: said.count, bytes: said.bytes }),
            None => Sight::Unknown,
        },
        None => Sight::Hosts,
    }
}

/// `Epolls::epoll_make`.
pub fn make(kernel: &Kernel, files: Files, fd: u32) -> Result<Set> {
    kernel.run(|txn| {
        let table = table::lock(txn, files)?;
        let old = table::plain_host(txn, files, fd)?;
        let set = take(txn)?;
        epoll::Set::of(set.0).ok_or(Errno::ENOMEM)?.begin();
        table::put(txn, table, fd, old | entry_of(set))?;
        Ok(set)
    })
}

/// A free number in a new life, named once.
fn take(txn: &mut Txn<'_>) -> Result<Set> {
    let list = list(txn.region);
    txn.lock(list)?;
    let free = txn.get(list.word(FREE)) as u32;
    let number = if free != 0 {
        let next = low(txn.get(record(txn.region, free - 1).word(USES)));
        txn.set(list.word(FREE), next as u64);
        free - 1
    } else {
        let next = txn.get(list.word(HIGH));
        if next >= SETS_MAX as u64 {
            return Err(Errno::ENFILE);
        }
        txn.set(list.word(HIGH), next + 1);
        next as u32
    };
    let cell = record(txn.region, number);
    let life = ((txn.get(cell.word(LIFE)) + 1) % LIVES).max(1);
    txn.set(cell.word(LIFE), life);
    txn.set(cell.word(USES), pair(1, 0));
    Ok(Set((life as u32) << NUMBER_BITS | number))
}

/// `Epolls::epoll_join`.
pub fn join(kernel: &Kernel, files: Files, fd: u32, set: Set) -> Result<()> {
    kernel.run(|txn| {
        let table = table::lock(txn, files)?;
        let old = table::plain_host(txn, files, fd)?;
        hold(txn, set)?;
        table::put(txn, table, fd, old | entry_of(set))
    })
}

/// One more number names a set. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, set: Set) -> Result<()> {
    let cell = record(txn.region, set.0);
    txn.lock(cell)?;
    let uses = txn.get(cell.word(USES));
    let life = txn.get(cell.word(LIFE)) as u32;
    if high(uses) == 0 || life != set.0 >> NUMBER_BITS {
        return Err(Errno::EBADF);
    }
    txn.set(cell.word(USES), uses + (1 << 32));
    stranger(set);
    Ok(())
}

/// One number less; without any, the set is free.
pub(crate) fn release(txn: &mut Txn<'_>, set: Set) -> Result<()> {
    let cell = record(txn.region, set.0);
    txn.lock(cell)?;
    let uses = high(txn.get(cell.word(USES)));
    if uses > 1 {
        txn.set(cell.word(USES), pair(uses - 1, 0));
        return Ok(());
    }
    let list = list(txn.region);
    txn.lock(list)?;
    let free = txn.get(list.word(FREE)) as u32;
    txn.set(cell.word(USES), pair(0, free));
    txn.set(list.word(FREE), (set.0 & NUMBER) as u64 + 1);
    Ok(())
}

/// `Epolls::epoll_enter`.
pub fn enter(kernel: &Kernel, set: Set, pipe: Pipe) -> bool {
    let Ok(ring) = ring(kernel, pipe) else { return false };
    // It stays in a set that nobody names any more until that number's next life.
    if let Some(old) = ring.set_name()
        && references(&kernel.session.region, number(Set(old))) == Some(0)
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
        None => (0..SETS_MAX)
            .map_while(|number| Some((number, references(region, number)?)))
            .filter(|&(_, references)| references > 0)
            .for_each(|(number, _)| shown(name(region, number), pipes)),
    }
}

fn shown(set: Set, pipes: u32) {
    if let Some(set) = epoll::Set::of(set.0) {
        set.show(pipes);
    }
}

fn name(region: &Region, number: u32) -> Set {
    let life = region.load(record(region, number).word(LIFE)) as u32;
    Set(life << NUMBER_BITS | number)
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

/// References of set `number`, for the checker; `None` past the last one.
pub(crate) fn references(region: &Region, number: u32) -> Option<u32> {
    let high_water = region.load(list(region).word(HIGH));
    let used = (number as u64) < high_water;
    used.then(|| high(region.load(record(region, number).word(USES))))
}

/// Number of a set, for the checker.
pub(crate) fn number(set: Set) -> u32 {
    set.0 & NUMBER
}
