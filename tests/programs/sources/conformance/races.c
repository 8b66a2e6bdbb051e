/* Four processes (and once four threads) race for the same names and bytes; what must hold on Linux
 * whoever wins is counted and printed. Every loop is bounded. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RACERS 4
#define ROUNDS 400

static void fail(const char *what) {
    printf("failed: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* Runs `race(racer)` in RACERS processes; the sum of what they return (0..255 each is not enough,
 * so it goes through shared memory). */
static long *counts;
static long race(void (*racer)(int)) {
    for (int n = 0; n < RACERS; n++)
        counts[n] = 0;
    for (int n = 0; n < RACERS; n++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("fork");
        if (pid == 0) {
            racer(n);
            _exit(0);
        }
    }
    long sum = 0;
    for (int n = 0; n < RACERS; n++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            fail("a racer");
    }
    for (int n = 0; n < RACERS; n++)
        sum += counts[n];
    return sum;
}

static void exclusive(int n) {
    char path[32];
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(path, "x/%d", i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (fd >= 0)
            counts[n]++, close(fd);
        else if (errno != EEXIST)
            fail("open O_EXCL");
    }
}

static void directories(int n) {
    char path[32];
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(path, "y/%d", i);
        if (mkdir(path, 0755) == 0)
            counts[n]++;
        else if (errno != EEXIST)
            fail("mkdir");
    }
}

static void removals(int n) {
    char path[32];
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(path, "x/%d", i);
        if (unlink(path) == 0)
            counts[n]++;
        else if (errno != ENOENT)
            fail("unlink");
        sprintf(path, "y/%d", i);
        if (rmdir(path) == 0)
            counts[n]++;
        else if (errno != ENOENT)
            fail("rmdir");
    }
}

static void append(int n) {
    int fd = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
    char line[65];
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(line, "%d %06d %053d\n", n, i, 0);
        if (write(fd, line, 63) != 63)
            fail("append");
    }
}

/* One descriptor, inherited: the offset is shared, every write gets its own place. */
static int inherited;
static void shared_offset(int n) {
    char line[32];
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(line, "%d %05d\n", n, i);
        if (write(inherited, line, 8) != 8)
            fail("write");
    }
}

/* Racers 0 and 1 replace a file by renaming; 2 and 3 must always find a whole one. */
static void replace(int n) {
    char path[16], data[4096], back[4096];
    sprintf(path, "new%d", n);
    for (int i = 0; i < ROUNDS; i++) {
        if (n < 2) {
            memset(data, 'a' + (i + n) % 26, sizeof data);
            int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
            if (fd < 0 || write(fd, data, sizeof data) != sizeof data || close(fd) < 0 || rename(path, "whole") < 0)
                fail("replace");
        } else {
            int fd = open("whole", O_RDONLY);
            if (fd < 0)
                fail("the file was gone for a moment");
            if (read(fd, back, sizeof back) != sizeof back)
                fail("a part of a file");
            for (int k = 1; k < (int)sizeof back; k++)
                if (back[k] != back[0])
                    fail("a mixture of two files");
            close(fd);
            counts[n]++;
        }
    }
}

/* Racers 0 and 1 make and remove names; 2 and 3 list and must see each stable name once. */
static void list(int n) {
    char path[32];
    for (int i = 0; i < ROUNDS / 4; i++) {
        if (n < 2) {
            for (int k = 0; k < 20; k++) {
                sprintf(path, "z/churn-%d-%d", n, k);
                int fd = open(path, O_CREAT | O_WRONLY, 0644);
                if (fd < 0 || close(fd) < 0)
                    fail("churn");
            }
            for (int k = 0; k < 20; k++) {
                sprintf(path, "z/churn-%d-%d", n, k);
                if (unlink(path) < 0)
                    fail("unlink of churn");
            }
        } else {
            int stable = 0, mask[200] = {0};
            DIR *dir = opendir("z");
            for (struct dirent *e; (e = readdir(dir));)
                if (!strncmp(e->d_name, "stable", 6)) {
                    int k = atoi(e->d_name + 6);
                    if (mask[k]++)
                        fail("a name twice");
                    stable++;
                }
            closedir(dir);
            if (stable != 200)
                fail("a stable name missing");
            counts[n]++;
        }
    }
}

