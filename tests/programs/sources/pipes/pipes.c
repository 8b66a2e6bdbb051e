/* Pipes, in every way that moves one between the ring and the host: what is printed must be the
 * same natively and in an image, and nothing may hang. One mode an invocation. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); \
	fflush(stdout); _exit(1); } } while (0)

/* No memory. */
static void *volatile nowhere = (void *)8;

static uint64_t seed = 88172645463325252ull;
static uint64_t next(void) { seed ^= seed << 13; seed ^= seed >> 7; return seed ^= seed << 17; }
static unsigned below(unsigned n) { return next() % n; }
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
static void whole_write(int fd, const void *from, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t put = write(fd, (const char *)from + done, n - done);
		if (put < 0 && errno == EINTR) continue;
		CHECK(put > 0);
		done += put;
	}
}
static size_t whole_read(int fd, void *to, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = read(fd, (char *)to + done, n - done);
		if (got < 0 && errno == EINTR) continue;
		CHECK(got >= 0);
		if (got == 0) return done;
		done += got;
	}
	return done;
}
/* Enough reads that the pipe has a ring. */
static void warm(int p[2])
{
	char byte = 1;
	for (int i = 0; i < 40; i++) {
		CHECK(write(p[1], &byte, 1) == 1);
		CHECK(read(p[0], &byte, 1) == 1);
	}
}
static void child_ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

/* One thread, small sizes, all calls: an endless stream of counted bytes. */
static void sequence(void)
{
	int p[2];
	CHECK(pipe2(p, O_NONBLOCK) == 0);
	static uint8_t buffer[70000];
	uint64_t in = 0, out = 0;
	for (int i = 0; i < 40000; i++) {
		unsigned n = 1 + below(i % 7 == 0 ? 9000 : 200);
		if (below(2)) {
			if (in - out + n > 30000) continue;
			for (unsigned k = 0; k < n; k++) buffer[k] = (in + k) * 31 >> 3;
			struct iovec two[2] = {{buffer, n / 3}, {buffer + n / 3, n - n / 3}};
			ssize_t put = below(2) ? write(p[1], buffer, n) : writev(p[1], two, 2);
			CHECK(put == n);
			in += n;
		} else {
			struct iovec two[2] = {{buffer, n / 2}, {buffer + n / 2, n - n / 2}};
			ssize_t got = below(2) ? read(p[0], buffer, n) : readv(p[0], two, 2);
			if (in == out) { CHECK(got == -1 && errno == EAGAIN); continue; }
			CHECK(got > 0 && got <= n);
			for (ssize_t k = 0; k < got; k++) CHECK(buffer[k] == (uint8_t)((out + k) * 31 >> 3));
			out += got;
		}
		if (i % 50 == 0) {
			int waiting = -1;
			CHECK(ioctl(p[0], FIONREAD, &waiting) == 0 && waiting == (int)(in - out));
			struct pollfd set[2] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}};
			CHECK(poll(set, 2, 0) == 1 + (in > out));
			CHECK((set[0].revents == POLLIN) == (in > out) && set[1].revents == POLLOUT);
			fd_set reads;
			FD_ZERO(&reads);
			FD_SET(p[0], &reads);
			struct timeval none = {0, 0};
			CHECK(select(p[0] + 1, &reads, 0, 0, &none) == (in > out));
		}
	}
	printf("sequence: ok\n");
}

/* A size that is set binds. */
static void sizes(void)
{
	int p[2], in = 0;
	static char bytes[100];
	CHECK(pipe2(p, O_NONBLOCK) == 0);
	warm(p);
	CHECK(fcntl(p[1], F_SETPIPE_SZ, 4096) == 4096);
	while (write(p[1], bytes, sizeof bytes) == sizeof bytes) in += sizeof bytes;
	CHECK(errno == EAGAIN && in <= 4096);
	printf("sizes: ok\n");
}

static volatile int pipes_broken;
static void on_pipe(int s) { (void)s; pipes_broken++; }

