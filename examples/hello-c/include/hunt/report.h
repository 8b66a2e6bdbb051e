/* What is printed about what was found. */
#ifndef HUNT_REPORT_H
#define HUNT_REPORT_H

#include "hunt/buffer.h"
#include "hunt/lines.h"
#include "hunt/options.h"

struct report {
    const struct options *options;
    struct buffer out;
    size_t found; /* in all files */
};

void report_init(struct report *report, const struct options *options);
/* 0, or -1 when memory is out. */
int report_line(struct report *report, const char *path, const struct line *line);
int report_file(struct report *report, const char *path, size_t found);
/* Writes all to the descriptor; 0, or -1 with errno. */
int report_flush(struct report *report, int descriptor);
void report_free(struct report *report);

#endif
