//! Write-back against a real image in the test process and a real host directory.
//!
//! An image has fixed addresses and a bounded number of mounts: there is one image here with one
//! overlay, and each test has a directory of its own below it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use husk_carrier::{Direct, Layout};
use husk_proto::fs::{Backing, Change, Imported, Kind, Node, Time};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Credentials, Fs, Inode};
use rustix::fs::{FallocateFlags, fallocate};

use super::host::{identity_of, imported};
use super::plan::scan::Run;
use super::record::ledger::Ledger;
use super::rescue::Rescue;
use super::{Outcome, Places, on_large_stack, scan_and_commit};

mod attributes;
mod chosen;
pub(crate) mod failures;
mod many;
mod merged;
pub(crate) mod moved;
pub(crate) mod others;
mod sparse;
mod synced;
use crate::image;
use crate::image::clock;
use crate::image::descriptors;
use crate::output::progress::Progress;

const RUN: u32 = 77;
const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 128 << 20 };

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static IMAGE: Mutex<Option<Base>> = Mutex::new(None);

/// The image and its overlay.
struct Base {
    region: std::os::fd::OwnedFd,
    directory: tempfile::TempDir,
    root: Inode,
}

impl Base {
    fn make() -> Base {
        use std::os::fd::AsRawFd;
        let region = descriptors::region(LAYOUT.total_bytes()).unwrap();
        husk_carrier::map_region(region.as_raw_fd() as u32, LAYOUT).unwrap();
        Base::format(region)
    }

    /// Another image in the same region, which stays mapped.
    fn renew(self) -> Base {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.region, flags, 0, LAYOUT.total_bytes()).unwrap();
        Base::format(self.region)
    }

    fn format(region: std::os::fd::OwnedFd) -> Base {
        husk_carrier::format(LAYOUT, 99, b"/nonexistent").unwrap();
        // Memory, if there is such a place: some tests write back a thousand times.
        let base = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let base = base.into_iter().find(|base| fs::metadata(base).is_ok_and(|one| one.is_dir()));
        let directory = tempfile::tempdir_in(fs::canonicalize(base.unwrap()).unwrap());
        let directory = directory.unwrap();
        let found = fs::metadata(directory.path()).unwrap();
        let path = directory.path().as_os_str().as_bytes();
        let mut direct = image::attach().unwrap();
        let root = with_imported(directory.path(), &found, |root| {
            direct.add_mount(path, Cover::Overlay, root)
        });
        let root = root.unwrap();
        direct.detach();
        Base { region, directory, root }
    }
}

fn who() -> Credentials<'static> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Credentials { uid, gid, groups: &[], capabilities: u64::MAX, within: None }
}

/// An overlay on a fresh host directory.
pub(crate) struct Scene {
    pub(crate) direct: Direct,
    pub(crate) root: Inode,
    pub(crate) path: PathBuf,
    scratch: tempfile::TempDir,
    started_ns: i64,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// `fill` makes the host's side before the image sees it.
    fn new(fill: impl Fn(&Path)) -> Scene {
        let mut scene = Scene::at_once(fill);
        scene.started_ns = settle();
        scene
    }

    /// The same without waiting for the host's clock.
    pub(crate) fn at_once(fill: impl Fn(&Path)) -> Scene {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut image = IMAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let base = image.get_or_insert_with(Base::make);
        let scratch = tempfile::tempdir_in(base.directory.path()).unwrap();
        let path = scratch.path().join("tree");
        fs::create_dir(&path).unwrap();
        fill(&path);
        let mut direct = image::attach().unwrap();
        let root = [scratch.path(), &path].into_iter().fold(base.root, |dir, path| {
            let found = fs::metadata(path).unwrap();
            // The only name that is read: what is beside it is none of the image's.
            let listed = with_imported(path, &found, |one| direct.import(dir, &[*one]));
            assert_eq!(listed, Ok(true));
            direct.lookup(dir, path.file_name().unwrap().as_bytes()).unwrap().inode
        });
        let started_ns = clock::exact_ns();
        Scene { direct, root, path, scratch, started_ns, _turn: turn }
    }

    /// The next scene is in an image that has nothing in it yet.
    pub(crate) fn renew_the_image() {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut image = IMAGE.lock().unwrap_or_else(PoisonError::into_inner);
        *image = image.take().map(Base::renew);
    }

