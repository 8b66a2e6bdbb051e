/* Event loops on connected stream sockets: socket pairs, unix sockets connected by name, TCP over
   127.0.0.1. Both sides first hand some over, so that the bytes may be anywhere. What calls return
   and what sets tell is printed; Linux and Husk must print the same. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 40, ROUNDS = 20000 };

static const char *kind; /* "pair", "named", "tcp" */

static void say(const char *what, long result)
{
    printf("%s %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static void must(const char *what, int holds)
{
    if (holds) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static int ready(int fd, int events)
{
    struct pollfd entry = { fd, events, 0 };
    return poll(&entry, 1, 10000) == 1;
}

static void connected(int pair[2])
{
    static int count;
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    struct sockaddr_in port = { .sin_family = AF_INET };
    int tcp = strcmp(kind, "tcp") == 0;
    struct sockaddr *name = tcp ? (void *)&port : (void *)&path;
    socklen_t length = tcp ? sizeof port : sizeof path;
    snprintf(path.sun_path, sizeof path.sun_path, "loop.%d.%d", (int)getpid(), count++);
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must("listen", bind(listener, name, length) == 0 && listen(listener, 8) == 0);
    must("name", !tcp || getsockname(listener, name, &length) == 0);
    pair[0] = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | (tcp ? SOCK_NONBLOCK : 0), 0);
    int begun = connect(pair[0], name, length);
    must("connect", begun == 0 || (tcp && errno == EINPROGRESS));
    must("comes", ready(listener, POLLIN));
    pair[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    must("accept", pair[1] >= 0 && ready(pair[0], POLLOUT));
    int on = 1; /* else Linux holds back what follows upon a byte */
    for (int side = 0; side < 2 && tcp; side++)
        must("no delay", setsockopt(pair[side], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    must("unbind", tcp || unlink(path.sun_path) == 0);
    close(listener);
}

static void warm(int pair[2])
{
    char byte = 'w';
    if (strcmp(kind, "pair") == 0)
        must("pair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    else
        connected(pair);
    for (int side = 0; side < 2; side++)
        must("flags", fcntl(pair[side], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
    for (int i = 0; i < WARM; i++)
        for (int side = 0; side < 2; side++) {
            must("warm", write(pair[side], &byte, 1) == 1 && ready(pair[1 - side], POLLIN));
            must("warm", read(pair[1 - side], &byte, 1) == 1);
        }
}

/* The same after some turns of an event loop: the other side's writes may go by a ring. */
static int looped(int pair[2], unsigned events)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { events, { .u64 = 0x1234567890 } };
    char byte = 'l';
    warm(pair);
    must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
    for (int i = 0; i < WARM; i++) {
        must("loop", write(pair[0], &byte, 1) == 1 && epoll_wait(set, &event, 1, 10000) == 1);
        must("its data", event.data.u64 == 0x1234567890);
        must("loop", read(pair[1], &byte, 1) == 1 || errno == EAGAIN);
        must("back", write(pair[1], &byte, 1) == 1 && ready(pair[0], POLLIN));
        must("back", read(pair[0], &byte, 1) == 1);
    }
    while (read(pair[1], &byte, 1) == 1) {}
    while (epoll_wait(set, &event, 1, 0) == 1 && !(event.events & EPOLLOUT)) {}
    return set;
}

static void done(int set, int pair[2])
{
    close(pair[0]);
    close(pair[1]);
    close(set);
}

static void told(const char *when, int set, int most, int time)
{
    struct epoll_event events[8];
    int count = epoll_wait(set, events, most, time);
    printf("%s: %d", when, count);
    for (int i = 0; i < count; i++) printf(" %x/%lx", events[i].events, (long)events[i].data.u64);
    printf("\n");
    fflush(stdout);
}

static void takes(int fd)
{
    char bytes[64];
    long got = read(fd, bytes, sizeof bytes);
    say("takes", got);
    if (got > 0) printf("%.*s\n", (int)got, bytes);
}

static const unsigned MASKS[] = {
    EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLET,
    EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLONESHOT, 0,
};

/* Levels and edges: what is told, and how often, while bytes come, are taken in part, and end. */
static void levels(void)
{
    for (unsigned i = 0; i < sizeof MASKS / sizeof *MASKS; i++) {
        int pair[2], set = looped(pair, MASKS[i] ? MASKS[i] & ~EPOLLONESHOT : EPOLLIN);
        struct epoll_event event = { MASKS[i], { .u64 = i } };
        char byte;
        printf("mask %x\n", MASKS[i]);
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, pair[1], &event));
        told("nothing", set, 8, 0);
        must("write", write(pair[0], "first", 5) == 5);
        told("first", set, 8, 0);
        must("write", write(pair[0], "second", 6) == 6);
        told("second", set, 8, 0);
        told("again", set, 1, 0);
        say("part", read(pair[1], &byte, 1));
        told("part taken", set, 8, 0);
        takes(pair[1]);
        takes(pair[1]);
        told("all taken", set, 8, 0);
        must("write", write(pair[0], "third", 5) == 5);
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, pair[1], &event));
        told("changed", set, 8, 0);
        close(pair[0]);
        told("end", set, 8, 0);
        takes(pair[1]);
        takes(pair[1]);
        told("all read", set, 8, 0);
        done(set, pair);
    }
}

/* Adding, changing and removing in every order, by one number and two. */
static void changes(void)
{
    int pair[2], set = looped(pair, EPOLLIN);
    struct epoll_event reads = { EPOLLIN, { .u64 = 1 } }, writes = { EPOLLOUT, { .u64 = 2 } };
    say("twice", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &reads));
    for (int i = 0; i < 6; i++) {
        say("remove", epoll_ctl(set, EPOLL_CTL_DEL, pair[1], NULL));
        say("once more", epoll_ctl(set, EPOLL_CTL_DEL, pair[1], NULL));
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, pair[1], &reads));
        must("write", write(pair[0], "x", 1) == 1);
        told("removed", set, 8, 0);
        say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], i % 2 ? &reads : &writes));
        told("added", set, 8, 0);
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, pair[1], i % 2 ? &writes : &reads));
        told("changed", set, 8, 0);
        takes(pair[1]);
        told("taken", set, 8, 0);
    }
    say("remove", epoll_ctl(set, EPOLL_CTL_DEL, pair[1], NULL));
    int second = dup(pair[1]);
    reads.data.u64 = 3;
    say("by another", epoll_ctl(set, EPOLL_CTL_ADD, second, &reads));
    must("write", write(pair[0], "y", 1) == 1);
    told("by another", set, 8, 0);
    close(second);
    told("closed", set, 8, 0);
    takes(pair[1]);
    close(pair[1]);
    told("both", set, 8, 0);
    int closed[2] = { pair[0], open("/dev/null", O_RDONLY) };
    done(set, closed);
}

