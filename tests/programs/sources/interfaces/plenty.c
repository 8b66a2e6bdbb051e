/* Connections where something is short: more than there are rings for, no room in the image, as
   many descriptors as a process may have, a side that is stopped for seconds, a peer that never
   reads. Every byte is checked. What a call returns is printed; Linux and Husk must print the
   same. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { CONNECTIONS = 700, EACH = 900, PATIENCE_MS = 20000, ALL = 400000, FILLED = 64 << 20 };

static int tcp(void) { return way[0] == 't'; }

static unsigned char byte_of(int connection, int side, long at)
{
    return connection * 7 + side * 101 + at % 251;
}

static void fill(unsigned char *bytes, int connection, int side, long from, long count)
{
    for (long i = 0; i < count; i++) bytes[i] = byte_of(connection, side, from + i);
}

/* Takes so many bytes of what a side has written; how many are wrong. */
static long take(int fd, int connection, int side, long from, long count)
{
    unsigned char bytes[4096];
    long wrong = 0, got;
    for (long at = 0; at < count; at += got) {
        long most = count - at < 4096 ? count - at : 4096;
        struct pollfd entry = { fd, POLLIN, 0 };
        must("comes", poll(&entry, 1, PATIENCE_MS) == 1);
        must("read", (got = read(fd, bytes, most)) > 0);
        for (long i = 0; i < got; i++)
            wrong += bytes[i] != byte_of(connection, side, from + at + i);
    }
    return wrong;
}

static void put_all(int fd, int connection, int side, long from, long count)
{
    unsigned char bytes[4096];
    for (long at = 0, put; at < count; at += put) {
        long most = count - at < 4096 ? count - at : 4096;
        fill(bytes, connection, side, from + at, most);
        must("write", (put = write(fd, bytes, most)) > 0);
    }
}

static int pairs[CONNECTIONS][2];

