// What a program may do with protection keys beside the one that guards the image.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEYS 16
#define PAGE 4096
// Where the state of an image lies.
#define STATE ((volatile long *)0x540000000000)

static char *pages[KEYS];

static unsigned rights(void) {
    unsigned value, high;
    __asm__ volatile("rdpkru" : "=a"(value), "=d"(high) : "c"(0));
    return value;
}

// Calls that store into the image, and calls that only look.
static void calls(void) {
    char byte;
    struct stat status;
    int file = open("file", O_CREAT | O_RDWR, 0600);
    if (write(file, "x", 1) != 1 || pread(file, &byte, 1, 0) != 1 || stat("file", &status) != 0)
        abort();
    close(file);
    unlink("file");
}

static int take_all(void) {
    int count = 0;
    for (int key; (key = pkey_alloc(0, 0)) >= 0; count++) {
        pages[key] = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pkey_mprotect(pages[key], PAGE, PROT_READ | PROT_WRITE, key) != 0)
            abort();
    }
    return count;
}

// All keys there are, each with its own rights, which calls leave alone.
static void keys(void) {
    printf("%d keys", take_all());
    int open_ones = 1;
    for (int key = 1; key < KEYS; key++)
        if (pages[key])
            pkey_set(key, key % 2 ? 0 : PKEY_DISABLE_WRITE);
    unsigned before = rights();
    calls();
    open_ones = rights() == before;
    for (int key = 1; key < KEYS; key += 2)
        if (pages[key])
            pages[key][0] = 1;
    printf(", %s", open_ones ? "rights kept" : "rights lost");
    // The key that was not handed out is not there.
    char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int key = 1; key < KEYS; key++)
        if (!pages[key])
            printf(", %s, %s", pkey_mprotect(page, PAGE, PROT_READ, key) ? strerror(errno) : "used",
                   pkey_free(key) ? strerror(errno) : "freed");
    printf("\n");
}

static int locked;
static double seconds_asleep, seconds_busy;

static double since(struct timespec *start, clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec - start->tv_sec + (now.tv_nsec - start->tv_nsec) / 1e9;
}

static void waits(int signal) {
    (void)signal;
    struct timespec asleep, busy;
    clock_gettime(CLOCK_MONOTONIC, &asleep);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &busy);
    if (flock(locked, LOCK_EX) != 0)
        abort();
    seconds_asleep = since(&asleep, CLOCK_MONOTONIC);
    seconds_busy = since(&busy, CLOCK_PROCESS_CPUTIME_ID);
}

// A handler waits for a lock that another process holds for a while.
static void handler(void) {
    int ready[2];
    char byte;
    locked = open("lock", O_CREAT | O_RDWR, 0600);
    if (pipe(ready) != 0)
        abort();
    if (fork() == 0) {
        int own = open("lock", O_RDWR);
        flock(own, LOCK_EX);
        if (write(ready[1], "x", 1) != 1)
            abort();
        sleep(2);
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        abort();
    signal(SIGUSR1, waits);
    raise(SIGUSR1);
    wait(0);
    int slept = seconds_asleep > 1 && seconds_busy < seconds_asleep / 2;
    printf("%s\n", slept ? "slept" : "was busy");
}

// As a handler finds them: every key but the first one shut.
static void shut_all(void) {
    __asm__ volatile("wrpkru" : : "a"(0x55555554), "c"(0), "d"(0) : "memory");
}

// Calls that a look answers, by a program that has shut all keys: they are answered, and the
// image's stays shut to stores. `way` is one of them.
static void looks(int way) {
    struct epoll_event event = { .events = EPOLLIN };
    int p[2], q[2], file = open("looked", O_CREAT | O_RDWR, 0600), set = epoll_create1(0);
    char byte = 'b';
    if (pipe(p) || pipe(q) || epoll_ctl(set, EPOLL_CTL_ADD, q[0], &event))
        abort();
    // Until the pipe uses its ring, and what the host says of the set is known.
    for (int i = 0; i < 100; i++)
        if (write(p[1], &byte, 1) != 1 || read(p[0], &byte, 1) != 1 || epoll_wait(set, &event, 1, 0))
            abort();
    if (way == 3 && write(p[1], &byte, 1) != 1)
        abort();
    shut_all();
    long answer = way == 0 ? fcntl(file, F_GETFL) & O_ACCMODE : way == 1 ? lseek(file, 0, SEEK_CUR)
        : way == 2 ? write(p[1], &byte, 1) : way == 3 ? read(p[0], &byte, 1)
        : way == 4 ? epoll_wait(set, &event, 1, 0) : fcntl(file, F_GETFD);
    printf("%ld ", answer);
    fflush(stdout);
    STATE[0] = 0x5555555555555555;
    printf("the image can be stored into\n");
}

int main(int count, char **words) {
    (void)count;
    if (strcmp(words[1], "count") == 0)
        printf("%d\n", take_all());
    if (strcmp(words[1], "keys") == 0)
        keys();
    if (strcmp(words[1], "handler") == 0)
        handler();
    if (strcmp(words[1], "looks") == 0)
        looks(atoi(words[2]));
    if (strcmp(words[1], "stray") == 0)
        STATE[atoi(words[2])] = 0x5555555555555555;
    if (strcmp(words[1], "call") == 0)
        printf("%s\n", read(open("/dev/zero", O_RDONLY), (void *)&STATE[atoi(words[2])], 8) < 0
               ? strerror(errno) : "read");
    return 0;
}
