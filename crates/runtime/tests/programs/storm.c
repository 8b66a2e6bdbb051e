// Signals at a high rate over calls that are answered, passed, slow and interrupted; checks what
// Linux promises about SA_RESTART, EINTR, masks, SA_RESETHAND, SA_NODEFER and what is read back.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)

static volatile sig_atomic_t hits, depth, deepest;
static void count(int s) { hits++; }
static void nest(int s) { if (++depth > deepest) deepest = depth; if (depth < 3) raise(s); depth--; }
static void info(int s, siginfo_t *i, void *u) { hits = i->si_value.sival_int; }

static void timer(int us) { struct itimerval t = {{0, us}, {0, us}}; setitimer(ITIMER_REAL, &t, 0); }
static void action(int s, void (*h)(int), int flags, int fill) {
    struct sigaction a = {0};
    a.sa_handler = h; a.sa_flags = flags;
    if (fill) sigfillset(&a.sa_mask);
    CHECK(sigaction(s, &a, 0) == 0);
    struct sigaction b;
    CHECK(sigaction(s, 0, &b) == 0);
    CHECK(b.sa_handler == h && (b.sa_flags & ~0x04000000) == flags);
}

static void *slow_writer(void *p) {
    struct timespec t = {0, 150000000};
    sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, 0);
    nanosleep(&t, 0);
    CHECK(write(*(int *)p, "x", 1) == 1);
    return 0;
}

int main(void) {
    // SA_RESTART: a read that sleeps goes on; without it: EINTR.
    int fd[2]; char c; pthread_t t;
    CHECK(pipe(fd) == 0);
    action(SIGALRM, count, SA_RESTART, 1);
    CHECK(pthread_create(&t, 0, slow_writer, &fd[1]) == 0);
    timer(1000);
    CHECK(read(fd[0], &c, 1) == 1);
    CHECK(hits > 10);
    pthread_join(t, 0);
    action(SIGALRM, count, 0, 1);
    errno = 0;
    CHECK(read(fd[0], &c, 1) == -1 && errno == EINTR);
    struct pollfd p = {fd[0], POLLIN, 0};
    sigset_t none; sigemptyset(&none); 
    sigset_t full; sigfillset(&full);
    struct timespec half = {0, 50000000};
    timer(0);
    CHECK(ppoll(&p, 1, &half, &full) == 0);
    timer(1000);
    CHECK(ppoll(&p, 1, 0, &none) == -1 && errno == EINTR);
    // The masks hold, and SIGSYS in them does no harm.
    sigset_t before, after;
    CHECK(sigprocmask(SIG_BLOCK, &full, &before) == 0);
    int frozen = hits;
    for (int i = 0; i < 20000; i++) getppid();
    CHECK(hits == frozen);
    CHECK(sigprocmask(SIG_SETMASK, &before, &after) == 0);
    CHECK(sigismember(&after, SIGALRM) == 1 && sigismember(&before, SIGALRM) == 0);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8, 0, 8) == -1 && errno == EFAULT);
    // A storm over answered calls, children of all kinds, and slow calls.
    timer(200);
    hits = 0;
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 2000; i++) { getppid(); if (i % 100 == 0) getuid(); }
        pid_t pid = round % 2 ? fork() : vfork();
        if (pid == 0) _exit(round);
        CHECK(pid > 0);
        int status;
        while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == round);
        struct timespec ms = {0, 300000};
        nanosleep(&ms, 0);
        CHECK(sigprocmask(SIG_SETMASK, 0, &after) == 0);
        CHECK(sigismember(&after, SIGALRM) == 0);
    }
    CHECK(hits > 20);
    timer(0);
    // SA_RESETHAND, SA_NODEFER, siginfo.
    action(SIGUSR1, count, SA_RESETHAND, 0);
    raise(SIGUSR1);
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, 0, &now) == 0 && now.sa_handler == SIG_DFL);
    action(SIGUSR1, nest, SA_NODEFER, 0);
    raise(SIGUSR1);
    CHECK(deepest == 3);
    struct sigaction with = {.sa_sigaction = info, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR2, &with, 0) == 0);
    union sigval v = {.sival_int = 4711};
    CHECK(sigqueue(getpid(), SIGUSR2, v) == 0);
    CHECK(hits == 4711);
    // An application's own SIGSYS and SIGSEGV.
    action(SIGSYS, count, 0, 0);
    hits = 0;
    kill(getpid(), SIGSYS);
    CHECK(hits == 1);
    pid_t pid = fork();
    if (pid == 0) { signal(SIGSEGV, SIG_DFL); *(volatile int *)8 = 1; _exit(0); }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    pid = fork();
    if (pid == 0) { signal(SIGSYS, SIG_DFL); kill(getpid(), SIGSYS); _exit(0); }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    puts("ok");
    return 0;
}
