//! Somebody who may write to a directory of the overlay moves before each host call of a
//! write-back.
//!
//! The tree of these tests has all that a write-back does in one directory, `pub`, to which others
//! may write. Each run builds it anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use husk_proto::Fs;
use husk_proto::fs::{Change, Kind, Node, Time};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;

use crate::write_back::Outcome;
use crate::write_back::host::beneath::schedule;
use crate::write_back::tests::{Scene, settle, who};

/// What the image has written, and where it is to be.
pub const OURS: &[(&str, &str)] = &[
    ("pub/new", "ours: new"),
    ("pub/changed", "ours: changed"),
    ("pub/grown", "host: grown, ours"),
    ("pub/replaced", "ours: replaced"),
    ("pub/was-dir", "ours: was-dir"),
    ("pub/tree/one", "ours: one"),
    ("pub/tree/in/two", "ours: two"),
    ("pub/first", "ours: linked"),
];
/// What the host had, and the image has moved or left alone.
pub const KEPT: &[(&str, &str)] = &[
    ("pub/moved", "host: moving"),
    ("pub/whole/inner", "host: inner"),
    ("pub/touched", "host: touched"),
    ("pub/alone", "host: alone"),
];
const RUNS_OF_AN_IMAGE: u32 = 32;
/// More host calls than a run has: a bound, so that a plan that is never reached ends.
const CALLS_MAX: u32 = 5000;

/// One host call in so many meets each kind of trouble, and each kind another one, so that all of
/// them meet some.
const STEP: u32 = 3;

/// With `HUSK_FULL` all calls meet all kinds, instead of one in `step`.
pub fn stride(step: u32) -> u32 {
    if std::env::var_os("HUSK_FULL").is_some() { 1 } else { step }
}

