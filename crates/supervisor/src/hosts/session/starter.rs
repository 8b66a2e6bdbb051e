//! `husk serve-host HOST`: home's end of a session with another host.
//!
//! ```text
//!   runtime ─► socket ─► "may this run there?" ─► yes: a place is kept for it
//!   shadow  ─► same connection: its job, signals ─► frames ─► ssh ─► guest
//!           ◄─ output, end                       ◄─
//!   guest's programs ─► requests ─► the agent of node 0, as any other node's
//! ```
//!
//! Invariants
//! 1. Nothing is placed there that is not the same program on both hosts, byte for byte
//!    (`fingerprint`).
//! 2. Programs here are told how many keep its processors busy (`Waits`), and choose by that; at
//!    most `PLACES_MAX` run there for each processor.
//! 3. When the other host is lost no request of it is served any more, no shadow waits, and
//!    nothing new is placed there: what runs after that runs here.
//! 4. The reader of frames waits for nothing; a guest that sends more than it may is cut off.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use husk_node::{File as Bytes, Kept, Promises};
use serde::{Deserialize, Serialize};

use crate::hosts::account::{Account, Running, SEES, Spent};
use crate::hosts::fingerprint::here::Here;
use crate::hosts::fingerprint::known::Known;
use crate::hosts::program::job::{Fate, Job};
use crate::hosts::room::Shown;
use crate::hosts::session::guest::{
    ALIVE_EVERY, ASKERS, CREDIT_BYTES, Hello, SILENCE_MAX, VERSION, Welcome, features, lock,
};
use crate::hosts::session::own::Own;
use crate::hosts::session::ssh;
use crate::hosts::session::stream::{Frame, Kind, put, take};
use crate::hosts::{Root, loads};
use crate::image::clock::exact_ns;
use crate::named::{self, Name, SELF};
use crate::nodes::Tree;
use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::reason;

/// Requests of the guest that may wait: each of its threads has one, and some it has given up.
const QUEUED_MAX: usize = 4 * ASKERS as usize;
/// Threads that ask the home of all names on behalf of the guest.
const CARRIERS: usize = 4;
/// Most programs for each processor, however long they wait for home; and most processors.
const PLACES_MAX: u64 = 6;
const PROCESSORS_MAX: u32 = 1 << 12;
/// How long the guest may take to compare a program; the runtime does not wait so long.
const COMPARE_MAX: Duration = Duration::from_secs(30);
/// How long a program waits for that which may as well run here.
const COMPARE_BRIEF: Duration = Duration::from_millis(50);
/// The same for a compiler that an earlier session has compared: that does not take long again, and
/// the first jobs of a build come all at once.
const COMPARE_AGAIN: Duration = Duration::from_millis(500);
/// How long a shadow may take to say what it stands for.
const JOB_MAX: Duration = Duration::from_secs(10);
/// What starters share of the headers here, beside the home's socket.
const HEADERS: &str = "headers";
/// So often it is looked whether copies are so still; each so many times also at host files.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const HOST_EVERY: u64 = 5;
/// From a silence of so long on, nothing is placed there: what is sent now may never arrive. It is
/// longer than it takes to say that one is there.
const QUIET_MAX: Duration = Duration::from_secs(7);
/// How long ssh may take to end once nothing is to be sent any more.
const END_MAX: Duration = Duration::from_secs(10);
/// Bytes of output that may wait for a shadow: what the guest has credit for, and a little.
const QUEUED_BYTES_MAX: u64 = CREDIT_BYTES + (64 << 10);
/// What the runtime asks first; the second, where `HUSK_NODE` names this host.
const ASKS: u8 = b'A';
const WAITS: u8 = b'W';
/// What the supervisor says at the end.
pub const ENDS: u8 = b'E';

/// What `serve-host` is told.
#[derive(Serialize, Deserialize, Debug)]
pub struct Orders {
    /// The number of its node.
    pub node: u16,
    /// The number of its host.
    pub number: u16,
    /// Where the agent of node 0 listens.
    pub home: PathBuf,
    /// The trees of node 0.
    pub trees: Vec<Tree>,
    /// Memory of the node there, bytes.
    pub memory_bytes: u64,
    /// Whose files programs there see.
    pub root: Root,
    /// The image whose log has what is said once the session has begun; `None`: it is said to who
    /// has started it.
    pub log: Option<String>,
}

