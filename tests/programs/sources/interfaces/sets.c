/* Epoll sets of pipes, asked again and again without a wait, while one process, its threads or its
 * children do what changes the answer. Prints what Linux says. sets KIND */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) ((what) ? (void)0 : need(__LINE__, #what))

static void need(int line, const char *what) {
    printf("line %d: %s: %s\n", line, what, strerror(errno));
    fflush(stdout);
    _exit(1);
}
static void change(int set, int how, int fd, unsigned events, int number) {
    struct epoll_event e = { events, { .u64 = number } };
    NEED(epoll_ctl(set, how, fd, &e) == 0);
}
static void add(int set, int fd, int number) { change(set, EPOLL_CTL_ADD, fd, EPOLLIN, number); }
static int asked(int set) {
    struct epoll_event e[8];
    return epoll_wait(set, e, 8, 0);
}
/* What two questions in a row say: the second is often one too many. */
static void look(const char *what, int set) {
    for (int again = 0; again < 2; again++) {
        struct epoll_event e[8];
        int count = epoll_wait(set, e, 8, 0);
        printf("%s: %d", again ? "again" : what, count);
        for (int i = 0; i < count; i++)
            printf(" %d/%x", (int)e[i].data.u64, e[i].events);
        puts("");
    }
}
static void take(int fd, int bytes) {
    char some[16];
    NEED(read(fd, some, bytes) == bytes);
}

static void levels(void) {
    int p[2], q[2], set = epoll_create1(EPOLL_CLOEXEC);
    NEED(pipe(p) == 0 && pipe(q) == 0);
    add(set, p[0], 1), add(set, q[0], 2);
    look("empty", set);
    NEED(write(p[1], "abc", 3) == 3), look("three bytes", set);
    take(p[0], 1), look("two left", set);
    struct epoll_event e;
    volatile int room = 0, below = -1;
    void *volatile nowhere = (void *)8;
    printf("no room: %d", epoll_wait(set, &e, room, 0));
    printf(", bad room: %d", epoll_wait(set, &e, below, 0));
    printf(", nowhere: %d\n", epoll_wait(set, nowhere, 1, 0));
    NEED(write(q[1], "x", 1) == 1), look("both", set);
    printf("room for one: %d\n", epoll_wait(set, &e, 1, 0));
    printf("a wait that need not be: %d\n", epoll_wait(set, &e, 1, 60000));
    take(p[0], 2), take(q[0], 1), look("taken", set);
    change(set, EPOLL_CTL_MOD, p[0], 0, 1);
    NEED(write(p[1], "x", 1) == 1), look("not asked for", set);
    change(set, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLRDHUP, 3), look("asked for", set);
    NEED(epoll_ctl(set, EPOLL_CTL_DEL, p[0], NULL) == 0), look("removed", set);
    add(set, p[0], 4), look("there again", set);
    e.events = EPOLLIN, e.data.u64 = 9;
    int done = epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e);
    printf("twice: %d %s\n", done, strerrorname_np(errno)), look("the first one", set);
    NEED(close(p[1]) == 0), look("no writer", set);
    take(p[0], 1), look("and no bytes", set);
    NEED(close(p[0]) == 0), look("no reader", set);
    NEED(write(q[1], "y", 1) == 1), look("the other", set);
    NEED(dup2(2, q[1]) == q[1]), look("its writer replaced", set);
    NEED(dup2(2, q[0]) == q[0]), look("its reader replaced", set);
    NEED(pipe(p) == 0);
    add(set, p[0], 5), look("another", set);
    NEED(close_range(p[1], p[1], 0) == 0), look("writer closed in a range", set);
    NEED(close(set) == 0);
    set = epoll_create(1), add(set, p[0], 6), look("another set", set);
}

/* A thousand pipes, one of them ready in turn; then some more at once. */
static void many(void) {
    enum { PIPES = 1000 };
    static int ends[PIPES][2];
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 2200 ? limit.rlim_max : 2200;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int set = epoll_create1(0);
    for (int i = 0; i < PIPES; i++)
        NEED(pipe(ends[i]) == 0), add(set, ends[i][0], i);
    for (int i = 0; i < PIPES; i++) {
        int which = i * 7 % PIPES;
        struct epoll_event e[8];
        NEED(asked(set) == 0 && asked(set) == 0);
        NEED(write(ends[which][1], "a", 1) == 1);
        for (int again = 0; again < 3; again++)
            NEED(epoll_wait(set, e, 8, 0) == 1 && e[0].data.u64 == (unsigned)which);
        take(ends[which][0], 1);
    }
    for (int i = 0; i < PIPES; i++)
        NEED(write(ends[i][1], "a", 1) == 1);
    static struct epoll_event all[PIPES + 1];
    static char seen[PIPES];
    printf("all: %d of %d\n", epoll_wait(set, all, PIPES + 1, 0), PIPES);
    int rounds = 0, left = PIPES;
    for (; left > 0 && rounds < 10 * PIPES; rounds++) {
        struct epoll_event e[8];
        int count = epoll_wait(set, e, 8, 0);
        for (int i = 0; i < count; i++)
            left -= !seen[e[i].data.u64], seen[e[i].data.u64] = 1;
    }
    printf("by eights: %d left, in turn: %d\n", left, rounds <= PIPES / 8 + 1);
}

static int shared[2], shared_set;
static atomic_int said, heard, polls;
/* Says what it has done only when it is done; whoever has heard of it asks. */
static void *tells(void *rounds) {
    for (int i = 1; i <= (int)(long)rounds; i++) {
        NEED(write(shared[1], "a", 1) == 1);
        atomic_store(&said, i);
        while (atomic_load(&heard) < i) sched_yield();
    }
    return NULL;
}
static void *asks(void *unused) {
    while (!atomic_load(&polls)) asked(shared_set), sched_yield();
    return unused;
}
/* One event outstanding: a thread writes and says so, one asks and takes, others ask on and on. */
static void threads(void) {
    enum { ROUNDS = 2000, OTHERS = 2 };
    pthread_t teller, others[OTHERS];
    NEED(pipe(shared) == 0);
    shared_set = epoll_create1(0), add(shared_set, shared[0], 1);
    for (int i = 0; i < OTHERS; i++) NEED(!pthread_create(&others[i], NULL, asks, NULL));
    NEED(!pthread_create(&teller, NULL, tells, (void *)(long)ROUNDS));
    int unseen = 0, ghosts = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        while (atomic_load(&said) < i) sched_yield();
        unseen += asked(shared_set) != 1;
        take(shared[0], 1);
        ghosts += asked(shared_set) != 0;
        atomic_store(&heard, i);
    }
    atomic_store(&polls, 1);
    pthread_join(teller, NULL);
    for (int i = 0; i < OTHERS; i++) pthread_join(others[i], NULL);
    printf("unseen %d, taken and seen %d\n", unseen, ghosts);
}

