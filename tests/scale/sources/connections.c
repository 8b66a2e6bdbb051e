// Many TCP connections at once between two processes, or several times two, each in one epoll set:
// every byte comes to its connection, who waits burns nothing, and ends are seen.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS = 512, ROUNDS = 3, IDLE_S = 2, IDLE_MS_MAX = 200 };

#define MUST(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } } while (0)

static long spent_ms(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000
        + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
}

// Waits for nothing, when both sides are quiet.
static void idles(int set) {
    long before = spent_ms();
    struct epoll_event event;
    MUST(epoll_wait(set, &event, 1, IDLE_S * 1000) == 0);
    MUST(spent_ms() - before < IDLE_MS_MAX);
}

static void add(int set, int fd, int number) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    event.data.u64 = (unsigned long)number << 32 | (unsigned)fd;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

// Answers each number with its complement, until all have hung up.
static void serve(int listener, int count, int quiet, int idled) {
    int set = epoll_create1(0), ended = 0, open_ones = 0;
    add(set, listener, 0);
    struct epoll_event events[EVENTS];
    for (long bytes = 0; ended < count;) {
        int ready = epoll_wait(set, events, EVENTS, 60000);
        MUST(ready > 0);
        for (int n = 0; n < ready; n++) {
            int fd = (int)events[n].data.u64;
            if (fd == listener) {
                int one = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                MUST(one >= 0);
                add(set, one, 1);
                open_ones++;
                continue;
            }
            int number;
            ssize_t got = read(fd, &number, sizeof number);
            if (got == 0) {
                MUST(close(fd) == 0);
                ended++;
                continue;
            }
            MUST(got == sizeof number);
            number = ~number;
            MUST(write(fd, &number, sizeof number) == sizeof number);
            if (++bytes == (long)count * ROUNDS) {
                char word;
                MUST(open_ones == count && read(quiet, &word, 1) == 1);
                idles(set);
                MUST(write(idled, "i", 1) == 1);
            }
        }
    }
    close(set);
}

static int ask(int *fds, int count, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    struct epoll_event events[EVENTS];
    int set = epoll_create1(0);
    for (int n = 0; n < count; n++) {
        // 127.0.0.1 alone has too few ports on some machines.
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + n % 4);
        fds[n] = socket(AF_INET, SOCK_STREAM, 0);
        MUST(fds[n] >= 0);
        MUST(connect(fds[n], (struct sockaddr *)&to, sizeof to) == 0);
        add(set, fds[n], n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < count; n++) {
            int number = n * ROUNDS + round;
            MUST(write(fds[n], &number, sizeof number) == sizeof number);
        }
        for (int answered = 0; answered < count;) {
            int ready = epoll_wait(set, events, EVENTS, 60000);
            MUST(ready > 0);
            for (int n = 0; n < ready; n++, answered++) {
                int number, wanted = ~((int)(events[n].data.u64 >> 32) * ROUNDS + round);
                MUST(read((int)events[n].data.u64, &number, sizeof number) == sizeof number);
                MUST(number == wanted);
            }
        }
    }
    return set;
}

// All connections of all pairs are there at once.
static pthread_barrier_t *all_there;

static void pair(int connections) {
    int quiet[2], idled[2], yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    MUST(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 4096) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
    MUST(pipe(quiet) == 0 && pipe(idled) == 0);
    pid_t server = fork();
    if (server == 0) {
        serve(listener, connections, quiet[0], idled[1]);
        _exit(0);
    }
    close(listener);
    int *fds = calloc(connections, sizeof *fds), status;
    int set = ask(fds, connections, at.sin_port);
    char word;
    int waited = pthread_barrier_wait(all_there);
    MUST(waited == 0 || waited == PTHREAD_BARRIER_SERIAL_THREAD);
    MUST(write(quiet[1], "q", 1) == 1);
    idles(set);
    MUST(read(idled[0], &word, 1) == 1);
    for (int n = 0; n < connections; n++) {
        MUST(close(fds[n]) == 0);
    }
    MUST(waitpid(server, &status, 0) == server && status == 0);
}

int main(int count, char **words) {
    MUST(count == 3);
    int pairs = atoi(words[1]), connections = atoi(words[2]), ended = 0, status;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &files) == 0);
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    all_there = mmap(NULL, sizeof *all_there, PROT_READ | PROT_WRITE, flags, -1, 0);
    pthread_barrierattr_t shared;
    MUST(all_there != MAP_FAILED && pthread_barrierattr_init(&shared) == 0);
    MUST(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
    MUST(pthread_barrier_init(all_there, &shared, pairs) == 0);
    for (int n = 0; n < pairs; n++) {
        if (fork() == 0) {
            pair(connections / pairs + (n < connections % pairs));
            _exit(0);
        }
    }
    while (ended < pairs) {
        MUST(wait(&status) > 0 && status == 0);
        ended++;
    }
    printf("%d connections: ok\n", connections);
    return 0;
}
