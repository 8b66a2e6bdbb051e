/* Listeners whose backlog is full, what TCP tells of itself while its bytes are in memory, and many
   connections that nobody uses. What a call returns is printed; Linux and Husk must print the
   same. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <linux/sockios.h>

enum { BACKLOG = 2, BEYOND = 3, PATIENCE_MS = 30000, IDLE = 250, PROCESSES = 4 };

static struct sockaddr_storage place;
static socklen_t place_length;

static int listener_of(int backlog)
{
    int tcp = way[0] == 't', fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_in port = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "queue" };
    place_length = tcp ? sizeof port : sizeof name;
    memcpy(&place, tcp ? (void *)&port : (void *)&name, place_length);
    must("bind", bind(fd, (void *)&place, place_length) == 0);
    must("listen", listen(fd, backlog) == 0);
    must("name", getsockname(fd, (void *)&place, &place_length) == 0);
    return fd;
}

static int caller(int flags)
{
    int on = 1, fd = socket(place.ss_family, SOCK_STREAM | flags, 0);
    must("socket", fd >= 0);
    if (place.ss_family == AF_INET) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int ready(int fd, int events, int patience_ms)
{
    struct pollfd entry = { fd, events, 0 };
    return poll(&entry, 1, patience_ms) == 1 && (entry.revents & POLLERR) == 0;
}

/* A message there and back, so often that its bytes go by memory then. */
static void talk(int near, int far)
{
    char byte = 't';
    int wrong = 0;
    for (int i = 0; i < WARM; i++)
        for (int side = 0; side < 2; side++) {
            int from = side ? far : near, to = side ? near : far;
            wrong += write(from, &byte, 1) != 1;
            wrong += !ready(to, POLLIN, PATIENCE_MS) || read(to, &byte, 1) != 1 || byte != 't';
        }
    say("wrong", wrong);
}

static void *calls(void *fd)
{
    return (void *)(long)connect(*(int *)fd, (void *)&place, place_length);
}

static void waited(pthread_t thread)
{
    void *result;
    must("joined", pthread_join(thread, &result) == 0);
    say("waited", (long)result);
}

/* As many connect as the backlog takes, then some more, without waiting or with it: who finds no
   room is told so, or waits until some are accepted. */
static void backlog(void)
{
    enum { ROOM = BACKLOG + 1 };
    int ends[ROOM + BEYOND], listener = listener_of(BACKLOG), tcp = place.ss_family == AF_INET;
    char byte;
    for (int n = 0; n < ROOM; n++) {
        ends[n] = caller(0);
        say("connect", connect(ends[n], (void *)&place, place_length));
    }
    for (int n = ROOM; n < ROOM + BEYOND; n++) {
        ends[n] = caller(SOCK_NONBLOCK);
        say("beyond", connect(ends[n], (void *)&place, place_length));
        if (tcp) say("connected", ready(ends[n], POLLOUT, 100));
        say("write", send(ends[n], "x", 1, MSG_NOSIGNAL));
        say("read", read(ends[n], &byte, 1));
        say("again", connect(ends[n], (void *)&place, place_length));
    }
    int waits = caller(0);
    pthread_t thread;
    must("thread", pthread_create(&thread, NULL, calls, &waits) == 0);
    for (int n = 0; n < ROOM; n++) {
        int far = accept(listener, NULL, NULL);
        say("accept", far >= 0);
        talk(ends[n], far);
        say("close", close(far));
        say("end", read(ends[n], &byte, 1));
    }
    if (!tcp) { /* no other is under way */
        waited(thread);
        int far = accept(listener, NULL, NULL);
        talk(waits, far);
        say("none", fcntl(listener, F_SETFL, O_NONBLOCK));
        say("accept", accept(listener, NULL, NULL));
        for (int n = ROOM; n < ROOM + BEYOND; n++) {
            say("now", connect(ends[n], (void *)&place, place_length));
            must("accepted", (far = accept(listener, NULL, NULL)) >= 0);
            talk(ends[n], far);
        }
        unlink("queue");
        return;
    }
    for (int left = BEYOND + 1; left > 0; left--) {
        struct sockaddr_in peer, own;
        socklen_t length = sizeof peer;
        must("comes", ready(listener, POLLIN, PATIENCE_MS));
        int far = accept(listener, (void *)&peer, &length), near = waits;
        for (int n = ROOM; n < ROOM + BEYOND; n++) {
            must("own", getsockname(ends[n], (void *)&own, &length) == 0);
            if (own.sin_port == peer.sin_port) near = ends[n];
        }
        must("connected", ready(near, POLLOUT, PATIENCE_MS));
        talk(near, far);
    }
    waited(thread);
}

