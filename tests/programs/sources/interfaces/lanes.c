/* Socket pairs, and sockets connected by name, whose bytes may be anywhere: both sides first hand
   some over while both are awake, then leave some unread, and then something happens to the pair
   that lets others look, ends it, or waits for it. What a call returns is printed; Linux and Husk
   must print the same. One program, for all its parts make and warm their pairs alike. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>

enum { WARM = 60, MUCH = 1 << 20 };

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

static int by_name; /* pairs are made by connecting */
static int by_tcp;  /* over 127.0.0.1 */

static void tcp_pair(int pair[2])
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    must("listen", bind(listener, (void *)&name, length) == 0 && listen(listener, 5) == 0);
    must("port", getsockname(listener, (void *)&name, &length) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    must("connect", connect(pair[0], (void *)&name, length) == 0);
    pair[1] = accept(listener, NULL, NULL);
    must("accept", pair[1] >= 0);
    for (int side = 0; side < 2; side++)
        must("no delay", setsockopt(pair[side], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    close(listener);
}

static void pair_of(int pair[2], int kind)
{
    static int count;
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    if (by_tcp && kind == SOCK_STREAM) {
        tcp_pair(pair);
        return;
    }
    if (!by_name || kind != SOCK_STREAM) {
        must("socketpair", socketpair(AF_UNIX, kind, 0, pair) == 0);
        return;
    }
    snprintf(name.sun_path, sizeof name.sun_path, "name.%07d.%04d", (int)getpid(), count++);
    int listener = socket(AF_UNIX, kind, 0);
    must("bind", bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 5) == 0);
    pair[0] = socket(AF_UNIX, kind, 0);
    must("connect", connect(pair[0], (void *)&name, sizeof name) == 0);
    pair[1] = accept(listener, NULL, NULL);
    must("accept", pair[1] >= 0 && unlink(name.sun_path) == 0);
    close(listener);
    if (count % 2) { /* either may be the one that was accepted */
        int accepted = pair[1];
        pair[1] = pair[0];
        pair[0] = accepted;
    }
}

/* A pair both ways of which have been used, and are empty. */
static void warm(int pair[2])
{
    char byte = 'w';
    pair_of(pair, SOCK_STREAM);
    for (int i = 0; i < WARM; i++)
        for (int side = 0; side < 2; side++)
            must("warm", write(pair[side], &byte, 1) == 1 && read(pair[1 - side], &byte, 1) == 1);
}

/* The same with seven bytes for the second side. */
static void unread(int pair[2])
{
    warm(pair);
    must("unread", write(pair[0], "pending", 7) == 7);
}

static void done(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

static void drain(int fd)
{
    char bytes[100];
    long got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    say("drain", got);
    if (got > 0) printf("%.*s\n", (int)got, bytes);
    say("empty", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
}

/* ---- every way to move bytes ---- */

static void ways(void)
{
    int pair[2], count = 0;
    char bytes[100] = { 0 };
    struct iovec two[2] = { { bytes, 3 }, { bytes + 10, 20 } };
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2, .msg_flags = -1 };
    struct mmsghdr several[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    for (int way = 0; way < 12; way++) {
        unread(pair);
        say("readable", ioctl(pair[1], FIONREAD, &count));
        say("so many", count);
        say("of the other", ioctl(pair[0], FIONREAD, &count));
        say("so many", count);
        say("not read by it", ioctl(pair[0], SIOCOUTQ, &count));
        if (!by_tcp) say("some", count > 0); /* TCP's wait to be acknowledged for a moment */
        switch (way) {
        case 0: say("read", read(pair[1], bytes, 4)); break;
        case 1: say("readv", readv(pair[1], two, 2)); break;
        case 2: say("recv", recv(pair[1], bytes, 100, 0)); break;
        case 3: say("peek", recv(pair[1], bytes, 100, MSG_PEEK)); break;
        case 4: say("all", recv(pair[1], bytes, 7, MSG_WAITALL)); break;
        case 5:
            say("recvmsg", recvmsg(pair[1], &message, 0));
            say("flags", message.msg_flags);
            break;
        case 6:
            say("recvfrom", recvfrom(pair[1], bytes, 100, 0, (void *)&name, &length));
            say("length", length);
            break;
        case 7: say("recvmmsg", recvmmsg(pair[1], several, 2, MSG_DONTWAIT, NULL)); break;
        case 8: say("preadv2", preadv2(pair[1], two, 2, -1, 0)); break;
        case 9: say("truncating", recv(pair[1], bytes, 2, MSG_TRUNC)); break;
        case 10: say("nothing", read(pair[1], bytes, 0)); break;
        case 11: say("urgent", recv(pair[1], bytes, 1, MSG_OOB)); break;
        }
        drain(pair[1]);
        printf("%.3s %.20s\n", bytes, bytes + 10);
        done(pair);
    }
}

static void sends(void)
{
    int pair[2], pipes[2], null = open("/proc/self/comm", O_RDONLY);
    struct iovec two[2] = { { "one", 3 }, { "two", 3 } };
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };
    struct mmsghdr several[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
    for (int way = 0; way < 9; way++) {
        unread(pair);
        switch (way) {
        case 0: say("write", write(pair[0], "more", 4)); break;
        case 1: say("writev", writev(pair[0], two, 2)); break;
        case 2: say("send", send(pair[0], "more", 4, MSG_NOSIGNAL)); break;
        case 3: say("sendmsg", sendmsg(pair[0], &message, 0)); break;
        case 4: say("sendmmsg", sendmmsg(pair[0], several, 2, 0)); break;
        case 5:
            must("pipe", pipe(pipes) == 0 && write(pipes[1], "spliced", 7) == 7);
            say("splice", splice(pipes[0], NULL, pair[0], NULL, 7, 0));
            done(pipes);
            break;
        case 6: say("to a name", sendto(pair[0], "x", 1, 0, (void *)"\1\0x", 3)); break;
        case 7: say("sendfile", sendfile(pair[0], null, NULL, 3)); break;
        case 8: say("nothing", send(pair[0], "", 0, 0)); break;
        }
        drain(pair[1]);
        done(pair);
    }
    for (int kind = 0; kind < 2; kind++) {
        pair_of(pair, kind ? SOCK_DGRAM : SOCK_SEQPACKET);
        for (int i = 0; i < WARM; i++) must("send", send(pair[0], "abc", i % 4, 0) == i % 4);
        for (int i = 0; i < 6; i++) {
            char bytes[10];
            say("packet", recv(pair[1], bytes, 2, 0));
        }
        done(pair);
    }
}

/* ---- waiting ---- */

static void looks(int fd, int set, const char *when)
{
    struct pollfd entry = { fd, POLLIN | POLLOUT | POLLRDHUP, 0 };
    struct epoll_event events[2];
    struct timeval none = { 0, 0 };
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    printf("%s: ", when);
    printf("poll %d %x ", poll(&entry, 1, 0), entry.revents);
    printf("select %d ", select(fd + 1, &reads, NULL, NULL, &none));
    int found = set < 0 ? 0 : epoll_wait(set, events, 2, 0);
    printf("epoll %d %x\n", found, found ? events[0].events : 0);
    fflush(stdout);
}

static void sets(void)
{
    int pair[2];
    unsigned kinds[] = { EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLOUT,
                         EPOLLOUT, EPOLLIN | EPOLLEXCLUSIVE };
    for (unsigned kind = 0; kind < 6; kind++)
        for (int after = 0; after < 3; after++) {
            int set = epoll_create1(0);
            struct epoll_event event = { kinds[kind], { .u64 = 5 } };
            unread(pair);
            if (after == 1) drain(pair[1]);
            say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));
            looks(pair[1], set, "added");
            looks(pair[1], set, "again");
            must("write", write(pair[0], "x", 1) == 1);
            looks(pair[1], set, "written");
            drain(pair[1]);
            looks(pair[1], set, "drained");
            if (after == 2) {
                say("modify", epoll_ctl(set, EPOLL_CTL_MOD, pair[1], &event));
                say("delete", epoll_ctl(set, EPOLL_CTL_DEL, pair[1], NULL));
                for (int i = 0; i < WARM; i++) must("write", write(pair[0], "y", 1) == 1);
                drain(pair[1]);
                must("write", write(pair[0], "z", 1) == 1);
                say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));
            }
            shutdown(pair[0], SHUT_WR);
            looks(pair[1], set, "no more");
            drain(pair[1]);
            close(pair[0]);
            looks(pair[1], set, "gone");
            close(pair[1]);
            close(set);
        }
}

