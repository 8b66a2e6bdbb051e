//! Steering under what goes wrong: processes killed at any time, two at once, old hosts; and moves
//! under load, of which no connection may know.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use rustix::process::Signal;
use serde_json::Value;

use super::server::*;
use crate::as_nobody;

/// Moves under load.
const MOVES: u64 = 1_000;
/// Connections that stay open meanwhile, and are asked again and again.
const KEPT: usize = 16;
/// Connections before the load turns to the other worker.
const TURN: u64 = 1_500;
/// Times at which an attach is killed, after its start.
const KILLS: std::ops::Range<u64> = 0..12;
const KILL_STEP: Duration = Duration::from_millis(3);

/// A connection that is kept, and asks by it.
struct Kept(BufReader<TcpStream>);

impl Kept {
    /// Who answers.
    fn ask(&mut self) -> std::io::Result<String> {
        self.0.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line)?;
        }
        self.0.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

/// Ends the load, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Connects from flow groups of one worker, then from those of the other, and so on: what comes has
/// to move. Panics where a connection fails.
fn load(server: &Server, over: &AtomicBool, came: &AtomicU64) {
    let ask = |group: u16| server.answers(1, |one| one == group).remove(0);
    while !over.load(Relaxed) {
        let mut groups = BTreeMap::<String, Vec<u16>>::new();
        for group in PORTS.step_by(16).map(|port| port >> 4) {
            groups.entry(ask(group)).or_default().push(group);
        }
        let turn = came.fetch_add(TURN, Relaxed) / TURN;
        let pressed = groups.values().cycle().nth(turn as usize % 2).expect("a worker");
        for &group in pressed.iter().cycle().take(TURN as usize) {
            ask(group);
            if over.load(Relaxed) {
                return;
            }
        }
    }
}

#[test]
fn no_connection_is_lost_or_goes_elsewhere_over_a_thousand_moves_under_load() {
    if unable() {
        return;
    }
    thousand_moves("ebpf");
}

#[test]
fn no_connection_is_lost_or_goes_elsewhere_over_a_thousand_moves_without_privilege() {
    if unable() {
        return;
    }
    thousand_moves("cbpf");
}

fn thousand_moves(way: &str) {
    let server = Server::start();
    let attach = ["attach", &server.place(), "--wake-percent", "0", "--window-ms", "100"];
    done(&[&attach[..], &["--way", way]].concat());
    let mut kept: Vec<_> = (0..KEPT)
        .map(|_| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("a stream");
            stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
            let mut one = Kept(BufReader::new(stream));
            let first = one.ask().expect("an answer");
            (one, first)
        })
        .collect();
    let (over, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let moves = scope(|scope| {
        let (server, over, came) = (&server, &over, &came);
        let _end = Ends(over);
        let loads = [(); 2].map(|()| scope.spawn(|| load(server, over, came)));
        let mut moves = 0;
        let mut asked = Ok(());
        until("a thousand moves", || {
            moves = server.top()["moves"].as_u64().unwrap_or_default();
            for (one, first) in &mut kept {
                match one.ask() {
                    Ok(answer) if answer == *first => {}
                    other => asked = Err(format!("{other:?} instead of {first}")),
                }
            }
            moves >= MOVES || asked.is_err() || loads.iter().any(|load| load.is_finished())
        });
        assert_eq!(asked, Ok(()), "a connection that was kept");
        moves
    });
    assert!(moves >= MOVES, "{moves}");
    assert!(came.load(Relaxed) > MOVES, "{came:?} connections");
}

/// Workers whose master has gone: who else would end them?
pub struct Orphans(pub Vec<i32>);

