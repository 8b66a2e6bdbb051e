/* A file that is mapped in many places is made shorter: each place has lost its end, and what that
 * takes grows with how many there are, not with their square. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { PAGE = 4096, PAGES = 4, ROUNDS = 5, FEW = 500, MANY = 8000 };
static volatile char *places[MANY];
static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}
static int touch(volatile char *at, char *found) {
    int signal = sigsetjmp(back, 1);
    if (signal == 0) *found = *at;
    return signal;
}
static double spent(void) {
    struct rusage all;
    NEED(getrusage(RUSAGE_SELF, &all) == 0);
    return all.ru_utime.tv_sec + all.ru_stime.tv_sec
        + (all.ru_utime.tv_usec + all.ru_stime.tv_usec) / 1e6;
}

/* The time of the fastest round. */
static double rounds(int fd, int count) {
    char page[PAGE], found = 0;
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < PAGES; n++) {
            memset(page, 'a' + round + n, PAGE);
            NEED(pwrite(fd, page, PAGE, n * PAGE) == PAGE);
        }
        for (int n = 0; n < count; n++)
            NEED(touch(places[n] + 3 * PAGE, &found) == 0 && found == 'a' + round + 3);
        double before = spent();
        NEED(ftruncate(fd, PAGE + 100) == 0);
        double took = spent() - before;
        best = took < best ? took : best;
        for (int n = 0; n < count; n++) {
            NEED(touch(places[n] + 3 * PAGE, &found) == SIGBUS);
            NEED(touch(places[n] + PAGE, &found) == 0 && found == 'a' + round + 1);
            NEED(touch(places[n] + PAGE + 200, &found) == 0 && found == 0);
        }
    }
    return best;
}

int main(void) {
    struct sigaction a = { .sa_handler = on_fault };
    NEED(sigaction(SIGBUS, &a, NULL) == 0);
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    NEED(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    double few = 0;
    for (int n = 0; n < MANY; n++) {
        if (n == FEW) few = rounds(fd, FEW);
        places[n] = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
        NEED(places[n] != MAP_FAILED);
    }
    double many = rounds(fd, MANY);
    fprintf(stderr, "%.0f us of %d places, %.0f us of %d\n", few * 1e6, FEW, many * 1e6, MANY);
    /* Sixteen times as many. */
    printf("grows with their number: %d\n", many < 30 * few + 0.002);
    NEED(unlink("file") == 0);
    return 0;
}