static void *later(void *of)
{
    int *pair = of;
    struct timespec span = { 0, 3000000 };
    nanosleep(&span, NULL);
    must("write", write(pair[0], "late", 4) == 4);
    return NULL;
}

/* Each way to wait for a byte that comes later. */
static void sleeps(void)
{
    int pair[2];
    for (int way = 0; way < 5; way++) {
        pthread_t thread;
        char bytes[10];
        struct epoll_event event = { EPOLLIN, { 0 } };
        fd_set reads;
        int set = epoll_create1(0);
        warm(pair);
        must("thread", pthread_create(&thread, NULL, later, pair) == 0);
        struct pollfd entry = { pair[1], POLLIN, 0 };
        FD_ZERO(&reads);
        FD_SET(pair[1], &reads);
        switch (way) {
        case 0: say("read", read(pair[1], bytes, 10)); break;
        case 1: say("poll", poll(&entry, 1, 5000)); break;
        case 2: say("select", select(pair[1] + 1, &reads, NULL, NULL, NULL)); break;
        case 3:
            must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
            say("epoll", epoll_wait(set, &event, 1, 5000));
            break;
        case 4: say("all", recv(pair[1], bytes, 4, MSG_WAITALL)); break;
        }
        pthread_join(thread, NULL);
        drain(pair[1]);
        for (int i = 0; i < WARM; i++)
            must("again", write(pair[0], "a", 1) == 1 && read(pair[1], bytes, 1) == 1);
        done(pair);
        close(set);
    }
}

