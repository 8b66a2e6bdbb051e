//! Pipes between ring and host: every order of two sides' steps, and death at every step.
//!
//! ```text
//!   main side:  take | put  ─ point 1 ─ point 2 ─ ... ─ host call ─ point n ─ landed
//!                                 '─ here, the other side does something as a whole
//! ```
//!
//! At each point of one side's calls the other side runs once. Bytes must come out in the order
//! they went in, and whoever goes to sleep at the host must find the ring empty. The same with a
//! death at that point instead. Planted bugs show that the test sees.

#[path = "support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use husk_carrier::Direct;
use husk_proto::descriptor::Shown;
use husk_proto::fs::Span;
use husk_proto::image::Cover;
use husk_proto::pipe::{Emptiness, Flow, Pipe, Pipes, Withdrawal};
use husk_proto::{Descriptors, Processes, Shortcuts as _};
use husk_region::observe::kill;
use husk_region::rings::pipes::{self, Climb, Holder, Lock, PIPES_MAX};
use support::{LAYOUT, clock, fork, image, program, tid, until, wait};

/// More points than any play has.
const POINTS_MAX: u64 = 400;
/// Rounds in which somebody may find a lock held.
const PATIENCE: u32 = 300;

/// One side: its way to the kernels, and the host's pipe.
struct Side {
    direct: Direct,
    pipe: Pipe,
    read: i32,
    write: i32,
}

impl Side {
    fn is_alone(&self) -> bool {
        self.direct.pipe_sight(self.read as u32).is_some_and(|(_, alone)| alone)
    }
}

/// Both sides, for the hook; how many bytes have gone in.
struct Stage {
    main: Side,
    other: Side,
    put: u8,
    acts: fn(&mut Stage),
    wrong: Option<String>,
}

static STAGE: Mutex<Option<Stage>> = Mutex::new(None);
/// What has come out, in the order of time.
static TOOK: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// Steps of the play itself (before and after host calls) until the other side's turn.
static STEPS: AtomicU64 = AtomicU64::new(0);

fn took(byte: u8) -> Got {
    TOOK.lock().expect("sane").push(byte);
    Got::Byte(byte)
}

fn host_has(fd: i32) -> u64 {
    let mut count = 0i32;
    // SAFETY: writes the count.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) };
    count as u64
}

fn step() {
    let left = STEPS.load(Ordering::SeqCst);
    STEPS.store(left.saturating_sub(1), Ordering::SeqCst);
    if left == 1 {
        hook();
    }
}

fn copy(span: Span, bytes: &mut [u8], at: &mut usize, out: bool) -> husk_proto::Result<()> {
    let here = bytes[*at..*at + span.length].as_mut_ptr();
    // SAFETY: a span of a ring, and as many bytes of ours.
    unsafe {
        let ring = span.address as *mut u8;
        let (target, source) = if out { (here, ring) } else { (ring, here) };
        std::ptr::copy_nonoverlapping(source, target, span.length);
    }
    *at += span.length;
    Ok(())
}

/// Writes one byte; false: somebody holds a lock.
fn write(side: &mut Side, byte: u8) -> bool {
    write_by(side, byte, true)
}

/// The same by the way of long writes, or by that of short ones before.
fn write_by(side: &mut Side, mut byte: u8, swiftly: bool) -> bool {
    for _ in 0..PATIENCE {
        let (mut one, mut at) = ([byte], 0);
        let alone = side.is_alone();
        let swift = |span| copy(span, &mut one, &mut at, false);
        if swiftly && side.direct.pipe_put_swiftly(side.pipe, alone, 1, swift) {
            return true;
        }
        let put = &mut |span| copy(span, &mut one, &mut at, false);
        match side.direct.pipe_put(side.pipe, 1, false, put).expect("a pipe") {
            Flow::Moved(1) => return true,
            Flow::Host { done: 0 } => {
                step();
                // SAFETY: one byte of ours to our own pipe.
                assert_eq!(unsafe { libc::write(side.write, (&raw mut byte).cast(), 1) }, 1);
                step();
                side.direct.pipe_landed(side.pipe, true, 1);
                return true;
            }
            Flow::Wait { .. } => return false,
            // As where letting the reader run has brought nothing.
            Flow::Full { done: 0 } => side.direct.pipe_leave(side.pipe),
            Flow::Look => side.direct.pipe_has_reader(side.pipe),
            Flow::Settle => side.direct.pipe_settled(side.pipe, host_has(side.read)),
            other => panic!("{other:?}"),
        }
    }
    panic!("a write is told to settle again and again")
}

