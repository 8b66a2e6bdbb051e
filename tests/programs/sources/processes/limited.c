/* limited files|others|processes|threads: every call that makes a descriptor, with no number free and with
 * one, where files of the tree or others have the rest; what needs none goes on; and a limit of
 * processes; and threads that execute at a time, beside the limit. Prints what Linux says. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { LIMIT = 64 };
extern char **environ;
static int fillers[LIMIT], filled, given, listening, calling[2], made;

static void told(const char *what, long value) {
    printf("%s: %s\n", what, value < 0 ? strerrorname_np(errno) : "done");
}
/* Calls that make one: the number, or less than none. */
static int ones(int which) {
    struct open_how how = { .flags = O_RDONLY };
    sigset_t none;
    sigemptyset(&none);
    char name[] = "tmp-XXXXXX";
    int fd;
    DIR *directory;
    switch (which) {
    case 0: return open("file", O_RDONLY);
    case 1: return open("new", O_CREAT | O_EXCL | O_WRONLY, 0644);
    case 2: return open("file", O_WRONLY | O_TRUNC);
    case 3: return open("given", O_RDWR | O_TRUNC);
    case 4: return syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how);
    case 5: return open(".", O_TMPFILE | O_RDWR, 0600);
    case 6: return open("file", O_PATH);
    case 7: return (directory = opendir(".")) == NULL ? -1 : (fd = dirfd(directory));
    case 8: return open("/etc/passwd", O_RDONLY);
    case 9: return open("/proc/self/stat", O_RDONLY);
    case 10: return open("/dev/null", O_RDWR);
    case 11: return open("fifo", O_RDWR);
    case 12: return dup(made);
    case 13: return dup(0);
    case 14: return fcntl(made, F_DUPFD, 3);
    case 15: return fcntl(0, F_DUPFD_CLOEXEC, 3);
    case 16: return socket(AF_UNIX, SOCK_STREAM, 0);
    case 17: return accept(listening, NULL, NULL);
    case 18: return epoll_create1(0);
    case 19: return eventfd(0, 0);
    case 20: return timerfd_create(CLOCK_MONOTONIC, 0);
    case 21: return signalfd(-1, &none, 0);
    case 22: return inotify_init1(0);
    case 23: return memfd_create("memory", 0);
    case 24: return syscall(SYS_pidfd_open, getpid(), 0);
    case 25: return (fd = mkstemp(name)) >= 0 && unlink(name) == 0 ? fd : -1;
    case 26: return open("link", O_RDONLY);
    case 27: return open("absent", O_RDONLY);
    case 28: return open("fifo", O_WRONLY | O_NONBLOCK);
    default: return -2;
    }
}
static const char *const names[] = { "open", "create", "open to empty", "open to empty, of the host",
    "openat2", "O_TMPFILE", "O_PATH", "opendir", "host file", "/proc", "device", "FIFO", "dup",
    "dup of the host's", "F_DUPFD", "F_DUPFD_CLOEXEC", "socket", "accept", "epoll", "eventfd",
    "timerfd", "signalfd", "inotify", "memfd", "pidfd", "mkstemp", "link", "absent",
    "FIFO that nobody reads" };
