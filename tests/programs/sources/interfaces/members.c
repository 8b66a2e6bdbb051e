/* Sets, polls and selects of connections whose bytes may be in rings: several sets of one end,
   sets that only one of may be woken, masks of signals, and back-pressure of a small buffer. What
   a call returns is printed; Linux and Husk must print the same. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

enum { PATIENCE_MS = 20000, SETS = 5, LOOPS = 3, CLIENTS = 60, ROUNDS = 300 };

static int tcp(void) { return way[0] == 't'; }

static int ready(int fd, int events)
{
    struct pollfd entry = { fd, events, 0 };
    return poll(&entry, 1, PATIENCE_MS) == 1;
}

static void told(const char *when, int set, int time)
{
    struct epoll_event events[4];
    int count = epoll_wait(set, events, 4, time);
    printf("%s: %d", when, count);
    for (int i = 0; i < count; i++) printf(" %x/%lx", events[i].events, (long)events[i].data.u64);
    printf("\n");
    fflush(stdout);
}

/* ---- several sets of one end ---- */

static const unsigned MASKS[SETS] = {
    EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLRDHUP,
};

static void all_told(const char *when, const int *sets, int count, int time)
{
    printf("- %s\n", when);
    for (int i = 0; i < count; i++) told("set", sets[i], time);
}

/* How many of them are told at once, level and edge; one leaves, one changes, one is closed. */
static void several(void)
{
    for (int count = 1; count <= SETS; count++) {
        int pair[2], sets[SETS];
        char bytes[32];
        int on = 1; /* else Linux holds back what follows upon a byte */
        warm(pair);
        if (tcp()) must("option", setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, 4) == 0);
        printf("-- %d\n", count);
        for (int i = 0; i < count; i++) {
            struct epoll_event event = { MASKS[i], { .u64 = i } };
            sets[i] = epoll_create1(EPOLL_CLOEXEC);
            must("add", epoll_ctl(sets[i], EPOLL_CTL_ADD, pair[1], &event) == 0);
        }
        for (int i = 0; i < WARM; i++) {
            must("warm", write(pair[0], "w", 1) == 1 && ready(sets[0], POLLIN));
            must("warm", read(pair[1], bytes, 1) == 1 && write(pair[1], "v", 1) == 1);
            must("warm", read(pair[0], bytes, 1) == 1);
        }
        all_told("before", sets, count, 0);
        must("write", write(pair[0], "first", 5) == 5 && ready(pair[1], POLLIN));
        all_told("first", sets, count, 0);
        all_told("again", sets, count, 0);
        must("write", write(pair[0], "second", 6) == 6);
        usleep(1000);
        all_told("second", sets, count, 0);
        say("read", read(pair[1], bytes, sizeof bytes));
        all_told("taken", sets, count, 0);
        struct epoll_event event = { EPOLLIN, { .u64 = 99 } };
        say("change", epoll_ctl(sets[count - 1], EPOLL_CTL_MOD, pair[1], &event));
        say("leave", epoll_ctl(sets[0], EPOLL_CTL_DEL, pair[1], NULL));
        must("write", write(pair[0], "third", 5) == 5 && ready(pair[1], POLLIN));
        all_told("third", sets, count, 0);
        close(sets[count - 1]);
        must("write", write(pair[0], "fourth", 6) == 6);
        usleep(1000);
        all_told("fourth", sets, count - 1, 0);
        say("read", read(pair[1], bytes, sizeof bytes));
        must("half", shutdown(pair[0], SHUT_WR) == 0 && ready(pair[1], POLLIN));
        all_told("end", sets, count - 1, 0);
        say("back", write(pair[1], "back", 4));
        for (int i = 0; i < count - 1; i++) close(sets[i]);
        done(pair);
    }
}

static struct looper {
    int set, fd;
    long woken;
} loopers[SETS];

static void *loops(void *of)
{
    struct looper *own = of;
    struct epoll_event event;
    char byte;
    while (epoll_wait(own->set, &event, 1, PATIENCE_MS) == 1) {
        long got = recv(own->fd, &byte, 1, MSG_DONTWAIT);
        if (got == 0) return NULL;
        must("read", got == 1 || errno == EAGAIN);
        own->woken++;
        if (got == 1) must("answer", write(own->fd, &byte, 1) == 1);
    }
    must("nobody was woken", 0);
    return NULL;
}

/* Threads that sleep in sets of their own of one end, woken all or at least one: each number is
   answered by one of them. */
