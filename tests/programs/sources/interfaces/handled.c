/* Signals: where handlers run, what they may do, in what order they come, and what they leave.
 * Prints what Linux says. handled KIND */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
#define MOST 64

static int order[MOST], values[MOST];
static volatile int came;
static char other_stack[65536];
static volatile int on_other;

static void told(const char *what, long value) {
    printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "",
           value < 0 ? strerrorname_np(errno) : "");
}
static void note(int signal, siginfo_t *info, void *context) {
    char here;
    (void)context;
    on_other = &here >= other_stack && &here < other_stack + sizeof other_stack;
    if (came < MOST) order[came] = signal, values[came] = info ? info->si_int : 0;
    came++;
}
static void act(int signal, int flags, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction a = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
    NEED(sigaction(signal, &a, NULL) == 0);
}
static void mask(int how, int signal) {
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, signal);
    NEED(sigprocmask(how, &s, NULL) == 0);
}
static int is_blocked(int signal) {
    sigset_t s;
    NEED(sigprocmask(SIG_BLOCK, NULL, &s) == 0);
    return sigismember(&s, signal);
}
static int status_of(pid_t pid) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    return status;
}
static void after_ms(int ms) {
    struct itimerval t = { { 0, 0 }, { 0, ms * 1000 } };
    NEED(setitimer(ITIMER_REAL, &t, NULL) == 0);
}
/* Whatever a call of the image needs: a handler uses it all. */
static void use_files(void) {
    char text[8] = "";
    int fd = open("used", O_CREAT | O_RDWR | O_TRUNC, 0644);
    NEED(fd >= 0 && write(fd, "bytes", 5) == 5 && pread(fd, text, 8, 0) == 5);
    NEED(strcmp(text, "bytes") == 0 && close(fd) == 0 && unlink("used") == 0);
}

static volatile int inner_blocked, nested;
static void nests(int signal, siginfo_t *info, void *context) {
    nested++, inner_blocked = is_blocked(signal);
    use_files();
    if (nested == 1) raise(SIGUSR2);
    note(signal, info, context);
}
/* SA_NODEFER, SA_RESETHAND, SA_ONSTACK, sa_mask, SA_NOCLDSTOP, SA_NOCLDWAIT. */
static void flags(void) {
    stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof other_stack }, found;
    NEED(sigaltstack(&stack, NULL) == 0 && sigaltstack(NULL, &found) == 0);
    told("stack kept", found.ss_sp == other_stack && found.ss_flags == 0);
    act(SIGUSR1, SA_ONSTACK, note), raise(SIGUSR1), told("on the other stack", on_other);
    act(SIGUSR1, 0, note), raise(SIGUSR1), told("on its own", !on_other);
    act(SIGUSR1, 0, nests), act(SIGUSR2, SA_ONSTACK, nests), raise(SIGUSR1);
    printf("nested %d, last %d, blocked %d\n", nested, order[came - 1], inner_blocked);
    act(SIGUSR1, SA_NODEFER, nests), raise(SIGUSR1), told("not deferred", !inner_blocked);
    act(SIGUSR1, SA_RESETHAND, note), raise(SIGUSR1);
    struct sigaction a;
    NEED(sigaction(SIGUSR1, NULL, &a) == 0);
    told("reset", a.sa_handler == SIG_DFL);
    a = (struct sigaction){ .sa_sigaction = nests, .sa_flags = SA_SIGINFO };
    sigaddset(&a.sa_mask, SIGUSR2);
    NEED(sigaction(SIGUSR1, &a, NULL) == 0);
    nested = came = 0, raise(SIGUSR1);
    printf("masked meanwhile: %d then %d\n", order[0], order[1]);
    stack.ss_flags = SS_DISABLE;
    NEED(sigaltstack(&stack, NULL) == 0);
    stack.ss_flags = 0, stack.ss_size = 100, told("too small", sigaltstack(&stack, NULL));
    act(SIGCHLD, SA_NOCLDWAIT, note);
    pid_t pid = fork();
    if (pid == 0) _exit(5);
    told("nobody to wait for", waitpid(pid, NULL, 0));
    act(SIGCHLD, SA_NOCLDSTOP, note), came = 0;
    if ((pid = fork()) == 0) for (;;) pause();
    int status;
    NEED(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    told("not told of the stop", came);
    NEED(kill(pid, SIGCONT) == 0 && waitpid(pid, &status, WCONTINUED) == pid);
    told("continued", WIFCONTINUED(status));
    NEED(kill(pid, SIGKILL) == 0);
    told("killed", WTERMSIG(status_of(pid))), told("told of the end", came);
    told("SIGKILL", sigaction(SIGKILL, &a, NULL)), told("none", sigaction(65, &a, NULL));
}

