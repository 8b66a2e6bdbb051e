//! The exchanges of `husk bench msg`: two threads, each on a core of its own, and what lies between
//! them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use husk_link::{Body, Doorbell, Lane, Link, Memory, Mode, Ring, Side, Unsent, Wait, memory_bytes};
use husk_wire::{Header, Kind, Role};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rustix::thread::futex;
use rustix::time::Timespec;

/// Exchanges of a row of small messages, and of one whose sides sleep or that carries 400 pages.
const MANY: u32 = 20_000;
const FEW: u32 = 500;
const PAGES: usize = 400 * 4096;
/// What a side that is to meet a sleeper does before it goes on.
const GAP_NS: f64 = 40_000.0;
const CORES: [usize; 2] = [0, 1];
/// A message that fills its slot.
const SLOT_BODY: usize = 16;

/// What a row should reach.
#[derive(Clone, Copy)]
pub enum Goal {
    Nothing,
    /// So many ns, at most.
    Ns(f64),
    /// So many times another row, at most.
    Of(f64, &'static str),
}

/// One row; a measure returns ns for one message, or for one exchange.
pub struct Row {
    pub name: &'static str,
    pub goal: Goal,
    pub measure: fn() -> f64,
}

/// What a peer does, too.
pub const ONE_WAY: &str = "64 B one way, awake";
const FUTEX: &str = "futex there and back, asleep";

/// All rows.
pub const ALL: &[Row] = &[
    row(ONE_WAY, Goal::Ns(150.0), || trip(SLOT_BODY, Wait::HYBRID, MANY) / 2.0),
    row("64 B request and reply, awake", Goal::Ns(700.0), || trip(SLOT_BODY, Wait::HYBRID, MANY)),
    row("64 B request and reply, asleep", Goal::Of(1.2, FUTEX), || {
        trip(SLOT_BODY, Wait::SLEEP, FEW)
    }),
    row(FUTEX, Goal::Nothing, futex),
    row("pipe, 64 B there and back", Goal::Nothing, pipe),
    row("unix socket, 64 B there and back", Goal::Nothing, unix),
    row("TCP loopback, 64 B there and back", Goal::Nothing, tcp),
    row("184 B one way, awake", Goal::Nothing, || trip(184, Wait::HYBRID, MANY) / 2.0),
    row("8 KiB one way, awake", Goal::Ns(1500.0), || trip(8192, Wait::HYBRID, MANY / 4) / 2.0),
    row("64 B stream", Goal::Ns(10.0), || stream(SLOT_BODY, 1, Mode::Direct, 20 * MANY)),
    row("64 B stream, buffered", Goal::Ns(10.0), || {
        stream(SLOT_BODY, 1, Mode::Buffered, 20 * MANY)
    }),
    row("64 B stream, buffered, 2 channels", Goal::Nothing, || {
        stream(SLOT_BODY, 2, Mode::Buffered, 20 * MANY)
    }),
    row("64 B stream, buffered, 8 channels", Goal::Nothing, || {
        stream(SLOT_BODY, 8, Mode::Buffered, 20 * MANY)
    }),
    row("8 KiB stream", Goal::Nothing, || stream(8192, 1, Mode::Direct, MANY)),
    row("400 pages stream, copied twice", Goal::Ns(130_000.0), || {
        stream(PAGES, 1, Mode::Direct, FEW / 4)
    }),
    row("400 pages there, granted, and back", Goal::Ns(5_000.0), granted),
];

const fn row(name: &'static str, goal: Goal, measure: fn() -> f64) -> Row {
    Row { name, goal, measure }
}

/// Memory of a pair, and both doorbells.
struct Pair(Memory, [Memory; 2], usize);

impl Pair {
    fn new(channels: usize) -> Self {
        let bell = || Memory::create(c"bell", Doorbell::BYTES).expect("memory");
        let ring = Memory::create(c"ring", memory_bytes(channels)).expect("memory");
        Self(ring, [bell(), bell()], channels)
    }

    fn side(&self, side: Side, mode: Mode) -> Ring<'_> {
        let bell = self.bell(1 - side as usize);
        Ring::begin(&self.0, side, side as u16, (1, self.2), bell, mode).expect("a ring")
    }

    fn bell(&self, side: usize) -> Doorbell<'_> {
        Doorbell::of(&self.1[side])
    }
}

/// Runs `other` beside `one`; what `one` took, in ns.
fn beside(one: impl FnOnce(), other: impl FnOnce() + Send) -> f64 {
    let ready = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(CORES[1]);
            ready.store(1, Ordering::Release);
            other();
        });
        pin(CORES[0]);
        while ready.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let start = Instant::now();
        one();
        start.elapsed().as_nanos() as f64
    })
}

/// On a machine of one core, or one that keeps this core from us, both share what there is.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// The next message, whenever it comes.
fn take(ring: &mut Ring<'_>, bell: &Doorbell<'_>, wait: Wait, room: &mut [u8]) -> Header {
    while !bell.wait(wait, || ring.has_message()) {}
    let header = ring.receive(room).expect("sound").expect("there").header;
    ring.done();
    header
}

