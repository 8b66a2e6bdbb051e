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