/* Ends that go: end of file after the last byte, EPIPE and SIGPIPE at once. */
static void ends(void)
{
	signal(SIGPIPE, on_pipe);
	for (int warmed = 0; warmed < 2; warmed++) {
		int p[2];
		char bytes[10] = "abcdefghi";
		CHECK(pipe(p) == 0);
		if (warmed) warm(p);
		CHECK(write(p[1], bytes, 10) == 10);
		close(p[1]);
		CHECK(read(p[0], bytes, 4) == 4 && read(p[0], bytes, 10) == 6 && read(p[0], bytes, 1) == 0);
		CHECK(read(p[0], bytes, 1) == 0);
		close(p[0]);
		CHECK(pipe(p) == 0);
		if (warmed) warm(p);
		int before = pipes_broken;
		close(p[0]);
		CHECK(write(p[1], bytes, 1) == -1 && errno == EPIPE && pipes_broken == before + 1);
		CHECK(write(p[1], bytes, 1) == -1 && errno == EPIPE && pipes_broken == before + 2);
		close(p[1]);
		/* A second number keeps the pipe open; dup2 over it does not. */
		CHECK(pipe(p) == 0);
		if (warmed) warm(p);
		int other = dup(p[0]);
		close(p[0]);
		CHECK(write(p[1], bytes, 5) == 5 && read(other, bytes, 9) == 5);
		if (warmed) for (int i = 0; i < 40; i++)
			CHECK(write(p[1], bytes, 1) == 1 && read(other, bytes, 1) == 1);
		CHECK(dup2(p[1], other) == other);
		CHECK(write(p[1], bytes, 1) == -1 && errno == EPIPE);
		close(other);
		close(p[1]);
		/* A child that ends with the only read end. */
		CHECK(pipe(p) == 0);
		if (warmed) warm(p);
		pid_t child = fork();
		if (child == 0) { close(p[1]); char b; CHECK(read(p[0], &b, 1) == 1); _exit(0); }
		close(p[0]);
		CHECK(write(p[1], bytes, 1) == 1);
		child_ended_well(child);
		CHECK(write(p[1], bytes, 1) == -1 && errno == EPIPE);
		close(p[1]);
		/* Wrong ends, empty transfers, what it is. */
		CHECK(pipe(p) == 0);
		if (warmed) warm(p);
		CHECK(read(p[1], bytes, 1) == -1 && errno == EBADF);
		CHECK(write(p[0], bytes, 1) == -1 && errno == EBADF);
		CHECK(write(p[1], bytes, 0) == 0 && read(p[0], bytes, 0) == 0);
		CHECK(write(p[1], nowhere, 1) == -1 && errno == EFAULT);
		CHECK(write(p[1], bytes, 1) == 1);
		CHECK(read(p[0], nowhere, 1) == -1 && errno == EFAULT);
		struct stat stat;
		CHECK(fstat(p[0], &stat) == 0 && S_ISFIFO(stat.st_mode));
		CHECK(lseek(p[0], 0, SEEK_SET) == -1 && errno == ESPIPE);
		CHECK(fcntl(p[0], F_GETPIPE_SZ) == 65536);
		close(p[0]);
		close(p[1]);
	}
	printf("ends: ok\n");
}

/* Writers of records, some of them bigger than a pipe; each one's arrive in order and whole. */
struct record { uint32_t writer, number, length; };
static void writers(int count, int records, int huge)
{
	int p[2];
	CHECK(pipe(p) == 0);
	warm(p);
	pid_t children[16];
	for (int w = 0; w < count; w++) {
		if ((children[w] = fork()) != 0) continue;
		close(p[0]);
		seed += w * 7919;
		static uint8_t buffer[200000];
		for (int i = 0; i < records; i++) {
			unsigned most = huge && count == 1 ? sizeof buffer : 4096;
			unsigned length = sizeof(struct record) + below(below(4) ? 100 : most - 20);
			struct record head = {w, i, length};
			memcpy(buffer, &head, sizeof head);
			for (unsigned k = sizeof head; k < length; k++) buffer[k] = w * 17 + i * 3 + k;
			CHECK(write(p[1], buffer, length) == length);
			if (below(64) == 0) usleep(below(200));
		}
		_exit(0);
	}
	close(p[1]);
	uint32_t numbers[16] = {0};
	static uint8_t body[200000];
	struct record head;
	int seen = 0;
	while (whole_read(p[0], &head, sizeof head) == sizeof head) {
		CHECK(head.writer < (unsigned)count && head.number == numbers[head.writer]++);
		size_t rest = head.length - sizeof head;
		CHECK(whole_read(p[0], body, rest) == rest);
		for (size_t k = 0; k < rest; k++)
			CHECK(body[k] == (uint8_t)(head.writer * 17 + head.number * 3 + k + sizeof head));
		seen++;
		if (below(200) == 0) usleep(below(300));
	}
	for (int w = 0; w < count; w++) child_ended_well(children[w]);
	printf("writers: %d of %d records\n", seen, count * records);
}

