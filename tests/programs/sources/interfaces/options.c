/* What options, ends and flags make of connections whose bytes may be anywhere. What a call returns
   is printed; Linux and Husk must print the same. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>

/* What comes to the host takes a moment there. */
static int events(int fd, int asked, int wanted)
{
    struct pollfd entry = { fd, asked, 0 };
    for (int look = 0; look < 200; look++) {
        must("poll", poll(&entry, 1, 0) >= 0);
        if ((entry.revents & wanted) == wanted) break;
        usleep(1000);
    }
    return entry.revents;
}

static int error_of(int fd)
{
    int error = -1;
    socklen_t length = sizeof error;
    must("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

/* How an end comes: with bytes before it, as a reset or not; and what is told after that. */
static void resets(void)
{
    for (int how = 0; how < 6; how++) {
        int pair[2];
        char bytes[100];
        if (how == 4 && way[0] == 't') continue; /* docs/caveats.md */
        struct linger now = { 1, 0 };
        warm(pair);
        printf("-- %d\n", how);
        if (how & 1)
            must("linger", setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        if (how & 2) must("ahead", write(pair[0], "ahead", 5) == 5);
        if (how & 4) must("unread", write(pair[1], "unread", 6) == 6);
        if (how & 4) usleep(1000);
        close(pair[0]);
        int told = events(pair[1], POLLIN | POLLRDHUP, POLLIN | POLLRDHUP);
        say("in", told & POLLIN);
        say("ended", (told & POLLRDHUP) != 0);
        if (way[0] == 't') say("error", (told & POLLERR) != 0);
        if (how % 2 == 0 || how & 2) say("read", read(pair[1], bytes, 100));
        say("read", read(pair[1], bytes, 100));
        say("read", read(pair[1], bytes, 100));
        say("error", error_of(pair[1]));
        signal(SIGPIPE, SIG_IGN);
        say("write", write(pair[1], "x", 1));
        usleep(2000);
        say("write", write(pair[1], "x", 1));
        say("read", read(pair[1], bytes, 100));
        close(pair[1]);
    }
}

static void asked_error(void)
{
    int pair[2];
    struct linger now = { 1, 0 };
    char bytes[10];
    warm(pair);
    must("linger", setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(pair[0]);
    events(pair[1], POLLIN | POLLRDHUP, POLLIN | POLLRDHUP);
    say("error", error_of(pair[1]));
    say("told once", error_of(pair[1]));
    say("read", read(pair[1], bytes, 10));
    close(pair[1]);
}

static void halves(void)
{
    for (int turn = 0; turn < 2; turn++) {
        int pair[2];
        char bytes[100];
        signal(SIGPIPE, SIG_IGN);
        warm(pair);
        must("write", write(pair[0], "last", 4) == 4 && write(pair[1], "other", 5) == 5);
        say("half", shutdown(pair[turn], SHUT_WR));
        say("ended", events(pair[1 - turn], POLLRDHUP, POLLRDHUP));
        say("no more", write(pair[turn], "x", 1));
        say("the other way", write(pair[1 - turn], "more", 4));
        usleep(1000);
        say("read", recv(pair[turn], bytes, 100, MSG_WAITALL | MSG_DONTWAIT));
        say("read", read(pair[1 - turn], bytes, 100));
        say("end", read(pair[1 - turn], bytes, 100));
        say("both", shutdown(pair[1 - turn], SHUT_WR));
        say("hung up", events(pair[turn], POLLRDHUP, POLLHUP | POLLRDHUP));
        say("end", read(pair[turn], bytes, 100));
        say("again", shutdown(pair[turn], SHUT_RDWR));
        done(pair);
        warm(pair);
        must("write", write(pair[0], "there", 5) == 5);
        say("no reading", shutdown(pair[1], SHUT_RD));
        say("what was there", recv(pair[1], bytes, 100, MSG_DONTWAIT));
        say("end", recv(pair[1], bytes, 100, MSG_DONTWAIT));
        done(pair);
    }
}

static void marks(void)
{
    int pair[2], mark = -1, least = 10;
    char bytes[100];
    warm(pair);
    must("write", write(pair[0], "before", 6) == 6);
    say("urgent", send(pair[0], "!?", 2, MSG_OOB));
    must("write", write(pair[0], "after", 5) == 5);
    say("told", events(pair[1], POLLPRI | POLLIN, POLLPRI | POLLIN));
    usleep(2000);
    say("taken", recv(pair[1], bytes, 100, MSG_OOB));
    say("it", bytes[0]);
    say("up to it", read(pair[1], bytes, 100));
    say("mark", ioctl(pair[1], SIOCATMARK, &mark));
    say("there", mark);
    say("rest", read(pair[1], bytes, 100));
    say("none", recv(pair[1], bytes, 100, MSG_OOB | MSG_DONTWAIT));
    done(pair);
    warm(pair);
    must("write", write(pair[0], "four", 4) == 4);
    say("least", setsockopt(pair[1], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least));
    usleep(1000);
    say("told", events(pair[1], POLLIN, 0));
    must("write", write(pair[0], "and more", 8) == 8);
    say("told", events(pair[1], POLLIN, POLLIN));
    say("read", read(pair[1], bytes, 100));
    done(pair);
    warm(pair);
    must("write", write(pair[0], "0123456789", 10) == 10);
    say("dropped", recv(pair[1], way[0] == 't' ? NULL : bytes, 4, MSG_TRUNC));
    say("peek", recv(pair[1], bytes, 3, MSG_PEEK));
    say("peek", recv(pair[1], bytes, 100, MSG_PEEK | MSG_DONTWAIT));
    say("all", recv(pair[1], bytes, 6, MSG_WAITALL));
    say("none", recv(pair[1], bytes, 6, MSG_DONTWAIT));
    done(pair);
}

/* A writer meets a reader that never reads; what it was told to have written comes. */
static void pressure(void)
{
    /* TCP with a small window takes too long. */
    for (int kind = 0; kind < (way[0] == 't' ? 2 : 3); kind++) {
        int pair[2], size = 8192;
        static char bytes[4096];
        struct timeval span = { 0, 15000 };
        struct timespec begun, ended;
        long sent = 0, came = 0, got;
        warm(pair);
        if (kind == 1)
            must("size", setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
        if (kind == 2)
            must("size", setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
        must("limit", setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span) == 0);
        for (;;) {
            clock_gettime(CLOCK_MONOTONIC, &begun);
            got = send(pair[0], bytes, sizeof bytes, MSG_NOSIGNAL);
            if (got <= 0) break;
            sent += got;
            must("bounded", sent < 64 << 20);
        }
        say("full", got);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        long ns = (ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec;
        say("waited", ns >= 14000000);
        /* A late ACK may make room in a small buffer of TCP, on Linux as well. */
        if (way[0] != 't' || kind == 0)
            say("no room", events(pair[0], POLLOUT, 0) & POLLOUT);
        close(pair[0]);
        while ((got = read(pair[1], bytes, sizeof bytes)) > 0) came += got;
        say("all", came == sent);
        close(pair[1]);
    }
}

/* A reader, or a writer, is stopped in the middle of what it does, again and again: what is told
   meanwhile are bytes, and afterwards all have come, in their order. */
static void stops(void)
{
    enum { ALL = 400000, STOPS = 12 };
    for (int stopped = 0; stopped < 2; stopped++) {
        int pair[2], end[2], status;
        static unsigned char bytes[5000];
        long sent = 0, came = 0, wrong = 0, got;
        warm(pair);
        must("pipe", pipe(end) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(end[1]);
            for (long at = 0; stopped == 0 && at < ALL; at += got) {
                for (int i = 0; i < 700; i++) bytes[i] = (at + i) % 251;
                got = write(pair[0], bytes, ALL - at < 700 ? ALL - at : 700);
                must("write", got > 0);
            }
            while (stopped == 1 && came < ALL && (got = read(pair[0], bytes, 900)) > 0)
                for (long i = 0; i < got; i++) wrong += bytes[i] != came++ % 251;
            must("end", read(end[0], bytes, 1) == 0);
            _exit(wrong ? 1 : stopped == 0 || came == ALL ? 0 : 2);
        }
        for (int stop = 0; came < ALL && sent < ALL; ) {
            long moved = stopped == 0 ? came : sent;
            if (stop < STOPS && moved >= stop * (ALL / STOPS)) {
                stop++;
                must("stop", kill(child, SIGSTOP) == 0);
                must("stopped", waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
                for (int i = 0; i < 8; i++) {
                    if (stopped == 0) got = recv(pair[1], bytes, 900, MSG_DONTWAIT);
                    else got = send(pair[1], NULL, 0, MSG_DONTWAIT);
                    for (long i = 0; stopped == 0 && i < got; i++) wrong += bytes[i] != came++ % 251;
                    usleep(1000);
                }
                must("goes on", kill(child, SIGCONT) == 0);
            }
            if (stopped == 0) {
                got = read(pair[1], bytes, 900);
                must("read", got > 0);
                for (long i = 0; i < got; i++) wrong += bytes[i] != came++ % 251;
            } else {
                for (int i = 0; i < 700; i++) bytes[i] = (sent + i) % 251;
                got = write(pair[1], bytes, ALL - sent < 700 ? ALL - sent : 700);
                must("write", got > 0);
                sent += got;
            }
        }
        say("all", stopped == 0 ? came : sent);
        say("wrong", wrong);
        close(end[1]);
        must("wait", waitpid(child, &status, 0) == child);
        say("child", status);
        done(pair);
        close(end[0]);
    }
}

/* recvmmsg of what waits in a ring, of what comes meanwhile, and of both. */
static void messages(void)
{
    for (int how = 0; how < 4; how++) {
        int pair[2], status;
        char bytes[4][8];
        struct iovec places[4];
        struct mmsghdr all[4];
        struct timespec limit = { 5, 0 };
        memset(all, 0, sizeof all);
        for (int i = 0; i < 4; i++) {
            places[i] = (struct iovec){ bytes[i], i + 2 };
            all[i].msg_hdr = (struct msghdr){ .msg_iov = &places[i], .msg_iovlen = 1 };
        }
        warm(pair);
        if (how != 1) must("ahead", write(pair[0], "abcdefghijk", how == 3 ? 14 - 3 : 5) > 0);
        pid_t child = fork();
        if (child == 0) {
            usleep(5000);
            if (how == 1 || how == 2) must("later", write(pair[0], "lmnopqrstuvwxyz", 14) == 14);
            _exit(0);
        }
        if (how == 2) {
            must("wait", waitpid(child, &status, 0) == child);
            /* TCP sends it when the first bytes are acknowledged. */
            for (int there = 0, tries = 0; there < 19; usleep(1000))
                must("there", tries++ < 5000 && ioctl(pair[1], FIONREAD, &there) == 0);
        }
        int flags = how == 1 ? MSG_WAITFORONE : MSG_DONTWAIT;
        int got = recvmmsg(pair[1], all, 4, flags, &limit), sum = 0;
        say("messages", got);
        for (int i = 0; i < got; i++) {
            printf("%.*s", (int)all[i].msg_len, bytes[i]);
            sum += all[i].msg_len;
        }
        printf(" %d\n", sum);
        say("again", recvmmsg(pair[1], all, 4, MSG_DONTWAIT, NULL));
        must("behind", write(pair[0], "!", 1) == 1 && read(pair[1], bytes[0], 1) == 1);
        say("behind", bytes[0][0]);
        if (how != 2) must("wait", waitpid(child, &status, 0) == child);
        done(pair);
    }
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "resets", resets }, { "error", asked_error }, { "halves", halves }, { "marks", marks },
        { "pressure", pressure }, { "stops", stops }, { "messages", messages },
    };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
