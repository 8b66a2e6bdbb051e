//! Links of a simulated network: everything in one thread, time and faults from a seed.
//!
//! ```text
//!   Network::new(seed, faults)   the wires between all nodes, and the only clock
//!     .link(1, 2) -> Sim         node 1's end of the wire to node 2
//!     .next_us(), .go_to(us)     when something arrives next; time goes on
//!     .cut(1, 2, true)           partition; .crash(2): all on its way to and from it is lost
//!     .slow(2, us)               a slow node; .set_room(0, 4): one whose queue is short
//! ```
//!
//! Invariants
//! 1. The same seed, faults and calls give the same run.
//! 2. Without faults a wire is a stream: in order, once, whole, late by `delay_us`.
//! 3. What was lost, doubled, overtaken or cut off is counted: a test that wants a fault can ask
//!    whether it has fired.
//! 4. At most `ON_THE_WAY_MAX` messages are on one wire, one way: then `send` says `Full`; it does
//!    so, too, where as many are on their way to a node as that has room for.
//!
//! Not here: rules of the ring that a lossy wire cannot have (room for replies, counted requests).

extern crate alloc;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use husk_wire::{BODY_BYTES_MAX, Fault, Header};

use crate::{Body, Broken, Ending, Lane, Link, Received, Status, Unsent};

/// Most messages on one wire, one way.
pub const ON_THE_WAY_MAX: usize = 4096;

/// What goes wrong on the wires, and how often: each in a million messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Shortest and longest time on the way.
    pub delay_us: (u64, u64),
    /// Never arrive.
    pub lost: u64,
    /// Arrive twice.
    pub doubled: u64,
    /// Whether a message may overtake another one.
    pub overtaking: bool,
}

impl Faults {
    /// None; every message takes so long.
    pub const fn none(delay_us: u64) -> Self {
        Self { delay_us: (delay_us, delay_us), lost: 0, doubled: 0, overtaking: false }
    }
}

/// How often each fault has fired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fired {
    /// Messages that were lost.
    pub lost: u64,
    /// That came twice.
    pub doubled: u64,
    /// That overtook an earlier one.
    pub overtaken: u64,
    /// That a partition or a crash has swallowed.
    pub cut: u64,
    /// That were not taken, for there was no room.
    pub full: u64,
    /// That a slow node sent or was sent.
    pub slowed: u64,
}

/// From one node to another.
type Wire = (u16, u16);
/// When it arrives, and which of all it is.
type Arrival = (u64, u64);

#[derive(Debug)]
struct State {
    dice: u64,
    now_us: u64,
    sent: u64,
    faults: Faults,
    fired: Fired,
    wires: BTreeMap<Wire, BTreeMap<Arrival, Vec<u8>>>,
    cut: BTreeSet<Wire>,
    slow_us: BTreeMap<u16, u64>,
    rooms: BTreeMap<u16, usize>,
    ended: BTreeMap<Wire, Ending>,
}

impl State {
    fn below(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.dice >> 33) % bound
    }

    fn happens(&mut self, in_a_million: u64) -> bool {
        in_a_million > 0 && self.below(1_000_000) < in_a_million
    }

    fn put(&mut self, wire: Wire, message: Vec<u8>) {
        let (least, most) = self.faults.delay_us;
        let mut at = self.now_us + least + self.below(most.saturating_sub(least) + 1);
        let slow = [wire.0, wire.1].into_iter().filter_map(|node| self.slow_us.get(&node)).max();
        if let Some(more_us) = slow {
            self.fired.slowed += 1;
            at += more_us;
        }
        let last = self.wires.get(&wire).and_then(|on_it| on_it.last_key_value());
        if let Some((&(last, _), _)) = last.filter(|(last, _)| at < last.0) {
            if self.faults.overtaking {
                self.fired.overtaken += 1;
            } else {
                at = last;
            }
        }
        self.sent += 1;
        self.wires.entry(wire).or_default().insert((at, self.sent), message);
    }

    fn is_full(&self, wire: Wire) -> bool {
        let on = |wire: &Wire| self.wires.get(wire).map_or(0, BTreeMap::len);
        let to_it = || self.wires.keys().filter(|other| other.1 == wire.1).map(on).sum::<usize>();
        on(&wire) >= ON_THE_WAY_MAX || self.rooms.get(&wire.1).is_some_and(|room| to_it() >= *room)
    }

    fn send(&mut self, wire: Wire, message: Vec<u8>) -> Result<(), Unsent> {
        if self.is_full(wire) {
            self.fired.full += 1;
            return Err(Unsent::Full);
        }
        if self.cut.contains(&wire) {
            self.fired.cut += 1;
        } else if self.happens(self.faults.lost) {
            self.fired.lost += 1;
        } else {
            if self.happens(self.faults.doubled) {
                self.fired.doubled += 1;
                self.put(wire, message.clone());
            }
            self.put(wire, message);
        }
        Ok(())
    }

    /// What has arrived on a wire first.
    fn first(&self, wire: Wire) -> Option<(&Arrival, &Vec<u8>)> {
        let first = self.wires.get(&wire)?.first_key_value();
        first.filter(|(arrival, _)| arrival.0 <= self.now_us)
    }
}

