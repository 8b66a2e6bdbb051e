//! A refresh is killed before each of its steps. What the image shows of each object is one version
//! of it then, and the next refresh takes the rest in. That a step itself is all or nothing, the
//! kills of the carrier's tests show.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::rc::Rc;

use husk_carrier::{check, scratch_words};
use husk_proto::Admin as _;
use husk_proto::fs::{Change, SetExtended, Time};

mod both;

use super::*;
use crate::image;
use crate::write_back::host::beneath::schedule;
use crate::write_back::tests::Scene;
use crate::write_back::tests::failures::killed::killed_at;

/// More steps than there are.
const STEPS_MAX: u32 = 3000;

/// What one look says of an object: kind, mode, size, time, number, and whose bytes it has.
type Facts = (Kind, u32, u64, i64, u64, Option<HostIdentity>);

fn fill(path: &Path) {
    for name in ["grows", "shrinks", "touched", "mode", "gone", "both", "replaced", "kind", "alone"]
    {
        fs::write(path.join(name), format!("host: {name}")).unwrap();
    }
    for name in ["in", "away", "away/below", "turned", "turned/below"] {
        fs::create_dir(path.join(name)).unwrap();
        fs::write(path.join(name).join("inner"), "host: inner").unwrap();
    }
    symlink("old", path.join("link")).unwrap();
}

/// What the host changes.
fn change(path: &Path) {
    fs::write(path.join("grows"), "much longer than it was").unwrap();
    fs::write(path.join("shrinks"), "s").unwrap();
    let old = fs::File::options().write(true).open(path.join("touched")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::set_permissions(path.join("mode"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::remove_file(path.join("gone")).unwrap();
    fs::write(path.join("both"), "theirs, and longer").unwrap();
    fs::write(path.join("new"), "another one, longer").unwrap();
    fs::rename(path.join("new"), path.join("replaced")).unwrap();
    fs::remove_file(path.join("kind")).unwrap();
    fs::create_dir(path.join("kind")).unwrap();
    fs::write(path.join("in/inner"), "longer than inner was").unwrap();
    fs::write(path.join("in/came"), "came").unwrap();
    fs::remove_dir_all(path.join("away")).unwrap();
    fs::remove_dir_all(path.join("turned")).unwrap();
    fs::write(path.join("turned"), "a file now").unwrap();
    fs::remove_file(path.join("link")).unwrap();
    symlink("a longer one", path.join("link")).unwrap();
    fs::write(path.join("came"), "came").unwrap();
    fs::hard_link(path.join("alone"), path.join("beside")).unwrap();
    fs::hard_link(path.join("alone"), path.join("in/second")).unwrap();
    fs::remove_file(path.join("alone")).unwrap();
}

/// Everything that the image shows, by its path.
fn shown(scene: &mut Scene) -> BTreeMap<String, Facts> {
    let (mut open, mut all) = (vec![(scene.root, String::new())], BTreeMap::new());
    while let Some((dir, path)) = open.pop() {
        let mut names = Vec::new();
        let listed = scene.direct.list(dir, 0, &mut |entry| {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode));
            true
        });
        listed.unwrap();
        for (name, inode) in names {
            let one = scene.direct.attributes(inode).unwrap();
            let path = format!("{path}/{name}");
            let identity = one.origin.map(|origin| scene.direct.host_identity(origin).unwrap());
            let kind = one.step.kind;
            // Directories change with what is in them.
            let facts = match kind {
                Kind::Directory => (kind, one.step.mode, 0, 0, one.shown_number, None),
                _ => {
                    let number = one.shown_number;
                    (kind, one.step.mode, one.size, one.modified_ns, number, identity)
                }
            };
            all.insert(path.clone(), facts);
            if kind == Kind::Directory && !one.step.unlisted {
                open.push((inode, path));
            }
        }
    }
    all
}

/// What a look for damage finds: what the scene itself holds.
fn findings(scene: &Scene) -> Vec<String> {
    let mut scratch = vec![0; scratch_words(scene.direct.kernel())];
    let mut found = Vec::new();
    check(scene.direct.kernel(), &mut scratch, &mut |one| found.push(format!("{one:?}")));
    found
}

fn scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(fill);
    for directory in ["", "in", "away", "away/below", "turned", "turned/below"] {
        scene.at(directory);
    }
    scene.rewrite("both", b"ours");
    scene
}

