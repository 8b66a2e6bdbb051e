//! Who asks, each connection from a source port of a chosen flow group: clients that connect, wait
//! for the answer and think. `paced` asks without waiting.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_net::groups::group_of;
use husk_net::sim::Random;
use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use super::paced;
use crate::bench::measure::lab::SENDER;

/// Clients.
pub const CLIENTS: usize = 48;
/// What comes before does not count: Angel has a second to even out.
pub const SETTLE: Duration = Duration::from_secs(1);
/// What begins in the time after that counts.
pub const WINDOW: Duration = Duration::from_millis(1500);
/// Who has no answer by then has failed.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Source ports that clients take.
const PORTS: std::ops::Range<usize> = 1024..65_536;
/// What is asked.
pub const REQUEST: &[u8] = b"GET /page.txt HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
/// What a compressed body begins with.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Where connections come from.
#[derive(Clone, Copy)]
pub struct Load {
    /// As printed.
    pub name: &'static str,
    /// Part of them that comes from the flow groups that the first kernel has in the beginning; the
    /// others come from all.
    pub of_first: f64,
}

/// The three loads.
pub const LOADS: &[Load] = &[
    Load { name: "even", of_first: 0.0 },
    Load { name: "skewed", of_first: 0.6 },
    Load { name: "attacked", of_first: 1.0 },
];

impl Load {
    /// A source port.
    pub fn port(self, kernels: usize, random: &mut Random) -> u16 {
        let of_first = (random.below(1000) as f64) < self.of_first * 1000.0;
        loop {
            let port = (PORTS.start + random.below(PORTS.len())) as u16;
            if !of_first || group_of(port).is_multiple_of(kernels) {
                return port;
            }
        }
    }
}

/// What the clients have seen.
#[derive(Default)]
pub struct Seen {
    /// When each answered request began, or was due, also before they count, and how long it took,
    /// in milliseconds.
    pub course: Vec<(Duration, f64)>,
    /// Requests without the right answer.
    pub failed: u64,
    /// Who answered those that count, where answers say so.
    pub workers: HashMap<String, u64>,
    /// How long after they were due requests were sent, in milliseconds.
    pub late_ms: Vec<f64>,
}

impl Seen {
    fn add(mut self, other: Seen) -> Seen {
        self.course.extend(other.course);
        self.failed += other.failed;
        for (worker, count) in other.workers {
            *self.workers.entry(worker).or_default() += count;
        }
        self.late_ms.extend(other.late_ms);
        self
    }

    /// One that began then, and what came of it by now.
    pub fn take(&mut self, at: Duration, now: Duration, answer: std::io::Result<Option<String>>) {
        let Ok(worker) = answer else {
            self.failed += 1;
            return;
        };
        self.course.push((at, (now - at).as_secs_f64() * 1e3));
        if at >= SETTLE {
            worker.into_iter().for_each(|one| *self.workers.entry(one).or_default() += 1);
        }
    }
}

/// Begins to connect, from there.
pub fn begin(
    source: SocketAddr,
    target: SocketAddr,
    flags: SocketFlags,
) -> std::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &source)?;
    match connect(&socket, &target) {
        Err(rustix::io::Errno::INPROGRESS) | Ok(()) => Ok(socket),
        Err(why) => Err(why.into()),
    }
}

/// Whether another client has that port.
pub fn is_taken(why: &std::io::Error) -> bool {
    [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable].contains(&why.kind())
}

/// Who gave a whole answer, if it says so.
pub fn worker(answer: &[u8]) -> std::io::Result<Option<String>> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_default();
    let head = String::from_utf8_lossy(&answer[..end]);
    let is_fine = head.split(' ').nth(1) == Some("200");
    let is_packed = answer[end..].get(4..).is_some_and(|body| body.starts_with(GZIP));
    if !(is_fine && is_packed) {
        return Err(std::io::Error::other(format!("not what was asked for: {head:?}")));
    }
    let worker = head.lines().find_map(|line| line.strip_prefix("X-Worker: "));
    Ok(worker.map(str::to_owned))
}

/// One request over a connection of its own; who answered, if the answer says so.
pub fn ask(target: SocketAddr, port: u16) -> std::io::Result<Option<String>> {
    let source = SocketAddr::from((SENDER, port));
    let mut stream = TcpStream::from(begin(source, target, SocketFlags::empty())?);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    worker(&answer)
}

/// One client: until the end of the window.
fn play(target: SocketAddr, random: &mut Random, one: &Ask, think_us: f64, began: Instant) -> Seen {
    let mut seen = Seen::default();
    let think = |random: &mut Random| {
        thread::sleep(Duration::from_micros(random.exponential_us(think_us)));
    };
    think(random);
    while began.elapsed() < SETTLE + WINDOW {
        let at = began.elapsed();
        match ask(target, one.load.port(one.kernels, random)) {
            Err(why) if is_taken(&why) => continue,
            answer => seen.take(at, began.elapsed(), answer),
        }
        think(random);
    }
    seen
}

/// When a request begins.
#[derive(Clone, Copy)]
pub enum Pace {
    /// `CLIENTS` clients: each waits for its answer, and thinks so long on average.
    Waiting {
        /// In microseconds.
        think_us: f64,
    },
    /// At a constant rate, whether those before are answered or not.
    Constant {
        /// Requests a second.
        per_s: f64,
    },
}

/// What clients do.
pub struct Ask {
    /// Where they come from.
    pub load: Load,
    /// How many kernels there are.
    pub kernels: usize,
    /// When.
    pub pace: Pace,
    /// Where their ports and times come from.
    pub seed: u64,
}

/// All clients ask, in a network namespace; `settled` runs when requests begin to count.
pub fn run(
    namespace: &File,
    target: SocketAddr,
    ask: &Ask,
    settled: impl FnOnce(),
) -> anyhow::Result<Seen> {
    let clients = match ask.pace {
        Pace::Waiting { .. } => CLIENTS,
        Pace::Constant { .. } => 1,
    };
    let start = Barrier::new(clients + 1);
    thread::scope(|scope| {
        let client = |number: usize| {
            let start = &start;
            scope.spawn(move || {
                let entered = setns(namespace, CloneFlags::CLONE_NEWNET);
                start.wait();
                entered.context("cannot enter the network namespace of the clients")?;
                let mut random = Random::new(ask.seed * CLIENTS as u64 + number as u64);
                let now = Instant::now();
                anyhow::Ok(match ask.pace {
                    Pace::Waiting { think_us } => play(target, &mut random, ask, think_us, now),
                    Pace::Constant { per_s } => {
                        paced::play((SENDER, target), random, ask, per_s, now)?
                    }
                })
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        start.wait();
        thread::sleep(SETTLE);
        settled();
        let mut all = Seen::default();
        for client in clients {
            let seen = client.join().unwrap_or_else(|_| anyhow::bail!("a client has panicked"))?;
            all = all.add(seen);
        }
        Ok(all)
    })
}
