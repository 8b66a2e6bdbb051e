/* Many processes and threads: checks itself, says what failed. crew AT-ONCE ROUNDS IN-A-ROW THREADS */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } } while (0)
/* What the records of processes take, which are used in turn. */
#define MORE_KIB 2048

extern char **environ;
static pthread_barrier_t all;

/* What each does: a file of its own from its first to its last day. */
static void live(const char *kind, long number) {
    char name[64], text[64], found[64];
    int length = snprintf(text, sizeof text, "%s %ld", kind, number);
    snprintf(name, sizeof name, "%s-%ld", kind, number);
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0644);
    NEED(fd >= 0);
    NEED(write(fd, text, length) == length);
    NEED(pread(fd, found, sizeof found, 0) == length && memcmp(text, found, length) == 0);
    NEED(close(fd) == 0 && unlink(name) == 0);
}

/* Every third is a fork that runs no program. */
static pid_t start(long number) {
    char text[32], *arguments[] = { "/proc/self/exe", "child", text, NULL };
    pid_t pid;
    snprintf(text, sizeof text, "%ld", number);
    if (number % 3 == 0) {
        NEED((pid = fork()) >= 0);
        if (pid == 0) {
            live("fork", number);
            _exit(0);
        }
        return pid;
    }
    NEED((errno = posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ)) == 0);
    return pid;
}

static void end(pid_t pid) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void at_once(long count) {
    pid_t *pids = calloc(count, sizeof *pids);
    for (long n = 0; n < count; n++)
        pids[n] = start(n);
    for (long n = 0; n < count; n++)
        end(pids[n]);
    free(pids);
}

static void in_a_row(long count) {
    for (long n = 0; n < count; n++)
        end(start(n));
}

static void *thread(void *number) {
    pthread_barrier_wait(&all);
    live("thread", (long)number);
    pthread_barrier_wait(&all);
    return number;
}

static void threads(long count) {
    pthread_t *ids = calloc(count, sizeof *ids);
    pthread_attr_t small;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&all, NULL, count + 1);
    for (long n = 0; n < count; n++)
        NEED((errno = pthread_create(&ids[n], &small, thread, (void *)n)) == 0);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (long n = 0; n < count; n++) {
        void *result;
        NEED(pthread_join(ids[n], &result) == 0 && result == (void *)n);
    }
    free(ids);
}

/* Who forks leaves out what the runtime had for threads that have ended: a mapping or two each. */
static void fork_without_them(long count) {
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        /* A process is not shown these of its own. */
        char look[64];
        snprintf(look, sizeof look, "exec cat /proc/%d/maps", getpid());
        FILE *maps = popen(look, "r");
        long lines = 0;
        NEED(maps);
        for (int byte; (byte = getc(maps)) != EOF;)
            lines += byte == '\n';
        fprintf(stderr, "%ld mappings\n", lines);
        /* The C library itself keeps 40 MiB of stacks. */
        _exit(lines >= 600 + count / 2);
    }
    end(pid);
}

/* Memory of the image: that of the supervisor's memfds; natively there are none. */
static long region_kib(void) {
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", getppid());
    DIR *directory = opendir(path);
    struct dirent *entry;
    long blocks = 0;
    NEED(directory);
    while ((entry = readdir(directory))) {
        struct stat facts;
        snprintf(path, sizeof path, "/proc/%d/fd/%s", getppid(), entry->d_name);
        ssize_t length = readlink(path, target, sizeof target);
        if (length > 7 && memcmp(target, "/memfd:", 7) == 0 && stat(path, &facts) == 0)
            blocks += facts.st_blocks;
    }
    closedir(directory);
    return blocks / 2;
}

static void round_of(long once, long rounds, long row, long crowd) {
    for (long n = 0; n < rounds; n++)
        at_once(once);
    in_a_row(row);
    threads(crowd);
    fork_without_them(crowd);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        live("spawn", atol(argv[2]));
        return 0;
    }
    struct rlimit files;
    NEED(argc == 5 && getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    NEED(setrlimit(RLIMIT_NOFILE, &files) == 0);
    long once = atol(argv[1]), rounds = atol(argv[2]), row = atol(argv[3]), crowd = atol(argv[4]);
    round_of(once, 2, 100, crowd); /* pools fill and tables grow to what they need */
    struct statvfs before, after;
    long kib = region_kib();
    NEED(statvfs(".", &before) == 0);
    round_of(once, rounds, row, crowd);
    /* What the last ones had is given back a moment later. */
    for (int n = 0; n < 100; n++, usleep(20000)) {
        NEED(statvfs(".", &after) == 0);
        if (after.f_ffree >= before.f_ffree && after.f_bfree >= before.f_bfree)
            break;
    }
    fprintf(stderr, "inodes %ld, blocks %ld, %ld KiB of %ld\n", (long)(before.f_ffree - after.f_ffree),
            (long)(before.f_bfree - after.f_bfree), region_kib() - kib, kib);
    if (kib == 0)
        return puts("crew: ok") == EOF; /* the host's file system is others', too */
    NEED(after.f_ffree >= before.f_ffree && after.f_bfree >= before.f_bfree);
    NEED(region_kib() - kib <= MORE_KIB);
    puts("crew: ok");
    return 0;
}
