//! The POSIX side of one process: what each system call means, in terms of operations.
//!
//! The runtime hands over a call (`Client::call`); the client answers with a `Verdict`. It never
//! touches application memory, the host or a kernel by itself: all three are traits.
//!
//! ```text
//!   a call ─► call (table) ─► ready, socket, pipe, memory, file, fd
//!                                │               │
//!                                ▼               ▼
//!                              path            descriptor slot ──► Husk, shadow or host?
//!                (mounts, magic_links, dir_cache, outside, descend)
//! ```
//!
//! What a client keeps from one call to the next is in parts, each its folder's own: `Judging`
//! (whose ids judge), `Numbers` (limit, files kept open), `Paths` (mounts, what walks have found),
//! `Lower` (listings of the host), `Streams` (messages). Files keep nothing: their state is the
//! kernels'.
//!
//! Invariants
//! 1. A call that concerns no Husk object is passed on unchanged, with the application's pointers.
//! 2. A path whose walk touched a Husk tree and ended on the host is called on the host with the
//!    absolute text the walk has built, never with the application's text.
//! 3. Whatever is refused on a Husk object is counted (`Image::count_unsupported`).
//! 4. No operation is under way (no token held) while the client calls the host or copies memory.
//! 5. Buffers are bounded and live in `Buffers`; nothing is allocated, nothing recurses.
#![no_std]
#![forbid(unsafe_code)]

mod boundary;
mod buffers;
mod call;
mod fd;
mod file;
mod identity;
mod iovec;
mod layout;
mod memory;
mod namespace;
mod overlay;
mod path;
mod pipe;
mod ready;
mod reason;
mod scratch;
mod socket;

pub use boundary::{AGAIN, After, Call, Host, Mapping, Memory, TIME_AS_ASKED, Verdict};
pub use call::fast_path::{GLANCED, Seen};
pub use call::table::{CALLS, Entry, Support, wants};
pub use memory::exec::{ExecTarget, Program};
pub use path::outside_cache::Shortcut;
pub use ready::bells;
pub use scratch::Buffers;

use buffers::Identity;
use fd::Numbers;
use husk_proto::descriptor::Slot;
use husk_proto::fs::SetBits;
use husk_proto::{Errno, Services};
use identity::Judging;
use overlay::Lower;
use path::Paths;
use ready::members::Waits;
use socket::Streams;

/// How a handler ends.
pub(crate) type Answer = Result<Verdict, Errno>;

/// The call is answered with `value`.
pub(crate) const fn value(value: u64) -> Answer {
    Ok(Verdict::Return(value as i64))
}

/// Walks after an inode went away under one.
const STALE_WALKS_MAX: usize = 64;
/// Times a call is looked at again whose descriptor was not there while others put one there.
const LOOKS_AGAIN_MAX: usize = 64;
/// Of these, with the same under the number before and after: that is the answer. It may have been
/// another's in between.
const LOOKS_ALIKE_MAX: usize = 16;

/// The POSIX side of one thread. What a part keeps is its folder's own: others ask its methods.
pub struct Client<S, H, M> {
    pub(crate) services: S,
    pub(crate) host: H,
    pub(crate) memory: M,
    pub(crate) buffers: &'static mut Buffers,
    pub(crate) identity: Identity,
    pub(crate) judging: Judging,
    pub(crate) numbers: Numbers,
    pub(crate) paths: Paths,
    pub(crate) lower: Lower,
    pub(crate) streams: Streams,
    pub(crate) waits: Waits,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A client for the calling thread. `buffers` is scratch: any content, all zero will do.
    pub fn new(mut services: S, host: H, memory: M, buffers: &'static mut Buffers) -> Self {
        services.leave_set_bits(SetBits::Ask);
        let identity = Identity::default();
        Client {
            services,
            host,
            memory,
            buffers,
            identity,
            judging: Judging::default(),
            numbers: Numbers::default(),
            paths: Paths::default(),
            lower: Lower::default(),
            streams: Streams::default(),
            waits: Waits::default(),
        }
    }