    /// Reads the host's listing into the image, as a client does.
    fn list(&mut self, dir: Inode, path: &Path) {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let listed =
                with_imported(&entry.path(), &found, |one| self.direct.import(dir, &[*one]));
            assert_eq!(listed, Ok(true));
        }
        self.direct.import_done(dir).unwrap();
    }

    /// The inode at `path` below the overlay; directories on the way are listed.
    pub(crate) fn at(&mut self, path: &str) -> Inode {
        let (mut inode, mut host) = (self.root, self.path.clone());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            self.ensure_listed(inode, &host);
            inode = self.direct.lookup(inode, name.as_bytes()).unwrap().inode;
            host.push(name);
        }
        if self.direct.step(inode).unwrap().kind == Kind::Directory {
            self.ensure_listed(inode, &host);
        }
        inode
    }

    fn ensure_listed(&mut self, dir: Inode, host: &Path) {
        if self.direct.step(dir).unwrap().unlisted {
            self.list(dir, host);
        }
    }

    fn split<'p>(&mut self, path: &'p str) -> (Inode, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.at(dir), name.as_bytes())
    }

    pub(crate) fn write(&mut self, path: &str, content: &[u8]) -> Inode {
        let (dir, name) = self.split(path);
        let inode = self.direct.create(&who(), dir, name, Node::File(0o640)).unwrap();
        assert_eq!(self.direct.write_at(inode, 0, content), Ok(content.len()));
        inode
    }

    /// What an application does to a host file: copies it up, then writes.
    pub(crate) fn rewrite(&mut self, path: &str, content: &[u8]) {
        let inode = self.at(path);
        let donor = self.direct.create_nameless(&who(), inode, 0o600, false).unwrap();
        let old = fs::read(self.path.join(path)).unwrap();
        self.direct.write_at(donor, 0, &old).unwrap();
        assert_eq!(self.direct.adopt(inode, donor), Ok(true));
        self.direct.truncate(inode, 0).unwrap();
        self.direct.write_at(inode, 0, content).unwrap();
    }

    /// The same, and writes only behind what is there.
    fn append(&mut self, path: &str, content: &[u8]) {
        let inode = self.at(path);
        if self.direct.attributes(inode).unwrap().backing == Backing::Host {
            let old = fs::read(self.path.join(path)).unwrap();
            self.rewrite(path, &old);
        }
        let size = self.direct.attributes(inode).unwrap().size;
        self.direct.write_at(inode, size, content).unwrap();
    }

    pub(crate) fn mkdir(&mut self, path: &str) -> Inode {
        let (dir, name) = self.split(path);
        self.direct.create(&who(), dir, name, Node::Directory(0o751)).unwrap()
    }

    pub(crate) fn unlink(&mut self, path: &str) {
        let (dir, name) = self.split(path);
        self.direct.unlink(&who(), dir, name).unwrap();
    }

    pub(crate) fn rename(&mut self, source: &str, target: &str) {
        let (source_dir, source) = self.split(source);
        let (target_dir, target) = self.split(target);
        self.direct.rename(&who(), source_dir, source, target_dir, target, 0).unwrap();
    }

    fn write_back(&mut self) -> Outcome {
        self.bring(false, &[])
    }

    /// As while programs go on.
    fn sync(&mut self) -> Outcome {
        self.bring(true, &[])
    }

    /// Only these paths.
    fn sync_some(&mut self, paths: &[&str]) -> Outcome {
        let paths: Vec<PathBuf> = paths.iter().map(|path| self.path.join(path)).collect();
        self.bring(true, &paths)
    }

    fn bring(&mut self, live: bool, chosen: &[PathBuf]) -> Outcome {
        let parts = self.parts();
        let outcome = on_large_stack(|| bring_to(parts, live, chosen));
        self.assert_no_temporary_names();
        outcome
    }

    /// The same in this thread.
    pub(crate) fn bring_here(&mut self, live: bool) -> Outcome {
        bring_to(self.parts(), live, &[])
    }

    /// What write-backs have noted.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::at(self.scratch.path().join("written"))
    }

    fn parts(&mut self) -> Parts<'_> {
        let (direct, root, started_ns) = (&mut self.direct, self.root, self.started_ns);
        Parts { direct, root, path: &self.path, scratch: self.scratch.path(), started_ns }
    }

    fn assert_no_temporary_names(&self) {
        let mut open = vec![self.path.clone()];
        while let Some(directory) = open.pop() {
            // A path that is too long for the host is one test's business.
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let name = entry.file_name().into_string().unwrap();
                assert!(!name.starts_with(".husk-tmp-"), "{name} was left");
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                }
            }
        }
    }

    fn host(&self, path: &str) -> String {
        fs::read_to_string(self.path.join(path)).unwrap_or_else(|problem| format!("{problem}"))
    }
}

