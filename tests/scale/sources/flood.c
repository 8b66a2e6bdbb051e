/* flood COUNT MIB: COUNT writers and as many readers. All at one pipe, FIFO or socket: each record
 * comes to one reader, whole, once, and those of a writer in their order. Then a pair each at a
 * pipe, a FIFO or a socket of its own, in pieces of 1 byte to 1 MiB: every byte in its place.
 * Checks itself, says what failed. MIB go through each of the five. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)
enum { MOST = 64, RECORD = 512, AT_ONCE = 8, PIECE_MAX = 1 << 20 };
struct record { uint32_t writer, number; uint64_t sum; unsigned char rest[RECORD - 16]; };
/* What came of each writer: how many, their numbers added up, and the squares of those. */
static struct came { uint64_t count, numbers, squares; } *came;
static uint64_t seed;

static unsigned dice(unsigned bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 33) % bound;
}
static void sow(int number) {
    seed = (number + 1) * 0x9e3779b97f4a7c15u;
}
static uint64_t sum_of(const struct record *r) {
    uint64_t sum = r->writer * 31u + r->number, word;
    for (unsigned n = 0; n + 8 <= sizeof r->rest; n += 8)
        memcpy(&word, r->rest + n, 8), sum = sum * 0x100000001b3u + word;
    return sum;
}

static void write_records(int fd, int writer, uint32_t count) {
    static struct record out[AT_ONCE];
    for (uint32_t number = 1; number <= count;) {
        unsigned many = 1 + dice(AT_ONCE);
        if (many > count - number + 1) many = count - number + 1;
        for (unsigned n = 0; n < many; n++, number++) {
            memset(out[n].rest, dice(256), sizeof out[n].rest);
            out[n].writer = writer, out[n].number = number, out[n].sum = sum_of(&out[n]);
        }
        NEED(write(fd, out, many * RECORD) == (ssize_t)(many * RECORD));
    }
    _exit(0);
}
static void read_records(int fd, int writers, int packets) {
    static struct record in[AT_ONCE];
    uint32_t last[MOST] = { 0 };
    struct came own[MOST];
    memset(own, 0, sizeof own);
    for (;;) {
        /* Of a packet, what is not asked for is lost. */
        ssize_t got = read(fd, in, packets ? sizeof in : RECORD * (1 + dice(AT_ONCE)));
        NEED(got >= 0 && got % RECORD == 0);
        if (got == 0) break;
        for (int n = 0; n < got / RECORD; n++) {
            uint64_t number = in[n].number, writer = in[n].writer;
            NEED(writer < (unsigned)writers && sum_of(&in[n]) == in[n].sum && number > last[writer]);
            last[writer] = number;
            own[writer].count++, own[writer].numbers += number, own[writer].squares += number * number;
        }
    }
    for (int n = 0; n < writers; n++) {
        __atomic_add_fetch(&came[n].count, own[n].count, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&came[n].numbers, own[n].numbers, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&came[n].squares, own[n].squares, __ATOMIC_SEQ_CST);
    }
    _exit(0);
}
/* A pair of ends: of a pipe, a FIFO, a socket. */
static void ends(int kind, int type, int *p) {
    if (kind == 0) NEED(pipe(p) == 0);
    if (kind == 2) NEED(socketpair(AF_UNIX, type, 0, p) == 0);
    if (kind != 1) return;
    NEED(mkfifo("fifo", 0600) == 0 && (p[0] = open("fifo", O_RDONLY | O_NONBLOCK)) >= 0);
    NEED((p[1] = open("fifo", O_WRONLY)) >= 0 && fcntl(p[0], F_SETFL, 0) == 0);
    NEED(unlink("fifo") == 0);
}
static void all_end(pid_t *pids, int count) {
    for (int n = 0, status; n < count; n++)
        NEED(waitpid(pids[n], &status, 0) == pids[n] && status == 0);
}
static void shared(int kind, int count, uint64_t bytes) {
    uint64_t each = bytes / RECORD / count;
    pid_t pids[2 * MOST];
    int p[2];
    memset(came, 0, sizeof *came * MOST);
    ends(kind, SOCK_SEQPACKET, p);
    for (int n = 0; n < 2 * count; n++) {
        NEED((pids[n] = fork()) >= 0);
        if (pids[n] > 0) continue;
        close(p[n < count]);
        sow(n);
        n < count ? read_records(p[0], count, kind == 2) : write_records(p[1], n - count, each);
    }
    close(p[0]), close(p[1]);
    all_end(pids, 2 * count);
    for (int n = 0; n < count; n++) {
        NEED(came[n].count == each && came[n].numbers == each * (each + 1) / 2);
        NEED(came[n].squares == each * (each + 1) * (2 * each + 1) / 6);
    }
}

static unsigned piece(void) {
    static const unsigned most[] = { 16, 16, 5000, 70000, PIECE_MAX };
    return 1 + dice(most[dice(5)]);
}
static unsigned char byte_at(int pair, uint64_t at) {
    return (unsigned char)(at * 7 + (at >> 8) * 13 + (at >> 16) * 29 + pair);
}
static void write_bytes(int fd, int pair, uint64_t bytes) {
    unsigned char *out = malloc(PIECE_MAX);
    for (uint64_t at = 0; at < bytes;) {
        unsigned many = piece();
        if (many > bytes - at) many = bytes - at;
        for (unsigned n = 0; n < many; n++) out[n] = byte_at(pair, at + n);
        NEED(write(fd, out, many) == many);
        at += many;
    }
    _exit(0);
}
static void read_bytes(int fd, int pair, uint64_t bytes) {
    unsigned char *in = malloc(PIECE_MAX);
    uint64_t at = 0;
    ssize_t got;
    for (; (got = read(fd, in, piece())) > 0; at += got)
        for (ssize_t n = 0; n < got; n++) NEED(in[n] == byte_at(pair, at + n));
    NEED(got == 0 && at == bytes);
    _exit(0);
}
static void pairs(int count, uint64_t bytes) {
    pid_t pids[2 * MOST];
    for (int n = 0; n < count; n++) {
        int p[2];
        ends(n % 3, SOCK_STREAM, p);
        for (int writes = 0; writes < 2; writes++) {
            NEED((pids[2 * n + writes] = fork()) >= 0);
            if (pids[2 * n + writes] > 0) continue;
            close(p[!writes]);
            sow(2 * n + writes);
            writes ? write_bytes(p[1], n, bytes / count) : read_bytes(p[0], n, bytes / count);
        }
        close(p[0]), close(p[1]);
    }
    all_end(pids, 2 * count);
}

int main(int argc, char **argv) {
    NEED(argc == 3);
    int count = atoi(argv[1]);
    uint64_t bytes = strtoull(argv[2], NULL, 10) << 20;
    NEED(count > 0 && count <= MOST);
    setvbuf(stdout, NULL, _IOLBF, 0);
    came = mmap(NULL, sizeof *came * MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(came != MAP_FAILED);
    static const char *const kinds[] = { "pipe", "FIFO", "socket" };
    for (int kind = 0; kind < 3; kind++) {
        shared(kind, count, bytes);
        printf("one %s: ok\n", kinds[kind]);
    }
    for (int round = 0; round < 2; round++) pairs(count, bytes);
    puts("pairs: ok");
    return 0;
}
