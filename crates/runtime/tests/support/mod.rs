//! Builds the runtime once and starts programs under it, without an image.

#![allow(dead_code)] // each test program uses a part of it

use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number the runtime's own file is kept under.
const LOADER_FD: i32 = 1022;

/// The runtime, built as for the command (`crates/husk/build.rs`), in the same place.
pub fn runtime() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = scratch().with_file_name("runtime");
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "--profile", "runtime"])
            .args(["-p", "husk-runtime", "--bin", "husk-rt"])
            .args(["--target", "x86_64-unknown-none", "--target-dir"])
            .arg(&target);
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET"]
        {
            build.env_remove(name);
        }
        assert!(build.status().expect("cargo runs").success(), "the runtime builds");
        target.join("x86_64-unknown-none/runtime/husk-rt")
    })
}

/// Where tests put what they build.
pub fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Compiles `tests/programs/<name>.c`.
pub fn compiled(name: &str) -> PathBuf {
    let out = scratch().join(name);
    let source = programs().join(format!("{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-pthread", "-o"]).arg(&out).arg(source);
    assert!(cc.status().expect("a C compiler").success(), "{name}.c compiles");
    out
}

/// The sources of the test programs.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A command that starts `argv` under the runtime. Only `PATH` is in its environment: the
/// hand-over must be the first string, and the standard library sorts them.
pub fn under_runtime(argv: &[&str]) -> Command {
    let file = std::fs::File::open(runtime()).expect("the runtime is there");
    let mut command = Command::new(runtime());
    command.arg0(argv[0]).args(&argv[1..]).env_clear();
    command.env("HUSK_EXEC", format!("v1:0:-1:{LOADER_FD}:2:{}", argv[0]));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    // SAFETY: dup2 may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            const DUP2: usize = 33;
            let args = [file.as_raw_fd() as usize, LOADER_FD as usize, 0, 0, 0, 0];
            match husk_host::syscall(DUP2, args) {
                errno if errno < 0 => Err(std::io::Error::from_raw_os_error(-errno as i32)),
                _ => Ok(()),
            }
        });
    }
    command
}

/// How a program ended: exit status, or 128 + signal.
pub fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

/// Runs a command to its end, at most `seconds`; kills it and panics otherwise.
pub fn finish(mut command: Command, seconds: u64) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finished(command.spawn().expect("starts"), seconds)
}

/// Waits for a child with piped output, at most `seconds`.
pub fn finished(child: Child, seconds: u64) -> Output {
    let pid = child.id();
    let (done, wait) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = done.send(());
        output
    });
    let deadline = Instant::now() + Duration::from_secs(seconds);
    if wait.recv_timeout(deadline - Instant::now()).is_err() {
        const KILL: usize = 62;
        // SAFETY: kills our own child, which nobody has waited for yet.
        unsafe { husk_host::syscall(KILL, [pid as usize, 9, 0, 0, 0, 0]) };
        // The waiter stays: a grandchild may keep the child's output open.
        panic!("no end after {seconds} s");
    }
    waiter.join().expect("the waiter does not panic").expect("output")
}

/// Runs `argv` natively and under the runtime: status and both outputs must be the same.
pub fn same(argv: &[&str], seconds: u64) {
    let mut native = Command::new(argv[0]);
    native.args(&argv[1..]).env_clear();
    native.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let native = finish(native, seconds);
    let ours = finish(under_runtime(argv), seconds);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&ours.stdout), text(&native.stdout), "{argv:?}");
    assert_eq!(text(&ours.stderr), text(&native.stderr), "{argv:?}");
    assert_eq!(status(&ours), status(&native), "{argv:?}");
}
