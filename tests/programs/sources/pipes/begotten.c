/* A handler forks while its process sleeps in a call on a pipe: parent and child both come out of
 * the one call. Whoever else sleeps there is woken for all that, and bytes stay in order. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
static volatile sig_atomic_t twins, is_twin;

static void on_signal(int signal) {
    (void)signal;
    if (fork() == 0) is_twin = 1;
    else twins++;
}

/* Waits until `pid` sleeps. */
static void until_asleep(pid_t pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (; state != 'S'; usleep(1000)) {
        FILE *file = fopen(path, "r");
        NEED(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
    }
}

static void ended_well(pid_t pid) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Sleeps in poll or read, is interrupted, and becomes two. */
static void part(int p[2], int polls) {
    struct pollfd end = { p[0], POLLIN, 0 };
    pid_t parent = getpid(), helper = fork();
    char byte;
    if (helper == 0) {
        until_asleep(parent);
        NEED(kill(parent, SIGUSR1) == 0);
        _exit(0);
    }
    long got = polls ? poll(&end, 1, -1) : read(p[0], &byte, 1);
    if (is_twin) _exit(got == -1 ? 0 : 1);
    NEED(got == -1 && errno == EINTR && twins == 1);
    for (int i = 0, status; i < 2; i++) NEED(wait(&status) > 0 && status == 0);
    twins = 0;
}

static void check(int polls) {
    int p[2], status;
    NEED(pipe(p) == 0);
    part(p, polls);
    pid_t sleeper = fork();
    if (sleeper == 0) {
        struct pollfd end = { p[0], POLLIN, 0 };
        _exit(poll(&end, 1, -1) == 1 ? 0 : 1);
    }
    until_asleep(sleeper);
    NEED(kill(sleeper, SIGSTOP) == 0 && waitpid(sleeper, &status, WUNTRACED) == sleeper);
    for (unsigned char out = 0, in; out < 200; out++)
        NEED(write(p[1], &out, 1) == 1 && read(p[0], &in, 1) == 1 && in == out);
    NEED(write(p[1], "", 1) == 1 && kill(sleeper, SIGCONT) == 0);
    ended_well(sleeper);
    printf("%s: woken\n", polls ? "poll" : "read");
    close(p[0]), close(p[1]);
}

int main(void) {
    struct sigaction action = { .sa_handler = on_signal };
    setvbuf(stdout, 0, _IONBF, 0);
    NEED(sigaction(SIGUSR1, &action, 0) == 0);
    for (int polls = 0; polls < 2; polls++) check(polls);
    return 0;
}
