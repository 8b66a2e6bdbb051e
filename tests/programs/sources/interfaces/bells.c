/* Sides of a connection that sleep before nearly every byte, in an epoll set or in poll, so that
   the image wakes them by bells of its own; and programs that meet the numbers of such bells
   without knowing of them. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { SLEEPS = 60, TURNS = 20000 };

static void nap(void)
{
    struct timespec t = { 0, 200000 };
    nanosleep(&t, NULL);
}

/* Waits for bytes in poll, and reads one number. */
static int polled(int fd)
{
    struct pollfd entry = { fd, POLLIN, 0 };
    int value = -1;
    must("poll", poll(&entry, 1, 20000) == 1);
    must("events", (entry.revents & ~POLLHUP) == POLLIN);
    must("read", recv(fd, &value, sizeof value, MSG_DONTWAIT) == sizeof value);
    return value;
}

/* The same in a set. */
static int waited(int set, int fd)
{
    struct epoll_event event;
    int value = -1;
    must("epoll_wait", epoll_wait(set, &event, 1, 20000) == 1);
    must("event", event.data.fd == fd && event.events == EPOLLIN);
    must("read", recv(fd, &value, sizeof value, MSG_DONTWAIT) == sizeof value);
    return value;
}

static int set_of(int fd)
{
    struct epoll_event event = { EPOLLIN, { .fd = fd } };
    int set = epoll_create1(EPOLL_CLOEXEC);
    must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

/* The other side: a set, and answers, until the connection ends. */
static void answer(int fd, int naps)
{
    int set = set_of(fd), value;
    struct epoll_event event;
    for (;;) {
        must("epoll_wait", epoll_wait(set, &event, 1, 20000) == 1);
        ssize_t got = recv(fd, &value, sizeof value, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno == ECONNRESET)) _exit(0);
        must("request", got == sizeof value);
        if (naps) nap();
        put(fd, value + 1);
    }
}

static pid_t answers(int pair[2], int naps)
{
    pid_t child = fork();
    must("fork", child >= 0);
    if (child == 0) {
        close(pair[0]);
        answer(pair[1], naps);
    }
    close(pair[1]);
    return child;
}

/* So often that both sides sleep, and so have bells. */
static void talk(int fd, int times)
{
    for (int i = 0; i < times; i++) {
        put(fd, i);
        must("answer", polled(fd) == i + 1);
    }
}

static void turns(void)
{
    int pair[2];
    warm(pair);
    pid_t child = answers(pair, 0);
    talk(pair[0], TURNS);
    say("turns", TURNS);
    close(pair[0]);
    ended(child);
}

