//! Service `pipe`: bytes of a pipe between programs of the image.
//!
//! A pipe is a host pipe, and both its numbers are host descriptors. Beside it is a ring in shared
//! memory, which carries the bytes while both sides are awake (`docs/adr/0015`). A read or write
//! can therefore end in `Flow::Host`: the client makes the host call and reports when it is done.
//!
//! Two connected sockets are two pipes, their *lanes* (`docs/adr/0044`). Each lane has a name, a
//! ring and a state, and each socket reads from one lane and writes to the other.

use crate::fs::Span;
use crate::{Errno, Files, Result};

/// One life of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipe(pub u32);

/// The addresses of a TCP connection over loopback, as one end sees them: each with its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Its own.
    pub own: (u32, u16),
    /// Those of the other end.
    pub peer: (u32, u16),
}

/// What the program at one end of a TCP connection lets the host hold back for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delays {
    /// `TCP_NODELAY` is off.
    pub nagle: bool,
    /// `TCP_CORK` is on.
    pub cork: bool,
}

/// Who has said that it has some addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Nobody whose other end is awaited.
    Nobody,
    /// Somebody connects there right now, and has not said from where.
    Soon,
    /// The socket that reads from this lane, which this process connects.
    Lane(Pipe, u32),
}

/// The socket of the *lender* in the image's private directory (`docs/adr/0088`). A client sends
/// the name of a lane, 4 bytes. The answer is one byte: 0, and with it a descriptor of the socket
/// that reads from the lane; or an error number.
pub const LENDER: &[u8] = b"lender";

/// How many numbers pipes have.
pub const PIPE_NUMBERS: u32 = 1 << 10;

impl Pipe {
    /// Its number, which others have in other lives.
    pub fn number(self) -> u32 {
        self.0 % PIPE_NUMBERS
    }
}

/// What a host number is an end of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The pipe.
    pub pipe: Pipe,
    /// The end that is written to.
    pub writes: bool,
    /// A socket, which reads from the lane `pipe`, and writes to that one's mate.
    pub socket: bool,
}

/// What looking on for bytes of a lane has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookOut {
    /// There are some.
    Bytes,
    /// None; who writes there was last seen on this core.
    Beside,
    /// None.
    Nothing,
}

/// How a read or write goes on.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    /// Done: so many bytes.
    Moved(usize),
    /// Make the host call for what is left after `done` bytes; it is counted as in flight until
    /// `pipe_landed`.
    Host {
        /// Bytes that went through the ring.
        done: usize,
    },
    /// Somebody living holds a lock: sleep on the futex word while it is `value`, ask again.
    Wait {
        /// Word in the region, in this process.
        address: usize,
        /// Value it had.
        value: u32,
    },
    /// Read the host's bytes into these two spans without waiting, say so with `pipe_fetched`,
    /// ask again. Locks are held.
    Fetch([Span; 2]),
    /// Count the bytes in the host's pipe, say so with `pipe_settled`, ask again. Locks are held.
    Settle,
    /// Ask the host whether a reader is left: `pipe_has_reader`, or `pipe_leave`. Then ask again.
    Look,
    /// The ring has no room for more than `done` bytes, and its reader was last seen on this core:
    /// let it run, or `pipe_leave`, then ask again.
    Full {
        /// Bytes that went in.
        done: usize,
    },
    /// The ring of a socket in a set is empty. Who does not wait has found nothing, unless the host
    /// has something; else `pipe_leave`, then ask again.
    Dry,
}

/// Bytes on their way out of a ring, to where strangers read.
#[derive(Clone, Copy, Debug)]
pub enum Withdrawal {
    /// There are none.
    Nothing,
    /// As `Flow::Wait`.
    Wait {
        /// Word in the region, in this process.
        address: usize,
        /// Value it had.
        value: u32,
    },
    /// Who moved bytes between the host and the ring died: as `Flow::Settle`. Locks are held.
    Settle,
    /// These; say `pipe_withdrawing` right before the host gets them, and `pipe_withdrawn` after.
    /// Locks are held.
    Bytes([Span; 2]),
    /// There are some, and a writer has a call at the host, which goes on there beside whatever is
    /// moved: they stay, before the host's.
    Writing,
}

/// One life of an eventfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event(pub u32);

/// What came of a change of an eventfd's count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// It was changed by so much.
    Of(u64),
    /// It is 0, or would be too large for the image.
    Nothing,
    /// It is the host's, or on its way there.
    Away,
}

/// How an eventfd's count comes to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// It is there.
    All,
    /// The caller adds this much to the host's, then says `event_given`. `anew`: somebody who has
    /// died may have done so; then the host has it, and otherwise 0.
    Move {
        /// How much.
        count: u64,
        /// Whether the host is to be asked first.
        anew: bool,
    },
    /// This process does so.
    By(u32),
}

