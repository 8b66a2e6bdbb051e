//! Death at every point: after each journalled store, in each phase of each commit, around each
//! lock.
//!
//! ```text
//!   every point      one dies at its n-th point ─► we clean up ─► check, all before or all after
//!   a peer dies too  one dies ─► another dies cleaning up after it ─► we clean up ─► the same
//!   peers race       one dies ─► two settle it and go on, both held up at random ─► check
//!   the storm        many work, and are killed from outside at any time ─► check, batch by batch
//! ```
//!
//! Planted bugs show that the tests see.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use husk_carrier::{Direct, Directories, Layout};
use husk_kernel::descriptor::leases;
use husk_proto::fs::Node;
use husk_proto::watch::Watches;
use husk_proto::{Admin as _, Fs, Inode, Process, Processes, Shortcuts as _};
use support::{enter, fork, format_anew, frozen, map, root_user, tid, wait};
use world::{
    Operation, WATCHED, WATCHER_FILE, at, build, findings, operations, put, snapshot, watch,
};

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 8 << 20 };
/// More points than any operation has.
const POINTS_MAX: u64 = 5000;

/// How directories are shared in the next images.
static RULE: AtomicU64 = AtomicU64::new(0);

fn set_rule(rule: Directories) {
    RULE.store(rule as u64, Ordering::Relaxed);
}

fn rule() -> Directories {
    let all = [Directories::Narrow, Directories::ByContention, Directories::Wide];
    *all.iter().find(|&&rule| rule as u64 == RULE.load(Ordering::Relaxed)).expect("a rule")
}

/// Whether somebody watches all that changes in the next images.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// A fresh image with the small tree.
fn fresh() -> (Direct, Inode) {
    let (mut boss, root) = format_anew(LAYOUT, rule());
    build(&mut boss, root);
    if WATCHING.load(Ordering::Relaxed) {
        let mut watcher = enter();
        watch(&mut watcher, root, WATCHED);
        watcher.detach();
    }
    (boss, root)
}

/// What can be seen, and what the watcher is told.
fn look(boss: &mut Direct, root: Inode) -> BTreeMap<String, String> {
    let mut seen = snapshot(boss, root);
    if let Some(watcher) = boss.watch_find(WATCHER_FILE) {
        let (bytes, mut queue) = (boss.watch_waiting(watcher), vec![0; 16384]);
        boss.watch_take(watcher, &mut queue).expect("taken");
        seen.insert("told".into(), format!("{:?}", &queue[..bytes as usize]));
    }
    seen
}

fn much_later() -> i64 {
    frozen() + 100_000_000_000
}

fn die() {
    // SAFETY: kills this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// How a child is: the bug planted in it, and whether it acts as a process of one thread, which
/// locks less.
type Manner = (u64, bool);

/// Runs an operation in a child that dies at point `point` (0 = never). Its wait status.
fn run_child(operation: &Operation, root: Inode, point: u64, manner: Manner) -> (i32, i32) {
    let (bug, alone) = manner;
    let pid = fork(|| {
        let mut me = enter();
        me.set_alone(alone);
        (operation.before)(&mut me, root);
        husk_region::observe::kill::mutate(bug);
        if point > 0 {
            husk_region::observe::kill::arm(point, die);
        }
        (operation.run)(&mut me, root);
        husk_region::observe::kill::arm(0, die);
    });
    (pid, wait(pid))
}

struct Outcome {
    kills: u64,
    faults: Vec<String>,
}

/// Kills one operation at every point.
fn sweep(operation: &Operation, (bug, alone): Manner, stride: u64) -> Outcome {
    let mut outcome = Outcome { kills: 0, faults: Vec::new() };
    let mut states: Vec<BTreeMap<String, String>> = Vec::new();
    for before in [true, false] {
        let (mut boss, root) = fresh();
        let idle = Operation { run: |_, _| {}, ..*operation };
        let (pid, status) = run_child(if before { &idle } else { operation }, root, 0, (0, alone));
        assert_eq!(status, 0, "{}: fails undisturbed", operation.name);
        boss.reap(pid as u32).expect("reaped");
        assert_eq!(findings(&boss), [], "{}: undisturbed", operation.name);
        states.push(look(&mut boss, root));
        boss.detach();
    }
    let mut point = 1 + (operation.name.len() as u64 + alone as u64) % stride;
    while point < POINTS_MAX {
        let (mut boss, root) = fresh();
        let (pid, status) = run_child(operation, root, point, (bug, alone));
        if !libc::WIFSIGNALED(status) {
            break;
        }
        outcome.kills += 1;
        husk_region::observe::kill::mutate(bug);
        let reaped = boss.reap(pid as u32);
        husk_region::observe::kill::mutate(0);
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
        } else if !operation.in_parts && !states.contains(&look(&mut boss, root)) {
            outcome.faults.push(format!("{place}: neither before nor after"));
        }
        boss.detach();
        point += stride;
    }
    outcome
}

