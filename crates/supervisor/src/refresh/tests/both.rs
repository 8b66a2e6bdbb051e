//! What image and host have both made or moved, or the image alone, is no conflict of a refresh.

use std::fs;
use std::path::Path;

use super::*;
use crate::write_back::tests::moved::sync_without_room;

fn names(scene: &mut Scene, dir: Inode) -> Vec<String> {
    let mut names = Vec::new();
    let listed = scene.direct.list(dir, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    });
    listed.unwrap();
    names.sort();
    names
}

#[test]
fn files_that_both_sides_have_made_with_the_same_bytes_are_no_conflict() {
    let mut scene = Scene::at_once(|path| fs::write(path.join("edited"), "host").unwrap());
    for name in ["same", "differs", "longer"] {
        scene.write(name, b"bytes");
    }
    scene.rewrite("edited", b"bytes");
    for (name, text) in [
        ("same", "bytes"),
        ("edited", "bytes"),
        ("differs", "BYTES"),
        ("longer", "bytes, and more"),
    ] {
        fs::write(scene.path.join(name), text).unwrap();
    }
    let mut told = refresh_noting(&mut scene).conflicts;
    told.sort();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("/differs: ") && told[1].contains("/longer: "), "{told:#?}");
    let outcome = scene.bring_here(false);
    assert_eq!(outcome.conflicts.len(), 2, "as the write-back: {outcome:#?}");
}

#[test]
fn what_only_the_image_has_made_was_not_removed_on_the_host() {
    let mut scene = Scene::at_once(|path| {
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/theirs"), "host").unwrap();
        fs::write(path.join("moved"), "host").unwrap();
    });
    scene.at("d");
    scene.write("d/new", b"image");
    scene.rename("moved", "d/moved");
    fs::remove_dir_all(scene.path.join("d")).unwrap();
    let told = refresh_noting(&mut scene);
    assert!(told.is_complete(), "{told:#?}");
    let dir = scene.direct.lookup(scene.root, b"d").unwrap().inode;
    assert_eq!(names(&mut scene, dir), ["moved", "new"]);
}

#[test]
fn a_directory_of_the_host_stays_whose_new_place_the_host_removes_or_moves() {
    let remove: fn(&Path) = |path| fs::remove_dir_all(path).unwrap();
    let move_it: fn(&Path) = |path| fs::rename(path, path.with_extension("moved")).unwrap();
    let replace: fn(&Path) = |path| {
        fs::remove_dir_all(path).unwrap();
        fs::write(path, "a file now").unwrap();
    };
    for (goes, listed) in
        [remove, move_it, replace].into_iter().flat_map(|one| [(one, true), (one, false)])
    {
        let mut scene = Scene::at_once(|path| {
            fs::create_dir_all(path.join("d/in")).unwrap();
            fs::write(path.join("d/in/file"), "host").unwrap();
            fs::create_dir(path.join("place")).unwrap();
            fs::write(path.join("place/theirs"), "host").unwrap();
        });
        let listing = ["d/in", "place"];
        for path in &listing[usize::from(!listed)..] {
            scene.at(path);
        }
        scene.rename("d", "place/d");
        goes(&scene.path.join("place"));
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        let dir = scene.at("place");
        assert_eq!(names(&mut scene, dir), ["d"]);
        let outcome = scene.bring_here(false);
        assert_eq!(outcome.conflicts.len(), 1, "{outcome:#?}");
        let beside = fs::read_dir(&scene.path).unwrap().map(|one| one.unwrap().path());
        let beside = beside.filter(|path| path.extension().is_some_and(|end| end != "moved"));
        let kept: Vec<_> = beside.map(|path| fs::read_to_string(path.join("d/in/file"))).collect();
        assert!(matches!(&kept[..], [Ok(text)] if text == "host"), "{kept:?} {outcome:#?}");
    }
}

