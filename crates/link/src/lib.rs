//! How messages travel between nodes.
//!
//! ```text
//!   Link   send, receive, done, flush, status          what the node knows of any way
//!    |-- ring   two nodes of one host, over memory that both map: lanes, a pool, doorbells
//!    '-- sim    nodes of one thread, over a network of a seed: delay, loss, doubling, reordering,
//!               partition (a ring has none of these)
//! ```
//!
//! Programs that come and go ask another way: by slots in memory that the agent lends (`slots`), or
//! by a socket for each request (`call`).
//!
//! Each direction of a pair has one lane for replies and call-backs, which keeps their order (a
//! reply never overtakes a call-back), and 1 to 8 channels for requests. There is always room for a
//! reply: a node has at most `OUTSTANDING_MAX` requests out, and slots are kept for their answers.
//!
//! Invariants
//! 1. Over a ring, a message has arrived when `send` returns (atomic delivery).
//! 2. Whatever the other side writes into shared memory, this side does not panic, does not access
//!    memory outside, and does not wait forever. Impossible values end the session with a reason
//!    (`Broken`).
//! 3. Either side may die at any store. The other side, or another process of the same node,
//!    continues from what is in memory (`lane`, invariant 5).
//! 4. Every wait is bounded (`doorbell`).
//!
//! Not here: what messages mean, sessions, epochs, retries, the death of peers (the node).
#![no_std]

mod call;
mod doorbell;
mod lane;
mod layout;
mod memory;
mod pool;
mod ring;
mod serve;
#[cfg(not(target_os = "none"))]
pub mod sim;
mod slots;
#[cfg(feature = "models")]
pub mod word;
#[cfg(not(feature = "models"))]
mod word;

use core::fmt;

use husk_wire::{Fault, Header};

pub use call::{
    ANSWER_S, CALL_BYTES_MAX, Next, PATH_BYTES_MAX, Unanswered, call, call_for_descriptors, nap,
};
pub use doorbell::{Doorbell, POLLED_MAX, SLEEP_MS_MAX, Wait};
pub use lane::{INLINE_BYTES, Reader, Room, Writer};
pub use layout::{
    CHANNELS_MAX, EXTENT_BYTES, EXTENTS, LaneAt, OUTSTANDING_MAX, SLAB_BYTES, SLOT_BYTES,
};
pub use memory::{Area, Memory, is_whole};
pub use pool::{Pool, View};
pub use ring::{Loan, Mode, Ring, Side, memory_bytes};
pub use serve::{Rooms, Served, serve};
pub use slots::{Answered, Robust, SLOT_BYTES_MAX, SLOTS, Slots, Taken};

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// A request, on one of the channels.
    Request(usize),
    /// The answer to a request that came over this link.
    Reply,
    /// What a home tells those who hold copies, and what is posted: in one order with replies.
    CallBack,
}

/// A way to another node.
pub trait Link {
    /// Sends a message.
    fn send(&mut self, lane: Lane, header: &Header, body: &[u8]) -> Result<(), Unsent>;
    /// The next message, copied into `room` (of `SLAB_BYTES` at least) where it fits: the same
    /// again, until `done`.
    fn receive<'r>(&'r mut self, room: &'r mut [u8]) -> Result<Option<Received<'r, 'r>>, Broken>;
    /// The message that came last has been handled.
    fn done(&mut self);
    /// What was sent has left, and a sleeping peer has been woken.
    fn flush(&mut self);
    /// Whether there is a message, at a glance.
    fn has_message(&self) -> bool;
    /// How it stands.
    fn status(&self) -> Status;
    /// Ends it; the other side sees why.
    fn end(&mut self, why: Ending);
}

/// A message that has come.
#[derive(Clone, Copy, Debug)]
pub struct Received<'r, 'm> {
    /// Sound as a header; whether it fits the session is the node's to say.
    pub header: Header,
    /// Its body, not judged yet.
    pub body: Body<'r, 'm>,
}

/// Where a body is.
#[derive(Clone, Copy, Debug)]
pub enum Body<'r, 'm> {
    /// Copied.
    Here(&'r [u8]),
    /// Still in shared memory: longer than the room that was given.
    Pool(View<'m>),
}

/// Why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// The other side has to take some first, or to answer.
    Full,
    /// Longer than any message may be.
    TooLong,
    /// Nobody asked for this reply.
    Unasked,
    /// There is no such channel.
    NoLane,
    /// The session is over.
    Broken(Broken),
}

impl From<Broken> for Unsent {
    fn from(broken: Broken) -> Self {
        Unsent::Broken(broken)
    }
}

/// How the other side broke the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// By a message.
    Message(Fault),
    /// A slot, slab or extent that does not exist.
    Form,
    /// It says that it has read what was never sent.
    Credits,
    /// More requests than it may have out.
    Flood,
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Broken::Message(fault)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Message(fault) => write!(f, "a message was refused: {fault}"),
            Broken::Form => f.write_str("it named a slot, slab or extent that does not exist"),
            Broken::Credits => f.write_str("it says that it has read what was never sent"),
            Broken::Flood => write!(f, "it had more than {OUTSTANDING_MAX} requests out at once"),
        }
    }
}

/// Why a side has ended a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It leaves, in order.
    Left,
    /// The other one broke the rules.
    Broken(Broken),
}

/// How a link stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The other side has not come yet.
    Opening,
    /// Both are there. Whether the other one lives is seen by its pidfd.
    Up,
    /// This side has ended it.
    Ended(Ending),
    /// The other side has.
    PeerEnded(Ending),
}