/// A request: where its answer goes, for which job, the message.
type Asked = (u32, u32, Vec<u8>);

/// Something for the shadow of a program.
enum ToShadow {
    Output(Kind, Vec<u8>),
    End(Fate),
}

struct Standing {
    tell: Sender<ToShadow>,
    queued: Arc<AtomicU64>,
    pid: u32,
    name: String,
    spent: Spent,
    since: Instant,
}

/// How long programs there have run, and waited for home meanwhile, ms.
#[derive(Default)]
struct Waits {
    ran: u64,
    waited: u64,
}

impl Waits {
    fn note(&mut self, ran: Duration, waited: u32) {
        let ran = ran.as_millis() as u64;
        self.ran += ran;
        self.waited += u64::from(waited).min(ran);
    }

    /// How many programs keep so many processors busy: while one waits, another one runs.
    fn places(&self, processors: u32) -> u32 {
        let works = (self.ran - self.waited).max(1);
        let wanted = u64::from(processors).saturating_mul(self.ran).div_ceil(works);
        wanted.clamp(processors.into(), u64::from(processors) * PLACES_MAX) as u32
    }
}

/// Which programs are the same, as far as is known.
#[derive(Default)]
struct Compared {
    there: HashMap<PathBuf, Option<String>>,
    waiting: HashMap<u32, SyncSender<Option<String>>>,
    /// Those that are being compared.
    busy: HashSet<PathBuf>,
}

/// What all threads share.
struct Starter {
    host: String,
    number: usize,
    to: Mutex<Option<ChildStdin>>,
    home: Vec<u8>,
    processors: u32,
    waits: Mutex<Waits>,
    /// What was said last of its places.
    places: AtomicU32,
    used: AtomicU32,
    next: AtomicU32,
    standing: Mutex<HashMap<u32, Standing>>,
    compared: Mutex<Compared>,
    /// Another program has been compared.
    has_compared: Condvar,
    here: Arc<Here>,
    /// What the room there shows; `None`: there is none.
    shown: Option<Shown>,
    heard: Mutex<Instant>,
    account: Mutex<Account>,
    /// What the guest keeps copies of; locked after `to`.
    promises: Mutex<Option<Promises>>,
    is_lost: AtomicBool,
    is_ending: AtomicBool,
}

/// Serves the session; the socket is standard input, and what came of the start goes to standard
/// output as one line. That is closed when the other host is lost, or this process ends.
pub fn serve(host: &str, told: &str) -> u8 {
    // A session of its own: keys on the terminal are for programs.
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::thread::set_name(c"husk: host");
    match begin(host, told) {
        Ok((starter, link, listener, log)) => {
            report(&Ok(()));
            log.and_then(log_to);
            run(&starter, link, listener);
            0
        }
        Err(failure) => {
            report(&Err(failure));
            crate::output::failure::STATUS_HUSK
        }
    }
}

