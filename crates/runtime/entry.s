# Where `husk` begins: before the C library, and before anything of it is ready.
#
#   husk exec NAME -- COMMAND... ──► the narrow way (husk-entry), which becomes the command
#                                        '── returns: something is unusual ──┐
#   anything else ───────────────────────────────────────────────────────────┴─► _start
#
# The narrow way is linked at a fixed place and copied there, so that nothing of what a start has to
# prepare is needed: no relocation, no thread-local memory. Who goes on finds memory, registers and
# stack as the host has made them. Where the host lets nobody run what was written, all go on.

    .intel_syntax noprefix
    .set PLACE, 0x530000000000
    .set LENGTH, end_of_narrow - narrow

    .section .text.husk_start, "ax", @progbits
    .globl husk_start
    .type husk_start, @function
    .p2align 6
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
    movabs rdi, PLACE
    mov esi, LENGTH
    mov edx, 7                          # read, write, execute
    mov r10d, 0x108022                  # private, anonymous, all at once, nothing is replaced
    mov r8, -1
    xor r9d, r9d
    mov eax, 9                          # mmap
    syscall
    cmp rax, rdi
    jne long_way
    lea rsi, [rip + narrow]
    mov ecx, LENGTH
    rep movsb
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
    .p2align 6
narrow:
    .incbin "husk-entry"
end_of_narrow:
    .size husk_start, . - husk_start

    .section .note.GNU-stack, "", @progbits
