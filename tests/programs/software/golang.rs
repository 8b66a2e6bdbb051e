//! A static Go program: goroutines that write files, children, and a storm of signals.

use std::time::Duration;

use husk_tests::toolchain::build_go;
use husk_tests::{Case, Length, Run, Scratch, Side, process};

#[test]
fn goroutines_write_files_and_start_programs() {
    let scratch = Scratch::new("go-build");
    let program = scratch.path().join("files");
    build_go(include_str!("../sources/software/files.go"), &program);
    let program = program.to_str().expect("a plain path").to_owned();
    Case::new("go", Length::Short, &[&program]).check();
}

#[test]
fn a_static_program_that_lies_in_the_image() {
    let scratch = Scratch::new("go-build");
    let program = scratch.path().join("files");
    build_go(include_str!("../sources/software/files.go"), &program);
    Case::new("go-inside", Length::Short, &["./files"])
        .input(move |work| {
            std::fs::copy(&program, work.join("files")).expect("a copy");
        })
        .check();
}

#[test]
fn an_http_server_and_its_clients_in_one_image_get_every_answer() {
    let scratch = Scratch::new("go-build");
    let program = scratch.path().join("served");
    build_go(include_str!("../sources/software/served.go"), &program);
    let program = program.to_str().expect("a plain path").to_owned();
    Case::new("go-http", Length::Program, &[&program]).check();
}

/// How long the bombardment lasts.
const BOMBARDMENT_S: &str = "4";
/// When it is over at the latest.
const BOMBED_MAX: Duration = Duration::from_secs(30);
/// SIGURG, with which Go preempts goroutines, in a signal mask.
const SIGURG_BIT: u64 = 1 << (23 - 1);

/// Go preempts endless loops by SIGURG. A runtime that keeps one signal blocked and pending hangs
/// such a program for ever: the next collection waits for a goroutine that nothing can stop.
#[test]
fn no_thread_keeps_sigurg_blocked_under_bombardment() {
    let scratch = Scratch::new("sigurg");
    let path = |name: &str| scratch.path().join(name);
    build_go(include_str!("../sources/software/preempted.go"), &path("preempted"));
    build_go(include_str!("../sources/software/bomber.go"), &path("bomber"));
    for side in [Side::Native, Side::tested()] {
        bombard(&scratch, side);
    }
}

fn bombard(scratch: &Scratch, side: Side) {
    let work = scratch.fresh("work");
    let program = scratch.path().join("preempted");
    let command = side.command(&[], &[program.to_str().expect("a plain path")]);
    let mut run = Run::start_piped(command, &work, scratch.path());
    let target = await_ready(&mut run);
    let mut bomber = std::process::Command::new(scratch.path().join("bomber"));
    bomber.args([&target.to_string(), BOMBARDMENT_S]);
    let bombed = Run::start(bomber, &work, &scratch.fresh("bombed")).wait(BOMBED_MAX);
    let bombed = bombed.unwrap_or_else(|hang| panic!("the bomber: {hang}"));
    let shown = bombed.shown();
    assert!(bombed.status.success(), "{side:?}: the program did not live through it:\n{shown}");
    assert_masks_clear(side, target);
    drop(run.stdin());
    let outcome =
        run.wait(Duration::from_secs(40)).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
    let ended = String::from_utf8_lossy(&outcome.stdout).contains("done");
    assert!(outcome.status.success() && ended, "{side:?}:\n{}", outcome.shown());
}

/// The program prints its process id when all of its goroutines run.
fn await_ready(run: &mut Run) -> i32 {
    for _ in 0..1000 {
        let text = String::from_utf8_lossy(&run.stdout()).into_owned();
        if let Some(pid) = text.lines().find_map(|line| line.strip_prefix("ready ")) {
            return pid.parse().expect("a process id");
        }
        assert!(!run.ended(), "the program ended before it was ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program did not get ready in 10 s");
}

/// A mask may be blocked for the moment of a call: every thread must be seen clear once in 2 s.
fn assert_masks_clear(side: Side, pid: i32) {
    let mut blocked = process::threads(pid);
    for _ in 0..200 {
        blocked.retain(|&thread| blocks_sigurg(pid, thread));
        if blocked.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{side:?}: threads {blocked:?} keep SIGURG blocked");
}

fn blocks_sigurg(pid: i32, thread: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
    let status = status.unwrap_or_default();
    let mask = process::field(&status, "SigBlk:").unwrap_or("0");
    u64::from_str_radix(mask, 16).unwrap_or(0) & SIGURG_BIT != 0
}
