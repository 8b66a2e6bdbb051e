/* sleepers PROCESSES THREADS: each process waits in a read of a pipe of its own, and the threads of
 * one more in reads of one pipe. Says when all sleep, waits for a line, and wakes each: all
 * answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
static int shared[2];

/* Whether it sleeps; the host says so of a thread of whatever process. */
static void until_asleep(const char *path) {
    char line[512], state = 'R';
    while (state != 'S') {
        FILE *stat = fopen(path, "r");
        NEED(stat && fgets(line, sizeof line, stat));
        fclose(stat);
        state = strrchr(line, ')')[2];
        usleep(500);
    }
}
static void *reader(void *number) {
    char byte;
    NEED(read(shared[0], &byte, 1) == 1);
    return number;
}
static void threads(long count, const int *wake, int answer) {
    pthread_t *ids = calloc(count, sizeof *ids);
    char byte;
    close(wake[1]);
    NEED(pipe(shared) == 0);
    for (long n = 0; n < count; n++) NEED((errno = pthread_create(&ids[n], NULL, reader, NULL)) == 0);
    NEED(write(answer, "r", 1) == 1 && read(wake[0], &byte, 1) == 1);
    for (long n = 0; n < count; n++) NEED(write(shared[1], "x", 1) == 1);
    for (long n = 0; n < count; n++) NEED(pthread_join(ids[n], NULL) == 0);
    _exit(write(answer, "y", 1) != 1);
}

int main(int argc, char **argv) {
    NEED(argc == 3);
    long count = atol(argv[1]), crowd = atol(argv[2]);
    int (*wakes)[2] = calloc(count + 1, sizeof *wakes), answers[2], status;
    pid_t *pids = calloc(count + 1, sizeof *pids);
    char byte, path[64];
    NEED(pipe(answers) == 0);
    for (long n = 0; n <= count; n++) {
        NEED(pipe(wakes[n]) == 0 && (pids[n] = fork()) >= 0);
        if (pids[n] == 0) {
            if (n == count) threads(crowd, wakes[n], answers[1]);
            NEED(read(wakes[n][0], &byte, 1) == 1 && write(answers[1], "y", 1) == 1);
            _exit(0);
        }
    }
    NEED(read(answers[0], &byte, 1) == 1);
    for (long n = 0; n <= count; n++) {
        snprintf(path, sizeof path, "/proc/%d/stat", pids[n]);
        until_asleep(path);
    }
    puts("asleep"), fflush(stdout);
    NEED(read(0, &byte, 1) == 1);
    for (long n = 0; n <= count; n++) NEED(write(wakes[n][1], "x", 1) == 1);
    for (long n = 0; n <= count; n++) NEED(read(answers[0], &byte, 1) == 1 && byte == 'y');
    for (long n = 0; n <= count; n++) NEED(waitpid(pids[n], &status, 0) == pids[n] && status == 0);
    puts("all answered");
    return 0;
}
