/* stopped ROUNDS STOP_MS
 *
 * Two processes change the same names; one is stopped at any moment, the other has to go on, and so
 * has a third that waits for a lock: the holder is killed while its fellow is stopped. Prints the
 * longest that one round of operations of the survivor took. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("failed: line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); \
    _exit(1); } } while (0)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* Names race: any answer is right that is one at all. */
static void work(void) {
    int fd = open("n", O_CREAT | O_RDWR | O_APPEND, 0644);
    if (fd >= 0) {
        NEED(write(fd, "hello", 5) == 5);
        close(fd);
    }
    rename("n", "m");
    NEED(link("m", "n") == 0 || errno == ENOENT || errno == EEXIST);
    unlink("m");
    unlink("n");
}

/* The locks of who is killed are free at once, though another is stopped. */
static double lock_after_a_death(void) {
    int ready[2], fd = open("lock", O_CREAT | O_RDWR, 0644);
    char byte;
    NEED(fd >= 0 && pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        NEED(flock(open("lock", O_RDWR), LOCK_EX) == 0 && write(ready[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    NEED(read(ready[0], &byte, 1) == 1);
    double began = now_ms();
    NEED(kill(pid, SIGKILL) == 0 && flock(fd, LOCK_EX) == 0);
    double took = now_ms() - began;
    int status;
    NEED(waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
    close(fd), close(ready[0]), close(ready[1]), unlink("lock");
    return took;
}

int main(int argc, char **argv) {
    int rounds = atoi(argv[argc - 2]), stop_ms = atoi(argv[argc - 1]), status;
    double slowest = 0;
    pid_t pid = fork();
    NEED(argc == 3 && pid >= 0);
    if (pid == 0)
        for (;;)
            work();
    srand(getpid());
    for (int round = 0; round < rounds; round++) {
        struct timespec moment = { 0, rand() % 3000000 };
        nanosleep(&moment, NULL);
        NEED(kill(pid, SIGSTOP) == 0);
        NEED(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        double end = now_ms() + stop_ms, took = lock_after_a_death();
        do {
            slowest = took > slowest ? took : slowest;
            double began = now_ms();
            work();
            took = now_ms() - began;
        } while (now_ms() < end);
        slowest = took > slowest ? took : slowest;
        /* Whoever helped it told nobody, and it is where it was. */
        NEED(waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
        char path[40], line[200] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *stat = fopen(path, "r");
        NEED(stat && fgets(line, sizeof line, stat) && strstr(line, ") T "));
        fclose(stat);
        NEED(kill(pid, SIGCONT) == 0);
        NEED(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    }
    NEED(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    unlink("n"), unlink("m");
    printf("slowest_ms=%.0f\n", slowest);
    return 0;
}
