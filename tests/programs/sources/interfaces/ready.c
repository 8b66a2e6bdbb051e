/* Who is told that something is ready, how often, and who is not: files, pipes, FIFOs and sockets
 * of the host and of a tree in one set. Prints what Linux says. ready KIND */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
/* The kinds of descriptors of a mix. */
enum { PIPE, FIFO, STREAM, NAMED, EVENT, TIMER, SIGNAL, WATCH, PROCESS, KINDS };
static const char *const kinds[KINDS] = { "pipe", "FIFO", "socket pair", "named socket", "eventfd",
    "timerfd", "signalfd", "inotify", "pidfd" };
static int reads[KINDS], writes[KINDS];

static void told(const char *what, long value) {
    printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "",
           value < 0 ? strerrorname_np(errno) : "");
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void wait_ms(int ms) {
    struct timespec t = { 0, ms * 1000000l };
    while (nanosleep(&t, &t) < 0) ;
}
static void in_set(int set, int how, int fd, unsigned events, int number) {
    struct epoll_event e = { events, { .u32 = number } };
    NEED(epoll_ctl(set, how, fd, &e) == 0);
}

static void mix(void) {
    int p[2];
    sigset_t one;
    NEED(pipe(p) == 0);
    reads[PIPE] = p[0], writes[PIPE] = p[1];
    NEED(mkfifo("fifo", 0600) == 0);
    reads[FIFO] = writes[FIFO] = open("fifo", O_RDWR);
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    reads[STREAM] = p[0], writes[STREAM] = p[1];
    struct sockaddr_un a = { AF_UNIX, "named" };
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(bind(server, (void *)&a, sizeof a) == 0 && listen(server, 1) == 0);
    writes[NAMED] = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(connect(writes[NAMED], (void *)&a, sizeof a) == 0);
    reads[NAMED] = accept(server, NULL, NULL);
    reads[EVENT] = writes[EVENT] = eventfd(0, 0);
    reads[TIMER] = timerfd_create(CLOCK_MONOTONIC, 0);
    sigemptyset(&one), sigaddset(&one, SIGUSR2);
    NEED(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    reads[SIGNAL] = signalfd(-1, &one, 0);
    reads[WATCH] = inotify_init();
    NEED(mkdir("watched", 0700) == 0 && inotify_add_watch(reads[WATCH], "watched", IN_CREATE) == 1);
}
/* A process that ends when it is told to. */
static int ending[2];
static pid_t fellow;
static void begin_process(void) {
    char byte;
    NEED(pipe(ending) == 0 && (fellow = fork()) >= 0);
    if (fellow == 0) {
        close(ending[1]);
        _exit(read(ending[0], &byte, 1) != 0);
    }
    close(ending[0]);
    reads[PROCESS] = syscall(SYS_pidfd_open, fellow, 0);
    NEED(reads[PROCESS] >= 0);
}
static void make_ready(int kind) {
    uint64_t one = 1;
    struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
    if (kind <= NAMED) NEED(write(writes[kind], "x", 1) == 1);
    if (kind == EVENT) NEED(write(writes[kind], &one, 8) == 8);
    if (kind == TIMER) NEED(timerfd_settime(reads[kind], 0, &soon, NULL) == 0);
    if (kind == SIGNAL) NEED(kill(getppid(), SIGUSR2) == 0);
    if (kind == WATCH) NEED(close(open("watched/new", O_CREAT | O_WRONLY, 0600)) == 0);
    if (kind == WATCH) NEED(unlink("watched/new") == 0);
    if (kind == PROCESS) NEED(close(ending[1]) == 0);
}
static void take(int kind) {
    static char bytes[4096];
    if (kind != PROCESS) {
        NEED(read(reads[kind], bytes, kind <= NAMED ? 1 : sizeof bytes) > 0);
        return;
    }
    NEED(waitpid(fellow, NULL, 0) == fellow);
    close(reads[PROCESS]);
}
/* What one of four ways to wait says of all of them. */
static int which(int way, int timeout_ms, int set) {
    struct pollfd all[KINDS];
    struct timespec t = { timeout_ms / 1000, timeout_ms % 1000 * 1000000l };
    struct epoll_event e = { 0, { .u32 = KINDS } };
    fd_set some;
    int most = 0, found = 0;
    FD_ZERO(&some);
    for (int n = 0; n < KINDS; n++) {
        all[n] = (struct pollfd){ reads[n], POLLIN, 0 };
        FD_SET(reads[n], &some);
        if (reads[n] > most) most = reads[n];
    }
    if (way == 0) found = poll(all, KINDS, timeout_ms);
    if (way == 1) found = ppoll(all, KINDS, &t, NULL);
    if (way == 2) found = pselect(most + 1, &some, NULL, NULL, &t, NULL);
    if (way == 3) found = epoll_wait(set, &e, 1, timeout_ms);
    NEED(found >= 0);
    if (found != 1) return found == 0 ? -1 : -2;
    for (int n = 0; n < KINDS; n++)
        if (way == 3 ? (int)e.data.u32 == n : way == 2 ? FD_ISSET(reads[n], &some)
            : all[n].revents == POLLIN) return n;
    return -3;
}
/* Each becomes ready before somebody waits, and while he sleeps. */
static void ways(void) {
    static const char *const names[] = { "poll", "ppoll", "pselect", "epoll" };
    mix();
    for (int way = 0; way < 4; way++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int sleeps = 0; sleeps < 2; sleeps++) {
                begin_process();
                int set = epoll_create1(0);
                for (int n = 0; n < KINDS; n++) in_set(set, EPOLL_CTL_ADD, reads[n], EPOLLIN, n);
                NEED(which(way, 0, set) == -1);
                pid_t teller = kind == PROCESS ? 0 : fork();
                NEED(teller >= 0);
                if (teller == 0) {
                    if (sleeps) wait_ms(3);
                    make_ready(kind);
                    if (kind != PROCESS) _exit(0);
                }
                if (!sleeps && kind != PROCESS) NEED(waitpid(teller, NULL, 0) == teller);
                int found = which(way, 20000, set);
                if (found != kind) printf("%s of %s, %d: %d\n", names[way], kinds[kind], sleeps, found);
                take(kind);
                if (sleeps && kind != PROCESS) NEED(waitpid(teller, NULL, 0) == teller);
                if (kind != PROCESS) close(ending[1]), take(PROCESS);
                close(set);
            }
    for (int kind = 0; kind < KINDS - 1; kind++) {
        struct pollfd p = { reads[kind], POLLIN, 0 };
        NEED(poll(&p, 1, 0) == 0);
    }
    puts("all were told of");
    unlink("fifo"), unlink("named"), rmdir("watched");
}

static int count(int set, int room) {
    struct epoll_event e[16];
    return epoll_wait(set, e, room, 0);
}
/* Level, edge, one shot, changed, removed: for each kind that bytes go through. */
static void epolls(void) {
    mix();
    for (int kind = 0; kind <= EVENT; kind++) {
        int set = epoll_create1(EPOLL_CLOEXEC), level = epoll_create1(0);
        printf("%s:", kinds[kind]);
        in_set(level, EPOLL_CTL_ADD, reads[kind], EPOLLIN, 1);
        in_set(set, EPOLL_CTL_ADD, reads[kind], EPOLLIN | EPOLLET, 1);
        printf(" %d", count(set, 9));
        make_ready(kind);
        printf(" %d %d %d %d", count(set, 9), count(set, 9), count(level, 9), count(level, 9));
        make_ready(kind);
        printf(" %d %d", count(set, 9), count(set, 9));
        take(kind);
        if (kind < EVENT) take(kind);
        printf(" %d %d", count(set, 9), count(level, 9));
        make_ready(kind);
        in_set(set, EPOLL_CTL_MOD, reads[kind], EPOLLIN | EPOLLONESHOT, 2);
        printf(", once %d %d", count(set, 9), count(set, 9));
        make_ready(kind);
        printf(" %d", count(set, 9));
        in_set(set, EPOLL_CTL_MOD, reads[kind], EPOLLIN | EPOLLONESHOT, 2);
        printf(" %d", count(set, 9));
        in_set(set, EPOLL_CTL_MOD, reads[kind], 0, 2);
        printf(", nothing asked %d", count(set, 9));
        in_set(set, EPOLL_CTL_MOD, reads[kind], EPOLLIN | EPOLLET, 2);
        printf(", edge again %d %d", count(set, 9), count(set, 9));
        struct epoll_event e = { EPOLLIN, { 0 } };
        printf(", %s", epoll_ctl(set, EPOLL_CTL_ADD, reads[kind], &e) ? strerrorname_np(errno) : "");
        printf(" %d", epoll_ctl(set, EPOLL_CTL_DEL, reads[kind], NULL));
        printf(" %s", epoll_ctl(set, EPOLL_CTL_MOD, reads[kind], &e) ? strerrorname_np(errno) : "");
        printf(" %d\n", count(set, 9));
        take(kind);
        if (kind < EVENT) take(kind);
        close(set), close(level);
    }
    int file = open("file", O_CREAT | O_RDWR, 0644), set = epoll_create1(0);
    struct epoll_event e = { EPOLLIN, { 0 } };
    told("a file", epoll_ctl(set, EPOLL_CTL_ADD, file, &e));
    told("a directory", epoll_ctl(set, EPOLL_CTL_ADD, open(".", O_RDONLY), &e));
    told("itself", epoll_ctl(set, EPOLL_CTL_ADD, set, &e));
    told("nothing", epoll_ctl(set, EPOLL_CTL_ADD, 999, &e));
    told("no room", epoll_wait(set, &e, 0, 0)), told("no set", epoll_wait(file, &e, 1, 0));
    unlink("file"), unlink("fifo"), unlink("named"), rmdir("watched");
}

/* A set in a set, one description in two sets, and who closes what. */
static void nested(void) {
    int p[2], q[2], inner = epoll_create1(0), outer = epoll_create1(0), edge = epoll_create1(0);
    char byte;
    NEED(pipe(p) == 0 && pipe(q) == 0);
    in_set(inner, EPOLL_CTL_ADD, p[0], EPOLLIN, 1), in_set(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
    in_set(edge, EPOLL_CTL_ADD, inner, EPOLLIN | EPOLLET, 3);
    struct epoll_event e = { EPOLLIN, { 0 } };
    told("a circle", epoll_ctl(inner, EPOLL_CTL_ADD, outer, &e));
    told("quiet", count(outer, 9) + count(edge, 9));
    NEED(write(p[1], "x", 1) == 1);
    struct pollfd seen = { outer, POLLIN, 0 };
    told("outer", count(outer, 9)), told("polled", poll(&seen, 1, 0)), told("edge", count(edge, 9));
    told("edge again", count(edge, 9)), told("inner", count(inner, 9));
    NEED(read(p[0], &byte, 1) == 1);
    told("read", count(outer, 9) + count(inner, 9) + poll(&seen, 1, 0));
    /* A sleeper at the outer one. */
    pid_t pid = fork();
    if (pid == 0) {
        wait_ms(5);
        _exit(write(p[1], "y", 1) != 1);
    }
    told("woken", epoll_wait(outer, &e, 1, 20000));
    NEED(read(p[0], &byte, 1) == 1);
    NEED(waitpid(pid, NULL, 0) == pid);
    /* A copy keeps it in the set when the number is gone. */
    int copy = dup(q[0]);
    in_set(inner, EPOLL_CTL_ADD, q[0], EPOLLIN, 4);
    close(q[0]);
    NEED(write(q[1], "z", 1) == 1);
    told("a copy is open", count(inner, 9));
    close(copy);
    told("all are closed", count(inner, 9));
    close(p[1]);
    NEED(epoll_wait(inner, &e, 1, 0) == 1);
    told("hung up", e.events), told("seen outside", count(outer, 9));
}

/* Threads asleep at one descriptor: as many wake as there is to take. */
static int shared_set, shared_fd, woken;
static void *sleeper(void *way) {
    struct epoll_event e = { EPOLLIN | EPOLLEXCLUSIVE, { 0 } };
    int set = way ? epoll_create1(0) : shared_set;
    char byte;
    if (way) NEED(epoll_ctl(set, EPOLL_CTL_ADD, shared_fd, &e) == 0);
    for (;;) {
        if (epoll_wait(set, &e, 1, -1) != 1 || read(shared_fd, &byte, 1) != 1) continue;
        if (byte == 'e') return NULL;
        __atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
    }
}
static void exclusive(void) {
    enum { THREADS = 6, ROUNDS = 300 };
    for (long way = 0; way < 2; way++) {
        int p[2];
        pthread_t ids[THREADS];
        NEED(pipe2(p, O_NONBLOCK) == 0);
        shared_fd = p[0], shared_set = epoll_create1(0), woken = 0;
        in_set(shared_set, EPOLL_CTL_ADD, p[0], EPOLLIN, 0);
        for (int n = 0; n < THREADS; n++)
            NEED(pthread_create(&ids[n], NULL, sleeper, (void *)way) == 0);
        for (int n = 0; n < ROUNDS; n++) {
            double end = now() + 20;
            NEED(write(p[1], "x", 1) == 1);
            while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) <= n) {
                NEED(now() < end);
                sched_yield();
            }
        }
        told(way ? "exclusive, each once" : "one set, each once", woken);
        for (int n = 0; n < THREADS; n++) NEED(write(p[1], "e", 1) == 1);
        for (int n = 0; n < THREADS; n++) pthread_join(ids[n], NULL);
        struct epoll_event e = { EPOLLIN | EPOLLEXCLUSIVE, { 0 } };
        int set = epoll_create1(0);
        NEED(epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e) == 0);
        told("exclusive is not changed", epoll_ctl(set, EPOLL_CTL_MOD, p[0], &e));
        e.events |= EPOLLONESHOT;
        told("nor once", epoll_ctl(set, EPOLL_CTL_ADD, p[1], &e));
        close(p[0]), close(p[1]), close(set), close(shared_set);
    }
}

