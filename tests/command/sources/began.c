// A library that looks at the world before the program begins.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int times, words;
static char mark[64];
static pid_t self;

__attribute__((constructor)) static void begin(int count, char **arguments, char **environment) {
    const char *found = getenv("MARK");
    times++;
    words = count;
    self = getpid();
    if (arguments[count] == NULL && environment != NULL && found != NULL) {
        strncpy(mark, found, sizeof mark - 1);
    }
}

/* Whether that happened once, in this process, with what this start was given. */
int library_began(int count) {
    const char *now = getenv("MARK");
    return times == 1 && words == count && self == getpid() && !strcmp(mark, now ? now : "");
}
