//! Events in the order of virtual time.
//!
//! Invariants
//! 1. A client has one connection at a time; an attacker does not wait for answers.
//! 2. A kernel serves one connection after the other; where its queue is full, one fails, and its
//!    client tries again later, as TCP does.
//! 3. Connections end at the kernel that accepted them, also when their group has moved.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::random::Random;
use crate::angel::{Angel, Tuning};
use crate::groups::{Table, group_of};

/// Connections that wait at a kernel: nginx's backlog.
const QUEUE_MAX: usize = 511;
/// Mean time of a CPU that a connection costs.
const SERVICE_US: f64 = 1000.0;
/// Clients for each kernel, and their mean time between two connections: a kernel is busy for
/// about 0.6 of the time when all are even.
const CLIENTS_PER_KERNEL: usize = 8;
const THINK_US: f64 = 11_000.0;
/// Linux sends a SYN again after a second.
const RETRY_US: u64 = 1_000_000;
/// Linux's source ports.
const PORTS: std::ops::Range<u16> = 32768..61000;
/// Groups of kernel 0 that an attack comes from, and connections a second for each kernel there
/// is, up to those that keep two busy.
const ATTACK_GROUPS: usize = 8;
const ATTACK_PER_KERNEL_PER_S: f64 = 300.0;
const ATTACK_MOST_PER_S: f64 = 2000.0;
/// How often Angel looks.
const SAMPLE_US: u64 = 50_000;

#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Event {
    Connect,
    Attack,
    Served(usize),
    Sample,
}

struct Connection {
    began_us: u64,
    group: usize,
    by_attacker: bool,
}

#[derive(Default)]
struct Server {
    /// The first is being served.
    queue: VecDeque<Connection>,
    busy_since_us: u64,
    busy_us: u64,
}

/// Figures that clients see.
#[derive(Default)]
pub struct Seen {
    /// When each answer came, and how long its client had waited.
    pub answers: Vec<(u64, u64)>,
    /// Connections of clients that found a queue full.
    pub failed: u64,
    /// When groups moved.
    pub moved_us: Vec<u64>,
    /// From when on the table was even for the rest of the time: the busiest kernel is sent at most
    /// 1.2 times the mean. Under an attack there is no such table: the attacked kernel has more.
    pub even_from_us: Option<u64>,
}

pub struct World {
    now_us: u64,
    end_us: u64,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Of events at the same time, the one that was planned first comes first.
    planned: u64,
    angel: Angel,
    balancing: bool,
    servers: Vec<Server>,
    /// Ports of an attacker, and its mean time between two connections.
    attack: Option<(Vec<u16>, f64)>,
    seen: Seen,
}

impl World {
    pub fn new(table: Table, kernels: usize, seed: u64) -> World {
        let mut world = World {
            now_us: 0,
            end_us: 0,
            random: Random::new(seed),
            events: BinaryHeap::new(),
            planned: 0,
            angel: Angel::new(Tuning::default(), table, kernels, 0),
            balancing: false,
            servers: (0..kernels).map(|_| Server::default()).collect(),
            attack: None,
            seen: Seen::default(),
        };
        for _ in 0..kernels * CLIENTS_PER_KERNEL {
            let think_us = world.random.exponential_us(THINK_US);
            world.plan(think_us, Event::Connect);
        }
        world.plan(SAMPLE_US, Event::Sample);
        world
    }

    /// Angel moves groups.
    pub fn with_angel(mut self) -> World {
        self.balancing = true;
        self
    }

    /// An attacker floods a few groups of kernel 0.
    pub fn with_attack(mut self) -> World {
        let table = &self.angel.table;
        let of_kernel_0 = |port: &u16| table.group(group_of(*port)).kernel == 0;
        let mut ports: Vec<u16> = PORTS.filter(of_kernel_0).collect();
        ports.truncate(ATTACK_GROUPS * 16);
        let per_s = ATTACK_PER_KERNEL_PER_S * self.servers.len() as f64;
        self.attack = Some((ports, 1e6 / per_s.min(ATTACK_MOST_PER_S)));
        self.plan(1, Event::Attack);
        self
    }