/* Children that write and are killed, whose end is known before the set is asked. */
static void children(void) {
    enum { ROUNDS = 300 };
    int wrong = 0, silent = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int p[2], q[2], set = epoll_create1(0);
        NEED(pipe(p) == 0 && pipe(q) == 0);
        add(set, p[0], 1), add(set, q[0], 2);
        silent += asked(set) == 0;
        pid_t pid = fork();
        if (pid == 0) {
            if (i % 3) NEED(write(p[1], "a", 1) == 1);
            for (;;) pause();
        }
        close(p[1]);
        struct epoll_event e[2];
        if (i % 3) {
            NEED(epoll_wait(set, e, 2, 20000) == 1 && e[0].events == EPOLLIN);
            if (i % 3 == 1) take(p[0], 1);
        }
        for (int again = 0; again < i % 5; again++) asked(set);
        kill(pid, SIGKILL);
        NEED(waitpid(pid, NULL, 0) == pid);
        unsigned wanted = EPOLLHUP | (i % 3 == 2 ? EPOLLIN : 0);
        wrong += epoll_wait(set, e, 2, 0) != 1 || e[0].events != wanted || e[0].data.u64 != 1;
        close(p[0]), close(q[0]), close(q[1]), close(set);
    }
    printf("silent before %d, wrong after a death %d\n", silent, wrong);
}

