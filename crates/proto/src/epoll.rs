//! Service `epoll`: sets of descriptors that programs wait for, of which the image knows.
//!
//! A set is the host's, and what is in it as well. The image remembers which pipes are in which
//! set, and of a set with pipes of one process only what the host last said (`docs/adr/0038`).

use crate::pipe::Pipe;
use crate::{Errno, Files, Result};

/// A set: 24 bits of life above 8 of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set(pub u32);

/// Most bytes of events that are remembered, as `struct epoll_event` lays them out: four.
pub const SAID_BYTES: usize = 48;
/// Bytes of one.
pub const EVENT_BYTES: usize = 12;

/// What the host would say.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Events.
    pub count: usize,
    /// Their bytes.
    pub bytes: [u8; SAID_BYTES],
}

/// What a set asks of a socket with a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The lane that the socket reads from.
    pub lane: Pipe,
    /// The number it was added by.
    pub fd: u32,
    /// Events, and how they are told (`EPOLLET`).
    pub mask: u32,
    /// What is told with them.
    pub data: u64,
}

/// In the data that the host keeps of a member, above the number of its lane.
pub const TAG: u64 = 0x9d1e_5ac3_76b2 << 16;
/// The same of what the supervisor adds to a set to wake its sleeper: no lane has this number.
pub const BELL: u64 = TAG | 0xffff;

/// A thread that sleeps in a set beside bytes of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleeper {
    /// Its process.
    pub pid: u32,
    /// The number of the set there.
    pub fd: u32,
    /// Which of the set's sleeps it is.
    pub sleep: u64,
}

/// How going to sleep in a set ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// The host may wait.
    Asleep,
    /// Something may be ready.
    Ready,
    /// Another thread sleeps there.
    Many,
}

/// What a look at a number shows.
#[derive(Clone, Copy, Debug)]
pub enum Sight {
    /// No set that is remembered.
    Other,
    /// A set of which the host alone knows.
    Hosts,
    /// A set with sockets that have rings.
    Members,
    /// A set whose host may be asked what to remember.
    Unknown,
    /// A set in which the host would find nothing.
    Quiet,
    /// A set, and what the host would say.
    Known(Said),
}

/// The epoll service. What does not remember sets says so by these defaults.
#[allow(unused_variables)]
pub trait Epolls {
    /// What a look at number `fd` of this process shows, without a token.
    #[inline(always)]
    fn epoll_look(&self, fd: u32) -> Sight {
        Sight::Other
    }
    /// Whether that is `Sight::Quiet`. Looks at less: false also of a number above 4,095.
    #[inline(always)]
    fn epoll_is_quiet(&self, fd: u32) -> bool {
        false
    }
    /// The set that host number `fd` is.
    fn epoll_set(&self, files: Files, fd: u32) -> Option<Set> {
        None
    }
    /// A noted host number becomes a set. `ENFILE`: all are in use.
    fn epoll_make(&mut self, files: Files, fd: u32) -> Result<Set> {
        Err(Errno::ENOSYS)
    }
    /// A noted host number is a second number of a set.
    fn epoll_join(&mut self, files: Files, fd: u32, set: Set) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// A read end comes into a set, before the host hears of it; false: it must be the host's.
    fn epoll_enter(&mut self, set: Set, pipe: Pipe) -> bool {
        false
    }
    /// The host has removed it.
    fn epoll_exit(&mut self, set: Set, pipe: Pipe) {}
    /// The set that a pipe is in.
    fn epoll_of(&self, pipe: Pipe) -> Option<Set> {
        None
    }
    /// Something in a set was changed at the host.
    fn epoll_changed(&mut self, set: Set) {}
    /// Something is in a set that the image does not see.
    fn epoll_stranger(&mut self, set: Set) {}
    /// Somebody who is not in the image gets a set; with `None`, any of them.
    fn epoll_show(&mut self, set: Option<Set>) {}
    /// Before the host is asked without a wait: by what its answer is remembered; `None`: not.
    fn epoll_ask(&mut self, set: Set) -> Option<u64> {
        None
    }
    /// What the host said, that was asked at `asked`.
    fn epoll_remember(&mut self, set: Set, asked: u64, bytes: &[u8]) {}