/* Many wait while they are blocked: which come, how often, in what order, with what. */
static void queues(void) {
    const int real[] = { SIGRTMIN + 5, SIGRTMIN + 1, SIGRTMAX, SIGRTMIN + 3 };
    sigset_t all, some;
    sigfillset(&all);
    NEED(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    for (int n = 0; n < 4; n++) act(real[n], 0, note);
    act(SIGUSR1, 0, note), act(SIGHUP, 0, note);
    for (int round = 0; round < 3; round++)
        for (int n = 0; n < 4; n++)
            NEED(sigqueue(getpid(), real[n], (union sigval){ .sival_int = 10 * round + n }) == 0);
    kill(getpid(), SIGUSR1), kill(getpid(), SIGUSR1), raise(SIGHUP);
    NEED(sigpending(&some) == 0);
    told("waiting", sigismember(&some, SIGHUP) + sigismember(&some, SIGRTMAX));
    use_files();
    /* What is taken without a handler. */
    sigemptyset(&some), sigaddset(&some, SIGRTMIN + 5), sigaddset(&some, SIGRTMAX);
    siginfo_t info;
    for (int n = 0; n < 2; n++) {
        NEED(sigwaitinfo(&some, &info) > 0);
        printf("taken %d, %d, code %d\n", info.si_signo - SIGRTMIN, info.si_int, info.si_code);
    }
    struct timespec none = { 0, 0 }, little = { 0, 1000000 };
    sigaddset(&some, SIGUSR1);
    told("taken at once", sigtimedwait(&some, NULL, &none));
    sigemptyset(&some), sigaddset(&some, SIGUSR2);
    told("none", sigtimedwait(&some, NULL, &none)), told("a while", sigtimedwait(&some, NULL, &little));
    sigemptyset(&all);
    NEED(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    printf("%d came:", came);
    for (int n = 0; n < came && n < MOST; n++)
        printf(" %d/%d", order[n] >= SIGRTMIN ? order[n] - SIGRTMIN + 100 : order[n], values[n]);
    puts("");
}

static sigjmp_buf back;
static void jumps(int signal) { siglongjmp(back, signal); }
static volatile int jump_round;
/* A handler leaves a call that waits, and never returns to it. */
static void jumping(void) {
    int p[2], full[2], file = open("file", O_CREAT | O_RDWR, 0644), word = 0, status;
    static char bytes[65536];
    struct flock lock = { F_WRLCK, SEEK_SET, 0, 1, 0 };
    pid_t pid;
    NEED(pipe(p) == 0 && pipe(full) == 0 && write(full[1], bytes, sizeof bytes) == sizeof bytes);
    NEED(mkfifo("fifo", 0600) == 0 && (pid = fork()) >= 0);
    if (pid == 0) {
        NEED(fcntl(open("file", O_RDWR), F_SETLK, &lock) == 0 && write(p[1], "r", 1) == 1);
        for (;;) pause();
    }
    NEED(read(p[0], bytes, 1) == 1 && signal(SIGALRM, jumps) != SIG_ERR);
    static const char *const names[] = { "read", "write", "open", "F_SETLKW", "poll", "waitpid",
        "futex", "nanosleep", "sigsuspend" };
    for (jump_round = 0; jump_round < 9 * 20; jump_round++) {
        int which = jump_round % 9;
        struct timespec t = { 9, 0 };
        struct pollfd polled = { p[0], POLLIN, 0 };
        sigset_t none;
        sigemptyset(&none);
        if (sigsetjmp(back, 1) == 0) {
            after_ms(1 + jump_round % 3);
            if (which == 0) read(p[0], bytes, 1);
            if (which == 1) write(full[1], bytes, 1);
            if (which == 2) open("fifo", O_RDONLY);
            if (which == 3) fcntl(file, F_SETLKW, &lock);
            if (which == 4) poll(&polled, 1, -1);
            if (which == 5) waitpid(pid, &status, 0);
            if (which == 6) syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0);
            if (which == 7) nanosleep(&t, NULL);
            if (which == 8) sigsuspend(&none);
            printf("%s returned\n", names[which]);
        }
        after_ms(0);
        NEED(!is_blocked(SIGALRM));
        use_files();
    }
    /* Nothing is held by who has left: each of them works for somebody else. */
    NEED(kill(pid, SIGKILL) == 0 && status_of(pid) == SIGKILL);
    told("the lock", fcntl(file, F_SETLKW, &lock));
    NEED(write(p[1], "xyz", 3) == 3);
    told("the pipe", read(p[0], bytes, 9)), told("the full one", read(full[0], bytes, 65536));
    told("nobody at the FIFO", open("fifo", O_WRONLY | O_NONBLOCK));
    unlink("file"), unlink("fifo");
}

static volatile int trapped;
static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)context;
    trapped += signal == SIGSYS, values[0] = info->si_code;
}
/* SIGSYS belongs to the program, too. */
static void traps(void) {
    act(SIGSYS, 0, on_trap), raise(SIGSYS), told("handled", trapped);
    use_files();
    NEED(kill(getpid(), SIGSYS) == 0);
    told("sent", trapped), told("code", values[0]);
    signal(SIGSYS, SIG_IGN), raise(SIGSYS), use_files();
    struct sigaction a;
    NEED(sigaction(SIGSYS, NULL, &a) == 0);
    told("ignored", a.sa_handler == SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSYS, SIG_DFL);
        raise(SIGSYS);
        _exit(0);
    }
    told("ended by it", WTERMSIG(status_of(pid)));
    if ((pid = fork()) == 0) {
        /* It stays ignored in what is run, which works all the same. */
        execl("/proc/self/exe", "handled", "asked", NULL);
        _exit(1);
    }
    told("run", status_of(pid));
    mask(SIG_BLOCK, SIGSYS), use_files(), mask(SIG_UNBLOCK, SIGSYS);
    mask(SIG_BLOCK, SIGUSR1), use_files(), told("others are blocked", is_blocked(SIGUSR1));
}

