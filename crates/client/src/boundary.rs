//! The client's interfaces: calls from the runtime, access to application memory and the host.

use husk_proto::{Errno, Inode, fs::Run, fs::Span};

/// One system call as the application made it; the runtime's entry code writes it in this layout.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its arguments.
    pub args: [usize; 6],
    /// Its number.
    pub number: usize,
}

/// What the runtime does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer (negative errno on failure).
    Return(i64),
    /// Make the host call unchanged, on the application's stack, interruptible by signals.
    Pass,
    /// The same, then hand the result to `Client::after` and return what that returns.
    PassThen(After),
    /// Make this other host call instead, interruptible as well; its result goes to
    /// `Client::after`.
    Instead {
        /// The call to make, which is also what is noted.
        call: After,
        /// Bytes the client has written at `Host::stack_room`, to be kept while the call sleeps.
        room: usize,
    },
    /// The same for what is left after `done` bytes: argument 1 is so much more, 2 so much less; of
    /// `sendfile` argument 3 is so much less.
    PassRest {
        /// What to note.
        after: After,
        /// Bytes that have gone before.
        done: usize,
    },
    /// Sleep on this futex word while it is `value` (at most `timeout_ns`), interruptible
    /// (`EINTR`), then make the same call to the client again.
    Wait {
        /// The word, in this process.
        address: usize,
        /// What it should still be.
        value: u32,
        /// Bound, ns.
        timeout_ns: u64,
    },
    /// Sleep until the host's descriptor is ready (`poll`), interruptible, then make the same call
    /// to the client again.
    Ready {
        /// The descriptor.
        fd: usize,
        /// `POLLIN`, `POLLOUT`.
        events: u16,
    },
}

/// What is to be noted after a passed call; opaque to the runtime (kept in the thread block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// The call's number.
    pub number: usize,
    /// The call's arguments.
    pub args: [usize; 6],
    /// Why.
    pub reason: u32,
}

impl After {
    /// Whether it waits in an epoll set; the last argument is for how long then.
    pub const fn is_of_set(&self) -> bool {
        self.reason == crate::reason::MEMBERS_WAITED
    }

    /// Whether a call with such a reason is the sleep of a read, which begins again after any
    /// result but `EINTR`.
    pub const fn is_sleeping_read(reason: u32) -> bool {
        reason == crate::reason::READ_SLEPT
    }

    /// First and last of the reasons that [`is_of_pipe`](After::is_of_pipe) knows.
    pub const OF_PIPE: [u32; 2] = [crate::reason::PIPE_READ, crate::reason::READ_SLEPT];

    /// Whether a call with such a reason moves bytes of a pipe, or waits for them by a bell, and
    /// has moved none at the host if that ends with `EINTR`: it can start again then. It has to
    /// behind a handler, which may have taken what the bell had rung for.
    pub const fn is_of_pipe(reason: u32) -> bool {
        let [first, last] = After::OF_PIPE;
        first <= reason && reason <= last
    }
}

/// A mapping of a file of the image, as `mmap` asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Where; 0 = anywhere.
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// `PROT_*`.
    pub prot: usize,
    /// `MAP_*`.
    pub flags: usize,
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes from its beginning on whose pages are all there: what lies behind may be a hole, or
    /// past the end of the file, and is SIGBUS until it is mapped in (`Client::map_in`).
    pub solid: usize,
    /// Whether it may be made one to write to: not when it is shared, and its file open for reading
    /// only.
    pub may_write: bool,
}

/// In the last argument of a wait in an epoll set, of `epoll_pwait2`: the time is as asked.
pub const TIME_AS_ASKED: usize = usize::MAX;

/// What `Client::after` gives where the call is to begin again. No call of the host's ends so.
pub const AGAIN: i64 = i64::MIN;