static int writer_pair[2];

static void *writes_later(void *of)
{
    usleep((long)of);
    must("write", write(writer_pair[0], "late", 4) == 4);
    return NULL;
}

/* A sleeping set is woken: by a thread, by a process, by the host, by an end, by a time. */
static void sleeps(void)
{
    for (int edge = 0; edge < 2; edge++) {
        int set = looped(writer_pair, EPOLLIN | EPOLLRDHUP | (edge ? EPOLLET : 0));
        pthread_t thread;
        for (int i = 0; i < 4; i++) {
            must("thread", pthread_create(&thread, NULL, writes_later, (void *)(20000L * i)) == 0);
            told("by a thread", set, 8, 10000);
            takes(writer_pair[1]);
            pthread_join(thread, NULL);
        }
        told("by a time", set, 8, 20);
        pid_t child = fork();
        if (child == 0) {
            usleep(20000);
            _exit(write(writer_pair[0], "child", 5) != 5);
        }
        told("by a process", set, 8, 10000);
        takes(writer_pair[1]);
        waitpid(child, NULL, 0);
        int bell = eventfd(0, 0);
        struct epoll_event event = { EPOLLIN, { .u64 = 9 } };
        must("bell", epoll_ctl(set, EPOLL_CTL_ADD, bell, &event) == 0 && eventfd_write(bell, 1) == 0);
        told("by the host", set, 1, 10000);
        close(bell);
        child = fork();
        if (child == 0) {
            must("write", write(writer_pair[0], "killed", 6) == 6);
            close(writer_pair[1]);
            kill(getppid(), 0);
            pause();
        }
        close(writer_pair[0]);
        told("before a kill", set, 8, 10000);
        takes(writer_pair[1]);
        kill(child, SIGKILL);
        told("killed", set, 8, 10000);
        waitpid(child, NULL, 0);
        takes(writer_pair[1]);
        close(writer_pair[1]);
        close(set);
    }
}

