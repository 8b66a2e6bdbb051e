//! `husk trace`: what it shows is what programs do, and what happens when either side dies.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Child, Output, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;
use husk_tests::toolchain::build_c;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Images, shown, text, until};

/// Where the gate's table is, in every process of an image; and its entry of a call that is the
/// host's.
const TABLE: u64 = 0x60000;
const GETPPID: u64 = 110;

/// Starts `husk ARGUMENTS`.
fn begun(images: &Images, arguments: &[&str]) -> Child {
    let husk = binary().to_str().expect("a plain path");
    let mut command = images.command(husk, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("husk")
}

/// Ends a tracer, and says what it has said.
fn ended(child: Child) -> Output {
    ended_by(child, Signal::INT)
}

fn ended_by(child: Child, signal: Signal) -> Output {
    // Its parent is `timeout`, which hands signals on.
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
    child.wait_with_output().expect("its output")
}

/// The first lines of standard output, and whatever came with the last of them.
fn first_lines(child: &mut Child, count: usize) -> Vec<u8> {
    let output = child.stdout.as_mut().expect("a pipe");
    let (mut found, mut some) = (Vec::new(), [0; 4096]);
    while found.iter().filter(|&&byte| byte == b'\n').count() < count {
        let got = output.read(&mut some).expect("its output");
        assert_ne!(got, 0, "it ended: {}", text(&found));
        found.extend_from_slice(&some[..got]);
    }
    found
}

/// Processes `sleep 60` of an image that sleep.
fn sleepers(images: &Images) -> Vec<u64> {
    let rows: Value = serde_json::from_str(&images.done(&["ps", "ci", "--json"])).expect("JSON");
    let asleep = |row: &&Value| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", row["pid"])).unwrap_or_default();
        stat.contains(" (sleep) S ")
    };
    rows.as_array()
        .expect("rows")
        .iter()
        .filter(asleep)
        .filter_map(|row| row["pid"].as_u64())
        .collect()
}

/// The process that `timeout` has started.
fn child_of(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// The lines of a trace in JSON.
fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = text(bytes);
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Traces a script in JSON; its lines.
fn traced(images: &Images, script: &str) -> Vec<Value> {
    let file = images.scratch.path().join("trace.json");
    let path = file.to_str().expect("a plain path");
    images.done(&["trace", "ci", "--json", "-o", path, "--", "bash", "-euc", script]);
    lines(&fs::read(&file).expect("a trace"))
}

fn is(line: &Value, call: &str) -> bool {
    line["call"] == call
}

/// Names and results between the marks of `calls.c`, as strace writes lines.
fn between_marks(text: &str) -> Vec<String> {
    let calls = text.lines().filter_map(|line| {
        let (call, rest) = line.split_once('(')?;
        let name = call.rsplit(' ').next()?;
        let result = rest.rsplit_once(" = ")?.1.split(" <").next()?;
        Some(format!("{name} = {}", result.trim()))
    });
    let all: Vec<String> = calls.collect();
    let mark = |text: &str, what: &str| {
        text.lines().filter(|line| line.contains('(')).position(|line| line.contains(what))
    };
    let first = mark(text, "\"begins\"").unwrap_or_else(|| panic!("no beginning: {text}"));
    let last = mark(text, "\"ends\"").unwrap_or_else(|| panic!("no end: {text}"));
    all[first..=last].to_vec()
}

#[test]
fn calls_are_those_that_strace_sees() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-strace");
    let program = images.scratch.path().join("calls");
    build_c(include_str!("../sources/calls.c"), &program);
    let program = program.to_str().expect("a plain path");
    let native = images.scratch.fresh("native");
    let mut strace = images.command("strace", &[program]);
    let strace = strace.current_dir(&native).output().expect("strace (apt-get install strace)");
    assert!(strace.status.success(), "{}", shown(&strace));
    images.up("ci");
    let output = images.husk(&["trace", "ci", "--", program]);
    assert!(output.status.success(), "{}", shown(&output));
    let (native, tested) = (text(&strace.stderr), text(&output.stderr));
    let without_numbers = |calls: Vec<String>| -> Vec<String> {
        let parent = |call: &String| call.starts_with("getppid");
        calls.into_iter().filter(|call| !parent(call)).collect()
    };
    let (seen, told) = (between_marks(&native), between_marks(&tested));
    assert!(seen.len() > 30, "{native}");
    assert!(told.iter().any(|call| call.starts_with("getppid")), "{tested}");
    assert_eq!(without_numbers(seen), without_numbers(told), "{tested}");
    // Arguments are decoded, and it is said who has answered.
    for wanted in [
        "openat(AT_FDCWD, \"d/file\", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0640) = 3 <kernel ",
        ", SEEK_END) = 1040 <kernel ",
        "getppid() = ",
        ", AT_REMOVEDIR) = 0 <kernel ",
        ", \"name\", R_OK|W_OK, 0) = 0 <kernel ",
        "symlink(\"name\", \"d/link\") = 0 <kernel ",
    ] {
        assert!(tested.contains(wanted), "{wanted}: {tested}");
    }
    let asked = tested.lines().find(|line| line.contains("getppid()")).expect("a line");
    assert!(asked.contains(" <host, "), "{asked}");
    images.down("ci");
}

