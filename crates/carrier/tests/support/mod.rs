//! A fresh image in this process: the region on a memfd, mapped at its addresses.
#![allow(dead_code)]

use husk_carrier::{Direct, Directories, Layout, format, map_region};
use husk_proto::fs::{Credentials, Imported, Kind};
use husk_proto::image::Cover;
use husk_proto::{Inode, Process};

pub const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 64 << 20 };

pub fn clock() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    (now.map_or(0, |now| now.as_nanos() as i64) / 4_000_000) * 4_000_000
}

/// A clock that stands still, so that runs are the same.
pub fn frozen() -> i64 {
    1_000_000_000
}

pub fn root_user() -> Credentials<'static> {
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX }
}

pub fn directory() -> Imported<'static> {
    Imported {
        name: b"/tmp/mount",
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        identity: Default::default(),
        accessed_ns: 0,
        target: b"",
    }
}

/// Maps and formats an image; one a process.
pub fn image(layout: Layout, cover: Cover) -> (Direct, Inode) {
    shared_image(layout, cover, Directories::default())
}

/// The same with a rule for its directories.
pub fn shared_image(layout: Layout, cover: Cover, rule: Directories) -> (Direct, Inode) {
    // SAFETY: plain calls.
    unsafe {
        let fd = libc::memfd_create(c"husk-test".as_ptr(), 0);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, layout.total_bytes() as i64), 0);
        map_region(fd as u32, layout).expect("mapped");
    }
    format(layout, 77, b"/tmp/copies").expect("formatted");
    let mut boss = Direct::attach(clock, Process(0), std::process::id(), tid()).expect("attached");
    boss.set_directories(rule);
    let root = boss.add_mount(b"/tmp/mount", cover, &directory()).expect("mounted");
    (boss, root)
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
