//! Calls that the host knows no descriptor for: by now it may be Husk's.
//!
//! Another thread may put a descriptor of Husk's in the place of one of the host's (`dup2`) while a
//! call is on its way to the host, where it then meets a plug. On Linux it meets the old descriptor
//! or the new one; here it starts once more, and meets the new one. Once: what the host says then
//! is the answer.
//!
//! ```text
//!   gate ─ passed, or back from a detour: EBADF ─► serve_again ─ not Husk's ─► EBADF
//!   gate ◄─ the service, as ever ◄───────────────────────┘ Husk's
//! ```

use crate::gate::{self, Answer, Frame};
use crate::service;
use crate::thread::Thread;
use core::arch::global_asm;
use core::mem::offset_of;
use husk_abi::{Errno, nr};

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
    push rcx
    push rax
    push r9
    push r8
    push r10
    push rdx
    push rsi
    push rdi
    sub rsp, 8
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
"#,
    signal_stack = const offset_of!(Thread, signal_stack),
    in_service = const offset_of!(Thread, in_service),
    app_rsp = const offset_of!(Thread, app_rsp),
    service_top = const offset_of!(Thread, service_top),
    serve_again = sym serve_again,
);

/// The call as it is answered now, if its descriptor is Husk's.
extern "C" fn serve_again(frame: &mut Frame) -> Answer {
    let at = if frame.number == nr::mmap { 4 } else { 0 };
    let fd = frame.args[at] as u32;
    let wire = &mut Thread::current().client;
    if !wire.is_husks(fd) {
        return Answer::value(NO_DESCRIPTOR);
    }
    if core::mem::take(&mut Thread::current().goes_again) {
        return Answer::value(NO_DESCRIPTOR);
    }
    let answer = service::serve(frame);
    Thread::current().goes_again = answer.action == gate::DETOUR;
    // What the host is asked of a descriptor of Husk's it knows nothing of.
    if answer.action == gate::PASS && Thread::current().client.is_husks(fd) {
        return Answer::value(NO_DESCRIPTOR);
    }
    answer
}
