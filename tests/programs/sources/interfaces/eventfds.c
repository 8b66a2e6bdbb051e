/* Eventfds, whose count may be anywhere: in one thread, between threads and processes, by duplicates,
   in sets and polls of each kind, in messages and taken by pidfd_getfd, through fork and exec. What
   calls return is printed; Linux and Husk must print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long result)
{
    printf("%s %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static void *volatile nowhere = (void *)8;

static void must(const char *what, int holds)
{
    if (holds) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void adds(int fd, uint64_t value) { say("add", write(fd, &value, 8)); }

static void takes(int fd)
{
    uint64_t value = 77;
    long got = read(fd, &value, 8);
    say("take", got);
    if (got == 8) printf("value %llu\n", (unsigned long long)value);
}

/* Each kind of count: plain, a semaphore; with a first count. */
static int made(int kind, int waits)
{
    int fd = eventfd(kind & 2 ? 3 : 0, (kind & 1 ? EFD_SEMAPHORE : 0) | (waits ? 0 : EFD_NONBLOCK));
    must("eventfd", fd >= 0);
    return fd;
}

static void counts(void)
{
    static const uint64_t values[] = { 0, 1, 5, 1ull << 32, 1ull << 38, 1ull << 39, 1ull << 50,
                                       UINT64_MAX - 2, UINT64_MAX - 1, UINT64_MAX };
    for (int kind = 0; kind < 4; kind++)
        for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
            int fd = made(kind, 0);
            printf("kind %d value %u\n", kind, i);
            adds(fd, values[i]);
            adds(fd, 2);
            for (int turn = 0; turn < 7; turn++) takes(fd);
            close(fd);
        }
    int fd = made(0, 0);
    char bytes[16] = { 1 };
    uint64_t parts[2] = { 1, 2 };
    struct iovec two[2] = { { parts, 8 }, { parts + 1, 8 } };
    say("short read", read(fd, bytes, 7));
    say("short write", write(fd, bytes, 7));
    say("long write", write(fd, parts, 16));
    say("long read", read(fd, bytes, 16));
    say("nowhere", write(fd, nowhere, 8));
    adds(fd, 4);
    say("to nowhere", read(fd, nowhere, 8));
    takes(fd);
    adds(fd, 4);
    say("pread", pread(fd, bytes, 8, 0));
    say("pwrite", pwrite(fd, bytes, 8, 0));
    say("lseek", lseek(fd, 0, SEEK_CUR) < 0);
    say("writev", writev(fd, two, 1));
    say("readv", readv(fd, two, 2));
    printf("%llu\n", (unsigned long long)parts[0]);
    takes(fd);
    say("flags", eventfd(0, 1 << 20));
    say("closed", close(fd));
    say("gone", write(fd, parts, 8));
}

