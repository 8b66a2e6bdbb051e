//! The gate: where a system call of the application enters, and how it leaves.
//!
//! ```text
//!   patched site ─call *[0x60000+8*nr]─► class 0: the call itself, ret
//!                                    ├─► class 1: pop rcx ──► husk_service
//!                                    ├─► 5 to 7: pop rcx ──► husk_glance, husk_moves_bytes
//!                                    └─► others:  pop rcx ─┐
//!   trapped site ─SIGSYS: rax=nr, rcx=return address───────┴► husk_enter
//!        class 0 ──► husk_pass: syscall on the application's stack ──► application
//!        class 1 ──► husk_service ─► serve() on this thread's service stack
//!                        answer 0: value    ──► husk_leave
//!                        answer 1: pass     ──► husk_pass, behind handlers perhaps husk_enter
//!                        answer 2: detour   ──► husk_detour (changed arguments, or work after)
//!                        answer 3: opens    ──► the same as 1, and `opened` notes the number
//!        6 ──► number in `passes`? husk_passes_on ─► the host, or husk_glance
//!        5 and 6 ──► husk_glance ─► glance() there: value ──► husk_leave, pass ──► husk_pass,
//!                        or as class 1
//!        7 ──► husk_moves_bytes ─► swift() there: value ──► husk_leave, or as class 1
//!        class 2 ──► the same with callee-saved registers in the frame (clone, fork, vfork)
//!        class 3, 4 ──► rt_sigprocmask, rt_sigreturn: SIGSYS taken out of the mask, never deferred
//! ```
//!
//! While somebody traces the image, all but rt_sigreturn come to husk_traced; while pages of a
//! mapping may be missing, calls of class 0 and 3 that take addresses come to husk_service as well:
//! `table` says where a call comes.
//!
//! Invariants
//! 1. From the application's point of view only rax, rcx, r11 and the flags change, and after a
//!    call that a patched site replaced, the flags are those of `cmp $-4096,%rax`.
//! 2. The 128 bytes below the application's rsp are never written, but for the return address that
//!    a patched site's `call` leaves there (`husk_rewrite` leaves functions with a red zone alone).
//! 3. `in_service` is set exactly while the service stack is in use. A signal meanwhile is
//!    deferred (blocked and requeued); at every other instruction here it is delivered at once.
//!    Leaving clears the flag first and looks at `deferred` after, so none is forgotten.
//! 4. A call that may sleep is made on the application's stack with `in_service` clear.
//! 5. Whoever came by a `call` leaves by a `ret`: an odd one of either costs the processor its
//!    guess for every return of the application's functions on the way out (about 30 ns).
//! 6. State that must survive a sleeping call is on the application's stack (`Detour`), because a
//!    signal handler may enter here again meanwhile.
//! 7. A service for a handler on a signal stack begins in `sigaltstack_entry`, and `husk_unblock`
//!    undoes what that did. A thread that was never in such a handler pays one comparison.

pub(crate) mod fd_race_retry;
pub(crate) mod outside;
pub(crate) mod protect;
pub(crate) mod seccomp;
pub(crate) mod service;
pub(crate) mod sigaltstack_entry;
pub(crate) mod trace;

use crate::frame::{Detour, THEN_AFTER_AGAIN};
use crate::stubs::{NUMBERS, classes};
use crate::thread::Thread;
use core::arch::global_asm;
use core::mem::offset_of;
use husk_client::After;

/// Pushes what lies before `rsp` in a [`Frame`](crate::frame::Frame), and eight bytes that align
/// the stack.
macro_rules! push_frame {
    () => {
        "push rcx; push rax; push r9; push r8; push r10; push rdx; push rsi; push rdi; sub rsp, 8"
    };
}
pub(crate) use push_frame;

/// Leaves service by a [`Frame`](crate::frame::Frame) at `rsp` for a call of the host: the
/// application's stack, and its registers but the flags.
macro_rules! pop_frame {
    () => {
        "pop rdi; pop rsi; pop rdx; pop r10; pop r8; pop r9; pop rax; pop rcx; pop rsp; \
         mov byte ptr gs:[{in_service}], 0"
    };
}
pub(crate) use pop_frame;

