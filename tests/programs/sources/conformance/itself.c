// What a program finds as /proc/self/exe: moved, linked again, removed, replaced, started again by it
// and by a descriptor of it; a copy without a name (memfd), sealed as container runtimes do.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *what)
{
    char link[4096], head[4] = {0};
    ssize_t length = readlink("/proc/self/exe", link, sizeof link - 1);
    link[length < 0 ? 0 : length] = 0;
    char *name = strrchr(link, '/'), *removed = strstr(link, " (deleted)");
    // A program that was moved and then removed is shown where it was first: a difference.
    if (removed && !strstr(link, "memfd:"))
        name = removed;
    struct stat by_name = {0}, by_fd = {0};
    int found = stat("/proc/self/exe", &by_name), fd = open("/proc/self/exe", O_RDONLY);
    pread(fd, head, 4, 0);
    fstat(fd, &by_fd);
    int same = by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev;
    printf("%s: %s, stat %d, ELF %d, same %d, links %d", what, name ? name : link, found,
           !memcmp(head, "\177ELF", 4), same, (int)by_name.st_nlink);
    if (strstr(link, "memfd:"))
        printf(", seals %d", fcntl(fd, F_GET_SEALS));
    puts("");
    fflush(stdout);
    close(fd);
}

static void start(const char *path, int fd, const char *what)
{
    char *words[] = {"itself", (char *)what, 0}, *none[] = {0};
    int status;
    if (!fork()) {
        if (path)
            execve(path, words, none);
        else
            fexecve(fd, words, none);
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
    wait(&status);
    printf("ended with %d\n", status);
    fflush(stdout);
}

// Copies the program that runs to `to`.
static void copy_to(int to)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat about;
    fstat(from, &about);
    printf("sent all: %d\n", sendfile(to, from, 0, about.st_size) == about.st_size);
    close(from);
}

int main(int count, char **words)
{
    char path[64];
    if (count > 2) {
        int own = open("own", O_CREAT | O_EXCL | O_RDWR, 0755);
        copy_to(own);
        close(own);
        start("./own", -1, "");
        return 0;
    }
    if (words[1][0]) {
        show(words[1]);
        return 0;
    }
    show("at first");
    printf("written to: %d\n", open("/proc/self/exe", O_RDWR) < 0 ? errno : 0);
    rename("own", "moved");
    show("moved");
    start("/proc/self/exe", -1, "moved, again");
    int self = open("/proc/self/exe", O_RDONLY), place = open("moved", O_PATH);
    unlink("moved");
    show("removed");
    start("/proc/self/exe", -1, "removed, again");
    start(0, self, "removed, by a descriptor");
    start(0, place, "removed, by a place");
    int other = open("own", O_CREAT | O_WRONLY, 0755);
    write(other, "#!/bin/sh\necho other\n", 21);
    close(other);
    show("replaced");
    start("/proc/self/exe", -1, "replaced, again");
    start("./own", -1, "the other");
    int nameless = memfd_create("nameless", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    copy_to(nameless);
    start(0, nameless, "nameless");
    fcntl(nameless, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    start(0, nameless, "sealed");
    snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
    start(path, -1, "sealed, by its link");
    close_range(3, ~0U, 0);
    show("with all closed");
    return 0;
}
