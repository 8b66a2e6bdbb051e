/* Threads open, duplicate, replace and close files of the image, files of the host, pipes, sockets,
 * event counters and pidfds at the same time. Each number must stay what it was opened as until its
 * owner closes it, whoever else gets and gives back the numbers around it; at the end none is left. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 6
#define ROUNDS 700
#define P_PIDFD_ 3

static _Thread_local unsigned long state;
static unsigned random_below(unsigned limit) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(state >> 33) % limit;
}

static void fail(const char *what, int fd) {
    int error = errno;
    struct stat facts = {0};
    char link[64], target[256] = "";
    int known = fstat(fd, &facts);
    sprintf(link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) < 0)
        strcpy(target, "-");
    printf("failed: %s: number %d: %s (fstat %d, mode %o, size %ld, host %s)\n", what, fd, strerror(error), known,
           facts.st_mode, (long)facts.st_size, target);
    fflush(stdout);
    _exit(1);
}

/* What a number must be. */
struct held {
    int fd;
    mode_t kind;
    ino_t inode;
};

static struct held hold(int fd, mode_t kind, const char *what) {
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) < 0 || (facts.st_mode & S_IFMT) != kind)
        fail(what, fd);
    return (struct held){fd, kind, facts.st_ino};
}

static void check(const struct held *h, const char *what) {
    struct stat facts;
    if (fstat(h->fd, &facts) < 0 || (facts.st_mode & S_IFMT) != h->kind || facts.st_ino != h->inode)
        fail(what, h->fd);
}

static void let_go(const struct held *h, const char *what) {
    check(h, what);
    if (close(h->fd) < 0)
        fail(what, h->fd);
}

static struct held own_file(long n) {
    char path[32];
    sprintf(path, "own-%ld-%u", n, random_below(4));
    return hold(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644), S_IFREG, "a file of the image");
}

static void use_file(long n) {
    struct held file = own_file(n);
    long value = random_below(1000), back = -1;
    if (pwrite(file.fd, &value, sizeof value, 0) != sizeof value || pread(file.fd, &back, sizeof back, 0) != sizeof back || back != value)
        fail("bytes of a file", file.fd);
    let_go(&file, "a file of the image at its end");
}

/* A file of the host that another thread may be changing: its descriptor becomes the image's. */
static void use_host_file(long n) {
    char path[32], bytes[16];
    sprintf(path, "given-%u", random_below(64));
    struct held file = hold(open(path, O_RDONLY | (random_below(2) ? O_CLOEXEC : 0)), S_IFREG, "a file of the host");
    if (read(file.fd, bytes, 5) != 5 || memcmp(bytes, "given", 5))
        fail("bytes of a file of the host", file.fd);
    if (random_below(8) == 0) {
        struct held writer = hold(open(path, O_WRONLY), S_IFREG, "a file copied up");
        if (pwrite(writer.fd, "given", 5, 0) != 5)
            fail("a change", writer.fd);
        let_go(&writer, "a file copied up at its end");
    }
    if (read(file.fd, bytes, 5) != 5 || memcmp(bytes, "- yes", 5))
        fail("further bytes of a file of the host", file.fd);
    let_go(&file, "a file of the host at its end");
    (void)n;
}

static void use_pipe(long n) {
    int ends[2];
    char byte = 0;
    if (pipe2(ends, random_below(2) ? O_CLOEXEC : 0) < 0)
        fail("pipe", -1);
    struct held in = hold(ends[0], S_IFIFO, "the end of a pipe to read");
    struct held out = hold(ends[1], S_IFIFO, "the end of a pipe to write");
    if (write(out.fd, "x", 1) != 1 || read(in.fd, &byte, 1) != 1 || byte != 'x')
        fail("a byte through a pipe", out.fd);
    struct held second = hold(fcntl(in.fd, F_DUPFD_CLOEXEC, random_below(12)), S_IFIFO, "a second number");
    let_go(&in, "the end to read at its end");
    let_go(&second, "the second number at its end");
    let_go(&out, "the end to write at its end");
    (void)n;
}

static void use_counter(long n) {
    unsigned long value = 0;
    int fd = eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || read(fd, &value, 8) != 8 || value != 7 || close(fd) < 0)
        fail("an event counter", fd);
    (void)n;
}

