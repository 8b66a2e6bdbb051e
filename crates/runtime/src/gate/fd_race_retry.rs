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

use crate::frame::{Answer, Frame};
use crate::gate::{push_frame, service};
use crate::stubs::classes;
use crate::thread::Thread;
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
