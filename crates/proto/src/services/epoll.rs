//! Service `epoll`: epoll sets that the image knows of.
//!
//! The host keeps a set and its members. The image records which pipes are in which set, and what
//! the host last answered for a set whose pipes belong to one process (`docs/adr/0038`).

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
/// The same of what is added to a set to wake its sleeper, by its own process or by the supervisor:
/// no lane has this number.
pub const BELL: u64 = TAG | 0xffff;

const BELL_NUMBER_SHIFT: u32 = 22;
const BELL_PID_SHIFT: u32 = 42;

/// The word of a bell: where it is, by process and number, and which eventfd of the host.
pub fn bell_word(pid: u32, number: u32, id: u64) -> Option<u64> {
    let number_bits = BELL_PID_SHIFT - BELL_NUMBER_SHIFT;
    let fits = id < 1 << BELL_NUMBER_SHIFT && number < 1 << number_bits && pid != 0;
    let pid = u64::from(pid);
    (fits && pid < 1 << (u64::BITS - BELL_PID_SHIFT))
        .then_some(pid << BELL_PID_SHIFT | u64::from(number) << BELL_NUMBER_SHIFT | id)
}

/// Process, number, and which eventfd.
pub fn bell_parts(bell: u64) -> (u32, u32, u64) {
    let number = bell >> BELL_NUMBER_SHIFT & ((1 << (BELL_PID_SHIFT - BELL_NUMBER_SHIFT)) - 1);
    ((bell >> BELL_PID_SHIFT) as u32, number as u32, bell & ((1 << BELL_NUMBER_SHIFT) - 1))
}

/// A thread that sleeps in a set, or in `poll`, beside bytes of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// In a set.
    Set {
        /// Its process.
        pid: u32,
        /// The number of the set there.
        fd: u32,
        /// Which of the set's sleeps it is.
        sleep: u64,
    },
    /// In `poll`.
    Poll {
        /// Its bell.
        bell: u64,
        /// The lane that has bytes.
        lane: Pipe,
    },
}

#[cfg(test)]
mod tests {
    use super::{bell_parts, bell_word};

