//! A link between two network namespaces that takes time: packets of an interface at one end come
//! out of an interface at the other end so much later, in their order.
//!
//! ```text
//!   namespace A: interface ─► read ─► (due, packet) ─► write when due ─► interface : namespace B
//!                          ◄─ write ◄─ (due, packet) ◄─ read           ◄─
//! ```
//!
//! By TUN and threads of this process, so that it needs no module of the kernel (netem) and no
//! processor time of either end.
//!
//! Invariants
//! 1. A packet is never written before it is due, and none overtakes another one.
//! 2. At most `QUEUED_MAX` packets are on their way; more are lost, as on any link.
//! 3. Both interfaces go with the value, and the threads with them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::problem::io_error;

/// Packets that may be on their way, each way.
const QUEUED_MAX: usize = 4096;
/// The largest packet: the MTU of such an interface is 1,500 unless it is set.
const PACKET_BYTES_MAX: usize = 64 << 10;
/// So often a thread that has nothing to do looks whether it is to end.
const LOOK_NS: i64 = 50_000_000;

/// One end of a wire that is not joined yet.
pub struct End(File);

impl End {
    /// Makes an interface in the network namespace of this thread.
    pub fn new(interface: &str) -> io::Result<End> {
        let tun = File::options().read(true).write(true).open("/dev/net/tun")?;
        husk_host::interface::make_tun(tun.as_raw_fd(), interface).map_err(io_error)?;
        rustix::fs::fcntl_setfl(&tun, OFlags::NONBLOCK)?;
        Ok(End(tun))
    }
}

/// A joined wire.
pub struct Wire {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Joins two ends; each packet takes so long.
    pub fn join(ends: [End; 2], delay: Duration) -> io::Result<Wire> {
        let ended = Arc::<AtomicBool>::default();
        let mut wire = Wire { ended, threads: Vec::new() };
        let [a, b] = ends.map(|end| end.0);
        for (from, to) in [(a.try_clone()?, b.try_clone()?), (b, a)] {
            let (carry, carried) = sync_channel(QUEUED_MAX);
            let ended = wire.ended.clone();
            wire.threads.push(thread::spawn(move || take(from, delay, &carry, &ended)));
            wire.threads.push(thread::spawn(move || give(to, &carried)));
        }
        Ok(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Notes when each packet is due.
fn take(
    mut from: File,
    delay: Duration,
    carry: &SyncSender<(Instant, Vec<u8>)>,
    ended: &AtomicBool,
) {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    while !ended.load(Ordering::Relaxed) {
        match from.read(&mut packet) {
            Ok(count) => {
                // A full queue loses it.
                let _ = carry.try_send((Instant::now() + delay, packet[..count].to_vec()));
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {
                // Whatever comes of it, it is read again.
                let _ = poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&look));
            }
            // The interface is down, or not up yet.
            Err(_) => thread::sleep(Duration::from_nanos(LOOK_NS as u64)),
        }
    }
}

/// Writes each packet when it is due.
fn give(mut to: File, carried: &Receiver<(Instant, Vec<u8>)>) {
    for (due, packet) in carried {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // An interface that takes no packet has lost it.
        let _ = to.write(&packet);
    }
}