static void alarmed(int signal) { (void)signal; }

/* A read with a limit waits that long; in a set, too. */
static void limits(void)
{
    for (int in_set = 0; in_set < 2; in_set++) {
        int pair[2], set = epoll_create1(0);
        struct epoll_event event = { EPOLLIN, { 0 } };
        struct timeval span = { 0, 15000 };
        struct timespec begun, ended;
        char bytes[10];
        warm(pair);
        if (in_set) must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
        for (int i = 0; i < WARM; i++)
            must("again", write(pair[0], "a", 1) == 1 && read(pair[1], bytes, 1) == 1);
        must("limit", setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span) == 0);
        clock_gettime(CLOCK_MONOTONIC, &begun);
        say("in vain", recv(pair[1], bytes, 10, 0));
        clock_gettime(CLOCK_MONOTONIC, &ended);
        long ns = (ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec;
        say("waited", ns >= 14000000);
        done(pair);
        close(set);
    }
}

/* A reader that asks, finds nothing, and asks again once it was told: as clients of databases. */
static void asks(void)
{
    int pair[2], status, right = 0;
    char bytes[10];
    warm(pair);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 4 * WARM; i++) {
            if (i % 40 == 0) usleep(3000);
            if (read(pair[0], bytes, 1) != 1 || write(pair[0], bytes, 1) != 1) exit(1);
        }
        exit(0);
    }
    must("flags", fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < 4 * WARM; i++) {
        struct pollfd entry = { pair[1], POLLIN, 0 };
        char sent = (char)i;
        must("ask", write(pair[1], &sent, 1) == 1);
        long got = recv(pair[1], bytes, 10, 0);
        if (got < 0) {
            must("nothing", errno == EAGAIN);
            must("told", poll(&entry, 1, 10000) == 1 && entry.revents == POLLIN);
            got = recv(pair[1], bytes, 10, 0);
        }
        right += got == 1 && bytes[0] == sent;
    }
    say("right", right);
    must("wait", waitpid(child, &status, 0) == child);
    say("child", status);
    done(pair);
}

static void times(void)
{
    int pair[2];
    char bytes[10];
    struct timeval span = { 0, 20000 }, spans = { 0, 0 };
    struct sigaction action = { .sa_handler = alarmed };
    struct itimerval timer = { { 0, 0 }, { 0, 5000 } };
    warm(pair);
    say("limit", setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    say("in vain", read(pair[1], bytes, 10));
    say("in vain", recv(pair[1], bytes, 10, 0));
    say("limit", setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &spans, sizeof spans));
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    say("interrupted", read(pair[1], bytes, 10));
    setitimer(ITIMER_REAL, &timer, NULL);
    say("interrupted", recv(pair[1], bytes, 10, 0));
    say("flags", fcntl(pair[1], F_SETFL, O_NONBLOCK));
    say("would wait", read(pair[1], bytes, 10));
    must("write", write(pair[0], "abc", 3) == 3);
    say("there", read(pair[1], bytes, 10));
    done(pair);
}

/* ---- ends ---- */

