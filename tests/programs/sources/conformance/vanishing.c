// Buffers, names and structures that another thread unmaps, protects and maps again during the call:
// every answer is a count or EFAULT, what was moved is right, and nobody waits for ever for what a
// call held when its buffer went.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8, CALLERS = 3, TURNS = 4000 };

static char *area;
static atomic_int over;

static void fail(const char *what, long got) {
    printf("%s: %ld, errno %d\n", what, got, errno);
    fflush(stdout);
    _exit(1);
}

// Takes pages away and puts them back, in every way.
static void *take_away(void *unused) {
    for (unsigned n = 0; !atomic_load(&over); n++) {
        char *page = area + n * 7 % PAGES * PAGE;
        switch (n % 4) {
        case 0: munmap(page, PAGE); break;
        case 1: mprotect(page, PAGE, PROT_NONE); break;
        case 2: mprotect(page, PAGE, PROT_READ); break;
        case 3: madvise(page, PAGE, MADV_DONTNEED);
        }
        for (volatile int wait = 0; wait < 200; wait++) {}
        mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    return unused;
}

// The result of a call: at most `most`, or EFAULT.
static long judged(const char *what, long got, long most) {
    if (got < -1 || got > most || (got == -1 && errno != EFAULT)) fail(what, got);
    return got;
}

static void *call(void *argument) {
    long me = (long)argument;
    char name[32], linked[32], content[PAGES * PAGE], moved[PAGES * PAGE];
    snprintf(name, sizeof name, "file%ld", me), snprintf(linked, sizeof linked, "link%ld", me);
    memset(content, 'a' + me, sizeof content);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), directory = open(".", O_RDONLY | O_DIRECTORY);
    if (fd < 0 || directory < 0 || symlink(name, linked)) fail("prepared", fd);
    if (pwrite(fd, content, sizeof content, 0) != sizeof content) fail("filled", 0);
    setxattr(name, "user.value", content, 200, 0);
    for (int n = 0; n < TURNS; n++) {
        size_t at = (size_t)n * 1237 % (sizeof content - 5000), length = 1 + (size_t)n * 331 % 5000;
        char *buffer = area + at;
        struct iovec parts[3] = {{moved, 10}, {buffer, length}, {moved + 10, 10}};
        switch (n % 14) {
        case 0: judged("read", pread(fd, buffer, length, at), length); break;
        case 1: judged("readv", preadv(fd, parts, 3, at), length + 20); break;
        case 2: judged("write", pwrite(fd, buffer, length, at), length); break;
        case 3: judged("writev", pwritev(fd, parts, 3, at), length + 20); break;
        case 4: judged("stat", stat(name, (struct stat *)(buffer + PAGE - 70)), 0); break;
        case 5: judged("fstat", fstat(fd, (struct stat *)buffer), 0); break;
        case 6: judged("statx", syscall(SYS_statx, AT_FDCWD, name, 0, STATX_ALL, buffer), 0); break;
        case 7: lseek(directory, 0, SEEK_SET), judged("getdents", syscall(SYS_getdents64, directory, buffer, 4096), 4096); break;
        case 8: judged("readlink", readlink(linked, buffer, 100), 100); break;
        case 9: judged("getxattr", getxattr(name, "user.value", buffer, 4000), 4000); break;
        case 10: judged("listxattr", listxattr(name, buffer, 4000), 4000); break;
        case 11: judged("setxattr", setxattr(name, "user.other", buffer, 200, 0), 0); break;
        case 12: judged("iovec", readv(fd, (struct iovec *)buffer, 0), 0); break;
        case 13: {
            struct flock *lock = (struct flock *)buffer;
            long got = fcntl(fd, F_GETLK, lock);
            if (got == -1 && errno != EFAULT && errno != EINVAL && errno != EOVERFLOW) fail("getlk", got);
            // A name in memory that goes: any error of a name will do, too.
            got = open(buffer, O_RDONLY);
            if (got >= 0) close(got);
            if (got == -1 && errno != EFAULT && errno != ENOENT && errno != EACCES && errno != ENAMETOOLONG && errno != ENOTDIR)
                fail("open", got);
        }
        }
        // Nothing is held: the same file, and names beside it, go on.
        if (n % 64 == 0) {
            if (pwrite(fd, content, sizeof content, 0) != sizeof content) fail("write after", n);
            if (pread(fd, moved, sizeof moved, 0) != sizeof moved || memcmp(moved, content, sizeof moved)) fail("read after", n);
            char other[32];
            snprintf(other, sizeof other, "other%ld", me);
            int made = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
            if (made < 0 || rename(other, linked) || unlink(linked) || symlink(name, linked)) fail("names after", n);
            close(made);
        }
    }
    struct stat found;
    if (fstat(fd, &found) || found.st_size < (long)sizeof content) fail("size", found.st_size);
    unlink(name), unlink(linked);
    return NULL;
}

int main(void) {
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t taker, callers[CALLERS];
    pthread_create(&taker, NULL, take_away, NULL);
    for (long n = 0; n < CALLERS; n++) pthread_create(&callers[n], NULL, call, (void *)n);
    for (int n = 0; n < CALLERS; n++) pthread_join(callers[n], NULL);
    atomic_store(&over, 1);
    pthread_join(taker, NULL);
    puts("all answered");
}
