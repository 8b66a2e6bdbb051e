//! `husk serve-guest`: this host's end of a session that another host has started over ssh.
//!
//! ```text
//!   standard input ─► frames ─► jobs: a process of the node each, its output back as frames
//!                           ─► replies for who asked
//!   programs of the node ─► socket `home` ─► frames on standard output ─► the home of all names
//! ```
//!
//! Invariants
//! 1. Everything here ends with standard input, or when nothing comes from the other side for
//!    `SILENCE_MAX`: the jobs are killed, the node is taken down, its directory is removed.
//! 2. The reader of frames waits for nothing: what comes is bounded by what was asked for, and by
//!    the credit of a job.
//! 3. Whoever kills this process ends the node with it: that watches our number.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use husk_node::{Copies, Written, bridge, brought};
use husk_proto::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};
use serde::{Deserialize, Serialize};

use crate::config::{FILES, IMAGES};
use crate::hosts::fingerprint;
use crate::hosts::fingerprint::known::Known;
use crate::hosts::fingerprint::noted::Noted;
use crate::hosts::program::job::Job;
use crate::hosts::program::process::{Credit, run};
use crate::hosts::program::temporary;
use crate::hosts::room::{self, Room};
use crate::hosts::session::stream::{Frame, Kind, put, take};
use crate::image::private::Private;
use crate::named::SELF;
use crate::nodes::{self, PartOf, Tree};
use crate::run::request::reason;

/// Requests of programs here that are on their way at once.
pub const ASKERS: u32 = 32;
/// So long nothing may come from the other side.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);
/// So often each side says that it is there.
pub const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// So long copies are used while nothing comes from home: it says each `ALIVE_EVERY` that it is
/// there.
const TERM: Duration = Duration::from_secs(7);
/// Bytes of a job's output that may be on their way.
pub const CREDIT_BYTES: u64 = 256 << 10;
/// How long an answer from home may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long a request may take to arrive once its sender has connected.
pub const TALK_MAX: Duration = Duration::from_secs(5);
/// Most jobs at once, whatever the other side says.
const JOBS_MAX: usize = 1024;
/// For tests: so many seconds another host's clock is ahead.
const AHEAD: &str = "HUSK_TEST_AHEAD_S";
/// Jobs whose bytes are brought home at once, and pieces of one on their way: with the askers they
/// are fewer than the home lets wait.
const BRINGERS: usize = 8;
const PIECES: usize = 8;
/// Between two looks for bytes that have been here for long.
const LATE_LOOK: Duration = Duration::from_millis(100);
/// What the node is called in its own directory of images.
pub const NODE: &str = husk_proto::entry::JOB_NODE;

/// What home says first.
#[derive(Serialize, Deserialize, Debug)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u32,
    /// The number of the node that this host is to be.
    pub node: u16,
    /// The trees at home.
    pub trees: Vec<Tree>,
    /// The user and the group there.
    pub user: (u32, u32),
    /// What its processor can do.
    pub features: Vec<String>,
    /// Memory of the node, bytes.
    pub memory_bytes: u64,
    /// Its clock, ns since 1970.
    pub now_ns: i64,
    /// Programs see home's files.
    pub room: bool,
}

/// What this host answers.
#[derive(Serialize, Deserialize, Debug)]
pub struct Welcome {
    /// Processors that it may use.
    pub processors: u32,
}

/// The protocol of frames and what is in them.
pub const VERSION: u32 = 6;

/// What the processor of this host can do.
pub fn features() -> Vec<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
    let flags = flags.unwrap_or_default().trim_start_matches([' ', '\t', ':']);
    flags.split_whitespace().map(str::to_owned).collect()
}

/// What this host's clock says, ns since 1970.
pub fn now_ns() -> i64 {
    let ahead_s = std::env::var(AHEAD).ok().and_then(|text| text.parse().ok()).unwrap_or(0_i64);
    crate::image::clock::exact_ns().saturating_add(ahead_s.saturating_mul(1_000_000_000))
}

/// The lock, whoever has panicked holding it: what it guards is whole between two calls.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A job as the reader of frames knows it.
pub struct Running {
    /// Its process, which leads a group of its own; 0: it is not started yet.
    pub pid: i32,
    /// It is a compiler, whose writes are gathered.
    gathers: bool,
    /// Why bytes that it has written are not home.
    pub failed: Option<Errno>,
    /// How long it has waited for home.
    pub waited: Duration,
    credit: Arc<Credit>,
}

/// Who waits for an answer, and what was asked.
struct Asker {
    tell: SyncSender<Vec<u8>>,
    request: Vec<u8>,
}

