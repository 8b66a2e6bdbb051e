//! Many names in one directory: each is listed once, none costs more for its neighbours, and all
//! leave nothing behind. `HUSK_FULL=1`: a million.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/world.rs"]
mod world;

use std::time::Duration;

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::{Fs, Inode, Processes};
use support::{frozen, in_child, program, root_user};
use world::findings;

/// Names, and what an image needs for as many inodes: its pages are hardly touched.
const MANY: (u64, u64) = (100_000, 1 << 30);
const MOST: (u64, u64) = (1_000_000, 6 << 30);
/// Names looked at together for one measurement.
const SAMPLE: u64 = 1000;
/// State of an empty file, at most.
const FILE_BYTES_MAX: u64 = 1024;
/// How much dearer a name may be among many than among a thousand: caches end, chains do not grow.
const DEARER_MAX: u32 = 10;

fn size() -> (u64, u64) {
    if std::env::var_os("HUSK_FULL").is_some() { MOST } else { MANY }
}

fn name(n: u64) -> String {
    format!("name-{:07}", n.wrapping_mul(7_919) % 10_000_000)
}

fn touch(me: &mut Direct, dir: Inode, n: u64) {
    me.create(&root_user(), dir, name(n).as_bytes(), Node::File(0o644)).expect("create");
}

/// Processor time of this thread that `step(0..SAMPLE)` takes, the least of three.
fn time(mut step: impl FnMut(u64)) -> Duration {
    let now = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a plain call on our own structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let once = |_| {
        let start = now();
        (0..SAMPLE).for_each(&mut step);
        now() - start
    };
    (0..3).map(once).min().unwrap_or_default()
}

/// Looks a sample of `count` names up.
fn look_up(me: &mut Direct, dir: Inode, count: u64) -> Duration {
    let stride = count / SAMPLE;
    time(|n| assert!(me.lookup(dir, name(n * stride).as_bytes()).is_ok()))
}

/// Makes a sample of further names and removes them again.
fn make_and_remove(me: &mut Direct, dir: Inode, count: u64) -> Duration {
    time(|n| {
        touch(me, dir, count + n);
        me.unlink(&root_user(), dir, name(count + n).as_bytes()).expect("unlink");
    })
}

/// Bytes of the host's memory behind a descriptor.
fn held(fd: i32) -> u64 {
    // SAFETY: zero is a valid stat buffer, which the call fills.
    unsafe {
        let mut facts: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(fd, &mut facts), 0);
        facts.st_blocks as u64 * 512
    }
}

/// Lists all names, each once.
fn list_all(me: &mut Direct, dir: Inode, count: u64) {
    let mut seen = vec![false; 10_000_000];
    let mut listed = 0;
    me.list(dir, 0, &mut |entry| {
        let digits = std::str::from_utf8(&entry.name[5..]).expect("digits");
        let number: usize = digits.parse().expect("a number");
        assert!(!std::mem::replace(&mut seen[number], true), "{number} twice");
        listed += 1;
        true
    })
    .expect("a listing");
    assert_eq!(listed, count);
}

fn crowd(wide: bool) {
    let (count, memory_bytes) = size();
    let layout = Layout { kernels: 2, memory_bytes };
    let region = support::map(layout);
    let (mut boss, root) = support::formatted(layout, frozen, Cover::Memory, Directories::Narrow);
    let mut me = program(&mut boss, frozen);
    let dir = me.create(&root_user(), root, b"d", Node::Directory(0o755)).expect("mkdir");
    me.switch_directory(dir, wide).expect("switched");
    let free = me.usage().inodes_free;
    (0..SAMPLE).for_each(|n| touch(&mut me, dir, n));
    let few = [look_up(&mut me, dir, SAMPLE), make_and_remove(&mut me, dir, SAMPLE)];
    let before = held(region);
    (SAMPLE..count).for_each(|n| touch(&mut me, dir, n));
    let bytes = (held(region) - before) / (count - SAMPLE);
    let many = [look_up(&mut me, dir, count), make_and_remove(&mut me, dir, count)];
    println!("{count} names, wide {wide}: {bytes} B a file");
    for (what, n) in [("lookup", 0), ("create + unlink", 1)] {
        let each = |all: Duration| all.as_nanos() as u64 / SAMPLE;
        println!("  {what}: {} ns among {SAMPLE}, {} ns", each(few[n]), each(many[n]));
        assert!(many[n] < few[n] * DEARER_MAX, "{what}: {few:?}, {many:?}");
    }
    assert!(bytes <= FILE_BYTES_MAX, "{bytes} bytes for an empty file");
    list_all(&mut me, dir, count);
    (0..count).for_each(|n| {
        me.unlink(&root_user(), dir, name(n).as_bytes()).expect("unlink");
    });
    list_all(&mut me, dir, 0);
    me.rmdir(&root_user(), root, b"d").expect("rmdir");
    assert_eq!(me.usage().inodes_free, free + 1);
    me.exit();
    assert_eq!(findings(&boss), []);
}

#[test]
fn a_name_among_many_costs_what_one_among_few_costs() {
    in_child(|| crowd(false));
    in_child(|| crowd(true));
}
