//! The power fails at any host call of a write-back.
//!
//! ```text
//!   a real write-back ── before each host call: what has changed since? ──► effects, syncs
//!   crash after the n-th: what was synced, and any of the rest (none, all, by seed)
//!     ──► laid out in the directory as a disk would have it ──► look, recover, look
//! ```
//!
//! The disk is a strict one: a file's bytes and attributes are safe after its `fsync`, a name after
//! that of its directory, all of a file system after `syncfs`, and nothing else is. Of the rest any
//! part may be there, in any order; of a file's new bytes a beginning. One call's names change
//! together. The manifest is on a file system of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use serde_json::Value;

use crate::write_back::host::beneath::schedule;
use crate::write_back::record::{manifest, recover};
use crate::write_back::tests::Scene;
use crate::write_back::tests::others::adversary::scene;

/// Crashes by seed at each point, beside the one with nothing and the one with everything.
const SEEDS: u64 = 16;
const NS_PER_S: i64 = 1_000_000_000;

/// An object, as the host numbers it.
type Id = u64;

/// What a name can lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, Id>),
    Link(PathBuf),
    Fifo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    body: Body,
    mode: u32,
    modified_ns: i64,
}

/// All objects below two directories, one for each file system.
type Disk = BTreeMap<Id, Object>;

/// What a host call has changed.
#[derive(Debug, Clone)]
enum Effect {
    Bytes(Id, Vec<u8>),
    Attributes(Id, u32, i64),
    Names(Vec<(Id, OsString, Option<Id>)>),
}

#[derive(Debug, Clone)]
enum Event {
    /// With the bodies of objects that are new, empty.
    Did(Effect, Vec<(Id, Object)>),
    /// A file, or all of the tree's file system.
    Synced(Option<Id>),
}

/// What a user can tell apart, by path.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

// ---- recording ----------------------------------------------------------------------------------

fn read(tops: &[PathBuf]) -> Disk {
    let (mut disk, mut open) = (Disk::new(), tops.to_vec());
    while let Some(path) = open.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let kind = found.file_type();
        let body = if kind.is_dir() {
            let names = fs::read_dir(&path).unwrap().map(|one| one.unwrap());
            let names: Vec<_> = names.map(|one| (one.file_name(), one.path())).collect();
            open.extend(names.iter().map(|(_, path)| path.clone()));
            let number = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
            Body::Directory(names.into_iter().map(|(name, at)| (name, number(&at))).collect())
        } else if kind.is_symlink() {
            Body::Link(fs::read_link(&path).unwrap())
        } else if kind.is_fifo() {
            Body::Fifo
        } else {
            Body::File(fs::read(&path).unwrap())
        };
        let modified_ns = found.mtime() * NS_PER_S + found.mtime_nsec();
        disk.insert(found.ino(), Object { body, mode: found.mode() & 0o7777, modified_ns });
    }
    disk
}

/// What leads from one to the other, as one call does.
fn changes(before: &Disk, after: &Disk) -> Vec<Event> {
    let (mut events, mut names, mut made) = (Vec::new(), Vec::new(), Vec::new());
    for (&id, object) in after {
        let old = before.get(&id);
        if old.is_none() {
            let body = match &object.body {
                Body::File(_) => Body::File(Vec::new()),
                Body::Directory(_) => Body::Directory(BTreeMap::new()),
                other => other.clone(),
            };
            made.push((id, Object { body, ..object.clone() }));
        }
        let was = old.map(|old| &old.body);
        match (&object.body, was) {
            (Body::File(now), was) => {
                let same = matches!(was, Some(Body::File(was)) if was == now);
                let made_empty = was.is_none() && now.is_empty();
                if !same && !made_empty {
                    events.push(Effect::Bytes(id, now.clone()));
                }
            }
            (Body::Directory(now), was) => {
                let none = BTreeMap::new();
                let was = if let Some(Body::Directory(was)) = was { was } else { &none };
                let all: BTreeSet<_> = now.keys().chain(was.keys()).collect();
                let changed = all.into_iter().filter(|name| now.get(*name) != was.get(*name));
                names.extend(changed.map(|name| (id, name.clone(), now.get(name).copied())));
            }
            _ => {}
        }
        let same = |old: &Object| (old.mode, old.modified_ns) == (object.mode, object.modified_ns);
        if old.is_some_and(|old| !same(old)) {
            events.push(Effect::Attributes(id, object.mode, object.modified_ns));
        }
    }
    if !names.is_empty() {
        events.insert(0, Effect::Names(names));
    }
    let mut did: Vec<_> = events.into_iter().map(|one| Event::Did(one, Vec::new())).collect();
    if let Some(Event::Did(_, new)) = did.first_mut() {
        *new = made;
    }
    did
}

