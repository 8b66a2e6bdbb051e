//! A small tree with one of everything, its snapshot, and the operations that tests stop half-way.
#![allow(dead_code)]

use std::collections::BTreeMap;

use husk_carrier::{Direct, Finding, check, scratch_words};
use husk_proto::descriptor::{Description, Shown, Slot};
use husk_proto::flight::{Flight, Flights};
use husk_proto::fs::{
    Change, HostIdentity, Imported, Kind, Node, Place, RENAME_EXCHANGE, SetExtended, SpanKind,
    Time, masked, value_hash,
};
use husk_proto::lock::{Locks, Mode, Outcome, Owner, Range};
use husk_proto::pipe::{Count, Given, Pipes};
use husk_proto::process::{Sharing, WorkingDirectory};
use husk_proto::watch::{Instance, Watches};
use husk_proto::{Admin as _, Descriptors, Errno, Fs, Inode, Processes, Shortcuts as _, acl};

use crate::support::root_user;

pub const LONG: &[u8] = &[b'n'; 200];
pub const FLAGS_WRITE: u32 = 2;
const LONG_TOLD: &[u8] = &[b't'; 250];

/// Writes `length` bytes of `byte` at `offset`.
pub fn put(me: &mut Direct, inode: Inode, offset: u64, length: usize, byte: u8) -> usize {
    me.write(inode, Place::At(offset), length, &mut |span| {
        let bytes = vec![byte; span.length];
        let done = match span.kind == SpanKind::Unmapped {
            true => husk_region::write_unmapped(span.address, bytes.as_ptr() as usize, bytes.len()),
            false => 0,
        };
        let target = (span.address + done) as *mut u8;
        // SAFETY: a span of the mapped cache.
        unsafe { std::ptr::write_bytes(target, byte, span.length - done) };
        Ok(())
    })
    .map_or(0, |(_, count)| count)
}

/// All bytes of a file.
pub fn contents(me: &mut Direct, inode: Inode) -> Vec<u8> {
    let size = me.attributes(inode).expect("attributes").size as usize;
    let mut bytes = Vec::new();
    let got = me.read(inode, 0, size, &mut |span| {
        // SAFETY: a span of the mapped cache.
        let slice = unsafe { std::slice::from_raw_parts(span.address as *const u8, span.length) };
        bytes.extend_from_slice(slice);
        Ok(())
    });
    assert_eq!(got.unwrap_or(0), bytes.len());
    bytes
}

pub fn imported(name: &[u8], kind: Kind) -> Imported<'_> {
    let identity = HostIdentity { device: 5, inode: 9, size: 100, modified_ns: 3, changed_ns: 4 };
    let target: &[u8] = if kind == Kind::Symlink { b"somewhere" } else { b"" };
    Imported {
        name,
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        identity,
        accessed_ns: 5,
        born_ns: 0,
        blocks_512: 8,
        links: 1,
        device: 0,
        target,
    }
}

/// The same after a change on the host.
pub fn changed(name: &[u8], kind: Kind) -> Imported<'_> {
    let identity = HostIdentity { device: 5, inode: 10, size: 300, modified_ns: 7, changed_ns: 8 };
    Imported { mode: 0o600, identity, accessed_ns: 6, blocks_512: 16, ..imported(name, kind) }
}

pub fn at(me: &mut Direct, dir: Inode, name: &[u8]) -> Inode {
    me.lookup(dir, name).expect("name is there").inode
}

/// Fills an empty overlay mount.
pub fn build(me: &mut Direct, root: Inode) {
    let who = root_user();
    let host = [
        imported(b"host-file", Kind::File),
        imported(b"host-file-2", Kind::File),
        imported(b"host-link", Kind::Symlink),
        imported(b"host-dir", Kind::Directory),
    ];
    assert_eq!(me.import(root, &host), Ok(true));
    me.import_done(root).expect("listed");
    let host_dir = at(me, root, b"host-dir");
    assert_eq!(me.import(host_dir, &[imported(b"inner", Kind::File)]), Ok(true));
    me.import_done(host_dir).expect("listed");
    for dir in [&b"a"[..], b"b", b"empty", b"empty2"] {
        me.create(&who, root, dir, Node::Directory(0o755)).expect("mkdir");
    }
    let a = at(me, root, b"a");
    for n in 0..8u8 {
        let file = me.create(&who, a, &[b'f', b'0' + n], Node::File(0o644)).expect("create");
        put(me, file, 0, n as usize * 3000, n);
    }
    let big = me.create(&who, a, b"big", Node::File(0o644)).expect("create");
    put(me, big, 0, 400 * 4096, 9);
    me.create(&who, a, b"link", Node::Symlink(&[b't'; 900])).expect("symlink");
    me.create(&who, a, LONG, Node::File(0o600)).expect("long name");
    let f1 = at(me, a, b"f1");
    let b = at(me, root, b"b");
    me.link(&who, f1, b, b"second").expect("link");
}

