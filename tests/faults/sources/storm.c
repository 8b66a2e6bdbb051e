/* storm WORKERS SECONDS
 *
 * Workers (forked, never exec'd) create, write, rename, link, stat, list and remove the same few
 * names in three directories; somebody outside kills them with SIGKILL. The parent replaces the
 * dead and does operations on the same names itself, timing each (less the time it was not on a
 * processor). At the end it ends the workers, removes everything, starts a fresh program, and
 * prints what it saw. Any answer that Linux would not give ends it with status 1. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORIES 3
#define NAMES 4
#define WORKERS_MAX 16

static unsigned long seed;

static unsigned dice(unsigned bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 33) % bound;
}

static void fail(const char *what) {
    printf("failed: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* A call on an open file failed: what the file is says whether it has been freed under its user. */
static void fail_on(int fd, const char *what) {
    struct stat facts = {0};
    char byte;
    printf("failed: %s: %s", what, strerror(errno));
    int status = fstat(fd, &facts);
    printf("; fstat %s: inode %lu, links %lu, %ld bytes", status < 0 ? strerror(errno) : "succeeds",
           (unsigned long)facts.st_ino, (unsigned long)facts.st_nlink, (long)facts.st_size);
    usleep(10000);
    printf("; 10 ms later pread %s", pread(fd, &byte, 1, 0) < 0 ? strerror(errno) : "succeeds");
    printf(", pwrite %s\n", pwrite(fd, "x", 1, 0) < 0 ? strerror(errno) : "succeeds");
    fflush(stdout);
    _exit(1);
}

/* Names race: these answers are all right. */
static void expect(const char *what, int result) {
    if (result < 0 && errno != ENOENT && errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR &&
        errno != EISDIR && !(errno == EPERM && !strcmp(what, "link")))
        fail(what);
}

static const char *name(char *buffer) {
    sprintf(buffer, "s%u/n%u", dice(DIRECTORIES), dice(NAMES));
    return buffer;
}

static void list(const char *path) {
    DIR *directory = opendir(path);
    if (!directory)
        fail("opendir");
    int entries = 0;
    while (readdir(directory))
        entries++;
    closedir(directory);
    if (entries < 2 || entries > 2 + 2 * NAMES)
        fail("an impossible number of names");
}

static void write_file(const char *path, int flags) {
    char data[6000];
    int fd = open(path, flags, 0644);
    if (fd < 0) {
        expect("open", fd);
        return;
    }
    memset(data, 'a' + dice(26), sizeof data);
    if (write(fd, data, 1 + dice(sizeof data)) < 0)
        fail_on(fd, "write");
    if (dice(4) == 0 && ftruncate(fd, dice(9000)) < 0)
        fail_on(fd, "ftruncate");
    if (pread(fd, data, sizeof data, dice(3000)) < 0)
        fail_on(fd, "pread");
    if (close(fd) < 0)
        fail("close");
}

static void operate(void) {
    char a[16], b[16];
    struct stat facts;
    switch (dice(10)) {
    case 0: case 1: write_file(name(a), O_RDWR | O_CREAT); break;
    case 2: write_file(name(a), O_RDWR | O_CREAT | O_EXCL); break;
    case 3: write_file(name(a), O_RDWR | O_CREAT | O_TRUNC); break;
    case 4: expect("unlink", unlink(name(a))); break;
    case 5: expect("rename", rename(name(a), name(b))); break;
    case 6: expect("link", link(name(a), name(b))); break;
    case 7: expect("mkdir", mkdir(name(a), 0755)); break;
    case 8: expect("rmdir", rmdir(name(a))); break;
    case 9:
        expect("stat", stat(name(a), &facts));
        sprintf(a, "s%u", dice(DIRECTORIES));
        list(a);
        break;
    }
}

static unsigned long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ul + t.tv_nsec;
}

/* Time spent ready to run, but not on a processor. */
static unsigned long queued_ns(int schedstat) {
    char text[128] = "";
    unsigned long on, waiting = 0;
    if (pread(schedstat, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%lu %lu", &on, &waiting) != 2)
        return 0;
    return waiting;
}

static pid_t start(int number) {
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid > 0)
        return pid;
    seed = (getpid() * 0x9e3779b97f4a7c15ul + number) | 1;
    for (;;)
        operate();
}

static void make(void) {
    char path[16];
    for (int d = 0; d < DIRECTORIES; d++) {
        sprintf(path, "s%d", d);
        if (mkdir(path, 0755) < 0)
            fail("mkdir at the start");
    }
}

static void clean(void) {
    char path[300];
    for (int d = 0; d < DIRECTORIES; d++) {
        sprintf(path, "s%d", d);
        list(path);
        for (int n = 0; n < NAMES; n++) {
            sprintf(path, "s%d/n%d", d, n);
            if (remove(path) < 0 && errno != ENOENT)
                fail("remove at the end");
        }
        sprintf(path, "s%d", d);
        if (rmdir(path) < 0)
            fail("rmdir at the end");
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int workers = atoi(argv[1]), deaths = 0;
    unsigned long end = now_ns() + atol(argv[2]) * 1000000000ul, slowest = 0, operations = 0;
    pid_t pids[WORKERS_MAX];
    struct statvfs before, after;
    seed = getpid() | 1;
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
    make(), clean(), make();
    for (int n = 0; n < 200; n++)
        operate();
    clean();
    if (statvfs(".", &before) < 0)
        fail("statvfs");
    make();
    for (int n = 0; n < workers; n++)
        pids[n] = start(n);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (now_ns() < end) {
        int status;
        pid_t dead;
        while ((dead = waitpid(-1, &status, WNOHANG)) > 0) {
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                fail("a worker ended by itself");
            for (int n = 0; n < workers; n++)
                if (pids[n] == dead)
                    pids[n] = start(n);
            deaths++;
        }
        unsigned long began = now_ns(), queued = queued_ns(schedstat);
        operate();
        unsigned long took = now_ns() - began, off = queued_ns(schedstat) - queued;
        took = took > off ? took - off : 0;
        if (took > slowest)
            slowest = took;
        operations++;
        usleep(500);
    }
    for (int n = 0; n < workers; n++) {
        kill(pids[n], SIGKILL);
        if (waitpid(pids[n], NULL, 0) < 0)
            fail("waitpid");
    }
    clean();
    if (system("echo fresh > fresh && grep -q fresh fresh && rm fresh") != 0)
        fail("a fresh program");
    /* What the dead held is given back by whoever notices: at once or a moment later. */
    for (int n = 0; n < 100; n++) {
        if (statvfs(".", &after) < 0)
            fail("statvfs");
        if (after.f_ffree >= before.f_ffree && after.f_bfree >= before.f_bfree)
            break;
        usleep(20000);
    }
    printf("deaths=%d operations=%lu slowest_ms=%lu lost_inodes=%ld lost_blocks=%ld\n", deaths, operations,
           slowest / 1000000, (long)(before.f_ffree - after.f_ffree), (long)(before.f_bfree - after.f_bfree));
    return 0;
}
