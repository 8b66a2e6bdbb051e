// Maps what the sanitizers of gcc and clang map on x86-64 at fixed addresses, having looked into
// /proc/self/maps whether anything lies there; then opens a file and makes a thread and a child.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct range {
    unsigned long start, end;
    int access;
};

// MemorySanitizer: shadow and origin of the lowest terabyte; the shadow of the middle.
static const struct range memory[] = {
    {0x010000000000, 0x100000000000, PROT_READ | PROT_WRITE},
    {0x110000000000, 0x200000000000, PROT_READ | PROT_WRITE},
    {0x200000000000, 0x400000000000, PROT_READ | PROT_WRITE},
    {0x400000000000, 0x500000000000, PROT_NONE},
    {0x500000000000, 0x510000000000, PROT_READ | PROT_WRITE},
    {0x600000000000, 0x610000000000, PROT_READ | PROT_WRITE},
};

// ThreadSanitizer: nobody is to touch what is between its shadows.
static const struct range threads[] = {
    {0x008000000000, 0x010000000000, PROT_NONE},
    {0x010000000000, 0x200000000000, PROT_READ | PROT_WRITE},
    {0x200000000000, 0x300000000000, PROT_NONE},
    {0x300000000000, 0x340000000000, PROT_READ | PROT_WRITE},
    {0x340000000000, 0x550000000000, PROT_NONE},
};

// Rows between the two ends, but for what is the program's own: its heap.
static int rows(unsigned long start, unsigned long end) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char row[4400];
    int count = 0;
    while (fgets(row, sizeof row, maps)) {
        unsigned long from, to;
        if (strstr(row, "[heap]"))
            continue;
        if (strstr(row, "memfd:husk"))
            printf("shown: %s", row);
        if (sscanf(row, "%lx-%lx", &from, &to) == 2 && from < end && to > start)
            count++;
    }
    fclose(maps);
    return count;
}

static void take(const struct range *all, int count) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    for (int i = 0; i < count; i++) {
        unsigned long length = all[i].end - all[i].start;
        int there = rows(all[i].start, all[i].end);
        void *got = mmap((void *)all[i].start, length, all[i].access, flags, -1, 0);
        printf("%#lx: %d there, %s\n", all[i].start, there, got == (void *)all[i].start ? "taken" : "refused");
    }
}

static void release(const struct range *all, int count) {
    for (int i = 0; i < count; i++)
        if (all[i].access != PROT_NONE)
            munmap((void *)all[i].start, all[i].end - all[i].start);
}

static void *write_file(void *name) {
    int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    char back[8] = "";
    write(fd, "written", 7);
    pread(fd, back, 7, 0);
    close(fd);
    puts(back);
    return NULL;
}

static void work(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, write_file, "one");
    pthread_join(thread, NULL);
    fflush(stdout);
    if (fork() == 0) {
        write_file("two");
        fflush(stdout);
        _exit(0);
    }
    int status;
    wait(&status);
    printf("%d\n", status);
}

int main(void) {
    take(memory, sizeof memory / sizeof memory[0]);
    work();
    release(memory, sizeof memory / sizeof memory[0]);
    munmap((void *)0x400000000000, 0x100000000000);
    take(threads, sizeof threads / sizeof threads[0]);
    work();
    return 0;
}