/// What all threads share.
pub struct Guest {
    output: Mutex<File>,
    /// The directory of the node.
    pub images: PathBuf,
    /// In which programs see home's files; `None`: they see this host's.
    pub room: Option<Room>,
    /// Where compilers have their temporary files; `None`: where they are told, at home.
    pub temporary: Option<PathBuf>,
    /// What runs here.
    pub jobs: Mutex<HashMap<u32, Running>>,
    answers: Mutex<HashMap<u32, Asker>>,
    copies: Mutex<Copies>,
    written: Mutex<Written>,
    /// Jobs whose bytes are on their way home; at most `BRINGERS`.
    bringing: Mutex<HashSet<u32>>,
    brought: Condvar,
    /// How far this host's clock is ahead, ns; behind, if less than 0.
    ahead_ns: i64,
    heard: Mutex<Instant>,
    /// The session is over.
    pub ended: AtomicBool,
    next: AtomicU64,
    /// What is known of programs here.
    noted: Mutex<Noted>,
}

impl Guest {
    /// Sends a frame home.
    pub fn put(&self, kind: Kind, channel: u32, payload: &[u8]) -> io::Result<()> {
        put(&mut *lock(&self.output), kind, channel, payload)
    }

    /// The job that a program belongs to: it has the job's group, unless it has left it. 0: none.
    fn job_of(&self, asker: &OwnedFd) -> u32 {
        let peer = sockopt::socket_peercred(asker).ok();
        let group = peer.and_then(|peer| rustix::process::getpgid(Some(peer.pid)).ok());
        let group = group.map_or(0, |group| group.as_raw_nonzero().get());
        let jobs = lock(&self.jobs);
        jobs.iter().find(|(_, job)| job.pid == group).map_or(0, |(channel, _)| *channel)
    }
}

/// Serves the session; returns when it has ended.
pub fn serve() {
    let _ = rustix::thread::set_name(c"husk: guest");
    let hello = take(&mut io::stdin().lock());
    let Ok(Some(Frame { kind: Kind::Hello, payload, .. })) = hello else { return };
    let refused = |why: &str| {
        // Who does not listen is not told.
        let _ = put(&mut io::stdout().lock(), Kind::Refused, 0, why.as_bytes());
    };
    let hello = match serde_json::from_slice::<Hello>(&payload) {
        Ok(hello) => hello,
        Err(_) => return refused("it has another version of husk"),
    };
    if let Err(why) = suits(&hello) {
        return refused(&why);
    }
    match begin(&hello) {
        Ok((guest, part, private)) => {
            let starts = guest.clone();
            // The room needs what home says meanwhile.
            thread::spawn(move || {
                if let Err(why) = welcome(&starts, &part, hello.memory_bytes) {
                    let _ = starts.put(Kind::Refused, 0, why.as_bytes());
                }
            });
            read_frames(&guest);
            end(&guest);
            drop(private);
        }
        Err(why) => refused(&why),
    }
}

/// Makes the node, and says so.
fn welcome(guest: &Arc<Guest>, part: &PartOf, memory_bytes: u64) -> Result<(), String> {
    if let Some(room) = &guest.room {
        room.wait().map_err(|why| format!("it cannot show files of home ({why})"))?;
    }
    up(guest, part, memory_bytes)?;
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let welcome = serde_json::to_vec(&Welcome { processors }).unwrap_or_default();
    guest.put(Kind::Welcome, 0, &welcome).map_err(|problem| reason(&problem))
}

/// Whether this host can stand in for that one.
fn suits(hello: &Hello) -> Result<(), String> {
    let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if hello.version != VERSION {
        return Err("it has another version of husk".to_owned());
    }
    if hello.user != us {
        let ((user, group), (own, own_group)) = (hello.user, us);
        return Err(format!(
            "you are user {own} of group {own_group} there, and {user} of {group} here"
        ));
    }
    let own = features();
    let lacking: Vec<_> = hello.features.iter().filter(|flag| !own.contains(flag)).collect();
    match lacking.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("its processor lacks {} features of this one, as {first}", lacking.len()))
        }
    }
}

