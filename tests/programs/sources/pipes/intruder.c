/* Who takes bytes by name out of a pipe that another process has alone, while that goes on writing
   and reading: each record comes out once, and in order for each of the two. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { \
	fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
enum { ROUNDS = 30, TAKEN = 400, MOST = 4000000, AHEAD = 3 };

static uint8_t seen[MOST];
static uint64_t next[2], written;

/* `who` has got `record`. */
static void got(int who, uint64_t record)
{
	CHECK(record < written && record >= next[who] && !seen[record]);
	next[who] = record + 1;
	seen[record] = 1;
}

/* The other process: the records that it finds go back through `s`. */
static void intrude(int s)
{
	int number;
	CHECK(recv(s, &number, sizeof number, 0) == sizeof number);
	char name[64];
	snprintf(name, sizeof name, "/proc/%d/fd/%d", getppid(), number);
	int reads = open(name, O_RDONLY);
	CHECK(reads >= 0);
	static uint64_t records[TAKEN];
	for (int i = 0; i < TAKEN; i++) CHECK(read(reads, &records[i], 8) == 8);
	CHECK(send(s, records, sizeof records, 0) == sizeof records);
	_exit(0);
}

static void step(int p[2], int reads)
{
	uint64_t record = written++;
	CHECK(written < MOST && write(p[1], &record, 8) == 8);
	if (reads && read(p[0], &record, 8) == 8) got(0, record);
}

static void round_of(int number)
{
	int s[2], p[2], status;
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) == 0);
	pid_t other = fork();
	CHECK(other >= 0);
	if (other == 0) intrude(s[1]);
	/* Made only now: the other has no number of it. */
	CHECK(pipe2(p, O_NONBLOCK) == 0);
	memset(seen, 0, sizeof seen);
	memset(next, 0, sizeof next);
	written = 0;
	for (int i = 0; i < 60 + number; i++) step(p, i >= AHEAD);
	CHECK(send(s[0], &p[0], sizeof p[0], 0) == sizeof p[0]);
	static uint64_t records[TAKEN], record;
	ssize_t came;
	while ((came = recv(s[0], records, sizeof records, MSG_DONTWAIT)) < 0) {
		CHECK(errno == EAGAIN);
		for (int i = 0; i < 50; i++) {
			/* While the other sleeps for bytes, some are left to it. */
			uint64_t before = written - next[0];
			step(p, before >= AHEAD && before < 40);
		}
		while (written - next[0] >= 40 && read(p[0], &record, 8) == 8) got(0, record);
	}
	CHECK(came == sizeof records);
	while (read(p[0], &record, 8) == 8) got(0, record);
	CHECK(errno == EAGAIN);
	for (int i = 0; i < TAKEN; i++) got(1, records[i]);
	for (uint64_t i = 0; i < written; i++) CHECK(seen[i]);
	CHECK(waitpid(other, &status, 0) == other && status == 0);
	for (int i = 0; i < 2; i++) close(s[i]), close(p[i]);
}

int main(void)
{
	for (int number = 0; number < ROUNDS; number++) round_of(number);
	printf("intruder: ok\n");
	return 0;
}
