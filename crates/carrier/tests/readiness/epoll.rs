//! What is remembered of an epoll set is what the host would say, in every order of two threads'
//! steps.
//!
//! ```text
//!   main thread:  enter | write | read | ask  ─ point 1 ─ ... ─ host call ─ point n ─ landed
//!                                                   '─ here, the other does something as a whole
//! ```
//!
//! At each point of one thread's deeds the other one acts once; then, and after each deed, whatever
//! is known of the set is compared with the host's answer. Planted bugs show that the test sees.

#[path = "../support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use husk_carrier::Direct;
use husk_proto::descriptor::Shown;
use husk_proto::epoll::{EVENT_BYTES, Epolls, Set, Sight};
use husk_proto::fs::Span;
use husk_proto::image::Cover;
use husk_proto::pipe::{Flow, Pipe, Pipes, Withdrawal};
use husk_proto::{Descriptors, Files, Processes, Shortcuts as _};
use husk_region::observe::kill;
use support::{LAYOUT, clock, image, program, tid};

/// More points than any play has.
const POINTS_MAX: u64 = 400;
/// Turns of one call.
const PATIENCE: u32 = 300;
/// Room of a waiter.
const ROOM: usize = 8;

/// One thread's way, and the host's descriptors.
struct Side {
    direct: Direct,
    pipe: Pipe,
    set: Set,
    read: i32,
    write: i32,
    epoll: i32,
}

struct Stage {
    side: Side,
    acts: fn(&mut Side),
    wrong: Option<String>,
}

static STAGE: Mutex<Option<Stage>> = Mutex::new(None);
/// Steps of the play itself (around host calls) until the other's turn.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Threads that put the pipe into the set, whose ring may not be empty so long.
static ENTERING: AtomicU64 = AtomicU64::new(0);

fn step() {
    let left = STEPS.load(Ordering::SeqCst);
    STEPS.store(left.saturating_sub(1), Ordering::SeqCst);
    if left == 1 {
        hook();
    }
}

fn hook() {
    let Ok(mut guard) = STAGE.try_lock() else { return };
    if let Some(stage) = guard.as_mut() {
        stage.wrong = stage.wrong.take().or(compare(&mut stage.side));
        (stage.acts)(&mut stage.side);
        stage.wrong = stage.wrong.take().or(compare(&mut stage.side));
    }
}

/// What the host says.
fn host_says(epoll: i32) -> Vec<u8> {
    let mut bytes = [0u8; ROOM * EVENT_BYTES];
    // SAFETY: room for as many events, which are packed; no wait.
    let found = unsafe { libc::epoll_wait(epoll, bytes.as_mut_ptr().cast(), ROOM as i32, 0) };
    bytes[..usize::try_from(found).expect("a set") * EVENT_BYTES].to_vec()
}

/// Whether something is known that is not so, or bytes lie where the host does not see them.
fn compare(side: &mut Side) -> Option<String> {
    let inside = side.direct.epoll_of(side.pipe).is_some() && ENTERING.load(Ordering::SeqCst) == 0;
    if inside && side.direct.pipe_waiting(side.pipe) > 0 {
        let out = host_says(side.epoll);
        return Some(format!("bytes are in the ring of a pipe in a set; the host says {out:?}"));
    }
    let here = match side.direct.epoll_look(side.epoll as u32) {
        Sight::Known(said) => said.bytes[..said.count * EVENT_BYTES].to_vec(),
        Sight::Quiet => Vec::new(),
        _ => return None,
    };
    let host = host_says(side.epoll);
    (here != host).then(|| format!("known {here:?}, the host says {host:?}"))
}

fn copy(span: Span, byte: &mut u8, out: bool) -> husk_proto::Result<()> {
    let here = std::ptr::from_mut(byte);
    // SAFETY: one byte of a ring, one of ours.
    unsafe {
        let ring = span.address as *mut u8;
        let (target, source) = if out { (here, ring) } else { (ring, here) };
        std::ptr::copy_nonoverlapping(source, target, 1);
    }
    Ok(())
}

