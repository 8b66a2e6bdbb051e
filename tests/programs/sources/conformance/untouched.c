// Calls that say nothing of files fill and read pages of a mapping that nobody has touched: by
// instructions that are patched, for one call (the C library's functions) or for any (`syscall`),
// and by one that is not, as it is made while the program runs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 16384L

typedef long caller(long number, long, long, long, long, long, long);
static caller *make;
static char *view;
static long used;

// Pages that nobody has touched, nor their neighbours; the end of one, so that most answers lie in two.
static void *fresh(void) {
    used += 5;
    if (used >= PAGES) { puts("no page is left"); exit(1); }
    return view + used * PAGE - 4;
}

static long patched(long number, long a, long b, long c, long d, long e, long f) {
    long result = syscall(number, a, b, c, d, e, f);
    return result == -1 ? -errno : result;
}

static long function(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    switch (number) {
    case SYS_wait4: result = wait4(a, (int *)b, c, (struct rusage *)d); break;
    case SYS_uname: result = uname((struct utsname *)a); break;
    case SYS_sysinfo: result = sysinfo((struct sysinfo *)a); break;
    case SYS_getrusage: result = getrusage(a, (struct rusage *)b); break;
    case SYS_getitimer: result = getitimer(a, (struct itimerval *)b); break;
    case SYS_times: result = times((struct tms *)a); break;
    case SYS_sigaltstack: result = sigaltstack((stack_t *)a, (stack_t *)b); break;
    case SYS_timerfd_gettime: result = timerfd_gettime(a, (struct itimerspec *)b); break;
    case SYS_rt_sigpending: result = sigpending((sigset_t *)a); break;
    default: return patched(number, a, b, c, d, e, f);
    }
    return result == -1 ? -errno : result;
}

static caller *unpatched(void) {
    static const unsigned char code[] = {
        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2,
        0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3,
    };
    void *page = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memcpy(page, code, sizeof code);
}

static void say(const char *name, long result, const void *at, size_t bytes) {
    size_t filled = 0;
    for (size_t i = 0; i < bytes; i++) filled += ((const char *)at)[i] != 0;
    printf("%s %ld %s\n", name, result, filled ? "filled" : "empty");
}

#define CALL(name, ...) make(SYS_##name, ARGS(__VA_ARGS__, 0, 0, 0, 0, 0, 0))
#define ARGS(a, b, c, d, e, f, ...) (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)
// What a call says, and then what it has filled.
#define ASK(name, call, filled, end) do { long said = call; printf("%s %ld %lx" end, name, said, (long)(filled)); } while (0)
// A call of which one answer lies in a fresh page, `at`.
#define FILLS(name, bytes, ...) do { void *at = fresh(); say(#name, CALL(name, __VA_ARGS__) < 0 ? -1 : 0, at, bytes); } while (0)

static void children(void) {
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) _exit(7);
        int *status = fresh();
        struct rusage *usage = fresh();
        siginfo_t *info = fresh();
        if (way < 3) {
            long ended = CALL(wait4, child, way != 1 ? status : 0, 0, way != 0 ? usage : 0);
            printf("wait4 %d %d\n", ended == child, way != 1 ? WEXITSTATUS(*status) : -1);
        } else {
            long ended = CALL(waitid, P_PID, child, info, WEXITED, usage);
            printf("waitid %ld %d %d\n", ended, info->si_status, info->si_pid == child);
        }
        if (way != 0) printf("usage %d\n", usage->ru_maxrss > 0);
    }
}

static void clocks(void) {
    FILLS(clock_gettime, 16, CLOCK_REALTIME, at);
    FILLS(clock_getres, 16, CLOCK_REALTIME, at);
    FILLS(gettimeofday, 16, at);
    FILLS(time, 8, at);
    FILLS(times, 0, at);
    FILLS(getitimer, 32, ITIMER_REAL, at);
    FILLS(adjtimex, 100, at);
    struct itimerval soon = {{0, 0}, {100, 0}}, never = {{0, 0}, {0, 0}};
    CALL(setitimer, ITIMER_REAL, &soon, 0);
    FILLS(setitimer, 32, ITIMER_REAL, &never, at);
    struct timespec *span = fresh();
    struct itimerspec *value = fresh(), later = {{0, 0}, {100, 0}};
    ASK("nanosleep", CALL(nanosleep, span, 0), 0, "");
    ASK("", CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, fresh(), 0), 0, "\n");
    int *timer = fresh();
    ASK("timer_create", CALL(timer_create, CLOCK_MONOTONIC, 0, timer), 0, "");
    ASK("", CALL(timer_settime, *timer, 0, &later, fresh()), 0, "");
    ASK("", CALL(timer_gettime, *timer, value), value->it_value.tv_sec > 90, "");
    ASK("", CALL(timer_delete, *timer), 0, "\n");
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(fd, 0, &later, 0);
    value = fresh();
    ASK("timerfd", CALL(timerfd_gettime, fd, value), value->it_value.tv_sec > 90, "");
    value = fresh();
    ASK("", CALL(timerfd_settime, fd, 0, fresh(), value), value->it_value.tv_sec > 90, "\n");
    close(fd);
}

