//! Thousands of processes in one image: all of them are seen, noticed when they end, and ended.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Images, until};

/// How many, and the memory that their records need.
const FEW: (usize, &str) = (400, "128M");
const MANY: (usize, &str) = (5_000, "1G");
/// Of a core that the supervisor may take for the look after them.
const SUPERVISOR_SHARE_MAX: f64 = 0.25;
/// How long the supervisor's time is taken, and how often at most until it has come to that.
const SPAN: Duration = Duration::from_secs(2);
const SPANS_MAX: usize = 5;

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
    start.env("HUSK_IMAGES", images.all()).stdin(Stdio::piped()).stdout(Stdio::piped());
    // A group of its own: what is killed is the crowd alone.
    start.process_group(0);
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

/// Of a core that a process takes, over a span.
fn share_of(pid: i32) -> f64 {
    let (spent, since) = (core_s(pid), Instant::now());
    // Nothing is waited for: what is spent within a span is the measure.
    std::thread::sleep(SPAN);
    (core_s(pid) - spent) / since.elapsed().as_secs_f64()
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
    // At first it has yet to look at all who have just come.
    let mut shares = (0..SPANS_MAX).map(|_| share_of(supervisor));
    let share = shares.find(|share| *share < SUPERVISOR_SHARE_MAX).expect("it comes to rest");
    println!("{count} processes: the supervisor takes {share:.3} of a core");
    drop(first.stdin.take());
    assert_eq!(line_of(&mut first), format!("{count}\n"), "each of them wrote");
    assert!(first.wait().expect("it ends").success());
    until("nobody is left", || images.row("ci")["processes"] == 0);
    until("no descriptor is left", || open_descriptors(supervisor) <= before);
    let stat: serde_json::Value =
        serde_json::from_str(&images.done(&["stat", "ci", "--json"])).expect("JSON");
    assert_eq!(stat["processes"], 0);
    killed_all_at_once(&images, count);
    let mut third = crowd(&images, count);
    assert_eq!(line_of(&mut third), "all\n");
    let since = Instant::now();
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", crate::shown(&output));
    println!("{count} processes were ended in {:?}", since.elapsed());
    third.wait().expect("it is ended");
    assert_eq!(images.row("ci"), serde_json::Value::Null);
}

/// Nothing is left of a crowd that is killed in one blow, nor of the files that only it had.
fn killed_all_at_once(images: &Images, count: usize) {
    let before = inodes(images);
    let mut crowd = crowd(images, count);
    assert_eq!(line_of(&mut crowd), "all\n");
    assert!(inodes(images) >= before + count as u64, "a file each");
    let since = Instant::now();
    let group = Pid::from_child(&crowd);
    kill_process_group(group, Signal::KILL).expect("they live");
    crowd.wait().expect("it is ended");
    until("what they held is released", || {
        images.row("ci")["processes"] == 0 && inodes(images) == before
    });
    println!("{count} processes were killed, and nothing is left, in {:?}", since.elapsed());
    images.done(&["fsck", "ci"]);
}

/// Inodes that are not free.
fn inodes(images: &Images) -> u64 {
    let stat: serde_json::Value =
        serde_json::from_str(&images.done(&["stat", "ci", "--json"])).expect("JSON");
    let number = |name: &str| stat[name].as_u64().expect("a number");
    number("inodes") - number("inodes_free")
}