static void after_end(int fd)
{
    char bytes[20];
    int error = 0;
    socklen_t length = sizeof error;
    for (int i = 0; i < 3; i++) say("read", recv(fd, bytes, 20, MSG_DONTWAIT));
    say("write", send(fd, "x", 1, MSG_NOSIGNAL));
    say("error", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("which", error);
}

static int forked(int pair[2], void (*what)(int pair[2]))
{
    fflush(stdout);
    int child = fork();
    if (child == 0) {
        close(pair[1]);
        what(pair);
        _exit(0);
    }
    close(pair[0]);
    return child;
}

static void writes_seven(int pair[2])
{
    char byte;
    for (int i = 0; i < WARM; i++)
        must("child", read(pair[0], &byte, 1) == 1 && write(pair[0], &byte, 1) == 1);
    must("child", write(pair[0], "pending", 7) == 7);
}

static void writes_and_hangs(int pair[2])
{
    writes_seven(pair);
    for (;;) pause();
}

static void warm_with_child(int fd)
{
    char byte = 'c';
    int count = 0;
    for (int i = 0; i < WARM; i++)
        must("parent", write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
    for (int i = 0; i < 5000 && count < 7; i++) {
        ioctl(fd, FIONREAD, &count);
        usleep(1000);
    }
    say("came", count >= 7);
}

static void ends(void)
{
    int pair[2];
    for (int way = 0; way < 7; way++) {
        printf("end %d\n", way);
        unread(pair);
        switch (way) {
        case 0: close(pair[0]); break;
        case 1: say("shutdown", shutdown(pair[0], SHUT_WR)); break;
        case 2: say("shutdown", shutdown(pair[0], SHUT_RDWR)); break;
        case 3: say("shutdown", shutdown(pair[1], SHUT_RD)); break;
        case 4: say("dup2", dup2(2, pair[0])); break;
        case 5: { /* a second number keeps it open */
            int second = dup(pair[0]);
            close(pair[0]);
            drain(pair[1]);
            must("second", write(second, "second", 6) == 6);
            close(second);
            break;
        }
        case 6: close_range(pair[0], pair[0], 0); break;
        }
        looks(pair[1], -1, "end");
        after_end(pair[1]);
        if (way >= 1 && way <= 3) after_end(pair[0]);
        done(pair);
    }
    /* What is not read is told of to who has written it. */
    for (int way = 0; way < 5; way++) {
        unread(pair);
        fflush(stdout);
        int child = way < 2 ? 0 : fork();
        if (way >= 2 && child == 0) {
            close(pair[0]);
            fcntl(pair[1], F_SETFD, FD_CLOEXEC);
            if (way == 2) execlp("true", "true", NULL);
            if (way == 3) kill(getpid(), SIGKILL);
            exit(0);
        }
        if (way == 1) say("dup2", dup2(2, pair[1]));
        else close(pair[1]);
        if (way >= 2) waitpid(child, NULL, 0);
        if (way == 3) {
            after_end(pair[0]);
            done(pair);
            continue;
        }
        looks(pair[0], -1, "unread");
        after_end(pair[0]);
        done(pair);
    }
    for (int way = 0; way < 3; way++) {
        pair_of(pair, SOCK_STREAM);
        int child = forked(pair, way ? writes_and_hangs : writes_seven), set = epoll_create1(0);
        struct epoll_event event = { EPOLLIN | EPOLLRDHUP, { 0 } };
        warm_with_child(pair[1]);
        if (way == 1) kill(child, SIGKILL);
        if (way == 2) kill(child, SIGSTOP);
        if (way < 2) waitpid(child, NULL, 0);
        else waitpid(child, NULL, WUNTRACED);
        say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));
        looks(pair[1], set, "child");
        if (way == 2) drain(pair[1]);
        else after_end(pair[1]);
        if (way == 2) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            looks(pair[1], set, "killed");
            after_end(pair[1]);
        }
        close(pair[1]);
        close(set);
    }
}

/* ---- sent, shared, inherited ---- */

static void send_fd(int by, int fd, int mark)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = (char)mark;
    struct iovec one = { &byte, 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
                              .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    say("send", sendmsg(by, &message, 0));
}

static int receive_fd(int by)
{
    char control[CMSG_SPACE(sizeof(int))], byte = 0;
    struct iovec one = { &byte, 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
                              .msg_controllen = sizeof control };
    int fd = -1;
    say("receive", recvmsg(by, &message, 0));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head) memcpy(&fd, CMSG_DATA(head), sizeof fd);
    printf("mark %c %s\n", byte, fd >= 0 ? "with" : "without");
    return fd;
}

static void sent(void)
{
    int carrier[2], pair[2];
    for (int way = 0; way < 4; way++) {
        printf("sent %d\n", way);
        warm(carrier);
        unread(pair);
        /* Bytes before it stay before it. */
        must("before", write(carrier[0], "b", 1) == 1);
        send_fd(carrier[0], pair[way % 2], 'm');
        must("after", write(carrier[0], "a", 1) == 1);
        if (way >= 2) close(pair[way % 2]);
        char byte;
        must("before", read(carrier[1], &byte, 1) == 1 && byte == 'b');
        int got = receive_fd(carrier[1]);
        must("after", read(carrier[1], &byte, 1) == 1 && byte == 'a');
        if (way % 2 == 0) {
            must("through it", write(got, "more", 4) == 4);
            drain(pair[1]);
        } else {
            drain(got);
            must("back", write(got, "back", 4) == 4);
            drain(pair[0]);
        }
        close(got);
        done(pair);
        done(carrier);
    }
    /* Through the pair itself, behind bytes that nobody has read. */
    unread(pair);
    send_fd(pair[0], 1, 'n');
    char bytes[10];
    say("bytes", recv(pair[1], bytes, 7, 0));
    close(receive_fd(pair[1]));
    done(pair);
    /* What the sender says of itself. */
    int on = 1;
    unread(pair);
    say("credentials", setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    must("write", write(pair[0], "who", 3) == 3);
    for (int i = 0; i < 2; i++) {
        char control[100];
        struct iovec one = { bytes, 10 };
        struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
                                  .msg_controllen = sizeof control };
        say("recvmsg", recvmsg(pair[1], &message, MSG_DONTWAIT));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        must("told", head != NULL && head->cmsg_type == SCM_CREDENTIALS);
    }
    done(pair);
}

static void reads_two(int pair[2])
{
    char bytes[2];
    must("child", recv(pair[0], bytes, 2, MSG_WAITALL) == 2);
    printf("child %.2s\n", bytes);
    fflush(stdout);
}

