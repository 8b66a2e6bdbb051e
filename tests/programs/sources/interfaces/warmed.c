/* Connections whose bytes may be in rings, and what somebody else does to them: another thread,
   another process, one that becomes somebody else, and calls that move bytes without a buffer.
   What a call returns is printed; Linux and Husk must print the same. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

enum { PATIENCE_MS = 20000, SLEEPS = 80, MOVED = 150000 };

static int tcp(void) { return way[0] == 't'; }

/* What is there by now, or comes within a while: for reads that must not wait for good. */
static long taken(int fd, void *to, size_t most)
{
    struct pollfd entry = { fd, POLLIN, 0 };
    must("comes", poll(&entry, 1, PATIENCE_MS) == 1);
    return recv(fd, to, most, MSG_DONTWAIT);
}

/* Bytes that come in one piece or several. */
static void shows(const char *what, int fd, long count)
{
    char bytes[64] = "";
    long at = 0, got = 1;
    while (at < count && (got = taken(fd, bytes + at, count - at)) > 0) at += got;
    say(what, got < 0 ? got : at);
    printf("%s\n", bytes);
}

/* ---- what sleeps on one end, in a thread of its own ---- */

static struct sleeper {
    int fd, set, how, out, error;
    sem_t awake;
    long result;
} sleeper;

enum { READS, POLLS, SETS, WRITES, HOWS };

static void *sleeps(void *unused)
{
    static char much[1 << 16];
    struct epoll_event event;
    char byte;
    (void)unused;
    for (int i = 0; i <= SLEEPS; i++) {
        struct pollfd entry = { sleeper.fd, POLLIN, 0 };
        switch (sleeper.how) {
        case READS: sleeper.result = read(sleeper.fd, &byte, 1); break;
        case POLLS: sleeper.result = poll(&entry, 1, PATIENCE_MS); break;
        case SETS: sleeper.result = epoll_wait(sleeper.set, &event, 1, PATIENCE_MS); break;
        default: while ((sleeper.result = write(sleeper.fd, much, sizeof much)) == sizeof much) {}
        }
        sleeper.error = errno;
        sleeper.out = sleeper.how == POLLS ? entry.revents : 0;
        if (i == SLEEPS || sleeper.how == WRITES) break;
        must("woken", sleeper.result == 1);
        if (sleeper.how != READS) must("taken", taken(sleeper.fd, &byte, 1) == 1);
        must("awake", sem_post(&sleeper.awake) == 0);
    }
    return NULL;
}

/* A thread that sleeps on `fd` so, after it has done so often and was woken by the other end. */
static pthread_t asleep(int fd, int other, int how)
{
    pthread_t thread;
    sleeper = (struct sleeper){ .fd = fd, .how = how, .set = epoll_create1(EPOLL_CLOEXEC) };
    struct epoll_event event = { EPOLLIN | EPOLLRDHUP, { .u64 = 7 } };
    if (how == SETS) must("add", epoll_ctl(sleeper.set, EPOLL_CTL_ADD, fd, &event) == 0);
    must("awake", sem_init(&sleeper.awake, 0, 0) == 0);
    must("thread", pthread_create(&thread, NULL, sleeps, NULL) == 0);
    for (int i = 0; i < SLEEPS && how != WRITES; i++) {
        usleep(500);
        must("wake", write(other, "w", 1) == 1 && sem_wait(&sleeper.awake) == 0);
    }
    usleep(20000);
    return thread;
}

static void wakes(const char *what, pthread_t thread)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    must("it ends", pthread_timedjoin_np(thread, NULL, &until) == 0);
    errno = sleeper.error;
    if (sleeper.how == WRITES) say(what, sleeper.result < 1 << 16); /* a part, or none */
    else say(what, sleeper.result);
    if (sleeper.out) printf("told %x\n", sleeper.out);
    close(sleeper.set);
}

/* The number goes while another thread sleeps on it: the sleep goes on, as does the connection,
   until the other side does something. Of reads: docs/caveats.md. */
