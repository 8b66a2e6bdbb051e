/* Reads that wait before nearly every byte, so that the image wakes them by bells of its own. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { SLEEPS = 600, WAYS = 5 };

static void nap(void)
{
    struct timespec t = { 0, 100000 };
    nanosleep(&t, NULL);
}

/* One number, by any of the calls that read. */
static ssize_t taken(int fd, int *value, int call)
{
    struct iovec two[2] = { { value, 1 }, { (char *)value + 1, sizeof *value - 1 } };
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };
    switch (call % WAYS) {
    case 0: return read(fd, value, sizeof *value);
    case 1: return recv(fd, value, sizeof *value, 0);
    case 2: return readv(fd, two, 2);
    case 3: return recvmsg(fd, &message, 0);
    default: return recv(fd, value, sizeof *value, MSG_WAITALL);
    }
}

static int got(int fd, int call)
{
    int value = -1;
    must("read", taken(fd, &value, call) == sizeof value);
    return value;
}

/* Answers until the connection ends; with naps, so that the other side sleeps. */
static pid_t answers(int pair[2], int naps)
{
    pid_t child = fork();
    must("fork", child >= 0);
    if (child > 0) {
        close(pair[1]);
        return child;
    }
    close(pair[0]);
    for (int call = 0, value;; call++) {
        ssize_t length = taken(pair[1], &value, call);
        if (length <= 0) _exit(0);
        must("request", length == sizeof value);
        if (naps) nap();
        put(pair[1], value + 1);
    }
}

/* So often that both sides have bells. */
static void talk(int fd, int times)
{
    for (int i = 0; i < times; i++) {
        put(fd, i);
        must("answer", got(fd, i) == i + 1);
    }
}

/* A pair of which both ends are here, and whose reader has often slept. */
static void trained(int pair[2])
{
    warm(pair);
    pid_t child = fork();
    must("fork", child >= 0);
    if (child == 0) {
        for (int i = 0; i < SLEEPS; i++) {
            int value = got(pair[1], 0);
            nap();
            put(pair[1], value + 1);
        }
        _exit(0);
    }
    talk(pair[0], SLEEPS);
    must("waitpid", waitpid(child, NULL, 0) == child);
}

static void turns(void)
{
    for (int naps = 0; naps < 2; naps++) {
        int pair[2];
        warm(pair);
        pid_t child = answers(pair, naps);
        talk(pair[0], naps ? SLEEPS : 20 * SLEEPS);
        say("turns", naps);
        close(pair[0]);
        ended(child);
    }
}

/* On one core with all that begin here. */
static void on_one_core(void)
{
    cpu_set_t cores;
    must("cores", sched_getaffinity(0, sizeof cores, &cores) == 0);
    int core = 0;
    while (!CPU_ISSET(core, &cores)) core++;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    must("core", sched_setaffinity(0, sizeof cores, &cores) == 0);
}

static void beside(void)
{
    on_one_core();
    turns();
}

static unsigned char stream_byte(long at)
{
    return at * 31 + (at >> 8) + (at >> 16);
}

/* The reader of a flood: all bytes in order, by pieces of other sizes than the writer's. */
static pid_t drinks(int pair[2], int naps)
{
    static unsigned char room[1 << 18];
    pid_t child = fork();
    must("fork", child >= 0);
    if (child > 0) {
        close(pair[1]);
        return child;
    }
    close(pair[0]);
    long at = 0;
    for (int turn = 0;; turn++) {
        ssize_t length = read(pair[1], room, 1 + turn * 7919 % sizeof room);
        if (length == 0) break;
        must("in order", length > 0);
        for (ssize_t i = 0; i < length; i++) must("byte", room[i] == stream_byte(at + i));
        at += length;
        if (naps && turn % 64 == 0) nap();
    }
    must("total", write(pair[1], &at, sizeof at) == sizeof at);
    _exit(0);
}

