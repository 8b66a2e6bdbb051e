// Threads touch the same untouched page of a mapping at the same moment: one has it mapped in, and
// the signal of the others is no fault of the program's, though no page is missing any more.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L
#define ROUNDS 4000
#define THREADS 3

static atomic_int round_of_page, arrived;
static volatile char *_Atomic page;

static void *toucher(void *unused) {
    (void)unused;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int spins = 0; atomic_load(&round_of_page) != round; spins++)
            if (spins > 2000) sched_yield();
        if (*atomic_load(&page) != 0) { puts("not empty"); exit(1); }
        atomic_fetch_add(&arrived, 1);
    }
    return 0;
}

int main(void) {
    int fd = open("sparse", O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, ROUNDS * PAGE) != 0) return 1;
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, toucher, 0);
    for (int round = 1; round <= ROUNDS; round++) {
        char *at = mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, (round - 1) * PAGE);
        if (at == MAP_FAILED) return 2;
        atomic_store(&page, at);
        atomic_store(&arrived, 0);
        atomic_store(&round_of_page, round);
        while (atomic_load(&arrived) != THREADS) sched_yield();
        munmap(at, PAGE);
    }
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    unlink("sparse");
    puts("done");
}