static void crowds(void)
{
    for (int kind = 0; kind < 3; kind++) {
        static const unsigned kinds[] = { EPOLLIN, EPOLLIN | EPOLLEXCLUSIVE, EPOLLIN | EPOLLET };
        int pair[2];
        char byte;
        pthread_t threads[LOOPS];
        warm(pair);
        for (int i = 0; i < LOOPS; i++) {
            struct epoll_event event = { kinds[kind], { .u64 = i } };
            loopers[i] = (struct looper){ epoll_create1(EPOLL_CLOEXEC), pair[1], 0 };
            must("add", epoll_ctl(loopers[i].set, EPOLL_CTL_ADD, pair[1], &event) == 0);
            must("thread", pthread_create(&threads[i], NULL, loops, &loopers[i]) == 0);
        }
        for (int i = 0; i < ROUNDS; i++) {
            if (i % 10 == 0) usleep(500);
            must("ask", write(pair[0], &i, 1) == 1 && ready(pair[0], POLLIN));
            must("answer", read(pair[0], &byte, 1) == 1 && byte == (char)i);
        }
        must("end", shutdown(pair[0], SHUT_WR) == 0);
        long woken = 0;
        for (int i = 0; i < LOOPS; i++) {
            pthread_join(threads[i], NULL);
            woken += loopers[i].woken;
            close(loopers[i].set);
        }
        say("all are answered", woken >= ROUNDS);
        done(pair);
    }
}

/* Workers that share a listener, each with a set of its own of which only one is woken; each
   connection is taken by one worker, and answered. */
