//! Extended attributes that both sides change: each by itself.

use std::collections::BTreeMap;

use husk_proto::acl;
use husk_proto::fs::SetExtended;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};

use super::*;

const NAMES: [&str; 4] = ["touched", "written", "moved", "directory"];
/// u:12:rw beside owner, group, mask and others.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 12, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255,
    255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

fn host_set(path: &Path, name: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => setxattr(path, name, value, XattrFlags::empty()).unwrap(),
        None => removexattr(path, name).unwrap(),
    }
}

fn on_host(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 4096];
    let length = listxattr(path, &mut list[..]).unwrap();
    let names = list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8(name.to_vec()).unwrap());
    let value = |name: &String| {
        let mut value = vec![0; 4096];
        let length = getxattr(path, name.as_str(), &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    names.map(|name| (name.clone(), value(&name))).collect()
}

/// What a program does to attributes: takes the host's over, and changes some.
fn image_set(scene: &mut Scene, path: &str, name: &str, value: Option<&[u8]>) {
    let inode = scene.at(path);
    if scene.direct.attributes(inode).unwrap().extended == Backing::Host {
        for (name, value) in on_host(&scene.path.join(path)) {
            let how = SetExtended::Imported;
            scene.direct.set_extended(inode, name.as_bytes(), Some(&value), how).unwrap();
        }
        scene.direct.take_extended_over(inode).unwrap();
    }
    scene.direct.set_extended(inode, name.as_bytes(), value, SetExtended::Any).unwrap();
}

fn in_image(scene: &mut Scene, path: &str, name: &str) -> Option<Vec<u8>> {
    let (inode, mut value) = (scene.at(path), vec![0; 4096]);
    let length = scene.direct.extended(inode, name.as_bytes(), &mut value).ok()?;
    Some(value[..length].to_vec())
}

fn scene() -> Scene {
    let mut scene = Scene::new(|path| {
        fs::create_dir(path.join("directory")).unwrap();
        for name in NAMES.into_iter().filter(|name| *name != "directory") {
            fs::write(path.join(name), "host").unwrap();
        }
        for name in NAMES {
            for one in ["kept", "ours", "removed", "theirs", "gone"] {
                host_set(&path.join(name), &format!("user.{one}"), Some(b"1"));
            }
            host_set(&path.join(name), std::str::from_utf8(acl::ACCESS).unwrap(), Some(&LIST));
        }
    });
    for name in NAMES {
        image_set(&mut scene, name, "user.ours", Some(b"image"));
        image_set(&mut scene, name, "user.new", Some(b"image"));
        image_set(&mut scene, name, "user.removed", None);
    }
    scene.rewrite("written", b"image");
    scene
}

/// A right that the host has taken away stays away.
#[test]
fn only_what_the_image_has_changed_of_extended_attributes_is_written() {
    for live in [false, true] {
        let mut scene = scene();
        for name in NAMES {
            let path = scene.path.join(name);
            host_set(&path, "user.theirs", Some(b"host"));
            host_set(&path, "user.came", Some(b"host"));
            host_set(&path, "user.gone", None);
            host_set(&path, "system.posix_acl_access", None);
        }
        scene.rename("moved", "there");
        let names = NAMES.map(|name| if name == "moved" { "there" } else { name });
        let outcome = scene.bring(live, &[]);
        complete(&outcome);
        let all = [
            ("came", "host"),
            ("kept", "1"),
            ("new", "image"),
            ("ours", "image"),
            ("theirs", "host"),
        ];
        let wanted = |all: &[(&str, &str)]| -> BTreeMap<_, _> {
            all.iter()
                .map(|(name, value)| (format!("user.{name}"), value.as_bytes().to_vec()))
                .collect()
        };
        for name in names {
            assert_eq!(on_host(&scene.path.join(name)), wanted(&all), "{name} {live}");
        }
        if !live {
            continue;
        }
        // What the host has by now is what it had, whoever has changed it.
        for name in names {
            assert_eq!(in_image(&mut scene, name, "user.theirs"), Some(b"host".to_vec()), "{name}");
            assert_eq!(in_image(&mut scene, name, "user.gone"), None);
            let path = scene.path.join(name);
            host_set(&path, "user.ours", Some(b"later"));
            host_set(&path, "user.new", None);
            host_set(&path, "user.removed", Some(b"1"));
            image_set(&mut scene, name, "user.kept", Some(b"later"));
        }
        complete(&scene.sync());
        let all = [
            ("came", "host"),
            ("kept", "later"),
            ("ours", "later"),
            ("removed", "1"),
            ("theirs", "host"),
        ];
        for name in names {
            assert_eq!(on_host(&scene.path.join(name)), wanted(&all), "{name}");
        }
        complete(&scene.sync());
    }
}

#[test]
fn an_extended_attribute_that_both_sides_have_changed_is_the_hosts_and_told_once() {
    let mut scene = scene();
    for name in NAMES {
        let path = scene.path.join(name);
        host_set(&path, "user.ours", Some(b"host"));
        host_set(&path, "user.removed", Some(b"host"));
    }
    for n in 0..3 {
        let outcome = scene.sync();
        assert!(outcome.failures.is_empty());
        let told = if n == 0 { 2 * NAMES.len() } else { 0 };
        assert_eq!(outcome.conflicts.len(), told, "{n}: {:#?}", outcome.conflicts);
        for name in NAMES {
            let found = on_host(&scene.path.join(name));
            assert_eq!(found["user.ours"], b"host", "{name} {n}");
            assert_eq!(found["user.removed"], b"host", "{name} {n}");
            assert_eq!(found["user.new"], b"image", "{name} {n}");
        }
        if n == 0 {
            let at = scene.path.join("touched");
            let typed = format!("setfattr -h -n user.ours -v 0x696d616765 {}", at.display());
            assert!(outcome.conflicts.iter().any(|line| line.ends_with(&typed)), "{outcome:#?}");
        }
        scene.append("written", b", more");
    }
    // What it changes then is news again.
    image_set(&mut scene, "touched", "user.ours", Some(b"again"));
    complete(&scene.sync());
    assert_eq!(on_host(&scene.path.join("touched"))["user.ours"], b"again");
}

/// What a program changes while the write-back settles is written by the next one.
#[test]
fn a_kill_at_any_step_loses_no_extended_attribute_of_either_side() {
    use super::failures::killed::killed_at;
    use crate::write_back::host::beneath::schedule;
    let mut kills = 0;
    for n in 1..400 {
        if n % 32 == 0 {
            Scene::renew_the_image();
        }
        let mut scene = Scene::at_once(|path| {
            fs::write(path.join("file"), "host").unwrap();
            for one in ["ours", "removed", "theirs"] {
                host_set(&path.join("file"), &format!("user.{one}"), Some(b"1"));
            }
        });
        image_set(&mut scene, "file", "user.ours", Some(b"image"));
        image_set(&mut scene, "file", "user.removed", None);
        let path = scene.path.join("file");
        host_set(&path, "user.theirs", Some(b"host"));
        let over = killed_at(n, || scene.bring_here(true)).is_some();
        let outcome = schedule::during(|_| Ok(()), || scene.bring_here(true));
        complete(&outcome);
        let found = on_host(&path);
        let texts: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            texts,
            [("user.ours", &b"image"[..]), ("user.theirs", b"host")],
            "killed at {n}"
        );
        if over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 5, "{kills}");
}