/* More than there is room for: the writer waits beside its reader, on one core and on any. */
static void floods(void)
{
    enum { BLOCK = 200000, BLOCKS = 150 };
    static unsigned char block[BLOCK];
    for (int how = 0; how < 6; how++) {
        int pair[2];
        long at = 0, total = -1;
        if (how == 3) on_one_core();
        trained(pair);
        pid_t child = drinks(pair, how % 3 == 1);
        if (how % 3 == 2) fcntl(pair[0], F_SETFL, O_NONBLOCK);
        for (int turn = 0; turn < BLOCKS; turn++) {
            size_t size = turn % 3 == 0 ? BLOCK : 1 + turn * 6151L % BLOCK;
            for (size_t i = 0; i < size; i++) block[i] = stream_byte(at + i);
            for (size_t done = 0; done < size;) {
                struct iovec two[2] = { { block + done, 1 },
                                        { block + done + 1, size - done - 1 } };
                ssize_t put = turn % 4 == 1 ? writev(pair[0], two, 2)
                                            : send(pair[0], block + done, size - done, 0);
                must("write", put > 0 || (put < 0 && errno == EAGAIN && how % 3 == 2));
                if (put > 0) done += put;
                if (put < 0) nap();
            }
            at += size;
        }
        shutdown(pair[0], SHUT_WR);
        fcntl(pair[0], F_SETFL, 0);
        must("total", read(pair[0], &total, sizeof total) == sizeof total && total == at);
        say("flood", how);
        close(pair[0]);
        ended(child);
    }
}

/* A reader on the same core, where nobody else runs beside both: it answers first, sleeps for a
   while, then takes all there is. */
static pid_t sleeps_first(int pair[2], int ms)
{
    enum { TURNS = 20000 };
    static char room[1 << 18];
    warm(pair);
    pid_t child = fork();
    must("fork", child >= 0);
    if (child > 0) {
        close(pair[1]);
        talk(pair[0], TURNS);
        return child;
    }
    close(pair[0]);
    for (int i = 0; i < TURNS; i++) put(pair[1], got(pair[1], 0) + 1);
    usleep(ms * 1000);
    long all = 0;
    for (ssize_t length; (length = read(pair[1], room, sizeof room)) > 0;) all += length;
    say("taken", all);
    _exit(0);
}

/* Blocks that leave less room than they need, and more than a little; and some that are larger
   than all that one call has patience for. */
static void blocks(void)
{
    enum { ALL = 1500000, LARGE = 8 << 20 };
    static const int sizes[] = { 9000, 17000, 22000, 28000, 40000, LARGE };
    static char block[LARGE];
    struct sched_param first = { 5 };
    on_one_core();
    sched_setscheduler(0, SCHED_FIFO, &first);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        int pair[2], size = sizes[i / 2];
        pid_t child = sleeps_first(pair, i % 2 * 50);
        for (long at = 0, turn = 0; at == 0 || at + size <= ALL; at += size, turn++) {
            struct iovec two[2] = { { block, 10 }, { block + 10, size - 10 } };
            ssize_t put = turn % 2 ? writev(pair[0], two, 2) : write(pair[0], block, size);
            if (put != size) say("short", put);
        }
        say("blocks", size);
        close(pair[0]);
        ended(child);
    }
}

/* Reads of all there is to come, and looks that take nothing. */
static void wholes(void)
{
    int pair[2], values[3], seen;
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    for (int i = 0; i < SLEEPS; i++) {
        for (int k = 0; k < 3; k++) put(pair[0], i + k);
        must("peek", recv(pair[0], &seen, sizeof seen, MSG_PEEK) == sizeof seen && seen == i + 1);
        must("all", recv(pair[0], values, sizeof values, MSG_WAITALL) == sizeof values);
        must("values", values[0] == i + 1 && values[1] == i + 2 && values[2] == i + 3);
    }
    say("wholes", SLEEPS);
    close(pair[0]);
    ended(child);
}

static volatile sig_atomic_t rung;

static void ring(int signal)
{
    (void)signal;
    rung++;
}

static void on_alarm(int flags)
{
    struct sigaction action = { .sa_handler = ring, .sa_flags = flags };
    must("sigaction", sigaction(SIGALRM, &action, NULL) == 0);
}

static void alarm_in_ms(int ms)
{
    struct itimerval time = { { 0, 0 }, { 0, ms * 1000 } };
    must("setitimer", setitimer(ITIMER_REAL, &time, NULL) == 0);
}

/* A child that writes a number after a while. */
static pid_t late(int pair[2], int ms)
{
    pid_t child = fork();
    must("fork", child >= 0);
    if (child == 0) {
        usleep(ms * 1000);
        put(pair[1], 77);
        _exit(0);
    }
    return child;
}