static void closes(void)
{
    signal(SIGPIPE, SIG_IGN);
    int pair[2];
    char byte;
    warm(pair);
    pthread_t thread = asleep(pair[1], pair[0], POLLS);
    say("close", close(pair[1]));
    say("read", read(pair[1], &byte, 1));
    say("write", write(pair[0], "late", 4));
    wakes("sleeper", thread);
    close(pair[0]);
    /* One of two numbers: nothing ends. */
    for (int how = POLLS; how < WRITES; how++) {
        warm(pair);
        int second = dup(pair[1]);
        printf("-- one of two in %d\n", how);
        thread = asleep(pair[1], pair[0], how);
        say("close", close(pair[1]));
        say("write", write(pair[0], "late", 4));
        wakes("sleeper", thread);
        shows("by the other", second, 4);
        say("back", write(second, "back", 4));
        shows("back", pair[0], 4);
        close(second);
        close(pair[0]);
    }
}

/* Another process shuts a side down, while this one sleeps on it or on the other side. */
static void shuts(void)
{
    static const int kinds[] = { SHUT_RD, SHUT_WR, SHUT_RDWR };
    signal(SIGPIPE, SIG_IGN);
    for (int at = 0; at < 2; at++)
        for (int kind = 0; kind < 3; kind++)
            for (int how = 0; how < HOWS; how++) {
                int pair[2], go[2];
                char byte;
                /* Who writes is not woken by the end of reading alone. TCP has no notice of
                   SHUT_RD at the other end. */
                if (at == 0 && kinds[kind] == SHUT_RD) continue;
                if (how == WRITES && (at == 0 || kinds[kind] == SHUT_RD)) continue;
                warm(pair);
                must("pipe", pipe(go) == 0);
                pid_t child = fork();
                if (child == 0) {
                    close(go[1]);
                    must("go", read(go[0], &byte, 1) == 1);
                    _exit(shutdown(pair[at], kinds[kind]) == 0 ? 0 : errno);
                }
                printf("-- side %d, %d, in %d\n", at, kinds[kind], how);
                pthread_t thread = asleep(pair[1], pair[0], how);
                must("go", write(go[1], "g", 1) == 1);
                ended(child);
                /* That one writes no more wakes nobody who reads there. */
                if (at == 1 && kinds[kind] == SHUT_WR && how != WRITES)
                    must("late", write(pair[0], "l", 1) == 1);
                wakes("sleeper", thread);
                if (how != WRITES) {
                    say("read", recv(pair[1], &byte, 1, MSG_DONTWAIT));
                    say("write", send(pair[1], "x", 1, MSG_DONTWAIT));
                    usleep(2000);
                    say("the other's", send(pair[0], "y", 1, MSG_DONTWAIT));
                }
                done(pair);
                done(go);
            }
}

/* ---- bytes that move without a buffer ---- */

static void fill(char *bytes, long from, long count)
{
    for (long i = 0; i < count; i++) bytes[i] = (from + i) % 251;
}

static long wrong_in(const char *bytes, long from, long count)
{
    long wrong = 0;
    for (long i = 0; i < count; i++) wrong += (unsigned char)bytes[i] != (from + i) % 251;
    return wrong;
}