/* One byte outstanding, at every distance between the two: who misses it hangs. */
static void outstanding(int rounds)
{
	int p[2], q[2];
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(p[1]);
		close(q[0]);
		char byte;
		while (read(p[0], &byte, 1) == 1) {
			for (volatile int i = below(3000); i > 0; i--) {}
			CHECK(write(q[1], &byte, 1) == 1);
		}
		_exit(0);
	}
	close(p[0]);
	close(q[1]);
	for (int i = 0; i < rounds; i++) {
		char byte = i, back;
		for (volatile int k = below(5000); k > 0; k--) {}
		CHECK(write(p[1], &byte, 1) == 1);
		CHECK(read(q[0], &back, 1) == 1 && back == byte);
	}
	close(p[1]);
	child_ended_well(child);
	printf("outstanding: %d rounds\n", rounds);
}

static volatile unsigned ticks;
static void on_tick(int s) { (void)s; ticks++; }

/* A signal every 200 us through blocking calls on both sides, with restarts and without. */
static void storm(int restart)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGALRM, &action, 0);
	struct itimerval often = {{0, 200}, {0, 200}};
	const size_t total = 12 << 20;
	pid_t child = fork();
	setitimer(ITIMER_REAL, &often, 0);
	static uint8_t buffer[150000];
	size_t at = 0;
	if (child == 0) {
		close(p[0]);
		while (at < total) {
			size_t n = 1 + below(below(8) ? 2000 : sizeof buffer);
			if (n > total - at) n = total - at;
			for (size_t k = 0; k < n; k++) buffer[k] = (at + k) * 13 >> 4;
			whole_write(p[1], buffer, n);
			at += n;
		}
		_exit(0);
	}
	close(p[1]);
	while (at < total) {
		ssize_t got = read(p[0], buffer, 1 + below(below(8) ? 3000 : sizeof buffer));
		if (got < 0 && errno == EINTR) { CHECK(!restart); continue; }
		CHECK(got > 0);
		for (ssize_t k = 0; k < got; k++) CHECK(buffer[k] == (uint8_t)((at + k) * 13 >> 4));
		at += got;
		if (below(300) == 0) for (volatile int k = 0; k < 400000; k++) {}
	}
	CHECK(ticks > 0);
	int status;
	while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
	CHECK(status == 0);
	struct itimerval never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &never, 0);
	/* A reader that sleeps for good is woken by one signal. */
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_tick}, 0);
	CHECK(pipe(p) == 0);
	warm(p);
	alarm(1);
	CHECK(read(p[0], buffer, 1) == -1 && errno == EINTR);
	printf("storm: %zu bytes\n", at);
}

/* kill -9 of writers and readers; what arrives is whole, and the end is noticed. */
static void kills(int rounds)
{
	signal(SIGPIPE, SIG_IGN);
	for (int round = 0; round < rounds; round++) {
		int p[2];
		CHECK(pipe(p) == 0);
		warm(p);
		pid_t writer = fork();
		if (writer == 0) {
			close(p[0]);
			uint32_t words[64];
			for (uint32_t i = 0;; i++) {
				for (int k = 0; k < 64; k++) words[k] = i;
				CHECK(write(p[1], words, sizeof words) == sizeof words);
			}
		}
		close(p[1]);
		uint32_t words[64], expected = 0;
		double end = now() + below(4000) / 1e6;
		int killed = 0;
		for (;;) {
			if (!killed && now() > end) { kill(writer, SIGKILL); killed = 1; }
			size_t got = whole_read(p[0], words, sizeof words);
			if (got == 0) break;
			CHECK(got == sizeof words);
			for (int k = 0; k < 64; k++) CHECK(words[k] == expected);
			expected++;
		}
		CHECK(killed);
		waitpid(writer, 0, 0);
		close(p[0]);
		/* The other way round: the reader dies, the writer hears of it. */
		CHECK(pipe(p) == 0);
		warm(p);
		pid_t reader = fork();
		if (reader == 0) {
			close(p[1]);
			char sink[256];
			while (read(p[0], sink, sizeof sink) > 0) {}
			_exit(0);
		}
		close(p[0]);
		end = now() + below(4000) / 1e6;
		killed = 0;
		double deadline = now() + 10;
		while (write(p[1], words, sizeof words) > 0) {
			CHECK(now() < deadline);
			if (!killed && now() > end) { kill(reader, SIGKILL); killed = 1; }
		}
		CHECK(errno == EPIPE && killed);
		waitpid(reader, 0, 0);
		close(p[1]);
	}
	printf("kills: %d rounds\n", rounds);
}

