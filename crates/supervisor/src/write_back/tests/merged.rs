//! What both sides change of one object: what is compatible is no conflict.

use std::time::{Duration, SystemTime};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn change_mode(scene: &mut Scene, name: &str, mode: u32) {
    let inode = scene.at(name);
    let change = Change { mode: Some(mode), ..Change::default() };
    scene.direct.change(&who(), inode, change).unwrap();
}

fn scene_of(names: &'static [&'static str]) -> Scene {
    Scene::new(move |path| {
        for name in names {
            fs::write(path.join(name), "imported").unwrap();
            set_mode(&path.join(name), 0o644);
        }
    })
}

#[test]
fn modes_and_links_that_the_host_changed_go_with_the_bytes_and_names_of_the_image() {
    let mut scene = scene_of(&["bytes", "linked", "moved", "removed", "touched"]);
    scene.rewrite("bytes", b"ours");
    scene.rewrite("linked", b"ours");
    scene.rename("moved", "there");
    scene.unlink("removed");
    for name in ["bytes", "moved", "removed"] {
        set_mode(&scene.path.join(name), 0o640);
    }
    fs::hard_link(scene.path.join("linked"), scene.path.join("second")).unwrap();
    let outcome = scene.write_back();
    complete(&outcome);
    assert!(outcome.notes.is_empty(), "{outcome:?}");
    assert_eq!((scene.host("bytes"), scene.host("linked")), ("ours".into(), "ours".into()));
    assert_eq!(mode_of(&scene.path.join("bytes")), 0o640);
    assert_eq!(
        (scene.host("there"), mode_of(&scene.path.join("there"))),
        ("imported".into(), 0o640)
    );
    assert_eq!(scene.host("second"), "ours", "it is the same file");
    assert!(!scene.path.join("removed").exists() && !scene.path.join("moved").exists());
}

#[test]
fn a_time_that_the_host_set_goes_with_the_mode_of_the_image() {
    let mut scene = scene_of(&["file", "same"]);
    change_mode(&mut scene, "file", 0o600);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let touched = fs::File::options().write(true).open(scene.path.join("file")).unwrap();
    touched.set_modified(time).unwrap();
    complete(&scene.write_back());
    let found = fs::metadata(scene.path.join("file")).unwrap();
    assert_eq!((mode_of(&scene.path.join("file")), found.modified().unwrap()), (0o600, time));
    assert_eq!(scene.host("file"), "imported");
}

/// Git does that to its shared index, cargo to what it has looked at.
#[test]
fn a_file_that_both_sides_have_touched_gets_the_later_time() {
    let mut scene = scene_of(&["image", "host"]);
    let seconds = |s: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
    for (name, ours, theirs) in [("image", 2_000, 1_000), ("host", 1_000, 2_000)] {
        let time = Time::At(ours * 1_000_000_000);
        let change = Change { modified: Some(time), ..Change::default() };
        let inode = scene.at(name);
        scene.direct.change(&who(), inode, change).unwrap();
        let there = fs::File::options().write(true).open(scene.path.join(name)).unwrap();
        there.set_modified(seconds(theirs)).unwrap();
    }
    let outcome = scene.write_back();
    complete(&outcome);
    for name in ["image", "host"] {
        let found = fs::metadata(scene.path.join(name)).unwrap();
        assert_eq!(found.modified().unwrap(), seconds(2_000), "{name}");
        assert_eq!(scene.host(name), "imported");
    }
}

#[test]
fn other_bytes_or_another_mode_of_the_host_are_told_of() {
    let mut scene = scene_of(&["longer", "modes", "written"]);
    change_mode(&mut scene, "longer", 0o600);
    change_mode(&mut scene, "modes", 0o600);
    scene.rewrite("written", b"ours");
    change_mode(&mut scene, "written", 0o600);
    fs::write(scene.path.join("longer"), "longer than that").unwrap();
    set_mode(&scene.path.join("modes"), 0o640);
    set_mode(&scene.path.join("written"), 0o640);
    let outcome = scene.write_back();
    assert_eq!((outcome.conflicts.len(), outcome.notes.len()), (2, 1), "{outcome:?}");
    // What is said to type is what is missing, and nothing else.
    let at = |name| scene.path.join(name).display().to_string();
    let taken = |line: &str, mode, name| line.ends_with(&format!("chmod {mode} {}", at(name)));
    for name in ["longer", "modes"] {
        let line = outcome.conflicts.iter().find(|line| line.contains(name)).unwrap();
        assert!(line.contains("; take the image's: chmod"), "{line}");
        assert!(taken(line, "0600", name), "{line}");
    }
    let note = &outcome.notes[0];
    assert!(note.contains("; take the host's: chmod") && taken(note, "0640", "written"), "{note}");
    assert_eq!((mode_of(&scene.path.join("longer")), scene.host("longer").len()), (0o644, 16));
    assert_eq!(mode_of(&scene.path.join("modes")), 0o640);
    assert_eq!(
        (mode_of(&scene.path.join("written")), scene.host("written")),
        (0o600, "ours".into())
    );
}