impl Drop for Orphans {
    fn drop(&mut self) {
        for &pid in &self.0 {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if let Some(pid) = rustix::process::Pid::from_raw(pid).filter(|_| name == "nginx\n") {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

#[test]
fn where_the_process_that_was_named_is_killed_its_workers_are_steered_on() {
    if unable() {
        return;
    }
    let mut server = Server::start();
    let orphans = Orphans(server.workers());
    let master = server.master.id();
    done(&["attach", &master.to_string(), "--wake-percent", "100"]);
    let balancer = server.balancer();
    server.signal(master as i32, Signal::KILL);
    server.master.wait().expect("its status");
    // Those that accept are seen again once a second.
    let mut workers: Vec<i64> = orphans.0.iter().map(|&pid| pid.into()).collect();
    workers.sort_unstable();
    until("only the workers are seen, each with its own socket", || {
        let even = server.answers(10, |group| group % 2 == 0);
        let odd = server.answers(10, |group| group % 2 == 1);
        assert!(all_same(&even) && all_same(&odd) && even[0] != odd[0], "{even:?} {odd:?}");
        let top = server.top();
        let kernels = top["kernels"].as_array().expect("kernels");
        let mut pids: Vec<_> = kernels.iter().filter_map(|one| one["pid"].as_i64()).collect();
        pids.sort_unstable();
        pids == workers && top["pid"].as_u64() != Some(master.into())
    });
    drop(orphans);
    until("the balancer has gone", || !fs::exists(format!("/proc/{balancer}")).unwrap_or(true));
}

#[test]
fn an_attach_that_is_killed_at_any_time_leaves_nothing_that_detach_and_attach_cannot_undo() {
    if unable() {
        return;
    }
    for way in ["ebpf", "cbpf"] {
        killed_attaches(way);
    }
}

fn killed_attaches(way: &str) {
    let server = Server::start();
    let place = server.place();
    for step in KILLS {
        let mut attach = Command::new(binary());
        attach.args(["net", "attach", &place, "--wake-percent", "100", "--way", way]);
        let mut attach = attach.stderr(Stdio::null()).spawn().expect("it starts");
        sleep(KILL_STEP * step as u32);
        let _ = attach.kill();
        attach.wait().expect("its status");
        assert_eq!(server.answers(20, |_| true).len(), 20);
        // A balancer that was about to tell it ends when it notices.
        until("another steers", || {
            let _ = output(net(&["detach", &place]));
            let attach = ["attach", &place, "--wake-percent", "100", "--way", way];
            output(net(&attach)).status.success()
        });
        assert!(all_same(&server.answers(20, |group| group % 2 == 0)), "{way}");
        done(&["detach", &place]);
        let answers = server.answers(100, |group| group % 2 == 0);
        assert!(!all_same(&answers), "{way}, killed at {step}");
    }
}

#[test]
fn of_two_attaches_at_once_one_steers_and_the_other_is_told() {
    if unable() {
        return;
    }
    let server = Server::start();
    let start = || {
        let mut attach = net(&["attach", &server.place()]);
        attach.stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let both = [start(), start()].map(|one| one.wait_with_output().expect("its end"));
    let mut codes = both.each_ref().map(|one| one.status.code());
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(125)], "{both:?}");
    let loser = both.iter().find(|one| !one.status.success()).expect("one");
    let said = String::from_utf8_lossy(&loser.stderr);
    assert!(said.lines().count() == 1 && said.contains("steered already"), "{said}");
    assert_eq!(server.top()["kernels"].as_array().map(Vec::len), Some(2));
    done(&["detach", &server.place()]);
}

/// A host that refuses a call, as an older Linux would: `bpf` as a whole, loading a program of a
/// kind that it does not know, or borrowing a descriptor.
pub fn old_host(call: &str, errno: i32, whole: &Command) -> Command {
    let script = r#"
import ctypes, os, platform, struct, sys
numbers = {"bpf": (321, 280), "load": (321, 280), "pidfd_getfd": (438, 438)}
call, errno = sys.argv[1], int(sys.argv[2])
number = numbers[call][platform.machine() != "x86_64"]
ins = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
code = ins(0x20, 0, 0, 0)
if call == "load":  # the command of bpf(2) is its first argument; 5 loads a program
    code += ins(0x15, 0, 3, number) + ins(0x20, 0, 0, 16) + ins(0x15, 0, 1, 5)
else:
    code += ins(0x15, 0, 1, number)
code += ins(0x06, 0, 0, 0x00050000 | errno) + ins(0x06, 0, 0, 0x7fff0000)
room = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code) // 8, ctypes.addressof(room))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execvp(sys.argv[3], sys.argv[3:])
"#;
    let mut old = Command::new("python3");
    old.args(["-c", script, call, &errno.to_string()]).arg(whole.get_program());
    old.args(whole.get_args());
    old
}

#[test]
fn an_older_linux_is_told_apart_and_steers_by_cbpf_if_it_lends_sockets() {
    if unable() {
        return;
    }
    const ENOSYS: i32 = 38;
    const EINVAL: i32 = 22;
    let server = Server::start();
    for (call, errno) in [("bpf", ENOSYS), ("load", EINVAL), ("pidfd_getfd", ENOSYS)] {
        let attach = net(&["attach", &server.place(), "--way", "ebpf"]);
        let said = refused(old_host(call, errno, &attach));
        assert!(said.contains("Linux 5.14"), "{call}: {said}");
        let check = output(old_host(call, errno, &net(&["check", "--json"])));
        let report: Value = serde_json::from_slice(&check.stdout).expect("one document");
        let (code, way) = if call == "pidfd_getfd" { (125, "none") } else { (0, "cbpf") };
        assert_eq!((check.status.code(), &report["way"]), (Some(code), &way.into()), "{call}");
        let facts = report["facts"].to_string();
        assert!(facts.contains("Linux 5.14"), "{call}: {facts}");
        assert!(!all_same(&server.answers(100, |group| group % 2 == 0)), "{call}");
        if way == "cbpf" {
            let attach = net(&["attach", &server.place(), "--wake-percent", "100"]);
            assert!(output(old_host(call, errno, &attach)).status.success(), "{call}");
            assert!(all_same(&server.answers(50, |group| group % 2 == 0)), "{call}");
            assert_eq!(server.top()["way"], way, "{call}");
            done(&["detach", &server.place()]);
        }
    }
    assert!(refused(net(&["detach", &server.place()])).contains("nothing is attached"));
}

#[test]
fn a_host_without_type_information_of_its_kernel_steers() {
    if unable() || !Path::new("/sys/kernel/btf").exists() {
        return;
    }
    let server = Server::start();
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let mut attach = Command::new("unshare");
    attach.args(["--mount", "sh", "-c", hidden, "sh"]);
    attach.arg(binary()).args(["net", "attach", &server.place(), "--wake-percent", "100"]);
    assert!(output(attach).status.success());
    assert!(all_same(&server.answers(50, |group| group % 2 == 0)));
    done(&["detach", &server.place()]);
}

/// A TCP segment of this host to itself, random but for its ports and, mostly, its checksum and the
/// length of its head.
fn segment(random: &mut u64, port: u16) -> Vec<u8> {
    let mut next = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*random >> 33) as u32
    };
    let mut bytes: Vec<u8> = (0..next() % 60).map(|_| 0).collect();
    bytes.iter_mut().for_each(|byte| *byte = next() as u8);
    let source = STRAYS.start + (next() % STRAYS.len() as u32) as u16;
    let put = |bytes: &mut [u8], at: usize, value: u16| {
        if let Some(two) = bytes.get_mut(at..at + 2) {
            two.copy_from_slice(&value.to_be_bytes());
        }
    };
    put(&mut bytes, 0, source);
    put(&mut bytes, 2, port);
    if let Some(length) = bytes.get_mut(12).filter(|_| next() % 4 != 0) {
        *length = 5 << 4;
    }
    put(&mut bytes, 16, 0);
    let pseudo = [127, 0, 0, 1, 127, 0, 0, 1, 0, 6, 0, bytes.len() as u8];
    let words = pseudo.chunks(2).chain(bytes.chunks(2));
    let word = |two: &[u8]| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0));
    let sum: u32 = words.map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    put(&mut bytes, 16, if next() % 8 == 0 { sum ^ 1 } else { sum });
    bytes
}

