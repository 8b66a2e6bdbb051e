// What mlockall locks is what the program has: some megabytes, not the memory of the image.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "VmLck:", 6))
            kib = atol(line + 6);
    fclose(status);
    return kib;
}

static void tried(const char *what, int flags) {
    errno = 0;
    int result = mlockall(flags);
    long kib = locked_kib();
    printf("%s: %d %s, %s\n", what, result, strerror(errno), kib < 1024 ? "little" : kib < 65536 ? "some" : "much");
}

int main(void) {
    char *own = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tried("nothing", 0);
    tried("on fault alone", MCL_ONFAULT);
    tried("unknown", 64);
    tried("current", MCL_CURRENT);
    unsigned char there[2048] = {0};
    mincore(own, 8 << 20, there);
    int pages = 0;
    for (int i = 0; i < 2048; i++)
        pages += there[i] & 1;
    printf("%d pages are there\n", pages);
    munlockall();
    printf("unlocked: %ld\n", locked_kib());
    tried("on fault", MCL_CURRENT | MCL_ONFAULT);
    tried("future", MCL_CURRENT | MCL_FUTURE);
    int fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600);
    char *bytes = calloc(1, 1 << 20);
    for (int i = 0; i < 4; i++)
        write(fd, bytes, 1 << 20);
    char *file = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 0);
    printf("%d, %s\n", file[5000], locked_kib() < 65536 ? "some" : "much");
    munlockall();
    printf("unlocked: %ld\n", locked_kib());
    return 0;
}