/// Who may give files away, and who may not.
#[test]
fn an_owner_that_only_the_image_has_given_is_told_with_what_to_type() {
    let mut scene = scene_of(&["owned", "timed"]);
    let change = |uid, modified| Change { uid, gid: uid, modified, ..Change::default() };
    for (name, change) in [
        ("owned", change(Some(12), None)),
        ("timed", change(None, Some(Time::At(1_000_000_007_000_000_005)))),
    ] {
        let inode = scene.at(name);
        scene.direct.change(&who(), inode, change).unwrap();
        fs::write(scene.path.join(name), "theirs, and longer").unwrap();
    }
    let outcome = scene.write_back();
    let told = |name: &str| {
        let line = outcome.conflicts.iter().find(|line| line.contains(name));
        line.unwrap().split_once("take the image's: ").unwrap().1.to_owned()
    };
    let at = |name| scene.path.join(name).display().to_string();
    assert_eq!(told("owned"), format!("chown -h 12:12 {}", at("owned")));
    let time = "touch -h -d @1000000007.000000005";
    assert_eq!(told("timed"), format!("{time} {}", at("timed")));
    for name in ["owned", "timed"] {
        let mut shell = std::process::Command::new("sh");
        assert!(who().uid != 0 || shell.args(["-c", &told(name)]).status().unwrap().success());
    }
    let timed = fs::metadata(scene.path.join("timed")).unwrap();
    assert!(who().uid != 0 || fs::metadata(scene.path.join("owned")).unwrap().uid() == 12);
    assert_eq!((timed.mtime(), timed.mtime_nsec()), (1_000_000_007, 5));
}

#[test]
fn rights_that_the_host_changed_stay_after_one_sync_and_the_next() {
    let mut scene = scene_of(&["appended", "rewritten"]);
    scene.append("appended", b", ours");
    scene.rewrite("rewritten", b"ours");
    for name in ["appended", "rewritten"] {
        set_mode(&scene.path.join(name), 0o600);
    }
    complete(&scene.sync());
    for n in 0..2 {
        let found = ["appended", "rewritten"].map(|name| mode_of(&scene.path.join(name)));
        assert_eq!(found, [0o600, 0o600], "after sync {n}");
        scene.append("appended", b", more");
        scene.append("rewritten", b", more");
        complete(&scene.sync());
    }
    assert_eq!(scene.host("appended"), "imported, ours, more, more");
    // The image has the right that it did not take away from anybody itself, too.
    let inode = scene.at("appended");
    assert_eq!(scene.direct.step(inode).unwrap().mode & 0o7777, 0o600);
}

#[test]
fn a_file_that_the_host_touched_takes_what_the_image_has_appended() {
    for live in [false, true] {
        let mut scene = scene_of(&["appended", "changed"]);
        scene.append("appended", b", ours");
        scene.append("changed", b", ours");
        fs::write(scene.path.join("changed"), "IMPORTED").unwrap();
        for name in ["appended", "changed"] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            let there = fs::File::options().write(true).open(scene.path.join(name)).unwrap();
            there.set_modified(time).unwrap();
        }
        let outcome = scene.bring(live, &[]);
        assert_eq!(outcome.conflicts.len(), 1, "{outcome:#?}");
        assert!(outcome.conflicts[0].contains("/changed changed on the host"), "{outcome:#?}");
        assert_eq!(scene.host("appended"), "imported, ours");
        assert_eq!(scene.host("changed"), "IMPORTED");
    }
}

/// Nothing is done in between, or something is: no later write-back takes the host's rights back.
#[test]
fn rights_that_the_host_changed_stay_in_directories_and_under_new_names() {
    for live in [false, true] {
        let mut scene = Scene::new(|path| {
            for name in ["with-new", "with-gone", "touched", "moved"] {
                fs::create_dir(path.join(name)).unwrap();
                set_mode(&path.join(name), 0o755);
                fs::write(path.join(name).join("file"), "imported").unwrap();
            }
            fs::write(path.join("renamed"), "imported").unwrap();
        });
        scene.write("with-new/new", b"ours");
        scene.unlink("with-gone/file");
        let touched = scene.at("touched");
        let change = Change { modified: Some(Time::At(1_000_000_000)), ..Change::default() };
        scene.direct.change(&who(), touched, change).unwrap();
        scene.at("moved/file");
        scene.rename("moved", "there");
        scene.at("renamed");
        scene.rename("renamed", "new-name");
        for name in ["with-new", "with-gone", "touched", "moved"] {
            set_mode(&scene.path.join(name), 0o700);
        }
        set_mode(&scene.path.join("renamed"), 0o600);
        for n in 0..if live { 3 } else { 1 } {
            complete(&scene.bring(live, &[]));
            for name in ["with-new", "with-gone", "touched", "there"] {
                assert_eq!(mode_of(&scene.path.join(name)), 0o700, "{name}, {live} {n}");
            }
            assert_eq!(mode_of(&scene.path.join("new-name")), 0o600, "{live} {n}");
            if n == 1 {
                scene.write("there/new", b"ours");
                scene.append("new-name", b", ours");
            }
        }
    }
}