static void pairs(void) {
    int p[2] = { -7, -7 };
    told("pipe", pipe(p)), told("pipe2", pipe2(p, O_CLOEXEC));
    told("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    printf("%d %d\n", p[0], p[1]);
}
static void targets(void) {
    told("dup2 onto itself", dup2(made, made)), told("dup2 onto one", dup2(made, fillers[1]));
    told("dup3 onto one", dup3(0, fillers[2], O_CLOEXEC));
    told("dup2 onto the limit", dup2(made, LIMIT)), told("dup3 beyond", dup3(0, LIMIT + 9, 0));
    told("F_DUPFD from the limit", fcntl(made, F_DUPFD, LIMIT));
}
/* What needs no number goes on. */
static void others(void) {
    char text[16] = "", *view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    NEED(view != MAP_FAILED && pwrite(made, "written", 7, 0) == 7 && memcmp(view, "written", 7) == 0);
    NEED(pwrite(given, "CHANGED", 7, 0) == 7 && pread(given, text, 9, 0) == 9);
    printf("%s\n", text);
    NEED(rename("file", "moved") == 0 && mkdir("dir", 0755) == 0 && rename("moved", "dir/file") == 0);
    NEED(truncate("dir/file", 4096) == 0 && chmod("given", 0600) == 0 && link("given", "other") == 0);
    NEED(rename("dir/file", "file") == 0 && rmdir("dir") == 0 && unlink("other") == 0);
    NEED(munmap(view, 4096) == 0 && symlink("file", "second") == 0 && unlink("second") == 0);
    int status;
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) _exit(pwrite(made, "child", 5, 0) == 5 && open("file", O_RDONLY) < 0 ? 3 : 4);
    NEED(waitpid(pid, &status, 0) == pid);
    printf("a child: %d\n", WEXITSTATUS(status));
    NEED(posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){ "true", NULL }, environ) == 0);
    NEED(waitpid(pid, &status, 0) == pid);
    printf("a program: %d\n", WEXITSTATUS(status));
}
static void arrives(const char *what, int socket) {
    char control[CMSG_SPACE(3 * sizeof(int))], byte;
    struct iovec part = { &byte, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control };
    NEED(recvmsg(socket, &m, 0) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    int count = head ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    printf("%s: %d, %s\n", what, count, m.msg_flags & MSG_CTRUNC ? "cut" : "whole");
    for (int n = 0; n < count; n++) NEED(close(((int *)CMSG_DATA(head))[n]) == 0);
}
static void send_three(int socket) {
    char control[CMSG_SPACE(3 * sizeof(int))] = "", byte = 'x';
    struct iovec part = { &byte, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(head), (int[]){ made, 0, made }, 3 * sizeof(int));
    NEED(sendmsg(socket, &m, 0) == 1);
}

static void descriptors(int of_files) {
    struct rlimit limit;
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "name" };
    NEED((made = open("file", O_CREAT | O_RDWR, 0644)) >= 0 && ftruncate(made, 4096) == 0);
    NEED((given = open("given", O_RDWR)) >= 0 && mkfifo("fifo", 0644) == 0);
    NEED(symlink("file", "link") == 0 && (listening = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0);
    NEED(bind(listening, (struct sockaddr *)&name, sizeof name) == 0 && listen(listening, 9) == 0);
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, calling) == 0);
    for (int n = 0; n < 3; n++) {
        int caller = socket(AF_UNIX, SOCK_STREAM, 0);
        NEED(connect(caller, (struct sockaddr *)&name, sizeof name) == 0 && close(caller) == 0);
    }
    for (int n = 0; n < 3; n++) send_three(calling[0]);
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = LIMIT;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (;;) {
        int fd = of_files ? open("file", O_RDONLY | O_CLOEXEC) : eventfd(0, EFD_CLOEXEC);
        if (fd < 0) break;
        fillers[filled++] = fd;
    }
    told("filled", -1);
    for (int round = 0; round < 3; round++) {
        printf("with %d free\n", round);
        for (unsigned n = 0; n < sizeof names / sizeof *names; n++) {
            int fd = ones(n);
            told(names[n], fd);
            if (fd >= 0) NEED(close(fd) == 0);
        }
        told("new is there", access("new", F_OK));
        unlink("new");
        struct stat facts;
        NEED(stat("given", &facts) == 0);
        printf("of given %ld bytes\n", (long)facts.st_size);
        if (round < 2) pairs();
        arrives("three came", calling[1]);
        if (round == 0) targets(), others();
        close(fillers[--filled]);
    }
    for (int n = 0; n < 10; n++) close(fillers[--filled]);
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++) {
        int fd = ones(n);
        if (fd >= 0) NEED(close(fd) == 0);
        else told(names[n], fd);
    }
    pairs();
}

static void *rests(void *lock) {
    pthread_mutex_lock(lock), pthread_mutex_unlock(lock);
    return NULL;
}
/* As a user who has no other processes, and who may not go beyond a limit. */
static void processes(void) {
    pid_t pids[LIMIT], pid;
    int count = 0, status, p[2];
    char byte;
    if (geteuid() != 0) return;
    NEED(pipe(p) == 0 && setresuid(1000000 + getpid(), 1000000 + getpid(), 1000000 + getpid()) == 0);
    struct rlimit limit = { 20, 20 };
    NEED(setrlimit(RLIMIT_NPROC, &limit) == 0);
    for (; count < LIMIT && (pid = fork()) >= 0; count++) {
        if (pid == 0) close(p[1]), _exit(read(p[0], &byte, 1) != 0);
        pids[count] = pid;
    }
    printf("%d children, then %s\n", count, strerrorname_np(errno));
    errno = posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){ "true", NULL }, environ);
    told("a program", errno ? -1 : 0);
    pthread_t thread;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    errno = pthread_create(&thread, NULL, rests, &lock);
    told("a thread", errno ? -1 : 0);
    pid = vfork();
    if (pid == 0) _exit(0);
    told("vfork", pid);
    close(p[1]);
    for (int n = 0; n < count; n++)
        NEED(waitpid(pids[n], &status, 0) == pids[n] && status == 0);
    NEED((errno = pthread_create(&thread, NULL, rests, &lock)) == 0);
    pthread_mutex_unlock(&lock);
    NEED(pthread_join(thread, NULL) == 0);
    NEED((pid = fork()) >= 0);
    if (pid == 0) _exit(9);
    NEED(waitpid(pid, &status, 0) == pid);
    printf("again: %d\n", WEXITSTATUS(status));
}

/* Executes what is no program, again and again. */
static void *executes(void *path) {
    long other = 0;
    for (int n = 0; n < 500; n++)
        other += execve(path, (char *[]){ path, NULL }, environ) != -1 || errno != ENOEXEC;
    return (void *)other;
}
static void threads(const char *self) {
    enum { THREADS = 4 };
    char path[4096];
    pthread_t ids[THREADS];
    void *other;
    struct rlimit limit;
    NEED(snprintf(path, sizeof path, "%s.text", self) < (int)sizeof path);
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = LIMIT;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(0) >= 0) {}
    for (int n = 0; n < THREADS; n++) {
        int error;
        /* EAGAIN while another thread is in the middle of an exec. */
        while ((error = pthread_create(ids + n, NULL, executes, path)) == EAGAIN) {}
        NEED(error == 0);
    }
    for (int n = 0; n < THREADS; n++) {
        NEED(pthread_join(ids[n], &other) == 0);
        printf("other than ENOEXEC: %ld\n", (long)other);
    }
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    printf("the limit is %ld\n", (long)limit.rlim_cur);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    NEED(argc == 2);
    if (strcmp(argv[1], "processes") == 0) processes();
    else if (strcmp(argv[1], "threads") == 0) threads(argv[0]);
    else descriptors(strcmp(argv[1], "files") == 0);
    return 0;
}
