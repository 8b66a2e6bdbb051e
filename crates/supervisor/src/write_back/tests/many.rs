//! So many small files that several threads share the work.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::host::identity_of;
use super::{Scene, complete, nothing_is_left_to_do, who};
use husk_proto::Fs;
use husk_proto::fs::{Change, Time};

/// Files of each kind: more than two threads' worth.
const COUNT: usize = 300;
/// Longer than what is shared.
const LONG: usize = 200_000;

fn host_text(n: usize) -> String {
    format!("host: {n}\n")
}

fn fill(path: &Path) {
    fs::create_dir(path.join("old")).unwrap();
    for n in 0..COUNT {
        fs::write(path.join(format!("old/{n}")), host_text(n)).unwrap();
    }
    fs::write(path.join("old/long"), vec![b'h'; LONG]).unwrap();
}

fn number(scene: &Scene, path: &str) -> u64 {
    fs::metadata(scene.path.join(path)).unwrap().ino()
}

#[test]
fn many_files_grow_in_place_and_what_the_host_changed_among_them_stays() {
    let mut scene = Scene::new(fill);
    for n in 0..COUNT {
        // One whose beginning changes, too.
        let text = match n {
            17 => "all of this is new".to_owned(),
            n => format!("{}ours: {n}", host_text(n)),
        };
        scene.rewrite(&format!("old/{n}"), text.as_bytes());
    }
    let long = [vec![b'h'; LONG], b"ours".to_vec()].concat();
    scene.rewrite("old/long", &long);
    // And one that the host has changed.
    fs::write(scene.path.join("old/200"), "theirs").unwrap();
    let before: Vec<_> = (0..COUNT).map(|n| number(&scene, &format!("old/{n}"))).collect();
    let outcome = scene.write_back();
    assert_eq!(outcome.written as usize, COUNT + 1);
    assert!(outcome.failures.is_empty(), "{outcome:?}");
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    for (n, &before) in before.iter().enumerate() {
        let path = format!("old/{n}");
        let text = match n {
            17 => "all of this is new".to_owned(),
            200 => "theirs".to_owned(),
            n => format!("{}ours: {n}", host_text(n)),
        };
        assert_eq!(scene.host(&path), text);
        assert_eq!(number(&scene, &path) == before, n != 17, "{path}");
    }
    assert!(fs::read(scene.path.join("old/long")).unwrap() == long);
    assert_eq!(scene.host(&format!("old/200.husk-{}", super::RUN)), "host: 200\nours: 200");
}

#[test]
fn many_new_files_have_their_bytes_times_and_links_and_their_directories_times() {
    let mut scene = Scene::new(|_| {});
    let mut all = Vec::new();
    for name in ["new", "new/one", "new/two", "new/two/three"] {
        let inode = scene.mkdir(name);
        for n in 0..COUNT {
            let path = format!("{name}/{n}");
            let text = if n == 5 { "l".repeat(LONG) } else { "x".repeat(n) };
            let file = scene.write(&path, text.as_bytes());
            let at = Some(Time::At(1_000_000_000_000_000_000 + n as i64));
            let mode = Some(0o600 + n as u32 % 64);
            let change = Change { mode, modified: at, ..Change::default() };
            scene.direct.change(&who(), file, change).unwrap();
            all.push((path, text, file));
        }
        let file = scene.at(&format!("{name}/9"));
        let (dir, linked) = scene.split("new/linked");
        if name == "new" {
            scene.direct.link(&who(), file, dir, linked).unwrap();
        }
        all.push((name.to_owned(), String::new(), inode));
    }
    complete(&scene.write_back());
    for (path, text, inode) in all {
        let wanted = scene.direct.attributes(inode).unwrap();
        let found = fs::metadata(scene.path.join(&path)).unwrap();
        assert_eq!(identity_of(&found).modified_ns, wanted.modified_ns, "{path}");
        assert_eq!(found.mode() & 0o7777, wanted.step.mode & 0o7777, "{path}");
        assert!(found.is_dir() || scene.host(&path) == text, "{path}");
    }
    assert_eq!(number(&scene, "new/linked"), number(&scene, "new/9"));
    nothing_is_left_to_do(&mut scene);
}
