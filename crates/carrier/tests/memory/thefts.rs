//! A full image: nobody keeps from others what it has set aside, whether it waits, is stopped or
//! dies, and nobody is stolen what it fills. Each test in a child with its own image.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/world.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Errno, Fs, Inode, Processes, Shortcuts as _};
use support::{
    beside, enter, fork, format_again, frozen, in_child, joined, map, program, root_user, until,
    wait,
};
use world::{findings, put};

const SMALL: Layout = Layout { kernels: 2, memory_bytes: 4 << 20 };
const PAGE: usize = 4096;
/// Who has set something aside.
const KEEPERS: u64 = 24;
/// More points than a theft and the write after it have.
const POINTS_MAX: u64 = 2000;
/// Killed while all steal from each other.
const KILLS_MIN: u64 = 400;
const STORM_MAX: Duration = Duration::from_secs(100);

/// A fresh image.
fn fresh() -> (Direct, Inode) {
    format_again(SMALL, Cover::Memory, Directories::ByContention)
}

fn touch(me: &mut Direct, root: Inode, name: &str) -> Result<Inode, Errno> {
    me.create(&root_user(), root, name.as_bytes(), Node::File(0o644))
}

fn remove(me: &mut Direct, root: Inode, name: &str) {
    me.unlink(&root_user(), root, name.as_bytes()).expect("unlink");
}

/// Sets blocks and objects aside: what a file that is made, written and removed leaves behind.
fn keep(me: &mut Direct, root: Inode, name: &str) {
    let file = touch(me, root, name).expect("create");
    assert_eq!(put(me, file, 0, 3 * PAGE, 7), 3 * PAGE);
    remove(me, root, name);
}

/// Writes to a file until the image is full; how many blocks it got.
fn fill(me: &mut Direct, root: Inode, name: &str) -> u64 {
    let file = touch(me, root, name).expect("create");
    let full = (0..).find(|&n| put(me, file, n * PAGE as u64, PAGE, 1) == 0).expect("an end");
    let refused = me.write_at(file, full * PAGE as u64, &[7; PAGE]);
    assert_eq!(refused, Err(Errno::ENOSPC));
    full
}

/// Makes names of at least `bytes` until there is no room for more; how many.
fn name_all(me: &mut Direct, root: Inode, bytes: usize) -> u64 {
    let name = |n| format!("n{n:0bytes$}");
    let refused = (0..).find_map(|n| touch(me, root, &name(n)).err().map(|why| (n, why)));
    let (made, why) = refused.expect("an end");
    assert_eq!(why, Errno::ENOSPC);
    made
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: our own child, which nobody has waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until a child has stopped.
fn stopped(pid: i32) {
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) }, pid);
    assert!(libc::WIFSTOPPED(status), "it was to stop: {status:x}");
}