/* Who has waited for the killed reader writes to nobody, however fresh the ring is. */
static void buried(int rounds)
{
	signal(SIGPIPE, SIG_IGN);
	for (int round = 0; round < rounds; round++) {
		int there[2], back[2];
		char byte = 1;
		CHECK(pipe(there) == 0 && pipe(back) == 0);
		pid_t reader = fork();
		if (reader == 0) {
			close(there[1]);
			while (read(there[0], &byte, 1) == 1) CHECK(write(back[1], &byte, 1) == 1);
			_exit(0);
		}
		close(there[0]);
		close(back[1]);
		for (int i = 0; i < 60; i++) {
			CHECK(write(there[1], &byte, 1) == 1);
			CHECK(read(back[0], &byte, 1) == 1);
		}
		kill(reader, SIGKILL);
		/* The end of the other pipe would prove nothing: Linux closes in an order of its own. */
		CHECK(waitpid(reader, 0, 0) == reader);
		CHECK(write(there[1], &byte, 1) == -1 && errno == EPIPE);
		CHECK(read(back[0], &byte, 1) == 0);
		close(there[1]);
		close(back[0]);
	}
	printf("buried: %d rounds\n", rounds);
}

/* Reads, polls, selects and epolls in turn, on pipes and an eventfd; one event outstanding. */
static void polls(int kind, int rounds)
{
	enum { PIPES = 5 };
	int p[PIPES][2], back[2], event = eventfd(0, EFD_NONBLOCK);
	int epoll = epoll_create1(0);
	for (int i = 0; i < PIPES; i++) {
		CHECK(pipe(p[i]) == 0);
		if (i % 2) warm(p[i]);
	}
	CHECK(pipe(back) == 0);
	warm(back);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		close(back[1]);
		for (int i = 0; i < rounds; i++) {
			int which = below(PIPES + 1);
			for (volatile int k = below(4000); k > 0; k--) {}
			uint64_t one = 1;
			byte = i;
			if (which == PIPES) CHECK(write(event, &one, 8) == 8);
			else CHECK(write(p[which][1], &byte, 1) == 1);
			CHECK(read(back[0], &byte, 1) == 1);
		}
		_exit(0);
	}
	close(back[0]);
	for (int i = 0; kind == 2 && i <= PIPES; i++) {
		int fd = i == PIPES ? event : p[i][0];
		struct epoll_event want = {.events = EPOLLIN | (i % 2 ? EPOLLET : 0), .data.fd = fd};
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &want) == 0);
	}
	int got = 0;
	while (got < rounds) {
		int found = -1;
		if (kind == 0) {
			struct pollfd set[PIPES + 1];
			for (int i = 0; i <= PIPES; i++)
				set[i] = (struct pollfd){i == PIPES ? event : p[i][0], POLLIN, 0};
			CHECK(poll(set, PIPES + 1, 20000) == 1);
			for (int i = 0; i <= PIPES; i++) if (set[i].revents) found = set[i].fd;
		} else if (kind == 1) {
			fd_set reads;
			FD_ZERO(&reads);
			FD_SET(event, &reads);
			int most = event;
			for (int i = 0; i < PIPES; i++) {
				FD_SET(p[i][0], &reads);
				if (p[i][0] > most) most = p[i][0];
			}
			struct timeval limit = {20, 0};
			CHECK(select(most + 1, &reads, 0, 0, &limit) == 1);
			for (int fd = 0; fd <= most; fd++) if (FD_ISSET(fd, &reads)) found = fd;
		} else {
			struct epoll_event event_found;
			CHECK(epoll_wait(epoll, &event_found, 1, 20000) == 1);
			found = event_found.data.fd;
		}
		uint64_t word;
		CHECK(read(found, &word, 8) > 0);
		got++;
		char byte = 0;
		CHECK(write(back[1], &byte, 1) == 1);
	}
	child_ended_well(child);
	printf("polls: %d events\n", got);
}