/// Source ports of what no client sends.
const STRAYS: std::ops::Range<u16> = 10_000..20_000;
const SEGMENTS: u64 = 30_000;

#[test]
fn malformed_segments_lead_no_connection_astray_and_only_those_that_ask_for_one_count() {
    if unable() {
        return;
    }
    for way in ["ebpf", "cbpf"] {
        malformed_segments(way);
    }
}

fn malformed_segments(way: &str) {
    let server = Server::start();
    done(&["attach", &server.place(), "--wake-percent", "100", "--way", way]);
    let balancer = server.balancer();
    let before = server.top()["connections"].as_u64();
    let (kind, tcp) = (SocketType::RAW, Some(rustix::net::ipproto::TCP));
    let raw = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, tcp).expect("root's");
    let (mut random, mut asked) = (1, 0);
    for number in 0..SEGMENTS {
        let bytes = segment(&mut random, server.port);
        // Whatever else it says; what has ACK is no new connection.
        asked += u64::from(bytes.get(13).is_some_and(|flags| flags & 0x12 == 0x02));
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        rustix::net::sendto(&raw, &bytes, rustix::net::SendFlags::empty(), &here).expect("sent");
        if number % 1_000 == 0 {
            let [even, odd] = [0, 1].map(|rest| server.answers(2, |group| group % 2 == rest));
            assert!(all_same(&even) && all_same(&odd) && even[0] != odd[0], "{even:?} {odd:?}");
            asked += 4;
        }
    }
    let top = server.top();
    let fine = 4 * SEGMENTS / 1_000;
    // A client on a busy machine may ask twice for one connection. cBPF counts none.
    match (before, top["connections"].as_u64()) {
        (Some(before), Some(now)) if way == "ebpf" => {
            let came = now - before;
            assert!((fine + 1..=asked + fine).contains(&came), "{came} of {asked}: {top}");
        }
        counts => assert_eq!((way, counts), ("cbpf", (None, None)), "{top}"),
    }
    assert_eq!(top["balancer"].as_i64(), Some(balancer.into()), "{top}");
    until("none is open", || {
        let top = server.top();
        (0..2).all(|kernel| top["kernels"][kernel]["open"] == 0)
    });
}

