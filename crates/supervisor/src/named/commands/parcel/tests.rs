//! Parcels that are whole, half, led astray, and in the hands of others.

use super::*;
use crate::write_back::host::beneath::schedule;
use rustix::fs::mknodat;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn packed(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer { output: &mut bytes, recursive: true, complete: true };
    items.iter().for_each(|item| packer.item(item).unwrap());
    bytes
}

fn facts() -> Facts {
    Facts { mode: 0o700, accessed: (1, 2), modified: (3, 4) }
}

#[test]
fn no_name_leads_out_of_where_a_parcel_is_unpacked() {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir(scratch.path().join("in")).unwrap();
    for name in ["..", ".", "", "../x", "/x", "a/b"] {
        let name = name.as_bytes().to_vec();
        let link = Item::Symlink { name, facts: facts(), target: b"x".to_vec() };
        let parcel = packed(&[link, Item::End]);
        assert!(unpack(&scratch.path().join("in"), &mut &parcel[..]).is_err());
    }
    // Nor does a link that is there already.
    std::os::unix::fs::symlink(scratch.path(), scratch.path().join("in/link")).unwrap();
    let enter = Item::Directory { name: b"link".to_vec(), facts: facts() };
    let inside = Item::Fifo { name: b"x".to_vec(), facts: facts() };
    let parcel = packed(&[enter, inside, Item::Leave, Item::End]);
    assert!(!unpack(&scratch.path().join("in"), &mut &parcel[..]).unwrap());
    assert!(!scratch.path().join("x").exists());
}

#[test]
fn what_somebody_puts_in_the_place_of_a_fifo_keeps_its_mode() {
    let scratch = tempfile::tempdir().unwrap();
    let (private, at) = (scratch.path().join("private"), |name| scratch.path().join(name));
    fs::write(&private, "x").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o604)).unwrap();
    symlink(&private, at("link")).unwrap();
    fs::hard_link(&private, at("hard")).unwrap();
    let directory = OwnedFd::from(File::open(scratch.path()).unwrap());
    let make = |new: &str| mknodat(&directory, new, FileType::Fifo, Mode::RUSR, 0);
    make("fifo").unwrap();
    make("twice").unwrap();
    fs::hard_link(at("twice"), at("other")).unwrap();
    for name in ["link", "hard", "twice"] {
        assert!(finish_fifo(&directory, name.as_ref(), facts()).is_err(), "{name}");
    }
    assert_eq!(fs::metadata(&private).unwrap().mode() & 0o7777, 0o604);
    finish_fifo(&directory, "fifo".as_ref(), facts()).unwrap();
    assert_eq!(fs::metadata(at("fifo")).unwrap().mode() & 0o7777, 0o700);
}

/// What somebody does below the directory that is copied into.
type Move = fn(&Path) -> io::Result<()>;

fn outside(top: &Path) -> PathBuf {
    top.with_file_name("outside")
}

/// All temporary names below lead elsewhere.
fn take(top: &Path, by: fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    for directory in [top.to_owned(), top.join("source")] {
        for (number, entry) in fs::read_dir(&directory).into_iter().flatten().flatten().enumerate()
        {
            if host::is_own(&entry.file_name()) {
                fs::rename(entry.path(), directory.join(format!("stolen{number}")))?;
                by(&outside(top), &entry.path())?;
            }
        }
    }
    Ok(())
}

fn take_by_links(top: &Path) -> io::Result<()> {
    take(top, |outside, name| symlink(outside.join("link"), name))
}

fn take_by_hard_links(top: &Path) -> io::Result<()> {
    take(top, |outside, name| fs::hard_link(outside.join("secret"), name))
}

fn take_by_other_symlinks(top: &Path) -> io::Result<()> {
    take(top, |outside, name| fs::rename(outside.join("link"), name).or(Ok(())))
}

fn swap_the_directory(top: &Path) -> io::Result<()> {
    let source = top.join("source");
    if fs::rename(&source, top.join("real")).is_ok() {
        symlink(outside(top), source)?;
    }
    Ok(())
}

/// All about them but their names.
fn facts_of(one: &Path) -> (u64, u32, i64, i64) {
    let found = fs::symlink_metadata(one).unwrap();
    (found.ino(), found.mode(), found.mtime(), found.mtime_nsec())
}

