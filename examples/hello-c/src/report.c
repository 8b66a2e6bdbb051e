#include "hunt/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void report_init(struct report *report, const struct options *options)
{
    memset(report, 0, sizeof *report);
    report->options = options;
    buffer_init(&report->out);
}

int report_line(struct report *report, const char *path, const struct line *line)
{
    if (report->options->count || report->options->names)
        return 0;
    char number[32] = "";
    if (report->options->numbers)
        snprintf(number, sizeof number, "%zu:", line->number);
    return buffer_add_string(&report->out, path) || buffer_add(&report->out, ":", 1) ||
           buffer_add_string(&report->out, number) ||
           buffer_add(&report->out, line->bytes, line->length) || buffer_add(&report->out, "\n", 1)
               ? -1
               : 0;
}

int report_file(struct report *report, const char *path, size_t found)
{
    report->found += found;
    char text[64] = "\n";
    if (report->options->count)
        snprintf(text, sizeof text, ":%zu\n", found);
    else if (!report->options->names || found == 0)
        return 0;
    return buffer_add_string(&report->out, path) || buffer_add_string(&report->out, text) ? -1 : 0;
}

int report_flush(struct report *report, int descriptor)
{
    size_t done = 0;
    while (done < report->out.length) {
        ssize_t count = write(descriptor, report->out.bytes + done, report->out.length - done);
        if (count < 0 && errno != EINTR)
            return -1;
        done += count > 0 ? count : 0;
    }
    buffer_clear(&report->out);
    return 0;
}

void report_free(struct report *report)
{
    buffer_free(&report->out);
}