/// What a write-back needs of a scene; the scene stays in its thread.
struct Parts<'a> {
    direct: &'a mut Direct,
    root: Inode,
    path: &'a Path,
    scratch: &'a Path,
    started_ns: i64,
}

fn bring_to(parts: Parts<'_>, live: bool, chosen: &[PathBuf]) -> Outcome {
    bring_with(parts, live, chosen, &Arc::default())
}

fn bring_with(
    parts: Parts<'_>,
    live: bool,
    chosen: &[PathBuf],
    progress: &Arc<Progress>,
) -> Outcome {
    let Parts { direct, root, path, scratch, started_ns } = parts;
    let run = Run { number: RUN, started_ns, live };
    let rescue = Rescue::into_directory(scratch.join("rescue"));
    let ledger = Ledger::at(scratch.join("written"));
    let overlays = [(root, path.to_owned())];
    let places = Places { rescue, manifests: vec![scratch.join("manifests")] };
    scan_and_commit(direct, run, &overlays, chosen, places, progress, ledger)
}

fn with_imported<T>(path: &Path, found: &fs::Metadata, give: impl FnOnce(&Imported<'_>) -> T) -> T {
    let target = fs::read_link(path).unwrap_or_default();
    let kind = match found.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        _ => Kind::File,
    };
    give(&imported(path.file_name().unwrap(), kind, found, &target))
}

/// Now, once the host's coarse clock has passed what was made before.
fn settle() -> i64 {
    let begin = clock::now_ns();
    while clock::now_ns() < begin + 20_000_000 {
        std::thread::yield_now();
    }
    clock::now_ns()
}

/// Once more, as the successor of one that was killed at its very end does.
#[track_caller]
fn nothing_is_left_to_do(scene: &mut Scene) {
    let outcome = scene.write_back();
    complete(&outcome);
    assert_eq!((outcome.written, outcome.removed), (0, 0), "{outcome:?}");
}

#[track_caller]
fn complete(outcome: &Outcome) {
    assert!(outcome.is_complete(), "{outcome:?}");
}

#[test]
fn new_objects_appear_with_content_mode_and_times() {
    let mut scene = Scene::new(|_| {});
    let file = scene.write("new", b"hello");
    let times = Change {
        mode: Some(0o4755),
        accessed: Some(Time::At(1_000_000_001)),
        modified: Some(Time::At(2_000_000_003)),
        ..Change::default()
    };
    scene.direct.change(&who(), file, times).unwrap();
    scene.mkdir("d");
    scene.mkdir("d/e");
    scene.write("d/e/deep", b"deep");
    let (dir, name) = scene.split("d/link");
    scene.direct.create(&who(), dir, name, Node::Symlink(b"../new")).unwrap();
    complete(&scene.write_back());
    // Before anything reads it: that changes the time of the last access.
    let found = fs::metadata(scene.path.join("new")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o4755);
    assert_eq!((found.mtime(), found.mtime_nsec()), (2, 3));
    assert_eq!(found.atime(), 1);
    assert_eq!(scene.host("new"), "hello");
    assert_eq!(scene.host("d/link"), "hello");
    assert_eq!(scene.host("d/e/deep"), "deep");
    let directory = fs::metadata(scene.path.join("d")).unwrap();
    assert_eq!(directory.permissions().mode() & 0o7777, 0o751);
}