static void inherited(void)
{
    int pair[2];
    for (int i = 0; i < 3; i++) {
        unread(pair);
        int swapped[2] = { pair[1], pair[1] };
        fflush(stdout);
        int child = fork();
        if (child == 0) {
            reads_two(swapped);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        drain(pair[1]);
        done(pair);
    }
    /* Another program reads the rest. */
    unread(pair);
    fflush(stdout);
    int child = fork();
    if (child == 0) {
        dup2(pair[1], 0);
        execlp("head", "head", "-c", "7", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    printf("\n");
    drain(pair[1]);
    done(pair);
}

/* ---- processes that cannot look into each other ---- */

static void apart(void)
{
    for (int way = 0; way < 3; way++) {
        int pair[2], set = epoll_create1(0);
        struct epoll_event event = { EPOLLIN, { 0 } };
        pair_of(pair, SOCK_STREAM);
        fflush(stdout);
        int child = fork();
        if (child == 0) {
            writes_seven(pair);
            if (way == 0) prctl(PR_SET_DUMPABLE, 0);
            if (way == 1 && geteuid() == 0) must("setuid", setuid(1) == 0);
            if (way == 2) {
                struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
                struct sock_fprog all = { 1, &allow };
                must("filter", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
            }
            must("child", write(pair[0], "!", 1) == 1);
            for (;;) pause();
        }
        close(pair[0]);
        warm_with_child(pair[1]);
        int count = 0;
        for (int i = 0; i < 5000 && count < 8; i++) {
            ioctl(pair[1], FIONREAD, &count);
            usleep(1000);
        }
        say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));
        looks(pair[1], set, "apart");
        drain(pair[1]);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        after_end(pair[1]);
        close(pair[1]);
        close(set);
    }
}

/* ---- names ---- */

static void shown(const char *what, int result, const struct sockaddr_un *name, socklen_t length)
{
    printf("%s %d %s length %d family %d ", what, result, result < 0 ? strerrorname_np(errno) : "",
           (int)length, result >= 0 && length >= 2 ? name->sun_family : 0);
    for (int i = 2; result >= 0 && i < (int)length && i < (int)sizeof *name; i++) {
        char byte = ((const char *)name)[i];
        putchar(byte ? byte : '0');
    }
    printf("\n");
}

static void names_of(const char *who, int fd)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    printf("%s\n", who);
    int result = getsockname(fd, (void *)&name, &length);
    shown("own", result, &name, length);
    length = sizeof name;
    result = getpeername(fd, (void *)&name, &length);
    shown("peer", result, &name, length);
    for (socklen_t room = 0; room < 5; room++) {
        memset(&name, 'x', sizeof name);
        length = room;
        result = getpeername(fd, (void *)&name, &length);
        shown("peer", result, &name, length < room ? length : room);
        printf("length %d\n", (int)length);
    }
}

/* Neither who connects nor who accepts sees more than on Linux, whatever becomes of a connection. */
static void names(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX }, other;
    socklen_t length = sizeof other;
    char bytes[10];
    strcpy(name.sun_path, "one");
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    int early = socket(AF_UNIX, SOCK_STREAM, 0), one = socket(AF_UNIX, SOCK_STREAM, 0);
    names_of("new", one);
    say("too early", connect(early, (void *)&name, sizeof name));
    must("bind", bind(listener, (void *)&name, sizeof name) == 0);
    say("not yet", connect(early, (void *)&name, sizeof name));
    must("listen", listen(listener, 5) == 0);
    names_of("early", early);
    say("connect", connect(one, (void *)&name, sizeof name));
    say("again", connect(one, (void *)&name, sizeof name));
    int accepted = accept(listener, (void *)&other, &length);
    shown("accept", accepted < 0 ? -1 : 0, &other, length);
    names_of("one", one);
    names_of("accepted", accepted);
    names_of("listener", listener);
    for (int i = 0; i < WARM; i++)
        must("warm", write(one, "w", 1) == 1 && read(accepted, bytes, 1) == 1 &&
                     write(accepted, "a", 1) == 1 && read(one, bytes, 1) == 1);
    for (int side = 0; side < 2; side++) {
        must("write", write(side ? one : accepted, "from", 4) == 4);
        length = sizeof other;
        memset(&other, 'x', sizeof other);
        say("recvfrom", recvfrom(side ? accepted : one, bytes, 2, 0, (void *)&other, &length));
        shown("sender", 0, &other, length);
        struct iovec buffer = { bytes, 2 };
        struct msghdr message = { .msg_iov = &buffer, .msg_iovlen = 1, .msg_name = &other,
                                  .msg_namelen = sizeof other };
        say("recvmsg", recvmsg(side ? accepted : one, &message, 0));
        shown("sender", 0, &other, message.msg_namelen);
    }
    say("connect", connect(early, (void *)&name, sizeof name));
    close(early);
    close(accept(listener, NULL, NULL));
    close(listener);
    /* A name without anybody behind it: who finds that out takes it over. */
    int heir = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    say("stale", connect(heir, (void *)&name, sizeof name));
    names_of("heir", heir);
    must("unlink", unlink(name.sun_path) == 0);
    say("bind", bind(heir, (void *)&name, sizeof name));
    say("on exec", fcntl(heir, F_GETFD));
    say("listen", listen(heir, 5));
    names_of("heir", heir);
    int two = socket(AF_UNIX, SOCK_STREAM, 0);
    say("connect", connect(two, (void *)&name, sizeof name));
    length = sizeof other;
    memset(&other, 0, sizeof other);
    int second = accept4(heir, (void *)&other, &length, SOCK_NONBLOCK);
    shown("accept", second < 0 ? -1 : 0, &other, length);
    say("behind its end", other.sun_path[0] | other.sun_path[1]);
    must("to it", write(two, "to", 2) == 2 && read(second, bytes, 2) == 2);
    must("from it", write(second, "to", 2) == 2 && read(two, bytes, 2) == 2);
    /* Who connects has a name of its own. */
    int third = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(other.sun_path, "own");
    other.sun_family = AF_UNIX;
    say("own name", bind(third, (void *)&other, sizeof other));
    say("connect", connect(third, (void *)&name, sizeof name));
    int met = accept(heir, NULL, NULL);
    names_of("met", met);
    for (int i = 0; i < WARM; i++)
        must("own", write(third, "w", 1) == 1 && read(met, bytes, 1) == 1);
    unlink("own");
    unlink("one");
    for (int i = 0; i < 100; i++) close(3 + i);
}

