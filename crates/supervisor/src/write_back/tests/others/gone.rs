//! What the host puts into directories that the image removes or moves stays, whatever the clocks
//! say, and at whichever moment it comes.

use std::cell::Cell;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use husk_proto::Fs;

use crate::write_back::host::beneath::schedule;
use crate::write_back::record::{manifest, recover};
use crate::write_back::tests::{Scene, complete, who};

/// As much as a clock is wrong.
const HOUR_NS: i64 = 3_600_000_000_000;

/// A tree of two levels in `d`.
fn two_levels(path: &Path) {
    fs::create_dir_all(path.join("d/e")).unwrap();
    fs::write(path.join("d/x"), "x").unwrap();
    fs::write(path.join("d/e/y"), "y").unwrap();
}

/// `rm -r d` in the image.
fn remove_two_levels(scene: &mut Scene) {
    scene.unlink("d/e/y");
    scene.unlink("d/x");
    for path in ["d/e", "d"] {
        remove_directory(scene, path);
    }
}

fn remove_directory(scene: &mut Scene, path: &str) {
    let (dir, name) = scene.split(path);
    scene.direct.rmdir(&who(), dir, name).unwrap();
}

/// Does `act` before the first rename of `work`.
fn before_the_first_rename<T>(act: impl Fn() + 'static, work: impl FnOnce() -> T) -> T {
    let mut done = false;
    let plan = move |call: &'static str| -> io::Result<()> {
        if call == "renameat2" && !std::mem::replace(&mut done, true) {
            act();
        }
        Ok(())
    };
    schedule::during(plan, work)
}

#[test]
fn what_came_after_the_start_by_a_clock_that_is_behind_stays() {
    let mut scene = Scene::new(two_levels);
    remove_two_levels(&mut scene);
    fs::write(scene.path.join("d/late"), "precious").unwrap();
    fs::create_dir(scene.path.join("d/e/new")).unwrap();
    fs::write(scene.path.join("d/e/new/late"), "too").unwrap();
    // For the host's file system it is an hour before.
    scene.started_ns += HOUR_NS;
    let outcome = scene.write_back();
    assert_eq!((outcome.conflicts.len(), outcome.failures.len()), (1, 0), "{outcome:?}");
    assert_eq!(scene.host("d/late"), "precious");
    assert_eq!(scene.host("d/e/new/late"), "too");
    assert!(!scene.path.join("d/x").exists(), "what the image saw and removed goes");
    assert!(!scene.path.join("d/e/y").exists());
}

#[test]
fn what_was_changed_after_the_start_by_a_clock_that_is_behind_stays() {
    let mut scene = Scene::new(two_levels);
    remove_two_levels(&mut scene);
    fs::write(scene.path.join("d/e/y"), "another length").unwrap();
    scene.started_ns += HOUR_NS;
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d/e/y"), "another length");
    assert!(!scene.path.join("d/x").exists());
}

#[test]
fn what_came_into_a_moved_directory_by_a_clock_that_is_behind_stays() {
    let mut scene = Scene::new(two_levels);
    scene.at("d/e/y");
    scene.rename("d", "moved");
    fs::write(scene.path.join("d/e/late"), "precious").unwrap();
    scene.started_ns += HOUR_NS;
    let outcome = scene.write_back();
    assert_eq!((outcome.conflicts.len(), outcome.failures.len()), (1, 0), "{outcome:?}");
    assert_eq!(scene.host("d/e/late"), "precious");
    assert_eq!((scene.host("moved/x"), scene.host("moved/e/y")), ("x".into(), "y".into()));
    assert!(!scene.path.join("d/x").exists() && !scene.path.join("d/e/y").exists());
}

#[test]
fn what_the_host_moved_there_stays_with_all_the_old_files_in_it() {
    let mut scene = Scene::new(|path| {
        two_levels(path);
        fs::create_dir(path.with_file_name("old")).unwrap();
        fs::write(path.with_file_name("old").join("file"), "precious").unwrap();
    });
    remove_two_levels(&mut scene);
    fs::rename(scene.path.with_file_name("old"), scene.path.join("d/old")).unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d/old/file"), "precious");
    assert!(!scene.path.join("d/e").exists());
}

