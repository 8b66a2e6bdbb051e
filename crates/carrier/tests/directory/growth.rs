//! What operations cost as an image gets more kernels: the same, but for the three that look at
//! each kernel's part of a wide directory: its `stat`, its listing and its removal. And what a
//! directory costs that widens and narrows again: the same, whatever it holds.
//!
//! The measure is instructions, counted one by one (`PTRACE_SINGLESTEP`), not time: it is the same
//! under every load. `cargo test -p husk-carrier --test growth -- --nocapture` prints the table.

#[path = "../support/mod.rs"]
mod support;

use std::ptr::null_mut;
use std::sync::{Arc, Barrier};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::{Node, Place};
use husk_proto::image::Cover;
use husk_proto::{Descriptors, Fs, Inode, Shortcuts as _};
use support::{fork, frozen, program, root_user};

/// Numbers of kernels that are compared.
const KERNELS: [u32; 2] = [1, 8];
/// Memory of each image.
const MEMORY_BYTES: u64 = 256 << 20;
/// Times an operation is done before it is counted, so that pools are filled.
const WARM: u32 = 3;
/// Times it is counted; the least count is kept.
const TIMES: usize = 2;
/// Names in the directory.
const NAMES: u8 = 16;
/// Names in directories that widen and narrow.
const SIZES: [u32; 3] = [16, 1000, 8000];
/// Instructions for each further kernel that are growth: a part takes more, the rest none at all.
const GROWTH: f64 = 10.0;

/// A wide directory, a file in it, and the root above both.
#[derive(Clone, Copy)]
struct Scene {
    root: Inode,
    dir: Inode,
    file: Inode,
}

type Act = fn(&mut Direct, Scene);

/// An operation, and what undoes it, which is not counted.
struct Row {
    name: &'static str,
    /// Looks at every kernel's part.
    grows: bool,
    act: Act,
    undo: Act,
}

/// Nothing to undo.
fn nothing(_: &mut Direct, _: Scene) {}

fn touch(me: &mut Direct, at: Scene) {
    me.create(&root_user(), at.dir, b"new", Node::File(0o644)).expect("create");
}

fn unlink(me: &mut Direct, at: Scene) {
    me.unlink(&root_user(), at.dir, b"new").expect("unlink");
}

fn mkdir(me: &mut Direct, at: Scene) {
    me.create(&root_user(), at.dir, b"sub", Node::Directory(0o755)).expect("mkdir");
}

fn rmdir(me: &mut Direct, at: Scene) {
    me.rmdir(&root_user(), at.dir, b"sub").expect("rmdir");
}

fn make_wide(me: &mut Direct, at: Scene) {
    let made = me.create(&root_user(), at.root, b"wide", Node::Directory(0o755)).expect("mkdir");
    me.switch_directory(made, true).expect("wide");
    by_all_kernels(me, made, false);
}

