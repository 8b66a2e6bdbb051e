//! What each service promises, through the direct carrier; each test in a child with its own image.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use husk_carrier::Direct;
use husk_proto::descriptor::{Offsets as _, Shown, Slot};
use husk_proto::fs::{
    Backing, Change, Credentials, Kind, Node, Place, RENAME_EXCHANGE, RENAME_NOREPLACE, SetBits,
    SetExtended, Time, WHO_WRITES,
};
use husk_proto::image::{Cover, Image, Rewritten, Wish};
use husk_proto::lock::{Locks, Mode, Outcome, Owner, Range};
use husk_proto::process::{Sharing, WorkingDirectory};
use husk_proto::{Admin as _, Descriptors, Errno, Fs, Inode, Processes, Shortcuts as _};
use support::{LAYOUT, beside, clock, image, in_child, joined, program, root_user};
use world::{at, contents, findings, put};

const USER: Credentials<'static> =
    Credentials { uid: 1000, gid: 1000, groups: &[50], capabilities: 0, within: None };

/// How long a race may take on a busy machine.
const RACE_MAX: Duration = Duration::from_secs(60);

/// Runs `body` in a child process with an image of its own; the structure must be whole after.
#[track_caller]
fn in_image(cover: Cover, body: fn(&mut Direct, Inode)) {
    in_child(|| {
        let (mut boss, root) = image(LAYOUT, cover);
        let mut me = program(&mut boss, clock);
        body(&mut me, root);
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

fn names(me: &mut Direct, dir: Inode) -> Vec<String> {
    let mut names = Vec::new();
    me.list(dir, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("list");
    names.sort();
    names
}

#[test]
fn names_come_and_go() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let dir = me.create(&who, root, b"d", Node::Directory(0o755)).expect("mkdir");
        assert_eq!(me.create(&who, root, b"d", Node::File(0o644)).err(), Some(Errno::EEXIST));
        for bad in [&b""[..], b".", b".."] {
            assert_eq!(me.create(&who, root, bad, Node::File(0)).err(), Some(Errno::EINVAL));
        }
        let long = [b'x'; 256];
        assert_eq!(me.lookup(root, &long).err(), Some(Errno::ENAMETOOLONG));
        for length in [1, 31, 32, 33, 80, 81, 255] {
            me.create(&who, dir, &long[..length], Node::File(0o644)).expect("create");
        }
        for length in [1, 31, 32, 33, 80, 81, 255] {
            at(me, dir, &long[..length]);
        }
        assert_eq!(names(me, dir).len(), 7);
        assert_eq!(me.rmdir(&who, root, b"d").err(), Some(Errno::ENOTEMPTY));
        assert_eq!(me.unlink(&who, root, b"d").err(), Some(Errno::EISDIR));
        for length in [1, 31, 32, 33, 80, 81, 255] {
            me.unlink(&who, dir, &long[..length]).expect("unlink");
        }
        me.set_working_directory(WorkingDirectory::Husk(dir)).expect("chdir");
        me.rmdir(&who, root, b"d").expect("rmdir");
        assert_eq!(me.create(&who, dir, b"x", Node::File(0)).err(), Some(Errno::ENOENT));
        assert_eq!(me.parent(dir), Ok(root), "whoever is in it still goes up");
        assert_eq!(me.name_of(dir, &mut [0; 255]).err(), Some(Errno::ENOENT));
        me.set_working_directory(WorkingDirectory::Host).expect("chdir");
        assert_eq!(me.step(dir).err(), Some(Errno::ESTALE));
        assert_eq!(me.parent(root), Ok(root));
    });
}

#[test]
fn renames_follow_linux() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let a = me.create(&who, root, b"a", Node::Directory(0o755)).expect("mkdir");
        let b = me.create(&who, a, b"b", Node::Directory(0o755)).expect("mkdir");
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        assert_eq!(me.rename(&who, root, b"a", b, b"x", 0).err(), Some(Errno::EINVAL));
        assert_eq!(me.rename(&who, root, b"f", root, b"a", 0).err(), Some(Errno::EISDIR));
        assert_eq!(me.rename(&who, root, b"a", root, b"f", 0).err(), Some(Errno::ENOTDIR));
        let keep = RENAME_NOREPLACE;
        assert_eq!(me.rename(&who, root, b"f", root, b"a", keep).err(), Some(Errno::EEXIST));
        me.rename(&who, root, b"f", b, b"g", RENAME_EXCHANGE).expect_err("no target");
        me.rename(&who, root, b"f", b, b"g", 0).expect("rename");
        assert_eq!(at(me, b, b"g"), file);
        me.rename(&who, a, b"b", root, b"b", 0).expect("move up");
        assert_eq!(me.parent(b), Ok(root));
        let mut name = [0; 255];
        assert_eq!(me.name_of(b, &mut name), Ok(1));
        assert_eq!(me.attributes(root).expect("stat").links, 4);
        assert_eq!(me.attributes(a).expect("stat").links, 2);
        me.rename(&who, root, b"b", a, b"h", 0).expect("move down");
        me.rename(&who, root, b"a", root, b"c", RENAME_EXCHANGE).expect_err("no target");
        assert_eq!(names(me, root), ["a"]);
    });
}