/// From another directory of the same tree, which the image knows well.
#[test]
fn a_directory_that_the_host_moves_into_a_removed_one_stays_whatever_is_in_it() {
    let mut scene = Scene::new(|path| {
        two_levels(path);
        fs::create_dir(path.join("known")).unwrap();
        fs::write(path.join("known/one"), "precious").unwrap();
        fs::hard_link(path.join("known/one"), path.join("known/two")).unwrap();
    });
    scene.at("known");
    scene.write("known/synced", b"precious");
    complete(&scene.sync());
    remove_two_levels(&mut scene);
    fs::rename(scene.path.join("known"), scene.path.join("d/known")).unwrap();
    fs::write(scene.path.join("d/known/new"), "theirs").unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    for name in ["one", "two", "synced"] {
        assert_eq!(scene.host(&format!("d/known/{name}")), "precious", "{outcome:#?}");
    }
    assert!(!scene.path.join("d/e").exists());
}

#[test]
fn names_of_one_file_that_the_host_moves_into_a_removed_directory_stay() {
    let mut scene = Scene::new(|path| {
        two_levels(path);
        fs::write(path.join("one"), "precious").unwrap();
        fs::hard_link(path.join("one"), path.join("two")).unwrap();
    });
    scene.at("");
    remove_two_levels(&mut scene);
    for name in ["one", "two"] {
        fs::rename(scene.path.join(name), scene.path.join("d/e").join(name)).unwrap();
    }
    // For the host's file system it is an hour before.
    scene.started_ns += HOUR_NS;
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    for name in ["one", "two"] {
        assert_eq!(scene.host(&format!("d/e/{name}")), "precious", "{outcome:#?}");
    }
    assert!(!scene.path.join("d/x").exists());
}

/// The first name of a file is removed, and the second in the next sync: nobody else did that.
#[test]
fn names_of_one_file_that_go_in_two_syncs_are_no_conflict() {
    let mut scene = Scene::new(|path| {
        fs::create_dir_all(path.join("a/in")).unwrap();
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("a/in/one"), "host").unwrap();
        fs::hard_link(path.join("a/in/one"), path.join("d/two")).unwrap();
        fs::hard_link(path.join("a/in/one"), path.join("d/three")).unwrap();
    });
    scene.at("a/in");
    scene.at("d");
    scene.unlink("a/in/one");
    remove_directory(&mut scene, "a/in");
    remove_directory(&mut scene, "a");
    complete(&scene.sync());
    scene.unlink("d/two");
    scene.unlink("d/three");
    remove_directory(&mut scene, "d");
    complete(&scene.sync());
    assert!(!scene.path.join("d").exists());
}

#[test]
fn all_that_the_image_knew_goes_and_what_it_never_looked_into_moves() {
    let mut scene = Scene::new(|path| {
        two_levels(path);
        fs::hard_link(path.join("d/x"), path.join("d/e/again")).unwrap();
        fs::create_dir_all(path.join("unseen/deep/deeper")).unwrap();
        fs::write(path.join("unseen/deep/deeper/z"), "z").unwrap();
        fs::create_dir_all(path.join("half/unseen")).unwrap();
        fs::write(path.join("half/unseen/z"), "z").unwrap();
    });
    scene.unlink("d/e/again");
    remove_two_levels(&mut scene);
    scene.at("half");
    scene.rename("half", "moved-half");
    scene.rename("unseen", "moved");
    complete(&scene.write_back());
    assert!(!scene.path.join("d").exists());
    assert_eq!(scene.host("moved/deep/deeper/z"), "z");
    assert_eq!(scene.host("moved-half/unseen/z"), "z");
    assert!(!scene.path.join("unseen").exists() && !scene.path.join("half").exists());
}

