/* Children of vfork, and of fork, that ask to be traced and start a program, or cannot: they stop for
 * their tracer at the program, and nowhere before. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const words[] = {"true", 0}, *const none[] = {0};

/* A call from an instruction of its own. */
static long raw(long number, long first, long second, long third)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

static void begin(const char *path, int by_hand, int *twice)
{
    *twice = ptrace(PTRACE_TRACEME, 0, 0, 0) != 0;
    *twice = *twice << 1 | (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 && errno == EPERM);
    if (by_hand)
        raw(SYS_execve, (long)path, (long)words, (long)none);
    else
        execve(path, words, none);
}

static void show(const char *what, pid_t child, int twice)
{
    int status, steps = 0;
    printf("%s, %d:", what, twice);
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status) && steps++ < 3) {
        printf(" stopped by %d", WSTOPSIG(status));
        if (WSTOPSIG(status) != SIGTRAP)
            break;
        ptrace(PTRACE_DETACH, child, 0, 0);
    }
    if (WIFSTOPPED(status))
        kill(child, SIGKILL);
    printf(" ended %x\n", status);
}

int main(void)
{
    static const char *const programs[] = {"/bin/true", "/none"};
    for (int program = 0; program < 2; program++) {
        for (int by_hand = 0; by_hand < 2; by_hand++) {
            volatile int twice = 0;
            pid_t child = vfork();
            if (child == 0) {
                begin(programs[program], by_hand, (int *)&twice);
                _exit(7);
            }
            show(programs[program], child, twice);
        }
    }
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("fork: stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 0;
}
