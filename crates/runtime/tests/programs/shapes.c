// Every way to make a thread or a process, and exec from each; registers and memory must be as
// Linux leaves them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/sched.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)
extern char **environ;

static int reap(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

// All registers but rax, rcx, r11 survive a fork in parent and child.
static int registers(long number, long flags) {
    register long rbx asm("rbx") = 0x1111, r12 asm("r12") = 0x2222, r13 asm("r13") = 0x3333;
    register long r14 asm("r14") = 0x4444, r15 asm("r15") = 0x5555;
    register long rdi asm("rdi") = flags, rsi asm("rsi") = 0, rdx asm("rdx") = 0x7777;
    register long r8 asm("r8") = 0x8888, r9 asm("r9") = 0x9999, r10 asm("r10") = 0;
    long rax = number;
    asm volatile("syscall" : "+a"(rax), "+r"(rbx), "+r"(r12), "+r"(r13), "+r"(r14), "+r"(r15),
                 "+r"(rdi), "+r"(rsi), "+r"(rdx), "+r"(r8), "+r"(r9), "+r"(r10) :: "rcx", "r11", "memory");
    int same = rbx == 0x1111 && r12 == 0x2222 && r13 == 0x3333 && r14 == 0x4444 && r15 == 0x5555 &&
        rdi == flags && rsi == 0 && rdx == 0x7777 && r8 == 0x8888 && r9 == 0x9999 && r10 == 0;
    if (rax == 0) syscall(SYS_exit_group, same ? 42 : 1);
    CHECK(same && rax > 0);
    return reap(rax);
}

static int on_stack(void *p) { *(int *)p += 1; return 7; }
static void *thread(void *p) { __atomic_add_fetch((int *)p, 1, __ATOMIC_SEQ_CST); return p; }
static __thread int local = 5;
static void *forker(void *p) {
    local = 9;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t; int n = 0;
        if (pthread_create(&t, 0, thread, &n) || pthread_join(t, 0)) _exit(2);
        _exit(local == 9 && n == 1 ? 11 : 3);
    }
    CHECK(reap(pid) == 11);
    return 0;
}
static void *executer(void *p) {
    char *argv[] = {"sh", "-c", "exit 23", 0};
    execve("/bin/sh", argv, environ);
    return 0;
}
static void *busy(void *p) { for (;;) getppid(); return 0; }