/// The tree of run `n`. What runs leave in an image fills it in the end: there is a new one now and
/// then.
pub fn scene(n: u32) -> Scene {
    if n.is_multiple_of(RUNS_OF_AN_IMAGE) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(|path| {
        let public = path.join("pub");
        fs::create_dir(&public).unwrap();
        fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
        for name in ["changed", "grown", "replaced", "moving", "touched", "alone", "gone"] {
            fs::write(public.join(name), format!("host: {name}")).unwrap();
        }
        for name in ["was-dir", "unseen", "gone-dir"] {
            fs::create_dir(public.join(name)).unwrap();
            fs::write(public.join(name).join("inner"), "host: inner").unwrap();
        }
        // What nobody may touch, and the door to it.
        let outside = path.with_file_name("outside");
        fs::create_dir(&outside).unwrap();
        for name in ["secret", "inner", "new", "changed", "tree"] {
            fs::write(outside.join(name), "outside").unwrap();
            let mode = fs::Permissions::from_mode(0o604);
            fs::set_permissions(outside.join(name), mode).unwrap();
        }
        fs::create_dir(path.join("other")).unwrap();
        // Others cannot enter these, but rename them.
        for name in ["full", "empty"] {
            let directory = path.with_file_name("closed").join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(path.with_file_name("closed/full/private"), "private").unwrap();
    });
    scene.write("pub/new", b"ours: new");
    scene.rewrite("pub/changed", b"ours: changed");
    scene.rewrite("pub/grown", b"host: grown, ours");
    scene.unlink("pub/replaced");
    scene.write("pub/replaced", b"ours: replaced");
    for path in ["pub/was-dir", "pub/gone-dir"] {
        scene.unlink(&format!("{path}/inner"));
        let (dir, name) = scene.split(path);
        scene.direct.rmdir(&who(), dir, name).unwrap();
    }
    scene.write("pub/was-dir", b"ours: was-dir");
    scene.mkdir("pub/tree");
    scene.write("pub/tree/one", b"ours: one");
    scene.mkdir("pub/tree/in");
    scene.write("pub/tree/in/two", b"ours: two");
    let first = scene.write("pub/first", b"ours: linked");
    let (dir, name) = scene.split("pub/second");
    scene.direct.link(&who(), first, dir, name).unwrap();
    scene.rename("pub/moving", "pub/moved");
    scene.rename("pub/unseen", "pub/whole");
    scene.unlink("pub/gone");
    let touched = scene.at("pub/touched");
    let modified = Some(Time::At(1_000_000_007));
    let mode = Change { mode: Some(0o640), modified, ..Change::default() };
    scene.direct.change(&who(), touched, mode).unwrap();
    let (dir, name) = scene.split("pub/link");
    scene.direct.create(&who(), dir, name, Node::Symlink(b"new")).unwrap();
    let (dir, name) = scene.split("pub/fifo");
    scene
        .direct
        .create(&who(), dir, name, Node::Special { kind: Kind::Fifo, mode: 0o600, device: 0 })
        .unwrap();
    scene
}

/// All regular files below, but for what an adversary has stolen, and temporary names.
pub fn contents(top: &Path) -> BTreeMap<PathBuf, String> {
    let (mut open, mut found) = (vec![top.to_owned()], BTreeMap::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(".husk-tmp-") || name.starts_with("stolen") || name == "outside" {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.insert(entry.path(), fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    found
}

/// What is in a file. Nobody waits for the other end of a FIFO that has come there.
fn text_of(path: &Path) -> String {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    if kind.is_file() { fs::read_to_string(path).unwrap() } else { format!("{kind:?}") }
}

/// Everything about what is outside that a call can change, but for the count of links.
pub fn outside(scene: &Scene) -> Vec<(PathBuf, u32, u32, i64, i64, String)> {
    outside_of(&scene.path)
}

/// The same beside the tree at `path`.
pub fn outside_of(path: &Path) -> Vec<(PathBuf, u32, u32, i64, i64, String)> {
    let directory = path.with_file_name("outside");
    let mut all: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), text_of(&path)))
        .collect();
    all.push((directory, String::new()));
    all.sort();
    let fact = |(path, text): (PathBuf, String)| {
        let found = fs::symlink_metadata(&path).unwrap();
        let (mode, uid) = (found.mode(), found.uid());
        (path, mode, uid, found.mtime(), found.mtime_nsec(), text)
    };
    all.into_iter().map(fact).collect()
}

/// What there is to say of a run that did not go as it should.
#[track_caller]
pub fn judge(scene: &Scene, outcome: &Outcome, what: &str) {
    let found = contents(scene.scratch.path());
    for (path, content) in OURS.iter().chain(KEPT) {
        let there = found.values().filter(|one| one == content).count();
        assert!(there >= 1, "{what}: {path} is lost: {outcome:#?}\n{found:#?}");
    }
}

#[track_caller]
pub fn as_expected(scene: &Scene, outcome: &Outcome, what: &str) {
    let found = contents(&scene.path);
    for (path, content) in OURS.iter().chain(KEPT).chain(&[("pub/second", "ours: linked")]) {
        let there = found.get(&scene.path.join(path));
        assert_eq!(there, Some(&(*content).to_owned()), "{what}: {path}: {outcome:#?}");
    }
    for gone in ["pub/gone", "pub/gone-dir", "pub/moving", "pub/unseen"] {
        assert!(!scene.path.join(gone).exists(), "{what}: {gone} is there: {outcome:#?}");
    }
    assert_eq!(fs::read_link(scene.path.join("pub/link")).unwrap(), Path::new("new"), "{what}");
    let touched = fs::metadata(scene.path.join("pub/touched")).unwrap();
    assert_eq!(touched.mode() & 0o7777, 0o640, "{what}");
}

/// Runs `act` before the n-th host call. Whether there was such a call, and how it ended.
pub fn run(
    scene: &mut Scene,
    n: u32,
    live: bool,
    act: impl FnMut(&'static str) -> io::Result<()> + 'static,
) -> (bool, Outcome) {
    run_on(scene, n, live, true, act)
}

/// The same on a host with or without `openat2`.
pub fn run_on(
    scene: &mut Scene,
    n: u32,
    live: bool,
    openat2: bool,
    mut act: impl FnMut(&'static str) -> io::Result<()> + 'static,
) -> (bool, Outcome) {
    let count = Rc::new(std::cell::Cell::new(0));
    let seen = Rc::clone(&count);
    let plan = move |call| {
        count.set(count.get() + 1);
        if count.get() == n {
            act(call)?;
        }
        if call == "openat2" && !openat2 { Err(Errno::NOSYS.into()) } else { Ok(()) }
    };
    let outcome = schedule::during(plan, || scene.bring_here(live));
    assert!(seen.get() < CALLS_MAX, "{} host calls", seen.get());
    (seen.get() >= n, outcome)
}

/// What an adversary does to the tree at `path`, beside which is `outside`.
pub type Move = fn(&Path) -> io::Result<()>;

/// The directory goes, and a link to another one takes its name.
pub fn swap_for_a_link(path: &Path) -> io::Result<()> {
    fs::rename(path.join("pub"), path.join("real"))?;
    symlink(path.with_file_name("outside"), path.join("pub"))
}

/// Another directory of the tree takes its name.
pub fn swap_for_another(path: &Path) -> io::Result<()> {
    let (from, to) = (path.join("pub"), path.join("other"));
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?)
}

/// Links to files outside take the names of files.
fn replace_by_links(path: &Path) -> io::Result<()> {
    replace(path, |path, outside| symlink(outside.join("secret"), path))
}

/// So do further names of them.
fn replace_by_hard_links(path: &Path) -> io::Result<()> {
    replace(path, |path, outside| fs::hard_link(outside.join("secret"), path))
}

/// So do FIFOs.
fn replace_by_fifos(path: &Path) -> io::Result<()> {
    replace(path, |path, _| fifo(path))
}

pub fn fifo(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)?)
}