/// Work, and all that it has done to the disk.
struct Recorded {
    start: Disk,
    events: Vec<Event>,
    calls: Vec<&'static str>,
}

/// `skip`: syncs that this work forgets, by the word that comes before the call.
fn record<T>(
    field: &Field,
    skip: &'static [&'static str],
    work: impl FnOnce() -> T,
) -> (Recorded, T) {
    let tops = vec![field.path.clone(), field.noted.clone()];
    let start = read(&tops);
    let kept = Rc::new(RefCell::new((start.clone(), Vec::new(), Vec::new())));
    let (seen, look) = (Rc::clone(&kept), tops.clone());
    let plan = move |call: &'static str| {
        let mut kept = seen.borrow_mut();
        let now = read(&look);
        let new = changes(&kept.0, &now);
        kept.1.extend(new);
        kept.0 = now;
        kept.2.push(call);
        match call {
            _ if skip.contains(&call) => {}
            "syncfs" => kept.1.push(Event::Synced(None)),
            "fsync" | "fsync manifest" => {
                let which = schedule::syncing().expect("what is synced is known");
                kept.1.push(Event::Synced(Some(which)));
            }
            _ => {}
        }
        Ok(())
    };
    let done = schedule::during(plan, work);
    let (last, mut events, calls) = kept.take();
    events.extend(changes(&last, &read(&tops)));
    (Recorded { start, events, calls }, done)
}

/// Where a write-back works, and what is there before and after it.
struct Field {
    path: PathBuf,
    noted: PathBuf,
    old: Tree,
    new: Tree,
}

impl Field {
    /// With the record of a whole write-back.
    fn of(scene: &mut Scene, skip: &'static [&'static str]) -> (Field, Recorded) {
        let (path, noted) = (scene.path.clone(), manifests(scene));
        fs::create_dir_all(&noted).unwrap();
        fs::set_permissions(&noted, fs::Permissions::from_mode(0o700)).unwrap();
        let old = tree(&path);
        let mut field = Field { path, noted, old, new: Tree::new() };
        let (recorded, outcome) = record(&field, skip, || scene.bring_here(false));
        assert!(outcome.is_complete(), "{outcome:#?}");
        field.new = tree(&field.path);
        (field, recorded)
    }
}

fn manifests(scene: &Scene) -> PathBuf {
    scene.scratch.path().join("manifests")
}

// ---- the disk after a crash ---------------------------------------------------------------------

/// A small generator of numbers: the same for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        self.0 >> 33
    }
}

/// Which of what was not synced has reached the disk.
#[derive(Debug, Clone, Copy)]
enum Luck {
    Nothing,
    Everything,
    Seed(u64),
}

fn apply(disk: &mut Disk, effect: &Effect, torn: bool) {
    match effect {
        Effect::Bytes(id, bytes) => {
            if let Some(Object { body: Body::File(there), .. }) = disk.get_mut(id) {
                let same = there.iter().zip(bytes).take_while(|(old, new)| old == new).count();
                let end = if torn { same + (bytes.len() - same) / 2 } else { bytes.len() };
                *there = bytes[..end].to_vec();
            }
        }
        Effect::Attributes(id, mode, modified_ns) => {
            if let Some(object) = disk.get_mut(id) {
                (object.mode, object.modified_ns) = (*mode, *modified_ns);
            }
        }
        Effect::Names(names) => {
            for (directory, name, leads_to) in names {
                let Some(Object { body: Body::Directory(all), .. }) = disk.get_mut(directory)
                else {
                    continue;
                };
                match leads_to {
                    Some(id) => drop(all.insert(name.clone(), *id)),
                    None => drop(all.remove(name)),
                }
            }
        }
    }
}

fn concerns(effect: &Effect, id: Id) -> bool {
    match effect {
        Effect::Bytes(one, _) | Effect::Attributes(one, ..) => *one == id,
        Effect::Names(names) => names.iter().any(|(directory, ..)| *directory == id),
    }
}

