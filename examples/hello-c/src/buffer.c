#include "hunt/buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

void buffer_init(struct buffer *buffer)
{
    memset(buffer, 0, sizeof *buffer);
}

static int reserve(struct buffer *buffer, size_t needed)
{
    size_t capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    if (capacity == buffer->capacity)
        return 0;
    char *bytes = realloc(buffer->bytes, capacity);
    if (!bytes)
        return -1;
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return 0;
}

int buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0)
        return 0;
    if (reserve(buffer, buffer->length + length))
        return -1;
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    return 0;
}

int buffer_add_string(struct buffer *buffer, const char *string)
{
    return buffer_add(buffer, string, strlen(string));
}

const char *buffer_string(struct buffer *buffer)
{
    if (reserve(buffer, buffer->length + 1))
        return NULL;
    buffer->bytes[buffer->length] = '\0';
    return buffer->bytes;
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->bytes);
    buffer_init(buffer);
}
