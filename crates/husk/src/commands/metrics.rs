//! `husk metrics`: what `husk stat` shows, for OpenMetrics: printed once, or served until a signal.
//!
//! ```text
//!   listener ─► some connections at a time, each with a limit of bytes and of time
//!                 read a request ─► answer ─► write ─► close
//! ```
//!
//! One thread serves all connections without waiting for one: a client that is slow, sends nonsense
//! or never reads its answer is disconnected at a deadline.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use husk_supervisor::Failure;
use husk_supervisor::image::attach::Visit;
use husk_supervisor::output::{print, say};
use husk_supervisor::run::request::reason;
use husk_supervisor::show::metrics::{CONTENT_TYPE, text};
use husk_supervisor::show::stat;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::stat::{Mode, umask};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::{ends, failed};

/// Connections at a time; one more, and who has been silent for longest is cut off.
const CONNECTIONS_MAX: usize = 32;
/// Longest request.
const REQUEST_MAX: usize = 8192;
/// Longest life of a connection.
const LIFE: Duration = Duration::from_secs(5);
/// Between two looks whether the image is there.
const LOOK: Duration = Duration::from_secs(1);

/// What was typed.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of an image, or process id of a `husk run` or of a program in it.
    pub image: String,
    /// Serve them over HTTP (GET /metrics) at unix:PATH, or at a port that only this host can
    /// reach: `127.0.0.1:PORT`, `[::1]:PORT`; until Ctrl-C or the end of the image.
    #[arg(long, value_name = "WHERE")]
    listen: Option<String>,
}

/// What is typed as `husk metrics`.
pub fn run(options: &Options) -> ExitCode {
    let done = match &options.listen {
        None => once(&options.image),
        Some(place) => serve(&options.image, place),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

fn once(image: &str) -> Result<(), Failure> {
    let report = stat::report(image)?;
    print(&text(image, &report)).map_err(|problem| {
        let remedy = "check where the output goes";
        Failure::new("cannot print the metrics", reason(&problem), remedy)
    })
}

/// Where requests come from.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf, Which),
}

/// A file by what it is, not by what it is called.
type Which = (u64, u64);

fn which(path: &Path) -> io::Result<Which> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path, made) = self
            && which(path).is_ok_and(|found| found == *made)
        {
            // Whoever comes later removes what is left.
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    fn open(place: &str) -> Result<Listener, Failure> {
        let what = || format!("cannot serve metrics at {place}");
        let refused =
            |problem: io::Error| Failure::new(what(), reason(&problem), "choose another place");
        let listener = match place.strip_prefix("unix:") {
            Some(path) => {
                let path = Path::new(path);
                remove_dead(path).and_then(|()| at_path(path)).map_err(refused)?
            }
            None => Listener::Tcp(TcpListener::bind(loopback(place)?).map_err(refused)?),
        };
        match &listener {
            Listener::Tcp(tcp) => tcp.set_nonblocking(true),
            Listener::Unix(unix, ..) => unix.set_nonblocking(true),
        }
        .map_err(refused)?;
        Ok(listener)
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener, ..) => {
                listener.accept().map(|(stream, _)| Stream::Unix(stream))
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, ..) => listener.as_fd(),
        }
    }

    fn shown(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                let at = listener.local_addr().map(|at| at.to_string()).unwrap_or_default();
                format!("http://{at}/metrics")
            }
            Listener::Unix(_, path, _) => format!("unix:{}", path.display()),
        }
    }
}

/// An address that only this host reaches.
fn loopback(place: &str) -> Result<SocketAddr, Failure> {
    let what = || format!("cannot serve metrics at {place}");
    let remedy = "write unix:PATH or 127.0.0.1:PORT";
    let typed = place.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let typed = typed.unwrap_or_else(|| place.to_owned());
    let address: SocketAddr =
        typed.parse().map_err(|_| Failure::new(what(), "it is not an address", remedy))?;
    match address.ip() {
        ip if ip.is_loopback() => Ok(address),
        IpAddr::V4(_) | IpAddr::V6(_) => {
            Err(Failure::new(what(), "other hosts could reach it", remedy))
        }
    }
}

