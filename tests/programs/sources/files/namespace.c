// What a process has rights over in a user namespace of its own: what ids own that it maps.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY(call)                                                              \
    do {                                                                       \
        errno = 0;                                                             \
        long result = (call);                                                  \
        printf("%s: %s%s\n", #call, result < 0 ? "" : "done", result < 0 ? strerror(errno) : ""); \
        fflush(stdout);                                                        \
    } while (0)

static void show(const char *name) {
    struct stat found;
    if (stat(name, &found) < 0) {
        printf("%s: %s\n", name, strerror(errno));
        return;
    }
    printf("%s: %u:%u %o\n", name, found.st_uid, found.st_gid, found.st_mode);
    fflush(stdout);
}

static int put(const char *file, const char *text) {
    int fd = open(file, O_WRONLY);
    if (fd < 0)
        return -1;
    int result = write(fd, text, strlen(text)) < 0 ? -1 : 0;
    close(fd);
    return result;
}

static void others(void) {
    TRY(open("secret", O_RDWR));
    TRY(truncate("secret", 0));
    TRY(chmod("secret", 0666));
    TRY(chown("secret", 65534, 65534));
    TRY(mkdir("closed/x", 0700));
    TRY(rename("secret", "mine"));
    TRY(unlink("secret"));
    TRY(link("secret", "public/second"));
    TRY(access("secret", R_OK));
    show("secret");
}

static void own(void) {
    TRY(open("public/sealed", O_RDWR));
    TRY(chmod("public/sealed", 04400));
    TRY(close(open("public/made", O_CREAT | O_RDWR, 0640)));
    show("public/made");
    show("public/sealed");
    show("public");
}

// Both sides have a file of nobody's; what root owns is made by the first lines.
int main(void) {
    char map[64];
    umask(022);
    close(open("secret", O_CREAT | O_RDWR, 0600));
    mkdir("closed", 0700);
    mkdir("public", 0755);
    close(open("public/sealed", O_CREAT | O_RDWR, 0400));
    if (geteuid() == 0) {
        chown("public", 65534, 65534);
        chown("public/sealed", 65534, 65534);
        setgroups(0, 0);
        setresgid(65534, 65534, 65534);
        setresuid(65534, 65534, 65534);
        // Else its files in /proc stay root's.
        prctl(PR_SET_DUMPABLE, 1);
    }
    puts("as an ordinary user");
    others();
    unsigned user = geteuid(), group = getegid();
    TRY(unshare(CLONE_NEWUSER));
    puts("before anything is mapped");
    others();
    puts("mapped to root");
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", user);
    TRY(put("/proc/self/uid_map", map));
    snprintf(map, sizeof map, "0 %u 1", group);
    TRY(put("/proc/self/gid_map", map));
    printf("%u %u\n", geteuid(), getegid());
    others();
    own();
    TRY(chown("public/made", 0, 0));
    TRY(chown("public/made", 7, 7));
    int child = fork();
    if (child == 0) {
        execlp("sh", "sh", "-c", "stat -c '%n %u %g' public/made secret; echo x > public/more; "
               "cat secret; test -w secret; echo $?", (char *)0);
        _exit(1);
    }
    waitpid(child, 0, 0);
    show("public/more");
    return 0;
}