/// What a lease is for.
const AT_HOME: Inode = Inode { number: 9, generation: 3 };

fn open_to_read(me: &mut Direct, root: Inode) {
    let (a, files) = (at(me, root, b"a"), me.files());
    let file = at(me, a, b"f2");
    assert_eq!(me.open(&root_user(), files, file, 0, 12, 1024), Ok(12));
}

fn keep_open(me: &mut Direct, root: Inode) {
    open_to_read(me, root);
    close_and_keep(me, root);
}

fn close_and_keep(me: &mut Direct, _: Inode) {
    assert_eq!(leases::keep(me.kernel(), me.files(), 12, AT_HOME, false), Ok(true));
}

/// What becomes of files that another node keeps open for this one.
fn kept_open() -> Vec<Operation> {
    let (in_parts, names) = (false, false);
    let (name, before, run) = ("keep open what is closed", open_to_read as _, close_and_keep as _);
    let keep = Operation { name, before, run, in_parts, names };
    let (name, before) = ("open what is kept open", keep_open as _);
    let reopen = |me: &mut Direct, _| {
        let opened = leases::reopen(me.kernel(), me.files(), AT_HOME, 0, (5, 1024));
        assert_eq!(opened, Ok(Some(5)));
    };
    let reopen = Operation { name, before, run: reopen, in_parts, names };
    let (name, before) = ("end what is kept open", keep_open as _);
    let end = |me: &mut Direct, _| {
        assert!(leases::end(me.kernel(), 0, AT_HOME).is_ok_and(|ended| ended.is_some()));
    };
    vec![keep, reopen, Operation { name, before, run: end, in_parts, names }]
}