global_asm!(
    r#"
    .text
    .balign 64
    .globl husk_passes
husk_passes:
    .set k, 0
    .rept {numbers}
    .byte 0xb8
    .long k
    syscall
    cmp rax, -4096
    ret
    .balign 16
    .set k, k + 1
    .endr

    .globl husk_serves
husk_serves:
    .set k, 0
    .rept {numbers}
    pop rcx
    .byte 0xb8
    .long k
    jmp husk_service
    .balign 16
    .set k, k + 1
    .endr

    .globl husk_stubs
husk_stubs:
    .set k, 0
    .rept {numbers}
    pop rcx
    .byte 0xb8
    .long k
    jmp husk_enter
    .balign 16
    .set k, k + 1
    .endr
    .rept 2
    pop rcx
    jmp husk_enter
    .balign 16
    .endr

    .globl husk_traces
husk_traces:
    .set k, 0
    .rept {numbers}
    pop rcx
    .byte 0xb8
    .long k
    jmp husk_traced
    .balign 16
    .set k, k + 1
    .endr
    .rept 2
    pop rcx
    jmp husk_traced
    .balign 16
    .endr

    .globl husk_traced
husk_traced:
    mov eax, eax
    cmp eax, {call_numbers}
    jae husk_unknown
    lea r11, [rip + {classes}]
    movzx r11d, byte ptr [r11 + rax]
    cmp r11d, 4
    je husk_sigreturn
    cmp qword ptr gs:[{signal_stack} + 8], 0
    jne husk_traced_apart
    .globl husk_traced_here
husk_traced_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    mov rsp, gs:[{service_top}]
    cmp r11d, 2
    jne 2f
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
2:  push qword ptr gs:[{app_rsp}]
"#,
    push_frame!(),
    r#"
    lea rdi, [rsp + 8]
    cld
    call {serve_traced}
    add rsp, 8
    test edx, edx
    jne husk_act
    jmp husk_answered

    .globl husk_diverts
husk_diverts:
    pop rcx
    .globl husk_diverted
husk_diverted:
    mov eax, eax
    cmp eax, {call_numbers}
    jae husk_unknown
    lea r11, [rip + {classes}]
    movzx r11d, byte ptr [r11 + rax]
    test r11d, r11d
    je husk_service
    cmp r11d, 3
    je husk_service
    jmp husk_enter

    .balign 64
    .globl husk_glances
husk_glances:
    .macro husk_glances_at place, numbers:vararg
    .irp k, \numbers
    pop rcx
    .byte 0xb8
    .long \k
    jmp \place
    .balign 16
    .endr
    .endm
    husk_glances_at husk_glance, {g0}, {g1}
    husk_glances_at husk_glance_at_set, {g2}
    husk_glances_at husk_moves_bytes, {g3}, {g4}
    husk_glances_at husk_hinted, {g5}, {g6}, {g7}, {g8}, {g9}, {g10}, {g11}, {g12}
    .purgem husk_glances_at
    # What \function says: the answer, or who has it. Looks do not care for the direction flag.
    .macro husk_looks function
    cmp qword ptr gs:[{signal_stack} + 8], 0
    jne husk_service_apart
    mov r11, rsp
    mov byte ptr gs:[{in_service}], 1
    mov rsp, gs:[{service_top}]
    push r11
"#,
    push_frame!(),
    r#"
    push r8
    push r10
    mov r8d, eax
    mov r9, rdx
    call \function
    add rsp, 16
    cmp rax, -4096
    jl husk_looked
    add rsp, 8
    jmp husk_answered
    .endm

    .balign 64
    .globl husk_moves_bytes
husk_moves_bytes:
    mov r11, gs:[{pipes}]
    bt r11, rdi
    jnc husk_hinted
    cld
    husk_looks {swift}
    # Calls that go to Husk's files as a rule are worth a look where the last one was passed.
    .balign 64
husk_hinted:
    mov r11, gs:[{hints}]
    bt r11, rdi
    jnc husk_service
    cmp rdi, {last_pass}
    ja husk_glance
    mov r11d, edi
    shr r11d, 6
    mov r11, gs:[r11 * 8 + {passes}]
    bt r11, rdi
    jc husk_passes_on
    .globl husk_glance
husk_glance:
    husk_looks {glance}
husk_glance_at_set:
    husk_looks {glance_at_set}
    .purgem husk_looks
husk_looked:
    mov r11, [rsp + 72]
    mov gs:[{app_rsp}], r11
    mov edx, 1
    test al, al
    jz husk_ask
    add rsp, 8
    jmp husk_act

    .balign 64
    .globl husk_enter
husk_enter:
    mov eax, eax
    cmp eax, {call_numbers}
    jae husk_unknown
    lea r11, [rip + {classes}]
    movzx r11d, byte ptr [r11 + rax]
    test r11d, r11d
    jne 2f
    .globl husk_pass
husk_pass:
    lea rsp, [rsp - 128]
    push rcx
    push rax
    syscall
    .globl husk_passed
husk_passed:
    cmp rax, {no_descriptor}
    je husk_passed_nowhere
    cmp rax, -4096
    lea rsp, [rsp + 8]
    ret 128
2:  cmp r11d, {hinted_class}
    ja husk_moves_bytes
    je husk_hinted
    cmp r11d, {glance_class}
    je husk_glance
    cmp r11d, 1
    jne 3f
husk_service:
    cmp qword ptr gs:[{signal_stack} + 8], 0
    jne husk_service_apart
    .globl husk_service_here
husk_service_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    mov rsp, gs:[{service_top}]
husk_serve:
    push qword ptr gs:[{app_rsp}]
"#,
    push_frame!(),
    r#"
husk_ask:
    lea rdi, [rsp + 8]
    cld
    call {serve}
    add rsp, 8
    test edx, edx
    jne husk_act
    .globl husk_answered
husk_answered:
    pop rdi
    pop rsi
    pop rdx
    pop r10
    pop r8
    pop r9
    add rsp, 8
    pop rcx
    pop rsp
    .globl husk_leave
husk_leave:
    mov byte ptr gs:[{in_service}], 0
    lea rsp, [rsp - 128]
    push rcx
7:  cmp qword ptr gs:[{deferred}], 0
    jne 2f
    cmp rax, -4096
    ret 128
2:  lea r11, [rip + 7b]
    jmp husk_unblock

    .globl husk_act
husk_act:
    cmp edx, 1
    jne husk_act_beyond_pass
"#,
    pop_frame!(),
    r#"
    .globl husk_act_passes
husk_act_passes:
    cmp qword ptr gs:[{deferred}], 0
    je husk_pass
    jmp husk_unblock_and_pass
    .globl husk_act_passed
husk_act_passed:

3:  cmp r11d, 2
    jne 4f
    cmp qword ptr gs:[{signal_stack} + 8], 0
    jne husk_spawn_apart
    .globl husk_spawn_here
husk_spawn_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    mov rsp, gs:[{service_top}]
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    jmp husk_serve

4:  cmp r11d, 3
    jne 5f
    test rsi, rsi
    jz husk_pass
    cmp r10, 8
    jne husk_pass
    .globl husk_mask_load
husk_mask_load:
    mov r11, [rsi]
    test r11d, {kept}
    jz husk_pass
    and r11, {others}
    lea rsp, [rsp - 128]
    push rcx
    push rsi
    push r11
    mov rsi, rsp
    syscall
    lea rsp, [rsp + 8]
    pop rsi
    cmp rax, -4096
    ret 128
    .globl husk_efault
husk_efault:
    mov rax, -14
    cmp rax, -4096
    jmp rcx

5:
husk_sigreturn:
    and dword ptr [rsp + {uc_mask}], {others}
    syscall

husk_unknown:
    mov rax, -38
    cmp rax, -4096
    jmp rcx

    .globl husk_detour
husk_detour:
    mov rsp, rax
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov rdx, [rsp + 16]
    mov r10, [rsp + 24]
    mov r8, [rsp + 32]
    mov r9, [rsp + 40]
    mov rax, [rsp + 48]
    mov byte ptr gs:[{in_service}], 0
    .globl husk_detour_begun
husk_detour_begun:
    cmp qword ptr gs:[{deferred}], 0
    je 2f
    # A service apart blocks all signals each time: there is no end to looking again.
    cmp byte ptr gs:[{is_laid_aside}], 0
    lea r11, [rip + husk_detour_begun]
    jne husk_unblock
    lea r11, [rip + husk_detour_unblocked]
    jmp husk_unblock
2:  cmp rax, [rsp + {original} + 48]
    je 9f
    .globl husk_detour_goes
husk_detour_goes:
    syscall
    .globl husk_detour_done
husk_detour_done:
    cmp dword ptr [rsp + {then}], 1
    je husk_detour_after
    ja husk_detour_more
husk_detour_leave:
    cmp rax, {no_descriptor}
    je husk_detour_nowhere
    mov rdi, [rsp + {original}]
    mov rsi, [rsp + {original} + 8]
    mov rdx, [rsp + {original} + 16]
    mov r10, [rsp + {original} + 24]
    mov r8, [rsp + {original} + 32]
    mov r9, [rsp + {original} + 40]
    mov rcx, [rsp + {original} + 56]
    mov rsp, [rsp + {original} + 64]
    lea rsp, [rsp - 128]
    push rcx
    cmp rax, -4096
    ret 128
husk_detour_after:
    cmp qword ptr gs:[{signal_stack} + 8], 0
    jne husk_after_apart
    .globl husk_after_here
husk_after_here:
    mov byte ptr gs:[{in_service}], 1
    mov gs:[{app_rsp}], rsp
    mov rdi, rsp
    mov rsi, rax
    mov rsp, gs:[{service_top}]
    cld
    call {serve_after}
    mov rsp, gs:[{app_rsp}]
    mov byte ptr gs:[{in_service}], 0
7:  cmp qword ptr gs:[{deferred}], 0
    je husk_detour_ended
    lea r11, [rip + 7b]
    jmp husk_unblock
husk_detour_ended:
    cmp dword ptr [rsp + {then}], {after_again}
    jne husk_detour_leave
    cmp rax, -4
    jne husk_detour_leave
    lea r11, [rip + husk_enter]
    jmp husk_detour_restart
husk_detour_more:
    cmp dword ptr [rsp + {then}], 4
    jae husk_detour_after
    cmp rax, -4
    je 3f
    lea r11, [rip + husk_enter]
    cmp dword ptr [rsp + {then}], 3
    jne 2f
    # No handler comes between here and the service: the call goes on as the one that it was.
    mov byte ptr gs:[{in_service}], 1
    mov r11d, [rsp + {then} + 4]
    mov gs:[{resumes}], r11d
    lea r11, [rip + husk_traced]
    .globl husk_detour_restart
husk_detour_restart:
2:  mov rdi, [rsp + {original}]
    mov rsi, [rsp + {original} + 8]
    mov rdx, [rsp + {original} + 16]
    mov r10, [rsp + {original} + 24]
    mov r8, [rsp + {original} + 32]
    mov r9, [rsp + {original} + 40]
    mov rax, [rsp + {original} + 48]
    mov rcx, [rsp + {original} + 56]
    mov rsp, [rsp + {original} + 64]
    jmp r11
3:  cmp dword ptr [rsp + {then}], 3
    je husk_detour_after
    jmp husk_detour_leave
    .globl husk_detour_asks
husk_detour_asks:
9:  syscall
    .globl husk_detour_asked
husk_detour_asked:
    jmp husk_detour_done
    # Handlers have run, and the host does not have the call yet.
husk_detour_unblocked:
    cmp dword ptr [rsp + {then}], 1
    jne husk_detour_begun
    mov r11d, [rsp + {reason}]
    sub r11d, {first_of_pipe}
    cmp r11d, {last_of_pipe} - {first_of_pipe}
    ja husk_detour_begun
    mov dword ptr [rsp + {then}], {after_again}
    mov rax, -4
    jmp husk_detour_done

    # Unblocks what was deferred; r11 = where to go on; keeps all other registers.
    .globl husk_unblock
husk_unblock:
    lea rsp, [rsp - 128]
    push r11
    push rcx
    push rax
    push rdi
    push rsi
    push rdx
    push r10
    cmp byte ptr gs:[{is_laid_aside}], 0
    je 2f
    mov rdi, gs:[0]
    add rdi, {laid_aside}
    xor esi, esi
    mov eax, {sigaltstack}
    syscall
    mov byte ptr gs:[{is_laid_aside}], 0
2:
    push qword ptr gs:[{deferred}]
    mov edi, 1
    mov rsi, rsp
    xor edx, edx
    mov r10d, 8
    mov eax, 14
    syscall
    pop r11
    not r11
    and gs:[{deferred}], r11
    .globl husk_go_on
husk_go_on:
    pop r10
    pop rdx
    pop rsi
    pop rdi
    pop rax
    pop rcx
    pop r11
    lea rsp, [rsp + 128]
    jmp r11

    .balign 16
    .globl husk_on_signal
husk_on_signal:
    # What was deferred is this one's to unblock from here on.
    xor ecx, ecx
    xchg gs:[{deferred}], rcx
    .globl husk_signal_begun
husk_signal_begun:
    push rdi
    push rsi
    push rdx
    cld
    call {on_signal}
    jmp 7f
    .globl husk_on_fault
husk_on_fault:
    push rdi
    push rsi
    push rdx
    cld
    call {on_fault}
7:  pop rdx
    pop rsi
    pop rdi
    test rax, rax
    jz 2f
    mov rcx, rax
    xor eax, eax
    jmp rcx
2:  ret
    nop
    .globl husk_restorer
husk_restorer:
    .byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0
    syscall
    ud2

    .globl husk_aside
husk_aside:
    push rbp
    mov rbp, rsp
    mov rax, rdi
    mov rdi, rsi
    mov rsp, gs:[{service_top}]
    call rax
    mov rsp, rbp
    pop rbp
    ret

    .globl husk_vanish
husk_vanish:
    mov rsp, rsi
    mov dword ptr [rdi], 0
    mov edi, edx
    mov eax, 60
    syscall
    ud2
"#,
    numbers = const NUMBERS,
    no_descriptor = const crate::gate::fd_race_retry::NO_DESCRIPTOR,
    call_numbers = const classes::NUMBERS,
    glance = sym crate::gate::service::glance,
    glance_at_set = sym crate::gate::service::glance_at_set,
    swift = sym crate::gate::service::swift,
    hints = const offset_of!(Thread, client.hints),
    passes = const offset_of!(Thread, client.passes),
    last_pass = const husk_carrier::PASSES_MAX - 1,
    pipes = const offset_of!(Thread, client.pipes),
    glance_class = const classes::GLANCE,
    hinted_class = const classes::HINTED,
    g0 = const husk_client::GLANCED[0], g1 = const husk_client::GLANCED[1],
    g2 = const husk_client::GLANCED[2], g3 = const husk_client::GLANCED[3],
    g4 = const husk_client::GLANCED[4], g5 = const husk_client::GLANCED[5],
    g6 = const husk_client::GLANCED[6], g7 = const husk_client::GLANCED[7],
    g8 = const husk_client::GLANCED[8], g9 = const husk_client::GLANCED[9],
    g10 = const husk_client::GLANCED[10], g11 = const husk_client::GLANCED[11],
    g12 = const husk_client::GLANCED[12],
    classes = sym classes::CLASSES,
    in_service = const offset_of!(Thread, in_service),
    app_rsp = const offset_of!(Thread, app_rsp),
    service_top = const offset_of!(Thread, service_top),
    deferred = const offset_of!(Thread, deferred),
    signal_stack = const offset_of!(Thread, signal_stack),
    laid_aside = const offset_of!(Thread, laid_aside),
    is_laid_aside = const offset_of!(Thread, is_laid_aside),
    sigaltstack = const husk_abi::nr::sigaltstack,
    then = const offset_of!(Detour, then),
    reason = const offset_of!(Detour, reason),
    first_of_pipe = const After::OF_PIPE[0],
    last_of_pipe = const After::OF_PIPE[1],
    after_again = const THEN_AFTER_AGAIN,
    original = const offset_of!(Detour, original),
    uc_mask = const crate::thread::context::UC_MASK,
    kept = const crate::thread::actions::KEPT,
    others = const !(crate::thread::actions::KEPT as i32),
    serve = sym crate::gate::service::serve,
    serve_traced = sym crate::gate::trace::serve,
    resumes = const offset_of!(Thread, trace.resumes),
    serve_after = sym crate::gate::service::serve_after,
    on_signal = sym crate::signal::on_signal,
    on_fault = sym crate::signal::fault::on_fault,
);
