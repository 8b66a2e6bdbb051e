//! Service `pipe`: lanes, of two connected sockets each.
//!
//! ```text
//!   socketpair     two lanes, each named by one table entry, the socket's that reads from it
//!   socket         two lanes: one is named, the other *awaits* the socket at the other end
//!   accept         that one has come: its entry names the lane that awaited it
//!   listen, or both lanes are the host's for good     a plain number of the host's again
//! ```
//!
//! 1. A socket's entry names, and holds, the lane it reads from; its ring names the other (`mate`).
//!    Who writes to a lane that nobody reads any more finds another life there, or none.
//! 2. A lane that awaits its reader is held by its mate's record (`AWAITS`), and goes with that. As
//!    long as it waits neither ring is used: who is at the other end may be none of the image's.

use husk_proto::pipe::{End, Pipe};
use husk_proto::{Errno, Files, Process, Result};
use husk_region::rings::pipes;
use husk_region::{Cell, Region, Txn};

use crate::Kernel;
use crate::image::LANES_AWAITING;
use crate::pipe::{HOST, NAMES, begin, end_of, entry_of, find, ring, ring_of};
use crate::state::fd_table;
use crate::state::process;

/// Says in a record's word for the host's number that it is a socket's.
const SOCKET_HOST: u64 = 1 << 63;
/// And that its mate awaits a reader.
const AWAITS: u64 = 1 << 62;
/// Most that await one at a time: others are left to the host.
const AWAITING_MAX: u64 = 256;

fn named(lane: Pipe) -> u64 {
    entry_of(End { pipe: lane, writes: false, socket: true })
}

/// Two new lanes, each the other's mate.
fn take_both(kernel: &Kernel, txn: &mut Txn<'_>) -> Result<[Pipe; 2]> {
    let most = txn.region.layout().pipes();
    let lanes = [Pipe(NAMES.take(txn, most, 1)?), Pipe(NAMES.take(txn, most, 1)?)];
    for side in 0..2 {
        begin(kernel, lanes[side])?;
        ring(kernel, lanes[side])?.set_mate(lanes[1 - side].0);
    }
    Ok(lanes)
}

/// `Pipes::lanes_make`.
pub fn make(kernel: &Kernel, files: Files, fds: [u32; 2], hosts: [u64; 2]) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let lanes = take_both(kernel, txn)?;
        for side in 0..2 {
            txn.set(host_of(txn.region, lanes[side]), hosts[side] | SOCKET_HOST);
            let old = fd_table::plain_host(txn, files, fds[side])?;
            fd_table::put(txn, table, fds[side], old | named(lanes[side]))?;
        }
        Ok(())
    })
}

/// `Pipes::lane_make_one`.
pub fn make_one(kernel: &Kernel, files: Files, fd: u32, host: u64) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        let [lane, other] = take_both(kernel, txn)?;
        // Under the list's lock, which was taken for them.
        let count = txn.region.map.fixed(LANES_AWAITING);
        let awaiting = txn.get(count);
        if awaiting >= AWAITING_MAX {
            return Err(Errno::ENFILE);
        }
        txn.set(count, awaiting + 1);
        for each in [lane, other] {
            ring(kernel, each)?.keep_unused();
        }
        txn.set(host_of(txn.region, lane), host | SOCKET_HOST | AWAITS);
        txn.set(host_of(txn.region, other), 0);
        fd_table::put(txn, table, fd, old | named(lane))
    })
}

/// `Pipes::any_lane_awaits`.
pub fn any_awaits(kernel: &Kernel) -> bool {
    let region = &kernel.session.region;
    region.load(region.map.fixed(LANES_AWAITING)) != 0
}

/// `Pipes::lane_mate_awaits`.
pub fn mate_awaits(kernel: &Kernel, lane: Pipe) -> bool {
    awaits(&kernel.session.region, lane)
}

pub(crate) fn awaits(region: &Region, lane: Pipe) -> bool {
    region.load(host_of(region, lane)) & AWAITS != 0
}

/// `Pipes::lane_introduce`.
pub fn introduce(kernel: &Kernel, lane: Pipe) {
    if let Ok(ring) = ring(kernel, lane) {
        ring.introduce(kernel.session.pid());
    }
}

/// `Pipes::lane_claim`.
pub fn claim(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    host: u64,
    (lane, pid): (Pipe, u32),
) -> Result<()> {
    let known = NAMES.number(lane.0) < kernel.session.region.layout().pipes();
    if !known || ring(kernel, lane)?.introduced_by() != pid {
        return Err(Errno::ESRCH);
    }
    let mate = kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        // Locks its record, if its life goes on (`EBADF`); given back below.
        NAMES.hold(txn, lane.0)?;
        if txn.get(host_of(txn.region, lane)) & AWAITS == 0 {
            return Err(Errno::ESRCH);
        }
        let mate = mate(kernel, lane).ok_or(Errno::ESRCH)?;
        end_waiting(txn, lane)?;
        txn.set(host_of(txn.region, mate), host | SOCKET_HOST);
        NAMES.release(txn, lane.0)?;
        fd_table::put(txn, table, fd, old | named(mate))?;
        Ok(mate)
    })?;
    ring(kernel, lane)?.begin_use(mate.0);
    ring(kernel, mate)?.begin_use(lane.0);
    Ok(())
}

/// The mate of `lane`, whose record is locked, awaits nobody any more.
fn end_waiting(txn: &mut Txn<'_>, lane: Pipe) -> Result<()> {
    let host = host_of(txn.region, lane);
    let old = txn.get(host);
    txn.set(host, old & !AWAITS);
    txn.lock(NAMES.list(txn.region))?;
    let count = txn.region.map.fixed(LANES_AWAITING);
    let awaiting = txn.get(count);
    txn.set(count, awaiting - 1);
    Ok(())
}

