//! How runs begin and end where something is missing: closed standard descriptors, a supervisor
//! that is killed, a measurement that is broken off, variables that mean nothing.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::{Run, Scratch, Side, against_native, husk};
use rustix::process::{Pid, Signal, kill_process};

use crate::{LIMIT, run, said};

/// What a shell says about a program of a side that it starts with `redirection`.
fn redirected(
    side: Side,
    work: &Path,
    scratch: &Scratch,
    redirection: &str,
    script: &str,
) -> String {
    let inner = side.command(&[], &["bash", "-c", script]);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("\"$@\" {redirection}; echo \"status $?\" >&3"), "bash"]);
    command.arg(inner.get_program()).args(inner.get_args()).envs(
        inner.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    // Whatever is closed for the program, the test hears of it through these.
    let mut outer = Command::new("bash");
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    outer.args(["-c", "exec \"$@\" 3>&1 4>&2", "bash"]).args(words);
    let outcome = run(scratch, work, outer);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned() + &outcome.stderr;
    text.lines().filter(|line| !line.starts_with("husk: fsck")).collect::<Vec<_>>().join("\n")
}

#[test]
fn standard_descriptors_that_are_closed_stay_closed() {
    let scratch = Scratch::new("closed");
    let work = scratch.fresh("work");
    let open =
        "for n in 0 1 2; do [ -e /proc/self/fd/$n ] && s=\"$s $n\"; done; echo \"open:$s\" >&4";
    let cases = [
        (">&-", "echo x"),
        ("<&-", "read line; echo \"read $?\"; cat; echo \"cat $?\""),
        ("<&-", "exec 5< /dev/null; echo text > made; cat made"),
        ("2>&-", "echo y >&2 || echo refused"),
        ("<&- >&- 2>&-", open),
        ("< /dev/null > /dev/null", open),
    ];
    for (redirection, script) in cases {
        let native = redirected(Side::Native, &work, &scratch, redirection, script);
        let tested = redirected(Side::tested(), &work, &scratch, redirection, script);
        assert_eq!(tested, native, "{redirection} {script}");
    }
}

/// With --discard nobody keeps the image, and nobody ends what still runs; but it runs on, and
/// nothing waits for the one who has gone.
#[test]
fn what_outlives_a_killed_supervisor_goes_on_and_finishes() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("outlives");
    let work = scratch.fresh("work");
    let script = "
trap '' HUP
kill -KILL $PPID
for n in $(seq 20); do
    mkdir d$n && cp /bin/true d$n/copy && d$n/copy && echo $n > d$n/file && cat d$n/file > last
    # A writer that dies half-way, whom nobody buries but the next one who wants the file.
    (exec 9>> shared; flock 9; echo half >&9; kill -KILL $BASHPID)
    exec 8>> shared; flock 8; echo whole >&8; exec 8>&-
done
grep -c whole shared; cat last; echo finished";
    let mut command = Command::new("bash");
    // Dropped: nobody keeps the image.
    let inner = husk(&["--discard"], &["bash", "-c", script]);
    // The image's end of the pipe is what tells when the last program has ended.
    command.args(["-c", "(\"$@\" | cat) 2> /dev/null", "bash"]).arg(inner.get_program());
    command.args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"20\n20\nfinished\n", "{}", outcome.shown());
    assert!(!work.join("last").exists(), "nobody writes back");
}

/// Programs of the image find it as it is by default.
#[test]
fn who_ignores_the_ends_of_children_has_runs_that_end() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("deaf");
    let work = scratch.fresh("work");
    let inner = husk(&[], &["sh", "-c", "echo made > file; exit 3"]);
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' CHLD PIPE; \"$@\"; echo $?", "bash"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"3\n", "{}", outcome.shown());
    assert_eq!(std::fs::read(work.join("file")).expect("written back"), b"made\n");
    let inner = husk(&[], &["grep", "SigIgn", "/proc/self/status"]);
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' CHLD PIPE; exec \"$@\"", "bash"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"SigIgn:\t0000000000001000\n", "{}", outcome.shown());
}

