// A stack with a hole below it, into which it grows (MAP_GROWSDOWN), while threads come and go.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096L
#define THREADS 8

static void *idle(void *barrier) {
    pthread_barrier_wait(barrier);
    return NULL;
}

int main(void) {
    long whole = 2048 * PAGE, mapped = 16 * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *low = mmap(NULL, whole, PROT_READ | PROT_WRITE, flags, -1, 0);
    munmap(low, whole);
    char *stack = low + whole - mapped;
    if (mmap(stack, mapped, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_GROWSDOWN, -1, 0) != stack) {
        puts("no stack");
        return 1;
    }
    // Their stacks lie elsewhere; what each thread has besides is not to lie in the hole.
    static char stacks[THREADS][64 * 1024] __attribute__((aligned(4096)));
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]);
        if (pthread_create(&threads[i], &attributes, idle, &barrier)) {
            puts("no thread");
            return 1;
        }
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (long page = 1; page < 1500; page++)
        stack[-page * PAGE] = 1;
    puts("grown");
    return 0;
}