/* Handlers that restart a read, and those that end it. */
static void signals(void)
{
    int pair[2], value;
    pid_t child;
    trained(pair);
    for (int round = 0; round < 2 * WAYS; round++) {
        int restarts = round % 2;
        on_alarm(restarts ? SA_RESTART : 0);
        rung = 0;
        child = restarts ? late(pair, 150) : 0;
        alarm_in_ms(40);
        say(restarts ? "restarts" : "ends", taken(pair[0], &value, round / 2));
        say("rung", rung);
        if (restarts) ended(child);
    }
    on_alarm(SA_RESTART);
    for (int i = 0; i < 40; i++) {
        struct itimerval often = { { 0, 700 }, { 0, 700 } };
        setitimer(ITIMER_REAL, &often, NULL);
        child = late(pair, 3);
        must("beside signals", got(pair[0], i) == 77);
        setitimer(ITIMER_REAL, &(struct itimerval) { 0 }, NULL);
        must("waitpid", waitpid(child, NULL, 0) == child);
    }
    done(pair);
}

/* A limit of time, and a socket that is not to wait any more. */
static void limits(void)
{
    static const long spans_us[] = { 400, 30000, 120000 };
    int pair[2], value;
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    for (int i = 0; i < 3; i++) {
        struct timeval span = { 0, spans_us[i] };
        must("limit", setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span) == 0);
        long start = now_ms();
        say("limited", taken(pair[0], &value, i));
        must("not early", now_ms() - start >= spans_us[i] / 1000 - 5);
        /* The answers come within some limit, however busy the machine is. */
        struct timeval ample = { 20, 0 };
        must("limit", setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &ample, sizeof ample) == 0);
        talk(pair[0], 20);
    }
    struct timeval none = { 0, 0 };
    must("limit", setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    talk(pair[0], SLEEPS);
    say("at once", recv(pair[0], &value, sizeof value, MSG_DONTWAIT));
    must("fcntl", fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    say("does not wait", taken(pair[0], &value, 0));
    must("fcntl", fcntl(pair[0], F_SETFL, 0) == 0);
    talk(pair[0], SLEEPS);
    close(pair[0]);
    ended(child);
}

/* Ends: of a side that is closed, shut, reset or killed while the other one sleeps. */
static void ends(void)
{
    for (int how = 0; how < 5; how++) {
        int pair[2], value;
        warm(pair);
        pid_t child = fork();
        must("fork", child >= 0);
        if (child == 0) {
            close(pair[0]);
            for (int i = 0; i < SLEEPS; i++) {
                value = got(pair[1], i);
                if (i % 4 == 0) nap();
                put(pair[1], value + 1);
            }
            usleep(20000);
            if (how == 1) shutdown(pair[1], SHUT_WR);
            if (how == 2) kill(getpid(), SIGKILL);
            if (how == 3) put(pair[1], 5);
            if (how == 4 && way[0] == 't') {
                struct linger none = { 1, 0 };
                setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &none, sizeof none);
            }
            if (how != 1) _exit(0);
            while (read(pair[1], &value, sizeof value) > 0) continue;
            _exit(0);
        }
        close(pair[1]);
        talk(pair[0], SLEEPS);
        for (int i = 0; i < 3; i++) say("read", taken(pair[0], &value, 0));
        close(pair[0]);
        ended(child);
    }
}

static int shared[2];
static long sum;

static void *reader(void *unused)
{
    (void)unused;
    for (;;) {
        int value = got(shared[0], 0);
        if (value < 0) return NULL;
        __atomic_add_fetch(&sum, value, __ATOMIC_SEQ_CST);
    }
}

/* Several threads read from one socket: each number comes to one of them. */
static void readers(void)
{
    enum { MANY = 3 };
    pthread_t thread[MANY];
    trained(shared);
    for (int i = 0; i < MANY; i++) pthread_create(&thread[i], NULL, reader, NULL);
    for (int i = 1; i <= SLEEPS; i++) {
        put(shared[1], i);
        if (i % 3 != 0) nap();
    }
    for (int i = 0; i < MANY; i++) put(shared[1], -1);
    for (int i = 0; i < MANY; i++) pthread_join(thread[i], NULL);
    say("sum", sum);
    done(shared);
}

/* A writer that is killed over and over: whole numbers, and no sleep beside one. */
static void kills(void)
{
    int pair[2], value, all = 0;
    struct timeval span = { 0, 60000 }, none = { 0, 0 };
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
        for (int i = 0; i < 200 + round * 7; i++) all += got(pair[0], 0) >= 0;
        kill(writer, SIGKILL);
        waitpid(writer, NULL, 0);
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span);
        while (read(pair[0], &value, sizeof value) > 0) continue;
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    }
    say("kills", all > 0);
    done(pair);
}