/* Polls on pipes in use by a ring: bytes there are seen, and the sleep after is not in vain. */
static void poll_then_read(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		int p[2];
		CHECK(pipe(p) == 0);
		warm(p);
		pid_t child = fork();
		if (child == 0) {
			close(p[0]);
			for (volatile int k = below(30000); k > 0; k--) {}
			CHECK(write(p[1], "x", 1) == 1);
			for (volatile int k = below(30000); k > 0; k--) {}
			_exit(0);
		}
		close(p[1]);
		for (volatile int k = below(300000); k > 0; k--) {}
		struct pollfd one = {p[0], POLLIN, 0};
		CHECK(poll(&one, 1, 10000) == 1 && one.revents & POLLIN);
		char byte;
		CHECK(read(p[0], &byte, 1) == 1 && byte == 'x');
		CHECK(poll(&one, 1, 10000) == 1 && one.revents == POLLHUP);
		CHECK(read(p[0], &byte, 1) == 0);
		close(p[0]);
		child_ended_well(child);
	}
	printf("poll then read: %d rounds\n", rounds);
}

/* Who polls all the time and reads what is there misses no byte of many writers, nor their ends:
 * with as many pipes as `count`, `kind` as above, and a signal every 200 us. */
static void poll_streams(int kind, int count)
{
	enum { MOST = 20 };
	static uint8_t buffer[40000];
	int p[MOST][2], open_ends = count;
	size_t in[MOST], out[MOST] = {0};
	pid_t children[MOST];
	for (int i = 0; i < count; i++) in[i] = 1000 + below(600000);
	for (int i = 0; i < count; i++) CHECK(pipe(p[i]) == 0);
	for (int i = 0; i < count; i++) {
		if ((children[i] = fork()) != 0) continue;
		for (int k = 0; k < count; k++) { close(p[k][0]); if (k != i) close(p[k][1]); }
		seed += i * 7919;
		for (size_t at = 0; at < in[i];) {
			size_t n = 1 + below(below(8) ? 900 : sizeof buffer);
			if (n > in[i] - at) n = in[i] - at;
			for (size_t k = 0; k < n; k++) buffer[k] = (at + k) * 11 + i;
			whole_write(p[i][1], buffer, n);
			at += n;
			if (below(100) == 0) usleep(below(300));
		}
		_exit(0);
	}
	for (int i = 0; i < count; i++) close(p[i][1]);
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, 0);
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &often, 0);
	while (open_ends > 0) {
		struct pollfd set[MOST];
		fd_set reads;
		FD_ZERO(&reads);
		int most = 0, found;
		for (int i = 0; i < count; i++) {
			set[i] = (struct pollfd){p[i][0], POLLIN, 0};
			if (p[i][0] >= 0) FD_SET(p[i][0], &reads);
			if (p[i][0] > most) most = p[i][0];
		}
		struct timeval limit = {20, 0};
		if (kind == 0) found = poll(set, count, 20000);
		else found = select(most + 1, &reads, 0, 0, &limit);
		if (found < 0 && errno == EINTR) continue;
		CHECK(found > 0);
		for (int i = 0; i < count; i++) {
			if (p[i][0] < 0 || !(kind == 0 ? set[i].revents : FD_ISSET(p[i][0], &reads))) continue;
			ssize_t got = read(p[i][0], buffer, 1 + below(sizeof buffer));
			CHECK(got >= 0);
			for (ssize_t k = 0; k < got; k++) CHECK(buffer[k] == (uint8_t)((out[i] + k) * 11 + i));
			out[i] += got;
			if (got > 0) continue;
			CHECK(out[i] == in[i]);
			close(p[i][0]);
			p[i][0] = -1;
			open_ends--;
		}
	}
	setitimer(ITIMER_REAL, &never, 0);
	for (int i = 0; i < count; i++) child_ended_well(children[i]);
	printf("poll streams: %d\n", count);
}

