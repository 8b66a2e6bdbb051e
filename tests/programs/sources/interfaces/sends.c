/* sendfile into a connection whose bytes may be anywhere: from a new file of the image, from one of
   the host in the tree, and from one outside all trees. Between two sends there is a write, so that
   bytes out of order show. What a call returns is printed; Linux and Husk must print the same. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <time.h>

enum { LARGE = 12 << 20, PAGE = 6000 };

static unsigned char byte_at(long at) { return at % 251 + at / 251 % 7; }

static const char *made(const char *path, long bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long at = 0; at < bytes; at++) {
        static unsigned char some[4096];
        some[at % 4096] = byte_at(at);
        if (at % 4096 == 4095 || at == bytes - 1)
            must("made", write(fd, some, at % 4096 + 1) == at % 4096 + 1);
    }
    close(fd);
    return path;
}

/* Reads so many bytes, or what there is. */
static long taken(int fd, void *into, long most)
{
    long all = 0, got = 1;
    while (all < most && (got = read(fd, (char *)into + all, most - all)) > 0) all += got;
    return all;
}

static const char *sources[] = { "new", "given", "/usr/bin/env" };

static void offsets(void)
{
    static char bytes[200];
    made("new", 20);
    for (int kind = 0; kind < 3; kind++) {
        int pair[2], file = open(sources[kind], O_RDONLY);
        off_t at = 2;
        char first[12];
        must("first", pread(file, first, 10, 0) == 10);
        warm(pair);
        say("header", write(pair[0], "<", 1));
        say("explicit", sendfile(pair[0], file, &at, 5));
        say("moved", at);
        say("not the file's", lseek(file, 0, SEEK_CUR));
        say("own", sendfile(pair[0], file, NULL, 3));
        say("moved", lseek(file, 0, SEEK_CUR));
        say("trailer", write(pair[0], ">", 1));
        say("nothing", sendfile(pair[0], file, NULL, 0));
        say("read", taken(pair[1], bytes, 10));
        say("right", bytes[0] == '<' && memcmp(bytes + 1, first + 2, 5) == 0
            && memcmp(bytes + 6, first, 3) == 0 && bytes[9] == '>');
        at = lseek(file, 0, SEEK_END) - 4;
        say("rest", sendfile(pair[0], file, &at, 100));
        say("end", sendfile(pair[0], file, &at, 100));
        at += 1000;
        say("behind", sendfile(pair[0], file, &at, 100));
        say("own end", sendfile(pair[0], file, NULL, 100));
        say("read", taken(pair[1], bytes, 4));
        say("no more", recv(pair[1], bytes, 100, MSG_DONTWAIT));
        done(pair);
        close(file);
    }
}

static void refusals(void)
{
    made("new", 20);
    for (int kind = 0; kind < 2; kind++) {
        int pair[2], pipes[2], file = open(sources[kind], O_RDONLY), place = open("/usr", O_RDONLY);
        int write_only = open("new", O_WRONLY), here = open(".", O_RDONLY);
        off_t at = -1;
        char byte;
        warm(pair);
        must("pipe", pipe(pipes) == 0);
        say("negative", sendfile(pair[0], file, &at, 5));
        say("nowhere", sendfile(pair[0], file, (off_t *)8, 5));
        say("not open", sendfile(pair[0], 999, NULL, 5));
        say("to nothing", sendfile(999, file, NULL, 5));
        say("write only", sendfile(pair[0], write_only, NULL, 5));
        say("directory", sendfile(pair[0], place, NULL, 5) < 0);
        say("own directory", sendfile(pair[0], here, NULL, 5) < 0);
        say("empty pipe", sendfile(pair[0], pipes[1], NULL, 5));
        must("byte", write(pair[0], "b", 1) == 1);
        say("still there", read(pair[1], &byte, 1));
        done(pair);
        done(pipes);
        close(file), close(place), close(write_only), close(here);
    }
}

static int signals;
static void counted(int signal) { signals += signal == SIGPIPE; }

