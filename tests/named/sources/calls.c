/* Calls on files between two marks; what they are and what comes of them is the same anywhere. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int main(void)
{
    char bytes[4096] = "bytes";
    struct stat facts;
    struct iovec parts[2] = { { bytes, 10 }, { bytes + 10, 20 } };
    access("begins", F_OK);
    mkdir("d", 0750);
    int file = open("d/file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    write(file, bytes, 100);
    pwrite(file, bytes, 50, 1000);
    lseek(file, -10, SEEK_END);
    read(file, bytes, sizeof bytes);
    readv(file, parts, 2);
    pread(file, bytes, 7, 3);
    fstat(file, &facts);
    ftruncate(file, 20);
    fcntl(file, F_GETFL);
    int other = dup(file);
    close(other);
    close(file);
    close(file);
    open("d/file", O_WRONLY | O_CREAT | O_EXCL, 0600);
    rename("d/file", "d/name");
    link("d/name", "d/second");
    symlink("name", "d/link");
    readlink("d/link", bytes, sizeof bytes);
    stat("d/link", &facts);
    lstat("d/none", &facts);
    unlink("d/none");
    rmdir("d");
    chmod("d/name", 0600);
    truncate("d/name", 5);
    int directory = open("d", O_RDONLY | O_DIRECTORY);
    fchdir(directory);
    openat(directory, "name/x", O_RDONLY);
    faccessat(directory, "name", R_OK | W_OK, 0);
    unlinkat(directory, "second", 0);
    syscall(SYS_getppid);
    umask(022);
    mkdirat(directory, "sub", 0700);
    unlinkat(directory, "sub", AT_REMOVEDIR);
    write(-1, bytes, 1);
    access("ends", F_OK);
    return 0;
}