/// What is on the disk when the power fails after these events. `apart`: what is on the manifest's
/// file system.
fn crashed(start: &Disk, events: &[Event], apart: &BTreeSet<Id>, luck: Luck) -> Disk {
    let (mut disk, mut pending) = (start.clone(), Vec::<&Effect>::new());
    for event in events {
        match event {
            Event::Did(effect, new) => {
                new.iter().for_each(|(id, object)| drop(disk.insert(*id, object.clone())));
                pending.push(effect);
            }
            Event::Synced(which) => pending.retain(|effect| {
                let safe = match which {
                    Some(id) => concerns(effect, *id),
                    None => !apart.iter().any(|&id| concerns(effect, id)),
                };
                if safe {
                    apply(&mut disk, effect, false);
                }
                !safe
            }),
        }
    }
    let mut chance = Chance(if let Luck::Seed(seed) = luck { seed } else { 0 });
    for effect in pending {
        match (luck, chance.next() % 4) {
            (Luck::Everything, _) | (Luck::Seed(_), 0 | 1) => apply(&mut disk, effect, false),
            (Luck::Seed(_), 2) => apply(&mut disk, effect, true),
            _ => {}
        }
    }
    disk
}

/// Lays `disk` out below `top`, which was `id`: where each object is then.
fn lay_out(disk: &Disk, id: Id, top: &Path, at: &mut BTreeMap<Id, PathBuf>) {
    let Body::Directory(names) = &disk[&id].body else { panic!("a directory was there") };
    for (name, one) in names {
        let (path, Some(object)) = (top.join(name), disk.get(one)) else { continue };
        if let Some(first) = at.get(one) {
            // A directory with two names is one that was about to move.
            if !first.is_dir() {
                fs::hard_link(first, &path).unwrap();
            }
            continue;
        }
        at.insert(*one, path.clone());
        match &object.body {
            Body::File(bytes) => fs::write(&path, bytes).unwrap(),
            Body::Link(target) => symlink(target, &path).unwrap(),
            Body::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::empty(), 0).unwrap(),
            Body::Directory(_) => {
                fs::create_dir(&path).unwrap();
                lay_out(disk, *one, &path, at);
            }
        }
        if !matches!(object.body, Body::Link(_)) {
            fs::set_permissions(&path, fs::Permissions::from_mode(object.mode)).unwrap();
        }
        let (tv_sec, tv_nsec) =
            (object.modified_ns.div_euclid(NS_PER_S), object.modified_ns.rem_euclid(NS_PER_S));
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A manifest names objects by their numbers: they have others now. What was below directories it
/// has as a hash of numbers: no power failure changes that, and it is left out.
fn renumbered(text: &[u8], device: u64, at: &BTreeMap<Id, PathBuf>) -> Vec<u8> {
    fn walk(value: &mut Value, device: u64, at: &BTreeMap<Id, PathBuf>) {
        match value {
            Value::Array(pair) if pair.len() == 2 && pair[0].as_u64() == Some(device) => {
                let old = pair[1].as_u64().unwrap();
                let now = at.get(&old).map_or(u64::MAX, |path| ino(path));
                pair[1] = Value::from(now);
            }
            Value::Array(all) => all.iter_mut().for_each(|one| walk(one, device, at)),
            Value::Object(all) => {
                all.remove("below");
                all.values_mut().for_each(|one| walk(one, device, at));
            }
            _ => {}
        }
    }
    let lines = text.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let Ok(mut value) = serde_json::from_slice::<Value>(line) else { return line.to_vec() };
        walk(&mut value, device, at);
        [serde_json::to_vec(&value).unwrap(), b"\n".to_vec()].concat()
    });
    lines.collect::<Vec<_>>().concat()
}

fn ino(path: &Path) -> Id {
    fs::symlink_metadata(path).unwrap().ino()
}

fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
}

// ---- judging ------------------------------------------------------------------------------------

/// All below, but for what has a temporary name.
fn tree(top: &Path) -> Tree {
    let (mut open, mut found) = (vec![top.to_owned()], Tree::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(".husk-tmp-") {
                continue;
            }
            let (path, one) = (entry.path(), entry.metadata().unwrap());
            let content = if one.is_file() {
                fs::read(&path).unwrap()
            } else if one.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                Vec::new()
            };
            if one.is_dir() {
                open.push(path.clone());
            }
            found.insert(path, (one.mode(), content));
        }
    }
    found
}