fn replace(path: &Path, by: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    let outside = path.with_file_name("outside");
    for (directory, name) in files(path) {
        let (one, away) = (directory.join(&name), directory.join(format!("{name}.theirs")));
        if !name.starts_with(".husk-tmp-") && fs::rename(&one, away).is_ok() {
            by(&one, &outside)?;
        }
    }
    Ok(())
}

/// What is no directory where the adversary may write: in which directory, and its name.
fn files(path: &Path) -> Vec<(PathBuf, String)> {
    let directories = [path.join("pub"), path.join("pub/.git")];
    let entries = directories.into_iter().filter_map(|one| fs::read_dir(one).ok());
    let entries = entries.flatten().map(Result::unwrap);
    let entries = entries.filter(|entry| !entry.file_type().unwrap().is_dir());
    let named = |entry: fs::DirEntry| {
        (entry.path().parent().unwrap().to_owned(), entry.file_name().into_string().unwrap())
    };
    entries.map(named).collect()
}

/// Whatever has a temporary name goes, and a link or a further name takes it.
fn take_the_temporary_names(path: &Path) -> io::Result<()> {
    take(path, |path, outside| symlink(outside, path))
}

fn take_them_by_hard_links(path: &Path) -> io::Result<()> {
    take(path, |path, outside| fs::hard_link(outside.join("secret"), path))
}

fn take(path: &Path, by: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    let outside = path.with_file_name("outside");
    let directories = [path.join("pub"), path.join("pub/.git")];
    for directory in directories.iter().filter(|one| one.is_dir()) {
        for (number, entry) in fs::read_dir(directory)?.flatten().enumerate() {
            if entry.file_name().to_string_lossy().starts_with(".husk-tmp-") {
                fs::rename(entry.path(), directory.join(format!("stolen{number}")))?;
                by(&entry.path(), &outside)?;
            }
        }
    }
    Ok(())
}

/// Another directory of this user takes the temporary name of one.
fn take_them_by_a_full_directory(path: &Path) -> io::Result<()> {
    take_directories(path, ["full", "empty"])
}

fn take_them_by_an_empty_directory(path: &Path) -> io::Result<()> {
    take_directories(path, ["empty", "full"])
}

fn take_directories(path: &Path, by: [&str; 2]) -> io::Result<()> {
    let public = path.join("pub");
    let mut by = by.map(|name| path.with_file_name("closed").join(name)).into_iter();
    for (number, entry) in fs::read_dir(&public)?.flatten().enumerate() {
        let temporary = entry.file_name().to_string_lossy().starts_with(".husk-tmp-");
        if temporary
            && entry.file_type()?.is_dir()
            && let Some(other) = by.next()
        {
            fs::rename(entry.path(), public.join(format!("stolen{number}")))?;
            fs::rename(other, entry.path())?;
        }
    }
    Ok(())
}