#[test]
fn an_untouched_tree_costs_nothing_and_stays() {
    let mut scene = Scene::new(|path| {
        fs::write(path.join("a"), "a").unwrap();
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/b"), "b").unwrap();
    });
    scene.at("d/b");
    let before = identity_of(&fs::metadata(scene.path.join("d")).unwrap());
    let outcome = scene.write_back();
    complete(&outcome);
    assert_eq!((outcome.written, outcome.removed), (0, 0));
    assert_eq!(identity_of(&fs::metadata(scene.path.join("d")).unwrap()), before);
}

#[test]
fn changed_removed_and_replaced_files_follow() {
    let mut scene = Scene::new(|path| {
        for name in ["changed", "removed", "replaced", "kept"] {
            fs::write(path.join(name), name).unwrap();
        }
        fs::set_permissions(path.join("changed"), fs::Permissions::from_mode(0o750)).unwrap();
    });
    scene.rewrite("changed", b"new bytes");
    scene.unlink("removed");
    scene.unlink("replaced");
    scene.write("replaced", b"another");
    let kept = scene.at("kept");
    let mode = Change { mode: Some(0o600), ..Change::default() };
    scene.direct.change(&who(), kept, mode).unwrap();
    complete(&scene.write_back());
    assert_eq!(scene.host("changed"), "new bytes");
    let changed = fs::metadata(scene.path.join("changed")).unwrap();
    assert_eq!(changed.permissions().mode() & 0o7777, 0o750);
    assert!(!scene.path.join("removed").exists());
    assert_eq!(scene.host("replaced"), "another");
    assert_eq!(scene.host("kept"), "kept");
    let kept = fs::metadata(scene.path.join("kept")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o7777, 0o600);
    nothing_is_left_to_do(&mut scene);
    // What somebody else puts in the place of what was written is theirs.
    fs::remove_file(scene.path.join("changed")).unwrap();
    fs::write(scene.path.join("changed"), "theirs").unwrap();
    assert_eq!(scene.write_back().conflicts.len(), 1);
    assert_eq!(scene.host("changed"), "theirs");
    assert_eq!(scene.host("changed.husk-77"), "new bytes");
}

#[test]
fn moved_files_and_directories_move_whether_listed_or_not() {
    let mut scene = Scene::new(|path| {
        fs::write(path.join("file"), "moved").unwrap();
        fs::create_dir_all(path.join("seen/inner")).unwrap();
        fs::write(path.join("seen/inner/x"), "x").unwrap();
        fs::write(path.join("seen/gone"), "gone").unwrap();
        fs::create_dir_all(path.join("unseen/inner")).unwrap();
        fs::write(path.join("unseen/inner/y"), "y").unwrap();
        symlink("y", path.join("unseen/inner/link")).unwrap();
    });
    let old = fs::metadata(scene.path.join("unseen/inner/y")).unwrap().ino();
    scene.mkdir("to");
    scene.rename("file", "to/file");
    scene.at("seen/inner/x");
    scene.unlink("seen/gone");
    scene.rename("seen", "to/seen");
    scene.rename("unseen", "to/unseen");
    complete(&scene.write_back());
    assert_eq!(scene.host("to/file"), "moved");
    assert_eq!(scene.host("to/seen/inner/x"), "x");
    assert!(!scene.path.join("to/seen/gone").exists());
    assert_eq!(scene.host("to/unseen/inner/link"), "y");
    assert_eq!(fs::metadata(scene.path.join("to/unseen/inner/y")).unwrap().ino(), old);
    for gone in ["file", "seen", "unseen"] {
        assert!(!scene.path.join(gone).exists(), "{gone} is still there");
    }
    nothing_is_left_to_do(&mut scene);
}

#[test]
fn hard_links_of_the_image_are_hard_links_on_the_host() {
    let mut scene = Scene::new(|path| fs::write(path.join("old"), "old").unwrap());
    let new = scene.write("one", b"linked");
    scene.mkdir("d");
    let (dir, name) = scene.split("d/two");
    scene.direct.link(&who(), new, dir, name).unwrap();
    let old = scene.at("old");
    let (dir, name) = scene.split("d/old-too");
    scene.direct.link(&who(), old, dir, name).unwrap();
    complete(&scene.write_back());
    let ino = |path| fs::metadata(scene.path.join(path)).unwrap().ino();
    assert_eq!(ino("one"), ino("d/two"));
    assert_eq!(ino("old"), ino("d/old-too"));
    assert_eq!(scene.host("d/two"), "linked");
}