#[test]
fn a_rename_into_itself_is_told_before_rights_are_judged() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let mut dir = |at, name: &[u8]| me.create(&who, at, name, Node::Directory(0o755));
        let outer = dir(root, b"outer").expect("mkdir");
        let inner = dir(outer, b"inner").expect("mkdir");
        let wide = dir(root, b"wide").expect("mkdir");
        let file = me.create(&who, outer, b"one", Node::File(0o644)).expect("create");
        me.link(&who, file, outer, b"two").expect("link");
        me.change(&who, wide, Change { mode: Some(0o777), ..Change::default() }).expect("chmod");
        let mut rename =
            |from, name: &[u8], to, new: &[u8], flags| me.rename(&USER, from, name, to, new, flags);
        assert_eq!(rename(root, b"outer", inner, b"new", 0), Err(Errno::EINVAL));
        assert_eq!(rename(root, b"outer", outer, b"inner", 0), Err(Errno::EINVAL));
        assert_eq!(rename(outer, b"inner", root, b"outer", 0), Err(Errno::ENOTEMPTY));
        assert_eq!(rename(outer, b"one", root, b"outer", 0), Err(Errno::ENOTEMPTY));
        let exchange = RENAME_EXCHANGE;
        assert_eq!(rename(root, b"outer", outer, b"inner", exchange), Err(Errno::EINVAL));
        assert_eq!(rename(outer, b"inner", root, b"outer", exchange), Err(Errno::EINVAL));
        assert_eq!(rename(outer, b"one", outer, b"two", 0), Ok(()), "two names of one file");
        assert_eq!(rename(outer, b"one", wide, b"new", 0), Err(Errno::EACCES));
        assert_eq!(rename(outer, b"inner", wide, b"new", 0), Err(Errno::EACCES));
    });
}

#[test]
fn a_write_right_after_many_blocks_came_back_finds_one() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        for count in 1..=80u64 {
            // Every other page: single blocks, which a slot keeps on its stack.
            for page in 0..count {
                assert_eq!(put(me, file, page * 8192, 1, 1), 1);
            }
            me.truncate(file, 0).expect("truncate");
            assert_eq!(put(me, file, 0, 1, 2), 1, "after {count}");
        }
    });
}

#[test]
fn writes_take_set_bits_from_those_who_may_not_leave_them() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let (locking, stays) = (0o2745, 0o6755);
        for (leaves, made, mode) in [
            (SetBits::Marks, stays, 0o755),
            (SetBits::All, stays, stays),
            (SetBits::Marks, locking, locking),
            (SetBits::Nothing, locking, 0o745),
        ] {
            let file = me.create(&who, root, b"f", Node::File(made)).expect("create");
            me.leave_set_bits(SetBits::Ask);
            let asked = me.write(file, Place::At(0), 1, &mut |_| Ok(()));
            assert_eq!(asked, Err(WHO_WRITES));
            assert_eq!(me.truncate(file, 9), Err(WHO_WRITES));
            assert_eq!(me.step(file).expect("step").mode, made);
            me.leave_set_bits(leaves);
            assert_eq!(put(me, file, 0, 1, 1), 1);
            assert_eq!(me.step(file).expect("step").mode, mode);
            me.unlink(&who, root, b"f").expect("unlink");
        }
        let nothing = me.read(root, 0, 0, &mut |_| Ok(()));
        assert_eq!(nothing, Err(Errno::EISDIR), "no bytes of a directory are refused, too");
    });
}

