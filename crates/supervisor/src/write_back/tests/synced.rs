//! One write-back after another while the image goes on: a tree that is changed at random, and
//! single cases that were wrong, or might be.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use husk_carrier::Direct;
use husk_proto::fs::{Attributes, Backing, Change, Kind, Node, Time};
use husk_proto::{Errno, Fs, Inode};

use super::{Scene, complete, settle, who};
use crate::write_back::commit::detach;
use crate::write_back::host::beneath::{Beneath, schedule};
use crate::write_back::host::lacking;
use crate::write_back::origin_path;

/// Trees of one run, and changes of each.
const TREES: u64 = 8;
const STEPS: u32 = 70;

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// A path of up to three names.
    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "d"];
        let count = 1 + self.throw(3);
        let path: Vec<_> = (0..count).map(|_| names[self.throw(4) as usize]).collect();
        path.join("/")
    }
}

/// What is compared of an object.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Shown {
    kind: &'static str,
    mode: u32,
    content: Vec<u8>,
    /// ns since the epoch; nothing of a directory whose names were changed by a model.
    modified_ns: Option<i64>,
    /// The first of the names of the same file.
    first: PathBuf,
}

type Tree = BTreeMap<PathBuf, Shown>;

fn on_host(top: &Path, times: bool) -> Tree {
    let (mut tree, mut first, mut open) = (Tree::new(), HashMap::new(), vec![top.to_owned()]);
    let mut paths = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    paths.sort();
    for path in paths {
        let found = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(top).unwrap().to_owned();
        let (kind, content) = if found.is_dir() {
            ("directory", Vec::new())
        } else if found.is_symlink() {
            ("symlink", fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
        } else {
            ("file", fs::read(&path).unwrap())
        };
        let first: &mut PathBuf = first.entry(found.ino()).or_insert(name.clone());
        let modified_ns = times.then(|| found.mtime() * 1_000_000_000 + found.mtime_nsec());
        let (mode, first) = (found.mode() & 0o7777, first.clone());
        tree.insert(name, Shown { kind, mode, content, modified_ns, first });
    }
    tree
}

impl Scene {
    fn list_own(&mut self, dir: Inode, attributes: &Attributes) {
        if attributes.step.unlisted {
            let origin = origin_path(&mut self.direct, attributes).unwrap().unwrap();
            let beneath = Beneath::new([&*self.path]);
            detach::list(&mut self.direct, &beneath, dir, &origin).unwrap();
        }
    }

    /// What is at `path` below `top`, as a program finds it.
    fn found(&mut self, top: Inode, path: &str) -> Option<Inode> {
        let mut here = top;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let attributes = self.direct.attributes(here).unwrap();
            self.list_own(here, &attributes);
            here = self.direct.lookup(here, name.as_bytes()).ok()?.inode;
        }
        let attributes = self.direct.attributes(here).unwrap();
        self.list_own(here, &attributes);
        Some(here)
    }

    fn parent<'p>(&mut self, top: Inode, path: &'p str) -> (Inode, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.found(top, dir).expect("the model has it"), name.as_bytes())
    }

    fn bytes(&mut self, inode: Inode, attributes: &Attributes) -> Vec<u8> {
        if attributes.backing == Backing::Host {
            let path = origin_path(&mut self.direct, attributes).unwrap().unwrap();
            return fs::read(&path)
                .unwrap_or_else(|why| format!("{}: {why}", path.display()).into());
        }
        let mut bytes = vec![0; attributes.size as usize];
        assert_eq!(self.direct.read_at(inode, 0, &mut bytes), Ok(bytes.len()));
        bytes
    }

    fn copy_up(&mut self, inode: Inode) {
        let attributes = self.direct.attributes(inode).unwrap();
        if attributes.backing == Backing::Image {
            return;
        }
        let bytes = self.bytes(inode, &attributes);
        let donor = self.direct.create_nameless(&who(), inode, 0o600, false).unwrap();
        self.direct.write_at(donor, 0, &bytes).unwrap();
        assert_eq!(self.direct.adopt(inode, donor), Ok(true));
        husk_proto::Processes::unpin(&mut self.direct, donor);
    }

    /// All below `top`, as the image has it.
    fn shown(&mut self, top: Inode) -> Tree {
        let (mut tree, mut open) = (Tree::new(), vec![(top, PathBuf::new())]);
        let mut all = Vec::new();
        while let Some((dir, path)) = open.pop() {
            let attributes = self.direct.attributes(dir).unwrap();
            self.list_own(dir, &attributes);
            let mut names = Vec::new();
            self.direct
                .list(dir, 0, &mut |entry| {
                    names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode));
                    true
                })
                .unwrap();
            for (name, inode) in names {
                let path = path.join(name);
                if self.direct.step(inode).unwrap().kind == Kind::Directory {
                    open.push((inode, path.clone()));
                }
                all.push((path, inode));
            }
        }
        all.sort_by(|one, two| one.0.cmp(&two.0));
        let mut first = HashMap::new();
        for (path, inode) in all {
            let attributes = self.direct.attributes(inode).unwrap();
            let (kind, content) = match attributes.step.kind {
                Kind::Directory => ("directory", Vec::new()),
                Kind::Symlink => {
                    let mut target = vec![0; 4096];
                    let length = self.direct.read_link(inode, &mut target).unwrap();
                    target.truncate(length);
                    ("symlink", target)
                }
                _ => ("file", self.bytes(inode, &attributes)),
            };
            let first: &mut PathBuf = first.entry(inode).or_insert(path.clone());
            let (mode, modified_ns) = (attributes.step.mode, Some(attributes.modified_ns));
            let mode = if kind == "symlink" { 0o777 } else { mode };
            let first = first.clone();
            tree.insert(path, Shown { kind, mode, content, modified_ns, first });
        }
        tree
    }
}