/* A reader that is killed while it sleeps leaves the connection to the next one. */
static void heirs(void)
{
    int pair[2];
    warm(pair);
    for (int round = 0; round < 10; round++) {
        pid_t reader = fork();
        must("fork", reader >= 0);
        if (reader == 0) {
            for (;;) put(pair[0], got(pair[0], 0) + 1);
        }
        for (int i = 0; i < SLEEPS; i++) {
            put(pair[1], i);
            must("answer", got(pair[1], 0) == i + 1);
        }
        kill(reader, SIGKILL);
        ended(reader);
        put(pair[1], round);
        must("own", got(pair[0], 0) == round);
    }
    done(pair);
}

static sigjmp_buf out;

static void leap(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

/* A handler that jumps out of a read, and one that reads elsewhere meanwhile. */
static int elsewhere[2];

static void reads(int signal)
{
    (void)signal;
    pid_t child = late(elsewhere, 20);
    must("elsewhere", got(elsewhere[0], 0) == 77);
    must("waitpid", waitpid(child, NULL, 0) == child);
    rung++;
}

static void speaks(int signal)
{
    (void)signal;
    put(elsewhere[0], rung);
    must("elsewhere", got(elsewhere[0], 0) == rung + 1);
    rung++;
}

/* A handler that runs just before a read sleeps, and sleeps in one itself, meanwhile or after. */
static void asides(void)
{
    enum { TURNS = 10000, FIRST_US = 20, MORE_US = 230 };
    int pair[2];
    warm(pair);
    pid_t first = answers(pair, 1);
    warm(elsewhere);
    pid_t second = answers(elsewhere, 1);
    talk(pair[0], SLEEPS);
    talk(elsewhere[0], SLEEPS);
    struct sigaction action = { .sa_handler = speaks, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < TURNS; i++) {
        struct itimerval once = { { 0, 0 }, { 0, FIRST_US + i % MORE_US } };
        setitimer(ITIMER_REAL, &once, NULL);
        put(pair[0], i);
        must("answer", got(pair[0], i) == i + 1);
    }
    setitimer(ITIMER_REAL, &(struct itimerval) { 0 }, NULL);
    say("asides", rung > 0);
    close(elsewhere[0]);
    ended(second);
    close(pair[0]);
    ended(first);
}

static void jumps(void)
{
    int pair[2], value;
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    signal(SIGALRM, leap);
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(out, 1) != 0) continue;
        alarm_in_ms(20);
        must("read", taken(pair[0], &value, i) > 99);
    }
    talk(pair[0], SLEEPS);
    close(pair[0]);
    ended(child);
    trained(pair);
    trained(elsewhere);
    struct sigaction action = { .sa_handler = reads, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < WAYS; i++) {
        alarm_in_ms(20);
        child = late(pair, 150);
        must("both", got(pair[0], i) == 77);
        must("waitpid", waitpid(child, NULL, 0) == child);
    }
    say("elsewhere", rung);
    done(pair);
}

/* A reader that is stopped for a while, and a writer. */
static void stops(void)
{
    int pair[2];
    warm(pair);
    pid_t child = answers(pair, 1);
    talk(pair[0], SLEEPS);
    for (int i = 0; i < 5; i++) {
        kill(child, SIGSTOP);
        put(pair[0], i);
        usleep(20000);
        kill(child, SIGCONT);
        must("answer", got(pair[0], i) == i + 1);
        usleep(5000);
        kill(child, SIGSTOP);
        kill(child, SIGCONT);
        talk(pair[0], 20);
    }
    say("stops", 5);
    close(pair[0]);
    ended(child);
}

/* Bytes of somebody outside, who has the other end for a while. */
static void strangers(void)
{
    int pair[2];
    trained(pair);
    for (int i = 0; i < 20; i++) {
        pid_t writer = fork();
        must("fork", writer >= 0);
        if (writer == 0) {
            dup2(pair[1], 1);
            nap();
            execl("/bin/echo", "echo", "abc", (char *)NULL);
            _exit(1);
        }
        must("abc", got(pair[0], i) == 0x0a636261);
        must("waitpid", waitpid(writer, NULL, 0) == writer);
    }
    say("strangers", 20);
    done(pair);
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "turns", turns }, { "beside", beside }, { "floods", floods }, { "wholes", wholes },
        { "blocks", blocks }, { "signals", signals }, { "limits", limits }, { "asides", asides },
        { "ends", ends }, { "readers", readers }, { "kills", kills }, { "heirs", heirs },
        { "jumps", jumps }, { "stops", stops }, { "strangers", strangers },
    };
    signal(SIGPIPE, SIG_IGN);
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
