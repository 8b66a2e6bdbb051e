/* What the command line asks for. */
#ifndef HUNT_OPTIONS_H
#define HUNT_OPTIONS_H

#include <stdbool.h>

struct options {
    bool count;       /* -c */
    bool ignore_case; /* -i */
    bool names;       /* -l */
    bool numbers;     /* -n */
    bool version;     /* -V */
    const char *pattern;
    char **paths;
    int path_count;
};

/* 0, or -1 when the command line makes no sense (said on stderr). */
int options_parse(struct options *options, int argc, char **argv);

#endif