/// Tells who has started us, once.
fn report(begun: &Result<(), Failure>) {
    let text = serde_json::to_string(begun).unwrap_or_default() + "\n";
    let mut output = io::stdout();
    // Who does not listen has ended, and we with it.
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// Tells who has started us that the other host is lost.
fn hang_up() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// What is said from now on goes to the log of image `name`.
fn log_to(name: String) -> Option<()> {
    let name = Name::parse(OsStr::new(&name)).ok()?;
    rustix::stdio::dup2_stderr(&named::log(&name).ok()?).ok()
}

/// A session that has begun, and the image that has a log.
type Begun = (Arc<Starter>, ssh::Link, UnixListener, Option<String>);

fn begin(host: &str, told: &str) -> Result<Begun, Failure> {
    let failed = |why: String| Failure::new(format!("cannot use {host}"), why, "see `husk check`");
    let told: Orders = serde_json::from_str(told).map_err(|_| failed("no orders".to_owned()))?;
    let listener = rustix::stdio::stdin().try_clone_to_owned();
    let listener = listener.map_err(|problem| failed(reason(&problem)))?;
    let here = Here::begin(Known::find(), told.home.with_file_name(HEADERS));
    let known = Known::find();
    let own = File::open(SELF).and_then(|file| Own::of(file, &known));
    let mut own = own.map_err(|problem| failed(reason(&problem)))?;
    let mut link = ssh::start(host, &mut own, &known, &|line| say(&line))?;
    let shown = (told.root == Root::Home).then(Shown::begin);
    let hello = Hello {
        version: VERSION,
        node: told.node,
        trees: told.trees,
        user: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        features: features(),
        memory_bytes: told.memory_bytes,
        now_ns: exact_ns(),
        room: shown.is_some(),
    };
    let hello = serde_json::to_vec(&hello).unwrap_or_default();
    let said = put(&mut link.to, Kind::Hello, 0, &hello);
    let said = said.and_then(|()| match &shown {
        Some(shown) => shown.begin_room(host, &mut link),
        None => take(&mut link.from),
    });
    let welcome: Welcome = match said {
        Ok(Some(Frame { kind: Kind::Welcome, payload, .. })) => serde_json::from_slice(&payload)
            .map_err(|_| failed("its messages are not valid".to_owned()))?,
        Ok(Some(Frame { kind: Kind::Refused, payload, .. })) => {
            let why = String::from_utf8_lossy(&payload).into_owned();
            let remedy = "correct that, or leave it out";
            return Err(Failure::new(format!("cannot use {host}"), why, remedy));
        }
        _ => return Err(failed("husk there ended at once".to_owned())),
    };
    let starter = Starter {
        host: host.to_owned(),
        number: told.number.into(),
        to: Mutex::new(None),
        home: told.home.as_os_str().as_bytes().to_vec(),
        processors: welcome.processors.clamp(1, PROCESSORS_MAX),
        waits: Mutex::default(),
        places: AtomicU32::new(0),
        used: AtomicU32::new(0),
        next: AtomicU32::new(1),
        standing: Mutex::default(),
        compared: Mutex::default(),
        has_compared: Condvar::new(),
        here,
        shown,
        heard: Mutex::new(Instant::now()),
        promises: Mutex::new(Promises::begin(told.home.as_os_str().as_bytes())),
        account: Mutex::new(Account { host: host.to_owned(), ..Account::default() }),
        is_lost: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
    };
    Ok((Arc::new(starter), link, UnixListener::from(listener), told.log))
}

/// Serves until the supervisor wants an end, or the other host is lost.
fn run(starter: &Arc<Starter>, link: ssh::Link, listener: UnixListener) {
    let ssh::Link { mut ssh, to, from } = link;
    *lock(&starter.to) = Some(to);
    starter.tell_places();
    // A queue that is full breaks the protocol.
    let (ask, asked) = sync_channel(QUEUED_MAX);
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..CARRIERS {
        let (starter, asked) = (starter.clone(), asked.clone());
        thread::spawn(move || carry(&starter, &asked));
    }
    let (reads, (over, is_over)) = (starter.clone(), mpsc::channel());
    let looks = starter.clone();
    thread::spawn(move || look_after(&looks));
    let puts = starter.clone();
    let tell = move |kind, channel, payload: &[u8]| puts.put(kind, channel, payload);
    if let Some(shown) = &starter.shown {
        shown.serve(&(Arc::new(tell) as _));
    }
    // Before the first one is to be placed.
    let compares = starter.clone();
    thread::spawn(move || {
        for driver in compares.here.drivers.iter().filter(|_| compares.shown.is_none()) {
            compares.is_same(driver, COMPARE_MAX);
        }
    });
    let (alive, silent) = (starter.clone(), over.clone());
    thread::spawn(move || keep_alive(&alive, &silent));
    let ended = over.clone();
    thread::spawn(move || {
        read_frames(&reads, from, &ask);
        reads.lose();
        let _ = ended.send(());
    });
    let takes = starter.clone();
    thread::spawn(move || {
        for talk in listener.incoming() {
            let Ok(talk) = talk else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let (starter, over) = (takes.clone(), over.clone());
            thread::spawn(move || starter.talk(talk, &over));
        }
    });
    // Whichever comes first: an end that is wanted, or one that has happened.
    let _ = is_over.recv();
    if starter.is_ending.load(Ordering::Relaxed) {
        // One who writes meanwhile waits for a reader that may be gone: ssh is killed then.
        if let Ok(mut to) = starter.to.try_lock() {
            *to = None;
        }
        // The reader has met the end of ssh by then.
        let _ = is_over.recv_timeout(END_MAX);
    }
    let _ = ssh.kill();
    let _ = ssh.wait();
    if !starter.is_ending.load(Ordering::Relaxed) {
        hang_up();
        say(&format!(
            "{} is lost: programs that ran there end as killed, and all others run here",
            starter.host
        ));
        // The supervisor asks for the account at the end; shadows are told meanwhile.
        let _ = is_over.recv();
    }
}

/// Carries requests of the guest to the agent of node 0.
fn carry(starter: &Starter, asked: &Mutex<Receiver<Asked>>) {
    let mut room = vec![0; husk_node::CALL_BYTES_MAX];
    loop {
        let Ok((channel, job, message)) = lock(asked).recv() else { return };
        if starter.is_lost.load(Ordering::Relaxed) {
            return;
        }
        // Nothing comes of what is lost: who asked asks again, or gives up.
        let length = husk_node::ask(&starter.home, &message, &mut room);
        let Some(length) = length else { continue };
        if let Some(shadow) = lock(&starter.standing).get_mut(&job) {
            shadow.spent.bytes += length as u64;
        }
        starter.reply(channel, &message, &room[..length]);
    }
}

/// Calls back what has changed, also while nothing else is said.
fn look_after(starter: &Starter) {
    for turn in 0u64.. {
        thread::sleep(LOOK_EVERY);
        let is_idle = lock(&starter.promises).as_ref().is_none_or(Promises::is_empty);
        if starter.is_lost.load(Ordering::Relaxed) {
            return;
        }
        if !is_idle {
            starter.call_back(&mut lock(&starter.to), turn.is_multiple_of(HOST_EVERY));
        }
    }
}

fn keep_alive(starter: &Starter, over: &Sender<()>) {
    loop {
        thread::sleep(ALIVE_EVERY);
        if lock(&starter.heard).elapsed() > SILENCE_MAX {
            starter.lose();
            let _ = over.send(());
            return;
        }
        // Where one writes, something is on its way.
        if let Ok(mut to) = starter.to.try_lock() {
            let _ = to.as_mut().map(|to| put(to, Kind::Alive, 0, &[]));
        }
    }
}

/// Takes what the guest sends, until it ends or breaks the protocol.
fn read_frames(starter: &Starter, mut from: ChildStdout, ask: &SyncSender<Asked>) {
    while let Ok(Some(frame)) = take(&mut from) {
        *lock(&starter.heard) = Instant::now();
        lock(&starter.account).bytes += frame.payload.len() as u64;
        if starter.is_lost.load(Ordering::Relaxed) || starter.take(frame, ask).is_none() {
            return;
        }
    }
}

/// A place at the other host, given back with the scope.
struct Place<'a>(&'a Starter);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Starter {
    /// Sends a frame; whether somebody takes it is found by the reader.
    fn put(&self, kind: Kind, channel: u32, payload: &[u8]) {
        let mut to = lock(&self.to);
        self.call_back(&mut to, false);
        self.put_to(&mut to, kind, channel, payload);
    }

