//! Two processes that change names in one directory, against one alone and against tmpfs, by
//! library calls (before interception): `cargo run --release -p husk-carrier --example shared
//! [narrow|auto|wide] [DIRECTORY ON TMPFS] [ROW]`.
//!
//! A batch is `OPS` operations of each process, started together. Per operation: CPU time (median
//! of the batches) and span from the first start to the last end, over all operations of both
//! (median of the batches in which both had a core for `OVERLAP` of it). The control computes, and
//! its rate must read 2.0.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::{Node, RENAME_NOREPLACE};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Descriptors, Fs, Inode, Process, Processes, Shortcuts as _};
use support::root_user;

const BATCHES: usize = 41;
const OPS: u64 = 10_000;
/// Part of a span in which both processes run, for it to count.
const OVERLAP: f64 = 0.85;
const ROWS: [&str; 4] = ["control", "create+close+unlink", "rename", "mkdir+rmdir"];

/// What the processes tell each other: which batch each is ready for; then of each batch and
/// process when it began and ended, and its CPU time.
struct Board {
    ready: [AtomicU64; 2],
    log: [[[AtomicU64; 3]; 2]; BATCHES],
}

fn board() -> &'static Board {
    const BYTES: usize = size_of::<Board>();
    // SAFETY: fresh shared memory, kept for good; zero is a valid counter.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), BYTES, 3, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*(page as *const Board)
    }
}

