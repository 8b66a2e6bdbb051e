// Looks at what a program is given before its first instruction, from all sides. Prints whether all
// of it holds, how it came to be there, what it was called and the word that guards its stack.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Of the library beside it, if it has one.
extern int library_began(int count) __attribute__((weak));

static __thread int own = 7;
static volatile sig_atomic_t raised;
static const char *unsound = "sound";

static void expect(int holds, const char *what) {
    if (!holds) {
        unsound = what;
    }
}

static void on_signal(int signal) {
    raised = signal;
}

static void *work(void *argument) {
    own += *(int *)argument;
    errno = own;
    return (void *)(long)(errno == 7 + *(int *)argument);
}

static int objects(struct dl_phdr_info *info, size_t size, void *count) {
    (void)size;
    if (++*(int *)count == 1) {
        expect((unsigned long)info->dlpi_phdr == getauxval(AT_PHDR), "headers");
        expect(info->dlpi_phnum == getauxval(AT_PHNUM), "number of headers");
    }
    return 0;
}

static void at_end(void) {
    printf("%s at its end\n", unsound);
}

static void memory(void) {
    char *before = sbrk(0), *room = malloc(300000), *more = malloc(30);
    expect(before != (void *)-1 && room && more, "memory");
    memset(room, 1, 300000);
    free(room);
    free(more);
    expect(sbrk(4096) != (void *)-1, "the heap");
}

static void threads(void) {
    pthread_t all[4];
    int numbers[4] = {1, 2, 3, 4};
    for (int n = 0; n < 4; n++) {
        expect(pthread_create(&all[n], NULL, work, &numbers[n]) == 0, "a thread");
    }
    for (int n = 0; n < 4; n++) {
        void *told = NULL;
        pthread_join(all[n], &told);
        expect(told != NULL, "what a thread has of its own");
    }
    pthread_attr_t attributes;
    size_t bytes = 0;
    struct rlimit limit;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    getrlimit(RLIMIT_STACK, &limit);
    expect(limit.rlim_cur == RLIM_INFINITY || bytes == limit.rlim_cur, "size of stacks");
    expect(pthread_kill(pthread_self(), SIGUSR1) == 0 && raised == SIGUSR1, "who the thread is");
    pthread_mutexattr_t robust;
    pthread_mutex_t lock;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&lock, &robust);
    expect(pthread_mutex_lock(&lock) == 0 && pthread_mutex_unlock(&lock) == 0, "a robust lock");
}

static void others(void) {
    jmp_buf back;
    volatile int jumps = 0;
    if (setjmp(back) == 0) {
        jumps = 1;
        longjmp(back, 1);
    }
    expect(jumps == 1, "a jump");
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        _exit(raise(SIGUSR1) == 0 && getpid() == gettid() ? 5 : 6);
    }
    expect(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5, "a child");
    void *library = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : NULL;
    expect(cosine && cosine(0) == 1, "a library");
    void *frames[8];
    expect(backtrace(frames, 8) > 0, "frames");
    expect(sched_getcpu() >= 0, "the core");
}

int main(int count, char **arguments) {
    struct timespec one, two;
    clock_gettime(CLOCK_MONOTONIC, &one);
    signal(SIGUSR1, on_signal);
    atexit(at_end);
    expect(library_began == NULL || library_began(count), "how its library began");
    int number = 0;
    dl_iterate_phdr(objects, &number);
    expect(number >= 3, "what is loaded");
    expect(getauxval(AT_BASE) && getauxval(AT_SYSINFO_EHDR) && getauxval(AT_RANDOM), "the vector");
    memory();
    threads();
    others();
    clock_gettime(CLOCK_MONOTONIC, &two);
    expect(two.tv_sec > one.tv_sec || two.tv_nsec >= one.tv_nsec, "the clock");
    unsigned long canary;
    __asm__("mov %%fs:0x28, %0" : "=r"(canary));
    char line[512];
    const char *how = "linked";
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "rw-p") && strstr(line, "husk-region")) {
            how = "recorded";
        }
    }
    const char *mark = getenv("MARK");
    printf("%s %s %s %s", unsound, how, program_invocation_short_name, mark ? mark : "-");
    for (int n = 1; n < count; n++) {
        printf(" %s", arguments[n]);
    }
    printf(" %lx\n", canary);
    return count;
}
