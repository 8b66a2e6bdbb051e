/* A thread waits in vfork for a child that ends late, while another puts descriptors under the very
 * numbers that the host may have given to the child's pidfd. Each must stay what it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES 4
#define P_PIDFD_ 3
#define LATE_MS 600
#define STATUS 42

static volatile int started;
static char said[200];

static int end_late(void *unused) {
    (void)unused;
    started = 1;
    struct timespec late = {0, LATE_MS * 1000000L};
    nanosleep(&late, NULL);
    _exit(STATUS);
}

static void *parent(void *unused) {
    static char stack[65536] __attribute__((aligned(16)));
    int pidfd = -1, flags = CLONE_PIDFD | CLONE_VM | CLONE_VFORK | SIGCHLD;
    siginfo_t info = {0};
    pid_t pid = clone(end_late, stack + sizeof stack, flags, NULL, &pidfd);
    int waited = waitid(P_PIDFD_, (id_t)pidfd, &info, WEXITED);
    snprintf(said, sizeof said, "pidfd: %s, %s, status %d", waited == 0 ? "waited" : strerror(errno),
             info.si_pid == pid ? "its child" : "another child", info.si_status);
    return unused;
}

int main(void) {
    pthread_t thread;
    int ends[2], files[FILES];
    if (pipe(ends) < 0 || pthread_create(&thread, NULL, parent, NULL) != 0)
        return 1;
    while (!started)
        sched_yield();
    for (int n = 0; n < FILES; n++) {
        char name[16];
        sprintf(name, "file-%d", n);
        files[n] = open(name, O_CREAT | O_RDWR, 0644);
    }
    for (int n = 0; n < FILES; n++) {
        struct stat facts = {0};
        int put = dup2(ends[n % 2], files[n]);
        fstat(files[n], &facts);
        printf("%d: %s, %s\n", n, put == files[n] ? "put" : strerror(errno), S_ISFIFO(facts.st_mode) ? "a pipe" : "none");
    }
    pthread_join(thread, NULL);
    puts(said);
    for (int n = 0; n < FILES; n++) {
        struct stat facts = {0};
        fstat(files[n], &facts);
        printf("%d: %s, closed: %d\n", n, S_ISFIFO(facts.st_mode) ? "a pipe" : "none", close(files[n]));
    }
    return 0;
}