static void states_of(int fd, const char *what)
{
    struct tcp_info info = { 0 };
    socklen_t length = sizeof info;
    int in = -1, out = -1;
    printf("-- %s\n", what);
    do usleep(1000);
    while (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
           && info.tcpi_state == TCP_FIN_WAIT1);
    say("info", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("long", length >= 104);
    say("state", info.tcpi_state);
    say("segments", info.tcpi_snd_mss > 0 && info.tcpi_rcv_mss > 0 && info.tcpi_pmtu > 0);
    say("times", info.tcpi_rtt > 0 && info.tcpi_rto > 0);
    say("SIOCINQ", ioctl(fd, SIOCINQ, &in));
    say("bytes", in);
    /* What the host has is acknowledged a little later. */
    for (int look = 0; look < 2000 && ioctl(fd, SIOCOUTQ, &out) == 0 && out > 0; look++)
        usleep(1000);
    say("SIOCOUTQ", out);
}

/* TCP's own account, at each state of a connection whose bytes go by memory. */
static void states(void)
{
    int pair[2];
    char bytes[100];
    warm(pair);
    states_of(pair[0], "empty");
    must("write", write(pair[0], "pending", 7) == 7);
    states_of(pair[0], "its bytes are unread");
    states_of(pair[1], "with bytes");
    must("part", read(pair[1], bytes, 3) == 3);
    states_of(pair[1], "with some");
    must("end", shutdown(pair[0], SHUT_WR) == 0 && ready(pair[1], POLLRDHUP, PATIENCE_MS));
    states_of(pair[0], "half closed");
    must("rest", read(pair[1], bytes, 100) == 4 && read(pair[1], bytes, 100) == 0);
    states_of(pair[1], "by the other side");
    must("answer", write(pair[1], "back", 4) == 4);
    states_of(pair[0], "still told");
    done(pair);
}

static long ticks(pid_t pid)
{
    char path[40], line[400] = "";
    long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    must("stat", file && fgets(line, sizeof line, file));
    fclose(file);
    must("times", sscanf(strrchr(line, ')') + 2,
        "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) == 2);
    return user + system;
}

/* Waits for all ends of one side: in a set, by levels or edges; in poll; in a read of one. */
static void rests(int how, int (*pairs)[2], int told)
{
    static struct pollfd all[IDLE];
    int set = epoll_create1(0);
    struct epoll_event event;
    char byte;
    for (int n = 0; n < IDLE; n++) {
        all[n] = (struct pollfd){ pairs[n][how / 2], POLLIN, 0 };
        event = (struct epoll_event){ EPOLLIN | (how == 1 ? EPOLLET : 0), { .u64 = n } };
        if (how < 2) must("add", epoll_ctl(set, EPOLL_CTL_ADD, pairs[n][0], &event) == 0);
    }
    must("told", write(told, "", 1) == 1);
    if (how < 2) epoll_wait(set, &event, 1, -1);
    if (how == 2) poll(all, IDLE, -1);
    if (how == 3) read(pairs[0][1], &byte, 1);
    _exit(1);
}

/* Connections that have been used, and processes that wait for all of them: nobody burns a thing
   while nothing comes. */
static void idle(void)
{
    static int pairs[PROCESSES][IDLE][2];
    pid_t pids[PROCESSES];
    int told[2];
    char byte;
    must("pipe", pipe(told) == 0);
    for (int how = 0; how < PROCESSES; how++) {
        for (int n = 0; n < IDLE; n++) warm(pairs[how][n]);
        must("fork", (pids[how] = fork()) >= 0);
        if (pids[how] == 0) rests(how, pairs[how], told[1]);
        must("waits", read(told[0], &byte, 1) == 1);
    }
    usleep(300000);
    long before = 0, after = 0;
    for (int how = 0; how < PROCESSES; how++) before += ticks(pids[how]);
    usleep(2000000);
    for (int how = 0; how < PROCESSES; how++) after += ticks(pids[how]);
    fprintf(stderr, "%ld ticks\n", after - before);
    say("burnt more than 100 ms", after - before > sysconf(_SC_CLK_TCK) / 10);
    for (int how = 0; how < PROCESSES; how++) {
        int status;
        kill(pids[how], SIGKILL);
        must("ends", waitpid(pids[how], &status, 0) == pids[how] && WIFSIGNALED(status));
    }
}

int main(int count, char **arguments)
{
    static const struct part parts[] = { { "backlog", backlog }, { "states", states },
                                         { "idle", idle } };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
