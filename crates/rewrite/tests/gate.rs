//! The proof that patched code works: real programs on a patched libc and loader, on a gate made
//! for the test.
//!
//! ```text
//!   program   its segment at 0x60000 is the gate table; its text has the stubs
//!      |      the kernel maps both before the loader runs
//!   ld.so     a patched copy, named as the program's interpreter
//!   libc.so.6 a patched copy, found through LD_LIBRARY_PATH
//! ```
//!
//! The stubs only count and pass the call on to the host. Those after which two tasks run on
//! (clone, vfork, clone3) take the return address off the stack first.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use husk_rewrite::cpuid::Table;
use husk_rewrite::{make_copy, patch};
use support::compile;

const GATE: &str = r#"
.macro stub number
gate_\number:
    lock incq gate_calls(%rip)
    mov $\number, %eax
    .if \number == 56 || \number == 58 || \number == 435
        jmp gate_twice
    .else
        jmp gate_once
    .endif
.endm
.macro entry number
    .quad gate_\number
.endm
.text
gate_once: syscall
    ret
gate_twice: popq gate_back(%rip)
    syscall
    jmp *gate_back(%rip)
gate_4096: lock incq gate_calls(%rip)
    syscall
    nop
    cmp $-4096, %rax
    ret
gate_4095: lock incq gate_calls(%rip)
    syscall
    nop
    cmp $-4095, %rax
    ret
.altmacro
.set number, 0
.rept 500
    stub %number
    .set number, number + 1
.endr
.section .gate, "a"
.set number, 0
.rept 500
    entry %number
    .set number, number + 1
.endr
.fill 10, 8, 0
.quad gate_4096, gate_4095
.data
.globl gate_calls
gate_calls: .quad 0
gate_back: .quad 0
"#;

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
extern unsigned long gate_calls;
static volatile int caught;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void on_signal(int number) { caught = number; }
static void *thread(void *sum) {
    pthread_mutex_lock(&lock); ++*(int *)sum; pthread_mutex_unlock(&lock);
    return sum;
}
#define CHECK(x) if (!(x)) { \
    printf("line %d: %s, errno %d\n", __LINE__, #x, errno); \
    return 1; \
}
int main(int count, char **arguments) {
    unsetenv("LD_LIBRARY_PATH"); // its children have no gate
    char name[] = "/tmp/gate-XXXXXX", bytes[16] = "";
    int file = mkstemp(name), sum = 0, status, ends[2];
    CHECK(file >= 0 && write(file, "hello", 5) == 5);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, bytes, 16) == 5 && !strcmp(bytes, "hello"));
    struct stat about;
    CHECK(fstat(file, &about) == 0 && about.st_size == 5);
    CHECK(open("/nonexistent", O_RDONLY) < 0 && errno == ENOENT);
    CHECK(read(-1, bytes, 1) == -1 && errno == EBADF);
    CHECK(syscall(9999) == -1 && errno == ENOSYS);
    CHECK(unlink(name) == 0 && close(file) == 0);
    signal(SIGUSR1, on_signal);
    CHECK(raise(SIGUSR1) == 0 && caught == SIGUSR1);
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, 0, thread, &sum) == 0 && pthread_join(id, 0) == 0);
    }
    CHECK(sum == 20);
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) { if (write(ends[1], "x", 1) != 1) _exit(9); _exit(7); }
    CHECK(read(ends[0], bytes, 1) == 1 && bytes[0] == 'x');
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    child = vfork();
    if (child == 0) _exit(5);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    CHECK(WEXITSTATUS(system("exit 3")) == 3);
    void *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && munmap(memory, 1 << 20) == 0);
    printf("calls %lu\n", gate_calls);
    return 42;
}
"#;

const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Compiles the program with the gate linked in.
fn program(directory: &Path, flags: &[&str]) -> std::path::PathBuf {
    let gate = directory.join("gate.s");
    std::fs::write(&gate, GATE).expect("write gate");
    let gate = gate.to_string_lossy().into_owned();
    let fixed = [gate.as_str(), "-O1", "-no-pie", "-pthread", "-Wl,--section-start=.gate=0x60000"];
    compile(directory, "c", PROGRAM, &[&fixed[..], flags].concat())
}

fn run_bounded(command: &mut Command) -> Output {
    let pipe = std::process::Stdio::piped;
    let mut child = command.stdout(pipe()).stderr(pipe()).spawn().expect("start");
    let deadline = Instant::now() + TIME_LIMIT;
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("kill");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("output")
}

/// Checks that all checks of the program passed; returns how many calls went through the gate.
fn calls(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(42), "{text}{errors}{:?}", output.status);
    text.trim()
        .strip_prefix("calls ")
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

fn write_program(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("write copy");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
}

fn mapped(name: &str) -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains(name)).expect("mapped").into()
}

#[test]
fn a_dynamic_program_runs_on_patched_copies_of_libc_and_loader() {
    let directory = tempfile::tempdir().expect("scratch directory");
    let loader = directory.path().join("ld.so");
    let naming = format!("-Wl,--dynamic-linker={}", loader.display());
    let table = Table::measure();
    for (file, target) in [("ld-linux", &loader), ("libc.so", &directory.path().join("libc.so.6"))]
    {
        let mut bytes = std::fs::read(mapped(file)).expect("read");
        assert!(make_copy(&mut bytes, table.as_ref()).expect("patch"), "{file}");
        write_program(target, &bytes);
    }
    let output = program(directory.path(), &[&naming]);
    let mut command = Command::new(output);
    command.env("LD_LIBRARY_PATH", directory.path()).env("SHELL", "/bin/sh");
    let through = calls(&run_bounded(&mut command));
    // The start of the program alone makes some 30.
    assert!(through > 100, "{through}");
}

#[test]
fn a_static_program_runs_with_its_own_sites_patched() {
    let directory = tempfile::tempdir().expect("scratch directory");
    let plain = program(directory.path(), &["-static"]);
    assert_eq!(calls(&run_bounded(&mut Command::new(&plain))), 0, "nothing is patched yet");
    let bytes = std::fs::read(&plain).expect("read");
    let mut copy = bytes.clone();
    patch(&bytes).expect("patch").apply(&mut copy);
    let target = directory.path().join("patched");
    write_program(&target, &copy);
    let through = calls(&run_bounded(&mut Command::new(&target)));
    assert!(through > 100, "{through}");
}
