//! A set that goes to sleep beside a writer of one of its rings is woken, in every order of their
//! steps; so is who polls one.
//!
//! ```text
//!   main thread:  collect, sleep │ write, tell    ─ point 1 ─ ... ─ point n
//!                                                     '─ here, the other does its part as a whole
//! ```
//!
//! In the end either the sleeper has found the byte, or the host has it, or the writer knows that
//! it has to wake the set. Planted bugs show that the test sees.

#[path = "../client/plain.rs"]
mod plain;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use husk_abi::nr;
use husk_carrier::Direct;
use husk_client::{AGAIN, Buffers, Call, Client, Memory, Verdict};
use husk_proto::descriptor::Shown;
use husk_proto::epoll::{EVENT_BYTES, Epolls, Member, Set, Sleep, Sleeper, TAG};
use husk_proto::fs::Span;
use husk_proto::image::Cover;
use husk_proto::pipe::{Flow, Pipe, Pipes};
use husk_proto::{Descriptors, Errno, Overview as _, Processes, Shortcuts as _};
use husk_region::observe::kill;
use plain::Plain;
use support::{LAYOUT, clock, image, program, tid};

/// `EPOLLONESHOT`.
const ONE_SHOT: i32 = 1 << 30;

/// More points than any play has.
const POINTS_MAX: u64 = 200;
/// Turns of one call.
const PATIENCE: u32 = 50;

/// A bell's word.
const BELL: u64 = 1 << 42 | 256 << 22 | 3;

/// What the set tells with events of the lane.
const DATA: u64 = 5;

/// One thread's way, and the host's descriptors.
struct Side {
    direct: Direct,
    lane: Pipe,
    set: Set,
    fds: [i32; 2],
    epoll: i32,
}

static STAGE: Mutex<Option<(Side, fn(&mut Side))>> = Mutex::new(None);
/// The sleeper sleeps; the writer has seen to it that the host wakes it.
static ASLEEP: AtomicBool = AtomicBool::new(false);
static WOKEN: AtomicBool = AtomicBool::new(false);
/// A one-shot has been asked anew: the lock was free.
static REARMED: AtomicBool = AtomicBool::new(false);

