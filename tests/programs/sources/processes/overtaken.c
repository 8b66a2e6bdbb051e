/* A caught signal that comes while a program is being replaced by another one: the handler has it,
 * or the new program ends by it. It is not blocked there, and not left waiting. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 400, SPREAD_US = 1500 };

static void handler(int signal) { (void)signal; }

static int zeros(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int good = 1, count = 0;
    while (file && fgets(line, sizeof line, file)) {
        count++;
        good &= strtoull(strchr(line, ':') + 1, 0, 16) == 0;
    }
    if (file)
        fclose(file);
    return count == 0 ? -1 : good && count == 3;
}

int main(void)
{
    int ended = 0, went_on = 0, wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int ready[2], status;
        char byte;
        if (pipe(ready))
            return 1;
        pid_t child = fork();
        if (child == 0) {
            signal(SIGINT, handler);
            dup2(open("status", O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
            write(ready[1], "", 1);
            execlp("grep", "grep", "-E", "^(SigPnd|ShdPnd|SigBlk)", "/proc/self/status", (char *)0);
            _exit(9);
        }
        read(ready[0], &byte, 1);
        usleep(round * SPREAD_US / ROUNDS);
        kill(child, SIGINT);
        waitpid(child, &status, 0);
        close(ready[0]);
        close(ready[1]);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
            ended++;
        else if (status == 0 && zeros("status") == 1)
            went_on++;
        else
            wrong++;
    }
    unlink("status");
    fprintf(stderr, "%d ended, %d went on, %d wrong\n", ended, went_on, wrong);
    printf("%d %d\n", ended + went_on, wrong);
    return 0;
}