/// What a read came to.
enum Got {
    Byte(u8),
    /// Would sleep at the host.
    Nothing,
    Held,
}

fn read(side: &mut Side) -> Got {
    for _ in 0..PATIENCE {
        let (mut one, mut at) = ([0u8], 0);
        let alone = side.is_alone();
        let swift = |span| copy(span, &mut one, &mut at, true);
        if side.direct.pipe_take_swiftly(side.pipe, alone, 1, swift) == 1 {
            return took(one[0]);
        }
        let take = &mut |span| copy(span, &mut one, &mut at, true);
        match side.direct.pipe_take(side.pipe, 1, take).expect("a pipe") {
            Flow::Moved(1) => return took(one[0]),
            Flow::Host { .. } => {
                step();
                // SAFETY: one byte of ours from our own pipe, which does not block.
                let got = unsafe { libc::read(side.read, one.as_mut_ptr().cast(), 1) };
                let result = if got == 1 { took(one[0]) } else { Got::Nothing };
                step();
                side.direct.pipe_landed(side.pipe, false, got.max(0) as u64);
                if got > 0 {
                    step();
                    side.direct.pipe_join_writer(side.pipe);
                }
                return result;
            }
            // As where letting the writer run has brought nothing.
            Flow::Dry => side.direct.pipe_leave(side.pipe),
            Flow::Wait { .. } => return Got::Held,
            Flow::Fetch(spans) => {
                let vector = spans.map(|span| libc::iovec {
                    iov_base: span.address as *mut _,
                    iov_len: span.length,
                });
                step();
                // SAFETY: both spans lie in the ring.
                let got = unsafe { libc::readv(side.read, vector.as_ptr(), 2) };
                step();
                side.direct.pipe_fetched(side.pipe, got.max(0) as u64);
            }
            Flow::Settle => side.direct.pipe_settled(side.pipe, host_has(side.read)),
            other => panic!("{other:?}"),
        }
    }
    panic!("a read is told to fetch or settle again and again")
}

/// What a poll came to.
#[derive(PartialEq)]
enum Woken {
    /// There were bytes in the ring, or are some at the host.
    Ready,
    /// Nobody wrote.
    Nothing,
    /// Bytes went into the ring while it slept.
    InVain,
    Held,
}

/// A poll that sleeps while the other side has its turns.
fn poll(side: &mut Side) -> Woken {
    for _ in 0..PATIENCE {
        match side.direct.pipe_watch(side.pipe).expect("a pipe") {
            Flow::Moved(_) => return Woken::Ready,
            Flow::Host { .. } => {
                step();
                step();
                let ready = host_has(side.read) > 0;
                let in_vain = side.direct.pipe_waiting(side.pipe) > 0;
                side.direct.pipe_landed(side.pipe, false, 0);
                return match (in_vain, ready) {
                    (true, _) => Woken::InVain,
                    (_, true) => Woken::Ready,
                    _ => Woken::Nothing,
                };
            }
            Flow::Wait { .. } => return Woken::Held,
            Flow::Settle => side.direct.pipe_settled(side.pipe, host_has(side.read)),
            other => panic!("{other:?}"),
        }
    }
    panic!("a poll is told to settle again and again")
}

/// A second process's way, so that locks tell the two sides apart.
fn side(direct: Direct, pipe: Pipe, fds: [i32; 2]) -> Side {
    Side { direct, pipe, read: fds[0], write: fds[1] }
}

fn stage(boss: &mut Direct, acts: fn(&mut Stage)) -> Stage {
    TOOK.lock().expect("sane").clear();
    let mut fds = [0i32; 2];
    // SAFETY: fills the two numbers.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    let mut direct = program(boss, clock);
    let files = direct.files();
    for fd in fds {
        assert_eq!(direct.host_opened(files, fd as u32, false, Shown::Nothing), Ok(true));
    }
    direct.pipe_make(files, fds[0] as u32, fds[1] as u32, 1).expect("a ring");
    let pipe = direct.pipe_end(files, fds[0] as u32).expect("an end").pipe;
    // The other side: a process that lives, and never asks for anything itself.
    let process = direct.current();
    let parent = std::os::unix::process::parent_id();
    let other = Direct::attach(clock, process, parent, parent).expect("attached");
    let other = side(other, pipe, fds);
    let main = side(direct, pipe, fds);
    Stage { main, other, put: 0, acts, wrong: None }
}

