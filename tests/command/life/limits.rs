//! A host that lacks something, an image that is full: errors, and nothing lost.

use std::fs;

use husk_tests::toolchain::build_c;
use husk_tests::{Scratch, against_native, husk};

use crate::{run, said};

/// A build whose outputs do not fit into the smallest image.
const FILLING: &str = "\
all: $(foreach n,1 2 3 4 5 6 7 8,out$(n))
out%: source
\thead -c 16M /dev/zero > $@
\tcat source >> $@
";

#[test]
fn a_full_image_tells_the_program_and_spares_the_host() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("full");
    let work = scratch.fresh("work");
    fs::write(work.join("source"), "precious\n").expect("a source");
    fs::write(work.join("Makefile"), FILLING).expect("a makefile");
    let outcome = run(&scratch, &work, husk(&["--memory", "64M"], &["make", "-s"]));
    assert_eq!(outcome.code(), 2, "make fails: {}", outcome.shown());
    assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.shown());
    assert_eq!(fs::read(work.join("source")).expect("the source"), b"precious\n");
    assert_eq!(fs::read_to_string(work.join("Makefile")).expect("the makefile"), FILLING);
}

#[test]
fn removing_files_makes_room_again() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("room");
    let work = scratch.fresh("work");
    let script =
        "for n in 1 2 3 4 5 6 7 8 9; do head -c 24M /dev/zero > big || exit 1; rm big; done
        head -c 500M /dev/zero > big 2> /dev/null && exit 1
        rm big; head -c 24M /dev/zero > big";
    let outcome = run(&scratch, &work, husk(&["--memory", "64M"], &["bash", "-c", script]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(fs::metadata(work.join("big")).expect("the file").len(), 24 << 20);
}

#[test]
fn a_message_that_nobody_reads_gives_its_file_back() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("unread");
    let work = scratch.fresh("work");
    let script = "
import os, socket, time
before = os.statvfs('.').f_bfree
for _ in range(4):
    sockets, fd = socket.socketpair(), os.open('big', os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(24 << 20))
    os.unlink('big')
    socket.send_fds(sockets[0], [b'x'], [fd])
    os.close(fd)
    assert os.statvfs('.').f_bfree < before - 4096, 'on its way it is there'
    for end in sockets:
        end.close()
    for _ in range(100):
        if os.statvfs('.').f_bfree > before - 64:
            break
        time.sleep(0.1)
print(os.statvfs('.').f_bfree > before - 64)
";
    let inside = husk(&["--memory", "64M"], &["python3", "-c", script]);
    let outcome = run(&scratch, &work, inside);
    assert_eq!(outcome.stdout, b"True\n", "{}", outcome.shown());
}

#[test]
fn a_descriptor_that_leaves_the_image_is_a_fifo() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("leaves");
    let work = scratch.fresh("work");
    let inside = "import os, socket
fd = os.open('file', os.O_RDWR | os.O_CREAT)
socket.send_fds(socket.socket(fileno=0), [b'x'], [fd])";
    let outside = "import os, socket, stat, subprocess, sys
here, there = socket.socketpair()
subprocess.run(sys.argv[1:], stdin=there, check=True)
fd, = socket.recv_fds(here, 1, 1)[1]
print(stat.S_ISFIFO(os.fstat(fd).st_mode), os.read(fd, 1))";
    let image = husk(&[], &["python3", "-c", inside]);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", outside]).arg(image.get_program()).args(image.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"True b''\n", "{}", outcome.shown());
}