#[test]
fn bytes_are_what_was_written() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let mut model = vec![0u8; 0];
        let mut pieces = 0;
        let mut seed = 7u64;
        for round in 0..400u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (offset, length) =
                ((seed >> 20) as usize % 600_000, (seed >> 44) as usize % 50_000);
            match round % 5 {
                0..=2 => {
                    assert_eq!(put(me, file, offset as u64, length, round as u8), length);
                    if length > 0 {
                        model.resize(model.len().max(offset + length), 0);
                        model[offset..offset + length].fill(round as u8);
                    }
                }
                3 => {
                    me.truncate(file, offset as u64).expect("truncate");
                    model.resize(offset, 0);
                }
                _ => {
                    me.punch(file, offset as u64, length as u64 + 1).expect("punch");
                    let (from, to) =
                        (offset.min(model.len()), (offset + length + 1).min(model.len()));
                    model[from..to].fill(0);
                }
            }
            assert!(contents(me, file) == model, "round {round}");
            pieces += usize::from(is_in_one_piece(me, file, &model, offset, length % 9000));
        }
        assert!(pieces > 100, "{pieces} reads were of one piece");
        me.truncate(file, 1 << 40).expect("sparse");
        assert_eq!(put(me, file, (1 << 42) - 10, 5, 1), 5);
        assert_eq!(me.seek_data(file, 1 << 40, true), Ok((1 << 42) - 4096));
        assert_eq!(me.attributes(file).expect("stat").size, (1 << 42) - 5);
        let end = me.write(file, Place::End, 3, &mut |_| Ok(())).expect("append");
        assert_eq!(end, ((1 << 42) - 5, 3));
    });
}

/// Whether a read is of one piece; if so, it gives what it should.
fn is_in_one_piece(me: &mut Direct, file: Inode, model: &[u8], at: usize, length: usize) -> bool {
    let Some(piece) = me.piece(file, at as u64, length) else { return false };
    // SAFETY: a span of the mapped cache, which nobody else writes to.
    let bytes =
        unsafe { std::slice::from_raw_parts(piece.span.address as *const u8, piece.span.length) };
    assert_eq!(bytes, &model[at..model.len().min(at + length)]);
    assert!(me.has_read(file, piece), "nobody has moved it");
    true
}

#[test]
fn a_piece_that_was_moved_meanwhile_has_not_been_read() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        assert_eq!(put(me, file, 0, 3 * 4096, 1), 3 * 4096);
        let piece = |me: &mut Direct| me.piece(file, 4096, 4096).expect("one block");
        let (still, punched) = (piece(me), piece(me));
        assert!(me.has_read(file, still));
        me.punch(file, 4096, 4096).expect("punch");
        assert!(!me.has_read(file, punched), "its block may be another file's");
        let cut = piece(me);
        me.truncate(file, 100).expect("truncate");
        assert!(!me.has_read(file, cut));
        assert!(me.piece(file, 100, 1).is_none(), "nothing is at the end");
        let gone = me.piece(file, 0, 200).expect("the rest");
        assert_eq!(gone.span.length, 100);
        me.unlink(&who, root, b"f").expect("unlink");
        assert!(me.piece(file, 0, 1).is_none() && me.piece(root, 0, 1).is_none());
    });
}

#[test]
fn a_read_says_so_before_it_stores_an_access_time() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    in_image(Cover::Memory, |me, root| {
        me.set_unguard(|| ASKED.store(true, Ordering::Relaxed));
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        put(me, file, 0, 10, 1);
        let (accessed, modified) = (Some(Time::At(1)), Some(Time::At(2)));
        me.change(&who, file, Change { accessed, modified, ..Change::default() }).expect("times");
        for first in [true, false] {
            let piece = me.piece(file, 0, 10).expect("one block");
            assert!(me.has_read(file, piece));
            assert!(me.attributes(file).expect("stat").accessed_ns > 2);
            let asked = ASKED.swap(false, Ordering::Relaxed);
            assert_eq!(asked, first, "the first read after a change is noted, others are not");
        }
    });
}

#[test]
fn full_means_full_and_space_comes_back() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let free = me.usage();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let mut at = 0;
        for _ in 0..LAYOUT.memory_bytes >> 20 {
            at += put(me, file, at, 1 << 20, 1) as u64;
        }
        assert_eq!(put(me, file, at, 1 << 20, 1), 0, "full");
        assert_eq!(me.usage().blocks_free, 0, "full, it says");
        let refused = me.write(file, Place::End, 4096, &mut |_| Ok(()));
        assert_eq!(refused.err(), Some(Errno::ENOSPC));
        me.unlink(&who, root, b"f").expect("unlink");
        assert_eq!(me.usage().blocks_free, free.blocks_free);
        let mut made = 0;
        while me.create(&who, root, format!("n{made}").as_bytes(), Node::File(0)).is_ok() {
            made += 1;
        }
        assert!(made as u64 >= free.inodes_free - 64, "ENOSPC after {made} of {free:?}");
        for n in 0..made {
            me.unlink(&who, root, format!("n{n}").as_bytes()).expect("unlink");
        }
        assert_eq!(me.usage().inodes_free, free.inodes_free);
    });
}

