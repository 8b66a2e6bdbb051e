//! Service `epoll`: sockets with rings in sets (`region::members`, `docs/adr/0059`).
//!
//! ```text
//!   write into a ring ──► tell: the bit of the lane ──► the set sleeps? the client wakes it
//!   epoll_wait ──► collect: each bit ──► look at the ring ──► event, or the bit goes
//!              └──► sleep ──► the host ──► wake ──► collect
//! ```
//!
//! 1. Level: the bit stays while the ring is ready. Else it goes, then the ring is looked at again.
//! 2. Edge: the bit goes first, so each write makes one event at most.
//! 3. One-shot: it is spent when it has been told, under the lock; a spent one has no bit.
//! 4. In a ring there is always room: a full one is left, and the host has room or tells of it. So
//!    for writing a lane in use is ready, and of all others the host tells.

use husk_abi::sys::general::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use husk_proto::epoll::{Member, Set, Sleep, Sleeper};
use husk_proto::pipe::Pipe;
use husk_region::rings::epoll as sets;
use husk_region::rings::members::{self, Item, Members};
use husk_region::rings::pipes::{self, Mode};

use crate::Kernel;
use crate::pipe::{NAMES, holder, ring_of};

const READS: u32 = POLLIN | POLLRDNORM;
const WRITES: u32 = POLLOUT | POLLWRNORM;
/// Sleeps after which a set gets a bell.
const SLEEPS_BEFORE_BELL: u64 = 16;
/// `EPOLLET`.
const EDGES: u32 = 1 << 31;
/// `EPOLLONESHOT`.
const ONE_SHOT: u32 = 1 << 30;

fn of(set: Set) -> Option<Members> {
    Members::of(set.0)
}

/// `Epolls::lane_set`.
pub fn set_of(lane: Pipe) -> Option<Set> {
    ring_of(lane).ok()?.hook_name().map(Set)
}

/// `Epolls::epoll_has_members`.
pub fn has_any(set: Set) -> bool {
    sets::Set::of(set.0).is_some_and(|set| set.has_members())
}

/// `Epolls::epoll_may_gain_members`.
pub fn may_gain(kernel: &Kernel, set: Set) -> bool {
    let alone = kernel.session.is_alone() && !is_shared(kernel, set);
    !alone && crate::pipe::lanes_wanted(kernel) && !is_hosts(set)
}

/// `Epolls::epoll_lock`.
pub fn lock(kernel: &Kernel, set: Set) -> Result<(), (usize, u32)> {
    Members::lock(set.0, holder(kernel)).map_err(|held| (held.address, held.value))
}

/// `Epolls::epoll_unlock`.
pub fn unlock(set: Set) {
    if let Some(members) = of(set) {
        members.unlock();
    }
}

/// `Epolls::epoll_member`.
pub fn member(set: Set, number: u32) -> Option<(Member, bool)> {
    let (item, on) = of(set)?.item(number as usize);
    let Item { lane, fd, mask, data } = item;
    (lane != 0).then_some((Member { lane: Pipe(lane), fd, mask, data }, on))
}

/// `Epolls::epoll_put_member`.
pub fn put(set: Set, member: &Member) -> bool {
    let (Some(members), Ok(ring)) = (of(set), ring_of(member.lane)) else { return false };
    if ring.mode().is_none() || members.is_hosts() {
        return false;
    }
    if let Some(set) = sets::Set::of(set.0) {
        set.admit_members();
    }
    let &Member { lane, fd, mask, data } = member;
    members.enter(&ring, &Item { lane: lane.0, fd, mask, data })
}

/// `Epolls::epoll_drop_member`.
pub fn drop(set: Set, lane: Pipe) {
    if let (Some(members), Ok(ring)) = (of(set), ring_of(lane)) {
        members.exit(&ring);
    }
}

/// `Epolls::epoll_registered`.
pub fn registered(set: Set, number: u32) -> Option<u32> {
    of(set)?.registered(number as usize)
}

/// `Epolls::epoll_register`.
pub fn register(set: Set, number: u32, mask: Option<u32>, dirty: bool) {
    if let Some(members) = of(set) {
        members.register(number as usize, mask);
        members.set_dirty(number as usize, dirty);
    }
}

/// `Epolls::epoll_next_dirty`.
pub fn next_dirty(set: Set, from: u32) -> Option<u32> {
    of(set)?.next_dirty(from as usize).map(|number| number as u32)
}

/// `Epolls::epoll_number`.
pub fn number(set: Set) -> u32 {
    of(set).map_or(0, |members| members.number())
}

/// `Epolls::epoll_set_number`.
pub fn set_number(set: Set, fd: u32) {
    if let Some(members) = of(set) {
        members.set_number(fd);
    }
}

