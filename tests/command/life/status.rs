//! The status is the program's own, and signals reach it.

use std::os::unix::process::CommandExt;
use std::time::Duration;

use husk_tests::{Run, Scratch, Side, against_native};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{LIMIT, as_nobody, give_to_nobody, run};

#[test]
fn the_status_is_the_programs_own() {
    let scratch = Scratch::new("status");
    let work = scratch.fresh("work");
    for script in ["exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -TERM $$", "kill -SEGV $$"] {
        let status =
            |side: Side| run(&scratch, &work, side.command(&[], &["sh", "-c", script])).code();
        let native = status(Side::Native);
        assert_eq!(status(Side::tested()), native, "{script}");
    }
}

#[test]
fn an_ordinary_user_may_do_it_all() {
    let scratch = Scratch::new("nobody");
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        give_to_nobody(&work);
        let script = "id -u > who; cp who copy; echo more >> who; cat who copy";
        let command = side.command(&[], &["bash", "-euc", script]);
        let outcome = run(&scratch, &work, as_nobody(&command));
        assert!(outcome.status.success(), "{side:?}: {}", outcome.shown());
        let read = |name| std::fs::read(work.join(name)).expect("a file that came back");
        assert_eq!(outcome.stdout, [read("who"), read("copy")].concat(), "{side:?}");
    }
}

/// The guard: stores of a program do not reach the image's state, wherever they are made.
#[test]
fn a_stray_store_into_the_state_ends_the_program() {
    let keys = std::fs::read_to_string("/proc/cpuinfo").expect("the processor");
    if against_native() || !keys.contains(" ospke") {
        return; // nothing to store into, or no keys to guard with
    }
    let scratch = Scratch::new("stray");
    let script = "
import ctypes, os, signal, threading
def store(*_):
    os.read(os.open('/dev/zero', os.O_RDONLY), 1)
    os.write(os.open('file', os.O_RDWR | os.O_CREAT), b'x')
    ctypes.memset(0x540000000100, 0, 8)
def in_thread():
    thread = threading.Thread(target=store)
    thread.start()
    thread.join()
def in_handler():
    signal.signal(signal.SIGUSR1, store)
    os.kill(os.getpid(), signal.SIGUSR1)
for way in [store, in_thread, in_handler]:
    child = os.fork()
    if child == 0:
        way()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
    let work = scratch.fresh("work");
    let command = Side::Husk.command(&[], &["python3", "-c", script]);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"-11\n-11\n-11\n", "{}", outcome.shown());
}

/// Nor do they by way of a call that is asked to put its answer there.
#[test]
fn a_stray_pointer_into_the_state_is_a_bad_address() {
    if against_native() {
        return; // nothing to point into
    }
    let scratch = Scratch::new("pointer");
    let script = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
state = ctypes.c_void_p(0x540000000100)
fd = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(fd, b'12345678')
for result in [
    libc.pread(fd, state, 8, 0),
    libc.stat(b'file', state),
    libc.getcwd(state, 100) or -1,
    libc.readlink(b'/proc/self/cwd', state, 8),
]:
    print(result, errno.errorcode[ctypes.get_errno()])
print(open('file').read())
";
    let work = scratch.fresh("work");
    let command = Side::Husk.command(&[], &["python3", "-c", script]);
    let outcome = run(&scratch, &work, command);
    let expected = format!("{}12345678\n", "-1 EFAULT\n".repeat(4));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
}

const WAITING: &str = "trap 'echo got term; exit 9' TERM; trap 'echo got int; exit 8' INT
    echo ready; for n in $(seq 400); do sleep 0.05; done";

/// Starts a script that waits for a signal, sends it, and tells how that ended.
fn signalled(scratch: &Scratch, side: Side, send: impl Fn(Pid)) -> (i32, String) {
    let work = scratch.fresh("work");
    let mut command = side.command(&[], &["bash", "-c", WAITING]);
    command.process_group(0);
    let mut run = Run::start(command, &work, scratch.path());
    for _ in 0..1000 {
        if run.stdout().starts_with(b"ready") || run.ended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    send(Pid::from_raw(run.pid()).expect("a process id"));
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
    (outcome.code(), String::from_utf8_lossy(&outcome.stdout).into_owned())
}

#[test]
fn sigterm_reaches_the_program() {
    let scratch = Scratch::new("sigterm");
    for side in [Side::Native, Side::tested()] {
        let ended =
            signalled(&scratch, side, |pid| kill_process(pid, Signal::TERM).expect("alive"));
        assert_eq!(ended, (9, "ready\ngot term\n".to_owned()), "{side:?}");
    }
}

#[test]
fn a_hang_up_ends_the_program_and_its_changes_are_written_back() {
    let scratch = Scratch::new("sighup");
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let script = "echo kept > kept; echo ready; exec sleep 600";
        let mut run = Run::start(side.command(&[], &["sh", "-c", script]), &work, scratch.path());
        while !run.stdout().starts_with(b"ready") && !run.ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = Pid::from_raw(run.pid()).expect("a process id");
        kill_process(pid, Signal::HUP).expect("it lives");
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        assert_eq!(outcome.code(), 129, "{side:?}: {}", outcome.shown());
        assert_eq!(std::fs::read(work.join("kept")).expect("it is there"), b"kept\n", "{side:?}");
    }
}

#[test]
fn ctrl_c_reaches_the_program_once() {
    let scratch = Scratch::new("ctrl-c");
    for side in [Side::Native, Side::tested()] {
        let ended =
            signalled(&scratch, side, |pid| kill_process_group(pid, Signal::INT).expect("alive"));
        assert_eq!(ended, (8, "ready\ngot int\n".to_owned()), "{side:?}");
    }
}

/// The first bytes a program moves may be those of a host file it opens for writing.
#[test]
fn the_first_write_of_a_program_may_be_to_a_file_of_the_host() {
    for bytes in [4096, 8192, 300_000] {
        let scratch = Scratch::new("first-write");
        let mut seen = Vec::new();
        for side in [Side::Native, Side::tested()] {
            let work = scratch.fresh("work");
            std::fs::write(work.join("file"), vec![b'a'; bytes]).expect("a file to add to");
            let script = "echo more >> file";
            let outcome = run(&scratch, &work, side.command(&[], &["sh", "-c", script]));
            assert!(outcome.status.success(), "{side:?}: {}", outcome.shown());
            seen.push(std::fs::read(work.join("file")).expect("the file"));
        }
        assert!(seen[0].len() == bytes + 5 && seen[0] == seen[1], "{bytes} bytes");
    }
}