/// What is there before, and after a refresh that nobody kills; then the same at each step.
#[test]
fn who_is_killed_at_any_step_leaves_each_object_old_or_new_and_the_next_takes_in_the_rest() {
    let mut kills = 0;
    for n in 1.. {
        assert!(n < STEPS_MAX);
        let mut scene = scene(n);
        let (before, sound) = (shown(&mut scene), findings(&scene));
        change(&scene.path);
        let (root, path) = (scene.root, scene.path.clone());
        let refresh = |scene: &mut Scene| {
            let overlays = [(root, path.clone())];
            let look = Look::new(&mut scene.direct, &overlays, Ledger::default());
            look.whole(|look| look.below(root, path.clone()))
        };
        let over = killed_at(n, || refresh(&mut scene)).is_some();
        let killed = shown(&mut scene);
        let told = refresh(&mut scene);
        assert!(told.failures.is_empty(), "killed at step {n}: {told:#?}");
        let both = |line: &String| line.contains("/both: ");
        assert!(told.conflicts.len() == 1 && told.conflicts.iter().all(both), "{told:#?}");
        let after = shown(&mut scene);
        for (path, facts) in &killed {
            let whole = [before.get(path), after.get(path)].contains(&Some(facts));
            assert!(whole, "killed at step {n}: {path}: {facts:?} is neither old nor new");
        }
        for (path, facts) in &after {
            let same = before.get(path) == Some(facts);
            assert!(same || killed.get(path).is_none_or(|one| !over || one == facts), "{path}");
        }
        as_on_the_host(&scene.path, &after);
        assert_eq!(findings(&scene), sound, "killed at step {n}");
        if over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 12, "{kills} steps");
}

/// A name of the host is free in the image when a directory has gone, whatever comes there next.
#[test]
fn what_takes_the_place_of_a_directory_is_shown_as_it_is_on_the_host() {
    type Comes = fn(&Path);
    let file: Comes = |path| fs::write(path, "a file").unwrap();
    let directory: Comes = |path| fs::create_dir(path).unwrap();
    let link: Comes = |path| symlink("somewhere", path).unwrap();
    for (comes, at_once) in
        [file, directory, link].into_iter().flat_map(|one| [(one, true), (one, false)])
    {
        let mut scene = Scene::at_once(|path| {
            fs::create_dir_all(path.join("was/below")).unwrap();
            fs::write(path.join("was/below/inner"), "host: inner").unwrap();
        });
        for directory in ["", "was", "was/below"] {
            scene.at(directory);
        }
        let sound = findings(&scene);
        let refresh = |scene: &mut Scene| {
            let (root, path) = (scene.root, scene.path.clone());
            let overlays = [(root, path.clone())];
            let look = Look::new(&mut scene.direct, &overlays, Ledger::default());
            let told = look.whole(|look| look.below(root, path));
            assert!(told.is_complete(), "{told:#?}");
        };
        let was = scene.path.join("was");
        fs::remove_dir_all(&was).unwrap();
        if !at_once {
            refresh(&mut scene);
            assert!(shown(&mut scene).is_empty());
        }
        comes(&was);
        refresh(&mut scene);
        let (all, found) = (shown(&mut scene), fs::symlink_metadata(&was).unwrap());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["/was"]);
        assert_eq!((all["/was"].1 & 0o7777, all["/was"].4), (found.mode() & 0o7777, found.ino()));
        let top = host::identity_of(&fs::metadata(&scene.path).unwrap());
        let root = scene.direct.attributes(scene.root).unwrap();
        assert_eq!(root.modified_ns, top.modified_ns, "its directory has the host's time");
        assert_eq!(findings(&scene), sound);
        // Nothing of it is the image's: a write-back has nothing to do.
        let outcome = scene.bring_here(false);
        assert!(outcome.is_complete() && outcome.written + outcome.removed == 0, "{outcome:#?}");
    }
}

