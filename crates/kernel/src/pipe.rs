//! Service `pipe`: which pipes there are, and which host numbers are their ends.
//!
//! ```text
//!   fixed words  list: 0 lock  1 first free  2 highest used
//!                pipe: 0 lock  1 references:32 next free:32  2 life  3 the host's number
//!   name         life:22 number:10, what a table entry and a ring's state carry
//! ```
//!
//! 1. A pipe's references are the numbers that name it, in all tables; who has none is free.
//! 2. The ring's words are made new under both its locks before a table names the new life.
//! 3. A read end that goes makes the ring's writers ask the host: before the number goes (a death
//!    in between loses nothing), and once more after.

use husk_proto::pipe::{End, Pipe};
use husk_proto::{Errno, Files, Result};
use husk_region::pipes::{self, Holder, Lock, PIPES_MAX};
use husk_region::{Cell, Region, Txn};

use crate::Kernel;
use crate::descriptor::table;
use crate::image::{PIPES, PIPES_LIST, PIPES_WANTED};
use crate::state::{high, low, pair};

const FREE: u32 = 1;
const HIGH: u32 = 2;
const USES: u32 = 1;
const LIFE: u32 = 2;
const HOST: u32 = 3;
const LIVES: u64 = 1 << 22;
const NUMBER: u32 = PIPES_MAX - 1;

fn record(region: &Region, pipe: u32) -> Cell {
    region.map.fixed(PIPES + (pipe & NUMBER) * 4)
}

fn list(region: &Region) -> Cell {
    region.map.fixed(PIPES_LIST)
}

/// The ring of a pipe's life. `ENOMEM`.
#[inline]
pub(crate) fn ring(kernel: &Kernel, pipe: Pipe) -> Result<pipes::Pipe> {
    ring_of(&kernel.session.region, pipe)
}

#[inline(always)]
fn ring_of(region: &Region, pipe: Pipe) -> Result<pipes::Pipe> {
    pipes::Pipe::of(&region.layout(), pipe.0 & NUMBER, pipe.0)
}

/// `Pipes::pipes_wanted`.
pub fn wanted(kernel: &Kernel) -> bool {
    let region = &kernel.session.region;
    region.load(region.map.fixed(PIPES_WANTED)) != 0
}

/// Says whether new pipes get a ring (the supervisor, at the start).
pub fn set_wanted(kernel: &Kernel, wanted: bool) {
    let region = &kernel.session.region;
    region.store(region.map.fixed(PIPES_WANTED), wanted as u64);
}

/// The end behind a table's entry.
#[inline]
pub(crate) fn end_of(entry: u64) -> Option<End> {
    let pipe = entry & table::PIPE != 0;
    pipe.then(|| End { pipe: Pipe(high(entry)), writes: entry & table::WRITE_END != 0 })
}

/// `Pipes::pipe_end`.
#[inline]
pub fn end(kernel: &Kernel, files: Files, fd: u32) -> Option<End> {
    end_of(table::entry(&kernel.session.region, files, fd))
}

fn entry_of(end: End) -> u64 {
    pair(end.pipe.0, 0) | table::PIPE | if end.writes { table::WRITE_END } else { 0 }
}

/// `Pipes::pipe_make`.
pub fn make(kernel: &Kernel, files: Files, read: u32, write: u32, host: u64) -> Result<()> {
    kernel.run(|txn| {
        let table = table::lock(txn, files)?;
        let pipe = take(txn)?;
        txn.set(record(txn.region, pipe.0).word(HOST), host);
        begin(kernel, pipe)?;
        for (fd, writes) in [(read, false), (write, true)] {
            let old = table::plain_host(txn, files, fd)?;
            table::put(txn, table, fd, old | entry_of(End { pipe, writes }))?;
        }
        Ok(())
    })
}

/// `Pipes::pipe_find`.
pub fn find(kernel: &Kernel, host: u64) -> Option<Pipe> {
    let region = &kernel.session.region;
    let number = (0..PIPES_MAX).map_while(|number| Some((number, references(region, number)?)));
    let mut used = number.filter(|&(_, references)| references > 0).map(|(number, _)| number);
    let found = used.find(|&number| region.load(record(region, number).word(HOST)) == host)?;
    let life = region.load(record(region, found).word(LIFE)) as u32;
    Some(Pipe(life << PIPES_MAX.trailing_zeros() | found))
}

