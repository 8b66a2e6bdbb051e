//! What is answered in the process is not asked of the host: its calls are counted by `strace`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use husk_tests::toolchain::{build_c, build_c_with};
use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Makes, writes, renames and removes a thousand files.
const CHANGES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    for (int n = 0; n < 1000; n++) {
        int fd = open("one", O_RDWR | O_CREAT, 0644);
        if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) || rename("one", "two") || unlink("two"))
            return 1;
    }
    return 0;
}
"#;

/// What is mapped right below the data of the vDSO is unmapped, as stacks of threads are that end.
const BELOW: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static int unmap_below(void) {
    char row[4096];
    unsigned long data = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!data && fgets(row, sizeof row, maps))
        if (strstr(row, "[vvar")) sscanf(row, "%lx", &data);
    fclose(maps);
    void *wanted = (void *)(data - 4096);
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *page = mmap(wanted, 4096, PROT_READ, how, -1, 0);
    return page != wanted || munmap(page, 4096);
}
"#;

/// Looks for names that a directory outside has not, as compilers do, and then for those it has.
const SEARCH: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static char text[4096];
static int looked(const char *outside, const char *directory, int n) {
    snprintf(text, sizeof text, "%s/%s/name-%d.h", outside, directory, n);
    int fd = open(text, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : errno;
}
int main(int count, char **names) {
    const char *outside = names[1], *tree = names[2];
    for (int n = 0; n < 500; n++)
        if (looked(outside, "one", n) != (n == 7 ? 0 : ENOENT)
            || looked(outside, "two/none", n) != ENOENT)
            return 1;
    snprintf(text, sizeof text, "%s/two/none", outside);
    if (mkdir(text, 0755) || looked(outside, "two/none", 1) != ENOENT)
        return 2;
    snprintf(text, sizeof text, "%s/two/none/name-1.h", outside);
    close(open(text, O_CREAT | O_WRONLY, 0644));
    if (looked(outside, "two/none", 1) || looked(outside, "link", 2) != ENOENT)
        return 3;
    // What only the image has, behind a link that was missing.
    snprintf(text, sizeof text, "%s/link", outside);
    close(open("name-2.h", O_CREAT | O_WRONLY, 0644));
    if (symlink(tree, text) || looked(outside, "link", 2) || looked(outside, "link", 3) != ENOENT)
        return 4;
    return count == 3 ? 0 : 5;
}
"#;

/// The host's calls for what they do, and for the time they note.
const ASKED: &str = "trace=open,openat,write,close,rename,unlink,clock_gettime";

/// Calls of `which` that all processes of a command make in a work directory of their own.
fn asked(scratch: &Scratch, which: &str, inner: &Command) -> usize {
    let (work, log) = (scratch.fresh("work"), scratch.path().join("calls"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", which, "-o"]).arg(&log);
    strace.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(scratch, &work, strace);
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    // A program that was made this moment has no copy yet: its calls come as signals.
    let log = std::fs::read_to_string(&log).expect("the calls");
    log.lines().filter(|line| !line.contains(" --- SIG")).count()
}

/// Not even what time it is: the host maps the program right below where it says so.
#[test]
fn changes_of_files_ask_the_host_for_nothing() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("changes");
    let program = scratch.path().join("changes");
    build_c(CHANGES, &program);
    let native = asked(&scratch, ASKED, &Command::new(&program));
    assert!(native >= 5000, "{native} calls of the program alone");
    let inside = husk(&["--discard"], &[program.to_str().expect("a plain path")]);
    let calls = asked(&scratch, ASKED, &inside);
    assert!(calls < 1000, "{calls} calls of all processes");
}

/// Nor is it then.
#[test]
fn what_is_unmapped_beside_the_vdso_leaves_the_clock_as_fast_as_it_was() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("beside");
    let program = scratch.path().join("changes");
    let unmaps =
        CHANGES.replace("int main(void) {", "int main(void) { if (unmap_below()) return 2;");
    build_c_with(&format!("{BELOW}{unmaps}"), &program, &["-static", "-no-pie"]);
    let inside = husk(&["--discard"], &[program.to_str().expect("a plain path")]);
    let calls = asked(&scratch, "trace=clock_gettime", &inside);
    assert!(calls < 1000, "{calls} calls of all processes");
}

/// Servers that root starts as users of their own map root's copies of the C library. A call that
/// is not patched comes as a signal, whose handler returns by a call of its own.
#[test]
fn who_becomes_another_user_is_answered_in_the_process() {
    if against_native() || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("became");
    let program = scratch.path().join("changes");
    build_c(CHANGES, &program);
    for above in scratch.path().ancestors().take_while(|above| above.starts_with("/tmp/")) {
        std::fs::set_permissions(above, Permissions::from_mode(0o755)).expect("a mode");
    }
    let nobody = "cd /tmp && exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\"";
    let program = program.to_str().expect("a plain path");
    let inside = husk(&["--discard"], &["sh", "-c", nobody, program]);
    let trapped = asked(&scratch, "trace=rt_sigreturn", &inside);
    assert!(trapped < 1000, "{trapped} of 5,000 calls were trapped");
}

/// A name that is missing in a directory of the host costs as much as it does without an image.
#[test]
fn missing_names_of_the_host_are_asked_for_once() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("missing");
    let program = scratch.path().join("search");
    build_c(SEARCH, &program);
    let searches = |inner: &mut Command| {
        let outside = scratch.fresh("outside");
        for directory in ["one", "two"] {
            std::fs::create_dir(outside.join(directory)).expect("a directory");
        }
        std::fs::write(outside.join("one/name-7.h"), "").expect("a file");
        inner.arg(&outside).arg(scratch.path().join("work"));
        asked(&scratch, "trace=openat,openat2,readlinkat,close", inner)
    };
    let native = searches(&mut Command::new(&program));
    assert!(native >= 1000, "{native} calls of the program alone");
    let mut inside = husk(&["--discard"], &[program.to_str().expect("a plain path")]);
    let calls = searches(&mut inside);
    assert!(calls < native + 1000, "{calls} calls of all processes, {native} without an image");
}

/// Who walks directories of the host, by descriptors, asks the host what it asks without an image;
/// a path that is looked at for the first time costs one question more. What becomes a link into a
/// tree meanwhile, or a directory that a tree lies in, is found.
#[test]
fn directories_of_the_host_are_walked_by_the_programs_own_calls() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("outlying");
    let program = scratch.path().join("outlying");
    build_c(include_str!("../sources/outlying.c"), &program);
    let program = program.to_str().expect("a plain path");
    let top = scratch.path().join("top");
    let mounted = top.join("tree");
    let walks = |inner: &mut Command, changes: bool| {
        inner.arg(scratch.fresh("outside")).arg(scratch.path().join("work"));
        inner.args(changes.then_some(&top));
        asked(&scratch, "trace=openat,openat2,readlinkat,close,fstatfs,newfstatat", inner)
    };
    let native = walks(&mut Command::new(program), false);
    assert!(native >= 2500, "{native} calls of the program alone");
    let calls = walks(&mut husk(&["--discard"], &[program]), false);
    // 800 files are made and looked at by their paths; what is left is how both processes start.
    assert!(
        calls < native + 2 * 800 + 900,
        "{calls} calls of all processes, {native} without an image"
    );
    std::fs::create_dir_all(&mounted).expect("a directory");
    let mount = ["--discard", "--mount", mounted.to_str().expect("a plain path"), "--overlay", "."];
    walks(&mut husk(&mount, &[program]), true);
}
