/* victims WAY: one process holds what others wait for, and ends in the given way, at once. Each of
 * the others is told within a second, by what it waits in, and gets it once. Prints who was. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { ROUNDS = 5, WAITERS = 10 };
static const char *const waits[WAITERS] = { "record lock", "description's lock", "flock",
    "end of a pipe", "reader gone", "end of a FIFO", "end of a socket", "poll", "epoll", "pidfd" };
static int to_reader[2], to_writer[2], pair[2], held[2], pidfd;
static struct shared { double died, woke[WAITERS]; int ready, got; } *shared;
static long limit_ms = 1000;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static int overflow(int depth) {
    volatile char room[4096];
    room[0] = depth;
    return depth < 0 ? 0 : overflow(depth + 1) + room[0];
}
/* Memory until somebody says no: the group of processes that was prepared for it. */
static void devour(const char *group) {
    char path[300];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    int fd = open(path, O_WRONLY);
    NEED(fd >= 0 && write(fd, "0", 1) == 1);
    for (;;) {
        char *more = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(more != MAP_FAILED);
        memset(more, 1, 8 << 20);
    }
}
static void die(const char *way, const char *group) {
    signal(SIGPIPE, SIG_DFL);
    if (strcmp(way, "killed") == 0) for (;;) pause();
    if (strcmp(way, "fault") == 0) *(volatile int *)8 = 1;
    if (strcmp(way, "stack") == 0) overflow(0);
    if (strcmp(way, "abort") == 0) abort();
    if (strcmp(way, "broken") == 0) for (;;) if (write(held[1], way, 1) < 0) raise(SIGPIPE);
    if (strcmp(way, "memory") == 0) devour(group);
    if (strcmp(way, "leaves") == 0) _exit(0);
    /* In the middle of a change that others wait for, whichever. */
    if (strcmp(way, "changing") == 0)
        for (;;) {
            rename("one", "two"), link("two", "one"), unlink("two");
            close(open("two", O_CREAT | O_RDWR, 0600));
        }
}
static void hold(const char *way, const char *group) {
    struct flock lock = { F_WRLCK, SEEK_SET, 0, 9, 0 };
    close(to_reader[0]), close(to_writer[1]), close(pair[1]), close(held[0]);
    NEED(fcntl(open("records", O_RDWR), F_SETLK, &lock) == 0);
    NEED(fcntl(open("owned", O_RDWR), F_OFD_SETLK, &lock) == 0);
    NEED(flock(open("whole", O_RDWR), LOCK_EX) == 0 && open("fifo", O_RDWR) >= 0);
    int gone = open("gone", O_CREAT | O_EXCL | O_RDWR, 0600);
    static char bytes[1 << 20];
    NEED(gone >= 0 && write(gone, bytes, sizeof bytes) == sizeof bytes && unlink("gone") == 0);
    char *view = mmap(NULL, sizeof bytes, PROT_READ | PROT_WRITE, MAP_SHARED, gone, 0);
    NEED(view != MAP_FAILED && memset(view, 2, sizeof bytes));
    __atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) <= WAITERS) usleep(500);
    usleep(20000);
    die(way, group);
}
static void wait_for(int which) {
    struct flock lock = { F_WRLCK, SEEK_SET, 0, 9, 0 };
    char bytes[70000];
    struct epoll_event e = { EPOLLIN, { 0 } };
    int fifo = which == 5 ? open("fifo", O_RDONLY) : -1, set = epoll_create1(0), result = 0;
    close(to_reader[1]), close(to_writer[0]), close(pair[0]), close(held[0]), close(held[1]);
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, to_reader[0], &e) == 0);
    struct pollfd p = { pair[1], POLLIN, 0 }, q = { pidfd, POLLIN, 0 };
    __atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
    if (which == 0) result = fcntl(open("records", O_RDWR), F_SETLKW, &lock) == 0;
    if (which == 1) result = fcntl(open("owned", O_RDWR), F_OFD_SETLKW, &lock) == 0;
    if (which == 2) result = flock(open("whole", O_RDWR), LOCK_EX) == 0;
    if (which == 3) result = read(to_reader[0], bytes, 1) == 0;
    if (which == 4) {
        while (write(to_writer[1], bytes, sizeof bytes) > 0) ;
        result = errno == EPIPE;
    }
    if (which == 5) result = read(fifo, bytes, 1) == 0;
    if (which == 6) result = recv(pair[1], bytes, 1, 0) == 0;
    if (which == 7) result = poll(&p, 1, 30000) == 1;
    if (which == 8) result = epoll_wait(set, &e, 1, 30000) == 1;
    if (which == 9) result = poll(&q, 1, 30000) == 1;
    shared->woke[which] = now();
    NEED(result);
    __atomic_fetch_add(&shared->got, 1, __ATOMIC_SEQ_CST);
    _exit(0);
}
static void pipes(void) {
    NEED(pipe(to_reader) == 0 && pipe(to_writer) == 0 && pipe(held) == 0);
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int n = 0; n < 40; n++) {
        char byte;
        NEED(write(to_reader[1], "x", 1) == 1 && read(to_reader[0], &byte, 1) == 1);
        NEED(write(to_writer[1], "x", 1) == 1 && read(to_writer[0], &byte, 1) == 1);
    }
}
static void round_of(const char *way, const char *group, long *slowest) {
    pid_t pids[WAITERS], victim;
    int status;
    memset(shared, 0, sizeof *shared);
    pipes();
    NEED((victim = fork()) >= 0);
    if (victim == 0) hold(way, group), _exit(77);
    pidfd = syscall(SYS_pidfd_open, victim, 0);
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < 1) usleep(500);
    for (int n = 0; n < WAITERS; n++)
        if ((pids[n] = fork()) == 0) wait_for(n);
    close(to_reader[0]), close(to_reader[1]), close(to_writer[0]), close(to_writer[1]);
    close(pair[0]), close(pair[1]), close(held[0]), close(held[1]);
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) <= WAITERS) usleep(500);
    if (strcmp(way, "killed") == 0 || strcmp(way, "changing") == 0)
        usleep(30000), kill(victim, SIGKILL);
    siginfo_t info;
    NEED(waitid(P_PID, victim, &info, WEXITED | WNOWAIT) == 0);
    double died = now();
    NEED(waitpid(victim, &status, 0) == victim);
    printf("ended %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
    for (int n = 0; n < WAITERS; n++) {
        double end = now() + 20;
        while (waitpid(pids[n], &status, WNOHANG) == 0) {
            if (now() > end) printf("%s: never\n", waits[n]), kill(pids[n], SIGKILL), end += 1e9;
            usleep(1000);
        }
        long late = (shared->woke[n] - died) * 1000;
        if (late > limit_ms) printf("%s: %ld ms late\n", waits[n], late);
        if (late > *slowest) *slowest = late;
    }
    printf("woken %d\n", shared->got);
    close(pidfd);
}

