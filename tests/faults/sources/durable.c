/* Writes step after step in one way, each made durable and then printed; or prints which steps are
 * there. "durable VERB WAY DIRECTORY" begins behind the last step there is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(so) \
    do { \
        if (!(so)) { \
            perror(#so); \
            exit(9); \
        } \
    } while (0)
#define RECORD 100
#define MAPPED 65536

static char path[4096], other[4096];

/* With PLAIN nothing is synced: each change is durable by itself, or is not. */
static int is_plain;
#define fsync(fd) (is_plain ? 0 : fsync(fd))
#define fdatasync(fd) (is_plain ? 0 : fdatasync(fd))

static const char *in(char *to, const char *directory, const char *name) {
    snprintf(to, 4096, "%s/%s", directory, name);
    return to;
}

static void record(char *to, long step) {
    memset(to, 'a' + step % 26, RECORD);
    snprintf(to, RECORD, "%ld", step);
}

/* The last step of an append-only file; all before it must be there. */
static long last_appended(const char *name) {
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return 0;
    char expected[RECORD], found[RECORD];
    long step = 0;
    while (read(fd, found, RECORD) == RECORD) {
        record(expected, step + 1);
        if (memcmp(expected, found, RECORD) != 0)
            break;
        step++;
    }
    close(fd);
    return step;
}

static void append(const char *name, int flags, int way) {
    int fd = open(name, O_CREAT | O_RDWR | flags, 0644);
    CHECK(fd >= 0);
    for (long step = last_appended(name) + 1;; step++) {
        char bytes[RECORD];
        record(bytes, step);
        struct iovec piece = {bytes, RECORD};
        if (way == 2)
            CHECK(pwritev2(fd, &piece, 1, (step - 1) * RECORD, RWF_DSYNC) == RECORD);
        else
            CHECK(pwrite(fd, bytes, RECORD, (step - 1) * RECORD) == RECORD);
        if (way == 0)
            CHECK(fdatasync(fd) == 0);
        if (way == 1)
            CHECK(fsync(fd) == 0);
        if (way == 4)
            CHECK(syncfs(fd) == 0);
        if (way == 5)
            sync();
        printf("%ld\n", step);
        fflush(stdout);
    }
}

static long last_replaced(const char *name) {
    char text[32] = "";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    /* Half of a text would be no number with a dot. */
    CHECK(got > 0 && strchr(text, '.') != NULL);
    return atol(text);
}

static void replace(const char *directory) {
    int dir = open(directory, O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    in(path, directory, "state");
    in(other, directory, "state.new");
    for (long step = last_replaced(path) + 1;; step++) {
        char text[32];
        int length = snprintf(text, sizeof text, "%ld.", step);
        int fd = open(other, O_CREAT | O_TRUNC | O_WRONLY, 0644);
        CHECK(fd >= 0 && write(fd, text, length) == length && fsync(fd) == 0);
        close(fd);
        CHECK(rename(other, path) == 0);
        CHECK(fsync(dir) == 0);
        printf("%ld\n", step);
        fflush(stdout);
    }
}

static void names(const char *directory) {
    for (long step = 1;; step++) {
        char name[64];
        snprintf(name, sizeof name, "d%ld/e", step);
        snprintf(other, sizeof other, "%s/d%ld", directory, step);
        in(path, directory, name);
        if (access(path, F_OK) == 0)
            continue;
        CHECK(mkdir(other, 0755) == 0 || access(other, F_OK) == 0);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        CHECK(fd >= 0 && fsync(fd) == 0);
        close(fd);
        printf("%ld\n", step);
        fflush(stdout);
    }
}

static long last_name(const char *directory) {
    for (long step = 1;; step++) {
        char name[64];
        snprintf(name, sizeof name, "d%ld/e", step);
        if (access(in(path, directory, name), F_OK) != 0)
            return step - 1;
    }
}

static long *mapped(const char *name) {
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0 && ftruncate(fd, MAPPED) == 0);
    long *at = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    close(fd);
    return at;
}

static void map(const char *name) {
    for (long *at = mapped(name), step = at[1000] + 1;; step++) {
        at[1000] = step;
        CHECK(msync(at, MAPPED, MS_SYNC) == 0);
        printf("%ld\n", step);
        fflush(stdout);
    }
}

static long length(const char *name) {
    struct stat found;
    return stat(name, &found) == 0 ? found.st_size : 0;
}

/* Longer by a byte each time that nobody writes. */
static void grow(const char *name) {
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0);
    for (long step = length(name) + 1;; step++) {
        if (step % 2)
            CHECK(ftruncate(fd, step) == 0);
        else
            CHECK(posix_fallocate(fd, 0, step) == 0);
        CHECK(fsync(fd) == 0);
        printf("%ld\n", step);
        fflush(stdout);
    }
}

