/* A growing run of bytes. */
#ifndef HUNT_BUFFER_H
#define HUNT_BUFFER_H

#include <stddef.h>

struct buffer {
    char *bytes;
    size_t length;
    size_t capacity;
};

/* Starts empty; nothing is allocated until the first byte. */
void buffer_init(struct buffer *buffer);
/* 0, or -1 when memory is out (the buffer is then as it was). */
int buffer_add(struct buffer *buffer, const void *bytes, size_t length);
int buffer_add_string(struct buffer *buffer, const char *string);
/* The bytes with a NUL behind them, or NULL when memory is out. */
const char *buffer_string(struct buffer *buffer);
void buffer_clear(struct buffer *buffer);
void buffer_free(struct buffer *buffer);

#endif
