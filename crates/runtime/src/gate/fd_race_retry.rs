//! Restarts a call whose descriptor number another thread replaced on the way to the host.
//!
//! Of one that the host knows no descriptor for, the descriptor may be Husk's by now. Another
//! thread may put one of Husk's in the place of one of the host's (`dup2`) while a call is on its
//! way to the host, where it then meets a plug. On Linux it meets the old descriptor or the new
//! one; here it starts once more, and meets what is there then. Others may have put something else
//! there meanwhile, by turns, so it does that several times, while the number is in the table at
//! all: `dup2` never takes it out. It may stay there with an honest EBADF (written to, and open
//! for reading only), so there is an end to that.
//!
//! ```text
//!   gate ─ passed, or back from a detour: EBADF ─► serve_again ─ closed, or the last time ─► EBADF
//!   gate ◄─ the service, as ever ◄───────────────────────┘
//!        ─ a handler comes before the host has the call, or the call is to go on behind it
//!            └─► look_again ─► husk_looks_again ─► husk_enter, when the handler has ended
//! ```
//!
//! A handler may do the same in its own thread, and put the end of a pipe there, whose bytes are
//! not the host's to read: what moves bytes looks at its number again behind the handler. Not so
//! where it is traced, or where a handler on a signal stack makes it.

use crate::client::glue::After;
use crate::frame::{Answer, Detour, Frame, THEN_AFTER, THEN_AFTER_AGAIN};
use crate::gate::{self, push_frame};
use crate::gate::{classes, outside, service};
use crate::process::thread::Thread;
use crate::signal::{Context, Register};
use core::arch::global_asm;
use core::mem::offset_of;
use husk_abi::{Errno, nr};
use husk_proto::descriptor::Slot;

/// Times a call starts once more. Each time, others changed what the number is while it went to the
/// host.
const RESTARTS_MAX: u32 = 16;
/// The same where the number is the host's all the same: what it says is probably meant.
const RESTARTS_OF_HOST_MAX: u32 = 2;
/// What the host answers.
pub const NO_DESCRIPTOR: i64 = Errno::EBADF.as_return();

unsafe extern "C" {
    /// Makes a call as it is.
    fn husk_pass();
    /// Where the gate looks whose a number is, up to `husk_glance`.
    fn husk_moves_bytes();
    /// The same, up to the next label.
    fn husk_passes_on();
    fn husk_act_beyond_pass();
    /// Where a service has found that a call is to be passed, up to the next label.
    fn husk_act_passes();
    fn husk_act_passed();
    /// The same while handlers are due, up to the next label.
    fn husk_unblock_and_pass();
    fn husk_unblocks_and_passes();
    /// Where such a call starts once more.
    fn husk_looks_again();
}

global_asm!(
    r#"
    .text
    # On the stack: the number, the return address, 128 bytes.
    .globl husk_passed_nowhere
husk_passed_nowhere:
    pop rax
    pop rcx
    lea rsp, [rsp + 128]
husk_again:
    cmp qword ptr gs:[{signal_stack} + 8], 0
    lea r11, [rip + husk_again_here]
    jne husk_apart
husk_again_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    mov rsp, gs:[{service_top}]
    push qword ptr gs:[{app_rsp}]
"#,
    push_frame!(),
    r#"
    lea rdi, [rsp + 8]
    cld
    call {serve_again}
    add rsp, 8
    test edx, edx
    jne husk_act
    jmp husk_answered
    .globl husk_detour_nowhere
husk_detour_nowhere:
    lea r11, [rip + husk_again]
    jmp husk_detour_restart
    # The call is to be passed, and handlers come first; those of a service apart, which blocks all
    # signals each time, at once before the host has it.
    .globl husk_unblock_and_pass
husk_unblock_and_pass:
    cmp byte ptr gs:[{is_laid_aside}], 0
    jne 2f
    lea r11, [rip + {ways}]
    test byte ptr [r11 + rax], {moves}
    lea r11, [rip + husk_enter]
    jnz husk_unblock
2:  lea r11, [rip + husk_act_passes]
    jmp husk_unblock
    .globl husk_unblocks_and_passes
husk_unblocks_and_passes:
    # Not `husk_enter` itself: there only handlers of traps return to (`redirect`).
    .globl husk_looks_again
husk_looks_again:
    jmp husk_enter
"#,
    signal_stack = const offset_of!(Thread, signal_stack),
    in_service = const offset_of!(Thread, in_service),
    app_rsp = const offset_of!(Thread, app_rsp),
    service_top = const offset_of!(Thread, service_top),
    serve_again = sym serve_again,
    is_laid_aside = const offset_of!(Thread, is_laid_aside),
    ways = sym classes::WAYS,
    moves = const classes::MOVES,
);

/// Before a handler runs in `context`: a call there that moves bytes, and that the host does not
/// have yet, or gets once more, starts again behind it.
pub fn look_again(context: Context) {
    const SYSCALL_BYTES: usize = 2;
    let made = (&raw const gate::husk_passed) as usize - SYSCALL_BYTES;
    let (rip, rsp) = (context.get(Register::Rip), context.get(Register::Rsp));
    if rip == gate::husk_detour_asked as *const () as usize - SYSCALL_BYTES {
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
        context.set(Register::Rip, husk_looks_again as *const () as usize);
        context.set(Register::Rsp, rsp + pushed.map_or(0, |words| 128 + 8 * words));
        context.set(Register::Rax, number);
        context.set(Register::Rcx, back);
    }
}

/// The same for a call on a pipe, which is counted as long as the host has it.
fn land_and_look_again(context: Context) {
    // SAFETY: there rsp points to the Detour of the call, on the application's stack.
    let way = unsafe { &mut *(context.get(Register::Rsp) as *mut Detour) };
    if way.then == THEN_AFTER && After::is_of_pipe(way.reason as u32) {
        way.then = THEN_AFTER_AGAIN;
        context.set(Register::Rip, gate::husk_detour_done as *const () as usize);
        context.set(Register::Rax, Errno::EINTR.as_return() as usize);
    }
}

/// Whether at `rip` the gate looks at a descriptor, or has just done so and passes the call, with
/// the application's stack and registers.
fn is_about_to_pass(rip: usize) -> bool {
    let at = |label: unsafe extern "C" fn()| label as *const () as usize;
    rip == at(husk_pass)
        || (at(husk_moves_bytes)..at(outside::husk_glance)).contains(&rip)
        || (at(husk_passes_on)..at(husk_act_beyond_pass)).contains(&rip)
        || (at(husk_act_passes)..at(husk_act_passed)).contains(&rip)
        || (at(husk_unblock_and_pass)..at(husk_unblocks_and_passes)).contains(&rip)
}

/// The call as it is answered now, if its descriptor is open. No plug keeps `close` from anything.
extern "C" fn serve_again(frame: &mut Frame) -> Answer {
    let at = if frame.number == nr::mmap { 4 } else { 0 };
    let thread = Thread::current();
    let most = match thread.client.slot(frame.args[at] as u32) {
        _ if frame.number == nr::close => 0,
        Slot::Husk(_) => RESTARTS_MAX,
        Slot::Host(_) => RESTARTS_OF_HOST_MAX,
        Slot::Free => 0,
    };
    if thread.restarts >= most {
        return Answer::value(NO_DESCRIPTOR);
    }
    thread.restarts += 1;
    service::serve_noted(thread, frame)
}
