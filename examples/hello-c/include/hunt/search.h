/* Walks the paths and reports every line that matches. */
#ifndef HUNT_SEARCH_H
#define HUNT_SEARCH_H

#include "hunt/options.h"
#include "hunt/pattern.h"
#include "hunt/report.h"

/* 0, or -1 when a file could not be read (said on stderr; the others are searched). */
int search(const struct options *options, const struct pattern *pattern, struct report *report);

#endif