static int listed(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Numbers: what is closed, put elsewhere or counted is the program's own. */
static void numbers(void)
{
    int pair[2], spare;
    warm(pair);
    pid_t child = answers(pair, 1);
    struct rlimit limit = { 1024, 1024 };
    setrlimit(RLIMIT_NOFILE, &limit);
    talk(pair[0], SLEEPS);
    for (int round = 0; round < 3; round++)
        for (int fd = 3; fd < 1024; fd++)
            if (fd != pair[0]) close(fd);
    talk(pair[0], SLEEPS);
    say("open", listed());
    say("close_range below", close_range(3, pair[0] - 1, 0));
    say("close_range above", close_range(pair[0] + 1, 1019, 0));
    talk(pair[0], SLEEPS);
    spare = open("given", O_RDONLY);
    must("open", spare >= 0);
    for (int fd = 1019; fd >= 900; fd--) {
        must("dup2", dup2(spare, fd) == fd);
        put(pair[0], fd);
        must("answer", polled(pair[0]) == fd + 1);
    }
    say("open", listed());
    for (int fd = 900; fd < 1020; fd++) {
        char text[16] = "";
        must("pread", pread(fd, text, 10, 0) == 10 && strcmp(text, "0123456789") == 0);
        must("close", close(fd) == 0);
    }
    talk(pair[0], SLEEPS);
    close(pair[0]);
    ended(child);
}

/* Files as many as there may be, beside bells. */
static void many(void)
{
    int pair[2], count = 0, last = -1, fd;
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    while (count < 900 && (fd = open("given", O_RDONLY)) >= 0) {
        must("in order", fd > last);
        last = fd, count++;
    }
    say("files", count);
    talk(pair[0], SLEEPS);
    close(pair[0]);
    ended(child);
}

/* Children go on with what their parent has. */
static void children(void)
{
    int pair[2];
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    for (int i = 0; i < 3; i++) {
        pid_t writer = fork();
        must("fork", writer >= 0);
        if (writer == 0) {
            if (i == 1) close_range(pair[0] + 1, ~0u, 0);
            talk(pair[0], SLEEPS);
            _exit(0);
        }
        ended(writer);
        talk(pair[0], SLEEPS);
    }
    close(pair[0]);
    ended(child);
}

static void *talker(void *fd)
{
    talk((int)(long)fd, TURNS / 8);
    return NULL;
}

/* Several threads sleep in polls of their own. */
static void threads(void)
{
    enum { MANY = 4 };
    pthread_t thread[MANY];
    pid_t child[MANY];
    int pair[MANY][2];
    for (int i = 0; i < MANY; i++) {
        warm(pair[i]);
        child[i] = answers(pair[i], 0);
    }
    for (int i = 0; i < MANY; i++)
        pthread_create(&thread[i], NULL, talker, (void *)(long)pair[i][0]);
    for (int i = 0; i < MANY; i++) pthread_join(thread[i], NULL);
    say("threads", MANY);
    for (int i = 0; i < MANY; i++) {
        shutdown(pair[i][0], SHUT_RDWR);
        close(pair[i][0]);
    }
    for (int i = 0; i < MANY; i++) waitpid(child[i], NULL, 0);
}

/* Several connections in one poll; what it says of each. */
static void several(void)
{
    enum { MANY = 6 };
    int pair[MANY][2];
    struct pollfd list[MANY + 1];
    for (int i = 0; i < MANY; i++) {
        warm(pair[i]);
        answers(pair[i], i == 0);
        list[i] = (struct pollfd) { pair[i][0], POLLIN, 77 };
    }
    list[MANY] = (struct pollfd) { -1, POLLIN, 77 };
    long sum = 0;
    for (int turn = 0; turn < TURNS / 10; turn++) {
        int left = MANY;
        for (int i = 0; i < MANY; i++) put(pair[i][0], turn);
        while (left > 0) {
            int ready = ppoll(list, MANY + 1, NULL, NULL), seen = 0;
            must("ppoll", ready > 0 && list[MANY].revents == 0);
            for (int i = 0; i < MANY; i++) {
                must("revents", list[i].revents == 0 || list[i].revents == POLLIN);
                if (list[i].revents == 0) continue;
                int value = -1;
                must("recv", recv(pair[i][0], &value, sizeof value, 0) == sizeof value);
                must("value", value == turn + 1);
                seen++, left--, sum++;
            }
            must("count", seen == ready);
        }
    }
    say("answers", sum);
    for (int i = 0; i < MANY; i++) close(pair[i][0]);
    int done = 0;
    for (int i = 0; i < MANY; i++) done += waitpid(-1, NULL, 0) > 0;
    say("ended", done);
}

/* Time: what is late is not early, whoever rings meanwhile. */
static void times(void)
{
    int pair[2], idle[2];
    warm(pair);
    warm(idle);
    pid_t child = answers(pair, 0);
    int set = set_of(idle[0]);
    struct epoll_event event;
    for (int i = 0; i < SLEEPS; i++) {
        put(idle[1], i);
        must("idle", waited(set, idle[0]) == i);
        put(idle[1], i);
        must("idle", polled(idle[0]) == i);
    }
    talk(pair[0], SLEEPS);
    struct pollfd entry = { idle[0], POLLIN, 9 };
    struct timespec span = { 0, 120000000 };
    for (int i = 0; i < 3; i++) {
        long start = now_ms();
        say("poll", poll(&entry, 1, 120));
        must("not early", now_ms() - start >= 119);
        start = now_ms();
        say("ppoll", ppoll(&entry, 1, &span, NULL));
        must("not early", now_ms() - start >= 119 && span.tv_nsec == 120000000);
        start = now_ms();
        say("epoll_wait", epoll_wait(set, &event, 1, 120));
        must("not early", now_ms() - start >= 119);
        start = now_ms();
        say("epoll_pwait2", epoll_pwait2(set, &event, 1, &span, NULL));
        must("not early", now_ms() - start >= 119 && span.tv_nsec == 120000000);
        say("revents", entry.revents);
    }
    span.tv_nsec = -1;
    say("bad time", ppoll(&entry, 1, &span, NULL));
    close(pair[0]);
    ended(child);
}

/* Ends: of a side that is closed, shut, or killed while the other one sleeps. */
static void ends(void)
{
    for (int how = 0; how < 3; how++) {
        int pair[2];
        warm(pair);
        pid_t child = fork();
        must("fork", child >= 0);
        if (child == 0) {
            close(pair[0]);
            int set = set_of(pair[1]);
            for (int i = 0; i < SLEEPS; i++) {
                int value = waited(set, pair[1]);
                nap();
                put(pair[1], value + 1);
            }
            if (how == 0) close(pair[1]);
            if (how == 1) shutdown(pair[1], SHUT_WR);
            if (how == 2) kill(getpid(), SIGKILL);
            char byte;
            while (how == 1 && read(pair[1], &byte, 1) > 0) continue;
            _exit(0);
        }
        close(pair[1]);
        talk(pair[0], SLEEPS);
        struct pollfd entry = { pair[0], POLLIN, 0 };
        say("poll", poll(&entry, 1, 20000));
        say("in", (entry.revents & POLLIN) != 0);
        say("hup", (entry.revents & POLLHUP) != 0);
        char byte;
        say("read", recv(pair[0], &byte, 1, 0));
        close(pair[0]);
        ended(child);
    }
}

/* A writer that is killed over and over; who sleeps gets whole numbers, and never sleeps beside
   one. */
static void kills(void)
{
    int pair[2], got = 0, value;
    warm(pair);
    for (int round = 0; round < 40; round++) {
        pid_t writer = fork();
        must("fork", writer >= 0);
        if (writer == 0) {
            for (int i = 0;; i++) {
                put(pair[1], i);
                if (i % 8 == 0) nap();
            }
        }
        for (int i = 0; i < 200 + round * 7; i++) got += polled(pair[0]) >= 0;
        kill(writer, SIGKILL);
        waitpid(writer, NULL, 0);
        struct pollfd entry = { pair[0], POLLIN, 0 };
        while (poll(&entry, 1, 60) == 1) {
            must("whole", recv(pair[0], &value, sizeof value, MSG_DONTWAIT) == sizeof value);
        }
    }
    say("kills", got > 0);
    done(pair);
}

static sigjmp_buf out;

static void leap(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

/* A handler that jumps out of poll; the socket is in a set then. */
static void jumps(void)
{
    int pair[2];
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    signal(SIGALRM, leap);
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(out, 1) != 0) continue;
        ualarm(20000, 0);
        struct pollfd entry = { pair[0], POLLIN, 0 };
        must("poll", poll(&entry, 1, -1) > 1);
    }
    int set = set_of(pair[0]);
    for (int i = 0; i < SLEEPS; i++) {
        put(pair[0], i);
        must("answer", waited(set, pair[0]) == i + 1);
    }
    say("jumps", SLEEPS);
    close(set);
    close(pair[0]);
    ended(child);
}