/// `Epolls::epoll_has_sleeper`.
pub fn has_sleeper(set: Set) -> bool {
    of(set).is_some_and(|members| members.has_sleeper())
}

/// `Epolls::epoll_is_shared`.
pub fn is_shared(kernel: &Kernel, set: Set) -> bool {
    let names = &super::epoll::NAMES;
    names.references(&kernel.session.region, names.number(set.0)) != Some(1)
}

/// `Epolls::epoll_lacks`: dirty, and the host would not tell of what only it can.
pub fn lacks(set: Set, number: u32) -> bool {
    let Some(members) = of(set) else { return false };
    let (item, on) = members.item(number as usize);
    let Some(ring) = ring_of_item(set, &item, on) else { return false };
    let missing = item.mask & !members.registered(number as usize).unwrap_or(0);
    let told = look(&ring, item.mask);
    missing & READS != 0
        || missing & WRITES != 0 && (told & WRITES == 0 || waits_for_host(&ring, item.mask, told))
}

/// `Epolls::epoll_stir`.
pub fn stir(set: Set, lane: Pipe) {
    if let Some(members) = of(set) {
        members.mark(NAMES.number(lane.0) as usize);
    }
}

/// `Epolls::epoll_spend`.
pub fn spend(set: Set, lane: Pipe) {
    if let (Some(members), Ok(ring)) = (of(set), ring_of(lane)) {
        members.spend(&ring);
    }
}

/// `Epolls::epoll_is_spent`.
pub fn is_spent(set: Set, number: u32) -> bool {
    of(set).is_some_and(|members| members.is_spent(number as usize))
}

/// `Epolls::epoll_asleep`.
pub fn asleep(set: Set) -> u64 {
    of(set).map_or(0, |members| members.asleep())
}

/// The ring of an item that counts: it is on, its lane lives and is hooked here.
fn ring_of_item(set: Set, item: &Item, on: bool) -> Option<pipes::Pipe> {
    let ring = ring_of(Pipe(item.lane)).ok().filter(|_| on && item.lane != 0)?;
    (ring.mode().is_some() && ring.hook_name() == Some(set.0)).then_some(ring)
}

/// What a ring is ready for.
fn look(ring: &pipes::Pipe, mask: u32) -> u32 {
    let reads = mask & READS != 0 && ring.waiting() > 0;
    let writes = mask & WRITES != 0
        && ring
            .mate()
            .and_then(|mate| ring_of(Pipe(mate)).ok())
            .is_some_and(|mate| is_in_use(&mate));
    mask & (if reads { READS } else { 0 } | if writes { WRITES } else { 0 })
}

fn is_in_use(ring: &pipes::Pipe) -> bool {
    ring.mode() == Some(Mode::Ring)
}

/// Whether the host may have more to tell of an item than its ring: one of its lanes is not in use.
fn is_hosts_too(ring: &pipes::Pipe, mask: u32) -> bool {
    let mate = || ring.mate().and_then(|mate| ring_of(Pipe(mate)).ok());
    !is_in_use(ring) || mask & WRITES != 0 && !mate().is_some_and(|mate| is_in_use(&mate))
}

/// Whether the host may have bytes, which are to be told with the room that is here.
fn waits_for_host(ring: &pipes::Pipe, mask: u32, told: u32) -> bool {
    told & READS == 0 && mask & READS != 0 && !is_in_use(ring)
}

/// `Epolls::epoll_collect`.
pub fn collect(set: Set, most: usize, found: &mut dyn FnMut(u32, u32, u64) -> bool) -> bool {
    let Some(members) = of(set) else { return false };
    let (mut count, mut more) = (0, false);
    members.each_bit(|number| {
        let (item, on) = members.item(number);
        let Some(ring) = ring_of_item(set, &item, on) else {
            members.clear(number);
            return true;
        };
        if members.is_spent(number) {
            members.clear(number);
            return true;
        }
        if item.mask & EDGES != 0 {
            members.clear(number);
        }
        let mut events = look(&ring, item.mask);
        if item.mask & EDGES == 0 && events == 0 {
            members.clear(number);
            events = look(&ring, item.mask);
            if events != 0 {
                members.mark(number);
            }
        }
        // The host tells of room by an edge of its own.
        let told = if item.mask & EDGES == 0 { events } else { events & READS };
        if told != 0 && waits_for_host(&ring, item.mask, told) {
            more = true;
        } else if told != 0 {
            count += 1;
            more |= is_hosts_too(&ring, item.mask);
            if !found(number as u32, events, item.data) {
                members.mark(number);
            } else if item.mask & ONE_SHOT != 0 {
                members.spend(&ring);
                members.clear(number);
            }
        }
        count < most
    });
    more
}

