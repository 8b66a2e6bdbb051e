//! The frame of a call while it is served: the application's registers, the answer, the way back.

use core::ops::Deref;
use husk_client::Call;
use husk_host::syscall;

/// The registers of the application as the entry code pushes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// Arguments in the order of system calls (rdi, rsi, rdx, r10, r8, r9), and the number.
    pub call: Call,
    /// Where the application continues.
    pub return_address: usize,
    /// Its stack pointer.
    pub rsp: usize,
}

impl Frame {
    /// The call at the host, made during the service with the application's arguments: one that
    /// does not sleep.
    pub fn host(&self) -> i64 {
        // SAFETY: the application's own call and arguments, checked by `protect`.
        unsafe { syscall(self.number, self.args) as i64 }
    }
}

impl Deref for Frame {
    type Target = Call;

    #[inline(always)]
    fn deref(&self) -> &Call {
        &self.call
    }
}

/// What `serve` wants done.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Answer {
    /// The result, or the address of a `Detour`.
    pub value: i64,
    /// `RETURN`, `PASS`, `DETOUR` or `OPENS`.
    pub action: u64,
}

/// Return `value`.
pub const RETURN: u64 = 0;
/// Make the host call unchanged.
pub const PASS: u64 = 1;
/// Make the host call that the `Detour` at `value` describes.
pub const DETOUR: u64 = 2;
/// Make the host call unchanged, and give `outside::opened` the number that it returns.
pub const OPENS: u64 = 3;

/// `fast_path` says: make the host call unchanged. Both are no result of a call.
pub const GLANCE_PASSES: i64 = i64::MIN + 1;
/// `fast_path` says: ask `serve`.
pub const GLANCE_FAILS: i64 = i64::MIN;

impl Answer {
    /// The call is answered.
    pub const fn value(value: i64) -> Answer {
        Answer { value, action: RETURN }
    }
    /// The call is the host's.
    pub const PASSED: Answer = Answer { value: 0, action: PASS };
    /// The same, and what it opens is to be noted.
    pub const OPENS: Answer = Answer { value: 0, action: OPENS };
}

/// A host call on the application's stack that differs from what the application asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Detour {
    /// Arguments for the host.
    pub args: [usize; 6],
    /// Number for the host.
    pub number: usize,
    /// `THEN_LEAVE`, `THEN_AFTER` ...; in the upper half the number of a traced call.
    pub then: usize,
    /// The application's own registers.
    pub original: Frame,
    /// With `THEN_AFTER`: why, and who passed the call (`service::note`).
    pub reason: usize,
    /// With `THEN_AFTER`: the number to be noted.
    pub noted_number: usize,
    /// With `THEN_AFTER`: the arguments to be noted.
    pub noted_args: [usize; 6],
    /// Room for what `args` point to: a mask, a timespec.
    pub scratch: [usize; 3],
}

const _: () = assert!(size_of::<Detour>().is_multiple_of(16));
const _: () = assert!(size_of::<Frame>() == 72);

/// The result is the application's.
pub const THEN_LEAVE: usize = 0;
/// `serve_after` turns the result into the application's.
pub const THEN_AFTER: usize = 1;
/// The application's call starts again, unless the sleep ended with `EINTR`.
pub const THEN_AGAIN: usize = 2;
/// `THEN_AGAIN` of a traced call.
pub const THEN_TRACED_AGAIN: usize = 3;
/// `THEN_LEAVE` of a traced call: `serve_after` only notes the result.
pub const THEN_TRACED: usize = 4;
/// `THEN_AFTER`, and the application's call starts again if that leaves it with `EINTR`.
pub const THEN_AFTER_AGAIN: usize = 5;
/// Bits of `then` above this are the number of a traced call.
pub const THEN_BITS: u32 = 32;
