//! Seccomp filters of the application: they apply to its calls, not to the runtime's.
//!
//! A filter allows what its program calls, and would end it at the first thing that the runtime
//! asks the host for on its behalf. So each gets a head that lets the runtime's own calls pass:
//!
//! ```text
//!   the call came from our text? ── no ──────────────────────────────────────► the filter
//!     └─ from where the gate passes on what the application asks? ── yes ─────► the filter
//!          └─ no: it is the runtime's own ──► allowed
//! ```
//!
//! Invariants
//! 1. The runtime lies at the same place in every process of an image, so that what is inherited
//!    by fork and exec stays right.
//! 2. The filter finds the machine as Linux would begin it: the accumulator is 0.
//!
//! Not here: what is answered without the host asks no filter, and exec asks it as the runtime.

use crate::addresses;
use crate::frame::{Answer, Frame};
use crate::memory;
use crate::stubs::classes::PR_SET_SECCOMP;
use crate::stubs::{self, NUMBERS, STUB_BYTES};
use crate::thread::Thread;
use husk_abi::cbpf::code::{IF_EQUAL, IF_GREATER_OR_EQUAL, LOAD_VALUE, LOAD_WORD, RETURN_VALUE};
use husk_abi::cbpf::{INSTRUCTIONS_MAX, Instruction, branch, op};
use husk_abi::{Errno, nr};
use husk_host::syscall;

const PR_SET_NO_NEW_PRIVS: usize = 38;
/// Modes of `prctl`.
const STRICT: usize = 1;
const FILTER: usize = 2;
/// Operations of `seccomp`.
const SET_MODE_STRICT: usize = 0;
const SET_MODE_FILTER: usize = 1;
/// The result is a descriptor.
const NEW_LISTENER: usize = 8;

/// The argument of both that points to the filter.
const PROGRAM: usize = 2;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0;
/// What rooms of instructions are filled with.
const NOTHING: Instruction = op(LOAD_VALUE, 0);
/// Where in `struct seccomp_data` the call's number lies, and the address behind its instruction.
const NUMBER_AT: u32 = 0;
const ADDRESS_AT: u32 = 8;

const HEAD: usize = 13;

/// What is put before a filter. Numbers behind a condition: how many steps are left out.
fn head() -> [Instruction; HEAD] {
    let (start, end) = addresses::text();
    let stubs = (&raw const stubs::husk_passes) as usize;
    let passed = (&raw const stubs::husk_passed) as u32;
    let opened = (&raw const stubs::husk_opened) as u32;
    let asked = stubs::husk_detour_asked as *const () as u32;
    let cloned = (&raw const stubs::husk_cloned) as u32;
    [
        op(LOAD_WORD, ADDRESS_AT + 4),
        branch(IF_EQUAL, (start >> 32) as u32, 0, 10),
        op(LOAD_WORD, ADDRESS_AT),
        branch(IF_GREATER_OR_EQUAL, start as u32, 0, 8),
        branch(IF_GREATER_OR_EQUAL, end as u32, 7, 0),
        branch(IF_GREATER_OR_EQUAL, stubs as u32, 0, 1),
        branch(IF_GREATER_OR_EQUAL, (stubs + NUMBERS * STUB_BYTES) as u32, 0, 5),
        branch(IF_EQUAL, passed, 4, 0),
        branch(IF_EQUAL, opened, 3, 0),
        branch(IF_EQUAL, asked, 2, 0),
        branch(IF_EQUAL, cloned, 1, 0),
        op(RETURN_VALUE, ALLOW),
        op(LOAD_VALUE, 0),
    ]
}

/// `prctl(PR_SET_SECCOMP)`.
pub fn prctl(thread: &mut Thread, frame: &Frame) -> Answer {
    match frame.args[1] {
        STRICT => strict(),
        FILTER => install(thread, frame),
        _ => Answer::PASSED,
    }
}

/// `seccomp`.
pub fn seccomp(thread: &mut Thread, frame: &Frame) -> Answer {
    match frame.args {
        [SET_MODE_STRICT, 0, 0, ..] => strict(),
        [SET_MODE_FILTER, ..] => install(thread, frame),
        _ => Answer::PASSED,
    }
}

/// Installs the `struct sock_fprog` that argument 2 points to.
fn install(thread: &mut Thread, frame: &Frame) -> Answer {
    let mut given = [0usize; 2];
    let mut filter = [NOTHING; INSTRUCTIONS_MAX];
    if let Err(errno) = memory::read_value(frame.args[PROGRAM], &mut given) {
        return Answer::value(errno.as_return());
    }
    let (count, from) = (given[0] & 0xffff, given[1]);
    if count == 0 || count > INSTRUCTIONS_MAX {
        // The host says what is wrong with it.
        return Answer::PASSED;
    }
    let Some(rest) = filter.get_mut(HEAD..HEAD + count) else {
        return Answer::value(Errno::ENOMEM.as_return());
    };
    let bytes = count * size_of::<Instruction>();
    if let Err(errno) = memory::copy(rest.as_mut_ptr() as usize, from, bytes) {
        return Answer::value(errno.as_return());
    }
    filter[..HEAD].copy_from_slice(&head());
    let listens = frame.number == nr::seccomp && frame.args[1] & NEW_LISTENER != 0;
    if listens && let Err(errno) = thread.client.need_descriptor() {
        return Answer::value(errno.as_return());
    }
    let result = ask(frame.number, frame.args, &filter[..HEAD + count]);
    Answer::value(match result {
        fd @ 0.. if listens => thread.client.note_host_descriptor(fd as u32),
        other => other,
    })
}

/// The call with a filter of ours in the place of the application's.
fn ask(number: usize, mut args: [usize; 6], filter: &[Instruction]) -> i64 {
    let program = [filter.len(), filter.as_ptr() as usize];
    args[PROGRAM] = (&raw const program) as usize;
    // SAFETY: the application's own call, with a program of ours that lasts as long as the call.
    unsafe { syscall(number, args) as i64 }
}

/// Four calls and nothing else. Linux asks for no right here, as nobody gains by it.
fn strict() -> Answer {
    const ALLOWED: [usize; 4] = [nr::read, nr::write, nr::exit, nr::rt_sigreturn];
    let mut filter = [NOTHING; HEAD + ALLOWED.len() + 3];
    filter[..HEAD].copy_from_slice(&head());
    filter[HEAD] = op(LOAD_WORD, NUMBER_AT);
    for (place, number) in ALLOWED.iter().enumerate() {
        let left_out = (ALLOWED.len() - place) as u8;
        filter[HEAD + 1 + place] = branch(IF_EQUAL, *number as u32, left_out, 0);
    }
    filter[HEAD + 1 + ALLOWED.len()] = op(RETURN_VALUE, KILL);
    filter[HEAD + 2 + ALLOWED.len()] = op(RETURN_VALUE, ALLOW);
    let args = [PR_SET_SECCOMP, FILTER, 0, 0, 0, 0];
    let mut result = ask(nr::prctl, args, &filter);
    if result == Errno::EACCES.as_return() {
        let promise = [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0];
        // SAFETY: only says that no program may gain rights; none can be started any more.
        unsafe { syscall(nr::prctl, promise) };
        result = ask(nr::prctl, args, &filter);
    }
    Answer::value(result)
}
