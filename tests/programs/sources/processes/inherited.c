// What a child has mapped of its parent stays the file's, whatever the parent does before the child
// has run for the first time. argv[1]: unmaps, ends, runs, threads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64 * 1024)
#define ROUNDS 200

static void must(int holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(2);
    }
}

// A file of `BYTES` times `byte`.
static int filled(const char *name, int byte) {
    static char all[BYTES];
    memset(all, byte, BYTES);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);
    must(fd >= 0, name);
    must(write(fd, all, BYTES) == BYTES, "write");
    return fd;
}

// Mapped, and without a name or a descriptor.
static char *mapped(const char *name, int byte) {
    int fd = filled(name, byte);
    char *at = mmap(0, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    must(at != MAP_FAILED, "mmap");
    close(fd);
    unlink(name);
    return at;
}

static int is_all(const char *at, int byte) {
    for (int i = 0; i < BYTES; i++)
        if (at[i] != byte)
            return 0;
    return 1;
}

// The child: looks when it is told to.
static void look(int told, const char *at, int byte) {
    char word;
    must(read(told, &word, 1) == 1, "read");
    _exit(is_all(at, byte) ? 0 : 1);
}

// Takes whatever memory is free first, and lets it go again.
static void take_memory(void) {
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "other-%d", i);
        close(filled(name, '!'));
    }
}

static int waited(pid_t pid) {
    int status;
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

// A child that stops before its first instruction: it goes on when it is told to.
static void hold(pid_t child) {
    int status;
    must(child > 0 && kill(child, SIGSTOP) == 0, "stop");
    must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stopped");
}

// A parent and its child share a core, so that the parent goes on first.
static void share_a_core(void) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &allowed))
            CPU_SET(i, &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
}

static int unmaps(void) {
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int tell[2], byte = 'a' + round % 26;
        must(pipe(tell) == 0, "pipe");
        char *at = mapped("file", byte);
        pid_t child = fork();
        if (child == 0)
            look(tell[0], at, byte);
        hold(child);
        munmap(at, BYTES);
        take_memory();
        kill(child, SIGCONT);
        must(write(tell[1], "x", 1) == 1, "write");
        wrong += waited(child) != 0;
        close(tell[0]);
        close(tell[1]);
    }
    return wrong;
}

static int ends(void) {
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int tell[2], said[2], byte = 'a' + round % 26;
        must(pipe(tell) == 0 && pipe(said) == 0, "pipe");
        pid_t parent = fork();
        if (parent == 0) {
            char *at = mapped("file", byte), word, right;
            pid_t child = fork();
            if (child != 0) {
                hold(child);
                must(write(said[1], &child, sizeof child) == sizeof child, "write");
                _exit(0);
            }
            must(read(tell[0], &word, 1) == 1, "read");
            right = is_all(at, byte);
            must(write(said[1], &right, 1) == 1, "write");
            _exit(0);
        }
        must(waited(parent) == 0, "parent");
        pid_t child;
        must(read(said[0], &child, sizeof child) == sizeof child, "read");
        take_memory();
        kill(child, SIGCONT);
        char right;
        must(write(tell[1], "x", 1) == 1 && read(said[0], &right, 1) == 1, "pipes");
        wrong += right != 1;
        close(tell[0]), close(tell[1]), close(said[0]), close(said[1]);
    }
    return wrong;
}

static int status_of(const char *program) {
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, (char *)0);
        _exit(errno == ETXTBSY ? 26 : 27);
    }
    return waited(child);
}

// Nobody runs what a child may write to.
static int runs(void) {
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int tell[2];
        must(pipe(tell) == 0, "pipe");
        int fd = open("script", O_RDWR | O_CREAT | O_TRUNC, 0755);
        must(write(fd, "#!/bin/true\n", 12) == 12, "write");
        char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        must(at != MAP_FAILED, "mmap");
        close(fd);
        pid_t child = fork();
        if (child == 0)
            look(tell[0], at, 0);
        hold(child);
        munmap(at, 4096);
        wrong += status_of("./script") != 26;
        kill(child, SIGCONT);
        must(write(tell[1], "x", 1) == 1, "write");
        waited(child);
        wrong += status_of("./script") != 0;
        close(tell[0]), close(tell[1]);
        unlink("script");
    }
    return wrong;
}

static char *_Atomic there;
static atomic_int which, turns, stop;

// Maps one file after the other; the next when it is told that one has been seen.
static void *mapper(void *unused) {
    (void)unused;
    for (int round = 0; !stop; round++) {
        int byte = 'a' + round % 26, before = turns;
        char *at = mapped("file", byte);
        which = byte;
        there = at;
        for (int spins = 0; spins < 2000 && turns == before && !stop; spins++)
            sched_yield();
        there = 0;
        munmap(at, BYTES);
        take_memory();
    }
    return 0;
}

// What another thread maps and unmaps all the time is a child's from its first moment on.
static int threads(void) {
    pthread_t thread;
    int wrong = 0, seen = 0;
    must(pthread_create(&thread, 0, mapper, 0) == 0, "thread");
    for (int round = 0; round < 10 * ROUNDS; round++) {
        int tell[2];
        must(pipe(tell) == 0, "pipe");
        while (round % 2 == 0 && there == 0)
            sched_yield();
        pid_t child = fork();
        if (child == 0) {
            char *at = there;
            int byte = which;
            if (at == 0)
                _exit(3);
            look(tell[0], at, byte);
        }
        turns++;
        must(write(tell[1], "x", 1) == 1, "write");
        int status = waited(child);
        seen += status != 3;
        wrong += status != 0 && status != 3;
        close(tell[0]), close(tell[1]);
    }
    stop = 1;
    pthread_join(thread, 0);
    must(seen > ROUNDS, "children that had something mapped");
    return wrong;
}

int main(int count, char **words) {
    must(count == 2, "a word");
    char kind = words[1][0];
    if (kind != 't')
        share_a_core();
    int wrong = kind == 'u' ? unmaps() : kind == 'e' ? ends() : kind == 'r' ? runs() : threads();
    printf("%s: %d wrong\n", words[1], wrong);
    return wrong != 0;
}