/// What the image shows is what is on the host, but for what both have changed.
fn as_on_the_host(path: &Path, shown: &BTreeMap<String, Facts>) {
    let mut names: Vec<_> = shown.keys().map(|name| name.trim_start_matches('/')).collect();
    names.retain(|name| *name != "both");
    for name in &names {
        let found = fs::symlink_metadata(path.join(name)).unwrap();
        let (_, mode, size, modified, number, _) = shown[&format!("/{name}")];
        assert_eq!(number, found.ino(), "{name}");
        assert_eq!(mode & 0o7777, found.mode() & 0o7777, "{name}");
        if !found.is_dir() {
            assert_eq!((size, modified), (found.len(), host::identity_of(&found).modified_ns));
        }
    }
    let expected = [
        "beside",
        "came",
        "grows",
        "in",
        "in/came",
        "in/inner",
        "in/second",
        "kind",
        "link",
        "mode",
        "replaced",
        "shrinks",
        "touched",
        "turned",
    ];
    assert_eq!(names, expected);
}

/// A tree of which the image has changed much, a write-back of that, and what the host does then.
fn synced_scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(|path| {
        for name in ["edited", "gone", "replaced", "kind", "removed", "link", "both"] {
            fs::write(path.join(name), "host: base").unwrap();
        }
    });
    scene.at("");
    for name in ["edited", "gone", "replaced", "kind", "link"] {
        scene.rewrite(name, format!("image: {name}").as_bytes());
    }
    scene.unlink("removed");
    for directory in ["made", "made/deep", "away"] {
        scene.mkdir(directory);
    }
    for file in ["made/deep/file", "made/gone", "away/file", "new"] {
        scene.write(file, format!("image: {file}").as_bytes());
    }
    let outcome = scene.bring_here(true);
    assert!(outcome.is_complete(), "{outcome:#?}");
    scene
}

fn change_later(path: &Path) {
    fs::write(path.join("edited"), "the host's, and longer").unwrap();
    fs::write(path.join("new"), "the host's, and longer").unwrap();
    fs::write(path.join("made/deep/file"), "the host's, and longer").unwrap();
    fs::write(path.join("made/deep/came"), "the host's").unwrap();
    fs::write(path.join("removed"), "made again").unwrap();
    fs::remove_file(path.join("made/gone")).unwrap();
    fs::remove_file(path.join("gone")).unwrap();
    fs::remove_dir_all(path.join("away")).unwrap();
    fs::write(path.join("other"), "another one").unwrap();
    fs::rename(path.join("other"), path.join("replaced")).unwrap();
    fs::remove_file(path.join("kind")).unwrap();
    fs::create_dir(path.join("kind")).unwrap();
    fs::hard_link(path.join("link"), path.join("second")).unwrap();
    fs::write(path.join("link"), "the host's, by two names").unwrap();
}

fn refresh_noting(scene: &mut Scene) -> Refreshed {
    let (root, path, ledger) = (scene.root, scene.path.clone(), scene.ledger());
    let overlays = [(root, path.clone())];
    Look::new(&mut scene.direct, &overlays, ledger).whole(|look| look.below(root, path))
}

#[test]
fn who_is_killed_while_it_gives_back_what_was_synced_leaves_the_rest_to_the_next() {
    let mut kills = 0;
    for n in 1.. {
        assert!(n < STEPS_MAX);
        let mut scene = synced_scene(n);
        let sound = findings(&scene);
        change_later(&scene.path);
        let over = killed_at(n, || refresh_noting(&mut scene)).is_some();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "killed at step {n}: {told:#?}");
        let after = shown(&mut scene);
        for (path, (kind, mode, size, modified, number, _)) in &after {
            let found = fs::symlink_metadata(scene.path.join(&path[1..])).unwrap();
            let same = (kind == &Kind::Directory) == found.is_dir()
                && (found.is_dir() || *mode & 0o7777 == found.mode() & 0o7777);
            assert!(same, "killed at step {n}: {path}");
            if !found.is_dir() && !path.starts_with("/away") {
                let seen = (*size, *modified);
                let there = host::identity_of(&found);
                assert_eq!(seen, (there.size, there.modified_ns), "killed at step {n}: {path}");
                assert!(*number != 0);
            }
        }
        let names: Vec<_> = after.keys().map(String::as_str).collect();
        let all = "/both /edited /kind /link /made /made/deep /made/deep/came /made/deep/file /new \
            /removed /replaced /second";
        assert_eq!(names.join(" "), all, "killed at step {n}");
        assert_eq!(findings(&scene), sound, "killed at step {n}");
        // It is the host's: there is nothing to write, and what is changed now is no conflict.
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete() && outcome.written + outcome.removed == 0, "{outcome:#?}");
        scene.rewrite("edited", b"image again");
        scene.rewrite("made/deep/file", b"image again");
        for name in ["removed", "made/deep/came", "replaced", "new", "link"] {
            scene.unlink(name);
        }
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete(), "killed at step {n}: {outcome:#?}");
        assert_eq!(outcome.removed, 5, "killed at step {n}");
        if over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 12, "{kills} steps");
}

