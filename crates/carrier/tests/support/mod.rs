//! A fresh image in this process: the region on a memfd, mapped at its addresses.
#![allow(dead_code, unused_imports)] // each test uses a part of it

mod bounded;
mod child;

pub use bounded::{joined, until};
pub use child::{fork, in_child, wait};

use std::thread::JoinHandle;

use husk_carrier::{CACHE_ADDRESS, Direct, Directories, Layout, STATE_ADDRESS, format, map_region};
use husk_proto::fs::{Credentials, Imported, Kind};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Inode, Process};

pub const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 64 << 20 };
/// Numbers from here on are out of the way of those that programs use.
pub const FD_HIGH: i32 = 500;

pub fn clock() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    (now.map_or(0, |now| now.as_nanos() as i64) / 4_000_000) * 4_000_000
}

/// A clock that stands still, so that runs are the same.
pub fn frozen() -> i64 {
    1_000_000_000
}

pub fn root_user() -> Credentials<'static> {
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None }
}

/// Maps a region at its addresses, once a process; the number of its memory.
pub fn map(layout: Layout) -> i32 {
    // SAFETY: calls on a descriptor made here; nothing is mapped at the region's addresses yet.
    unsafe {
        let fd = libc::memfd_create(c"husk-test".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, layout.total_bytes() as i64), 0);
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FD_HIGH);
        assert!(high >= FD_HIGH);
        libc::close(fd);
        map_region(high as u32, layout).expect("mapped");
        high
    }
}

/// Maps and formats an image; one a process.
pub fn image(layout: Layout, cover: Cover) -> (Direct, Inode) {
    shared_image(layout, cover, Directories::default())
}

/// The same with a rule for its directories.
pub fn shared_image(layout: Layout, cover: Cover, rule: Directories) -> (Direct, Inode) {
    map(layout);
    formatted(layout, clock, cover, rule)
}

/// Formats the mapped region anew, as if it had just been made: an overlay, by a clock that stands
/// still.
pub fn format_anew(layout: Layout, rule: Directories) -> (Direct, Inode) {
    format_again(layout, Cover::Overlay, rule)
}

/// The same with a choice of cover.
pub fn format_again(layout: Layout, cover: Cover, rule: Directories) -> (Direct, Inode) {
    let halves = [(STATE_ADDRESS, layout.state_bytes()), (CACHE_ADDRESS, layout.cache_bytes())];
    for (address, bytes) in halves {
        // SAFETY: the region mapped by `map`; all its users are gone.
        let gone = unsafe { libc::madvise(address as *mut _, bytes as usize, libc::MADV_REMOVE) };
        assert_eq!(gone, 0);
    }
    formatted(layout, frozen, cover, rule)
}

/// Enters the image as a new process.
pub fn enter() -> Direct {
    let pid = std::process::id();
    let mut direct = Direct::attach(frozen, Process(0), pid, pid).expect("attached");
    let process = direct.first_process(pid, &[]).expect("record");
    direct.detach();
    Direct::attach(frozen, process, pid, pid).expect("attached")
}

/// Formats the mapped region.
pub fn formatted(
    layout: Layout,
    clock: fn() -> i64,
    cover: Cover,
    rule: Directories,
) -> (Direct, Inode) {
    format(layout, 77, b"/tmp/copies").expect("formatted");
    let mut boss = Direct::attach(clock, Process(0), std::process::id(), tid()).expect("attached");
    boss.set_directories(rule);
    let root = boss
        .add_mount(b"/tmp/mount", cover, &Imported::top(b"/tmp/mount", 0o755))
        .expect("mounted");
    (boss, root)
}

/// Another thread of the same process, with a slot of its own.
pub fn beside<T: Send + 'static>(
    process: Process,
    work: impl FnOnce(&mut Direct) -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let pid = std::process::id();
        let mut me = Direct::attach(clock, process, pid, tid()).expect("attached");
        let result = work(&mut me);
        me.detach();
        result
    })
}

pub fn tid() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::gettid() as u32 }
}

/// A program of the image in this thread.
pub fn program(boss: &mut Direct, clock: fn() -> i64) -> Direct {
    let process = boss.first_process(std::process::id(), &[0, 1, 2]).expect("record");
    boss.detach();
    Direct::attach(clock, process, std::process::id(), tid()).expect("attached")
}
