// Who is killed while it makes processes: what it had open and locked is free at once, unless a
// child was made, and that has all of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, MEMORY = 48 << 20 };

static const char *kind;
static int file, told[2];

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static pid_t made(void) {
    unsigned long args[8] = {0, 0, 0, 0, SIGCHLD};
    if (!strcmp(kind, "raw")) return syscall(SYS_fork);
    if (!strcmp(kind, "clone3")) return syscall(SYS_clone3, args, sizeof args);
    return fork();
}

// A child finds the file open and locked, and says so if not.
static void look(void) {
    if (pwrite(file, "x", 1, 0) != 1) write(told[1], "b", 1);
    _exit(0);
}

static void makes(void) {
    file = open("file", O_RDWR | O_CREAT, 0600);
    if (flock(file, LOCK_EX)) abort();
    char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, MEMORY, MADV_NOHUGEPAGE);
    memset(memory, 1, MEMORY);
    write(told[1], "m", 1);
    for (;;) {
        // Who calls vfork may not return before its child is gone.
        pid_t child = strcmp(kind, "vfork") ? made() : vfork();
        if (child == 0) look();
        if (child < 0) abort();
        waitpid(child, NULL, 0);
    }
}

int main(int count, char **words) {
    int prompt = 0, bad = 0;
    kind = words[count - 1];
    srand(1);
    for (int n = 0; n < ROUNDS; n++) {
        char word;
        pipe(told);
        pid_t maker = fork();
        if (maker == 0) makes();
        read(told[0], &word, 1);
        usleep(rand() % 8000);
        kill(maker, SIGKILL);
        waitpid(maker, NULL, 0);
        long before = now_ms();
        file = open("file", O_RDWR);
        flock(file, LOCK_EX);
        prompt += now_ms() - before < 3000;
        close(file);
        close(told[1]);
        while (read(told[0], &word, 1) == 1) bad++;
        close(told[0]);
    }
    printf("%s: prompt %d, bad %d\n", kind, prompt, bad);
    return 0;
}