#[test]
fn an_image_full_of_names_still_starts_processes_and_removes() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let long = |n: u32| format!("{n:0>200}");
        let dir = me.create(&who, root, b"d", Node::Directory(0o755)).expect("mkdir");
        let file = me.create(&who, root, b"short", Node::File(0o644)).expect("short");
        // Names of one file: there is always one more inode, and no room for what it is called.
        let mut link = |n| me.link(&who, file, dir, long(n).as_bytes()).err();
        let (mut made, why) = (0..).find_map(|n| link(n).map(|why| (n, why))).expect("an end");
        assert_eq!(why, Errno::ENOSPC);
        let files = me.files();
        me.open(&who, files, file, 2, 0, 64).expect("open");
        for _ in 0..1000 {
            for sharing in [Sharing::default(), Sharing { files: true, context: true }] {
                let child = me.prepare_fork(sharing).expect("fork in a full image");
                me.cancel_fork(child);
                let refused = me.create(&who, dir, long(made).as_bytes(), Node::File(0));
                made += refused.is_ok() as u32;
            }
        }
        for n in 0..made {
            me.unlink(&who, dir, long(n).as_bytes()).expect("unlink in a full image");
        }
        me.rmdir(&who, root, b"d").expect("rmdir");
    });
}

#[test]
fn numbers_are_the_lowest_free() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        for expected in 3..300 {
            assert_eq!(me.open(&who, files, file, 0, 0, 1024), Ok(expected));
        }
        assert_eq!(me.open(&who, files, file, 0, 0, 300), Err(Errno::EMFILE));
        for fd in [5, 64, 128, 255] {
            me.close(files, fd).expect("close");
        }
        assert_eq!(me.lowest_free(files, 6, 1024), Ok(64));
        assert_eq!(me.duplicate(files, 3, 0, 1024, true), Ok(5));
        assert_eq!(me.close_on_exec(files, 5), Ok(true));
        me.duplicate_to(files, 3, 200_000, false, false).expect("dup2");
        assert_eq!(me.lowest_free(files, 200_000, 262_144), Ok(200_001));
        assert_eq!(me.host_opened(files, 64, false, Shown::Nothing), Ok(true));
        assert_eq!(me.host_opened(files, 3, false, Shown::Nothing), Ok(false));
        assert_eq!(me.slot(files, 64), Slot::Host(None));
        me.unlink(&who, root, b"f").expect("unlink");
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        me.finish_exec().expect("exec");
        assert_eq!(me.slot(files, 5), Slot::Free);
        me.cancel_fork(child);
        assert!(me.step(file).is_ok(), "still open");
    });
}

#[test]
fn a_plug_is_closed_before_its_number_is_free() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        assert_eq!(me.open(&who, files, file, 0, 0, 64), Ok(3));
        assert!(me.plug(files, 3) && me.plugged(files, 3));
        assert_eq!(me.close(files, 3), Ok(true));
        assert!(matches!(me.slot(files, 3), Slot::Husk(_)), "open until the plug is closed");
        assert_eq!(me.close(files, 3), Ok(false));
        assert!(!me.plug(files, 3), "nobody is there to close it");
        assert_eq!(me.close(files, 3), Err(Errno::EBADF));
    });
}

#[test]
fn numbers_change_hands_without_being_free() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        assert_eq!(me.open(&who, files, file, 0, 0, 64), Ok(3));
        assert_eq!(me.open(&who, files, file, 0, 0, 64), Ok(4));
        assert_eq!(me.host_opened(files, 5, false, Shown::Nothing), Ok(true));
        assert_eq!(me.duplicate_to(files, 3, 5, false, false), Err(Errno::EBUSY));
        assert_eq!(me.duplicate_to(files, 3, 5, false, true), Ok(()));
        assert!(!me.plugged(files, 5) && me.plug(files, 5) && me.plugged(files, 5));
        me.finish_exec().expect("exec");
        assert!(!me.plugged(files, 5), "the host has closed all plugs");
        assert_eq!(me.host_replaces(files, 4, true, Shown::File(file)), Ok(()));
        assert_eq!(me.slot(files, 4), Slot::Host(Some(file)));
        let promoted = me.promote(files, 4, file, 0, 9).expect("the file is the image's");
        assert_eq!(me.offset(promoted), Ok(9));
        assert_eq!(me.slot(files, 4), Slot::Husk(promoted));
        assert_eq!(me.promote(files, 4, file, 0, 1), Ok(promoted), "by two threads at once");
        assert_eq!(me.promote(files, 9, file, 0, 0), Err(Errno::EBADF));
    });
}