/// A free number in a new life, named twice.
fn take(txn: &mut Txn<'_>) -> Result<Pipe> {
    let list = list(txn.region);
    txn.lock(list)?;
    let free = txn.get(list.word(FREE)) as u32;
    let number = if free != 0 {
        let next = low(txn.get(record(txn.region, free - 1).word(USES)));
        txn.set(list.word(FREE), next as u64);
        free - 1
    } else {
        let next = txn.get(list.word(HIGH));
        if next >= txn.region.layout().pipes() as u64 {
            return Err(Errno::ENFILE);
        }
        txn.set(list.word(HIGH), next + 1);
        next as u32
    };
    let cell = record(txn.region, number);
    let life = (txn.get(cell.word(LIFE)) + 1) % LIVES;
    let life = life.max(1);
    txn.set(cell.word(LIFE), life);
    txn.set(cell.word(USES), pair(2, 0));
    Ok(Pipe((life as u32) << PIPES_MAX.trailing_zeros() | number))
}

/// Invariant 2. `EAGAIN`: a late hand is still there.
fn begin(kernel: &Kernel, pipe: Pipe) -> Result<()> {
    let ring = ring(kernel, pipe)?;
    let me = holder(kernel);
    ring.lock(Lock::Readers, me).map_err(|_| Errno::EAGAIN)?;
    let both = ring.lock(Lock::Writers, me);
    if both.is_ok() {
        ring.begin();
        ring.unlock(Lock::Writers);
    }
    ring.unlock(Lock::Readers);
    both.map_err(|_| Errno::EAGAIN)
}

/// This thread as a holder of rings' locks.
#[inline(always)]
pub(crate) fn holder(kernel: &Kernel) -> Holder {
    Holder::new(kernel.session.pid(), kernel.session.tid())
}

/// `Pipes::pipe_join`.
pub fn join(kernel: &Kernel, files: Files, fd: u32, end: End) -> Result<()> {
    kernel.run(|txn| {
        let table = table::lock(txn, files)?;
        let old = table::plain_host(txn, files, fd)?;
        hold(txn, end.pipe)?;
        table::put(txn, table, fd, old | entry_of(end))
    })
}

/// One more number names a pipe. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, pipe: Pipe) -> Result<()> {
    let cell = record(txn.region, pipe.0);
    txn.lock(cell)?;
    let uses = txn.get(cell.word(USES));
    let life = txn.get(cell.word(LIFE)) as u32;
    if high(uses) == 0 || life != pipe.0 >> PIPES_MAX.trailing_zeros() {
        return Err(Errno::EBADF);
    }
    txn.set(cell.word(USES), uses + (1 << 32));
    if let Ok(ring) = ring_of(txn.region, pipe) {
        ring.share();
    }
    Ok(())
}

/// One number less; without any, the pipe is free.
pub(crate) fn release(txn: &mut Txn<'_>, pipe: Pipe) -> Result<()> {
    let cell = record(txn.region, pipe.0);
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
    txn.set(list.word(FREE), (pipe.0 & NUMBER) as u64 + 1);
    Ok(())
}

/// A number that is (or was) this end goes.
pub(crate) fn leave(kernel: &Kernel, end: Option<End>) {
    let Some(end) = end else { return };
    // Where the rings cannot be mapped, the others hear of it when the ring is full.
    if let Ok(ring) = ring(kernel, end.pipe) {
        if !end.writes {
            ring.leave();
        }
        ring.lose_number();
    }
}

/// All read ends of this process go: its threads end, and its record is released by others.
pub fn leave_all(kernel: &Kernel) {
    let files = crate::process::files(kernel);
    let mut from = 0;
    while let Some((fd, entry)) = table::next_used(&kernel.session.region, files, from) {
        leave(kernel, end_of(entry));
        from = fd + 1;
    }
}

/// References of pipe `number`, for the checker; `None` past the last one.
pub(crate) fn references(region: &Region, number: u32) -> Option<u32> {
    let high_water = region.load(list(region).word(HIGH));
    let used = (number as u64) < high_water;
    used.then(|| high(region.load(record(region, number).word(USES))))
}

/// Number of a pipe, for the checker.
pub(crate) fn number(pipe: Pipe) -> u32 {
    pipe.0 & NUMBER
}
