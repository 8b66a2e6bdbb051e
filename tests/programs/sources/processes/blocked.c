/* Every call that sleeps, under a timer of 200 us, with SA_RESTART and without: who ends with EINTR
 * and who goes on is printed, and that what it waited for comes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
#define PERIOD_US 200
#define PAUSE_MS 25
#define TRIES 20

static volatile sig_atomic_t hits;
static void hit(int s) { (void)s; hits++; }
static void timer(int us) {
    struct itimerval t = { { 0, us }, { 0, us } };
    NEED(setitimer(ITIMER_REAL, &t, NULL) == 0);
}
static void wait_ms(long ms) {
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&t, &t) < 0) ;
}

static int a[2], b[2], file, listener, watch, event, tick, set, queue, sems, *word;
static pid_t child;
static char bytes[70000];

/* What is waited for, and who makes it come (a child, a moment later). */
static long read_pipe(void) { return read(a[0], bytes, 1); }
static long readv_pipe(void) {
    return syscall(SYS_readv, a[0], (struct { void *p; long n; }[]) { { bytes, 1 } }, 1);
}
static void fill_pipe(void) { NEED(write(a[1], "x", 1) == 1); }
static long write_pipe(void) { return write(b[1], bytes, 65536); }
static void empty_pipe(void) {
    for (long n = 0; n < 65536;) { long r = read(b[0], bytes, 65536); NEED(r > 0); n += r; }
}
static long splice_pipe(void) {
    loff_t at = 0;
    return syscall(SYS_splice, a[0], NULL, file, &at, 1, 0);
}
static long open_fifo(void) {
    int fd = open("fifo", O_RDONLY);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 1;
}
static void feed_fifo(void) { NEED(open("fifo", O_RDWR) >= 0); wait_ms(100); }
static long record_lock(void) {
    struct flock l = { F_WRLCK, SEEK_SET, 0, 9, 0 };
    long r = fcntl(file, F_SETLKW, &l);
    l.l_type = F_UNLCK;
    fcntl(file, F_SETLK, &l);
    return r;
}
static void hold_record(void) {
    struct flock l = { F_WRLCK, SEEK_SET, 0, 9, 0 };
    NEED(fcntl(file, F_SETLK, &l) == 0);
}
static long owned_lock(void) {
    int fd = open("file", O_RDWR);
    struct flock l = { F_WRLCK, SEEK_SET, 20, 9, 0 };
    long r = fcntl(fd, F_OFD_SETLKW, &l);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static void hold_owned(void) {
    int fd = open("file", O_RDWR);
    struct flock l = { F_WRLCK, SEEK_SET, 20, 9, 0 };
    NEED(fcntl(fd, F_OFD_SETLK, &l) == 0);
}
static long whole_lock(void) {
    int fd = open("file", O_RDWR);
    long r = flock(fd, LOCK_EX);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static void hold_whole(void) { NEED(flock(open("file", O_RDWR), LOCK_EX) == 0); }
/* One that is begun again after a signal may find the word changed, and need not wait. */
static long woken(long result) { return result < 0 && errno == EAGAIN ? 0 : result; }
static long wait_futex(void) {
    return woken(syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0));
}
static void wake_futex(void) { *word = 1; syscall(SYS_futex, word, FUTEX_WAKE, 9, NULL, NULL, 0); }
static long wait_futex_timed(void) {
    struct timespec t = { 9, 0 };
    return woken(syscall(SYS_futex, word, FUTEX_WAIT, 0, &t, NULL, 0));
}
static long receive(void) { return recv(a[0], bytes, 1, 0); }
static long receive_message(void) {
    struct iovec v = { bytes, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    return recvmsg(a[0], &m, 0);
}
static long send_much(void) { return send(b[1], bytes, 4096, 0); }
static void receive_all(void) { char c[4096]; while (recv(b[0], c, sizeof c, MSG_DONTWAIT) > 0) ; }
static long accept_one(void) {
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 1;
}
static void connect_one(void) {
    struct sockaddr_un n = { AF_UNIX, "socket" };
    NEED(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&n, sizeof n) == 0);
}
static long poll_pipe(void) { struct pollfd p = { a[0], POLLIN, 0 }; return poll(&p, 1, -1); }
static long ppoll_pipe(void) {
    struct pollfd p = { a[0], POLLIN, 0 };
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&p, 1, NULL, &none);
}
static long select_pipe(void) {
    fd_set s;
    FD_ZERO(&s);
    FD_SET(a[0], &s);
    return select(a[0] + 1, &s, NULL, NULL, NULL);
}
static long pselect_pipe(void) {
    fd_set s;
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&s);
    FD_SET(a[0], &s);
    return pselect(a[0] + 1, &s, NULL, NULL, NULL, &none);
}
static long epoll_pipe(void) { struct epoll_event e; return epoll_wait(set, &e, 1, -1); }
static long wait_child(void) { return waitpid(child, NULL, 0) == child ? 1 : -1; }
static long wait_child_id(void) { siginfo_t i; return waitid(P_PID, child, &i, WEXITED); }
static long sleep_on(void) {
    struct timespec t = { 0, PAUSE_MS * 1000000 };
    return nanosleep(&t, NULL);
}
static long sleep_clock(void) {
    struct timespec t = { 0, PAUSE_MS * 1000000 };
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) ? -1 : 0;
}
static long sleep_until(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec++;
    int e = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    errno = e;
    return e ? -1 : 0;
}
static long wait_signal(void) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    struct timespec t = { 9, 0 };
    return sigtimedwait(&s, NULL, &t);
}
static long wait_any(void) { return pause(); }
static long suspend(void) { sigset_t none; sigemptyset(&none); return sigsuspend(&none); }
static long read_event(void) { long n; return read(event, &n, 8); }
static void tell_event(void) { long n = 1; NEED(write(event, &n, 8) == 8); }
static long read_timer(void) {
    long n;
    struct itimerspec t = { { 0, 0 }, { 0, PAUSE_MS * 1000000 } };
    timerfd_settime(tick, 0, &t, NULL);
    return read(tick, &n, 8);
}
static long read_watch(void) { return read(watch, bytes, sizeof bytes) > 0 ? 1 : -1; }
static void make_change(void) {
    close(open("directory/new", O_CREAT | O_RDWR, 0600));
    unlink("directory/new");
}
static long receive_queue(void) { struct { long t; char c; } m; return msgrcv(queue, &m, 1, 0, 0); }
static void send_queue(void) {
    struct { long t; char c; } m = { 1, 'x' };
    NEED(msgsnd(queue, &m, 1, 0) == 0);
}
static long take_semaphore(void) { struct sembuf o = { 0, -1, 0 }; return semop(sems, &o, 1); }
static void give_semaphore(void) { struct sembuf o = { 0, 1, 0 }; NEED(semop(sems, &o, 1) == 0); }

