#include "hunt/pattern.h"

/* Matches atoms from `at` on against bytes from `from` on. Depth is bounded by the atoms. */
static bool match_from(const struct pattern *pattern, size_t at, const char *bytes, size_t length,
                       size_t from)
{
    if (at == pattern->count)
        return !pattern->at_end || from == length;
    const struct atom *atom = &pattern->atoms[at];
    size_t most = atom->may_repeat ? length - from : 1;
    size_t taken = 0;
    while (taken < most && from + taken < length && set_has(&atom->set, bytes[from + taken]))
        taken++;
    size_t least = atom->may_miss ? 0 : 1;
    for (size_t take = taken + 1; take-- > least;) {
        if (match_from(pattern, at + 1, bytes, length, from + take))
            return true;
    }
    return false;
}

bool pattern_match(const struct pattern *pattern, const char *bytes, size_t length)
{
    size_t last = pattern->at_start ? 0 : length;
    for (size_t from = 0; from <= last; from++) {
        if (match_from(pattern, 0, bytes, length, from))
            return true;
    }
    return false;
}