/* Into one and out of one, behind bytes in the ring and before others. */
static void splices(void)
{
    static char bytes[MOVED];
    int pair[2], line[2];
    for (int out = 0; out < 2; out++) {
        warm(pair);
        must("pipe", pipe(line) == 0);
        fill(bytes, 0, 300);
        must("ahead", write(pair[0], bytes, 100) == 100);
        if (!out) {
            must("in the pipe", write(line[1], bytes + 100, 100) == 100);
            say("into", splice(line[0], NULL, pair[0], NULL, 100, 0));
            must("behind", write(pair[0], bytes + 200, 100) == 100);
        } else {
            say("a part", splice(pair[1], NULL, line[1], NULL, 40, 0));
            must("behind", write(pair[0], bytes + 100, 200) == 200);
            say("another part", splice(pair[1], NULL, line[1], NULL, 60, 0));
            memset(bytes, 0, 100);
            say("in the pipe", read(line[0], bytes, 300));
            say("wrong", wrong_in(bytes, 0, 100));
        }
        long came = out ? 100 : 0, wrong = 0;
        while (came < 300) {
            long got = taken(pair[1], bytes, sizeof bytes);
            must("read", got > 0);
            wrong += wrong_in(bytes, came, got);
            came += got;
        }
        say("wrong", wrong);
        say("empty", recv(pair[1], bytes, 1, MSG_DONTWAIT));
        must("flags", fcntl(pair[1], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
        say("nothing", splice(pair[1], NULL, line[1], NULL, 10, SPLICE_F_NONBLOCK));
        must("flags", fcntl(pair[1], F_SETFL, O_RDWR) == 0);
        must("back", write(pair[1], "back", 4) == 4);
        shows("back", pair[0], 4);
        say("half", shutdown(pair[0], SHUT_WR));
        say("end", splice(pair[1], NULL, line[1], NULL, 10, 0));
        done(line);
        done(pair);
    }
}

/* A relay between two connections, as of a proxy: socket, pipe, socket; all bytes, in order. */
static void relays(void)
{
    static char bytes[7000];
    int in[2], out[2], line[2];
    warm(in);
    warm(out);
    must("pipe", pipe(line) == 0);
    pid_t writer = fork();
    if (writer == 0) {
        for (long at = 0; at < MOVED; ) {
            long count = MOVED - at < 3000 ? MOVED - at : 3000;
            fill(bytes, at, count);
            must("write", write(in[0], bytes, count) == count);
            at += count;
        }
        _exit(0);
    }
    close(in[0]);
    pid_t relay = fork();
    if (relay == 0) {
        long got;
        close(out[1]);
        while ((got = splice(in[1], NULL, line[1], NULL, 10000, SPLICE_F_MOVE)) > 0)
            while (got > 0) {
                long put = splice(line[0], NULL, out[0], NULL, got, SPLICE_F_MOVE);
                must("put", put > 0);
                got -= put;
            }
        must("relay", got == 0);
        _exit(0);
    }
    close(in[1]);
    close(out[0]);
    long came = 0, wrong = 0, got;
    while ((got = taken(out[1], bytes, sizeof bytes)) > 0) {
        wrong += wrong_in(bytes, came, got);
        came += got;
    }
    say("end", got);
    say("came", came);
    say("wrong", wrong);
    ended(writer);
    ended(relay);
    close(out[1]);
    done(line);
}

/* Out of a connection by sendfile is refused and takes nothing; tee and vmsplice likewise. */
static void refused(void)
{
    int pair[2], line[2], file = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;
    warm(pair);
    must("pipe", pipe(line) == 0 && file >= 0);
    must("write", write(pair[0], "bytes", 5) == 5);
    say("sendfile out", sendfile(file, pair[1], NULL, 5));
    say("sendfile out, from", sendfile(file, pair[1], &at, 5));
    say("sendfile across", sendfile(pair[1], pair[1], NULL, 5));
    say("copy out", copy_file_range(pair[1], NULL, file, NULL, 5, 0));
    say("tee out", tee(pair[1], line[1], 5, 0));
    must("pipe", write(line[1], "piped", 5) == 5);
    say("tee in", tee(line[0], pair[0], 5, 0));
    say("splice, from", splice(pair[1], &at, line[1], NULL, 5, 0));
    say("seek", lseek(pair[1], 0, SEEK_CUR));
    say("pread", pread(pair[1], &at, 1, 0));
    say("pwrite", pwrite(pair[0], "x", 1, 0));
    say("size", ftruncate(pair[1], 0));
    say("sync", fsync(pair[1]));
    shows("still there", pair[1], 5);
    say("empty", recv(pair[1], &at, 1, MSG_DONTWAIT));
    must("write", write(file, "of a file", 9) == 9);
    at = 3;
    say("sendfile in", sendfile(pair[0], file, &at, 100));
    shows("of the file", pair[1], 6);
    close(file);
    unlink("copy");
    done(line);
    done(pair);
}

/* ---- another process takes one, or the peer becomes somebody else ---- */

/* A child that takes this process's ends by pidfd_getfd, with bytes unread on both ways. */
static void steals(void)
{
    for (int side = 0; side < 2; side++) {
        int pair[2], go[2];
        char byte;
        warm(pair);
        must("pipe", pipe(go) == 0);
        must("unread", write(pair[0], "first", 5) == 5 && write(pair[1], "other", 5) == 5);
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            done(pair);
            close(go[1]);
            must("go", read(go[0], &byte, 1) == 1);
            int process = syscall(SYS_pidfd_open, parent, 0);
            must("process", process >= 0);
            int end = syscall(SYS_pidfd_getfd, process, pair[side], 0);
            must("taken", end >= 0);
            shows("child", end, 5);
            must("write", write(end, "of the child", 12) == 12);
            _exit(0);
        }
        must("go", write(go[1], "g", 1) == 1);
        ended(child);
        shows("parent", pair[1 - side], 17);
        must("write", write(pair[1 - side], "second", 6) == 6);
        shows("parent's own", pair[side], 6);
        done(go);
        done(pair);
    }
}

/* A set-user-ID program, which the image does not serve, gets an end with bytes unread on both
   ways; it takes some, and answers; the rest is there for who has the other numbers. */
static void natives(void)
{
    for (int side = 0; side < 2; side++) {
        int pair[2];
        char byte;
        warm(pair);
        must("unread", write(pair[0], "seventy", 7) == 7 && write(pair[1], "others", 6) == 6);
        must("unread", write(pair[0], " and more", 9) == 9);
        pid_t child = fork();
        if (child == 0) {
            dup2(pair[1 - side], 0);
            dup2(pair[1 - side], 1);
            done(pair);
            execlp("su", "su", "root", "-s", "/bin/sh", "-c",
                   "head -c 5 >&2; echo >&2; printf native", NULL);
            _exit(127);
        }
        ended(child);
        shows("here", pair[1], side ? 22 : 11);
        shows("there", pair[0], side ? 1 : 12);
        must("write", write(pair[0], "behind", 6) == 6 && write(pair[1], "it", 2) == 2);
        shows("here", pair[1], 6);
        shows("there", pair[0], 2);
        say("empty", recv(pair[0], &byte, 1, MSG_DONTWAIT));
        done(pair);
    }
}

enum { NEW_USER, NEW_NET, NEW_ALL, OTHER_UID, DROPPED, HIDDEN, CHANGES };

static void becomes(int how)
{
    switch (how) {
    case NEW_USER: must("user", unshare(CLONE_NEWUSER) == 0); break;
    case NEW_NET: must("net", unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0); break;
    case NEW_ALL: must("all", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC) == 0); break;
    case OTHER_UID: if (getuid() == 0) must("uid", setuid(12345) == 0); break;
    case DROPPED: if (getuid() == 0) must("uid", seteuid(12345) == 0 && seteuid(0) == 0); break;
    default: must("hidden", syscall(SYS_prctl, 4, 0, 0, 0, 0) == 0);
    }
}