/* All at once, with bytes unread on both ways; then every second one is made anew. */
static void many(int count)
{
    long wrong = 0;
    struct rlimit files;
    must("limit", getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    must("limit", setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max > 2 * CONNECTIONS + 50);
    for (int n = 0; n < count; n++) warm(pairs[n]);
    for (int round = 0; round < 3; round++) {
        for (int n = 0; n < count; n++)
            for (int side = 0; side < 2; side++) put_all(pairs[n][side], n, side, 0, EACH);
        for (int n = 0; n < count; n++)
            for (int side = 0; side < 2; side++)
                wrong += take(pairs[n][1 - side], n, side, 0, EACH);
        for (int n = round; n < count; n += 2) {
            char byte;
            done(pairs[n]);
            warm(pairs[n]);
            must("empty", recv(pairs[n][0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
        }
    }
    say("wrong", wrong);
    int set = epoll_create1(0);
    for (int n = 0; n < count; n++) {
        struct epoll_event event = { EPOLLIN | EPOLLRDHUP, { .u64 = n } };
        must("add", epoll_ctl(set, EPOLL_CTL_ADD, pairs[n][1], &event) == 0);
    }
    for (int n = 0; n < count; n++) put_all(pairs[n][0], n, 0, 0, 1 + n % 50);
    for (int left = count; left > 0; ) {
        struct epoll_event event;
        must("told", epoll_wait(set, &event, 1, PATIENCE_MS) == 1);
        int n = event.data.u64;
        wrong += take(pairs[n][1], n, 0, 0, 1 + n % 50);
        must("leave", epoll_ctl(set, EPOLL_CTL_DEL, pairs[n][1], NULL) == 0);
        left--;
    }
    say("wrong", wrong);
    for (int n = 0; n < count; n++) done(pairs[n]);
    close(set);
}

static void rings(void) { many(CONNECTIONS); }

/* The same of fewer, where a file has all the room there is. */
static void room(void)
{
    static char zeros[1 << 16];
    int file = open("file", O_RDWR | O_CREAT, 0600);
    must("file", file >= 0);
    for (long at = 0; at < FILLED; at += sizeof zeros)
        if (write(file, zeros, sizeof zeros) < (long)sizeof zeros) break;
    many(60);
    must("remove", unlink("file") == 0);
    close(file);
    many(20);
}

/* A server that has as many descriptors as it may: accept says so, the connection waits, and is
   served as soon as another one has ended; those that are there work meanwhile. */
static void numbers(void)
{
    struct sockaddr_in port = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "numbers" };
    struct sockaddr *to = tcp() ? (void *)&port : (void *)&name;
    socklen_t length = tcp() ? sizeof port : sizeof name;
    int family = tcp() ? AF_INET : AF_UNIX, clients[90], go[2];
    if (way[0] == 'p') return;
    int listener = socket(family, SOCK_STREAM, 0);
    must("listen", bind(listener, to, length) == 0 && listen(listener, 128) == 0);
    must("port", !tcp() || getsockname(listener, to, &length) == 0);
    must("pipe", pipe(go) == 0);
    pid_t server = fork();
    if (server == 0) {
        struct rlimit few = { 70, 70 };
        int ends[90], count = 0;
        must("limit", setrlimit(RLIMIT_NOFILE, &few) == 0);
        while (count < 90 && (ends[count] = accept(listener, NULL, NULL)) >= 0) count++;
        say("accept", ends[count]);
        must("some", count > 30 && count < 70);
        say("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, &ends[80]));
        say("again", accept(listener, NULL, NULL));
        must("go", write(go[1], &count, sizeof count) == sizeof count);
        for (int i = 0; i < 90; i++) {
            unsigned char bytes[EACH];
            struct pollfd entry = { ends[i], POLLIN, 0 };
            must("comes", poll(&entry, 1, PATIENCE_MS) == 1);
            must("whole", recv(ends[i], bytes, EACH, MSG_WAITALL) == EACH);
            must("back", write(ends[i], bytes, EACH) == EACH);
            close(ends[i]);
            if (count < 90) must("next", (ends[count] = accept(listener, NULL, NULL)) >= 0);
            if (count < 90) count++;
        }
        _exit(0);
    }
    close(listener);
    for (int i = 0; i < 90; i++) {
        clients[i] = socket(family, SOCK_STREAM, 0);
        must("connect", connect(clients[i], to, length) == 0);
    }
    int count;
    long wrong = 0;
    must("go", read(go[0], &count, sizeof count) == sizeof count);
    for (int i = 0; i < 90; i++) put_all(clients[i], i, 0, 0, EACH);
    for (int i = 0; i < 90; i++) {
        char byte;
        wrong += take(clients[i], i, 0, 0, EACH);
        must("end", read(clients[i], &byte, 1) == 0);
        close(clients[i]);
    }
    say("wrong", wrong);
    ended(server);
    unlink("numbers");
    done(go);
}

/* ---- stopped for seconds ---- */

static void stop(pid_t child, int on)
{
    int status;
    must("signal", kill(child, on ? SIGSTOP : SIGCONT) == 0);
    if (on)
        must("stopped", waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    else
        must("goes on", waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
}

/* Another connection works meanwhile. */
static void beside(int other[2], int seconds)
{
    char byte;
    for (long end = now_ms() + seconds * 1000; now_ms() < end; usleep(1000))
        for (int side = 0; side < 2; side++)
            must("beside", write(other[side], "b", 1) == 1 && read(other[1 - side], &byte, 1) == 1);
}

/* One end is stopped: a reader that sleeps, or has bytes before it; a writer that has bytes in the
   connection, or waits for room. Nothing is lost, and nobody else waits. */
static void pauses(void)
{
    int seconds = getenv("PAUSE_S") ? atoi(getenv("PAUSE_S")) : 2, other[2];
    warm(other);
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        int pair[2];
        warm(pair);
        pid_t child = fork();
        if (child == 0) {
            close(pair[0]);
            if (!sleeps) usleep(20000);
            _exit(take(pair[1], 1, 0, 0, ALL) != 0);
        }
        close(pair[1]);
        if (sleeps) usleep(20000);
        stop(child, 1);
        must("flags", fcntl(pair[0], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
        unsigned char bytes[1000];
        long at = 0, put;
        for (; at < ALL; at += put) {
            long most = ALL - at < 1000 ? ALL - at : 1000;
            fill(bytes, 1, 0, at, most);
            if ((put = write(pair[0], bytes, most)) < 0) break;
        }
        say("some are there", at >= 32768);
        beside(other, seconds);
        say("nothing comes", recv(pair[0], bytes, 1, MSG_DONTWAIT));
        stop(child, 0);
        must("flags", fcntl(pair[0], F_SETFL, O_RDWR) == 0);
        put_all(pair[0], 1, 0, at, ALL - at);
        ended(child);
        say("end", read(pair[0], bytes, 1));
        close(pair[0]);
    }
    for (int full = 0; full < 2; full++) {
        int pair[2], ready[2], set = epoll_create1(0);
        struct epoll_event event = { EPOLLIN, { .u64 = 5 } };
        must("pipe", pipe(ready) == 0);
        warm(pair);
        must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(pair[1]);
            long first = full ? 10000 : 5000;
            put_all(pair[0], 2, 0, 0, first);
            must("ready", write(ready[1], "r", 1) == 1);
            if (full) put_all(pair[0], 2, 0, first, ALL * 20 - first);
            char byte;
            _exit(read(pair[0], &byte, 1) != 1);
        }
        close(pair[0]);
        char byte;
        must("ready", read(ready[0], &byte, 1) == 1);
        usleep(full ? 100000 : 20000);
        stop(child, 1);
        say("wrong", take(pair[1], 2, 0, 0, 5000));
        if (!full) say("no more", epoll_wait(set, &event, 1, 20));
        else say("more", epoll_wait(set, &event, 1, PATIENCE_MS));
        beside(other, seconds);
        stop(child, 0);
        if (full) say("wrong", take(pair[1], 2, 0, 5000, ALL * 20 - 5000));
        must("last", write(pair[1], "l", 1) == 1);
        ended(child);
        say("told", epoll_wait(set, &event, 1, PATIENCE_MS));
        close(pair[1]);
        close(set);
        close(ready[0]);
        close(ready[1]);
    }
    done(other);
}

/* A peer that never reads: the writer is told that there is no room, by each call, as often as it
   asks; who leaves such a connection does not wait; a third connection works. */
static void unread(void)
{
    int pair[2], other[2];
    static unsigned char bytes[10000];
    char byte;
    signal(SIGPIPE, SIG_IGN);
    warm(pair);
    warm(other);
    must("flags", fcntl(pair[0], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
    long sent = 0, put;
    /* TCP moves what is there on, and takes a little more. */
    for (int quiet = 0; quiet < 50; usleep(quiet > 0 ? 1000 : 0))
        for (quiet++; (put = write(pair[0], bytes, sizeof bytes)) > 0; quiet = 0) sent += put;
    say("full", put);
    say("bounded", sent < 64 << 20);
    say("send", send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT));
    say("writev", writev(pair[0], &(struct iovec){ bytes, sizeof bytes }, 1));
    say("poll", poll(&(struct pollfd){ pair[0], POLLOUT, 0 }, 1, 30));
    int set = epoll_create1(0);
    struct epoll_event event = { EPOLLOUT | EPOLLET, { .u64 = 1 } };
    must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0);
    say("epoll", epoll_wait(set, &event, 1, 30));
    for (int i = 0; i < 100; i++)
        must("third", write(other[0], "t", 1) == 1 && read(other[1], &byte, 1) == 1);
    say("the other way", write(pair[1], "back", 4));
    say("comes", poll(&(struct pollfd){ pair[0], POLLIN, 0 }, 1, PATIENCE_MS));
    say("back", read(pair[0], bytes, 10));
    close(pair[1]);
    say("gone", poll(&(struct pollfd){ pair[0], POLLIN, 0 }, 1, PATIENCE_MS));
    if (!tcp()) {
        say("read", read(pair[0], bytes, 10));
        say("write", write(pair[0], "x", 1));
    }
    say("told", epoll_wait(set, &event, 1, PATIENCE_MS) > 0);
    close(set);
    close(pair[0]);
    done(other);
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "rings", rings }, { "room", room }, { "numbers", numbers }, { "pauses", pauses }, { "unread", unread },
    };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
