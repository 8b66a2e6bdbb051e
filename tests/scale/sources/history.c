/* Processes race for 4 names in 3 directories, two of which are moved about by the same names, and
 * note what each call gave. Then one order of all calls is looked for that gives the same results
 * on an obvious model: each call at one moment between its beginning and its end (`link` at two, as
 * it finds its file before it looks at the new name). history PROCESSES OPERATIONS SEED
 *
 *   call A   |-----x------|          a possibility: the tree, and who of the pending calls is done.
 *   call B       |----x------|       When one ends it must be done: others are done before it only
 *   call C    |-x--|                 where that explains it; where nothing does, another way is
 *                                    taken at the end before, or at that before it, ...
 *
 * A call that changes nothing is done as soon as its result is right: later is no better. Of two
 * that change the same, the one that ends first happens first: the other way round is no better.
 * Without this a search may go back over many thousands of calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } } while (0)
#define DIRECTORIES 3
#define NAMES 4
#define SLOTS (DIRECTORIES * NAMES)
#define PROCESSES_MAX 8
/* Possibilities before one end of a call; all that are tried in one search. */
#define WAYS_MAX 4096
#define TRIED_MAX (1 << 24)
/* Single lies that are told of a true history, each of which must be found. */
#define LIES 40
#define LIED_OF 50
/* So many calls of each process, and that many of all overlap, also on a busy machine. */
#define MANY 100000
#define BESIDE_MIN 100

enum { CREATE, MKDIR, UNLINK, RMDIR, LOOK, PARENT, RENAME, NOREPLACE, EXCHANGE, LINK, KINDS };
static const char *const CALLED[] = { "create", "mkdir", "unlink", "rmdir", "look", "parent",
    "rename", "noreplace", "exchange", "link" };

/* One call of one process: when it began and ended, what it was asked and what it gave. */
struct call {
    uint64_t begun, ended, inode;
    uint8_t kind, from, to, who;
    uint8_t directory; /* What was looked at is one. */
    int result;
};

/* What is behind a name: 0 nothing, 1 and 2 the directories that move, then what calls made, in the
 * order of the calls. An inode number may come again, what was made may not. */
typedef uint32_t thing;
struct possible {
    thing slot[SLOTS];
    thing found[PROCESSES_MAX]; /* What a pending link has found. */
    uint8_t done;               /* Processes whose pending call has happened. */
};

static struct call *history;
static uint64_t *moment;
static int *started;
static int processes;
static long operations;
static int directory[DIRECTORIES];
static uint64_t home[DIRECTORIES];

static uint64_t seed;
static unsigned dice(unsigned bound) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % bound;
}

/* ---- what is done */

static void name_of(int slot, char *name) {
    name[0] = 'a' + slot % NAMES;
    name[1] = 0;
}

static uint64_t tick(void) {
    return __atomic_fetch_add(moment, 1, __ATOMIC_SEQ_CST);
}

static void perform(struct call *c) {
    char from[2], to[2];
    struct stat facts = { 0 };
    int d = directory[c->from / NAMES], e = directory[c->to / NAMES], fd = -1;
    name_of(c->from, from), name_of(c->to, to);
    errno = 0;
    c->begun = tick();
    switch (c->kind) {
    case CREATE: fd = openat(d, from, O_CREAT | O_EXCL | O_WRONLY, 0644); break;
    case MKDIR: mkdirat(d, from, 0755); break;
    case UNLINK: unlinkat(d, from, 0); break;
    case RMDIR: unlinkat(d, from, AT_REMOVEDIR); break;
    case LOOK: fstatat(d, from, &facts, AT_SYMLINK_NOFOLLOW); break;
    case PARENT: fstatat(d, "..", &facts, 0); break;
    case RENAME: renameat(d, from, e, to); break;
    case NOREPLACE: renameat2(d, from, e, to, 1); break;
    case EXCHANGE: renameat2(d, from, e, to, 2); break;
    case LINK: linkat(d, from, e, to, 0); break;
    }
    c->result = errno;
    c->ended = tick();
    if (fd >= 0)
        NEED(fstat(fd, &facts) == 0 && close(fd) == 0);
    c->inode = facts.st_ino;
    c->directory = S_ISDIR(facts.st_mode);
}

static void play(int who) {
    for (long n = 0; n < operations; n++) {
        struct call *c = &history[who * operations + n];
        c->who = who;
        c->kind = dice(8) < 3 ? LOOK : dice(KINDS);
        c->from = dice(SLOTS);
        c->to = dice(SLOTS);
        if (c->kind == PARENT)
            c->from = NAMES * (1 + dice(2));
        perform(c);
    }
}

/* ---- the obvious model */

static int is_directory(thing what) {
    return what && (what < DIRECTORIES || history[what - DIRECTORIES].kind == MKDIR);
}