static void woken(int signal) { (void)signal; }

// Masks and answers stay what they are while signals come in.
static void storm(void) {
    struct sigaction action = {.sa_handler = woken, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
    unsigned long alarm = 1UL << (SIGALRM - 1), right = 0;
    setitimer(ITIMER_REAL, &often, 0);
    for (int n = 0; n < 400; n++) {
        unsigned long *none = fresh(), *blocked = fresh();
        struct timespec *now = fresh();
        CALL(rt_sigprocmask, SIG_BLOCK, &alarm, none, 8);
        CALL(clock_gettime, CLOCK_MONOTONIC, now);
        CALL(rt_sigprocmask, SIG_UNBLOCK, &alarm, blocked, 8);
        right += *none == 0 && *blocked == alarm && now->tv_sec > 0;
    }
    setitimer(ITIMER_REAL, &never, 0);
    ASK("storm", right, 0, "\n");
}

// What is left of a sleep.
static void sleepers(void) {
    struct sigaction action = {.sa_handler = woken};
    sigaction(SIGALRM, &action, 0);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    struct timespec span = {100, 0}, *left = fresh();
    setitimer(ITIMER_REAL, &soon, 0);
    long slept = CALL(nanosleep, &span, left);
    printf("interrupted %ld %d\n", slept, left->tv_sec == 99);
}

static void system_facts(void) {
    FILLS(uname, 390, at);
    FILLS(sysinfo, 112, at);
    FILLS(getrusage, 144, RUSAGE_SELF, at);
    FILLS(getrlimit, 16, RLIMIT_NOFILE, at);
    FILLS(prlimit64, 16, 0, RLIMIT_NOFILE, 0, at);
    FILLS(getresuid, 0, at, fresh(), fresh());
    FILLS(getgroups, 0, 100, at);
    FILLS(getcpu, 0, at, fresh());
    FILLS(sched_getaffinity, 128, 0, 128, at);
    FILLS(sched_getparam, 0, 0, at);
    FILLS(sched_getattr, 48, 0, at, 48, 0);
    FILLS(sched_rr_get_interval, 0, 0, at);
    FILLS(getrandom, 5000, at, 5000, 0);
    FILLS(get_robust_list, 8, 0, at, fresh());
    FILLS(prctl, 8, 16, at);
    FILLS(mincore, 0, view, 2 * PAGE, at);
    int *header = fresh();
    *header = 0x20080522;
    void *empty = view + ++used * PAGE;
    ASK("capget", CALL(capget, header, empty), 0, "\n");
}

static void signals(void) {
    struct sigaction plain = {.sa_handler = woken};
    static char stack[1 << 15];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    FILLS(rt_sigaction, 0, SIGUSR1, 0, at, 8);
    sigaction(SIGUSR1, &plain, 0);
    FILLS(rt_sigaction, 32, SIGUSR1, 0, at, 8);
    CALL(sigaltstack, &other, 0);
    FILLS(sigaltstack, 24, 0, at);
    FILLS(rt_sigprocmask, 8, SIG_BLOCK, 0, at, 8);
    unsigned long *set = fresh(), *old = fresh();
    *set = 1UL << (SIGUSR1 - 1) | 1UL << (SIGUSR2 - 1);
    set = (void *)((char *)set + 5 * PAGE);
    used += 5;
    ASK("mask", CALL(rt_sigprocmask, SIG_SETMASK, fresh(), old, 8), 0, "");
    *set = 1UL << (SIGUSR1 - 1) | 1UL << (SIGUSR2 - 1);
    ASK("", CALL(rt_sigprocmask, SIG_BLOCK, set, fresh(), 8), 0, "");
    raise(SIGUSR1);
    old = fresh();
    ASK("", CALL(rt_sigpending, old, 8), *old, "");
    siginfo_t *info = fresh();
    ASK("", CALL(rt_sigtimedwait, set, info, fresh(), 8), info->si_signo, "");
    old = fresh();
    ASK("", CALL(rt_sigprocmask, SIG_UNBLOCK, set, old, 8), *old, "\n");
}

static void waits(void) {
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) exit(1);
    struct pollfd *polled = fresh();
    ASK("poll", CALL(poll, polled, 2, 0), 0, "");
    polled->fd = ends[0], polled->events = POLLIN;
    ASK("", CALL(ppoll, polled, 1, fresh(), fresh(), 8), polled->revents, "");
    fd_set *set = fresh();
    ASK("", CALL(select, 1, set, fresh(), fresh(), fresh()), 0, "");
    long block[2] = {(long)fresh(), 8};
    ASK("", CALL(pselect6, 1, fresh(), fresh(), 0, fresh(), block), 0, "");
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 5}, *events = fresh();
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    ASK("", CALL(epoll_wait, epoll, events, 10, 0), events->data.fd, "");
    events = fresh();
    ASK("", CALL(epoll_pwait2, epoll, events, 10, fresh(), 0, 8), events->data.fd, "");
    int *word = fresh();
    ASK("", CALL(ioctl, ends[0], FIONREAD, word), 0, "");
    printf(" %d\n", *word);
    close(ends[0]), close(ends[1]), close(epoll);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    FILLS(ioctl, 0, terminal, TIOCGWINSZ, at);
    FILLS(ioctl, sizeof(struct termios), terminal, TCGETS, at);
    close(terminal);
}