#[test]
fn a_port_where_only_udp_listens_is_no_target() {
    if against_native() {
        return;
    }
    // UDP listens there, TCP does not.
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = datagrams.local_addr().expect("its address").port();
    if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
        let said = refused(net(&["attach", &format!("127.0.0.1:{port}")]));
        assert!(said.contains("nobody listens there on TCP"), "{said}");
    }
}

#[test]
fn an_attach_and_a_detach_at_once_leave_one_state_that_both_see() {
    if unable() {
        return;
    }
    let server = Server::start();
    for number in 0..12 {
        let way = ["ebpf", "cbpf"][number % 2];
        let both = [&["attach", "--way", way][..], &["detach"]].map(|verb| {
            let mut husk = net(&[verb, &[&server.place()]].concat());
            husk.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("husk")
        });
        for mut one in both {
            one.wait().expect("it ends");
        }
        // Whatever came of that, one of the two works, and then the other.
        let attached = output(net(&["attach", &server.place()]));
        let said = String::from_utf8_lossy(&attached.stderr).into_owned();
        assert!(attached.status.success() || said.contains("steered already"), "{said}");
        assert_eq!(server.top()["address"], server.place(), "{said}");
        done(&["detach", &server.place()]);
    }
}

/// Listening sockets of this process that share a port.
pub fn listeners(port: u16, count: usize) -> Vec<TcpListener> {
    let listener = |_| {
        // Programs that other tests start at this moment do not get it.
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let listener = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
        sockopt::set_socket_reuseport(&listener, true).expect("an option");
        bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a port");
        listen(&listener, 16).expect("it listens");
        TcpListener::from(listener)
    };
    (0..count).map(listener).collect()
}

#[test]
fn processes_that_have_only_the_port_in_common_are_steered_too_and_too_many_are_refused() {
    if unable() {
        return;
    }
    let server = Server::start();
    let own = listeners(server.port, 1);
    done(&["attach", &server.place(), "--wake-percent", "100"]);
    let top = server.top();
    let kernels = top["kernels"].as_array().expect("kernels");
    // Where another test starts a program at this moment, that has the socket for a moment.
    let accept =
        |one: &Value| one["groups"].as_u64() > Some(0) && one["processes"].as_u64() > Some(0);
    assert!(kernels.len() == 3 && kernels.iter().all(accept), "{top}");
    done(&["detach", &server.place()]);
    let more = listeners(server.port, 63);
    let said = refused(net(&["attach", &server.place()]));
    assert!(said.contains("66 listening sockets, at most 64"), "{said}");
    drop((own, more));
}

#[test]
fn a_balancer_that_is_stopped_is_named_and_no_command_waits_for_it_for_ever() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.place()]);
    let balancer = server.balancer();
    server.signal(balancer, Signal::STOP);
    let said = ["attach", "detach"].map(|command| refused(net(&[command, &server.place()])));
    server.signal(balancer, Signal::CONT);
    assert!(said[0].contains("steered already"), "{said:?}");
    let named = format!("process {balancer}, does not answer; end that process");
    assert!(said[1].contains(&named), "{said:?}");
    // It may have read the request after all.
    until("it is asked again", || !output(net(&["detach", &server.place()])).status.success());
    assert!(refused(net(&["detach", &server.place()])).contains("nothing is attached"));
}