    /// Lets so much time pass.
    pub fn run(mut self, end_us: u64) -> Seen {
        self.end_us = end_us;
        while let Some(Reverse((at_us, _, event))) = self.events.pop() {
            if at_us > end_us {
                break;
            }
            self.now_us = at_us;
            match event {
                Event::Connect => self.connect(),
                Event::Attack => self.attack(),
                Event::Served(kernel) => self.served(kernel),
                Event::Sample => self.sample(),
            }
        }
        self.seen
    }

    fn plan(&mut self, in_us: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((self.now_us + in_us, self.planned, event)));
    }

    fn connect(&mut self) {
        let port = PORTS.start + self.random.below(PORTS.len()) as u16;
        if !self.arrive(port, false) {
            self.seen.failed += 1;
            self.plan(RETRY_US, Event::Connect);
        }
    }

    fn attack(&mut self) {
        let Some((ports, mean_us)) = self.attack.take() else { return };
        let port = ports[self.random.below(ports.len())];
        self.arrive(port, true);
        let next_us = self.random.exponential_us(mean_us);
        self.plan(next_us, Event::Attack);
        self.attack = Some((ports, mean_us));
    }

    /// A connection comes; whether there was room for it.
    fn arrive(&mut self, port: u16, by_attacker: bool) -> bool {
        let group = group_of(port);
        let kernel = self.angel.table.group(group).kernel;
        let queue = &mut self.servers[kernel].queue;
        if queue.len() > QUEUE_MAX {
            return false;
        }
        queue.push_back(Connection { began_us: self.now_us, group, by_attacker });
        if queue.len() == 1 {
            self.serve(kernel);
        }
        self.angel.table.opened(group);
        true
    }

    fn serve(&mut self, kernel: usize) {
        self.servers[kernel].busy_since_us = self.now_us;
        let service_us = self.random.exponential_us(SERVICE_US);
        self.plan(service_us, Event::Served(kernel));
    }

    fn served(&mut self, kernel: usize) {
        let server = &mut self.servers[kernel];
        server.busy_us += self.now_us - server.busy_since_us;
        let done = server.queue.pop_front().expect("somebody was served");
        if !server.queue.is_empty() {
            self.serve(kernel);
        }
        self.angel.table.closed(done.group);
        if !done.by_attacker {
            self.seen.answers.push((self.now_us, self.now_us - done.began_us));
            let think_us = self.random.exponential_us(THINK_US);
            self.plan(think_us, Event::Connect);
        }
    }

    fn sample(&mut self) {
        let now_us = self.now_us;
        let busy = |server: &mut Server| {
            if !server.queue.is_empty() {
                server.busy_us += now_us - server.busy_since_us;
                server.busy_since_us = now_us;
            }
            std::mem::take(&mut server.busy_us) as f64 / SAMPLE_US as f64
        };
        let cpu: Vec<f64> = self.servers.iter_mut().map(busy).collect();
        self.angel.sample(now_us, &cpu);
        if self.balancing {
            let moves = self.angel.balance();
            self.seen.moved_us.extend(moves.iter().map(|_| now_us));
        }
        let even = self.attack.is_none() && self.worst_over_mean() <= 1.2;
        self.seen.even_from_us = even.then(|| self.seen.even_from_us.unwrap_or(now_us));
        self.plan(SAMPLE_US, Event::Sample);
    }

    /// What clients will send to the busiest kernel, against the mean: as the table is, not as
    /// chance has it.
    fn worst_over_mean(&self) -> f64 {
        let mut ports = vec![0_u32; self.servers.len()];
        PORTS.for_each(|port| ports[self.angel.table.group(group_of(port)).kernel] += 1);
        let worst = ports.iter().copied().max().unwrap_or_default();
        f64::from(worst) * ports.len() as f64 / PORTS.len() as f64
    }
}