fn trip(size: usize, wait: Wait, count: u32) -> f64 {
    let pair = Pair::new(1);
    let (mut one, mut other) =
        (pair.side(Side::Maker, Mode::Direct), pair.side(Side::Guest, Mode::Direct));
    let body = vec![7; size];
    let asks = || {
        let mut room = vec![0; 8192];
        for request in 1..=count {
            let header = Header { request, ..Header::new(Kind::Read, Role::Request) };
            one.send(Lane::Request(0), &header, &body).expect("room");
            take(&mut one, &pair.bell(0), wait, &mut room);
            gap(wait);
        }
    };
    let answers = || {
        let (mut room, body) = (vec![0; 8192], vec![7; size]);
        for _ in 0..count {
            let header = take(&mut other, &pair.bell(1), wait, &mut room);
            gap(wait);
            other.send(Lane::Reply, &header.answer(None), &body).expect("room");
        }
    };
    let gaps = if wait == Wait::SLEEP { 2.0 * GAP_NS } else { 0.0 };
    beside(asks, answers) / f64::from(count) - gaps
}

/// Works for so long before it goes on, that the other side sleeps.
fn gap(wait: Wait) {
    let start = Instant::now();
    while wait == Wait::SLEEP && start.elapsed().as_nanos() < GAP_NS as u128 {
        std::hint::spin_loop();
    }
}

fn stream(size: usize, channels: usize, mode: Mode, count: u32) -> f64 {
    let pair = Pair::new(channels);
    let (mut one, mut other) = (pair.side(Side::Maker, mode), pair.side(Side::Guest, mode));
    let (body, header) = (vec![7; size], Header::new(Kind::Load, Role::Posted));
    let sends = || {
        let mut sent = 0;
        while sent < count {
            match one.send(Lane::Request(sent as usize % channels), &header, &body) {
                Ok(()) => sent += 1,
                Err(Unsent::Full) => std::hint::spin_loop(),
                Err(why) => panic!("{why:?}"),
            }
        }
        one.flush();
        while !other_is_done(&pair) {
            std::hint::spin_loop();
        }
    };
    let takes = || {
        let mut room = vec![0; PAGES];
        for _ in 0..count {
            while other.receive(&mut room).expect("sound").is_none() {
                std::hint::spin_loop();
            }
            other.done();
        }
        other.end(husk_link::Ending::Left);
    };
    beside(sends, takes) / f64::from(count)
}

fn other_is_done(pair: &Pair) -> bool {
    let left = husk_link::Status::PeerEnded(husk_link::Ending::Left);
    pair.side(Side::Maker, Mode::Direct).status() == left
}

/// The extent is not filled: only its name travels.
fn granted() -> f64 {
    let pair = Pair::new(1);
    let (mut one, mut other) =
        (pair.side(Side::Maker, Mode::Direct), pair.side(Side::Guest, Mode::Direct));
    let asks = || {
        let mut room = vec![0; 8192];
        for request in 1..=MANY {
            let head = Header::new(Kind::WriteHome, Role::Request);
            let header = Header { request, length: PAGES as u32, ..head };
            let loan = one.lend(Lane::Request(0)).expect("an extent");
            one.send_lent(Lane::Request(0), &header, loan).expect("room");
            take(&mut one, &pair.bell(0), Wait::HYBRID, &mut room);
        }
    };
    let answers = || {
        let mut room = vec![0; 8192];
        for _ in 0..MANY {
            while !pair.bell(1).wait(Wait::HYBRID, || other.has_message()) {}
            let message = other.receive(&mut room).expect("sound").expect("there");
            let Body::Pool(view) = message.body else { panic!("longer than the room") };
            let (header, mut last) = (message.header, [0; 8]);
            view.copy(PAGES - 8, &mut last);
            other.done();
            other.send(Lane::Reply, &header.answer(None), &last).expect("room");
        }
    };
    beside(asks, answers) / f64::from(MANY)
}

/// A thread is woken by a futex and wakes the other one.
fn futex() -> f64 {
    let turn = AtomicU32::new(0);
    let play = |me: u32| {
        for _ in 0..FEW {
            wait_while(&turn, 1 - me);
            gap(Wait::SLEEP);
            turn.store(1 - me, Ordering::SeqCst);
            let _ = futex::wake(&turn, futex::Flags::PRIVATE, 1);
        }
    };
    beside(|| play(0), || play(1)) / f64::from(FEW) - 2.0 * GAP_NS
}

fn wait_while(turn: &AtomicU32, value: u32) {
    let time = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while turn.load(Ordering::SeqCst) == value {
        let _ = futex::wait(turn, futex::Flags::PRIVATE, value, Some(&time));
    }
}

/// 64 bytes there and back through something that blocks.
fn there_and_back<S: Read + Write + Send>(mut one: S, mut other: S) -> f64 {
    let asks = || {
        let mut room = [0; 64];
        for _ in 0..FEW {
            one.write_all(&room).expect("written");
            one.read_exact(&mut room).expect("read");
        }
    };
    let answers = || {
        let mut room = [0; 64];
        for _ in 0..FEW {
            other.read_exact(&mut room).expect("read");
            other.write_all(&room).expect("written");
        }
    };
    beside(asks, answers) / f64::from(FEW)
}

/// Two pipes, one each way.
struct Pipes(std::io::PipeReader, std::io::PipeWriter);

impl Read for Pipes {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn pipe() -> f64 {
    let ((from, to), (back_from, back_to)) =
        (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    there_and_back(Pipes(back_from, to), Pipes(from, back_to))
}

fn unix() -> f64 {
    let (one, other) = UnixStream::pair().expect("a pair");
    there_and_back(one, other)
}

fn tcp() -> f64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (other, _) = listener.accept().expect("accepted");
    one.set_nodelay(true).expect("set");
    other.set_nodelay(true).expect("set");
    there_and_back(one, other)
}