int main(int argc, char **argv) {
    CHECK(registers(SYS_fork, 0) == 42);
    CHECK(registers(SYS_clone, SIGCHLD) == 42);
    // vfork: memory is shared, the parent waits.
    volatile int shared = 0;
    pid_t pid = vfork();
    if (pid == 0) { shared = 1; _exit(4); }
    CHECK(shared == 1 && reap(pid) == 4);
    // clone with a stack, sharing memory, with and without vfork.
    char *stack = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int n = 0;
    pid = clone(on_stack, stack + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, &n);
    CHECK(reap(pid) == 7 && n == 1);
    pid = clone(on_stack, stack + (1 << 16), CLONE_VM | SIGCHLD, &n);
    CHECK(reap(pid) == 7 && n == 2);
    pid = clone(on_stack, stack + (1 << 16), SIGCHLD, &n);
    CHECK(reap(pid) == 7 && n == 2);
    // clone3, CLONE_CHILD_SETTID, CLONE_PARENT_SETTID.
    int child_tid = 0, parent_tid = 0;
    struct clone_args a = {.flags = CLONE_CHILD_SETTID | CLONE_PARENT_SETTID, .exit_signal = SIGCHLD,
        .child_tid = (uintptr_t)&child_tid, .parent_tid = (uintptr_t)&parent_tid};
    pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0) _exit(child_tid == syscall(SYS_gettid) ? 8 : 1);
    CHECK(parent_tid == pid && reap(pid) == 8);
    CHECK(syscall(SYS_clone3, (void *)8, sizeof a) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_clone3, &a, 8) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    // CLONE_CLEAR_SIGHAND.
    signal(SIGUSR1, exit);
    struct clone_args c = {.flags = 0x100000000ULL, .exit_signal = SIGCHLD};
    pid = syscall(SYS_clone3, &c, sizeof c);
    if (pid == 0) {
        struct sigaction now;
        _exit(sigaction(SIGUSR1, 0, &now) == 0 && now.sa_handler == SIG_DFL ? 9 : 1);
    }
    CHECK(reap(pid) == 9);
    // A vfork child that resets handlers does not reset ours.
    pid = vfork();
    if (pid == 0) { signal(SIGUSR1, SIG_DFL); _exit(0); }
    CHECK(reap(pid) == 0);
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, 0, &now) == 0 && now.sa_handler == (void *)exit);
    // Many threads, then forks among running threads.
    for (int round = 0; round < 20; round++) {
        pthread_t t[16]; n = 0;
        for (int i = 0; i < 16; i++) CHECK(pthread_create(&t[i], 0, thread, &n) == 0);
        for (int i = 0; i < 16; i++) CHECK(pthread_join(t[i], 0) == 0);
        CHECK(n == 16);
    }
    pthread_t spin, forks[4];
    CHECK(pthread_create(&spin, 0, busy, 0) == 0);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&forks[i], 0, forker, 0) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(forks[i], 0) == 0);
    }
    // posix_spawn, long environments, bad programs.
    for (int round = 0; round < 20; round++) {
        char *av[] = {"true", 0};
        CHECK(posix_spawnp(&pid, "true", 0, 0, av, environ) == 0 && reap(pid) == 0);
    }
    char *sh[] = {"sh", "-c", "test \"$v4999\" = x && test -z \"$HUSK_EXEC\"", 0};
    char **big = malloc(5001 * sizeof *big);
    for (int i = 0; i < 5000; i++) { big[i] = malloc(16); sprintf(big[i], "v%d=x", i); }
    big[5000] = 0;
    CHECK(posix_spawn(&pid, "/bin/sh", 0, 0, sh, big) == 0 && reap(pid) == 0);
    CHECK(posix_spawn(&pid, "/nowhere/x", 0, 0, sh, environ) == ENOENT);
    CHECK(execve("/etc/passwd", sh, environ) == -1 && errno == EACCES);
    CHECK(execve("/etc/passwd/x", sh, environ) == -1 && errno == ENOTDIR);
    CHECK(execve("/tmp", sh, environ) == -1 && errno == EACCES);
    CHECK(syscall(SYS_execve, 8, sh, environ) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_execve, "/bin/sh", 8, environ) == -1 && errno == EFAULT);
    int fd = memfd_create("sh", MFD_CLOEXEC), sh_fd = open("/bin/sh", O_RDONLY);
    char block[4096];
    for (ssize_t got; (got = read(sh_fd, block, sizeof block)) > 0;) CHECK(write(fd, block, got) == got);
    close(sh_fd);
    pid = fork();
    char *three[] = {"sh", "-c", "exit 3", 0};
    if (pid == 0) { syscall(SYS_execveat, fd, "", three, environ, AT_EMPTY_PATH); _exit(99); }
    CHECK(reap(pid) == 3);
    // What the runtime needs stays.
    if (argc > 1) {
        void *table = (void *)0x60000;
        CHECK(prctl(59, 0, 0, 0, 0) == -1);
        CHECK(syscall(SYS_arch_prctl, 0x1001, 0) == -1);
        CHECK(munmap((void *)0x544000000000, 4096) == -1 && errno == EINVAL);
        CHECK(mmap(table, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
    }
    CHECK(close_range(3, ~0U, 0) == 0);
    // exec from another thread than the first.
    pid = fork();
    if (pid == 0) { pthread_t t; pthread_create(&t, 0, executer, 0); for (;;) pause(); }
    CHECK(reap(pid) == 23);
    puts("ok");
    return 0;
}
