/* A file is written and truncated again and again while others read it and foreign files take the
 * blocks it gives back. A reader sees bytes that were the file's, or its end: never foreign ones. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGES 24
#define ROUNDS 3000
#define READERS 3

static atomic_int stop;
static atomic_long foreign, looks;

static void *reader(void *unused) {
    static _Thread_local char bytes[PAGES * 4096];
    int fd = open("shrinking", O_RDONLY);
    while (!stop) {
        long got = pread(fd, bytes, sizeof bytes, 0);
        for (long at = 0; at < got; at++)
            if (bytes[at] < 'a' || bytes[at] > 'f') {
                foreign++;
                break;
            }
        looks++;
    }
    close(fd);
    return unused;
}

static void *neighbour(void *unused) {
    static char bytes[PAGES * 4096];
    memset(bytes, 'Z', sizeof bytes);
    while (!stop) {
        int fd = open("foreign", O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (pwrite(fd, bytes, sizeof bytes, 0) != sizeof bytes)
            foreign += 1000000;
        close(fd);
    }
    return unused;
}

int main(void) {
    static char bytes[PAGES * 4096];
    pthread_t ids[READERS + 1];
    int fd = open("shrinking", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int n = 0; n < READERS; n++)
        pthread_create(&ids[n], NULL, reader, NULL);
    pthread_create(&ids[READERS], NULL, neighbour, NULL);
    for (int round = 0; round < ROUNDS || looks < 100; round++) {
        memset(bytes, 'a' + round % 6, sizeof bytes);
        if (ftruncate(fd, 0) < 0 || pwrite(fd, bytes, sizeof bytes, 0) != sizeof bytes)
            foreign += 1000000;
    }
    stop = 1;
    for (int n = 0; n <= READERS; n++)
        pthread_join(ids[n], NULL);
    printf("foreign bytes: %ld\n", (long)foreign);
    unlink("shrinking"), unlink("foreign");
    return 0;
}