/* Whether `c` has seen `what`: whose number `mkdir` made is not known. */
static int seen(thing what, const struct call *c) {
    if (is_directory(what) != c->directory)
        return 0;
    if (what < DIRECTORIES)
        return c->inode == home[what];
    if (c->directory)
        return c->inode != home[1] && c->inode != home[2];
    return c->inode == history[what - DIRECTORIES].inode;
}

/* The directory that `what` is in, or -1. */
static int place(const struct possible *p, thing what) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (p->slot[slot] == what)
            return slot / NAMES;
    return -1;
}

/* Whether the directory `what` is `where` or above it. */
static int above(const struct possible *p, thing what, int where) {
    for (int up = 0; where > 0 && up < DIRECTORIES; up++) {
        if ((thing)where == what)
            return 1;
        where = place(p, where);
    }
    return 0;
}

/* The errno of a rename, in Linux's order. */
static int judge(const struct possible *p, const struct call *c) {
    thing old = p->slot[c->from], new = p->slot[c->to];
    int source = c->from / NAMES, target = c->to / NAMES, exchange = c->kind == EXCHANGE;
    if (!old)
        return ENOENT;
    if (c->kind == NOREPLACE && new)
        return EEXIST;
    if (exchange && !new)
        return ENOENT;
    if (source != target && is_directory(old) && above(p, old, target))
        return EINVAL;
    if (source != target && is_directory(new) && above(p, new, source))
        return exchange ? EINVAL : ENOTEMPTY;
    if (old == new || exchange || !new)
        return 0;
    if (is_directory(old) != is_directory(new))
        return is_directory(old) ? ENOTDIR : EISDIR;
    return new < DIRECTORIES ? ENOTEMPTY : 0;
}

static int answer(const struct possible *p, const struct call *c) {
    thing what = p->slot[c->from];
    switch (c->kind) {
    case CREATE: case MKDIR: return what ? EEXIST : 0;
    case UNLINK: return !what ? ENOENT : is_directory(what) ? EISDIR : 0;
    case RMDIR:
        return !what ? ENOENT : !is_directory(what) ? ENOTDIR : what < DIRECTORIES ? ENOTEMPTY : 0;
    case LOOK: return what ? 0 : ENOENT;
    case PARENT: return 0;
    default: return judge(p, c);
    }
}

static int changes(const struct call *c) {
    return c->result == 0 && c->kind != LOOK && c->kind != PARENT;
}

/* The number of a call as a thing. */
static thing made_by(const struct call *c) {
    return DIRECTORIES + (c - history);
}

/* `c` happens in `p`, if it can give what it gave. */
static int happens(struct possible *p, const struct call *c) {
    thing *from = &p->slot[c->from], *to = &p->slot[c->to], what = *from;
    if (answer(p, c) != c->result)
        return 0;
    if (c->kind == LOOK && !c->result && !seen(what, c))
        return 0;
    if (c->kind == PARENT && home[place(p, c->from / NAMES)] != c->inode)
        return 0;
    p->done |= 1 << c->who;
    if (!changes(c) || (c->kind > PARENT && what == *to))
        return 1;
    switch (c->kind) {
    case CREATE: case MKDIR:
        for (int slot = 0; c->kind == CREATE && slot < SLOTS; slot++)
            if (p->slot[slot] && !is_directory(p->slot[slot]) && seen(p->slot[slot], c))
                return 0;
        *from = made_by(c);
        break;
    case EXCHANGE: *from = *to, *to = what; break;
    case RENAME: case NOREPLACE: *to = what; /* fall through */
    default: *from = 0;
    }
    return 1;
}

/* The second half of a link. */
static int links(struct possible *p, const struct call *c) {
    thing what = p->found[c->who];
    int gives = p->slot[c->to] ? EEXIST : is_directory(what) ? EPERM : place(p, what) < 0 ? ENOENT : 0;
    if (gives != c->result)
        return 0;
    if (!gives)
        p->slot[c->to] = what;
    p->found[c->who] = 0;
    p->done |= 1 << c->who;
    return 1;
}

/* ---- the search */

/* A moment at which a call ended, what was the case before, and which way was taken from there. */
struct step {
    struct possible before;
    int way;
    int who;
};

static struct step *steps;
static struct call *pending[PROCESSES_MAX];
static long next[PROCESSES_MAX];
/* What was tried before: sums of what was the case, and where. */
static uint64_t *tried;
static long tries;
/* All that can follow from one possibility before somebody ends. */
static struct possible ways[WAYS_MAX];
static int way_count;

static uint64_t sum(const struct possible *p, uint64_t start) {
    const unsigned char *bytes = (const void *)p;
    for (size_t n = 0; n < sizeof *p; n++)
        start = (start ^ bytes[n]) * 1099511628211u;
    return (start ^ start >> 31) | 1;
}