/// Whoever writes between the comparison and the moment when a name would go keeps what it wrote.
#[test]
fn what_is_written_at_the_last_moment_stays_and_is_a_conflict() {
    let mut scene = synced_scene(1);
    fs::write(scene.path.join("edited"), "the host's").unwrap();
    let file = scene.at("edited");
    let shown = scene.direct.attributes(file).unwrap();
    let mut direct = image::attach().unwrap();
    let plan = move |call| {
        if call == "give back" {
            // The same length, and as far as that can be said the same time.
            direct.write_at(file, 0, b"IMAGE").unwrap();
            let times = [shown.accessed_ns, shown.modified_ns, shown.changed_ns, shown.born_ns];
            direct.set_times(file, times).unwrap();
        }
        Ok(())
    };
    let told = schedule::during(plan, || refresh_noting(&mut scene));
    assert_eq!(told.conflicts.len(), 1, "{told:#?}");
    assert_eq!(scene.at("edited"), file);
    let mut bytes = [0; 13];
    scene.direct.read_at(file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"IMAGE: edited");
}

#[test]
fn a_directory_that_the_host_removes_or_moves_after_a_sync_does_not_come_back() {
    let remove: fn(&Path) = |path| fs::remove_dir_all(path).unwrap();
    let move_it: fn(&Path) = |path| fs::rename(path, path.with_extension("moved")).unwrap();
    for goes in [remove, move_it] {
        for name in ["made", "was"] {
            let mut scene = Scene::at_once(|path| {
                fs::create_dir(path.join("was")).unwrap();
                fs::write(path.join("was/file"), "host: base").unwrap();
            });
            scene.mkdir("made");
            scene.write("made/file", b"image");
            scene.rewrite("was/file", b"image");
            scene.write("was/new", b"image");
            assert!(scene.bring_here(true).is_complete());
            goes(&scene.path.join(name));
            let names = |scene: &Scene| {
                let all = fs::read_dir(&scene.path).unwrap();
                let mut all: Vec<_> = all.map(|one| one.unwrap().file_name()).collect();
                all.sort();
                all
            };
            let before = names(&scene);
            for live in [true, true, false] {
                let outcome = scene.bring_here(live);
                assert!(outcome.is_complete(), "{outcome:#?}");
                assert_eq!(names(&scene), before);
            }
            // What the image makes then is written, and nothing else comes back.
            scene.write(&format!("{name}/later"), b"later");
            for live in [true, true, false] {
                let outcome = scene.bring_here(live);
                assert!(outcome.is_complete(), "{outcome:#?}");
                assert_eq!(names(&scene).len(), before.len() + 1);
                let all = fs::read_dir(scene.path.join(name)).unwrap();
                let all: Vec<_> = all.map(|one| one.unwrap().file_name()).collect();
                assert_eq!(all, ["later"]);
            }
        }
    }
}