/// Copies `parcel`, and somebody moves before the n-th host call; whether there was one.
fn copied_beside(n: u32, act: Move, parcel: &[u8]) -> bool {
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path().join("target");
    let secrets = outside(&top);
    fs::create_dir(&top).unwrap();
    fs::create_dir(&secrets).unwrap();
    fs::write(secrets.join("secret"), "secret").unwrap();
    symlink("y", secrets.join("link")).unwrap();
    let before = ["secret", "link"].map(|name| facts_of(&secrets.join(name)));
    // The number of what is removed may be that of another one otherwise.
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let _held = openat(CWD, secrets.join("link"), flags, Mode::empty()).unwrap();
    let count = std::rc::Rc::new(std::cell::Cell::new(0));
    let (seen, at) = (std::rc::Rc::clone(&count), top.clone());
    let plan = move |_| {
        count.set(count.get() + 1);
        if count.get() == n { act(&at) } else { Ok(()) }
    };
    let complete = schedule::during(plan, || unpack(&top, &mut &*parcel).unwrap());
    let mut open = vec![scratch.path().to_owned()];
    while let Some(path) = open.pop() {
        let after = facts_of(&path);
        let was = before.iter().find(|one| one.0 == after.0);
        assert!(was.is_none_or(|was| *was == after), "call {n}: {}", path.display());
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
        }
    }
    let mut left: Vec<_> =
        fs::read_dir(&secrets).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.retain(|name| name != "secret" && name != "link");
    assert!(left.is_empty(), "call {n}: {left:?} outside");
    assert_eq!(fs::read_to_string(secrets.join("secret")).unwrap(), "secret", "call {n}");
    if complete {
        let source = [top.join("real"), top.join("source")].into_iter().find(|one| one.is_dir());
        let source = source.unwrap();
        assert_eq!(fs::read_to_string(source.join("file")).unwrap(), "new", "call {n}");
        assert_eq!(fs::read_link(source.join("link")).unwrap(), Path::new("x"), "call {n}");
    }
    seen.get() >= n
}

#[test]
fn an_adversary_beside_every_host_call_of_a_copy_reaches_nothing_outside() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("in")).unwrap();
    for name in ["file", "in/deep"] {
        fs::write(source.join(name), "new").unwrap();
    }
    symlink("x", source.join("link")).unwrap();
    mknodat(CWD, source.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let mut parcel = Vec::new();
    assert!(pack(&source, true, &mut parcel).unwrap());
    let moves: [Move; 4] =
        [take_by_links, take_by_hard_links, take_by_other_symlinks, swap_the_directory];
    for act in moves {
        let calls = (1..1000).take_while(|&n| copied_beside(n, act, &parcel)).count();
        assert!(calls > 10, "{calls} host calls");
    }
}

/// What somebody does below a directory that is packed.
const PACKED: [(&str, Move); 5] = [
    ("links", |top| replace(top, |outside, name| symlink(outside.join("secret"), name))),
    ("links to directories", |top| replace(top, |outside, name| symlink(outside, name))),
    ("FIFOs", |top| replace(top, |_, name| Ok(mknodat(CWD, name, FileType::Fifo, Mode::RUSR, 0)?))),
    ("directories", |top| replace(top, |_, name| fs::create_dir(name))),
    ("a link in the place of a directory", |top| {
        fs::rename(top.join("in"), top.join("away"))?;
        symlink(outside(top), top.join("in"))
    }),
];

fn replace(top: &Path, by: fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    for name in ["file", "link", "in/secret", "in/link"].map(|name| top.join(name)) {
        fs::rename(&name, name.with_extension("theirs"))?;
        by(&outside(top), &name)?;
    }
    Ok(())
}

#[test]
fn an_adversary_beside_every_host_call_of_packing_gets_nothing_from_outside_packed() {
    for (what, act) in PACKED {
        for n in 1.. {
            let scratch = tempfile::tempdir().unwrap();
            let top = scratch.path().join("source");
            fs::create_dir_all(top.join("in")).unwrap();
            fs::create_dir(outside(&top)).unwrap();
            fs::write(outside(&top).join("secret"), "not theirs").unwrap();
            for name in ["file", "in/secret"] {
                fs::write(top.join(name), "in the tree").unwrap();
            }
            for name in ["link", "in/link"] {
                symlink("x", top.join(name)).unwrap();
            }
            let count = std::rc::Rc::new(std::cell::Cell::new(0));
            let (seen, at) = (std::rc::Rc::clone(&count), top.clone());
            let plan = move |_| {
                count.set(count.get() + 1);
                if count.get() == n { act(&at) } else { Ok(()) }
            };
            let mut parcel = Vec::new();
            let complete = schedule::during(plan, || pack(&top, true, &mut parcel).unwrap());
            let text = String::from_utf8_lossy(&parcel);
            assert!(!text.contains("not theirs"), "{what} before call {n}: {text}");
            let (found, over) = (text.matches("in the tree").count(), seen.get() < n);
            // What has become another thing meanwhile is left out, and told.
            assert!(!complete || found == 2 || n <= seen.get(), "{what} before call {n}: {text}");
            assert!(!over || complete && found == 2, "{what}: {text}");
            if over {
                assert!(n > 10, "{what}: {n} host calls");
                break;
            }
        }
    }
}