/// What is to be seen of directories of these numbers, wherever they are below.
pub fn directories(top: &Path, numbers: &[u64]) -> Vec<(u64, u32, i64, i64, Vec<String>)> {
    let (mut open, mut all) = (vec![top.to_owned()], Vec::new());
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).unwrap().map(Result::unwrap);
        let (below, rest): (Vec<_>, Vec<_>) =
            entries.partition(|entry| entry.file_type().unwrap().is_dir());
        let found = fs::symlink_metadata(&directory).unwrap();
        if numbers.contains(&found.ino()) {
            let names = below.iter().chain(&rest);
            let names = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
            all.push((found.ino(), found.mode(), found.mtime(), found.mtime_nsec(), names));
        }
        open.extend(below.iter().map(fs::DirEntry::path));
    }
    all.sort();
    all
}

pub const MOVES: &[(&str, Move)] = &[
    ("swap for a link", swap_for_a_link),
    ("swap for another", swap_for_another),
    ("replace by links", replace_by_links),
    ("replace by hard links", replace_by_hard_links),
    ("replace by FIFOs", replace_by_fifos),
    ("take temporary names", take_the_temporary_names),
    ("take them by hard links", take_them_by_hard_links),
];

#[test]
fn an_adversary_beside_every_host_call_reaches_nothing_outside_and_nothing_is_lost() {
    for (at, (what, act)) in (0..).zip(MOVES) {
        let mut reached = true;
        let mut n = 1 + at % stride(STEP);
        while reached {
            let scene = &mut scene(n);
            let before = outside(scene);
            let path = scene.path.clone();
            let outcome;
            (reached, outcome) = run(scene, n, false, move |_| {
                act(&path).unwrap();
                Ok(())
            });
            let what = format!("{what} before host call {n}");
            assert_eq!(outside(scene), before, "{what}: {outcome:#?}");
            judge(scene, &outcome, &what);
            n += stride(STEP);
        }
        assert!(n > 100, "{what}: {n} host calls");
    }
}

#[test]
fn a_directory_in_the_place_of_a_new_one_keeps_its_mode_and_what_is_in_it() {
    let moves: [(_, Move); 2] = [
        ("a full directory", take_them_by_a_full_directory),
        ("an empty directory", take_them_by_an_empty_directory),
    ];
    for (at, (what, act)) in (0..).zip(moves) {
        let (mut reached, mut n) = (true, 1 + at % stride(STEP));
        while reached {
            let scene = &mut scene(n);
            let closed = scene.path.with_file_name("closed");
            let number = |name| fs::metadata(closed.join(name)).unwrap().ino();
            let numbers = [number("full"), number("empty")];
            let before = directories(scene.scratch.path(), &numbers);
            // Whoever is about to be robbed has had it for a while.
            settle();
            let path = scene.path.clone();
            let outcome;
            (reached, outcome) = run(scene, n, false, move |_| {
                act(&path).unwrap();
                Ok(())
            });
            let what = format!("{what} before host call {n}");
            let after = directories(scene.scratch.path(), &numbers);
            // An empty one may be removed by whoever may rename it.
            let gone = before.len() - after.len();
            assert!(gone == 0 || gone == 1 && after[0].0 == numbers[0], "{what}: {after:#?}");
            assert!(
                after.iter().all(|one| before.contains(one)),
                "{what}: {after:#?} {outcome:#?}"
            );
            judge(scene, &outcome, &what);
            n += stride(STEP);
        }
    }
}

#[test]
fn without_openat2_all_is_written_step_by_step() {
    for errno in [Errno::NOSYS, Errno::PERM] {
        let scene = &mut scene(1);
        let without = move |call| if call == "openat2" { Err(errno.into()) } else { Ok(()) };
        let outcome = schedule::during(without, || scene.bring_here(false));
        assert!(outcome.is_complete(), "{outcome:#?}");
        as_expected(scene, &outcome, "without openat2");
    }
}