/* A set that others share, watch, or send away. */
static void shares(void)
{
    int pair[2], set = looped(pair, EPOLLIN), outer = epoll_create1(0), status;
    struct epoll_event event = { EPOLLIN, { .u64 = 7 } };
    pid_t child = fork();
    if (child == 0) {
        told("child", set, 8, 10000);
        _exit(0);
    }
    must("write", write(pair[0], "shared", 6) == 6);
    waitpid(child, &status, 0);
    told("parent", set, 8, 0);
    takes(pair[1]);
    must("nest", epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0);
    told("outer, nothing", outer, 8, 0);
    must("write", write(pair[0], "nested", 6) == 6);
    told("outer", outer, 8, 10000);
    told("inner", set, 8, 0);
    takes(pair[1]);
    say("no more", poll(&(struct pollfd){ set, POLLIN, 0 }, 1, 0));
    must("write", write(pair[0], "polled", 6) == 6);
    say("polled", poll(&(struct pollfd){ set, POLLIN, 0 }, 1, 10000));
    takes(pair[1]);
    close(outer);
    done(set, pair);
}

/* Half-closed and full: what is told, and what reads and writes find. */
static void ends(void)
{
    static char much[1 << 20];
    int pair[2], set = looped(pair, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    int error = -1;
    socklen_t length = sizeof error;
    must("write", write(pair[0], "half", 4) == 4 && shutdown(pair[0], SHUT_WR) == 0);
    told("half-closed", set, 8, 0);
    takes(pair[1]);
    takes(pair[1]);
    told("read", set, 8, 0);
    must("back", write(pair[1], "back", 4) == 4 && ready(pair[0], POLLIN));
    takes(pair[0]);
    signal(SIGPIPE, SIG_IGN);
    say("write", write(pair[0], "x", 1));
    say("error", getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &length));
    say("none", error);
    done(set, pair);
    set = looped(pair, EPOLLOUT);
    long put, all = 0, got = 0;
    while ((put = write(pair[1], much, sizeof much)) > 0) all += put;
    say("full", put);
    printf("more than a ring: %d\n", all > 65536);
    told("full", set, 8, 0);
    while (got < all) {
        must("comes", ready(pair[0], POLLIN));
        long part = read(pair[0], much, sizeof much);
        must("read", part > 0);
        got += part;
    }
    told("room", set, 8, 10000);
    say("as many", got == all);
    say("empty", read(pair[0], much, 1));
    done(set, pair);
    looped(pair, EPOLLIN);
    int count = -1;
    must("write", write(pair[0], "seven ", 6) == 6);
    say("counted", ioctl(pair[1], FIONREAD, &count));
    say("bytes", count);
    char byte;
    say("peek", recv(pair[1], &byte, 1, MSG_PEEK));
    say("wait", recv(pair[1], much, 6, MSG_WAITALL));
    say("not", recv(pair[1], much, 6, MSG_DONTWAIT));
    if (strcmp(kind, "tcp") == 0) {
        int on = -1;
        length = sizeof on;
        say("no delay", getsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, &length));
        say("is", on);
        on = 0;
        say("set", setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
        on = -1;
        say("no delay", getsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, &length));
        say("is", on != 0);
    }
}

/* Two loops in two processes, with one message under way at a time: any wake-up that is lost
   stops both for good. */
static void turns(void)
{
    for (int edge = 0; edge < 2; edge++) {
        int pair[2], set = looped(pair, EPOLLIN | (edge ? EPOLLET : 0));
        pid_t child = fork();
        int own = child == 0 ? pair[0] : pair[1];
        close(child == 0 ? pair[1] : pair[0]);
        if (child == 0) {
            struct epoll_event event = { EPOLLIN | (edge ? EPOLLET : 0), { .u64 = 4 } };
            close(set);
            set = epoll_create1(0);
            must("add", epoll_ctl(set, EPOLL_CTL_ADD, own, &event) == 0);
        } else {
            must("begin", write(own, "0", 1) == 1);
        }
        unsigned seed = child == 0;
        for (int i = 0; i < ROUNDS; i++) {
            char bytes[3000];
            struct epoll_event event;
            long got;
            do {
                must("stalled", epoll_wait(set, &event, 1, 20000) == 1);
                got = read(own, bytes, sizeof bytes);
                must("take", got > 0 || errno == EAGAIN);
            } while (got <= 0);
            if (rand_r(&seed) % 16 == 0)
                for (volatile int wait = rand_r(&seed) % 20000; wait > 0; wait--) {}
            if (child == 0 || i < ROUNDS - 1) must("give", write(own, bytes, 1) == 1);
        }
        if (child == 0) _exit(0);
        int status;
        waitpid(child, &status, 0);
        say("turns", status);
        close(own);
        close(set);
    }
}