/// Makes what the node needs, and starts the threads.
fn begin(hello: &Hello) -> Result<(Arc<Guest>, PartOf, Private), String> {
    let ahead_ns = now_ns().saturating_sub(hello.now_ns);
    let told = |problem: io::Error| reason(&problem);
    let private = Private::make().map_err(told)?;
    let place = Path::new(std::ffi::OsStr::new(
        std::str::from_utf8(&private.path()).map_err(|_| "its directory has no name")?,
    ))
    .to_owned();
    let (home, images) = (place.join("home"), place.join("images"));
    // Not by way of a buffer that is emptied at each end of a line.
    let output = rustix::stdio::stdout().try_clone_to_owned().map_err(told)?.into();
    let temporary = temporary::make(&place, &hello.trees).map_err(told)?;
    let listener = nodes::listen(&home).map_err(|errno| reason(&errno.into()))?;
    let (image, pid) = (NODE.to_owned(), std::process::id());
    let part =
        PartOf { node: hello.node, image, home, known: (0, 0), pid, trees: hello.trees.clone() };
    let room = hello.room.then(|| Room::start(&place.join("room"))).transpose().map_err(told)?;
    let (room, asks) = room.unzip();
    let guest = Arc::new(Guest {
        output: Mutex::new(output),
        images,
        room,
        temporary,
        jobs: Mutex::default(),
        answers: Mutex::default(),
        copies: Mutex::default(),
        written: Mutex::default(),
        bringing: Mutex::default(),
        brought: Condvar::new(),
        ahead_ns,
        heard: Mutex::new(Instant::now()),
        ended: AtomicBool::new(false),
        next: AtomicU64::new(1),
        noted: Mutex::new(Noted::begin(Known::find())),
    });
    let listener = Arc::new(listener);
    for _ in 0..ASKERS {
        let (guest, listener) = (guest.clone(), listener.clone());
        thread::spawn(move || carry(&guest, &listener));
    }
    let hurries = guest.clone();
    thread::spawn(move || hurry(&hurries));
    let watched = guest.clone();
    thread::spawn(move || watch(&watched));
    if let Some(asks) = asks {
        let guest = guest.clone();
        thread::spawn(move || room::pass_on(&guest, asks));
    }
    Ok((guest, part, private))
}

fn husk(images: &Path, room: Option<&Room>) -> Command {
    let mut command = room.map_or_else(|| Command::new(SELF), |room| room::within(room.keeper));
    // What this host's files say is for images of its own.
    command.env(IMAGES, images).env(FILES, "none").stdin(Stdio::null());
    command
}

fn up(guest: &Guest, part: &PartOf, memory_bytes: u64) -> Result<(), String> {
    let told = serde_json::to_string(part).unwrap_or_default();
    let memory = memory_bytes.to_string();
    let words = ["up", NODE, "--memory", &memory, "--discard", "--part-of", &told];
    let made = husk(&guest.images, guest.room.as_ref())
        .args(words)
        .output()
        .map_err(|problem| reason(&problem))?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    let line = said.lines().last().unwrap_or("no reason is given");
    Err(line.strip_prefix("husk: ").unwrap_or(line).to_owned())
}