static void asked(void) {
    struct sigaction a;
    NEED(sigaction(SIGSYS, NULL, &a) == 0);
    use_files();
    told("still ignored", a.sa_handler == SIG_IGN);
}

/* What a handler sees and changes: registers of the floating point, errno, the mask it returns to. */
static void changes(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    note(signal, info, context);
    for (volatile double d = 1; d < 50; d *= 1.1) ;
    use_files(), errno = 9999;
    sigaddset(&u->uc_sigmask, SIGUSR2);
}
static void contexts(void) {
    act(SIGALRM, SA_RESTART, changes);
    struct itimerval often = { { 0, 200 }, { 0, 200 } };
    double x = 0.5, sum = 0;
    int fd = open("file", O_CREAT | O_RDWR, 0644), wrong = 0;
    NEED(fd >= 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int n = 0; n < 60000; n++) {
        double before = x * n;
        errno = 0;
        int bad = close(-1), why = errno;
        wrong += bad != -1 || (why != EBADF && why != 9999);
        NEED(pwrite(fd, &n, sizeof n, 0) == sizeof n);
        int back = 0;
        NEED(pread(fd, &back, sizeof back, 0) == sizeof back && back == n);
        wrong += before != x * n, sum += before;
    }
    after_ms(0);
    told("wrong", wrong), told("sum", sum), told("signals came", came > 10);
    told("masked by the handler", is_blocked(SIGUSR2));
    unlink("file");
}