int main(int argc, char **argv) {
    struct statvfs before, after;
    long slowest = 0;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 3) limit_ms = atol(argv[3]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *files[] = { "records", "owned", "whole", "one" };
    for (int n = 0; n < 4; n++) NEED(close(open(files[n], O_CREAT | O_RDWR, 0600)) == 0);
    NEED(shared != MAP_FAILED && mkfifo("fifo", 0600) == 0);
    round_of(argv[1], argc > 2 ? argv[2] : "", &slowest);
    unlink("two"), close(open("one", O_CREAT | O_RDWR, 0600));
    NEED(statvfs(".", &before) == 0);
    for (int n = 1; n < ROUNDS; n++) {
        round_of(argv[1], argc > 2 ? argv[2] : "", &slowest);
        unlink("two"), close(open("one", O_CREAT | O_RDWR, 0600));
    }
    for (int n = 0; n < 200; n++, usleep(10000)) {
        NEED(statvfs(".", &after) == 0);
        if (after.f_bfree >= before.f_bfree && after.f_ffree >= before.f_ffree) break;
    }
    fprintf(stderr, "slowest %ld ms; blocks lost %ld, inodes lost %ld\n", slowest,
            (long)(before.f_bfree - after.f_bfree), (long)(before.f_ffree - after.f_ffree));
    /* The host's file system is others', too. */
    if (getenv("HUSK_FSCK"))
        printf("lost: %d\n", after.f_bfree < before.f_bfree || after.f_ffree < before.f_ffree);
    for (int n = 0; n < 4; n++) unlink(files[n]);
    unlink("fifo");
    return 0;
}
