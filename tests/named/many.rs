//! Thousands of processes in one image: all of them are seen, noticed when they end, and ended.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, until};

/// How many, and the memory that their records need. Threads that have used a file of the image and
/// live are 4,095 at most.
const FEW: (usize, &str) = (400, "128M");
const MANY: (usize, &str) = (4_000, "1G");
/// Of a core that the supervisor may take for the look after them.
const SUPERVISOR_SHARE_MAX: f64 = 0.25;
/// How long the supervisor's time is taken.
const SPAN: Duration = Duration::from_secs(2);
/// How long all of them may take to be ended: twenty times what it takes on an idle machine.
const END_MAX: Duration = Duration::from_secs(40);

fn numbers() -> (usize, &'static str) {
    if std::env::var_os("HUSK_FULL").is_some() { MANY } else { FEW }
}

/// An image with so many processes, and the one that waits for them.
fn crowd(images: &Images, count: usize) -> Child {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/named/sources/many.c");
    let program = images.work.join("many");
    let program = program.to_str().expect("a plain path");
    let built = Command::new("cc").args(["-O1", "-o", program, source]).status();
    assert!(built.expect("cc starts").success());
    // Not by `timeout`: what runs is to be the process itself.
    let mut start = Command::new(binary());
    start.args(["exec", "ci", "--", program, &count.to_string()]).current_dir(&images.work);
    start.env("XDG_RUNTIME_DIR", images.runtime()).stdin(Stdio::piped()).stdout(Stdio::piped());
    start.spawn().expect("it starts")
}

fn line_of(child: &mut Child) -> String {
    let mut line = String::new();
    // Byte by byte: nothing is read ahead.
    let output = child.stdout.as_mut().expect("a pipe");
    BufReader::with_capacity(1, output).read_line(&mut line).expect("a line");
    line
}

/// Time that a process has spent on a core, s.
fn core_s(pid: i32) -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields = behind.split_ascii_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum::<f64>() / TICKS_PER_S
}

fn open_descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

#[test]
fn thousands_of_processes_live_in_one_image() {
    if against_native() {
        return;
    }
    let (count, memory) = numbers();
    let images = Images::new("many");
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", memory, "--overlay", work]);
    let supervisor = images.supervisor("ci");
    let before = open_descriptors(supervisor);
    let mut first = crowd(&images, count);
    assert_eq!(line_of(&mut first), "all\n");
    // Itself, and its children, once each of them has had a core.
    until("all of them run", || images.row("ci")["processes"] == count + 1);
    assert_eq!(images.done(&["ps", "ci"]).lines().count(), count + 2);
    let top = images.done(&["top", "ci", "--once", "--json"]);
    let frame: serde_json::Value = serde_json::from_str(&top).expect("JSON");
    assert!(frame["processes"].as_array().is_some_and(|rows| !rows.is_empty()), "{top}");
    let (spent, since) = (core_s(supervisor), Instant::now());
    // Nothing is waited for: what is spent within a span is the measure.
    std::thread::sleep(SPAN);
    let share = (core_s(supervisor) - spent) / since.elapsed().as_secs_f64();
    println!("{count} processes: the supervisor takes {share:.3} of a core");
    assert!(share < SUPERVISOR_SHARE_MAX, "{share}");
    drop(first.stdin.take());
    assert_eq!(line_of(&mut first), format!("{count}\n"), "each of them wrote");
    assert!(first.wait().expect("it ends").success());
    until("nobody is left", || images.row("ci")["processes"] == 0);
    until("no descriptor is left", || open_descriptors(supervisor) <= before);
    let stat: serde_json::Value =
        serde_json::from_str(&images.done(&["stat", "ci", "--json"])).expect("JSON");
    assert_eq!(stat["processes"], 0);
    let mut second = crowd(&images, count);
    assert_eq!(line_of(&mut second), "all\n");
    let since = Instant::now();
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", crate::shown(&output));
    println!("{count} processes were ended in {:?}", since.elapsed());
    assert!(since.elapsed() < END_MAX, "{:?}", since.elapsed());
    second.wait().expect("it is ended");
    assert_eq!(images.row("ci"), serde_json::Value::Null);
}
