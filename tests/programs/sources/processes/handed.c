/* One thread opens files of the image and of the host, by paths that it has used before, and hands
 * their numbers on in every way there is: what a number is must be seen by the next call on it, from
 * the first to the last. What children and threads do to a table that they share is seen, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBERS 70 /* past those that are quickest to look up */
#define BEYOND 4060 /* from here on some have no bit with the gate, and some have */
#define ROUNDS 60000

static const char *const PATHS[] = {"a", "b", "c", "/etc/passwd", "/bin/sh", "/etc/group"};
static const char FIRST[] = {'a', 'b', 'c', 'r', 0x7f, 'r'};
static int LOW = 3, HIGH = NUMBERS;
static short is[BEYOND + NUMBERS]; /* the first byte behind a number, -1: not open */
static unsigned long state;
static int threads; /* more than one, so a table of its own would not be seen by the next */

static unsigned random_below(unsigned limit) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(state >> 33) % limit;
}

static void fail(const char *what, int fd, int got) {
    printf("failed: %s: number %d is %d and shows %d (%s)\n", what, fd, is[fd], got, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* The first byte behind a number, as one of many calls shows it. */
static int first(int fd, unsigned way) {
    char byte = 0;
    struct iovec all = {&byte, 1};
    struct stat facts;
    switch (way) {
    case 0: return pread(fd, &byte, 1, 0) == 1 ? byte : -1;
    case 1: return lseek(fd, 0, SEEK_SET) == 0 && read(fd, &byte, 1) == 1 ? byte : -1;
    case 2: return lseek(fd, 0, SEEK_SET) == 0 && readv(fd, &all, 1) == 1 ? byte : -1;
    case 3: return fstat(fd, &facts) < 0 ? -1 : pread(fd, &byte, 1, 0) == 1 ? byte : -2;
    case 4: /* neither a socket nor open for writing */
        if (recv(fd, &byte, 1, 0) >= 0 || (errno != ENOTSOCK && errno != EBADF))
            return -2;
        return errno == EBADF ? -1 : pread(fd, &byte, 1, 0) == 1 ? byte : -2;
    default:
        if (write(fd, "x", 1) >= 0 || errno != EBADF)
            return -2;
        return pread(fd, &byte, 1, 0) == 1 ? byte : -1;
    }
}

static void look(const char *what, int fd) {
    int got = first(fd, random_below(6));
    if (got != is[fd])
        fail(what, fd, got);
}

static void set(const char *what, int fd, short byte) {
    if (fd < LOW || fd >= HIGH)
        fail(what, LOW, fd);
    is[fd] = byte;
    look(what, fd);
}

static void open_one(void) {
    unsigned which = random_below(6);
    int flags = random_below(2) ? O_CLOEXEC : 0;
    int fd = random_below(2) ? open(PATHS[which], O_RDONLY | flags)
                             : (int)syscall(SYS_openat, AT_FDCWD, PATHS[which], O_RDONLY | O_NONBLOCK | flags);
    if (fd < 0)
        fail(PATHS[which], LOW, fd);
    if (fd >= HIGH)
        close(fd);
    else
        set("open", fd, FIRST[which]);
}

static int used(void) {
    for (;;) {
        int fd = LOW + (int)random_below(HIGH - LOW);
        if (is[fd] >= 0)
            return fd;
        open_one();
    }
}

static int other(int fd) {
    int target = LOW + (int)random_below(HIGH - LOW);
    return target == fd ? (fd + 1 < HIGH ? fd + 1 : LOW) : target;
}

/* Does to two numbers what their owner is to find; returns nothing but by the table. */
static int shared_fd, shared_target;
static int in_child(void *unused) {
    (void)unused;
    if (dup2(shared_fd, shared_target) != shared_target)
        _exit(1);
    if (pread(shared_target, &(char){0}, 1, 0) != 1)
        _exit(1);
    _exit(0);
}

static void hand_over_by_child(void) {
    static char stack[65536];
    shared_fd = used();
    shared_target = other(shared_fd);
    int child = clone(in_child, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL), status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("a child with the same table", shared_fd, child);
    set("what a child put there", shared_target, is[shared_fd]);
}

static void look_in_child(void) {
    int child = fork(), status;
    if (child == 0) {
        for (int fd = LOW; fd < HIGH; fd++)
            look("in a child", fd);
        int fd = used();
        close(fd);
        set("closed in a child", fd, -1);
        open_one();
        for (int fd = LOW; fd < HIGH; fd++)
            look("in a child", fd);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("a child", LOW, child);
}

static void step(void) {
    int fd = used(), target = other(fd), got;
    switch (random_below(100)) {
    case 0 ... 29: open_one(); break;
    case 30 ... 49:
        if (close(fd) != 0)
            fail("close", fd, -1);
        set("closed", fd, -1);
        break;
    case 50 ... 64:
        if (dup2(fd, target) != target)
            fail("dup2", fd, target);
        set("dup2", target, is[fd]);
        break;
    case 65 ... 72:
        if (dup3(fd, target, O_CLOEXEC) != target)
            fail("dup3", fd, target);
        set("dup3", target, is[fd]);
        break;
    case 73 ... 80:
        got = random_below(2) ? dup(fd) : fcntl(fd, F_DUPFD, LOW + random_below(8));
        if (got >= HIGH)
            close(got);
        else
            set("dup", got, is[fd]);
        break;
    case 81 ... 83:
        got = fd + 3 < HIGH ? fd + 3 : HIGH - 1;
        if (close_range(fd, got, 0) != 0)
            fail("close_range", fd, -1);
        for (; fd <= got; fd++)
            set("close_range", fd, -1);
        break;
    case 84:
        if (!threads && unshare(CLONE_FILES) != 0)
            fail("unshare", fd, -1);
        break;
    case 85: hand_over_by_child(); break;
    case 86: look_in_child(); break;
    default: look("once more", fd); look("once more", target);
    }
}

static void *steps(void *count) {
    for (int round = 0; round < *(int *)count; round++)
        step();
    return NULL;
}

/* Paths and buffers that lead nowhere, of calls on a number of the host's. */
static void show_misfits(void) {
    const char *const paths[] = {"", NULL, (char *)8, "x", "/etc/group", (char *)(1UL << 63)};
    int fd = open("/etc/passwd", O_RDONLY), pair[2];
    char bytes[8];
    struct stat facts;
    for (int turn = 0; turn < 3; turn++) {
        for (int n = 0; n < 6; n++) {
            long said = syscall(SYS_newfstatat, fd, paths[n], &facts, AT_EMPTY_PATH);
            printf("%ld %d\n", said, said < 0 ? errno : 0);
        }
        printf("%ld\n", syscall(SYS_newfstatat, fd, "", (void *)8, AT_EMPTY_PATH));
        printf("%ld\n", syscall(SYS_newfstatat, fd, "", &facts, 0));
        printf("%ld\n", syscall(SYS_pread64, fd, (void *)8, 4L, 0L));
    }
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (int turn = 0; turn < 3; turn++) {
        struct sockaddr_storage name = {0};
        socklen_t length = sizeof name;
        printf("%ld ", (long)send(pair[0], "abc", 3, 0));
        printf("%ld ", (long)recvfrom(pair[1], bytes, 8, 0, (struct sockaddr *)&name, &length));
        printf("%u %ld\n", length, (long)sendto(pair[0], "abc", 3, 0, (void *)8, 20));
    }
    fflush(stdout);
}

/* Places for the descriptor of a child that take none, and one that does. */
static void show_births(void) {
    char *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_READ | PROT_WRITE);
    unsigned long places[] = {8, 0, (unsigned long)page, 1UL << 63, (unsigned long)page + 4096};
    for (int n = 0; n < 5; n++) {
        unsigned long asked[8] = {CLONE_PIDFD, places[n], 0, 0, SIGCHLD};
        for (int way = 0; way < 2; way++) {
            long child = way ? syscall(SYS_clone3, asked, sizeof asked)
                             : syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, places[n], 0, 0);
            if (child == 0)
                _exit(0);
            printf("born %d: %d\n", n, child > 0 ? 0 : errno);
            fflush(stdout);
            if (child > 0)
                waitpid((pid_t)child, NULL, 0);
        }
    }
}

static void *nothing(void *unused) {
    return unused;
}

/* Who has joined its only other thread is alone from then on. */
static void part_when_joined(void) {
    int refused = 0;
    for (int turn = 0; turn < 2000; turn++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) != 0)
            _exit(1);
        pthread_join(thread, NULL);
        refused += unshare(CLONE_FILES) != 0;
    }
    printf("refused %d\n", refused);
}

