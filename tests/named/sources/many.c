/* As many processes as the first argument says, each with a file of its own in the image open, which
   it has changed and which has no name any more; a line when all are there. They end when standard
   input does. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first process's children write a byte each here, once their files are changed. */
static int ready[2];

static int child(int number)
{
    char name[64], byte, back = 0;
    snprintf(name, sizeof name, "/tmp/held.%d", number);
    int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (file < 0 || write(file, "x", 1) != 1 || unlink(name) != 0)
        return 1;
    if (write(ready[1], "", 1) != 1)
        return 1;
    close(ready[0]);
    close(ready[1]);
    if (read(0, &byte, 1) != 0 || write(file, "y", 1) != 1)
        return 1;
    return pread(file, &back, 1, 1) != 1 || back != 'y';
}

int main(int count, char **words)
{
    int wanted = count > 1 ? atoi(words[1]) : 0, status, good = 0;
    char byte;
    if (pipe(ready) != 0)
        return 1;
    for (int n = 0; n < wanted; n++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0)
            _exit(child(n));
        if (read(ready[0], &byte, 1) != 1)
            return 1;
    }
    printf("all\n");
    fflush(stdout);
    while (wait(&status) > 0)
        good += status == 0;
    printf("%d\n", good);
    return good != wanted;
}