/// Everything a user could see, and what is free.
pub fn snapshot(me: &mut Direct, root: Inode) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    walk(me, root, "", &mut seen);
    let usage = me.usage();
    seen.insert("free".into(), format!("{} {}", usage.blocks_free, usage.inodes_free));
    seen
}

fn walk(me: &mut Direct, dir: Inode, path: &str, seen: &mut BTreeMap<String, String>) {
    let mut names: Vec<Vec<u8>> = Vec::new();
    me.list(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("list");
    me.whiteouts(dir, &mut |name, _| {
        seen.insert(format!("{path}/{}", String::from_utf8_lossy(name)) + " (gone)", String::new());
        Ok(())
    })
    .expect("whiteouts");
    for name in names {
        let inode = at(me, dir, &name);
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        let facts = me.attributes(inode).expect("attributes");
        let mut line = format!(
            "{:?} {:o} {} {} {} {} {}",
            facts.step.kind,
            facts.step.mode,
            facts.step.uid,
            facts.links,
            facts.size,
            facts.modified_ns,
            facts.blocks_512
        );
        if facts.step.kind == Kind::File && facts.origin.is_none() {
            let bytes = contents(me, inode);
            line += &format!(" {}", bytes.iter().map(|&byte| byte as u64 + 1).sum::<u64>());
        }
        let mut list = [0; acl::BYTES_MAX];
        for name in [acl::ACCESS, acl::DEFAULT] {
            let length = me.extended(inode, name, &mut list).unwrap_or(0);
            line += &format!(" {:?}", &list[..length]);
        }
        assert!(seen.insert(path.clone(), line).is_none(), "{path} twice in one listing");
        if facts.step.kind == Kind::Directory {
            walk(me, inode, &path, seen);
        }
    }
}

/// Removes every name below a directory of the image.
pub fn remove_all(boss: &mut Direct, dir: Inode) {
    let mut names = Vec::new();
    boss.list(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    })
    .expect("a listing");
    for (name, kind) in names {
        if kind == Kind::Directory {
            let inode = boss.lookup(dir, &name).expect("it is there").inode;
            // A directory of the host is complete once it was listed.
            let _ = boss.import_done(inode);
            remove_all(boss, inode);
            boss.rmdir(&root_user(), dir, &name).expect("removed");
        } else {
            boss.unlink(&root_user(), dir, &name).expect("removed");
        }
    }
}

/// Runs the structure checker.
pub fn findings(me: &Direct) -> Vec<Finding> {
    let mut scratch = vec![0; scratch_words(me.kernel())];
    let mut found = Vec::new();
    check(me.kernel(), &mut scratch, &mut |finding| found.push(finding));
    found
}

pub fn opened(me: &mut Direct, fd: u32) -> Description {
    let files = me.files();
    match me.slot(files, fd) {
        Slot::Husk(description) => description,
        other => panic!("descriptor {fd} is {other:?}"),
    }
}

/// What an operation's test runs before it is armed; then the operation; whether a death may leave
/// a part of it (several transactions).
pub struct Operation {
    pub name: &'static str,
    pub before: fn(&mut Direct, Inode),
    pub run: fn(&mut Direct, Inode),
    pub in_parts: bool,
    /// Whether it changes names.
    pub names: bool,
}

fn nothing(_: &mut Direct, _: Inode) {}

fn open_two(me: &mut Direct, root: Inode) {
    let (who, files) = (root_user(), me.files());
    let a = at(me, root, b"a");
    for name in [b"f2", b"f3"] {
        let inode = at(me, a, name);
        me.open(&who, files, inode, FLAGS_WRITE, 10, 1024).expect("open");
    }
}

/// Gives a file attributes, one of them of several nodes.
fn extend(me: &mut Direct, root: Inode) {
    let a = at(me, root, b"a");
    let file = at(me, a, b"f2");
    for (name, length) in [(&b"user.long"[..], 3000), (b"user.short", 3), (b"user.none", 0)] {
        let value = &[7; 3000][..length];
        me.set_extended(file, name, Some(value), SetExtended::Create).expect("set");
    }
}

/// Gives a file an attribute that is a file of its own.
fn extend_far(me: &mut Direct, root: Inode) {
    extend(me, root);
    let a = at(me, root, b"a");
    let file = at(me, a, b"f2");
    me.set_extended(file, b"user.far", Some(&[9; 60_000]), SetExtended::Create).expect("set");
}

