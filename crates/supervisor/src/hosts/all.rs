//! All other hosts of an image: which there are, and which of them start, serve, or are lost.
//!
//! ```text
//!   start ─► starting ─► up ─► lost ─► (start: another session, under the same number)
//!                └─► failed: its place is free again
//! ```
//!
//! A place in the list is the number of a host, which `HUSK_NODE` names and its socket has.
//!
//! Invariants
//! 1. A socket has its name only while its host is up: nobody who calls exec waits for one that
//!    starts.
//! 2. No two sessions of an image are the same node for the home of all names: what one had open is
//!    let go of when it is over.
//! 3. Nothing here waits but `wait`, `end` and `Leaving::end`, each for a bounded time.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use husk_node::AFAR;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hosts::account::{self, Account};
use crate::hosts::loads;
use crate::hosts::program::apart::Apart;
use crate::hosts::session::ssh;
use crate::hosts::session::starter::{self, Orders};
use crate::hosts::{HOSTS_MAX, MEMORY_BYTES, Root, SHADOW, socket_name};
use crate::image::descriptors::inherited;
use crate::named::{Name, SELF};
use crate::nodes::Tree;
use crate::output::failure::Failure;
use crate::output::say;
use crate::process::children::end_of;
use crate::process::reaper::descendants;
use crate::run::request::reason;

/// How long a starter may take for its account, and to end.
const END_MAX: Duration = Duration::from_secs(20);
/// Most that a starter says.
const SAID_BYTES_MAX: usize = 64 << 10;
/// Most sessions that an image has one after the other: the dead are told to each agent.
const SESSIONS_MAX: u16 = 1000;

/// How a host stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Starting,
    Up,
    Lost,
}

/// What has become of one.
#[derive(Debug)]
pub enum News {
    /// It serves.
    Up,
    /// It could not be started.
    Failed(Failure),
    /// It was lost: the node that it was is dead.
    Lost(u16),
}

/// One session with a host.
struct Session {
    node: u16,
    starter: Child,
    output: ChildStdout,
    said: Vec<u8>,
    since: Instant,
    state: State,
}

/// A host's place; without a session it is free.
struct Place {
    host: String,
    session: Option<Session>,
}

/// The other hosts of an image.
pub struct Hosts {
    home: PathBuf,
    trees: Vec<Tree>,
    root: Root,
    log: Option<Name>,
    all: Vec<Place>,
    sessions: u16,
    /// What went on is told at the end.
    tells: bool,
}

/// A host that leaves: it is ended by who has this.
pub struct Leaving {
    socket: PathBuf,
    session: Session,
}

impl Hosts {
    /// None yet; node 0 listens at `home`, and has these trees. Outside of those, programs see the
    /// files of `root`. The image `log` has a log.
    pub fn none(
        home: &Path,
        trees: Vec<Tree>,
        root: Root,
        log: Option<Name>,
    ) -> Result<Hosts, Failure> {
        let (home, all, own) = (home.to_owned(), Vec::new(), format!("/proc/{}/exe", id()));
        let shadow = home.with_file_name(SHADOW);
        // One that another supervisor has made leads nowhere.
        let _ = std::fs::remove_file(&shadow);
        let made = std::os::unix::fs::symlink(own, shadow);
        // Who enters an image with a name brings its own descriptors.
        let noted = made.and_then(|()| loads::make(&home)).and_then(|()| match log {
            Some(_) => Ok(()),
            None => {
                let mut apart = Apart::default();
                apart.came(id(), &inherited());
                apart.write(&home)
            }
        });
        noted.map_err(|problem| {
            Failure::new("cannot use other hosts", reason(&problem), "see `husk check`")
        })?;
        Ok(Hosts { home, trees, root, log, all, sessions: 0, tells: false })
    }

    /// How many numbers there are.
    pub fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// The hosts by number, the first of which is 1; no text: that number is free.
    pub fn names(&self) -> Vec<String> {
        let named = |place: &Place| match place.session {
            Some(_) => place.host.clone(),
            None => String::new(),
        };
        self.all.iter().map(named).collect()
    }

    /// Begins a session with `host`, under the number it had if it is lost, else under a free one.
    pub fn start(&mut self, host: &str) -> Result<(), Failure> {
        let refuse =
            |why: &str, remedy: &str| Err(Failure::new(format!("cannot use {host}"), why, remedy));
        let known = self.all.iter().position(|place| place.host == host);
        let state = known.and_then(|at| self.all[at].session.as_ref()).map(|one| one.state);
        match state {
            Some(State::Up) => return refuse("it is in the image already", "see `husk nodes`"),
            Some(State::Starting) => return refuse("it is being added", "see `husk nodes`"),
            Some(State::Lost) | None => {}
        }
        let free = || self.all.iter().position(|place| place.session.is_none());
        let Some(at) = known.or_else(free).or(Some(self.all.len())).filter(|at| *at < HOSTS_MAX)
        else {
            return refuse(&format!("an image has at most {HOSTS_MAX} hosts"), "leave it out");
        };
        if let Some(account) = self.leave_at(at).and_then(Leaving::end) {
            say(&account.line());
        }
        self.start_at(at, host)
    }

