//! `husk metrics`: the form, and clients that are slow, silent or talk nonsense.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Images, until};

/// Checks a text by the rules of OpenMetrics 1.0; samples by name and labels.
fn samples(text: &str) -> HashMap<String, f64> {
    let (mut found, mut families) = (HashMap::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let [what, name, told] = [(); 3].map(|()| words.next().expect(line));
            if what == "TYPE" {
                assert!(families.insert(name.to_owned()), "a family twice: {line}");
                (family, kind) = (name.to_owned(), told.to_owned());
            }
            assert_eq!(name, family, "{line}");
            assert!(what != "UNIT" || name.ends_with(&format!("_{told}")), "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').expect(line);
        let (labels, value) = rest.rsplit_once("} ").expect(line);
        let suffix = if kind == "counter" { "_total" } else { "" };
        assert_eq!(name, format!("{family}{suffix}"), "{line}");
        for label in labels.split("\",") {
            let (key, is) = label.split_once("=\"").expect(line);
            assert!(key.bytes().all(|b| b.is_ascii_lowercase()) && !is.contains('\n'), "{line}");
        }
        let value: f64 = value.parse().expect(line);
        assert!(found.insert(format!("{name}{{{labels}}}"), value).is_none(), "twice: {line}");
    }
    found
}

/// Of all kernels and the like.
fn sum(samples: &HashMap<String, f64>, begins: &str, has: &str) -> f64 {
    let wanted = samples.iter().filter(|(name, _)| name.starts_with(begins) && name.contains(has));
    wanted.map(|(_, value)| value).sum()
}

/// Somebody who serves, and where.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn new(images: &Images, place: &str) -> Server {
        let husk = binary().to_str().expect("a plain path");
        let mut command = images.command(husk, &["metrics", "ci", "--listen", place]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("husk");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("its output"));
        lines.read_line(&mut said).expect("a line");
        let at = said.trim().strip_prefix("husk: metrics of ci are at ").expect(&said).to_owned();
        Server { child, at }
    }

    fn connect(&self) -> TcpStream {
        let at = self.at.strip_prefix("http://").and_then(|at| at.strip_suffix("/metrics"));
        let stream = TcpStream::connect(at.expect("an address")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        stream
    }

    fn end(mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("its end").success());
    }
}

