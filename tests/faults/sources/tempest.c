/* tempest SIGNALS: a process is signalled by eight others and by a timer, by kill, tgkill and
 * sigqueue, while it makes every kind of call, nests handlers on a stack of their own, jumps out of
 * some, forks and runs programs. Queued signals come once each and in order; nothing is torn. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { SENDERS = 8, REAL = 4 };
static struct shared { long sent[SENDERS]; volatile int seen[SENDERS]; } *shared;
static volatile long plain, real, wrong, depth, deepest, calls, interrupted;
static volatile int jumping;
static sigjmp_buf back;
static char stack[1 << 18];

/* A handler may be interrupted by another between a load and a store. */
static void tally(volatile long *what) {
    __atomic_add_fetch(what, 1, __ATOMIC_SEQ_CST);
}
/* What a handler does disturbs registers of all kinds. */
static void disturb(void) {
    volatile double d = 1.5;
    char text[40];
    for (int n = 0; n < 4; n++) d = d * 1.25 + n;
    snprintf(text, sizeof text, "%f %d", d, getpid());
    memset(text, 0x5a, sizeof text);
}
static void on_plain(int signal) {
    int saved = errno, aside;
    char here;
    aside = &here >= stack && &here < stack + sizeof stack;
    if (signal != SIGUSR1 && !aside) tally(&wrong);
    tally(&plain), depth++;
    if (depth > deepest) deepest = depth;
    disturb();
    if (access("nobody", F_OK) != -1 || errno != ENOENT) tally(&wrong);
    depth--, errno = saved;
    if (jumping && depth == 0 && plain % 16 == 0) jumping = 0, siglongjmp(back, 1);
}
/* The value counts the sender's signals. */
static void on_real(int signal, siginfo_t *info, void *context) {
    int saved = errno, sender = info->si_int >> 26, number = info->si_int & 0x3ffffff;
    (void)context, (void)signal;
    disturb();
    if (sender < 0 || sender >= SENDERS || number != shared->seen[sender] + 1) tally(&wrong);
    if (sender >= 0 && sender < SENDERS) shared->seen[sender] = number;
    tally(&real), errno = saved;
}
static void send(int sender, pid_t to, long count) {
    for (int n = 1; n <= count; n++) {
        if (sender < REAL) {
            /* The host looks through all that wait for each that it takes. */
            while (n > shared->seen[sender] + 64) usleep(50);
            union sigval value = { .sival_int = sender << 26 | n };
            while (sigqueue(to, SIGRTMIN + sender, value) < 0) {
                NEED(errno == EAGAIN);
                usleep(100);
            }
        } else if (sender % 2)
            NEED(kill(to, SIGUSR1) == 0);
        else
            NEED(syscall(SYS_tgkill, to, to, SIGUSR2) == 0);
        shared->sent[sender] = n;
        if (n % 64 == 0) usleep(50);
    }
    _exit(0);
}
static int again(long result) {
    calls++;
    if (result < 0 && errno == EINTR) interrupted++;
    return result < 0 && errno == EINTR;
}
/* A round of calls: every byte is where it belongs, whatever came in between. */
static void work(int round, const int *p) {
    char out[3000], in[3000];
    double kept = round * 0.25;
    long got, at = 0;
    memset(out, round, sizeof out);
    int fd;
    while (again(fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644))) ;
    NEED(fd >= 0 && write(fd, out, sizeof out) == sizeof out);
    NEED(pread(fd, in, sizeof in, 0) == sizeof in && memcmp(in, out, sizeof in) == 0);
    while (at < (long)sizeof out) {
        if (again(got = write(p[1], out + at, sizeof out - at))) continue;
        NEED(got > 0);
        at += got;
    }
    for (at = 0; at < (long)sizeof in;) {
        if (again(got = read(p[0], in + at, sizeof in - at))) continue;
        NEED(got > 0);
        at += got;
    }
    NEED(memcmp(in, out, sizeof in) == 0);
    struct pollfd polled = { p[0], POLLIN, 0 };
    struct timespec little = { 0, 200000 };
    again(poll(&polled, 1, 1)), again(poll(&polled, 1, 0));
    again(nanosleep(&little, NULL));
    struct flock lock = { F_WRLCK, SEEK_SET, round % 9, 9, 0 };
    while (again(fcntl(fd, F_SETLKW, &lock))) ;
    NEED(rename("file", "other") == 0 && close(fd) == 0 && kept == round * 0.25);
    if (sigsetjmp(back, 1) == 0) {
        jumping = 1;
        for (int n = 0; n < 5 && jumping; n++) again(read(p[0], in, 1) < 0 ? -1 : 0);
    }
    jumping = 0;
}
/* The end of a quiet pipe, so that nobody waits for ever: a timer ticks. */
static void child(int round) {
    int status;
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        if (round % 2) _exit(open("other", O_RDONLY) < 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    while (again(waitpid(pid, &status, 0))) ;
    NEED(status == 0);
}

int main(int argc, char **argv) {
    long count = atol(argv[argc - 1]) / SENDERS;
    int p[2], rounds = 0;
    pid_t pids[SENDERS], self = getpid();
    stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction a = { .sa_handler = on_plain };
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED && sigaltstack(&other, NULL) == 0 && pipe(p) == 0);
    NEED(sigaction(SIGUSR1, &a, NULL) == 0);
    a.sa_flags = SA_ONSTACK | SA_RESTART;
    NEED(sigaction(SIGUSR2, &a, NULL) == 0 && sigaction(SIGALRM, &a, NULL) == 0);
    struct sigaction r = { .sa_sigaction = on_real, .sa_flags = SA_SIGINFO | SA_RESTART };
    /* Whoever counts is not left by a jump. */
    sigaddset(&r.sa_mask, SIGUSR1), sigaddset(&r.sa_mask, SIGUSR2), sigaddset(&r.sa_mask, SIGALRM);
    for (int n = 0; n < REAL; n++) NEED(sigaction(SIGRTMIN + n, &r, NULL) == 0);
    for (int n = 0; n < SENDERS; n++)
        if ((pids[n] = fork()) == 0) send(n, self, count);
    struct itimerval often = { { 0, 100 }, { 0, 100 } };
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    /* A read of nothing ends by a jump, or by a signal that restarts nothing. */
    NEED(fcntl(p[0], F_SETFL, 0) == 0);
    for (int running = SENDERS; running > 0; rounds++) {
        fcntl(p[0], F_SETFL, 0);
        work(rounds, p);
        if (rounds % 8 == 0) child(rounds / 8);
        for (int n = 0; n < SENDERS; n++) {
            int status;
            if (pids[n] && waitpid(pids[n], &status, WNOHANG) == pids[n]) {
                NEED(status == 0);
                pids[n] = 0, running--;
            }
        }
    }
    memset(&often, 0, sizeof often), setitimer(ITIMER_REAL, &often, NULL);
    long queued = 0;
    for (int n = 0; n < REAL; n++) queued += shared->sent[n];
    printf("queued %ld, lost or twice %ld, wrong %ld\n", queued, queued - real, wrong);
    fprintf(stderr, "%d rounds, %ld plain, %ld real, deepest %ld, %ld calls, %ld interrupted\n",
            rounds, plain, real, deepest, calls, interrupted);
    unlink("file"), unlink("other");
    return 0;
}
