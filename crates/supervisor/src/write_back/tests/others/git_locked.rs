//! git on the host, beside a write-back that replaces the index.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha1::{Digest, Sha1};

use crate::write_back::host::beneath::schedule;
use crate::write_back::plan::derived;
use crate::write_back::record::recover;
use crate::write_back::tests::Scene;
use crate::write_back::tests::failures::killed::{killed_at, pending};
use crate::write_back::tests::failures::leftovers::dead;
use crate::write_back::{Outcome, host};

/// More host calls than there are.
const CALLS_MAX: u32 = 2000;

/// An image that has written an index anew, and another file.
fn scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(|path| {
        fs::create_dir(path.join(".git")).unwrap();
        fs::write(path.join(".git/index"), "before").unwrap();
    });
    scene.rewrite(".git/index", b"ours");
    scene.write("file", b"ours: file");
    scene
}

/// Everything that is in the repository's directory, by name.
fn names(scene: &Path) -> Vec<String> {
    let all = fs::read_dir(scene.join(".git")).unwrap().map(Result::unwrap);
    let mut all: Vec<_> = all.map(|one| one.file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// git that refreshes the index: takes the lock, reads, and some calls later renames.
fn git(path: PathBuf, begin: u32, end: u32) -> impl FnMut(u32) {
    let (lock, index) = (path.join(".git/index.lock"), path.join(".git/index"));
    let held = Cell::new(false);
    move |n| {
        if n == begin && fs::File::create_new(&lock).is_ok() {
            held.set(true);
            let old = fs::read_to_string(&index).unwrap_or_default();
            fs::write(&lock, format!("{old}, refreshed")).unwrap();
        }
        if n == end && held.take() {
            fs::rename(&lock, &index).unwrap();
        }
    }
}

fn beside(
    scene: &mut Scene,
    live: bool,
    mut act: impl FnMut(u32, &'static str) + 'static,
) -> (u32, Outcome) {
    let count = Rc::new(Cell::new(0));
    let seen = Rc::clone(&count);
    let plan = move |call| {
        count.set(count.get() + 1);
        act(count.get(), call);
        Ok(())
    };
    let outcome = schedule::during(plan, || scene.bring_here(live));
    (seen.get(), outcome)
}

#[test]
fn an_index_that_git_has_read_is_not_replaced_before_git_has_written_it() {
    let mut held = 0;
    for calls in [1, 3, 10, 40, CALLS_MAX] {
        for n in 1.. {
            let scene = &mut scene(n);
            let mut git = git(scene.path.clone(), n, n + calls);
            let (all, outcome) = beside(scene, false, move |n, _| git(n));
            let what = format!("git from call {n} to {}: {outcome:#?}", n + calls);
            let there = scene.host(".git/index");
            let kept = scene.host(".git/index.husk-77");
            match &*there {
                "ours" | "ours, refreshed" => assert!(outcome.is_complete(), "{what}"),
                _ => {
                    held += 1;
                    assert!(there.starts_with("before"), "{there} {what}");
                    assert_eq!((&*kept, outcome.conflicts.len()), ("ours", 1), "{what}");
                    let told = &outcome.conflicts[0];
                    assert!(told.contains("take it: mv -T"), "{what}");
                }
            }
            scene.assert_no_temporary_names();
            let lock = scene.path.join(".git/index.lock");
            let left = fs::read_to_string(&lock).unwrap_or_else(|_| "git's".into());
            assert!(!left.is_empty(), "the lock is left: {what}");
            if n > all {
                break;
            }
        }
    }
    assert!(held > 100, "{held} times git was first");
}

#[test]
fn while_the_index_changes_hands_git_can_take_no_lock() {
    let scene = &mut scene(1);
    let index = scene.path.join(".git/index");
    let lock = scene.path.join(".git/index.lock");
    let seen = Rc::new(RefCell::new(Vec::new()));
    let looks = Rc::clone(&seen);
    let (_, outcome) = beside(scene, false, move |_, call| {
        let text = fs::read_to_string(&index).unwrap_or_default();
        looks.borrow_mut().push((call, text, lock.exists()));
    });
    assert!(outcome.is_complete(), "{outcome:#?}");
    let seen = seen.borrow();
    let after = seen.iter().position(|(_, text, _)| text == "ours").unwrap();
    assert!(seen[after].2 && seen[after - 1].2, "{:?}", &seen[after - 1..=after]);
    assert_eq!(names(&scene.path), ["index"]);
}

#[test]
fn a_write_back_waits_for_a_lock_and_a_sync_writes_the_next_time() {
    let scene = &mut scene(1);
    let lock = scene.path.join(".git/index.lock");
    fs::write(&lock, "git's").unwrap();
    let outcome = scene.sync();
    assert_eq!((outcome.busy.len(), outcome.failures.len()), (1, 0), "{outcome:#?}");
    assert!(outcome.busy[0].contains("if no git runs there: rm "), "{outcome:#?}");
    assert_eq!((&*scene.host(".git/index"), &*scene.host("file")), ("before", "ours: file"));
    assert_eq!(names(&scene.path), ["index", "index.lock"]);
    // It is given up after the first look.
    let mut links = 0;
    let (_, outcome) = beside(scene, true, move |_, call| {
        links += u32::from(call == "linkat");
        if links == 2 {
            let _ = fs::remove_file(&lock);
        }
    });
    assert!(outcome.is_complete(), "{outcome:#?}");
    assert_eq!((&*scene.host(".git/index"), names(&scene.path)), ("ours", vec!["index".into()]));
}

/// An index of one file, whose object is `object`, and what it remembers of the file's time.
fn index(object: u8, time: u8) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    bytes.extend([0; 7].iter().chain(&[time]).chain(&[0; 16]));
    bytes.extend(0o100_644_u32.to_be_bytes());
    bytes.extend([0; 12].iter().chain(&[object; 20]));
    bytes.extend(b"\0\x04file\0\0\0\0\0\0");
    bytes.extend(Sha1::digest(&bytes));
    bytes
}

/// The object and the time of an index.
fn said(index: &[u8]) -> (u8, u8) {
    (index[12 + 40], index[12 + 7])
}

fn commit(scene: &mut Scene, object: u8) {
    scene.write(".git/index.lock", &index(object, 0));
    scene.rename(".git/index.lock", ".git/index");
}

#[test]
fn a_refresh_at_any_moment_of_a_sync_is_no_conflict_in_it_or_in_the_next() {
    let mut replaced = 0;
    for calls in [1, 3, CALLS_MAX] {
        for n in 1_u32.. {
            if n.is_multiple_of(32) {
                Scene::renew_the_image();
            }
            let scene = &mut Scene::at_once(|path| {
                fs::create_dir(path.join(".git")).unwrap();
                fs::write(path.join(".git/index"), index(1, 0)).unwrap();
            });
            scene.at(".git/index");
            let path = scene.path.join(".git/index");
            assert!(derived::remember(&path, &host::identity_of(&path.metadata().unwrap())));
            commit(scene, 2);
            let lock = path.with_extension("lock");
            let (held, target) = (Cell::new(false), path.clone());
            let (all, outcome) = beside(scene, true, move |call, _| {
                if call == n && fs::File::create_new(&lock).is_ok() {
                    let object = said(&fs::read(&target).unwrap()).0;
                    fs::write(&lock, index(object, 9)).unwrap();
                    held.set(true);
                }
                if call == n + calls && held.take() {
                    fs::rename(&lock, &target).unwrap();
                }
            });
            let what = format!("git from call {n} to {}: {outcome:#?}", n + calls);
            assert!(outcome.conflicts.is_empty() && outcome.failures.is_empty(), "{what}");
            replaced += u32::from(said(&fs::read(&path).unwrap()) == (2, 9));
            let _ = fs::remove_file(path.with_extension("lock"));
            commit(scene, 3);
            let next = scene.bring_here(true);
            assert!(next.is_complete(), "{what}, then {next:#?}");
            assert_eq!(said(&fs::read(&path).unwrap()).0, 3, "{what}");
            assert_eq!(names(&scene.path), ["index"], "{what}");
            if n > all {
                break;
            }
        }
    }
    assert!(replaced > 3, "{replaced} times the new index was refreshed at once");
}

#[test]
fn whoever_is_killed_leaves_no_lock_once_it_is_recovered() {
    let mut held = 0;
    for n in 1.. {
        let mut scene = scene(n);
        if killed_at(n, || scene.bring_here(false)).is_some() {
            break;
        }
        held += u32::from(scene.path.join(".git/index.lock").exists());
        let Some(one) = pending(&scene) else { continue };
        let forward = n % 2 == 0;
        let told = match (one.ready, forward) {
            (false, _) => {
                recover::abandon(one);
                None
            }
            (true, true) => recover::forward(one),
            (true, false) => recover::back(one).or_else(|| recover::forward(pending(&scene)?)),
        };
        let lines = told.unwrap_or_default().lines;
        assert!(lines.is_empty(), "killed at call {n}: {lines:#?}");
        assert_eq!(names(&scene.path), ["index"], "killed at call {n}");
        scene.assert_no_temporary_names();
    }
    assert!(held > 5, "{held} kills with the lock held");
}

#[test]
fn a_lock_that_a_killed_write_back_has_left_is_removed_and_no_other() {
    let scene = &mut scene(1);
    let left = dead(&scene.path.join(".git"));
    let make = |path: &Path| {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    make(&left);
    fs::hard_link(&left, scene.path.join(".git/index.lock")).unwrap();
    make(&scene.path.join(".git/HEAD.lock"));
    assert!(scene.write_back().is_complete());
    assert_eq!(names(&scene.path), ["HEAD.lock", "index"]);
}
