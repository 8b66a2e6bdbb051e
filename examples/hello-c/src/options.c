#include "hunt/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char *here[] = { ".", NULL };

int options_parse(struct options *options, int argc, char **argv)
{
    memset(options, 0, sizeof *options);
    int letter;
    while ((letter = getopt(argc, argv, "cilnV")) != -1) {
        switch (letter) {
        case 'c': options->count = true; break;
        case 'i': options->ignore_case = true; break;
        case 'l': options->names = true; break;
        case 'n': options->numbers = true; break;
        case 'V': options->version = true; break;
        default: return -1;
        }
    }
    if (options->version)
        return 0;
    if (optind >= argc) {
        fprintf(stderr, "usage: hunt [-cilnV] pattern [path...]\n");
        return -1;
    }
    options->pattern = argv[optind++];
    options->paths = optind < argc ? argv + optind : here;
    options->path_count = optind < argc ? argc - optind : 1;
    return 0;
}