    fn put_to(&self, to: &mut Option<ChildStdin>, kind: Kind, channel: u32, payload: &[u8]) {
        lock(&self.account).bytes += payload.len() as u64;
        if to.as_mut().is_some_and(|to| put(to, kind, channel, payload).is_err()) {
            *to = None;
        }
    }

    /// Tells the guest which of its copies are so no more, before it is told anything else.
    fn call_back(&self, to: &mut Option<ChildStdin>, hosts: bool) {
        let over = lock(&self.promises).as_mut().map_or(Vec::new(), |told| told.changed(hosts));
        if !over.is_empty() {
            let numbers = over.iter().flat_map(|number| number.to_le_bytes());
            self.put_to(to, Kind::Revise, 0, &numbers.collect::<Vec<_>>());
        }
    }

    /// Sends the answer to a request, and what else the guest may keep.
    fn reply(&self, channel: u32, request: &[u8], answer: &[u8]) {
        let mut to = lock(&self.to);
        self.call_back(&mut to, false);
        let kept = lock(&self.promises).as_mut().map(|told| told.judge(request, answer));
        let Kept { answer: number, file } = kept.unwrap_or_default();
        if let Some(Bytes { copy, hold, bytes }) = file {
            let whole = [&copy.to_le_bytes()[..], &hold.to_le_bytes(), &bytes].concat();
            self.put_to(&mut to, Kind::File, 0, &whole);
        }
        match number {
            Some(number) => {
                let whole = [&number.to_le_bytes()[..], answer].concat();
                self.put_to(&mut to, Kind::Kept, channel, &whole);
            }
            None => self.put_to(&mut to, Kind::Reply, channel, answer),
        }
    }

