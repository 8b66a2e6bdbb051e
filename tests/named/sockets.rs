//! Sockets of an image beside the host's: switched off, listeners that both sides use, what comes
//! from outside, and what is missing there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Images, shown, text};

/// No read of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

fn husk() -> &'static str {
    binary().to_str().expect("a plain path")
}

/// Connections of each kind, used both ways; how many bytes the host has seen of the TCP one. With
/// an argument that goes to this address, and nothing is waited for.
const EXCHANGE: &str = "
import os, socket, sys, time
address = sys.argv[1] if len(sys.argv) > 1 else '127.0.0.1'
internet = socket.AF_INET6 if ':' in address else socket.AF_INET
listeners = [socket.socket(kind) for kind in (socket.AF_UNIX, internet, socket.AF_UNIX)]
beside = '\\0husk-exchange.%d' % os.getpid()
for listener, name in zip(listeners, ['exchange', (address, 0), beside]):
    listener.bind(name); listener.listen()
pairs = [socket.socketpair()]
for listener in listeners:
    near = socket.socket(listener.family); near.connect(listener.getsockname())
    far, name = listener.accept()
    if listener.family == socket.AF_UNIX:
        names = near.getsockname(), far.getpeername(), name
        assert not any(names), names
    pairs.append((near, far))
for near, far in pairs:
    for turn in range(40):
        near.sendall(bytes([turn])); assert far.recv(9) == bytes([turn])
        far.sendall(b'back'); assert near.recv(9) == b'back'
info = pairs[2][1].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 144)
print(int.from_bytes(info[128:136], 'little'), flush=True)
if len(sys.argv) == 1: time.sleep(600)
";

/// Starts `EXCHANGE` in an image that is made with these variables; what it says, and what
/// `husk net ls` does.
fn exchanged(name: &str, file: &str, variables: &[(&str, &str)]) -> (u64, Value, String) {
    let images = Images::new(name);
    let own = images.scratch.path().join("config/husk");
    std::fs::create_dir_all(&own).expect("a directory");
    std::fs::write(own.join("husk.toml"), file).expect("a file");
    let command = |words: &[&str]| {
        let mut command = images.command(husk(), words);
        command.env("XDG_CONFIG_HOME", images.scratch.path().join("config"));
        command.envs(variables.iter().copied());
        command
    };
    let up = command(&["up", "ci", "--memory", "64M"]).output().expect("husk");
    assert!(up.status.success(), "{}", shown(&up));
    let mut program = command(&["exec", "ci", "--", "python3", "-c", EXCHANGE]);
    let mut program = program.stdout(Stdio::piped()).spawn().expect("husk");
    let mut said = String::new();
    let output = program.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut said).expect("a line");
    let report = images.done(&["net", "ls", "ci", "--json"]);
    let lines = images.done(&["net", "ls", "ci"]);
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
    program.wait().expect("its end");
    let seen = said.trim().parse().unwrap_or_else(|_| panic!("{name}: {said:?}"));
    (seen, serde_json::from_str(&report).expect("JSON"), lines)
}

#[test]
fn sockets_work_and_are_the_hosts_where_they_are_switched_off() {
    if against_native() {
        return;
    }
    let ways: [(&str, &str, &[(&str, &str)]); 4] = [
        ("off-without", "", &[("HUSK_WITHOUT", "sockets")]),
        ("off-file", "sockets = \"host\"\n", &[]),
        ("off-variable", "", &[("HUSK_SOCKETS", "host")]),
        ("off-pipes", "pipes = \"host\"\n", &[]),
    ];
    for (name, file, variables) in ways {
        let (seen, report, lines) = exchanged(name, file, variables);
        assert_eq!(seen, 40, "{name}: the host moves every byte");
        assert_eq!(report["sockets"], serde_json::json!([]), "{name}: {report}");
        // Three listeners and four connections.
        assert_eq!(report["others"], 11, "{name}: {report}");
        let why = report["none_because"].as_str().unwrap_or_default();
        assert!(why.contains("sockets or pipes are set to `host`"), "{name}: {report}");
        assert!(lines.contains(why), "{name}: {lines}");
    }
    let (seen, report, lines) = exchanged("on", "", &[]);
    let count = report["sockets"].as_array().expect("a list").len();
    let on = seen < 40 && count == 8 && report["none_because"].is_null();
    assert!(on && !lines.contains("no socket"), "{seen} {report} {lines}");
}

