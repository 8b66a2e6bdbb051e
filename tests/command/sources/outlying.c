/* Walks directories of the host by descriptors and by paths, and then makes of what it has found
 * there links, other directories and files of a tree: the next look finds those. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 20
#define DIRECTORIES 40
#define MUST(what) ((what) ? (void)0 : failed(#what, __LINE__))

static const char *outside, *tree;
static struct stat facts;

static void failed(const char *what, int line) {
    printf("line %d: %s (%s)\n", line, what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static const char *in(const char *directory, const char *name) {
    static char texts[4][4096];
    static int turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%s/%s", directory, name);
    return text;
}

/* All below a directory, no link followed, as `find` and `rm` walk. */
static int walked(int above, const char *name) {
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), count = 0;
    MUST(fd >= 0);
    DIR *listing = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        MUST(fstatat(fd, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0);
        count += S_ISDIR(facts.st_mode) ? 1 + walked(fd, entry->d_name) : 1;
    }
    closedir(listing);
    close(fd);
    return count;
}

static void make_tree(void) {
    for (int directory = 0; directory < DIRECTORIES; directory++) {
        char name[64];
        snprintf(name, sizeof name, "d%d", directory);
        MUST(mkdir(in(outside, name), 0755) == 0);
        for (int file = 0; file < FILES; file++) {
            snprintf(name, sizeof name, "d%d/f%d", directory, file);
            close(open(in(outside, name), O_CREAT | O_WRONLY, 0644));
        }
    }
}

static void look_at_paths(void) {
    for (int n = 0; n < DIRECTORIES * FILES; n++) {
        char name[64];
        snprintf(name, sizeof name, "d%d/f%d", n / FILES, n % FILES);
        MUST(stat(in(outside, name), &facts) == 0 && S_ISREG(facts.st_mode));
    }
}

static int first(int fd) {
    char byte = 0;
    MUST(fd >= 0 && read(fd, &byte, 1) == 1);
    close(fd);
    return byte;
}

static void put(int fd, char byte) {
    MUST(fd >= 0 && write(fd, &byte, 1) == 1);
    close(fd);
}

/* Links into the tree, where there were none, and where there was a file or a directory. */
static void become_links(void) {
    int fd = open(in(outside, "d0"), O_RDONLY | O_DIRECTORY);
    put(open(in(tree, "t"), O_CREAT | O_WRONLY, 0644), 't');
    MUST(mkdir(in(tree, "sub"), 0755) == 0);
    put(open(in(tree, "sub/f1"), O_CREAT | O_WRONLY, 0644), 's');
    MUST(fstatat(fd, "f0", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    MUST(fstatat(fd, "link", &facts, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT);
    MUST(symlinkat(in(tree, "sub"), fd, "link") == 0);
    MUST(fstatat(fd, "link", &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode));
    MUST(fstatat(fd, "link", &facts, 0) == 0 && S_ISDIR(facts.st_mode));
    MUST(openat(fd, "link", O_RDONLY | O_NOFOLLOW) < 0 && errno == ELOOP);
    MUST(first(openat(fd, "link/f1", O_RDONLY)) == 's');
    MUST(first(open(in(outside, "d0/link/f1"), O_RDONLY)) == 's');
    /* A file that was looked at by its path. */
    MUST(symlinkat(in(tree, "t"), fd, "new") == 0 && renameat(fd, "new", fd, "f0") == 0);
    MUST(first(openat(fd, "f0", O_RDONLY)) == 't');
    MUST(first(open(in(outside, "d0/f0"), O_RDONLY)) == 't');
    MUST(unlinkat(fd, "f0", 0) == 0 && first(open(in(tree, "t"), O_RDONLY)) == 't');
    /* A directory that files were looked at in. */
    MUST(rename(in(outside, "d1"), in(outside, "moved")) == 0);
    MUST(symlink(in(tree, "sub"), in(outside, "d1")) == 0);
    MUST(first(open(in(outside, "d1/f1"), O_RDONLY)) == 's');
    MUST(stat(in(outside, "d1/f2"), &facts) < 0 && errno == ENOENT);
    close(fd);
}

/* The number of a directory that names were looked for in becomes another one's. */
static void change_hands(void) {
    int fd = open(in(outside, "d2"), O_RDONLY | O_DIRECTORY), other, third;
    MUST(fstatat(fd, "f1", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFD, 0) == 0);
    MUST(fstatat(fd, "f1", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    close(fd);
    other = open(tree, O_RDONLY | O_DIRECTORY);
    MUST(other == fd && fstatat(fd, "t", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    MUST(fstatat(fd, "f1", &facts, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT);
    third = open(in(outside, "d3"), O_RDONLY | O_DIRECTORY);
    MUST(fstatat(third, "f1", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    MUST(dup2(fd, third) == third && fstatat(third, "t", &facts, AT_SYMLINK_NOFOLLOW) == 0);
    MUST(walked(third, ".") == 3);
    MUST(dup2(open(in(outside, "d3"), O_RDONLY | O_DIRECTORY), third) == third);
    MUST(walked(third, ".") == FILES);
}

/* A directory comes to lie where a tree lies in it. */
static void become_a_parent(const char *top) {
    int fd = open(in(outside, "d4"), O_RDONLY | O_DIRECTORY);
    for (int turn = 0; turn < 3; turn++)
        MUST(fstatat(fd, "tree", &facts, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT);
    put(open(in(top, "tree/inner"), O_CREAT | O_WRONLY, 0644), 'i');
    MUST(rename(top, in(outside, "away")) == 0 && rename(in(outside, "d4"), top) == 0);
    MUST(fstatat(fd, "tree", &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(facts.st_mode));
    MUST(first(openat(fd, "tree/inner", O_RDONLY)) == 'i');
}

int main(int count, char **names) {
    outside = names[1];
    tree = names[2];
    make_tree();
    MUST(walked(AT_FDCWD, outside) == DIRECTORIES * (FILES + 1));
    look_at_paths();
    if (count > 3) {
        become_links();
        change_hands();
        become_a_parent(names[3]);
    }
    return 0;
}