/* What counters, clocks, signals and processes say by themselves. */
static void counters(void) {
    uint64_t n = 5, big = ~0ull - 1;
    int semaphore = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK), plain = eventfd(0, EFD_NONBLOCK);
    for (int k = 0; k < 3; k++) NEED(read(semaphore, &n, 8) == 8 && n == 1);
    told("semaphore at 0", read(semaphore, &n, 8));
    NEED(write(plain, &big, 8) == 8);
    n = 1;
    told("full", write(plain, &n, 8));
    struct pollfd p = { plain, POLLIN | POLLOUT, 0 };
    told("polled", poll(&p, 1, 0)), told("for", p.revents);
    told("short", read(plain, &n, 4));
    NEED(read(plain, &n, 8) == 8 && n == big);
    n = ~0ull;
    told("too much", write(plain, &n, 8));
    int clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec often = { { 0, 1000000 }, { 0, 1000000 } }, left;
    told("not set", read(clock, &n, 8));
    NEED(timerfd_settime(clock, 0, &often, NULL) == 0);
    wait_ms(20);
    NEED(read(clock, &n, 8) == 8);
    told("at least fifteen times", n >= 15);
    NEED(timerfd_gettime(clock, &left) == 0);
    told("interval", left.it_interval.tv_nsec);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    often = (struct itimerspec){ { 0, 0 }, { t.tv_sec - 1, t.tv_nsec } };
    NEED(timerfd_settime(clock, TFD_TIMER_ABSTIME, &often, NULL) == 0);
    struct pollfd past = { clock, POLLIN, 0 };
    told("in the past", poll(&past, 1, 20000)), told("read", read(clock, &n, 8)), told("once", n);
}
static void signals(void) {
    sigset_t some, one;
    struct signalfd_siginfo all[9];
    sigemptyset(&some), sigaddset(&some, SIGUSR1), sigaddset(&some, SIGRTMIN + 2);
    sigaddset(&some, SIGCHLD);
    NEED(sigprocmask(SIG_BLOCK, &some, NULL) == 0);
    int fd = signalfd(-1, &some, SFD_NONBLOCK), status;
    told("none", read(fd, all, sizeof all));
    for (int n = 0; n < 3; n++)
        NEED(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = n }) == 0);
    kill(getpid(), SIGUSR1), kill(getpid(), SIGUSR1);
    ssize_t got = read(fd, all, sizeof all);
    for (int n = 0; n < got / (int)sizeof *all; n++)
        printf("signal %d, code %d, value %d, from me %d\n", (int)all[n].ssi_signo, all[n].ssi_code,
               all[n].ssi_int, (pid_t)all[n].ssi_pid == getpid());
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        /* What waits for the parent is not ours. */
        _exit(read(fd, all, sizeof all) == -1 && errno == EAGAIN ? 7 : 1);
    }
    struct pollfd p[2] = { { fd, POLLIN, 0 }, { syscall(SYS_pidfd_open, pid, 0), POLLIN, 0 } };
    NEED(p[1].fd >= 0 && poll(p + 1, 1, 20000) == 1 && poll(p, 1, 20000) == 1);
    NEED(read(fd, all, sizeof all) == sizeof *all);
    told("child", all[0].ssi_signo == SIGCHLD && (pid_t)all[0].ssi_pid == pid);
    siginfo_t info = { 0 };
    NEED(waitid(P_PIDFD, p[1].fd, &info, WEXITED) == 0);
    told("its status", info.si_status);
    told("gone", syscall(SYS_pidfd_send_signal, p[1].fd, 0, NULL, 0));
    told("waited for", waitpid(pid, &status, 0));
    int other = syscall(SYS_pidfd_open, getpid(), 0);
    told("me", syscall(SYS_pidfd_send_signal, other, SIGUSR1, NULL, 0));
    sigemptyset(&one), sigaddset(&one, SIGUSR1);
    NEED(read(fd, all, sizeof all) == sizeof *all && all[0].ssi_signo == SIGUSR1);
    NEED(signalfd(fd, &one, 0) == fd && sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ 0 }) == 0);
    told("no longer of it", read(fd, all, sizeof all));
}