/* A descriptor sent to ourselves arrives under a number that the host chooses. */
static void use_message(long n) {
    int sockets[2], ends[2], got;
    char byte = 'y', control[CMSG_SPACE(sizeof(int))] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        fail("socketpair", -1);
    struct held a = hold(sockets[0], S_IFSOCK, "a socket"), b = hold(sockets[1], S_IFSOCK, "its peer");
    struct held in = hold(ends[0], S_IFIFO, "what is sent"), out = hold(ends[1], S_IFIFO, "its other end");
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &in.fd, sizeof(int));
    if (sendmsg(a.fd, &message, 0) != 1 || recvmsg(b.fd, &message, MSG_CMSG_CLOEXEC) != 1)
        fail("a message", b.fd);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    struct held copy = hold(got, S_IFIFO, "what has arrived");
    if (copy.inode != in.inode)
        fail("what has arrived is another", got);
    let_go(&copy, "what has arrived at its end"), let_go(&in, "what was sent at its end");
    let_go(&a, "a socket at its end"), let_go(&b, "its peer at its end"), let_go(&out, "the other end at its end");
    (void)n;
}

/* Numbers that change hands: the image's for the host's and back. */
static void use_replacement(long n) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        fail("pipe", -1);
    struct held in = hold(ends[0], S_IFIFO, "a pipe"), out = hold(ends[1], S_IFIFO, "its other end");
    struct held file = own_file(n), other = own_file(n);
    if (dup3(in.fd, file.fd, O_CLOEXEC) != file.fd)
        fail("a pipe in the place of a file", file.fd);
    file.kind = S_IFIFO, file.inode = in.inode;
    check(&file, "a pipe in the place of a file");
    if (dup3(other.fd, in.fd, O_CLOEXEC) != in.fd)
        fail("a file in the place of a pipe", in.fd);
    in.kind = S_IFREG, in.inode = other.inode;
    check(&in, "a file in the place of a pipe");
    if (dup2(file.fd, other.fd) != other.fd)
        fail("a pipe again", other.fd);
    other.kind = S_IFIFO, other.inode = file.inode;
    let_go(&file, "a replaced file"), let_go(&in, "a replaced pipe");
    let_go(&other, "a pipe again"), let_go(&out, "the other end of a replaced pipe");
}

static int end_at_once(void *status) {
    _exit((int)(long)status);
}

/* The host chooses the number of a pidfd while the parent sleeps in vfork. */
static void use_child(long n) {
    static char stacks[THREADS][32768] __attribute__((aligned(16)));
    int pidfd = -1, status = (int)random_below(100), flags = CLONE_PIDFD | SIGCHLD;
    if (random_below(2))
        flags |= CLONE_VM | CLONE_VFORK;
    pid_t pid = clone(end_at_once, stacks[n] + sizeof stacks[n], flags, (void *)(long)status, &pidfd);
    siginfo_t info = {0};
    if (pid < 0)
        fail("clone", -1);
    if (waitid(P_PIDFD_, (id_t)pidfd, &info, WEXITED) < 0)
        fail("waitid on a pidfd", pidfd);
    if (info.si_pid != pid || info.si_code != CLD_EXITED || info.si_status != status) {
        char what[128];
        sprintf(what, "child %d of a pidfd is %d, its end %d with %d, not %d", pid, info.si_pid, info.si_code, info.si_status, status);
        fail(what, pidfd);
    }
    if (close(pidfd) < 0)
        fail("a pidfd at its end", pidfd);
}

/* How far each thread is, for whoever waits in vain. */
static struct {
    int round, use;
} at[THREADS];
#define PATIENCE 55

static void out_of_patience(int signal) {
    char line[64];
    for (int n = 0; n < THREADS; n++) {
        int length = snprintf(line, sizeof line, "not done: thread %d, round %d, use %d\n", n, at[n].round, at[n].use);
        if (write(1, line, (size_t)length) < 0)
            break;
    }
    _exit(signal);
}

static void *worker(void *argument) {
    static void (*const uses[])(long) = {use_file, use_file, use_file, use_host_file, use_host_file, use_pipe, use_counter, use_message, use_replacement, use_replacement, use_child};
    long n = (long)argument;
    state = (unsigned long)n * 7919 + 1;
    for (int round = 0; round < ROUNDS; round++) {
        at[n].round = round, at[n].use = (int)random_below(sizeof uses / sizeof uses[0]);
        uses[at[n].use](n);
    }
    at[n].use = -1;
    return NULL;
}

static int count_of_the_host(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count;
}

int main(void) {
    pthread_t ids[THREADS];
    signal(SIGALRM, out_of_patience), alarm(PATIENCE);
    int before = count_of_the_host(), first = open("first", O_CREAT | O_RDWR, 0644);
    for (long n = 0; n < THREADS; n++)
        if (pthread_create(&ids[n], NULL, worker, (void *)n) != 0)
            fail("pthread_create", -1);
    for (int n = 0; n < THREADS; n++)
        pthread_join(ids[n], NULL);
    int next = open("first", O_RDONLY);
    printf("next number %d behind the first\n", next - first);
    close(next), close(first);
    printf("left in the host's table: %d\n", count_of_the_host() - before);
    return 0;
}
