//! Host calls of a `restore` fail, it is killed before each of them, or somebody who may write
//! where it writes moves before each.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use super::*;
use crate::write_back::host::beneath::schedule;
use crate::write_back::host::identity_of;
use crate::write_back::record::manifest::Bytes;
use crate::write_back::rescue::numbers;
use crate::write_back::tests::failures::killed::tree;
use crate::write_back::tests::others::adversary::{MOVES, outside_of};

/// More host calls than there are.
const CALLS_MAX: u32 = 1000;
/// What is saved, and where it should have been.
const SAVED: &[(&str, &str)] = &[
    ("pub/new", "saved: new"),
    ("pub/changed", "saved: changed"),
    ("pub/tree/one", "saved: one"),
    ("pub/tree/in/two", "saved: two"),
    ("pub/tree/in/again", "saved: new"),
];
/// The last one is another name of this.
const FIRST: &str = "pub/new";
const ERRORS: [Errno; 6] =
    [Errno::NOSPC, Errno::IO, Errno::ROFS, Errno::ACCESS, Errno::NAMETOOLONG, Errno::DQUOT];

/// A rescue, and the tree that it is of.
struct Scene {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    path: PathBuf,
    rescue: PathBuf,
}

fn entry(place: &Path, kind: Kind, size: u64) -> Entry {
    Entry {
        place: Text::of(place),
        saved: Text::of(&Path::new("tree").join(place.strip_prefix("/").unwrap())),
        kind,
        mode: if kind == Kind::Directory { 0o555 } else { 0o640 },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified_ns: 1_000_000_000_000_000_001,
        size,
        why: "no room".to_owned(),
        before: fs::symlink_metadata(place).ok().map(|one| numbers(&identity_of(&one))),
        extended: Some(Vec::new()),
        same_as: None,
    }
}

impl Scene {
    fn new() -> Scene {
        // Memory, if there is such a place that has attributes of users: there are thousands of
        // these.
        let bases = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let takes = |base: &&PathBuf| {
            let file = tempfile::NamedTempFile::new_in(base);
            file.is_ok_and(|file| setxattr(file.path(), "user.k", b"v", XattrFlags::CREATE).is_ok())
        };
        let base = bases.iter().find(takes).expect("a directory for user attributes");
        let scratch = tempfile::tempdir_in(base).unwrap();
        let base = fs::canonicalize(scratch.path()).unwrap();
        let (path, rescue) = (base.join("tree"), base.join("husk-rescue-test"));
        for directory in [&path.join("pub"), &path.join("other"), &base.join("outside"), &rescue] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::set_permissions(&rescue, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join("pub/changed"), "host: changed").unwrap();
        for name in ["secret", "inner", "new", "changed", "tree"] {
            let one = base.join("outside").join(name);
            fs::write(&one, "outside").unwrap();
            fs::set_permissions(&one, fs::Permissions::from_mode(0o604)).unwrap();
        }
        let scene = Scene { _scratch: scratch, base, path, rescue };
        let mut list = String::new();
        let mut add = |name: &str, kind, size: usize| {
            let mut entry = entry(&scene.path.join(name), kind, size as u64);
            if kind == Kind::File {
                let value = (Bytes::of(b"user.k"), Bytes::of(b"value\xff"));
                entry.extended = Some(vec![value]);
            }
            entry.same_as = name.ends_with("again").then(|| Text::of(&scene.path.join(FIRST)));
            list += &(serde_json::to_string(&entry).unwrap() + "\n");
            scene.saved(name)
        };
        for name in ["pub/tree", "pub/tree/in"] {
            fs::create_dir_all(add(name, Kind::Directory, 0)).unwrap();
        }
        for (name, text) in SAVED {
            let saved = add(name, Kind::File, text.len());
            match name.ends_with("again") {
                true => fs::hard_link(scene.saved(FIRST), saved).unwrap(),
                false => fs::write(saved, text).unwrap(),
            }
        }
        symlink("new", add("pub/link", Kind::Symlink, 0)).unwrap();
        fs::write(scene.rescue.join(LIST), list).unwrap();
        scene
    }

    fn saved(&self, name: &str) -> PathBuf {
        self.rescue.join("tree").join(self.path.join(name).strip_prefix("/").unwrap())
    }

