// Calls on files of the image and of the host, a line each: what they return and say.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "ok");
    fflush(stdout);
}

#define TELL(call) (errno = 0, tell(#call, (long)(call) == -1 ? -1 : 0))

// Runs what `fd` is by its number.
static void run(const char *what, int fd)
{
    char *words[] = {"true", 0}, *none[] = {0};
    int status;
    if (fork() == 0) {
        syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
        _exit(errno);
    }
    wait(&status);
    printf("%s: %d\n", what, WEXITSTATUS(status));
    fflush(stdout);
}

// What /proc tells of a descriptor: place and flags.
static void told_of(int fd)
{
    char name[64], line[128];
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(name, "r");
    if (!file) {
        printf("no fdinfo: %s\n", strerror(errno));
        return;
    }
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "pos:", 4) || !strncmp(line, "flags:", 6))
            fputs(line, stdout);
    fclose(file);
}

int main(void)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct itimerspec time = {0};
    char byte[4], entries[4096];
    int file = open("file", O_CREAT | O_RDWR, 0644), directory = open(".", O_RDONLY);
    int place = open("file", O_PATH), number = 0;

    TELL(accept(place, (void *)&address, &length));
    TELL(listen(place, 1));
    TELL(getsockname(place, (void *)&address, &length));
    TELL(recv(place, byte, 1, 0));
    TELL(send(place, byte, 1, 0));
    TELL(shutdown(place, SHUT_RDWR));
    TELL(listen(file, 1));

    struct rlimit few = {512, 512};
    setrlimit(RLIMIT_NOFILE, &few);
    TELL(syscall(SYS_poll, 0, 30000, 0));
    TELL(syscall(SYS_poll, 8, -1, 0));

    TELL(timerfd_gettime(file, &time));
    TELL(timerfd_settime(file, 0, &time, 0));
    TELL(syscall(SYS_getdents64, directory, entries, 0x80000000u));
    TELL(ioctl(file, NS_GET_PARENT, &number));
    TELL(ioctl(directory, NS_GET_USERNS, &number));
    // As where the host knows neither call.
    long kept = syscall(469, file, "file", 0, 0, 0);
    printf("file_setattr below a file: %ld\n", kept);

    long same = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, file, dup(file));
    long other = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, file, open("file", O_RDWR));
    printf("kcmp of one description: %ld, of two: %d\n", same, other > 0);

    pwrite(file, "hello", 5, 0);
    lseek(file, 3, SEEK_SET);
    told_of(file);
    told_of(open("file", O_WRONLY | O_APPEND | O_CLOEXEC));
    told_of(place);
    told_of(open(".", O_RDONLY | O_DIRECTORY));

    if (system("cp /bin/true own; chmod 755 own"))
        return 1;
    run("of the host", open("/bin/true", O_RDONLY));
    run("of the host, by its place", open("/bin/true", O_PATH));
    run("of the host, by its place, closed by exec", open("/bin/true", O_PATH | O_CLOEXEC));
    run("of the image", open("own", O_RDONLY));
    run("of the image, by its place", open("own", O_PATH));

    // Offsets and lengths beyond all that there can be.
    char *pages = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TELL(mmap(0, 4096, PROT_READ, MAP_SHARED, file, LONG_MAX & ~4095L));
    TELL(mmap(0, 4096, PROT_READ, MAP_SHARED, file, LONG_MIN));
    TELL(munmap(pages, (size_t)-4095));
    TELL(munmap(pages, 8192));

    // Of another user.
    if (geteuid() == 0) {
        chmod(".", 0777);
        if (seteuid(65533))
            return 1;
        TELL(open("file", O_RDONLY | O_NOATIME));
        file = open("file", O_RDONLY);
        TELL(fcntl(file, F_SETFL, O_NOATIME));
        TELL(fcntl(file, F_SETFL, O_APPEND));
    }
    return 0;
}