static void words(void) {
    struct timespec soon = {0, 1000};
    ASK("futex", CALL(futex, view + (used += 5) * PAGE, FUTEX_WAIT, 1, 0), 0, "");
    ASK("", CALL(futex, view + (used += 5) * PAGE, FUTEX_WAIT, 0, &soon), 0, "");
    ASK("", CALL(futex, view + (used += 5) * PAGE, FUTEX_WAKE, 1), 0, "");
    int *target = (int *)(view + (used += 5) * PAGE);
    ASK("", CALL(futex, view + (used += 5) * PAGE, FUTEX_CMP_REQUEUE, 1, 1, target, 0), 0, "");
    struct { unsigned long value, at; unsigned flags, rest; } waiter = {1, (long)(view + (used += 5) * PAGE), 2, 0};
    ASK("", CALL(futex_waitv, &waiter, 1, 0, 0, 0), 0, "\n");
}

static void numbers(void) {
    int *ends = fresh();
    ASK("pipe", CALL(pipe, ends), ends[0] < ends[1], "");
    close(ends[0]), close(ends[1]);
    ends = fresh();
    ASK("", CALL(pipe2, ends, O_CLOEXEC), ends[0] < ends[1], "");
    close(ends[0]), close(ends[1]);
    ends = fresh();
    ASK("", CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, ends), ends[0] < ends[1], "\n");
    ssize_t sent = send(ends[0], "0123456789", 10, 0);
    struct msghdr *message = fresh();
    struct iovec part = {fresh(), 4};
    printf("recvmsg %zd", sent);
    ASK("", CALL(recvmsg, ends[1], message, MSG_DONTWAIT), 0, "");
    message->msg_iov = &part, message->msg_iovlen = 1;
    message->msg_name = fresh(), message->msg_namelen = 100;
    ASK("", CALL(recvmsg, ends[1], message, 0), *(int *)part.iov_base, "");
    socklen_t *length = fresh();
    char *bytes = fresh();
    ASK("", CALL(recvfrom, ends[1], bytes, 4, 0, fresh(), length), *(int *)bytes, "");
    int *value = fresh();
    length = fresh(), *length = 4;
    ASK("", CALL(getsockopt, ends[1], SOL_SOCKET, SO_TYPE, value, length), *value, "");
    ASK("", CALL(setsockopt, ends[1], SOL_SOCKET, SO_KEEPALIVE, fresh(), 4), 0, "\n");
    close(ends[0]), close(ends[1]);
}

static void peers(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, *at;
    socklen_t bytes = sizeof here, *length;
    int listener = socket(AF_INET, SOCK_STREAM, 0), to = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&here, bytes) || listen(listener, 1)) exit(1);
    at = fresh(), length = fresh(), *length = sizeof here;
    ASK("sockets", CALL(getsockname, listener, at, length), at->sin_family, "");
    struct sockaddr_in *copy = memcpy(fresh(), at, sizeof here);
    ASK("", CALL(connect, to, copy, sizeof here), 0, "");
    at = fresh(), length = fresh(), *length = sizeof here;
    long got = CALL(accept, listener, at, length);
    printf(" %d %d", got > 0, at->sin_family);
    at = fresh(), length = fresh(), *length = sizeof here;
    ASK("", CALL(getpeername, got, at, length), at->sin_family, "\n");
    close(listener), close(to), close(got);
}

int main(void) {
    caller *ways[] = {patched, function, unpatched()};
    for (int way = 0; way < 3; way++) {
        make = ways[way], used = 0;
        int fd = open("sparse", O_RDWR | O_CREAT, 0600);
        if (ftruncate(fd, PAGES * PAGE) != 0) return 1;
        view = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd), unlink("sparse");
        children(), clocks(), sleepers(), system_facts(), signals(), waits(), words(), numbers(), peers(), storm();
        munmap(view, PAGES * PAGE);
        struct timespec now;
        printf("after %ld\n", CALL(clock_gettime, CLOCK_MONOTONIC, &now));
    }
}