/// `Epolls::epoll_add_ring`.
pub fn add_ring(set: Set, number: u32) -> u32 {
    let Some(members) = of(set) else { return 0 };
    let (item, on) = members.item(number as usize);
    let Some(ring) = ring_of_item(set, &item, on) else { return 0 };
    look(&ring, item.mask)
}

/// `Epolls::epoll_is_host_due`.
pub fn is_host_due(set: Set) -> bool {
    of(set).is_none_or(|members| members.is_host_due())
}

/// `Epolls::epoll_polled`.
pub fn polled(set: Set) {
    if let Some(members) = of(set) {
        members.polled();
    }
}

/// `Epolls::epoll_looks_on`.
pub fn looks_on(set: Set) -> bool {
    of(set).is_some_and(|members| members.looks_on())
}

/// `Epolls::epoll_look_on`.
pub fn look_on(set: Set) -> bool {
    of(set).is_some_and(|members| members.look_on())
}

/// `Epolls::epoll_sleep`.
pub fn sleep(kernel: &Kernel, set: Set) -> Sleep {
    match of(set).map(|members| members.sleep(holder(kernel))) {
        Some(members::Sleep::Asleep) => Sleep::Asleep,
        Some(members::Sleep::Ready) => Sleep::Ready,
        Some(members::Sleep::Many) | None => Sleep::Many,
    }
}

/// `Epolls::epoll_wake`.
pub fn wake(kernel: &Kernel, set: Set) {
    if let Some(members) = of(set) {
        members.wake(holder(kernel));
    }
}

/// `Epolls::epoll_lacks_bell`.
pub fn lacks_bell(set: Set) -> bool {
    let lacks = |members: &Members| members.bell() == 0 && !members.is_hosts();
    of(set).is_some_and(|members| lacks(&members) && members.sleeps() >= SLEEPS_BEFORE_BELL)
}

/// `Epolls::epoll_bell`.
pub fn bell(set: Set) -> u64 {
    of(set).map_or(0, |members| members.bell())
}

/// `Epolls::epoll_set_bell`.
pub fn set_bell(set: Set, bell: u64) {
    if let Some(members) = of(set) {
        members.set_bell(bell);
    }
}

/// `Epolls::epoll_forget_bell`.
pub fn forget_bell(kernel: &Kernel, bell: u64, instead: u64) {
    let (names, region) = (&super::epoll::NAMES, &kernel.session.region);
    for number in names.used(region) {
        if let Some(members) = of(Set(names.name(region, number))) {
            members.forget_bell(bell, instead);
        }
    }
}

/// `Epolls::epoll_use`.
pub fn use_set(kernel: &Kernel, set: Set) {
    if let Some(members) = of(set) {
        members.use_by(holder(kernel));
    }
}

/// `Epolls::epoll_each_ready`.
pub fn each_ready(set: Set, show: &mut dyn FnMut(u32)) {
    if let Some(members) = of(set) {
        members.each_bit(|number| {
            show(number as u32);
            true
        });
    }
}

/// `Epolls::epoll_is_waking`.
pub fn is_waking(kernel: &Kernel, set: Set) -> bool {
    of(set).is_some_and(|members| members.is_waking(holder(kernel)))
}

/// Shows who sleeps in a set, or in `poll`, beside bytes of a ring: for a moment, or because a
/// writer died between its bytes and the wake-up.
pub fn each_beside_bytes(kernel: &Kernel, show: &mut dyn FnMut(Sleeper)) {
    let region = &kernel.session.region;
    for number in super::epoll::NAMES.used(region) {
        let set = Set(super::epoll::NAMES.name(region, number));
        let Some(members) = of(set) else { continue };
        if let Some((pid, sleep)) = members.sleeper()
            && (0..members.end_of_numbers()).any(|lane| has_bytes(set, &members, lane))
        {
            show(Sleeper::Set { pid, fd: members.number(), sleep });
        }
    }
    for number in NAMES.used(region) {
        let lane = Pipe(NAMES.name(region, number));
        let Ok(ring) = ring_of(lane) else { continue };
        let bell = ring.polled();
        if bell != 0 && ring.mode().is_some() && ring.waiting() > 0 {
            show(Sleeper::Poll { bell, lane });
        }
    }
}

fn has_bytes(set: Set, members: &Members, number: usize) -> bool {
    let (item, on) = members.item(number);
    let waits = on && !members.is_spent(number);
    ring_of_item(set, &item, waits).is_some_and(|ring| look(&ring, item.mask) & READS != 0)
}

/// `Epolls::epoll_leave_to_host`.
pub fn leave_to_host(set: Set) {
    if let Some(members) = of(set) {
        members.leave_to_host();
    }
}

/// `Epolls::epoll_is_hosts`.
pub fn is_hosts(set: Set) -> bool {
    of(set).is_some_and(|members| members.is_hosts())
}
