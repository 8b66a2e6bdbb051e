// What a program does that runs the code of others itself, as valgrind does: it maps that code as
// the file has it, takes the vDSO away, and has its own descriptors where the program has none.
#define _GNU_SOURCE
#include <fcntl.h>
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

// Where the host keeps what the vDSO reads.
static char *data_of_vdso(void) {
    char line[256];
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) && !strstr(line, "[vvar]"))
        ;
    sscanf(line, "%lx", &start);
    fclose(maps);
    return (char *)start;
}

// Files have times though there is no vDSO any more, or nothing that it reads.
static void clock_of_host(char *taken) {
    struct stat before, after;
    int file = open("file", O_RDWR | O_CREAT, 0600);
    fstat(file, &before);
    told("taken away", syscall(SYS_munmap, taken, 4096));
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
    if (!strcmp(words[1], "clock")) clock_of_host((char *)getauxval(AT_SYSINFO_EHDR));
    if (!strcmp(words[1], "unforked")) unforked();
    if (!strcmp(words[1], "data")) clock_of_host(data_of_vdso());
    if (!strcmp(words[1], "code")) code("/lib/x86_64-linux-gnu/libc.so.6");
    return count != 2;
}
