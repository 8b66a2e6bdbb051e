/* lineage ALIVE DEPTH ROW THREADS TURNS: many processes alive at once, each with a pipe to the first;
 * a line of processes, each the child of the one before; many in a row; threads that hand a word to
 * each other. Checks itself, says what failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
/* Each answers what it is asked until nobody asks any more. */
static void alive(int count) {
    int (*asks)[2] = calloc(count, sizeof *asks), (*tells)[2] = calloc(count, sizeof *tells);
    pid_t *pids = calloc(count, sizeof *pids);
    for (int n = 0; n < count; n++) {
        NEED(pipe2(asks[n], O_CLOEXEC) == 0 && pipe2(tells[n], O_CLOEXEC) == 0);
        NEED((pids[n] = fork()) >= 0);
        if (pids[n] == 0) {
            char name[32];
            int number;
            for (int k = 0; k < n; k++) close(asks[k][1]), close(tells[k][0]);
            close(asks[n][1]), close(tells[n][0]);
            snprintf(name, sizeof name, "alive-%d", n);
            int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0644);
            NEED(fd >= 0);
            while (read(asks[n][0], &number, sizeof number) == sizeof number) {
                number = number * 2 + n;
                NEED(write(tells[n][1], &number, sizeof number) == sizeof number);
                NEED(write(fd, &number, sizeof number) == sizeof number);
            }
            NEED(unlink(name) == 0);
            _exit(0);
        }
        close(asks[n][0]), close(tells[n][1]);
    }
    for (int round = 0; round < 3; round++) {
        for (int n = 0; n < count; n++) NEED(write(asks[n][1], &round, 4) == 4);
        for (int n = 0, number; n < count; n++)
            NEED(read(tells[n][0], &number, 4) == 4 && number == round * 2 + n);
    }
    /* The last to begin is the first to end, for it holds what the others began with. */
    for (int n = count - 1; n >= 0; n--) {
        int status, byte;
        close(asks[n][1]);
        NEED(waitpid(pids[n], &status, 0) == pids[n] && status == 0);
        NEED(read(tells[n][0], &byte, 1) == 0);
        close(tells[n][0]);
    }
    free(asks), free(tells), free(pids);
    puts("alive: ok");
}

/* The last one knows how many are before it; each tells the one before. */
static int line(int left) {
    int status, fd;
    if (left == 0) return access("line", F_OK) == 0 ? 0 : 1;
    pid_t pid = fork();
    if (pid < 0) return 2;
    if (pid == 0) _exit(line(left - 1));
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 3;
    fd = open("line", O_WRONLY | O_APPEND);
    if (fd < 0 || write(fd, "x", 1) != 1) return 4;
    close(fd);
    return WEXITSTATUS(status);
}
static void lineage(int depth) {
    int fd = open("line", O_CREAT | O_RDWR, 0644);
    NEED(fd >= 0 && line(depth) == 0 && lseek(fd, 0, SEEK_END) == depth);
    NEED(unlink("line") == 0 && close(fd) == 0);
    puts("lineage: ok");
}

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}
/* The time of one does not grow with how many there were: of the quickest, which other programs
   delay least. */
static void row(int count) {
    double *times = calloc(count, sizeof *times);
    for (int n = 0; n < count; n++) {
        int status;
        double began = now();
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) _exit(n % 100);
        NEED(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == n % 100);
        times[n] = now() - began;
    }
    int tenth = count / 10;
    qsort(times, tenth, sizeof *times, by_size);
    qsort(times + count - tenth, tenth, sizeof *times, by_size);
    double first = times[0], last = times[count - tenth];
    fprintf(stderr, "fork and end: %.0f us first, %.0f us last\n", first * 1e6, last * 1e6);
    NEED(last < 3 * first);
    free(times);
    puts("row: ok");
}

/* A ring of threads: each waits for its number and passes on the next. */
static unsigned word, members, turns;
static void *member(void *number) {
    unsigned own = (unsigned long)number, seen;
    for (;;) {
        while ((seen = __atomic_load_n(&word, __ATOMIC_SEQ_CST)) % members != own && seen < turns)
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        if (seen >= turns) return NULL;
        __atomic_store_n(&word, seen + 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1u << 30, NULL, NULL, 0);
    }
}
static void threads(int count, int all) {
    pthread_t *ids = calloc(count, sizeof *ids);
    members = 4, turns = all;
    for (long n = 0; n < members; n++)
        NEED((errno = pthread_create(&ids[n], NULL, member, (void *)n)) == 0);
    for (unsigned n = 0; n < members; n++) NEED(pthread_join(ids[n], NULL) == 0);
    NEED(word == turns);
    /* All of them at once, each handed the word once. */
    members = count, turns = count, word = 0;
    for (long n = 0; n < count; n++)
        NEED((errno = pthread_create(&ids[n], NULL, member, (void *)n)) == 0);
    for (int n = 0; n < count; n++) NEED(pthread_join(ids[n], NULL) == 0);
    NEED(word == turns);
    turns = 0;
    for (int n = 0; n < 4 * count; n++) {
        NEED((errno = pthread_create(&ids[0], NULL, member, NULL)) == 0);
        NEED(pthread_join(ids[0], NULL) == 0);
    }
    free(ids);
    puts("threads: ok");
}

int main(int argc, char **argv) {
    struct rlimit files;
    setvbuf(stdout, NULL, _IOLBF, 0);
    NEED(argc == 6 && getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    NEED(setrlimit(RLIMIT_NOFILE, &files) == 0);
    alive(atoi(argv[1])), lineage(atoi(argv[2])), row(atoi(argv[3]));
    threads(atoi(argv[4]), atoi(argv[5]));
    return 0;
}
