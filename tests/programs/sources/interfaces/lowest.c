/* Which numbers pipes, pairs, duplicates and files get between those that are taken: by files
 * here, by the host's, or by nobody. Prints what Linux says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
/* Numbers FIRST to FIRST + COUNT - 1 are free, of a file here, or of the host's. */
#define FIRST 3
#define COUNT 6
#define WAYS 729

static void passes(const int *pair) {
    char found[8] = "";
    NEED(write(pair[1], "through", 7) == 7 && read(pair[0], found, 8) == 7);
    NEED(strcmp(found, "through") == 0);
}
static void of_the_file(int fd) {
    char found = 0;
    NEED(pread(fd, &found, 1, 3) == 1 && found == '3');
}
static void told(const char *what, const int *pair) {
    printf(" %s %d,%d", what, pair[0], pair[1]);
}

static void arranged(int way) {
    for (int n = 0, left = way; n < COUNT; n++, left /= 3) {
        if (left % 3 == 0) continue;
        int fd = open(left % 3 == 1 ? "made" : "/dev/null", O_RDONLY);
        NEED(fd >= 0);
        if (fd != FIRST + n) NEED(dup2(fd, FIRST + n) == FIRST + n && close(fd) == 0);
    }
}
static void numbers(int way, int flags) {
    int one[2], two[2], sockets[2];
    arranged(way);
    printf("%d:", way);
    NEED(pipe2(one, flags) == 0);
    told("pipe", one), passes(one);
    int file = open("made", O_RDONLY), same = dup(one[0]);
    printf(" file %d dup %d", file, same), of_the_file(file);
    NEED(socketpair(AF_UNIX, SOCK_STREAM | (flags ? SOCK_CLOEXEC : 0), 0, sockets) == 0);
    told("pair", sockets), passes(sockets);
    /* What was given back is given out again. */
    NEED(close(one[0]) == 0 && close(sockets[1]) == 0 && close(FIRST + way % COUNT) + 1 >= 0);
    NEED(pipe2(two, flags) == 0);
    told("again", two), passes(two);
    printf(" flags %d%d", fcntl(two[0], F_GETFD), fcntl(two[1], F_GETFD));
    for (int fd = FIRST; fd < FIRST + COUNT + 12; fd++) {
        printf("%s", fcntl(fd, F_GETFD) < 0 ? "." : "#");
        close(fd);
    }
    printf("\n");
}

int main(void) {
    for (int fd = FIRST; fd < 64; fd++) close(fd);
    NEED(creat("made", 0600) == FIRST && write(FIRST, "0123", 4) == 4 && close(FIRST) == 0);
    for (int way = 0; way < WAYS; way++) numbers(way, way & 1 ? O_CLOEXEC : 0);
    return 0;
}