/// Two processes with a socket each. One accepts; the other has half of the connections when it is
/// killed, and has accepted none. It says how many are accepted in the end, and how many are reset.
const KILLED: &str = r#"
import os, select, signal, socket, subprocess, sys
husk, way = sys.argv[1:]
ready, tell = os.pipe()
def listener(port):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", port))
    one.listen(100)
    return one
own = listener(0)
place = own.getsockname()
victim = os.fork()
if victim == 0:
    own.close()
    other = listener(place[1])
    os.write(tell, b"x")
    signal.pause()
os.read(ready, 1)
place_text = "%s:%d" % place
subprocess.run([husk, "net", "attach", place_text, "--no-moves", "--way", way], check=True)
waiting = {}
for source in range(20000, 20000 + 64 * 16, 16):
    client = socket.socket()
    client.bind(("127.0.0.1", source))
    client.connect(place)
    waiting[source] = client
own.settimeout(30)
kept = []
def accept():
    accepted, (_, source) = own.accept()
    kept.append((accepted, waiting.pop(source)))
for _ in range(32):
    accept()
os.kill(victim, signal.SIGKILL)
os.waitpid(victim, 0)
reset = 0
while waiting:
    readable, _, _ = select.select([own, *waiting.values()], [], [], 30)
    assert readable, "neither accepted nor reset"
    if own in readable:
        accept()
    for source, client in list(waiting.items()):
        if client in readable and client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            del waiting[source]
            reset += 1
for accepted, client in kept:
    client.sendall(b"x")
    assert accepted.recv(1) == b"x"
print(len(kept), reset)
"#;

#[test]
fn what_a_killed_worker_has_not_accepted_others_accept_or_linux_resets_as_is_documented() {
    if unable() {
        return;
    }
    for (way, migrates, wanted) in [("ebpf", 0, "64 0"), ("cbpf", 0, "32 32"), ("cbpf", 1, "64 0")]
    {
        let setting = "/proc/sys/net/ipv4/tcp_migrate_req";
        let setup = format!("ip link set lo up && echo {migrates} > {setting} && exec \"$@\"");
        let mut command = Command::new("timeout");
        command.arg(LIMIT.as_secs().to_string()).args(["unshare", "--net", "sh", "-c", &setup]);
        command.args(["sh", "python3", "-c", KILLED]).arg(binary()).arg(way);
        let output = output(command);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), wanted, "{way}, {migrates}: {output:?}");
    }
}

/// A process with two sockets that share a port, on an address; some options are set
/// for both, and others for the second alone. It says the port.
const TWO_SOCKETS: &str = r#"
import socket, sys
address, both, apart = sys.argv[1], *map(eval, sys.argv[2:])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
port, sockets = 0, []
for options in (both, both + apart):
    one = socket.socket(family)
    for level, option, value in [(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)] + options:
        one.setsockopt(level, option, value)
    one.bind((address, port))
    one.listen()
    port = one.getsockname()[1]
    sockets.append(one)
print(port, flush=True)
sys.stdin.read()
"#;

#[test]
fn sockets_that_linux_keeps_apart_are_refused_and_those_of_one_interface_are_steered() {
    if unable() {
        return;
    }
    let to_lo = "[(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')]";
    let six_alone = "[(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)]";
    let cases = [
        ("127.0.0.1", to_lo, "[]", true),
        ("127.0.0.1", "[]", to_lo, false),
        ("::", six_alone, "[]", true),
        ("::", "[]", six_alone, false),
    ];
    for (address, both, apart, fits) in cases {
        let mut python = Command::new("python3");
        python.args(["-c", TWO_SOCKETS, address, both, apart]);
        let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it");
        let mut port = String::new();
        let said = python.stdout.as_mut().expect("what it says");
        BufReader::new(said).read_line(&mut port).expect("a port");
        for way in ["ebpf", "cbpf"] {
            let attach = ["attach", port.trim(), "--way", way];
            if fits {
                done(&attach);
                done(&["detach", port.trim()]);
            } else {
                let said = refused(net(&attach));
                assert!(said.contains("SO_BINDTODEVICE") && said.contains("alike"), "{said}");
            }
        }
        drop(python.stdin.take());
        python.wait().expect("it ends");
    }
}

