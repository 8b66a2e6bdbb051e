/* All functions of the header, once; built by interface.rs. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "tenacious.h"

#define MUST(what)                                                                    \
    do {                                                                              \
        if (!(what)) {                                                                \
            printf("line %d: %s: %s\n", __LINE__, #what, tenacious_error());          \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called;

static void durable(void *context, int error) {
    pthread_mutex_lock(&lock);
    *(int *)context = error ? -1 : 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static int is(tenacious_bytes bytes, const char *text) {
    int same = bytes.length == strlen(text) && !memcmp(bytes.data, text, bytes.length);
    tenacious_bytes_free(bytes);
    return same;
}

#define LIMIT_MS 60000

/* Whether a descriptor is readable within a time, as each of the three says. */
static int by_poll(int fd, int limit_ms) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, limit_ms) == 1 && one.revents == POLLIN;
}

static int by_select(int fd, int limit_ms) {
    struct timeval limit = {.tv_sec = limit_ms / 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &limit) == 1 && FD_ISSET(fd, &set);
}

static int epoll;

static int by_epoll(int fd, int limit_ms) {
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, limit_ms) == 1 && event.data.fd == fd;
}

/* A doorbell rings when a change is durable, for whoever waits and in whichever way. */
static void doorbell(tenacious_store *store, tenacious_counter *counter) {
    int (*ways[])(int, int) = {by_poll, by_select, by_epoll};
    tenacious_doorbell *bell;
    uint64_t lsn, done;
    MUST(tenacious_doorbell_open(NULL, &bell) == -EINVAL && tenacious_doorbell_fd(NULL) < 0);
    MUST(tenacious_doorbell_open(store, &bell) == 0);
    int fd = tenacious_doorbell_fd(bell);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    MUST((epoll = epoll_create1(0)) >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int round = 0; round < 9; round++) {
        MUST(tenacious_counter_add(counter, 0, &lsn) == 0);
        MUST(!by_poll(fd, 0) && !by_select(fd, 0));
        MUST(tenacious_doorbell_ring_at(bell, lsn) == 0);
        MUST(ways[round % 3](fd, LIMIT_MS) && tenacious_durable(store) >= lsn);
        MUST(tenacious_doorbell_take(bell, &done) == 0 && done >= lsn && !by_poll(fd, 0));
    }
    /* One that is durable already rings at once, one that does not exist never does. */
    MUST(tenacious_doorbell_ring_at(bell, lsn) == 0 && by_poll(fd, 0));
    MUST(tenacious_doorbell_take(bell, NULL) == 0);
    MUST(tenacious_doorbell_ring_at(bell, lsn + 1) == -EINVAL && !by_poll(fd, 0));
    tenacious_doorbell_free(bell);
}

int main(int count, char **arguments) {
    const char *path = arguments[1];
    int again = count > 2;
    tenacious_store *store = NULL, *other = NULL;
    if (again)
        MUST(tenacious_open(path, &store) == 0);
    else
        MUST(tenacious_create(path, 1 << 20, &store) == 0);
    MUST(tenacious_open(path, &other) == -EIO && strstr(tenacious_error(), "uses it"));
    MUST(tenacious_open(NULL, &other) == -EINVAL && tenacious_wait(NULL, 0) == -EINVAL);

    tenacious_log *log;
    tenacious_queue *queue;
    tenacious_map *map;
    tenacious_counter *counter;
    MUST(tenacious_log_open(store, "log", &log) == 0);
    MUST(tenacious_queue_open(store, "queue", &queue) == 0);
    MUST(tenacious_map_open(store, "map", &map) == 0);
    MUST(tenacious_counter_open(store, "counter", &counter) == 0);
    MUST(tenacious_map_open(store, "log", &map) == -EINVAL);
    tenacious_bytes bytes;
    uint64_t lsn, number;
    if (again) {
        MUST(tenacious_log_begin(log) == 1 && tenacious_log_end(log) == 3);
        MUST(tenacious_log_get(log, 2, &bytes) == 0 && is(bytes, "third"));
        MUST(tenacious_queue_length(queue) == 1 && tenacious_counter_get(counter) == 42);
        MUST(tenacious_map_get(map, "key", 3, &bytes) == 0 && is(bytes, "new"));
        puts("again");
        return 0;
    }
    MUST(tenacious_log_append(log, "first", 5, NULL) == 0);
    MUST(tenacious_log_append(log, "second", 6, &lsn) == 0 && lsn == tenacious_last(store));
    MUST(tenacious_log_trim(log, 1, NULL) == 0 && tenacious_log_get(log, 0, &bytes) == -ENOENT);
    MUST(tenacious_queue_push(queue, "a", 1, NULL) == 0);
    MUST(tenacious_queue_push(queue, NULL, 0, NULL) == 0);
    MUST(tenacious_queue_push(queue, NULL, 1, NULL) == -EINVAL);
    MUST(tenacious_queue_take(queue, 0, &number, &bytes) == 0 && number == 0 && is(bytes, "a"));
    MUST(tenacious_queue_put_back(queue, 0) == 0);
    MUST(tenacious_queue_take(queue, 1, &number, &bytes) == 0 && number == 0 && is(bytes, "a"));
    MUST(tenacious_queue_take(queue, 1, &number, &bytes) == 0 && number == 1 && is(bytes, ""));
    MUST(tenacious_queue_take(queue, 1, &number, &bytes) == -ENOENT);
    MUST(tenacious_queue_done(queue, 7, NULL) == -ENOENT);
    MUST(tenacious_map_insert(map, "key", 3, "old", 3, NULL) == 0);
    MUST(tenacious_map_insert(map, "gone", 4, "", 0, NULL) == 0);
    MUST(tenacious_map_remove(map, "gone", 4, NULL) == 0 && tenacious_map_length(map) == 1);
    MUST(tenacious_counter_add(counter, 40, NULL) == 0);
    MUST(tenacious_counter_add(counter, INT64_MAX, NULL) == -EOVERFLOW);

    tenacious_batch *batch = tenacious_batch_begin(store);
    MUST(tenacious_batch_append(batch, log, "third", 5) == 0);
    MUST(tenacious_batch_trim(batch, log, 1) == 0);
    MUST(tenacious_batch_push(batch, queue, "b", 1) == 0);
    MUST(tenacious_batch_done(batch, queue, 0) == 0);
    MUST(tenacious_batch_done(batch, queue, 1) == 0);
    MUST(tenacious_batch_insert(batch, map, "key", 3, "new", 3) == 0);
    MUST(tenacious_batch_remove(batch, map, "none", 4) == 0);
    MUST(tenacious_batch_count(batch, counter, 2) == 0);
    MUST(tenacious_batch_commit(batch, &lsn) == 0);
    tenacious_batch_free(batch);

    MUST(tenacious_on_durable(store, lsn, durable, &called) == 0);
    pthread_mutex_lock(&lock);
    while (!called)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    MUST(called == 1 && tenacious_durable(store) >= lsn && tenacious_wait(store, lsn) == 0);
    MUST(tenacious_wait(store, lsn + 1) == -EINVAL);
    doorbell(store, counter);
    tenacious_log_free(log);
    tenacious_queue_free(queue);
    tenacious_map_free(map);
    tenacious_counter_free(counter);
    tenacious_close(store);
    puts("done");
    return 0;
}