#[test]
fn a_file_that_took_the_place_of_another_has_its_own_mode() {
    let scratch = tempfile::tempdir().unwrap();
    let private = scratch.path().join("private");
    fs::write(&private, "x").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let opened = || OwnedFd::from(File::open(&private).unwrap());
    assert_eq!(seen(opened(), FileType::RegularFile).unwrap().1.mode, 0o600);
    assert!(seen(opened(), FileType::Directory).is_err());
}

#[test]
fn what_somebody_puts_in_the_place_of_a_directory_is_not_entered() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name| scratch.path().join(name);
    for name in ["full", "old"] {
        fs::create_dir(at(name)).unwrap();
    }
    // By the host's clock, and by more than times of files are off.
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(50) {
        std::thread::yield_now();
    }
    let moment = Moment::now();
    fs::create_dir(at("new")).unwrap();
    fs::write(at("full/private"), "x").unwrap();
    let parent = OwnedFd::from(File::open(scratch.path()).unwrap());
    for name in ["full", "old"] {
        assert!(entered(&parent, name.as_ref(), Some(&moment)).is_err(), "{name}");
        entered(&parent, name.as_ref(), None).unwrap();
    }
    entered(&parent, "new".as_ref(), Some(&moment)).unwrap();
    fs::write(at("new/theirs"), "x").unwrap();
    assert!(entered(&parent, "new".as_ref(), Some(&moment)).is_err(), "it is not empty");
}

#[test]
fn what_a_killed_copy_left_is_removed_and_in_nobodys_way() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, target) = (scratch.path().join("source"), scratch.path().join("target"));
    let inner = target.join("source");
    fs::create_dir_all(&source).unwrap();
    fs::create_dir_all(&inner).unwrap();
    fs::write(source.join("file"), "new").unwrap();
    std::os::unix::fs::symlink("x", source.join("link")).unwrap();
    // One that had the number of this process stands in the way of both.
    let mut names = host::Names::of_this_process();
    let taken: Vec<_> = (0..4).map(|_| names.fresh(&inner)).collect();
    taken.iter().for_each(|name| fs::write(name, "taken").unwrap());
    let own = format!("-{}-", std::process::id());
    let left = |at: &Path| at.to_str().unwrap().replace(&own, "-4294967294-").into();
    let left: [PathBuf; 2] = [left(&names.fresh(&inner)), left(&names.fresh(&target))];
    left.iter().for_each(|name| fs::write(name, "left").unwrap());
    let mut parcel = Vec::new();
    assert!(pack(&source, true, &mut parcel).unwrap());
    assert!(unpack(&target, &mut &parcel[..]).unwrap());
    assert_eq!(fs::read(inner.join("file")).unwrap(), b"new");
    assert_eq!(fs::read_link(inner.join("link")).unwrap(), Path::new("x"));
    assert!(taken.iter().all(|name| fs::read(name).unwrap() == b"taken"));
    assert!(!left.iter().any(|name| name.exists()));
}

#[test]
fn half_a_parcel_replaces_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, target) = (scratch.path().join("source"), scratch.path().join("target"));
    fs::write(&source, vec![b'n'; 3 * FRAME_BYTES]).unwrap();
    fs::write(&target, "old").unwrap();
    let mut parcel = Vec::new();
    assert!(pack(&source, false, &mut parcel).unwrap());
    for length in [parcel.len() - 1, parcel.len() / 2, 10, 0] {
        assert!(unpack(&target, &mut &parcel[..length]).is_err());
    }
    // The end mark alone was missing in the first.
    assert!(fs::read(&target).unwrap().iter().all(|byte| *byte == b'n'));
    fs::write(&target, "old").unwrap();
    assert!(unpack(&target, &mut &parcel[..parcel.len() / 2]).is_err());
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
}