/// A kernel without Syscall User Dispatch answers EINVAL; a filter makes this one do so.
#[test]
fn a_host_without_syscall_user_dispatch_is_named() {
    let scratch = Scratch::new("no-sud");
    let work = scratch.fresh("work");
    let filter = scratch.path().join("no-sud");
    build_c(include_str!("../sources/no-sud.c"), &filter);
    let mut command = std::process::Command::new(&filter);
    if against_native() {
        assert_eq!(
            run(&scratch, &work, {
                command.arg("/bin/true");
                command
            })
            .code(),
            0
        );
        return;
    }
    let inner = husk(&[], &["/bin/true"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    let lines = said(&outcome);
    assert!(
        matches!(lines[..], [line] if line.to_lowercase().contains("syscall user dispatch")),
        "{}",
        outcome.stderr
    );
}

/// `husk run ARGV`, started by a shell after `prelude`, with `redirection`.
fn by_shell(prelude: &str, redirection: &str, script: &str) -> std::process::Command {
    let inner = husk(&[], &["sh", "-c", script]);
    let mut command = std::process::Command::new("bash");
    let outer = format!("{prelude}; exec \"$@\" {redirection}");
    command.args(["-c", &outer, "bash"]).arg(inner.get_program()).args(inner.get_args());
    command.env("HUSK_FSCK", "1");
    command
}

#[test]
fn an_error_output_that_takes_nothing_costs_no_change() {
    if against_native() {
        return;
    }
    for redirection in ["2> /dev/full", "2> >(exec true)", "2>&-"] {
        let scratch = Scratch::new("deaf");
        let work = scratch.fresh("work");
        let outcome = run(&scratch, &work, by_shell("true", redirection, "echo new > file"));
        assert_eq!(outcome.code(), 0, "{redirection}: {}", outcome.shown());
        let read = fs::read(work.join("file")).expect("the file came back");
        assert_eq!(read, b"new\n", "{redirection}");
    }
}

#[test]
fn a_report_that_cannot_be_printed_is_an_error() {
    let scratch = Scratch::new("unprinted");
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "exec \"$0\" check > /dev/full"]).arg(husk(&[], &[]).get_program());
    let outcome = run(&scratch, scratch.path(), command);
    assert_eq!((outcome.code(), said(&outcome).len()), (125, 1), "{}", outcome.shown());
}

/// It binds the programs of the image, and not the supervisor, as far as that may raise it.
#[test]
fn a_limit_on_file_sizes_does_not_end_the_write_back() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("fsize");
    let work = scratch.fresh("work");
    let script = "head -c 100K /dev/zero > cut; ulimit -S -f unlimited
        head -c 100K /dev/zero > big; echo small > small";
    let outcome = run(&scratch, &work, by_shell("ulimit -S -f 8", "", script));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(fs::metadata(work.join("cut")).expect("the file").len(), 8 << 10);
    assert_eq!(fs::metadata(work.join("big")).expect("the file").len(), 100 << 10);
    assert_eq!(fs::read(work.join("small")).expect("the file"), b"small\n");
}

#[test]
fn a_deep_tree_is_written_back_under_a_small_stack() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("deep");
    let work = scratch.fresh("work");
    let script = "p=$(printf 'd/%.0s' $(seq 400)); mkdir -p $p; echo low > ${p}file";
    let outcome = run(&scratch, &work, by_shell("ulimit -S -s 256", "", script));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    let file = work.join("d/".repeat(400)).join("file");
    assert_eq!(fs::read(file).expect("the file"), b"low\n");
}

#[test]
fn an_image_does_not_run_inside_an_image() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nested");
    let work = scratch.fresh("work");
    // The image sees its own tree; where the command lies it may see an empty one.
    fs::copy(husk(&[], &[]).get_program(), work.join("husk")).expect("a copy of the command");
    let outcome = run(&scratch, &work, husk(&[], &["./husk", "run", "true"]));
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    assert!(outcome.stderr.contains("cannot run inside an image"), "{}", outcome.shown());
}

#[test]
fn a_killed_supervisor_hangs_the_command_up() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("orphan");
    let work = scratch.fresh("work");
    // The command itself kills the supervisor, and would sleep on. The signal may come more than
    // once: the kernel sends it for each of the supervisor's threads that was its parent.
    let trap = "trap 'trap \"\" HUP; echo hung-up; exit' HUP";
    let script = &format!("{trap}; kill -KILL $PPID; sleep 1 & wait; echo deaf");
    let mut command = std::process::Command::new("bash");
    let inner = husk(&["--discard"], &["bash", "-c", script]);
    command.args(["-c", "\"$@\"; sleep 1.5", "bash"]).arg(inner.get_program());
    command.args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"hung-up\n", "{}", outcome.shown());
}

/// The C library's `posix_spawn` has its child ignore two signals of its own (32 and 33).
#[test]
fn the_command_starts_with_no_signal_ignored_that_is_not_ignored_here() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("ignored");
    let work = scratch.fresh("work");
    let outcome = run(&scratch, &work, husk(&[], &["grep", "SigIgn", "/proc/self/status"]));
    let shown = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mask = shown.trim().rsplit('\t').next().and_then(|word| u64::from_str_radix(word, 16).ok());
    assert_eq!(mask.map(|mask| mask >> 31 & 3), Some(0), "{shown}");
}
