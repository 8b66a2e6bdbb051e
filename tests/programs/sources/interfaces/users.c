/* Connections between processes of different users, made before they became so (pairs) or after
   (by name, over 127.0.0.1): bytes that nobody has read are there for each way to look, in their
   order, once, with what is written afterwards; and ends are told. What calls return is printed;
   Linux and Husk must print the same. Only root can become somebody else. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 60, LOOKS = 20000 };

static void must(const char *what, int holds)
{
    if (holds) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void say(const char *what, long result)
{
    printf("%s %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

/* As servers do, who then want to be dumped all the same. */
static void become(unsigned user, int dumpable)
{
    if (user == 0) return;
    must("become", setgid(user) == 0 && setuid(user) == 0);
    must("dumpable", prctl(PR_SET_DUMPABLE, dumpable) == 0);
}

enum way { PAIR, NAMED, TCP, WAYS };
static const char *const way_names[] = { "pair", "named", "tcp" };

static int listener_of(enum way way, struct sockaddr_storage *name, socklen_t *length)
{
    struct sockaddr_un path = { AF_UNIX, "meeting" };
    struct sockaddr_in local = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    unlink("meeting");
    *length = way == NAMED ? sizeof path : sizeof local;
    memcpy(name, way == NAMED ? (void *)&path : (void *)&local, *length);
    int listener = socket(way == NAMED ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    must("listen", bind(listener, (void *)name, *length) == 0 && listen(listener, 5) == 0);
    must("named", getsockname(listener, (void *)name, length) == 0);
    if (way == NAMED) must("mode", chmod("meeting", 0666) == 0);
    return listener;
}

/* By these the two take turns, so that nobody sleeps at the connection: rings are used by those who
   are awake. */
static int turns[2][2];

static void pass_turn(int to)
{
    must("pass", write(turns[to][1], "", 1) == 1);
}

static void await_turn(int own)
{
    char byte;
    must("turn", read(turns[own][0], &byte, 1) == 1);
}

/* The two ends, which belong to processes of these users. */
static void writes(int fd, int told)
{
    char byte = 'w';
    for (int i = 0; i < WARM; i++) {
        must("warm", write(fd, &byte, 1) == 1);
        pass_turn(1);
        await_turn(0);
        must("warmed", read(fd, &byte, 1) == 1);
    }
    must("pending", write(fd, "pending", 7) == 7);
    while (read(told, &byte, 1) == 1) {
        if (byte == 'e') close(fd);
        else if (byte == 'r') {
            /* How this goes is told by the exit. */
            char rest[8];
            exit(read(fd, rest, sizeof rest) < 0 ? errno : 1);
        } else must("later", write(fd, "later!", 6) == 6);
    }
    exit(0);
}

enum { ONESHOT, LOWAT, POLLED, PEEKED, LEVELS, FULL, UNREAD, KILLED, EVENTS };

static void drain(int fd, int most)
{
    char bytes[100] = { 0 };
    int got = 0;
    for (int i = 0; i < LOOKS && got < most; i++) {
        long more = recv(fd, bytes + got, sizeof bytes - got, MSG_DONTWAIT);
        if (more > 0) got += more;
        else usleep(500);
    }
    printf("drain %d %s\n", got, bytes);
    fflush(stdout);
}

static void looks(int fd, int event)
{
    int set = epoll_create1(0), low = 1;
    struct epoll_event asked = { EPOLLIN | (event == ONESHOT ? EPOLLONESHOT : 0), { 0 } }, told;
    struct pollfd polled = { fd, POLLIN, 0 };
    char bytes[8];
    switch (event) {
    case ONESHOT:
    case LEVELS:
        must("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &asked) == 0);
        say("wait", epoll_wait(set, &told, 1, 10000));
        break;
    case LOWAT: say("low", setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low)); break;
    case POLLED: say("poll", poll(&polled, 1, 10000)); break;
    case PEEKED: say("peek", recv(fd, bytes, sizeof bytes, MSG_PEEK)); break;
    case FULL: say("shut", shutdown(fd, SHUT_WR)); break;
    }
    close(set);
}

static void reads(int fd, int event, int tell, int writer)
{
    char byte;
    for (int i = 0; i < WARM; i++) {
        await_turn(1);
        must("echo", read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1);
        pass_turn(0);
    }
    int count = 0;
    for (int i = 0; i < LOOKS && count < 7; i++) {
        ioctl(fd, FIONREAD, &count);
        usleep(500);
    }
    say("so many", count);
    looks(fd, event);
    if (event == UNREAD) {
        close(fd);
        must("tell", write(tell, "r", 1) == 1);
        exit(0);
    }
    if (event == KILLED) kill(writer, SIGKILL);
    else must("tell", write(tell, "l", 1) == 1);
    drain(fd, event == KILLED ? 7 : 13);
    if (event != KILLED) must("tell", write(tell, "e", 1) == 1);
    say("end", read(fd, &byte, 1));
    exit(0);
}

static void meet(enum way way, int event, unsigned writer, unsigned reader, int dumpable)
{
    int pair[2] = { -1, -1 }, told[2], listener = -1;
    struct sockaddr_storage name;
    socklen_t length = 0;
    printf("%s event %d, user %u writes, %u reads, %d\n", way_names[way], event, writer, reader,
           dumpable);
    fflush(stdout);
    must("pipes", pipe(told) == 0 && pipe(turns[0]) == 0 && pipe(turns[1]) == 0);
    if (way == PAIR) must("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    else listener = listener_of(way, &name, &length);
    int writes_pid = fork();
    if (writes_pid == 0) {
        close(told[1]);
        close(pair[1]);
        become(writer, dumpable);
        if (way != PAIR) {
            pair[0] = socket(name.ss_family, SOCK_STREAM, 0);
            must("connect", connect(pair[0], (void *)&name, length) == 0);
        }
        writes(pair[0], told[0]);
    }
    int reads_pid = fork();
    if (reads_pid == 0) {
        close(told[0]);
        close(pair[0]);
        /* What it prints may be root's. */
        become(reader, dumpable);
        if (way != PAIR) must("accept", (pair[1] = accept(listener, NULL, NULL)) >= 0);
        reads(pair[1], event, told[1], reader == 0 || reader == writer ? writes_pid : -1);
    }
    close(pair[0]);
    close(pair[1]);
    close(listener);
    close(told[0]);
    close(told[1]);
    for (int i = 0; i < 4; i++) close(turns[i / 2][i % 2]);
    int status;
    waitpid(reads_pid, &status, 0);
    say("reader", status);
    waitpid(writes_pid, &status, 0);
    say("writer", status);
}

int main(int count, char **words)
{
    static const unsigned users[][2] = { { 0, 33 }, { 33, 0 }, { 33, 34 }, { 33, 33 } };
    if (geteuid() != 0) {
        printf("not root\n");
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    must("open to all", chmod(".", 0777) == 0);
    for (int way = 0; way < WAYS; way++)
        for (int event = 0; event < EVENTS; event++)
            for (int both = 0; both < 4; both++) {
                /* Who may not kill the other is not asked to. */
                if (event == KILLED && users[both][1] != 0 && users[both][0] != users[both][1])
                    continue;
                if (count > 1 && strcmp(words[1], way_names[way]) != 0) continue;
                meet(way, event, users[both][0], users[both][1], (event + both) % 2);
            }
    return 0;
}