/// The disk after a crash, laid out where the work was done.
fn crash(field: &Field, recorded: &Recorded, count: usize, luck: Luck) {
    let Field { path, noted, .. } = field;
    let (root, apart, start) = (ino(path), ino(noted), &recorded.start);
    let Body::Directory(names) = &start[&apart].body else { panic!("it was a directory") };
    let mut known: BTreeSet<Id> = names.values().copied().chain([apart]).collect();
    for event in &recorded.events {
        let Event::Did(Effect::Names(names), _) = event else { continue };
        known.extend(names.iter().filter(|one| one.0 == apart).filter_map(|one| one.2));
    }
    let disk = crashed(start, &recorded.events[..count], &known, luck);
    let (device, mut at) = (fs::metadata(path).unwrap().dev(), BTreeMap::new());
    [path, noted].into_iter().for_each(|top| empty(top));
    at.insert(root, path.clone());
    lay_out(&disk, root, path, &mut at);
    let Body::Directory(names) = &disk[&apart].body else { panic!("it was a directory") };
    for (name, id) in names {
        let Body::File(text) = &disk[id].body else { continue };
        fs::write(noted.join(name), renumbered(text, device, &at)).unwrap();
    }
}

/// Crashes recorded work at each of its points; what was wrong first, if anything was, or how often
/// there was something to recover. `done`: what is there when it is over, and stays.
fn crash_everywhere(
    field: &Field,
    recorded: &Recorded,
    seeds: u64,
    done: &Tree,
) -> Result<u32, String> {
    let (mut ready, all) = (0, recorded.events.len());
    for count in 0..=all {
        let seeds = (0..seeds).map(|seed| Luck::Seed(seed + count as u64 * SEEDS));
        let lucks = [Luck::Nothing, Luck::Everything].into_iter().chain(seeds);
        for (number, luck) in lucks.enumerate() {
            crash(field, recorded, count, luck);
            let found = recovered(field, number + count);
            let what = |why| format!("crash after {count} of {all}, {luck:?}: {why}");
            ready += u32::from(found.map_err(what)?);
        }
    }
    crash(field, recorded, all, Luck::Nothing);
    let now = tree(&field.path);
    if now != *done {
        return Err(format!("what was acknowledged is lost: {}", differs(&now, done)));
    }
    Ok(ready)
}

/// Looks at what a crash has left, and recovers. Whether there was a manifest that was ready.
fn recovered(field: &Field, way: usize) -> Result<bool, String> {
    let Field { path, noted, old, new } = field;
    let now = tree(path);
    let Some(one) = manifest::pending(std::slice::from_ref(noted)).pop() else {
        return match now == *old || now == *new {
            true => Ok(false),
            false => Err(format!("a mixture, and nothing says so: {}", differs(&now, new))),
        };
    };
    if !one.ready {
        recover::abandon(one);
        return match tree(path) == *old {
            true => Ok(false),
            false => Err(format!("a change without notes: {}", differs(&tree(path), old))),
        };
    }
    let back = way.is_multiple_of(2) && recover::is_undoable(&one) || !recover::is_redoable(&one);
    let (told, wanted) = match back {
        true => (recover::back(one), old),
        false => (recover::forward(one), new),
    };
    let told = told.ok_or("neither way is possible")?;
    let way = if back { "back" } else { "forward" };
    if !told.lines.is_empty() {
        return Err(format!("{way}: {:?}", told.lines));
    }
    match tree(path) == *wanted {
        true => Ok(true),
        false => Err(format!("{way}: {}", differs(&tree(path), wanted))),
    }
}