#define SLOTS 8
#define SLOT 65536

static void fill(char *slot, long step) {
    memset(slot, 'a' + step % 26, SLOT);
    snprintf(slot, SLOT, "%ld", step);
}

/* A file whose eight parts are written in turn, and its last step in another one: a small log is
 * full again and again. Of the parts, all but the next one must be there. */
static long last_turned(const char *directory) {
    long step = last_replaced(in(other, directory, "step"));
    static char expected[SLOT], found[SLOT];
    int fd = open(in(path, directory, "slots"), O_RDONLY);
    for (long one = step; one > 0 && one > step - SLOTS + 1; one--) {
        fill(expected, one);
        CHECK(pread(fd, found, SLOT, one % SLOTS * SLOT) == SLOT);
        CHECK(memcmp(expected, found, SLOT) == 0);
    }
    close(fd);
    return step;
}

static void turn(const char *directory) {
    static char slot[SLOT];
    long step = last_turned(directory) + 1;
    int fd = open(in(path, directory, "slots"), O_CREAT | O_WRONLY, 0644);
    int said = open(in(other, directory, "step"), O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0 && said >= 0);
    for (;; step++) {
        char text[32];
        fill(slot, step);
        CHECK(pwrite(fd, slot, SLOT, step % SLOTS * SLOT) == SLOT && fdatasync(fd) == 0);
        int length = snprintf(text, sizeof text, "%ld.", step);
        CHECK(pwrite(said, text, length, 0) == length && fdatasync(said) == 0);
        printf("%ld\n", step);
        fflush(stdout);
    }
}

#define WAITED 16

/* A journal, and after it a file that it is about, each synced. What is printed was waited for. */
static void pairs(const char *directory) {
    int journal = open(in(path, directory, "journal"), O_CREAT | O_RDWR, 0644);
    int data = open(in(other, directory, "data"), O_CREAT | O_RDWR, 0644);
    CHECK(journal >= 0 && data >= 0);
    for (long step = last_appended(other) + 1;; step++) {
        char bytes[RECORD];
        record(bytes, step);
        CHECK(pwrite(journal, bytes, RECORD, (step - 1) * RECORD) == RECORD);
        CHECK(fdatasync(journal) == 0);
        CHECK(pwrite(data, bytes, RECORD, (step - 1) * RECORD) == RECORD);
        CHECK(fdatasync(data) == 0);
        if (step % WAITED == 0) {
            CHECK(syncfs(data) == 0);
            printf("%ld\n", step);
            fflush(stdout);
        }
    }
}

static long last_pair(const char *directory) {
    long journal = last_appended(in(path, directory, "journal"));
    long data = last_appended(in(other, directory, "data"));
    CHECK(length(path) == journal * RECORD && length(other) == data * RECORD);
    CHECK(data <= journal && journal <= data + 1);
    return data;
}

int main(int count, char **words) {
    CHECK(count == 4);
    is_plain = getenv("PLAIN") != NULL;
    const char *way = words[2], *directory = words[3];
    int is_look = strcmp(words[1], "look") == 0;
    const char *ways[] = {"fdatasync", "fsync", "rwf", "dsync", "syncfs", "sync"};
    for (int n = 0; n < 6; n++) {
        if (strcmp(way, ways[n]) == 0) {
            in(path, directory, way);
            if (!is_look)
                append(path, n == 3 ? O_DSYNC : 0, n);
            printf("%ld\n", last_appended(path));
        }
    }
    if (strcmp(way, "replace") == 0) {
        if (!is_look)
            replace(directory);
        printf("%ld\n", last_replaced(in(path, directory, "state")));
    }
    if (strcmp(way, "pairs") == 0) {
        if (!is_look)
            pairs(directory);
        printf("%ld\n", last_pair(directory));
    }
    if (strcmp(way, "names") == 0) {
        if (!is_look)
            names(directory);
        printf("%ld\n", last_name(directory));
    }
    if (strcmp(way, "turn") == 0) {
        if (!is_look)
            turn(directory);
        printf("%ld\n", last_turned(directory));
    }
    if (strcmp(way, "grow") == 0) {
        in(path, directory, way);
        if (!is_look)
            grow(path);
        printf("%ld\n", length(path));
    }
    if (strcmp(way, "msync") == 0) {
        in(path, directory, way);
        if (!is_look)
            map(path);
        printf("%ld\n", mapped(path)[1000]);
    }
    return 0;
}