/// `user::rwx`, `user:5:rwx`, `group::rwx`, `mask::rwx`, `other::---`.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 5, 0, 0, 0, 4, 0, 7, 0, 255, 255, 255,
    255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// Gives a directory both access control lists, and a file one.
fn list(me: &mut Direct, root: Inode) {
    let a = at(me, root, b"a");
    let file = at(me, a, b"f2");
    for (inode, name) in [(a, acl::ACCESS), (a, acl::DEFAULT), (file, acl::ACCESS)] {
        me.set_extended(inode, name, Some(&LIST), SetExtended::Any).expect("set");
    }
}

/// Uses both empty directories, so that they are no longer as they were made.
fn use_empty(me: &mut Direct, root: Inode) {
    for dir in [&b"empty"[..], b"empty2"] {
        let dir = at(me, root, dir);
        me.create(&root_user(), dir, b"passing", Node::File(0o644)).expect("create");
        me.unlink(&root_user(), dir, b"passing").expect("unlink");
    }
}

/// Host number 20 is an instance of inotify, and watches what the names below lead to for all
/// there is to tell, and two files of the host.
pub fn watch(me: &mut Direct, root: Inode, watched: &[&str]) -> Instance {
    const EVERYTHING: u32 = 0xfff;
    let files = me.files();
    assert_eq!(me.host_opened(files, 20, true, Shown::Nothing), Ok(true));
    let instance = me.watch_make(files, 20).expect("an instance");
    me.watch_mark(instance, 1, WATCHER_FILE).expect("a marker");
    for path in watched {
        let steps = path.split('/').filter(|name| !name.is_empty());
        let inode = steps.fold(root, |dir, name| at(me, dir, name.as_bytes()));
        me.watch_add(instance, inode, EVERYTHING).expect("watched");
    }
    for host in [2, 3] {
        me.watch_host(instance, host).expect("watched");
    }
    instance
}

/// The number of its marker at the host.
pub const WATCHER_FILE: u64 = 77;

/// What is watched where names are changed.
pub const WATCHED: &[&str] =
    &["", "a", "b", "a/f2", "a/f3", "a/f4", "a/f5", "b/second", "empty", "empty2", "host-file"];

fn watch_all(me: &mut Direct, root: Inode) {
    watch(me, root, WATCHED);
}

fn widen_a(me: &mut Direct, root: Inode) {
    let a = at(me, root, b"a");
    me.switch_directory(a, true).expect("wide");
}

fn forget_inner(me: &mut Direct, root: Inode) {
    let directory = at(me, root, b"host-dir");
    let inner = at(me, directory, b"inner");
    assert_eq!(me.forget(root, b"host-dir", directory), Err(Errno::ENOTEMPTY));
    assert_eq!(me.forget(directory, b"inner", inner), Ok(true));
}

/// A name of the host that the image has removed, and given to another file.
fn replace_host_file(me: &mut Direct, root: Inode) {
    me.unlink(&root_user(), root, b"host-file").expect("unlink");
    me.create(&root_user(), root, b"host-file", Node::File(0o644)).expect("create");
}

fn remove_host_file(me: &mut Direct, root: Inode) {
    me.unlink(&root_user(), root, b"host-file").expect("unlink");
}

fn import_attribute(me: &mut Direct, root: Inode) {
    let (file, how) = (at(me, root, b"host-file"), SetExtended::Imported);
    me.set_extended(file, b"user.host", Some(&[1; 2000]), how).expect("import");
}

fn open_unlinked(me: &mut Direct, root: Inode) {
    open_two(me, root);
    let a = at(me, root, b"a");
    me.unlink(&root_user(), a, b"f2").expect("unlink");
}

/// Host numbers that sockets may be.
fn sockets_noted(me: &mut Direct, _: Inode) {
    let files = me.files();
    for fd in 30..36 {
        assert_eq!(me.host_opened(files, fd, false, Shown::Nothing), Ok(true));
    }
}

macro_rules! operation {
    ($list:ident, $name:literal, $before:expr, $parts:expr,
     |$me:ident, $root:ident, $a:ident| $body:expr) => {
        $list.push(Operation {
            name: $name,
            before: $before,
            in_parts: $parts,
            names: false,
            run: |$me, $root| {
                #[allow(unused_variables)]
                let $a = at($me, $root, b"a");
                $body
            },
        });
    };
}

