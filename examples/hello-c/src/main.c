/* hunt: prints the lines that match a pattern. Exit status: 0 found, 1 not found, 2 trouble. */
#include <stdio.h>

#include "hunt/search.h"
#include "version.h"

int main(int argc, char **argv)
{
    struct options options;
    if (options_parse(&options, argc, argv))
        return 2;
    if (options.version) {
        puts("hunt " HUNT_VERSION);
        return 0;
    }
    static struct pattern pattern;
    const char *fault = pattern_compile(&pattern, options.pattern, options.ignore_case);
    if (fault) {
        fprintf(stderr, "hunt: %s: %s\n", options.pattern, fault);
        return 2;
    }
    struct report report;
    report_init(&report, &options);
    int failed = search(&options, &pattern, &report);
    int status = failed ? 2 : report.found == 0;
    report_free(&report);
    return status;
}