/* What is added comes once, whoever looks in between, and however. */
static void looks(void)
{
    for (int kind = 0; kind < 4; kind++)
        for (int way = 0; way < 14; way++) {
            int fd = made(kind, 0), other = -1, pair[2], set = epoll_create1(0), status = 0;
            struct pollfd polled[2] = { { open("/proc/self/exe", O_RDONLY), POLLIN, 0 },
                                        { fd, POLLIN | POLLOUT, 0 } };
            struct epoll_event event = { EPOLLIN, { .u64 = 5 } }, told[2];
            fd_set in, out;
            struct timeval none = { 0, 0 };
            struct timespec no_time = { 0, 0 };
            printf("kind %d way %d\n", kind, way);
            if (way & 1) adds(fd, 6);
            FD_ZERO(&in);
            FD_ZERO(&out);
            FD_SET(fd, &in);
            FD_SET(fd, &out);
            FD_SET(polled[0].fd, &in);
            switch (way / 2) {
            case 0:
                say("poll", poll(polled, 2, 0));
                say("in", polled[1].revents);
                break;
            case 1:
                say("select", select(fd + 1, &in, &out, NULL, &none));
                say("in", FD_ISSET(fd, &in));
                say("out", FD_ISSET(fd, &out));
                break;
            case 2: say("ppoll", ppoll(polled + 1, 1, &no_time, NULL)); break;
            case 3:
                event.events |= kind == 1 ? EPOLLET : kind == 2 ? EPOLLONESHOT : kind == 3 ? EPOLLOUT : 0;
                say("set", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
                say("wait", epoll_wait(set, told, 2, 0));
                adds(fd, 1);
                say("wait", epoll_wait(set, told, 2, 0));
                say("wait", epoll_wait(set, told, 2, 0));
                break;
            case 4:
                other = dup(fd);
                say("dup", other >= 0);
                adds(other, 2);
                say("dup2", dup2(fd, 50));
                adds(50, 2);
                say("poll", poll(polled, 2, 0));
                takes(50);
                close(50);
                break;
            case 5:
                must("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
                fflush(stdout);
                if (fork() == 0) {
                    adds(fd, 3);
                    execl("/proc/self/exe", "eventfds", "adds", (char[]){ '0' + fd / 10, '0' + fd % 10, 0 },
                          NULL);
                    _exit(1);
                }
                wait(&status);
                say("child", status);
                break;
            case 6:
                must("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
                char byte = 'x', space[CMSG_SPACE(sizeof fd)] = { 0 };
                struct iovec one = { &byte, 1 };
                struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = space,
                                          .msg_controllen = sizeof space };
                struct cmsghdr *head = CMSG_FIRSTHDR(&message);
                head->cmsg_level = SOL_SOCKET;
                head->cmsg_type = SCM_RIGHTS;
                head->cmsg_len = CMSG_LEN(sizeof fd);
                memcpy(CMSG_DATA(head), &fd, sizeof fd);
                say("sent", sendmsg(pair[0], &message, 0));
                adds(fd, 1);
                message.msg_controllen = sizeof space;
                say("received", recvmsg(pair[1], &message, 0));
                memcpy(&other, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof other);
                adds(other, 2);
                takes(other);
                break;
            }
            takes(fd);
            takes(fd);
            adds(fd, 1);
            takes(fd);
            close(other);
            close(set);
            close(fd);
            close(polled[0].fd);
            if (way / 2 >= 5) close(pair[0]), close(pair[1]);
        }
}

/* Another process takes it as it is, and while it is used. */
static void taken(void)
{
    for (int kind = 0; kind < 4; kind++) {
        int fd = made(kind, 0), status, go[2];
        adds(fd, 9);
        must("pipe", pipe(go) == 0);
        fflush(stdout);
        pid_t parent = getpid();
        if (fork() == 0) {
            close(fd);
            int pidfd = syscall(SYS_pidfd_open, parent, 0);
            int got = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
            must("taken", got >= 0);
            takes(got);
            adds(got, 3);
            _exit(0);
        }
        wait(&status);
        say("child", status);
        takes(fd);
        takes(fd);
        close(fd);
        close(go[0]);
        close(go[1]);
    }
}

/* Who must wait does, and is woken by who comes, a thread or a process; nothing is lost. */
static int shared[2];
enum { TURNS = 3000 };

static void *answers(void *unused)
{
    uint64_t value;
    for (int i = 0; i < TURNS; i++) {
        must("wait", read(shared[0], &value, 8) == 8);
        must("answer", write(shared[1], &value, 8) == 8);
    }
    return unused;
}

static void waits(void)
{
    for (int kind = 0; kind < 2; kind++)
        for (int process = 0; process < 2; process++) {
            pthread_t thread;
            uint64_t value = 1, sum = 0;
            int status;
            shared[0] = made(kind, 1);
            shared[1] = made(kind, 1);
            pid_t child = process ? fork() : -1;
            if (child == 0) {
                answers(NULL);
                _exit(0);
            }
            if (!process) must("thread", pthread_create(&thread, NULL, answers, NULL) == 0);
            for (int i = 0; i < TURNS; i++) {
                must("ask", write(shared[0], &value, 8) == 8);
                must("answered", read(shared[1], &value, 8) == 8);
                sum += value;
            }
            say("sum", sum);
            if (process) waitpid(child, &status, 0);
            else pthread_join(thread, NULL);
            close(shared[0]);
            close(shared[1]);
        }
}

/* Many add at once, some look: all is there in the end. */
static int sum_fd;

static void *adders(void *number)
{
    uint64_t one = 1;
    struct pollfd polled = { sum_fd, POLLIN, 0 };
    for (int i = 0; i < TURNS; i++) {
        must("add", write(sum_fd, &one, 8) == 8);
        if (number && i == TURNS / 2) poll(&polled, 1, 0);
    }
    return NULL;
}

static void sums(void)
{
    for (int look = 0; look < 2; look++) {
        pthread_t threads[4];
        uint64_t sum = 0;
        sum_fd = made(0, 0);
        for (long i = 0; i < 4; i++)
            must("thread", pthread_create(threads + i, NULL, adders, (void *)(look * i)) == 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            adders((void *)(long)look);
            _exit(0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        waitpid(child, NULL, 0);
        must("sum", read(sum_fd, &sum, 8) == 8);
        say("sum", sum);
        takes(sum_fd);
        close(sum_fd);
    }
}

/* More than are counted in an image, and numbers that are used again. */
static void many(void)
{
    enum { ALL = 600 };
    static int fds[ALL];
    uint64_t value, wrong = 0;
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < ALL; i++) must("eventfd", (fds[i] = eventfd(i % 5, EFD_NONBLOCK)) >= 0);
        for (uint64_t i = 0; i < ALL; i++) must("add", write(fds[i], &i, 8) == 8);
        for (int i = 0; i < ALL; i++)
            wrong += i == 0 ? read(fds[i], &value, 8) != -1
                            : read(fds[i], &value, 8) != 8 || value != (uint64_t)(i % 5 + i);
        for (int i = 0; i < ALL; i++) close(fds[i]);
    }
    say("wrong", wrong);
}

int main(int count, char **names)
{
    struct { const char *name; void (*run)(void); } parts[] = {
        { "counts", counts }, { "looks", looks }, { "taken", taken }, { "waits", waits },
        { "sums", sums }, { "many", many },
    };
    if (count == 3) {
        takes(atoi(names[2]));
        adds(atoi(names[2]), 7);
        return 0;
    }
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (count == 2 && strcmp(parts[i].name, names[1]) == 0) {
            parts[i].run();
            return 0;
        }
    return 1;
}
