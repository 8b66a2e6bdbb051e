/* An instance of inotify whose watches come and go, up to far past those of one node of its tree: each
 * has the next number, and the instance ends by close, by dup2, by exit and by a signal. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

static int watch(int instance, const char *name)
{
    return inotify_add_watch(instance, name, IN_ALL_EVENTS);
}

/* Watches `a` and `b` by turns, one of which stays while the other goes where `overlaps` says so. */
static int come_and_go(int rounds, int overlaps)
{
    int instance = inotify_init1(IN_NONBLOCK), last = -1;
    for (int round = 0; round < rounds; round++) {
        int next = watch(instance, round % 2 ? "a" : "b");
        if (next != round + 1)
            printf("round %d: %d\n", round, next);
        if (overlaps && last >= 0)
            inotify_rm_watch(instance, last);
        if (!overlaps)
            inotify_rm_watch(instance, next);
        last = next;
    }
    return instance;
}

static void ends(int rounds, int overlaps, int way)
{
    int ready[2], status = 0;
    char byte;
    if (pipe(ready))
        return;
    pid_t child = fork();
    if (child == 0) {
        int instance = come_and_go(rounds, overlaps);
        fflush(stdout);
        if (way == 0)
            close(instance);
        if (way == 1)
            dup2(ready[0], instance);
        if (way == 3) {
            write(ready[1], "", 1);
            pause();
        }
        _exit(way);
    }
    if (way == 3) {
        read(ready[0], &byte, 1);
        kill(child, SIGKILL);
    }
    waitpid(child, &status, 0);
    close(ready[0]);
    close(ready[1]);
    printf("%d rounds, overlapping %d, way %d: %x\n", rounds, overlaps, way, status);
}

int main(void)
{
    static const int rounds[] = {1, 63, 64, 65, 129, 4097};
    close(open("a", O_CREAT | O_RDWR, 0600));
    close(open("b", O_CREAT | O_RDWR, 0600));
    for (unsigned n = 0; n < sizeof rounds / sizeof *rounds; n++)
        for (int way = 0; way < 8; way++)
            ends(rounds[n], way % 2, way / 2);
    return 0;
}
