//! Pipes and socket pairs whose bytes go through the image.

use std::os::unix::fs::MetadataExt;

use husk_tests::{Run, Scratch, Side, against_native};

use crate::LIMIT;

/// What a script prints on one side.
fn printed(side: Side, script: &str) -> String {
    let scratch = Scratch::new("pipe-caveats");
    let command = side.command(&[], &["python3", "-c", script]);
    let run = Run::start(command, &scratch.fresh("work"), scratch.path());
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert!(outcome.status.success(), "{}", outcome.shown());
    String::from_utf8(outcome.stdout).expect("text")
}

/// Makes two sockets at once.
const PAIR: &str = "one, other = socket.socketpair()";
/// Or connects them by a name in the tree: whoever accepts sees the name that tells of the lanes
/// only when `connect` is over.
const NAMED: &str = "
listener = socket.socket(socket.AF_UNIX)
listener.bind('name')
listener.listen()
one = socket.socket(socket.AF_UNIX)
one.connect('name')
other, _ = listener.accept()";

/// Fills one of two sockets whose rings are in use after `before`: how much that takes.
fn taken(side: Side, made: &str, before: &str) -> u64 {
    let script = format!(
        "
import select, socket
{made}
{before}
for _ in range(40):
    one.send(b'x')
    other.recv(1)
one.setblocking(False)
total = 0
try:
    while True:
        total += one.send(bytes(4096))
except BlockingIOError:
    print(total)
"
    );
    printed(side, &script).trim().parse().expect("a number")
}

/// Whether processes may borrow each other's descriptors here, as the rings of sockets need it.
fn may_borrow() -> bool {
    const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
    let scope = std::fs::read_to_string(YAMA).unwrap_or_else(|_| "0".to_owned());
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    is_root || scope.trim() == "0"
}

/// Fills a pipe whose ring is in use after `before`: what it holds tells whether there is a ring.
fn held(side: Side, before: &str) -> String {
    let script = format!(
        "
import os, select
reads, writes = os.pipe()
{before}
for _ in range(40):
    os.write(writes, b'x')
    os.read(reads, 1)
os.set_blocking(writes, False)
total = 0
try:
    while True:
        total += os.write(writes, bytes(4096))
except BlockingIOError:
    print(total)
"
    );
    printed(side, &script)
}

#[test]
fn a_pipe_between_ring_and_host_holds_both() {
    assert_eq!(held(Side::Native, ""), "65536\n");
    if !against_native() {
        assert_eq!(held(Side::Husk, ""), "131072\n");
    }
}

#[test]
fn a_pipe_that_somebody_slept_on_has_a_ring_again() {
    let polls = "
poll = select.poll()
poll.register(reads, select.POLLIN)
assert poll.poll(1) == []
assert select.select([reads], [], [], 0.001) == ([], [], [])";
    assert_eq!(held(Side::Native, polls), "65536\n");
    if !against_native() {
        assert_eq!(held(Side::Husk, polls), "131072\n");
    }
}

#[test]
fn a_socket_has_a_ring_in_a_set_too_but_not_where_its_process_is_hidden() {
    if against_native() {
        return;
    }
    const RING: u64 = 65_536;
    let polls = "
poll = select.poll()
poll.register(other, select.POLLIN)
assert poll.poll(1) == []";
    let sets = "
events = select.epoll()
events.register(other, select.EPOLLIN)";
    let once = "
events = select.epoll()
events.register(other, select.EPOLLIN | select.EPOLLONESHOT)";
    let exclusive = "
events = select.epoll()
events.register(other, select.EPOLLIN | select.EPOLLEXCLUSIVE)";
    let hidden = "
import ctypes
ctypes.CDLL(None).prctl(4, 0)";
    // As servers do that are to run as who starts them.
    let same = "
import ctypes, os
os.getuid() == 0 and os.setgroups(os.getgroups())
os.setgid(os.getgid()), os.setresuid(-1, os.getuid(), os.getuid())
ctypes.CDLL(None).prctl(4, 1)";
    let ring = if may_borrow() { RING } else { 0 };
    let hosts = taken(Side::Native, PAIR, "");
    assert_eq!(taken(Side::Husk, PAIR, ""), hosts + ring);
    assert_eq!(taken(Side::Husk, PAIR, polls), hosts + ring);
    assert_eq!(taken(Side::Husk, PAIR, sets), hosts + ring);
    assert_eq!(taken(Side::Husk, PAIR, once), hosts + ring);
    assert_eq!(taken(Side::Husk, PAIR, exclusive), hosts);
    assert_eq!(taken(Side::Husk, PAIR, hidden), hosts);
    assert_eq!(taken(Side::Husk, PAIR, same), hosts + ring);
    let hosts = taken(Side::Native, NAMED, "");
    assert_eq!(taken(Side::Husk, NAMED, ""), hosts + ring);
    assert_eq!(taken(Side::Husk, NAMED, sets), hosts + ring);
}

/// Hands bytes over a TCP connection of 127.0.0.1; how many of them the host has seen.
fn seen_by_host(side: Side) -> u64 {
    let script = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
one = socket.create_connection(listener.getsockname())
other, _ = listener.accept()
for _ in range(40):
    one.send(b'x')
    other.recv(1)
    other.send(b'y')
    one.recv(1)
print(int.from_bytes(other.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 144)[128:136], 'little'))
";
    printed(side, script).trim().parse().expect("a number")
}

#[test]
fn the_host_does_not_count_what_tcp_over_loopback_moves_by_rings() {
    assert_eq!(seen_by_host(Side::Native), 40);
    if !against_native() && may_borrow() {
        assert!(seen_by_host(Side::Husk) < 40);
    }
}

/// A thread that has often slept in a read does so while its number is closed, and four bytes come;
/// then who has another number reads.
const CLOSED: &str = "
import errno, os, socket, threading, time
near, far = socket.socketpair()
awake, second = threading.Semaphore(0), os.dup(far.fileno())
def reads():
    try:
        for _ in range(201):
            got = os.read(far.fileno(), 9)
            awake.release()
        print(got)
    except OSError as error:
        print(errno.errorcode[error.errno])
reader = threading.Thread(target=reads)
reader.start()
for _ in range(200):
    time.sleep(0.0005)
    near.send(b'w')
    awake.acquire()
time.sleep(0.05)
os.close(far.fileno())
near.send(b'late')
reader.join(20)
near.send(b'.')
print(os.read(second, 9))
";

#[test]
fn a_read_that_sleeps_fails_where_its_number_is_closed_and_the_bytes_stay() {
    assert_eq!(printed(Side::Native, CLOSED), "b'late'\nb'.'\n");
    if !against_native() && may_borrow() {
        assert_eq!(printed(Side::Husk, CLOSED), "EBADF\nb'late.'\n");
    }
}