fn end(stage: Stage) {
    let Stage { mut main, .. } = stage;
    let files = main.direct.files();
    for fd in [main.read, main.write] {
        main.direct.host_closed(files, fd as u32);
        // SAFETY: our own.
        unsafe { libc::close(fd) };
    }
    main.direct.exit();
}

fn hook() {
    let Ok(mut guard) = STAGE.try_lock() else { return };
    if let Some(stage) = guard.as_mut() {
        (stage.acts)(stage);
    }
}

fn other_writes(stage: &mut Stage) {
    if write(&mut stage.other, stage.put) {
        stage.put += 1;
    }
}

fn other_reads(stage: &mut Stage) {
    for _ in 0..6 {
        if !matches!(read(&mut stage.other), Got::Byte(_)) {
            return;
        }
    }
}

/// A second reader: where the first is in flight, it must not take the ring into use.
fn other_writes_and_reads(stage: &mut Stage) {
    other_writes(stage);
    let _ = read(&mut stage.other);
    other_writes(stage);
}

/// A process without a number of the pipe opens it by another name: all in it is to be the host's.
/// False: somebody is busy with it.
fn other_intrudes(stage: &mut Stage) -> bool {
    stage.other.direct.pipe_show(stage.other.pipe);
    withdraw(&mut stage.other)
}

/// What is in the ring goes to the host, and the ring stays in use.
fn other_withdraws(stage: &mut Stage) {
    withdraw(&mut stage.other);
    other_writes(stage);
    let _ = read(&mut stage.other);
}

/// The same beside a writer.
fn other_withdraws_and_reads(stage: &mut Stage) {
    withdraw(&mut stage.other);
    other_reads(stage);
}

/// Gives what is in the ring to the host. False: somebody holds a lock.
fn withdraw(side: &mut Side) -> bool {
    let Side { direct, pipe, read, write } = side;
    let mut found = direct.pipe_withdraw(*pipe, false).expect("a pipe");
    if matches!(found, Withdrawal::Settle) {
        direct.pipe_settled(*pipe, host_has(*read));
        found = direct.pipe_withdraw(*pipe, false).expect("a pipe");
    }
    let spans = match found {
        Withdrawal::Nothing => return true,
        Withdrawal::Wait { .. } | Withdrawal::Writing => return false,
        Withdrawal::Settle => unreachable!("that is over"),
        Withdrawal::Bytes(spans) => spans,
    };
    let mut behind = [0u8; 64];
    let vector =
        spans.map(|span| libc::iovec { iov_base: span.address as *mut _, iov_len: span.length });
    direct.pipe_withdrawing(*pipe, host_has(*read));
    step();
    // SAFETY: bytes of ours, and both spans lie in the ring; neither end blocks.
    let put = unsafe {
        let later = libc::read(*read, behind.as_mut_ptr().cast(), behind.len());
        let put = libc::writev(*write, vector.as_ptr(), 2);
        libc::write(*write, behind.as_ptr().cast(), later.max(0) as usize);
        put
    };
    step();
    direct.pipe_withdrawn(*pipe, put as u64);
    true
}

/// What is left comes out in order, and nothing is missing.
fn drain(stage: &mut Stage) {
    for _ in 0..PATIENCE {
        match read(&mut stage.main) {
            Got::Byte(_) => {}
            Got::Held => std::thread::sleep(std::time::Duration::from_millis(1)),
            Got::Nothing => break,
        }
    }
    let (expected, came): (Vec<u8>, _) = ((0..stage.put).collect(), TOOK.lock().expect("sane"));
    if *came != expected && stage.wrong.is_none() {
        stage.wrong = Some(format!("{came:?} came out of {}", stage.put));
    }
}

