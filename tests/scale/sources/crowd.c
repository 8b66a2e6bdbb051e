/* Many names, deep paths, odd names: checks itself, says what failed. crowd COUNT */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH 200
/* The deepest directory, and how many levels one path goes up. */
#define ABYSS 10000
#define STEP 100
#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static uint64_t seed = 1;
static unsigned dice(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static void make(const char *name) {
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
    NEED(fd >= 0);
    NEED(close(fd) == 0);
}

/* All names of the current directory are numbers below `count`, each there once, `left` in all. */
static void list(long count, long left) {
    char *seen = calloc(count, 1);
    DIR *dir = opendir(".");
    struct dirent *entry;
    long listed = 0;
    NEED(seen && dir);
    while ((errno = 0, entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        long n = atol(entry->d_name);
        NEED(n >= 0 && n < count && !seen[n]);
        seen[n] = 1;
        listed++;
    }
    NEED(errno == 0 && listed == left);
    closedir(dir);
    free(seen);
}

static void many(long count) {
    char name[32], other[32];
    struct stat facts;
    NEED(mkdir("many", 0755) == 0 && chdir("many") == 0);
    for (long n = 0; n < count; n++) {
        snprintf(name, sizeof name, "%ld", n);
        make(name);
    }
    list(count, count);
    for (long n = 0; n < count; n += 7) {
        snprintf(name, sizeof name, "%ld", n);
        snprintf(other, sizeof other, "%ld", count + n);
        NEED(stat(name, &facts) == 0 && facts.st_nlink == 1 && facts.st_size == 0);
        NEED(stat(other, &facts) == -1 && errno == ENOENT);
    }
    for (long n = 1; n < count; n += 2) {
        snprintf(name, sizeof name, "%ld", n);
        NEED(unlink(name) == 0);
    }
    list(count, (count + 1) / 2);
    for (long n = 0; n < count; n += 2) {
        snprintf(name, sizeof name, "%ld", n);
        snprintf(other, sizeof other, "%ld", n + 1);
        NEED(rename(name, other) == 0);
    }
    list(count + 1, (count + 1) / 2);
    /* As rm -r does it: what is listed is removed at once. */
    DIR *dir = opendir(".");
    struct dirent *entry;
    long gone = 0;
    NEED(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.') {
            NEED(unlink(entry->d_name) == 0);
            gone++;
        }
    closedir(dir);
    NEED(gone == (count + 1) / 2);
    NEED(chdir("..") == 0 && rmdir("many") == 0);
    printf("many: ok\n");
}

/* As many files, in directories of a thousand. */
static void spread(long count) {
    char name[64];
    NEED(mkdir("spread", 0755) == 0 && chdir("spread") == 0);
    for (long n = 0; n < count; n++) {
        snprintf(name, sizeof name, "%ld", n / 1000);
        if (n % 1000 == 0) NEED(mkdir(name, 0755) == 0);
        snprintf(name, sizeof name, "%ld/%ld", n / 1000, n);
        make(name);
    }
    struct stat facts;
    NEED(stat(".", &facts) == 0 && facts.st_nlink == 2 + (nlink_t)((count + 999) / 1000));
    for (long n = 0; n < count; n++) {
        snprintf(name, sizeof name, "%ld/%ld", n / 1000, n);
        NEED(unlink(name) == 0);
        snprintf(name, sizeof name, "%ld", n / 1000);
        if (n % 1000 == 999 || n == count - 1) NEED(rmdir(name) == 0);
    }
    NEED(chdir("..") == 0 && rmdir("spread") == 0);
    printf("spread: ok\n");
}

/* Deeper than any path is long. */
static void abyss(long depth) {
    char here[PATH_MAX], top[PATH_MAX], up[3 * STEP];
    struct stat one, other;
    NEED(getcwd(top, sizeof top) && stat(".", &one) == 0);
    strcat(top, "/d");
    for (int n = 0; n < depth; n++)
        NEED(mkdir("d", 0755) == 0 && chdir("d") == 0);
    make("file");
    if (2 * depth > PATH_MAX)
        NEED(syscall(SYS_getcwd, here, sizeof here) == -1 && errno == ENAMETOOLONG);
    NEED(rename(top, "below") == -1 && errno == EINVAL);
    for (int n = 0; n < STEP; n++)
        memcpy(up + 3 * n, "../", 3);
    up[sizeof up - 1] = 0;
    int bottom = open(".", O_RDONLY | O_DIRECTORY);
    for (int n = 0; n < depth; n += STEP)
        NEED(chdir(up) == 0);
    NEED(stat(".", &other) == 0 && one.st_ino == other.st_ino);
    NEED(fchdir(bottom) == 0 && unlink("file") == 0 && close(bottom) == 0);
    for (int n = 0; n < depth; n++)
        NEED(chdir("..") == 0 && rmdir("d") == 0);
}

static void deep(void) {
    char path[PATH_MAX] = "", here[PATH_MAX], start[PATH_MAX];
    struct stat facts, same;
    NEED(getcwd(start, sizeof start));
    for (int n = 0; n < DEPTH; n++) {
        NEED(mkdir("deep-dir", 0755) == 0 && chdir("deep-dir") == 0);
        strcat(path, "deep-dir/");
    }
    strcat(path, "file");
    make("file");
    NEED(stat("file", &same) == 0);
    NEED(getcwd(here, sizeof here) && strlen(here) == strlen(start) + DEPTH * 9);
    NEED(getcwd(here, 100) == NULL && errno == ERANGE);
    NEED(chdir(start) == 0);
    NEED(stat(path, &facts) == 0 && facts.st_ino == same.st_ino);
    path[strlen(path) - 4] = 'F';
    NEED(stat(path, &facts) == -1 && errno == ENOENT);
    path[strlen(path) - 5] = 0;
    strcpy(here, path);
    strcat(here, "/moved");
    NEED(rename("deep-dir", here) == -1 && errno == EINVAL);
    NEED(rename("deep-dir", "other") == 0);
    memcpy(path, "other/./", 8);
    NEED(stat("other/deep-dir", &facts) == 0 && facts.st_nlink == 3);
    NEED(chdir("other") == 0);
    for (int n = 1; n < DEPTH; n++) NEED(chdir("deep-dir") == 0);
    NEED(unlink("file") == 0);
    for (int n = 1; n < DEPTH; n++) NEED(chdir("..") == 0 && rmdir("deep-dir") == 0);
    NEED(chdir("..") == 0 && rmdir("other") == 0);
    printf("deep: ok\n");
}

/* `length` bytes that a name may have. */
static void odd(char *name, int length) {
    for (int n = 0; n < length; n++) {
        unsigned byte = 1 + dice() % 255;
        name[n] = byte == '/' ? 0xff : byte;
    }
    name[length] = 0;
}

static void names(long count) {
    char name[NAME_MAX + 2], other[NAME_MAX + 2], target[NAME_MAX + 2];
    struct stat facts;
    NEED(mkdir("names", 0755) == 0 && chdir("names") == 0);
    for (int byte = 1; byte < 256; byte++) {
        char one[2] = { byte, 0 };
        if (byte == '/' || byte == '.') continue;
        make(one);
    }
    for (long n = 0; n < count; n++) {
        odd(name, NAME_MAX);
        odd(other, NAME_MAX);
        make(name);
        NEED(symlink(name, other) == 0);
        NEED(readlink(other, target, sizeof target) == NAME_MAX);
        NEED(memcmp(target, name, NAME_MAX) == 0);
        NEED(stat(other, &facts) == 0 && S_ISREG(facts.st_mode));
        /* The last byte counts. */
        other[NAME_MAX - 1] ^= 3;
        if (other[NAME_MAX - 1] != '/' && other[NAME_MAX - 1])
            NEED(lstat(other, &facts) == -1 && errno == ENOENT);
    }
    odd(name, NAME_MAX + 1);
    NEED(open(name, O_CREAT | O_WRONLY, 0644) == -1 && errno == ENAMETOOLONG);
    DIR *dir = opendir(".");
    struct dirent *entry;
    long listed = 0;
    NEED(dir);
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        NEED(lstat(entry->d_name, &facts) == 0 && facts.st_ino == entry->d_ino);
        NEED(unlink(entry->d_name) == 0);
        listed++;
    }
    closedir(dir);
    NEED(listed == 253 + 2 * count);
    NEED(chdir("..") == 0 && rmdir("names") == 0);
    printf("names: ok\n");
}

int main(int argc, char **argv) {
    long count = atol(argv[1]);
    NEED(argc == 3 && chdir(argv[2]) == 0);
    many(count);
    spread(count);
    abyss(count / 5 < ABYSS ? count / 5 / STEP * STEP : ABYSS);
    deep();
    names(count / 50);
    return 0;
}
