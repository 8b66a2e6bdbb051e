#include "hunt/pattern.h"

#include <ctype.h>
#include <string.h>

void set_add(struct set *set, unsigned char byte)
{
    set->bits[byte / 8] |= 1 << byte % 8;
}

bool set_has(const struct set *set, unsigned char byte)
{
    return set->bits[byte / 8] >> byte % 8 & 1;
}

static void set_add_range(struct set *set, unsigned char first, unsigned char last)
{
    for (unsigned byte = first; byte <= last; byte++)
        set_add(set, byte);
}

static void set_invert(struct set *set)
{
    for (size_t at = 0; at < sizeof set->bits; at++)
        set->bits[at] = ~set->bits[at];
}

/* Letters in the set bring their other case along. */
static void set_fold(struct set *set)
{
    for (int byte = 'a'; byte <= 'z'; byte++) {
        if (set_has(set, byte) || set_has(set, toupper(byte))) {
            set_add(set, byte);
            set_add(set, toupper(byte));
        }
    }
}

/* Reads a class behind its `[`; returns what follows the `]`, or NULL when there is none. */
static const char *read_class(struct set *set, const char *text)
{
    bool inverted = *text == '^';
    text += inverted;
    const char *first = text;
    while (*text && (*text != ']' || text == first)) {
        unsigned char low = *text++, high = low;
        if (text[0] == '-' && text[1] && text[1] != ']') {
            high = text[1];
            text += 2;
        }
        set_add_range(set, low, high);
    }
    if (*text != ']')
        return NULL;
    if (inverted)
        set_invert(set);
    return text + 1;
}

static const char *read_atom(struct set *set, const char *text)
{
    switch (*text) {
    case '.':
        set_add_range(set, 0, UCHAR_MAX);
        return text + 1;
    case '[':
        return read_class(set, text + 1);
    case '\\':
        if (text[1])
            text++;
        break;
    }
    set_add(set, *text);
    return text + 1;
}

static const char *read_repeat(struct atom *atom, const char *text)
{
    atom->may_miss = *text == '?' || *text == '*';
    atom->may_repeat = *text == '+' || *text == '*';
    return text + (atom->may_miss || atom->may_repeat);
}

const char *pattern_compile(struct pattern *pattern, const char *text, bool ignore_case)
{
    memset(pattern, 0, sizeof *pattern);
    pattern->at_start = *text == '^';
    text += pattern->at_start;
    while (*text) {
        if (strcmp(text, "$") == 0) {
            pattern->at_end = true;
            break;
        }
        if (strchr("*+?", *text))
            return "nothing to repeat";
        if (pattern->count == PATTERN_ATOMS_MAX)
            return "pattern too long";
        struct atom *atom = &pattern->atoms[pattern->count++];
        text = read_atom(&atom->set, text);
        if (!text)
            return "[ without ]";
        if (ignore_case)
            set_fold(&atom->set);
        text = read_repeat(atom, text);
    }
    return NULL;
}