static struct polled {
    int set, over;
    sem_t events;
} polled;

static void *polls(void *unused)
{
    struct epoll_event events[4];
    (void)unused;
    do {
        must("poll", epoll_wait(polled.set, events, 4, 20000) > 0);
        sem_post(&polled.events);
    } while (!__atomic_load_n(&polled.over, __ATOMIC_SEQ_CST));
    return NULL;
}

static int came(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return sem_timedwait(&polled.events, &until) == 0;
}

/* One thread waits in the set, another one reads as soon as it has written, whether or not it has
   been told, and now and then asks the set itself: what it takes away may be what the host has
   just woken the first one for. One message at a time: a wake-up that is lost stops both. */
static void threads(void)
{
    static const unsigned masks[] = { EPOLLIN | EPOLLET,
                                      EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
    for (int part = 0; part < 2; part++) {
        int pair[2], status;
        pthread_t thread;
        unsigned seed = part + 1;
        char byte = 't';
        polled.set = looped(pair, masks[part]);
        polled.over = 0;
        sem_init(&polled.events, 0, 0);
        pid_t child = fork();
        if (child == 0) {
            close(pair[1]);
            while (ready(pair[0], POLLIN) && read(pair[0], &byte, 1) == 1) {
                for (volatile int wait = rand_r(&seed) % 8000; wait > 0; wait--) {}
                must("answer", write(pair[0], &byte, 1) == 1);
            }
            _exit(0);
        }
        close(pair[0]);
        must("thread", pthread_create(&thread, NULL, polls, NULL) == 0);
        for (int i = 0; i < ROUNDS; i++) {
            struct epoll_event event;
            must("ask", write(pair[1], &byte, 1) == 1);
            for (volatile int wait = rand_r(&seed) % 16000; wait > 0; wait--) {}
            if (i % 8 == 0) must("look", epoll_wait(polled.set, &event, 1, 0) >= 0);
            while (read(pair[1], &byte, 1) != 1) must("stalled", errno == EAGAIN && came());
        }
        __atomic_store_n(&polled.over, 1, __ATOMIC_SEQ_CST);
        must("end", shutdown(pair[1], SHUT_WR) == 0);
        pthread_join(thread, NULL);
        waitpid(child, &status, 0);
        say("threads", status);
        close(pair[1]);
        close(polled.set);
    }
}

/* Something else is asked of a socket whose bytes lie unread, while a thread sleeps in the set; and
   once, until it is asked anew. */
static void rearmed(void)
{
    static const unsigned how[] = { 0, EPOLLET, EPOLLONESHOT, EPOLLONESHOT | EPOLLET };
    for (int i = 0; i < 8; i++) {
        unsigned mode = how[i % 4];
        int early = i / 4, set = looped(writer_pair, EPOLLIN);
        struct epoll_event none = { mode, { .u64 = 5 } }, reads = { EPOLLIN | mode, { .u64 = 6 } };
        pthread_t thread;
        char byte;
        must("stop", epoll_ctl(set, EPOLL_CTL_MOD, writer_pair[1], &none) == 0);
        for (int turn = 0; turn < WARM; turn++) {
            must("write", write(writer_pair[0], "w", 1) == 1);
            must("read", read(writer_pair[1], &byte, 1) == 1);
            told("stopped", set, 8, 0);
        }
        polled.set = set;
        polled.over = 1;
        sem_init(&polled.events, 0, 0);
        if (early) must("write", write(writer_pair[0], "early", 5) == 5);
        must("thread", pthread_create(&thread, NULL, polls, NULL) == 0);
        usleep(50000);
        if (!early) must("write", write(writer_pair[0], "late", 4) == 4);
        usleep(20000);
        say("not yet", sem_trywait(&polled.events));
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, writer_pair[1], &reads));
        say("woken", came());
        pthread_join(thread, NULL);
        told("again", set, 8, 0);
        must("more", write(writer_pair[0], "more", 4) == 4);
        told("more", set, 8, 0);
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, writer_pair[1], &reads));
        told("anew", set, 8, 0);
        takes(writer_pair[1]);
        told("taken", set, 8, 0);
        say("change", epoll_ctl(set, EPOLL_CTL_MOD, writer_pair[1], &reads));
        told("nothing", set, 8, 0);
        must("end", shutdown(writer_pair[0], SHUT_WR) == 0);
        told("end", set, 8, 0);
        told("told", set, 8, 0);
        say("remove", epoll_ctl(set, EPOLL_CTL_DEL, writer_pair[1], NULL));
        done(set, writer_pair);
    }
}