/* A set and its pipes in two processes: each sees what the other does. */
static void inherited(void) {
    int p[2], late[2], turn[2], answer[2], set = epoll_create1(0);
    NEED(pipe(p) == 0 && pipe(turn) == 0 && pipe(answer) == 0);
    add(set, p[0], 1), look("before", set);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        char step, told;
        NEED(close(turn[1]) == 0 && pipe(late) == 0);
        while (read(turn[0], &step, 1) == 1) {
            if (step == 'w') NEED(write(p[1], "a", 1) == 1);
            if (step == 'r') take(p[0], 1);
            if (step == 'a') add(set, late[0], 7), NEED(write(late[1], "b", 1) == 1);
            if (step == 'c') close(late[0]), close(p[1]);
            told = '0' + asked(set);
            NEED(write(answer[1], &told, 1) == 1);
        }
        _exit(0);
    }
    close(turn[0]);
    for (const char *step = "wrac"; *step; step++) {
        char told;
        NEED(write(turn[1], step, 1) == 1 && read(answer[0], &told, 1) == 1);
        printf("%c: child %c\n", *step, told), look("parent", set);
    }
    close(p[1]), look("no writer but one that is gone", set);
    close(turn[1]), waitpid(pid, NULL, 0);
    look("alone", set);
}

/* Edges, single shots, numbers twice: what is told of once, and of whom. */
static void once(void) {
    int p[2], q[2], r[2], set = epoll_create1(0);
    NEED(pipe(p) == 0 && pipe(q) == 0 && pipe2(r, O_NONBLOCK) == 0);
    add(set, p[0], 1), look("level", set);
    change(set, EPOLL_CTL_ADD, q[0], EPOLLIN | EPOLLET, 2);
    NEED(write(q[1], "abc", 3) == 3), look("edge", set);
    take(q[0], 1), look("partly read", set);
    pid_t pid = fork();
    if (pid == 0) _exit(write(q[1], "d", 1) != 1);
    waitpid(pid, NULL, 0), look("by a child", set);
    change(set, EPOLL_CTL_ADD, r[0], EPOLLIN | EPOLLONESHOT, 3);
    NEED(write(r[1], "a", 1) == 1), look("one shot", set);
    NEED(write(r[1], "b", 1) == 1), look("no other", set);
    change(set, EPOLL_CTL_MOD, r[0], EPOLLIN | EPOLLONESHOT, 3), look("armed", set);
    change(set, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET, 4);
    NEED(write(p[1], "a", 1) == 1), look("level made edge", set);
    change(set, EPOLL_CTL_MOD, p[0], EPOLLIN, 5), look("and level again", set);
    int twice = dup(p[0]), other = dup(set);
    add(set, twice, 6), look("a second number", set), look("of the set, too", other);
    NEED(close(p[0]) == 0), look("the first one closed", other);
    take(twice, 1), look("taken", set);
    int outer = epoll_create1(0), inner = epoll_create1(0), s[2];
    NEED(pipe(s) == 0);
    add(inner, s[0], 8), look("inner", inner), add(outer, inner, 9), look("nested", outer);
    NEED(write(s[1], "a", 1) == 1), look("nested and ready", outer), look("inner", inner);
    struct pollfd way = { inner, POLLIN, 0 };
    printf("polled: %d\n", poll(&way, 1, 0));
    take(s[0], 1), printf("polled: %d\n", poll(&way, 1, 0)), look("nested", outer);
}

/* A set, and a pipe of one, go to another process in a message. */
static void sent(void) {
    int p[2], ways[2], set = epoll_create1(0);
    NEED(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ways) == 0);
    add(set, p[0], 1), look("before", set);
    for (int which = 0; which < 2; which++) {
        int numbers[1] = { which ? p[1] : set };
        char room[CMSG_SPACE(sizeof numbers)] = "", byte = 'x';
        struct iovec one = { &byte, 1 };
        struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room,
                            .msg_controllen = sizeof room };
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(4);
        memcpy(CMSG_DATA(c), numbers, 4);
        NEED(sendmsg(ways[0], &m, 0) == 1);
        m.msg_controllen = sizeof room;
        NEED(recvmsg(ways[1], &m, 0) == 1);
        memcpy(numbers, CMSG_DATA(CMSG_FIRSTHDR(&m)), 4);
        if (which) {
            NEED(close(p[1]) == 0), look("a writer is left", set);
            NEED(close(numbers[0]) == 0), look("none is left", set);
            continue;
        }
        for (int i = 0; i < 20; i++)
            NEED(write(p[1], "a", 1) == 1), take(p[0], 1);
        NEED(write(p[1], "b", 1) == 1);
        look("the one that came", numbers[0]), look("the one that was sent", set);
        take(p[0], 1), look("taken", set), look("there, too", numbers[0]);
    }
}

