//! Calls about what lies outside every tree: the host's, with the application's own arguments. What
//! is opened is noted after the call, without a detour; a close is noted before it; calls on such a
//! number take no look.
//!
//! ```text
//!   gate ─ the descriptor is in `ThreadClient::passes` ─► the host
//!   serve ─ answer: PASSED ─► the host
//!         └ answer: OPENS ──► the host ─ a number ─► opened ─► the number it has from now on
//!                                      └ an error ─► application
//! ```
//!
//! While the host has the call, nothing of it lies anywhere but in the application's registers and
//! on its stack: a handler may fork, or never come back.

use crate::frame::{Answer, Frame};
use crate::gate::pop_frame;
use crate::stubs::classes;
use crate::thread::Thread;
use core::arch::global_asm;
use core::mem::offset_of;
use husk_abi::nr;
use husk_abi::sys::general::{AT_EMPTY_PATH, O_CLOEXEC};
use husk_client::Shortcut;

global_asm!(
    r#"
    .text
    # The descriptor is the host's for sure, and so is the call, unless it is about more.
    .balign 64
    .globl husk_passes_on
husk_passes_on:
    cmp qword ptr [rip + {untouched}], 0
    jne husk_glance
    cmp eax, {newfstatat}
    je 3f
    lea r11d, [rax - {sendto}]
    cmp r11d, 1
    ja husk_pass
    test r8, r8
    jz husk_pass
    jmp husk_glance
3:  cmp r10d, {at_empty_path}
    jne husk_glance
    test rsi, rsi
    jz husk_pass
    .globl husk_path_look
husk_path_look:
    cmp byte ptr [rsi], 0
    je husk_pass
    jmp husk_glance

    .globl husk_act_beyond_pass
husk_act_beyond_pass:
    cmp edx, 3
    jne husk_detour
"#,
    pop_frame!(),
    r#"
7:  cmp qword ptr gs:[{deferred}], 0
    je 2f
    lea r11, [rip + 7b]
    jmp husk_unblock
2:  lea rsp, [rsp - 128]
    push rcx
    push rax
    syscall
    .globl husk_opened
husk_opened:
    cmp rax, -4096
    jb 2f
    lea rsp, [rsp + 8]
    ret 128
2:  cmp qword ptr gs:[{signal_stack} + 8], 0
    lea r11, [rip + husk_opened_here]
    jne husk_apart
husk_opened_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    # The number of the call.
    mov rcx, [rsp]
    mov rsp, gs:[{service_top}]
    push rdi
    push rsi
    push rdx
    push r10
    push r8
    push r9
    mov rdi, rax
    cld
    call {opened}
    pop r9
    pop r8
    pop r10
    pop rdx
    pop rsi
    pop rdi
    mov rsp, gs:[{app_rsp}]
    mov byte ptr gs:[{in_service}], 0
    lea rsp, [rsp + 8]
7:  cmp qword ptr gs:[{deferred}], 0
    jne 2f
    cmp rax, -4096
    ret 128
2:  lea r11, [rip + 7b]
    jmp husk_unblock
"#,
    signal_stack = const offset_of!(Thread, signal_stack),
    in_service = const offset_of!(Thread, in_service),
    app_rsp = const offset_of!(Thread, app_rsp),
    service_top = const offset_of!(Thread, service_top),
    deferred = const offset_of!(Thread, deferred),
    opened = sym opened,
    untouched = sym crate::memory::mappings::HIGH,
    newfstatat = const nr::newfstatat,
    at_empty_path = const AT_EMPTY_PATH,
    sendto = const nr::sendto,
);
// `recvfrom` is the other one with a name.
const _: () = assert!(nr::recvfrom == nr::sendto + 1);

/// What becomes of a call, if its path is known to lead outside.
#[inline(always)]
pub fn answer(thread: &mut Thread, frame: &Frame) -> Option<Answer> {
    if classes::ways(frame.number) & classes::SHORT == 0 {
        return None;
    }
    if frame.number == nr::close {
        return thread.client.closes_host(frame.args[0]).then_some(Answer::PASSED);
    }
    thread.client.outside(&frame.call).map(|outside| match outside {
        Shortcut::Passes => Answer::PASSED,
        Shortcut::Opens => Answer::OPENS,
        Shortcut::Lent(fd) => Answer::value(i64::from(fd)),
    })
}

/// The host has opened `fd` for such a call: what the program gets instead of it.
extern "C" fn opened(fd: usize, second: usize, third: usize, number: usize) -> i64 {
    let flags = if number == nr::open { second } else { third };
    Thread::current().client.note_opened_outside(fd as u32, flags as u32 & O_CLOEXEC != 0)
}