fn hook() {
    let Ok(mut guard) = STAGE.try_lock() else { return };
    if let Some((side, acts)) = guard.as_mut() {
        acts(side);
    }
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

/// A write as the client makes it.
fn write(side: &mut Side) {
    for _ in 0..PATIENCE {
        let sleep = side.direct.lane_asleep(side.lane);
        if sleep != 0 {
            side.direct.pipe_leave(side.lane);
        }
        let mut byte = 7u8;
        let flow =
            side.direct.pipe_put(side.lane, 1, true, &mut |span| copy(span, &mut byte, false));
        match flow.expect("a lane") {
            Flow::Moved(_) => {
                if side.direct.lane_tell(side.lane) {
                    WOKEN.store(true, Ordering::SeqCst);
                }
                return;
            }
            Flow::Host { .. } => {
                // SAFETY: one byte of ours to our own socket.
                assert_eq!(unsafe { libc::write(side.fds[1], (&raw const byte).cast(), 1) }, 1);
                side.direct.pipe_landed(side.lane, true, 1);
                side.direct.lane_told(side.lane, sleep);
                WOKEN.store(true, Ordering::SeqCst);
                return;
            }
            Flow::Look => side.direct.pipe_has_reader(side.lane),
            Flow::Wait { .. } => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

fn read(side: &mut Side) {
    let mut byte = 0u8;
    let flow = side.direct.pipe_take(side.lane, 1, &mut |span| copy(span, &mut byte, true));
    if matches!(flow.expect("a lane"), Flow::Host { .. }) {
        // SAFETY: one byte of ours from our own socket, which does not block.
        let got = unsafe { libc::read(side.fds[0], (&raw mut byte).cast(), 1) };
        side.direct.pipe_landed(side.lane, false, got.max(0) as u64);
    }
}

/// The ring comes into use.
fn warm(side: &mut Side) {
    for _ in 0..20 {
        write(side);
        read(side);
    }
}

/// `epoll_wait` as the client makes it, up to the host's call.
fn sleep(side: &mut Side) {
    for _ in 0..PATIENCE {
        if collect(side) != Some(0) {
            return;
        }
        match side.direct.epoll_sleep(side.set) {
            Sleep::Asleep => return ASLEEP.store(true, Ordering::SeqCst),
            Sleep::Ready => {}
            Sleep::Many => panic!("nobody else sleeps"),
        }
    }
    panic!("it neither sleeps nor finds anything");
}

/// `poll` as the client makes it, up to the host's call.
fn poll(side: &mut Side) {
    assert!(side.direct.lane_poll(side.lane, BELL));
    if side.direct.pipe_waiting(side.lane) == 0 {
        return ASLEEP.store(true, Ordering::SeqCst);
    }
    side.direct.lane_unpoll(side.lane, BELL);
}

/// With a mask of 0 the socket is in no set.
fn stage(boss: &mut Direct, mask: i32) -> (Side, Side) {
    let mut fds = [0i32; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    // SAFETY: fills the two numbers.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }, 0);
    // SAFETY: makes a set.
    let epoll = unsafe { libc::epoll_create1(0) };
    let mut direct = program(boss, clock);
    let files = direct.files();
    for fd in [fds[0], fds[1], epoll] {
        assert_eq!(direct.host_opened(files, fd as u32, false, Shown::Nothing), Ok(true));
    }
    direct.lanes_make(files, fds.map(|fd| fd as u32), [1, 2]).expect("lanes");
    let lane = direct.pipe_end(files, fds[0] as u32).expect("an end").pipe;
    let set = direct.epoll_make(files, epoll as u32).expect("a set");
    assert_eq!(direct.epoll_lock(set), Ok(()));
    direct.epoll_set_number(set, epoll as u32);
    let member = Member { lane, fd: fds[0] as u32, mask: mask as u32, data: DATA };
    if mask != 0 {
        assert!(direct.epoll_put_member(set, &member));
    } else {
        // It is known to be polled from now on.
        assert!(direct.lane_poll(lane, BELL));
        direct.lane_unpoll(lane, BELL);
    }
    direct.epoll_unlock(set);
    let process = direct.current();
    let parent = std::os::unix::process::parent_id();
    let other = Direct::attach(clock, process, parent, parent).expect("attached");
    let me = Direct::attach(clock, process, std::process::id(), tid()).expect("me");
    let side = |direct| Side { direct, lane, set, fds, epoll };
    (side(me), side(other))
}

fn end(mut side: Side) {
    side.direct.epoll_wake(side.set);
    let files = side.direct.files();
    for fd in [side.fds[0], side.fds[1], side.epoll] {
        side.direct.host_closed(files, fd as u32);
        // SAFETY: our own.
        unsafe { libc::close(fd) };
    }
    side.direct.exit();
}

/// `deed` of one thread, with `acts` of the other at its `point`; `None`: there is no such point.
fn play(boss: &mut Direct, deed: fn(&mut Side), acts: fn(&mut Side), point: u64) -> Option<bool> {
    let polls = [deed, acts].iter().any(|&act| std::ptr::fn_addr_eq(act, poll as fn(&mut Side)));
    let (mut main, mut other) = stage(boss, if polls { 0 } else { libc::EPOLLIN });
    warm(&mut main);
    if polls {
        poll(&mut main)
    } else {
        sleep(&mut main)
    }
    assert!(ASLEEP.swap(false, Ordering::SeqCst), "the ring is empty");
    main.direct.epoll_wake(main.set);
    main.direct.lane_unpoll(main.lane, BELL);
    WOKEN.store(false, Ordering::SeqCst);
    other.direct.epoll_wake(other.set);
    *STAGE.lock().expect("sane") = Some((other, acts));
    kill::arm(point, hook);
    deed(&mut main);
    let reached = kill::left() == 0;
    kill::arm(0, hook);
    let (other, _) = STAGE.lock().expect("sane").take().expect("there");
    let asleep = ASLEEP.swap(false, Ordering::SeqCst);
    let woken = WOKEN.swap(false, Ordering::SeqCst);
    let lost = asleep && !woken && main.direct.pipe_waiting(main.lane) > 0;
    drop(other);
    end(main);
    reached.then_some(lost)
}

fn lost(boss: &mut Direct) -> Option<String> {
    let plays: [(&str, fn(&mut Side), fn(&mut Side)); 4] = [
        ("a write beside a sleeper", sleep, write),
        ("a sleep beside a writer", write, sleep),
        ("a write beside a poll", poll, write),
        ("a poll beside a writer", write, poll),
    ];
    for (name, deed, acts) in plays {
        for point in 1..POINTS_MAX {
            match play(boss, deed, acts, point) {
                None => break,
                Some(true) => return Some(format!("{name}, point {point}")),
                Some(false) => {}
            }
        }
    }
    None
}

/// A one-shot is asked anew, as the client does it for a set that one process has alone.
fn rearm(side: &mut Side) {
    let mask = (libc::EPOLLIN | ONE_SHOT) as u32;
    let member = Member { lane: side.lane, fd: side.fds[0] as u32, mask, data: DATA };
    if side.direct.epoll_lock(side.set).is_err() {
        return;
    }
    assert!(side.direct.epoll_put_member(side.set, &member));
    side.direct.epoll_stir(side.set, side.lane);
    side.direct.epoll_unlock(side.set);
    REARMED.store(true, Ordering::SeqCst);
    let asleep = side.direct.epoll_asleep(side.set) != 0;
    if asleep && side.direct.pipe_waiting(side.lane) > 0 && kill::mutant() != 74 {
        WOKEN.store(true, Ordering::SeqCst);
    }
}

/// The thread that uses the set is told of all that there is; `None`: its lock could not be had.
fn collect(side: &mut Side) -> Option<u32> {
    let mut found = 0;
    side.direct.epoll_lock(side.set).ok()?;
    side.direct.epoll_collect(side.set, 8, &mut |_, _, data| {
        assert_eq!(data, DATA);
        found += 1;
        true
    });
    side.direct.epoll_unlock(side.set);
    Some(found)
}

/// A spent one-shot is asked anew beside a writer or a thread that falls asleep: whoever sleeps
/// then is woken, and one is told, once.
fn lost_of_one_shots(boss: &mut Direct) -> Option<String> {
    // Whether a byte is there, and somebody asleep, before.
    let plays: [(&str, fn(&mut Side), fn(&mut Side), bool, bool); 4] = [
        ("a change beside a sleeper", sleep, rearm, true, false),
        ("a sleep beside a change", rearm, sleep, true, false),
        ("a write beside a change", rearm, write, false, true),
        ("a change beside a write", write, rearm, false, true),
    ];
    for (name, deed, acts, bytes, asleep) in plays {
        for point in 1..POINTS_MAX {
            let (mut main, mut other) = stage(boss, libc::EPOLLIN | ONE_SHOT);
            warm(&mut main);
            write(&mut main);
            assert_eq!(collect(&mut main), Some(1), "it is spent");
            read(&mut main);
            if bytes {
                write(&mut main);
            }
            assert_eq!(collect(&mut main), Some(0), "it is spent");
            if asleep {
                sleep(&mut main);
            }
            WOKEN.store(false, Ordering::SeqCst);
            REARMED.store(false, Ordering::SeqCst);
            other.direct.epoll_wake(other.set);
            *STAGE.lock().expect("sane") = Some((other, acts));
            kill::arm(point, hook);
            deed(&mut main);
            let reached = kill::left() == 0;
            kill::arm(0, hook);
            let (mut other, _) = STAGE.lock().expect("sane").take().expect("there");
            if !reached {
                acts(&mut other);
            }
            if !REARMED.load(Ordering::SeqCst) {
                rearm(&mut other);
            }
            ASLEEP.store(false, Ordering::SeqCst);
            let woken = WOKEN.swap(false, Ordering::SeqCst);
            let sleeps = main.direct.epoll_asleep(main.set) != 0;
            let lost = sleeps && !woken && main.direct.pipe_waiting(main.lane) > 0;
            drop(other);
            end(main);
            if lost {
                return Some(format!("{name}, point {point}"));
            }
            if !reached {
                break;
            }
        }
    }
    None
}

/// A process that shares the set dies at each point of what it does there: another one takes over
/// its lock, sleeps, asks anew, and is told of the bytes.
fn killed_in_a_shared_set(boss: &mut Direct) -> u32 {
    let deeds: [fn(&mut Side); 5] = [
        rearm,
        |side| {
            collect(side);
        },
        |side| {
            if side.direct.epoll_lock(side.set).is_ok() {
                side.direct.epoll_drop_member(side.set, side.lane);
                side.direct.epoll_unlock(side.set);
            }
        },
        sleep,
        |side| {
            side.direct.lane_told(side.lane, 1);
        },
    ];
    let mut deaths = 0;
    for (number, deed) in deeds.into_iter().enumerate() {
        for point in 1..POINTS_MAX {
            let (mut main, mut other) = stage(boss, libc::EPOLLIN | ONE_SHOT);
            warm(&mut main);
            let status = support::wait(support::fork(move || {
                let own = Direct::attach(clock, other.direct.current(), std::process::id(), tid());
                other.direct = own.expect("attached");
                // SAFETY: as if it were killed there.
                kill::arm(point, || unsafe { libc::_exit(7) });
                deed(&mut other);
                kill::arm(0, die);
            }));
            let killed = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7;
            assert!(killed || status == 0, "point {point}: {status}");
            write(&mut main);
            rearm(&mut main);
            // A set that a dead thread sleeps in gets its bytes by the host.
            let mut entry = libc::pollfd { fd: main.fds[0], events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry of ours.
            let by_host = unsafe { libc::poll(&raw mut entry, 1, 0) } == 1;
            let told = collect(&mut main) == Some(1);
            assert!(told != by_host, "deed {number}, point {point}: told once of the byte");
            read(&mut main);
            rearm(&mut main);
            sleep(&mut main);
            assert!(ASLEEP.swap(false, Ordering::SeqCst), "point {point}: nobody else sleeps");
            deaths += u32::from(killed);
            end(main);
            if !killed {
                break;
            }
        }
    }
    deaths
}

/// How a death unwinds.
const KILLED: &str = "killed";

fn die() {
    std::panic::panic_any(KILLED);
}

/// A writer beside a sleeper is killed at each of its points; where the byte is in the ring by
/// then, what the supervisor looks for names the sleeper. How many such points there are.
fn killed_beside_a_sleeper(boss: &mut Direct) -> u32 {
    let mut windows = 0;
    for point in 1..POINTS_MAX {
        let (mut main, mut other) = stage(boss, libc::EPOLLIN);
        warm(&mut main);
        ASLEEP.store(false, Ordering::SeqCst);
        // As a writer that has seen the set awake.
        let mut byte = 7u8;
        let lane = other.lane;
        let mut put = |span| copy(span, &mut byte, false);
        sleep(&mut main);
        assert!(ASLEEP.swap(false, Ordering::SeqCst), "the ring is empty");
        kill::arm(point, die);
        let deed = std::panic::AssertUnwindSafe(|| {
            while matches!(other.direct.pipe_put(lane, 1, true, &mut put), Ok(Flow::Look)) {
                other.direct.pipe_has_reader(lane);
            }
            other.direct.lane_tell(lane);
        });
        let killed = std::panic::catch_unwind(deed).is_err();
        kill::arm(0, die);
        let mut found = Vec::new();
        boss.each_beside_bytes(&mut |sleeper| found.push(sleeper));
        let in_ring = main.direct.pipe_waiting(lane) > 0;
        assert_eq!(found.len(), usize::from(in_ring), "point {point}");
        if in_ring {
            let own = (std::process::id(), main.epoll as u32);
            assert!(matches!(found[0], Sleeper::Set { pid, fd, .. } if (pid, fd) == own));
        }
        windows += u32::from(killed && in_ring);
        main.direct.epoll_wake(main.set);
        boss.each_beside_bytes(&mut |sleeper| panic!("awake: {sleeper:?}"));
        // The dead one's lock would be taken over; this one lives.
        assert!(other.direct.pipe_put(lane, 1, true, &mut put).is_ok());
        drop(other);
        end(main);
        if !killed {
            break;
        }
    }
    windows
}

/// The same beside who polls.
fn killed_beside_a_poll(boss: &mut Direct) -> u32 {
    let mut windows = 0;
    for point in 1..POINTS_MAX {
        let (mut main, mut other) = stage(boss, 0);
        warm(&mut main);
        poll(&mut main);
        assert!(ASLEEP.swap(false, Ordering::SeqCst), "the ring is empty");
        WOKEN.store(false, Ordering::SeqCst);
        kill::arm(point, die);
        let deed = std::panic::AssertUnwindSafe(|| write(&mut other));
        let killed = std::panic::catch_unwind(deed).is_err();
        kill::arm(0, die);
        let mut found = Vec::new();
        boss.each_beside_bytes(&mut |sleeper| found.push(sleeper));
        let asleep = main.direct.lane_polled(main.lane) != 0;
        let beside = asleep && main.direct.pipe_waiting(main.lane) > 0;
        let wanted = Sleeper::Poll { bell: BELL, lane: main.lane };
        assert_eq!(found, if beside { vec![wanted] } else { vec![] }, "point {point}");
        assert!(killed || WOKEN.swap(false, Ordering::SeqCst), "point {point}: who writes rings");
        windows += u32::from(killed && beside);
        main.direct.lane_unpoll(main.lane, BELL);
        // The dead one's lock would be taken over; this one lives.
        write(&mut other);
        drop(other);
        end(main);
        if !killed {
            break;
        }
    }
    windows
}

/// A loop's memory: the other thread does its part when the first event is stored.
struct Interrupted(Plain);

impl Memory for Interrupted {
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno> {
        self.0.read(source, target)
    }

    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno> {
        hook();
        *STAGE.lock().expect("sane") = None;
        self.0.write(target, source)
    }

    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno> {
        self.0.read_string(source, target)
    }

    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno> {
        self.0.copy_out(span, target)
    }

    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno> {
        self.0.copy_in(source, span)
    }
}

/// The host tells a loop of room; bytes of the same socket come into its ring while the loop looks
/// through the host's answer. With edges nobody tells of them again.
fn come_beside_an_event_of_the_host(boss: &mut Direct) {
    let edges = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET;
    let (mut main, other) = stage(boss, edges);
    warm(&mut main);
    let plain = Plain { region: -1 };
    let buffers = Box::leak(Box::new(Buffers::new()));
    let mut client = Client::new(main.direct, plain, Interrupted(plain), buffers);
    let mut event = [0u8; 8 * EVENT_BYTES];
    let room = libc::EPOLLOUT as u32;
    let asks = [main.epoll as usize, event.as_mut_ptr() as usize, 8, usize::MAX, 0, 0];
    let after = loop {
        match client.call(Call { number: nr::epoll_wait, args: asks }) {
            // What the writes above have left.
            Verdict::Return(1..) => {}
            Verdict::PassThen(after) => break after,
            other => panic!("{other:?}"),
        }
    };
    event[..4].copy_from_slice(&room.to_le_bytes());
    event[4..12].copy_from_slice(&(TAG | u64::from(other.lane.number())).to_le_bytes());
    *STAGE.lock().expect("sane") = Some((other, write));
    assert_eq!(client.after(after, 1), 1);
    let told = u32::from_le_bytes(event[..4].try_into().expect("four bytes"));
    assert_eq!(told, room | libc::EPOLLIN as u32);
    assert_eq!(event[4..12], DATA.to_le_bytes());
}

/// Where threads share a set it is the host's. Who asks a one-shot of it anew, while the next byte
/// is at the host already, makes no call to see what its ring has.
fn asked_anew_in_a_set_of_the_hosts(boss: &mut Direct) {
    let (mut main, mut other) = stage(boss, libc::EPOLLIN | ONE_SHOT);
    warm(&mut main);
    assert_eq!(main.direct.epoll_lock(main.set), Ok(()));
    main.direct.epoll_leave_to_host(main.set);
    main.direct.epoll_unlock(main.set);
    let plain = Plain { region: -1 };
    let buffers = Box::leak(Box::new(Buffers::new()));
    let mut client = Client::new(main.direct, plain, plain, buffers);
    let mut event = [0u8; EVENT_BYTES];
    event[..4].copy_from_slice(&((libc::EPOLLIN | ONE_SHOT) as u32).to_le_bytes());
    let [set, fd] = [main.epoll, main.fds[0]].map(|fd| fd as usize);
    let args = [set, libc::EPOLL_CTL_MOD as usize, fd, event.as_ptr() as usize, 0, 0];
    let anew = Call { number: nr::epoll_ctl, args };
    assert!(matches!(client.call(anew), Verdict::Pass));
    write(&mut other);
    assert_eq!(other.direct.pipe_at_host(other.lane), 1);
    let before = plain::CALLS.load(Ordering::Relaxed);
    assert!(matches!(client.call(anew), Verdict::Pass));
    assert_eq!(plain::CALLS.load(Ordering::Relaxed), before);
}

/// A thread is woken again and again for what others have taken: it waits on, as on Linux, and the
/// host alone tells of the set after some time.
fn woken_for_nothing(boss: &mut Direct) {
    const WAKES: u32 = 1000;
    let (mut main, other) = stage(boss, libc::EPOLLIN);
    warm(&mut main);
    let plain = Plain { region: -1 };
    let buffers = Box::leak(Box::new(Buffers::new()));
    let mut client = Client::new(main.direct, plain, plain, buffers);
    let mut event = [0u8; EVENT_BYTES];
    let asks = [main.epoll as usize, event.as_mut_ptr() as usize, 1, usize::MAX, 0, 0];
    for wake in 0..WAKES {
        let after = loop {
            match client.call(Call { number: nr::epoll_wait, args: asks }) {
                Verdict::Return(1..) => assert_eq!(wake, 0, "what the writes above have left"),
                Verdict::PassThen(after) => break after,
                other => panic!("{other:?}"),
            }
        };
        event[4..].copy_from_slice(&(TAG | 0xffff).to_le_bytes());
        assert_eq!(client.after(after, 1), AGAIN, "wake {wake}");
    }
    assert!(other.direct.epoll_is_hosts(other.set));
}

#[test]
fn nobody_sleeps_beside_bytes_of_a_ring() {
    let (mut boss, _) = image(LAYOUT, Cover::Memory);
    assert_eq!(lost(&mut boss), None);
    for bug in [71, 72, 73] {
        kill::mutate(bug);
        let found = lost(&mut boss);
        kill::mutate(0);
        assert!(found.is_some(), "bug {bug} is not seen");
    }
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref() != Some(&KILLED) {
            eprintln!("{info}");
        }
    }));
    assert_eq!(lost_of_one_shots(&mut boss), None);
    for bug in [71, 74] {
        kill::mutate(bug);
        let found = lost_of_one_shots(&mut boss);
        kill::mutate(0);
        assert!(found.is_some(), "bug {bug} of one-shots is not seen");
    }
    let deaths = killed_in_a_shared_set(&mut boss);
    assert!(deaths >= 10, "{deaths}");
    let windows = [killed_beside_a_sleeper(&mut boss), killed_beside_a_poll(&mut boss)];
    drop(std::panic::take_hook());
    assert!(windows[0] >= 2 && windows[1] >= 1, "{windows:?}");
    come_beside_an_event_of_the_host(&mut boss);
    asked_anew_in_a_set_of_the_hosts(&mut boss);
    woken_for_nothing(&mut boss);
}