/// The wires between all nodes.
#[derive(Clone, Debug)]
pub struct Network(Rc<RefCell<State>>);

impl Network {
    /// A network without nodes yet, at time 0.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(State {
            dice: seed,
            now_us: 0,
            sent: 0,
            faults,
            fired: Fired::default(),
            wires: BTreeMap::new(),
            cut: BTreeSet::new(),
            slow_us: BTreeMap::new(),
            rooms: BTreeMap::new(),
            ended: BTreeMap::new(),
        })))
    }

    /// `source`'s end of the wire to `target`.
    pub fn link(&self, source: u16, target: u16) -> Sim {
        Sim { state: self.0.clone(), source, target, last: None, broken: None }
    }

    /// The time.
    pub fn now_us(&self) -> u64 {
        self.0.borrow().now_us
    }

    /// When something arrives next that has not arrived yet.
    pub fn next_us(&self) -> Option<u64> {
        let state = self.0.borrow();
        let arrivals = state.wires.values().flat_map(|on_it| on_it.keys());
        arrivals.map(|arrival| arrival.0).filter(|&at| at > state.now_us).min()
    }

    /// Time goes on, never back.
    pub fn go_to(&self, us: u64) {
        let mut state = self.0.borrow_mut();
        state.now_us = state.now_us.max(us);
    }

    /// From now on other faults.
    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Cuts the wires between two nodes, or mends them. What is on its way arrives.
    pub fn cut(&self, one: u16, other: u16, is_cut: bool) {
        let mut state = self.0.borrow_mut();
        for wire in [(one, other), (other, one)] {
            if is_cut {
                state.cut.insert(wire);
            } else {
                state.cut.remove(&wire);
            }
        }
    }

    /// What a node sends or is sent takes so much longer.
    pub fn slow(&self, node: u16, us: u64) {
        self.0.borrow_mut().slow_us.insert(node, us);
    }

    /// At most so many messages are on their way to a node.
    pub fn set_room(&self, node: u16, messages: usize) {
        self.0.borrow_mut().rooms.insert(node, messages);
    }

    /// A node dies: all on its way to it and from it is lost, and it has ended nothing.
    pub fn crash(&self, node: u16) {
        let mut state = self.0.borrow_mut();
        let touches = |wire: &Wire| wire.0 == node || wire.1 == node;
        let lost: usize = state
            .wires
            .iter()
            .filter(|(wire, _)| touches(wire))
            .map(|(_, on_it)| on_it.len())
            .sum();
        state.fired.cut += lost as u64;
        state.wires.retain(|wire, _| !touches(wire));
        state.ended.retain(|wire, _| !touches(wire));
    }

    /// How often each fault has fired so far.
    pub fn fired(&self) -> Fired {
        self.0.borrow().fired
    }
}

/// One node's end of a wire.
#[derive(Debug)]
pub struct Sim {
    state: Rc<RefCell<State>>,
    source: u16,
    target: u16,
    /// The message that was received and is not done.
    last: Option<Arrival>,
    broken: Option<Broken>,
}

impl Sim {
    fn outgoing(&self) -> Wire {
        (self.source, self.target)
    }

    fn incoming(&self) -> Wire {
        (self.target, self.source)
    }
}

impl Link for Sim {
    fn send(&mut self, _: Lane, header: &Header, body: &[u8]) -> Result<(), Unsent> {
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(Unsent::TooLong);
        }
        let header = Header { length: body.len() as u32, ..*header };
        let message = [&header.encode()[..], body].concat();
        self.state.borrow_mut().send(self.outgoing(), message)
    }

    fn receive<'r>(&'r mut self, room: &'r mut [u8]) -> Result<Option<Received<'r, 'r>>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let state = self.state.borrow();
        let Some((&arrival, message)) = state.first(self.incoming()) else { return Ok(None) };
        self.last = Some(arrival);
        let (header, body) = Header::split(message)?;
        let room = room.get_mut(..body.len()).ok_or(Fault::Length)?;
        room.copy_from_slice(body);
        Ok(Some(Received { header, body: Body::Here(room) }))
    }

    fn done(&mut self) {
        let wire = self.incoming();
        if let Some(arrival) = self.last.take()
            && let Some(on_it) = self.state.borrow_mut().wires.get_mut(&wire)
        {
            on_it.remove(&arrival);
        }
    }

    fn flush(&mut self) {}

    fn has_message(&self) -> bool {
        self.state.borrow().first(self.incoming()).is_some()
    }

    fn status(&self) -> Status {
        let state = self.state.borrow();
        match (state.ended.get(&self.outgoing()), state.ended.get(&self.incoming())) {
            (Some(ending), _) => Status::Ended(*ending),
            (None, Some(ending)) => Status::PeerEnded(*ending),
            (None, None) => Status::Up,
        }
    }

    fn end(&mut self, why: Ending) {
        if let Ending::Broken(broken) = why {
            self.broken = Some(broken);
        }
        let wire = self.outgoing();
        self.state.borrow_mut().ended.insert(wire, why);
    }
}