/// In a network of its own, which has one more address, if there is IPv6 also over that.
#[test]
fn connections_to_own_addresses_take_rings() {
    if against_native() {
        return;
    }
    let images = Images::new("own");
    let script = "ip link set lo up && ip addr add 10.77.0.1/32 dev lo || exit 77
six=; [ ! -e /proc/net/if_inet6 ] || six=::1
for address in 127.0.0.1 10.77.0.1 $six; do
    \"$0\" run --memory 64M --discard -- python3 -c \"$1\" $address || exit 1
done";
    let words = ["-n", "sh", "-c", script, husk(), EXCHANGE];
    let output = images.command("unshare", &words).output().expect("unshare");
    let said = text(&output.stdout);
    if said.is_empty() && [Some(1), Some(77)].contains(&output.status.code()) {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(why.contains("not permitted") || why.contains("not found"), "{}", shown(&output));
        return;
    }
    assert!(output.status.success(), "{}", shown(&output));
    let seen: Vec<u64> = said.lines().map(|line| line.parse().expect("a count")).collect();
    let six = Path::new("/proc/net/if_inet6").exists();
    let count = 2 + usize::from(six);
    assert!(seen.len() == count && seen.iter().all(|&bytes| bytes < 40), "{}", shown(&output));
}

/// A server that answers each line with it, in a thread for each connection; on number 3, on a
/// listener that it gets at an abstract name, on a port, or (0) on one of its own.
const SERVER: &str = "
import os, socket, sys, threading
if sys.argv[1] == '3':
    assert os.environ['LISTEN_FDS'] == '1' and os.environ['LISTEN_PID'] == str(os.getpid())
    listener = socket.socket(fileno=3)
elif sys.argv[1][0] == '@':
    with socket.socket(socket.AF_UNIX) as given:
        given.connect('\\0' + sys.argv[1][1:])
        listener = socket.socket(fileno=socket.recv_fds(given, 9, 1)[1][0])
else:
    listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print(listener.getsockname()[1], flush=True)
def serve(one):
    with one:
        for line in one.makefile('rb'): one.sendall(line)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

/// A client of that; `TURNS` lines of each of two connections at a time.
const CLIENT: &str = "
import socket, sys
ends = [socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20) for _ in range(2)]
files = [end.makefile('rb') for end in ends]
for turn in range(60):
    for number, end in enumerate(ends): end.sendall(b'%d of %d\\n' % (turn, number) * 20)
    for number, file in enumerate(files):
        for _ in range(20): assert file.readline() == b'%d of %d\\n' % (turn, number)
for end in ends: end.shutdown(socket.SHUT_WR)
print([file.read() for file in files])
";