/// What is moved is known by where the last write-back has put it, not by where it was first.
#[test]
fn attributes_of_what_is_moved_again_and_again_come_and_go_without_a_conflict() {
    let mut scene = Scene::new(|path| {
        for name in ["a", "e", "e/below"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        fs::write(path.join("file"), "host").unwrap();
    });
    scene.write("new", b"image");
    let synced = |scene: &mut Scene, names: [&str; 3], value: Option<&str>| {
        complete(&scene.bring_here(true));
        for name in names {
            let there = on_host(&scene.path.join(name)).remove("user.k");
            assert_eq!(there.as_deref(), value.map(str::as_bytes), "{name}");
        }
    };
    for name in ["a", "file", "new"] {
        image_set(&mut scene, name, "user.k", Some(b"one"));
    }
    for (from, to) in [("a", "e/a"), ("file", "e/file"), ("new", "e/new")] {
        scene.rename(from, to);
    }
    synced(&mut scene, ["e/a", "e/file", "e/new"], Some("one"));
    for name in ["e/a", "e/file", "e/new"] {
        image_set(&mut scene, name, "user.k", None);
    }
    scene.mkdir("n");
    scene.rename("e", "n/f");
    synced(&mut scene, ["n/f/a", "n/f/file", "n/f/new"], None);
    for name in ["n/f/a", "n/f/file", "n/f/new"] {
        image_set(&mut scene, name, "user.k", Some(b"two"));
    }
    synced(&mut scene, ["n/f/a", "n/f/file", "n/f/new"], Some("two"));
}
