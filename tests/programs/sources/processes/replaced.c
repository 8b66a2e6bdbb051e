// A number that one thread gives by turns to a file of its directory and to a device is there all
// the time: to other threads, and to every child. argv[1]: of whom (threads, rivals, children).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER 40
#define TURNS 20000
#define CHILDREN 600

static int file, device;
static atomic_int stop, failed, seen[2];

static void must(int holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(2);
    }
}

// Which of the two it reads from: 'f' stands in the file, 0 comes from the device.
static int reads(int fd) {
    char byte = 1;
    ssize_t got = pread(fd, &byte, 1, 0);
    return got == 1 && byte == 'f' ? 0 : got == 1 && byte == 0 ? 1 : -1;
}

static void note(int which, const char *call) {
    if (which >= 0)
        seen[which]++;
    else if (failed++ == 0)
        printf("%s: %s\n", call, strerror(errno));
}

static void *reader(void *unused) {
    (void)unused;
    while (!stop) {
        char bytes[2];
        note(reads(NUMBER), "pread");
        // At the end of the file there is nothing to read.
        if (read(NUMBER, bytes, 1) < 0)
            note(-1, "read");
        if (fcntl(NUMBER, F_GETFL) < 0)
            note(-1, "fcntl");
    }
    return 0;
}

static void *duplicator(void *unused) {
    (void)unused;
    while (!stop) {
        int fd = dup(NUMBER);
        if (fd < 0) {
            note(-1, "dup");
            continue;
        }
        note(reads(fd), "what dup gave");
        close(fd);
        if (dup2(NUMBER, NUMBER + 1) < 0)
            note(-1, "dup2 of it");
        else
            note(reads(NUMBER + 1), "what dup2 gave");
    }
    return 0;
}

static void *flipper(void *unused) {
    (void)unused;
    while (!stop) {
        must(dup2(device, NUMBER) == NUMBER, "dup2");
        must(dup2(file, NUMBER) == NUMBER, "dup2");
    }
    return 0;
}

static void threads(void) {
    pthread_t them[3];
    pthread_create(&them[0], 0, reader, 0);
    pthread_create(&them[1], 0, reader, 0);
    pthread_create(&them[2], 0, duplicator, 0);
    for (int turn = 0; turn < TURNS || seen[0] == 0 || seen[1] == 0; turn++) {
        must(dup2(device, NUMBER) == NUMBER, "dup2");
        must(dup2(file, NUMBER) == NUMBER, "dup2");
        if (turn % 64 == 0)
            sched_yield();
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(them[i], 0);
}

static void children(void) {
    pthread_t thread;
    pthread_create(&thread, 0, flipper, 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            int which = reads(NUMBER), again = reads(NUMBER);
            // Once closed, it is gone; whatever was there.
            int open = close(NUMBER) != 0 || fcntl(NUMBER, F_GETFD) >= 0;
            _exit(which < 0 || which != again ? 3 : open ? 4 : which);
        }
        int status;
        must(waitpid(child, &status, 0) == child && WIFEXITED(status), "wait");
        int code = WEXITSTATUS(status);
        note(code < 2 ? code : -1, code == 4 ? "still open" : "a child");
    }
    stop = 1;
    pthread_join(thread, 0);
}

static void *another(void *unused) {
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++)
        must(dup2(turn % 2 ? device : file, NUMBER) == NUMBER, "dup2");
    return 0;
}

// Several give the number away, to the one and to the other, at the same time.
static void rivals(void) {
    pthread_t them[2], looks;
    pthread_create(&looks, 0, reader, 0);
    pthread_create(&them[0], 0, another, 0);
    pthread_create(&them[1], 0, another, 0);
    for (int turn = 0; turn < TURNS; turn++) {
        must(dup2(turn % 3 ? file : device, NUMBER) == NUMBER, "dup2");
        note(reads(NUMBER), "what stands there");
    }
    pthread_join(them[0], 0);
    pthread_join(them[1], 0);
    stop = 1;
    pthread_join(looks, 0);
    note(reads(NUMBER), "what stayed");
}

int main(int count, char **words) {
    must(count == 2, "a word");
    file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    device = open("/dev/zero", O_RDONLY);
    must(file >= 0 && device >= 0 && write(file, "f", 1) == 1, "files");
    must(dup2(file, NUMBER) == NUMBER, "dup2");
    if (words[1][0] == 't')
        threads();
    else if (words[1][0] == 'r')
        rivals();
    else
        children();
    must(seen[0] > 0 && seen[1] > 0, "both seen");
    printf("%s: %d failed\n", words[1], failed);
    return failed != 0;
}