/// A tree to be copied over one that has some of its names; the parcel of it, and where to.
fn to_be_copied(scratch: &Path) -> (Vec<u8>, PathBuf) {
    let (source, target) = (scratch.join("source"), scratch.join("target"));
    fs::create_dir_all(source.join("in")).unwrap();
    fs::create_dir_all(target.join("source")).unwrap();
    for name in ["file", "other", "in/deep"] {
        fs::write(source.join(name), "new").unwrap();
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::write(target.join("source/file"), "old").unwrap();
    symlink("x", source.join("link")).unwrap();
    symlink("old", target.join("source/link")).unwrap();
    mknodat(CWD, source.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let mut parcel = Vec::new();
    assert!(pack(&source, true, &mut parcel).unwrap());
    (parcel, target)
}

/// Each name has what it had, or all of what is new: nothing half.
#[track_caller]
fn judge(target: &Path, whole: bool, what: &str) {
    let at = |name: &str| target.join("source").join(name);
    for (name, old) in [("file", Some("old")), ("other", None), ("in/deep", None)] {
        let there = fs::read_to_string(at(name)).ok();
        let new = there.as_deref() == Some("new");
        assert!(new || !whole && there.as_deref() == old, "{what}: {name} is {there:?}");
        let mode = fs::metadata(at(name)).map_or(0, |found| found.mode() & 0o7777);
        assert!(!new || mode == 0o640, "{what}: {name} has {mode:o}");
    }
    let link = fs::read_link(at("link")).unwrap();
    assert!(link == Path::new("x") || !whole && link == Path::new("old"), "{what}: {link:?}");
    assert!(!whole || fs::symlink_metadata(at("fifo")).is_ok(), "{what}");
}

/// Copies again, when whoever has left temporary names is gone.
#[track_caller]
fn again(parcel: &[u8], target: &Path, what: &str) {
    let own = format!("-{}-", std::process::id());
    for directory in [target.to_owned(), target.join("source"), target.join("source/in")] {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(".husk-tmp-") {
                let gone = directory.join(name.replace(&own, "-4294967294-"));
                fs::rename(entry.path(), gone).unwrap();
            }
        }
    }
    assert!(unpack(target, &mut &*parcel).unwrap(), "{what}");
    judge(target, true, what);
    for (directory, count) in [("", 1), ("source", 5), ("source/in", 1)] {
        let names: Vec<_> = fs::read_dir(target.join(directory)).unwrap().collect();
        assert_eq!(names.len(), count, "{what}: {names:?}");
    }
}

#[test]
fn whichever_host_calls_of_a_copy_fail_nothing_is_half_and_the_next_one_finishes() {
    for (errno, on) in [(Errno::NOSPC, false), (Errno::IO, false), (Errno::ROFS, true)] {
        let (mut told, mut silent) = (0, Vec::new());
        for n in 1.. {
            let scratch = tempfile::tempdir().unwrap();
            let (parcel, target) = to_be_copied(scratch.path());
            let count = std::rc::Rc::new(std::cell::Cell::new(0));
            let seen = std::rc::Rc::clone(&count);
            let plan = move |_| {
                count.set(count.get() + 1);
                let fails = count.get() == n || on && count.get() > n;
                if fails { Err(errno.into()) } else { Ok(()) }
            };
            let done = schedule::during(plan, || unpack(&target, &mut &*parcel));
            if seen.get() < n {
                assert!(done.unwrap());
                break;
            }
            let what = format!("{errno:?} at host call {n}, on: {on}: {done:?}");
            let whole = matches!(done, Ok(true));
            judge(&target, whole, &what);
            told += u32::from(!whole);
            silent.extend(whole.then_some(n));
            again(&parcel, &target, &what);
        }
        assert!(told > 30, "{errno:?}: {told} calls were told");
        // What a killed copy may have left is looked for, and need not be found.
        assert!(silent.len() <= 4, "{errno:?}: nothing was told of calls {silent:?}");
    }
}

#[test]
fn a_copy_that_is_killed_at_any_host_call_leaves_nothing_half_and_the_next_one_finishes() {
    for n in 1.. {
        let scratch = tempfile::tempdir().unwrap();
        let (parcel, target) = to_be_copied(scratch.path());
        let mut calls = 0;
        let plan = move |_| {
            calls += 1;
            if calls == n { std::panic::resume_unwind(Box::new("killed")) } else { Ok(()) }
        };
        let work = || schedule::during(plan, || unpack(&target, &mut &*parcel));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        judge(&target, false, &format!("killed at call {n}"));
        if done.is_ok() {
            assert!(n > 40, "{n} host calls");
            return;
        }
        again(&parcel, &target, &format!("killed at call {n}"));
    }
}