    #[test]
    fn the_word_of_a_bell_says_process_number_and_eventfd_or_there_is_none() {
        let most = (4_194_303, 1_048_575, 4_194_303);
        assert_eq!(bell_parts(bell_word(most.0, most.1, most.2).unwrap()), most);
        assert_eq!(bell_parts(bell_word(1, 256, 0).unwrap()), (1, 256, 0));
        for (pid, number, id) in [(0, 9, 7), (1 << 22, 9, 7), (1, 1 << 20, 7), (1, 9, 1 << 22)] {
            assert_eq!(bell_word(pid, number, id), None);
        }
    }
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

operations! { ($) epoll_operations

/// The epoll service. What does not remember sets says so by these defaults.
Epolls in epoll, operations {
    /// A noted host number becomes a set. `ENFILE`: all are in use.
    epoll_make = Pipe { files: Files, fd: u32 } -> Result<Set> = Err(Errno::ENOSYS),
        by readiness::epoll::make;

    /// A noted host number is a second number of a set.
    epoll_join = - { files: Files, fd: u32, set: Set } -> Result<()> = Err(Errno::ENOSYS),
        by readiness::epoll::join;

    /// A read end comes into a set, before the host hears of it; false: it must be the host's.
    epoll_enter = - { set: Set, pipe: Pipe } -> bool = false,
        by readiness::epoll::enter;

    /// The host has removed it.
    epoll_exit = - { set: Set, pipe: Pipe } -> () = (),
        by readiness::epoll::exit;

    /// Something in a set was changed at the host.
    epoll_changed = - { set: Set } -> () = (),
        by readiness::epoll::changed without kernel;

    /// Something is in a set that the image does not see.
    epoll_stranger = - { set: Set } -> () = (),
        by readiness::epoll::stranger without kernel;

    /// Somebody who is not in the image gets a set; with `None`, any of them.
    epoll_show = - { set: Option<Set> } -> () = (),
        by readiness::epoll::show;

    /// Before the host is asked without a wait: by what its answer is remembered; `None`: not.
    epoll_ask = - { set: Set } -> Option<u64> = None,
        by readiness::epoll::ask without kernel;

    /// What the host said, that was asked at `asked`.
    epoll_remember = - { set: Set, asked: u64, bytes: &[u8] } -> () = (),
        by readiness::epoll::remember without kernel;

    /// Takes the lock of a set's members. What to sleep on: the futex word, and its value.
    epoll_lock = - { set: Set } -> core::result::Result<(), (usize, u32)> = Ok(()),
        by readiness::members::lock;

    /// Lets it go.
    epoll_unlock = - { set: Set } -> () = (),
        by readiness::members::unlock without kernel;

    /// Under the lock: a socket is in the set from now on; false: it cannot be.
    epoll_put_member = - { set: Set, member: &Member } -> bool = false,
        by readiness::members::put without kernel;

    /// Under the lock: it is not any more.
    epoll_drop_member = - { set: Set, lane: Pipe } -> () = (),
        by readiness::members::drop without kernel;

    /// Under the lock: it has these now; `dirty`: otherwise than the program asks.
    epoll_register = - { set: Set, number: u32, mask: Option<u32>, dirty: bool } -> () = (),
        by readiness::members::register without kernel;

    /// It is `fd`.
    epoll_set_number = - { set: Set, fd: u32 } -> () = (),
        by readiness::members::set_number without kernel;

    /// Under the lock: a one-shot has been told.
    epoll_spend = - { set: Set, lane: Pipe } -> () = (),
        by readiness::members::spend without kernel;

    /// The sleep that a set is in, if nobody has woken it; 0: none.
    epoll_asleep = - { set: Set } -> u64 = 0,
        by readiness::members::asleep without kernel;

    /// A member may be ready: it has just come, or something else is asked of it.
    epoll_stir = - { set: Set, lane: Pipe } -> () = (),
        by readiness::members::stir without kernel;

    /// Under the lock: the events that rings have, at most `most`, with the lanes' numbers; `found`
    /// says whether they have been told. Whether the host may have more to tell of these.
    epoll_collect = - {
        set: Set, most: usize, found: &mut dyn FnMut(u32, u32, u64) -> bool,
    } -> bool = false,
        by readiness::members::collect without kernel;

    /// Under the lock: what its ring adds to what the host says of lane number `number`, whose
    /// bytes come from the host, too, from now on.
    epoll_add_ring = - { set: Set, number: u32 } -> u32 = 0,
        by readiness::members::add_ring without kernel;

    /// Whether the host is to be asked beside what rings have.
    epoll_is_host_due = - { set: Set } -> bool = true,
        by readiness::members::is_host_due without kernel;

    /// It has been.
    epoll_polled = - { set: Set } -> () = (),
        by readiness::members::polled without kernel;

    /// Whether it would pay to look on for events before a thread sleeps.
    epoll_looks_on = - { set: Set } -> bool = false,
        by readiness::members::looks_on without kernel;

    /// Looks on for events, if that pays; whether there may be some.
    epoll_look_on = - { set: Set } -> bool = false,
        by readiness::members::look_on without kernel;

    /// The host is about to wait in the set for this thread.
    epoll_sleep = - { set: Set } -> Sleep = Sleep::Many,
        by readiness::members::sleep;

    /// Whether the set sleeps often, and has no bell yet.
    epoll_lacks_bell = - { set: Set } -> bool = false,
        by readiness::members::lacks_bell without kernel;

    /// The bell that wakes it, as its clients write it down; 0: there is none.
    epoll_bell = - { set: Set } -> u64 = 0,
        by readiness::members::bell without kernel;

    /// It has this one from now on.
    epoll_set_bell = - { set: Set, bell: u64 } -> () = (),
        by readiness::members::set_bell without kernel;

    /// No set is woken by `bell` any more: those that were have `instead`.
    epoll_forget_bell = - { bell: u64, instead: u64 } -> () = (),
        by readiness::members::forget_bell;

    /// It has waited.
    epoll_wake = - { set: Set } -> () = (),
        by readiness::members::wake;

    /// This thread waits in the set, or takes away what the host may have told of a member.
    epoll_use = - { set: Set } -> () = (),
        by readiness::members::use_set;

    /// Sockets in the set have no rings to be read from, from now on.
    epoll_leave_to_host = - { set: Set } -> () = (),
        by readiness::members::leave_to_host without kernel;
}}
