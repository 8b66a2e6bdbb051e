//! Service `pipe`: bytes of a pipe between programs of the image.
//!
//! A pipe is the host's, and both its numbers are host descriptors; beside it lies a ring in
//! shared memory, through which bytes go while both sides are awake (`docs/adr/0015`). So reading
//! and writing may end in `Flow::Host`: the client makes the host call, and says when it landed.
//!
//! Two connected sockets are two pipes, their *lanes* (`docs/adr/0044`): a lane has a name, a ring
//! and a state of its own, and each socket reads from one and writes to the other.

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

/// The pipe service. What does not serve pipes says so by these defaults.
#[allow(unused_variables)]
pub trait Pipes {
    /// Whether new pipes get a ring.
    fn pipes_wanted(&self) -> bool {
        false
    }
    /// The end that host number `fd` is, without a token.
    fn pipe_end(&self, files: Files, fd: u32) -> Option<End> {
        None
    }
    /// The end that `fd` of the first numbers of the own table is, and whether this thread alone
    /// can have the pipe, as long as nobody comes in from outside (`pipe_show`).
    fn pipe_sight(&self, fd: u32) -> Option<(End, bool)> {
        None
    }
    /// Two noted host numbers become the ends of a new pipe, which is `host` to the host.
    /// `ENFILE`: all are in use.
    fn pipe_make(&mut self, files: Files, read: u32, write: u32, host: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// Whether new unix sockets get rings.
    fn lanes_wanted(&self) -> bool {
        false
    }
    /// Two noted host numbers become the ends of two lanes; `hosts`: what the host calls them.
    /// `ENFILE`: all are in use.
    fn lanes_make(&mut self, files: Files, pair: [u32; 2], hosts: [u64; 2]) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// A noted host number, which is socket `host` to the host, becomes the end of two lanes; one
    /// of them awaits who is at the other end. `ENFILE`: all are in use, or too many wait.
    fn lane_make_one(&mut self, files: Files, fd: u32, host: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// Whether any lane waits.
    fn any_lane_awaits(&self) -> bool {
        false
    }
    /// Whether the mate of this lane does.
    fn lane_mate_awaits(&self, lane: Pipe) -> bool {
        false
    }
    /// This process is about to say which lane this is to who accepts its connection.
    fn lane_introduce(&mut self, lane: Pipe) {}
    /// A noted host number, which is socket `host` to the host, is at the other end of the socket
    /// that reads from `lane`, which process `pid` has connected: it reads from the mate of that.
    /// `ESRCH`: nobody is awaited there. `EBADF`: that lane's life is over.
    fn lane_claim(&mut self, files: Files, fd: u32, host: u64, lane: Pipe, pid: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// Who was at the other end of the socket that reads from `lane` has died with bytes unread.
    /// `told`: whoever reads knows. False: that was known.
    fn lane_reset(&mut self, lane: Pipe, told: bool) -> bool {
        false
    }
    /// Whether that is so, which is told once.
    fn lane_take_reset(&mut self, lane: Pipe) -> bool {
        false
    }
    /// Whether a lane and its mate are the host's for good.
    fn lane_is_hosts(&self, lane: Pipe) -> bool {
        true
    }
    /// The socket that reads from a lane has these addresses, or, unless they are `whole`, is about
    /// to be connected there; or none.
    fn lane_post(&mut self, lane: Pipe, addresses: Option<&Addresses>, whole: bool) {}
    /// Who has said so of these, whose other end is awaited.
    fn lane_posted(&self, addresses: &Addresses) -> Posted {
        Posted::Nobody
    }
    /// Whether a lane is of TCP, as far as that has been said.
    fn lane_is_tcp(&self, lane: Pipe) -> bool {
        false
    }
    /// Whether both ends of a lane are known.
    fn lane_is_claimed(&self, lane: Pipe) -> bool {
        false
    }
    /// Whether the program at the end that reads from a lane has `TCP_NODELAY` off.
    fn lane_does_delay(&self, lane: Pipe) -> bool {
        false
    }
    /// It has, or has not.
    fn lane_delays(&mut self, lane: Pipe, delays: bool) {}
    /// Whether anything came out of its ring.
    fn lane_was_used(&self, lane: Pipe) -> bool {
        false
    }
    /// Bytes of the pipe that the host has been given, and nobody has taken.
    fn pipe_at_host(&self, pipe: Pipe) -> u64 {
        0
    }
    /// Whether a lane stays the host's.
    fn lane_is_pinned(&self, lane: Pipe) -> bool {
        true
    }
    /// Locks are held (`Withdrawal::Bytes`): whether the host has no bytes of the pipe.
    fn pipe_is_even(&self, pipe: Pipe) -> bool {
        false
    }
    /// Bytes have come into a lane: its set is told; true: that sleeps (`lane_asleep`).
    fn lane_tell(&mut self, lane: Pipe) -> bool {
        false
    }
    /// The sleep of the set that waits for bytes of this lane, whose ring is in use; 0: none.
    fn lane_asleep(&self, lane: Pipe) -> u64 {
        0
    }
    /// The host has bytes of this lane for a set in that sleep. True: another thread may have taken
    /// them, so the set sleeps on beside bytes in its rings.
    fn lane_told(&mut self, lane: Pipe, sleep: u64) -> bool {
        false
    }
    /// The host has told the set of the socket that reads from a lane of something; or it has
    /// nothing.
    fn lane_host_told(&mut self, lane: Pipe, told: bool) {}
    /// Whether the host has just been asked about the socket that reads from a lane, by its set.
    fn lane_host_is_quiet(&self, lane: Pipe) -> bool {
        false
    }
    /// A socket whose lanes are the host's for good, or which awaits its other end, becomes a plain
    /// number of the host's; else nothing happens.
    fn lane_forget(&mut self, files: Files, fd: u32) {}
    /// The lane that goes the other way.
    fn lane_mate(&self, lane: Pipe) -> Option<Pipe> {
        None
    }
    /// A process, and its number for the socket that reads from a lane: the one after the first
    /// `skipped`.
    fn lane_reader(&mut self, lane: Pipe, skipped: usize) -> Option<(u32, u32)> {
        None
    }
    /// The lane from which the socket reads that is `host` to the host.
    fn lane_find(&mut self, host: u64) -> Option<Pipe> {
        None
    }
    /// The pipe that is `host` to the host.
    fn pipe_find(&mut self, host: u64) -> Option<Pipe> {
        None
    }
    /// A noted host number is a second number of an end.
    fn pipe_join(&mut self, files: Files, fd: u32, end: End) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// Takes at most `length` bytes out. `ENOMEM`, and what `copy` fails with.
    fn pipe_take(
        &mut self,
        pipe: Pipe,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<Flow> {
        Err(Errno::ENOSYS)
    }
    /// Puts `length` bytes in; up to `PIPE_BUF`, or with `whole`, all of them or none.
    fn pipe_put(
        &mut self,
        pipe: Pipe,
        length: usize,
        whole: bool,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<Flow> {
        Err(Errno::ENOSYS)
    }
    /// `pipe_take` where nobody is in the way and the bytes lie in one piece: how many; 0: ask it.
    /// `alone`: what `pipe_sight` has just said.
    fn pipe_take_swiftly(
        &mut self,
        pipe: Pipe,
        alone: bool,
        length: usize,
        copy: impl FnOnce(Span) -> Result<()>,
    ) -> usize {
        0
    }
    /// The same of `pipe_put` for all of at most `PIPE_BUF` bytes.
    fn pipe_put_swiftly(
        &mut self,
        pipe: Pipe,
        alone: bool,
        length: usize,
        copy: impl FnOnce(Span) -> Result<()>,
    ) -> bool {
        false
    }
    /// A host call that `Flow::Host` asked for is over; it moved `bytes`.
    fn pipe_landed(&mut self, pipe: Pipe, writes: bool, bytes: u64) {}
    /// After `Flow::Fetch`.
    fn pipe_fetched(&mut self, pipe: Pipe, bytes: u64) {}
    /// After `Flow::Settle`.
    fn pipe_settled(&mut self, pipe: Pipe, bytes: u64) {}
    /// After `Flow::Settle`, where the host cannot be asked: somebody else has to.
    fn pipe_unsettled(&mut self, pipe: Pipe) {}
    /// Whether the ring's bytes come first, and the host may have more.
    fn pipe_is_leaving(&self, pipe: Pipe) -> bool {
        false
    }
    /// The host is to wait for bytes: counted as a read in flight until `pipe_landed`, where this
    /// is `Flow::Host`. `Flow::Moved`: so many bytes are in the ring, and stay there.
    fn pipe_watch(&mut self, pipe: Pipe) -> Result<Flow> {
        Err(Errno::ENOSYS)
    }
    /// The same, but that at most `length` bytes are copied out, and stay as well. `behind`: copies
    /// what the host has behind so many, without waiting, and returns how many.
    fn pipe_peek(
        &mut self,
        pipe: Pipe,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
        behind: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Flow> {
        Err(Errno::ENOSYS)
    }
    /// Bytes in the ring.
    fn pipe_waiting(&self, pipe: Pipe) -> u64 {
        0
    }
    /// Another process than those that hold it is about to take what is in the pipe: it stays the
    /// host's from now on, and nobody is alone with it.
    fn pipe_show(&mut self, pipe: Pipe) {}
    /// The pipe stays the host's from now on.
    fn pipe_pin(&mut self, pipe: Pipe) {}
    /// A reader is left, the host says.
    fn pipe_has_reader(&mut self, pipe: Pipe) {}
    /// Nobody is left who reads: writers hear it from the host.
    fn pipe_leave(&mut self, pipe: Pipe) {}
    /// A full ring is left: whether there is room, the host knows from now on.
    fn pipe_leave_if_full(&mut self, pipe: Pipe) {}
    /// Whether the ring of a pinned pipe is empty for good.
    fn pipe_empty(&mut self, pipe: Pipe) -> Emptiness {
        Emptiness::Empty
    }
    /// The bytes still in the ring of a pinned pipe. `stuck`: nobody who writes at the host goes on
    /// there, so they may go before what it has not written.
    fn pipe_withdraw(&mut self, pipe: Pipe, stuck: bool) -> Result<Withdrawal> {
        let _ = stuck;
        Ok(Withdrawal::Nothing)
    }
    /// The host, who has `behind` bytes, is about to be given those of `Withdrawal::Bytes`.
    fn pipe_withdrawing(&mut self, pipe: Pipe, behind: u64) {}
    /// After `Withdrawal::Bytes`: how many the host has taken; more than none only after
    /// `pipe_withdrawing`.
    fn pipe_withdrawn(&mut self, pipe: Pipe, bytes: u64) {}
}
