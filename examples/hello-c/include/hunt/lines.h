/* A file, mapped, line by line. */
#ifndef HUNT_LINES_H
#define HUNT_LINES_H

#include <stddef.h>

struct lines {
    const char *bytes;
    size_t length;
    size_t next;
    size_t number;
};

struct line {
    const char *bytes;
    size_t length;
    size_t number; /* from 1 */
};

/* 0, or -1 with errno. */
int lines_open(struct lines *lines, const char *path);
/* 1 and the next line, or 0 at the end. */
int lines_next(struct lines *lines, struct line *line);
/* A NUL among the first bytes: not text. */
int lines_binary(const struct lines *lines);
void lines_close(struct lines *lines);

#endif
