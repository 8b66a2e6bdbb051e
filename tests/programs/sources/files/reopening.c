/* A handler that interrupts a call which waits for a connection opens a file again and again, and
 * leaves it open: the connection and the file have different numbers, and each is what it is.
 * Argument: a file that has been there for a while. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *path;
static volatile int left = -1, bad;

static int again(int times)
{
    char byte;
    for (int n = 0; n < times; n++) {
        int fd = open(path, O_RDONLY);
        bad += fd < 0 || pread(fd, &byte, 1, 1) != 1 || byte != 'i' || close(fd);
    }
    return open(path, O_RDONLY);
}

static void handler(int signal)
{
    (void)signal;
    left = again(20);
}

int main(int count, char **words)
{
    (void)count;
    path = words[1];
    usleep(150000);
    close(again(20));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, "listening");
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listening, (struct sockaddr *)&name, sizeof name);
    listen(listening, 1);
    close(again(20));
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(100000);
        kill(parent, SIGUSR1);
        usleep(100000);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect(fd, (struct sockaddr *)&name, sizeof name) || write(fd, "hello", 5) != 5);
    }
    int connection = accept(listening, 0, 0);
    int status;
    waitpid(child, &status, 0);
    struct stat what[2];
    char bytes[2][6] = {"", ""};
    printf("%d %d\n", fstat(left, &what[0]), fstat(connection, &what[1]));
    printf("%zd %zd\n", read(left, bytes[0], 4), read(connection, bytes[1], 5));
    printf("%d %d %d %d %s %s\n", left != connection, S_ISREG(what[0].st_mode),
           S_ISSOCK(what[1].st_mode), status, bytes[0], bytes[1]);
    int next = again(20);
    printf("%d %d %d\n", next != left && next != connection, bad, close(next));
    return 0;
}
