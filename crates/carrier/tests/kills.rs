//! Death at every point: after each journalled store, in each phase of each commit, around each
//! lock.
//!
//! A child runs one operation and kills itself at its n-th kill point, for every n; the parent
//! cleans up, checks the whole structure, and compares the tree: all before, or all after. Planted
//! bugs show that the test sees. A storm kills at random besides, with live peers that meet the
//! dead.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use husk_carrier::{CACHE_ADDRESS, Direct, Layout, STATE_ADDRESS, format, map_region};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::{Fs, Inode, Process, Processes};
use support::{directory, frozen, root_user, tid};
use world::{Operation, build, findings, operations, put, snapshot};

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 8 << 20 };
/// More points than any operation has.
const POINTS_MAX: u64 = 5000;

fn map() {
    // SAFETY: plain calls.
    unsafe {
        let fd = libc::memfd_create(c"husk-test".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, LAYOUT.total_bytes() as i64), 0);
        map_region(fd as u32, LAYOUT).expect("mapped");
    }
}

/// A fresh image with the small tree.
fn fresh() -> (Direct, Inode) {
    // SAFETY: the region mapped by `map`; all its users are gone.
    unsafe {
        let state = LAYOUT.state_bytes() as usize;
        assert_eq!(libc::madvise(STATE_ADDRESS as *mut _, state, libc::MADV_REMOVE), 0);
        let cache = LAYOUT.cache_bytes() as usize;
        assert_eq!(libc::madvise(CACHE_ADDRESS as *mut _, cache, libc::MADV_REMOVE), 0);
    }
    format(LAYOUT, 7, b"/tmp/copies").expect("formatted");
    let mut boss = Direct::attach(frozen, Process(0), std::process::id(), tid()).expect("attached");
    let root = boss.add_mount(b"/tmp/mount", Cover::Overlay, &directory()).expect("mounted");
    build(&mut boss, root);
    (boss, root)
}

fn much_later() -> i64 {
    frozen() + 100_000_000_000
}

fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child only computes and leaves by `_exit`.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_ok();
            libc::_exit(if done { 0 } else { 1 });
        }
        pid
    }
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { assert_eq!(libc::waitpid(pid, &mut status, 0), pid) };
    status
}

fn die() {
    // SAFETY: kills this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Runs an operation in a child that dies at point `point` (0 = never). Its wait status.
fn run_child(operation: &Operation, root: Inode, point: u64, bug: u64) -> (i32, i32) {
    let pid = fork(|| {
        let pid = std::process::id();
        let mut me = Direct::attach(frozen, Process(0), pid, pid).expect("attached");
        let process = me.first_process(pid, &[]).expect("record");
        me.detach();
        let mut me = Direct::attach(frozen, process, pid, pid).expect("attached");
        (operation.before)(&mut me, root);
        husk_region::kill::mutate(bug);
        if point > 0 {
            husk_region::kill::arm(point, die);
        }
        (operation.run)(&mut me, root);
        husk_region::kill::arm(0, die);
    });
    (pid, wait(pid))
}

struct Outcome {
    kills: u64,
    faults: Vec<String>,
}

/// Kills one operation at every point.
fn sweep(operation: &Operation, bug: u64, stride: u64) -> Outcome {
    let mut outcome = Outcome { kills: 0, faults: Vec::new() };
    let mut states: Vec<BTreeMap<String, String>> = Vec::new();
    for before in [true, false] {
        let (mut boss, root) = fresh();
        let idle = Operation { run: |_, _| {}, ..*operation };
        let (pid, status) = run_child(if before { &idle } else { operation }, root, 0, 0);
        assert_eq!(status, 0, "{}: fails undisturbed", operation.name);
        boss.reap(pid as u32).expect("reaped");
        assert_eq!(findings(&boss), [], "{}: undisturbed", operation.name);
        states.push(snapshot(&mut boss, root));
        boss.detach();
    }
    let mut point = 1 + operation.name.len() as u64 % stride;
    while point < POINTS_MAX {
        let (mut boss, root) = fresh();
        let (pid, status) = run_child(operation, root, point, bug);
        if !libc::WIFSIGNALED(status) {
            break;
        }
        outcome.kills += 1;
        husk_region::kill::mutate(bug);
        let reaped = boss.reap(pid as u32);
        husk_region::kill::mutate(0);
        let place = format!("{} at {point}", operation.name);
        boss.detach();
        // Embryos without a parent are given time; later they go too.
        let pid = std::process::id();
        let mut late = Direct::attach(much_later, Process(0), pid, tid()).expect("attached");
        let reaped = reaped.and_then(|_| late.reap(0));
        late.detach();
        if reaped.is_err() {
            outcome.faults.push(format!("{place}: {reaped:?}"));
        } else if let Some(finding) = findings(&boss).first() {
            outcome.faults.push(format!("{place}: {finding:?}"));
        } else if !operation.in_parts && !states.contains(&snapshot(&mut boss, root)) {
            outcome.faults.push(format!("{place}: neither before nor after"));
        }
        boss.detach();
        point += stride;
    }
    outcome
}

fn every_point() {
    let start = Instant::now();
    let mut kills = 0;
    // Every third point by default; 1 tries all (a minute or two).
    let stride = std::env::var("HUSK_KILL_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    for operation in &operations() {
        let outcome = sweep(operation, 0, stride);
        assert!(outcome.kills > 2, "{}: never stopped", operation.name);
        assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
        kills += outcome.kills;
    }
    println!("every point: {kills} kills, no finding, {:?}", start.elapsed());
}

/// Planted bugs: forward undo, no commit mark, no redo at replay, locks of the dead forgotten.
fn bugs_are_seen() {
    for bug in 1..=4 {
        let seen = operations().iter().any(|operation| {
            let names = ["unlink of the host", "rename", "rename over", "unlink"];
            names.contains(&operation.name) && !sweep(operation, bug, 2).faults.is_empty()
        });
        assert!(seen, "planted bug {bug} was not seen");
    }
    println!("planted bugs 1..=4 seen");
}

// ---- the storm ------------------------------------------------------------------------------

const CHILDREN: usize = 3;
const STORM: Duration = Duration::from_secs(8);

/// Shared with the children: pause flag, then one acknowledgement and one operation count each.
fn board() -> &'static [AtomicU64; 16] {
    // SAFETY: a fresh shared page, kept for good; zero is a valid counter.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, 3, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*(page as *const [AtomicU64; 16])
    }
}