#[test]
fn a_directory_whose_changes_were_taken_in_is_removed_and_moved_without_a_conflict() {
    for moved in [false, true] {
        let mut scene = Scene::at_once(|path| {
            fs::create_dir(path.join("was")).unwrap();
            fs::write(path.join("was/file"), "host: base").unwrap();
            fs::write(path.join("was/other"), "host: base").unwrap();
        });
        scene.at("was");
        fs::write(scene.path.join("was/file"), "edited, and longer").unwrap();
        fs::write(scene.path.join("was/came"), "came").unwrap();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        if moved {
            scene.rename("was", "is");
        } else {
            for name in ["file", "came", "other"] {
                scene.unlink(&format!("was/{name}"));
            }
            let root = scene.root;
            scene.direct.rmdir(&ALL, root, b"was").unwrap();
        }
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete(), "{outcome:#?}");
        assert!(!scene.path.join("was").exists());
        let kept = fs::read_to_string(scene.path.join("is/file")).unwrap_or_default();
        assert_eq!(kept, if moved { "edited, and longer" } else { "" });
    }
    // What it has not seen is one.
    let mut scene = Scene::at_once(|path| fs::create_dir(path.join("was")).unwrap());
    scene.at("was");
    refresh_noting(&mut scene);
    fs::write(scene.path.join("was/came"), "came").unwrap();
    let root = scene.root;
    scene.direct.rmdir(&ALL, root, b"was").unwrap();
    assert_eq!(scene.bring_here(true).conflicts.len(), 1);
    assert!(scene.path.join("was/came").exists());
}