#[test]
fn what_comes_into_a_directory_while_its_removal_is_prepared_stays() {
    let mut scene = Scene::new(two_levels);
    remove_two_levels(&mut scene);
    let late = scene.path.join("d/e/late");
    let outcome = before_the_first_rename(
        move || fs::write(&late, "precious").unwrap(),
        || scene.bring_here(false),
    );
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d/e/late"), "precious");
    scene.assert_no_temporary_names();
}

#[test]
fn what_comes_into_a_directory_while_it_is_replaced_stays() {
    let mut scene = Scene::new(two_levels);
    remove_two_levels(&mut scene);
    scene.write("d", b"ours");
    let late = scene.path.join("d/e/late");
    let outcome = before_the_first_rename(
        move || fs::write(&late, "precious").unwrap(),
        || scene.bring_here(false),
    );
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(scene.host("d/e/late"), "precious");
    assert_eq!(scene.host("d.husk-77"), "ours");
    scene.assert_no_temporary_names();
}

#[test]
fn what_came_after_a_kill_by_a_clock_that_is_behind_is_kept_by_who_recovers() {
    let mut scene = Scene::new(two_levels);
    remove_two_levels(&mut scene);
    scene.write("new", b"ours");
    let killed = || {
        before_the_first_rename(|| resume_unwind(Box::new("killed")), || scene.bring_here(false))
    };
    assert!(catch_unwind(AssertUnwindSafe(killed)).is_err());
    fs::write(scene.path.join("d/e/late"), "precious").unwrap();
    let manifests = scene.scratch.path().join("manifests");
    let file: Vec<PathBuf> =
        fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path()).collect();
    let file = fs::File::options().write(true).open(&file[0]).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    let pending = manifest::pending(&[manifests]).pop().unwrap();
    assert!(pending.ready);
    let told = recover::forward(pending).unwrap();
    assert_eq!(scene.host("d/e/late"), "precious", "{told:?}");
    assert!(told.lines.iter().any(|line| line.contains("/d: ")), "{told:?}");
    assert_eq!(scene.host("new"), "ours");
}

#[test]
fn a_file_whose_other_name_the_host_removes_is_where_the_image_has_moved_it() {
    for (moved, removed) in [("c/a", "c/l"), ("c/l", "c/a")] {
        for live in [false, true] {
            let mut scene = Scene::at_once(|path| {
                fs::create_dir(path.join("c")).unwrap();
                fs::write(path.join("c/a"), "known").unwrap();
                fs::hard_link(path.join("c/a"), path.join("c/l")).unwrap();
            });
            scene.at("c/a");
            scene.at("c/l");
            scene.rename(moved, "x");
            fs::remove_file(scene.path.join(removed)).unwrap();
            let outcome = scene.bring_here(live);
            assert!(outcome.failures.is_empty(), "{moved}, {live}: {outcome:#?}");
            assert_eq!(scene.host("x"), "known", "{moved}, {live}: {outcome:#?}");
            assert!(!scene.path.join(moved).exists());
        }
    }
}

/// Host calls of a write-back that notes what it does, and removes a directory with so many files.
fn calls_of_a_removal(files: u32) -> u32 {
    let mut scene = Scene::new(|path| {
        fs::create_dir(path.join("d")).unwrap();
        (0..files).for_each(|n| fs::write(path.join(format!("d/{n}")), "x").unwrap());
    });
    (0..files).for_each(|n| scene.unlink(&format!("d/{n}")));
    remove_directory(&mut scene, "d");
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    let plan = move |_| {
        counted.set(counted.get() + 1);
        Ok(())
    };
    complete(&schedule::during(plan, || scene.bring_here(false)));
    assert!(!scene.path.join("d").exists());
    count.get()
}

#[test]
fn a_removal_asks_the_host_four_times_for_each_file() {
    let [few, many] = [10, 110].map(calls_of_a_removal);
    assert_eq!(many - few, 400);
}