/* Pollers that are killed, or jump out, leave a pipe that works. */
static sigjmp_buf out_of_poll;
static void on_jump(int s) { (void)s; siglongjmp(out_of_poll, 1); }
static void poll_then_gone(int rounds)
{
	for (volatile int round = 0; round < rounds; round++) {
		int p[2];
		char byte = round, back = 0;
		CHECK(pipe(p) == 0);
		if (round % 2) warm(p);
		struct pollfd one = {p[0], POLLIN, 0};
		pid_t poller = fork();
		if (poller == 0) {
			for (;;) CHECK(poll(&one, 1, 20000) == 0);
		}
		usleep(below(2000));
		kill(poller, SIGKILL);
		CHECK(waitpid(poller, 0, 0) == poller);
		sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_jump}, 0);
		struct itimerval soon = {{0, 0}, {0, 300}};
		if (sigsetjmp(out_of_poll, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, 0);
			poll(&one, 1, 20000);
			CHECK(!"nothing to read");
		}
		for (int i = 0; i < 20; i++) {
			CHECK(write(p[1], &byte, 1) == 1 && poll(&one, 1, 20000) == 1);
			CHECK(read(p[0], &back, 1) == 1 && back == byte);
		}
		CHECK(poll(&one, 1, 1) == 0);
		close(p[0]);
		close(p[1]);
	}
	printf("poll then gone: %d rounds\n", rounds);
}

/* Threads of one process on both sides. */
static int shared[2];
static void *pump(void *argument)
{
	uint64_t sum = 0, value;
	if (argument) {
		for (uint64_t i = 1; i <= 20000; i++) CHECK(write(shared[1], &i, 8) == 8);
		return 0;
	}
	while (read(shared[0], &value, 8) == 8 && value) sum += value;
	return (void *)sum;
}
static void threads(void)
{
	CHECK(pipe(shared) == 0);
	pthread_t in[3], out[3];
	for (int i = 0; i < 3; i++) pthread_create(&in[i], 0, pump, (void *)1);
	for (int i = 0; i < 3; i++) pthread_create(&out[i], 0, pump, 0);
	for (int i = 0; i < 3; i++) pthread_join(in[i], 0);
	uint64_t end = 0, total = 0;
	for (int i = 0; i < 3; i++) CHECK(write(shared[1], &end, 8) == 8);
	for (int i = 0; i < 3; i++) { void *sum; pthread_join(out[i], &sum); total += (uint64_t)sum; }
	CHECK(total == 3ull * 20000 * 20001 / 2);
	printf("threads: %llu\n", (unsigned long long)total);
}