/* ---- what is moved from one place to the other, and back ---- */

static void counts(void)
{
    for (int way = 0; way < 3; way++) {
        int pair[2], came = 0, set = epoll_create1(0);
        char text[8];
        warm(pair);
        for (int i = 0; i < 200; i++) {
            snprintf(text, sizeof text, "%04d,", i);
            must("count", write(pair[0], text, 5) == 5);
            if (i % 60 == 30 && way == 0) close(dup(pair[1]));
            if (i % 60 == 30 && way == 1 && fork() == 0) _exit(0);
            if (i % 60 == 30 && way == 2) {
                struct epoll_event event = { EPOLLIN, { 0 } };
                must("set", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0 &&
                            epoll_ctl(set, EPOLL_CTL_DEL, pair[1], NULL) == 0);
            }
            if (i == 0) continue;
            must("come", read(pair[1], text, 5) == 5 && atoi(text) == came);
            came++;
        }
        while (wait(NULL) > 0) {}
        say("in order", came);
        drain(pair[1]);
        done(pair);
        close(set);
    }
}

static void *reads_pieces(void *of)
{
    static char bytes[65536];
    int fd = *(int *)of, split = 0;
    for (int i = 0; i < 2000; i++) {
        int size = 1000 + i * 15, got = 0;
        for (int parts = 0; got < size; parts++) {
            long now = recv(fd, bytes, sizeof bytes, 0);
            must("piece", now > 0);
            got += (int)now;
            split += parts;
        }
        must("answer", write(fd, "a", 1) == 1);
    }
    say("split", split);
    return NULL;
}

/* What Linux hands over in one piece comes in one. */
static void pieces(void)
{
    static char bytes[65536];
    int pair[2];
    pthread_t thread;
    warm(pair);
    must("thread", pthread_create(&thread, NULL, reads_pieces, &pair[1]) == 0);
    for (int i = 0; i < 2000; i++) {
        int size = 1000 + i * 15;
        must("piece", (i % 2 ? write(pair[0], bytes, size) : send(pair[0], bytes, size, 0)) == size);
        must("answer", read(pair[0], bytes, 1) == 1);
    }
    pthread_join(thread, NULL);
    done(pair);
}

/* Whoever has written is gone, and then somebody asks for more than bytes. */
static void gone(void)
{
    for (int way = 0; way < 9; way++) {
        int pair[2], pipes[2], on = 1;
        char bytes[20] = { 0 };
        struct iovec one = { bytes, 20 };
        struct sockaddr_storage name;
        socklen_t length = sizeof name;
        struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_name = &name,
                                  .msg_namelen = sizeof name };
        struct mmsghdr several = { .msg_hdr = message };
        unread(pair);
        close(pair[0]);
        switch (way) {
        case 0: say("recvfrom", recvfrom(pair[1], bytes, 20, 0, (void *)&name, &length)); break;
        case 1: say("recvmsg", recvmsg(pair[1], &message, 0)); break;
        case 2: say("recvmmsg", recvmmsg(pair[1], &several, 1, MSG_DONTWAIT, NULL)); break;
        case 3: say("truncating", recv(pair[1], bytes, 3, MSG_TRUNC)); break;
        case 4: say("peek", recv(pair[1], bytes, 7, MSG_PEEK | MSG_WAITALL)); break;
        case 5:
            must("pipe", pipe(pipes) == 0);
            say("splice", splice(pair[1], NULL, pipes[1], NULL, 20, 0));
            say("spliced", read(pipes[0], bytes, 20));
            done(pipes);
            break;
        case 6: say("mark", setsockopt(pair[1], SOL_SOCKET, SO_RCVLOWAT, &on, sizeof on)); break;
        case 7: say("signals", fcntl(pair[1], F_SETFL, O_ASYNC)); break;
        case 8: {
            int carrier[2];
            pair_of(carrier, SOCK_STREAM);
            send_fd(carrier[0], pair[1], 'g');
            close(pair[1]);
            pair[1] = receive_fd(carrier[1]);
            done(carrier);
            break;
        }
        }
        printf("%.20s\n", bytes);
        drain(pair[1]);
        after_end(pair[1]);
        close(pair[1]);
    }
}