/// Application memory. Every access may fault: `EFAULT`, never a crash.
pub trait Memory {
    /// Copies application bytes at `source` into `target`.
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno>;
    /// The application's byte at `source`.
    #[inline]
    fn peek(&self, source: usize) -> Result<u8, Errno> {
        let mut byte = [0];
        self.read(source, &mut byte).map(|()| byte[0])
    }
    /// Copies `source` to the application at `target`.
    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno>;
    /// Copies a NUL-terminated string into `target`; its length without the NUL.
    /// `ENAMETOOLONG` when it does not end within `target`.
    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno>;
    /// Copies a span of the buffer cache to the application.
    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno>;
    /// Copies application bytes into a span of the buffer cache.
    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno>;
    /// Copies bytes of the buffer cache, which begin at `offset` of the region's file and which the
    /// caller has pinned, into a span of it. `EOPNOTSUPP`: it has no such way.
    fn copy_within(&self, offset: u64, span: Span) -> Result<(), Errno> {
        let _ = (offset, span);
        Err(Errno::EOPNOTSUPP)
    }
    /// Asked before a call that may store into the buffer cache: is it there? `ENOMEM`.
    #[inline]
    fn ready(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// The host kernel, called directly (not interruptible: only for calls that do not block).
pub trait Host {
    /// While it lives, no other thread of this process makes a process.
    type Still;
    /// Waits until nobody makes a process; nobody does while the value lives.
    fn keep_still(&self) -> Self::Still;
    /// A host call with numbers and addresses in this process (also addresses of the caller's own
    /// buffers); raw return value.
    fn call(&self, number: usize, args: [usize; 6]) -> i64;
    /// The same with the rights that the owner of a file has, whatever its mode: for what the image
    /// lets this process do, and the host's mode does not. `EACCES`: the host has no such way.
    fn call_as_owner(&self, number: usize, args: [usize; 6]) -> i64 {
        let _ = (number, args);
        Errno::EACCES.as_return()
    }
    /// `CLOCK_REALTIME_COARSE`, ns since the epoch.
    fn now_ns(&self) -> i64;
    /// Says whether the host sets a limit to the size of files that this process writes, as far as
    /// is known; until it is said there may be one.
    fn note_size_limit(&self, limited: bool) {
        let _ = limited;
    }
    /// Maps runs of the buffer cache's memfd as `mmap` would map `mapping`, one behind the other.
    /// Touching a hole, or a page past the runs, is SIGBUS. Returns the address.
    fn map_cache(&self, mapping: &Mapping, runs: &[Run]) -> Result<usize, Errno>;
    /// Maps runs over the beginning of what `map_cache` has mapped; whoever touches a page
    /// meanwhile finds what was there or what is there now. Stops at a hole; returns the bytes.
    fn map_runs(&self, mapping: &Mapping, runs: &[Run]) -> Result<usize, Errno>;
    /// Remembers that `inode` is pinned for `mapping`, so that the runtime unpins it when the last
    /// of it is unmapped.
    fn note_mapping(&self, mapping: &Mapping, inode: Inode);
    /// Whether this process maps any file of the image.
    fn maps_files(&self) -> bool {
        false
    }
    /// The file of the image that this process maps at `address`, and where in it that is.
    fn mapped(&self, address: usize) -> Option<(Inode, u64)> {
        let _ = address;
        None
    }
    /// Whether Husk's own memory is mapped at `address`, of which a program is shown nothing.
    fn keeps(&self, address: usize) -> bool {
        let _ = address;
        false
    }
    /// A file has become shorter: what this process maps past its end is SIGBUS from now on.
    fn note_shorter(&self, inode: Inode, size: u64) {
        let _ = (inode, size);
    }
    /// Where `bytes` bytes lie on the application's stack, below all it uses: what a call that may
    /// sleep reads from there survives signal handlers (`Verdict::Instead`).
    fn stack_room(&self, bytes: usize) -> usize;
    /// Descriptors Husk itself keeps in the host's table (region, loader, a program without a
    /// name): the application cannot close or replace them. `u32::MAX` = none.
    fn kept_fds(&self) -> [u32; 3] {
        [u32::MAX; 3]
    }
    /// Absolute path of the running program (`/proc/self/exe`) into `out`; its length, 0 = the
    /// host's own answer is right.
    fn program_path(&self, out: &mut [u8]) -> usize {
        let _ = out;
        0
    }

    /// The host's descriptor of the running program, where that has no name (`kept_fds`).
    fn program_fd(&self) -> Option<u32> {
        None
    }
}