#[test]
fn the_numbers_of_a_shadow_share_a_description() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        assert_eq!(me.host_opened(files, 3, false, Shown::File(file)), Ok(true));
        assert_eq!(me.host_opened(files, 4, false, Shown::Like(3)), Ok(true));
        assert_eq!(me.host_opened(files, 5, false, Shown::File(file)), Ok(true));
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        let first = me.promote(files, 3, file, 0, 7).expect("the file is the image's");
        me.set_offset(first, 9).expect("seek");
        assert_eq!(me.promote(files, 4, file, 0, 7), Ok(first), "with the offset there is");
        assert_eq!(me.offset(first), Ok(9));
        assert_ne!(me.promote(files, 5, file, 0, 1), Ok(first), "opened by itself");
        assert_eq!(me.host_replaces(files, 6, false, Shown::Like(4)), Ok(()));
        assert_eq!(me.promote(files, 6, file, 0, 7), Ok(first));
        for fd in [3, 4, 6] {
            assert_eq!(me.close(files, fd), Ok(true));
            assert_eq!(me.close(files, fd), Ok(false));
        }
        assert_eq!(me.offset(first), Ok(9), "the child has it");
        me.cancel_fork(child);
        assert_eq!(me.offset(first), Err(Errno::EBADF));
    });
}

#[test]
fn what_a_child_will_have_mapped_is_kept_for_it_before_it_runs() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o755)).expect("create");
        me.pin(file).expect("pin");
        me.pin_writes(file).expect("writable");
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        me.pin_for(child, file, 2, true).expect("pinned");
        me.unpin(file);
        assert_eq!(me.set_program(Some(file)), Err(Errno::ETXTBSY), "the child may write to it");
        me.unlink(&who, root, b"f").expect("unlink");
        assert!(me.step(file).is_ok(), "nothing but the child keeps it");
        me.cancel_fork(child);
        assert_eq!(me.step(file).err(), Some(Errno::ESTALE));
        let child = me.prepare_fork(Sharing::default()).expect("fork");
        assert_eq!(me.pin_for(child, file, 1, false), Ok(()), "nothing is left to keep");
        me.cancel_fork(child);
    });
}

#[test]
fn permissions_are_linuxs() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o640)).expect("create");
        assert_eq!(me.open(&USER, files, file, 0, 0, 64), Err(Errno::EACCES));
        assert_eq!(me.unlink(&USER, root, b"f"), Err(Errno::EACCES));
        let change = husk_proto::fs::Change { mode: Some(0o777), ..Default::default() };
        assert_eq!(me.change(&USER, file, change), Err(Errno::EPERM));
        let give = husk_proto::fs::Change { gid: Some(50), ..Default::default() };
        me.change(&who, file, give).expect("chgrp");
        assert!(me.open(&USER, files, file, 0, 0, 64).is_ok(), "by group");
        let sticky = me.create(&who, root, b"t", Node::Directory(0o1777)).expect("mkdir");
        me.create(&who, sticky, b"theirs", Node::File(0o666)).expect("create");
        assert_eq!(me.unlink(&USER, sticky, b"theirs"), Err(Errno::EPERM));
        me.create(&USER, sticky, b"mine", Node::File(0o666)).expect("create");
        me.unlink(&USER, sticky, b"mine").expect("own file");
    });
}

#[test]
fn locks_exclude_and_find_circles() {
    in_image(Cover::Memory, |me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let one = me.open(&who, files, file, 2, 0, 64).expect("open");
        let two = me.open(&who, files, file, 2, 0, 64).expect("open");
        let (first, second) = (world::opened(me, one), world::opened(me, two));
        let range = |start, end| Range { start, end };
        let ofd = Owner::Description(first);
        assert_eq!(me.lock(ofd, file, range(0, 100), Mode::Exclusive, false), Ok(Outcome::Granted));
        let other = Owner::Description(second);
        let blocked = me.lock(other, file, range(50, 60), Mode::Shared, false);
        assert!(matches!(blocked, Ok(Outcome::Blocked { .. })));
        assert_eq!(
            me.lock(other, file, range(100, 200), Mode::Shared, false),
            Ok(Outcome::Granted)
        );
        let held = me.test(Owner::Process, file, range(0, 10), Mode::Shared).expect("test");
        assert_eq!(held.map(|held| (held.pid, held.range)), Some((-1, range(0, 100))));
        for n in 0..40 {
            let all = me.lock(ofd, file, range(n * 2, n * 2 + 1), Mode::Unlock, false);
            assert_eq!(all, Ok(Outcome::Granted));
        }
        me.close(files, one).expect("close");
        assert_eq!(
            me.lock(other, file, range(0, 90), Mode::Exclusive, false),
            Ok(Outcome::Granted)
        );
    });
}