    /// Tells programs here how many places there are, if that has changed.
    fn tell_places(&self) {
        // Locked until it is said.
        let waits = lock(&self.waits);
        let is_lost = self.is_lost.load(Ordering::Acquire);
        let places = if is_lost { 0 } else { waits.places(self.processors) };
        if self.places.swap(places, Ordering::AcqRel) != places {
            loads::tell(Path::new(OsStr::from_bytes(&self.home)), self.number, places);
        }
    }

    /// `None`: the guest breaks the protocol.
    fn take(&self, frame: Frame, ask: &SyncSender<Asked>) -> Option<()> {
        let Frame { kind, channel, payload } = frame;
        match kind {
            Kind::Alive => {}
            Kind::Ask => self.shown.as_ref()?.ask(channel, &payload)?,
            Kind::Note => Shown::say_not_kept(&self.host, &payload),
            Kind::Request => {
                let (job, message) = payload.split_first_chunk()?;
                let job = u32::from_le_bytes(*job);
                let mut spent = Spent { bytes: payload.len() as u64, ..Spent::default() };
                spent.ask(husk_node::kind_name(message));
                lock(&self.account).round_trips += 1;
                match lock(&self.standing).get_mut(&job) {
                    Some(shadow) => shadow.spent.add(&spent),
                    None => lock(&self.account).nobody.add(&spent),
                }
                ask.try_send((channel, job, message.to_vec())).ok()?;
            }
            Kind::Print => {
                let print = String::from_utf8(payload).ok().filter(|print| !print.is_empty());
                let waiting = lock(&self.compared).waiting.remove(&channel);
                // Who has given up waits no more.
                waiting.map(|waiting| waiting.try_send(print));
            }
            Kind::Output | Kind::Errors => {
                let mut standing = lock(&self.standing);
                // What a dead one's program says is for nobody.
                let Some(shadow) = standing.get_mut(&channel) else { return Some(()) };
                let count = payload.len() as u64;
                shadow.spent.bytes += count;
                let queued = shadow.queued.fetch_add(count, Ordering::Relaxed) + count;
                (queued <= QUEUED_BYTES_MAX).then_some(())?;
                let _ = shadow.tell.send(ToShadow::Output(kind, payload));
            }
            Kind::Status => {
                let (fate, waited) = payload.split_last_chunk()?;
                let fate = Fate::decode(fate)?;
                if let Some(shadow) = self.leave(channel) {
                    lock(&self.waits).note(shadow.since.elapsed(), u32::from_le_bytes(*waited));
                    self.tell_places();
                    let _ = shadow.tell.send(ToShadow::End(fate));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The other host is gone: nobody waits for it.
    fn lose(&self) {
        if self.is_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        self.tell_places();
        if !self.is_ending.load(Ordering::Relaxed) {
            lock(&self.account).lost += lock(&self.standing).len() as u64;
        }
        lock(&self.account).is_lost = true;
        let gone: Vec<_> = lock(&self.standing).drain().map(|(_, shadow)| shadow).collect();
        for shadow in gone {
            lock(&self.account).end(&shadow.name, &shadow.spent);
            let _ = shadow.tell.send(ToShadow::End(Fate::Lost));
        }
        lock(&self.compared).waiting.clear();
    }

    /// Talks with whoever has connected: a program that calls exec, or the supervisor.
    fn talk(self: &Arc<Self>, mut talk: UnixStream, over: &Sender<()>) {
        let mut first = [0];
        if talk.set_read_timeout(Some(JOB_MAX)).is_err() || talk.read_exact(&mut first).is_err() {
            return;
        }
        match first[0] {
            ASKS => drop(self.place(talk, COMPARE_BRIEF)),
            WAITS => drop(self.place(talk, COMPARE_MAX)),
            ENDS => {
                self.is_ending.store(true, Ordering::Relaxed);
                // The supervisor waits no longer than it takes.
                let _ = talk.write_all(&self.account());
                let _ = over.send(());
            }
            // Who does not listen does not hear.
            SEES => drop(talk.write_all(&self.account())),
            _ => {}
        }
    }

    /// What went on so far, as JSON.
    fn account(&self) -> Vec<u8> {
        let mut account = lock(&self.account).clone();
        account.files_bytes = self.shown.as_ref().map_or(0, Shown::bytes);
        account.running = lock(&self.standing)
            .values()
            .map(|shadow| {
                let (name, spent) = (shadow.name.clone(), shadow.spent.clone());
                Running { pid: shadow.pid, name, spent }
            })
            .collect();
        account.running.sort_by_key(|running| running.pid);
        serde_json::to_vec(&account).unwrap_or_default()
    }

    /// A program there has ended, or its shadow here.
    fn leave(&self, channel: u32) -> Option<Standing> {
        let shadow = lock(&self.standing).remove(&channel)?;
        lock(&self.account).end(&shadow.name, &shadow.spent);
        Some(shadow)
    }

    /// Decides about a program that calls exec, within `patience` where it was not compared before,
    /// and stands by its shadow.
    fn place(self: &Arc<Self>, mut talk: UnixStream, patience: Duration) -> io::Result<()> {
        let path = string(&mut talk)?;
        let places = self.processors * PLACES_MAX as u32;
        let taken = self.used.fetch_add(1, Ordering::AcqRel) < places;
        let _place = Place(self);
        let is_lost = self.is_lost.load(Ordering::Relaxed);
        let is_silent = !is_lost && lock(&self.heard).elapsed() > QUIET_MAX;
        let may = taken && !is_lost && !is_silent;
        if is_silent {
            lock(&self.account).silent += 1;
        } else if !may {
            lock(&self.account).busy += 1;
        }
        let may = may && self.is_placed(&path, patience);
        talk.write_all(if may { b"Y" } else { b"N" })?;
        if !may {
            return Ok(());
        }
        match take(&mut talk)? {
            Some(Frame { kind: Kind::Job, payload, .. }) => self.stand(talk, &payload),
            // Its exec has failed; it says why.
            _ => Ok(()),
        }
    }

    /// Starts a job, and carries between its shadow and the guest until one of them has ended.
    fn stand(&self, talk: UnixStream, job: &[u8]) -> io::Result<()> {
        talk.set_read_timeout(None)?;
        let channel = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = mpsc::channel();
        let queued = Arc::<AtomicU64>::default();
        let name = Job::decode(job).map_or(String::new(), |job| name_of(&job));
        let pid = peer(&talk);
        let (tells, spent) = (tell.clone(), Spent::default());
        let standing = Standing {
            tell: tells,
            queued: queued.clone(),
            pid,
            name,
            spent,
            since: Instant::now(),
        };
        lock(&self.standing).insert(channel, standing);
        if self.is_lost.load(Ordering::Acquire) {
            let _ = tell.send(ToShadow::End(Fate::Lost));
        } else {
            lock(&self.account).programs += 1;
            self.put(Kind::Job, channel, job);
        }
        let reader = talk.try_clone()?;
        let over = thread::scope(|scope| {
            scope.spawn(|| self.hear_shadow(reader, channel, &tell));
            let over = tell_shadow(&talk, &told, &queued);
            // Its reader ends.
            let _ = talk.shutdown(std::net::Shutdown::Both);
            over
        });
        self.leave(channel);
        over
    }

    /// Takes what a shadow says until it has ended.
    fn hear_shadow(&self, mut talk: UnixStream, channel: u32, tell: &Sender<ToShadow>) {
        while let Ok(Some(frame)) = take(&mut talk) {
            match frame.kind {
                Kind::Signal | Kind::Credit => self.put(frame.kind, channel, &frame.payload),
                _ => break,
            }
        }
        if lock(&self.standing).contains_key(&channel) {
            // It was killed.
            self.put(Kind::Gone, channel, &[]);
        }
        // Who tells it finds out that it is gone.
        let _ = tell.send(ToShadow::End(Fate::Lost));
    }

    /// Whether the program at `path` may run there; one that may not is counted.
    fn is_placed(self: &Arc<Self>, path: &Path, patience: Duration) -> bool {
        if let Some(shown) = &self.shown {
            let is_shown = shown.is_shown(path);
            lock(&self.account).hidden += u64::from(!is_shown);
            return is_shown;
        }
        let same = self.is_same(path, patience);
        match same {
            Some(true) => {}
            Some(false) => lock(&self.account).different += 1,
            None => lock(&self.account).unknown += 1,
        }
        same == Some(true)
    }

    /// Whether the program at `path` is the same here and there; `None`: that is not known yet.
    fn is_same(self: &Arc<Self>, path: &Path, patience: Duration) -> Option<bool> {
        let known = self.known(path);
        if known.is_some() {
            return known;
        }
        let mut compared = lock(&self.compared);
        if compared.busy.insert(path.to_owned()) {
            let (starter, path) = (self.clone(), path.to_owned());
            thread::spawn(move || starter.compare(&path));
        }
        let patience =
            if self.here.is_driver(path) { patience.max(COMPARE_AGAIN) } else { patience };
        let is_busy = |compared: &mut Compared| compared.busy.contains(path);
        drop(self.has_compared.wait_timeout_while(compared, patience, is_busy));
        self.known(path)
    }

    fn known(&self, path: &Path) -> Option<bool> {
        match self.here.known(path)? {
            None => Some(false),
            here => lock(&self.compared).there.get(path).map(|there| here == *there),
        }
    }

    /// Compares a program, once for all who wait: both hosts look at it at the same time.
    fn compare(&self, path: &Path) {
        thread::scope(|scope| {
            scope.spawn(|| self.print_there(path));
            self.here.print(path);
        });
        lock(&self.compared).busy.remove(path);
        self.has_compared.notify_all();
    }

    fn print_there(&self, path: &Path) {
        if lock(&self.compared).there.contains_key(path) {
            return;
        }
        let channel = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = sync_channel(1);
        lock(&self.compared).waiting.insert(channel, tell);
        self.put(Kind::Compare, channel, path.as_os_str().as_bytes());
        let print = told.recv_timeout(COMPARE_MAX).ok();
        lock(&self.compared).waiting.remove(&channel);
        // What was not answered is asked again.
        if let Some(print) = print {
            lock(&self.compared).there.insert(path.to_owned(), print);
        }
    }
}

/// What people call a program.
fn name_of(job: &Job) -> String {
    let name = Path::new(&job.program).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The process at the other end of a talk; 0: it has gone.
fn peer(talk: &UnixStream) -> u32 {
    let peer = rustix::net::sockopt::socket_peercred(talk);
    peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get() as u32)
}

/// Gives a shadow what there is for it, until its program has ended or it is gone.
fn tell_shadow(
    mut talk: &UnixStream,
    told: &Receiver<ToShadow>,
    queued: &AtomicU64,
) -> io::Result<()> {
    for one in told {
        match one {
            ToShadow::Output(kind, bytes) => {
                put(&mut talk, kind, 0, &bytes)?;
                queued.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
            }
            ToShadow::End(fate) => return put(&mut talk, Kind::Status, 0, &fate.encode()),
        }
    }
    Ok(())
}

/// A path that ends with a NUL.
fn string(from: &mut UnixStream) -> io::Result<PathBuf> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < husk_abi::PATH_MAX {
        from.read_exact(&mut byte)?;
        match byte[0] {
            0 => return Ok(PathBuf::from(OsStr::from_bytes(&text))),
            other => text.push(other),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_programs_wait_for_home_the_more_of_them_run_there() {
        let mut waits = Waits::default();
        assert_eq!(waits.places(4), 4, "nothing is known");
        waits.note(Duration::from_millis(100), 0);
        assert_eq!(waits.places(4), 4);
        waits.note(Duration::from_millis(100), 100);
        assert_eq!(waits.places(4), 8);
        waits.note(Duration::from_millis(100), 9_999);
        assert_eq!(waits.places(4), 12, "none waits for longer than it runs");
        waits.note(Duration::from_millis(9_000), 9_000);
        assert_eq!(waits.places(4), 24, "at most six for each");
        assert_eq!(Waits { ran: 5, waited: 5 }.places(PROCESSORS_MAX), PROCESSORS_MAX * 5);
    }
}