#[test]
fn who_fills_an_image_gets_all_that_living_threads_keep() {
    in_child(|| {
        map(SMALL);
        let (mut boss, root) = fresh();
        let mut me = program(&mut boss, frozen);
        let process = me.current();
        static KEEPING: AtomicU64 = AtomicU64::new(0);
        static FULL: AtomicU64 = AtomicU64::new(0);
        let keepers: Vec<_> = (0..KEEPERS)
            .map(|n| {
                beside(process, move |me| {
                    keep(me, root, &format!("kept by {n}"));
                    KEEPING.fetch_add(1, Ordering::Release);
                    until("the image is full", || FULL.load(Ordering::Acquire) == 1);
                    // Who is stolen from goes on.
                    let file = touch(me, root, &format!("after {n}"));
                    assert_eq!(file.err(), Some(Errno::ENOSPC));
                })
            })
            .collect();
        until("all keep some", || KEEPING.load(Ordering::Acquire) == KEEPERS);
        let before = me.usage();
        assert_eq!(fill(&mut me, root, "big"), before.blocks_free, "free, it said");
        assert_eq!(me.usage().blocks_free, 0, "full, it says");
        assert_eq!(name_all(&mut me, root, 1), before.inodes_free - 1, "free, it said");
        assert_eq!(me.usage().inodes_free, 0, "full, it says");
        FULL.store(1, Ordering::Release);
        keepers.into_iter().for_each(|keeper| joined("a keeper", keeper));
        remove(&mut me, root, "big");
        assert_eq!(me.usage().blocks_free, before.blocks_free);
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

#[test]
fn an_image_has_room_for_as_many_long_names_as_files() {
    in_child(|| {
        map(SMALL);
        let (mut boss, root) = fresh();
        let mut me = program(&mut boss, frozen);
        let free = me.usage().inodes_free;
        assert_eq!(name_all(&mut me, root, 254), free);
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

#[test]
fn who_is_stopped_keeps_nothing_and_goes_on_later() {
    in_child(|| {
        map(SMALL);
        let (mut boss, root) = fresh();
        boss.detach();
        let keepers: Vec<i32> = (0..4)
            .map(|n| {
                fork(|| {
                    let mut me = enter();
                    keep(&mut me, root, &format!("kept by {n}"));
                    signal(std::process::id() as i32, libc::SIGSTOP);
                    keep(&mut me, root, &format!("kept by {n}"));
                    me.exit();
                })
            })
            .collect();
        keepers.iter().for_each(|&keeper| stopped(keeper));
        let free = boss.usage().blocks_free;
        assert_eq!(fill(&mut boss, root, "big"), free, "free, it said");
        remove(&mut boss, root, "big");
        for &keeper in &keepers {
            signal(keeper, libc::SIGCONT);
            assert_eq!(wait(keeper), 0, "it could not go on");
            boss.reap(keeper as u32).expect("reaped");
        }
        assert_eq!(boss.usage().blocks_free, free);
        boss.detach();
        assert_eq!(findings(&boss), []);
    });
}

fn die() {
    signal(std::process::id() as i32, libc::SIGKILL);
}

/// One steals from another that is stopped, and dies at point `point` of it: whether it did. The
/// other one goes on with what is left to it.
fn thief_dies(point: u64) -> bool {
    let (mut boss, root) = fresh();
    let free = boss.usage().blocks_free;
    let victim = fork(|| {
        let mut me = enter();
        keep(&mut me, root, "kept");
        signal(std::process::id() as i32, libc::SIGSTOP);
        keep(&mut me, root, "kept");
        me.exit();
    });
    stopped(victim);
    let kept = boss.kernel().session.slots_high();
    let big = touch(&mut boss, root, "big").expect("create");
    // All that is not the victim's, which has a run of 32.
    let count = free as usize - 40;
    assert_eq!(put(&mut boss, big, 0, count * PAGE, 1), count * PAGE);
    boss.detach();
    let thief = fork(|| {
        let mut me = enter();
        let file = touch(&mut me, root, "stolen").expect("create");
        let filled = (0..20).map(|n| put(&mut me, file, n * PAGE as u64, PAGE, 2)).sum::<usize>();
        husk_region::observe::kill::arm(point, die);
        let more = (20..40).map(|n| put(&mut me, file, n * PAGE as u64, PAGE, 2)).sum::<usize>();
        assert_eq!(filled + more, 40 * PAGE, "the victim keeps some of {kept}");
        husk_region::observe::kill::arm(0, die);
    });
    let died = libc::WIFSIGNALED(wait(thief));
    boss.reap(thief as u32).expect("reaped");
    assert_eq!(findings(&boss), [], "died at {point}");
    remove(&mut boss, root, "stolen");
    boss.detach();
    signal(victim, libc::SIGCONT);
    assert_eq!(wait(victim), 0, "the victim could not go on, point {point}");
    boss.reap(victim as u32).expect("reaped");
    remove(&mut boss, root, "big");
    assert_eq!(boss.usage().blocks_free, free, "died at {point}");
    boss.detach();
    assert_eq!(findings(&boss), [], "died at {point}");
    died
}

#[test]
fn a_thief_that_dies_at_any_point_leaves_all_to_its_victim() {
    in_child(|| {
        map(SMALL);
        let last = (1..POINTS_MAX).find(|&point| !thief_dies(point)).expect("an end");
        assert!(last > 100, "only {last} points");
    });
}

/// Makes files, writes to them and removes them, in an image with too few blocks for all.
fn worker(root: Inode, who: u64, done: &AtomicU64) {
    let mut me = enter();
    me.set_alone(who & 1 == 1);
    for n in 0u64.. {
        let name = format!("w{who}-{n}");
        let Ok(file) = touch(&mut me, root, &name) else { continue };
        for block in 0..n % 40 {
            if put(&mut me, file, block * PAGE as u64, PAGE, who as u8) == 0 {
                break;
            }
            // What is filled is nobody else's.
            let mut bytes = [0; PAGE];
            assert_eq!(me.read_at(file, block * PAGE as u64, &mut bytes), Ok(PAGE));
            assert!(bytes.iter().all(|&byte| byte == who as u8), "somebody else's block");
        }
        remove(&mut me, root, &name);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A counter that children share.
fn counter() -> &'static AtomicU64 {
    // SAFETY: a fresh shared page, kept for good; zero is a valid counter.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, 3, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*(page as *const AtomicU64)
    }
}

#[test]
fn thieves_and_victims_that_are_killed_at_any_time_lose_no_block() {
    const WORKERS: u64 = 4;
    in_child(|| {
        map(SMALL);
        let (mut boss, root) = fresh();
        let (free, done) = (boss.usage().blocks_free, counter());
        let big = touch(&mut boss, root, "big").expect("create");
        let count = free as usize - 60;
        assert_eq!(put(&mut boss, big, 0, count * PAGE, 1), count * PAGE);
        boss.detach();
        let (mut dice, mut kills, start) = (0x5eedu64, 0, Instant::now());
        while kills < KILLS_MIN {
            assert!(start.elapsed() < STORM_MAX, "only {kills} kills");
            let workers = (0..WORKERS).map(|n| fork(|| worker(root, kills + n, done)));
            let workers: Vec<i32> = workers.collect();
            for &worker in &workers {
                dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                std::thread::sleep(Duration::from_micros(300 + (dice >> 53)));
                signal(worker, libc::SIGKILL);
                let status = wait(worker);
                assert!(libc::WIFSIGNALED(status), "a worker failed by itself: {status:x}");
            }
            for &worker in &workers {
                boss.reap(worker as u32).expect("reaped");
            }
            kills += WORKERS;
            let found = findings(&boss);
            assert!(found.is_empty(), "after kill {kills}: {found:?}");
            clear(&mut boss, root, free - count as u64, kills);
            boss.detach();
        }
        assert!(done.load(Ordering::Relaxed) > KILLS_MIN, "the storm did nothing");
    });
}

/// Removes what the dead have left: all blocks but those of "big" are there.
fn clear(boss: &mut Direct, root: Inode, free: u64, kills: u64) {
    let mut names = Vec::new();
    boss.list(root, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("list");
    names.iter().filter(|name| name.starts_with('w')).for_each(|name| remove(boss, root, name));
    assert_eq!(boss.usage().blocks_free, free, "after {kills} kills");
}
