// A handler of SIGSEGV makes calls as any other code: on files, pipes and bad addresses.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static sigjmp_buf back;
static int ends[2];
static char *nowhere;

static void told(const char *what, long value) {
    char line[100];
    int length = snprintf(line, sizeof line, "%s: %ld %d\n", what, value, value < 0 ? errno : 0);
    if (write(1, line, length) != length) _exit(9);
}

static void handler(int signal, siginfo_t *info, void *context) {
    struct stat stat;
    (void)context;
    told("signal", signal);
    told("where", (char *)info->si_addr == nowhere);
    told("a pipe is not written from there", write(ends[1], nowhere, 1));
    int file = open("made", O_RDWR | O_CREAT | O_TRUNC, 0600);
    told("a file is made", file > 2);
    told("nor a file", write(file, nowhere, 10));
    told("written", write(file, "0123456789", 10));
    told("looked at", fstat(file, &stat));
    told("not put there", pread(file, nowhere, 10, 0));
    told("no such path", open(nowhere, O_RDONLY));
    told("removed", unlink("made"));
    told("closed", close(file));
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    told("another is blocked", sigismember(&mask, SIGUSR1));
    siglongjmp(back, 1);
}

int main(int count, char **words) {
    static char stack[64 << 10];
    int apart = !strcmp(words[1], "apart");
    nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pipe2(ends, O_NONBLOCK)) return 1;
    stack_t given = {.ss_sp = stack, .ss_size = sizeof stack};
    if (apart && sigaltstack(&given, NULL)) return 1;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | (apart ? SA_ONSTACK : 0)};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &action, NULL);
    struct sigaction shown;
    sigaction(SIGSEGV, NULL, &shown);
    told("flags", shown.sa_flags & ~0x04000000);
    for (int n = 0; n < 3; n++)
        if (!sigsetjmp(back, 1)) *(volatile char *)nowhere = 1;
    told("a byte", write(ends[1], "x", 1));
    return count != 2;
}
