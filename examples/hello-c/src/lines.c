#include "hunt/lines.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BINARY_LOOK_BYTES 1024

int lines_open(struct lines *lines, const char *path)
{
    memset(lines, 0, sizeof *lines);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    struct stat status;
    int result = fstat(descriptor, &status);
    if (result == 0 && status.st_size > 0) {
        void *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (bytes == MAP_FAILED)
            result = -1;
        else
            *lines = (struct lines){ .bytes = bytes, .length = status.st_size };
    }
    close(descriptor);
    return result;
}

int lines_next(struct lines *lines, struct line *line)
{
    if (lines->next >= lines->length)
        return 0;
    const char *start = lines->bytes + lines->next;
    size_t left = lines->length - lines->next;
    const char *end = memchr(start, '\n', left);
    size_t length = end ? (size_t)(end - start) : left;
    lines->next += length + 1;
    *line = (struct line){ .bytes = start, .length = length, .number = ++lines->number };
    return 1;
}

int lines_binary(const struct lines *lines)
{
    size_t look = lines->length < BINARY_LOOK_BYTES ? lines->length : BINARY_LOOK_BYTES;
    return look > 0 && memchr(lines->bytes, '\0', look) != NULL;
}

void lines_close(struct lines *lines)
{
    if (lines->length > 0)
        munmap((void *)lines->bytes, lines->length);
    memset(lines, 0, sizeof *lines);
}
