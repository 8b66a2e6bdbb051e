//! Who asks: clients that connect, wait for the answer and think, each connection from a source
//! port of a chosen flow group.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_net::groups::group_of;
use husk_net::sim::Random;
use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use crate::bench::measure::lab::SENDER;

/// Clients.
pub const CLIENTS: usize = 48;
/// What comes before does not count: Angel has a second to even out.
pub const SETTLE: Duration = Duration::from_secs(1);
/// What begins in the time after that counts.
pub const WINDOW: Duration = Duration::from_millis(1500);
/// Who has no answer by then has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Source ports that clients take.
const PORTS: std::ops::Range<usize> = 1024..65_536;
const REQUEST: &[u8] = b"GET /page.txt HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
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
    fn port(self, kernels: usize, random: &mut Random) -> u16 {
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
    /// Times of requests that count, in milliseconds.
    pub took_ms: Vec<f64>,
    /// When each answered one began, also before they count, and how long it took.
    pub course: Vec<(Duration, f64)>,
    /// Requests without the right answer.
    pub failed: u64,
    /// Who answered, where answers say so.
    pub workers: HashMap<String, u64>,
}

impl Seen {
    fn add(mut self, other: Seen) -> Seen {
        self.took_ms.extend(other.took_ms);
        self.course.extend(other.course);
        self.failed += other.failed;
        for (worker, count) in other.workers {
            *self.workers.entry(worker).or_default() += count;
        }
        self
    }
}

/// One request over a connection of its own; who answered, if the answer says so.
pub fn ask(target: SocketAddr, port: u16) -> std::io::Result<Option<String>> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((SENDER, port)))?;
    connect(&socket, &target)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
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

/// One client: until the end of the window.
fn play(target: SocketAddr, random: &mut Random, one: &Ask, began: Instant) -> Seen {
    let mut seen = Seen::default();
    thread::sleep(Duration::from_micros(random.exponential_us(one.think_us)));
    while began.elapsed() < SETTLE + WINDOW {
        let (start, at) = (Instant::now(), began.elapsed());
        let asked = ask(target, one.load.port(one.kernels, random));
        let taken = [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable];
        match asked {
            // Another client has that port.
            Err(why) if taken.contains(&why.kind()) => continue,
            Err(_) => seen.failed += 1,
            Ok(worker) => {
                let took_ms = start.elapsed().as_secs_f64() * 1e3;
                seen.course.push((at, took_ms));
                if at >= SETTLE {
                    seen.took_ms.push(took_ms);
                    worker.into_iter().for_each(|one| *seen.workers.entry(one).or_default() += 1);
                }
            }
        }
        thread::sleep(Duration::from_micros(random.exponential_us(one.think_us)));
    }
    seen
}

/// What clients do.
pub struct Ask {
    /// Where they come from.
    pub load: Load,
    /// How many kernels there are.
    pub kernels: usize,
    /// How long a client thinks, on average.
    pub think_us: f64,
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
    let start = Barrier::new(CLIENTS + 1);
    thread::scope(|scope| {
        let client = |number: usize| {
            let start = &start;
            scope.spawn(move || {
                let entered = setns(namespace, CloneFlags::CLONE_NEWNET);
                start.wait();
                entered.context("cannot enter the network namespace of the clients")?;
                let mut random = Random::new(ask.seed * CLIENTS as u64 + number as u64);
                anyhow::Ok(play(target, &mut random, ask, Instant::now()))
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
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
