//! Entry of calls that a handler makes on an alternate signal stack (`sigaltstack`).
//!
//! The host lays the frame of a handler with `SA_ONSTACK` at the top of the signal stack unless rsp
//! is there already. During a service it is not: the frames of a handler that runs on the signal
//! stack, and has made the call, would be overwritten, by another signal or by a fault of ours.
//!
//! ```text
//!   gate ─ a handler has begun there once ─► husk_apart ─► rsp in it? block all; lay it aside
//!   gate ◄─ the service, as ever ◄───────────────┘
//!        ─ leaving: `deferred` is not empty ─► husk_unblock: the stack back; unblock
//! ```
//!
//! Invariants
//! 1. Signals are blocked before rsp leaves the signal stack, and unblocked when it is back there:
//!    they count as `deferred`, with SIGKILL, which nobody can block, so that this is never empty.
//! 2. Calls that concern masks or signal stacks see both as they are.
//! 3. A child has the signal stack of its parent (`Thread::owe_signal_stack`).

use crate::stubs::classes;
use crate::thread::Thread;
use crate::thread::actions::{KEPT, SIGKILL, bit};
use core::arch::global_asm;
use core::mem::offset_of;
use husk_abi::nr;

global_asm!(
    r#"
    .text
    # Invariant 2.
    .globl husk_service_apart
husk_service_apart:
    cmp eax, {sigaltstack}
    je husk_service_here
    lea r11, [rip + {classes}]
    movzx r11d, byte ptr [r11 + rax]
    cmp r11d, 3
    je husk_service_here
    lea r11, [rip + husk_service_here]
    jmp husk_apart
    .globl husk_traced_apart
husk_traced_apart:
    cmp eax, {sigaltstack}
    je husk_traced_here
    cmp r11d, 3
    je husk_traced_here
    lea r11, [rip + husk_traced_again]
    jmp husk_apart
husk_traced_again:
    lea r11, [rip + {classes}]
    movzx r11d, byte ptr [r11 + rax]
    jmp husk_traced_here
    .globl husk_spawn_apart
husk_spawn_apart:
    lea r11, [rip + husk_spawn_here]
    jmp husk_apart
    .globl husk_after_apart
husk_after_apart:
    lea r11, [rip + husk_after_here]

    # r11 = where to go on; keeps all other registers.
    .globl husk_apart
husk_apart:
    lea rsp, [rsp - 128]
    push r11
    push rcx
    push rax
    push rdi
    push rsi
    push rdx
    push r10
    lea rdi, [rsp + 184]
    sub rdi, gs:[{signal_stack}]
    cmp rdi, gs:[{signal_stack} + 8]
    ja husk_go_on
    push 0
    push {others}
    xor edi, edi
    mov rsi, rsp
    lea rdx, [rsp + 8]
    mov r10d, 8
    mov eax, 14
    syscall
    pop rsi
    pop rdi
    not rdi
    and rsi, rdi
    or rsi, {unblockable}
    or gs:[{deferred}], rsi
    mov rdx, rsp
    mov rsp, gs:[{service_top}]
    lea rdi, [rip + husk_no_stack]
    mov rsi, gs:[0]
    add rsi, {laid_aside}
    mov eax, {sigaltstack}
    syscall
    mov rsp, rdx
    mov byte ptr gs:[{is_laid_aside}], 1
    jmp husk_go_on

    # `stack_t`: none.
    .balign 8
husk_no_stack:
    .quad 0
    .long 2, 0
    .quad 0
"#,
    classes = sym classes::CLASSES,
    signal_stack = const offset_of!(Thread, signal_stack),
    laid_aside = const offset_of!(Thread, laid_aside),
    is_laid_aside = const offset_of!(Thread, is_laid_aside),
    service_top = const offset_of!(Thread, service_top),
    deferred = const offset_of!(Thread, deferred),
    others = const !(KEPT as i32),
    sigaltstack = const nr::sigaltstack,
    unblockable = const bit(SIGKILL),
);
