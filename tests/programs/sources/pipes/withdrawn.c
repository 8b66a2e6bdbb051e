/* A reader puts its pipe into sets and takes it out again, while bytes wait in shared memory, others
 * at the host, and a writer sleeps there for room: each byte comes once, in its order. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (1 << 17)
#define TURNS 120
static unsigned words[WORDS];
static unsigned seed;

static unsigned below(unsigned limit) {
    return (unsigned)rand_r(&seed) % limit;
}

static void fail(const char *what, int turn) {
    printf("turn %d: %s (%s)\n", turn, what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* All of it in one call, in large pieces, or in small ones after a look whether there is room. */
static void write_all(int fd, int turn) {
    char *at = (char *)words;
    for (unsigned n = 0; n < WORDS; n++)
        words[n] = n;
    for (size_t left = sizeof words; left > 0;) {
        size_t piece = turn % 3 == 0 ? left : turn % 3 == 1 ? 50000 : 1 + below(below(4) ? 9000 : 40000);
        struct pollfd room = {fd, POLLOUT, 0};
        if (turn % 3 == 2 && below(2))
            poll(&room, 1, 50);
        ssize_t put = write(fd, at, piece < left ? piece : left);
        if (put <= 0)
            fail("write", turn);
        at += put;
        left -= (size_t)put;
    }
}

static void read_all(int fd, int turn) {
    static char bytes[100000];
    struct epoll_event event = {.events = turn % 5 == 4 ? EPOLLIN | EPOLLET : EPOLLIN};
    size_t have = 0;
    unsigned next = 0;
    for (int set = -1;;) {
        if (set < 0 && below(2)) {
            set = epoll_create1(0);
            if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
                fail("epoll_ctl", turn);
            if (epoll_wait(set, &event, 1, 10000) != 1)
                fail("a set tells nothing of what is there", turn);
            event.events = turn % 5 == 4 ? EPOLLIN | EPOLLET : EPOLLIN;
        }
        ssize_t came = read(fd, bytes + have, 1 + below(sizeof bytes - 4));
        if (came < 0)
            fail("read", turn);
        if (came == 0)
            break;
        have += (size_t)came;
        for (size_t n = 0; n < have / 4; n++, next++)
            if (((unsigned *)bytes)[n] != next)
                fail("a byte is out of its order", turn);
        memmove(bytes, bytes + have / 4 * 4, have % 4);
        have %= 4;
        if (set >= 0 && below(3) == 0) {
            close(set);
            set = -1;
        }
    }
    if (next != WORDS || have != 0)
        fail("not all has come", turn);
}

static void turn_around(int turn) {
    static const int late_us[] = {0, 30, 100, 1000, 5000};
    int there[2], back[2], status;
    char byte = 0;
    if (pipe(there) || pipe(back))
        fail("pipe", turn);
    int child = fork();
    seed = (unsigned)(turn * 2 + (child == 0));
    if (child == 0) {
        close(there[0]);
        for (int n = 0; n < 200; n++)
            if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
                fail("a byte there and back", turn);
        write_all(there[1], turn);
        _exit(0);
    }
    close(there[1]);
    for (int n = 0; n < 200; n++)
        if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
            fail("a byte there and back", turn);
    usleep(late_us[below(5)]);
    read_all(there[0], turn);
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("the writer", turn);
    close(there[0]);
    close(back[0]);
    close(back[1]);
}

int main(void) {
    for (int turn = 0; turn < TURNS; turn++)
        turn_around(turn);
    printf("each byte once\n");
    return 0;
}