#[test]
fn an_overlay_remembers_what_the_host_had() {
    in_image(Cover::Overlay, |me, root| {
        let who = root_user();
        assert!(me.step(root).expect("root").unlisted);
        world::build(me, root);
        let file = at(me, root, b"host-file");
        let facts = me.attributes(file).expect("stat");
        assert_eq!((facts.backing, facts.size), (Backing::Host, 100));
        let inner = at(me, root, b"host-dir");
        let inner = at(me, inner, b"inner");
        let origin = me.attributes(inner).expect("stat").origin.expect("imported");
        let mut path = [0; 4096];
        let length = me.host_path(origin, &mut path).expect("path");
        assert_eq!(&path[..length], b"/tmp/mount/host-dir/inner");
        assert_eq!(me.host_identity(origin).expect("identity").inode, 9);
        assert_eq!(me.read(file, 0, 10, &mut |_| Ok(())), Err(Errno::EIO));
        me.rename(&who, root, b"host-file", root, b"renamed", 0).expect("rename");
        me.create(&who, root, b"host-file", Node::File(0o600)).expect("create anew");
        me.unlink(&who, root, b"host-link").expect("unlink");
        let mut gone = Vec::new();
        me.whiteouts(root, &mut |name, _| {
            gone.push(String::from_utf8_lossy(name).into_owned());
            Ok(())
        })
        .expect("whiteouts");
        gone.sort();
        assert_eq!(gone, ["host-file", "host-link"]);
        assert_eq!(me.lookup(root, b"host-link").err(), Some(Errno::ENOENT));
        assert_eq!(me.lookup(root, b"renamed").expect("there").kind, Kind::File);
        me.truncate(file, 0).expect("truncated without its bytes");
        assert_eq!(me.attributes(file).expect("stat").backing, Backing::Image);
    });
}

#[test]
fn an_inode_has_so_many_attributes_and_no_more() {
    const MOST: u32 = 4096;
    in_image(Cover::Memory, |me, root| {
        let file = me.create(&root_user(), root, b"f", Node::File(0o644)).expect("create");
        let mut set = |n: u32, value: Option<&[u8]>, how| {
            me.set_extended(file, format!("user.{n:05}").as_bytes(), value, how)
        };
        for n in 0..MOST {
            assert_eq!(set(n, Some(b"1"), SetExtended::Create), Ok(()), "attribute {n}");
        }
        assert_eq!(set(MOST, Some(b"1"), SetExtended::Any), Err(Errno::ENOSPC));
        assert_eq!(set(7, Some(b"2"), SetExtended::Replace), Ok(()));
        assert_eq!(set(0, None, SetExtended::Any), Ok(()));
        assert_eq!(set(MOST, Some(b"1"), SetExtended::Any), Ok(()));
        let mut list = vec![0; 1 << 16];
        let length = me.list_extended(file, false, &[], &mut list).expect("list");
        assert_eq!(length as u32, MOST * 11);
    });
}

#[test]
fn what_one_makes_and_another_removes_is_used_again() {
    in_image(Cover::Memory, |me, root| {
        let (pid, who) = (std::process::id(), root_user());
        let mut other = Direct::attach(clock, me.current(), pid, support::tid()).expect("attached");
        for n in 0..10_000 {
            me.create(&who, root, b"f", Node::File(0o644)).expect("create");
            other.unlink(&who, root, b"f").expect("unlink");
            let used = me.kernel().session.never_used(husk_region::INODE);
            assert!(used < 2000, "{used} inodes for one file, after {n} of them");
        }
        other.detach();
    });
}