#[test]
fn kinds_may_change_places() {
    let mut scene = Scene::new(|path| {
        fs::write(path.join("was-file"), "f").unwrap();
        fs::create_dir(path.join("was-directory")).unwrap();
        fs::write(path.join("was-directory/x"), "x").unwrap();
    });
    scene.unlink("was-file");
    scene.mkdir("was-file");
    scene.write("was-file/inside", b"i");
    scene.unlink("was-directory/x");
    let (dir, name) = scene.split("was-directory");
    scene.direct.rmdir(&who(), dir, name).unwrap();
    scene.write("was-directory", b"now a file");
    complete(&scene.write_back());
    assert_eq!(scene.host("was-file/inside"), "i");
    assert_eq!(scene.host("was-directory"), "now a file");
}

#[test]
fn notes_that_cannot_be_kept_are_told() {
    let mut scene = Scene::new(|path| fs::write(path.join("old"), "old").unwrap());
    scene.write("new", b"new");
    fs::create_dir(scene.scratch.path().join("written")).unwrap();
    let outcome = scene.write_back();
    let told = outcome.failures.iter().filter(|line| line.starts_with("cannot record what is"));
    assert!(told.count() >= 1, "{outcome:?}");
    assert_eq!(scene.host("new"), "new", "it is written nevertheless");
}

#[test]
fn holes_stay_holes() {
    let mut scene = Scene::new(|_| {});
    let file = scene.write("sparse", b"begin");
    let end: u64 = 8 << 20;
    assert_eq!(scene.direct.write_at(file, end, b"end"), Ok(3));
    complete(&scene.write_back());
    let found = fs::metadata(scene.path.join("sparse")).unwrap();
    assert_eq!(found.len(), end + 3);
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    let bytes = fs::read(scene.path.join("sparse")).unwrap();
    assert!(bytes.starts_with(b"begin\0") && bytes.ends_with(b"\0end"));
}

#[test]
fn what_the_host_changed_meanwhile_is_kept_and_so_is_ours() {
    let mut scene = Scene::new(|path| {
        for name in ["both", "host-removed", "we-removed"] {
            fs::write(path.join(name), "imported").unwrap();
        }
    });
    scene.rewrite("both", b"ours");
    scene.rewrite("host-removed", b"ours");
    scene.unlink("we-removed");
    scene.write("appeared", b"ours");
    fs::write(scene.path.join("both"), "theirs").unwrap();
    fs::remove_file(scene.path.join("host-removed")).unwrap();
    fs::write(scene.path.join("we-removed"), "theirs").unwrap();
    fs::write(scene.path.join("appeared"), "theirs").unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 4, "{outcome:?}");
    assert_eq!(scene.host("both"), "theirs");
    assert_eq!(scene.host("both.husk-77"), "ours");
    assert!(!scene.path.join("host-removed").exists());
    assert_eq!(scene.host("host-removed.husk-77"), "ours");
    assert_eq!(scene.host("we-removed"), "theirs");
    assert_eq!(scene.host("appeared"), "theirs");
    assert_eq!(scene.host("appeared.husk-77"), "ours");
}

#[test]
fn what_both_sides_made_alike_is_no_conflict() {
    let mut scene = Scene::new(|path| fs::write(path.join("both"), "imported").unwrap());
    scene.rewrite("both", b"the same");
    scene.write("appeared", b"the same");
    scene.write("other", b"ours 1");
    for (name, bytes) in [("both", "the same"), ("appeared", "the same"), ("other", "theirs")] {
        fs::write(scene.path.join(name), bytes).unwrap();
    }
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert!(!scene.path.join("both.husk-77").exists());
    assert!(!scene.path.join("appeared.husk-77").exists());
    assert_eq!(scene.host("other.husk-77"), "ours 1");
}

#[test]
fn a_removed_directory_stays_if_the_host_put_something_into_it() {
    let mut scene = Scene::new(|path| {
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::write(path.join("d/e/x"), "x").unwrap();
    });
    scene.unlink("d/e/x");
    for path in ["d/e", "d"] {
        let (dir, name) = scene.split(path);
        scene.direct.rmdir(&who(), dir, name).unwrap();
    }
    settle();
    fs::write(scene.path.join("d/e/late"), "precious").unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d/e/late"), "precious");
    assert!(!scene.path.join("d/e/x").exists());
}