/// Clients inside and outside by turns, and both at once.
fn asked(images: &Images, port: &str) {
    let client = |inside: bool| {
        let words = ["-c", CLIENT, port];
        let mut command = match inside {
            true => {
                images.command(husk(), &[&["exec", "ci", "--", "python3"], &words[..]].concat())
            }
            false => images.command("python3", &words),
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client")
    };
    for round in 0..8 {
        let all = match round {
            0..6 => vec![client(round % 2 == 0)],
            _ => vec![client(true), client(false), client(true)],
        };
        for one in all {
            let output = one.wait_with_output().expect("its end");
            assert_eq!(text(&output.stdout), "[b'', b'']\n", "{round}: {}", shown(&output));
        }
    }
}

#[test]
fn one_listener_has_clients_inside_and_outside_by_turns() {
    if against_native() {
        return;
    }
    let images = Images::new("both");
    images.done(&["up", "ci", "--memory", "64M"]);
    for inside in [true, false] {
        let mut server = match inside {
            true => images.command(husk(), &["exec", "ci", "--", "python3", "-c", SERVER, "0"]),
            false => images.command("python3", &["-c", SERVER, "0"]),
        };
        let mut server = server.stdout(Stdio::piped()).spawn().expect("a server");
        let port = line_of(&mut server);
        asked(&images, &port);
        end(&mut server, &port);
    }
    images.down("ci");
}

#[test]
fn a_listener_that_was_made_outside_is_served_inside() {
    if against_native() {
        return;
    }
    let images = Images::new("activated");
    images.done(&["up", "ci", "--memory", "64M"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its name").port().to_string();
    // As systemd starts a service; the process stays the same when `husk exec` becomes the program.
    let script =
        format!("exec 3<&{}; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"", listener.as_raw_fd());
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).expect("it is passed on");
    let words = ["-c", &script, "bash", husk(), "exec", "ci", "--", "python3", "-c", SERVER, "3"];
    let mut server = Command::new("bash");
    server.args(words).current_dir(&images.work).env("HUSK_IMAGES", images.all());
    server.env("HOME", husk_tests::run::home("own")).stdin(Stdio::null());
    let mut server = server.stdout(Stdio::piped()).spawn().expect("a server");
    drop(listener);
    assert_eq!(line_of(&mut server), port);
    asked(&images, &port);
    end(&mut server, &port);
    // In a message.
    let given = format!("husk-tests.{}", std::process::id());
    let mut giver = images.command("python3", &["-c", GIVER, &given]);
    let mut giver = giver.stdout(Stdio::piped()).spawn().expect("a giver");
    let port = line_of(&mut giver);
    let name = format!("@{given}");
    let mut server = images.command(husk(), &["exec", "ci", "--", "python3", "-c", SERVER, &name]);
    let mut server = server.stdout(Stdio::piped()).spawn().expect("a server");
    assert_eq!(line_of(&mut server), port);
    assert!(giver.wait().expect("its end").success());
    asked(&images, &port);
    end(&mut server, &port);
    images.down("ci");
}

/// Makes a listener, and gives it to who connects to an abstract name.
const GIVER: &str = "
import socket, sys
gives = socket.socket(socket.AF_UNIX); gives.bind('\\0' + sys.argv[1]); gives.listen()
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
socket.send_fds(gives.accept()[0], [b'it'], [listener.fileno()])
";

/// The first line that a process writes, without its end.
fn line_of(process: &mut Child) -> String {
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// Ends a server; nobody listens at its port any more.
fn end(server: &mut Child, port: &str) {
    // `timeout` hands the signal on.
    kill_process(Pid::from_child(server), Signal::TERM).expect("it runs");
    server.wait().expect("its end");
    let gone = TcpStream::connect(("127.0.0.1", port.parse().expect("a number")));
    assert!(gone.is_err(), "somebody listens");
}

/// Binds a port that is taken, then another one, in ways that programs do.
const TAKEN: &str = "
import errno, socket, sys
port = int(sys.argv[1])
for reuse in (0, 1):
    for name in ('127.0.0.1', '0.0.0.0'):
        one = socket.socket(); one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try: one.bind((name, port)); one.listen(); print('free')
        except OSError as error: print(errno.errorcode[error.errno])
one.close()
one = socket.create_connection(('127.0.0.1', port), 20, ('127.0.0.1', 0)); print('connected')
print(one.recv(5))
";

#[test]
fn a_port_that_the_host_has_taken_is_taken_inside_and_the_other_way_round() {
    if against_native() {
        return;
    }
    let images = Images::new("taken");
    images.done(&["up", "ci", "--memory", "64M"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its name").port().to_string();
    let greeter = std::thread::spawn(move || {
        for _ in 0..2 {
            listener.accept().expect("a client").0.write_all(b"hello").expect("sent");
        }
    });
    let native = images.command("python3", &["-c", TAKEN, &port]).output().expect("python3");
    let native = text(&native.stdout);
    assert!(native.starts_with("EADDRINUSE\n") && native.ends_with("b'hello'\n"), "{native}");
    let inside = images.done(&["exec", "ci", "--", "python3", "-c", TAKEN, &port]);
    assert_eq!(inside, native);
    greeter.join().expect("its end");
    let mut server = images.command(husk(), &["exec", "ci", "--", "python3", "-c", SERVER, "0"]);
    let mut server = server.stdout(Stdio::piped()).spawn().expect("a server");
    let own = line_of(&mut server);
    let port: u16 = own.parse().expect("a number");
    let taken = TcpListener::bind(("127.0.0.1", port)).map(drop).expect_err("it is taken");
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    let other = images.husk(&["exec", "ci", "--", "python3", "-c", SERVER, &own]);
    assert!(text(&other.stderr).contains("Address already in use"), "{}", shown(&other));
    let mut one = TcpStream::connect(("127.0.0.1", port)).expect("it is served");
    one.set_read_timeout(Some(PATIENCE)).expect("a limit");
    one.write_all(b"line\n").expect("sent");
    let mut line = [0; 5];
    one.read_exact(&mut line).expect("answered");
    assert_eq!(&line, b"line\n");
    end(&mut server, &own);
    images.down("ci");
}

/// What programs see without IPv6; then IPv4, whose bytes take rings.
const FOUR: &str = "
import errno, socket
def attempt(what, call):
    try: call(); print(what, 'works')
    except OSError as error: print(what, errno.errorcode[error.errno])
six = socket.socket(socket.AF_INET6)
attempt('bind ::1', lambda: six.bind(('::1', 0)))
attempt('bind ::', lambda: six.bind(('::', 0)))
attempt('connect ::1', lambda: socket.socket(socket.AF_INET6).connect(('::1', 9)))
listener = socket.socket(socket.AF_INET6)
attempt('both', lambda: listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0))
listener.bind(('::', 0)); listener.listen()
port = listener.getsockname()[1]
mapped = socket.socket(socket.AF_INET6)
attempt('connect mapped', lambda: mapped.connect(('::ffff:127.0.0.1', port)))
plain = socket.create_connection(('127.0.0.1', port))
for near in (mapped, plain):
    far, name = listener.accept()
    print(name[0], near.getpeername()[0])
    for turn in range(60):
        near.sendall(b'ask'); assert far.recv(9) == b'ask'
        far.sendall(b'answer'); assert near.recv(9) == b'answer'
attempt('localhost', lambda: socket.create_connection(('localhost', port)))
";

#[test]
fn without_ipv6_connections_are_those_of_linux() {
    if against_native() {
        return;
    }
    const ALONE: &str = "ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && \
                         ! grep -q . /proc/net/if_inet6 && exec \"$@\"";
    let images = Images::new("four");
    let user = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let alone = |words: &[&str]| {
        let all = [&[user, "sh", "-euc", ALONE, "sh"], words].concat();
        images.command("unshare", &all).output().expect("timeout starts")
    };
    if !alone(&["true"]).status.success() {
        eprintln!("skipped: no network of its own, or its IPv6 cannot be switched off");
        return;
    }
    let python = ["python3", "-c", FOUR];
    let native = alone(&python);
    let said = text(&native.stdout);
    assert!(native.status.success() && said.contains("bind ::1 EADDR"), "{}", shown(&native));
    let run = [husk(), "run", "--memory", "64M", "--discard", "--"];
    let inside = alone(&[&run[..], &python[..]].concat());
    assert_eq!(text(&inside.stdout), said, "{}", shown(&inside));
}

/// A connection whose unread bytes are in a ring; then reads, when it is told to.
const HOLDER: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
near = socket.create_connection(listener.getsockname()); far = listener.accept()[0]
for end in (near, far): end.settimeout(20)
for _ in range(60):
    near.sendall(b'w'); far.recv(1); far.sendall(b'v'); near.recv(1)
near.sendall(b'unread')
print(os.getpid(), near.fileno(), far.fileno(), flush=True)
sys.stdin.readline()
print(far.recv(6)); print(far.recv(8)); near.sendall(b'more'); print(far.recv(9))
far.sendall(b'back'); print(near.recv(9), flush=True)
";

/// Takes the second number of a process, and what is there; then writes by the first one.
const STRANGER: &str = "
import ctypes, os, socket, sys
pid, near, far = map(int, sys.argv[1:])
libc, process = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
def taken(fd):
    got = libc.syscall(438, process, fd, 0)
    assert got >= 0, os.strerror(ctypes.get_errno())
    return socket.socket(fileno=got)
try: print(taken(far).recv(99, socket.MSG_DONTWAIT))
except BlockingIOError: print('nothing')
taken(near).sendall(b'stranger')
";

#[test]
fn who_takes_a_socket_from_outside_sees_no_bytes_of_rings_and_they_come_once() {
    if against_native() || !rustix::process::geteuid().is_root() {
        return;
    }
    let images = Images::new("strangers");
    images.done(&["up", "ci", "--memory", "64M"]);
    let mut holder = images.command(husk(), &["exec", "ci", "--", "python3", "-c", HOLDER]);
    let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("husk");
    let mut output = BufReader::new(holder.stdout.take().expect("a pipe"));
    let mut numbers = String::new();
    output.read_line(&mut numbers).expect("its numbers");
    let mut words = vec!["-c", STRANGER];
    words.extend(numbers.split_whitespace());
    let stranger = images.command("python3", &words).output().expect("python3");
    assert_eq!(text(&stranger.stdout), "nothing\n", "{}", shown(&stranger));
    holder.stdin.take().expect("a pipe").write_all(b"go\n").expect("told");
    let mut said = String::new();
    output.read_to_string(&mut said).expect("what it says");
    assert_eq!(said, "b'unread'\nb'stranger'\nb'more'\nb'back'\n");
    assert!(holder.wait().expect("its end").success());
    images.down("ci");
}

/// Connections of one kind, step by step: made and used a little; much moved by each; made anew.
const HELD: &str = "
import resource, socket, sys
count, kind = int(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server(('127.0.0.1', 0), backlog=100)
def made():
    if kind == 'unix': return socket.socketpair()
    near = socket.create_connection(listener.getsockname())
    return near, listener.accept()[0]
def exchanged(size, turns):
    for near, far in pairs:
        for end, other in ((near, far), (far, near)):
            for _ in range(turns):
                end.sendall(bytes(size)); left = size
                while left: left -= len(other.recv(left))
def step(): print('done', flush=True); sys.stdin.readline()
pairs = [made()]; exchanged(10, 40); step()
pairs += [made() for _ in range(count)]; exchanged(10, 20); step()
exchanged(60000, 3); step()
for pair in pairs: [end.close() for end in pair]
pairs = [made() for _ in range(count)]; exchanged(60000, 3); step()
";
/// Connections at once: an image of 1 GiB has rings for all of them.
const HELD_COUNT: u64 = 200;
/// What one of these takes of an image's memory, KiB: while nothing moves, two pages of rings at
/// least; when its rings have been full, two of 64 KiB.
const IDLE_KIB_MIN: u64 = 8;
const IDLE_KIB_MAX: u64 = 24;
const USED_KIB_MAX: u64 = 128 + IDLE_KIB_MAX;

#[test]
fn an_idle_connection_takes_little_memory_and_gives_it_back_to_the_next() {
    if against_native() {
        return;
    }
    for kind in ["tcp", "unix"] {
        let images = Images::new("held");
        images.done(&["up", "ci", "--memory", "1G"]);
        let (count, taken) = (HELD_COUNT.to_string(), || {
            let told: Value =
                serde_json::from_str(&images.done(&["stat", "ci", "--json"])).expect("JSON");
            told["memory_taken_bytes"].as_u64().expect("a number")
        });
        let words = ["exec", "ci", "--", "python3", "-c", HELD, &count, kind];
        let mut holder = images.command(husk(), &words);
        let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("husk");
        let mut output = BufReader::new(holder.stdout.take().expect("a pipe"));
        let mut input = holder.stdin.take().expect("a pipe");
        let mut after_step = || {
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            assert_eq!(line, "done\n", "{kind}");
            let taken = taken();
            input.write_all(b"go\n").expect("told");
            taken
        };
        let [begun, idle, used, again] = [(); 4].map(|()| after_step());
        assert!(holder.wait().expect("its end").success());
        let each = |bytes: u64| bytes.saturating_sub(begun) / HELD_COUNT / 1024;
        let told = format!("{kind}: {begun} {idle} {used} {again}");
        println!("{told}: {} KiB each, {} when used", each(idle), each(used));
        assert!((IDLE_KIB_MIN..=IDLE_KIB_MAX).contains(&each(idle)), "{told}");
        assert!((IDLE_KIB_MAX + 1..=USED_KIB_MAX).contains(&each(used)), "{told}");
        assert!(again <= used + (used - begun) / 20, "those of before are used again: {told}");
        images.down("ci");
    }
}

/// Sets with connections in every state, of levels, edges and one-shots, told before or not, which
/// go to whoever listens at an abstract name.
const SET_GIVER: &str = "
import json, select, socket, sys
IN, HUNG, ENDED, EDGE, ONCE = 1, 0x10, 0x2000, 1 << 31, 1 << 30
listener = socket.create_server(('127.0.0.1', 0))
def made():
    near = socket.create_connection(listener.getsockname()); far = listener.accept()[0]
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); end.settimeout(20)
    for _ in range(60):
        near.sendall(b'w'); assert far.recv(1); far.sendall(b'v'); assert near.recv(1)
    return near, far
def comes(end, events):
    one = select.poll(); one.register(end, events)
    assert one.poll(20000)[0][1] & events == events
given = socket.socket(socket.AF_UNIX); given.connect('\\0' + sys.argv[1])
for how in (0, EDGE, ONCE):
    for told in (False, True):
        if told and how == EDGE: continue # they may be told twice
        pairs = {name: made() for name in ('quiet', 'unread', 'ended', 'reset', 'behind')}
        all = select.epoll()
        for near, far in pairs.values(): all.register(far, IN | ENDED | how)
        if not told: pairs['unread'][0].sendall(b'unread')
        pairs['ended'][0].sendall(b'last'); pairs['ended'][0].shutdown(socket.SHUT_WR)
        pairs['behind'][0].sendall(b'ahead')
        for name in ('reset', 'behind'):
            near, far = pairs[name]
            far.sendall(b'lost'); comes(near, IN); near.close()
        for name, events in (('ended', ENDED), ('reset', HUNG), ('behind', HUNG)):
            comes(pairs[name][1], events)
        if told: assert len(all.poll(20)) == 3
        names = json.dumps({far.fileno(): name for name, (near, far) in pairs.items()})
        socket.send_fds(given, [names.encode()], [all.fileno()])
        assert given.recv(1) == b'd'
        for name in ('unread', 'ended', 'reset', 'behind'):
            if told and name == 'unread': continue
            got = []
            pairs[name][1].setblocking(False)
            while len(got) < 9 and b'' not in got:
                try: got.append(pairs[name][1].recv(99))
                except OSError as error:
                    got.append(error.errno)
                    if name == 'unread': break
            print(how, told, name, got, flush=True)
";

/// What they tell it.
const SET_TAKER: &str = "
import json, select, socket, sys
listener = socket.socket(socket.AF_UNIX); listener.bind('\\0' + sys.argv[1]); listener.listen()
print('listens', flush=True)
given = listener.accept()[0]
while True:
    names, numbers, *_ = socket.recv_fds(given, 999, 1)
    if not names: break
    names, all, seen = json.loads(names), select.epoll.fromfd(numbers[0]), []
    for name, events in sorted((names[str(fd)], events) for fd, events in all.poll(0)):
        seen.append('%s %x' % (name, events))
    again = sorted(names[str(fd)] for fd, _ in all.poll(0))
    print(seen, again, flush=True)
    all.close(); given.sendall(b'd')
";

/// What both say, the giver of sets inside or not.
fn sets_given(images: &Images, inside: bool) -> [String; 2] {
    let name = format!("husk-given-{}-{inside}", std::process::id());
    let mut taker = images.command("python3", &["-c", SET_TAKER, &name]);
    let mut taker = taker.stdout(Stdio::piped()).spawn().expect("python3");
    let mut output = BufReader::new(taker.stdout.take().expect("a pipe"));
    let (mut listens, mut told) = (String::new(), String::new());
    output.read_line(&mut listens).expect("a line");
    let words = ["-c", SET_GIVER, &name];
    let mut giver = match inside {
        true => images.command(husk(), &[&["exec", "ci", "--", "python3"], &words[..]].concat()),
        false => images.command("python3", &words),
    };
    let output_of_giver = giver.output().expect("a giver");
    assert!(output_of_giver.status.success(), "{}", shown(&output_of_giver));
    output.read_to_string(&mut told).expect("what it says");
    taker.wait().expect("its end");
    [text(&output_of_giver.stdout), told]
}

#[test]
fn sets_with_reset_and_ended_connections_tell_strangers_what_linux_tells() {
    if against_native() {
        return;
    }
    let images = Images::new("given");
    images.done(&["up", "ci", "--memory", "64M"]);
    let [native, inside] = [false, true].map(|inside| sets_given(&images, inside));
    assert_eq!(native[1].lines().count(), 5, "{native:?}");
    assert_eq!(inside, native);
    images.down("ci");
}
