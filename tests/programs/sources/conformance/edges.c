/* Buffers and names that end where memory ends: every length and every place before a page that
   is not there. What a call does there is printed; Linux and Husk must print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, LONGEST = 700 };

static char *end; /* the first byte that cannot be touched */

static unsigned sum(const char *bytes, size_t count)
{
    unsigned sum = 2166136261u;
    for (size_t i = 0; i < count; i++) sum = (sum ^ (unsigned char)bytes[i]) * 16777619u;
    return sum;
}

static void say(const char *what, int length, long result)
{
    printf("%s %d %ld %s\n", what, length, result, result < 0 ? strerrorname_np(errno) : "");
}

/* Each length up to the edge, with what lies before it unharmed; then one byte behind the edge. */
static void bytes(int file)
{
    char content[LONGEST];
    for (int i = 0; i < LONGEST; i++) content[i] = (char)(i * 37 + i / 256);
    say("fill", LONGEST, pwrite(file, content, LONGEST, 0));
    for (int length = 0; length <= LONGEST; length++) {
        memset(end - LONGEST - 16, 'x', LONGEST + 16);
        say("pread", length, pread(file, end - length, length, length % 5));
        printf("%x\n", sum(end - LONGEST - 16, LONGEST + 16));
        say("pwrite", length, pwrite(file, end - length, length, LONGEST));
        say("back", length, pread(file, content, length, LONGEST));
        printf("%x\n", sum(content, length));
    }
    say("beyond", 1, pread(file, end, 1, 0));
    say("beyond", 100, pread(file, end, 100, 0));
    say("beyond", 1000, pwrite(file, end, 1000, 0));
}

static void structures(int file)
{
    for (int room = 0; room <= (int)sizeof(struct stat) + 8; room++)
        say("fstat", room, fstat(file, (struct stat *)(end - room)));
}

/* A name of each length whose NUL is the last byte there is, then without its NUL. */
static void names(void)
{
    char name[2 * PAGE];
    memset(name, '/', sizeof name);
    name[0] = '.';
    for (int length = 1; length <= 300; length++) {
        char *at = end - length - 1;
        memcpy(at, name, length);
        end[-1] = 0;
        say("dots", length, access(at, F_OK));
        memset(at, 'n', length);
        say("absent", length, access(at, F_OK));
        end[-1] = 'n';
        say("endless", length, access(at + 1, F_OK));
    }
    for (int length = PAGE - 20; length < PAGE + 20; length++) {
        memset(end - length - 1, '/', length);
        end[-1] = 0;
        say("long", length, access(end - length - 1, F_OK));
    }
}

int main(void)
{
    char *memory = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = memory + 3 * PAGE;
    mprotect(end, PAGE, PROT_NONE);
    int file = open("edges", O_RDWR | O_CREAT, 0644);
    bytes(file);
    structures(file);
    names();
    return 0;
}