#[test]
fn a_moved_directory_leaves_behind_only_what_the_host_put_into_it() {
    let mut scene = Scene::new(|path| {
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::create_dir_all(path.join("d/f")).unwrap();
        for name in ["d/a", "d/b", "d/e/x", "d/f/y"] {
            fs::write(path.join(name), name).unwrap();
        }
    });
    for path in ["d/a", "d/b", "d/e/x", "d/f/y"] {
        scene.at(path);
    }
    scene.rename("d", "moved");
    settle();
    fs::write(scene.path.join("d/late"), "precious").unwrap();
    fs::write(scene.path.join("d/e/late"), "too").unwrap();
    fs::write(scene.path.join("d/b"), "changed").unwrap();
    let outcome = scene.write_back();
    assert_eq!((outcome.conflicts.len(), outcome.failures.len()), (1, 0), "{outcome:?}");
    for (path, content) in [("a", "d/a"), ("e/x", "d/e/x"), ("f/y", "d/f/y")] {
        assert_eq!(scene.host(&format!("moved/{path}")), content);
        assert!(!scene.path.join("d").join(path).exists(), "{path} has two names");
    }
    assert!(!scene.path.join("d/f").exists());
    assert_eq!(scene.host("d/late"), "precious");
    assert_eq!(scene.host("d/e/late"), "too");
    // As with files: what the host changed is there under both names.
    assert_eq!((scene.host("d/b"), scene.host("moved/b")), ("changed".into(), "changed".into()));
    assert!(!scene.path.join("moved/late").exists());
}

#[test]
fn what_was_changed_in_a_directory_the_host_removed_is_kept_beside() {
    let mut scene = Scene::new(|path| {
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/x"), "x").unwrap();
    });
    scene.write("d/ours", b"ours");
    scene.rewrite("d/x", b"changed");
    fs::remove_dir_all(scene.path.join("d")).unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d.husk-77/ours"), "ours");
    assert_eq!(scene.host("d.husk-77/x"), "changed");
    assert!(!scene.path.join("d").exists());
}

#[test]
fn a_directory_the_host_removed_is_made_again_for_what_is_new_in_it() {
    let mut scene = Scene::new(|path| {
        fs::create_dir_all(path.join("d/in")).unwrap();
        fs::write(path.join("d/in/x"), "x").unwrap();
    });
    scene.write("d/in/ours", b"ours");
    fs::remove_dir_all(scene.path.join("d")).unwrap();
    let outcome = scene.write_back();
    assert_eq!((outcome.conflicts.len(), outcome.failures.len()), (0, 0), "{outcome:?}");
    assert_eq!(scene.host("d/in/ours"), "ours");
    assert!(!scene.path.join("d/in/x").exists(), "the host has removed it");
}

#[test]
fn what_cannot_be_written_is_rescued_and_the_rest_is_written() {
    let mut scene = Scene::new(|path| fs::create_dir(path.join("d")).unwrap());
    // A path longer than the host takes in one call.
    let mut path = String::from("d");
    for _ in 0..20 {
        path.push('/');
        path.push_str(&"n".repeat(250));
        scene.mkdir(&path);
    }
    scene.write(&format!("{path}/lost"), b"precious");
    scene.write("d/fine", b"fine");
    let outcome = scene.write_back();
    assert!(!outcome.failures.is_empty(), "the host took a path of over 4096 bytes");
    assert_eq!(scene.host("d/fine"), "fine");
    assert_eq!(outcome.failures.len(), 1, "{outcome:?}");
    let saved = fs::read_dir(scene.scratch.path().join("rescue/deep")).unwrap();
    // Directories that lead there are saved, too.
    let files = saved.filter_map(|entry| fs::read(entry.unwrap().path()).ok());
    assert_eq!(files.collect::<Vec<_>>(), [b"precious"], "{outcome:?}");
}