fn write(side: &mut Side) {
    for _ in 0..PATIENCE {
        let mut byte = 7u8;
        let flow =
            side.direct.pipe_put(side.pipe, 1, false, &mut |span| copy(span, &mut byte, false));
        match flow.expect("a pipe") {
            Flow::Moved(1) => return,
            Flow::Host { .. } => {
                step();
                // SAFETY: one byte of ours to our own pipe.
                assert_eq!(unsafe { libc::write(side.write, (&raw const byte).cast(), 1) }, 1);
                step();
                return side.direct.pipe_landed(side.pipe, true, 1);
            }
            Flow::Look => side.direct.pipe_has_reader(side.pipe),
            Flow::Wait { .. } => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("a write does not end")
}

fn read(side: &mut Side) {
    for _ in 0..PATIENCE {
        let mut byte = 0u8;
        let flow = side.direct.pipe_take(side.pipe, 1, &mut |span| copy(span, &mut byte, true));
        match flow.expect("a pipe") {
            Flow::Moved(1) => return,
            Flow::Host { .. } => {
                step();
                // SAFETY: one byte of ours from our own pipe, which does not block.
                let got = unsafe { libc::read(side.read, (&raw mut byte).cast(), 1) };
                step();
                return side.direct.pipe_landed(side.pipe, false, got.max(0) as u64);
            }
            Flow::Fetch(spans) => {
                let vector = spans.map(|span| libc::iovec {
                    iov_base: span.address as *mut _,
                    iov_len: span.length,
                });
                // SAFETY: both spans lie in the ring.
                let got = unsafe { libc::readv(side.read, vector.as_ptr(), 2) };
                side.direct.pipe_fetched(side.pipe, got.max(0) as u64);
            }
            Flow::Wait { .. } => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("a read does not end")
}

/// `epoll_wait` as the client makes it.
fn ask(side: &mut Side) {
    let Some(asked) = side.direct.epoll_ask(side.set) else { return };
    step();
    let said = host_says(side.epoll);
    step();
    side.direct.epoll_remember(side.set, asked, &said);
}

/// Bytes that the host has.
fn waiting(fd: i32) -> u64 {
    let mut count = 0i32;
    // SAFETY: writes the count.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) };
    count as u64
}

/// `EPOLL_CTL_ADD` of the read end, as the client makes it.
fn enter(side: &mut Side) {
    ENTERING.fetch_add(1, Ordering::SeqCst);
    if side.direct.epoll_enter(side.set, side.pipe) {
        entered(side);
    }
    ENTERING.fetch_sub(1, Ordering::SeqCst);
}

fn entered(side: &mut Side) {
    step();
    for turn in 0..PATIENCE {
        let stuck = turn > PATIENCE / 2;
        match side.direct.pipe_withdraw(side.pipe, stuck).expect("a pipe") {
            Withdrawal::Nothing => break,
            Withdrawal::Wait { .. } | Withdrawal::Writing => std::thread::yield_now(),
            Withdrawal::Settle => unreachable!("nobody dies here"),
            Withdrawal::Bytes(spans) => {
                let vector = spans.map(|span| libc::iovec {
                    iov_base: span.address as *mut _,
                    iov_len: span.length,
                });
                side.direct.pipe_withdrawing(side.pipe, waiting(side.read));
                // SAFETY: both spans lie in the ring.
                let put = unsafe { libc::writev(side.write, vector.as_ptr(), 2) };
                side.direct.pipe_withdrawn(side.pipe, put.max(0) as u64);
            }
        }
    }
    step();
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 5 };
    // SAFETY: our own set and pipe.
    unsafe { libc::epoll_ctl(side.epoll, libc::EPOLL_CTL_ADD, side.read, &mut event) };
    step();
    side.direct.epoll_changed(side.set);
}

/// `EPOLL_CTL_DEL`.
fn leave(side: &mut Side) {
    let none = std::ptr::null_mut();
    // SAFETY: our own set and pipe.
    let done = unsafe { libc::epoll_ctl(side.epoll, libc::EPOLL_CTL_DEL, side.read, none) };
    step();
    if done == 0 {
        side.direct.epoll_exit(side.set, side.pipe);
    }
}

/// As many reads as a ring is tried after.
fn rally(side: &mut Side) {
    for _ in 0..8 {
        write(side);
        read(side);
    }
}

fn writes_and_asks(side: &mut Side) {
    write(side);
    ask(side);
}

fn reads_and_asks(side: &mut Side) {
    read(side);
    ask(side);
}

fn stage(boss: &mut Direct, acts: fn(&mut Side)) -> (Side, Stage) {
    let mut fds = [0i32; 2];
    // SAFETY: fills the two numbers.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    // SAFETY: makes a set.
    let epoll = unsafe { libc::epoll_create1(0) };
    let mut direct = program(boss, clock);
    let files = direct.files();
    for fd in [fds[0], fds[1], epoll] {
        assert_eq!(direct.host_opened(files, fd as u32, false, Shown::Nothing), Ok(true));
    }
    direct.pipe_make(files, fds[0] as u32, fds[1] as u32, 1).expect("a ring");
    let pipe = direct.pipe_end(files, fds[0] as u32).expect("an end").pipe;
    let set = direct.epoll_make(files, epoll as u32).expect("a set");
    let process = direct.current();
    let parent = std::os::unix::process::parent_id();
    let other = Direct::attach(clock, process, parent, parent).expect("attached");
    let me = Direct::attach(clock, process, std::process::id(), tid()).expect("me");
    let side = |direct| Side { direct, pipe, set, read: fds[0], write: fds[1], epoll };
    (side(me), Stage { side: side(other), acts, wrong: None })
}

fn end(mut side: Side) {
    let files = side.direct.files();
    for fd in [side.read, side.write, side.epoll] {
        side.direct.host_closed(files, fd as u32);
        // SAFETY: our own.
        unsafe { libc::close(fd) };
    }
    side.direct.exit();
}

/// What the main thread does.
const DEEDS: [fn(&mut Side); 11] =
    [ask, write, ask, ask, read, ask, rally, write, leave, enter, ask];

/// One order of steps: the first `warm` bytes go through before the pipe is in the set.
fn play(
    boss: &mut Direct,
    acts: fn(&mut Side),
    warm: u32,
    point: u64,
    steps: u64,
) -> Option<String> {
    let (mut main, stage) = stage(boss, acts);
    for _ in 0..warm {
        write(&mut main);
        read(&mut main);
    }
    write(&mut main);
    *STAGE.lock().expect("sane") = Some(stage);
    kill::arm(point, hook);
    STEPS.store(steps, Ordering::SeqCst);
    enter(&mut main);
    let mut wrong = None;
    for deed in DEEDS {
        deed(&mut main);
        // Looks as the other thread would: hooks are for deeds.
        let left = kill::left();
        kill::arm(0, hook);
        wrong = wrong.or(compare(&mut main));
        kill::arm(left, hook);
    }
    let left = kill::left() + STEPS.load(Ordering::SeqCst);
    kill::arm(0, hook);
    STEPS.store(0, Ordering::SeqCst);
    let stage = STAGE.lock().expect("sane").take().expect("there");
    wrong = wrong.or(stage.wrong);
    end(main);
    wrong.or((left > 0).then(|| "through".to_owned()))
}

fn all(boss: &mut Direct) -> Option<String> {
    let acts = [ask, write, read, writes_and_asks, reads_and_asks, enter, leave];
    for (other, acts) in acts.into_iter().enumerate() {
        for warm in [0, 20] {
            for own in [false, true] {
                for at in 1..POINTS_MAX {
                    let (point, steps) = if own { (0, at) } else { (at, 0) };
                    match play(boss, acts, warm, point, steps) {
                        Some(wrong) if wrong == "through" => break,
                        Some(wrong) => return Some(format!("{other} {warm} {own} {at}: {wrong}")),
                        None => {}
                    }
                }
            }
        }
    }
    None
}

/// A pipe that another process may hold makes a set the host's alone: when its name was given away
/// before it came in, and after.
fn shared(boss: &mut Direct) -> Option<String> {
    for late in [false, true] {
        let (mut main, _) = stage(boss, ask);
        let files: Files = main.direct.files();
        // SAFETY: one more number of our own.
        let third = unsafe { libc::dup(main.read) };
        assert_eq!(main.direct.host_opened(files, third as u32, false, Shown::Nothing), Ok(true));
        let name = main.direct.pipe_end(files, main.read as u32).expect("an end");
        let share = |direct: &mut Direct| direct.pipe_join(files, third as u32, name);
        if !late {
            share(&mut main.direct).expect("joined");
        }
        enter(&mut main);
        ask(&mut main);
        if late {
            let known =
                matches!(main.direct.epoll_look(main.epoll as u32), Sight::Known(_) | Sight::Quiet);
            assert!(known, "nothing is remembered of a set with a pipe of its own");
            share(&mut main.direct).expect("joined");
        }
        let sight = main.direct.epoll_look(main.epoll as u32);
        main.direct.host_closed(files, third as u32);
        // SAFETY: our own.
        unsafe { libc::close(third) };
        end(main);
        if !matches!(sight, Sight::Hosts) {
            return Some(format!("late {late}: {sight:?}"));
        }
    }
    None
}

#[test]
fn what_is_known_of_a_set_is_what_the_host_says_in_every_order_of_steps() {
    let (mut boss, _) = image(LAYOUT, Cover::Memory);
    assert_eq!(all(&mut boss), None);
    assert_eq!(shared(&mut boss), None);
    let plays = [(61, all as fn(&mut Direct) -> _), (62, all), (63, all), (64, all), (65, shared)];
    for (bug, seen) in plays {
        kill::mutate(bug);
        let found = seen(&mut boss);
        kill::mutate(0);
        println!("bug {bug}: {found:?}");
        assert!(found.is_some(), "bug {bug} is not seen");
        *STAGE.lock().expect("sane") = None;
    }
}
