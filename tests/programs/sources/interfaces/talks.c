/* What goes through pipes and unix sockets, and who may send it: prints what Linux says.
 * talks KIND */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
#define MOST 260

static void told(const char *what, long value) {
    printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "",
           value < 0 ? strerrorname_np(errno) : "");
}
static int waiting(int fd) {
    int bytes = -1;
    NEED(ioctl(fd, FIONREAD, &bytes) == 0);
    return bytes;
}
static void ended(pid_t pid) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    told("ended", status);
}

/* tee, vmsplice, splice between pipes, sizes, packets: all of it after the pipe has been used. */
static void pipes(void) {
    int p[2], q[2];
    static char bytes[1 << 20], found[1 << 20];
    for (unsigned n = 0; n < sizeof bytes; n++) bytes[n] = n * 7 >> 3;
    NEED(pipe(p) == 0 && pipe(q) == 0);
    for (int n = 0; n < 50; n++)
        NEED(write(p[1], "x", 1) == 1 && read(p[0], found, 1) == 1);
    told("FIONREAD, empty", waiting(p[0]));
    NEED(write(p[1], bytes, 5000) == 5000);
    told("FIONREAD", waiting(p[0])), told("of the other end", waiting(p[1]));
    told("tee", tee(p[0], q[1], 3000, 0)), told("still there", waiting(p[0]));
    NEED(read(q[0], found, sizeof found) == 3000 && memcmp(found, bytes, 3000) == 0);
    told("tee of itself", tee(p[0], p[1], 10, 0));
    told("splice", splice(p[0], NULL, q[1], NULL, 2000, 0)), told("left", waiting(p[0]));
    NEED(read(p[0], found, 4096) == 3000 && memcmp(found, bytes + 2000, 3000) == 0);
    NEED(read(q[0], found, 4096) == 2000 && memcmp(found, bytes, 2000) == 0);
    told("tee, nothing", tee(p[0], q[1], 9, SPLICE_F_NONBLOCK));
    struct iovec parts[3] = { { bytes, 100 }, { bytes + 5000, 4000 }, { bytes, 1 } };
    told("vmsplice", vmsplice(p[1], parts, 3, 0)), told("there", waiting(p[0]));
    struct iovec into[2] = { { found, 2000 }, { found + 2000, 9000 } };
    told("vmsplice out", vmsplice(p[0], into, 2, 0));
    NEED(memcmp(found, bytes, 100) == 0 && memcmp(found + 100, bytes + 5000, 4000) == 0);
    told("vmsplice, nothing", vmsplice(p[0], into, 1, SPLICE_F_NONBLOCK));
    told("size", fcntl(p[0], F_GETPIPE_SZ)), told("grown", fcntl(p[1], F_SETPIPE_SZ, 200000));
    NEED(fcntl(p[1], F_SETFL, O_NONBLOCK) == 0);
    told("holds", write(p[1], bytes, sizeof bytes)), told("full", write(p[1], bytes, 1));
    told("shrunk below what is there", fcntl(p[0], F_SETPIPE_SZ, 4096));
    NEED(read(p[0], found, sizeof found) == 262144 && memcmp(found, bytes, 262144) == 0);
    told("shrunk", fcntl(p[0], F_SETPIPE_SZ, 1)), told("holds", write(p[1], bytes, sizeof bytes));
    told("too large", fcntl(p[0], F_SETPIPE_SZ, -1));
    close(p[0]), close(p[1]);
    NEED(pipe2(p, O_DIRECT | O_NONBLOCK) == 0);
    told("packets", fcntl(p[1], F_GETFL) == (O_WRONLY | O_DIRECT | O_NONBLOCK));
    NEED(write(p[1], "one", 3) == 3 && write(p[1], "three", 5) == 5 && write(p[1], "", 0) == 0);
    NEED(write(p[1], bytes, 5000) == 5000);
    told("there", waiting(p[0]));
    for (int n = 0; n < 6; n++) told("packet", read(p[0], found, n == 1 ? 2 : sizeof found));
    struct stat facts;
    NEED(fstat(p[0], &facts) == 0);
    told("its size", facts.st_size), told("links", facts.st_nlink);
    told("a fifo", S_ISFIFO(facts.st_mode));
}

