/* hostile KIND [NUMBER]: what a broken program does to what lies beside it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the table of calls, the state and the cache of the image, and the runtime lie. */
#define TABLE 0x60000ul
#define STATE 0x540000000000ul
#define CACHE 0x510000000000ul
#define RUNTIME 0x544000000000ul
#define DISPATCH 59
#define SET_GS 0x1001

static int refused(long result) {
    return result == -1 && (errno == EINVAL || errno == EPERM);
}

static void change_memory(void) {
    unsigned long places[] = { TABLE, STATE, CACHE, RUNTIME, RUNTIME + 0x300000 };
    for (int n = 0; n < 5; n++) {
        void *at = (void *)places[n];
        int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
        if (!refused(munmap(at, 4096)) || !refused(mprotect(at, 4096, PROT_NONE)) ||
            !refused((long)mmap(at, 4096, PROT_READ, flags, -1, 0)) ||
            !refused((long)mremap(at, 4096, 8192, MREMAP_MAYMOVE)) ||
            !refused(madvise(at, 4096, MADV_DONTNEED)))
            printf("allowed at %lx\n", places[n]);
    }
    if (!refused(munmap((void *)0x1000, 0x7ff000000000)) ||
        !refused(prctl(DISPATCH, 0, 0, 0, 0)) || !refused(syscall(SYS_arch_prctl, SET_GS, 0)))
        puts("allowed");
}

static void close_all(void) {
    for (int fd = 3; fd < 65536; fd++)
        close(fd);
    syscall(SYS_close_range, 3, ~0u, 0);
    for (int fd = 3; fd < 1100; fd++)
        dup2(1, fd);
    syscall(SYS_close_range, 3, ~0u, 0);
}

static int recurse(int depth) {
    volatile char room[4096];
    room[0] = depth;
    return depth < 0 ? 0 : recurse(depth + 1) + room[0];
}

int main(int argc, char **argv) {
    const char *kind = argv[1];
    unsigned long number = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
    int fd = open("before", O_CREAT | O_RDWR, 0644);
    if (fd < 0 || write(fd, "before\n", 7) != 7)
        return 1;
    if (strcmp(kind, "jump") == 0)
        ((void (*)(void))(RUNTIME + number))();
    else if (strcmp(kind, "store") == 0)
        *(volatile int *)number = 1;
    else if (strcmp(kind, "memory") == 0)
        change_memory();
    else if (strcmp(kind, "close") == 0)
        close_all();
    else if (strcmp(kind, "stack") == 0)
        return recurse(0);
    else if (strcmp(kind, "abort") == 0)
        abort();
    fd = open("after", O_CREAT | O_RDWR, 0644);
    if (fd < 0 || write(fd, "after\n", 6) != 6)
        return 1;
    puts("goes on");
    return 0;
}
