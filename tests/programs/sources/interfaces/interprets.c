// What a program does that runs the code of others itself, as valgrind does: it maps that code as
// the file has it, takes the vDSO away, and has its own descriptors where the program has none.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void told(const char *what, long value) { printf("%s: %ld\n", what, value); }

// Numbers from a bound on, whoever has the first of them.
static void numbers(void) {
    int made = open("made", O_RDWR | O_CREAT, 0600), from = 700;
    told("of the image", fcntl(made, F_DUPFD, from));
    mkfifo("fifo", 0600);
    told("a FIFO", fcntl(open("fifo", O_RDWR), F_DUPFD, from));
    told("of the host", fcntl(open("/proc/self/maps", O_RDONLY), F_DUPFD_CLOEXEC, from));
    told("a pipe's", ({ int ends[2]; pipe(ends); fcntl(ends[0], F_DUPFD, from); }));
    told("a lower bound", fcntl(open("/dev/null", O_RDONLY), F_DUPFD, 300));
}

// Takes away the vDSO, or what it reads: only a whole mapping can go.
static long taken_away(const char *which) {
    char line[256];
    unsigned long start = 0, end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) && !strstr(line, which))
        ;
    sscanf(line, "%lx-%lx", &start, &end);
    fclose(maps);
    return syscall(SYS_munmap, start, end - start);
}

// Files have times though there is no vDSO any more, or nothing that it reads.
static void clock_of_host(const char *taken) {
    struct stat before, after;
    int file = open("file", O_RDWR | O_CREAT, 0600);
    fstat(file, &before);
    told("taken away", taken_away(taken));
    usleep(20000);
    told("written", write(file, "x", 1));
    fstat(file, &after);
    told("later", after.st_mtime > before.st_mtime || after.st_mtim.tv_nsec > before.st_mtim.tv_nsec);
    pid_t child = fork();
    if (child == 0) _exit(close(open("of a child", O_RDWR | O_CREAT, 0600)));
    int status;
    waitpid(child, &status, 0);
    told("a child", status);
}

// Nor in a child that has not got it.
static void unforked(void) {
    told("kept back", syscall(SYS_madvise, getauxval(AT_SYSINFO_EHDR), 8192, MADV_DONTFORK));
    pid_t child = fork();
    if (child == 0) _exit(write(open("file", O_RDWR | O_CREAT, 0600), "x", 1) != 1);
    int status;
    waitpid(child, &status, 0);
    told("a child", status);
}

enum { WRITERS = 12, TIMES = 100 };
static volatile long written[WRITERS];

static void *writes(void *which) {
    long n = (long)which;
    char name[2] = {(char)('a' + n)};
    int file = open(name, O_RDWR | O_CREAT, 0600);
    for (;;) {
        if (pwrite(file, "x", 1, 0) != 1) abort();
        written[n]++;
    }
}

// Waits until each has written since.
static void all_write(void) {
    long before[WRITERS];
    for (int n = 0; n < WRITERS; n++) before[n] = written[n];
    for (int n = 0; n < WRITERS; n++)
        while (written[n] < before[n] + 2) usleep(100);
}

// Nor is anybody in it when it goes: most of those who write wait for a processor, some of them
// while they look at the time.
static void beside(void) {
    int ended = 0;
    for (int n = 0; n < TIMES; n++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (long w = 0; w < WRITERS; w++) pthread_create(&thread, NULL, writes, (void *)w);
            all_write();
            long failed = taken_away(n % 2 ? "[vvar]" : "[vdso]");
            all_write();
            _exit(failed != 0);
        }
        int status;
        waitpid(child, &status, 0);
        ended += status == 0;
    }
    told("unharmed", ended);
}

// Code is mapped as it is, also where programs that run it get something faster.
static void code(const char *path) {
    for (int n = 0; n < 5; n++) {
        pid_t child = fork();
        if (child == 0) { execl("/bin/sh", "sh", "-c", ":", NULL); _exit(1); }
        waitpid(child, NULL, 0);
        usleep(100000);
    }
    struct stat stat;
    int file = open(path, O_RDONLY);
    told("there", file >= 0 && fstat(file, &stat) == 0);
    char *mapped = mmap(NULL, stat.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    char *read_in = malloc(stat.st_size);
    told("whole", pread(file, read_in, stat.st_size, 0) == stat.st_size);
    told("the same", memcmp(mapped, read_in, stat.st_size));
}

int main(int count, char **words) {
    if (!strcmp(words[1], "numbers")) numbers();
    if (!strcmp(words[1], "clock")) clock_of_host("[vdso]");
    if (!strcmp(words[1], "unforked")) unforked();
    if (!strcmp(words[1], "data")) clock_of_host("[vvar]");
    if (!strcmp(words[1], "beside")) beside();
    if (!strcmp(words[1], "code")) code("/lib/x86_64-linux-gnu/libc.so.6");
    return count != 2;
}
