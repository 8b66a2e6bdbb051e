// Calls on a file of the tree that are for descriptors of another kind, or for none at all: each is
// answered, and as by Linux.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void told(const char *what, long value) {
    printf("%s: %ld %s\n", what, value, value < 0 ? strerror(errno) : "");
}

int main(void) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    int file = open("made", O_RDWR | O_CREAT, 0600), ends[2];
    told("signals", signalfd(file, &mask, 0));
    told("a process", syscall(SYS_pidfd_getfd, file, 0, 0));
    // So many as a number of the tree's, one of which is open nowhere.
    if (pipe(ends)) return 1;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    FD_SET(900, &set);
    struct timeval none = {0, 0};
    dup2(file, 901);
    told("a set", select(901, &set, NULL, NULL, &none));
    // The working directory is no descriptor, whatever stands under the number that looks like it.
    struct stat here, asked;
    dup2(open("/dev/null", O_RDONLY), 28);
    if (mkdir("dir", 0700) || chdir("dir") || stat(".", &here)) return 1;
    for (int n = 0; n < 5; n++) {
        told("the host's", fstat(28, &asked));
        told("here", syscall(SYS_newfstatat, AT_FDCWD, "", &asked, AT_EMPTY_PATH));
        told("the same", asked.st_ino == here.st_ino && asked.st_dev == here.st_dev);
    }
    return 0;
}