static void ends(void)
{
    char bytes[100];
    signal(SIGPIPE, counted);
    made("new", 20);
    for (int kind = 0; kind < 3; kind++)
        for (int how = 0; how < 3; how++) {
            int pair[2], file = open(sources[kind], O_RDONLY);
            off_t at = 0;
            warm(pair);
            must("sent", sendfile(pair[0], file, &at, 5) == 5);
            if (how == 0) {
                say("no more", shutdown(pair[0], SHUT_WR));
                say("own end", sendfile(pair[0], file, &at, 5));
                say("read", taken(pair[1], bytes, 100));
            } else {
                say("read", taken(pair[1], bytes, 5));
                if (how == 2) say("refused", shutdown(pair[1], SHUT_RD));
                else close(pair[1]);
                /* Of TCP the first one may go. */
                for (int i = 0; i < 20 && at < 9; i++) {
                    if (sendfile(pair[0], file, &at, 1) < 0) break;
                    usleep(1000);
                }
                int gone = how == 1 || way[0] != 't';
                if (gone) say("gone", sendfile(pair[0], file, &at, 5));
            }
            say("signals", signals > 0);
            say("moved", at <= 9);
            signals = 0;
            close(pair[0]), close(pair[1]), close(file);
        }
}

/* A full connection takes a part, then nothing; all that it has taken comes, in order. */
static void full(void)
{
    static unsigned char bytes[1 << 16];
    made("new", LARGE);
    made("more", LARGE);
    for (int kind = 0; kind < 2; kind++) {
        int pair[2], file = open(kind ? "more" : "new", O_RDONLY), wrong = 0;
        long sent = 0, came = 0, got;
        off_t at = 0;
        warm(pair);
        must("flags", fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
        for (int turn = 0; came < LARGE; turn++) {
            while ((got = sendfile(pair[0], file, &at, LARGE)) > 0) sent += got;
            if (turn == 0) say("full", got);
            if (turn == 0) say("in part", sent > 0 && sent < LARGE);
            must("moved", sent == at);
            must("flags", fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
            long before = came;
            while ((got = read(pair[1], bytes, sizeof bytes)) > 0)
                for (long i = 0; i < got; i++) wrong += bytes[i] != byte_at(came++);
            if (came == before) usleep(1000);
        }
        say("came", came);
        say("wrong", wrong);
        done(pair);
        close(file);
    }
}

/* A reader that is slow at first; the sender may wait. */
static void waits(void)
{
    static unsigned char bytes[1 << 16];
    made("new", LARGE);
    made("more", LARGE);
    const char *paths[] = { "new", "more", "/usr/bin/env" };
    for (int kind = 0; kind < 3; kind++) {
        int pair[2], file = open(paths[kind], O_RDONLY), status;
        long all = lseek(file, 0, SEEK_END), sent = 0, got;
        off_t at = 0;
        warm(pair);
        pid_t child = fork();
        if (child == 0) {
            int again = open(paths[kind], O_RDONLY), wrong = 0;
            long came = 0;
            static unsigned char same[1 << 16];
            close(pair[0]);
            usleep(20000);
            wrong += taken(pair[1], bytes, 1) != 1 || bytes[0] != '<';
            while ((got = read(pair[1], bytes, sizeof bytes)) > 0) {
                long own = came + got > all ? all - came : got;
                wrong += own > 0 && pread(again, same, own, came) != own;
                wrong += own > 0 && memcmp(bytes, same, own) != 0;
                came += got;
            }
            exit(wrong ? 1 : came == all + 1 && bytes[0] != 0 ? 0 : 2);
        }
        close(pair[1]);
        say("header", write(pair[0], "<", 1));
        while (sent < all && (got = sendfile(pair[0], file, &at, all - sent)) > 0) sent += got;
        say("sent", sent == all && at == all);
        say("trailer", write(pair[0], ">", 1));
        close(pair[0]);
        must("wait", waitpid(child, &status, 0) == child);
        say("read", status);
        close(file);
    }
}

/* The same with a file of the host that is larger than what finds room, several times, and with
   other bytes between; the connection is used both ways afterwards. */
static void again(void)
{
    enum { TURNS = 3, TIMES = 5 };
    const char *path = "/lib/x86_64-linux-gnu/libc.so.6";
    static unsigned char bytes[1 << 16], same[1 << 16];
    int pair[2], status, file = open(path, O_RDONLY);
    if (file < 0) file = open(path = "/lib64/libc.so.6", O_RDONLY);
    must("large", file >= 0 && lseek(file, 0, SEEK_END) > 1 << 20);
    long all = lseek(file, 0, SEEK_END), wrong = 0;
    warm(pair);
    pid_t child = fork();
    if (child == 0) {
        int own = open(path, O_RDONLY);
        close(pair[0]);
        for (int turn = 0; turn < TURNS; turn++) {
            usleep(20000);
            for (int time = 0; time < TIMES; time++)
                for (long came = 0, got; came < all; came += got) {
                    long most = all - came < (long)sizeof bytes ? all - came : (long)sizeof bytes;
                    must("read", (got = read(pair[1], bytes, most)) > 0);
                    wrong += pread(own, same, got, came) != got || memcmp(bytes, same, got) != 0;
                }
            wrong += read(pair[1], bytes, 1) != 1 || bytes[0] != '>';
            must("answer", write(pair[1], "a", 1) == 1);
        }
        exit(wrong != 0);
    }
    close(pair[1]);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int time = 0; time < TIMES; time++) {
            off_t at = 0;
            wrong += sendfile(pair[0], file, &at, all) != all || at != all;
        }
        must("trailer", write(pair[0], ">", 1) == 1);
        must("answer", read(pair[0], bytes, 1) == 1);
    }
    say("wrong", wrong);
    must("wait", waitpid(child, &status, 0) == child);
    say("child", status);
    close(pair[0]);
    close(file);
}