#[test]
fn a_server_that_ends_while_it_is_named_is_told_in_one_line() {
    if unable() {
        return;
    }
    for step in 0..8 {
        let mut server = Server::start();
        let master = server.master.id().to_string();
        let verb = ["detach", "attach"][step % 2];
        let named = net(&[verb, &master]).stderr(Stdio::piped()).spawn().expect("husk");
        sleep(KILL_STEP * step as u32);
        // The master would start others in their place.
        let workers = server.workers();
        server.signal(server.master.id() as i32, Signal::KILL);
        workers.into_iter().for_each(|pid| server.signal(pid, Signal::KILL));
        let output = named.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 125)), "{verb}: {output:?}");
        assert_eq!(said.lines().count(), 1, "{verb}: {said}");
        server.master.wait().expect("it ends");
    }
}

/// A command where another /run is mounted.
fn with_another_run(arguments: &[&str]) -> Command {
    apart(&["--mount"], "mount -t tmpfs none /run", arguments)
}

#[test]
fn a_balancer_is_found_asked_and_ended_from_where_another_run_is_mounted() {
    if unable() {
        return;
    }
    let server = Server::start();
    let (pid, place) = (server.master.id().to_string(), server.place());
    done(&["attach", &pid, "--wake-percent", "100"]);
    let balancer = server.balancer();
    for target in [&pid, &place] {
        let said = refused(with_another_run(&["attach", target]));
        assert!(said.contains("it is steered already"), "{said}");
    }
    let even = server.answers(50, |group| group % 2 == 0);
    assert!(all_same(&even), "the second attach has ended steering: {even:?}");
    let seen = output(with_another_run(&["stat", &place, "--json"]));
    let seen: serde_json::Value = serde_json::from_slice(&seen.stdout).expect("a document");
    assert_eq!(seen[0]["balancer"].as_i64(), Some(balancer.into()), "{seen}");
    assert!(output(with_another_run(&["detach", &place])).status.success());
    until("it has ended", || !Path::new(&format!("/proc/{balancer}")).exists());
    assert!(!all_same(&server.answers(100, |group| group % 2 == 0)));
    // The other way round: here it has no file.
    assert!(output(with_another_run(&["attach", &place])).status.success());
    let said = refused(net(&["attach", &place]));
    assert!(said.contains("it is steered already"), "{said}");
    done(&["detach", &place]);
}

#[test]
fn an_attach_begins_again_where_balancers_were_killed_and_leaves_the_others_alone() {
    if unable() {
        return;
    }
    let server = Server::at(&["127.0.0.1", "127.0.0.2"]);
    let pid = server.master.id().to_string();
    done(&["attach", &pid]);
    let balancers = || {
        let seen = output(net(&["stat", &pid, "--json"]));
        let seen: Vec<serde_json::Value> = serde_json::from_slice(&seen.stdout).expect("a list");
        let number = |one: &serde_json::Value| one["balancer"].as_i64().expect("a number");
        seen.iter().map(number).collect::<Vec<_>>()
    };
    let [killed, left] = balancers()[..] else { panic!("two") };
    server.signal(killed as i32, Signal::KILL);
    until("it has ended", || balancers() == [left]);
    done(&["attach", &pid]);
    let now = balancers();
    assert!(now.len() == 2 && now.contains(&left) && !now.contains(&killed), "{now:?}");
    let said = refused(net(&["attach", &pid]));
    assert!(said.contains("it is steered already"), "{said}");
    done(&["detach", &pid]);
}

#[test]
fn a_balancer_whose_files_have_gone_ends_and_others_may_not_ask_it() {
    if unable() {
        return;
    }
    let server = Server::start();
    let mut attach = Command::new("sh");
    attach.args(["-c", "umask 0; exec \"$0\" net attach \"$1\""]);
    assert!(attach.arg(binary()).arg(server.place()).status().expect("a shell").success());
    let socket = fs::read_dir("/run/husk-net").expect("a directory").flatten().find(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.ends_with(&format!("127.0.0.1-{}.socket", server.port))
    });
    let socket = socket.expect("a socket").path();
    let mode = fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o022, 0, "{mode:o}");
    for command in ["stat", "detach"] {
        let said = refused(as_nobody(&net(&[command, &server.place()])));
        assert!(said.contains("another user's"), "{said}");
    }
    let balancer = server.balancer();
    fs::remove_file(socket).expect("it goes");
    let is_there = || Path::new(&format!("/proc/{balancer}")).exists();
    until("it has ended", || !is_there());
    done(&["attach", &server.place()]);
}
