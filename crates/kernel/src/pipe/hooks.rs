//! Service `pipe`: a lane and the epoll set that its reader is in (`region::members`): which set to
//! wake for new bytes, whether it sleeps, and what the host last reported of the lane.

use husk_abi::sys::general::{POLLIN, POLLRDHUP};
use husk_proto::pipe::{LookOut, Pipe};
use husk_region::observe::kill;
use husk_region::rings::pipes::{self, Mode, RING_BYTES};

use crate::pipe::{NAMES, ring_of};

/// Ticks for which a set's look at the host is trusted in: less than a process takes to die.
const TRUST_TICKS: u64 = 50_000;
/// `EPOLLET`, `EPOLLONESHOT`: what the host tells once.
const ONCE: u32 = 3 << 30;

/// `Pipes::lane_tell`.
#[inline(always)]
pub fn tell(lane: Pipe) -> bool {
    let Ok(ring) = ring_of(lane) else { return false };
    let set = ring.told_of_bytes().is_some_and(|set| set.tell(NAMES.number(lane.0) as usize));
    set || ring.polled() != 0 && kill::mutant() != 73
}

/// `Pipes::lane_poll`.
pub fn poll(lane: Pipe, bell: u64) -> bool {
    let ring = ring_of(lane).ok().filter(|ring| ring.mode().is_some() && ring.hook().is_none());
    ring.is_some_and(|ring| ring.poll(bell))
}

/// `Pipes::lane_unpoll`.
pub fn unpoll(lane: Pipe, bell: u64) {
    if let Ok(ring) = ring_of(lane) {
        ring.unpoll(bell);
    }
}

/// `Pipes::lane_polled`.
pub fn polled(lane: Pipe) -> u64 {
    ring_of(lane).map_or(0, |ring| ring.polled())
}

/// `Pipes::ticks`.
pub fn ticks() -> u64 {
    husk_region::rings::ticks()
}

/// `Pipes::lane_look_out`.
pub fn look_out(lane: Pipe) -> LookOut {
    match ring_of(lane) {
        Ok(ring) if ring.look_on_without_lock() > 0 => LookOut::Bytes,
        Ok(ring) if ring.is_written_here() => LookOut::Beside,
        _ => LookOut::Nothing,
    }
}

/// `Pipes::lane_has_room`.
pub fn has_room(lane: Pipe, bytes: u64) -> bool {
    let ring = ring_of(lane).ok().filter(|ring| ring.mode() == Some(Mode::Ring));
    ring.is_some_and(|ring| RING_BYTES - ring.waiting() >= bytes)
}

/// `Pipes::lane_asleep`.
#[inline(always)]
pub fn asleep(lane: Pipe) -> u64 {
    let Ok(ring) = ring_of(lane) else { return 0 };
    match ring.teller() {
        Some(set) if ring.mode() == Some(Mode::Ring) => set.asleep(),
        _ => 0,
    }
}

/// `Pipes::lane_bell`.
pub fn bell(lane: Pipe) -> u64 {
    let set = ring_of(lane).ok().and_then(|ring| ring.teller());
    set.map_or(0, |set| set.bell())
}

/// `Pipes::lane_told`.
pub fn told(lane: Pipe, sleep: u64) -> bool {
    let set = ring_of(lane).ok().and_then(|ring| ring.teller());
    set.is_some_and(|set| set.told(sleep))
}

/// `Pipes::lane_host_is_quiet`.
pub fn host_is_quiet(lane: Pipe) -> bool {
    let Ok(ring) = ring_of(lane) else { return false };
    let Some(set) = ring.hook() else { return ring.is_polled() && ring.is_quiet(TRUST_TICKS) };
    let asked = set.registered(NAMES.number(lane.0) as usize).unwrap_or(0);
    let once = asked & ONCE != 0;
    asked & (POLLIN | POLLRDHUP) != 0 && set.is_quiet(&ring, TRUST_TICKS, once)
}

/// `Pipes::lane_host_told`.
pub fn host_told(lane: Pipe, told: bool) {
    let Ok(ring) = ring_of(lane) else { return };
    match ring.hook() {
        Some(set) if told => set.polled_of(&ring),
        None if !told => ring.set_quiet(),
        _ => ring.settle_told(),
    }
}

/// Whether the writer of a lane is to ask the host for a reader: its set may just have done so.
#[inline(always)]
pub(crate) fn is_look_due(ring: &pipes::Pipe) -> bool {
    let asked = || ring.mate().is_some_and(|mate| host_is_quiet(Pipe(mate)));
    ring.is_look_due() && !asked()
}