/// Removes a socket that nobody listens to; what else is there stays.
fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && is_dead(path)? { fs::remove_file(path) } else { Ok(()) }
}

/// Without a wait for somebody who has no room for one more.
fn is_dead(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let refused = connect(&socket, &SocketAddrUnix::new(path)?);
    // Who has bound it and does not listen yet refuses, too.
    Ok(refused == Err(rustix::io::Errno::CONNREFUSED) && !is_bound(path))
}

/// Whether somebody has a socket that was bound to this name, as far as this host says: of one that
/// was bound to a relative name the last part counts.
fn is_bound(path: &Path) -> bool {
    let listed = fs::read("/proc/net/unix").unwrap_or_default();
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let names = listed.split(|&byte| byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|&byte| byte == b'/');
        // Seven words stand before a name.
        let word = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).nth(7);
        at.map(|at| &line[at..]).or(word)
    });
    let mut names = names.map(|name| Path::new(OsStr::from_bytes(name)));
    names.any(|name| match name.is_absolute() {
        true => name == whole,
        false => name.file_name() == path.file_name(),
    })
}

/// For its user alone.
fn at_path(path: &Path) -> io::Result<Listener> {
    // From its first moment on.
    let before = umask(Mode::from_bits_truncate(0o077));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener?;
    let listener = Listener::Unix(listener, path.to_owned(), which(path)?);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Unix(stream) => stream.read(room),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
}

/// Somebody who asks.
struct Connection {
    stream: Stream,
    asked: Vec<u8>,
    /// What is to be written, once it is known, and how much of it is.
    answer: Option<(Vec<u8>, usize)>,
    until: Instant,
}

impl Connection {
    fn new(stream: Stream) -> io::Result<Connection> {
        stream.set_nonblocking()?;
        Ok(Connection { stream, asked: vec![], answer: None, until: Instant::now() + LIFE })
    }

