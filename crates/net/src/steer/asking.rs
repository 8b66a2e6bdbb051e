//! The commands' side: starts a balancer, reads what it shows, ends it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::left::Left;
use super::listeners::{Place, borrow, family, find, is_there, see, shares_its_port};
use super::lock;
use super::name;
use super::numbers;
use super::others;
use super::seen::Snapshot;
use super::state::{directory, file, files};
use super::way::take_away;
use crate::problem::Problem;
use husk_abi::Errno;

/// Requests, one byte each.
pub(super) const LOOK: u8 = b'l';
pub(super) const DETACH: u8 = b'd';
/// The balancer's words: it steers now; it has undone everything.
pub(super) const READY: &str = "ready";
pub(super) const DONE: &str = "done";
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// No answer is longer: of root's questions to another user's balancer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Begins to steer, at every address where the target listens; `balance` makes the command that a
/// balancer is started by. A balancer that fails prints why; then nothing is steered.
pub fn attach(target: &str, balance: impl Fn() -> Command) -> Result<Vec<Snapshot>, Problem> {
    numbers::check()?;
    let (steered, free): (Vec<_>, Vec<_>) =
        find(target)?.into_iter().partition(|(pid, place)| living(*pid, place));
    // The free ones never had a balancer, or it was killed.
    let places = if free.is_empty() { steered } else { free };
    let mut begun = Vec::new();
    for (pid, place) in &places {
        match begin(*pid, place, balance()) {
            Ok(Some(snapshot)) => {
                others::forget_left(place);
                begun.push(snapshot);
            }
            failed => {
                // Only what has just begun is undone.
                places[..begun.len()].iter().for_each(|(pid, place)| drop(end(*pid, place)));
                return failed.map(|_| Vec::new());
            }
        }
    }
    Ok(begun)
}

fn begin(pid: u32, place: &Place, mut balance: Command) -> Result<Option<Snapshot>, Problem> {
    let failed = |why: std::io::Error| {
        Problem::new("cannot start a balancer", why, "see that processes can be started")
    };
    balance.args([pid.to_string(), place.address.to_string(), place.namespace.to_string()]);
    let balance = balance.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = balance.spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut said).map_err(failed)?;
    }
    if said.trim_end() == READY {
        return ask(pid, place).map(Some);
    }
    child.wait().map_err(failed)?;
    Ok(None)
}

/// Asks the balancer of a place, by its file, or by its name if there is no file.
fn answer_of(pid: u32, place: &Place, request: u8) -> io::Result<String> {
    let end = Instant::now() + ANSWER_WITHIN;
    match call(&file(place, "socket")).and_then(|stream| answer(stream, request, end)) {
        Err(why) if is_nobody(&why) => {
            answer(name::call(pid, place).map_err(nobody)?, request, end)
        }
        other => other,
    }
}

/// Connects to a balancer by its file. A stranger may have made it, if the directory is in /tmp;
/// then there is no balancer.
fn call(socket: &Path) -> io::Result<UnixStream> {
    let stream = name::connected(&SocketAddrUnix::new(socket)?)?;
    let is_fine = geteuid().is_root() || name::is_trusted(&stream);
    if is_fine { Ok(stream) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// A process that may not look into a namespace finds no balancer there.
fn nobody(why: io::Error) -> io::Error {
    if is_nobody(&why) || why.kind() == name::ROOTS { why } else { io::ErrorKind::NotFound.into() }
}

/// Reads the answer until `end`; another user's balancer could send a byte at a time for ever.
pub(super) fn answer(mut stream: UnixStream, request: u8, end: Instant) -> io::Result<String> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    stream.write_all(&[request])?;
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let rest = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero());
        stream.set_read_timeout(Some(rest.ok_or_else(|| silent(&stream))?))?;
        match stream.read(&mut part) {
            Ok(0) if text.is_empty() => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(0) => return String::from_utf8(text).map_err(io::Error::other),
            Ok(bytes) => text.extend_from_slice(&part[..bytes]),
            Err(why) if matches!(why.kind(), Interrupted | WouldBlock) => {}
            Err(why) => return Err(why),
        }
        if text.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("its answer has no end"));
        }
    }
}

/// The error for a balancer that does not answer: a stopped one, for instance.
fn silent(stream: &UnixStream) -> io::Error {
    let pid = socket_peercred(stream).map_or(0, |peer| peer.pid.as_raw_pid());
    let why = format!("its balancer, process {pid}, does not answer");
    io::Error::new(io::ErrorKind::WouldBlock, why)
}

/// The remedy.
const END_IT: &str = "end that process (`kill -KILL`), detach, and attach again";

fn ask(pid: u32, place: &Place) -> Result<Snapshot, Problem> {
    let nobody = || match Left::of(pid, place) {
        Some(_) => {
            let target = place.typed(pid);
            let remedy =
                format!("`husk net attach {target}` or `husk net detach {target}` ends that");
            let why = "its balancer was killed, and its last table, which nothing moves, steers on";
            Problem::new(SEE, why, remedy)
        }
        None => {
            let remedy = "`husk net attach PID` starts steering";
            Problem::new(SEE, "nothing is steered there", remedy)
        }
    };
    shown(answer_of(pid, place, LOOK))?.ok_or_else(nobody)
}

/// Reads the answer to `LOOK`; `None`: there is no balancer.
pub(super) fn shown(answer: io::Result<String>) -> Result<Option<Snapshot>, Problem> {
    let text = match answer {
        Ok(text) => text,
        Err(why) if is_nobody(&why) => return Ok(None),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
            return Err(Problem::new(SEE, why, END_IT));
        }
        Err(why) => return Err(Problem::new(SEE, why, "run it as root")),
    };
    let wrong = |why: String| Problem::new(SEE, why, "attach again with this version of husk");
    let seen: Snapshot = serde_json::from_str(&text).map_err(|why| wrong(why.to_string()))?;
    // Another user's balancer may say anything; it is printed.
    match seen.address.parse::<SocketAddr>() {
        Ok(_) => Ok(Some(seen)),
        Err(why) => Err(wrong(why.to_string())),
    }
}

