/* Patterns: compiled once, matched by backtracking over a flat list of atoms. */
#ifndef HUNT_PATTERN_H
#define HUNT_PATTERN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define PATTERN_ATOMS_MAX 128

/* The bytes an atom accepts, one bit each. */
struct set {
    unsigned char bits[(UCHAR_MAX + 1) / 8];
};

struct atom {
    struct set set;
    bool may_miss;   /* ? and * */
    bool may_repeat; /* + and * */
};

struct pattern {
    struct atom atoms[PATTERN_ATOMS_MAX];
    size_t count;
    bool at_start; /* ^ */
    bool at_end;   /* $ */
};

/* NULL, or what is wrong with the text. */
const char *pattern_compile(struct pattern *pattern, const char *text, bool ignore_case);
bool pattern_match(const struct pattern *pattern, const char *bytes, size_t length);

void set_add(struct set *set, unsigned char byte);
bool set_has(const struct set *set, unsigned char byte);

#endif