static const struct { const char *name; long (*call)(void); void (*before)(void),
    (*after)(void); } calls[] = {
    { "read of a pipe", read_pipe, NULL, fill_pipe }, { "readv of a pipe", readv_pipe, NULL,
        fill_pipe },
    { "write to a full pipe", write_pipe, NULL, empty_pipe }, { "splice", splice_pipe, NULL,
        fill_pipe },
    { "open of a FIFO", open_fifo, NULL, feed_fifo }, { "F_SETLKW", record_lock, hold_record,
        NULL },
    { "F_OFD_SETLKW", owned_lock, hold_owned, NULL }, { "flock", whole_lock, hold_whole, NULL },
    { "futex", wait_futex, NULL, wake_futex }, { "futex, timed", wait_futex_timed, NULL,
        wake_futex },
    { "poll", poll_pipe, NULL, fill_pipe }, { "ppoll", ppoll_pipe, NULL, fill_pipe },
    { "select", select_pipe, NULL, fill_pipe }, { "pselect", pselect_pipe, NULL, fill_pipe },
    { "epoll_wait", epoll_pipe, NULL, fill_pipe }, { "waitpid", wait_child, NULL, NULL },
    { "waitid", wait_child_id, NULL, NULL }, { "nanosleep", sleep_on, NULL, NULL },
    { "clock_nanosleep", sleep_clock, NULL, NULL }, { "clock_nanosleep, absolute", sleep_until,
        NULL, NULL },
    { "sigtimedwait", wait_signal, NULL, NULL }, { "pause", wait_any, NULL, NULL },
    { "sigsuspend", suspend, NULL, NULL }, { "read of an eventfd", read_event, NULL, tell_event },
    { "read of a timerfd", read_timer, NULL, NULL }, { "read of an inotify", read_watch, NULL,
        make_change },
    { "accept", accept_one, NULL, connect_one }, { "msgrcv", receive_queue, NULL, send_queue },
    { "semop", take_semaphore, NULL, give_semaphore },
    { "recv", receive, NULL, fill_pipe }, { "recvmsg", receive_message, NULL, fill_pipe },
    { "send", send_much, NULL, receive_all },
};