/* Who sleeps in a set is woken by what is sent. */
static void sleepers(void)
{
    made("new", 20);
    for (int kind = 0; kind < 3; kind++) {
        int pair[2], set = epoll_create1(0), status, right = 0;
        struct epoll_event event = { EPOLLIN, { 0 } };
        char bytes[100];
        warm(pair);
        pid_t child = fork();
        if (child == 0) {
            int file = open(sources[kind], O_RDONLY);
            for (int turn = 0; turn < 40; turn++) {
                off_t at = turn % 5;
                if (turn % 8 == 0) usleep(3000);
                if (sendfile(pair[0], file, &at, 5) != 5) exit(1);
                if (read(pair[0], bytes, 1) != 1) exit(2);
            }
            exit(0);
        }
        must("add", epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event) == 0);
        for (int turn = 0; turn < 40; turn++) {
            must("told", epoll_wait(set, &event, 1, 5000) == 1);
            right += taken(pair[1], bytes, 5) == 5;
            must("answer", write(pair[1], "a", 1) == 1);
        }
        say("right", right);
        must("wait", waitpid(child, &status, 0) == child);
        say("child", status);
        done(pair);
        close(set);
    }
}

/* A server of small files: opened for each request, behind a header, several under way on a
   connection that is new each time. */
static void served(void)
{
    static char bytes[4 * (PAGE + 8)];
    struct timespec settled = { 0, 150000000 };
    made("new", PAGE);
    made("more", PAGE);
    nanosleep(&settled, NULL);
    for (int kind = 0; kind < 2; kind++) {
        int pair[2], wrong = 0, on = 1, off = 0, shown = -1;
        socklen_t length = sizeof shown;
        for (int turn = 0; turn < 40; turn++) {
            int many = 1 + turn % 4;
            warm(pair);
            for (int i = 0; i < many; i++) {
                char header[9];
                off_t at = 0;
                int file = open(kind ? "/usr/bin/env" : "new", O_RDONLY);
                if (way[0] == 't') setsockopt(pair[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on);
                snprintf(header, sizeof header, "%8d", turn * 4 + i);
                must("header", write(pair[0], header, 8) == 8);
                must("body", sendfile(pair[0], file, &at, PAGE) == PAGE && at == PAGE);
                if (way[0] == 't') {
                    getsockopt(pair[0], IPPROTO_TCP, TCP_CORK, &shown, &length);
                    wrong += shown != 1;
                    setsockopt(pair[0], IPPROTO_TCP, TCP_CORK, &off, sizeof off);
                    getsockopt(pair[0], IPPROTO_TCP, TCP_CORK, &shown, &length);
                    wrong += shown != 0;
                }
                close(file);
            }
            wrong += taken(pair[1], bytes, many * (PAGE + 8)) != many * (PAGE + 8);
            for (int i = 0; i < many; i++) {
                char *one = bytes + i * (PAGE + 8);
                wrong += atoi(one) != turn * 4 + i;
                for (long at = 0; kind == 0 && at < PAGE; at++)
                    wrong += (unsigned char)one[8 + at] != byte_at(at);
                wrong += kind == 1 && memcmp(one + 8, "\177ELF", 4) != 0;
            }
            done(pair);
        }
        say("wrong", wrong);
    }
}

int main(int count, char **arguments)
{
    static const struct part parts[] = {
        { "offsets", offsets }, { "refusals", refusals }, { "ends", ends }, { "full", full },
        { "waits", waits }, { "again", again }, { "sleepers", sleepers }, { "served", served },
    };
    return played(count, arguments, parts, sizeof parts / sizeof *parts);
}
