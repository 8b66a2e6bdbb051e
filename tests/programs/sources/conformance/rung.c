// Signals for the process while one thread sleeps in a call and another makes calls that no
// rewriting reaches: who is interrupted.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, SECOND = 1000000000 };

static int ends[2];
static atomic_int in_first, in_other, round_now;
static pid_t first;

static void on_signal(int signal) {
    (void)signal;
    atomic_fetch_add(syscall(SYS_gettid) == first ? &in_first : &in_other, 1);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * (long long)SECOND + time.tv_nsec;
}

// getppid in code made here.
static long (*make_call(void))(void) {
    static const unsigned char code[] = {0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3};
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    return (long (*)(void))page;
}

// Whether the first thread sleeps.
static int sleeps(void) {
    char text[512], *name_end;
    FILE *file = fopen("/proc/self/stat", "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = 0;
    name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'S';
}

static void ring(int way) {
    if (way == 0) {
        kill(getpid(), SIGUSR1);
    } else {
        struct itimerval soon = {{0, 0}, {0, 1000}};
        setitimer(ITIMER_REAL, &soon, 0);
    }
}

static void *ringer(void *way) {
    long (*call)(void) = make_call();
    for (int round = 0; round < ROUNDS; round++) {
        while (round_now < round || !sleeps())
            usleep(100);
        int before = in_first + in_other;
        ring(way != 0);
        for (long long end = now() + 5LL * SECOND; in_first + in_other == before && now() < end;)
            call();
        // The first thread goes on, interrupted or not; a byte too many does no harm.
        for (long long end = now() + SECOND / 5; round_now <= round && now() < end;)
            usleep(1000);
        if (round_now <= round && write(ends[1], "x", 1) != 1)
            perror("write");
        while (round_now <= round)
            usleep(100);
    }
    return 0;
}

static void rounds(const char *name, void *way) {
    pthread_t other;
    in_first = in_other = round_now = 0;
    pthread_create(&other, 0, ringer, way);
    for (int round = 0; round < ROUNDS; round++) {
        char byte;
        if (read(ends[0], &byte, 1) < 0 && errno != EINTR)
            perror("read");
        round_now++;
    }
    pthread_join(other, 0);
    printf("%s: %d handled by the first thread, %d by the other\n", name, in_first, in_other);
}

// The first thread blocks the signal: the other has it, and at once.
static void *alone(void *unused) {
    (void)unused;
    long (*call)(void) = make_call();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    long long start = now();
    for (int round = 0; round < ROUNDS; round++) {
        int before = in_other;
        kill(getpid(), SIGUSR1);
        while (in_other == before)
            call();
    }
    printf("at once: %d\n", now() - start < ROUNDS / 2 * (long long)SECOND);
    return 0;
}

int main(void) {
    first = getpid();
    if (pipe(ends) != 0)
        return 1;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGALRM, &action, 0);
    rounds("kill", 0);
    rounds("alarm", ends);
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR1, &action, 0);
    rounds("not deferred", 0);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    in_first = in_other = 0;
    pthread_t other;
    pthread_create(&other, 0, alone, 0);
    pthread_join(other, 0);
    printf("blocked: %d handled by the first thread, %d by the other\n", in_first, in_other);
    return 0;
}