/* Whether `p` behind `depth` ends of calls is new. */
static int untried(const struct possible *p, long depth) {
    uint64_t mark = sum(p, 14695981039346656037u + depth * 0x9e3779b97f4a7c15u);
    uint64_t at = mark % TRIED_MAX;
    for (; tried[at]; at = (at + 1) % TRIED_MAX)
        if (tried[at] == mark)
            return 0;
    tried[at] = mark;
    tries++;
    return 1;
}

/* The halves of a link that fails, where they can happen. Which file, or which directory, it has
 * found makes no difference: it is noted as 1. */
static void fails(struct possible *p, const struct call *c) {
    thing what = p->slot[c->from];
    if (c->result == ENOENT) {
        p->done |= !what << c->who;
        return;
    }
    if (what && (c->result == EEXIST || is_directory(what)))
        p->found[c->who] = 1;
    if (p->found[c->who] && (c->result == EEXIST) == !!p->slot[c->to]) {
        p->found[c->who] = 0;
        p->done |= 1 << c->who;
    }
}

/* What changes nothing happens at once where it can. */
static void settle(struct possible *p) {
    for (int who = 0; who < processes; who++) {
        struct possible after = *p;
        struct call *c = pending[who];
        if (!c || p->done >> who & 1 || changes(c))
            continue;
        if (c->kind == LINK)
            fails(p, c);
        else if (happens(&after, c))
            *p = after;
    }
}

/* Whether a link that was made has found a file without a name in `p`: no name comes back. */
static int too_late(const struct possible *p) {
    for (int who = 0; who < processes; who++) {
        const struct call *c = pending[who];
        if (c && c->result == 0 && p->found[who] && place(p, p->found[who]) < 0)
            return 1;
    }
    return 0;
}

static void add(struct possible p) {
    settle(&p);
    if (too_late(&p))
        return;
    for (int n = 0; n < way_count; n++)
        if (!memcmp(&ways[n], &p, sizeof p))
            return;
    NEED(way_count < WAYS_MAX);
    ways[way_count++] = p;
}

/* Whether a pending call that changes the same as `c` ends before it. */
static int behind(const struct possible *p, const struct call *c) {
    for (int who = 0; who < processes; who++) {
        const struct call *other = pending[who];
        if (other && other != c && !(p->done >> who & 1) && changes(other) && other->kind == c->kind
            && other->from == c->from && other->to == c->to && other->ended < c->ended)
            return c->kind != CREATE && c->kind != LINK;
    }
    return 0;
}

/* What follows when `who`'s pending call, or a half of it, happens next. */
static void follow(struct possible p, int who) {
    struct call *c = pending[who];
    if (!c || p.done >> who & 1)
        return;
    if (c->kind != LINK) {
        if (changes(c) && !behind(&p, c) && happens(&p, c))
            add(p);
    } else if (p.found[who]) {
        if (links(&p, c))
            add(p);
    } else if (p.slot[c->from] && (c->result == 0 || c->result == ENOENT)) {
        p.found[who] = p.slot[c->from];
        add(p);
    }
}

/* The `way`-th possibility behind `before` in which `who` is done: fewest other calls first, and
 * none behind that of `who`, as they may come later. */
static int find_way(const struct possible *before, int who, int way, struct possible *found) {
    way_count = 0;
    add(*before);
    for (int n = 0; n < way_count; n++) {
        struct possible p = ways[n];
        if (p.done >> who & 1) {
            if (way-- > 0)
                continue;
            *found = p;
            return 1;
        }
        follow(p, who);
        for (int other = 0; other < processes; other++)
            if (other != who)
                follow(p, other);
    }
    return 0;
}

/* The next possibility behind a step that was not tried. */
static int another_way(struct step *step, long depth, struct possible *found) {
    while (find_way(&step->before, step->who, step->way++, found))
        if (untried(found, depth))
            return 1;
    return 0;
}

/* Begins calls until one is to end: whose, or -1. */
static int until_an_end(struct possible *p, long length) {
    for (;;) {
        int who = -1;
        uint64_t soonest = UINT64_MAX;
        for (int n = 0; n < processes; n++) {
            uint64_t at = next[n] == length ? UINT64_MAX
                : pending[n] ? pending[n]->ended : history[n * operations + next[n]].begun;
            if (at < soonest)
                soonest = at, who = n;
        }
        if (who < 0 || pending[who])
            return who;
        pending[who] = &history[who * operations + next[who]];
        settle(p);
    }
}

/* Takes the ends of calls back to `step`: those that begin later are not pending. */
static void take_back(const struct step *step) {
    next[step->who]--;
    pending[step->who] = &history[step->who * operations + next[step->who]];
    for (int n = 0; n < processes; n++)
        if (pending[n] && pending[n]->begun > pending[step->who]->ended)
            pending[n] = NULL;
}

