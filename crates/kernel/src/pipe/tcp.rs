//! Service `pipe`: lanes of TCP connections over loopback, and their addresses.
//!
//! ```text
//!   connect ──► post: where to ──► post: from where, too ──► accept: posted? ──► lanes::claim
//! ```
//!
//! What is posted is a hint: who finds it proves it at the host. It goes with the lane's life,
//! which ends before the host's socket does, unless its process is killed.

use husk_proto::pipe::{Addresses, Delays, Pipe, Posted};

use crate::Kernel;
use crate::pipe::lanes;
use crate::pipe::{NAMES, ring_of};

/// Beside the ports: something is posted; and all of it.
const SOME: u64 = 1 << 32;
const WHOLE: u64 = 1 << 33;
/// In the word for `Delays`.
const NAGLE: u64 = 1;
const CORK: u64 = 2;

fn addresses_of(addresses: &Addresses) -> u64 {
    (addresses.own.0 as u64) << 32 | addresses.peer.0 as u64
}

fn ports_of(addresses: &Addresses) -> u64 {
    (addresses.own.1 as u64) << 16 | addresses.peer.1 as u64
}

/// `Pipes::lane_post`.
pub fn post(lane: Pipe, addresses: Option<&Addresses>, whole: bool) {
    let Ok(ring) = ring_of(lane) else { return };
    match addresses {
        Some(addresses) => {
            let flags = if whole { SOME | WHOLE } else { SOME };
            ring.post(addresses_of(addresses), ports_of(addresses) | flags);
        }
        None => ring.post(0, 0),
    }
}

/// What is posted of a lane, if that is all of it.
pub(crate) fn addresses(lane: Pipe) -> Option<Addresses> {
    let (addresses, ports) = ring_of(lane).ok()?.posted();
    (ports & WHOLE != 0).then_some(Addresses {
        own: ((addresses >> 32) as u32, (ports >> 16) as u16),
        peer: (addresses as u32, ports as u16),
    })
}

/// `Pipes::lane_posted`.
pub fn posted(kernel: &Kernel, wanted: &Addresses) -> Posted {
    let region = &kernel.session.region;
    let (addresses, ports) = (addresses_of(wanted), ports_of(wanted));
    let mut found = Posted::Nobody;
    for number in NAMES.used(region) {
        let lane = Pipe(NAMES.name(region, number));
        if !lanes::awaits(region, lane) {
            continue;
        }
        let Ok(ring) = ring_of(lane) else { continue };
        let (there, at) = ring.posted();
        if at == ports | SOME | WHOLE && there == addresses && ring.mode().is_some() {
            return Posted::Lane(lane, ring.introduced_by());
        }
        let same = there as u32 == addresses as u32 && at & 0xffff == ports & 0xffff;
        if at & (SOME | WHOLE) == SOME && same {
            found = Posted::Soon;
        }
    }
    found
}

/// `Pipes::lane_is_tcp`.
pub fn is_tcp(lane: Pipe) -> bool {
    let posted = |lane: Pipe| ring_of(lane).is_ok_and(|ring| ring.posted().1 & SOME != 0);
    posted(lane) || ring_of(lane).ok().and_then(|ring| ring.mate()).is_some_and(|m| posted(Pipe(m)))
}

/// `Pipes::lane_is_claimed`.
pub fn is_claimed(lane: Pipe) -> bool {
    ring_of(lane).is_ok_and(|ring| ring.mate().is_some() && !ring.is_unused())
}

/// `Pipes::lane_delay`.
pub fn delay(lane: Pipe) -> Delays {
    let bits = ring_of(lane).ok().filter(|ring| ring.mode().is_some()).map_or(0, |it| it.delays());
    Delays { nagle: bits & NAGLE != 0, cork: bits & CORK != 0 }
}

/// `Pipes::lane_delays`.
pub fn delays(lane: Pipe, Delays { nagle, cork }: Delays) {
    if let Ok(ring) = ring_of(lane) {
        let bits = [(nagle, NAGLE), (cork, CORK)];
        ring.set_delays(bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum());
    }
}

/// `Pipes::lane_is_last`.
pub fn is_last(kernel: &Kernel, lane: Pipe) -> bool {
    NAMES.references(&kernel.session.region, NAMES.number(lane.0)) == Some(1)
}

/// `Pipes::lane_was_used`.
pub fn was_used(lane: Pipe) -> bool {
    ring_of(lane).is_ok_and(|ring| ring.has_served())
}