    /// The services below, for what the runtime asks by itself (fork, exec, exit, unpin).
    pub fn services(&mut self) -> &mut S {
        &mut self.services
    }

    /// The host below.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// What the call means.
    pub fn call(&mut self, call: Call) -> Verdict {
        self.call_then(&call, |verdict| *verdict)
    }

    /// The same, the verdict shown to `then` where it lies instead of being moved.
    #[inline(always)]
    pub fn call_then<T>(&mut self, call: &Call, then: impl FnOnce(&Verdict) -> T) -> T {
        let answer = &self.dispatch(call);
        if let Some(errno) = self.fulfil(call, answer) {
            return then(&Verdict::Return(errno.as_return()));
        }
        match answer {
            Ok(verdict) => then(verdict),
            Err(Errno::ESTALE) => then(&self.walk_again(call)),
            Err(Errno::EBADF) => then(&self.look_again(call)),
            Err(errno) => then(&Verdict::Return(errno.as_return())),
        }
    }

    /// An inode went between finding and using it; nothing has happened. Linux shows no `ESTALE`
    /// here: it finds what is there by now, or nothing.
    #[cold]
    #[inline(never)]
    fn walk_again(&mut self, call: &Call) -> Verdict {
        for _ in 0..STALE_WALKS_MAX {
            let answer = self.dispatch(call);
            if let Some(errno) = self.fulfil(call, &answer) {
                return Verdict::Return(errno.as_return());
            }
            match answer {
                Ok(verdict) => return verdict,
                Err(Errno::ESTALE) => {}
                Err(errno) => return Verdict::Return(errno.as_return()),
            }
        }
        Verdict::Return(Errno::ENOENT.as_return())
    }

    /// There was no such descriptor; nothing has happened. On Linux that is not so for a moment
    /// because another thread puts one in the place of another (`dup2`): the call has one of them.
    #[cold]
    #[inline(never)]
    fn look_again(&mut self, call: &Call) -> Verdict {
        let (files, fd) = (self.services.files(), call.args[0] as u32);
        let mut alike = 0;
        for _ in 0..LOOKS_AGAIN_MAX {
            let slot = self.services.slot(files, fd);
            if slot == Slot::Free || alike == LOOKS_ALIKE_MAX {
                break;
            }
            let answer = self.dispatch(call);
            if let Some(errno) = self.fulfil(call, &answer) {
                return Verdict::Return(errno.as_return());
            }
            match answer {
                Ok(verdict) => return verdict,
                Err(Errno::EBADF) if self.services.slot(files, fd) != slot => alike = 0,
                Err(Errno::EBADF) => alike += 1,
                Err(errno) => return Verdict::Return(errno.as_return()),
            }
        }
        Verdict::Return(Errno::EBADF.as_return())
    }

    /// What number `fd` is, as the table has it.
    pub fn slot(&mut self, fd: u32) -> Slot {
        let files = self.services.files();
        self.services.slot(files, fd)
    }

    /// Whether it is Husk's now.
    pub(crate) fn is_husks(&mut self, fd: u32) -> bool {
        matches!(self.slot(fd), Slot::Husk(_))
    }

    /// Tells whoever waits for changes of what was done outside a call (the end of a process).
    #[inline(always)]
    pub fn tell(&mut self) {
        if self.services.watch_owes() {
            self.tell_watchers();
        }
    }

    /// Notes the result of a passed call; returns what the application gets.
    pub fn after(&mut self, after: After, result: i64) -> i64 {
        let result = self.note_passed(&after, result);
        self.tell();
        result
    }

    /// The same in a child that a signal's handler made while its parent was in the call.
    #[cold]
    pub fn after_in_child(&mut self, after: After, result: i64) -> i64 {
        self.note_inherited(&after, result)
    }
}
