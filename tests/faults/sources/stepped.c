/* stepped STRIDE: a process is stepped through calls instruction by instruction, and at every
 * STRIDE-th of them it gets a signal: what it calls answers as ever, and its handler runs once.
 * Who waits for others may take no end of instructions: STEPS_MAX of each call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { CALLS = 7, STEPS_MAX = 6000 };
static const char *const names[CALLS] = { "open and close", "pwrite and pread", "fstat", "fcntl",
    "pipe", "getppid", "rename" };
static struct shared { volatile int hits, rounds; } *shared;
static int file, ends[2];
static pid_t parent;

static void hit(int signal) {
    char byte;
    (void)signal;
    shared->hits++;
    if (pread(file, &byte, 1, 0) != 1) _exit(9);
}
static int works(int which, int round) {
    char bytes[64] = "", text[64];
    struct stat facts;
    sprintf(text, "round %d", round);
    if (which == 0) {
        int fd = open("file", O_RDONLY);
        return fd > file && close(fd) == 0;
    }
    if (which == 1)
        return pwrite(file, text, 20, 0) == 20 && pread(file, bytes, 20, 0) == 20 &&
               strcmp(bytes, text) == 0;
    if (which == 2) return fstat(file, &facts) == 0 && facts.st_size == 20;
    if (which == 3) return (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDWR;
    if (which == 4)
        return write(ends[1], text, 20) == 20 && read(ends[0], bytes, 64) == 20 &&
               strcmp(bytes, text) == 0;
    if (which == 5) return syscall(SYS_getppid) == parent;
    return rename(round % 2 ? "two" : "one", round % 2 ? "one" : "two") == 0;
}
static void stepped(int which) {
    NEED(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    for (int round = 0; shared->rounds >= 0; round++) {
        raise(SIGSTOP);
        if (shared->rounds < 0) break;
        if (!works(which, round)) _exit(8);
    }
    _exit(0);
}
/* Whether the process has stopped itself; what else stops it is its own to see. */
static int stopped(pid_t pid, int *pass) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    if (!WIFSTOPPED(status)) printf("ended %x\n", status), fflush(stdout), _exit(1);
    *pass = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    return *pass == SIGSTOP;
}
static long step_through(int which, long stride) {
    long longest = 0, rounds = 0;
    int pass;
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) stepped(which);
    NEED(stopped(pid, &pass));
    shared->hits = 0;
    for (long at = 1, over = 0; !over && at < STEPS_MAX; at += stride, rounds++) {
        pass = 0;
        for (long n = 0; n < at && !over; n++) {
            NEED(ptrace(PTRACE_SINGLESTEP, pid, 0, pass) == 0);
            over = stopped(pid, &pass);
            longest = n > longest ? n : longest;
        }
        if (over) break;
        /* What it was about to get comes first. */
        if (pass) kill(pid, SIGUSR1);
        NEED(ptrace(PTRACE_CONT, pid, 0, pass ? pass : SIGUSR1) == 0);
        while (!stopped(pid, &pass)) NEED(ptrace(PTRACE_CONT, pid, 0, pass) == 0);
    }
    shared->rounds = -1;
    NEED(ptrace(PTRACE_CONT, pid, 0, 0) == 0);
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    /* One that comes as the process stops itself is handled when it goes on. */
    printf("%s: %d, handlers missing or twice %ld\n", names[which], status, rounds - shared->hits);
    fprintf(stderr, "%s: %ld instructions, %ld signals\n", names[which], longest, rounds);
    shared->rounds = 0;
    return rounds;
}

int main(int argc, char **argv) {
    long stride = atol(argv[argc - 1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    parent = getpid();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = open("file", O_CREAT | O_RDWR, 0644);
    NEED(shared != MAP_FAILED && file >= 0 && pwrite(file, "twenty bytes of text", 20, 0) == 20);
    NEED(close(open("one", O_CREAT | O_RDWR, 0644)) == 0 && pipe(ends) == 0);
    struct sigaction a = { .sa_handler = hit, .sa_flags = SA_RESTART };
    NEED(sigaction(SIGUSR1, &a, NULL) == 0);
    for (int which = 0; which < CALLS; which++) NEED(step_through(which, stride) > 2);
    unlink("file"), unlink("one"), unlink("two");
    return 0;
}