#[test]
fn rights_that_the_host_changes_after_a_sync_stay_as_well() {
    let mut scene = scene_of(&["changed", "same"]);
    scene.rewrite("changed", b"ours");
    scene.write("made", b"ours");
    scene.mkdir("made-dir");
    complete(&scene.sync());
    for name in ["changed", "made", "same"] {
        set_mode(&scene.path.join(name), 0o600);
    }
    set_mode(&scene.path.join("made-dir"), 0o700);
    for n in 0..3 {
        for name in ["changed", "made", "same"] {
            scene.append(name, b", more");
        }
        scene.write(&format!("made-dir/{n}"), b"ours");
        complete(&if n < 2 { scene.sync() } else { scene.write_back() });
        for name in ["changed", "made", "same"] {
            assert_eq!(mode_of(&scene.path.join(name)), 0o600, "{name} after {n}");
        }
        assert_eq!(mode_of(&scene.path.join("made-dir")), 0o700, "after {n}");
    }
    assert_eq!(scene.host("same"), "imported, more, more, more");
}

#[test]
fn what_is_told_to_be_kept_stays_whatever_is_made_of_it_and_however_often() {
    let mut scene = scene_of(&["renamed", "a", "b"]);
    for (from, to) in [("renamed", "new-name"), ("a", "t"), ("b", "a"), ("t", "b")] {
        scene.at(from);
        scene.rename(from, to);
    }
    let newer = SystemTime::now() + Duration::from_secs(10);
    for name in ["renamed", "a"] {
        let path = scene.path.join(name);
        fs::write(&path, "imported, theirs").unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(newer).unwrap();
    }
    for n in 0..3 {
        let outcome = scene.sync();
        assert!(outcome.failures.is_empty(), "{n}: {outcome:#?}");
        assert!(!outcome.conflicts.is_empty(), "{n}: it is told each time");
        let found = fs::metadata(scene.path.join("renamed")).unwrap();
        assert_eq!((found.nlink(), found.modified().unwrap()), (1, newer), "{n}");
        for name in ["renamed", "a"] {
            assert_eq!(scene.host(name), "imported, theirs", "{name} {n}: {outcome:#?}");
        }
        if n == 1 {
            fs::remove_file(scene.path.join("new-name")).unwrap();
        }
    }
    scene.write_back();
    assert_eq!(scene.host("renamed"), "imported, theirs");
    assert_eq!(scene.host("a"), "imported, theirs");
}

/// As editors save, and `sed -i`.
#[test]
fn rights_that_the_host_changed_stay_where_the_image_saves_under_a_new_name() {
    for live in [false, true] {
        let mut scene = scene_of(&["saved", "opened"]);
        for (name, ours) in [("saved", 0o644), ("opened", 0o664)] {
            scene.at(name);
            scene.write("new", b"ours");
            change_mode(&mut scene, "new", ours);
            scene.rename("new", name);
            set_mode(&scene.path.join(name), 0o600);
        }
        for n in 0..if live { 2 } else { 1 } {
            let outcome = scene.bring(live, &[]);
            complete(&outcome);
            let found = ["saved", "opened"].map(|name| mode_of(&scene.path.join(name)));
            // Where the image has changed them as well, its own count, and a line says so.
            assert_eq!(found, [0o600, 0o664], "{live} {n}");
            assert_eq!(outcome.notes.len(), 1 - n, "{live} {n}: {outcome:#?}");
        }
        assert_eq!(scene.host("saved"), "ours");
    }
}

#[test]
fn rights_that_the_host_changed_go_with_a_file_that_the_image_has_moved_and_written() {
    for live in [false, true] {
        let mut scene = scene_of(&["secret"]);
        scene.rewrite("secret", b"ours");
        scene.rename("secret", "there");
        set_mode(&scene.path.join("secret"), 0o600);
        complete(&scene.bring(live, &[]));
        assert_eq!(
            (scene.host("there"), mode_of(&scene.path.join("there"))),
            ("ours".into(), 0o600)
        );
        assert!(!scene.path.join("secret").exists());
    }
}