static void *late(void *of)
{
    usleep(20000);
    must("late", write(*(int *)of, "late", 4) == 4);
    return NULL;
}

/* No room is asked for; no address is one, too. */
static void none(void)
{
    int pair[2];
    char bytes[10];
    pthread_t thread;
    unread(pair);
    say("none of some", recv(pair[1], bytes, 0, 0));
    say("read none", read(pair[1], bytes, 0));
    say("an address of none", sendto(pair[0], "more", 4, 0, (void *)bytes, 0));
    drain(pair[1]);
    must("thread", pthread_create(&thread, NULL, late, &pair[0]) == 0);
    say("none of what comes", recv(pair[1], bytes, 0, 0));
    pthread_join(thread, NULL);
    drain(pair[1]);
    done(pair);
}

/* More than the ring has, before anybody reads. */
static void behind(void)
{
    static char bytes[MUCH];
    for (int way = 0; way < 3; way++) {
        int pair[2], set = epoll_create1(0), count = 0;
        struct epoll_event event = { EPOLLIN | EPOLLET, { 0 } };
        warm(pair);
        memset(bytes, 'b', sizeof bytes);
        must("much", write(pair[0], bytes, 60000) == 60000 && write(pair[0], bytes, 70000) == 70000);
        must("line", write(pair[0], "\n", 1) == 1 && ioctl(pair[1], FIONREAD, &count) == 0);
        say("there", count);
        if (way == 0) {
            say("peek", recv(pair[1], bytes, sizeof bytes, MSG_PEEK));
            say("the line ends", memchr(bytes, '\n', sizeof bytes) == bytes + 130000);
        }
        if (way == 1) say("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));
        say("at once", recv(pair[1], bytes, sizeof bytes, way == 2 ? MSG_WAITALL | MSG_DONTWAIT : 0));
        drain(pair[1]);
        done(pair);
        close(set);
    }
}

/* ---- much ---- */

static unsigned char nth(long at) { return (unsigned char)(at * 31 + at / 251); }

static void *fills(void *of)
{
    static unsigned char bytes[300000];
    int fd = *(int *)of;
    long at = 0;
    unsigned seed = 7;
    while (at < 8L * MUCH) {
        long size = rand_r(&seed) % (rand_r(&seed) % 8 ? 3000 : (int)sizeof bytes) + 1;
        for (long i = 0; i < size; i++) bytes[i] = nth(at + i);
        long put = rand_r(&seed) % 2 ? write(fd, bytes, size) : send(fd, bytes, size, MSG_NOSIGNAL);
        must("fill", put == size);
        at += put;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void takes(int fd, int how, unsigned seed)
{
    static unsigned char bytes[200000];
    long at = 0;
    for (;;) {
        long size = rand_r(&seed) % (rand_r(&seed) % 8 ? 3000 : (int)sizeof bytes) + 1;
        struct pollfd entry = { fd, POLLIN, 0 };
        if (how == 1 && rand_r(&seed) % 3 == 0) poll(&entry, 1, -1);
        if (how == 2 && rand_r(&seed) % 500 == 0) {
            int set = epoll_create1(0);
            struct epoll_event event = { EPOLLIN, { 0 } };
            must("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
            must("wait", epoll_wait(set, &event, 1, 10000) == 1);
            close(set);
        }
        if (how == 3 && rand_r(&seed) % 50 == 0) {
            unsigned char first;
            long peeked = recv(fd, &first, 1, MSG_PEEK);
            must("peek", peeked == 0 || (peeked == 1 && first == nth(at)));
        }
        int flags = how == 4 && rand_r(&seed) % 2 ? MSG_WAITALL : 0;
        long got = rand_r(&seed) % 2 ? read(fd, bytes, size) : recv(fd, bytes, size, flags);
        must("take", got >= 0);
        for (long i = 0; i < got; i++) must("order", bytes[i] == nth(at + i));
        at += got;
        if (got == 0) break;
    }
    say("in all", at);
}

static void much(void)
{
    for (int how = 0; how < 5; how++) {
        int pair[2];
        pthread_t thread;
        warm(pair);
        must("thread", pthread_create(&thread, NULL, fills, &pair[0]) == 0);
        takes(pair[1], how, how + 1);
        pthread_join(thread, NULL);
        done(pair);
        warm(pair);
        fflush(stdout);
        int child = fork();
        if (child == 0) {
            close(pair[1]);
            fills(&pair[0]);
            _exit(0);
        }
        close(pair[0]);
        takes(pair[1], how, how + 9);
        waitpid(child, NULL, 0);
        close(pair[1]);
    }
    /* Until it is full, then all of it through a set: the ring's bytes lie before the host's. */
    for (int way = 0; way < 3; way++) {
        int pair[2], set = epoll_create1(0);
        struct epoll_event event = { EPOLLIN, { 0 } };
        static unsigned char bytes[5000], all[MUCH];
        long put = 0, got = 0;
        warm(pair);
        must("flags", fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
        for (;;) {
            for (int i = 0; i < 5000; i++) bytes[i] = nth(put + i);
            long now = write(pair[0], bytes, 5000);
            if (now < 0) break;
            put += now;
        }
        say("full", -1);
        int reader = pair[1];
        if (way == 0) must("add", epoll_ctl(set, EPOLL_CTL_ADD, reader, &event) == 0);
        if (way == 1) {
            int carrier[2];
            pair_of(carrier, SOCK_STREAM);
            send_fd(carrier[0], reader, 'f');
            reader = receive_fd(carrier[1]);
            done(carrier);
        }
        if (way == 2) must("peek", recv(reader, all, 100, MSG_PEEK) > 0);
        shutdown(pair[0], SHUT_WR);
        for (;;) {
            if (way == 0) must("ready", epoll_wait(set, &event, 1, 5000) == 1);
            long now = read(reader, all, 3000);
            must("read", now >= 0);
            if (now == 0) break;
            for (long i = 0; i < now; i++) must("order", all[i] == nth(got + i));
            got += now;
        }
        must("all", got == put && put > 100000);
        if (reader != pair[1]) close(reader);
        done(pair);
        close(set);
    }
}

/* Several who read and several who write, under signals: no byte is lost, none comes twice. */
enum { WRITERS = 3, READERS = 3, EACH = 30000 };
static int storm_pair[2];
static long sums[READERS];

static void *storm_writes(void *of)
{
    unsigned char byte = (unsigned char)(long)of;
    for (int i = 0; i < EACH; i++) {
        long put;
        while ((put = i % 2 ? write(storm_pair[0], &byte, 1) : send(storm_pair[0], &byte, 1, 0)) < 0)
            must("interrupted", errno == EINTR);
    }
    return NULL;
}

static void *storm_reads(void *of)
{
    unsigned char bytes[64];
    for (int turn = 0;; turn++) {
        long got = turn % 2 ? read(storm_pair[1], bytes, turn % 64 + 1)
                            : recv(storm_pair[1], bytes, turn % 64 + 1, 0);
        if (got < 0) {
            must("interrupted", errno == EINTR);
            continue;
        }
        if (got == 0) return NULL;
        for (long i = 0; i < got; i++) sums[(long)of] += bytes[i] + 1;
    }
}

static void storm(void)
{
    pthread_t writers[WRITERS], readers[READERS];
    struct sigaction action = { .sa_handler = alarmed };
    struct itimerval timer = { { 0, 200 }, { 0, 200 } }, none = { { 0, 0 }, { 0, 0 } };
    long all = 0, wanted = 0;
    warm(storm_pair);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (long i = 0; i < READERS; i++) pthread_create(&readers[i], NULL, storm_reads, (void *)i);
    for (long i = 0; i < WRITERS; i++) {
        pthread_create(&writers[i], NULL, storm_writes, (void *)(i * 50));
        wanted += EACH * (i * 50 + 1);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    shutdown(storm_pair[0], SHUT_WR);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
        all += sums[i];
    }
    setitimer(ITIMER_REAL, &none, NULL);
    say("lost", wanted - all);
    done(storm_pair);
}

int main(int count, char **arguments)
{
    struct { const char *name; void (*run)(void); } kinds[] = {
        { "ways", ways }, { "sends", sends }, { "sets", sets }, { "sleeps", sleeps },
        { "times", times }, { "limits", limits }, { "asks", asks }, { "ends", ends }, { "sent", sent }, { "inherited", inherited },
        { "apart", apart }, { "names", names },
        { "counts", counts }, { "gone", gone }, { "none", none }, { "behind", behind },
        { "pieces", pieces }, { "much", much }, { "storm", storm },
    };
    for (int i = 1; i < count; i++) {
        const char *wanted = arguments[i];
        by_name = strncmp(wanted, "named-", 6) == 0;
        if (by_name) wanted += 6;
        by_tcp = strncmp(wanted, "tcp-", 4) == 0;
        if (by_tcp) wanted += 4;
        for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
            if (strcmp(wanted, kinds[kind].name) == 0) kinds[kind].run();
    }
    return 0;
}
