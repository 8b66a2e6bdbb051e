# Where `husk` begins: before the C library, and before anything of it is ready.
#
#   husk: job exec SITE PROGRAM COMMAND... (another host's) ──► the same as
#   husk exec NAME -- COMMAND... ──► the narrow way (husk-entry), which becomes the command
#                                        '── returns: something is unusual ──┐
#   anything else ───────────────────────────────────────────────────────────┴─► _start
#
# The narrow way is linked at a fixed place, and its pages of the file are moved there, so that
# nothing of what a start has to prepare is needed: no relocation, no thread-local memory. Pages that
# go stay mapped here, too, and come again from the file where they are touched: who goes on finds
# memory, registers and stack as the host has made them. A host that moves no pages of a file (before
# Linux 5.13) lets all go on.

    .intel_syntax noprefix
    .set PLACE, 0x544020000000
    .set LENGTH, end_of_narrow - narrow

    .section .text.husk_start, "ax", @progbits
    .globl husk_start
    .type husk_start, @function
    .p2align 15                         # all of it comes by the first fault
husk_start:
    cmp qword ptr [rsp], 5
    jb _start
    mov rax, [rsp + 16]
    cmp dword ptr [rax], 0x63657865     # "exec"
    jne _start
    cmp byte ptr [rax + 4], 0
    jne _start
    mov rbx, rsp
    mov rbp, rdx
    lea rdi, [rip + narrow]
    mov esi, LENGTH
    mov edx, LENGTH
    mov r10d, 7                         # moved to a fixed place, where nothing is; stays here, too
    movabs r8, PLACE
    mov eax, 25                         # mremap
    syscall
    cmp rax, r8
    jne long_way
    mov rdi, rbx
    mov rsi, rax
    mov edx, LENGTH
    lea rcx, [rip + __executable_start]
    lea r8, [rip + _end]
    call rax
    movabs rdi, PLACE
    mov esi, LENGTH
    mov eax, 11                         # munmap
    syscall
long_way:
    mov rdx, rbp
    xor ebx, ebx
    xor ebp, ebp
    jmp _start
    .p2align 12
narrow:
    .incbin "husk-entry"
    .p2align 12, 0xcc
end_of_narrow:
    .size husk_start, . - husk_start

    .section .note.GNU-stack, "", @progbits