fn every_point() -> u64 {
    let start = Instant::now();
    let mut kills = 0;
    // Every fifth point by default; 1 tries all (a minute or two).
    let stride = std::env::var("HUSK_KILL_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    // What happens to names is different in wide directories, the rest is not.
    let concerned = |operation: &Operation| rule() != Directories::Wide || operation.names;
    let (all, kept) = (operations(), kept_open());
    for operation in all.iter().chain(&kept).filter(|&operation| concerned(operation)) {
        for alone in [false, true] {
            let outcome = sweep(operation, (0, alone), stride);
            assert!(outcome.kills > 1, "{}: never stopped", operation.name);
            assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
            kills += outcome.kills;
        }
    }
    println!("every point, {:?}: {kills} kills, no finding, {:?}", rule(), start.elapsed());
    kills
}

/// What is told is told by the transaction that it tells of.
fn every_point_watched() -> u64 {
    let (start, mut kills) = (Instant::now(), 0);
    WATCHING.store(true, Ordering::Relaxed);
    let told = |operation: &&Operation| {
        let others = ["close", "last close of unlinked", "append", "change", "create and open"];
        let once = !operation.name.contains("watch") && !operation.in_parts;
        once && (operation.names || others.contains(&operation.name))
    };
    for operation in operations().iter().filter(told) {
        let outcome = sweep(operation, (0, false), 7);
        assert!(outcome.kills > 1, "{}: never stopped", operation.name);
        assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
        kills += outcome.kills;
    }
    let unlink = operations().into_iter().find(|operation| operation.name == "rename over");
    let seen = sweep(&unlink.expect("rename over"), (51, false), 3).faults;
    assert!(!seen.is_empty(), "an event that outlives its operation was not seen");
    WATCHING.store(false, Ordering::Relaxed);
    println!("watched: {kills} kills, no finding, {:?}", start.elapsed());
    kills
}

/// Planted bugs: forward undo, no commit mark, no redo at replay, locks of the dead forgotten.
fn bugs_are_seen() {
    for bug in 1..=4 {
        let seen = operations().iter().any(|operation| {
            let names = ["unlink of the host", "rename", "rename over", "unlink"];
            names.contains(&operation.name) && !sweep(operation, (bug, false), 2).faults.is_empty()
        });
        assert!(seen, "planted bug {bug} was not seen");
    }
    let seen = sweep(&kept_open()[0], (83, false), 1).faults;
    assert!(!seen.is_empty(), "a file that is kept open and has its number still was not seen");
    println!("planted bugs 1..=4 and 83 seen");
}

/// A rename is killed at every point, and before anybody recovers, a peer takes the new name away
/// and gives its slot to another: what the dead one had still to redo may not be done twice. How
/// many were killed, and what was found.
fn late_redo(over: bool, bug: u64) -> (u64, Vec<String>) {
    let all = operations();
    let name = if over { "rename over" } else { "rename" };
    let operation = all.iter().find(|operation| operation.name == name).expect("rename");
    let target: &[u8] = if over { b"f5" } else { b"g4" };
    let mut faults = Vec::new();
    for point in 1..POINTS_MAX {
        let (mut boss, root) = fresh();
        let (pid, status) = run_child(operation, root, point, (0, false));
        if !libc::WIFSIGNALED(status) {
            return (point - 1, faults);
        }
        let a = at(&mut boss, root, b"a");
        husk_region::observe::kill::mutate(bug);
        // Where the dead one still holds locks, this recovers it.
        let gone = boss.unlink(&root_user(), a, target);
        // The line that comes back goes elsewhere, so that slot and line part.
        let b = at(&mut boss, root, b"b");
        boss.create(&root_user(), b, b"decoy", Node::File(0o644)).expect("create");
        let made = boss.create(&root_user(), a, b"heir of the slot", Node::File(0o644));
        let reaped = boss.reap(pid as u32);
        husk_region::observe::kill::mutate(0);
        assert!(gone.is_ok() || gone == Err(husk_proto::Errno::ENOENT), "{gone:?}");
        made.expect("create");
        reaped.expect("reaped");
        if let Some(finding) = findings(&boss).first() {
            faults.push(format!("{name} at {point}: {finding:?}"));
        }
        boss.detach();
    }
    panic!("the operation has too many points");
}

/// Redo is by compare and swap: the planted bug (whatever the word holds) must be seen.
fn redo_comes_late() {
    set_rule(Directories::Wide);
    let mut kills = 0;
    for over in [false, true] {
        let (killed, faults) = late_redo(over, 0);
        assert!(killed > 20 && faults.is_empty(), "{faults:#?}");
        kills += killed;
    }
    let seen = [false, true].iter().any(|&over| !late_redo(over, 6).1.is_empty());
    assert!(seen, "a blind redo was not seen");
    set_rule(Directories::Narrow);
    println!("late redo: {kills} kills, planted bug 6 seen");
}

// ---- the storm ------------------------------------------------------------------------------

/// Workers of one batch; all of them are killed.
const WORKERS: usize = 8;
/// Killed from outside, under each rule.
const KILLS_MIN: u64 = 1000;
/// Longest that a storm may take.
const STORM_MAX: Duration = Duration::from_secs(150);

/// Operations done by the workers, in memory they share with us.
fn counter() -> &'static AtomicU64 {
    // SAFETY: a fresh shared page, kept for good; zero is a valid counter.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, 3, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*(page as *const AtomicU64)
    }
}