/// Main side without the stage locked, so that the hook can have it: it owns its `Side`.
fn play(boss: &mut Direct, cast: &Cast, point: u64, steps: u64) -> Option<String> {
    let writes = cast.deed == Deed::Writes;
    let mut stage = stage(boss, cast.acts);
    for _ in 0..cast.warm {
        assert!(write(&mut stage.main, stage.put));
        stage.put += 1;
        assert!(matches!(read(&mut stage.main), Got::Byte(_)));
    }
    for _ in 0..cast.waiting {
        assert!(write(&mut stage.main, stage.put));
        stage.put += 1;
    }
    let mut main = side(
        Direct::attach(clock, stage.main.direct.current(), std::process::id(), tid()).expect("me"),
        stage.main.pipe,
        [stage.main.read, stage.main.write],
    );
    let first = stage.put;
    if writes {
        stage.put += 3;
    }
    main.direct.set_alone(cast.alone);
    assert_eq!(main.is_alone(), cast.alone, "a new pipe");
    *STAGE.lock().expect("sane") = Some(stage);
    kill::arm(point, hook);
    STEPS.store(steps, Ordering::SeqCst);
    let mut asleep = None;
    for turn in 0..if writes { 3 } else { 5 } {
        if writes {
            until("the writers' lock is free", || write(&mut main, first + turn));
            continue;
        }
        if cast.deed == Deed::Polls && poll(&mut main) == Woken::InVain {
            asleep = Some("polls beside a ring with bytes".to_owned());
        }
        // Asleep now: whatever is in the ring, nobody takes.
        let nothing = matches!(read(&mut main), Got::Nothing);
        if nothing && main.direct.pipe_waiting(main.pipe) > 0 {
            asleep = Some("sleeps beside a ring with bytes".to_owned());
        }
    }
    let left = kill::left() + STEPS.load(Ordering::SeqCst);
    kill::arm(0, hook);
    STEPS.store(0, Ordering::SeqCst);
    let mut stage = STAGE.lock().expect("sane").take().expect("there");
    if cast.alone {
        assert!(other_intrudes(&mut stage), "nobody is busy any more");
    }
    drain(&mut stage);
    let wrong = asleep.or(stage.wrong.take());
    end(stage);
    wrong.or((left > 0).then(|| "through".to_owned()))
}

/// What a side does.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Deed {
    Writes,
    Reads,
    /// And then reads.
    Polls,
    /// Gives to the host what is in the ring.
    Withdraws,
}

/// Who plays: what the main side does, after how many bytes there and back, with how many waiting,
/// and what the other does.
struct Cast {
    deed: Deed,
    warm: usize,
    waiting: usize,
    acts: fn(&mut Stage),
    /// Whether the main side is its process's only thread.
    alone: bool,
}

/// All plays of one cast; the first that goes wrong.
fn plays(boss: &mut Direct, cast: &Cast) -> Option<String> {
    for own in [false, true] {
        for point in 1..POINTS_MAX {
            let (points, steps) = if own { (0, point) } else { (point, 0) };
            match play(boss, cast, points, steps) {
                Some(wrong) if wrong == "through" => break,
                Some(wrong) => {
                    let Cast { deed, warm, .. } = cast;
                    return Some(format!("{deed:?} {warm} {points} {steps}: {wrong}"));
                }
                None => {}
            }
        }
    }
    None
}

