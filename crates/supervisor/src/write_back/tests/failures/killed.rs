//! A write-back is killed before each of its host calls, and so is the one that recovers it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use husk_proto::Fs;
use husk_proto::fs::{Change, Time};

use crate::output::progress::Progress;
use crate::write_back::Outcome;
use crate::write_back::host::beneath::schedule;
use crate::write_back::record::manifest;
use crate::write_back::record::manifest::Pending;
use crate::write_back::record::recover;
use crate::write_back::tests::others::adversary::{as_expected, scene};
use crate::write_back::tests::{Scene, bring_with, who};

/// More host calls than there are.
const CALLS_MAX: u32 = 5000;

/// Does `work`, which is killed before its n-th host call; `None`: it was.
pub(crate) fn killed_at<T>(n: u32, work: impl FnOnce() -> T) -> Option<T> {
    let mut calls = 0;
    let plan = move |_| {
        calls += 1;
        if calls == n { resume_unwind(Box::new("killed")) } else { Ok(()) }
    };
    catch_unwind(AssertUnwindSafe(|| schedule::during(plan, work))).ok()
}

/// Paths with what a user can tell apart: mode, times, content.
pub type Tree = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>;

/// Everything below that a user can tell apart: kind, mode, content, and when it was changed.
pub fn tree(top: &Path) -> Tree {
    let (mut open, mut found) = (vec![top.to_owned()], BTreeMap::new());
    while let Some(path) = open.pop() {
        let one = fs::symlink_metadata(&path).unwrap();
        let content = match one.file_type() {
            kind if kind.is_file() => fs::read(&path).unwrap(),
            kind if kind.is_symlink() => {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            kind if kind.is_dir() => {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            _ => Vec::new(),
        };
        found.insert(path, (one.mode(), one.mtime(), one.mtime_nsec(), content));
    }
    found
}

pub fn without_times(tree: Tree) -> Tree {
    let timeless = |(path, one): (PathBuf, (u32, i64, i64, Vec<u8>))| (path, (one.0, 0, 0, one.3));
    tree.into_iter().map(timeless).collect()
}

pub fn pending(scene: &Scene) -> Option<Pending> {
    let mut all = manifest::pending(&[scene.scratch.path().join("manifests")]);
    assert!(all.len() <= 1, "{all:#?}");
    all.pop()
}

/// A scene whose write-back was killed before call `n`; `None`: it was not, as it has fewer.
fn killed_scene(n: u32, live: bool) -> (Scene, Option<Outcome>) {
    assert!(n < CALLS_MAX);
    let mut scene = scene(n);
    let outcome = killed_at(n, || scene.bring_here(live));
    (scene, outcome)
}

#[test]
fn what_is_killed_at_any_host_call_goes_forward_to_all_that_is_new() {
    let mut ready = 0;
    for n in 1.. {
        let (scene, outcome) = killed_scene(n, false);
        if outcome.is_some() {
            break;
        }
        let Some(pending) = pending(&scene) else { continue };
        if !pending.ready {
            recover::abandon(pending);
            scene.assert_no_temporary_names();
            continue;
        }
        ready += 1;
        let told = recover::forward(pending).unwrap();
        assert!(told.lines.is_empty(), "call {n}: {told:#?}");
        as_expected(&scene, &Outcome::default(), &format!("forward from call {n}"));
        scene.assert_no_temporary_names();
    }
    assert!(ready > 50, "{ready} kills when there was something to recover");
}

#[test]
fn what_is_killed_at_any_host_call_goes_back_to_all_that_is_old() {
    let (mut undone, mut past) = (0, 0);
    for n in 1.. {
        let mut scene = scene(n);
        let before = tree(&scene.path);
        if killed_at(n, || scene.bring_here(false)).is_some() {
            break;
        }
        let Some(one) = pending(&scene) else { continue };
        if !one.ready {
            recover::abandon(one);
            // Temporary names that came and went are all that a directory shows.
            assert_eq!(without_times(tree(&scene.path)), without_times(before), "call {n}");
            continue;
        } else if let Some(told) = recover::back(one) {
            undone += 1;
            assert!(told.lines.is_empty(), "call {n}: {told:#?}");
        } else {
            past += 1;
            // It says so, and leaves all as it is.
            let told = recover::forward(pending(&scene).unwrap()).unwrap();
            assert!(told.lines.is_empty(), "call {n}: {told:#?}");
            as_expected(&scene, &Outcome::default(), &format!("forward from call {n}"));
            continue;
        }
        assert_eq!(tree(&scene.path), before, "back from call {n}");
    }
    assert!(undone > 20 && past > 10, "{undone} undone, {past} too late");
}

/// Files of the host that are moved, with their directory, or linked, and get other attributes.
fn moved_scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(|path| {
        fs::create_dir(path.join("d")).unwrap();
        for name in ["d/f", "d/g", "moving", "linking"] {
            fs::write(path.join(name), format!("host: {name}")).unwrap();
        }
    });
    let modified = Some(Time::At(1_000_000_007));
    let other = [
        ("d/f", Change { mode: Some(0o600), ..Change::default() }),
        ("d/g", Change { modified, ..Change::default() }),
        ("moving", Change { mode: Some(0o640), modified, ..Change::default() }),
        ("linking", Change { mode: Some(0o600), modified, ..Change::default() }),
    ];
    for (name, change) in other {
        let inode = scene.at(name);
        scene.direct.change(&who(), inode, change).unwrap();
    }
    scene.rename("moving", "moved");
    let inode = scene.at("linking");
    let (dir, name) = scene.split("linked");
    scene.direct.link(&who(), inode, dir, name).unwrap();
    scene.rename("d", "e");
    scene
}

/// Without the directory of all, whose time temporary names change.
fn moved_tree(scene: &Scene) -> Tree {
    let mut found = tree(&scene.path);
    found.remove(&scene.path);
    found
}

#[test]
fn other_attributes_of_what_is_moved_come_and_go_with_the_other_steps() {
    let new = {
        let mut scene = moved_scene(0);
        let outcome = scene.bring_here(false);
        assert!(outcome.is_complete(), "{outcome:#?}");
        let found = moved_tree(&scene);
        let facts = |name: &str| found[&scene.path.join(name)].clone();
        assert_eq!(facts("e/f").0 & 0o7777, 0o600);
        assert_eq!((facts("e/g").1, facts("moved").1), (1, 1));
        assert_eq!(
            (facts("linked").0 & 0o7777, facts("linked").3),
            (0o600, b"host: linking".into())
        );
        found.into_values().map(|one| (one.0, one.3)).collect::<Vec<_>>()
    };
    let (mut ready, mut undone, mut changed) = (0, 0, 0);
    for n in (1..).flat_map(|n| [n, n]) {
        let mut scene = moved_scene(n);
        let before = moved_tree(&scene);
        if killed_at(n, || scene.bring_here(false)).is_some() {
            break;
        }
        let is_new = |scene: &Scene| {
            let now = moved_tree(scene).into_values().map(|one| (one.0, one.3));
            now.collect::<Vec<_>>() == new
        };
        match pending(&scene) {
            None => {
                let now = moved_tree(&scene);
                assert!(without_times(now) == without_times(before) || is_new(&scene), "call {n}");
            }
            Some(one) if !one.ready => {
                recover::abandon(one);
                assert_eq!(moved_tree(&scene), before, "not ready, call {n}");
            }
            Some(one) => {
                ready += 1;
                changed += u32::from(moved_tree(&scene) != before);
                let back = ready % 2 == 0;
                let told = if back { recover::back(one) } else { recover::forward(one) };
                match told {
                    Some(told) => {
                        assert!(told.lines.is_empty(), "call {n}, back {back}: {told:#?}");
                        undone += u32::from(back);
                        let as_it_was = moved_tree(&scene) == before;
                        assert_eq!((as_it_was, is_new(&scene)), (back, !back), "call {n}");
                    }
                    None => drop(recover::forward(pending(&scene).unwrap()).unwrap()),
                }
            }
        }
    }
    assert!(undone > 10 && changed > 20, "{undone} undone, {changed} in the middle of {ready}");
}

#[test]
fn who_recovers_may_be_killed_and_another_goes_on_or_turns_back() {
    // In the middle of the names that change hands.
    let middle = (1..).find(|&n| {
        let (scene, _) = killed_scene(n, false);
        let pending = pending(&scene);
        pending.is_some_and(|one| one.ready && recover::steps_done(&one) >= 5)
    });
    let middle = middle.unwrap();
    for m in 1.. {
        let mut scene = scene(m);
        let before = tree(&scene.path);
        killed_at(middle, || scene.bring_here(false));
        let first = pending(&scene).unwrap();
        let back_first = m % 2 == 0;
        let over = match back_first {
            true => killed_at(m, || recover::back(first)).is_some(),
            false => killed_at(m, || recover::forward(first)).is_some(),
        };
        if over && m > 100 {
            break;
        }
        let Some(second) = pending(&scene) else { continue };
        let told = if m % 4 < 2 { recover::back(second) } else { recover::forward(second) };
        match told {
            Some(told) => assert!(told.lines.is_empty(), "call {m}: {told:#?}"),
            // Too far in one direction: the other one is left.
            None if m % 4 < 2 => drop(recover::forward(pending(&scene).unwrap()).unwrap()),
            None => drop(recover::back(pending(&scene).unwrap()).unwrap()),
        }
        let (changed, now) = (scene.path.join("pub/changed"), tree(&scene.path));
        if now.get(&changed) == before.get(&changed) {
            // A file that was cut and not yet given its time back may be anybody's.
            assert_eq!(without_times(now), without_times(before), "back from call {m}");
        } else {
            as_expected(&scene, &Outcome::default(), &format!("forward from call {m}"));
        }
    }
}

#[test]
fn what_somebody_changed_after_the_kill_stays_and_is_told() {
    let (scene, _) = (1..)
        .map(|n| killed_scene(n, false))
        .find(|(scene, _)| pending(scene).is_some_and(|one| one.ready))
        .unwrap();
    fs::write(scene.path.join("pub/changed"), "theirs").unwrap();
    fs::write(scene.path.join("pub/new"), "theirs").unwrap();
    let told = recover::forward(pending(&scene).unwrap()).unwrap();
    for name in ["pub/changed", "pub/new"] {
        assert_eq!(scene.host(name), "theirs");
        let ours = format!("ours: {}", &name[4..]);
        assert_eq!(scene.host(&format!("{name}.husk-{}", crate::write_back::tests::RUN)), ours);
        assert!(told.lines.iter().any(|line| line.contains(name)), "{told:#?}");
    }
    assert_eq!(scene.host("pub/moving"), "host: moving", "nothing goes then");
}

#[test]
fn the_next_write_back_of_the_same_image_goes_on() {
    for n in (1..).step_by(7) {
        let (mut scene, outcome) = killed_scene(n, true);
        let outcome = outcome.is_none().then(|| scene.bring_here(true));
        let Some(outcome) = outcome else { break };
        assert!(outcome.is_complete(), "call {n}: {outcome:#?}");
        as_expected(&scene, &outcome, &format!("killed at call {n}"));
        assert!(pending(&scene).is_none());
    }
}

#[test]
fn who_looks_at_what_was_killed_is_in_nobodys_way() {
    let (scene, _) = (1..)
        .map(|n| killed_scene(n, false))
        .find(|(scene, _)| pending(scene).is_some_and(|one| one.ready))
        .unwrap();
    let looked = manifest::looked_at(&[scene.scratch.path().join("manifests")]);
    assert!(!looked[0].is_busy() && looked[0].ready);
    let taken = pending(&scene).unwrap();
    assert!(!taken.is_busy());
    let again = manifest::looked_at(&[scene.scratch.path().join("manifests")]);
    assert!(again[0].is_busy(), "somebody recovers it");
    assert!(recover::forward(taken).unwrap().lines.is_empty());
}

#[test]
fn a_file_that_grew_in_part_goes_both_ways() {
    for way in 0..4 {
        let (scene, before) = (1..)
            .map(|n| {
                let mut scene = scene(n);
                let before = tree(&scene.path);
                killed_at(n, || scene.bring_here(false));
                (scene, before)
            })
            .find(|(scene, _)| pending(scene).is_some_and(|one| one.ready))
            .unwrap();
        let grown = scene.path.join("pub/grown");
        let mut text = fs::read_to_string(&grown).unwrap();
        // A part of it, or what somebody else has put there.
        text.push_str(if way < 2 { ", o" } else { "theirs" });
        let mut file = fs::OpenOptions::new().append(true).open(&grown).unwrap();
        file.write_all(&text.as_bytes()[text.len() - (if way < 2 { 3 } else { 6 })..]).unwrap();
        let one = pending(&scene).unwrap();
        let told = if way % 2 == 0 { recover::forward(one) } else { recover::back(one) };
        let told = told.unwrap();
        assert_eq!(told.lines.is_empty(), way < 2, "{told:#?}");
        match way {
            0 => as_expected(&scene, &Outcome::default(), "forward"),
            1 => assert_eq!(tree(&scene.path), before),
            _ => assert_eq!(scene.host("pub/grown"), "host: growntheirs"),
        }
    }
}

#[test]
fn what_somebody_put_into_a_directory_after_the_kill_stays() {
    let (scene, _) = (1..)
        .map(|n| killed_scene(n, false))
        .find(|(scene, _)| pending(scene).is_some_and(|one| one.ready))
        .unwrap();
    // Of the manifest and of what came later the host's clock says the same for some ms.
    crate::write_back::tests::settle();
    for name in ["was-dir", "gone-dir"] {
        fs::write(scene.path.join("pub").join(name).join("late"), "precious").unwrap();
    }
    let told = recover::forward(pending(&scene).unwrap()).unwrap();
    for name in ["pub/was-dir", "pub/gone-dir"] {
        assert_eq!(scene.host(&format!("{name}/late")), "precious");
    }
    assert!(told.lines.iter().any(|line| line.contains("pub/was-dir")), "{told:#?}");
    assert_eq!(scene.host("pub/was-dir.husk-77"), "ours: was-dir");
}

#[test]
fn who_is_told_to_stop_before_a_name_changes_changes_nothing() {
    let mut stopped = 0;
    for n in (1..).step_by(5) {
        let mut scene = scene(n);
        let before = without_times(tree(&scene.path));
        let (progress, mut calls) = (Arc::<Progress>::default(), 0);
        let told = Arc::clone(&progress);
        let plan = move |_| {
            calls += 1;
            if calls == n {
                told.stop();
            }
            Ok(())
        };
        let outcome = schedule::during(plan, || bring_with(scene.parts(), false, &[], &progress));
        scene.assert_no_temporary_names();
        assert!(pending(&scene).is_none());
        if outcome.untouched {
            stopped += 1;
            assert_eq!(without_times(tree(&scene.path)), before, "stopped at call {n}");
            let outcome = scene.bring_here(false);
            // What was made and removed again has changed the times of directories: one that the
            // image moved may stay under its old name, too.
            assert!(outcome.failures.is_empty() && outcome.busy.is_empty(), "{outcome:#?}");
            let kept = |line: &String| line.contains("that is kept");
            assert!(outcome.conflicts.iter().all(kept), "{outcome:#?}");
            if !outcome.conflicts.is_empty() {
                continue;
            }
        } else if !progress.is_stopped() {
            break;
        }
        as_expected(&scene, &Outcome::default(), &format!("stopped at call {n}"));
    }
    assert!(stopped > 10, "{stopped} times");
}

/// What somebody closes before the recovery stays closed, whichever way it goes.
#[test]
fn rights_that_are_changed_before_a_recovery_stay() {
    let mut ready = 0;
    for n in 1_u32.. {
        if n.is_multiple_of(32) {
            Scene::renew_the_image();
        }
        let mut scene = Scene::at_once(|path| {
            for name in ["appended", "touched", "renamed"] {
                fs::write(path.join(name), "imported").unwrap();
            }
        });
        // One step alone needs no notes.
        scene.at("renamed");
        scene.rename("renamed", "new-name");
        scene.append("appended", b", ours");
        let touched = scene.at("touched");
        let change = Change { modified: Some(Time::At(1_000_000_000)), ..Change::default() };
        scene.direct.change(&who(), touched, change).unwrap();
        if killed_at(n, || scene.bring_here(false)).is_some() {
            break;
        }
        let Some(one) = pending(&scene).filter(|one| one.ready) else { continue };
        let closed = fs::Permissions::from_mode(0o600);
        for name in ["appended", "touched"] {
            fs::set_permissions(scene.path.join(name), closed.clone()).unwrap();
        }
        let back = n % 2 == 0 && recover::is_undoable(&one);
        ready += 1;
        let told = if back { recover::back(one) } else { recover::forward(one) }.unwrap();
        assert!(told.lines.is_empty(), "call {n}, back: {back}: {told:#?}");
        let kept = if back { "imported" } else { "imported, ours" };
        assert_eq!(scene.host("appended"), kept, "call {n}, back: {back}");
        for name in ["appended", "touched"] {
            let mode = fs::metadata(scene.path.join(name)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}, call {n}, back: {back}");
        }
    }
    assert!(ready > 10, "{ready} kills when there was something to recover");
}