/// Directories and files of both sides; `d` and `d/e` by both.
fn scene_of_two_directories(mode: u32) -> Scene {
    let mut scene = Scene::new(|_| {});
    for name in ["d", "d/e"] {
        scene.mkdir(name);
        fs::create_dir(scene.path.join(name)).unwrap();
        set_mode(&scene.path.join(name), mode);
    }
    for (name, ours, theirs) in
        [("d/e/a", "ours", ""), ("d/b", "", "theirs"), ("d/alike", "x", "x"), ("d/both", "1", "2")]
    {
        if !ours.is_empty() {
            scene.write(name, ours.as_bytes());
        }
        if !theirs.is_empty() {
            fs::write(scene.path.join(name), theirs).unwrap();
        }
    }
    scene
}

#[test]
fn a_directory_that_both_sides_have_made_is_one_with_the_names_of_both() {
    for live in [false, true] {
        let mut scene = scene_of_two_directories(0o751);
        for n in 0..if live { 2 } else { 1 } {
            let outcome = scene.bring(live, &[]);
            assert!(outcome.failures.is_empty(), "{live} {n}: {outcome:#?}");
            // The one file that differs.
            let told = &outcome.conflicts;
            assert!(told.len() == 1 && told[0].contains("/d/both "), "{live} {n}: {told:#?}");
            let found = ["d/e/a", "d/b", "d/alike", "d/both", "d/both.husk-77"];
            let found = found.map(|name| scene.host(name));
            assert_eq!(found, ["ours", "theirs", "x", "2", "1"], "{live} {n}");
            assert_eq!(fs::read_dir(&scene.path).unwrap().count(), 1, "{live} {n}");
        }
    }
}

#[test]
fn of_a_directory_that_both_have_made_only_what_the_image_put_there_goes_with_it() {
    let mut scene = scene_of_two_directories(0o751);
    assert!(scene.sync().failures.is_empty());
    for name in ["d/e/a", "d/alike", "d/both"] {
        scene.unlink(name);
    }
    for name in ["d/e", "d"] {
        let (dir, name) = scene.split(name);
        scene.direct.rmdir(&who(), dir, name).unwrap();
    }
    let outcome = scene.sync();
    assert!(outcome.failures.is_empty(), "{outcome:#?}");
    assert_eq!((scene.host("d/b"), scene.host("d/both")), ("theirs".into(), "2".into()));
    assert!(!scene.path.join("d/e").exists(), "{outcome:#?}");
}

#[test]
fn what_is_no_such_directory_on_the_host_is_kept_and_nothing_is_put_into_it() {
    let mut scene = scene_of_two_directories(0o700);
    scene.mkdir("link");
    scene.write("link/a", b"ours");
    let outside = scene.scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    set_mode(&outside, 0o751);
    std::os::unix::fs::symlink(&outside, scene.path.join("link")).unwrap();
    let outcome = scene.write_back();
    assert_eq!(outcome.conflicts.len(), 2, "{outcome:#?}");
    assert_eq!(
        (scene.host("d.husk-77/e/a"), scene.host("link.husk-77/a")),
        ("ours".into(), "ours".into())
    );
    assert_eq!((scene.host("d/b"), mode_of(&scene.path.join("d"))), ("theirs".into(), 0o700));
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn links_of_what_a_sync_has_written_have_the_new_bytes_where_nobody_has_listed_them() {
    for live in [false, true] {
        let mut scene = Scene::new(|path| {
            fs::create_dir(path.join("d")).unwrap();
            fs::write(path.join("d/a"), "imported").unwrap();
            fs::create_dir_all(path.join("e/f")).unwrap();
            fs::write(path.join("e/f/beside"), "beside").unwrap();
        });
        scene.rewrite("d/a", b"ours");
        scene.write("d/new", b"new");
        complete(&scene.sync());
        let pairs = [("d/a", "e/f/b", "ours"), ("d/new", "e/f/c", "new")];
        for (name, link, _) in pairs {
            fs::hard_link(scene.path.join(name), scene.path.join(link)).unwrap();
            scene.append(name, b", more");
        }
        complete(&scene.bring(live, &[]));
        for (name, link, was) in pairs {
            assert_eq!(scene.host(link), format!("{was}, more"), "live: {live}");
            let found = fs::metadata(scene.path.join(name)).unwrap();
            assert_eq!(found.nlink(), 2, "live: {live}");
            // As a name of the image from now on.
            scene.append(link, b", again");
        }
        complete(&scene.bring(live, &[]));
        for (name, link, was) in pairs {
            assert_eq!(scene.host(name), format!("{was}, more, again"), "live: {live}");
            assert_eq!(scene.host(link), scene.host(name));
        }
        nothing_is_left_to_do(&mut scene);
    }
}