static double spent_s(pid_t pid) {
    char path[40], line[400] = "";
    long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    NEED(f && fgets(line, sizeof line, f));
    fclose(f);
    NEED(sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
        &user, &system) == 2);
    return (user + system) / (double)sysconf(_SC_CLK_TCK);
}
/* Eight that wait in every way burn nothing. */
static void idle(void) {
    enum { WAYS = 8 };
    pid_t pids[WAYS];
    int held[2];
    begin_process();
    mix();
    NEED(pipe(held) == 0);
    int file = open("file", O_CREAT | O_RDWR, 0644);
    NEED(file >= 0);
    struct flock lock = { F_WRLCK, SEEK_SET, 0, 1, 0 };
    NEED(fcntl(file, F_SETLK, &lock) == 0);
    for (int way = 0; way < WAYS; way++) {
        NEED((pids[way] = fork()) >= 0);
        if (pids[way] != 0) continue;
        char byte;
        int set = epoll_create1(0);
        for (int n = 0; n < KINDS; n++) in_set(set, EPOLL_CTL_ADD, reads[n], EPOLLIN, n);
        if (way < 4) which(way, 60000, set);
        if (way == 4) read(reads[PIPE], &byte, 1);
        if (way == 5) read(reads[FIFO], &byte, 1);
        if (way == 6) fcntl(file, F_SETLKW, &lock);
        if (way == 7) recv(reads[NAMED], &byte, 1, 0);
        _exit(1);
    }
    wait_ms(900), wait_ms(900), wait_ms(900);
    double all = 0;
    for (int way = 0; way < WAYS; way++) all += spent_s(pids[way]);
    fprintf(stderr, "%.2f s\n", all);
    told("burnt more than a tenth of a second", all > 0.1);
    for (int way = 0; way < WAYS; way++) kill(pids[way], SIGKILL), waitpid(pids[way], NULL, 0);
    close(ending[1]), take(PROCESS);
    unlink("file"), unlink("fifo"), unlink("named"), rmdir("watched");
}