    /// The set that the socket which reads from `lane` is in, as one that has a ring.
    fn lane_set(&self, lane: Pipe) -> Option<Set> {
        None
    }
    /// Whether a set has had sockets with rings in it.
    fn epoll_has_members(&self, set: Set) -> bool {
        false
    }
    /// Whether others may put such sockets into a set while this thread sleeps there.
    fn epoll_may_gain_members(&self, set: Set) -> bool {
        false
    }
    /// Takes the lock of a set's members. What to sleep on: the futex word, and its value.
    fn epoll_lock(&mut self, set: Set) -> core::result::Result<(), (usize, u32)> {
        Ok(())
    }
    /// Lets it go.
    fn epoll_unlock(&mut self, set: Set) {}
    /// Under the lock: what the set last asked of lane number `number`, and whether it does.
    fn epoll_member(&self, set: Set, number: u32) -> Option<(Member, bool)> {
        None
    }
    /// Under the lock: a socket is in the set from now on; false: it cannot be.
    fn epoll_put_member(&mut self, set: Set, member: &Member) -> bool {
        false
    }
    /// Under the lock: it is not any more.
    fn epoll_drop_member(&mut self, set: Set, lane: Pipe) {}
    /// Under the lock: the events that the host has registered lane number `number` for.
    fn epoll_registered(&self, set: Set, number: u32) -> Option<u32> {
        None
    }
    /// Under the lock: it has these now; `dirty`: otherwise than the program asks.
    fn epoll_register(&mut self, set: Set, number: u32, mask: Option<u32>, dirty: bool) {}
    /// The first number from `from` on of which the host has something else.
    fn epoll_next_dirty(&self, set: Set, from: u32) -> Option<u32> {
        None
    }
    /// Whether that keeps the host from telling what only it knows.
    fn epoll_lacks(&self, set: Set, number: u32) -> bool {
        true
    }
    /// The number of a set in the process that changed it last.
    fn epoll_number(&self, set: Set) -> u32 {
        0
    }
    /// It is `fd`.
    fn epoll_set_number(&mut self, set: Set, fd: u32) {}
    /// Whether a thread sleeps in a set, or is about to.
    fn epoll_has_sleeper(&self, set: Set) -> bool {
        true
    }
    /// Whether a set has other numbers, in this process or others.
    fn epoll_is_shared(&self, set: Set) -> bool {
        true
    }
    /// A member may be ready: it has just come, or something else is asked of it.
    fn epoll_stir(&mut self, set: Set, lane: Pipe) {}
    /// Under the lock: the events that rings have, at most `most`, with the lanes' numbers. Whether
    /// the host may have more to tell of these.
    fn epoll_collect(
        &mut self,
        set: Set,
        most: usize,
        found: &mut dyn FnMut(u32, u32, u64),
    ) -> bool {
        false
    }
    /// Under the lock: what its ring adds to what the host says of lane number `number`, whose
    /// bytes come from the host, too, from now on.
    fn epoll_add_ring(&mut self, set: Set, number: u32) -> u32 {
        0
    }
    /// Whether the host is to be asked beside what rings have.
    fn epoll_is_host_due(&mut self, set: Set) -> bool {
        true
    }
    /// It has been.
    fn epoll_polled(&mut self, set: Set) {}
    /// Looks on for events, if that pays; whether there may be some.
    fn epoll_look_on(&mut self, set: Set) -> bool {
        false
    }
    /// The host is about to wait in the set for this thread.
    fn epoll_sleep(&mut self, set: Set) -> Sleep {
        Sleep::Many
    }
    /// It has waited.
    fn epoll_wake(&mut self, set: Set) {}
    /// This thread waits in the set, or takes away what the host may have told of a member.
    fn epoll_use(&mut self, set: Set) {}
    /// Shows the members of which rings may have something.
    fn epoll_each_ready(&self, set: Set, show: &mut dyn FnMut(u32)) {}
    /// Whether a thread in the set has been told, by the host, and has not come yet.
    fn epoll_is_waking(&self, set: Set) -> bool {
        false
    }
    /// Sockets in the set have no rings to be read from, from now on.
    fn epoll_leave_to_host(&mut self, set: Set) {}
    /// Whether that is so.
    fn epoll_is_hosts(&self, set: Set) -> bool {
        true
    }
}