#[test]
fn the_image_shares_its_caches() {
    in_image(Cover::Memory, |me, root| {
        assert_eq!(me.mounts(), 1);
        assert_eq!((me.mount(0).path, me.mount(0).root), (&b"/tmp/mount"[..], root));
        assert_eq!((me.device(), me.copies_path()), (77, &b"/tmp/copies"[..]));
        assert!(!me.known_outside(b"/usr/lib"));
        let age = me.outside_age();
        me.note_outside(b"/usr/lib", age);
        assert!(me.known_outside(b"/usr/lib") && !me.known_outside(b"/usr/lib6"));
        me.forget_outside();
        assert!(!me.known_outside(b"/usr/lib"));
        me.note_outside(b"/usr/lib", age);
        assert!(!me.known_outside(b"/usr/lib"), "what was seen before may have changed");
        let file = husk_proto::fs::HostIdentity { inode: 4, ..Default::default() };
        me.request_rewrite(&file, b"/bin/true");
        me.request_rewrite(&file, b"/bin/true");
        assert_eq!(me.rewritten(&file), Rewritten::Requested);
        let mut path = [0; 4096];
        assert_eq!(me.next_wish(&mut path), Some((Wish::Rewrite, file, 9)));
        me.forget_requests();
        assert_eq!(me.rewritten(&file), Rewritten::Unknown, "its supervisor died at it");
        me.request_rewrite(&file, b"/bin/true");
        assert_eq!(me.next_wish(&mut path), Some((Wish::Rewrite, file, 9)));
        assert_eq!(me.next_wish(&mut path), None);
        me.set_rewritten(&file, Rewritten::Ready);
        assert_eq!(me.rewritten(&file), Rewritten::Ready);
    });
}

#[test]
fn a_program_that_starts_often_is_worth_room_in_the_region() {
    in_image(Cover::Memory, |me, _| {
        let file = husk_proto::fs::HostIdentity { inode: 4, ..Default::default() };
        let wishes = |me: &mut Direct| (0..200).filter(|_| me.count_start(&file)).count();
        assert_eq!(wishes(me), 0, "nothing is known of it");
        me.set_rewritten(&file, Rewritten::Plain);
        let first = (1..).find(|_| me.count_start(&file));
        assert_eq!(first, Some(4));
        assert_eq!(me.rewritten(&file), Rewritten::Plain);
        // Who is not heard asks again, but not for ever.
        assert_eq!(wishes(me), 14);
        let (at, left) = me.room_to_gather();
        assert!(at.is_multiple_of(2 << 20) && at >= support::LAYOUT.total_bytes());
        assert_eq!(at + left, support::LAYOUT.trace_offset());
        me.request_gathered(&file, b"/bin/large");
        let mut path = [0; 4096];
        assert_eq!(me.next_wish(&mut path), Some((Wish::Gather, file, 10)));
        me.set_gathered(&file, 5 << 20);
        assert_eq!((me.rewritten(&file), wishes(me)), (Rewritten::Gathered(at), 0));
        assert_eq!(me.room_to_gather(), (at + (6 << 20), left - (6 << 20)));
        let other = husk_proto::fs::HostIdentity { inode: 5, ..Default::default() };
        me.set_rewritten(&other, Rewritten::Ready);
        me.refuse_to_gather(&other);
        assert_eq!((0..200).filter(|_| me.count_start(&other)).count(), 0);
        assert_eq!(me.rewritten(&other), Rewritten::Ready);
    });
}

#[test]
fn pinned_blocks_stay() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        put(me, file, 0, 100_000, 7);
        me.pin(file).expect("pin");
        let mut before = Vec::new();
        let runs = |me: &mut Direct, list: &mut Vec<u64>| {
            me.runs(file, 0, 100_000, true, &mut |run| {
                list.push(run.cache_offset.expect("no hole is left"));
                Ok(())
            })
        };
        runs(me, &mut before).expect("runs");
        assert!(before.len() < 5, "a file written in one go lies in few pieces");
        me.truncate(file, 0).expect("truncate");
        me.truncate(file, 100_000).expect("grow");
        assert_eq!(contents(me, file), vec![0; 100_000]);
        let mut after = Vec::new();
        runs(me, &mut after).expect("runs");
        assert_eq!(before, after);
        me.unlink(&who, root, b"f").expect("unlink");
        assert!(me.step(file).is_ok(), "pinned");
        me.unpin(file);
        assert_eq!(me.step(file).err(), Some(Errno::ESTALE));
    });
}

/// Pieces of a listing: many times what the directory ever holds.
const LISTINGS_MAX: u32 = 1 << 16;