/// Ends all that was started here.
fn end(guest: &Guest) {
    guest.ended.store(true, Ordering::SeqCst);
    // Home answers nobody any more.
    lock(&guest.answers).clear();
    for job in lock(&guest.jobs).values() {
        end_group(job.pid, Signal::SIGKILL);
        job.credit.end();
    }
    // What fails now is found by the node, which watches us.
    let _ = husk(&guest.images, None)
        .args(["down", NODE, "--discard", "--force"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if let Some(room) = &guest.room {
        room.end();
    }
}

/// Sends a signal to a job and what it has started.
pub fn end_group(pid: i32, signal: Signal) {
    if pid > 0 {
        // It may have ended this moment.
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

/// Says that we are there, and ends the session when the other side is not.
fn watch(guest: &Guest) {
    loop {
        thread::sleep(ALIVE_EVERY);
        let silent = lock(&guest.heard).elapsed() > SILENCE_MAX;
        // Where one writes, something is on its way; it may wait for a network that is gone.
        let said = guest.output.try_lock().ok().map(|mut to| put(&mut *to, Kind::Alive, 0, &[]));
        if silent || said.is_some_and(|said| said.is_err()) {
            give_up(guest);
        }
    }
}

/// Ends the session and this process.
pub fn give_up(guest: &Guest) -> ! {
    end(guest);
    // The main thread waits in a read that may never end. What is left of the directory is removed
    // here.
    if let Some(place) = guest.images.parent().and_then(Path::parent) {
        let _ = fs::remove_dir_all(place);
    }
    std::process::exit(1);
}

/// Takes what home sends until that ends.
fn read_frames(guest: &Arc<Guest>) {
    let mut input = io::stdin().lock();
    while let Ok(Some(frame)) = take(&mut input) {
        *lock(&guest.heard) = Instant::now();
        if take_frame(guest, frame).is_none() {
            return;
        }
    }
}

/// `None`: the other side breaks the protocol.
fn take_frame(guest: &Arc<Guest>, frame: Frame) -> Option<()> {
    let Frame { kind, channel, payload } = frame;
    match kind {
        Kind::Alive => {}
        Kind::Reply | Kind::Kept | Kind::File | Kind::Revise => {
            return take_answer(guest, kind, channel, payload);
        }
        Kind::Told | Kind::Stale => guest.room.as_ref()?.tell(Frame { kind, channel, payload }),
        Kind::Compare => {
            let guest = guest.clone();
            thread::spawn(move || {
                let path = String::from_utf8(payload).ok();
                let print = path.and_then(|path| {
                    fingerprint::fingerprint(Path::new(&path), &mut lock(&guest.noted))
                });
                let _ = guest.put(Kind::Print, channel, print.unwrap_or_default().as_bytes());
            });
        }
        Kind::Job => {
            let job = Job::decode(&payload)?;
            let credit = Credit::new();
            let gathers = job.is_driver;
            let running = Running {
                pid: 0,
                gathers,
                failed: None,
                waited: Duration::ZERO,
                credit: credit.clone(),
            };
            let mut jobs = lock(&guest.jobs);
            if jobs.len() >= JOBS_MAX || jobs.insert(channel, running).is_some() {
                return None;
            }
            let guest = guest.clone();
            thread::spawn(move || run(&guest, channel, &job, &credit));
        }
        Kind::Signal => {
            let [number] = payload[..] else { return None };
            let signal = Signal::try_from(i32::from(number)).ok()?;
            let pid = lock(&guest.jobs).get(&channel).map_or(0, |job| job.pid);
            match signal {
                // What a terminal sends goes to all of the group.
                Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP => end_group(pid, signal),
                _ if pid > 0 => drop(kill(Pid::from_raw(pid), signal)),
                _ => {}
            }
        }
        Kind::Credit => {
            let bytes: [u8; 4] = payload[..].try_into().ok()?;
            if let Some(job) = lock(&guest.jobs).get(&channel) {
                job.credit.give(u32::from_le_bytes(bytes).into());
            }
        }
        Kind::Gone => {
            let pid = lock(&guest.jobs).get(&channel).map_or(0, |job| job.pid);
            end_group(pid, Signal::SIGKILL);
        }
        _ => return None,
    }
    Some(())
}

/// An answer of the home, or what it says of copies. `None`: as above.
fn take_answer(guest: &Guest, kind: Kind, channel: u32, payload: Vec<u8>) -> Option<()> {
    match kind {
        Kind::Reply => {
            // Who has given up waits no more.
            if let Some(asker) = lock(&guest.answers).get(&channel) {
                let _ = asker.tell.try_send(payload);
            }
        }
        Kind::Kept => {
            let (number, answer) = payload.split_first_chunk()?;
            if let Some(asker) = lock(&guest.answers).get(&channel) {
                let number = u32::from_le_bytes(*number);
                lock(&guest.copies).keep(number, &asker.request, answer);
                let _ = asker.tell.try_send(answer.to_vec());
            }
        }
        Kind::File => {
            let (number, rest) = payload.split_first_chunk()?;
            let (hold, bytes) = rest.split_first_chunk()?;
            let (number, hold) = (u32::from_le_bytes(*number), u64::from_le_bytes(*hold));
            lock(&guest.copies).keep_file(number, hold, bytes);
        }
        Kind::Revise => {
            let (numbers, []) = payload.as_chunks() else { return None };
            let mut copies = lock(&guest.copies);
            numbers.iter().for_each(|number| copies.forget(u32::from_le_bytes(*number)));
        }
        _ => return None,
    }
    Some(())
}

/// Carries requests of programs here to the home of all names, one at a time.
fn carry(guest: &Guest, listener: &OwnedFd) {
    let mut room = vec![0; husk_node::CALL_BYTES_MAX];
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            // Whoever asked hears nothing, and asks again or not.
            Ok(asker) => drop(carry_one(guest, &asker, &mut room)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn carry_one(guest: &Guest, asker: &OwnedFd, room: &mut [u8]) -> io::Result<()> {
    sockopt::set_socket_timeout(asker, sockopt::Timeout::Recv, Some(TALK_MAX))?;
    let (length, _) = recv(asker.as_fd(), &mut *room, RecvFlags::empty())?;
    let (job, message) = (guest.job_of(asker), &room[..length]);
    let known = guest.known(job, message);
    let answer = match known {
        Some(answer) => answer,
        None => {
            let bridged = bridge(message, guest.ahead_ns, now_ns());
            let message = bridged.as_deref().unwrap_or(message);
            let answer = guest.ask(job, message)?;
            if guest.gathers(job) {
                lock(&guest.written).begin(job, message, &answer);
            }
            answer
        }
    };
    send(asker.as_fd(), &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

impl Guest {
    /// The answer to a request that home need not be asked for. What the job has written is home
    /// before it asks anything else.
    fn known(&self, job: u32, message: &[u8]) -> Option<Vec<u8>> {
        let own = lock(&self.written).answer(message);
        if own.is_some() {
            return own;
        }
        self.bring(job, false);
        // What somebody else of the job brings home is there, too.
        self.wait_for(job);
        // What home has not called back, as long as it is heard of.
        let is_near = lock(&self.heard).elapsed() < TERM;
        is_near.then(|| lock(&self.copies).answer(message)).flatten()
    }

    fn gathers(&self, job: u32) -> bool {
        lock(&self.jobs).get(&job).is_some_and(|job| job.gathers)
    }

    /// Waits while bytes of a job are on their way home.
    fn wait_for(&self, job: u32) {
        let mut bringing = lock(&self.bringing);
        while bringing.contains(&job) && !self.ended.load(Ordering::SeqCst) {
            let waited = self.brought.wait_timeout(bringing, TALK_MAX);
            bringing = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(all, _)| all);
        }
    }

    /// Brings home what a job has written; `all`: nothing of it is gathered after that.
    pub fn bring(&self, job: u32, all: bool) {
        if !(all || lock(&self.written).is_due(job)) {
            return;
        }
        let mut bringing = lock(&self.bringing);
        while bringing.contains(&job) || bringing.len() >= BRINGERS {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let waited = self.brought.wait_timeout(bringing, TALK_MAX);
            bringing = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(all, _)| all);
        }
        bringing.insert(job);
        drop(bringing);
        let (messages, since) = (lock(&self.written).take(job, all), Instant::now());
        for some in messages.chunks(PIECES) {
            let asked: Vec<_> =
                some.iter().map(|message| self.send_request(job, message)).collect();
            for (message, asked) in some.iter().zip(asked) {
                let answer = asked.and_then(|(channel, told)| self.wait_answer(channel, &told));
                let failed =
                    answer.map_err(|_| Errno::EIO).and_then(|said| brought(message, &said));
                if let (Err(errno), Some(job)) = (failed, lock(&self.jobs).get_mut(&job)) {
                    job.failed.get_or_insert(errno);
                }
            }
        }
        self.note_wait(job, since);
        lock(&self.bringing).remove(&job);
        self.brought.notify_all();
    }

    fn note_wait(&self, job: u32, since: Instant) {
        if let Some(job) = lock(&self.jobs).get_mut(&job) {
            job.waited += since.elapsed();
        }
    }

    /// Asks home, and waits for its answer.
    fn ask(&self, job: u32, message: &[u8]) -> io::Result<Vec<u8>> {
        let since = Instant::now();
        let (channel, told) = self.send_request(job, message)?;
        let answer = self.wait_answer(channel, &told);
        self.note_wait(job, since);
        answer
    }

    fn send_request(&self, job: u32, message: &[u8]) -> io::Result<(u32, Receiver<Vec<u8>>)> {
        let (tell, told): (SyncSender<Vec<u8>>, Receiver<Vec<u8>>) = sync_channel(1);
        // A late answer to who had this place before is not taken for ours.
        let channel = self.next.fetch_add(1, Ordering::Relaxed) as u32;
        lock(&self.answers).insert(channel, Asker { tell, request: message.to_vec() });
        let whole = [&job.to_le_bytes()[..], message].concat();
        let sent = match self.ended.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => self.put(Kind::Request, channel, &whole),
        };
        if sent.is_err() {
            lock(&self.answers).remove(&channel);
        }
        sent.map(|()| (channel, told))
    }

    fn wait_answer(&self, channel: u32, told: &Receiver<Vec<u8>>) -> io::Result<Vec<u8>> {
        let answer = told.recv_timeout(ANSWER_MAX);
        lock(&self.answers).remove(&channel);
        answer.map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// Brings home what has been here for long.
fn hurry(guest: &Guest) {
    while !guest.ended.load(Ordering::SeqCst) {
        thread::sleep(LATE_LOOK);
        let late = lock(&guest.written).late();
        late.into_iter().for_each(|job| guest.bring(job, false));
    }
}
