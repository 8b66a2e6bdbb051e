/* What the sources behind this one (`bells.c`, `reads.c`) share: numbers, children, time. */
#include <sys/wait.h>
#include <time.h>

static inline long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void put(int fd, int value)
{
    must("write", write(fd, &value, sizeof value) == sizeof value);
}

static inline void ended(pid_t child)
{
    int status;
    must("waitpid", waitpid(child, &status, 0) == child);
    say("ended", status);
}