/* What many calls have found to be a file of the host's is the end of a pipe for the next one, whose
 * bytes may be where the host does not look. */
static void become_a_pipe(void) {
    for (int fd = LOW + 8; fd < HIGH; fd += 7) {
        int file = open("/etc/passwd", O_RDONLY), ends[2];
        char sent = 'a', got = 0;
        if (dup2(file, fd) != fd || close(file) != 0)
            fail("dup2 of a file", fd, -1);
        for (int turn = 0; turn < 3; turn++)
            if (pread(fd, &got, 1, 0) != 1 || got != 'r')
                fail("pread", fd, got);
        if (pipe(ends) != 0 || dup2(ends[0], fd) != fd)
            fail("dup2 of a pipe", fd, -1);
        alarm(20); /* a read that looks elsewhere sleeps */
        for (int turn = 0; turn < 100; turn++, sent++)
            if (write(ends[1], &sent, 1) != 1 || read(turn < 50 ? ends[0] : fd, &got, 1) != 1 ||
                got != sent)
                fail("a byte of a pipe", fd, got);
        alarm(0);
        close(ends[0]);
        close(ends[1]);
        close(fd);
    }
}

/* Takes all numbers below `BEYOND`. */
static void begin_beyond(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd < BEYOND - 1)
        fd = dup(0);
    if (fd != BEYOND - 1)
        fail("no room for so many numbers", BEYOND, fd);
    LOW = BEYOND;
    HIGH = BEYOND + NUMBERS;
}

int main(int argc, char **argv) {
    int rounds = ROUNDS;
    (void)argc;
    for (int n = 0; n < 3; n++) {
        int fd = open(PATHS[n], O_CREAT | O_WRONLY, 0644);
        if (write(fd, PATHS[n], 1) != 1)
            return 1;
        close(fd);
    }
    show_misfits();
    show_births();
    close_range(LOW, ~0U, 0);
    memset(is, -1, sizeof is);
    state = 7;
    if (strcmp(argv[1], "beyond") == 0) {
        begin_beyond();
        rounds /= 20; /* each fork copies them all */
    }
    become_a_pipe();
    threads = strcmp(argv[1], "threads") == 0;
    if (!threads) {
        steps(&rounds);
    } else {
        /* Another thread has the numbers for a while, then this one again, and so on. */
        rounds /= 50;
        for (int turn = 0; turn < 10; turn++) {
            pthread_t thread;
            steps(&rounds);
            if (pthread_create(&thread, NULL, steps, &rounds) != 0)
                return 1;
            pthread_join(thread, NULL);
        }
        part_when_joined();
    }
    unsigned long sum = state;
    for (int fd = LOW; fd < HIGH; fd++)
        sum = sum * 31 + (unsigned long)is[fd];
    printf("%lx\n", sum);
    return 0;
}