#[test]
fn threads_children_and_programs_that_follow_are_traced() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-family");
    images.up("ci");
    let found = traced(
        &images,
        "echo x > a; (cat a; rm a) | cat; python3 -c '
import os, threading, subprocess
threads = [threading.Thread(target=os.mkdir, args=(f\"t{n}\",)) for n in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
subprocess.run([\"true\"], close_fds=False)
'; exec true",
    );
    let made: Vec<&Value> = found
        .iter()
        .filter(|line| {
            is(line, "mkdir") && line["arguments"].as_str().expect("text").contains("\"t")
        })
        .collect();
    let mut threads: Vec<u64> =
        made.iter().map(|line| line["tid"].as_u64().expect("tid")).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!((made.len(), threads.len()), (4, 4), "{made:?}");
    assert!(made.iter().all(|line| line["pid"] != line["tid"] && line["answered_by"] == "kernel"));
    // Each program that was run did end, and its exec is told as one that did not fail.
    let runs: Vec<&Value> = found.iter().filter(|line| is(line, "execve")).collect();
    assert!(runs.iter().filter(|line| line["result"] == 0).count() >= 5, "{runs:?}");
    let ends = found.iter().filter(|line| is(line, "exit_group")).count();
    assert!(ends >= 5, "{ends}");
    assert!(found.iter().all(|line| line["not_recorded"].is_null()), "calls are missing");
    images.down("ci");
}

#[test]
fn a_call_that_sleeps_is_one_line() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-sleep");
    images.up("ci");
    let found = traced(
        &images,
        "flock l sh -c 'echo > held; sleep 0.4' & until [ -e held ]; do :; done; flock l true; wait
         timeout -s INT 0.3 flock m sleep 0.5 || true",
    );
    let locks: Vec<&Value> = found.iter().filter(|line| is(line, "flock")).collect();
    assert_eq!(locks.len(), 3, "{locks:?}");
    let waited =
        locks.iter().filter(|line| line["duration_ns"].as_u64() > Some(50_000_000)).count();
    assert!(waited == 1 && locks.iter().all(|line| line["result"] == 0), "{locks:?}");
    // What is in a call when the tracing ends has no result.
    let sleeper = begun(&images, &["exec", "ci", "--", "sleep", "60"]);
    until("it sleeps", || images.done(&["ps", "ci"]).contains("sleep 60"));
    let tracer = begun(&images, &["trace", "ci", "--", "sh", "-c", "sleep 60 > /dev/null 2>&1"]);
    until("both sleep", || sleepers(&images).len() == 2);
    // The command gets the signal, and ends with it; what it has started sleeps on.
    let told = ended_by(tracer, Signal::TERM);
    let said = text(&told.stderr);
    assert_eq!(told.status.code(), Some(128 + 15), "{said}");
    let last = said.lines().find(|line| line.contains(" clock_nanosleep("));
    assert!(last.is_some_and(|line| line.ends_with(" = ? <unfinished>")), "{said}");
    drop(ended(sleeper));
    images.done(&["down", "ci", "--force"]);
}

#[test]
fn filters_choose_calls_and_processes() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-filters");
    images.up("ci");
    let output =
        images.husk(&["trace", "ci", "-e", "mkdir,rmdir", "--", "sh", "-c", "mkdir q; rmdir q"]);
    let said = text(&output.stderr);
    let names: Vec<&str> =
        said.lines().filter_map(|line| line.split_once('(')?.0.rsplit(' ').next()).collect();
    assert_eq!(names, ["mkdir", "rmdir"], "{said}");
    let husk = binary().to_str().expect("a plain path");
    let busy = "echo $$ > /tmp/pid; while :; do echo x > \"$0\"; rm \"$0\"; done";
    let mut all: Vec<Child> = ["one", "two"]
        .iter()
        .map(|name| images.command(husk, &["exec", "ci", "--", "bash", "-c", busy, name]))
        .map(|mut command| command.spawn().expect("husk"))
        .collect();
    let rows = || images.done(&["ps", "ci", "--json"]);
    until("both run", || rows().matches("while :").count() == 2);
    let pid = images.script("ci", "cat /tmp/pid").trim().to_owned();
    let mut tracer = begun(&images, &["trace", "ci", "--json", "-p", &pid]);
    let mut found = first_lines(&mut tracer, 11);
    found.extend_from_slice(&ended(tracer).stdout);
    let found = lines(&found);
    let of_it = |line: &&Value| line["pid"].as_u64() == pid.parse().ok();
    let calls = found.iter().filter(|line| line["not_recorded"].is_null());
    assert!(calls.clone().count() > 10 && calls.clone().all(|line| of_it(&line)), "{found:?}");
    // A process that ends ends its tracing.
    let mut tracer = begun(&images, &["trace", "ci", "--json", "-p", &pid]);
    first_lines(&mut tracer, 1);
    images.done(&["kill", "ci", &pid, "--signal", "KILL"]);
    assert!(tracer.wait_with_output().expect("its end").status.success());
    images.done(&["down", "ci", "--force"]);
    all.iter_mut().for_each(|child| drop(child.wait()));
}

#[test]
fn mistakes_are_one_line() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-mistakes");
    images.up("ci");
    for (arguments, why) in [
        (&["trace", "none"][..], "no such image"),
        (&["trace", "ci", "-e", "opne"], "there is no such system call"),
        (&["trace", "ci", "-p", "1"], "process 1 is none of its processes"),
        (&["trace", "ci", "-o", "/none/file"], "No such file"),
        (&["trace", "ci", "--chrome", "x", "--json"], "cannot be used with"),
    ] {
        let said = images.refused(arguments, 125);
        assert!(said.to_lowercase().contains(&why.to_lowercase()), "{why}: {said}");
    }
    let mut first = begun(&images, &["trace", "ci"]);
    until("it traces", || {
        // One of the others may have been there before it.
        if first.try_wait().expect("a child").is_some() {
            first = begun(&images, &["trace", "ci"]);
        }
        let said = text(&images.husk(&["trace", "ci", "--", "true"]).stderr);
        said.contains("traces it already; end that one")
    });
    drop(ended(first));
    images.down("ci");
}

/// A program that makes calls without end, its process, and the word of its gate's table.
struct Busy {
    pid: u64,
    memory: fs::File,
}

impl Busy {
    fn new(images: &Images) -> (Busy, Child) {
        let script = "import os, time
open('/tmp/pid', 'w').write(str(os.getpid()))
while True: os.getppid(); os.stat('/tmp/pid'); time.sleep(0.001)";
        let child = begun(images, &["exec", "ci", "--", "python3", "-c", script]);
        until("it runs", || {
            images.husk(&["exec", "ci", "--", "test", "-s", "/tmp/pid"]).status.success()
        });
        let pid: u64 = images.script("ci", "cat /tmp/pid").trim().parse().expect("a number");
        let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
        (Busy { pid, memory }, child)
    }

    fn entry(&self) -> u64 {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, TABLE + 8 * GETPPID).expect("the table");
        u64::from_le_bytes(word)
    }
}

