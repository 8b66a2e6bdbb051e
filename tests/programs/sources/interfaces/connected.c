/* Two ends of a connection of one kind, for the sources that are compiled behind this one
   (`sends.c`, `options.c`), and how they print. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WARM = 60 };

static void say(const char *what, long result)
{
    printf("%s %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static void must(const char *what, int holds)
{
    if (holds) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static const char *way; /* what connections are */

static void pair_of(int pair[2])
{
    struct sockaddr_in port = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "name" };
    int tcp = way[0] == 't', family = tcp ? AF_INET : AF_UNIX;
    struct sockaddr *to = tcp ? (void *)&port : (void *)&name;
    socklen_t length = tcp ? sizeof port : sizeof name;
    if (way[0] == 'p') {
        must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        return;
    }
    int listener = socket(family, SOCK_STREAM, 0);
    must("listen", bind(listener, to, length) == 0 && listen(listener, 5) == 0);
    must("port", !tcp || getsockname(listener, to, &length) == 0);
    pair[1] = socket(family, SOCK_STREAM, 0);
    must("connect", connect(pair[1], to, length) == 0);
    pair[0] = accept(listener, NULL, NULL);
    must("accept", pair[0] >= 0);
    close(listener);
    unlink("name");
}

/* A pair both ways of which have been used, and are empty. */
static void warm(int pair[2])
{
    char byte = 'w';
    pair_of(pair);
    for (int i = 0; i < WARM; i++)
        for (int side = 0; side < 2; side++)
            must("warm", write(pair[side], &byte, 1) == 1 && read(pair[1 - side], &byte, 1) == 1);
}

static void done(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

struct part { const char *name; void (*run)(void); };

/* Plays the part that the argument names behind a hyphen; before it stands what connections are. */
static int played(int count, char **arguments, const struct part *parts, size_t length)
{
    must("a part", count == 2 && strchr(arguments[1], '-') != NULL);
    way = arguments[1];
    for (size_t i = 0; i < length; i++)
        if (strcmp(parts[i].name, strchr(way, '-') + 1) == 0) {
            parts[i].run();
            return 0;
        }
    return 1;
}
