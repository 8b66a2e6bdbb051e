//! Service `pipe`: the pipes of the image, and which host descriptors are their ends.
//!
//! 1. A pipe has a name (`state::numbers`: 22 bits of life, 10 of number), which a ring's state
//!    carries, too; its record has the host's number.
//! 2. The ring's words are made new under both its locks before a table names the new life.
//! 3. A read end that goes makes the ring's writers ask the host: before the number goes (a death
//!    in between loses nothing), and once more after.

pub mod flow;
pub mod hooks;
pub mod lanes;
pub mod seen;
pub mod tcp;

use husk_proto::pipe::{End, Pipe};
use husk_proto::{Errno, Files, Result};
use husk_region::Txn;
use husk_region::rings::pipes::{self, Holder, Lock, PIPES_MAX};

use crate::Kernel;
use crate::image::{PIPES, PIPES_LIST, PIPES_WANTED};
use crate::state::fd_table;
use crate::state::numbers::Names;
use crate::state::process;
use crate::state::{high, pair};

pub(crate) const HOST: u32 = 3;
/// What is wanted: rings for pipes, for sockets. And that there is a lender.
const RINGS: u64 = 1;
const LANES: u64 = 2;
const LENDS: u64 = 4;

const _: () = assert!(husk_proto::pipe::PIPE_NUMBERS == PIPES_MAX);

/// The pipes.
pub(crate) const NAMES: Names =
    Names { list: PIPES_LIST, records: PIPES, number_bits: PIPES_MAX.trailing_zeros() };

/// The ring of a pipe's life, where there is an image. `ENOMEM`.
#[inline(always)]
pub(crate) fn ring(_: &Kernel, pipe: Pipe) -> Result<pipes::Pipe> {
    ring_of(pipe)
}

#[inline(always)]
pub(crate) fn ring_of(pipe: Pipe) -> Result<pipes::Pipe> {
    pipes::Pipe::of(NAMES.number(pipe.0), pipe.0)
}

/// `Pipes::pipes_wanted`.
pub fn wanted(kernel: &Kernel) -> bool {
    wants(kernel, RINGS)
}

/// `Pipes::lanes_wanted`.
pub fn lanes_wanted(kernel: &Kernel) -> bool {
    wants(kernel, LANES)
}

fn wants(kernel: &Kernel, what: u64) -> bool {
    let region = &kernel.session.region;
    region.load(region.map.fixed(PIPES_WANTED)) & what != 0
}

/// Says whether new pipes and sockets get rings (the supervisor, at the start).
pub fn set_wanted(kernel: &Kernel, pipes: bool, sockets: bool) {
    let region = &kernel.session.region;
    let wanted = if pipes { RINGS } else { 0 } | if sockets { LANES } else { 0 };
    region.store(region.map.fixed(PIPES_WANTED), wanted);
}

/// `Pipes::lends_sockets`.
pub fn lends(kernel: &Kernel) -> bool {
    wants(kernel, LENDS)
}

/// Says whether there is a lender (the supervisor, which alone writes this word).
pub fn set_lends(kernel: &Kernel, lends: bool) {
    let region = &kernel.session.region;
    let (word, others) = (region.map.fixed(PIPES_WANTED), RINGS | LANES);
    region.store(word, region.load(word) & others | if lends { LENDS } else { 0 });
}

/// The end behind a table's entry.
#[inline]
pub(crate) fn end_of(entry: u64) -> Option<End> {
    let pipe = entry & fd_table::PIPE != 0;
    pipe.then(|| End {
        pipe: Pipe(high(entry)),
        writes: entry & fd_table::WRITE_END != 0,
        socket: entry & fd_table::SOCKET != 0,
    })
}

/// `Pipes::pipe_end`.
#[inline]
pub fn end(kernel: &Kernel, files: Files, fd: u32) -> Option<End> {
    end_of(fd_table::entry(&kernel.session.region, files, fd))
}

/// `Pipes::pipe_sight`. Who shares the table with another process is not alone.
#[inline(always)]
pub fn sight(kernel: &Kernel, fd: u32) -> Option<(End, bool)> {
    let (region, files) = (&kernel.session.region, process::files(kernel));
    let end = end_of(fd_table::first_entry(region, files, fd)?)?;
    Some((end, kernel.session.is_alone() && fd_table::sharers(region, files) == 1))
}

pub(crate) fn entry_of(end: End) -> u64 {
    let writes = if end.writes { fd_table::WRITE_END } else { 0 };
    let socket = if end.socket { fd_table::SOCKET } else { 0 };
    pair(end.pipe.0, 0) | fd_table::PIPE | writes | socket
}

/// `Pipes::pipe_make`.
pub fn make(kernel: &Kernel, files: Files, read: u32, write: u32, host: u64) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let pipe = Pipe(NAMES.take(txn, txn.region.layout().pipes(), 2)?);
        txn.set(NAMES.record(txn.region, pipe.0).word(HOST), host);
        begin(kernel, pipe)?;
        for (fd, writes) in [(read, false), (write, true)] {
            let old = fd_table::plain_host(txn, files, fd)?;
            fd_table::put(txn, table, fd, old | entry_of(End { pipe, writes, socket: false }))?;
        }
        Ok(())
    })
}

/// `Pipes::pipe_find`.
pub fn find(kernel: &Kernel, host: u64) -> Option<Pipe> {
    let region = &kernel.session.region;
    let is_it = |&number: &u32| region.load(NAMES.record(region, number).word(HOST)) == host;
    Some(Pipe(NAMES.name(region, NAMES.used(region).find(is_it)?)))
}

/// Invariant 2. `EAGAIN`: a late hand is still there.
pub(crate) fn begin(kernel: &Kernel, pipe: Pipe) -> Result<()> {
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
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        hold(txn, end.pipe)?;
        fd_table::put(txn, table, fd, old | entry_of(end))
    })
}

/// One more number names a pipe. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, pipe: Pipe) -> Result<()> {
    NAMES.hold(txn, pipe.0)?;
    if let Ok(ring) = ring_of(pipe) {
        ring.share();
    }
    Ok(())
}

/// One number less; without any, the pipe is free.
pub(crate) fn release(txn: &mut Txn<'_>, pipe: Pipe) -> Result<()> {
    lanes::release(txn, pipe)?;
    NAMES.release(txn, pipe.0)
}

/// A number that is (or was) this end goes.
pub(crate) fn leave(kernel: &Kernel, end: Option<End>) {
    let Some(end) = end else { return };
    // Where the rings cannot be mapped, the others hear of it when the ring is full.
    if let Ok(ring) = ring(kernel, end.pipe) {
        if !end.writes {
            ring.leave();
        }
        // Who reads the other lane of a socket is to hear of an end.
        if let Some(mate) = ring.mate().and_then(|mate| ring_of(Pipe(mate)).ok()) {
            mate.leave();
        }
        ring.lose_number();
    }
}

/// All read ends of this process go: its threads end, and its record is released by others.
pub fn leave_all(kernel: &Kernel) {
    let files = process::files(kernel);
    let mut from = 0;
    while let Some((fd, entry)) = fd_table::next_used(&kernel.session.region, files, from) {
        leave(kernel, end_of(entry));
        from = fd + 1;
    }
}
