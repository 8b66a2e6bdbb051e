// Calls that a look at a descriptor answers, under a storm of signals whose handler makes the same
// calls: the answers, and every register that a system call keeps.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)

static int file, other, host[2];
static volatile sig_atomic_t hits;

// One call with a value in every register; what is kept must be kept. The words below the stack
// pointer are a leaf function's own.
static long call(long number, long fd, long second, long third) {
    struct { long rax, rbx, rdx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15, below[3]; } r;
    register void *at asm("rax") = &r;
    long args[4] = {number, fd, second, third};
    register long *in asm("rcx") = args;
    asm volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15; push %%rax\n"
        "mov 8(%%rcx), %%rdi; mov 16(%%rcx), %%rsi; mov 24(%%rcx), %%rdx; mov (%%rcx), %%rax\n"
        "mov $0x11, %%ebx; mov $0x12, %%ebp; mov $0x18, %%r8d; mov $0x19, %%r9d; mov $0x1a, %%r10d\n"
        "mov $0x1c, %%r12d; mov $0x1d, %%r13d; mov $0x1e, %%r14d; mov $0x1f, %%r15d\n"
        "movq $1, -16(%%rsp); movq $2, -64(%%rsp); movq $3, -120(%%rsp)\n"
        "syscall\n"
        "mov (%%rsp), %%rcx\n"
        "mov %%rax, (%%rcx); mov %%rbx, 8(%%rcx); mov %%rdx, 16(%%rcx); mov %%rsi, 24(%%rcx)\n"
        "mov %%rdi, 32(%%rcx); mov %%rbp, 40(%%rcx); mov %%r8, 48(%%rcx); mov %%r9, 56(%%rcx)\n"
        "mov %%r10, 64(%%rcx); mov %%r12, 72(%%rcx); mov %%r13, 80(%%rcx); mov %%r14, 88(%%rcx)\n"
        "mov %%r15, 96(%%rcx)\n"
        "mov -16(%%rsp), %%r8; mov %%r8, 104(%%rcx); mov -64(%%rsp), %%r8; mov %%r8, 112(%%rcx)\n"
        "mov -120(%%rsp), %%r8; mov %%r8, 120(%%rcx)\n"
        "pop %%rax; pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : "+r"(at), "+r"(in)
        :
        : "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
    CHECK(r.rdi == fd && r.rsi == second && r.rdx == third);
    CHECK(r.rbx == 0x11 && r.rbp == 0x12 && r.r8 == 0x18 && r.r9 == 0x19 && r.r10 == 0x1a);
    CHECK(r.r12 == 0x1c && r.r13 == 0x1d && r.r14 == 0x1e && r.r15 == 0x1f);
    CHECK(r.below[0] == 1 && r.below[1] == 2 && r.below[2] == 3);
    return r.rax;
}

static void look(void) {
    CHECK(fcntl(file, F_GETFL) == (O_RDWR | O_APPEND | 0100000));
    CHECK(fcntl(file, F_GETFD) == 0 && fcntl(other, F_GETFD) == FD_CLOEXEC);
    CHECK(lseek(file, 0, SEEK_CUR) == 7);
    CHECK(fcntl(host[1], F_GETFL) == O_WRONLY && fcntl(host[0], F_GETFD) == FD_CLOEXEC);
    CHECK(lseek(host[0], 0, SEEK_CUR) == -1 && errno == ESPIPE);
}

static void storm(int signal) {
    int kept = errno;
    hits++;
    look();
    errno = kept;
}

int main(void) {
    CHECK((file = open("file", O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0);
    CHECK((other = open("file", O_RDONLY | O_CLOEXEC)) >= 0);
    CHECK(write(file, "seven..", 7) == 7);
    CHECK(pipe2(host, O_CLOEXEC) == 0 && fcntl(host[1], F_SETFD, 0) == 0);
    struct sigaction action = {.sa_handler = storm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {0};
    CHECK(setitimer(ITIMER_REAL, &often, 0) == 0);
    char byte = 'b';
    for (long n = 0; n < 200000 && hits < 2000; n++) {
        look();
        CHECK(call(SYS_fcntl, file, F_GETFL, 99) == (O_RDWR | O_APPEND | 0100000));
        CHECK(call(SYS_fcntl, host[1], F_GETFL, 99) == O_WRONLY);
        CHECK(call(SYS_fcntl, file, 999, 99) == -EINVAL && call(SYS_fcntl, 50, F_GETFD, 0) == -EBADF);
        CHECK(call(SYS_lseek, file, 0, SEEK_CUR) == 7 && call(SYS_lseek, file, -8, SEEK_CUR) == -EINVAL);
        CHECK(call(SYS_write, host[1], (long)&byte, 1) == 1 && call(SYS_read, host[0], (long)&byte, 1) == 1);
        CHECK(call(SYS_read, file, (long)&byte, 1) == 0 && byte == 'b');
        // A number that was the host's becomes Husk's, and the other way round.
        CHECK(dup2(file, host[0] + 5) == host[0] + 5 && lseek(host[0] + 5, 0, SEEK_CUR) == 7);
        CHECK(dup2(host[0], host[0] + 5) == host[0] + 5 && lseek(host[0] + 5, 0, SEEK_CUR) == -1);
    }
    CHECK(setitimer(ITIMER_REAL, &never, 0) == 0 && hits > 100);
    puts("kept");
    return 0;
}