static void *brief(void *fd)
{
    talk((int)(long)fd, SLEEPS);
    return NULL;
}

/* Threads that end leave no eventfds behind. */
static void leaves(void)
{
    enum { BRIEF = 20, FEW = 4 };
    int pair[2];
    char count[99];
    pthread_t thread;
    warm(pair);
    pid_t child = answers(pair, 1);
    for (int i = 0; i < BRIEF; i++) {
        pthread_create(&thread, NULL, brief, (void *)(long)pair[0]);
        pthread_join(thread, NULL);
    }
    sprintf(count, "test $(ls -l /proc/%d/fd | grep -c eventfd) -lt %d", getpid(), FEW);
    say("few", system(count));
    close(pair[0]);
    ended(child);
}

/* More sets than bells, most of which nobody has rung when they lose theirs. */
static void words(void)
{
    enum { SETS = 40, IDLE = 20, ROUNDS = 20 };
    int pair[SETS][2], set[SETS], go[2], value;
    struct epoll_event event;
    must("pipe", pipe(go) == 0);
    for (int i = 0; i < SETS; i++) warm(pair[i]);
    pid_t writer = fork();
    must("fork", writer >= 0);
    if (writer == 0) {
        must("go", read(go[0], &value, 1) == 1);
        for (int turn = 0; turn < ROUNDS * SETS; turn++) {
            int fd = pair[turn % SETS][1];
            for (int i = 0; i < 5; i++) nap();
            put(fd, turn);
            must("answer", read(fd, &value, sizeof value) == sizeof value && value == turn);
        }
        _exit(0);
    }
    for (int i = 0; i < SETS; i++) {
        set[i] = set_of(pair[i][0]);
        for (int k = 0; k < IDLE; k++) must("idle", epoll_wait(set[i], &event, 1, 1) == 0);
    }
    must("go", write(go[1], "", 1) == 1);
    for (int turn = 0; turn < ROUNDS * SETS; turn++) {
        int fd = pair[turn % SETS][0];
        must("value", waited(set[turn % SETS], fd) == turn);
        put(fd, turn);
    }
    say("words", SETS);
    ended(writer);
}

