//! A handler is about to run, and the thread was on its way to the host with a call that moves
//! bytes: the call looks at its descriptor again behind the handler.
//!
//! The handler may put another descriptor there, or the end of a pipe, whose bytes are not the
//! host's to read (`gate::fd_race_retry`).

use crate::frame::{Detour, THEN_AFTER, THEN_AFTER_AGAIN, THEN_BITS};
use crate::stubs::{self, classes};
use crate::thread::context::{Context, Register};
use husk_abi::Errno;
use husk_client::After;

/// Before a handler runs in `context`: a call there that moves bytes, and that the host does not
/// have yet, or gets once more, starts again behind it.
pub fn look_again(context: Context) {
    const SYSCALL_BYTES: usize = 2;
    let made = (&raw const stubs::husk_passed) as usize - SYSCALL_BYTES;
    let (rip, rsp) = (context.get(Register::Rip), context.get(Register::Rsp));
    if is_about_to_ask(rip) {
        return land_and_look_again(context);
    }
    // `husk_pass` makes room, pushes two words, each by an instruction of one byte, and calls.
    let pushed = match made.wrapping_sub(rip) {
        0 => Some(2),
        1 => Some(1),
        2 => Some(0),
        _ if is_about_to_pass(rip) => None,
        _ => return,
    };
    // SAFETY: so many words lie on the application's stack there.
    let word = |index: usize| unsafe { *((rsp + 8 * index) as *const usize) };
    let [number, back] = match pushed {
        Some(2) => [word(0), word(1)],
        Some(1) => [context.get(Register::Rax), word(0)],
        _ => [Register::Rax, Register::Rcx].map(|register| context.get(register)),
    };
    if classes::ways(number) & classes::MOVES != 0 {
        context.set(Register::Rip, stubs::husk_looks_again as *const () as usize);
        context.set(Register::Rsp, rsp + pushed.map_or(0, |words| 128 + 8 * words));
        context.set(Register::Rax, number);
        context.set(Register::Rcx, back);
    }
}

/// The same for a call on a pipe, which is counted as long as the host has it, and for one that is
/// about to sleep by a bell.
fn land_and_look_again(context: Context) {
    // SAFETY: there rsp points to the Detour of the call, on the application's stack.
    let way = unsafe { &mut *(context.get(Register::Rsp) as *mut Detour) };
    if way.then as u32 as usize == THEN_AFTER && After::is_of_pipe(way.reason as u32) {
        way.then = way.then >> THEN_BITS << THEN_BITS | THEN_AFTER_AGAIN;
        context.set(Register::Rip, stubs::husk_detour_done as *const () as usize);
        context.set(Register::Rax, Errno::EINTR.as_return() as usize);
    }
}

/// Whether at `rip` the host is about to get the call of a detour, or gets it once more.
fn is_about_to_ask(rip: usize) -> bool {
    let at = |label: unsafe extern "C" fn()| label as *const () as usize;
    (at(stubs::husk_detour_begun)..=at(stubs::husk_detour_goes)).contains(&rip)
        || rip == at(stubs::husk_detour_asks)
}

/// Whether at `rip` the gate looks at a descriptor, or has just done so and passes the call, with
/// the application's stack and registers.
fn is_about_to_pass(rip: usize) -> bool {
    let at = |label: unsafe extern "C" fn()| label as *const () as usize;
    rip == at(stubs::husk_pass)
        || (at(stubs::husk_moves_bytes)..at(stubs::husk_glance)).contains(&rip)
        || (at(stubs::husk_passes_on)..at(stubs::husk_act_beyond_pass)).contains(&rip)
        || (at(stubs::husk_act_passes)..at(stubs::husk_act_passed)).contains(&rip)
        || (at(stubs::husk_unblock_and_pass)..at(stubs::husk_unblocks_and_passes)).contains(&rip)
}
