//! Write-backs of chosen paths: these, what belongs to them, and nothing else.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::Fs;

use super::{Scene, complete};

fn filled(paths: &[&str]) -> Scene {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    Scene::new(move |top: &Path| {
        for path in &paths {
            fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
            fs::write(top.join(path), path).unwrap();
        }
    })
}

impl Scene {
    fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path.join(path)).is_ok()
    }
}

#[test]
fn only_what_is_chosen_is_written_and_what_leads_to_it() {
    let mut scene = filled(&["a", "b", "gone", "kept"]);
    scene.rewrite("a", b"image");
    scene.rewrite("b", b"image");
    scene.unlink("gone");
    scene.unlink("kept");
    scene.mkdir("new");
    scene.mkdir("new/in");
    scene.write("new/in/one", b"1");
    scene.write("new/in/two", b"2");
    scene.write("new/beside", b"3");
    let outcome = scene.sync_some(&["a", "gone", "new/in/one"]);
    complete(&outcome);
    assert_eq!((scene.host("a"), scene.host("b")), ("image".to_owned(), "b".to_owned()));
    assert!(!scene.has("gone") && scene.has("kept"));
    assert_eq!(scene.host("new/in/one"), "1");
    assert!(!scene.has("new/in/two") && !scene.has("new/beside"));
    complete(&scene.sync());
    assert_eq!((scene.host("b"), scene.host("new/in/two")), ("image".to_owned(), "2".to_owned()));
    assert!(!scene.has("kept") && scene.has("new/beside"));
}

#[test]
fn a_move_comes_with_both_ends_whichever_is_chosen() {
    for chosen in ["src/a", "dst/a"] {
        let mut scene = filled(&["src/a", "src/b", "dst/x"]);
        scene.rename("src/a", "dst/a");
        scene.rename("src/b", "dst/b");
        complete(&scene.sync_some(&[chosen]));
        assert!(!scene.has("src/a") && scene.has("src/b") && !scene.has("dst/b"), "{chosen}");
        assert_eq!(scene.host("dst/a"), "src/a");
        complete(&scene.sync());
        assert!(!scene.has("src/b") && scene.has("dst/b"), "{chosen}");
    }
}

#[test]
fn of_a_directory_that_was_moved_or_removed_one_file_is_chosen() {
    let mut scene = filled(&["old/a", "old/b", "dead/a", "dead/b"]);
    scene.rename("old", "new");
    for name in ["dead/a", "dead/b"] {
        scene.unlink(name);
    }
    let root = scene.root;
    scene.direct.rmdir(&super::who(), root, b"dead").unwrap();
    complete(&scene.sync_some(&["new/a", "dead/b"]));
    assert_eq!(scene.host("new/a"), "old/a");
    assert!(!scene.has("old/a") && scene.has("old/b") && !scene.has("new/b"));
    assert!(scene.has("dead/a") && !scene.has("dead/b"));
    complete(&scene.sync());
    assert_eq!(scene.host("new/b"), "old/b");
    assert!(!scene.has("old") && !scene.has("dead"));
}

#[test]
fn what_takes_the_place_of_something_else_comes_whole() {
    let mut scene = filled(&["place", "elsewhere"]);
    scene.unlink("place");
    scene.mkdir("place");
    scene.write("place/one", b"1");
    scene.rename("elsewhere", "place/two");
    complete(&scene.sync_some(&["place/one"]));
    assert_eq!(
        (scene.host("place/one"), scene.host("place/two")),
        ("1".into(), "elsewhere".into())
    );
    assert!(!scene.has("elsewhere"));
}

#[test]
fn all_names_of_a_file_come_with_one() {
    let mut scene = filled(&["a", "b"]);
    let (dir, _) = scene.split("a");
    let inode = scene.write("one", b"image");
    scene.direct.link(&super::who(), inode, dir, b"two").unwrap();
    complete(&scene.sync_some(&["two"]));
    let number = |name: &str| fs::metadata(scene.path.join(name)).unwrap().ino();
    assert_eq!(number("one"), number("two"));
}

#[test]
fn what_else_is_a_conflict_or_fails_is_not_told() {
    let mut scene = filled(&["mine", "both"]);
    scene.rewrite("mine", b"image");
    scene.rewrite("both", b"image");
    super::settle();
    fs::write(scene.path.join("both"), "host").unwrap();
    complete(&scene.sync_some(&["mine"]));
    assert_eq!(scene.host("mine"), "image");
    let outcome = scene.sync_some(&["both"]);
    assert_eq!(
        (outcome.conflicts.len(), scene.host("both")),
        (1, "host".to_owned()),
        "{outcome:?}"
    );
    assert_eq!(scene.host("both.husk-77"), "image");
}