/* The peer changes with bytes unread on both ways; who reads first differs. */
static void changed(void)
{
    for (int how = 0; how < CHANGES; how++)
        for (int reads = 0; reads < 2; reads++) {
            int pair[2], go[2];
            char byte;
            printf("-- change %d\n", how);
            fflush(stdout);
            warm(pair);
            must("pipe", pipe(go) == 0);
            must("unread", write(pair[0], "mine", 4) == 4 && write(pair[1], "yours", 5) == 5);
            pid_t child = fork();
            if (child == 0) {
                close(pair[0]);
                close(go[0]);
                becomes(how);
                must("write", write(pair[1], " and more", 9) == 9);
                if (!reads) must("changed", write(go[1], "c", 1) == 1);
                must("read", taken(pair[1], &byte, 1) == 1);
                if (reads) must("changed", write(go[1], "c", 1) == 1);
                printf("child %c\n", byte);
                shows("child", pair[1], 3);
                for (int i = 0; i < WARM; i++)
                    must("turn", taken(pair[1], &byte, 1) == 1 && write(pair[1], &byte, 1) == 1);
                shows("child's last", pair[1], 4);
                _exit(0);
            }
            close(pair[1]);
            close(go[1]);
            must("changed", read(go[0], &byte, 1) == 1);
            char all[15] = "";
            for (int at = 0; at < 14; ) {
                long got = taken(pair[0], all + at, 14 - at);
                must("all", got > 0);
                at += got;
            }
            if (!reads) usleep(20000);
            for (int i = 0; i < WARM; i++) {
                while (i == 0 && ioctl(pair[0], TIOCOUTQ, &(int){ 0 }) == -1) {}
                if (i == 0) usleep(20000); /* the child has read what was there */
                must("turn", write(pair[0], "t", 1) == 1 && taken(pair[0], &byte, 1) == 1);
            }
            must("last", write(pair[0], "last", 4) == 4);
            ended(child);
            printf("parent %s\n", all);
            say("end", taken(pair[0], all, 14));
            close(pair[0]);
            close(go[0]);
        }
}

