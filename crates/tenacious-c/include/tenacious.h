/* Logs, queues, maps and counters that survive crashes.
 *
 * Each change takes effect in memory at once and has a number (lsn). It is durable once
 * tenacious_wait has returned 0 for that number, or once the callback of tenacious_on_durable has
 * been called with 0. After a crash a store has the changes up to some number, in order, with all
 * that were durable.
 *
 * Functions that return int return 0, or a negative errno; tenacious_error then has one line that
 * says what failed and what to do. Of a change that failed nothing was done. Handles may be used by
 * several threads at once, batches by one. Where lsn is a pointer, it may be NULL.
 *
 * Link with -ltenacious_c -lpthread -ldl -lm.
 */
#ifndef TENACIOUS_H
#define TENACIOUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenacious_store tenacious_store;
typedef struct tenacious_log tenacious_log;
typedef struct tenacious_queue tenacious_queue;
typedef struct tenacious_map tenacious_map;
typedef struct tenacious_counter tenacious_counter;
typedef struct tenacious_batch tenacious_batch;
typedef struct tenacious_doorbell tenacious_doorbell;

/* Bytes that the store hands out: give them back with tenacious_bytes_free. */
typedef struct tenacious_bytes {
    uint8_t *data;
    size_t length;
} tenacious_bytes;
void tenacious_bytes_free(tenacious_bytes bytes);

/* Why the last call that failed in this thread did so. Valid until the next one fails. */
const char *tenacious_error(void);

/* Makes a store of size_bytes (1 MiB at least) at path, which must not be there. */
int tenacious_create(const char *path, uint64_t size_bytes, tenacious_store **store);
/* Opens a store. One process at a time can have it. */
int tenacious_open(const char *path, tenacious_store **store);
/* Gives up the store. When its last handle is freed, everything is made durable. */
void tenacious_close(tenacious_store *store);

/* The number of the last change, and up to which all are durable. */
uint64_t tenacious_last(const tenacious_store *store);
uint64_t tenacious_durable(const tenacious_store *store);
/* Waits until the change, and all before it, are durable. */
int tenacious_wait(const tenacious_store *store, uint64_t lsn);
/* Calls callback(context, 0) once the change is durable, or with -EIO if it never will be: on a
 * thread of the store, one callback after the other, in the order of the numbers. */
int tenacious_on_durable(const tenacious_store *store, uint64_t lsn,
                         void (*callback)(void *context, int error), void *context);

/* A doorbell: a descriptor that is readable once a change that it was asked for is durable, or
 * never will be. It is for epoll, poll and select: nobody may read it, write to it or close it. */
int tenacious_doorbell_open(const tenacious_store *store, tenacious_doorbell **bell);
void tenacious_doorbell_free(tenacious_doorbell *bell);
int tenacious_doorbell_fd(const tenacious_doorbell *bell);
/* Asks for a ring once the change is durable; of any number of changes. */
int tenacious_doorbell_ring_at(const tenacious_doorbell *bell, uint64_t lsn);
/* Answers it: not readable until the next ring. *durable: up to which change all are durable now.
 * -EIO: a write has failed, and no more will be. */
int tenacious_doorbell_take(const tenacious_doorbell *bell, uint64_t *durable);

/* A structure by its name (UTF-8, 1 to 255 bytes), made if there is none. */
int tenacious_log_open(const tenacious_store *store, const char *name, tenacious_log **log);
int tenacious_queue_open(const tenacious_store *store, const char *name, tenacious_queue **queue);
int tenacious_map_open(const tenacious_store *store, const char *name, tenacious_map **map);
int tenacious_counter_open(const tenacious_store *store, const char *name,
                           tenacious_counter **counter);
void tenacious_log_free(tenacious_log *log);
void tenacious_queue_free(tenacious_queue *queue);
void tenacious_map_free(tenacious_map *map);
void tenacious_counter_free(tenacious_counter *counter);

/* Logs: entries are numbered from 0 on; those from begin to before end are there. */
int tenacious_log_append(const tenacious_log *log, const void *data, size_t length, uint64_t *lsn);
int tenacious_log_trim(const tenacious_log *log, uint64_t before, uint64_t *lsn);
/* -ENOENT: it was trimmed, or not appended yet. */
int tenacious_log_get(const tenacious_log *log, uint64_t number, tenacious_bytes *entry);
uint64_t tenacious_log_begin(const tenacious_log *log);
uint64_t tenacious_log_end(const tenacious_log *log);

/* Queues: an item that was taken and is not done is there again after a crash. */
int tenacious_queue_push(const tenacious_queue *queue, const void *data, size_t length,
                         uint64_t *lsn);
/* Waits limit_ms at most for an item; -ENOENT: none came. */
int tenacious_queue_take(const tenacious_queue *queue, uint64_t limit_ms, uint64_t *number,
                         tenacious_bytes *item);
int tenacious_queue_done(const tenacious_queue *queue, uint64_t number, uint64_t *lsn);
int tenacious_queue_put_back(const tenacious_queue *queue, uint64_t number);
uint64_t tenacious_queue_length(const tenacious_queue *queue);

/* Maps. */
int tenacious_map_insert(const tenacious_map *map, const void *key, size_t key_length,
                         const void *value, size_t value_length, uint64_t *lsn);
int tenacious_map_remove(const tenacious_map *map, const void *key, size_t key_length,
                         uint64_t *lsn);
/* -ENOENT: there is no such key. */
int tenacious_map_get(const tenacious_map *map, const void *key, size_t key_length,
                      tenacious_bytes *value);
uint64_t tenacious_map_length(const tenacious_map *map);

/* Counters. */
int tenacious_counter_add(const tenacious_counter *counter, int64_t by, uint64_t *lsn);
int64_t tenacious_counter_get(const tenacious_counter *counter);

/* Batches: operations that count together. After a crash all of them are there, or none. A commit
 * empties the batch; one that failed leaves it as it was. NULL: the store is NULL. */
tenacious_batch *tenacious_batch_begin(const tenacious_store *store);
void tenacious_batch_free(tenacious_batch *batch);
int tenacious_batch_append(tenacious_batch *batch, const tenacious_log *log, const void *data,
                           size_t length);
int tenacious_batch_trim(tenacious_batch *batch, const tenacious_log *log, uint64_t before);
int tenacious_batch_push(tenacious_batch *batch, const tenacious_queue *queue, const void *data,
                         size_t length);
int tenacious_batch_done(tenacious_batch *batch, const tenacious_queue *queue, uint64_t number);
int tenacious_batch_insert(tenacious_batch *batch, const tenacious_map *map, const void *key,
                           size_t key_length, const void *value, size_t value_length);
int tenacious_batch_remove(tenacious_batch *batch, const tenacious_map *map, const void *key,
                           size_t key_length);
int tenacious_batch_count(tenacious_batch *batch, const tenacious_counter *counter, int64_t by);
int tenacious_batch_commit(tenacious_batch *batch, uint64_t *lsn);

#ifdef __cplusplus
}
#endif

#endif