/// What a pinned pipe's ring holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emptiness {
    /// Nothing, and nothing will come.
    Empty,
    /// Bytes.
    Bytes,
    /// As `Flow::Wait`.
    Wait {
        /// Word in the region, in this process.
        address: usize,
        /// Value it had.
        value: u32,
    },
}

operations! { ($) pipe_operations

/// The pipe service. What does not serve pipes says so by these defaults.
Pipes in pipe, operations {
    /// Two noted host numbers become the ends of a new pipe, which is `host` to the host.
    /// `ENFILE`: all are in use.
    pipe_make = Pipe {
        files: Files, read: u32, write: u32, host: u64,
    } -> Result<()> = Err(Errno::ENOSYS),
        by pipe::make;

    /// Two noted host numbers become the ends of two lanes; `hosts`: what the host calls them.
    /// `ENFILE`: all are in use.
    lanes_make = Pipe {
        files: Files, pair: [u32; 2], hosts: [u64; 2],
    } -> Result<()> = Err(Errno::ENOSYS),
        by pipe::lanes::make;

    /// A noted host number, which is socket `host` to the host, becomes the end of two lanes; one
    /// of them awaits who is at the other end. `ENFILE`: all are in use, or too many wait.
    lane_make_one = - { files: Files, fd: u32, host: u64 } -> Result<()> = Err(Errno::ENOSYS),
        by pipe::lanes::make_one;

    /// A noted host number, a new eventfd, has its count in the image. `ENFILE`: all are in use.
    event_make = - {
        files: Files, fd: u32, count: u32, semaphore: bool,
    } -> Result<Event> = Err(Errno::ENOSYS),
        by readiness::eventfd::make;

    /// A noted host number is a further number of an eventfd.
    event_join = - { files: Files, fd: u32, event: Event } -> Result<()> = Err(Errno::ENOSYS),
        by readiness::eventfd::join;

    /// Adds to the count. `EBADF`: its life is over.
    event_add = - { event: Event, value: u64 } -> Result<Count> = Err(Errno::EBADF),
        by readiness::eventfd::add;

    /// Takes what a read gets from the count. `EBADF`: its life is over.
    event_take = - { event: Event } -> Result<Count> = Err(Errno::EBADF),
        by readiness::eventfd::take;

    /// The count is the host's from now on; `dead`: a process that moved it there, and has died.
    event_give = - { event: Event, dead: u32 } -> Result<Given> = Err(Errno::EBADF),
        by readiness::eventfd::give;

    /// A number of an eventfd whose count is the host's is a plain one of the host's again.
    event_forget = - { files: Files, fd: u32, event: Event } -> Result<()> = Err(Errno::EBADF),
        by readiness::eventfd::forget;

    /// The caller has moved it.
    event_given = - { event: Event } -> Result<()> = Err(Errno::EBADF),
        by readiness::eventfd::given;

    /// This process is about to say which lane this is to who accepts its connection.
    lane_introduce = - { lane: Pipe } -> () = (),
        by pipe::lanes::introduce;

    /// A noted host number, which is socket `host` to the host, is at the other end of the socket
    /// that reads from `lane`, which process `pid` has connected: it reads from the mate of that.
    /// `ESRCH`: nobody is awaited there. `EBADF`: that lane's life is over.
    lane_claim = - {
        files: Files, fd: u32, host: u64, lane: Pipe, pid: u32,
    } -> Result<()> = Err(Errno::ENOSYS),
        by carrier;

    /// Who was at the other end of the socket that reads from `lane` has died with bytes unread.
    /// `told`: whoever reads knows. False: that was known.
    lane_reset = - { lane: Pipe, told: bool } -> bool = false,
        by pipe::lanes::reset without kernel;

    /// Whether that is so, which is told once.
    lane_take_reset = - { lane: Pipe } -> bool = false,
        by pipe::lanes::take_reset without kernel;

    /// The socket that reads from a lane has these addresses, or, unless they are `whole`, is about
    /// to be connected there; or none.
    lane_post = - { lane: Pipe, addresses: Option<&Addresses>, whole: bool } -> () = (),
        by pipe::tcp::post without kernel;

    /// It asks so much of that.
    lane_delays = - { lane: Pipe, delays: Delays } -> () = (),
        by pipe::tcp::delays without kernel;

    /// Bytes have come into a lane: its set is told; true: that sleeps (`lane_asleep`), or a thread
    /// does in `poll` (`lane_polled`).
    lane_tell = - { lane: Pipe } -> bool = false,
        by pipe::hooks::tell without kernel;

    /// The host has bytes of this lane for a set in that sleep. True: another thread may have taken
    /// them, so the set sleeps on beside bytes in its rings.
    lane_told = - { lane: Pipe, sleep: u64 } -> bool = false,
        by pipe::hooks::told without kernel;

    /// The host has told the set of the socket that reads from a lane of something; or it has
    /// nothing.
    lane_host_told = - { lane: Pipe, told: bool } -> () = (),
        by pipe::hooks::host_told without kernel;

    /// A socket whose lanes are the host's for good, or which awaits its other end, becomes a plain
    /// number of the host's; else nothing happens.
    lane_forget = - { files: Files, fd: u32 } -> () = (),
        by carrier;

    /// A process, and its number for the socket that reads from a lane: the one after the first
    /// `skipped`.
    lane_reader = - { lane: Pipe, skipped: usize } -> Option<(u32, u32)> = None,
        by pipe::lanes::reader;

    /// The lane from which the socket reads that is `host` to the host.
    lane_find = - { host: u64 } -> Option<Pipe> = None,
        by pipe::lanes::find_lane;

    /// The pipe that is `host` to the host.
    pipe_find = - { host: u64 } -> Option<Pipe> = None,
        by pipe::find;

    /// A noted host number is a second number of an end.
    pipe_join = - { files: Files, fd: u32, end: End } -> Result<()> = Err(Errno::ENOSYS),
        by pipe::join;

    /// Takes at most `length` bytes out. `ENOMEM`, and what `copy` fails with.
    pipe_take = Pipe {
        pipe: Pipe, length: usize, copy: &mut dyn FnMut(Span) -> Result<()>,
    } -> Result<Flow> = Err(Errno::ENOSYS),
        by pipe::flow::take;

    /// Puts `length` bytes in; up to `PIPE_BUF`, or with `whole`, all of them or none.
    pipe_put = Pipe {
        pipe: Pipe, length: usize, whole: bool, copy: &mut dyn FnMut(Span) -> Result<()>,
    } -> Result<Flow> = Err(Errno::ENOSYS),
        by pipe::flow::put;

    /// A host call that `Flow::Host` asked for is over; it moved `bytes`.
    pipe_landed = - { pipe: Pipe, writes: bool, bytes: u64 } -> () = (),
        by pipe::flow::landed;

    /// After `Flow::Fetch`.
    pipe_fetched = - { pipe: Pipe, bytes: u64 } -> () = (),
        by pipe::flow::fetched;

    /// After `Flow::Settle`.
    pipe_settled = - { pipe: Pipe, bytes: u64 } -> () = (),
        by pipe::flow::settled;

    /// After `Flow::Settle`, where the host cannot be asked: somebody else has to.
    pipe_unsettled = - { pipe: Pipe } -> () = (),
        by pipe::flow::unsettled;

    /// The host is to wait for bytes: counted as a read in flight until `pipe_landed`, where this
    /// is `Flow::Host`. `Flow::Moved`: so many bytes are in the ring, and stay there.
    pipe_watch = - { pipe: Pipe } -> Result<Flow> = Err(Errno::ENOSYS),
        by pipe::flow::watch;

    /// The same, but that at most `length` bytes are copied out, and stay as well. `behind`: copies
    /// what the host has behind so many, without waiting, and returns how many.
    pipe_peek = - {
        pipe: Pipe, length: usize, copy: &mut dyn FnMut(Span) -> Result<()>,
        behind: &mut dyn FnMut(usize) -> usize,
    } -> Result<Flow> = Err(Errno::ENOSYS),
        by pipe::flow::peek;

    /// Another process than those that hold it is about to take what is in the pipe: it stays the
    /// host's from now on, and nobody is alone with it.
    pipe_show = - { pipe: Pipe } -> () = (),
        by pipe::flow::show;

    /// The pipe stays the host's from now on.
    pipe_pin = - { pipe: Pipe } -> () = (),
        by pipe::flow::pin;

    /// A reader is left, the host says.
    pipe_has_reader = - { pipe: Pipe } -> () = (),
        by pipe::flow::has_reader;

    /// Every read end of this process is about to be closed by the host.
    leave_pipes = - {} -> () = (),
        by pipe::leave_all;

    /// Nobody is left who reads: writers hear it from the host.
    pipe_leave = - { pipe: Pipe } -> () = (),
        by pipe::flow::leave;

    /// A full ring is left: whether there is room, the host knows from now on.
    pipe_leave_if_full = - { pipe: Pipe } -> () = (),
        by pipe::flow::leave_if_full;

    /// Whether the ring of a pinned pipe is empty for good.
    pipe_empty = - { pipe: Pipe } -> Emptiness = Emptiness::Empty,
        by pipe::flow::empty;

    /// The bytes still in the ring of a pinned pipe. `stuck`: nobody who writes at the host goes on
    /// there, so they may go before what it has not written.
    pipe_withdraw = - { pipe: Pipe, stuck: bool } -> Result<Withdrawal> = Ok(Withdrawal::Nothing),
        by pipe::flow::withdraw;

    /// The host, who has `behind` bytes, is about to be given those of `Withdrawal::Bytes`.
    pipe_withdrawing = - { pipe: Pipe, behind: u64 } -> () = (),
        by pipe::flow::withdrawing;

    /// After `Withdrawal::Bytes`: how many the host has taken; more than none only after
    /// `pipe_withdrawing`.
    pipe_withdrawn = - { pipe: Pipe, bytes: u64 } -> () = (),
        by pipe::flow::withdrawn;
}}
