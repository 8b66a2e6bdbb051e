//! The balancer of one place: a process that runs until `detach`, or until no socket listens.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use husk_abi::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::asking::{DETACH, DONE, LOOK, READY};
use super::check::not_lent;
use super::diag::Diag;
use super::left;
use super::listeners::{
    Member, Place, Seen, Which, accept, are_one_group, ask, borrow, cpu_ns, family, is_there,
    passive_opens, see, shares_its_port,
};
use super::lock;
use super::name::is_trusted;
use super::seen::{Kernel, Moved, Snapshot};
use super::state::file;
use super::way::brought::Brought;
use super::way::{Kind, SOCKETS_MAX, Way, take_away};
use crate::angel::{Angel, Evenness, Tuning};
use crate::groups::{GROUPS, Table};
use crate::problem::Problem;

/// How often Angel looks.
const TICK_US: u64 = 100_000;
/// The same where no connection has come since the last time, and all are even.
const IDLE_TICK_US: u64 = 300_000;
/// How often listeners are looked at; more rarely where no connection comes.
const LOOK_US: u64 = 1_000_000;
const IDLE_LOOK_US: u64 = 2_000_000;
/// How often processes are looked at while their sockets stay the same: that reads each of their
/// descriptors.
const PROCESSES_US: u64 = 5_000_000;
/// How often open connections are counted, which takes milliseconds: while one kernel has more and
/// nothing moves, and while all are even.
const COUNT_LEANING_US: u64 = 1_000_000;
const COUNT_EVEN_US: u64 = 5_000_000;
/// If no group could move, open connections are counted again after the first time; it doubles up
/// to the last.
const COUNT_AGAIN_US: [u64; 2] = [TICK_US, 800_000];
/// How long a move is shown.
const MOVED_US: u64 = 60_000_000;
/// Where connections are guessed, each group begins with so many: more than are ever open.
const BEFORE: u64 = 1 << 32;
/// How long the program steers after a sign of life.
const LIFE_NS: u64 = 2_000_000_000;
/// A client must send its request within this time.
const REQUEST_WITHIN: Duration = Duration::from_millis(100);

/// The arguments of a balancer.
pub struct Wanted {
    /// One process of the server.
    pub pid: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// In which network namespace.
    pub namespace: u64,
    /// What Angel is set to.
    pub tuning: Tuning,
    /// By which way; `None`: the best that works.
    pub way: Option<Kind>,
}

struct Balancer {
    place: Place,
    /// How its sockets are asked about, where Linux has that.
    diag: Option<Diag>,
    way: Way,
    /// If the way does not count connections: the guess for each group, and the last count of the
    /// whole namespace.
    guessed: Option<(Brought, u64)>,
    angel: Angel,
    tuning: Tuning,
    family: Vec<Member>,
    /// Why these sockets cannot be steered as they are now.
    trouble: Option<String>,
    /// Listening sockets: kernel 0, 1, ...
    inodes: Vec<u64>,
    /// The processes that accept from each of them.
    workers: Vec<Vec<u32>>,
    cpu_seen_ns: HashMap<u32, u64>,
    /// Connections by group: counted by the program, open before it began, and open now.
    syns: Vec<u64>,
    before: Vec<u64>,
    open: Vec<u64>,
    began_us: u64,
    ticked_us: u64,
    tick_at_us: u64,
    looked_us: u64,
    processes_us: u64,
    counted_us: u64,
    /// Connections that had come at the last look.
    came: u64,
    moves: u64,
    /// Moves of the last minute: when, and how many groups.
    moved: VecDeque<(u64, usize)>,
    /// When open connections are counted next for groups that may move, and how long it took from
    /// the time before.
    count_at_us: u64,
    count_after_us: u64,
}

/// Balances until the end. Output before `ready` is for the process that has started it.
pub fn balance(wanted: &Wanted) -> Result<(), Problem> {
    // It fails where this process leads a group already, as it does when a shell started it.
    let _ = rustix::process::setsid();
    // Whatever the caller's is: other users may list its files, but not connect.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    allow_descriptors();
    let place = Place { address: wanted.address, namespace: wanted.namespace };
    let ends = end_signals();
    let (_lock, named) = lock::of_balancer(wanted.pid, &place)?;
    let begun = Balancer::begin(wanted, place.clone());
    let mut balancer = begun.inspect_err(|_| lock::leave(&place))?;
    let socket = file(&balancer.place, "socket");
    // A balancer that was killed has left it.
    let _ = fs::remove_file(&socket);
    let door = UnixListener::bind(&socket).and_then(|door| {
        door.set_nonblocking(true)?;
        leave_the_terminal()?;
        Ok(door)
    });
    let door = match door {
        Ok(door) => door,
        Err(why) => {
            // Also if the process that started it has been killed.
            balancer.leave();
            balancer.undo()?;
            return Err(lock::unusable(&why));
        }
    };
    let doors: Vec<_> = named.into_iter().chain([door]).collect();
    if let Some(mut client) = balancer.go_on(&doors, ends.as_ref()) {
        // Another may be attached as soon as this one has answered: nothing of it is left then.
        drop(doors);
        // The client may have gone.
        let _ = client.write_all(DONE.as_bytes());
    }
    Ok(())
}