/* More is ready than there is room for: nobody waits for ever. And what is no room at all. */
static void room(void) {
    enum { PIPES = 4 };
    int p[PIPES][2], set = epoll_create1(0);
    struct epoll_event e[PIPES];
    for (int i = 0; i < PIPES; i++)
        NEED(pipe(p[i]) == 0), add(set, p[i][0], i), NEED(write(p[i][1], "a", 1) == 1);
    for (int most = 1; most < PIPES; most++) {
        int told[PIPES] = { 0 };
        for (int turn = 0; turn < 12; turn++)
            for (int i = epoll_wait(set, e, most, 0); i-- > 0;) told[e[i].data.u64]++;
        printf("%d at a time: %d %d %d %d\n", most, told[0], told[1], told[2], told[3]);
    }
    for (int i = 0; i < PIPES; i++) take(p[i][0], 1);
    look("nothing", set);
    volatile int most = INT_MAX;
    void *volatile end = (void *)0x7ffffffff000;
    int all = epoll_wait(set, e, most, 0);
    printf("room for all: %d, %s\n", all, strerrorname_np(errno));
    all = epoll_wait(set, end, 8, 0);
    printf("room at the end: %d, %s\n", all, strerrorname_np(errno));
    NEED(write(p[0][1], "a", 1) == 1), look("one", set);
    long done = syscall(SYS_epoll_ctl, (long)set, EPOLL_CTL_DEL | 1L << 32, (long)p[0][0], 0L);
    printf("removed: %ld\n", done), look("none", set);
}

static int polled;
static atomic_int poller;
/* Keeps an end open, without asking whether bytes are there. */
static void *keeps(void *unused) {
    struct pollfd one = { polled, POLLPRI, 0 };
    atomic_store(&poller, gettid());
    /* At its end the number is nobody's, or not polled for what it is. */
    NEED(poll(&one, 1, 1500) >= 0);
    return unused;
}
/* Until the thread is in its call. */
static void await_call(int number) {
    char path[64], call[8] = "";
    while (atomic_load(&poller) == 0) usleep(100);
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", atomic_load(&poller));
    while (atoi(call) != number) {
        FILE *file = fopen(path, "r");
        NEED(file && fscanf(file, "%7s", call) == 1 && fclose(file) == 0);
        usleep(100);
    }
}
/* An end is closed or replaced while a thread polls it: it goes when the poll is over. */
static void held(void) {
    for (int which = 0; which < 3; which++) {
        int p[2], set = epoll_create1(0);
        pthread_t other;
        NEED(pipe(p) == 0);
        if (which == 0) NEED(write(p[1], "a", 1) == 1);
        add(set, p[0], 1), look("before", set);
        polled = p[which > 0], atomic_store(&poller, 0);
        NEED(!pthread_create(&other, NULL, keeps, NULL));
        await_call(SYS_poll);
        NEED(which < 2 ? close(polled) == 0 : dup2(2, polled) == polled);
        look(which ? "writer gone, but polled" : "reader gone, but polled", set);
        pthread_join(other, NULL), look("the poll is over", set);
    }
}

static void *sleeps(void *unused) {
    struct sched_param none = { 0 };
    NEED(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    struct epoll_event e;
    atomic_store(&poller, gettid());
    printf("woken: %d\n", epoll_wait(shared_set, &e, 1, 20000));
    return unused;
}
/* Who sleeps in a set that is closed, and whose number another set has, is woken all the same. */
static void closed(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    NEED(sched_setaffinity(0, sizeof one, &one) == 0 && pipe(shared) == 0);
    shared_set = epoll_create1(0), add(shared_set, shared[0], 1);
    pthread_t sleeper;
    NEED(!pthread_create(&sleeper, NULL, sleeps, NULL));
    await_call(SYS_epoll_wait);
    NEED(close(shared_set) == 0 && epoll_create1(0) == shared_set);
    /* So many that a ring would be tried, while the sleeper has no time to look. */
    for (int i = 0; i < 200; i++)
        NEED(write(shared[1], "a", 1) == 1), take(shared[0], 1);
    NEED(write(shared[1], "b", 1) == 1);
    pthread_join(sleeper, NULL);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } all[] = {
        { "levels", levels }, { "many", many }, { "threads", threads }, { "children", children },
        { "inherited", inherited }, { "once", once }, { "sent", sent },
        { "room", room }, { "held", held }, { "closed", closed },
    };
    alarm(120);
    for (unsigned i = 0; argc == 2 && i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name)) return all[i].run(), 0;
    return 2;
}
