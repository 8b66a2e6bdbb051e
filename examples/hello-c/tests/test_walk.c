#include "check.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hunt/buffer.h"
#include "hunt/walk.h"

static int note(const char *path, void *context)
{
    return buffer_add_string(context, path) || buffer_add(context, " ", 1);
}

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fclose(file) == 0);
}

int main(void)
{
    char folder[] = "build/walk-XXXXXX";
    CHECK(mkdtemp(folder) && chdir(folder) == 0);
    CHECK(mkdir("b", 0777) == 0 && symlink("b", "link") == 0);
    touch("c");
    touch("b/z");
    touch("b/a");
    struct buffer seen;
    buffer_init(&seen);
    CHECK(walk(".", note, &seen) == 0);
    CHECK(strcmp(buffer_string(&seen), "./b/a ./b/z ./c ") == 0);
    CHECK(walk("missing", note, &seen) == -1);
    CHECK(unlink("b/a") == 0 && unlink("b/z") == 0 && unlink("c") == 0 && unlink("link") == 0);
    CHECK(rmdir("b") == 0 && chdir("../..") == 0 && rmdir(folder) == 0);
    buffer_free(&seen);
    return 0;
}
