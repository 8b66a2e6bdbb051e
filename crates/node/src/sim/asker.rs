//! A process of another node: it asks, waits for the answer, and asks again or not.

use husk_link::sim::{Network, Sim};
use husk_link::{ANSWER_S, Body, Lane, Link as _, Next, Unanswered, Unsent};
use husk_wire::record::Sort;
use husk_wire::{Failure, Header, Kind, Role};

use super::asks::{Ask, Heard};
use super::dice::{Dice, Known, next};
use crate::CALL_BYTES_MAX;
use crate::planted::planted;

/// Where the home is on the simulated network.
pub const HOME: u16 = 0;
/// How long a full queue is tried, as `husk_link::call` does; and between two tries, ten times as
/// long as there.
pub const CONNECT_MAX_US: u64 = 5_000_000;
const CONNECT_NAP_US: u64 = 50_000;
/// How long an answer may take.
pub const ANSWER_US: u64 = ANSWER_S * 1_000_000;
/// Times that something is asked again.
const ASKED_MAX: u32 = 64;
/// What is added to the number of a request that is asked again under another one.
pub const OTHER_NUMBER: u32 = 1 << 20;

/// What a request came to.
pub type Outcome = Result<Heard, Failure>;

/// What it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// It asks next at this time.
    Idle(u64),
    /// There was no room since the first of these times; it tries again at the second.
    Trying(u64, u64),
    /// It waits for the answer to its connection of now, since this time.
    Waiting(u64),
    /// Its connection has ended without an answer.
    Lost,
    /// Its program is through, and it has nothing open.
    Ended,
    /// It was killed.
    Killed,
}

/// The process.
pub struct Asker {
    pub node: u16,
    pub epoch: u32,
    link: Sim,
    pub state: State,
    /// Stopped, with its node: it does nothing, and does not notice.
    pub stopped: bool,
    /// When it went on last.
    pub woke_us: u64,
    /// Operations that its program has still to do.
    left: u32,
    pub known: Known,
    dice: Dice,
    /// What it asks now; numbered over its node's life; and since when.
    pub ask: Ask,
    pub request: u32,
    pub since_us: u64,
    pub tries: u32,
    /// A try before this one was sent, and nobody knows what came of it.
    again: bool,
    /// Its line is cut until then.
    pub cut_until_us: u64,
    /// How long it waits for an answer, by its node's clock.
    pub patience_us: u64,
    /// Which connection: those before are closed.
    pub connection: u32,
    room: Vec<u8>,
}

impl Asker {
    /// Process `wire` of the life `epoch` of `node`, with a program of so many operations.
    pub fn new(
        network: &Network,
        (node, epoch, wire): (u16, u32, u16),
        known: Known,
        dice: Dice,
        left: u32,
    ) -> Asker {
        let state = if left == 0 { State::Ended } else { State::Idle(network.now_us()) };
        Asker {
            node,
            epoch,
            link: network.link(wire, HOME),
            state,
            stopped: false,
            woke_us: 0,
            left,
            ask: Ask::Walk(known.root, None),
            known,
            dice,
            request: 0,
            since_us: 0,
            tries: 0,
            again: false,
            cut_until_us: 0,
            patience_us: ANSWER_US,
            connection: 0,
            room: vec![0; CALL_BYTES_MAX],
        }
    }

    /// What it asks now is called so.
    pub fn number(&self) -> (u16, u32, u32) {
        (self.node, self.epoch, self.request)
    }

    /// When it does something next by itself.
    pub fn next_us(&self) -> Option<u64> {
        match self.state {
            _ if self.stopped => None,
            State::Idle(at) | State::Trying(_, at) => Some(at),
            State::Waiting(since) => Some(since + self.patience_us),
            State::Lost => Some(0),
            State::Ended | State::Killed => None,
        }
    }

    /// Begins the next operation, under number `request`: the next of its program, or it closes
    /// what it has open.
    pub fn begin(&mut self, request: u32, now_us: u64) {
        if self.left > 0 {
            self.left -= 1;
            self.ask = next(&mut self.dice, &self.known);
        } else {
            let open = self.known.open.iter().map(|(hold, _)| *hold).take(64);
            self.ask = Ask::Return(open.collect());
        }
        (self.request, self.since_us, self.tries, self.again) = (request, now_us, 0, false);
        self.state = State::Trying(now_us, now_us);
    }