fn set_mode(scene: &Scene, name: &str, mode: u32) {
    fs::set_permissions(scene.path.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_on_host(scene: &Scene, name: &str) -> u32 {
    fs::metadata(scene.path.join(name)).unwrap().permissions().mode() & 0o7777
}

fn mode_in_image(scene: &mut Scene, name: &str) -> u32 {
    let inode = scene.at(name);
    scene.direct.step(inode).unwrap().mode & 0o7777
}

fn give(scene: &mut Scene, name: &str, change: Change) {
    let inode = scene.at(name);
    scene.direct.change(&ALL, inode, change).unwrap();
}

/// A tree of which the image has changed all but the rights, and what else it changes later.
fn scene_of_rights(synced: bool, rights: bool) -> Scene {
    let mut scene = Scene::at_once(|path| {
        fs::create_dir(path.join("names")).unwrap();
        for name in ["bytes", "times", "names/inner"] {
            fs::write(path.join(name), "host: base").unwrap();
        }
        for name in ["bytes", "times"] {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
    });
    scene.write("names/new", b"image");
    scene.rewrite("bytes", b"image");
    if rights {
        for (name, mode) in [("names", 0o711), ("bytes", 0o664), ("times", 0o664)] {
            give(&mut scene, name, Change { mode: Some(mode), ..Change::default() });
        }
    }
    let time = Change { modified: Some(Time::At(1_000_000_000)), ..Change::default() };
    give(&mut scene, "times", time);
    scene.mkdir("made");
    if synced {
        assert!(scene.bring_here(true).is_complete());
    }
    scene
}

const RIGHTS: [(&str, u32); 3] = [("names", 0o700), ("bytes", 0o600), ("times", 0o600)];

#[test]
fn rights_that_only_the_host_changes_are_shown_after_a_refresh_and_stay() {
    for (synced, open) in [(false, false), (true, false), (true, true)] {
        // Rights that the image had changed before a sync are no change of it after that.
        let mut scene = scene_of_rights(synced, synced);
        let later = |scene: &mut Scene, n: u32| {
            scene.write(&format!("names/later-{n}"), b"later");
            for name in ["bytes", "times"] {
                let time = Time::At(1_000_000_000 + i64::from(n));
                give(scene, name, Change { modified: Some(time), ..Change::default() });
            }
        };
        if open {
            later(&mut scene, 1);
        }
        RIGHTS.iter().for_each(|(name, mode)| set_mode(&scene, name, *mode));
        if synced {
            set_mode(&scene, "made", 0o700);
        }
        for _ in 0..2 {
            let told = refresh_noting(&mut scene);
            assert!(told.is_complete(), "{synced} {open}: {told:#?}");
            for (name, mode) in RIGHTS {
                assert_eq!(mode_in_image(&mut scene, name), mode, "{name} {synced} {open}");
            }
            assert!(!synced || mode_in_image(&mut scene, "made") == 0o700);
        }
        assert_eq!(refresh_noting(&mut scene).renewed, 0);
        for n in 2..4 {
            later(&mut scene, n);
            let outcome = scene.bring_here(true);
            assert!(outcome.is_complete() && outcome.notes.is_empty(), "{outcome:#?}");
            for (name, mode) in RIGHTS {
                assert_eq!(mode_on_host(&scene, name), mode, "{name} {synced} {open}");
            }
            assert!(!synced || mode_on_host(&scene, "made") == 0o700);
        }
    }
}

#[test]
fn rights_that_both_sides_change_are_told_by_a_refresh_and_the_write_back() {
    for synced in [false, true] {
        let mut scene = scene_of_rights(synced, false);
        for (name, mode) in [("names", 0o711), ("bytes", 0o664), ("times", 0o664)] {
            give(&mut scene, name, Change { mode: Some(mode), ..Change::default() });
        }
        RIGHTS.iter().for_each(|(name, mode)| set_mode(&scene, name, *mode));
        for _ in 0..2 {
            let told = refresh_noting(&mut scene);
            assert_eq!((told.conflicts.len(), told.failures.len()), (3, 0), "{told:#?}");
            assert_eq!(mode_in_image(&mut scene, "times"), 0o664);
        }
        let outcome = scene.bring_here(true);
        // What gets names or bytes of the image gets its rights, with a line.
        assert_eq!(outcome.conflicts.len() + outcome.notes.len(), 3, "{synced}: {outcome:#?}");
        let line = outcome.conflicts.iter().find(|line| line.contains("/times"));
        assert!(line.is_some(), "{outcome:#?}");
        assert_eq!(mode_on_host(&scene, "times"), 0o600);
    }
}

/// What the image has taken over of attributes is not what it has changed.
#[test]
fn a_right_that_the_host_takes_away_does_not_come_back_after_a_refresh() {
    let label = |scene: &Scene, value| {
        let path = scene.path.join("file");
        rustix::fs::setxattr(path, "user.right", value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let mut scene = Scene::at_once(|path| fs::write(path.join("file"), "host").unwrap());
    label(&scene, b"all");
    let file = scene.at("file");
    let mut set = |name: &[u8], value: &[u8], how| {
        scene.direct.set_extended(file, name, Some(value), how).unwrap();
    };
    set(b"user.right", b"all", SetExtended::Imported);
    set(b"user.note", b"ours", SetExtended::Any);
    scene.direct.take_extended_over(file).unwrap();
    label(&scene, b"none");
    assert!(refresh_noting(&mut scene).is_complete());
    for _ in 0..2 {
        assert!(scene.bring_here(true).is_complete());
        let (path, mut value) = (scene.path.join("file"), [0; 16]);
        let length = rustix::fs::getxattr(&path, "user.right", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"none");
        let length = rustix::fs::getxattr(&path, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"ours");
    }
}

/// A disk that fails, or a server that does not answer, says nothing of what is there.
#[test]
fn what_cannot_be_looked_at_has_not_gone() {
    let mut last = 0;
    for n in 1.. {
        assert!(n < STEPS_MAX);
        let mut scene = synced_scene(n);
        let before = shown(&mut scene).into_keys().collect::<Vec<_>>();
        let (count, hit) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        let seen = Rc::clone(&hit);
        let plan = move |call: &'static str| {
            count.set(count.get() + 1);
            let fails = count.get() == n;
            if fails {
                hit.set(Some(call));
            }
            if fails { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
        };
        let told = schedule::during(plan, || refresh_noting(&mut scene));
        let after = shown(&mut scene).into_keys().collect::<Vec<_>>();
        assert_eq!(after, before, "call {n}, {:?}: {told:#?}", seen.get());
        let Some(call) = seen.get() else { break };
        assert!(!told.failures.is_empty(), "call {n}, {call}: {told:#?}");
        last = n;
    }
    assert!(last > 30, "{last} calls");
}

#[test]
fn what_the_host_does_below_a_directory_that_was_moved_and_synced_is_taken_in_where_it_is() {
    for live in [false, true] {
        let mut scene = Scene::at_once(|path| {
            fs::create_dir_all(path.join("d/c/deep")).unwrap();
            for name in ["d/c/grows", "d/c/deep/grows"] {
                fs::write(path.join(name), "host").unwrap();
            }
        });
        scene.at("d/c/deep");
        scene.rename("d", "e");
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete(), "{outcome:#?}");
        for directory in ["e/c", "e/c/deep"] {
            let at = |name: &str| scene.path.join(directory).join(name);
            fs::write(at("grows"), "host, and longer").unwrap();
            fs::write(at("came"), "came").unwrap();
        }
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        for directory in ["e/c", "e/c/deep"] {
            for name in ["grows", "came"] {
                let path = format!("{directory}/{name}");
                let inode = scene.at(&path);
                let shown = scene.direct.attributes(inode).unwrap();
                let origin = origin_path(&mut scene.direct, &shown).unwrap();
                assert_eq!(origin, Some(scene.path.join(&path)));
            }
            scene.rewrite(&format!("{directory}/came"), b"ours");
            scene.rename(&format!("{directory}/grows"), &format!("{directory}/moved"));
        }
        let outcome = scene.bring_here(live);
        assert!(outcome.is_complete(), "{outcome:#?}");
        for directory in ["e/c", "e/c/deep"] {
            let read = |name| fs::read_to_string(scene.path.join(directory).join(name)).unwrap();
            assert_eq!((read("came"), read("moved")), ("ours".into(), "host, and longer".into()));
        }
    }
}

#[test]
fn a_directory_in_the_place_of_one_that_was_synced_keeps_its_rights() {
    let mut scene = synced_scene(1);
    let made = scene.path.join("made");
    let mode = |mode| fs::Permissions::from_mode(mode);
    for (name, bits) in [("other", 0o700), ("again", 0o711)] {
        let other = scene.path.join(name);
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, mode(bits)).unwrap();
        fs::rename(made.join("deep"), other.join("deep")).unwrap();
        fs::remove_dir_all(&made).unwrap();
        fs::rename(&other, &made).unwrap();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        let inode = scene.at("made");
        assert_eq!(scene.direct.step(inode).unwrap().mode & 0o7777, bits);
        scene.write(&format!("made/{name}"), b"ours");
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete(), "{outcome:#?}");
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o7777, bits);
    }
    // The image knows which one it is.
    for path in ["made/deep/file", "made/again"] {
        scene.unlink(path);
    }
    for path in ["made/deep", "made"] {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = scene.at(dir);
        scene.direct.rmdir(&ALL, dir, name.as_bytes()).unwrap();
    }
    let outcome = scene.bring_here(false);
    assert!(outcome.is_complete() && !made.exists(), "{outcome:#?}");
}

#[test]
fn what_the_host_removes_after_a_sync_leaves_a_free_name() {
    for live in [false, true] {
        let mut scene = Scene::at_once(|path| {
            fs::write(path.join("name"), "host: name").unwrap();
            fs::write(path.join("again"), "host: again").unwrap();
        });
        for name in ["name", "again"] {
            scene.unlink(name);
            scene.mkdir(name);
            scene.write(&format!("{name}/file"), b"ours");
        }
        assert!(scene.bring_here(true).is_complete());
        for name in ["name", "again"] {
            fs::remove_dir_all(scene.path.join(name)).unwrap();
        }
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        fs::write(scene.path.join("again"), "the host's").unwrap();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete() && told.added == 1, "{told:#?}");
        scene.write("name", b"ours again");
        let outcome = scene.bring_here(live);
        assert!(outcome.is_complete(), "{outcome:#?}");
        let read = |name| fs::read_to_string(scene.path.join(name)).unwrap();
        assert_eq!((read("name"), read("again")), ("ours again".into(), "the host's".into()));
    }
}

#[test]
fn what_was_taken_in_below_a_directory_that_was_synced_is_replaced_without_a_conflict() {
    for live in [false, true] {
        let mut scene = synced_scene(1);
        let at = |name: &str| scene.path.join("made").join(name);
        fs::write(at("file"), "the host's").unwrap();
        symlink("the host's", at("link")).unwrap();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete() && told.added == 2, "{told:#?}");
        for name in ["made/file", "made/link"] {
            scene.rename(name, &format!("{name}-moved"));
            scene.write(name, b"ours");
        }
        let outcome = scene.bring_here(live);
        assert!(outcome.is_complete(), "{outcome:#?}");
        let read = |name: &str| fs::read_to_string(scene.path.join("made").join(name)).unwrap();
        assert_eq!((read("file"), read("link")), ("ours".into(), "ours".into()));
        assert_eq!(read("file-moved"), "the host's");
    }
}