    /// The same under the next number.
    pub fn start_next(&mut self, host: &str) -> Result<(), Failure> {
        self.start_at(self.all.len(), host)
    }

    fn start_at(&mut self, at: usize, host: &str) -> Result<(), Failure> {
        let refuse =
            |why: &str, remedy: &str| Err(Failure::new(format!("cannot use {host}"), why, remedy));
        if self.sessions >= SESSIONS_MAX {
            let why = format!("the image has had {SESSIONS_MAX} sessions with hosts");
            return refuse(&why, "take it down and up again");
        }
        self.sessions += 1;
        let session = self.begin(host, at, AFAR + self.sessions).map_err(|problem| {
            Failure::new(format!("cannot use {host}"), reason(&problem), "see `husk check`")
        })?;
        let place = Place { host: host.to_owned(), session: Some(session) };
        match self.all.get_mut(at) {
            Some(before) => *before = place,
            None => self.all.push(place),
        }
        Ok(())
    }

    /// Leaves the next number free.
    pub fn skip(&mut self) {
        self.all.push(Place { host: String::new(), session: None });
    }

    /// Removes the socket of a starter that another supervisor had.
    pub fn forget_socket(&self, at: usize) {
        // It may not have been up.
        let _ = std::fs::remove_file(self.socket(at));
    }

    fn begin(&self, host: &str, at: usize, node: u16) -> io::Result<Session> {
        let socket = self.new_socket(node);
        let _ = std::fs::remove_file(&socket);
        let listener = OwnedFd::from(UnixListener::bind(&socket)?);
        let told = Orders {
            node,
            number: at as u16 + 1,
            home: self.home.clone(),
            trees: self.trees.clone(),
            memory_bytes: MEMORY_BYTES,
            root: self.root,
            log: self.log.as_ref().map(ToString::to_string),
        };
        let mut starter = Command::new(SELF)
            .args(["serve-host", host, &serde_json::to_string(&told)?])
            .stdin(Stdio::from(listener))
            .stdout(Stdio::piped())
            .spawn()?;
        let output = starter.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let (said, since, state) = (Vec::new(), Instant::now(), State::Starting);
        Ok(Session { node, starter, output, said, since, state })
    }

    /// Where a starter listens before its host is up, and after that.
    fn new_socket(&self, node: u16) -> PathBuf {
        self.home.with_file_name(format!("new{}", node - AFAR))
    }

    fn socket(&self, at: usize) -> PathBuf {
        self.home.with_file_name(socket_name(at as u16 + 1))
    }

    /// What has become of those that were being started, by host.
    pub fn news(&mut self) -> Vec<(String, News)> {
        let mut all = Vec::new();
        for at in 0..self.all.len() {
            let host = self.all[at].host.clone();
            let starting = self.all[at].session.as_mut();
            let starting = starting.filter(|session| session.state == State::Starting);
            let Some(news) = starting.and_then(|session| session.hear(&host)) else { continue };
            let (from, to) = (self.new_socket(self.all[at].node()), self.socket(at));
            let news = match news {
                News::Up => match std::fs::rename(from, to) {
                    Ok(()) => News::Up,
                    Err(problem) => {
                        let what = format!("cannot use {host}");
                        News::Failed(Failure::new(what, reason(&problem), "see `husk check`"))
                    }
                },
                other => other,
            };
            if let News::Failed(_) = news
                && let Some(leaving) = self.leave_at(at)
            {
                leaving.end();
            }
            all.push((host, news));
        }
        self.trim();
        all
    }

    /// The nodes of hosts that were lost since this was asked last: they are dead.
    pub fn lost(&mut self) -> Vec<u16> {
        let mut all = Vec::new();
        for at in 0..self.all.len() {
            let host = self.all[at].host.clone();
            let up = self.all[at].session.as_mut().filter(|session| session.state == State::Up);
            if let Some(News::Lost(node)) = up.and_then(|session| session.hear(&host)) {
                // Its starter may have been killed.
                loads::tell(&self.home, at + 1, 0);
                all.push(node);
            }
        }
        all
    }

    /// Gives back free numbers at the end.
    fn trim(&mut self) {
        while self.all.last().is_some_and(|place| place.session.is_none()) {
            self.all.pop();
        }
    }