/// Lists in small pieces, as `getdents` with a small buffer would.
fn stable_names(me: &mut Direct, dir: Inode) -> Vec<String> {
    let (mut cookie, mut names) = (0, Vec::new());
    for _ in 0..LISTINGS_MAX {
        let mut count = 0;
        me.list(dir, cookie, &mut |entry| {
            if entry.name.starts_with(b"stable") {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            (cookie, count) = (entry.next, count + 1);
            count < 7
        })
        .expect("list");
        if count < 7 {
            names.sort();
            return names;
        }
    }
    panic!("a listing without an end");
}

#[test]
fn a_listing_shows_each_stable_name_once_whatever_happens() {
    in_image(Cover::Memory, |me, root| {
        use std::sync::atomic::AtomicU64;
        static STOP: AtomicBool = AtomicBool::new(false);
        static CHANGES: AtomicU64 = AtomicU64::new(0);
        let who = root_user();
        let mut expected = Vec::new();
        for n in 0..300 {
            let name = format!("stable-{n:03}");
            me.create(&who, root, name.as_bytes(), Node::File(0o644)).expect("create");
            me.create(&who, root, format!("v{n}").as_bytes(), Node::File(0)).expect("create");
            expected.push(name);
        }
        let process = me.current();
        let stormer = beside(process, move |me| {
            let mut n = 0u64;
            while !STOP.load(Ordering::Relaxed) {
                n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (one, two) = (format!("v{}", n >> 40 & 255), format!("v{}", n >> 50 & 255));
                let done = match n >> 33 & 3 {
                    0 => me.unlink(&who, root, one.as_bytes()),
                    1 => me.rename(&who, root, one.as_bytes(), root, two.as_bytes(), 0),
                    _ => me.create(&who, root, one.as_bytes(), Node::File(0)).map(|_| ()),
                };
                CHANGES.fetch_add(done.is_ok() as u64, Ordering::Relaxed);
            }
        });
        let start = std::time::Instant::now();
        let mut listings = 0;
        while start.elapsed().as_millis() < 700 || CHANGES.load(Ordering::Relaxed) < 1000 {
            assert!(!stormer.is_finished(), "the stormer has failed, see above");
            assert!(start.elapsed() < RACE_MAX, "{CHANGES:?} changes only");
            assert_eq!(stable_names(me, root), expected);
            listings += 1;
        }
        STOP.store(true, Ordering::Relaxed);
        joined("the stormer", stormer);
        assert!(listings > 3);
    });
}

#[test]
fn threads_share_one_table() {
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let (process, files) = (me.current(), me.files());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                beside(process, move |me| {
                    for n in 0..3000u64 {
                        let fd = me.open(&who, files, file, 2, 0, 64).expect("open");
                        let description = world::opened(me, fd);
                        me.set_offset(description, n).expect("seek");
                        assert_eq!(me.offset(description), Ok(n), "somebody else has number {fd}");
                        let end = me.write(file, Place::End, 1, &mut |_| Ok(())).expect("append");
                        assert_eq!(end.1, 1);
                        me.close(files, fd).expect("close");
                    }
                })
            })
            .collect();
        for thread in threads {
            joined("a thread", thread);
        }
        assert_eq!(me.attributes(file).expect("stat").size, 12_000);
        assert_eq!(me.lowest_free(files, 0, 64), Ok(3));
    });
}

#[test]
fn nobody_closes_a_description_whose_offset_somebody_holds() {
    static STOP: AtomicBool = AtomicBool::new(false);
    in_image(Cover::Memory, |me, root| {
        let who = root_user();
        let each = [&b"one"[..], b"two"];
        let both = each.map(|name| me.create(&who, root, name, Node::File(0)).expect("create"));
        let (process, files) = (me.current(), me.files());
        let closer = beside(process, move |me| {
            for n in 0.. {
                if STOP.load(Ordering::Relaxed) {
                    break;
                }
                let fd = me.open(&who, files, both[n % 2], 2, 0, 64).expect("open");
                me.close(files, fd).expect("close");
            }
        });
        let start = std::time::Instant::now();
        let mut held = 0;
        while held < 2000 || start.elapsed().as_millis() < 900 {
            assert!(!closer.is_finished(), "the closer has failed, see above");
            assert!(start.elapsed() < RACE_MAX, "held {held} times only");
            let Slot::Husk(description) = me.slot(files, 3) else { continue };
            let _ = me.advance(description, |me, offset| {
                let Ok(before) = me.description(description) else { return Err(Errno::EBADF) };
                for _ in 0..5 {
                    std::hint::spin_loop();
                }
                // Who closes may have begun to, and takes it back when it finds us.
                let start = std::time::Instant::now();
                let after = loop {
                    match me.description(description) {
                        Err(_) if start.elapsed().as_secs() < 5 => std::thread::yield_now(),
                        after => break after.map(|open| open.inode),
                    }
                };
                assert_eq!(after, Ok(before.inode), "closed while held");
                held += 1;
                Ok((offset + 1, 1))
            });
        }
        STOP.store(true, Ordering::Relaxed);
        joined("the closer", closer);
    });
}