fn now(which: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct lives over the call.
    unsafe { libc::clock_gettime(which, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn coarse() -> i64 {
    now(libc::CLOCK_REALTIME_COARSE) as i64
}

/// Somewhere names are changed.
trait Place {
    fn create_unlink(&mut self, name: &str);
    fn rename(&mut self, source: &str, target: &str);
    fn mkdir_rmdir(&mut self, name: &str);
}

struct Image {
    me: Direct,
    dir: Inode,
}

impl Place for Image {
    fn create_unlink(&mut self, name: &str) {
        let (who, files) = (root_user(), self.me.files());
        let fd = self.me.create_open(&who, files, self.dir, name.as_bytes(), 0o644, 2, 1024);
        self.me.close(files, fd.expect("create")).expect("close");
        self.me.unlink(&who, self.dir, name.as_bytes()).expect("unlink");
    }
    fn rename(&mut self, source: &str, target: &str) {
        let (source, target) = (source.as_bytes(), target.as_bytes());
        self.me
            .rename(&root_user(), self.dir, source, self.dir, target, RENAME_NOREPLACE)
            .expect("rename");
    }
    fn mkdir_rmdir(&mut self, name: &str) {
        self.me
            .create(&root_user(), self.dir, name.as_bytes(), Node::Directory(0o755))
            .expect("mkdir");
        self.me.rmdir(&root_user(), self.dir, name.as_bytes()).expect("rmdir");
    }
}

/// A directory of the host: the working directory.
struct Native;

impl Place for Native {
    fn create_unlink(&mut self, name: &str) {
        drop(std::fs::File::create_new(name).expect("create"));
        std::fs::remove_file(name).expect("unlink");
    }
    fn rename(&mut self, source: &str, target: &str) {
        std::fs::rename(source, target).expect("rename");
    }
    fn mkdir_rmdir(&mut self, name: &str) {
        std::fs::create_dir(name).expect("mkdir");
        std::fs::remove_dir(name).expect("rmdir");
    }
}

/// One batch of a row by process `who`.
fn batch(place: &mut dyn Place, row: usize, names: &[[String; 2]]) {
    for n in 0..OPS {
        let [one, two] = &names[n as usize % names.len()];
        match row {
            0 => {
                let product = (0..64).fold(n | 1, |x, _| std::hint::black_box(x).wrapping_mul(x));
                std::hint::black_box(product);
            }
            1 => place.create_unlink(two),
            2 if (n / names.len() as u64).is_multiple_of(2) => place.rename(one, two),
            2 => place.rename(two, one),
            _ => place.mkdir_rmdir(two),
        }
    }
}

/// All batches of process `who` of `count`, which wait for each other before each.
fn work(board: &Board, place: &mut dyn Place, row: usize, who: usize, count: usize) {
    let name = |n: u64| format!("{who}-{n:02}");
    // An even number of rounds over the names: each is at its place again after a batch.
    let names: Vec<_> = (0..50).map(|n| [name(n), format!("{}-other", name(n))]).collect();
    for (n, log) in board.log.iter().enumerate() {
        board.ready[who].store(n as u64 + 1, Ordering::SeqCst);
        while (0..count).any(|other| board.ready[other].load(Ordering::SeqCst) <= n as u64) {
            std::hint::spin_loop();
        }
        let cpu = now(libc::CLOCK_THREAD_CPUTIME_ID);
        let began = now(libc::CLOCK_MONOTONIC);
        batch(place, row, &names);
        let ended = now(libc::CLOCK_MONOTONIC);
        let cpu = now(libc::CLOCK_THREAD_CPUTIME_ID) - cpu;
        for (cell, value) in log[who].iter().zip([began, ended, cpu]) {
            cell.store(value, Ordering::Relaxed);
        }
    }
}

/// Runs `count` processes; CPU time and span of an operation, ns, and how many batches counted.
fn run(row: usize, count: usize, native: bool, dir: Inode) -> (f64, f64, usize) {
    let board = board();
    let children: Vec<i32> =
        (0..count).map(|who| fork(board, row, who, count, native, dir)).collect();
    for child in children {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { assert_eq!(libc::waitpid(child, &mut status, 0), child) };
        assert_eq!(status, 0, "a worker failed");
    }
    let (mut cpu, mut spans) = (Vec::new(), Vec::new());
    for log in &board.log {
        let of = |who: usize, what: usize| log[who][what].load(Ordering::Relaxed);
        let all = |what| (0..count).map(move |who| of(who, what));
        let (first, last) = (all(0).min().unwrap_or(0), all(1).max().unwrap_or(0));
        let both = all(1).min().unwrap_or(0).saturating_sub(all(0).max().unwrap_or(0));
        let operations = (count as u64 * OPS) as f64;
        cpu.push(all(2).sum::<u64>() as f64 / operations);
        let span = (last - first) as f64;
        // A batch during which somebody else had the core tells nothing.
        let idle = all(2).min().unwrap_or(0) as f64 / span;
        if both as f64 / span >= OVERLAP && idle >= OVERLAP {
            spans.push(span / operations);
        }
    }
    (median(&mut cpu), median(&mut spans), spans.len())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn fork(board: &Board, row: usize, who: usize, count: usize, native: bool, dir: Inode) -> i32 {
    // SAFETY: the child works and leaves by `_exit`.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let pid = std::process::id();
            if native {
                work(board, &mut Native, row, who, count);
            } else {
                let mut me = Direct::attach(coarse, Process(0), pid, pid).expect("attached");
                let process = me.first_process(pid, &[]).expect("record");
                me.detach();
                let me = Direct::attach(coarse, process, pid, pid).expect("attached");
                let mut place = Image { me, dir };
                work(board, &mut place, row, who, count);
                place.me.exit();
            }
            libc::_exit(0);
        }
        pid
    }
}

fn main() {
    let argument = |n| std::env::args().nth(n);
    let rule = match argument(1).as_deref() {
        Some("auto") => Directories::ByContention,
        Some("wide") => Directories::Wide,
        _ => Directories::Narrow,
    };
    let layout = Layout { kernels: 2, memory_bytes: 64 << 20 };
    let (mut boss, root) = support::shared_image(layout, Cover::Memory, rule);
    let dir = boss.create(&root_user(), root, b"d", Node::Directory(0o755)).expect("mkdir");
    for who in 0..2 {
        for n in 0..50 {
            let name = format!("{who}-{n:02}");
            boss.create(&root_user(), dir, name.as_bytes(), Node::File(0o644)).expect("create");
        }
    }
    let scratch = argument(2).unwrap_or_else(|| "/dev/shm".into()) + "/husk-shared";
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir(&scratch).expect("a directory on tmpfs");
    std::env::set_current_dir(&scratch).expect("there");
    for who in 0..2 {
        for n in 0..50 {
            std::fs::write(format!("{who}-{n:02}"), "").expect("create");
        }
    }
    println!("{rule:?}; ns an operation: CPU, span (batches of {BATCHES} that counted)");
    let only = argument(3).unwrap_or_default();
    for (row, name) in ROWS.iter().enumerate().filter(|(_, name)| name.starts_with(&only)) {
        for native in [false, true] {
            let (one, two) = (run(row, 1, native, dir), run(row, 2, native, dir));
            println!(
                "{name:20} {}  1: {:6.0} {:6.0} ({:2})  2: {:6.0} {:6.0} ({:2})  rate x {:.2}",
                if native { "tmpfs" } else { "image" },
                one.0,
                one.1,
                one.2,
                two.0,
                two.1,
                two.2,
                one.1 / two.1
            );
        }
    }
    println!("wide at the end: {}", boss.is_wide(dir));
    std::env::set_current_dir("/").expect("there");
    std::fs::remove_dir_all(&scratch).expect("removed");
}