/// Every kernel makes its share of `NAMES` names, so that it has its part of the directory, and may
/// remove them again.
fn by_all_kernels(me: &mut Direct, dir: Inode, keeps: bool) {
    let (process, kernels) = (me.current(), me.kernels());
    let start = Arc::new(Barrier::new(kernels as usize));
    let threads = (0..kernels).map(|n| {
        let start = start.clone();
        support::beside(process, move |me| {
            // Nobody leaves its place to the next one.
            me.attributes(dir).expect("stat");
            me.create(&root_user(), dir, format!("first {n}").as_bytes(), Node::File(0o644))
                .expect("create");
            start.wait();
            me.unlink(&root_user(), dir, format!("first {n}").as_bytes()).expect("unlink");
            for name in (0..NAMES).filter(|name| u32::from(*name) % kernels == n && keeps) {
                me.create(&root_user(), dir, &[b'a' + name], Node::File(0o644)).expect("create");
            }
            start.wait();
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|one| support::joined("a kernel's thread", one));
}

fn remove_wide(me: &mut Direct, at: Scene) {
    me.rmdir(&root_user(), at.root, b"wide").expect("rmdir");
}

fn there(me: &mut Direct, at: Scene) {
    me.rename(&root_user(), at.dir, b"a", at.dir, b"moved", 0).expect("rename");
}

fn back(me: &mut Direct, at: Scene) {
    me.rename(&root_user(), at.dir, b"moved", at.dir, b"a", 0).expect("rename");
}

fn link(me: &mut Direct, at: Scene) {
    me.link(&root_user(), at.file, at.dir, b"new").expect("link");
}

fn open(me: &mut Direct, at: Scene) {
    let files = me.files();
    assert_eq!(me.open(&root_user(), files, at.file, 2, 0, 64), Ok(3));
}

fn close(me: &mut Direct, _: Scene) {
    let files = me.files();
    me.close(files, 3).expect("close");
}

/// All; the last three are those that may.
const ROWS: [Row; 16] = [
    row("lookup", |me, at| assert!(me.lookup(at.dir, b"a").is_ok())),
    row("lookup, absent", |me, at| assert!(me.lookup(at.dir, b"none").is_err())),
    row("stat of a file", |me, at| assert!(me.attributes(at.file).is_ok())),
    row("read 1 B", |me, at| assert_eq!(me.read(at.file, 0, 1, &mut |_| Ok(())), Ok(1))),
    row("write 1 B", |me, at| {
        assert_eq!(me.write(at.file, Place::At(0), 1, &mut |_| Ok(())), Ok((0, 1)));
    }),
    Row { name: "open", grows: false, act: open, undo: close },
    Row { name: "create", grows: false, act: touch, undo: unlink },
    Row { name: "unlink", grows: false, act: unlink, undo: touch },
    Row { name: "link", grows: false, act: link, undo: unlink },
    Row { name: "rename", grows: false, act: there, undo: back },
    Row { name: "mkdir", grows: false, act: mkdir, undo: rmdir },
    Row { name: "rmdir of a narrow directory", grows: false, act: rmdir, undo: mkdir },
    row("stat of a narrow directory", |me, at| assert!(me.attributes(at.root).is_ok())),
    Row { name: "stat of a wide directory", grows: true, act: look, undo: nothing },
    Row { name: "readdir of 16 names, wide", grows: true, act: list, undo: nothing },
    Row { name: "rmdir of a wide directory", grows: true, act: remove_wide, undo: make_wide },
];

const fn row(name: &'static str, act: Act) -> Row {
    Row { name, grows: false, act, undo: nothing }
}

fn look(me: &mut Direct, at: Scene) {
    assert!(me.attributes(at.dir).is_ok());
}

fn list(me: &mut Direct, at: Scene) {
    let mut names = 0;
    let listed = me.list(at.dir, 0, &mut |_| {
        names += 1;
        true
    });
    assert_eq!((listed, names), (Ok(()), NAMES));
}

/// Begins or ends a count.
fn mark() {
    // SAFETY: a plain call; who traces us takes the signal.
    unsafe { libc::raise(libc::SIGUSR1) };
}

/// Does all operations in an image of so many kernels, between marks.
fn act_all(kernels: u32) {
    let layout = Layout { kernels, memory_bytes: MEMORY_BYTES };
    support::map(layout);
    let (mut boss, root) = support::formatted(layout, frozen, Cover::Memory, Directories::Narrow);
    let mut me = program(&mut boss, frozen);
    let dir = me.create(&root_user(), root, b"dir", Node::Directory(0o755)).expect("mkdir");
    me.switch_directory(dir, true).expect("wide");
    by_all_kernels(&mut me, dir, true);
    let file = me.lookup(dir, b"b").expect("a name").inode;
    me.write(file, Place::At(0), 1, &mut |_| Ok(())).expect("a byte");
    let at = Scene { root, dir, file };
    for row in &ROWS {
        match row.name {
            "unlink" => touch(&mut me, at),
            "rmdir of a narrow directory" => mkdir(&mut me, at),
            "rmdir of a wide directory" => make_wide(&mut me, at),
            _ => {}
        }
        for time in 0..WARM + TIMES as u32 {
            let counted = time >= WARM;
            counted.then(mark);
            (row.act)(&mut me, at);
            counted.then(mark);
            (row.undo)(&mut me, at);
        }
        match row.name {
            "unlink" => unlink(&mut me, at),
            "rmdir of a narrow directory" => rmdir(&mut me, at),
            _ => {}
        }
    }
}

/// Lets a traced process go on, by one instruction or freely.
fn go_on(pid: i32, step: bool, signal: i32) {
    let how = if step { libc::PTRACE_SINGLESTEP } else { libc::PTRACE_CONT };
    // SAFETY: our own child, which is stopped.
    unsafe { libc::ptrace(how, pid, null_mut::<u8>(), signal as usize) };
}

/// The instructions between each two marks of a child.
fn counts(body: impl FnOnce()) -> Vec<u64> {
    let pid = fork(|| {
        // SAFETY: the parent traces us from here on.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) };
        body();
    });
    let (mut found, mut count) = (Vec::new(), None);
    loop {
        let status = support::wait(pid);
        if !libc::WIFSTOPPED(status) {
            assert_eq!(status, 0, "see the child's message above");
            return found;
        }
        let signal = libc::WSTOPSIG(status);
        match (signal, count) {
            (libc::SIGUSR1, None) => count = Some(0),
            (libc::SIGUSR1, Some(steps)) => {
                found.push(steps);
                count = None;
            }
            (libc::SIGTRAP, Some(steps)) => count = Some(steps + 1),
            _ => {}
        }
        let ours = matches!(signal, libc::SIGUSR1 | libc::SIGTRAP);
        go_on(pid, count.is_some(), if ours { 0 } else { signal });
    }
}

/// Instructions of each row, those of the marks aside.
fn measured(kernels: u32) -> Vec<u64> {
    let empty = counts(|| (0..2 * TIMES).for_each(|_| mark()));
    let marks = *empty.iter().min().expect("counts");
    let all = counts(|| act_all(kernels));
    assert_eq!(all.len(), ROWS.len() * TIMES);
    all.chunks(TIMES).map(|times| times.iter().min().expect("counts") - marks).collect()
}

#[test]
fn only_looks_at_whole_wide_directories_grow_with_the_number_of_kernels() {
    let by_kernels = KERNELS.map(measured);
    println!("instructions, {KERNELS:?} kernels");
    for (n, row) in ROWS.iter().enumerate() {
        let all: Vec<u64> = by_kernels.iter().map(|counts| counts[n]).collect();
        let (one, most) = (all[0] as f64, all[all.len() - 1] as f64);
        let each = (most - one) / f64::from(KERNELS[KERNELS.len() - 1] - KERNELS[0]);
        println!("  {:<28} {all:?}, {each:.0} for each further kernel", row.name);
        assert_eq!(each > GROWTH, row.grows, "{} over the number of kernels: {all:?}", row.name);
    }
}

/// Has a directory of so many names widen and narrow again, between marks.
fn switch(names: u32) {
    let layout = Layout { kernels: 2, memory_bytes: MEMORY_BYTES };
    support::map(layout);
    let (mut boss, root) = support::formatted(layout, frozen, Cover::Memory, Directories::Narrow);
    let mut me = program(&mut boss, frozen);
    let dir = me.create(&root_user(), root, b"dir", Node::Directory(0o755)).expect("mkdir");
    let at = Scene { root, dir, file: dir };
    for n in 0..names {
        me.create(&root_user(), dir, format!("{n}").as_bytes(), Node::File(0o644)).expect("create");
    }
    for time in 0..WARM + TIMES as u32 {
        for wide in [true, false] {
            let counted = time >= WARM;
            counted.then(mark);
            me.switch_directory(dir, wide).expect("switched");
            counted.then(mark);
            // A part of its own, if it is wide, with a change in it.
            touch(&mut me, at);
            unlink(&mut me, at);
        }
    }
}

#[test]
fn a_directory_widens_and_narrows_at_the_same_cost_whatever_it_holds() {
    let all = SIZES.map(|names| {
        let all = counts(|| switch(names));
        assert_eq!(all.len(), 2 * TIMES);
        [0, 1].map(|way| *all.iter().skip(way).step_by(2).min().expect("counts"))
    });
    println!("instructions to widen and to narrow, of {SIZES:?} names: {all:?}");
    assert!(all.iter().all(|counts| *counts == all[0]), "{SIZES:?} names: {all:?}");
}