    /// Restores while `plan` is asked at each host call.
    fn restore(&self, plan: impl FnMut(&'static str) -> io::Result<()> + 'static) -> Restored {
        let rescue = Rescue::open(&self.rescue).unwrap();
        let restored = schedule::during(plan, || rescue.restore(&[]));
        restored.unwrap_or_else(|failure| Restored {
            left: vec![failure.to_string()],
            ..Restored::default()
        })
    }

    /// What is saved is in its place or saved, whole; what the host had is there until it is.
    #[track_caller]
    fn judge(&self, what: &str) {
        let read = |path: &Path| fs::read_to_string(path).ok();
        for (name, text) in SAVED {
            let (there, saved) = (read(&self.path.join(name)), read(&self.saved(name)));
            let (there, saved) = (there.as_deref(), saved.as_deref());
            assert!(there == Some(text) || saved == Some(text), "{what}: {name} is lost");
            let host = (*name == "pub/changed").then_some("host: changed");
            assert!(there == Some(text) || there == host, "{what}: {name} is {there:?}");
        }
        let links = [self.path.join("pub/link"), self.saved("pub/link")];
        let there = links.map(|link| fs::read_link(link).ok() == Some("new".into()));
        assert!(there.contains(&true), "{what}: the link is lost");
    }

    /// All is in its place, and nothing else is left anywhere.
    #[track_caller]
    fn is_whole(&self, done: &Restored, what: &str) {
        assert!(done.left.is_empty(), "{what}: {done:#?}");
        assert!(done.emptied && !self.rescue.exists(), "{what}: {done:#?}");
        for (name, text) in SAVED {
            assert_eq!(&fs::read_to_string(self.path.join(name)).unwrap(), text, "{what}");
        }
        for name in ["pub/tree", "pub/tree/in", "pub/tree/one", "pub/link"] {
            let found = fs::symlink_metadata(self.path.join(name)).unwrap();
            assert_eq!((found.mtime(), found.mtime_nsec()), (1e9 as i64, 1), "{what}: {name}");
            let mode = match found.is_dir() {
                true => 0o555,
                false => {
                    if found.is_symlink() {
                        0o777
                    } else {
                        0o640
                    }
                }
            };
            assert_eq!(found.mode() & 0o7777, mode, "{what}: {name}");
        }
        let [first, again] = [FIRST, "pub/tree/in/again"].map(|name| self.path.join(name));
        let number = |path: &Path| fs::metadata(path).unwrap().ino();
        // Unless that has been told.
        let told = what.contains("a file of its own now");
        assert!(told || number(&first) == number(&again), "{what}");
        let mut value = [0; 16];
        let length = getxattr(&first, "user.k", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"value\xff", "{what}");
        let names = tree(&self.path).into_keys();
        let left = names.filter(|name| name.to_string_lossy().contains(".husk-")).count();
        assert_eq!(left, 0, "{what}: {:#?}", tree(&self.path));
    }

    /// Gives the temporary names of this process those of one that is gone.
    fn maker_is_gone(&self) {
        let own = format!("-{}-", std::process::id());
        for path in tree(&self.path).into_keys() {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with(".husk-tmp-") {
                fs::rename(&path, path.with_file_name(name.replace(&own, "-4294967294-"))).unwrap();
            }
        }
    }
}

#[test]
fn whichever_host_calls_of_a_restore_fail_nothing_is_lost_and_the_next_one_finishes() {
    let (mut told, mut n, mut reached) = (0, 0, true);
    while reached {
        n += 1;
        assert!(n < CALLS_MAX);
        for (errno, on) in ERRORS.into_iter().flat_map(|errno| [(errno, false), (errno, true)]) {
            let scene = Scene::new();
            let count = Rc::new(Cell::new(0));
            let seen = Rc::clone(&count);
            let done = scene.restore(move |_| {
                count.set(count.get() + 1);
                let fails = count.get() == n || on && count.get() > n;
                if fails { Err(errno.into()) } else { Ok(()) }
            });
            reached = seen.get() >= n;
            let what = format!("{errno:?} at host call {n}, on: {on}: {done:#?}");
            scene.judge(&what);
            // What cannot be looked at, and what is of no use and cannot be removed, is no failure.
            told += u32::from(!done.left.is_empty());
            assert!(done.left.iter().all(|line| !line.contains('\n')), "{what}");
            if !done.emptied {
                scene.maker_is_gone();
                let again = scene.restore(|_| Ok(()));
                scene.is_whole(&again, &format!("{what}, again: {again:#?}"));
            }
        }
    }
    assert!(told > n * 4 && n > 50, "{told} of {n} host calls were told");
}

#[test]
fn a_restore_that_is_killed_at_any_host_call_loses_nothing_and_the_next_one_finishes() {
    for n in 1.. {
        assert!(n < CALLS_MAX);
        let (scene, mut calls) = (Scene::new(), 0);
        let plan = move |_| {
            calls += 1;
            if calls == n { resume_unwind(Box::new("killed")) } else { Ok(()) }
        };
        let done = catch_unwind(AssertUnwindSafe(|| scene.restore(plan)));
        scene.judge(&format!("killed at call {n}"));
        if let Ok(done) = done {
            assert!(n > 50, "{n} host calls");
            return scene.is_whole(&done, "not killed");
        }
        scene.maker_is_gone();
        if scene.rescue.exists() {
            let again = scene.restore(|_| Ok(()));
            scene.is_whole(&again, &format!("killed at call {n}, again"));
        }
    }
}

#[test]
fn an_adversary_beside_every_host_call_of_a_restore_reaches_nothing_outside() {
    for (what, act) in MOVES {
        for openat2 in [true, false] {
            let (mut n, mut reached) = (0, true);
            while reached {
                n += 1;
                assert!(n < CALLS_MAX);
                let scene = Scene::new();
                let before = outside_of(&scene.path);
                let (count, path) = (Rc::new(Cell::new(0)), scene.path.clone());
                let seen = Rc::clone(&count);
                let done = scene.restore(move |call| {
                    count.set(count.get() + 1);
                    if count.get() == n {
                        act(&path).unwrap();
                    }
                    if call == "openat2" && !openat2 { Err(Errno::NOSYS.into()) } else { Ok(()) }
                });
                reached = seen.get() >= n;
                let what = format!("{what} before call {n}, openat2: {openat2}: {done:#?}");
                assert_eq!(outside_of(&scene.path), before, "{what}");
                // Wherever the adversary has put it.
                let found = tree(&scene.base);
                let there = |text: &str| found.values().any(|one| one.3 == text.as_bytes());
                for (name, text) in SAVED {
                    assert!(there(text), "{what}: {name} is lost");
                    // What the adversary has before it has its name is no place for it.
                    let named = |path: &PathBuf| !path.to_string_lossy().contains("stolen");
                    let kept = found.iter().any(|(at, one)| named(at) && one.3 == text.as_bytes());
                    assert!(kept, "{what}: {name} is only where somebody took it");
                }
                assert!(there("host: changed") || there("saved: changed"), "{what}");
            }
            assert!(n > 50, "{n} host calls");
        }
    }
}