#[test]
fn tracing_ends_with_who_traces_however_that_ends() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-killed");
    images.up("ci");
    let (busy, program) = Busy::new(&images);
    let off = busy.entry();
    let output = images.scratch.path().join("lines");
    let path = output.to_str().expect("a plain path");
    let traces = || begun(&images, &["trace", "ci", "-o", path]);
    let on = |tracer: &Child| {
        until("it traces", || busy.entry() != off);
        child_of(tracer.id()).expect("husk")
    };
    // A signal ends it at once.
    let tracer = traces();
    on(&tracer);
    assert!(ended(tracer).status.success());
    assert_eq!(busy.entry(), off, "it is switched off");
    let lines = fs::read_to_string(&output).expect("lines");
    assert!(lines.contains(&format!(" {} getppid() = ", busy.pid)), "{lines}");
    // Killed: the next one need not wait, and without one it ends by itself.
    for again in [true, false] {
        let tracer = traces();
        let husk = on(&tracer);
        kill_process(husk, Signal::KILL).expect("it runs");
        drop(tracer.wait_with_output());
        assert!(busy.entry() != off, "nobody has switched it off");
        if again {
            let said = images.husk(&["trace", "ci", "--", "true"]);
            assert!(said.status.success(), "{}", shown(&said));
            assert_eq!(busy.entry(), off);
        }
    }
    until("it ends by itself", || busy.entry() == off);
    images.done(&["kill", "ci", &busy.pid.to_string(), "--signal", "KILL"]);
    drop(program.wait_with_output());
    images.down("ci");
}

