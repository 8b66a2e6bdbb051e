#include "hunt/walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hunt/buffer.h"

static int walk_at(const char *path, walk_visit *visit, void *context, int depth);

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int walk_entry(const char *folder, const char *name, walk_visit *visit, void *context,
                      int depth)
{
    struct buffer path;
    buffer_init(&path);
    int result = -1;
    if (!buffer_add_string(&path, folder) && !buffer_add(&path, "/", 1) &&
        !buffer_add_string(&path, name) && buffer_string(&path))
        result = walk_at(path.bytes, visit, context, depth + 1);
    buffer_free(&path);
    return result;
}

static int walk_folder(const char *path, walk_visit *visit, void *context, int depth)
{
    struct dirent **entries;
    int count = scandir(path, &entries, not_dots, alphasort);
    if (count < 0)
        return -1;
    int result = 0;
    for (int at = 0; at < count; at++) {
        if (result == 0)
            result = walk_entry(path, entries[at]->d_name, visit, context, depth);
        free(entries[at]);
    }
    free(entries);
    return result;
}

static int walk_at(const char *path, walk_visit *visit, void *context, int depth)
{
    struct stat status;
    if (depth > WALK_DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    if (lstat(path, &status))
        return -1;
    if (S_ISDIR(status.st_mode))
        return walk_folder(path, visit, context, depth);
    return S_ISREG(status.st_mode) ? visit(path, context) : 0;
}

int walk(const char *path, walk_visit *visit, void *context)
{
    return walk_at(path, visit, context, 0);
}
