/* What a little of everything takes, in ns of processor time: the least of some rounds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static long spent(void) {
    struct rusage own, theirs;
    getrusage(RUSAGE_SELF, &own), getrusage(RUSAGE_CHILDREN, &theirs);
    const struct timeval *all[] = { &own.ru_utime, &own.ru_stime, &theirs.ru_utime, &theirs.ru_stime };
    long us = 0;
    for (int n = 0; n < 4; n++) us += all[n]->tv_sec * 1000000 + all[n]->tv_usec;
    return us * 1000;
}
static int round_of(void) {
    char bytes[5000] = "";
    for (int n = 0; n < 400; n++) {
        int fd = open("one", O_CREAT | O_EXCL | O_RDWR, 0644), p[2];
        if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes) return 1;
        if (pread(fd, bytes, sizeof bytes, 0) != sizeof bytes || close(fd)) return 2;
        if (rename("one", "other") || link("other", "third") || unlink("other")) return 3;
        if (unlink("third") || mkdir("d", 0755) || rmdir("d")) return 4;
        if (pipe(p) || write(p[1], bytes, 100) != 100 || read(p[0], bytes, 100) != 100) return 5;
        if (close(p[0]) || close(p[1])) return 6;
    }
    for (int n = 0, status; n < 10; n++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) return 7;
    }
    return 0;
}

int main(void) {
    long best = 1l << 40;
    for (int round = 0; round < 6; round++) {
        long before = spent();
        int failed = round_of();
        if (failed) return failed;
        long took = spent() - before;
        best = took < best ? took : best;
    }
    printf("%ld\n", best);
    return 0;
}