/// One of each.
pub fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    operation!(all, "create", nothing, false, |me, root, a| {
        me.create(&root_user(), a, b"new", Node::File(0o644)).expect("create");
    });
    operation!(all, "create long", nothing, false, |me, root, a| {
        me.create(&root_user(), a, &[b'm'; 255], Node::File(0o644)).expect("create");
    });
    operation!(all, "mkdir", nothing, false, |me, root, a| {
        me.create(&root_user(), a, b"newdir", Node::Directory(0o755)).expect("mkdir");
    });
    operation!(all, "symlink", nothing, false, |me, root, a| {
        me.create(&root_user(), a, b"newlink", Node::Symlink(&[b'q'; 3000])).expect("symlink");
    });
    operation!(all, "create and open", nothing, true, |me, root, a| {
        let files = me.files();
        me.create_open(&root_user(), files, a, b"new", 0o644, 2, 1024).expect("create");
    });
    operation!(all, "link", nothing, false, |me, root, a| {
        let file = at(me, a, b"f2");
        me.link(&root_user(), file, root, b"another").expect("link");
    });
    operation!(all, "unlink", nothing, false, |me, root, a| {
        me.unlink(&root_user(), a, b"f3").expect("unlink");
    });
    operation!(all, "unlink long", nothing, false, |me, root, a| {
        me.unlink(&root_user(), a, LONG).expect("unlink");
    });
    operation!(all, "unlink big", nothing, false, |me, root, a| {
        me.unlink(&root_user(), a, b"big").expect("unlink");
    });
    operation!(all, "unlink symlink", nothing, false, |me, root, a| {
        me.unlink(&root_user(), a, b"link").expect("unlink");
    });
    operation!(all, "unlink of the host", nothing, false, |me, root, a| {
        me.unlink(&root_user(), root, b"host-file").expect("unlink");
    });
    operation!(all, "unlink open", open_two, false, |me, root, a| {
        me.unlink(&root_user(), a, b"f2").expect("unlink");
    });
    operation!(all, "close", open_two, false, |me, root, a| {
        let files = me.files();
        me.close(files, 10).expect("close");
    });
    operation!(all, "last close of unlinked", open_unlinked, false, |me, root, a| {
        let files = me.files();
        me.close(files, 10).expect("close");
    });
    operation!(all, "dup2", open_unlinked, false, |me, root, a| {
        let files = me.files();
        me.duplicate_to(files, 11, 10, false, false).expect("dup2");
        me.duplicate(files, 11, 70, 1024, true).expect("dup");
    });
    operation!(all, "rmdir", nothing, false, |me, root, a| {
        me.rmdir(&root_user(), root, b"empty").expect("rmdir");
    });
    operation!(all, "rmdir of a used one", use_empty, false, |me, root, a| {
        me.rmdir(&root_user(), root, b"empty").expect("rmdir");
    });
    operation!(all, "rename directory over a used one", use_empty, false, |me, root, a| {
        me.rename(&root_user(), root, b"empty", root, b"empty2", 0).expect("rename");
    });
    operation!(all, "widen", nothing, false, |me, root, a| {
        me.switch_directory(a, true).expect("wide");
        me.unlink(&root_user(), a, b"f3").expect("unlink");
    });
    operation!(all, "narrow", widen_a, false, |me, root, a| {
        me.switch_directory(a, false).expect("narrow");
        me.create(&root_user(), a, b"new", Node::File(0o644)).expect("create");
    });
    operation!(all, "take a change of the host in", nothing, false, |me, root, a| {
        let file = at(me, root, b"host-file");
        assert_eq!(me.renew(file, &changed(b"", Kind::File), true), Ok(true));
    });
    operation!(all, "take a link of the host in", nothing, false, |me, root, a| {
        let link = at(me, root, b"host-link");
        let found = Imported { target: &[b'e'; 900], ..changed(b"", Kind::Symlink) };
        assert_eq!(me.renew(link, &found, true), Ok(true));
    });
    operation!(all, "take rights of the host in", nothing, false, |me, root, a| {
        let file = at(me, root, b"host-file");
        let (step, found) = (me.step(file).expect("a file"), (0o600, 7, 8));
        assert_eq!(me.take_rights(file, (step.mode & 0o7777, step.uid, step.gid), found), Ok(true));
    });
    operation!(all, "take a new name of the host in", nothing, false, |me, root, a| {
        me.import_late(root, &[changed(b"late", Kind::File)]).expect("late");
    });
    operation!(
        all,
        "take a removed name of the host in",
        remove_host_file,
        false,
        |me, root, a| {
            me.import_late(root, &[changed(b"host-file", Kind::File)]).expect("late");
        }
    );
    operation!(all, "give a name back", replace_host_file, false, |me, root, a| {
        let file = at(me, root, b"host-file");
        let (seen, found) = (me.unmoved(file).expect("a mark"), changed(b"host-file", Kind::File));
        assert_eq!(me.give_back(root, b"host-file", file, seen, Some(&found)), Ok(true));
    });
    operation!(all, "give a name back that has gone", replace_host_file, false, |me, root, a| {
        let file = at(me, root, b"host-file");
        let seen = me.unmoved(file).expect("a mark");
        assert_eq!(me.give_back(root, b"host-file", file, seen, None), Ok(true));
    });
    operation!(all, "settle a directory", nothing, false, |me, root, a| {
        let directory = at(me, root, b"empty");
        let found = changed(b"empty", Kind::Directory);
        assert_eq!(me.settle(root, directory, &found), Ok(true));
    });
    operation!(all, "forget a name of the host", nothing, false, |me, root, a| {
        let file = at(me, root, b"host-file");
        assert_eq!(me.forget(root, b"host-file", file), Ok(true));
    });
    operation!(all, "forget a directory of the host", forget_inner, false, |me, root, a| {
        let directory = at(me, root, b"host-dir");
        assert_eq!(me.forget(root, b"host-dir", directory), Ok(true));
    });
    operation!(all, "rename", nothing, false, |me, root, a| {
        me.rename(&root_user(), a, b"f4", a, b"g4", 0).expect("rename");
    });
    operation!(all, "rename over", nothing, false, |me, root, a| {
        me.rename(&root_user(), a, b"f4", a, b"f5", 0).expect("rename");
    });
    operation!(all, "rename across", nothing, false, |me, root, a| {
        let b = at(me, root, b"b");
        me.rename(&root_user(), a, b"f4", b, b"second", 0).expect("rename");
    });
    operation!(all, "rename directory", nothing, false, |me, root, a| {
        let b = at(me, root, b"b");
        me.rename(&root_user(), root, b"empty", b, b"moved", 0).expect("rename");
    });
    operation!(all, "rename directory over", nothing, false, |me, root, a| {
        me.rename(&root_user(), root, b"empty", root, b"empty2", 0).expect("rename");
    });
    operation!(all, "rename of the host over", nothing, false, |me, root, a| {
        me.rename(&root_user(), root, b"host-file", root, b"host-file-2", 0).expect("rename");
    });
    operation!(all, "exchange", nothing, false, |me, root, a| {
        me.rename(&root_user(), a, b"f4", root, b"host-dir", RENAME_EXCHANGE).expect("exchange");
    });
    operation!(all, "lanes", sockets_noted, true, |me, root, a| {
        let files = me.files();
        me.lanes_make(files, [30, 31], [7, 8]).expect("a pair");
        me.lane_make_one(files, 32, 9).expect("one");
        let end = me.pipe_end(files, 32).expect("it has a lane");
        let pid = std::process::id();
        assert_eq!(me.lane_claim(files, 33, 10, end.pipe, pid), Err(Errno::ESRCH), "too early");
        me.lane_introduce(end.pipe);
        assert_eq!(me.lane_claim(files, 33, 10, end.pipe, 1), Err(Errno::ESRCH), "another's");
        me.lane_claim(files, 33, 10, end.pipe, pid).expect("its other end");
        assert_eq!(me.lane_claim(files, 34, 11, end.pipe, pid), Err(Errno::ESRCH), "twice");
        me.lane_make_one(files, 34, 11).expect("another");
        me.lane_forget(files, 34);
        assert_eq!(me.pipe_end(files, 34), None);
        me.lane_make_one(files, 34, 11).expect("once more");
        me.pipe_join(files, 35, end).expect("a second number");
        (30..36).for_each(|fd| me.host_closed(files, fd));
        assert!(!me.any_lane_awaits());
    });
    operation!(all, "eventfds", sockets_noted, true, |me, root, a| {
        let (files, pid) = (me.files(), std::process::id());
        let event = me.event_make(files, 30, 2, false).expect("one");
        me.event_join(files, 31, event).expect("a second number");
        assert_eq!(me.event_add(event, 5), Ok(Count::Of(5)));
        assert_eq!(me.event_take(event), Ok(Count::Of(7)));
        assert_eq!(me.event_take(event), Ok(Count::Nothing));
        assert_eq!(me.event_add(event, 1 << 39), Ok(Count::Nothing));
        assert_eq!(me.event_add(event, 3), Ok(Count::Of(3)));
        assert_eq!(me.event_give(event, 0), Ok(Given::Move { count: 3, anew: false }));
        assert_eq!(me.event_give(event, 0), Ok(Given::By(pid)));
        assert_eq!(me.event_add(event, 1), Ok(Count::Away));
        assert_eq!(me.event_give(event, pid), Ok(Given::Move { count: 3, anew: true }));
        me.event_given(event).expect("it lives");
        assert_eq!(me.event_take(event), Ok(Count::Away));
        assert_eq!(me.event_give(event, 0), Ok(Given::All));
        me.event_forget(files, 31, event).expect("its number");
        assert_eq!(me.event(files, 31), None);
        let semaphore = me.event_make(files, 32, 2, true).expect("another");
        assert_eq!(me.event_take(semaphore), Ok(Count::Of(1)));
        assert_eq!(me.event_give(semaphore, 0), Ok(Given::Move { count: 1, anew: false }));
        (30..36).for_each(|fd| me.host_closed(files, fd));
        assert_eq!(me.event_add(event, 1), Err(Errno::EBADF));
    });
    operation!(all, "append much by the region's descriptor", nothing, true, |me, root, a| {
        husk_region::set_by_descriptor(true);
        let file = at(me, a, b"f2");
        assert_eq!(put(me, file, 15_000, 300_000, 3), 300_000);
        husk_region::set_by_descriptor(false);
    });
    operation!(all, "append", nothing, false, |me, root, a| {
        let file = at(me, a, b"f5");
        assert_eq!(put(me, file, 15_000, 9000, 3), 9000);
    });
    operation!(all, "large write", nothing, true, |me, root, a| {
        let file = at(me, a, b"f5");
        assert_eq!(put(me, file, 100, 700_000, 3), 700_000);
    });
    operation!(all, "truncate", nothing, true, |me, root, a| {
        let file = at(me, a, b"big");
        me.truncate(file, 5000).expect("truncate");
        me.truncate(file, 50_000).expect("truncate");
        assert_eq!(contents(me, file)[5000..].iter().map(|&b| b as u32).sum::<u32>(), 0);
    });
    operation!(all, "punch and allocate", nothing, true, |me, root, a| {
        let file = at(me, a, b"big");
        me.punch(file, 5000, 300_000).expect("punch");
        me.allocate(file, 0, 500_000, false).expect("allocate");
    });
    operation!(all, "change", nothing, false, |me, root, a| {
        let file = at(me, a, b"f5");
        let change = Change {
            mode: Some(0o4711),
            uid: Some(5),
            modified: Some(Time::At(7)),
            ..Change::default()
        };
        me.change(&root_user(), file, change).expect("change");
    });
    operation!(all, "directories and pins", nothing, false, |me, root, a| {
        let (file, empty) = (at(me, a, b"f5"), at(me, root, b"empty"));
        me.pin(file).expect("pin");
        me.pin(file).expect("pin");
        me.pin_writes(file).expect("nobody runs it");
        me.set_working_directory(WorkingDirectory::Husk(empty)).expect("chdir");
        me.unpin(file);
        me.set_working_directory(WorkingDirectory::Host).expect("chdir");
        me.set_umask(0o77);
    });
    operation!(all, "nameless and adopt", nothing, true, |me, root, a| {
        let donor = me.create_nameless(&root_user(), a, 0o600, false).expect("nameless");
        assert_eq!(put(me, donor, 0, 100, 1), 100);
        let file = at(me, root, b"host-file");
        assert_eq!(me.adopt(file, donor), Ok(true));
        me.unpin(donor);
    });
    operation!(all, "locks", open_two, false, |me, root, a| {
        let (file, who) = (at(me, a, b"f2"), Owner::Process);
        let all = Range { start: 0, end: 1000 };
        assert_eq!(me.lock(who, file, all, Mode::Exclusive, false), Ok(Outcome::Granted));
        let middle = Range { start: 400, end: 500 };
        assert_eq!(me.lock(who, file, middle, Mode::Unlock, false), Ok(Outcome::Granted));
        assert_eq!(me.lock(who, file, all, Mode::Shared, false), Ok(Outcome::Granted));
        let description = opened(me, 10);
        let flock = Owner::Flock(description);
        assert_eq!(me.lock(flock, file, all, Mode::Exclusive, false), Ok(Outcome::Granted));
        let files = me.files();
        me.close(files, 10).expect("close");
    });
    operation!(all, "fork and exec", open_unlinked, false, |me, root, a| {
        let files = me.files();
        let file = at(me, root, b"host-file");
        assert_eq!(me.host_opened(files, 20, true, Shown::File(file)), Ok(true));
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        me.cancel_fork(child);
        let child = me.prepare_fork(Sharing { files: true, context: true }).expect("fork");
        me.unshare(Sharing { files: true, context: true }).expect("unshare");
        me.cancel_fork(child);
        me.finish_exec().expect("exec");
    });
    operation!(all, "numbers of the host", nothing, false, |me, root, a| {
        let files = me.files();
        for fd in 20..30 {
            if !me.try_host_opened(fd, false) {
                assert_eq!(me.host_opened(files, fd, false, Shown::Nothing), Ok(true));
            }
        }
        for fd in 20..28 {
            if !me.try_host_closed(fd) {
                me.host_closed(files, fd);
            }
        }
    });
    operation!(all, "open and close what the host has", nothing, false, |me, root, a| {
        let files = me.files();
        let file = at(me, root, b"host-file");
        assert_eq!(me.host_opened(files, 20, true, Shown::File(file)), Ok(true));
        assert_eq!(me.host_opened(files, 21, false, Shown::Like(20)), Ok(true));
        assert!(me.try_host_closed(20) && me.try_host_closed(21));
    });
    operation!(all, "fork with mappings", nothing, false, |me, root, a| {
        let (one, two) = (at(me, a, b"f2"), at(me, a, b"f3"));
        for file in [one, two] {
            me.pin(file).expect("pin");
        }
        me.pin_writes(one).expect("writable");
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        me.pin_for(child, one, 2, true).expect("pinned");
        me.pin_for(child, two, 1, false).expect("pinned");
        me.pin_for(child, one, 1, true).expect("pinned");
        me.unpin(one);
        me.unlink(&root_user(), a, b"f3").expect("unlink");
        me.unpin(two);
        me.cancel_fork(child);
    });
    operation!(all, "send a descriptor", open_two, false, |me, root, a| {
        let (files, flight) = (me.files(), Flight(7));
        me.fly(files, 10, flight).expect("fly");
        assert_eq!(me.close(files, 10), Ok(false));
        let landed = me.land(files, flight, 1024, true).expect("land");
        me.end_flight(flight).expect("end");
        assert_eq!(me.end_flight(flight), Err(Errno::ENOENT));
        assert_eq!(me.close(files, landed), Ok(false));
    });
    operation!(all, "replace by the host's", open_two, false, |me, root, a| {
        let files = me.files();
        assert!(me.plug(files, 10));
        assert_eq!(me.host_replaces(files, 10, false, Shown::Nothing), Ok(()));
        let file = at(me, root, b"host-file");
        assert_eq!(me.host_replaces(files, 10, false, Shown::Node(file)), Ok(()));
        me.duplicate_to(files, 11, 10, false, true).expect("dup2");
        assert!(me.plug(files, 10));
        assert_eq!(me.close(files, 10), Ok(true));
        assert_eq!(me.close(files, 10), Ok(false));
    });
    operation!(all, "promote a shadow", nothing, false, |me, root, a| {
        let (files, file) = (me.files(), at(me, root, b"host-file"));
        assert_eq!(me.host_opened(files, 20, true, Shown::File(file)), Ok(true));
        let donor = me.create_nameless(&root_user(), a, 0o600, false).expect("nameless");
        assert_eq!(me.adopt(file, donor), Ok(true));
        me.unpin(donor);
        assert_eq!(me.host_replaces(files, 21, false, Shown::Like(20)), Ok(()));
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        let promoted = me.promote(files, 20, file, 0, 7).expect("promote");
        assert_eq!(me.promote(files, 21, file, 0, 9), Ok(promoted));
        me.cancel_fork(child);
    });
    operation!(all, "set an attribute", nothing, false, |me, root, a| {
        let (file, value) = (at(me, a, b"f2"), [1; 2000]);
        me.set_extended(file, b"user.name", Some(&value), SetExtended::Any).expect("set");
    });
    operation!(all, "replace and remove attributes", extend, true, |me, root, a| {
        let (file, value) = (at(me, a, b"f2"), [1; 2000]);
        me.set_extended(file, b"user.long", Some(&value), SetExtended::Replace).expect("set");
        me.set_extended(file, b"user.none", None, SetExtended::Any).expect("remove");
        let host = at(me, root, b"host-file");
        me.take_extended_over(host).expect("take over");
    });
    operation!(
        all,
        "remove what the host had, and set it",
        import_attribute,
        true,
        |me, root, a| {
            let file = at(me, root, b"host-file");
            me.set_extended(file, b"user.host", None, SetExtended::Any).expect("remove");
            me.set_extended(file, b"user.host", Some(&[2; 2000]), SetExtended::Any).expect("set");
        }
    );
    operation!(all, "take an attribute of the host in", import_attribute, false, |me, root, a| {
        let (file, seen) = (at(me, root, b"host-file"), value_hash(&[1; 2000]));
        assert_eq!(me.settle_extended(file, b"user.host", seen, Some(&[3; 1000])), Ok(true));
    });
    operation!(all, "set an access control list", nothing, false, |me, root, a| {
        let file = at(me, a, b"f2");
        me.set_extended(file, acl::ACCESS, Some(&LIST), SetExtended::Any).expect("set");
    });
    operation!(all, "create below a default list", list, false, |me, root, a| {
        let made = me.create(&root_user(), a, b"new", Node::File(masked(0o664, 0o77)));
        let mode = me.attributes(made.expect("create")).expect("attributes").step.mode;
        assert_eq!(mode, 0o660);
    });
    operation!(all, "mkdir below a default list", list, false, |me, root, a| {
        me.create(&root_user(), a, b"newdir", Node::Directory(masked(0o777, 0o77))).expect("mkdir");
    });
    operation!(all, "chmod of what has a list", list, false, |me, root, a| {
        let (file, mode) = (at(me, a, b"f2"), Some(0o610));
        me.change(&root_user(), file, Change { mode, ..Change::default() }).expect("chmod");
    });
    operation!(all, "a file with attributes goes", extend, true, |me, root, a| {
        me.unlink(&root_user(), a, b"f2").expect("unlink");
        me.set_umask(0o77);
    });
    operation!(all, "set a far attribute", extend, false, |me, root, a| {
        let (file, value) = (at(me, a, b"f2"), [1; 65_536]);
        me.set_extended(file, b"user.long", Some(&value), SetExtended::Any).expect("set");
    });
    operation!(all, "replace a far attribute by another", extend_far, false, |me, root, a| {
        let (file, value) = (at(me, a, b"f2"), [1; 5000]);
        me.set_extended(file, b"user.far", Some(&value), SetExtended::Any).expect("set");
    });
    operation!(all, "shorten and remove far attributes", extend_far, true, |me, root, a| {
        let (file, value) = (at(me, a, b"f2"), [1; 5000]);
        me.set_extended(file, b"user.long", Some(&value), SetExtended::Any).expect("set");
        me.set_extended(file, b"user.far", Some(&value[..9]), SetExtended::Any).expect("set");
        me.set_extended(file, b"user.long", None, SetExtended::Any).expect("remove");
    });
    operation!(all, "a file with far attributes goes", extend_far, true, |me, root, a| {
        me.unlink(&root_user(), a, b"f2").expect("unlink");
        me.set_umask(0o77);
    });
    operation!(all, "run a program", nothing, true, |me, root, a| {
        let (one, two) = (at(me, a, b"f2"), at(me, a, b"f3"));
        assert_eq!(me.set_program(Some(one)), Ok(None));
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        assert_eq!(me.set_program(Some(two)), Ok(Some(one)));
        me.cancel_fork(child);
        assert_eq!(me.set_program(None), Ok(Some(two)));
    });
    operation!(all, "watch", nothing, true, |me, root, a| {
        let instance = watch(me, root, &["", "a", "a/f2", "a/f3"]);
        me.watch_remove(instance, 2).expect("removed");
        assert_eq!(me.watch_of_host(instance, 2, true), Some(5));
        let file = at(me, a, b"f2");
        me.watch_add(instance, file, 0x8000_0002).expect("once");
        put(me, file, 0, 10, 1);
        me.watch_add(instance, file, 0x8000_0002).expect("anew");
    });
    operation!(all, "close a watcher", watch_all, false, |me, root, a| {
        let files = me.files();
        me.host_closed(files, 20);
    });
    operation!(all, "read what is told", watch_all, true, |me, root, a| {
        let instance = me.watch_instance(me.files(), 20).expect("an instance");
        me.create(&root_user(), a, LONG_TOLD, Node::File(0o644)).expect("create");
        me.unlink(&root_user(), a, b"f2").expect("unlink");
        let mut out = [0; 320];
        while me.watch_take(instance, &mut out).expect("taken").more {}
    });
    operation!(all, "unlink what is watched", watch_all, false, |me, root, a| {
        me.unlink(&root_user(), a, b"f3").expect("unlink");
    });
    operation!(all, "rename over what is watched", watch_all, false, |me, root, a| {
        let b = at(me, root, b"b");
        me.rename(&root_user(), a, b"f4", b, b"second", 0).expect("rename");
    });
    operation!(all, "rename directory over a watched one", watch_all, false, |me, root, a| {
        me.rename(&root_user(), root, b"empty", root, b"empty2", 0).expect("rename");
    });
    operation!(all, "fork with a watcher", watch_all, true, |me, root, a| {
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        let files = me.files();
        me.host_closed(files, 20);
        me.cancel_fork(child);
    });
    operation!(all, "exit", open_unlinked, false, |me, root, a| me.exit());
    let of_names = ["create", "mkdir", "symlink", "link", "unlink", "rmdir", "rename", "exchange"];
    let switches = ["widen", "narrow", "change", "nameless"];
    for operation in &mut all {
        let mut words = of_names.iter().chain(&switches);
        operation.names = words.any(|word| operation.name.starts_with(word));
    }
    all
}