static void fresh(int sockets) {
    for (int n = 0; n < 2; n++) close(a[n]), close(b[n]);
    if (sockets) {
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0,
            b) == 0);
        while (send(b[1], bytes, 4096, MSG_DONTWAIT) > 0) ;
    } else {
        NEED(pipe(a) == 0 && pipe(b) == 0 && fcntl(b[1], F_SETPIPE_SZ, 65536) > 0);
        NEED(write(b[1], bytes, 65536) == 65536);
    }
    close(set);
    struct epoll_event e = { EPOLLIN, { 0 } };
    set = epoll_create1(0);
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, a[0], &e) == 0);
    *word = 0;
    fcntl(event, F_SETFL, O_NONBLOCK), read(event, bytes, 8), fcntl(event, F_SETFL, 0);
    fcntl(watch, F_SETFL, O_NONBLOCK), read(watch, bytes, sizeof bytes), fcntl(watch, F_SETFL, 0);
    fcntl(listener, F_SETFL, O_NONBLOCK), accept(listener, NULL, NULL), fcntl(listener, F_SETFL, 0);
    struct sembuf take = { 0, -1, IPC_NOWAIT };
    semop(sems, &take, 1), msgrcv(queue, bytes, 1, 0, IPC_NOWAIT);
}

/* Whether a signal came before it was over: who gets no processor may come too late to sleep. */
static int tried(int which, int flags, int last) {
    int ready[2];
    char c;
    NEED(pipe(ready) == 0);
    fresh(strncmp(calls[which].name, "recv", 4) == 0 || strcmp(calls[which].name, "send") == 0);
    NEED((child = fork()) >= 0);
    if (child == 0) {
        if (calls[which].before) calls[which].before();
        NEED(write(ready[1], "r", 1) == 1);
        wait_ms(PAUSE_MS);
        if (calls[which].after) calls[which].after();
        _exit(0);
    }
    NEED(read(ready[0], &c, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
    struct sigaction act = { .sa_handler = hit, .sa_flags = flags };
    NEED(sigaction(SIGALRM, &act, NULL) == 0);
    hits = 0, errno = 0;
    timer(PERIOD_US);
    long result = calls[which].call();
    int why = errno;
    timer(0);
    if (hits || last)
        printf("%s, %s: %ld%s%s%s\n", calls[which].name, flags ? "restarts" : "ends", result,
               result < 0 ? " " : "", result < 0 ? strerrorname_np(why) : "",
               hits ? "" : ", no signal");
    fflush(stdout);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) ;
    return hits;
}
static void one(int which, int flags) {
    for (int n = 1; n <= TRIES && !tried(which, flags, n == TRIES); n++) ;
}

int main(void) {
    file = open("file", O_CREAT | O_RDWR, 0644);
    int shared = open("word", O_CREAT | O_RDWR, 0644);
    NEED(file >= 0 && shared >= 0 && ftruncate(shared, 4096) == 0);
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    NEED(word != MAP_FAILED && mkfifo("fifo", 0600) == 0 && mkdir("directory", 0700) == 0);
    struct sockaddr_un n = { AF_UNIX, "socket" };
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(bind(listener, (void *)&n, sizeof n) == 0 && listen(listener, 5) == 0);
    watch = inotify_init(), event = eventfd(0, 0), tick = timerfd_create(CLOCK_MONOTONIC, 0);
    NEED(inotify_add_watch(watch, "directory", IN_CREATE) > 0 && event >= 0 && tick >= 0);
    queue = msgget(IPC_PRIVATE, 0600), sems = semget(IPC_PRIVATE, 1, 0600);
    a[0] = a[1] = b[0] = b[1] = set = -1;
    for (unsigned which = 0; which < sizeof calls / sizeof *calls; which++)
        one(which, 0), one(which, SA_RESTART);
    msgctl(queue, IPC_RMID, NULL), semctl(sems, 0, IPC_RMID);
    unlink("file"), unlink("word"), unlink("fifo"), unlink("socket"), rmdir("directory");
    return 0;
}