fn all(boss: &mut Direct) -> Option<String> {
    for warm in [0, 3, 4, 5, 6, 20] {
        let writer = Cast { deed: Deed::Writes, warm, waiting: 0, acts: other_reads, alone: false };
        let reader = Cast { deed: Deed::Reads, warm, waiting: 3, acts: other_writes, alone: false };
        let idle = Cast { deed: Deed::Reads, warm, waiting: 0, acts: other_writes, alone: false };
        let two = Cast { acts: other_writes_and_reads, ..idle };
        let poller = Cast { deed: Deed::Polls, warm, waiting: 0, acts: other_writes, alone: false };
        let beside = Cast { acts: other_writes_and_reads, ..poller };
        let moved = Cast { acts: other_withdraws, waiting: 3, ..idle };
        let parted = Cast { acts: other_withdraws_and_reads, ..writer };
        for cast in [writer, reader, idle, two, poller, beside, moved, parted] {
            let found = plays(boss, &cast);
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Who is alone, and somebody who comes in without a number.
fn intrusions(boss: &mut Direct) -> Option<String> {
    let acts = |stage: &mut Stage| _ = other_intrudes(stage);
    for warm in [5, 20] {
        let writer = Cast { deed: Deed::Writes, warm, waiting: 2, acts, alone: true };
        let reader = Cast { deed: Deed::Reads, warm, waiting: 3, acts, alone: true };
        let found = plays(boss, &writer).or_else(|| plays(boss, &reader));
        if found.is_some() {
            return found;
        }
    }
    None
}

fn die() {
    // SAFETY: this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A child dies at a point of a write or a read; the parent goes on with what is there, and writes
/// by the short way or the long one.
fn death(
    boss: &mut Direct,
    (warm, swiftly): (usize, bool),
    deed: Deed,
    point: u64,
) -> Option<String> {
    let mut stage = stage(boss, other_reads);
    for _ in 0..warm {
        assert!(write(&mut stage.main, 200));
        assert!(matches!(read(&mut stage.main), Got::Byte(200)));
    }
    let waiting = if deed == Deed::Polls { 0 } else { 3 };
    for byte in 0..waiting {
        assert!(write(&mut stage.main, byte));
    }
    let pid = fork(|| {
        let me = std::process::id();
        let process = stage.main.direct.current();
        let mut mine = side(
            Direct::attach(clock, process, me, me).expect("attached"),
            stage.main.pipe,
            [stage.main.read, stage.main.write],
        );
        kill::arm(point, die);
        assert!(match deed {
            Deed::Writes => write(&mut mine, 3),
            Deed::Reads => matches!(read(&mut mine), Got::Byte(_)),
            Deed::Polls => poll(&mut mine) == Woken::Nothing,
            Deed::Withdraws => withdraw(&mut mine),
        });
        // SAFETY: ends the child, quietly.
        unsafe { libc::_exit(if kill::left() > 0 { 7 } else { 0 }) };
    });
    let status = wait(pid);
    let mut tries = 0;
    while !write_by(&mut stage.main, 9, swiftly) {
        tries += 1;
        if tries > PATIENCE {
            return Some("a dead holder keeps the writers' lock".to_owned());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    TOOK.lock().expect("sane").clear();
    drain(&mut stage);
    let good: [&[u8]; 3] = match deed {
        Deed::Polls => [&[9]; 3],
        _ => [&[0, 1, 2, 9], &[0, 1, 2, 3, 9], &[1, 2, 9]],
    };
    let left = TOOK.lock().expect("sane").clone();
    let wrong = (!good.contains(&&left[..])).then(|| format!("{left:?} is left"));
    end(stage);
    let through = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7;
    wrong.or(through.then(|| "through".to_owned()))
}

fn deaths(boss: &mut Direct) -> Option<String> {
    for deed in [Deed::Writes, Deed::Reads, Deed::Polls, Deed::Withdraws] {
        let ways = [0, 4, 5, 20].into_iter().flat_map(|warm| [(warm, true), (warm, false)]);
        for way in ways {
            for point in 1..POINTS_MAX {
                match death(boss, way, deed, point) {
                    Some(wrong) if wrong == "through" => break,
                    Some(wrong) => return Some(format!("{deed:?} {way:?} {point}: {wrong}")),
                    None => {}
                }
            }
        }
    }
    None
}

/// A sleeping poll and a writer that has begun: the poll's look waits for the writer's end.
fn poll_against_writer(boss: &mut Direct) {
    let mut stage = stage(boss, other_reads);
    for _ in 0..20 {
        assert!(write(&mut stage.main, 1));
        assert!(matches!(read(&mut stage.main), Got::Byte(1)));
    }
    stage.main.direct.pipe_pin(stage.main.pipe);
    assert_eq!(stage.main.direct.pipe_empty(stage.main.pipe), Emptiness::Empty);
    assert!(write(&mut stage.main, 5));
    assert_eq!(host_has(stage.main.read), 1, "a pinned pipe's bytes are the host's");
    end(stage);
}

/// The reader of a pipe whose writer is in flight asks until its turn to climb, in vain.
fn ask_in_vain(ring: &pipes::Pipe, me: Holder) {
    for _ in 0..POINTS_MAX {
        if ring.is_due() {
            assert!(ring.try_lock(Lock::Readers, me) && ring.try_lock(Lock::Writers, me));
            assert_eq!(ring.climb(), Climb::No, "a host call is in flight");
            ring.unlock(Lock::Writers);
            ring.unlock(Lock::Readers);
            return;
        }
    }
    panic!("never due");
}

/// What a writer hears that comes back from the host while a reader wants to climb.
fn invitations(boss: &mut Direct) -> Option<String> {
    let stage = stage(boss, other_reads);
    let life = stage.main.pipe.0;
    let ring = pipes::Pipe::of(life & (PIPES_MAX - 1), life).expect("mapped");
    let me = Holder::new(std::process::id(), tid());
    assert!(ring.take_off(true));
    ask_in_vain(&ring, me);
    let invited = ring.is_invited();
    ring.land(true, 0);
    // Nobody was seen to read: the writer waits for nobody, and is asked no more.
    let waited = ring.await_climb();
    let asked = ring.is_invited();
    // A reader at the host may sleep: nobody waits for it.
    assert!(ring.take_off(false) && ring.take_off(true));
    for _ in 0..POINTS_MAX {
        if ring.is_due() {
            break;
        }
    }
    ask_in_vain(&ring, me);
    let beside_reader = ring.is_invited();
    ring.land(false, 0);
    ring.land(true, 0);
    end(stage);
    let wrong = !invited || waited || asked || beside_reader;
    wrong.then(|| format!("invited {invited}, waited {waited}, {asked}, {beside_reader}"))
}

/// Bytes that were given to the host come before those of a ring that is in use again, always with
/// one unread.
fn withdrawals(boss: &mut Direct) -> Option<String> {
    const BYTES: u8 = 100;
    let mut stage = stage(boss, other_reads);
    for byte in 0..BYTES {
        assert!(write(&mut stage.main, byte));
        if byte > 0 {
            read(&mut stage.main);
        }
        if byte % 40 == 20 {
            assert!(withdraw(&mut stage.main));
        }
    }
    read(&mut stage.main);
    end(stage);
    let came = TOOK.lock().expect("sane").clone();
    (came != (0..BYTES).collect::<Vec<_>>()).then(|| format!("{came:?} came"))
}

/// Reads that died in flight stay counted: as many as a count can tell, and one that sleeps, are
/// never none.
fn wraps(boss: &mut Direct) {
    const READS: u32 = 1 << 16;
    let mut stage = stage(boss, other_reads);
    for _ in 0..READS {
        let flow = stage.main.direct.pipe_watch(stage.main.pipe);
        assert!(matches!(flow, Ok(Flow::Host { .. })), "{flow:?}");
    }
    for byte in 0..40 {
        assert!(write(&mut stage.main, byte));
        assert!(matches!(read(&mut stage.main), Got::Byte(got) if got == byte));
    }
    let flow = stage.main.direct.pipe_put(stage.main.pipe, 1, false, &mut |_| Ok(()));
    let hosts = matches!(flow, Ok(Flow::Host { .. }));
    assert!(hosts, "a ring is in use while somebody sleeps: {flow:?}");
    end(stage);
}

/// A writer asks for a reader when none has for a while, and then not for a while.
fn looks(boss: &mut Direct) -> Option<String> {
    let mut stage = stage(boss, other_reads);
    for _ in 0..20 {
        assert!(write(&mut stage.main, 1));
        assert!(matches!(read(&mut stage.main), Got::Byte(1)));
    }
    std::thread::sleep(std::time::Duration::from_millis(1));
    let (mut looked, mut left) = (false, 0);
    for _ in 0..PATIENCE {
        let flow = stage.main.direct.pipe_put(stage.main.pipe, 1, false, &mut |_| Ok(()));
        match flow.expect("a pipe") {
            // A host that takes its time to answer is asked no more often.
            Flow::Look => {
                left += u32::from(looked);
                looked = true;
                std::thread::sleep(std::time::Duration::from_millis(1));
                stage.main.direct.pipe_has_reader(stage.main.pipe);
            }
            Flow::Moved(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(left < PATIENCE / 2, "asks again and again");
    end(stage);
    (!looked).then(|| "does not ask whether a reader is left".to_owned())
}

#[test]
fn no_order_of_steps_and_no_death_loses_or_mixes_bytes() {
    let (mut boss, _) = image(LAYOUT, Cover::Memory);
    assert_eq!(all(&mut boss), None);
    assert_eq!(intrusions(&mut boss), None);
    assert_eq!(deaths(&mut boss), None);
    // As if both sides had a core each.
    kill::mutate(57);
    assert_eq!(all(&mut boss), None);
    assert_eq!(deaths(&mut boss), None);
    kill::mutate(0);
    poll_against_writer(&mut boss);
    assert_eq!(invitations(&mut boss), None);
    assert_eq!(looks(&mut boss), None);
    assert_eq!(withdrawals(&mut boss), None);
    wraps(&mut boss);
    let plays = [
        (21, all as fn(&mut Direct) -> _),
        (23, all),
        (24, all),
        (27, all),
        (28, all),
        (29, intrusions),
        (30, intrusions),
        (22, deaths),
        (55, deaths),
        (56, all),
        (66, withdrawals),
        (67, deaths),
    ];
    for (bug, seen) in plays.into_iter().chain([(25, looks as _), (26, invitations as _)]) {
        kill::mutate(bug);
        let found = seen(&mut boss);
        kill::mutate(0);
        println!("bug {bug}: {found:?}");
        assert!(found.is_some(), "bug {bug} is not seen");
        *STAGE.lock().expect("sane") = None;
    }
}
