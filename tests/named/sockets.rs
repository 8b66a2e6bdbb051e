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
    let told = "the reader sleeps, or has slept, in a system call";
    let can = |way: &Value| way["by"] == "ring" || way["why"] == told;
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