/// What comes while its changes are written back is done after that.
/// Its run stopped along, as at a terminal, where a shell continues both.
#[test]
fn without_a_terminal_a_program_that_others_stop_and_continue_is_waited_for() {
    let ends = "import os, signal, time\n\
        if (child := os.fork()) == 0:\n\
        \tos.kill(os.getppid(), signal.SIGSTOP); time.sleep(0.5)\n\
        \tos.kill(os.getppid(), signal.SIGCONT); os._exit(0)\n\
        os.waitpid(child, 0); os._exit(7)";
    let scratch = Scratch::new("continued");
    let work = scratch.fresh("work");
    let inner = Side::tested().command(&[], &["python3", "-c", ends]);
    let mut command = Command::new("setsid");
    command.arg("-w").arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.status.code(), Some(7), "{}", outcome.shown());
}

#[test]
fn a_run_that_is_interrupted_when_its_program_has_ended_writes_back_and_ends_so() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("interrupted");
    let work = scratch.fresh("work");
    let inner = husk(&[], &["bash", "-c", "for n in $(seq 3000); do echo $n > f$n; done"]);
    let mut command = Command::new("bash");
    // Its first file on the host says that the writing back has begun.
    let outer = "\"$@\" & while [ ! -e f1 ] && [ -e /proc/$! ]; do :; done
        kill -INT $!; wait $!; echo $?; ls | wc -l";
    command.args(["-c", &format!("set -m; {outer}"), "bash"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"130\n3000\n", "{}", outcome.shown());
}

/// The supervisor is killed right after it has made the process, and knows nothing of it.
#[test]
fn a_program_whose_supervisor_dies_before_it_knows_the_program_keeps_its_files() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("unknown");
    let work = scratch.fresh("work");
    // Who waits for a lock of the dead looks for others whom nobody has buried.
    let script = "
trap '' HUP
kill -KILL $PPID
exec 3> before
# Longer than EMBRYO_NS (kernel/src/process/embryo.rs): a record nobody came for is released then.
sleep 10.5
sh -c 'exec 9> lock; flock 9; kill -KILL $$' 2> /dev/null
exec 8> lock; flock 8
echo one >&3; echo two > after; cat before after; echo finished";
    let inner = husk(&["--discard"], &["sh", "-c", script]);
    let mut command = Command::new("bash");
    let makes = "clone,clone3,fork,vfork";
    let delayed = format!("--inject={makes}:delay_exit=300000");
    command.args(["-c", "(strace -o /dev/null \"$@\" | cat) 2> /dev/null", "bash"]);
    command.args([format!("--trace={makes}"), delayed]).arg(inner.get_program());
    command.args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"one\ntwo\nfinished\n", "{}", outcome.shown());
}

/// On a terminal of its own that takes no more output from its first second on.
const STOPPED: &str = r#"
import os, pty, select, signal, sys, time
signal.alarm(60)
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.write(terminal, b"\x13")
while not os.path.exists("stopped"):
    time.sleep(0.01)
open("go", "w").close()
while not os.path.exists("changed") or open("changed").read() != "by the image\n":
    time.sleep(0.01)
print("written back", flush=True)
os.write(terminal, b"\x11")
said = b""
while True:
    try:
        if not (more := os.read(terminal, 4096)):
            break
        said += more
    except OSError:
        break
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), b"set-user-ID" in said, b"sleep" in said)
"#;

#[test]
fn a_stopped_terminal_does_not_keep_changes_from_being_written_back() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("stopped");
    let work = scratch.fresh("work");
    // The outer directory is the host's: there both sides meet.
    let script = "
        echo by the image > changed
        (cd ..; echo > stopped; until [ -e go ]; do :; done)
        su --version > version
        setsid sleep 1000 &
        until [ \"$(ps -o sid= -p $! | tr -d ' ')\" = $! ]; do :; done
        sleep 0.2";
    std::fs::create_dir(work.join("tree")).expect("a directory");
    let script = format!("cd tree; {script}");
    let inner = husk(&["--overlay", "tree"], &["bash", "-c", &script]);
    let mut command = Command::new("python3");
    command.args(["-c", &STOPPED.replace("\"changed\"", "\"tree/changed\"")]);
    command.arg(inner.get_program()).args(inner.get_args()).env("HUSK_FSCK", "1");
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"written back\n0 True True\n", "{}", outcome.shown());
}