    /// Waits until all are up. An error: one cannot be.
    pub fn wait(&mut self) -> Result<(), Failure> {
        loop {
            for (_, news) in self.news() {
                if let News::Failed(failure) = news {
                    return Err(failure);
                }
            }
            let starting = self.sessions().filter(|one| one.state == State::Starting);
            let mut all: Vec<_> = starting
                .map(|one| PollFd::from_borrowed_fd(one.output.as_fd(), PollFlags::IN))
                .collect();
            if all.is_empty() {
                self.tells = true;
                return Ok(());
            }
            // What is late is found by `news`.
            let _ = poll(&mut all, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }

    /// They are told of at the end, whether or not all were up.
    pub fn tell_at_end(&mut self) {
        self.tells = true;
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.all.iter().filter_map(|place| place.session.as_ref())
    }

    /// The processes that carry their links: the starters, and what ssh consists of.
    pub fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        self.sessions().map(|session| session.starter.id()).flat_map(|starter| {
            let others = descendants(starter).into_iter().map(|pid| pid.as_raw() as u32);
            std::iter::once(starter).chain(others)
        })
    }

    /// Takes a host out of the image: what is to be ended, and the node that is dead then. A host
    /// that programs run on is left alone, unless `force` says otherwise.
    pub fn leave(&mut self, host: &str, force: bool) -> Result<(Leaving, u16), Failure> {
        let refuse =
            |why: String, remedy| Failure::new(format!("cannot remove {host}"), why, remedy);
        let at = self.all.iter().position(|place| place.host == host && place.session.is_some());
        let Some(at) = at else {
            let why = "it is not a host of the image".to_owned();
            return Err(refuse(why, "see `husk nodes IMAGE`"));
        };
        let asked = (!force).then(|| account::ask(&self.socket(at), account::SEES, END_MAX));
        if let Some(Some(Account { running, .. })) = asked
            && let Some(first) = running.first()
        {
            let count = running.len();
            let why = format!("{count} programs run there, as {} ({})", first.name, first.pid);
            return Err(refuse(why, "wait for them, or add --force"));
        }
        let node = self.all[at].node();
        let Some(leaving) = self.leave_at(at) else { unreachable!("it has a session") };
        self.trim();
        // Nobody is sent there from now on.
        let gone = leaving.socket.with_file_name(format!("old{}", node - AFAR));
        let moved = std::fs::rename(&leaving.socket, &gone);
        let socket = if moved.is_ok() { gone } else { leaving.socket };
        Ok((Leaving { socket, ..leaving }, node))
    }

    fn leave_at(&mut self, at: usize) -> Option<Leaving> {
        let socket = self.socket(at);
        let place = self.all.get_mut(at)?;
        let session = place.session.take()?;
        place.host.clear();
        loads::tell(&self.home, at + 1, 0);
        Some(Leaving { socket, session })
    }

    /// Ends all: what went on with each, a line each.
    pub fn end(&mut self) -> Vec<String> {
        let mut all: Vec<_> = (0..self.all.len()).filter_map(|at| self.leave_at(at)).collect();
        // All are told before one is waited for.
        let accounts: Vec<_> = all.iter_mut().map(Leaving::tell).collect();
        all.into_iter().for_each(Leaving::wait);
        let tells = |_: &Account| self.tells;
        accounts.into_iter().flatten().filter(tells).map(|account| account.line()).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.end().iter().for_each(|line| say(line));
    }
}

impl Place {
    fn node(&self) -> u16 {
        self.session.as_ref().map_or(0, |session| session.node)
    }
}

impl Leaving {
    /// Ends it: what went on with it.
    pub fn end(mut self) -> Option<Account> {
        let account = self.tell();
        self.wait();
        account
    }

    fn tell(&mut self) -> Option<Account> {
        if self.session.state != State::Starting {
            return account::ask(&self.socket, starter::ENDS, END_MAX);
        }
        // It leads a session of its own, in which ssh is; or it has not come so far.
        let _ = killpg(Pid::from_raw(self.session.starter.id() as i32), Signal::SIGKILL);
        let _ = self.session.starter.kill();
        None
    }

    fn wait(mut self) {
        // It ends when ssh has, which has a limit; who does not is killed.
        let _ = end_of(&mut self.session.starter, END_MAX);
        let _ = self.session.starter.kill();
        let _ = self.session.starter.wait();
        for socket in [&self.socket, &self.socket.with_file_name(self.session.new_name())] {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Session {
    fn new_name(&self) -> String {
        format!("new{}", self.node - AFAR)
    }

    /// What its starter has said by now.
    fn hear(&mut self, host: &str) -> Option<News> {
        if self.state == State::Lost {
            return None;
        }
        let is_over = self.read();
        if self.state == State::Up {
            return is_over.then(|| {
                self.state = State::Lost;
                News::Lost(self.node)
            });
        }
        let what = format!("cannot use {host}");
        let failed = |why: &str| {
            News::Failed(Failure::new(what.as_str(), why, "try again, or leave it out"))
        };
        let whole =
            self.said.strip_suffix(b"\n").map(serde_json::from_slice::<Result<(), Failure>>);
        match whole {
            Some(Ok(Ok(()))) => {
                self.state = State::Up;
                Some(News::Up)
            }
            Some(Ok(Err(failure))) => Some(News::Failed(failure)),
            Some(Err(_)) => Some(failed("it does not answer")),
            None if is_over || self.since.elapsed() > ssh::START_MAX => {
                Some(failed("it does not answer"))
            }
            None => None,
        }
    }

    /// Takes what there is; whether its end has come.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.output.read(&mut bytes) {
                Ok(0) => return true,
                Ok(got) if self.said.len() < SAID_BYTES_MAX => {
                    self.said.extend_from_slice(&bytes[..got]);
                }
                Ok(_) => return true,
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

fn id() -> u32 {
    std::process::id()
}
