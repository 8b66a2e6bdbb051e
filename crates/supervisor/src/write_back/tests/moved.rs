//! Directories that the image moves, while the disk is full or the host changes them, too.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use husk_proto::Fs;
use rustix::io::Errno;

use super::{Outcome, Scene, complete, settle};
use crate::write_back::host::beneath::schedule;

/// A sync on a disk that takes names, and no bytes.
pub(crate) fn sync_without_room(scene: &mut Scene, calls: &'static [&'static str]) -> Outcome {
    let failed = Rc::new(Cell::new(0));
    let count = Rc::clone(&failed);
    let plan = move |call: &'static str| {
        let fails = calls.contains(&call);
        count.set(count.get() + u32::from(fails));
        if fails { Err(Errno::NOSPC.into()) } else { Ok(()) }
    };
    let outcome = schedule::during(plan, || scene.bring_here(true));
    assert!(failed.get() > 0, "nothing was tried: {outcome:#?}");
    outcome
}

#[test]
fn a_moved_file_with_several_names_that_found_no_room_is_written_once_there_is_room() {
    for dies in [false, true] {
        let mut scene = Scene::new(|path| {
            fs::create_dir(path.join("d")).unwrap();
            for name in ["1", "2"] {
                fs::write(path.join("d").join(name), "host").unwrap();
            }
        });
        scene.append("d/1", b", image");
        scene.append("d/2", b", image");
        scene.rename("d", "e");
        scene.mkdir("d");
        let file = scene.at("e/1");
        let (dir, name) = scene.split("d/one");
        scene.direct.link(&super::who(), file, dir, name).unwrap();
        for _ in 0..2 {
            let outcome = sync_without_room(&mut scene, &["pwrite"]);
            assert!(!outcome.failures.is_empty(), "{outcome:#?}");
            assert!(outcome.conflicts.is_empty(), "nobody has touched the host: {outcome:#?}");
            assert_eq!(scene.host("d/1"), "host", "what is not written yet stays");
        }
        complete(&if dies { scene.write_back() } else { scene.sync() });
        for name in ["e/1", "e/2", "d/one"] {
            assert_eq!(scene.host(name), "host, image", "{name}");
        }
        let number = |name: &str| fs::metadata(scene.path.join(name)).unwrap().ino();
        assert_eq!(number("e/1"), number("d/one"));
        assert!(!scene.path.join("d/1").exists() && !scene.path.join("d/2").exists());
    }
}

#[test]
fn what_both_sides_have_moved_is_told_with_what_to_do_and_keeps_nothing_else_back() {
    for (name, listed) in [("file", true), ("d", false), ("d", true)] {
        let mut scene = Scene::new(|path| {
            fs::create_dir_all(path.join("d/s")).unwrap();
            fs::write(path.join("d/s/c"), "host").unwrap();
            fs::write(path.join("file"), "host").unwrap();
        });
        scene.at(if listed { "d/s" } else { "" });
        scene.rename(name, "ours");
        scene.write("another", b"image");
        fs::rename(scene.path.join(name), scene.path.join("theirs")).unwrap();
        for _ in 0..2 {
            let outcome = scene.sync();
            assert!(outcome.busy.is_empty(), "nothing changes: {outcome:#?}");
            assert_eq!(outcome.failures.len(), 1, "{outcome:#?}");
            let (was, is) = (scene.path.join(name), scene.path.join("ours"));
            let line = &outcome.failures[0];
            assert!(line.contains(&format!("moved or removed {}", was.display())), "{line}");
            assert!(line.contains(&format!("remove {}", is.display())), "{line}");
            assert_eq!(scene.host("another"), "image");
        }
        fs::rename(scene.path.join("theirs"), scene.path.join(name)).unwrap();
        complete(&scene.sync());
        assert!(!scene.path.join(name).exists());
        let text = if name == "d" { scene.host("ours/s/c") } else { scene.host("ours") };
        assert_eq!(text, "host");
    }
}

#[test]
fn what_the_host_puts_into_a_directory_that_the_image_has_moved_unread_moves_with_it() {
    let mut scene = Scene::new(|path| {
        fs::create_dir_all(path.join("d/s")).unwrap();
        fs::write(path.join("d/s/c"), "host").unwrap();
        fs::write(path.join("d/a"), "host").unwrap();
    });
    scene.rename("d", "e");
    settle();
    fs::write(scene.path.join("d/s/late"), "late").unwrap();
    fs::write(scene.path.join("d/a"), "host, and more").unwrap();
    complete(&scene.sync());
    assert!(!scene.path.join("d").exists());
    for (name, text) in [("e/s/c", "host"), ("e/s/late", "late"), ("e/a", "host, and more")] {
        assert_eq!(scene.host(name), text);
    }
}

/// Names that the host gives to a file that the image changes, and nobody refreshes.
#[test]
fn a_hard_link_that_the_host_makes_has_the_bytes_that_the_image_writes() {
    for (linked_inside, synced, live) in
        [(false, false, false), (true, false, true), (false, true, true), (true, true, false)]
    {
        let what = format!("linked inside {linked_inside}, synced {synced}, live {live}");
        let mut scene = Scene::new(|path| {
            for name in ["d", "d/below", "unlisted"] {
                fs::create_dir(path.join(name)).unwrap();
            }
            fs::write(path.join("d/a"), "host").unwrap();
            fs::write(path.join("removed"), "host").unwrap();
        });
        scene.at("d/below");
        if linked_inside {
            let file = scene.at("d/a");
            let (dir, name) = scene.split("d/ours");
            scene.direct.link(&super::who(), file, dir, name).unwrap();
        }
        scene.append("d/a", b", image");
        if synced {
            complete(&scene.sync());
            scene.append("d/a", b", again");
        }
        scene.unlink("removed");
        let link = |to: &str| fs::hard_link(scene.path.join("d/a"), scene.path.join(to)).unwrap();
        let mut all = vec!["d/theirs", "d/below/theirs"];
        if !synced {
            all.push("unlisted/theirs");
        }
        all.iter().for_each(|name| link(name));
        // It is another file's name in the image, and stays the host's.
        fs::remove_file(scene.path.join("removed")).unwrap();
        link("removed");
        let outcome = if live { scene.sync() } else { scene.write_back() };
        let text = if synced { "host, image, again" } else { "host, image" };
        let told = format!("{what}: {outcome:#?}");
        all.push("d/a");
        all.extend(linked_inside.then_some("d/ours"));
        let number = |name: &str| fs::metadata(scene.path.join(name)).unwrap().ino();
        for name in &all {
            assert_eq!(scene.host(name), text, "{name}: {told}");
            assert_eq!(number(name), number("d/a"), "{name}: {told}");
        }
        assert_eq!(outcome.conflicts.len(), 1, "{told}");
        assert!(outcome.conflicts[0].contains("/removed"), "{told}");
        assert!(scene.path.join("removed").exists());
    }
}

#[test]
fn what_a_sync_puts_where_a_moved_file_was_is_not_taken_for_that_file() {
    let mut scene = Scene::new(|path| {
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/file"), "host").unwrap();
    });
    scene.rename("d/file", "moved");
    scene.write("d/file", b"image");
    fs::rename(scene.path.join("d"), scene.path.join("theirs")).unwrap();
    for _ in 0..3 {
        let outcome = scene.sync();
        let [line] = &outcome.failures[..] else { panic!("{outcome:#?}") };
        assert!(line.contains("/moved: another program has moved or removed "), "{line}");
        assert_eq!(scene.host("d/file"), "image", "{outcome:#?}");
        assert!(!scene.path.join("moved").exists());
    }
}
