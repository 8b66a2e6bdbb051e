/* Locks that outlive their holders, forks and execs of threads, rights, limits, descriptors: what
 * programs of all kinds ask of a process. Prints what Linux says. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { \
    printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); fflush(stdout); _exit(1); } \
    } while (0)

static void told(const char *what, long value) {
    printf("%s: %ld\n", what, value);
    fflush(stdout);
}
static int status_of(pid_t pid) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    return status;
}

/* A lock in a shared mapping of a file, whose holder is killed. */
struct shared { pthread_mutex_t robust, prio; int ready; };
static void locks(void) {
    int fd = open("locks", O_CREAT | O_RDWR, 0644);
    NEED(fd >= 0 && ftruncate(fd, 4096) == 0);
    struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(s != MAP_FAILED);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    NEED(pthread_mutex_init(&s->robust, &a) == 0);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    NEED(pthread_mutex_init(&s->prio, &a) == 0);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        pthread_mutex_lock(&s->robust);
        pthread_mutex_lock(&s->prio);
        __atomic_store_n(&s->ready, 1, __ATOMIC_SEQ_CST);
        for (;;) pause();
    }
    while (!__atomic_load_n(&s->ready, __ATOMIC_SEQ_CST)) sched_yield();
    told("robust, held", pthread_mutex_trylock(&s->robust));
    told("pi, held", pthread_mutex_trylock(&s->prio));
    kill(pid, SIGKILL);
    told("robust, holder killed", pthread_mutex_lock(&s->robust));
    told("pi, holder killed", pthread_mutex_lock(&s->prio));
    told("robust, consistent", pthread_mutex_consistent(&s->robust));
    told("pi, consistent", pthread_mutex_consistent(&s->prio));
    told("robust, unlocked", pthread_mutex_unlock(&s->robust));
    told("pi, unlocked", pthread_mutex_unlock(&s->prio));
    told("killed", status_of(pid));
    munmap(s, 4096), close(fd), unlink("locks");
}

static void *forks(void *unused) {
    for (int n = 0; n < 20; n++) {
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) {
            int fd = open("forked", O_CREAT | O_RDWR | O_APPEND, 0644);
            _exit(fd < 0 || write(fd, "x", 1) != 1);
        }
        NEED(status_of(pid) == 0);
    }
    return unused;
}
static void forks_from_threads(void) {
    pthread_t ids[4];
    for (int n = 0; n < 4; n++) NEED(pthread_create(&ids[n], NULL, forks, NULL) == 0);
    for (int n = 0; n < 4; n++) pthread_join(ids[n], NULL);
    struct stat facts;
    NEED(stat("forked", &facts) == 0);
    told("forked", facts.st_size);
    unlink("forked");
}

static void *runs(void *path) {
    execl(path, path, "ran", NULL);
    return NULL;
}
static void *sleeps(void *unused) { for (;;) pause(); return unused; }
static void exec_from_a_thread(char *path) {
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        pthread_t id, others[3];
        for (int n = 0; n < 3; n++) pthread_create(&others[n], NULL, sleeps, NULL);
        pthread_create(&id, NULL, runs, path);
        sleeps(NULL);
    }
    told("exec from a thread", WEXITSTATUS(status_of(pid)));
}
static int ran(void) {
    int threads = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d));) threads += e->d_name[0] != '.';
    closedir(d);
    return getpid() == gettid() && threads == 1 ? 42 : 1;
}

static int counted(const char *path) {
    int count = 0;
    DIR *d = opendir(path);
    NEED(d);
    for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
    closedir(d);
    return count - 1;
}
static void descriptors(void) {
    struct rlimit files;
    NEED(getrlimit(RLIMIT_NOFILE, &files) == 0);
    /* 65536, or what this user may have. */
    rlim_t all = files.rlim_max < 65536 ? files.rlim_max : 65536;
    files.rlim_cur = all;
    NEED(setrlimit(RLIMIT_NOFILE, &files) == 0);
    close(open("plain", O_CREAT | O_RDWR, 0644));
    for (int n = 3; n < 65536; n++) close(n);
    told("lowest after closing all", open("plain", O_RDWR));
    told("shown", counted("/proc/self/fd"));
    for (int n = 4; n < 1020; n++) NEED(dup2(3, n) == n && write(n, "y", 1) == 1);
    told("dup2 onto all below 1020, shown", counted("/proc/self/fd"));
    NEED(dup2(3, all - 1) == (int)all - 1);
    told("close_range", close_range(4, ~0u, 0));
    told("shown", counted("/proc/self/fd"));
    told("written", lseek(3, 0, SEEK_END));
    told("close_range, cloexec", close_range(3, 3, CLOSE_RANGE_CLOEXEC));
    told("flags", fcntl(3, F_GETFD));
    struct rlimit most = { 1048576, 1048576 };
    if (setrlimit(RLIMIT_NOFILE, &most) == 0) {
        int high = fcntl(3, F_DUPFD, 1048000);
        NEED(high == 1048000 && write(high, "z", 1) == 1 && close(high) == 0);
    }
    told("closed", close(3));
    unlink("plain");
}

static void names_and_rights(void) {
    char name[16];
    prctl(PR_SET_NAME, "renamed");
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    fflush(stdout);
    int fd = open("secret", O_CREAT | O_RDWR, 0600);
    close(fd);
    if (geteuid() != 0) return;
    pid_t pid = fork();
    if (pid == 0) {
        struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct d[2] = { { 0 }, { 0 } };
        /* Root without capabilities is the owner still. */
        NEED(syscall(SYS_capset, &h, d) == 0);
        told("capset, own file", open("secret", O_RDWR) >= 0);
        told("chown refused", chown("secret", 5, 5) < 0 ? errno : 0);
        told("setuid refused", setuid(7) < 0 ? errno : 0);
        _exit(0);
    }
    told("capset", status_of(pid));
    pid = fork();
    if (pid == 0) {
        NEED(setgid(65534) == 0 && setuid(65534) == 0);
        told("setuid, file of another", open("secret", O_RDWR) < 0 ? errno : 0);
        told("setuid back", setuid(0) < 0 ? errno : 0);
        _exit(0);
    }
    told("setuid", status_of(pid));
    unlink("secret");
}

static void address_space(void) {
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = { 128 << 20, 128 << 20 }, found;
        NEED(setrlimit(RLIMIT_AS, &limit) == 0);
        NEED(getrlimit(RLIMIT_AS, &found) == 0);
        told("limit", found.rlim_cur == limit.rlim_cur && found.rlim_max == limit.rlim_max);
        void *little = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
            -1, 0);
        told("32 MiB", little != MAP_FAILED);
        void *much = mmap(NULL, 256 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
            -1, 0);
        told("256 MiB", much != MAP_FAILED);
        int fd = open("limited", O_CREAT | O_RDWR, 0644);
        told("written", fd >= 0 && write(fd, "limited\n", 8) == 8);
        fflush(stdout);
        execl("/bin/cat", "cat", "limited", NULL);
        _exit(1);
    }
    told("RLIMIT_AS", status_of(pid));
    unlink("limited");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "ran") == 0) return ran();
    locks();
    forks_from_threads();
    exec_from_a_thread(argv[0]);
    names_and_rights();
    address_space();
    descriptors();
    puts("ok");
    return 0;
}