static struct pool {
    int set, socket, over;
    unsigned mask;
} pool;

/* A thread of a pool: who is told reads, answers, and asks anew. */
static void *serves(void *unused)
{
    struct epoll_event event;
    static int inside;
    (void)unused;
    for (;;) {
        char byte;
        int count = epoll_wait(pool.set, &event, 1, 20000);
        if (__atomic_load_n(&pool.over, __ATOMIC_SEQ_CST)) return NULL;
        must("stalled", count == 1);
        must("one at a time", __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) == 1);
        long got = read(pool.socket, &byte, 1);
        must("bytes", got >= 0);
        if (got == 0) {
            inside = 0;
            __atomic_store_n(&pool.over, 1, __ATOMIC_SEQ_CST);
            struct epoll_event all = { EPOLLIN, { .u64 = 1 } };
            epoll_ctl(pool.set, EPOLL_CTL_MOD, pool.socket, &all);
            return NULL;
        }
        must("answer", write(pool.socket, &byte, 1) == 1);
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        event.events = pool.mask;
        must("anew", epoll_ctl(pool.set, EPOLL_CTL_MOD, pool.socket, &event) == 0);
    }
}

/* One, two and three threads share a set of one-shots; one message at a time. */
static void pools(void)
{
    static const unsigned masks[] = { EPOLLIN | EPOLLONESHOT,
                                      EPOLLIN | EPOLLRDHUP | EPOLLET | EPOLLONESHOT };
    for (int part = 0; part < 6; part++) {
        int pair[2], size = part / 2 + 1, status;
        pthread_t threads[3];
        pool.mask = masks[part % 2];
        pool.set = looped(pair, EPOLLIN);
        pool.socket = pair[1];
        pool.over = 0;
        struct epoll_event event = { pool.mask, { .u64 = 8 } };
        must("anew", epoll_ctl(pool.set, EPOLL_CTL_MOD, pair[1], &event) == 0);
        pid_t child = fork();
        if (child == 0) {
            unsigned seed = part;
            char byte = 'p';
            close(pair[1]);
            for (int i = 0; i < ROUNDS / 4; i++) {
                must("ask", write(pair[0], &byte, 1) == 1);
                must("answered", ready(pair[0], POLLIN) && read(pair[0], &byte, 1) == 1);
                for (volatile int wait = rand_r(&seed) % 8000; wait > 0; wait--) {}
            }
            _exit(0);
        }
        close(pair[0]);
        for (int i = 0; i < size; i++)
            must("thread", pthread_create(&threads[i], NULL, serves, NULL) == 0);
        for (int i = 0; i < size; i++) pthread_join(threads[i], NULL);
        waitpid(child, &status, 0);
        say("pool", status);
        close(pair[1]);
        close(pool.set);
    }
}

int main(int count, char **arguments)
{
    struct { const char *name; void (*run)(void); } kinds[] = {
        { "levels", levels }, { "changes", changes }, { "sleeps", sleeps }, { "shares", shares },
        { "ends", ends }, { "turns", turns },
        { "threads", threads }, { "rearmed", rearmed }, { "pools", pools },
    };
    must("usage", count == 2 && strchr(arguments[1], '-') != NULL);
    char *name = strchr(arguments[1], '-');
    *name++ = 0;
    kind = arguments[1];
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0) kinds[i].run();
    return 0;
}