/* A counter in a file, read and written under a lock: nothing is lost. */
static void locked(int n, int whole) {
    int fd = open("counter", O_RDWR);
    struct flock lock = {.l_whence = SEEK_SET, .l_len = 8};
    for (int i = 0; i < ROUNDS / 4; i++) {
        long value = 0;
        lock.l_type = F_WRLCK;
        if (whole ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLKW, &lock))
            fail("lock");
        if (pread(fd, &value, 8, 0) != 8)
            fail("read under lock");
        value++;
        if (pwrite(fd, &value, 8, 0) != 8)
            fail("write under lock");
        lock.l_type = F_UNLCK;
        if (whole ? flock(fd, LOCK_UN) : fcntl(fd, F_SETLK, &lock))
            fail("unlock");
    }
    counts[n]++;
}
static void posix_locked(int n) { locked(n, 0); }
static void flocked(int n) { locked(n, 1); }

static void mapped(int n) {
    int fd = open("counter", O_RDWR);
    long *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        fail("mmap");
    for (int i = 0; i < ROUNDS; i++)
        __atomic_fetch_add(&page[1], 1, __ATOMIC_SEQ_CST);
    counts[n]++;
}

static void *thread(void *argument) {
    char path[32];
    long n = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        sprintf(path, "t/%ld-%d", n, i % 7);
        int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || pwrite(fd, path, 8, i) != 8)
            return (void *)1;
        int other = dup(fd);
        struct stat facts;
        if (other < 0 || close(fd) < 0 || fstat(other, &facts) < 0 || facts.st_size != i + 8 || close(other) < 0)
            return (void *)1;
        if (i % 7 == 6 && unlink(path) < 0)
            return (void *)1;
    }
    return NULL;
}

static void threads(void) {
    pthread_t ids[RACERS];
    mkdir("t", 0755);
    for (long n = 0; n < RACERS; n++)
        pthread_create(&ids[n], NULL, thread, (void *)n);
    for (int n = 0; n < RACERS; n++) {
        void *bad;
        pthread_join(ids[n], &bad);
        if (bad)
            fail("a thread");
    }
    int fd = open("t", O_RDONLY | O_DIRECTORY);
    printf("threads: next descriptor %d\n", fd);
    close(fd);
}

static long lines(const char *path, int length) {
    static char data[RACERS * ROUNDS * 64 + 1];
    long seen[RACERS] = {0}, good = 0;
    int fd = open(path, O_RDONLY);
    long size = read(fd, data, sizeof data);
    close(fd);
    for (long at = 0; at + length <= size; at += length) {
        int n, i;
        if (data[at + length - 1] == '\n' && sscanf(data + at, "%d %d", &n, &i) == 2 && seen[n] == i)
            seen[n]++, good++;
    }
    return size == good * length ? good : -size;
}

int main(void) {
    char path[32];
    long zero[512] = {0};
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mkdir("x", 0755), mkdir("y", 0755), mkdir("z", 0755);
    printf("made once: %ld\n", race(exclusive));
    printf("directories made once: %ld\n", race(directories));
    printf("removed once: %ld\n", race(removals));
    race(append);
    printf("lines appended whole and in order: %ld\n", lines("log", 63));
    inherited = open("inherited", O_RDWR | O_CREAT, 0644);
    race(shared_offset);
    printf("writes at a shared offset: %ld\n", lines("inherited", 8));
    int fd = open("whole", O_CREAT | O_WRONLY, 0644);
    memset(zero, 'a', sizeof zero);
    if (write(fd, zero, 4096) != 4096)
        fail("whole");
    printf("whole files read: %ld\n", race(replace));
    for (int k = 0; k < 200; k++) {
        sprintf(path, "z/stable%d", k);
        close(open(path, O_CREAT | O_WRONLY, 0644));
    }
    printf("listings complete: %ld\n", race(list));
    memset(zero, 0, sizeof zero);
    fd = open("counter", O_CREAT | O_RDWR, 0644);
    if (write(fd, zero, 4096) != 4096)
        fail("counter");
    race(posix_locked), race(flocked), race(mapped);
    if (pread(fd, zero, 16, 0) != 16)
        fail("counter");
    printf("counted under locks: %ld, in mapped memory: %ld\n", zero[0], zero[1]);
    threads();
    unlink("log"), unlink("inherited"), unlink("whole");
    return 0;
}