/// On a terminal of its own, where Ctrl-C is typed once a round has said so.
const LOOP: &str = r#"
import os, pty, signal, sys
signal.alarm(60)
child, terminal = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "-c", 'for n in 1 2 3; do "$@"; done; echo after', *sys.argv])
said = b""
while True:
    try:
        if not (more := os.read(terminal, 4096)):
            break
    except OSError:
        break
    rounds = said.count(b"round")
    said += more
    if said.count(b"round") > rounds:
        os.write(terminal, b"\x03")
print(said.count(b"round"), b"after" in said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[test]
fn ctrl_c_ends_a_loop_of_the_shell_and_its_round_is_written_back() {
    let scratch = Scratch::new("loop");
    let work = scratch.fresh("work");
    let round = "echo changed >> rounds; echo round; exec sleep 60";
    let inner = Side::tested().command(&[], &["sh", "-c", round]);
    let mut command = Command::new("python3");
    command.args(["-c", LOOP]).arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"1 False -2\n", "{}", outcome.shown());
    assert_eq!(std::fs::read(work.join("rounds")).expect("it"), b"changed\n");
}

#[test]
fn the_signal_that_ended_the_program_ends_husk_run_without_a_core() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("signal");
    let work = scratch.fresh("work");
    for number in [1, 2, 3, 6, 9, 11, 13, 15, 34, 64] {
        // Whatever its caller ignores or blocks.
        let script = format!(
            "import signal, os
signal.signal({number}, 0) if {number} != 9 else 0
signal.pthread_sigmask(signal.SIG_SETMASK, [])
print({number}, file=open('last', 'w'))
os.kill(os.getpid(), {number})"
        );
        let inner = husk(&[], &["python3", "-c", &script]);
        let mut command = Command::new("bash");
        command.args(["-c", "trap '' INT TERM 34; ulimit -c unlimited; exec \"$@\"", "bash"]);
        command.arg(inner.get_program()).args(inner.get_args());
        let outcome = run(&scratch, &work, command);
        assert_eq!(outcome.status.signal(), Some(number), "{}", outcome.shown());
        assert!(!outcome.status.core_dumped(), "{number}");
        let last = std::fs::read_to_string(work.join("last")).expect("written back");
        assert_eq!(last, format!("{number}\n"));
    }
}

#[test]
fn who_prints_for_a_reader_that_has_gone_ends_as_others_do() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("reader");
    let work = scratch.fresh("work");
    let program = husk(&[], &[]).get_program().to_owned();
    for words in ["ls", "ls --json", "check", "config show", "completions bash"] {
        let told = |before: &str| {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{before} exec \"$@\"")]).args(["sh"]).arg(&program);
            let output = command.args(words.split(' ')).current_dir(&work).stdout(writer).output();
            let output = output.expect("it starts");
            (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert_eq!(told(""), (Some(13), String::new()), "{words}");
        let (signal, said) = told("trap '' PIPE;");
        assert!(signal.is_none() && said.contains("broken pipe"), "{words}: {said}");
    }
}

#[test]
fn a_measurement_that_is_broken_off_leaves_nothing_behind() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("broken-off");
    let tmpfs = Path::new("/dev/shm").join(format!("husk-broken-off-{}", std::process::id()));
    std::fs::create_dir(&tmpfs).expect("a directory");
    let mut bench = Command::new(husk(&[], &[]).get_program());
    bench.args(["bench", "fs", "--only", "stat", "--seconds", "60", "--tmpfs"]).arg(&tmpfs);
    let bench = Run::start(bench, scratch.path(), scratch.path());
    let left = |directory: &Path| std::fs::read_dir(directory).expect("a directory").count();
    let disk = Path::new("/var/tmp").join(format!("husk-bench-{}", bench.pid()));
    for _ in 0..1000 {
        if left(&tmpfs) > 0 && disk.join("husk").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = Pid::from_raw(bench.pid()).expect("a process");
    kill_process(pid, Signal::TERM).expect("a signal");
    let outcome = bench.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(outcome.status.code(), Some(128 + 15));
    assert!(!disk.exists(), "{disk:?} is left");
    std::fs::remove_dir(&tmpfs).expect("nothing in it");
}

