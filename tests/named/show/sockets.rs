//! What `husk net ls` says of the sockets of an image.

use husk_tests::against_native;
use serde_json::Value;

use crate::{Images, shown, text, until};

/// Three connections in one process: bytes of the first two take rings, an option of the third
/// needs the host. Five bytes wait in the first.
const SCRIPT: &str = "
import socket, time
listener = socket.create_server(('127.0.0.1', 0))
def connection():
    near = socket.create_connection(listener.getsockname())
    return near, listener.accept()[0]
pairs = [socket.socketpair(), connection(), connection()]
for near, far in pairs:
    for _ in range(40):
        near.sendall(b'w'); far.recv(1); far.sendall(b'v'); near.recv(1)
pairs[2][0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
pairs[0][0].sendall(b'bytes')
time.sleep(600)
";

fn listed(images: &Images) -> Value {
    serde_json::from_str(&images.done(&["net", "ls", "ci", "--json"])).expect("JSON")
}

#[test]
fn sockets_are_listed_with_their_peers_and_the_way_of_their_bytes() {
    if against_native() {
        return;
    }
    let images = Images::new("sockets");
    images.done(&["up", "ci", "--memory", "64M"]);
    let started = format!("python3 -c \"{SCRIPT}\" > /dev/null 2>&1 & echo $!");
    let pid = images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    let pid: u64 = pid.trim().parse().expect("a number");
    let waiting = |one: &Value| one["reads"]["waiting_bytes"] == 5;
    until("the bytes wait", || {
        listed(&images)["sockets"].as_array().expect("a list").iter().any(waiting)
    });
    let report = listed(&images);
    let sockets = report["sockets"].as_array().expect("a list");
    assert_eq!((sockets.len(), &report["others"]), (6, &1.into()), "{report}");
    for one in sockets {
        assert_eq!(
            (&one["holders"][0]["pid"], &one["peers"][0]["pid"]),
            (&pid.into(), &pid.into())
        );
        assert_ne!(one["holders"], one["peers"]);
    }
    let ways = |kind: &str, by: &str| {
        let one = |one: &&Value| one["kind"] == kind && one["reads"]["by"] == by;
        sockets.iter().filter(one).count()
    };
    assert_eq!([ways("unix", "ring"), ways("tcp", "ring"), ways("tcp", "host")], [2, 2, 2]);
    let of_host = sockets.iter().find(|one| one["reads"]["by"] == "host").expect("one");
    assert!(of_host["reads"]["why"].as_str().expect("a reason").contains("for good"), "{of_host}");
    assert!(of_host["local"].as_str().expect("an address").starts_with("127.0.0.1:"));
    let lines = images.done(&["net", "ls", "ci"]);
    assert_eq!(lines.matches("reads by ring").count(), 4, "{lines}");
    assert!(lines.contains("5 bytes wait"), "{lines}");
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
    let nobody = images.husk(&["net", "ls", "ci"]);
    assert!(!nobody.status.success() && text(&nobody.stderr).contains("ci"), "{}", shown(&nobody));
}

/// A worker that becomes another user, as those of servers do, with a connection of each kind to
/// who stays root.
const WORKER: &str = "
import os, socket, time
pair = socket.socketpair()
listeners = [socket.socket(socket.AF_UNIX), socket.socket()]
for listener, name in zip(listeners, ['worker', ('127.0.0.1', 0)]):
    listener.bind(name); listener.listen()
if os.fork() == 0:
    os.setgid(33); os.setuid(33)
    ends = [pair[1]] + [listener.accept()[0] for listener in listeners]
    for one in ends:
        for _ in range(40): one.sendall(one.recv(1))
    time.sleep(600)
ends = [pair[0]]
for listener in listeners:
    ends.append(socket.socket(listener.family)); ends[-1].connect(listener.getsockname())
for one in ends:
    for _ in range(40): one.sendall(b'w'); one.recv(1)
time.sleep(600)
";

#[test]
fn connections_of_a_worker_that_becomes_another_user_can_take_rings() {
    if against_native() || !rustix::process::geteuid().is_root() {
        return;
    }
    let images = Images::new("workers");
    images.done(&["up", "ci", "--memory", "64M"]);
    let started = format!("python3 -c \"{WORKER}\" > /dev/null 2>&1 & echo $!");
    images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    // The host's for now. Bytes for whoever may not be woken by a bell take its way.
    let for_now = [
        "the reader sleeps, or has slept, in a system call",
        "the host has the bytes that come first",
    ];
    let can = |way: &Value| way["by"] == "ring" || for_now.iter().any(|why| way["why"] == *why);
    let ends = |report: &Value, kind: &str| {
        let sockets = report["sockets"].as_array().expect("a list");
        let of_kind = |one: &&Value| one["kind"] == kind && can(&one["reads"]);
        sockets.iter().filter(of_kind).count()
    };
    until("both ends of each are there", || {
        let report = listed(&images);
        [ends(&report, "unix"), ends(&report, "tcp")] == [4, 2]
    });
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

/// A server that starts a child for each of twelve connections, and closes its own numbers of them
/// before a byte has come.
const FORKS: &str = "
import os, socket, time
listener = socket.create_server(('127.0.0.1', 0))
ends = []
for one in range(12):
    near = socket.create_connection(listener.getsockname()); far = listener.accept()[0]
    if os.fork() == 0:
        for end in ends + [near]: end.close()
        for _ in range(40): far.sendall(far.recv(1))
        time.sleep(600)
    far.close(); ends.append(near)
for near in ends:
    for _ in range(40): near.sendall(b'w'); near.recv(1)
time.sleep(600)
";

#[test]
fn connections_of_a_server_that_forks_for_each_can_all_take_rings() {
    if against_native() {
        return;
    }
    let images = Images::new("forks");
    images.done(&["up", "ci", "--memory", "64M"]);
    let started = format!("python3 -c \"{FORKS}\" > /dev/null 2>&1 & echo $!");
    images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    until("both ends of each have lanes", || {
        let report = listed(&images);
        let sockets = report["sockets"].as_array().expect("a list");
        sockets.iter().filter(|one| one["kind"] == "tcp").count() == 24
    });
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

/// A file of the host is sent whole to a reader that sleeps at first; then five bytes.
const SENDER: &str = "
import os, socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
near = socket.create_connection(listener.getsockname()); far = listener.accept()[0]
def warm():
    for _ in range(40):
        near.sendall(b'w'); far.recv(1); far.sendall(b'v'); near.recv(1)
warm()
file = os.open(os.path.realpath('/proc/self/exe'), os.O_RDONLY); size = os.fstat(file).st_size
def drain():
    time.sleep(0.3); left = 4 * size
    while left: left -= len(far.recv(1 << 16))
reader = threading.Thread(target=drain); reader.start()
for _ in range(4):
    at = 0
    while at < size: at += os.sendfile(near.fileno(), file, at, size - at)
reader.join(); warm()
near.sendall(b'bytes')
time.sleep(600)
";

#[test]
fn a_connection_has_its_ring_again_after_a_sendfile_that_had_to_wait() {
    if against_native() {
        return;
    }
    let images = Images::new("senders");
    images.done(&["up", "ci", "--memory", "64M"]);
    let started = format!("python3 -c \"{SENDER}\" > /dev/null 2>&1 & echo $!");
    images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    let waiting = |one: &Value| one["reads"]["waiting_bytes"] == 5 && one["reads"]["by"] == "ring";
    until("the bytes wait in the ring", || {
        listed(&images)["sockets"].as_array().expect("a list").iter().any(waiting)
    });
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

/// A connection and a pipe in one process; then an option makes the connection the host's.
const MIXED: &str = "
import os, socket
near, far = socket.socketpair(); reads, writes = os.pipe()
def exchange():
    for _ in range(40):
        near.sendall(b'w'); far.recv(1); far.sendall(b'v'); near.recv(1)
        os.write(writes, b'x'); os.read(reads, 1)
exchange()
near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
exchange()
";

#[test]
fn a_trace_says_of_bytes_whether_a_ring_or_the_host_had_them() {
    if against_native() {
        return;
    }
    let images = Images::new("traced-rings");
    images.done(&["up", "ci", "--memory", "64M"]);
    let file = images.scratch.path().join("trace");
    let path = file.to_str().expect("a plain path");
    let calls = "sendto,recvfrom,read,write,setsockopt";
    let traced = |more: &[&str]| {
        let mut words = vec!["trace", "ci", "-e", calls, "-o", path];
        words.extend(more.iter().chain(&["--", "python3", "-c", MIXED]));
        images.done(&words);
        std::fs::read_to_string(&file).expect("a trace")
    };
    let text = traced(&["--json"]);
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect(l)).collect();
    let option = lines.iter().position(|line| line["call"] == "setsockopt").expect("the option");
    let count = |lines: &[Value], calls: [&str; 2], by: &str| {
        let one = |line: &&Value| {
            calls.iter().any(|call| line["call"] == *call)
                && line["result"] == 1
                && line["answered_by"] == by
        };
        lines.iter().filter(one).count()
    };
    let (before, after) = lines.split_at(option);
    let (socket, pipe) = (["sendto", "recvfrom"], ["write", "read"]);
    assert!(count(before, socket, "ring") >= 130, "of 160: {text}");
    assert_eq!(count(before, socket, "ring") + count(before, socket, "host"), 160, "{text}");
    assert_eq!([count(after, socket, "ring"), count(after, socket, "host")], [0, 160], "{text}");
    assert!(count(after, pipe, "ring") >= 60, "of 80: {text}");
    assert_eq!(count(&lines, socket, "process") + count(&lines, socket, "kernel"), 0, "{text}");
    assert!(traced(&[]).contains(" = 1 <ring, "), "a line shows it as well");
    let counts: Value = serde_json::from_str(&traced(&["-c", "--json"])).expect("JSON");
    let sent = &counts["calls"]["sendto"];
    assert_eq!((&sent["calls"], &sent["errors"]), (&160.into(), &0.into()), "{counts}");
    let by = |who: &str| sent[who].as_u64().expect("a number");
    assert!(by("by_ring") >= 65 && by("by_ring") + by("by_host") == 160, "{counts}");
    let table = traced(&["-c"]);
    assert!(table.contains("BY RING") && table.contains(" sendto\n"), "{table}");
    images.down("ci");
}

/// A process that writes to a connection and a pipe, and one that reads from both. Neither sleeps
/// in a call on them, so that the rings stay in use.
const STREAM: &str = "
import os, socket, time
near, far = socket.socketpair(); reads, writes = os.pipe()
for end in [near, far]: end.setblocking(False)
for end in [reads, writes]: os.set_blocking(end, False)
def attempt(call, *args):
    try: call(*args)
    except BlockingIOError: time.sleep(0.0005)
if os.fork() == 0:
    near.close(); os.close(writes)
    while True: attempt(far.recv, 4096); attempt(os.read, reads, 4096)
far.close(); os.close(reads)
while True: attempt(near.send, b's' * 1000); attempt(os.write, writes, b'p' * 1000)
";

#[test]
fn top_shows_who_moves_how_many_bytes_by_rings() {
    if against_native() {
        return;
    }
    let images = Images::new("top-rings");
    images.done(&["up", "ci", "--memory", "64M"]);
    let started = format!("python3 -c \"{STREAM}\" > /dev/null 2>&1 & echo $!");
    let pid = images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    let writer: u64 = pid.trim().parse().expect("a number");
    let looked = || -> Value {
        let told = images.done(&["top", "ci", "--json", "--interval", "0.3"]);
        serde_json::from_str(&told).expect("JSON")
    };
    let way = |one: &Value| {
        let rate = |what: &str| one[what].as_f64().expect("a rate");
        (rate("ring_read_bytes_per_s"), rate("ring_written_bytes_per_s"))
    };
    let mut frame = Value::Null;
    until("one writes and the other one reads", || {
        frame = looked();
        let all = frame["processes"].as_array().expect("a list");
        let of = |is_writer: bool| all.iter().find(|one| (one["pid"] == writer) == is_writer);
        let (Some(writer), Some(reader)) = (of(true), of(false)) else { return false };
        let ((nothing, written), (read, none)) = (way(writer), way(reader));
        nothing == 0.0 && none == 0.0 && written > 20_000.0 && read > 20_000.0
    });
    let (written, all) = (way(&frame["processes"][0]), frame["ring_bytes_per_s"].as_f64());
    let most = written.0.max(written.1);
    assert!(all.is_some_and(|all| all > 0.5 * most && all < 2.0 * most), "{frame}");
    let text = images.done(&["top", "ci", "--once", "--interval", "0.3"]);
    assert!(text.contains("RING B/s") && text.contains("   rings "), "{text}");
    assert!(!text.contains("rings 0B/s"), "{text}");
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

/// A thread that has often slept in a read, and one that has in a set of three sockets; both do so
/// again.
const SLEEPERS: &str = "
import os, select, socket, threading, time
pairs, awake = [socket.socketpair() for _ in range(4)], threading.Semaphore(0)
for near, far in pairs:
    for _ in range(60): near.send(b'w'); far.recv(1); far.send(b'v'); near.recv(1)
events = select.epoll()
ends = {far.fileno(): far for _, far in pairs[1:]}
for number in ends: events.register(number, select.EPOLLIN)
def reads():
    while os.read(pairs[0][1].fileno(), 1): awake.release()
def waits():
    while True:
        for number, _ in events.poll(): ends[number].recv(1)
        awake.release()
for work in (reads, waits): threading.Thread(target=work, daemon=True).start()
for turn in range(300):
    time.sleep(0.001)
    for near in (pairs[0][0], pairs[1 + turn % 3][0]): near.send(b'x'); awake.acquire()
open('numbers', 'w').write('%d %d %d.' % (os.getpid(), pairs[0][1].fileno(), events.fileno()))
time.sleep(600)
";

const BELL: &str = ", and a bell wakes it";

#[test]
fn explain_says_of_who_sleeps_by_a_bell_what_it_waits_for() {
    if against_native() {
        return;
    }
    let images = Images::new("sleepers");
    images.up("ci");
    let started = format!("python3 -c \"{SLEEPERS}\" > /dev/null 2>&1 &");
    images.done(&["exec", "ci", "--", "bash", "-euc", &started]);
    let mut numbers = String::new();
    until("it has slept often", || {
        numbers = images.script("ci", "cat numbers 2> /dev/null || true");
        numbers.ends_with('.')
    });
    let numbers: Vec<&str> = numbers.trim_end_matches('.').split(' ').collect();
    let [pid, socket, set] = numbers[..] else { panic!("{numbers:?}") };
    let wanted = [
        format!("sleeps in a read({socket}), by ppoll, in the host; its bytes come by ring{BELL}"),
        format!("epoll_wait({set}), in the host; bytes of 3 of its sockets come by ring{BELL}"),
    ];
    let mut said = String::new();
    until("both sleep", || {
        said = images.done(&["explain", "ci", pid]);
        wanted.iter().all(|line| said.contains(line))
    });
    let told: Value = serde_json::from_str(&images.done(&["explain", pid, "--json"])).expect(&said);
    let threads = told["threads"].as_array().expect("a list");
    let of = |fd: &str| {
        let number: u64 = fd.parse().expect("a number");
        threads.iter().find(|one| one["fd"] == number).expect("a thread")
    };
    let is = |one: &Value, names: [&str; 2]| names.iter().all(|name| one[*name] == true);
    let (read, wait) = (of(socket), of(set));
    assert!(is(read, ["by_ring", "by_bell"]) && read["reads"] == true, "{told}");
    assert!(is(wait, ["by_ring", "by_bell"]) && wait["ring_sockets"] == 3, "{told}");
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}