/* What lets strangers in: each finds the bytes that waited in the ring, in order. */
static void strangers(void)
{
	int p[2], s[2];
	char bytes[64] = {0};
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	/* A message. */
	CHECK(pipe(p) == 0);
	warm(p);
	CHECK(write(p[1], "message", 7) == 7);
	char control[CMSG_SPACE(sizeof(int))] = {0}, one = 'm';
	struct iovec iov = {&one, 1};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &p[0], sizeof(int));
	CHECK(sendmsg(s[0], &message, 0) == 1);
	close(p[0]);
	CHECK(recvmsg(s[1], &message, 0) == 1);
	int passed;
	memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
	CHECK(write(p[1], "!", 1) == 1);
	CHECK(read(passed, bytes, 64) == 8 && memcmp(bytes, "message!", 8) == 0);
	/* A path. */
	CHECK(pipe(p) == 0);
	warm(p);
	CHECK(write(p[1], "path", 4) == 4);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", p[0]);
	int again = open(name, O_RDONLY);
	CHECK(again >= 0 && read(again, bytes, 64) == 4 && memcmp(bytes, "path", 4) == 0);
	/* A descriptor taken out of another process, and its path. */
	for (int way = 0; way < 2; way++) {
		CHECK(pipe(p) == 0);
		warm(p);
		CHECK(write(p[1], "taken", 5) == 5);
		pid_t taker = fork();
		if (taker == 0) {
			int read_end = p[0];
			close(p[0]);
			close(p[1]);
			if (way == 0) {
				int process = syscall(SYS_pidfd_open, getppid(), 0);
				again = syscall(SYS_pidfd_getfd, process, read_end, 0);
			} else {
				snprintf(name, sizeof name, "/proc/%d/fd/%d", getppid(), read_end);
				again = open(name, O_RDONLY);
			}
			CHECK(again >= 0 && read(again, bytes, 64) == 5 && memcmp(bytes, "taken", 5) == 0);
			_exit(0);
		}
		child_ended_well(taker);
		close(p[0]);
		close(p[1]);
	}
	/* splice, tee. */
	int q[2];
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	warm(p);
	warm(q);
	CHECK(write(p[1], "splice", 6) == 6);
	CHECK(tee(p[0], q[1], 6, 0) == 6);
	CHECK(read(q[0], bytes, 64) == 6 && memcmp(bytes, "splice", 6) == 0);
	CHECK(splice(p[0], 0, q[1], 0, 6, 0) == 6);
	CHECK(read(q[0], bytes, 64) == 6 && memcmp(bytes, "splice", 6) == 0);
	/* More than the host's pipe holds, half of it in the ring: then a stranger. */
	CHECK(pipe(p) == 0);
	warm(p);
	static uint8_t big[70000], all[70000];
	for (size_t i = 0; i < sizeof big; i++) big[i] = i * 7 >> 2;
	pid_t child = fork();
	if (child == 0) { close(p[0]); whole_write(p[1], big, sizeof big); _exit(0); }
	close(p[1]);
	usleep(20000);
	snprintf(name, sizeof name, "/dev/fd/%d", p[0]);
	again = open(name, O_RDONLY);
	CHECK(again >= 0 && whole_read(again, all, sizeof all) == sizeof all);
	CHECK(memcmp(big, all, sizeof all) == 0);
	child_ended_well(child);
	/* Another size, packets. */
	CHECK(pipe(p) == 0);
	warm(p);
	CHECK(write(p[1], "size", 4) == 4);
	CHECK(fcntl(p[0], F_SETPIPE_SZ, 1 << 18) == 1 << 18);
	CHECK(read(p[0], bytes, 64) == 4 && memcmp(bytes, "size", 4) == 0);
	CHECK(pipe2(p, O_DIRECT) == 0);
	for (int i = 0; i < 40; i++) {
		CHECK(write(p[1], "ab", 2) == 2 && write(p[1], "c", 1) == 1);
		CHECK(read(p[0], bytes, 64) == 2 && read(p[0], bytes, 64) == 1);
	}
	printf("strangers: ok\n");
}

/* Many at once. */
static void many(int count)
{
	static int p[2000][2];
	struct rlimit limit;
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	char byte = 7;
	for (int i = 0; i < count; i++) CHECK(pipe(p[i]) == 0);
	for (int round = 0; round < 12; round++)
		for (int i = 0; i < count; i++) {
			byte = i + round;
			CHECK(write(p[i][1], &byte, 1) == 1);
		}
	for (int round = 0; round < 12; round++)
		for (int i = 0; i < count; i++)
			CHECK(read(p[i][0], &byte, 1) == 1 && byte == (char)(i + round));
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < count; i++) {
			byte = i;
			CHECK(write(p[i][1], &byte, 1) == 1);
		}
		_exit(0);
	}
	for (int i = 0; i < count; i++) CHECK(read(p[i][0], &byte, 1) == 1 && byte == (char)i);
	child_ended_well(child);
	for (int i = 0; i < count; i++) { close(p[i][0]); close(p[i][1]); }
	printf("many: %d\n", count);
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	setvbuf(stdout, 0, _IONBF, 0);
	if (!strcmp(mode, "sequence")) sequence();
	else if (!strcmp(mode, "sizes")) sizes();
	else if (!strcmp(mode, "ends")) ends();
	else if (!strcmp(mode, "writers")) { writers(1, 3000, 1); writers(4, 4000, 0); }
	else if (!strcmp(mode, "outstanding")) outstanding(60000);
	else if (!strcmp(mode, "storm")) { storm(0); storm(1); }
	else if (!strcmp(mode, "kills")) kills(120);
	else if (!strcmp(mode, "buried")) buried(300);
	else if (!strcmp(mode, "polls")) {
		for (int kind = 0; kind < 3; kind++) polls(kind, 3000);
		poll_then_read(300);
	}
	else if (!strcmp(mode, "pollers")) {
		for (int kind = 0; kind < 2; kind++) { poll_streams(kind, 3); poll_streams(kind, 16); }
		poll_then_gone(60);
	}
	else if (!strcmp(mode, "threads")) threads();
	else if (!strcmp(mode, "strangers")) strangers();
	else if (!strcmp(mode, "many")) many(count > 2 ? atoi(words[2]) : 2000);
	else return 2;
	return 0;
}
