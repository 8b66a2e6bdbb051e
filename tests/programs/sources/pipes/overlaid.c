/* A handler puts the end of a pipe under the number that its thread is just reading or writing,
 * where a file or a socket was. The call goes on with what was there, or with the pipe; the pipe's
 * bytes are never passed over. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TURNS 30000
static int ends[2], from, number;
static volatile sig_atomic_t replaced;

static void fail(const char *what, long turn) {
    printf("turn %ld: %s\n", turn, what);
    fflush(stdout);
    _exit(1);
}

static void replace(int signal) {
    (void)signal;
    dup2(ends[from], number);
    replaced = 1;
}

static void late(int signal) {
    (void)signal;
    static const char text[] = "a call sleeps on a pipe that has what it wants\n";
    write(1, text, sizeof text - 1);
    _exit(1);
}

static void *idle(void *nothing) {
    for (;;)
        pause();
    return nothing;
}

/* The pipe's bytes go through shared memory from now on. */
static void warm(void) {
    char bytes[2];
    for (int n = 0; n < 60; n++)
        if (write(ends[1], "xy", 2) != 2 || read(ends[0], bytes, 2) != 2)
            fail("a pipe does not work", n);
}

static ssize_t get(char *to, int by_vector) {
    struct iovec part = {to, 3};
    return by_vector ? readv(number, &part, 1) : read(number, to, 3);
}

static void read_while_replaced(timer_t timer, unsigned *seed, int file, long turn) {
    char bytes[4] = "";
    from = 0;
    if (write(ends[1], "ppp", 3) != 3)
        fail("write", turn);
    dup2(file, number);
    replaced = 0;
    get(bytes, turn & 1);
    bytes[0] = 0;
    struct itimerspec soon = {.it_value.tv_nsec = 1 + rand_r(seed) % 3000};
    timer_settime(timer, 0, &soon, NULL);
    while (!replaced)
        if (get(bytes, turn & 1) < 1)
            lseek(number, 0, SEEK_SET);
    if (memcmp(bytes, "ppp", 3) != 0 && (get(bytes, turn & 1) != 3 || bytes[0] != 'p'))
        fail("read something else", turn);
}

static void write_while_replaced(timer_t timer, unsigned *seed, int null, long turn) {
    static char bytes[65536];
    from = 1;
    dup2(null, number);
    replaced = 0;
    if (write(number, "w", 1) != 1)
        fail("write", turn);
    struct itimerspec soon = {.it_value.tv_nsec = 1 + rand_r(seed) % 3000};
    timer_settime(timer, 0, &soon, NULL);
    long put = 1;
    while (!replaced)
        put = write(number, "a", 1);
    if (put != 1 || write(number, "b", 1) != 1)
        fail("write", turn);
    ssize_t got = read(ends[0], bytes, sizeof bytes);
    int left = 0;
    if (got < 1 || memcmp(&"ab"[got == 1], bytes, (size_t)got) != 0 || got > 2)
        fail("what was written is not there, in its order", turn);
    if (ioctl(ends[0], FIONREAD, &left) != 0 || left != 0)
        fail("there is more than was written", turn);
}

/* The call is on its way to the host when the handler comes, or sleeps there, and starts again
 * behind it. */
static void read_asleep(timer_t timer, unsigned *seed, long turn) {
    int pair[2];
    char bytes[4] = "";
    if (turn % 40 == 0 ? pipe(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        fail("a pair", turn);
    from = 0;
    if (write(ends[1], "ppp", 3) != 3)
        fail("write", turn);
    dup2(pair[0], number);
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    if (turn % 60 != 0)
        soon.it_value.tv_nsec = 1 + rand_r(seed) % 12000;
    timer_settime(timer, 0, &soon, NULL);
    if (get(bytes, turn & 1) != 3 || bytes[0] != 'p')
        fail("a call that slept reads something else", turn);
    close(pair[0]);
    close(pair[1]);
}

int main(void) {
    unsigned seed = 4;
    struct sigaction action = {.sa_handler = replace, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGALRM, late);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    int file = open("/etc/passwd", O_RDONLY), null = open("/dev/null", O_WRONLY);
    pthread_t thread;
    for (int threads = 1; threads <= 2; threads++) {
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        if (threads == 2 && pthread_create(&thread, NULL, idle, NULL) != 0)
            fail("pthread_create", 0);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        for (long turn = 0; turn < TURNS; turn++) {
            if (turn % 20 == 0) {
                alarm(10);
                if (turn != 0) {
                    close(ends[0]);
                    close(ends[1]);
                }
                close(number);
                number = 20 + (int)(turn / 20 % 900);
                if (pipe(ends) != 0)
                    fail("pipe", turn);
                warm();
            }
            if (turn / 20 % 3 == 2)
                write_while_replaced(timer, &seed, null, turn);
            else if (turn % 2 == 0)
                read_asleep(timer, &seed, turn);
            else
                read_while_replaced(timer, &seed, file, turn);
        }
    }
    puts("all read and written");
    return 0;
}
