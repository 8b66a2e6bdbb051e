// Ends by the signal that it is told, three calls deep, beside a thread that sleeps and one that runs.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t barrier;
// Threads that have left the barrier.
static volatile int away;
char *kept;
char *mapped;
__thread int local = 5;

static void *sleeper(void *a) {
    local = 77;
    pthread_barrier_wait(&barrier);
    __atomic_add_fetch(&away, 1, __ATOMIC_SEQ_CST);
    for (;;) sleep(1000);
    return a;
}

static void *spinner(void *a) {
    local = 78;
    pthread_barrier_wait(&barrier);
    __atomic_add_fetch(&away, 1, __ATOMIC_SEQ_CST);
    for (;;) __asm__ volatile("");
    return a;
}

static void caught(int signal) {
    write(1, "caught\n", 7);
    _exit(signal);
}

static void inner(const char *how) {
    volatile int number = 234;
    if (!strcmp(how, "hidden")) prctl(PR_SET_DUMPABLE, 0);
    if (!strcmp(how, "caught")) signal(SIGABRT, caught), raise(SIGABRT);
    if (!strcmp(how, "segv")) *(volatile int *)8 = number;
    if (!strcmp(how, "fpe")) number = number / (number - 234);
    if (!strcmp(how, "quit")) raise(SIGQUIT);
    if (!strcmp(how, "usr1")) raise(SIGUSR1);
    if (!strcmp(how, "bus")) raise(SIGBUS);
    if (!strcmp(how, "ill")) __asm__ volatile("ud2");
    if (!strcmp(how, "trap")) __asm__ volatile("int3");
    if (!strcmp(how, "forked")) {
        // A child without the threads; the parent lives on and says what it saw.
        int status, pid = fork();
        if (pid == 0) abort();
        waitpid(pid, &status, 0);
        _exit(WCOREDUMP(status) ? 3 : 4);
    }
    abort();
}

static void middle(const char *how) {
    inner(how);
    kept++;
}

static void outer(const char *how) {
    middle(how);
    kept++;
}

int main(int argc, char **argv) {
    pthread_t one, two;
    pthread_barrier_init(&barrier, 0, 3);
    kept = malloc(100000);
    strcpy(kept, "what is kept");
    mapped = mmap(0, 1ul << 30, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mapped[5] = 'm';
    pthread_create(&one, 0, sleeper, 0);
    pthread_create(&two, 0, spinner, 0);
    pthread_barrier_wait(&barrier);
    while (away < 2) usleep(100);
    usleep(1000);
    outer(argc > 1 ? argv[1] : "abort");
    return 0;
}