#[test]
fn what_is_not_recorded_is_counted_and_nobody_waits() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-dropped");
    images.up("ci");
    let file = images.scratch.path().join("lines");
    let path = file.to_str().expect("a plain path");
    let tracer = begun(&images, &["trace", "ci", "--json", "-e", "read,write", "-o", path]);
    until("it traces", || {
        images.script("ci", "echo x > f; cat f > /dev/null");
        fs::read_to_string(&file).is_ok_and(|lines| lines.contains("\"write\""))
    });
    let husk = child_of(tracer.id()).expect("husk");
    kill_process(husk, Signal::STOP).expect("it runs");
    // More than a ring holds, while nobody reads.
    let copied = "dd if=/dev/zero of=g bs=1 count=5000 status=none";
    images.script("ci", copied);
    kill_process(husk, Signal::CONT).expect("it runs");
    drop(ended(tracer));
    let found = lines(&fs::read(&file).expect("lines"));
    let dropped: u64 = found.iter().filter_map(|line| line["not_recorded"].as_u64()).sum();
    let of_dd = |line: &&Value| line["program"] == "dd";
    let recorded = found.iter().filter(of_dd).count() as u64;
    assert!(dropped > 0 && recorded > 100, "{recorded} and {dropped}");
    assert!(recorded + dropped >= 10_000, "{recorded} and {dropped}");
    images.down("ci");
}

#[test]
fn rings_of_the_dead_serve_others() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-many");
    images.up("ci");
    // More than there are rings, every other one killed.
    let script = "for n in $(seq 600); do (:); (kill -9 $BASHPID) || true; done";
    let file = images.scratch.path().join("lines");
    let path = file.to_str().expect("a plain path");
    let calls = "exit_group,kill";
    let arguments = ["trace", "ci", "--json", "-e", calls, "-o", path, "--", "bash", "-c", script];
    images.done(&arguments);
    let found = lines(&fs::read(&file).expect("lines"));
    let count = |call: &str| found.iter().filter(|line| is(line, call)).count();
    // Bash itself, and `seq`.
    assert_eq!((count("exit_group"), count("kill")), (602, 600));
    assert!(found.iter().all(|line| line["not_recorded"].is_null()));
    images.down("ci");
}

#[test]
fn the_perfetto_viewer_gets_its_format() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-chrome");
    images.up("ci");
    let file = images.scratch.path().join("trace.json");
    let path = file.to_str().expect("a plain path");
    images.done(&[
        "trace",
        "ci",
        "--chrome",
        path,
        "--",
        "sh",
        "-c",
        "echo x > f; rm f; rm f || true",
    ]);
    let events: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let events = events.as_array().expect("a list");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert!(named("process_name") >= 3 && named("thread_name") >= 3, "{events:?}");
    let calls: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(calls.iter().all(|call| {
        call["ts"].as_f64() > Some(1e15) && call["dur"].is_f64() && call["pid"].is_u64()
    }));
    let removed = calls.iter().filter(|call| {
        call["name"] == "unlinkat"
            && call["args"]["answered by"].as_str().is_some_and(|by| by.starts_with("kernel"))
    });
    assert!(removed.count() >= 1, "{calls:?}");
    images.down("ci");
}

#[test]
fn an_old_name_of_a_call_finds_what_programs_make_of_it() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-family");
    images.up("ci");
    images.script("ci", "echo x > there");
    let output = images.husk(&["trace", "ci", "-e", "open", "--", "cat", "there"]);
    assert!(output.status.success(), "{}", shown(&output));
    let lines = text(&output.stderr);
    assert!(lines.contains("openat(") && lines.contains("there"), "{lines}");
    assert!(!lines.contains("read("), "{lines}");
    images.down("ci");
}

#[test]
fn a_command_whose_trace_cannot_be_written_ends_as_it_would() {
    if against_native() {
        return;
    }
    let images = Images::new("trace-full");
    images.up("ci");
    let script = "for n in $(seq 200); do echo $n > count; done; echo x > done; exit ";
    for (own, status) in [(3, 3), (0, 125)] {
        let script = format!("{script}{own}");
        let words = ["trace", "ci", "-o", "/dev/full", "--", "bash", "-c", &script];
        let said = crate::refusal(&images.husk(&words), status);
        assert!(said.contains("cannot write the trace: no space left"), "{said}");
        // It has ended by itself, and before the tracer.
        assert_eq!(images.script("ci", "cat done; rm done"), "x\n");
    }
    images.down("ci");
}
