/* Children that share memory without being threads (LinuxThreads made them so): what a runtime
 * keeps for each must go with it, however it ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 300
#define GROWTH_PAGES_MAX 4096

static int child(void *how) {
    int fd = open("shared", O_RDWR | O_CREAT, 0644);
    if (write(fd, "x", 1) != 1)
        _exit(99);
    switch ((long)how % 4) {
    case 0:
        syscall(SYS_exit, 1);
    case 1:
        _exit(1);
    case 2:
        kill(getpid(), SIGKILL);
    default:
        execl("/bin/false", "false", (char *)NULL);
    }
    return 98;
}

static long pages(void) {
    long all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &all) != 1)
        exit(1);
    fclose(file);
    return all;
}

int main(void) {
    static char stack[65536] __attribute__((aligned(16)));
    long before = 0;
    int ended[4] = {0};
    for (long n = 0; n < CHILDREN; n++) {
        int status;
        pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)n, NULL);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
        ended[n % 4] += n % 4 == 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 1;
        if (n == 7)
            before = pages();
    }
    printf("ended %d %d %d %d\n", ended[0], ended[1], ended[2], ended[3]);
    printf("grown: %s\n", pages() - before > GROWTH_PAGES_MAX ? "yes" : "no");
    return 0;
}