    /// Connects and sends, once more; what comes of it, if that is known.
    pub fn send(&mut self, now_us: u64) -> Option<Outcome> {
        let is_other = planted!(AsksAgainChanges) || planted!(AsksAgainLate);
        let other = if self.again && is_other { OTHER_NUMBER } else { 0 };
        let header = Header {
            source: self.node,
            epoch: self.epoch,
            request: self.request + other,
            again: self.again && other == 0,
            sequence: self.connection + 1,
            ..Header::new(Kind::Walk, Role::Request)
        };
        let message = self.ask.message(header);
        let (header, body) = Header::split(&message).expect("sound");
        let sent = match now_us < self.cut_until_us {
            true => Err(Unsent::Full),
            false => self.link.send(Lane::Request(0), &header, body),
        };
        match sent {
            Ok(()) => {
                self.connection += 1;
                self.state = State::Waiting(now_us);
                None
            }
            Err(Unsent::Full) => {
                let first_us =
                    if let State::Trying(first, _) = self.state { first } else { now_us };
                self.state = State::Trying(first_us, now_us + CONNECT_NAP_US);
                let given_up = now_us - first_us >= CONNECT_MAX_US;
                let why = Unanswered::Unsent(husk_abi::Errno::EAGAIN);
                given_up.then(|| self.unanswered(why, now_us))?
            }
            Err(why) => panic!("{why:?}"),
        }
    }

    /// There is no answer: what comes of it, if it does not ask again.
    pub fn unanswered(&mut self, why: Unanswered, now_us: u64) -> Option<Outcome> {
        self.tries += 1;
        match why.next(self.ask.retry()) {
            Next::Fails(_) if why == Unanswered::Late && planted!(AsksAgainLate) => {}
            Next::Again if self.tries < ASKED_MAX => {}
            Next::Again => return Some(Err(Failure::Errno(husk_abi::Errno::EIO))),
            Next::Fails(errno) => return Some(Err(Failure::Errno(errno))),
        }
        let is_late = why == Unanswered::Late;
        self.again |= if planted!(AsksAgainLate) { is_late } else { why == Unanswered::Lost };
        self.state = State::Trying(now_us, now_us);
        None
    }

    /// Whether something has come.
    pub fn has_answer(&self) -> bool {
        !self.stopped && self.link.has_message()
    }

    /// Whether it would take the answer to this connection.
    pub fn awaits(&self, connection: u32) -> bool {
        let is_open = connection == self.connection || planted!(TakesAnyAnswer);
        is_open && matches!(self.state, State::Waiting(_))
    }

    /// Takes the answer; `None`: it is one to a connection that is closed.
    pub fn take(&mut self) -> Option<Outcome> {
        let (header, body) = {
            let came = self.link.receive(&mut self.room).expect("sound").expect("it is there");
            let Body::Here(body) = came.body else { unreachable!("a wire has no pool") };
            (came.header, body.to_vec())
        };
        self.link.done();
        let is_to_it = header.kind == self.ask.kind() as u16;
        (self.awaits(header.sequence) && is_to_it).then(|| self.ask.heard(&header, &body))
    }

    /// Its operation is through: what it has learnt, and what it does next.
    pub fn finish(&mut self, outcome: &Outcome, now_us: u64) {
        match outcome {
            Ok(Heard::Facts(facts, _, hold)) => {
                self.known.note(facts.object, facts.sort);
                if let Some(hold) = hold {
                    self.known.open.push((*hold, facts.object));
                }
            }
            Ok(Heard::Names(names)) => {
                names.values().for_each(|(object, sort)| self.known.note(*object, *sort));
            }
            Ok(Heard::Place(object, _)) => self.known.note(*object, Sort::Directory),
            _ => {}
        }
        if let Ask::Return(given) = &self.ask {
            self.known.open.retain(|(hold, _)| !given.contains(hold));
        }
        self.state = match self.left {
            0 if self.known.open.is_empty() => State::Ended,
            _ => State::Idle(now_us + self.dice.below(2000)),
        };
    }

    /// It closes what another process has left.
    pub fn inherit(&mut self, open: Vec<(u64, husk_wire::record::Object)>, now_us: u64) {
        self.known.open.extend(open);
        if self.state == State::Ended && !self.known.open.is_empty() {
            self.state = State::Idle(now_us);
        }
    }
}