/* Groups and sessions: who is signalled, stopped and told. */
static void groups(void) {
    int p[2], status;
    char byte;
    pid_t pids[3];
    NEED(pipe(p) == 0);
    for (int n = 0; n < 3; n++)
        if ((pids[n] = fork()) == 0) {
            NEED(setpgid(0, n ? pids[0] : 0) == 0 && write(p[1], "r", 1) == 1);
            for (;;) pause();
        } else
            NEED(read(p[0], &byte, 1) == 1);
    for (int n = 0; n < 3; n++) told("in the group", getpgid(pids[n]) == pids[0]);
    NEED(killpg(pids[0], SIGSTOP) == 0);
    for (int n = 0; n < 3; n++) {
        NEED(waitpid(-pids[0], &status, WUNTRACED) > 0);
        told("stopped", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    }
    told("nothing new", waitpid(-pids[0], &status, WUNTRACED | WNOHANG));
    NEED(killpg(pids[0], SIGCONT) == 0);
    for (int n = 0; n < 3; n++) {
        NEED(waitpid(-pids[0], &status, WCONTINUED) > 0);
        told("continued", WIFCONTINUED(status));
    }
    NEED(killpg(pids[0], SIGTERM) == 0);
    for (int n = 0; n < 3; n++) NEED(waitpid(-pids[0], &status, 0) > 0 && WTERMSIG(status) == 15);
    told("nobody", killpg(pids[0], 0));
    pid_t pid = fork();
    if (pid == 0) {
        NEED(setsid() == getpid());
        _exit(getsid(0) == getpid() && getpgrp() == getpid() ? 3 : 1);
    }
    told("a session", WEXITSTATUS(status_of(pid)));
}

static volatile long alarms, rounds, broken, wrong;

static void scribble(int signal) {
    volatile char own[512];
    (void)signal;
    memset((char *)own, 0xee, sizeof own);
    alarms += own[0] != 0;
}
static int is_on_stack(void) {
    stack_t now;
    NEED(sigaltstack(NULL, &now) == 0);
    return now.ss_flags == SS_ONSTACK && now.ss_sp == other_stack;
}
/* Calls of files, between which and in which other handlers come to the same stack. */
static void work(int signal) {
    volatile char own[512];
    char byte = 0;
    (void)signal;
    memset((char *)own, (char)rounds, sizeof own);
    for (int n = 0; n < 8; n++) {
        struct stat s;
        int fd = open("worked", O_RDWR | O_CREAT, 0600);
        wrong += fd < 0 || pwrite(fd, "0123456789", 10, 0) != 10 || fstat(fd, &s) != 0;
        wrong += s.st_size != 10 || pread(fd, &byte, 1, n) != 1 || byte != '0' + n;
        wrong += !is_on_stack() || is_blocked(SIGALRM) || !is_blocked(SIGUSR1) || close(fd) != 0;
    }
    for (unsigned n = 0; n < sizeof own; n++) broken += own[n] != (char)rounds;
    if (rounds % 512 == 0) {
        pid_t pid = fork();
        if (pid == 0) _exit(open("worked", O_RDONLY) >= 0 && is_on_stack() ? 0 : 1);
        wrong += status_of(pid) != 0;
    }
}
static void stacked(void) {
    stack_t other = { .ss_sp = other_stack, .ss_size = sizeof other_stack }, left;
    struct sigaction a = { .sa_handler = work, .sa_flags = SA_ONSTACK | SA_RESTART };
    struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
    NEED(sigaltstack(&other, NULL) == 0 && sigaction(SIGUSR1, &a, NULL) == 0);
    a.sa_handler = scribble;
    NEED(sigaction(SIGALRM, &a, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (rounds < 2000 || alarms < 500) {
        NEED(raise(SIGUSR1) == 0);
        rounds++;
    }
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaltstack(NULL, &left) == 0);
    told("frames that were not left alone", broken);
    told("answers that were not Linux's", wrong);
    told("the stack is there afterwards", left.ss_flags == 0 && left.ss_sp == other_stack);
    told("blocked", is_blocked(SIGALRM) || is_blocked(SIGUSR1));
    unlink("worked");
}

/* Signals that come at any moment of calls on a file, to handlers of all kinds: each is handled,
 * once, and one that comes once is default afterwards. */
static void deferred(void) {
    const int kinds[] = { 0, SA_NODEFER, SA_RESETHAND, SA_NODEFER | SA_RESETHAND,
        SA_NODEFER | SA_ONSTACK | SA_SIGINFO, SA_RESETHAND | SA_RESTART };
    stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof other_stack };
    volatile int *round = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = open("deferred", O_CREAT | O_RDWR, 0600), numbers[] = { SIGTERM, SIGRTMIN + 3 };
    NEED(sigaltstack(&stack, NULL) == 0 && round != MAP_FAILED && fd >= 0);
    for (int way = 0; way < 12; way++) {
        int signal = numbers[way / 6], left = 0, due = 400 * (way + 1);
        pid_t sender = fork();
        for (int turn = due - 399; sender == 0 && turn <= due; turn++) {
            while (*round < turn) if (getppid() == 1) _exit(1);
            for (volatile int spin = turn * 37 % 5000; spin > 0; spin--);
            kill(getppid(), signal);
        }
        if (sender == 0) _exit(0);
        for (int turn = due - 399; turn <= due; turn++) {
            struct sigaction action = { .sa_flags = kinds[way % 6] }, after;
            action.sa_sigaction = note;
            NEED(sigaction(signal, &action, NULL) == 0);
            *round = turn;
            for (time_t end = time(0) + 20; came < turn && time(0) < end;)
                NEED(pwrite(fd, "x", 1, 0) == 1);
            NEED(came == turn);
            NEED(sigaction(signal, NULL, &after) == 0);
            left += after.sa_handler != SIG_DFL;
        }
        NEED(waitpid(sender, NULL, 0) == sender);
        told("handlers that stayed", left);
    }
    told("came", came);
}

int main(int argc, char **argv) {
    const struct { const char *name; void (*run)(void); } all[] = { { "flags", flags },
        { "queues", queues }, { "jumping", jumping }, { "traps", traps }, { "contexts", contexts },
        { "groups", groups }, { "asked", asked }, { "stacked", stacked },
        { "deferred", deferred } };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned n = 0; n < sizeof all / sizeof *all && argc == 2; n++)
        if (strcmp(argv[1], all[n].name) == 0) all[n].run();
    return 0;
}