/* select with counts beyond what the sets have: the limit of open files, say. */
static void counts(void) {
    static const int all[] = { 64, 1024, 1025, 4096, 8192, 8193, 65536, 1000000, 0x7fffffff };
    struct { fd_set set; unsigned char behind[4096]; } s;
    int p[2];
    char byte;
    NEED(pipe(p) == 0 && p[0] < 64);
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++)
        for (int there = 0; there < 2; there++) {
            struct timeval soon = { 0, 1000 }, late = { 20, 0 };
            for (int i = 0; i < 40; i++) NEED(write(p[1], "", 1) == 1 && read(p[0], &byte, 1) == 1);
            if (there) NEED(write(p[1], "", 1) == 1);
            FD_ZERO(&s.set);
            FD_SET(p[0], &s.set);
            memset(s.behind, n, sizeof s.behind);
            printf("of %d, %d there: ", all[n], there);
            told("select", select(all[n], &s.set, NULL, NULL, there ? &late : &soon));
            told("in the set", FD_ISSET(p[0], &s.set) != 0);
            for (unsigned i = 0; i < sizeof s.behind; i++) NEED(s.behind[i] == n);
            if (there) NEED(read(p[0], &byte, 1) == 1);
        }
    close(p[0]), close(p[1]);
}

int main(int argc, char **argv) {
    const struct { const char *name; void (*run)(void); } all[] = { { "ways", ways },
        { "epolls", epolls }, { "nested", nested }, { "exclusive", exclusive },
        { "counters", counters }, { "signals", signals }, { "counts", counts },
        { "idle", idle } };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned n = 0; n < sizeof all / sizeof *all && argc == 2; n++)
        if (strcmp(argv[1], all[n].name) == 0) all[n].run();
    return 0;
}
