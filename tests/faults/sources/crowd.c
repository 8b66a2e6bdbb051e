/* Several programs at once change names in two directories that they share, and sync; each prints
 * its number and its step when the sync has returned. "crowd look DIRECTORY" prints which step each
 * of them is at. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(so) \
    do { \
        if (!(so)) { \
            perror(#so); \
            exit(9); \
        } \
    } while (0)
#define PROGRAMS 6

static char path[4096], other[4096];
static const char *top;

static const char *in(char *to, int side, const char *kind, int program, long step) {
    snprintf(to, sizeof path, "%s/%c/%s-%d-%ld", top, "ab"[side], kind, program, step);
    return to;
}

static void sync_side(int side) {
    snprintf(path, sizeof path, "%s/%c", top, "ab"[side]);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && fsync(fd) == 0);
    close(fd);
}

/* A file whose name says the step; its bytes do, too. */
static int made(int side, const char *kind, int program, long step) {
    int fd = open(in(path, side, kind, program, step), O_CREAT | O_EXCL | O_WRONLY, 0644);
    CHECK(fd >= 0 && dprintf(fd, "%ld.", step) > 0);
    return fd;
}

static long read_in(int side, const char *kind, int program, long step) {
    char text[32] = "";
    int fd = open(in(path, side, kind, program, step), O_RDONLY);
    if (fd < 0)
        return -1;
    CHECK(read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    return strchr(text, '.') ? atol(text) : 0;
}

static void move(int side, int program, long step) {
    in(path, side, "new", program, step);
    CHECK(rename(path, in(other, !side, "new", program, step)) == 0);
}

/* One way after the other: a new file and its sync; a rename over both directories, and a sync of
 * one of them; a file that grows, its sync while its name is another already. */
static void act(int program, long step) {
    int side = step & 1;
    int fd = made(side, "new", program, step);
    switch (step % 3) {
    case 0:
        CHECK(fsync(fd) == 0);
        break;
    case 1:
        CHECK(fdatasync(fd) == 0);
        move(side, program, step);
        sync_side(step & 2 ? side : !side);
        break;
    default:
        CHECK(mkdir(in(other, side, "dir", program, step), 0755) == 0);
        move(side, program, step);
        CHECK(fsync(fd) == 0);
    }
    close(fd);
    /* What was there before goes, and nobody syncs that. */
    unlink(in(path, 0, "new", program, step - 1));
    unlink(in(path, 1, "new", program, step - 1));
    rmdir(in(path, 0, "dir", program, step - 1));
    rmdir(in(path, 1, "dir", program, step - 1));
}

static long last(int program, long from) {
    long found = 0;
    /* The newest one that has its bytes; an older name may be there with it, and one step more that
     * was not synced. */
    for (long step = from > 2 ? from - 2 : 1; step < from + 4; step++) {
        int there = 0;
        for (int side = 0; side < 2; side++)
            there += read_in(side, "new", program, step) == step;
        CHECK(there < 2);
        if (there)
            found = step;
    }
    return found;
}

int main(int count, char **words) {
    CHECK(count >= 3);
    int is_look = strcmp(words[1], "look") == 0;
    top = words[2];
    long from[PROGRAMS] = {0};
    for (int n = 0; n < PROGRAMS && n + 3 < count; n++)
        from[n] = atol(words[n + 3]);
    if (is_look) {
        for (int n = 0; n < PROGRAMS; n++)
            printf("%ld ", last(n, from[n]));
        printf("\n");
        return 0;
    }
    for (int side = 0; side < 2; side++) {
        snprintf(path, sizeof path, "%s/%c", top, "ab"[side]);
        CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
    for (int n = 0; n < PROGRAMS; n++) {
        if (fork() == 0) {
            for (long step = from[n] + 5;; step++) {
                act(n, step);
                char line[64];
                int length = snprintf(line, sizeof line, "%d %ld\n", n, step);
                CHECK(write(1, line, length) == length);
            }
        }
    }
    while (wait(NULL) > 0) {
    }
    return 9;
}
