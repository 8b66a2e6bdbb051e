/* Filters of calls (seccomp): filters KIND. Each is run by itself, for a filter stays. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))

static void install(struct sock_filter *steps, int count, int flags) {
    struct sock_fprog program = { count, steps };
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (flags)
        NEED(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
    else
        NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* These calls as the last one says, all others as `other` says. */
static void judge(const int *numbers, int count, unsigned listed, unsigned other, int flags) {
    struct sock_filter steps[100] = { NUMBER };
    int at = 1;
    for (int n = 0; n < count; n++) {
        steps[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[n], 0, 1);
        steps[at++] = (struct sock_filter)RETURN(listed);
    }
    steps[at++] = (struct sock_filter)RETURN(other);
    install(steps, at, flags);
}

static void work(void) {
    char bytes[20] = "";
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    NEED(fd >= 0);
    for (int n = 0; n < 1000; n++)
        NEED(write(fd, "hello world", 11) == 11);
    NEED(pread(fd, bytes, 11, 11) == 11 && strcmp(bytes, "hello world") == 0);
    char *mapped = mmap(NULL, 11000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(mapped != MAP_FAILED && mapped[10999] == 'd');
    mapped[0] = 'J';
    NEED(munmap(mapped, 11000) == 0 && close(fd) == 0 && unlink("file") == 0);
}

/* Only what a program calls itself is allowed; the next call ends it. */
static void allowed(void) {
    static const int numbers[] = { SYS_write, SYS_read, SYS_openat, SYS_open, SYS_close, SYS_mmap,
        SYS_munmap, SYS_exit_group, SYS_newfstatat, SYS_fstat, SYS_pread64, SYS_unlink, SYS_brk,
        SYS_mprotect, SYS_lseek };
    int count = sizeof numbers / sizeof *numbers;
    judge(numbers, count, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS, 0);
    work();
    void *much = malloc(1 << 20);
    NEED(much);
    puts("it works");
    syscall(SYS_getppid);
    puts("it goes on");
}

static void strict(void) {
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    NEED(unlink("file") == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    if (write(fd, "x", 1) == 1)
        puts("strict");
    syscall(SYS_exit, 3);
}

static void *asks(void *result) {
    *(int *)result = syscall(SYS_getppid) < 0 ? errno : 0;
    return NULL;
}

/* Calls of the host that are refused, in this process, its threads and what it becomes. */
static void refused(void) {
    static const int numbers[] = { SYS_getppid, SYS_socket, SYS_sched_yield };
    int pipes[2], other = 0;
    pthread_t id;
    judge(numbers, 3, SECCOMP_RET_ERRNO | 77, SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC);
    NEED(pthread_create(&id, NULL, asks, &other) == 0 && pthread_join(id, NULL) == 0);
    int number = socket(AF_UNIX, SOCK_STREAM, 0), why = errno;
    printf("socket %d %d, thread %d\n", number, number < 0 ? why : 0, other);
    NEED(pipe(pipes) == 0);
    work();
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        printf("child %ld %d\n", syscall(SYS_getppid), errno);
        fflush(stdout);
        execl("/bin/sh", "sh", "-c", "mkdir d && echo made > d/f && cat d/f && rm -r d", NULL);
        _exit(1);
    }
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    printf("ended %d, mode %d\n", status, prctl(PR_GET_SECCOMP));
}

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4000 + info->si_syscall;
}

/* A handler of the program answers in the place of the host. */
static void trapped(void) {
    static const int numbers[] = { SYS_getppid };
    struct sigaction action = { .sa_sigaction = answer, .sa_flags = SA_SIGINFO };
    NEED(sigaction(SIGSYS, &action, NULL) == 0);
    judge(numbers, 1, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW, 0);
    for (int n = 0; n < 3; n++)
        printf("trapped %ld\n", syscall(SYS_getppid));
    work();
}

static void wrong(void) {
    struct sock_filter bad[] = { NUMBER, { 0xffff, 0, 0, 0 } };
    struct sock_fprog none = { 0, bad }, nowhere = { 1, (void *)8 }, unknown = { 2, bad };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("%d ", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none) ? errno : 0);
    printf("%d ", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere) ? errno : 0);
    printf("%d ", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &unknown) ? errno : 0);
    printf("%d ", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) ? errno : 0);
    printf("%d ", prctl(PR_SET_SECCOMP, 9, NULL) ? errno : 0);
    printf("%ld %d\n", syscall(SYS_seccomp, 99, 0, NULL), errno);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    const struct { const char *name; void (*run)(void); } kinds[] = { { "allowed", allowed },
        { "strict", strict }, { "refused", refused }, { "trapped", trapped }, { "wrong", wrong } };
    for (unsigned n = 0; n < sizeof kinds / sizeof *kinds && argc == 2; n++)
        if (strcmp(argv[1], kinds[n].name) == 0)
            kinds[n].run();
    return 0;
}
