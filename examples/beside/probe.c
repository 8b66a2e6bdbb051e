/*
 * What measure.py runs inside of each system: does some work in the current directory, and prints
 * a line "NAME NANOSECONDS" for each row of the table: the median of some slices, so that moments
 * in which the machine does something else do not count. Its files are in the current directory:
 * archive.tar, hello-c, repository.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { SLICES = 51, FILES = 40, LOOKS = 200, COMMANDS = 5 };

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Runs a command and waits for it; it must succeed. */
static void run(char *const words[])
{
	pid_t child;
	int status;
	errno = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
	if (errno != 0)
		fail(words[0]);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("wait");
	if (status != 0) {
		fprintf(stderr, "probe: %s ended with wait status %#x\n", words[0], status);
		exit(1);
	}
}

static void shell(const char *line)
{
	char *words[] = { "sh", "-c", (char *)line, NULL };
	run(words);
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;
	return (difference > 0) - (difference < 0);
}

/* Does the work in slices; the median time of one repetition. */
static void measure(const char *name, void (*work)(void), int slices, int repetitions)
{
	double took[SLICES];
	work();
	for (int n = 0; n < slices; n++) {
		double begin = now();
		work();
		took[n] = (now() - begin) / repetitions;
	}
	qsort(took, slices, sizeof took[0], compare);
	printf("%s %.0f\n", name, took[slices / 2]);
	fflush(stdout);
}

static void start(void)
{
	char *words[] = { "/bin/true", NULL };
	run(words);
}

static void create(void)
{
	for (int n = 0; n < FILES; n++) {
		char name[32];
		snprintf(name, sizeof name, "made/%d", n);
		int file = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
		if (file < 0)
			fail(name);
		close(file);
		if (unlink(name) < 0)
			fail(name);
	}
}

static void look(void)
{
	for (int n = 0; n < LOOKS; n++) {
		struct stat found;
		if (stat("hello-c/Makefile", &found) < 0)
			fail("stat");
	}
}

static void unpack(void)
{
	static int times;
	char line[64];
	snprintf(line, sizeof line, "mkdir out%d && tar -xf archive.tar -C out%d", times, times);
	times++;
	shell(line);
}

static void make(void)
{
	shell("make -s -B -C hello-c");
}

static void status(void)
{
	shell("git -C repository status --short > /dev/null");
}

int main(void)
{
	if (mkdir("made", 0755) < 0)
		fail("mkdir");
	measure("start", start, SLICES, 1);
	measure("create", create, SLICES, FILES);
	measure("stat", look, SLICES, LOOKS);
	measure("untar", unpack, COMMANDS, 1);
	measure("make", make, 1, 1);
	measure("git", status, COMMANDS, 1);
	return 0;
}
