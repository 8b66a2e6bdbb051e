//! Throughput: two senders flood, two threads receive.
//!
//! Sender n is pinned to core n in every row: it stands for queue n of a network card, whose
//! interrupts core n takes. What differs is who receives, and where.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_net::udp::{Batch, Options, listeners, send_many};

use super::cores::Cores;
use crate::bench::measure::lab::{Lab, RECEIVER, SENDER, inside};

/// Bytes of a datagram.
const DATAGRAM: [u8; 64] = [7; 64];
/// Source ports of each sender.
const FLOWS: usize = 16;
/// How long one round of a row takes.
const ROUND: Duration = Duration::from_millis(200);
/// Receivers look this often whether the round is over.
const LOOK: Duration = Duration::from_millis(20);
/// Room for merged datagrams.
const ROOM: usize = 65536;

/// How packets are received.
#[derive(Clone, Copy)]
pub struct Row {
    /// As printed.
    pub name: &'static str,
    /// A socket for each thread; otherwise both read one.
    pub own_socket: bool,
    /// The sockets have an address each.
    pub own_address: bool,
    /// Thread n runs on core n only.
    pub pinned: bool,
    /// A packet goes to the thread of the core that it came to.
    pub by_core: bool,
    /// Many datagrams in one call.
    pub many: bool,
    /// Datagrams of one sender come merged.
    pub merged: bool,
}

const DEFAULT: Row = Row {
    name: "default",
    own_socket: false,
    own_address: false,
    pinned: false,
    by_core: false,
    many: false,
    merged: false,
};
const BOUND: Row =
    Row { name: "binding port", own_socket: true, pinned: true, by_core: true, ..DEFAULT };

/// The paper's rows, and our own. The second one is the control.
pub const ROWS: &[Row] = &[
    DEFAULT,
    Row { name: "default, again", ..DEFAULT },
    Row { name: "NUMA pin", pinned: true, ..DEFAULT },
    Row { name: "multiple IP", own_socket: true, own_address: true, ..DEFAULT },
    Row { name: "multiple thread", own_socket: true, ..DEFAULT },
    BOUND,
    Row { name: "+ recvmmsg", many: true, ..BOUND },
    Row { name: "+ GRO", merged: true, ..BOUND },
];

/// What one round showed.
#[derive(Clone, Copy, Default)]
pub struct Round {
    /// Datagrams received a second.
    pub per_s: f64,
    /// For each second of processor time of senders and receivers.
    pub per_cpu_s: f64,
    /// Part of what was sent that was not received.
    pub lost: f64,
}

/// One thread that receives: a socket of its own, or one that it shares.
fn receive(socket: &UdpSocket, row: Row, over: &AtomicBool, received: &AtomicU64) {
    let mut batch = Batch::<{ DATAGRAM.len() }>::new();
    let mut room = vec![0; ROOM];
    while !over.load(Relaxed) {
        // A time-out is a look whether the round is over.
        let count = match row.many {
            true => batch.receive(socket).map_or(0, Iterator::count),
            // What comes merged is one long datagram.
            false => socket.recv(&mut room).map_or(0, |bytes| bytes.div_ceil(DATAGRAM.len())),
        };
        received.fetch_add(count as u64, Relaxed);
    }
}

fn send(flows: &[UdpSocket], over: &AtomicBool, sent: &AtomicU64) {
    for flow in flows.iter().cycle() {
        if over.load(Relaxed) {
            return;
        }
        // A full queue of the device drops, as a card does.
        sent.fetch_add(send_many(flow, &DATAGRAM).unwrap_or(0) as u64, Relaxed);
    }
}

fn sockets(lab: &Lab, row: Row) -> anyhow::Result<Vec<UdpSocket>> {
    let options = Options { by_core: row.by_core, gro: row.merged, ..Options::default() };
    let at = |ip: Ipv4Addr| SocketAddr::from((ip, 0));
    let sockets = inside(&lab.receiver, || {
        Ok(match (row.own_socket, row.own_address) {
            (true, true) => {
                let each = RECEIVER.map(|ip| listeners(at(ip), 1, &options));
                each.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
            }
            (true, false) => listeners(at(RECEIVER[0]), 2, &options)?,
            (false, _) => listeners(at(RECEIVER[0]), 1, &options)?,
        })
    })?;
    sockets.iter().try_for_each(|socket| socket.set_read_timeout(Some(LOOK)))?;
    Ok(sockets)
}

fn flows(lab: &Lab, sockets: &[UdpSocket]) -> anyhow::Result<Vec<UdpSocket>> {
    inside(&lab.sender, || {
        let flow = |number: usize| {
            let flow = UdpSocket::bind((SENDER, 0))?;
            flow.connect(sockets[number % sockets.len()].local_addr()?)?;
            anyhow::Ok(flow)
        };
        (0..FLOWS).map(flow).collect()
    })
}

impl Row {
    /// One round.
    pub fn round(self, lab: &Lab, cores: &Cores) -> anyhow::Result<Round> {
        lab.merge(self.merged)?;
        let sockets = sockets(lab, self)?;
        let flows = [flows(lab, &sockets)?, flows(lab, &sockets)?];
        let (over, start) = (AtomicBool::new(false), Barrier::new(5));
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for n in 0..2 {
                let socket = &sockets[n % sockets.len()];
                let (flows, over, start) = (&flows[n], &over, &start);
                let (sent, received) = (&sent, &received);
                scope.spawn(move || {
                    cores.pin(self.pinned.then_some(n));
                    start.wait();
                    receive(socket, self, over, received);
                });
                scope.spawn(move || {
                    cores.pin(Some(n));
                    start.wait();
                    send(flows, over, sent);
                });
            }
            start.wait();
            let (began, cpu_s) = (Instant::now(), super::cpu_s());
            thread::sleep(ROUND);
            let (sent, received) = (sent.load(Relaxed) as f64, received.load(Relaxed) as f64);
            let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), super::cpu_s() - cpu_s);
            over.store(true, Relaxed);
            let some = received > 0.0 && cpu_s > 0.0;
            let lost = (1.0 - received / sent).max(0.0);
            some.then_some(Round { per_s: received / wall_s, per_cpu_s: received / cpu_s, lost })
        })
        .with_context(|| format!("{}: nothing was received", self.name))
    }
}
