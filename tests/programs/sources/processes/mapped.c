/* Signals that come while pages of a mapping are touched for the first time, on the usual stack or on
 * a signal stack (sigaltstack), handled there too, with a handler that touches such pages itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { BYTES = 64 << 20, PAGE = 4096, TOUCHES = 5000, ROUNDS = 6, PERIOD_US = 500, STACK = 1 << 18 };

static volatile long handled;
static char *volatile mapped;
static int touches;

static void handler(int signal)
{
    char room[4096];
    memset(room, signal, sizeof room);
    handled++;
    if (touches && mapped)
        mapped[(handled * 77777L % (BYTES / PAGE)) * PAGE + 1] = 1;
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    int file = open("mapped", O_CREAT | O_RDWR | O_TRUNC, 0600), bad = 0;
    stack_t stack = {.ss_sp = malloc(STACK), .ss_size = STACK};
    struct sigaction action = {.sa_handler = handler};
    struct itimerval timer = {{0, PERIOD_US}, {0, PERIOD_US}};
    touches = strstr(way, "touches") != 0;
    if (strstr(way, "stack")) {
        if (strstr(way, "disarmed"))
            stack.ss_flags = 1u << 31; /* SS_AUTODISARM */
        if (sigaltstack(&stack, 0))
            return 1;
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGPROF, &action, 0);
    if (strstr(way, "bus"))
        sigaction(SIGBUS, &action, 0);
    setitimer(ITIMER_REAL, &timer, 0);
    setitimer(ITIMER_PROF, &timer, 0);
    for (int round = 0; round < ROUNDS; round++) {
        if (ftruncate(file, 0) || ftruncate(file, BYTES))
            return 2;
        char *base = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        mapped = base;
        for (int touch = 0; touch < TOUCHES; touch++) {
            size_t at = (rand() % (BYTES / PAGE)) * (size_t)PAGE;
            base[at] = 7;
            bad += base[at] != 7;
        }
        mapped = 0;
        munmap(base, BYTES);
    }
    stack_t now = {0};
    sigaltstack(0, &now);
    unlink("mapped");
    printf("%s: %d bad, handled %d, same stack %d\n", way, bad, handled > 0,
        !strstr(way, "stack") || (now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size));
    return 0;
}
