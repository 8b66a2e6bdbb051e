//! Latency: one datagram goes and comes back, again and again.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_net::udp::{Options, listeners};

use super::cores::Cores;
use crate::bench::measure::lab::{Lab, RECEIVER, SENDER, inside};

/// Round trips of one round of a row.
const TRIPS: usize = 2_000;
/// Those before do not count.
const WARM_UP: usize = 200;
/// A datagram that has not come back by then is sent again.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// No round takes longer.
const LIMIT: Duration = Duration::from_secs(20);
/// `SO_BUSY_POLL` of the row that has it.
const BUSY_US: u32 = 50;

/// How both ends wait.
#[derive(Clone, Copy)]
pub struct Row {
    /// As printed.
    pub name: &'static str,
    /// One end on the first core, the other on the second.
    pub pinned: bool,
    /// Linux polls before it sleeps.
    pub busy: bool,
    /// The program asks again and again, and never sleeps.
    pub awake: bool,
}

const DEFAULT: Row = Row { name: "default", pinned: false, busy: false, awake: false };

/// The paper's rows. The second one is the control.
pub const ROWS: &[Row] = &[
    DEFAULT,
    Row { name: "default, again", ..DEFAULT },
    Row { name: "NUMA", pinned: true, ..DEFAULT },
    Row { name: "busy poll", pinned: true, busy: true, ..DEFAULT },
    Row { name: "poll in code", pinned: true, awake: true, ..DEFAULT },
];

/// What one round showed, in microseconds.
#[derive(Clone, Copy, Default)]
pub struct Round {
    /// Half of the round trips took less.
    pub p50_us: f64,
    /// All but one in a hundred.
    pub p99_us: f64,
    /// Part of the datagrams that did not come back in time.
    pub lost: f64,
}

/// Sends back what comes.
fn serve(socket: &UdpSocket, over: &AtomicBool) {
    let mut room = [0; 64];
    while !over.load(Relaxed) {
        if let Ok((bytes, from)) = socket.recv_from(&mut room) {
            // What is lost the client sends again.
            let _ = socket.send_to(&room[..bytes], from);
        }
    }
}

/// One round trip; `None`: lost.
fn trip(socket: &UdpSocket, number: u64) -> std::io::Result<Option<Duration>> {
    let began = Instant::now();
    socket.send(&number.to_ne_bytes())?;
    let mut room = [0; 64];
    while began.elapsed() < LOST_AFTER {
        match socket.recv(&mut room) {
            // Not one that was given up.
            Ok(8) if room[..8] == number.to_ne_bytes() => return Ok(Some(began.elapsed())),
            Ok(_) => {}
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(None)
}

fn ask(socket: &UdpSocket) -> anyhow::Result<Round> {
    let (mut took, mut lost, began) = (Vec::with_capacity(TRIPS), 0, Instant::now());
    for number in 0..(TRIPS + WARM_UP) as u64 {
        match trip(socket, number)? {
            Some(time) if number >= WARM_UP as u64 => took.push(time.as_secs_f64() * 1e6),
            Some(_) => {}
            None => lost += 1,
        }
        if began.elapsed() > LIMIT {
            break;
        }
    }
    anyhow::ensure!(!took.is_empty(), "no datagram came back");
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)];
    let lost = f64::from(lost) / (took.len() as f64 + f64::from(lost));
    Ok(Round { p50_us: at(50), p99_us: at(99), lost })
}

impl Row {
    fn waits(self, socket: &UdpSocket) -> std::io::Result<()> {
        match self.awake {
            true => socket.set_nonblocking(true),
            false => socket.set_read_timeout(Some(LOST_AFTER)),
        }
    }

    /// One round.
    pub fn round(self, lab: &Lab, cores: &Cores) -> anyhow::Result<Round> {
        // Only a veth that merges has a queue that can be polled.
        lab.merge(self.busy)?;
        let options = Options { busy_poll_us: self.busy.then_some(BUSY_US), ..Options::default() };
        let open = |ip: Ipv4Addr| {
            let address = SocketAddr::from((ip, 0));
            let socket = listeners(address, 1, &options)?.remove(0);
            self.waits(&socket)?;
            anyhow::Ok(socket)
        };
        let server = inside(&lab.receiver, || open(RECEIVER[0]))?;
        let client = inside(&lab.sender, || open(SENDER))?;
        client.connect(server.local_addr()?)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                cores.pin(self.pinned.then_some(1));
                serve(&server, &over);
            });
            let asker = scope.spawn(|| {
                cores.pin(self.pinned.then_some(0));
                ask(&client)
            });
            let asked = asker.join();
            over.store(true, Relaxed);
            asked.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
        })
        .with_context(|| self.name.to_owned())
    }
}