static struct sockaddr_un named(const char *name) {
    struct sockaddr_un a = { AF_UNIX, "" };
    strcpy(a.sun_path, name);
    return a;
}
static int bound(int kind, const char *name) {
    struct sockaddr_un a = named(name);
    int fd = socket(AF_UNIX, kind, 0);
    NEED(fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0);
    return fd;
}
static int connected(int kind, const char *name) {
    struct sockaddr_un a = named(name);
    int fd = socket(AF_UNIX, kind, 0);
    NEED(fd >= 0);
    return connect(fd, (void *)&a, sizeof a) == 0 ? fd : (close(fd), -1);
}
static void peer_is(const char *what, int fd, pid_t pid) {
    struct ucred c = { 0 };
    socklen_t length = sizeof c;
    NEED(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) == 0);
    printf("%s: pid %d, uid %d, gid %d\n", what, c.pid == pid, c.uid == geteuid(),
           c.gid == getegid());
}

/* Records keep their borders; who is at the other end is known. */
static void records(int kind) {
    char text[64] = "";
    int server = bound(kind, "records"), pid;
    NEED(listen(server, 5) == 0);
    fflush(stdout);
    if ((pid = fork()) == 0) {
        int fd = connected(kind, "records");
        NEED(fd >= 0 && send(fd, "one", 3, 0) == 3 && send(fd, "second", 6, 0) == 6);
        NEED(recv(fd, text, sizeof text, 0) == 2);
        peer_is("of the server", fd, getppid());
        fflush(stdout);
        _exit(0);
    }
    struct sockaddr_un a;
    socklen_t length = sizeof a;
    int fd = accept4(server, (void *)&a, &length, SOCK_CLOEXEC);
    NEED(fd >= 0);
    told("name of the client", length), peer_is("of the client", fd, pid);
    int type;
    length = sizeof type;
    NEED(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0);
    told("type", type);
    told("first", recv(fd, text, kind == SOCK_SEQPACKET ? sizeof text : 3, 0));
    told("second, cut", recv(fd, text, 2, kind == SOCK_SEQPACKET ? MSG_TRUNC : 0));
    if (kind == SOCK_STREAM) told("rest", recv(fd, text, 4, MSG_WAITALL));
    NEED(send(fd, "ok", 2, 0) == 2);
    ended(pid);
    told("end", recv(fd, text, sizeof text, 0));
    told("to nobody", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd), close(server);
    told("nobody listens", connected(kind, "records"));
    unlink("records");
}