/// Signals that end it in order. Where they cannot be had, they end it all the same.
fn end_signals() -> Option<SignalFd> {
    let ends: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let heard = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok()?;
    ends.thread_block().ok()?;
    Some(heard)
}

/// A look at the sockets and processes of a server takes some descriptors.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the old limit has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Says that it steers, and detaches from the process that has started it.
fn leave_the_terminal() -> std::io::Result<()> {
    let mut output = std::io::stdout();
    output.write_all(format!("{READY}\n").as_bytes())?;
    output.flush()?;
    std::env::set_current_dir("/")?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// Puts counts into the table. (An open connection may not have been counted, if it came while the
/// program did not steer.)
fn count(syns: &[u64], before: &[u64], open: &[u64], table: &mut Table) {
    for group in 0..GROUPS {
        let syns = syns[group] + before[group];
        table.count(group, syns, open[group].min(syns));
    }
}

impl Balancer {
    fn begin(wanted: &Wanted, place: Place) -> Result<Balancer, Problem> {
        let Wanted { pid, tuning, .. } = *wanted;
        let way = Way::load(wanted.way)?;
        let now_us = now_us();
        let guessed = (way.kind() == Kind::Cbpf)
            .then(|| (Brought::new(now_us), passive_opens(pid).unwrap_or_default()));
        let mut balancer = Balancer {
            place,
            diag: Diag::of(pid).ok(),
            way,
            angel: Angel::new(tuning, Table::spread(1), 1, now_us),
            tuning,
            family: vec![Member {
                pid,
                parent: None,
                holds: HashMap::new(),
                waits: Default::default(),
            }],
            trouble: None,
            inodes: Vec::new(),
            workers: Vec::new(),
            cpu_seen_ns: HashMap::new(),
            syns: vec![0; GROUPS],
            before: vec![if guessed.is_some() { BEFORE } else { 0 }; GROUPS],
            guessed,
            open: vec![0; GROUPS],
            began_us: now_us,
            ticked_us: now_us,
            tick_at_us: now_us + TICK_US,
            looked_us: now_us,
            processes_us: now_us,
            counted_us: now_us,
            came: 0,
            moves: 0,
            moved: VecDeque::new(),
            count_at_us: 0,
            count_after_us: COUNT_AGAIN_US[0],
        };
        balancer.look_at_listeners()?;
        if balancer.inodes.is_empty() {
            let why = format!("nobody listens at {} any more", balancer.place);
            return Err(Problem::new("cannot attach", why, "name a server that runs"));
        }
        Ok(balancer)
    }

    /// Ticks and answers until `detach`, a signal, or the end of the last listening socket. The
    /// client that is to hear of the end, if one has asked for it.
    fn go_on(&mut self, doors: &[UnixListener], ends: Option<&SignalFd>) -> Option<UnixStream> {
        loop {
            let rest_us = self.tick_at_us.saturating_sub(now_us());
            let limit = Timespec { tv_sec: 0, tv_nsec: (rest_us * 1000) as i64 };
            let asked = doors.iter().map(|door| door.as_fd());
            let awaited: Vec<_> = asked.chain(ends.map(AsFd::as_fd)).collect();
            let mut awaited: Vec<_> =
                awaited.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
            // An interrupted wait is a short one.
            let is_asked = poll(&mut awaited, Some(&limit)).is_ok_and(|ready| ready > 0);
            if is_asked && ends.is_some_and(|ends| matches!(ends.read_signal(), Ok(Some(_)))) {
                // Where Linux refuses, nothing more can be done here.
                let _ = self.undo();
                self.leave();
                return None;
            }
            let streams = doors.iter().filter(|_| is_asked).filter_map(|door| door.accept().ok());
            // The file has its rights; a name has none.
            let mut trusted = streams.filter(|(one, _)| is_trusted(one));
            if let Some(client) = trusted.find_map(|(one, _)| self.answer(one)) {
                return Some(client);
            }
            if now_us() >= self.tick_at_us && !self.tick() {
                self.leave();
                return None;
            }
        }
    }

    /// From now on another balancer may begin.
    fn leave(&self) {
        lock::leave(&self.place);
    }

    /// Answers one request. If that was the end, the client still waits for its answer.
    fn answer(&mut self, mut stream: UnixStream) -> Option<UnixStream> {
        let mut request = [0];
        let asked = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(REQUEST_WITHIN)))
            .and_then(|()| stream.read_exact(&mut request));
        let text = match (asked, request[0]) {
            (Ok(()), LOOK) => serde_json::to_string(&self.seen()).unwrap_or_default(),
            (Ok(()), DETACH) => match self.undo() {
                Ok(()) => {
                    self.leave();
                    return Some(stream);
                }
                Err(problem) => format!("{}: {}", problem.what, problem.why),
            },
            _ => return None,
        };
        // The client may have gone.
        let _ = stream.write_all(text.as_bytes());
        None
    }

    /// Linux chooses again.
    fn undo(&mut self) -> Result<(), Problem> {
        self.way.live_until(0);
        // The processes of the last look may have gone since.
        let inodes = self.look(Which::Listening).map_or(Vec::new(), |seen| seen.listening);
        let known: Vec<u32> = self.family.iter().map(|member| member.pid).collect();
        let family = family(&known, &inodes);
        let undo = |&inode: &u64| borrow(&family, inode).and_then(|socket| take_away(&socket));
        let mut refused = None;
        for undone in inodes.iter().map(undo) {
            match undone {
                // One has it for all.
                Ok(_) => return Ok(()),
                Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF) => {}
                Err(errno) => refused = Some(errno),
            }
        }
        let what = "take the program from these sockets";
        refused.map_or(Ok(()), |errno| Err(Problem::refused(what, errno)))
    }

    /// One look and what follows; whether anybody listens.
    fn tick(&mut self) -> bool {
        let now_us = now_us();
        let came_before: u64 = self.syns.iter().sum();
        self.way.read_syns(&mut self.syns);
        let came: u64 = self.syns.iter().sum();
        let every_us = if came == self.came { IDLE_LOOK_US } else { LOOK_US };
        if now_us >= self.looked_us + every_us {
            self.looked_us = now_us;
            self.came = came;
            // If it fails, Linux spreads by hash until the next look.
            self.trouble = self.look_at_listeners().err().map(|problem| problem.why);
            // Without its file, `detach` and `stat` could not find it any more.
            if self.inodes.is_empty() || !file(&self.place, "socket").exists() {
                // Where Linux refuses, nothing more can be done here.
                let _ = self.undo();
                return false;
            }
        }
        self.way.live_until(now_ns() + LIFE_NS);
        // Linux may take now what it has refused before.
        let _ = self.carry_out();
        let cpu = self.cpu(now_us - self.ticked_us);
        self.guess(&cpu);
        let came: u64 = self.syns.iter().sum();
        self.tell_angel();
        self.ticked_us = now_us;
        self.angel.sample(now_us, &cpu);
        let evenness = self.angel.evenness();
        let is_idle = came == came_before && evenness == Evenness::Even;
        self.tick_at_us = now_us + if is_idle { IDLE_TICK_US } else { TICK_US };
        let count_again_us = match evenness {
            Evenness::Uneven if now_us >= self.count_at_us => {
                self.even_out(now_us);
                return true;
            }
            Evenness::Even => COUNT_EVEN_US,
            Evenness::Leans | Evenness::Uneven => COUNT_LEANING_US,
        };
        if now_us >= self.counted_us + count_again_us {
            self.count_open();
        }
        true
    }

    /// Groups move, if any can.
    fn even_out(&mut self, now_us: u64) {
        self.count_open();
        self.tell_angel();
        let moves = self.angel.balance();
        for one in &moves {
            self.way.assign(one.group, one.target);
        }
        // Else with the next tick.
        let _ = self.carry_out();
        let [first_us, last_us] = COUNT_AGAIN_US;
        if moves.is_empty() {
            self.count_after_us = (self.count_after_us * 2).min(last_us);
        } else {
            self.count_after_us = first_us;
            self.moves += moves.len() as u64;
            self.moved.push_back((now_us, moves.len()));
            while self.moved.front().is_some_and(|(at_us, _)| at_us + MOVED_US < now_us) {
                self.moved.pop_front();
            }
        }
        self.count_at_us = now_us + self.count_after_us;
    }

    /// Finds the sockets that listen, and the processes that accept from them.
    fn look_at_listeners(&mut self) -> Result<(), Problem> {
        let inodes = self.look(Which::Listening).map_or(Vec::new(), |seen| seen.listening);
        if !inodes.is_empty() && self.knows_who_accepts(&inodes) {
            return Ok(());
        }
        self.processes_us = now_us();
        let known: Vec<u32> = self.family.iter().map(|member| member.pid).collect();
        let family = family(&known, &inodes);
        if inodes.is_empty() || family.is_empty() {
            self.inodes.clear();
            return Ok(());
        }
        self.family = family;
        if inodes.len() > SOCKETS_MAX {
            // The sockets left out would get no connection at all.
            self.inodes.clear();
            let what = format!("cannot steer the connections of {}", self.place);
            let why = format!(
                "it has {} listening sockets, at most {SOCKETS_MAX} can be steered",
                inodes.len()
            );
            return Err(Problem::new(what, why, "start fewer processes, or leave it to Linux"));
        }
        let known = self.inodes.iter().copied().filter(|inode| inodes.contains(inode));
        let new = inodes.iter().copied().filter(|inode| !self.inodes.contains(inode));
        let listens: Vec<u64> = known.chain(new).collect();
        if listens != self.inodes || !self.way.is_attached() {
            self.steer(listens)?;
        }
        let worker = |&inode: &u64| accept(&self.family, inode);
        self.workers = self.inodes.iter().map(worker).collect();
        Ok(())
    }

    /// Whether these are the sockets that are steered, and all processes that accept still run.
    fn knows_who_accepts(&self, inodes: &[u64]) -> bool {
        let same = self.way.is_attached()
            && inodes.len() == self.inodes.len()
            && inodes.iter().all(|inode| self.inodes.contains(inode));
        let recent = now_us() < self.processes_us + PROCESSES_US;
        let accepted = |pids: &Vec<u32>| !pids.is_empty() && pids.iter().all(|&pid| is_there(pid));
        same && recent && self.workers.iter().all(accepted)
    }

    /// The sockets of the place, while anybody listens whom we know.
    fn look(&self, which: Which) -> Option<Seen> {
        let asked = self.diag.as_ref().and_then(|diag| ask(diag, &self.place, which).ok());
        // The next one where the first has gone.
        let read = || {
            let mut read = self.family.iter().map(|member| see(member.pid, &self.place));
            read.find(|seen| !seen.listening.is_empty())
        };
        asked.or_else(read)
    }

    /// Steers among these sockets from now on. Groups stay with sockets that are still there.
    fn steer(&mut self, listens: Vec<u64>) -> Result<(), Problem> {
        let what = format!("cannot steer the connections of {}", self.place);
        let sockets = listens.iter().map(|&inode| borrow(&self.family, inode));
        let sockets: Vec<OwnedFd> = sockets.collect::<Result<_, _>>().map_err(not_lent)?;
        if !sockets.iter().all(shares_its_port) {
            let remedy = "let it listen with SO_REUSEPORT (nginx: `listen ... reuseport`)";
            return Err(Problem::new(what, "its socket does not share its port", remedy));
        }
        if !are_one_group(&sockets) {
            let why = "Linux keeps its sockets apart: some are bound to an interface \
                       (SO_BINDTODEVICE), or take IPv6 alone, and others not";
            return Err(Problem::new(what, why, "let all of them listen alike"));
        }
        let kernel = |group: usize| {
            let before = self.inodes.get(self.angel.table.group(group).kernel);
            let still = before.and_then(|inode| listens.iter().position(|one| one == inode));
            still.unwrap_or(group % listens.len())
        };
        let mut table = Table::of(kernel);
        (0..GROUPS).for_each(|group| self.way.assign(group, table.group(group).kernel));
        self.way.live_until(now_ns() + LIFE_NS);
        let pid = self.family.first().map_or(0, |member| member.pid);
        if self.guessed.is_some() {
            left::note(pid, &self.place, &listens).map_err(|why| lock::unusable(&why))?;
        }
        self.way.steer(pid, &self.place, &sockets)?;
        drop(sockets);
        self.count_open();
        self.way.read_syns(&mut self.syns);
        if self.inodes.is_empty() && self.guessed.is_none() {
            self.before = self.open.clone();
        }
        count(&self.syns, &self.before, &self.open, &mut table);
        self.angel = Angel::new(self.tuning, table, listens.len(), now_us());
        self.inodes = listens;
        Ok(())
    }

    fn count_open(&mut self) {
        self.counted_us = now_us();
        if let Some(seen) = self.look(Which::All) {
            self.open = seen.open;
        }
        if let Some((brought, _)) = &mut self.guessed {
            brought.see(self.counted_us, &self.open);
        }
    }

    /// Guesses the connections since the last time, if nothing counts them.
    fn guess(&mut self, cpu: &[f64]) {
        let pids = self.family.iter().map(|member| member.pid);
        let Some((brought, opened)) = &mut self.guessed else { return };
        let now = pids.into_iter().find_map(passive_opens).unwrap_or(*opened);
        brought.add(now.saturating_sub(*opened), cpu, &self.angel.table);
        brought.read(&mut self.syns);
        *opened = now;
    }

    /// Makes the assigned table hold.
    fn carry_out(&mut self) -> Result<(), Problem> {
        let (family, inodes) = (&self.family, &self.inodes);
        self.way.carry_out(|| borrow(family, *inodes.first().ok_or(Errno::ENOENT)?))
    }

    /// Puts the counts into Angel's table.
    fn tell_angel(&mut self) {
        count(&self.syns, &self.before, &self.open, &mut self.angel.table);
    }

    /// The share of a CPU that each socket's processes use. A process that accepts from several
    /// sockets is divided among them.
    fn cpu(&mut self, step_us: u64) -> Vec<f64> {
        let mut all: HashMap<u32, (f64, u64)> = HashMap::new();
        for &pid in self.workers.iter().flatten() {
            let (parts, ran_ns) = all.entry(pid).or_insert((0.0, 0));
            *parts += 1.0;
            if *parts == 1.0 {
                let now_ns = cpu_ns(pid);
                let before_ns = self.cpu_seen_ns.get(&pid).copied().unwrap_or(now_ns);
                self.cpu_seen_ns.insert(pid, now_ns);
                *ran_ns = now_ns.saturating_sub(before_ns);
            }
        }
        // Others may get the numbers of processes that have gone.
        self.cpu_seen_ns.retain(|pid, _| all.contains_key(pid));
        let part = |pid: &u32| all.get(pid).map_or(0.0, |(parts, ran_ns)| *ran_ns as f64 / parts);
        let share = |workers: &Vec<u32>| {
            workers.iter().map(part).sum::<f64>() / 1e3 / step_us.max(1) as f64
        };
        self.workers.iter().map(share).collect()
    }

    fn seen(&mut self) -> Snapshot {
        self.count_open();
        self.way.read_syns(&mut self.syns);
        self.tell_angel();
        let is_counted = self.guessed.is_none();
        let looks = self.angel.looks();
        let kernel = |(kernel, look): (usize, &crate::angel::Look)| {
            let groups = self.angel.table.groups().iter().filter(move |one| one.kernel == kernel);
            Kernel {
                kernel,
                pid: match self.workers[kernel][..] {
                    [pid] => Some(pid),
                    _ => None,
                },
                processes: self.workers[kernel].len(),
                groups: groups.clone().count(),
                syns: is_counted.then(|| groups.clone().map(|group| group.syns).sum()),
                open: groups.map(|group| group.open()).sum(),
                arrivals_per_s: is_counted.then_some(look.arrivals_per_s),
                connections: look.connections,
                cpu: look.cpu,
                load: look.load,
            }
        };
        let now_us = now_us();
        let moved = |&(at_us, groups): &(u64, usize)| {
            let ago_us = now_us.saturating_sub(at_us);
            (ago_us <= MOVED_US).then_some(Moved { ms_ago: ago_us / 1000, groups })
        };
        let loads: f64 = looks.iter().map(|look| look.load).sum();
        let worst = looks.iter().map(|look| look.load).fold(0.0, f64::max);
        let came = || self.angel.table.groups().iter().map(|group| group.syns).sum();
        Snapshot {
            address: self.place.to_string(),
            way: self.way.kind(),
            namespace: self.place.namespace,
            pid: self.family.first().map_or(0, |member| member.pid),
            balancer: std::process::id(),
            seconds: (now_us - self.began_us) / 1_000_000,
            connections: is_counted.then(came),
            moves: self.moves,
            moved: self.moved.iter().filter_map(moved).collect(),
            worst_over_mean: if loads > 0.0 { worst * looks.len() as f64 / loads } else { 1.0 },
            trouble: self.trouble.clone(),
            kernels: looks.iter().enumerate().map(kernel).collect(),
        }
    }
}