/// A tree that is changed on Linux and in the image alike.
struct Twins<'a> {
    scene: &'a mut Scene,
    top: Inode,
    model: PathBuf,
    dice: Dice,
    said: Vec<String>,
}

impl Twins<'_> {
    fn step(&mut self) {
        let (path, other) = (self.dice.path(), self.dice.path());
        let (here, there) = (self.model.join(&path), self.model.join(&other));
        let which = self.dice.throw(14);
        let text = format!("{}-{}", self.dice.throw(1000), "x".repeat(self.dice.throw(9) as usize));
        let done = match which {
            0..6 => self.change_one(which, &path, &here, &text),
            _ => self.change_names(which, [&path, &other], [&here, &there], &text),
        };
        let Some(done) = done else { return };
        self.said.push(format!("{done} {path} {other} {text}"));
    }

    /// Bytes and attributes of what is at one path, or a new file there.
    fn change_one(
        &mut self,
        which: u64,
        path: &str,
        here: &Path,
        text: &str,
    ) -> Option<&'static str> {
        let found = fs::symlink_metadata(here).ok();
        let is_file = found.as_ref().is_some_and(fs::Metadata::is_file);
        let is_dir = found.as_ref().is_some_and(fs::Metadata::is_dir);
        let top = self.top;
        let done = match which {
            0 | 1 if found.is_none() && fs::write(here, text).is_ok() => {
                fs::set_permissions(here, fs::Permissions::from_mode(0o644)).unwrap();
                let (dir, name) = self.scene.parent(top, path);
                let inode = self.scene.direct.create(&who(), dir, name, Node::File(0o644)).unwrap();
                self.scene.direct.write_at(inode, 0, text.as_bytes()).unwrap();
                "create"
            }
            2 | 3 if is_file => {
                fs::write(here, text).unwrap();
                let inode = self.scene.found(top, path).unwrap();
                self.scene.copy_up(inode);
                self.scene.direct.truncate(inode, 0).unwrap();
                self.scene.direct.write_at(inode, 0, text.as_bytes()).unwrap();
                "write"
            }
            4 if is_file || is_dir => {
                let mode = 0o700 | self.dice.throw(64) as u32;
                fs::set_permissions(here, fs::Permissions::from_mode(mode)).unwrap();
                let inode = self.scene.found(top, path).unwrap();
                let change = Change { mode: Some(mode), ..Change::default() };
                self.scene.direct.change(&who(), inode, change).unwrap();
                "chmod"
            }
            5 if found.is_some() => {
                let at = Some(Time::At(self.dice.throw(1 << 40) as i64));
                let inode = self.scene.found(top, path).unwrap();
                let change = Change { accessed: at, modified: at, ..Change::default() };
                self.scene.direct.change(&who(), inode, change).unwrap();
                "utimens"
            }
            _ => return None,
        };
        Some(done)
    }

    /// Names that come, go and change places.
    fn change_names(
        &mut self,
        which: u64,
        [path, other]: [&str; 2],
        [here, there]: [&Path; 2],
        text: &str,
    ) -> Option<&'static str> {
        let top = self.top;
        let is_file = fs::symlink_metadata(here).is_ok_and(|found| found.is_file());
        let done = match which {
            6 if fs::create_dir(here).is_ok() => {
                fs::set_permissions(here, fs::Permissions::from_mode(0o755)).unwrap();
                let (dir, name) = self.scene.parent(top, path);
                self.scene.direct.create(&who(), dir, name, Node::Directory(0o755)).unwrap();
                "mkdir"
            }
            7 if symlink(text, here).is_ok() => {
                let (dir, name) = self.scene.parent(top, path);
                let node = Node::Symlink(text.as_bytes());
                self.scene.direct.create(&who(), dir, name, node).unwrap();
                "symlink"
            }
            8 if fs::remove_file(here).is_ok() => {
                let (dir, name) = self.scene.parent(top, path);
                self.scene.direct.unlink(&who(), dir, name).unwrap();
                "unlink"
            }
            8 if fs::remove_dir(here).is_ok() => {
                self.scene.found(top, path).unwrap();
                let (dir, name) = self.scene.parent(top, path);
                self.scene.direct.rmdir(&who(), dir, name).unwrap();
                "rmdir"
            }
            9 if is_file && fs::hard_link(here, there).is_ok() => {
                let inode = self.scene.found(top, path).unwrap();
                let (dir, name) = self.scene.parent(top, other);
                self.scene.direct.link(&who(), inode, dir, name).unwrap();
                "link"
            }
            10..=12 if fs::rename(here, there).is_ok() => {
                self.rename(path, other, 0);
                "rename"
            }
            13 if exchange(here, there) => {
                self.rename(path, other, husk_proto::fs::RENAME_EXCHANGE);
                "exchange"
            }
            _ => return None,
        };
        Some(done)
    }

    fn rename(&mut self, source: &str, target: &str, flags: u32) {
        // A directory that is replaced must be known to be empty.
        self.scene.found(self.top, target);
        let (source_dir, source) = self.scene.parent(self.top, source);
        let (target_dir, target) = self.scene.parent(self.top, target);
        let direct = &mut self.scene.direct;
        let renamed = direct.rename(&who(), source_dir, source, target_dir, target, flags);
        assert!(matches!(renamed, Ok(()) | Err(Errno::EEXIST)), "{renamed:?}");
    }

    /// Writes one path back: what is there and below is on the host then, and the image as before.
    fn sync_some(&mut self, tree: &str, host: &Path) {
        let (path, before) = (self.dice.path(), self.scene.shown(self.top));
        self.said.push(format!("sync {path}"));
        let outcome = self.scene.sync_some(&[&format!("{tree}/{path}")]);
        let said = self.said.join("\n");
        assert!(outcome.is_complete(), "{outcome:?}\nafter\n{said}");
        let after = self.scene.shown(self.top);
        assert_eq!(before, after, "the image has changed after\n{said}");
        let chosen = |tree: Tree| -> BTreeMap<PathBuf, _> {
            let tree = tree.into_iter().filter(|(one, _)| one.starts_with(&path));
            tree.map(|(one, shown)| (one, (shown.kind, shown.mode, shown.content))).collect()
        };
        assert_eq!(chosen(after), chosen(on_host(host, false)), "image / host after\n{said}");
    }

    fn agree(&mut self, host: &Path) {
        self.said.push("look".to_owned());
        let image = self.scene.shown(self.top);
        self.compare(image, host);
    }

    fn compare(&self, image: Tree, host: &Path) {
        let host = on_host(host, true);
        let differ = |one: &Tree, two: &Tree| {
            let differs = |path: &&PathBuf| one.get(*path) != two.get(*path);
            let paths: Vec<_> = one.keys().chain(two.keys()).filter(differs).cloned().collect();
            let show =
                |path: &PathBuf| format!("{path:?}: {:?} / {:?}", one.get(path), two.get(path));
            paths.iter().map(show).collect::<Vec<_>>().join("\n")
        };
        let differences = differ(&image, &host);
        let said = self.said.join("\n");
        assert!(differences.is_empty(), "image / host\n{differences}\nafter\n{said}");
        let mut model = on_host(&self.model, false);
        let mut host = host;
        for tree in [&mut model, &mut host] {
            tree.values_mut().for_each(|shown| shown.modified_ns = None);
        }
        let differences = differ(&model, &host);
        assert!(differences.is_empty(), "model / host\n{differences}\nafter\n{said}");
    }
}

