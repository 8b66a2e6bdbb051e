#include "check.h"

#include <string.h>

#include "hunt/pattern.h"

static bool matches(const char *text, const char *line, bool ignore_case)
{
    static struct pattern pattern;
    const char *fault = pattern_compile(&pattern, text, ignore_case);
    CHECK(fault == NULL);
    return pattern_match(&pattern, line, strlen(line));
}

int main(void)
{
    CHECK(matches("hare", "a hare runs", false));
    CHECK(!matches("hare", "a hart runs", false));
    CHECK(matches("HARE", "a hare runs", true));
    CHECK(matches("h[ao]r[a-f]", "horde", false));
    CHECK(!matches("h[^ao]re", "hare", false));
    CHECK(matches("^a.*s$", "a hare runs", false));
    CHECK(!matches("^hare", "a hare", false));
    CHECK(matches("colou?r", "color", false) && matches("colou?r", "colour", false));
    CHECK(matches("go+l", "gooool", false) && !matches("go+l", "gl", false));
    CHECK(matches("a\\.b", "a.b", false) && !matches("a\\.b", "axb", false));
    CHECK(matches("", "anything", false) && matches("^$", "", false));

    static struct pattern pattern;
    CHECK(pattern_compile(&pattern, "*a", false) != NULL);
    CHECK(pattern_compile(&pattern, "[a-", false) != NULL);
    char long_text[PATTERN_ATOMS_MAX + 2];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    CHECK(pattern_compile(&pattern, long_text, false) != NULL);
    return 0;
}