    /// What it waits for.
    fn waits_for(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    /// Goes on as far as it can; false: it is over.
    fn go_on(&mut self, answer: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> io::Result<bool> {
        while self.answer.is_none() {
            let mut room = [0; 1024];
            match self.stream.read(&mut room)? {
                0 => return Ok(false),
                count => self.asked.extend_from_slice(&room[..count]),
            }
            let whole = self.asked.windows(4).any(|end| end == b"\r\n\r\n")
                || self.asked.windows(2).any(|end| end == b"\n\n");
            if whole || self.asked.len() > REQUEST_MAX {
                self.answer = Some((answer(&self.asked), 0));
            }
        }
        let Some((bytes, written)) = &mut self.answer else { return Ok(true) };
        while *written < bytes.len() {
            *written += match self.stream.write(&bytes[*written..])? {
                0 => return Ok(false),
                count => count,
            };
        }
        Ok(false)
    }
}

/// The whole answer to a request.
fn answer_to(asked: &[u8], metrics: &mut dyn FnMut() -> String) -> Vec<u8> {
    let line = asked.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match words[..] {
        _ if asked.len() > REQUEST_MAX => {
            ("431 Request Header Fields Too Large", plain, "too long\n".to_owned())
        }
        [method, path, version] if version.starts_with("HTTP/1.") => {
            match (method, path.split('?').next()) {
                ("GET", Some("/metrics")) => ("200 OK", CONTENT_TYPE, metrics()),
                ("GET", _) => ("404 Not Found", plain, "it is at /metrics\n".to_owned()),
                _ => ("405 Method Not Allowed\r\nAllow: GET", plain, "only GET\n".to_owned()),
            }
        }
        _ => ("400 Bad Request", plain, "no request of HTTP/1.1\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}

fn serve(image: &str, place: &str) -> Result<(), Failure> {
    let what = || format!("cannot serve metrics at {place}");
    let listener = Listener::open(place)?;
    let signals = ends::by_descriptor()
        .map_err(|problem| Failure::new(what(), reason(&problem), "try again"))?;
    let mut visit = Visit::of(image)?;
    say(&format!("metrics of {image} are at {}", listener.shown()));
    match turn(image, &mut visit, &listener, &signals) {
        Ok(true) => Ok(()),
        Ok(false) => {
            say(&format!("image {image} has ended"));
            Ok(())
        }
        Err(problem) => Err(Failure::new(what(), reason(&problem), "try again")),
    }
}

/// Serves until a signal (true) or the end of the image.
fn turn(
    image: &str,
    visit: &mut Visit,
    listener: &Listener,
    signals: &SignalFd,
) -> io::Result<bool> {
    let mut connections: Vec<Connection> = vec![];
    let mut looked = Instant::now();
    loop {
        let ready = wait(listener, signals, &connections)?;
        if ready[0] {
            return Ok(true);
        }
        let now = Instant::now();
        let mut answer = |asked: &[u8]| answer_to(asked, &mut || text(image, &stat::of(visit)));
        let mut n = 1;
        connections.retain_mut(|connection| {
            n += 1;
            let goes_on = match ready[n] {
                false => true,
                true => match connection.go_on(&mut answer) {
                    Ok(goes_on) => goes_on,
                    Err(problem) => problem.kind() == ErrorKind::WouldBlock,
                },
            };
            goes_on && connection.until > now
        });
        if ready[1] && make_room(&mut connections) {
            // One that has gone again is nobody.
            connections.extend(listener.accept().and_then(Connection::new).ok());
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if !visit.goes_on() {
                return Ok(false);
            }
        }
    }
}

/// Whether there is room for one more: who has asked for nothing gives way, the eldest first.
fn make_room(connections: &mut Vec<Connection>) -> bool {
    if connections.len() >= CONNECTIONS_MAX
        && let Some(silent) = connections.iter().position(|one| one.answer.is_none())
    {
        connections.remove(silent);
    }
    connections.len() < CONNECTIONS_MAX
}

/// Who is ready: a signal, somebody new, then each connection.
fn wait(
    listener: &Listener,
    signals: &SignalFd,
    connections: &[Connection],
) -> io::Result<Vec<bool>> {
    let asked = connections.iter().filter(|one| one.answer.is_some()).count();
    let full = asked >= CONNECTIONS_MAX;
    let new = if full { PollFlags::empty() } else { PollFlags::POLLIN };
    let mut watched =
        vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(listener.fd(), new)];
    watched.extend(connections.iter().map(|one| PollFd::new(one.stream.fd(), one.waits_for())));
    // Soon enough for the end of the image and of each connection's time.
    match poll(&mut watched, PollTimeout::from(LOOK.as_millis() as u16)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(problem) => return Err(problem.into()),
    }
    Ok(watched.iter().map(|one| one.revents().is_some_and(|told| !told.is_empty())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_can_ask() {
        for good in ["127.0.0.1:0", "127.1.2.3:80", "[::1]:9", "localhost:9100"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "9100", "", "127.0.0.1"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_request_has_an_answer() {
        let status = |asked: &[u8]| {
            let answer = answer_to(asked, &mut || "# EOF\n".to_owned());
            String::from_utf8_lossy(&answer).split("\r\n").next().unwrap_or_default().to_owned()
        };
        for (asked, told) in [
            (&b"GET /metrics HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 200 OK"),
            (b"GET /metrics?x=1 HTTP/1.0\n\n", "HTTP/1.1 200 OK"),
            (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
            (b"\xff\xfe\n\n", "HTTP/1.1 400 Bad Request"),
            (&[b'a'; REQUEST_MAX + 1], "HTTP/1.1 431 Request Header Fields Too Large"),
        ] {
            assert_eq!(status(asked), told);
        }
    }
}
