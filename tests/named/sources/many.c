/* As many processes as the first argument says, each with a file of the image open; a line when all
   are there. They end when standard input does. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    int wanted = count > 1 ? atoi(words[1]) : 0, status, good = 0;
    char byte;
    for (int n = 0; n < wanted; n++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            int file = open("/tmp/held", O_CREAT | O_RDWR, 0600);
            _exit(file < 0 || read(0, &byte, 1) != 0 || write(file, "x", 1) != 1);
        }
    }
    printf("all\n");
    fflush(stdout);
    while (wait(&status) > 0)
        good += status == 0;
    printf("%d\n", good);
    return good != wanted;
}
