/* Signal actions by the thousand: what was set is what is found, after fork, vfork, exec, beside a
   second thread and beside a process with the same handlers. All of it is printed; Linux and Husk
   must print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct action { unsigned long handler, flags, restorer, mask; };

enum { SIGNALS = 64, STEPS = 4000 };

static unsigned state;
static volatile int caught;
static char stack[65536];
extern char **environ;

static void restore(void) { __asm__ volatile("mov $15, %eax; syscall"); }
static void first(int signal) { caught = signal; }
static void second(int signal) { caught = 1000 + signal; }

static unsigned any(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static long change(int signal, const struct action *new, struct action *old)
{
    return syscall(SYS_rt_sigaction, signal, new, old, 8) < 0 ? -errno : 0;
}

static const char *handler(unsigned long at)
{
    return at == 0 ? "default" : at == 1 ? "ignored" : at == (unsigned long)first ? "first" : "second";
}

static void show(const char *when, int signal, long result, const struct action *found)
{
    if (result) printf("%s %d: %ld\n", when, signal, result);
    else printf("%s %d: %s %lx %d %lx\n", when, signal, handler(found->handler), found->flags,
                found->restorer != 0, found->mask);
}

static void show_all(const char *when)
{
    for (int signal = 0; signal <= SIGNALS + 1; signal++) {
        if (signal == 32 || signal == 33) continue; /* the C library's own */
        struct action found;
        memset(&found, 7, sizeof found);
        show(when, signal, change(signal, NULL, &found), &found);
    }
    fflush(stdout);
}

/* Any but those whose default is ours to feel at once, and the C library's own two. */
static int some_signal(void)
{
    int signal;
    do signal = 1 + any(SIGNALS); while (signal == 32 || signal == 33);
    return signal;
}

static void step(void)
{
    static const unsigned long flags[] = { SA_NOCLDSTOP, SA_SIGINFO, SA_RESTART, SA_NODEFER,
                                           SA_RESETHAND, SA_ONSTACK, 0x400, 0x100, 0x800000 };
    static const unsigned long handlers[] = { 0, 0, 0, 1, (unsigned long)first, (unsigned long)second };
    int signal = some_signal();
    struct action new = { handlers[any(6)], 0x04000000, (unsigned long)restore, 0 }, old = { 0 };
    for (unsigned i = any(3); i > 0; i--) new.flags |= flags[any(sizeof flags / sizeof *flags)];
    for (unsigned i = any(3); i > 0; i--) new.mask |= 1ul << any(64);
    if (any(20) == 0) new = (struct action){ 0 };
    int both = any(3);
    show("step", signal, change(signal, both ? &new : NULL, both == 1 ? NULL : &old), &old);
    struct action now;
    if (change(signal, NULL, &now) == 0 && now.handler > 1 && any(2)) {
        caught = 0;
        kill(getpid(), signal);
        printf("caught %d\n", caught);
    }
}

/* What waits is thrown away when it is ignored, and kept when it is not. */
static void waiting(int signal)
{
    sigset_t set, pending, before;
    struct action plain = { 0 }, ignored = { 1, 0, 0, 0 };
    sigemptyset(&set);
    sigaddset(&set, signal);
    change(signal, &plain, NULL);
    sigprocmask(SIG_BLOCK, &set, &before);
    for (int turn = 0; turn < 3; turn++) {
        kill(getpid(), signal);
        change(signal, turn == 1 ? &ignored : &plain, NULL);
        sigpending(&pending);
        printf("waiting %d %d: %d\n", signal, turn, sigismember(&pending, signal));
        change(signal, &ignored, NULL);
        change(signal, &plain, NULL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Faults are never blocked under Husk (docs/caveats.md). */
static int can_wait(int signal)
{
    static const int cannot[] = { SIGKILL, SIGSTOP, SIGILL, SIGBUS, SIGSEGV, SIGSYS, 32, 33 };
    for (unsigned i = 0; i < sizeof cannot / sizeof *cannot; i++)
        if (signal == cannot[i]) return 0;
    return 1;
}

static void *beside(void *unused)
{
    (void)unused;
    for (int signal = 1; signal <= SIGNALS; signal += 3) {
        struct action new = { signal % 2, 0, 0, 1ul << signal % 3 };
        if (signal != 32 && signal != 33) change(signal, &new, NULL);
    }
    return NULL;
}

static int sharer(void *unused)
{
    beside(unused);
    _exit(0);
}

static void child_shows(const char *when, pid_t child)
{
    int status = -1;
    if (child == 0) {
        show_all(when);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("%s ended %d\n", when, status);
    fflush(stdout);
}

static void spawned(char *self)
{
    char *arguments[] = { self, "show", "spawned", NULL };
    posix_spawnattr_t how;
    sigset_t set;
    int status;
    pid_t child;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGWINCH);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigdefault(&how, &set);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF);
    fflush(stdout);
    if (posix_spawn(&child, self, NULL, &how, arguments, environ) == 0) waitpid(child, &status, 0);
}

static void company(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, beside, NULL);
    pthread_join(thread, NULL);
    show_all("beside a thread");
    child_shows("forked beside a thread", fork());
    pid_t child = clone(sharer, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | SIGCHLD, NULL);
    waitpid(child, NULL, 0);
    show_all("beside a sharer");
}

int main(int count, char **arguments)
{
    if (count > 2) {
        show_all(arguments[2]);
        return 0;
    }
    show_all("start");
    state = 1;
    for (int i = 0; i < STEPS; i++) step();
    show_all("steps");
    child_shows("forked", fork());
    for (int signal = 1; signal <= SIGNALS; signal++)
        if (can_wait(signal)) waiting(signal);
    spawned(arguments[0]);
    struct action ignored = { 1, SA_NOCLDSTOP, 0, 5 };
    change(SIGUSR2, &ignored, NULL);
    change(SIGSEGV, &ignored, NULL);
    spawned(arguments[0]);
    company();
    spawned(arguments[0]);
    execl(arguments[0], arguments[0], "show", "replaced", NULL);
    return 1;
}