/* ---- names ---- */

typedef int names_call(int, struct sockaddr *, socklen_t *);

static void named(const char *who, int fd, names_call *call, int *port)
{
    union { struct sockaddr any; struct sockaddr_in in; struct sockaddr_un un; } name;
    socklen_t length = sizeof name, brief = 2;
    memset(&name, 0, sizeof name);
    say(who, call(fd, &name.any, &length));
    printf("length %d family %d\n", (int)length, name.any.sa_family);
    if (tcp()) {
        printf("address %08x\n", ntohl(name.in.sin_addr.s_addr));
        *port = ntohs(name.in.sin_port);
    } else if (length > 2) {
        printf("path %.*s\n", (int)length - 2, name.un.sun_path);
    }
    say("in brief", call(fd, &name.any, &brief));
    printf("length %d\n", (int)brief);
}

/* Lines of `ss` that name both ports, and the beginnings of their states. */
static void listed(int near, int far)
{
    char command[200], line[300], state[9];
    int lines = 0;
    snprintf(command, sizeof command, "ss -Htn 'sport = :%d and dport = :%d'; "
             "ss -Htn 'sport = :%d and dport = :%d'", near, far, far, near);
    FILE *told = popen(command, "r");
    must("ss", told != NULL);
    while (fgets(line, sizeof line, told)) {
        must("line", sscanf(line, "%8s", state) == 1);
        printf("%s\n", state);
        lines++;
    }
    say("lines", lines);
    say("ss", pclose(told));
}

static void names(void)
{
    int pair[2], ports[4] = { 0 };
    warm(pair);
    for (int side = 0; side < 2; side++) {
        named("own", pair[side], getsockname, &ports[2 * side]);
        named("peer's", pair[side], getpeername, &ports[2 * side + 1]);
    }
    say("agree", ports[0] == ports[3] && ports[1] == ports[2]);
    if (tcp()) listed(ports[0], ports[1]);
    say("half", shutdown(pair[0], SHUT_WR));
    say("peer's", getpeername(pair[0], &(struct sockaddr){ 0 }, &(socklen_t){ 16 }));
    if (tcp()) {
        usleep(20000);
        listed(ports[0], ports[1]);
    }
    close(pair[1]);
    usleep(2000);
    say("own", getsockname(pair[0], &(struct sockaddr){ 0 }, &(socklen_t){ 16 }));
    say("peer's", getpeername(pair[0], &(struct sockaddr){ 0 }, &(socklen_t){ 16 }));
    close(pair[0]);
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "closes", closes }, { "shuts", shuts }, { "splices", splices }, { "relays", relays },
        { "refused", refused }, { "steals", steals }, { "changed", changed },
        { "natives", natives }, { "names", names },
    };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
