#include "hunt/search.h"

#include <stdio.h>
#include <unistd.h>

#include "hunt/lines.h"
#include "hunt/walk.h"

struct hunt {
    const struct pattern *pattern;
    struct report *report;
    int failed;
};

static int search_lines(struct hunt *hunt, struct lines *lines, const char *path)
{
    struct line line;
    size_t found = 0;
    while (!lines_binary(lines) && lines_next(lines, &line)) {
        if (!pattern_match(hunt->pattern, line.bytes, line.length))
            continue;
        found++;
        if (report_line(hunt->report, path, &line))
            return -1;
    }
    return report_file(hunt->report, path, found);
}

/* One file that cannot be read does not end the search. */
static int search_file(const char *path, void *context)
{
    struct hunt *hunt = context;
    struct lines lines;
    if (lines_open(&lines, path)) {
        perror(path);
        hunt->failed = -1;
        return 0;
    }
    int result = search_lines(hunt, &lines, path);
    lines_close(&lines);
    return result ? result : report_flush(hunt->report, STDOUT_FILENO);
}

int search(const struct options *options, const struct pattern *pattern, struct report *report)
{
    struct hunt hunt = { .pattern = pattern, .report = report };
    for (int at = 0; at < options->path_count; at++) {
        if (walk(options->paths[at], search_file, &hunt)) {
            perror(options->paths[at]);
            hunt.failed = -1;
        }
    }
    return hunt.failed;
}