/// Asks, and takes the answer apart: status, headers, body.
fn asked(stream: &mut (impl Read + Write), request: &str) -> (String, String, String) {
    stream.write_all(request.as_bytes()).expect("it takes it");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let (status, headers) = head.split_once("\r\n").expect("headers");
    (status.to_owned(), headers.to_owned(), body.to_owned())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn counters_are_those_of_stat_in_the_form_of_openmetrics() {
    if against_native() {
        return;
    }
    let images = Images::new("metrics");
    images.up("ci");
    let before = samples(&images.done(&["metrics", "ci"]));
    images.script("ci", "for n in 1 2 3 4 5; do echo x > f$n; done; rm f1 f2");
    let after = samples(&images.done(&["metrics", "ci"]));
    let more = |operation: &str| {
        let has = format!("operation=\"{operation}\"");
        let of = |told| sum(told, "husk_operations_total{image=\"ci\",kernel=", &has);
        of(&after) - of(&before)
    };
    assert_eq!((more("create"), more("remove")), (5.0, 2.0));
    let bytes = sum(&after, "husk_memory_limit_bytes{image=\"ci\"}", "");
    assert_eq!(bytes, f64::from(64 << 20));
    for name in ["husk_transactions_total", "husk_blocks", "husk_inodes", "husk_memory_taken_bytes"]
    {
        assert!(sum(&after, name, "image=\"ci\"") > 0.0, "{name}");
    }
    for (place, why) in
        [("0.0.0.0:9", "other hosts could reach it"), ("nowhere", "it is not an address")]
    {
        let said = images.refused(&["metrics", "ci", "--listen", place], 125);
        assert!(said.contains(why), "{said}");
    }
    images.refused(&["metrics", "none"], 125);
    images.down("ci");
}

#[test]
fn a_socket_serves_its_user_and_goes_with_the_server() {
    if against_native() {
        return;
    }
    let images = Images::new("metrics-socket");
    images.up("ci");
    let path = images.room.join("metrics.sock");
    let place = format!("unix:{}", path.display());
    let server = Server::new(&images, &place);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().expect("it").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let (status, headers, body) = asked(&mut UnixStream::connect(&path).expect("it listens"), GET);
    assert_eq!(status, "HTTP/1.1 200 OK");
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(headers.contains(kind) && headers.contains(&format!("Content-Length: {}", body.len())));
    samples(&body);
    images.refused(&["metrics", "ci", "--listen", &place], 125);
    server.end();
    assert!(!path.exists());
    // One that was killed leaves a socket, which is no hindrance; a file is.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let server = Server::new(&images, &place);
    // What stands there by the end, and is not its own, stays.
    std::fs::remove_file(&path).expect("its socket");
    std::fs::write(&path, "mine").expect("a file");
    server.end();
    images.refused(&["metrics", "ci", "--listen", &place], 125);
    assert_eq!(std::fs::read(&path).expect("a file"), b"mine");
    // The end of the image is the server's.
    let mut server = Server::new(&images, "127.0.0.1:0");
    images.down("ci");
    assert!(server.child.wait().expect("its end").success());
}

#[test]
fn no_client_keeps_others_waiting() {
    if against_native() {
        return;
    }
    let images = Images::new("metrics-clients");
    images.up("ci");
    let server = Server::new(&images, "127.0.0.1:0");
    let answered = |least: &str| {
        let begun = Instant::now();
        let (status, _, body) = asked(&mut server.connect(), GET);
        assert!(status.contains("200") && body.ends_with("# EOF\n"), "{least}: {status}");
        begun.elapsed()
    };
    // Who says nothing, says half a request, and never reads.
    let mut idle: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    idle.iter_mut().take(5).for_each(|stream| stream.write_all(b"GET /met").expect("it takes it"));
    // One after the other, the silent would take 5 s each.
    assert!(answered("beside ten") < Duration::from_secs(25));
    for (nonsense, status) in [
        ("\u{0}\u{1}\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("x".repeat(8193), "431"),
    ] {
        let (told, ..) = asked(&mut server.connect(), &nonsense);
        assert!(told.contains(status), "{told}");
    }
    // Three times as many as are served at a time: the eldest are cut off at once.
    idle.extend((0..100).map(|_| server.connect()));
    answered("beside a hundred");
    until("the silent are cut off", || {
        idle[0].set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        matches!(idle[0].read(&mut [0]), Ok(0))
    });
    server.end();
    images.down("ci");
}

#[test]
fn a_socket_that_somebody_has_bound_stays() {
    if against_native() {
        return;
    }
    let images = Images::new("metrics-bound");
    images.up("ci");
    let path = images.scratch.path().join("bound");
    let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); \
                  print('bound', flush=True); sys.stdin.read()";
    let mut other = std::process::Command::new("python3");
    other.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().expect("python3");
    let mut line = String::new();
    let output = other.stdout.take().expect("a pipe");
    std::io::BufReader::new(output).read_line(&mut line).expect("a line");
    let made = std::fs::metadata(&path).expect("its socket").ino();
    let place = format!("unix:{}", path.display());
    let said = images.refused(&["metrics", "ci", "--listen", &place], 125);
    assert!(said.contains("in use"), "{said}");
    assert_eq!(std::fs::metadata(&path).expect("its socket").ino(), made);
    drop(other.stdin.take());
    other.wait().expect("it ends");
    // What nobody has any more is replaced.
    Server::new(&images, &place).end();
    images.down("ci");
}