/// What fails if nothing can be read.
const SEE: &str = "cannot see what is steered";

/// Whether there is no balancer: none has been, it was killed, or it has ended just now.
fn is_nobody(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(why.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe)
}

/// Whether a balancer is there whose server lives. One that does not answer may still steer.
pub(super) fn living(pid: u32, place: &Place) -> bool {
    match shown(answer_of(pid, place, LOOK)) {
        Ok(seen) => seen.is_some_and(|seen| is_there(seen.pid)),
        Err(_) => true,
    }
}

/// The state of each balancer of a target; an error if there is none.
pub fn look(target: &str) -> Result<Vec<Snapshot>, Problem> {
    let places = find(target)?;
    let asked: Vec<_> = places.iter().map(|(pid, place)| ask(*pid, place)).collect();
    if asked.iter().all(Result::is_err) {
        return asked.into_iter().collect();
    }
    Ok(asked.into_iter().flatten().collect())
}

/// The state of all balancers; for root, including those of other users.
pub fn everywhere() -> Result<Vec<Snapshot>, Problem> {
    let directory = directory();
    let sockets = match files(&directory, "socket") {
        Ok(sockets) => sockets,
        Err(why) if why.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(why) => return Err(Problem::new(SEE, why, "run it as root")),
    };
    // A killed balancer is left out. One that refuses or does not answer is an error.
    let end = || Instant::now() + ANSWER_WITHIN;
    let answers = sockets
        .iter()
        .map(|socket| shown(call(socket).and_then(|one| answer(one, LOOK, end()))).transpose());
    let mut all = answers.flatten().collect::<Result<Vec<_>, _>>()?;
    all.extend(others::seen());
    let left = Left::all(&directory).into_iter().chain(others::left());
    let is_steered = |left: &Left| {
        let address = left.place.address.to_string();
        all.iter().any(|one| one.address == address && one.namespace == left.place.namespace)
    };
    let left: Vec<_> = left.filter(|left| !is_steered(left)).collect();
    all.extend(left.iter().map(|left| Snapshot::left(left.pid, &left.place)));
    Ok(all)
}

/// Ends steering: Linux chooses as before. Also where the balancer was killed. At all addresses of
/// the target; it is an error only where nothing is attached at any of them, or one cannot end.
pub fn detach(target: &str) -> Result<(), Problem> {
    numbers::check()?;
    let places = find(target)?;
    let ends: Vec<_> = places.iter().map(|(pid, place)| end(*pid, place)).collect();
    let ended = ends.iter().any(|end| matches!(end, Ok(true)));
    for end in ends {
        end?;
    }
    let what = || format!("cannot detach from {target}");
    ended
        .then_some(())
        .ok_or_else(|| Problem::new(what(), "nothing is attached", "see `husk net top`"))
}

/// Whether anything was attached there.
fn end(pid: u32, place: &Place) -> Result<bool, Problem> {
    let what = format!("cannot detach from {place}");
    let mut times = 0;
    let _lock = loop {
        match answer_of(pid, place, DETACH) {
            Ok(said) if said == DONE => return Ok(true),
            Ok(said) => return Err(Problem::new(what, said, "try again")),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                return Err(Problem::new(what, why, END_IT));
            }
            Err(why) if is_nobody(&why) => {}
            Err(why) => return Err(Problem::new(what, why, "run it as root")),
        }
        // A balancer that is starting or ending holds the lock and does not answer.
        match lock::take(place)? {
            Some(lock) => break lock,
            None if lock::pause(&mut times) => {}
            None => {
                let remedy = "end it (`pgrep -f 'net balance'`) and detach again";
                return Err(Problem::new(what, "its balancer neither begins nor ends", remedy));
            }
        }
    };
    let undone = undo(pid, place);
    // A killed balancer leaves its files.
    lock::leave(place);
    if undone.is_ok() {
        others::forget_left(place);
    }
    undone.map_err(|errno| Problem::refused("take the program from these sockets", errno))
}

/// Whether the sockets of a place had a program.
fn undo(pid: u32, place: &Place) -> Result<bool, Errno> {
    let inodes = see(pid, place).listening;
    let family = family(&[pid], &inodes);
    let inode = inodes.first().ok_or(Errno::ENOENT)?;
    let socket = borrow(&family, *inode)?;
    // Without SO_REUSEPORT it cannot have one.
    if shares_its_port(&socket) { take_away(&socket) } else { Ok(false) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    /// Does it as this user, in a thread of its own.
    pub fn with_uid<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn a_stranger_s_socket_is_no_balancer_and_root_s_and_one_s_own_are() {
        if !geteuid().is_root() {
            return;
        }
        let base = std::env::temp_dir().join(format!("husk-net-asking-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        };
        open(&base);
        let path = base.join("socket");
        let found = |of: u32, asked_by: u32| {
            let _ = fs::remove_file(&path);
            let _listener = with_uid(of, || UnixListener::bind(&path)).unwrap();
            open(&path);
            with_uid(asked_by, || call(&path).map(drop).map_err(|why| why.kind()))
        };
        assert_eq!(found(1, 65_534), Err(io::ErrorKind::NotFound));
        assert_eq!([found(65_534, 65_534), found(0, 65_534), found(1, 0)], [Ok(()); 3]);
        fs::remove_dir_all(&base).unwrap();
    }
}