static void shared(void)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof name;
    if (!tcp()) return;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), taken[2], workers[LOOPS];
    must("listen", bind(listener, (void *)&name, length) == 0 && listen(listener, 100) == 0);
    must("port", getsockname(listener, (void *)&name, &length) == 0 && pipe(taken) == 0);
    for (int i = 0; i < LOOPS; i++) {
        workers[i] = fork();
        if (workers[i] != 0) continue;
        struct epoll_event event = { EPOLLIN | EPOLLEXCLUSIVE, { .fd = listener } };
        int set = epoll_create1(EPOLL_CLOEXEC);
        must("add", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
        for (;;) {
            char bytes[16];
            must("wait", epoll_wait(set, &event, 1, PATIENCE_MS) == 1);
            if (event.data.fd == listener) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0) { must("accept", errno == EAGAIN); continue; }
                must("taken", write(taken[1], "t", 1) == 1);
                event = (struct epoll_event){ EPOLLIN | EPOLLEXCLUSIVE, { .fd = fd } };
                must("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
                errno = 0;
                event.events = EPOLLIN;
                must("no change", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == -1);
                must("no change", errno == EINVAL);
                continue;
            }
            long got = read(event.data.fd, bytes, sizeof bytes);
            must("request", got >= 0);
            if (got == 0) close(event.data.fd);
            else must("answer", write(event.data.fd, bytes, got) == got);
        }
    }
    int clients[CLIENTS], wrong = 0;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM, 0);
        must("connect", connect(clients[i], (void *)&name, length) == 0);
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < CLIENTS; i++) {
            int value = round * CLIENTS + i, back = -1;
            must("ask", write(clients[i], &value, sizeof value) == sizeof value);
            must("comes", ready(clients[i], POLLIN));
            must("answer", read(clients[i], &back, sizeof back) == sizeof back);
            wrong += back != value;
        }
    say("wrong", wrong);
    char all[CLIENTS + 1];
    usleep(20000);
    say("taken", read(taken[0], all, sizeof all));
    for (int i = 0; i < LOOPS; i++) {
        must("kill", kill(workers[i], SIGKILL) == 0);
        must("waitpid", waitpid(workers[i], NULL, 0) == workers[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        char byte;
        must("ends", ready(clients[i], POLLIN) && read(clients[i], &byte, 1) <= 0);
        close(clients[i]);
    }
    close(listener);
    done(taken);
}

/* ---- masks ---- */

static volatile int handled;

static void counts(int signal) { handled += signal == SIGALRM || signal == SIGUSR1; }

static void *later(void *of)
{
    usleep(30000);
    must("write", write(*(int *)of, "late", 4) == 4);
    return NULL;
}

enum { SELECT, PSELECT, POLL, PPOLL, PWAIT, CALLS };

static int waits(int call, int fd, int set, int time_ms, const sigset_t *mask)
{
    struct timespec span = { time_ms / 1000, time_ms % 1000 * 1000000 };
    struct timeval brief = { time_ms / 1000, time_ms % 1000 * 1000 };
    struct pollfd entry = { fd, POLLIN, 0 };
    struct epoll_event event;
    fd_set reads, errors;
    FD_ZERO(&reads);
    FD_ZERO(&errors);
    FD_SET(fd, &reads);
    FD_SET(fd, &errors);
    switch (call) {
    case SELECT: return select(fd + 1, &reads, NULL, &errors, &brief);
    case PSELECT: return pselect(fd + 1, &reads, NULL, &errors, &span, mask);
    case POLL: return poll(&entry, 1, time_ms);
    case PPOLL: return ppoll(&entry, 1, &span, mask);
    default: return epoll_pwait(set, &event, 1, time_ms, mask);
    }
}

/* A signal that is blocked but for the wait: pending before, coming during it, beside bytes. */
static void masks(void)
{
    sigset_t all, none, old;
    struct sigaction action = { .sa_handler = counts };
    sigfillset(&all);
    sigemptyset(&none);
    must("handler", sigaction(SIGALRM, &action, NULL) == 0);
    must("handler", sigaction(SIGUSR1, &action, NULL) == 0);
    for (int call = 0; call < CALLS; call++)
        for (int how = 0; how < 2; how++) {
            int pair[2], set = epoll_create1(EPOLL_CLOEXEC), masked = call & 1 || call == PWAIT;
            struct epoll_event event = { EPOLLIN, { .u64 = 3 } };
            struct itimerval in_20_ms = { .it_value = { 0, 20000 } };
            char bytes[8];
            warm(pair);
            if (how) must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
            for (int i = 0; i < 20; i++) {
                pthread_t thread;
                if (i == 0 || i % 4 == 0) {
                    must("thread", pthread_create(&thread, NULL, later, &pair[0]) == 0);
                } else {
                    must("write", write(pair[0], "here", 4) == 4);
                }
                if (call == PWAIT && !how) must("told", ready(pair[1], POLLIN));
                else must("told", waits(call, pair[1], set, PATIENCE_MS, &none) == 1);
                must("read", read(pair[1], bytes, 4) == 4);
                if (i == 0 || i % 4 == 0) pthread_join(thread, NULL);
            }
            printf("-- call %d, %d\n", call, how);
            handled = 0;
            say("time", waits(call, pair[1], set, 10, &all));
            must("mask", sigprocmask(SIG_BLOCK, &all, &old) == 0 && raise(SIGUSR1) == 0);
            if (masked) {
                say("pending", waits(call, pair[1], set, PATIENCE_MS, &none));
                say("handled", handled);
                must("timer", setitimer(ITIMER_REAL, &in_20_ms, NULL) == 0);
                say("comes", waits(call, pair[1], set, PATIENCE_MS, &none));
                say("handled", handled);
                raise(SIGUSR1);
                must("write", write(pair[0], "b", 1) == 1 && ready(pair[1], POLLIN));
                say("beside", how || call != PWAIT ? waits(call, pair[1], set, 50, &all) : 1);
                say("handled", handled);
            } else {
                say("blocked", waits(call, pair[1], set, 30, NULL));
                say("handled", handled);
                must("write", write(pair[0], "b", 1) == 1);
                say("bytes", waits(call, pair[1], set, PATIENCE_MS, NULL));
            }
            must("mask", sigprocmask(SIG_SETMASK, &old, NULL) == 0);
            say("handled", handled);
            say("read", read(pair[1], bytes, 8));
            if (call != PWAIT || how) say("none", waits(call, pair[1], set, 0, &none));
            must("half", shutdown(pair[0], SHUT_WR) == 0 && ready(pair[1], POLLIN));
            if (call != PWAIT || how) say("end", waits(call, pair[1], set, PATIENCE_MS, &none));
            close(set);
            done(pair);
        }
}

/* ---- a small buffer ---- */

/* A reader with a small buffer that does not read: the writer is told so before long, and goes on
   as soon as it reads; all bytes come, in order. */
static void buffers(void)
{
    static unsigned char bytes[4096];
    for (int when = 0; when < 2; when++) {
        int pair[2], size = tcp() ? 100000 : 4096; /* a small window of TCP takes long */
        long sent = 0, came = 0, wrong = 0, got;
        if (when) pair_of(pair); else warm(pair);
        must("size", setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
        size = -1;
        must("size", getsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &size, &(socklen_t){ 4 }) == 0);
        say("size", size);
        for (int side = 0; side < 2; side++)
            must("flags", fcntl(pair[side], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
        for (int turn = 0; turn < 4; turn++) {
            while (sent < 64 << 20) {
                for (int i = 0; i < 4096; i++) bytes[i] = (sent + i) % 251;
                got = write(pair[0], bytes, sizeof bytes);
                if (got < 0) break;
                sent += got;
            }
            say("full", got);
            say("no room", poll(&(struct pollfd){ pair[0], POLLOUT, 0 }, 1, 20));
            while (came < sent) {
                must("comes", ready(pair[1], POLLIN));
                must("read", (got = read(pair[1], bytes, sizeof bytes)) > 0);
                for (long i = 0; i < got; i++) wrong += bytes[i] != (came + i) % 251;
                came += got;
            }
            say("room", ready(pair[0], POLLOUT));
            say("empty", read(pair[1], bytes, 1));
        }
        say("wrong", wrong);
        say("bounded", sent < 64 << 20);
        done(pair);
    }
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "several", several }, { "crowds", crowds }, { "shared", shared }, { "masks", masks },
        { "buffers", buffers },
    };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