#[test]
fn what_the_host_has_in_a_directory_that_both_have_made_is_seen_after_a_refresh() {
    for gone in [false, true] {
        let mut scene = Scene::at_once(|path| {
            if gone {
                fs::create_dir(path.join("made")).unwrap();
            }
        });
        if gone {
            scene.at("made");
            let root = scene.root;
            scene.direct.rmdir(&ALL, root, b"made").unwrap();
            assert!(scene.bring_here(true).is_complete());
        }
        for path in ["made", "made/in", "other"] {
            scene.mkdir(path);
            fs::create_dir(scene.path.join(path)).unwrap();
            set_mode(&scene, path, if path == "other" { 0o700 } else { 0o751 });
        }
        scene.write("made/in/ours", b"image");
        fs::write(scene.path.join("made/in/theirs"), "host").unwrap();
        fs::write(scene.path.join("other/theirs"), "host").unwrap();
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{told:#?}");
        let dir = scene.direct.lookup(scene.root, b"made").unwrap().inode;
        let dir = scene.direct.lookup(dir, b"in").unwrap().inode;
        assert_eq!(names(&mut scene, dir), ["ours", "theirs"]);
        let other = scene.direct.lookup(scene.root, b"other").unwrap().inode;
        assert_eq!(names(&mut scene, other), [""; 0], "it has other rights");
        fs::write(scene.path.join("made/in/later"), "host").unwrap();
        assert!(refresh_noting(&mut scene).is_complete());
        assert_eq!(names(&mut scene, dir), ["later", "ours", "theirs"]);
        scene.direct.unlink(&ALL, dir, b"theirs").unwrap();
        let outcome = scene.bring_here(false);
        assert_eq!(outcome.conflicts.len(), 1, "only `other`: {outcome:#?}");
        let there: Vec<_> = fs::read_dir(scene.path.join("made/in")).unwrap().flatten().collect();
        let mut there: Vec<_> = there.iter().map(|one| one.file_name()).collect();
        there.sort();
        assert_eq!(there, ["later", "ours"]);
    }
}

/// Not even a refresh takes what could not be written yet for what the host has removed.
#[test]
fn what_was_moved_and_found_no_room_is_still_there_after_a_refresh() {
    let mut scene = Scene::at_once(|path: &Path| {
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/file"), "host").unwrap();
    });
    scene.at("d");
    scene.rename("d", "e");
    let outcome = sync_without_room(&mut scene, &["linkat", "open"]);
    assert!(!outcome.failures.is_empty(), "{outcome:#?}");
    assert!(scene.path.join("e").exists(), "{outcome:#?}");
    let told = refresh_noting(&mut scene);
    assert!(told.is_complete(), "{told:#?}");
    let outcome = scene.bring_here(true);
    assert!(outcome.is_complete(), "{outcome:#?}");
    assert_eq!(fs::read_to_string(scene.path.join("e/file")).unwrap(), "host");
    assert!(!scene.path.join("d").exists());
}

/// Bytes that the image has taken over and not changed, a name that it has moved, or both.
#[test]
fn what_the_image_has_moved_before_a_sync_is_the_hosts_again_when_the_host_changes_it() {
    type Change = fn(&Path);
    let edit: Change = |path| fs::write(path, "theirs, and longer").unwrap();
    let remove: Change = |path| fs::remove_file(path).unwrap();
    let replace: Change = |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    for (n, change) in [edit, remove, replace].into_iter().enumerate() {
        let mut scene = Scene::at_once(|path| {
            for name in ["a", "b", "c", "over", "over2", "linked", "changed"] {
                fs::write(path.join(name), "host").unwrap();
            }
        });
        scene.rename("a", "moved");
        // Opened for writing, and not written.
        scene.rewrite("b", b"host");
        let time = host::identity_of(&fs::metadata(scene.path.join("b")).unwrap()).modified_ns;
        let times = husk_proto::fs::Change { modified: Some(Time::At(time)), ..Default::default() };
        give(&mut scene, "b", times);
        scene.rename("b", "taken");
        scene.rename("c", "over");
        scene.rename("changed", "over2");
        append(&mut scene, "over2");
        let (root, file) = (scene.root, scene.at("linked"));
        scene.direct.link(&ALL, file, root, b"link").unwrap();
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete(), "{outcome:#?}");
        let all = ["moved", "taken", "over", "over2", "link"];
        all.iter().for_each(|name| change(&scene.path.join(name)));
        let told = refresh_noting(&mut scene);
        assert!(told.is_complete(), "{n}: {told:#?}");
        let after = shown(&mut scene);
        for name in all {
            let (is, found) = (after.get(&format!("/{name}")), fs::metadata(scene.path.join(name)));
            let is = is.map(|one| (one.0, one.2, one.4));
            let kind = |one: &fs::Metadata| if one.is_dir() { Kind::Directory } else { Kind::File };
            let found = found
                .ok()
                .map(|one| (kind(&one), if one.is_dir() { 0 } else { one.len() }, one.ino()));
            assert_eq!(is, found, "{n}: {name}");
        }
        let outcome = scene.bring_here(true);
        assert!(outcome.is_complete() && outcome.written == 0, "{n}: {outcome:#?}");
    }
}

fn append(scene: &mut Scene, name: &str) {
    let file = scene.at(name);
    let who = scene.direct.attributes(file).unwrap();
    let donor = scene.direct.create_nameless(&ALL, file, 0o600, false).unwrap();
    scene.direct.write_at(donor, 0, b"host").unwrap();
    assert_eq!(scene.direct.adopt(file, donor), Ok(true));
    scene.direct.write_at(file, who.size, b", image").unwrap();
}