/* Whether the first `length` calls of each process are in an order; else the latest that was not
 * explained. */
static struct call *wrong(long length) {
    struct possible p = { .slot = { 1, 2 } };
    struct call *latest = history;
    long depth = 0;
    memset(pending, 0, sizeof pending);
    memset(next, 0, sizeof next);
    memset(tried, 0, tries ? TRIED_MAX * sizeof *tried : 0);
    tries = 0;
    for (;;) {
        int who = until_an_end(&p, length);
        if (who < 0)
            return NULL;
        if (pending[who]->ended > latest->ended)
            latest = pending[who];
        steps[depth] = (struct step){ .before = p, .who = who };
        while (!another_way(&steps[depth], depth, &p)) {
            if (depth == 0 || tries > TRIED_MAX / 2)
                return latest;
            take_back(&steps[--depth]);
        }
        who = steps[depth++].who;
        p.done &= ~(1 << who);
        pending[who] = NULL;
        next[who]++;
    }
}

static void tell(const struct call *c) {
    printf("%d %s %d %d = %d (%lu) from %lu to %lu\n", c->who, CALLED[c->kind], c->from, c->to,
        c->result, c->inode, c->begun, c->ended);
}

/* One result of a true history is changed; it must be found. */
static void lies(long length) {
    int found = 0;
    for (int n = 0; n < LIES; n++) {
        struct call *c = &history[dice(processes) * operations + dice(length - 1)], true = *c;
        if (c->kind == LOOK && !c->result)
            c->inode += 1000003, c->directory = 0;
        else if (c->kind == PARENT)
            c->inode = home[c->inode == home[0]];
        else
            c->result = c->result ? 0 : ENOENT;
        found += wrong(length) != NULL;
        *c = true;
    }
    /* A few lies could be true: a name that was made and removed at once. */
    if (found < LIES * 9 / 10)
        printf("only %d of %d lies were found\n", found, LIES);
}

static void *room(size_t bytes, int shared) {
    int flags = MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static void prepare(void) {
    const char *path[] = { "root", "root/a", "root/b" };
    struct stat facts;
    for (int n = 0; n < DIRECTORIES; n++) {
        NEED(mkdir(path[n], 0755) == 0);
        NEED((directory[n] = open(path[n], O_PATH | O_DIRECTORY)) >= 0);
        NEED(fstat(directory[n], &facts) == 0);
        home[n] = facts.st_ino;
        /* Never empty: nothing takes its place. */
        NEED(mkdirat(directory[n], "stays", 0755) == 0);
    }
}

int main(int argc, char **argv) {
    NEED(argc == 4);
    processes = atoi(argv[1]);
    operations = atol(argv[2]);
    NEED(processes > 0 && processes <= PROCESSES_MAX && operations > 1);
    history = room(processes * operations * sizeof *history, 1);
    moment = room(4096, 1);
    started = (int *)(moment + 64);
    steps = room(processes * operations * sizeof *steps, 0);
    tried = room(TRIED_MAX * sizeof *tried, 0);
    prepare();
    for (int who = 0; who < processes; who++) {
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) {
            while (!__atomic_load_n(started, __ATOMIC_ACQUIRE))
                sched_yield();
            seed = strtoul(argv[3], NULL, 10) * PROCESSES_MAX + who;
            for (int n = 0; n < 8; n++) dice(2);
            play(who);
            _exit(0);
        }
    }
    __atomic_store_n(started, 1, __ATOMIC_RELEASE);
    for (int n = 0, status; n < processes; n++)
        NEED(wait(&status) > 0 && status == 0);
    long done[KINDS] = { 0 };
    struct call *bad = wrong(operations);
    if (bad) {
        tell(bad);
        for (int n = 0; n < processes; n++)
            if (pending[n])
                tell(pending[n]);
        printf("no order was found that explains this one, %ld tried, seed %s\n", tries, argv[3]);
        return 1;
    }
    for (long n = 0; n < processes * operations; n++)
        done[history[n].kind] += history[n].result == 0;
    for (int kind = 0; kind < KINDS; kind++)
        if (done[kind] * 1000 < processes * operations)
            printf("%s: only %ld successes\n", CALLED[kind], done[kind]);
    long beside = 0;
    for (long n = 0; n < processes * operations; n++)
        beside += history[n].ended - history[n].begun > 1;
    if (operations >= MANY && beside < BESIDE_MIN)
        printf("only %ld calls were made beside others\n", beside);
    fprintf(stderr, "%ld calls, %ld of them beside others, %ld possibilities tried\n",
        processes * operations, beside, tries);
    lies(operations < LIED_OF ? operations : LIED_OF);
    printf("history: ok\n");
    return 0;
}