/// `Pipes::lane_is_pinned`.
pub fn is_pinned(lane: Pipe) -> bool {
    ring_of(lane).map_or(true, |ring| ring.is_pinned())
}

/// `Pipes::lane_is_left`.
pub fn is_left(lane: Pipe) -> bool {
    ring_of(lane).map_or(true, |ring| ring.is_left())
}

/// `Pipes::lane_is_hosts`. In a set a lane keeps its name, by which the host tells of it.
pub fn is_hosts(lane: Pipe) -> bool {
    let Ok(ring) = ring_of(lane) else { return true };
    if ring.mode().is_some() && ring.hook().is_some() {
        return false;
    }
    let mate = ring.mate().and_then(|mate| ring_of(Pipe(mate)).ok());
    ring.is_hosts_for_good() && mate.is_none_or(|mate| mate.is_hosts_for_good())
}

/// Bytes have come through the host from a socket whose other end is awaited: nobody of the image
/// has accepted it.
pub(crate) fn met_stranger(ring: &pipes::Pipe) {
    ring.pin();
    if let Some(mate) = ring.mate().and_then(|mate| ring_of(Pipe(mate)).ok()) {
        mate.pin();
    }
}

/// `Pipes::lane_forget`.
pub fn forget(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::entry(txn.region, files, fd);
        let end = end_of(old).filter(|end| end.socket).ok_or(Errno::EBADF)?;
        let record = NAMES.record(txn.region, end.pipe.0);
        txn.lock(record)?;
        let awaits = txn.get(host_of(txn.region, end.pipe)) & AWAITS != 0;
        let alone = awaits && NAMES.is_last(txn, end.pipe.0);
        let hooked = ring_of(end.pipe).is_ok_and(|ring| ring.hook().is_some());
        if hooked || !alone && !is_hosts(end.pipe) {
            return Err(Errno::EBUSY);
        }
        fd_table::put(txn, table, fd, old & !named(end.pipe))?;
        crate::pipe::release(txn, end.pipe)
    })
}

/// Before the last number of a lane goes: what awaits a reader at its other end goes, too, and who
/// is there is to hear of bytes that nobody has read (`Pipes::lane_take_reset`).
pub(crate) fn release(txn: &mut Txn<'_>, lane: Pipe) -> Result<()> {
    txn.lock(NAMES.record(txn.region, lane.0))?;
    if !NAMES.is_last(txn, lane.0) {
        return Ok(());
    }
    let Ok(ring) = ring_of(lane) else { return Ok(()) };
    let Some(mate) = ring.mate() else { return Ok(()) };
    if ring.waiting() > 0 {
        reset(Pipe(mate), false);
    }
    if txn.get(host_of(txn.region, lane)) & AWAITS == 0 {
        return Ok(());
    }
    txn.lock(NAMES.record(txn.region, mate))?;
    end_waiting(txn, lane)?;
    NAMES.release(txn, mate)
}

/// `Pipes::lane_reset`.
pub fn reset(lane: Pipe, told: bool) -> bool {
    ring_of(lane).is_ok_and(|ring| ring.mode().is_some() && ring.reset(told))
}

/// `Pipes::lane_take_reset`.
pub fn take_reset(lane: Pipe) -> bool {
    ring_of(lane).is_ok_and(|ring| ring.mode().is_some() && ring.take_reset())
}

/// The lane that awaits a reader beside number `number`, for the checker.
pub(crate) fn awaited_by(region: &Region, number: u32) -> Option<u32> {
    let lane = Pipe(NAMES.name(region, number));
    let awaits = NAMES.references(region, number) != Some(0)
        && region.load(host_of(region, lane)) & AWAITS != 0;
    let mate = awaits.then(|| ring_of(lane).ok()?.mate())?;
    mate.map(|mate| NAMES.number(mate))
}

fn host_of(region: &Region, lane: Pipe) -> Cell {
    NAMES.record(region, lane.0).word(HOST)
}

/// `Pipes::lane_mate`.
#[inline(always)]
pub fn mate(kernel: &Kernel, lane: Pipe) -> Option<Pipe> {
    ring(kernel, lane).ok()?.mate().map(Pipe)
}

/// `Pipes::lane_find`.
pub fn find_lane(kernel: &Kernel, host: u64) -> Option<Pipe> {
    let lane = find(kernel, host | SOCKET_HOST);
    lane.or_else(|| find(kernel, host | SOCKET_HOST | AWAITS))
}

/// `Pipes::lane_reader`.
pub fn reader(kernel: &Kernel, lane: Pipe, mut skipped: usize) -> Option<(u32, u32)> {
    let mut found = None;
    each_socket(kernel, &mut |pid, fd, other| {
        if other == lane && found.is_none() {
            match skipped.checked_sub(1) {
                Some(left) => skipped = left,
                None => found = Some((pid, fd)),
            }
        }
    });
    found
}

/// Shows each number of each process that names a socket with lanes.
pub fn each_socket(kernel: &Kernel, show: &mut dyn FnMut(u32, u32, Pipe)) {
    each_end(kernel, &mut |pid, fd, end| {
        if end.socket {
            show(pid, fd, end.pipe);
        }
    });
}

/// Shows each number of each process that names an end of a pipe, or a socket with lanes.
pub fn each_end(kernel: &Kernel, show: &mut dyn FnMut(u32, u32, End)) {
    let region = &kernel.session.region;
    process::each(kernel, &mut |record, pid| {
        let (files, mut from) = (process::files_of(kernel, Process(record)), 0);
        while let Some((fd, entry)) = fd_table::next_used(region, files, from) {
            if let Some(end) = end_of(entry) {
                show(pid, fd, end);
            }
            from = fd + 1;
        }
    });
}
