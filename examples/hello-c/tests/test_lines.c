#include "check.h"

#include <string.h>
#include <unistd.h>

#include "hunt/lines.h"

static void write_file(const char *path, const char *bytes, size_t length)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

static void lines_are_counted(const char *path)
{
    write_file(path, "one\n\nthree", 10);
    struct lines lines;
    struct line line;
    CHECK(lines_open(&lines, path) == 0);
    CHECK(lines_next(&lines, &line) && line.number == 1 && line.length == 3);
    CHECK(lines_next(&lines, &line) && line.number == 2 && line.length == 0);
    CHECK(lines_next(&lines, &line) && line.number == 3 && memcmp(line.bytes, "three", 5) == 0);
    CHECK(!lines_next(&lines, &line));
    CHECK(!lines_binary(&lines));
    lines_close(&lines);
}

static void an_empty_file_has_no_line(const char *path)
{
    write_file(path, "", 0);
    struct lines lines;
    struct line line;
    CHECK(lines_open(&lines, path) == 0 && !lines_next(&lines, &line));
    lines_close(&lines);
}

static void a_nul_makes_a_file_binary(const char *path)
{
    write_file(path, "a\0b\n", 4);
    struct lines lines;
    CHECK(lines_open(&lines, path) == 0 && lines_binary(&lines));
    lines_close(&lines);
}

int main(void)
{
    char path[] = "build/lines-XXXXXX";
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0 && close(descriptor) == 0);
    lines_are_counted(path);
    an_empty_file_has_no_line(path);
    a_nul_makes_a_file_binary(path);
    CHECK(unlink(path) == 0);
    struct lines lines;
    CHECK(lines_open(&lines, path) == -1);
    return 0;
}