#[test]
fn variables_that_mean_nothing_are_refused_in_one_line() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("variables");
    let work = scratch.fresh("work");
    for (name, value, status) in [
        ("HUSK_TRACE", "all", 125),
        ("HUSK_REWRITE", "false", 125),
        ("HUSK_FSCK", "yes", 125),
        ("HUSK_PIPES", "yes", 125),
        ("HUSK_TRACE", "unsupported", 0),
        ("HUSK_REWRITE", "off", 0),
        ("HUSK_REWRITE", "on", 0),
        ("HUSK_FSCK", "0", 0),
        ("HUSK_PIPES", "host", 0),
        ("HUSK_PIPES", "husk", 0),
        ("HUSK_DIR", "narrowest", 125),
        ("HUSK_DIR", "wide", 0),
        ("HUSK_WITHOUT", "speed", 125),
        ("HUSK_WITHOUT", "optimistic,direct,affinity,ahead,gathered", 0),
    ] {
        let mut command = husk(&[], &["true"]);
        let outcome = run(&scratch, &work, {
            command.env(name, value);
            command
        });
        assert_eq!(outcome.code(), status, "{name}={value}: {}", outcome.shown());
        let lines = said(&outcome);
        let right = if status == 0 {
            lines.is_empty()
        } else {
            lines.len() == 1 && lines[0].contains(name)
        };
        assert!(right, "{name}={value}: {}", outcome.shown());
    }
}

/// Where the host has the FIFO that a program has opened as descriptor 4, as another sees it.
const HOSTS: &str = "host=$(bash -c \"readlink /proc/$$/fd/4\")";

#[test]
fn what_the_host_keeps_behind_a_node_goes_with_it_and_with_the_image() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("behind");
    let work = scratch.fresh("work");
    let script = format!(
        "mkfifo f g; exec 4<>f; {HOSTS}; test -p $host && echo there
exec 4>&-; sleep 1; test -p $host && echo still there
rm f; for n in $(seq 100); do test -p $host || break; sleep 0.1; done; test -p $host || echo gone
exec 4<>g; {HOSTS}; cd $(dirname $host) && ls > /tmp/before; cd - > /dev/null
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s.t\")'
ls $(dirname $host) | grep -c s.t; rm s.t
for n in $(seq 100); do ls $(dirname $host) | grep -q s.t || break; sleep 0.1; done
ls $(dirname $host) | cmp - /tmp/before && echo gone; echo $host"
    );
    let outcome = run(&scratch, &work, husk(&["--discard"], &["bash", "-c", &script]));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let expected = ["there", "still there", "gone", "1", "gone"];
    assert_eq!(lines[..5], expected, "{}", outcome.shown());
    assert!(!outer(lines[5]).exists(), "{}", outcome.shown());
}

#[test]
fn what_a_killed_supervisor_leaves_on_the_host_the_next_one_removes() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("left");
    let work = scratch.fresh("work");
    let script = format!(
        "trap '' HUP; mkfifo f; exec 4<>f; {HOSTS}; echo $host; test -p $host && kill -KILL $PPID"
    );
    let outcome = run(&scratch, &work, husk(&["--discard"], &["bash", "-c", &script]));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let next = run(&scratch, &work, husk(&["--discard"], &["true"]));
    assert!(!outer(text.trim()).exists(), "{}{}", outcome.shown(), next.shown());
}

/// The image's directory on the host.
fn outer(fifo: &str) -> &Path {
    let path = Path::new(fifo).ancestors().nth(2).expect("two directories");
    let name = path.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with(".husk-"), "{fifo}");
    path
}
