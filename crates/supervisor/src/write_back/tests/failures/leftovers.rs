//! What killed write-backs have left is removed, and nothing that somebody else has given such a
//! name: another user can rename a directory that they cannot remove.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use husk_proto::Fs;

use super::killed::{killed_at, pending};
use crate::write_back::host;
use crate::write_back::record::recover;
use crate::write_back::tests::others::adversary::{directories, scene};
use crate::write_back::tests::{Scene, complete};

/// More host calls than there are.
const CALLS_MAX: u32 = 5000;

/// A temporary name of a process that is gone.
pub fn dead(directory: &Path) -> PathBuf {
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    directory.join(format!(".husk-tmp-{namespace:x}-4294967294-x"))
}

/// What is to be seen of the directories `closed/full` and `closed/empty`.
fn closed(scene: &Scene) -> Vec<(u64, u32, i64, i64, Vec<String>)> {
    let closed = scene.path.with_file_name("closed");
    let number = |name| fs::metadata(closed.join(name)).map_or(0, |found| found.ino());
    directories(scene.scratch.path(), &[number("full")])
}

#[test]
fn a_full_directory_that_was_given_a_temporary_name_is_not_removed() {
    let mut scene = scene(1);
    let before = closed(&scene);
    let full = dead(&scene.path.join("pub"));
    fs::rename(scene.path.with_file_name("closed/full"), &full).unwrap();
    let outcome = scene.bring_here(false);
    complete(&outcome);
    assert_eq!(directories(scene.scratch.path(), &[before[0].0]), before);
    assert!(full.join("private").exists());
}

/// Gives `full` the names of new directories that are there, or a name like theirs.
fn give_names(scene: &Scene, taken: bool) -> Option<PathBuf> {
    let public = scene.path.join("pub");
    let temporary = fs::read_dir(&public).unwrap().flatten().find(|one| {
        let name = one.file_name().into_string().unwrap();
        name.starts_with(".husk-tmp-") && (!taken || one.file_type().unwrap().is_dir())
    });
    let name = temporary?.path();
    let given = if taken {
        fs::rename(&name, public.join("stolen")).unwrap();
        name
    } else {
        let mut given = name.into_os_string();
        given.push("x");
        given.into()
    };
    fs::rename(scene.path.with_file_name("closed/full"), &given).unwrap();
    Some(given)
}

#[test]
fn whoever_comes_after_a_kill_removes_no_directory_that_took_a_temporary_name() {
    let mut given = 0;
    for taken in [true, false] {
        for n in 1.. {
            assert!(n < CALLS_MAX);
            let mut scene = scene(n);
            let before = closed(&scene);
            if killed_at(n, || scene.bring_here(false)).is_some() {
                break;
            }
            let (Some(full), Some(one)) = (give_names(&scene, taken), pending(&scene)) else {
                continue;
            };
            given += 1;
            match (one.ready, n % 2) {
                (false, _) => recover::abandon(one),
                (true, 0) => drop(recover::back(one)),
                (true, _) => drop(recover::forward(one)),
            }
            let there = directories(scene.scratch.path(), &[before[0].0]);
            assert_eq!(there, before, "call {n}, {}", full.display());
        }
    }
    assert!(given > 50, "{given} times there was such a name");
}

#[test]
fn what_is_killed_while_it_makes_or_removes_one_directory_leaves_nothing() {
    let shown = |path: &Path| path.exists();
    for remove in [true, false] {
        let mut kills = 0;
        for n in 1.. {
            assert!(n < CALLS_MAX);
            let mut scene = Scene::at_once(|path| {
                fs::create_dir_all(path.join("old/in")).unwrap();
                fs::write(path.join("old/in/file"), "host").unwrap();
            });
            if remove {
                scene.unlink("old/in/file");
                for path in ["old/in", "old"] {
                    let (dir, name) = scene.split(path);
                    scene.direct.rmdir(&crate::write_back::tests::who(), dir, name).unwrap();
                }
            } else {
                scene.mkdir("new");
                scene.mkdir("new/in");
                scene.write("new/in/file", b"ours");
            }
            let over = killed_at(n, || scene.bring_here(false)).is_some();
            let outcome = scene.bring_here(false);
            complete(&outcome);
            scene.assert_no_temporary_names();
            assert_eq!(shown(&scene.path.join("old")), !remove, "call {n}");
            assert_eq!(shown(&scene.path.join("new/in/file")), !remove, "call {n}");
            if over {
                break;
            }
            kills += 1;
        }
        assert!(kills > 20, "{kills} kills");
    }
}

#[test]
fn a_directory_is_removed_by_what_was_noted_of_it_alone() {
    let mut scene = Scene::at_once(|_| {});
    scene.mkdir("new");
    scene.write("new/file", b"ours");
    // Until the new directory has something in it.
    let full = |scene: &Scene| {
        let mut all = fs::read_dir(&scene.path).unwrap().flatten();
        all.find(|one| host::is_own(&one.file_name()) && one.path().join("file").exists())
    };
    for n in 1.. {
        assert!(n < CALLS_MAX);
        killed_at(n, || scene.bring_here(false));
        if full(&scene).is_some() {
            break;
        }
        pending(&scene).into_iter().for_each(recover::abandon);
    }
    let temporary = full(&scene).unwrap().path();
    // Another one with the same name and, on some file systems, the same number.
    fs::remove_dir_all(&temporary).unwrap();
    crate::write_back::tests::settle();
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(temporary.join("private"), "private").unwrap();
    recover::abandon(pending(&scene).unwrap());
    assert!(temporary.join("private").exists());
}