fn exchange(one: &Path, two: &Path) -> bool {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, two, flags).is_ok()
}

/// What is there before the image looks.
fn begin(top: &Path, dice: &mut Dice) {
    fs::create_dir(top).unwrap();
    for _ in 0..12 {
        let path = top.join(dice.path());
        if dice.throw(3) == 0 {
            let _ = fs::create_dir_all(&path);
        } else {
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::write(&path, format!("host {}", dice.throw(1000)));
        }
    }
}

fn seed(tree: u64) -> Dice {
    let first = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Dice((first + tree).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

#[test]
fn a_tree_that_is_changed_at_random_is_on_the_host_after_each_write_back() {
    at_random(false, false);
}

#[test]
fn so_it_is_where_some_paths_were_written_before() {
    at_random(false, true);
}

/// As some network file systems are.
#[test]
fn so_it_is_where_the_host_knows_no_flags_of_renames() {
    at_random(true, false);
}

/// `without`: on a file system without `RENAME_EXCHANGE` and `RENAME_NOREPLACE`. `some`: chosen
/// paths are written back in between.
fn at_random(without: bool, some: bool) {
    let trees = if std::env::var_os("HUSK_FULL").is_some() { TREES * 20 } else { TREES };
    let mut scene = Scene::new(|path| {
        // Behind the turn of this test.
        lacking::set(without);
        for tree in 0..trees {
            begin(&path.join(format!("t{tree}")), &mut seed(tree));
        }
    });
    for tree in 0..trees {
        let model = scene.scratch.path().join("model");
        begin(&model, &mut seed(tree));
        let (name, host) = (format!("t{tree}"), scene.path.join(format!("t{tree}")));
        let root = scene.root;
        let top = scene.found(root, &name).unwrap();
        let mut dice = seed(tree);
        for _ in 0..100 {
            dice.throw(2);
        }
        let said = vec![format!("tree {tree}")];
        let mut twins = Twins { scene: &mut scene, top, model: model.clone(), dice, said };
        for _ in 0..STEPS {
            twins.step();
            if some && twins.dice.throw(3) == 0 {
                twins.sync_some(&name, &host);
            }
            if twins.dice.throw(8) == 0 {
                let outcome = twins.scene.sync();
                twins.said.push("sync".to_owned());
                assert!(outcome.is_complete(), "{outcome:?}\nafter\n{}", twins.said.join("\n"));
                twins.agree(&host);
                if twins.dice.throw(4) == 0 {
                    let again = twins.scene.sync();
                    assert_eq!((again.written, again.removed), (0, 0), "{again:?}");
                }
            }
        }
        let last = twins.scene.shown(top);
        let outcome = if tree % 4 == 0 { twins.scene.write_back() } else { twins.scene.sync() };
        assert!(outcome.is_complete(), "{outcome:?}\nafter\n{}", twins.said.join("\n"));
        twins.compare(last, &host);
        fs::remove_dir_all(model).unwrap();
    }
    complete(&scene.write_back());
    lacking::set(false);
}

#[test]
fn what_the_host_changes_after_a_write_back_is_a_conflict_if_the_image_changes_it_too() {
    let mut scene = Scene::new(|path| fs::write(path.join("old"), "old").unwrap());
    scene.rewrite("old", b"image");
    scene.write("new", b"image");
    scene.write("alone", b"image");
    complete(&scene.sync());
    settle();
    for name in ["old", "new", "alone"] {
        fs::write(scene.path.join(name), "host").unwrap();
    }
    complete(&scene.sync());
    for name in ["old", "new"] {
        let inode = scene.at(name);
        scene.direct.write_at(inode, 0, b"IMAGE").unwrap();
    }
    let outcome = scene.sync();
    assert_eq!((outcome.conflicts.len(), outcome.written), (2, 2), "{outcome:?}");
    for name in ["old", "new"] {
        assert_eq!(scene.host(name), "host");
        assert_eq!(scene.host(&format!("{name}.husk-77")), "IMAGE");
    }
    assert_eq!(scene.host("alone"), "host");
    // Said again, written once; and what changes is brought up to date.
    let outcome = scene.sync();
    assert_eq!((outcome.conflicts.len(), outcome.written), (2, 0), "{outcome:?}");
    let inode = scene.at("old");
    scene.direct.write_at(inode, 0, b"Third").unwrap();
    let outcome = scene.sync();
    assert_eq!((outcome.conflicts.len(), outcome.written), (2, 1), "{outcome:?}");
    assert_eq!(scene.host("old.husk-77"), "Third");
    scene.unlink("new");
    let outcome = scene.write_back();
    assert_eq!((scene.host("new"), outcome.conflicts.len()), ("host".to_owned(), 2), "{outcome:?}");
}

#[test]
fn what_is_removed_on_the_host_stays_in_the_image_under_its_old_name() {
    let mut scene = Scene::new(|path| {
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/moved"), "moved").unwrap();
        fs::write(path.join("open"), "open").unwrap();
    });
    let (moved, open) = (scene.at("d/moved"), scene.at("open"));
    husk_proto::Processes::pin(&mut scene.direct, open).unwrap();
    scene.rename("d", "e");
    scene.unlink("open");
    complete(&scene.sync());
    assert!(!scene.path.join("d").exists() && !scene.path.join("open").exists());
    for (inode, content) in [(moved, "moved"), (open, "open")] {
        let attributes = scene.direct.attributes(inode).unwrap();
        assert_eq!(attributes.backing, Backing::Image);
        assert_eq!(scene.bytes(inode, &attributes), content.as_bytes());
    }
    husk_proto::Processes::unpin(&mut scene.direct, open);
    scene.rename("e/moved", "moved");
    complete(&scene.sync());
    assert_eq!(scene.host("moved"), "moved");
    assert!(scene.path.join("e").exists() && !scene.path.join("e/moved").exists());
}

/// Somebody else is faster, at any moment: what the image has is beside it, once, in all syncs.
#[test]
fn what_was_laid_beside_at_the_last_moment_is_replaced_by_the_next_sync() {
    let mut late = 0;
    for n in 1_u32.. {
        if n.is_multiple_of(32) {
            Scene::renew_the_image();
        }
        let mut scene = Scene::at_once(|path| fs::write(path.join("file"), "imported").unwrap());
        scene.rewrite("file", b"ours");
        let (count, path) = (Rc::new(Cell::new(0)), scene.path.join("file"));
        let seen = Rc::clone(&count);
        let plan = move |_| {
            count.set(count.get() + 1);
            if count.get() == n {
                fs::write(path.with_file_name("new"), "theirs").unwrap();
                fs::rename(path.with_file_name("new"), &path).unwrap();
            }
            Ok(())
        };
        let outcome = schedule::during(plan, || scene.bring_here(true));
        late += u32::from(scene.host("file.husk-77") == "ours");
        for text in ["ours, more", "ours, more, and more"] {
            let inode = scene.at("file");
            scene.direct.write_at(inode, 0, text.as_bytes()).unwrap();
            let next = scene.sync();
            assert!(next.failures.is_empty(), "{n}: {outcome:#?}, then {next:#?}");
            let kept = ["file", "file.husk-77"].map(|name| scene.host(name));
            assert!(kept.contains(&text.to_owned()), "{n}: {kept:?} {outcome:#?}, then {next:#?}");
            let names = fs::read_dir(&scene.path).unwrap().count();
            assert!(names <= 2, "{n}: {names} names, {outcome:#?}, then {next:#?}");
        }
        if n > seen.get() {
            break;
        }
    }
    assert!(late > 3, "{late} times");
}

/// Gives what is at `path` another name.
fn link(scene: &mut Scene, path: &str, other: &str) {
    let inode = scene.at(path);
    let (dir, name) = scene.split(other);
    scene.direct.link(&who(), inode, dir, name).unwrap();
}

/// Files with names in directories that a scan comes to early and late.
fn several_names() -> Scene {
    let mut scene = Scene::at_once(|path| {
        ["a", "b", "c"].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
        fs::write(path.join("a/old"), "old").unwrap();
        fs::hard_link(path.join("a/old"), path.join("c/old")).unwrap();
        fs::write(path.join("a/plain"), "plain").unwrap();
        fs::write(path.join("c/plain"), "plain").unwrap();
    });
    scene.write("a/known", b"known");
    scene.write("a/single", b"single");
    scene.write("c/single", b"single");
    link(&mut scene, "a/known", "c/known");
    for dir in ["a", "b", "c"] {
        // Listed.
        scene.at(dir);
    }
    complete(&scene.bring_here(true));
    let at = Some(Time::At(1_000_000_001));
    for path in ["a/known", "a/old"] {
        let inode = scene.at(path);
        scene.direct.change(&who(), inode, Change { modified: at, ..Change::default() }).unwrap();
    }
    scene.write("a/first", b"first");
    scene.write("c/last", b"last");
    scene
}

/// Writes to a file as a program does.
fn overwrite(program: &mut Direct, inode: Inode) {
    if program.attributes(inode).unwrap().backing == Backing::Host {
        let donor = program.create_nameless(&who(), inode, 0o600, false).unwrap();
        assert_eq!(program.adopt(inode, donor), Ok(true));
        husk_proto::Processes::unpin(program, donor);
    }
    program.write_at(inode, 0, b"NEWS").unwrap();
}

/// A program gives files names, attributes and bytes in the middle of a sync, at each moment of it.
#[test]
fn what_gets_names_and_attributes_during_a_sync_is_one_file_after_the_next() {
    named_during_a_sync(&NAMES, [false, false]);
}

#[test]
fn so_is_what_gets_bytes_before_the_next() {
    named_during_a_sync(&NAMES, [false, true]);
}

#[test]
fn so_is_what_gets_names_and_bytes() {
    named_during_a_sync(&NAMES, [true, false]);
    // Nothing is replaced, so that the scan looks once.
    named_during_a_sync(&NAMES[..2], [true, false]);
}

/// Files, and the names that they get.
const NAMES: [(&str, &str); 10] = [
    ("a/plain", "b/1"),
    ("c/plain", "b/2"),
    ("a/known", "b/3"),
    ("a/old", "b/4"),
    ("a/first", "b/5"),
    ("a/first", "c/6"),
    ("c/last", "a/7"),
    ("c/last", "b/8"),
    ("a/single", "b/9"),
    ("c/single", "b/10"),
];

/// `bytes`: written with the name, after the sync.
fn named_during_a_sync(names: &[(&str, &'static str)], bytes: [bool; 2]) {
    for n in 1_u32.. {
        if n.is_multiple_of(32) {
            Scene::renew_the_image();
        }
        let mut scene = several_names();
        let links = names.iter().map(|(path, other)| {
            let (dir, name) = scene.split(other);
            (scene.at(path), dir, name)
        });
        let links: Vec<_> = links.collect();
        let files: Vec<_> = links.iter().map(|link| link.0).collect();
        let mut program = crate::image::attach().unwrap();
        let seen = Rc::new(Cell::new(0));
        let count = Rc::clone(&seen);
        let plan = move |_| {
            count.set(count.get() + 1);
            if count.get() == n {
                let at = Some(Time::At(1_000_000_002));
                let change = Change { mode: Some(0o600), modified: at, ..Change::default() };
                for &(inode, dir, name) in &links {
                    program.change(&who(), inode, change).unwrap();
                    program.link(&who(), inode, dir, name).unwrap();
                    if bytes[0] {
                        overwrite(&mut program, inode);
                    }
                }
            }
            Ok(())
        };
        let outcome = schedule::during(plan, || scene.bring_here(true));
        let told = outcome.conflicts.len() + outcome.failures.len();
        assert_eq!(told, 0, "{n}: {outcome:#?}");
        if bytes[1] {
            let mut program = crate::image::attach().unwrap();
            files.iter().for_each(|&inode| overwrite(&mut program, inode));
        }
        let next = scene.bring_here(true);
        assert!(next.is_complete(), "{n}: {outcome:#?}, then {next:#?}");
        let root = scene.root;
        assert_eq!(scene.shown(root), on_host(&scene.path, true), "{n}: image / host");
        if n > seen.get() {
            break;
        }
    }
}