fn storm_child(board: &[AtomicU64; 16], me: usize, root: Inode, seed: u64) {
    let pid = std::process::id();
    let mut direct = Direct::attach(frozen, Process(0), pid, pid).expect("attached");
    let process = direct.first_process(pid, &[]).expect("record");
    direct.detach();
    let mut direct = Direct::attach(frozen, process, pid, pid).expect("attached");
    let mut seed = seed;
    loop {
        let pause = board[0].load(Ordering::SeqCst);
        if pause != 0 {
            board[1 + me].store(pause, Ordering::SeqCst);
            while board[0].load(Ordering::SeqCst) == pause {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        storm_step(&mut direct, root, seed >> 33);
        board[8 + me].fetch_add(1, Ordering::Relaxed);
    }
}

fn storm_step(me: &mut Direct, root: Inode, dice: u64) {
    use husk_proto::Descriptors;
    let (who, files) = (root_user(), me.files());
    let Ok(a) = me.lookup(root, if dice & 1 == 0 { b"a" } else { b"b" }) else { return };
    let Ok(b) = me.lookup(root, if dice & 2 == 0 { b"a" } else { b"b" }) else { return };
    let (a, b) = (a.inode, b.inode);
    let (one, two) = ([b'x', b'0' + (dice >> 2 & 7) as u8], [b'x', b'0' + (dice >> 5 & 7) as u8]);
    let size = (dice >> 8 & 0x3fff) as usize;
    let result = match dice >> 24 & 7 {
        0 | 1 => me.create(&who, a, &one, Node::File(0o644)).map(|file| {
            put(me, file, 0, size, 1);
        }),
        2 => me.unlink(&who, a, &one),
        3 => me.rename(&who, a, &one, b, &two, (dice >> 28 & 2) as u32),
        4 => me.create(&who, a, &one, Node::Directory(0o755)).map(|_| ()),
        5 => me.rmdir(&who, a, &one),
        6 => me
            .create_open(&who, files, a, &one, 0o644, 2, 32)
            .and_then(|fd| me.unlink(&who, a, &one).map(|()| fd))
            .and_then(
                |fd| if dice >> 29 & 1 == 0 { me.close(files, fd).map(|_| ()) } else { Ok(()) },
            ),
        _ => {
            let mut list = Vec::new();
            me.for_each(files, 0, 1000, &mut |fd, _| list.push(fd));
            for fd in list {
                let _ = me.close(files, fd);
            }
            me.prepare_fork(Default::default()).map(|child| me.cancel_fork(child))
        }
    };
    assert_ne!(result, Err(husk_proto::Errno::EIO), "a wait was given up");
}

fn storm() {
    let (mut boss, root) = fresh();
    let board = board();
    let start = Instant::now();
    let mut seed = 0x5eedu64;
    let spawn = |n: usize, seed: u64| fork(|| storm_child(board, n, root, seed));
    let mut children: Vec<i32> = (0..CHILDREN).map(|n| spawn(n, n as u64)).collect();
    let (mut kills, mut longest) = (0u64, Duration::ZERO);
    while start.elapsed() < STORM {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99991);
        std::thread::sleep(Duration::from_micros(seed >> 33 & 0x7ff));
        let victim = (seed >> 50) as usize % CHILDREN;
        // SAFETY: our own child.
        unsafe { libc::kill(children[victim], libc::SIGKILL) };
        wait(children[victim]);
        let since = Instant::now();
        board[0].store(kills + 1, Ordering::SeqCst);
        for n in (0..CHILDREN).filter(|&n| n != victim) {
            while board[1 + n].load(Ordering::SeqCst) != kills + 1 {
                assert!(since.elapsed() < Duration::from_secs(3), "a peer hangs");
                let mut status = 0;
                // SAFETY: our own child.
                let gone = unsafe { libc::waitpid(children[n], &mut status, libc::WNOHANG) };
                assert_eq!(gone, 0, "a peer failed");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        longest = longest.max(since.elapsed());
        boss.reap(children[victim] as u32).expect("reaped");
        let found = findings(&boss);
        assert!(found.is_empty(), "after kill {kills}: {found:?}");
        board[0].store(0, Ordering::SeqCst);
        kills += 1;
        children[victim] = spawn(victim, seed);
    }
    for &child in &children {
        // SAFETY: our own children.
        unsafe { libc::kill(child, libc::SIGKILL) };
        wait(child);
        boss.reap(child as u32).expect("reaped");
    }
    assert_eq!(findings(&boss), []);
    let operations: u64 = (0..CHILDREN).map(|n| board[8 + n].load(Ordering::Relaxed)).sum();
    assert!(operations > 1000, "the storm did nothing");
    println!("storm: {kills} kills, {operations} operations, longest wait {longest:?}");
}

#[test]
fn death_leaves_all_or_nothing() {
    map();
    storm();
    every_point();
    bugs_are_seen();
}