/* Datagrams by name: one by one and many in a call, and who sent them. */
static void datagrams(void) {
    int server = bound(SOCK_DGRAM, "server"), client = bound(SOCK_DGRAM, "client"), on = 1;
    struct sockaddr_un to = named("server"), from;
    struct mmsghdr all[8];
    struct iovec parts[8];
    char text[8][16];
    NEED(setsockopt(server, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    struct sockaddr_un none = named("nobody");
    NEED(connect(client, (void *)&to, sizeof to) == 0);
    memset(all, 0, sizeof all);
    for (int n = 0; n < 8; n++) {
        parts[n].iov_len = sprintf(text[n], "message %d", n), parts[n].iov_base = text[n];
        all[n].msg_hdr = (struct msghdr){ .msg_iov = &parts[n], .msg_iovlen = 1 };
    }
    /* By the connection, and by name: some of them in a call, or all. */
    for (int n = 4; n < 8; n++)
        all[n].msg_hdr.msg_name = &to, all[n].msg_hdr.msg_namelen = sizeof to;
    for (int n = 0, sent; n < 8; n += sent) NEED((sent = sendmmsg(client, all + n, 8 - n, 0)) > 0);
    told("length", all[7].msg_len);
    for (int n = 0; n < 8; n++) {
        static char control[8][128];
        static struct sockaddr_un names[8];
        parts[n].iov_len = 16;
        all[n].msg_hdr = (struct msghdr){ names + n, sizeof *names, &parts[n], 1, control[n],
            sizeof *control, 0 };
    }
    told("received", recvmmsg(server, all, 8, MSG_WAITFORONE, NULL));
    for (int n = 0; n < 8; n++) {
        struct cmsghdr *head = CMSG_FIRSTHDR(&all[n].msg_hdr);
        NEED(head && head->cmsg_type == SCM_CREDENTIALS);
        struct ucred c;
        memcpy(&c, CMSG_DATA(head), sizeof c);
        printf("%.*s, %d, from %s, %d %d\n", (int)all[n].msg_len, text[n], all[n].msg_len,
               ((struct sockaddr_un *)all[n].msg_hdr.msg_name)->sun_path, c.pid == getpid(),
               c.uid == getuid());
    }
    all[0].msg_hdr.msg_name = &none, all[0].msg_hdr.msg_namelen = sizeof none;
    told("to nobody", sendmmsg(client, all, 1, 0));
    told("no more", recvmmsg(server, all, 8, MSG_DONTWAIT, NULL));
    socklen_t length = sizeof from;
    NEED(sendto(server, "back", 4, 0, (void *)&(struct sockaddr_un){ AF_UNIX, "client" },
        offsetof(struct sockaddr_un, sun_path) + 7) == 4);
    told("back", recvfrom(client, text, 16, 0, (void *)&from, &length));
    printf("from %s, %d\n", from.sun_path, length);
    told("waiting", (send(client, "abc", 3, 0), waiting(server)));
    close(server);
    told("closed", send(client, "x", 1, 0));
    unlink("server"), unlink("client");
}

static void pass(int socket, const int *fds, int count) {
    char control[CMSG_SPACE(sizeof(int) * MOST)] = { 0 };
    struct iovec part = { "r", 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = CMSG_SPACE(sizeof(int) * count) };
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    *head = (struct cmsghdr){ CMSG_LEN(sizeof(int) * count), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
    NEED(sendmsg(socket, &m, 0) == 1);
}
/* As many as there is room for; prints what is said of the rest. */
static int take(int socket, int *fds, int room, int flags, int *said) {
    char control[CMSG_SPACE(sizeof(int) * MOST)], byte;
    struct iovec part = { &byte, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = room ? CMSG_LEN(sizeof(int) * room) : 0 };
    NEED(recvmsg(socket, &m, flags) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    int count = head ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    memcpy(fds, CMSG_DATA(head), sizeof(int) * count);
    *said = m.msg_flags & ~MSG_CMSG_CLOEXEC;
    return count;
}
static int open_ones(void) {
    int count = 0;
    for (int fd = 0; fd < 1000; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* One of each kind in a message; a second process uses what arrives. */
static void rights(void) {
    int s[2], p[2], sent[8], got[MOST], said, pid;
    char text[64] = "";
    NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) == 0 && pipe(p) == 0);
    sent[0] = open("/etc/passwd", O_RDONLY), sent[1] = open("made", O_CREAT | O_RDWR, 0644);
    sent[2] = open("given", O_RDONLY), sent[3] = p[0], sent[4] = p[1];
    sent[5] = bound(SOCK_STREAM, "listens"), sent[6] = eventfd(3, 0);
    sent[7] = open(".", O_RDONLY | O_DIRECTORY);
    for (int n = 0; n < 8; n++) NEED(sent[n] >= 0);
    NEED(listen(sent[5], 3) == 0 && write(sent[1], "contents", 8) == 8);
    NEED(lseek(sent[2], 2, SEEK_SET) == 2);
    fflush(stdout);
    if ((pid = fork()) == 0) {
        for (int n = 0; n < 8; n++) close(sent[n]);
        close(s[0]);
        int count = take(s[1], got, 10, MSG_CMSG_CLOEXEC, &said);
        told("came", count), told("said", said);
        for (int n = 0; n < count; n++) NEED(fcntl(got[n], F_GETFD) == FD_CLOEXEC);
        told("host file", read(got[0], text, 5)), told("made", pread(got[1], text, 64, 0));
        told("its offset", lseek(got[1], 0, SEEK_CUR)), told("given", read(got[2], text, 3));
        NEED(write(got[4], "through", 7) == 7 && read(got[3], text, 64) == 7);
        int client = connected(SOCK_STREAM, "listens"), peer = accept(got[5], NULL, NULL);
        NEED(client >= 0 && peer >= 0 && write(client, "hi", 2) == 2 && read(peer, text, 9) == 2);
        long counter;
        NEED(read(got[6], &counter, 8) == 8);
        told("counter", counter), told("at", openat(got[7], "made", O_RDONLY) >= 0);
        NEED(pwrite(got[1], "CON", 3, 0) == 3 && lseek(got[2], 1, SEEK_SET) == 1);
        fflush(stdout);
        _exit(0);
    }
    pass(s[0], sent, 8);
    ended(pid);
    NEED(pread(sent[1], text, 8, 0) == 8);
    printf("%.8s, offset of given %ld\n", text, (long)lseek(sent[2], 0, SEEK_CUR));
    for (int n = 0; n < 8; n++) close(sent[n]);
    unlink("listens"), unlink("made");
}

/* Fewer numbers or less room than there are descriptors: the rest is closed, and nothing stays. */
static void room(void) {
    int s[2], p[2], got[MOST], said, many[MOST];
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0 && pipe(p) == 0);
    int file = open("made", O_CREAT | O_RDWR, 0644), four[4] = { file, p[1], file, p[1] };
    int before = open_ones();
    const int places[] = { 4, 3, 1, 0 };
    for (int n = 0; n < 4; n++) {
        pass(s[0], four, 4);
        int count = take(s[1], got, places[n], 0, &said);
        printf("room for %d: %d, %s\n", places[n], count, said == MSG_CTRUNC ? "cut" : "whole");
        for (int k = 0; k < count; k++) NEED(fcntl(got[k], F_GETFD) == 0 && close(got[k]) == 0);
    }
    for (int n = 0; n < 253; n++) many[n] = n % 2 ? file : p[1];
    pass(s[0], many, 253);
    told("253 at once", take(s[1], got, 255, MSG_CMSG_CLOEXEC, &said));
    for (int k = 0; k < 253; k++) NEED(close(got[k]) == 0);
    pass(s[0], four, 4);
    told("looked at", take(s[1], got, 4, MSG_PEEK, &said));
    for (int k = 0; k < 4; k++) close(got[k]);
    told("and taken", take(s[1], got, 4, 0, &said));
    for (int k = 0; k < 4; k++) close(got[k]);
    /* On their way into each other, and gone with the last name for them. */
    for (int n = 0; n < 50; n++) {
        int one[2], other[2];
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, one) == 0);
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
        pass(one[0], (int[]){ one[1], other[1], file, p[1] }, 4);
        pass(other[0], (int[]){ one[0], one[1], file }, 3);
        close(one[0]), close(one[1]), close(other[0]), close(other[1]);
    }
    told("more than before", open_ones() - before);
    /* Whoever had the writing end in a message has let go of it. */
    close(p[1]);
    struct pollfd end = { p[0], POLLIN, 0 };
    told("the last writer has gone", poll(&end, 1, 10000) == 1 && end.revents == POLLHUP);
    unlink("made");
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc != 2) return 2;
    if (strcmp(argv[1], "pipes") == 0) pipes();
    else if (strcmp(argv[1], "stream") == 0) records(SOCK_STREAM);
    else if (strcmp(argv[1], "seqpacket") == 0) records(SOCK_SEQPACKET);
    else if (strcmp(argv[1], "datagrams") == 0) datagrams();
    else if (strcmp(argv[1], "rights") == 0) rights();
    else room();
    return 0;
}