#[test]
fn a_file_opened_for_writing_and_not_written_is_not_replaced() {
    let mut scene = Scene::new(|path| fs::write(path.join("same"), "same").unwrap());
    let inode = scene.at("same");
    let donor = scene.direct.create_nameless(&who(), inode, 0o600, false).unwrap();
    scene.direct.write_at(donor, 0, b"same").unwrap();
    assert_eq!(scene.direct.adopt(inode, donor), Ok(true));
    let before = fs::metadata(scene.path.join("same")).unwrap().ino();
    let outcome = scene.write_back();
    complete(&outcome);
    assert_eq!(outcome.written, 0);
    assert_eq!(fs::metadata(scene.path.join("same")).unwrap().ino(), before);
}

/// A directory chain of `levels` below `dir` that ends in a directory of its own.
fn chain(scene: &mut Scene, mut dir: Inode, levels: usize) -> Inode {
    for _ in 0..levels {
        dir = scene.direct.create(&who(), dir, b"d", Node::Directory(0o755)).unwrap();
    }
    dir
}

#[test]
fn a_deep_tree_is_written_whatever_the_stack_of_the_caller() {
    let mut scene = Scene::new(|_| {});
    // Before: 4 KiB of buffers a level, on this test thread's 2 MiB.
    let levels = 900;
    let top = scene.mkdir("deep");
    let bottom = chain(&mut scene, top, levels);
    let file = scene.direct.create(&who(), bottom, b"file", Node::File(0o600)).unwrap();
    scene.direct.write_at(file, 0, b"down here").unwrap();
    complete(&scene.write_back());
    assert_eq!(scene.host(&format!("deep{}/file", "/d".repeat(levels))), "down here");
}

#[test]
fn what_is_deeper_than_the_bound_is_reported_and_the_rest_is_written() {
    let mut scene = Scene::new(|path| fs::write(path.join("moved"), "host's").unwrap());
    let top = scene.mkdir("deep");
    let bottom = chain(&mut scene, top, 5000);
    let (dir, name) = scene.split("moved");
    scene.direct.rename(&who(), dir, name, bottom, b"moved", 0).unwrap();
    scene.write("beside", b"beside");
    let outcome = scene.write_back();
    assert!(outcome.failures.iter().any(|line| line.contains("deeper than")), "no word of it");
    assert_eq!(scene.host("beside"), "beside");
    assert_eq!(scene.host("moved"), "host's");
}

#[test]
fn a_moved_file_that_cannot_be_written_keeps_its_old_name_and_content() {
    let mut scene = Scene::new(|path| {
        fs::write(path.join("moved"), "old").unwrap();
        fs::create_dir(path.join("replaced")).unwrap();
        fs::write(path.join("replaced/inner"), "old").unwrap();
        fs::create_dir(path.join("unseen")).unwrap();
        fs::write(path.join("unseen/inner"), "old").unwrap();
    });
    // Neither the host nor the rescue place takes it.
    fs::write(scene.scratch.path().join("rescue"), "no directory").unwrap();
    scene.rewrite("moved", b"old and more");
    let top = scene.mkdir("deep");
    let bottom = chain(&mut scene, top, 2200);
    let (dir, name) = scene.split("moved");
    scene.direct.rename(&who(), dir, name, bottom, b"moved", 0).unwrap();
    // Likewise a directory made anew, whose content cannot be written.
    scene.unlink("replaced/inner");
    let (dir, name) = scene.split("replaced");
    scene.direct.rmdir(&who(), dir, name).unwrap();
    let replaced = scene.mkdir("replaced");
    chain(&mut scene, replaced, 2200);
    // And one that was moved whole, and that the host put something into.
    let (dir, name) = scene.split("unseen");
    scene.direct.rename(&who(), dir, name, bottom, b"unseen", 0).unwrap();
    settle();
    fs::write(scene.path.join("unseen/late"), "precious").unwrap();
    let outcome = scene.write_back();
    assert!(
        outcome.failures.iter().any(|line| line.contains("the image keeps it")),
        "no word of it"
    );
    assert!(outcome.untouched, "{outcome:#?}");
    assert_eq!(scene.host("moved"), "old");
    assert_eq!(scene.host("replaced/inner"), "old");
    assert_eq!(scene.host("unseen/inner"), "old");
    assert_eq!(scene.host("unseen/late"), "precious");
    assert!(!scene.path.join("replaced.husk-77").exists());
    scene.assert_no_temporary_names();
}