fn worker(counter: &AtomicU64, root: Inode, mut seed: u64) {
    let mut direct = enter();
    direct.set_alone(seed & 1 == 1);
    loop {
        storm_step(&mut direct, root, next(&mut seed) >> 33);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed
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

/// Starts `WORKERS`, kills them one after the other, and cleans up: whoever still lives meets the
/// dead first.
fn batch(boss: &mut Direct, root: Inode, counter: &AtomicU64, seed: &mut u64) -> Duration {
    let first = next(seed);
    let workers = (0..WORKERS as u64).map(|n| fork(|| worker(counter, root, first + n)));
    let workers: Vec<i32> = workers.collect();
    std::thread::sleep(Duration::from_micros(500 + (next(seed) >> 53)));
    for &worker in &workers {
        std::thread::sleep(Duration::from_micros(next(seed) >> 55));
        // SAFETY: our own child.
        unsafe { libc::kill(worker, libc::SIGKILL) };
        let status = wait(worker);
        assert!(libc::WIFSIGNALED(status), "a worker failed by itself: {status:x}");
    }
    let since = Instant::now();
    for &worker in &workers {
        boss.reap(worker as u32).expect("reaped");
    }
    since.elapsed()
}

fn storm() -> u64 {
    let (mut boss, root) = fresh();
    let (counter, start) = (counter(), Instant::now());
    let (mut seed, mut kills, mut longest) = (0x5eedu64, 0, Duration::ZERO);
    while kills < KILLS_MIN {
        assert!(start.elapsed() < STORM_MAX, "only {kills} kills");
        longest = longest.max(batch(&mut boss, root, counter, &mut seed));
        kills += WORKERS as u64;
        let found = findings(&boss);
        assert!(found.is_empty(), "after kill {kills}: {found:?}");
    }
    let operations = counter.load(Ordering::Relaxed);
    assert!(operations > 20 * KILLS_MIN, "the storm did nothing: {operations} operations");
    let elapsed = start.elapsed();
    println!(
        "storm, {:?}: {kills} kills, {operations} operations, {elapsed:?}, longest {longest:?}",
        rule()
    );
    kills
}

// ---- deaths and races inside recovery ---------------------------------------------------------

/// Cleans up after `dead` in a child that dies at point `point` of that (0 = never).
fn recover_in_child(dead: i32, point: u64, bug: u64) -> i32 {
    fork(|| {
        let mut me = enter();
        husk_region::observe::kill::mutate(bug);
        husk_region::observe::kill::arm(point, die);
        me.reap(dead as u32).expect("reaped");
        husk_region::observe::kill::arm(0, die);
    })
}

/// Kills one operation at some points, and whoever cleans up after it at every one.
fn sweep_recovery(operation: &Operation, stride: u64, deaths: &mut u64) -> Vec<String> {
    let mut faults = Vec::new();
    let mut point = 1 + operation.name.len() as u64 % stride;
    while point < POINTS_MAX {
        for second in 1 + point % 5.. {
            let (mut boss, root) = fresh();
            let (dead, status) = run_child(operation, root, point, (0, point % 2 == 1));
            if !libc::WIFSIGNALED(status) {
                return faults;
            }
            let peer = recover_in_child(dead, second * second, 0);
            let through = !libc::WIFSIGNALED(wait(peer));
            *deaths += !through as u64;
            let reaped = boss.reap(dead as u32).and_then(|_| boss.reap(peer as u32));
            boss.detach();
            let place = format!("{} at {point}, peer at {}", operation.name, second * second);
            faults
                .extend(settled(reaped.map(|_| ()), &boss).map(|what| format!("{place}: {what}")));
            if through {
                break;
            }
        }
        point += stride;
    }
    faults
}

/// Once embryos were given their time: what the checker finds.
fn settled(reaped: husk_proto::Result<()>, boss: &Direct) -> Option<String> {
    let pid = std::process::id();
    let mut late = Direct::attach(much_later, Process(0), pid, tid()).expect("attached");
    let reaped = reaped.and_then(|()| late.reap(0));
    late.detach();
    match (reaped, findings(boss).first()) {
        (Err(errno), _) => Some(format!("{errno:?}")),
        (_, Some(finding)) => Some(format!("{finding:?}")),
        _ => None,
    }
}

/// Holds whoever comes here up for a while, and comes again.
fn hold_up() {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call on our own structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let mut dice = now.tv_nsec as u64 ^ (std::process::id() as u64) << 20;
    let pause = next(&mut dice) >> 56;
    std::thread::sleep(Duration::from_micros(pause));
    husk_region::observe::kill::arm(1 + (next(&mut dice) >> 61), hold_up);
}

/// One dies half-way; two settle what it left at the same time, each held up now and then, and go
/// on working where it worked.
fn race(operation: &Operation, bug: u64, stride: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let mut point = 1 + operation.name.len() as u64 % stride;
    while point < POINTS_MAX {
        let (mut boss, root) = fresh();
        let (dead, status) = run_child(operation, root, point, (0, point % 2 == 1));
        if !libc::WIFSIGNALED(status) {
            break;
        }
        let peer = |seed: u64| {
            fork(|| {
                let mut me = enter();
                husk_region::observe::kill::mutate(bug);
                husk_region::observe::kill::arm(1, hold_up);
                me.kernel().session.recover_where(|pid, _| pid == dead as u32).expect("settled");
                husk_region::observe::kill::arm(0, hold_up);
                let mut seed = seed;
                for _ in 0..60 {
                    storm_step(&mut me, root, next(&mut seed) >> 33);
                }
                me.exit();
            })
        };
        let place = format!("{} at {point}", operation.name);
        let peers = [peer(point), peer(point + 1000)];
        for peer in peers {
            if wait(peer) != 0 {
                faults.push(format!("{place}: a peer failed"));
            }
        }
        let reaped = boss.reap(dead as u32);
        let reaped = peers.iter().try_fold(reaped, |_, &peer| Ok(boss.reap(peer as u32)));
        boss.detach();
        let reaped = reaped.and_then(|reaped| reaped).map(|_| ());
        faults.extend(settled(reaped, &boss).map(|what| format!("{place}: {what}")));
        point += stride;
    }
    faults
}

fn recoverers_die_and_race() -> u64 {
    let start = Instant::now();
    let mut deaths = 0;
    // The first is one of the points, another one for each operation.
    let stride = if std::env::var_os("HUSK_FULL").is_some() { 5 } else { 37 };
    for operation in &operations() {
        let faults = sweep_recovery(operation, stride, &mut deaths);
        assert!(faults.is_empty(), "{faults:#?}");
        let faults = race(operation, 0, stride);
        assert!(faults.is_empty(), "{faults:#?}");
    }
    assert!(deaths > 200, "only {deaths} died in recovery");
    println!("recovery: {deaths} died in it, no finding, {:?}", start.elapsed());
    deaths
}

/// A planted bug: the recovery word is not taken.
fn two_recoverers_are_seen() {
    let seen = (0..20).any(|_| {
        operations().iter().any(|operation| {
            let names = ["create", "unlink", "rename", "rename across"];
            names.contains(&operation.name) && !race(operation, 5, 3).is_empty()
        })
    });
    assert!(seen, "two who recover at once were not seen");
    println!("planted bug 5 seen");
}

#[test]
fn death_leaves_all_or_nothing() {
    map(LAYOUT);
    let (mut outside, mut inside) = (0, 0);
    for rule in [Directories::ByContention, Directories::Wide] {
        set_rule(rule);
        outside += storm();
    }
    for rule in [Directories::Wide, Directories::Narrow] {
        set_rule(rule);
        inside += every_point() + every_point_watched();
    }
    inside += recoverers_die_and_race();
    bugs_are_seen();
    two_recoverers_are_seen();
    redo_comes_late();
    println!("killed at random times: {outside}, at chosen points: {inside}; no finding");
    assert!(outside >= 2000, "too few to say anything");
}