fn differs(found: &Tree, wanted: &Tree) -> String {
    let all: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let shown = |one: Option<&(u32, Vec<u8>)>| match one {
        Some((mode, content)) => format!("{mode:o} {:?}", String::from_utf8_lossy(content)),
        None => "nothing".into(),
    };
    let lines = all.into_iter().filter(|path| found.get(*path) != wanted.get(*path)).map(|path| {
        let (is, should) = (shown(found.get(path)), shown(wanted.get(path)));
        format!("{}: {is}, not {should}", path.display())
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn after_a_loss_of_power_all_is_old_or_all_is_new_or_the_manifest_brings_it_there() {
    let mut scene = scene(1);
    let (field, recorded) = Field::of(&mut scene, &[]);
    let ready = crash_everywhere(&field, &recorded, SEEDS, &field.new);
    let ready = ready.unwrap_or_else(|why| panic!("{why}"));
    assert!(ready > 100, "{ready} crashes with something to recover");
}

#[test]
fn a_recovery_may_lose_power_too() {
    let mut scene = scene(1);
    let (field, recorded) = Field::of(&mut scene, &[]);
    let (all, mut ready) = (recorded.events.len(), 0);
    for count in (1..8).map(|eighth| all * eighth / 8) {
        for forward in [true, false] {
            crash(&field, &recorded, count, Luck::Everything);
            let one = manifest::pending(std::slice::from_ref(&field.noted)).pop();
            let Some(one) = one.filter(|one| one.ready) else { continue };
            if !forward && !recover::is_undoable(&one) {
                continue;
            }
            let (again, told) = record(&field, &[], || match forward {
                true => recover::forward(one),
                false => recover::back(one),
            });
            assert!(told.is_some_and(|told| told.lines.is_empty()));
            let done = if forward { &field.new } else { &field.old };
            let found = crash_everywhere(&field, &again, 8, done);
            ready += found.unwrap_or_else(|why| panic!("from {count}, {forward}: {why}"));
        }
    }
    assert!(ready > 100, "{ready} crashes with something to recover");
}

#[test]
fn a_write_back_that_forgets_a_sync_is_caught() {
    for forgotten in [&["fsync manifest"][..], &["fsync", "syncfs"]] {
        let mut scene = scene(1);
        let (field, recorded) = Field::of(&mut scene, forgotten);
        let why = crash_everywhere(&field, &recorded, SEEDS, &field.new).err();
        assert!(why.is_some(), "{forgotten:?} is not missed: {:?}", recorded.calls);
    }
}

/// More files than are synced one by one, some in a new directory.
fn many(files: usize) -> Scene {
    let mut scene = Scene::at_once(move |path| {
        for n in 0..files {
            fs::write(path.join(format!("changed-{n}")), "host").unwrap();
        }
    });
    scene.mkdir("new");
    for n in 0..files {
        scene.write(&format!("new-{n}"), b"ours");
        scene.write(&format!("new/{n}"), b"ours");
        match n % 3 {
            0 => scene.rewrite(&format!("changed-{n}"), b"ours"),
            1 => scene.rewrite(&format!("changed-{n}"), b"host and ours"),
            _ => scene.unlink(&format!("changed-{n}")),
        }
    }
    scene
}

#[test]
fn so_it_is_where_files_are_synced_all_at_once() {
    let mut scene = many(18);
    let (field, recorded) = Field::of(&mut scene, &[]);
    assert!(recorded.calls.contains(&"syncfs"), "{:?}", recorded.calls);
    let ready = crash_everywhere(&field, &recorded, 2, &field.new);
    let ready = ready.unwrap_or_else(|why| panic!("{why}"));
    assert!(ready > 100, "{ready} crashes with something to recover");
    drop(scene);
    let mut scene = many(18);
    let (field, recorded) = Field::of(&mut scene, &["syncfs"]);
    let why = crash_everywhere(&field, &recorded, 2, &field.new).err();
    assert!(why.is_some(), "a forgotten syncfs is not missed");
}

#[test]
fn five_times_the_files_take_no_more_syncs() {
    let syncs = [60, 300].map(|files| {
        let mut scene = many(files);
        let (count, seen) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(0)));
        let (one, all) = (Rc::clone(&count), Rc::clone(&seen));
        let plan = move |call: &'static str| {
            *all.borrow_mut() += 1;
            *one.borrow_mut() += u32::from(call.contains("sync"));
            Ok(())
        };
        let outcome = schedule::during(plan, || scene.bring_here(false));
        assert!(outcome.is_complete(), "{outcome:#?}");
        assert!(*seen.borrow() > 4 * files, "{} host calls", seen.borrow());
        *count.borrow()
    });
    assert_eq!(syncs[0], syncs[1]);
    assert!(syncs[0] <= 8, "{} syncs", syncs[0]);
}