static void *sleeper(void *fd)
{
    for (int i = 0; i <= SLEEPS; i++) must("value", polled((int)(long)fd) == i);
    return NULL;
}

/* Another thread sleeps in poll while all numbers that may be its bell's are overwritten. */
static void over(void)
{
    int pair[2], spare = open("given", O_RDONLY), done = 0;
    struct rlimit limit;
    pthread_t thread;
    warm(pair);
    getrlimit(RLIMIT_NOFILE, &limit);
    int end = (limit.rlim_cur < 1024 ? limit.rlim_cur : 1024) - 2, begin = end - 100;
    pid_t child = fork();
    must("fork", child >= 0);
    if (child == 0) {
        for (int i = 0; i < SLEEPS; i++) nap(), put(pair[1], i);
        pause();
    }
    pthread_create(&thread, NULL, sleeper, (void *)(long)pair[0]);
    usleep(400000);
    for (int fd = begin; fd < end; fd++) done += dup2(spare, fd) == fd;
    say("dup2", done);
    put(pair[1], SLEEPS);
    pthread_join(thread, NULL);
    for (int fd = begin; fd < end; fd++) {
        char text[16] = "";
        must("pread", pread(fd, text, 10, 0) == 10 && strcmp(text, "0123456789") == 0);
    }
    kill(child, SIGKILL);
    ended(child);
}

/* Lists as long as the limit of open files, and longer. */
static void limits(void)
{
    int pair[2];
    struct rlimit whole, few;
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    getrlimit(RLIMIT_NOFILE, &whole);
    few = whole;
    few.rlim_cur = 3;
    struct pollfd list[4] = { { pair[0], POLLIN, 0 }, { -1 }, { -1 }, { -1 } };
    must("limit", setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int i = 0; i < SLEEPS; i++) {
        int value;
        put(pair[0], i);
        must("poll", poll(list, 3, 20000) == 1);
        must("answer", recv(pair[0], &value, sizeof value, 0) == sizeof value && value == i + 1);
    }
    say("too many", poll(list, 4, 10));
    setrlimit(RLIMIT_NOFILE, &whole);
    talk(pair[0], SLEEPS);
    close(pair[0]);
    ended(child);
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "turns", turns }, { "numbers", numbers }, { "many", many }, { "children", children },
        { "threads", threads }, { "several", several }, { "times", times }, { "ends", ends },
        { "kills", kills }, { "jumps", jumps }, { "words", words }, { "over", over },
        { "limits", limits }, { "leaves", leaves },
    };
    signal(SIGPIPE, SIG_IGN);
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
