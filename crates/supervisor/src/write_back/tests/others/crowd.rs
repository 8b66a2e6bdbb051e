//! The adversary beside what the other scene has none of: git's index, extended attributes, access
//! control lists, hard links of the host, and names of conflicts. With and without `openat2`, at
//! the end of an image and while its programs go on.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use husk_proto::Fs;
use husk_proto::acl::ACCESS;
use husk_proto::fs::SetExtended;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::adversary::{MOVES, Move, contents, fifo, outside, run_on, stride};
use crate::write_back::Outcome;
use crate::write_back::tests::Scene;

/// Somewhere below, whatever happens.
const ALL: &[&str] = &[
    "ours: index",
    "ours: config",
    "ours: listed",
    "ours: linked",
    "ours: both",
    "theirs: both",
    "theirs: gone",
    "host: labelled",
];
const LABEL: &str = "user.husk.label";
/// Ways to write back: `live`, `openat2`.
const WAYS: [(bool, bool); 4] = [(false, true), (true, false), (false, false), (true, true)];
/// Who else may read: group 1.
const GROUP: u32 = 1;

/// `user::rw-,group::r--,group:1:r--,mask::r--,other::---`, as the host has it.
fn list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, u32::MAX),
        (4, 4, u32::MAX),
        (8, 4, GROUP),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = Vec::from(2_u32.to_le_bytes());
    for (tag, rights, id) in entries {
        bytes.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    bytes
}

fn fill(path: &Path) {
    let public = path.join("pub");
    fs::create_dir_all(public.join(".git")).unwrap();
    for directory in [&public, &public.join(".git")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    }
    for name in [".git/index", ".git/config", "labelled", "listed", "one", "both", "gone"] {
        fs::write(public.join(name), format!("host: {name}")).unwrap();
    }
    fs::hard_link(public.join("one"), public.join("two")).unwrap();
    setxattr(public.join("labelled"), LABEL, b"host", XattrFlags::empty()).unwrap();
    setxattr(public.join("listed"), str_of(ACCESS), &list(), XattrFlags::empty()).unwrap();
    let outside = path.with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["secret", "index", "config", "labelled", "both"] {
        fs::write(outside.join(name), "outside").unwrap();
        fs::set_permissions(outside.join(name), fs::Permissions::from_mode(0o604)).unwrap();
    }
    fs::create_dir(path.join("other")).unwrap();
}

fn str_of(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap()
}

fn label(scene: &mut Scene, path: &str, value: &[u8]) {
    let inode = scene.at(path);
    let (how, mut before) = (SetExtended::Imported, [0; 16]);
    if let Ok(length) = getxattr(scene.path.join(path), LABEL, &mut before[..]) {
        let before = Some(&before[..length]);
        scene.direct.set_extended(inode, LABEL.as_bytes(), before, how).unwrap();
    }
    scene.direct.take_extended_over(inode).unwrap();
    let how = SetExtended::Any;
    scene.direct.set_extended(inode, LABEL.as_bytes(), Some(value), how).unwrap();
}

fn scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(fill);
    scene.rewrite("pub/.git/index", b"ours: index");
    scene.rewrite("pub/.git/config", b"ours: config");
    label(&mut scene, "pub/labelled", b"ours");
    scene.rewrite("pub/listed", b"ours: listed");
    // Both names are of one file in the image, as on the host.
    scene.rewrite("pub/one", b"ours: linked");
    scene.rewrite("pub/both", b"ours: both");
    scene.unlink("pub/gone");
    scene.write("pub/new", b"new");
    label(&mut scene, "pub/new", b"new");
    for name in ["both", "gone"] {
        let path = scene.path.join("pub").join(name);
        fs::write(path, format!("theirs: {name}")).unwrap();
    }
    scene
}

fn has_label(path: &Path, wanted: &[u8]) -> bool {
    let mut value = [0; 16];
    getxattr(path, LABEL, &mut value[..]).is_ok_and(|length| &value[..length] == wanted)
}

fn has_list(path: &Path) -> bool {
    let mut value = [0; 256];
    let length = getxattr(path, str_of(ACCESS), &mut value[..]);
    length.is_ok_and(|length| value[..length] == list()[..])
}

#[test]
fn beside_nobody_all_of_it_is_written() {
    for (live, openat2) in WAYS {
        let scene = &mut scene(1);
        let (_, outcome) = run_on(scene, u32::MAX, live, openat2, |_| Ok(()));
        assert_eq!((outcome.conflicts.len(), outcome.failures.len()), (2, 0), "{outcome:#?}");
        let found = contents(&scene.path);
        let texts = [
            (".git/index", "ours: index"),
            (".git/config", "ours: config"),
            ("listed", "ours: listed"),
            ("one", "ours: linked"),
            ("two", "ours: linked"),
            ("both", "theirs: both"),
            ("both.husk-77", "ours: both"),
            ("gone", "theirs: gone"),
        ];
        let public = scene.path.join("pub");
        for (name, text) in texts {
            assert_eq!(found.get(&public.join(name)).map(|one| &**one), Some(text), "{name}");
        }
        let number = |name| fs::metadata(public.join(name)).unwrap().ino();
        assert_eq!(number("one"), number("two"));
        assert!(has_label(&public.join("labelled"), b"ours"));
        assert!(has_label(&public.join("new"), b"new"));
        assert!(has_list(&public.join("listed")));
        scene.assert_no_temporary_names();
    }
}

/// The directory of the repository goes, and a link takes its name.
fn swap_the_repository(path: &Path) -> io::Result<()> {
    let public = path.join("pub");
    fs::rename(public.join(".git"), public.join("real"))?;
    symlink(path.with_file_name("outside"), public.join(".git"))
}

/// Names of conflicts are taken before they are given.
fn take_names_of_conflicts(path: &Path) -> io::Result<()> {
    let (public, outside) = (path.join("pub"), path.with_file_name("outside"));
    let away = |name: &str| fs::rename(public.join(name), public.join(format!("{name}.theirs")));
    let _ = away("both.husk-77");
    symlink(outside.join("secret"), public.join("both.husk-77"))?;
    let _ = away("gone.husk-77");
    fs::hard_link(outside.join("secret"), public.join("gone.husk-77"))
}

/// git's lock is a link, or a FIFO, or taken from who holds it.
fn take_the_locks(path: &Path) -> io::Result<()> {
    let git = path.join("pub/.git");
    let _ = fs::rename(git.join("index.lock"), git.join("index.theirs"));
    symlink(path.with_file_name("outside").join("secret"), git.join("index.lock"))?;
    let _ = fs::rename(git.join("config.lock"), git.join("config.theirs"));
    fifo(&git.join("config.lock"))
}

const MORE: &[(&str, Move)] = &[
    ("swap the repository", swap_the_repository),
    ("take names of conflicts", take_names_of_conflicts),
    ("take the locks", take_the_locks),
];

/// One host call in so many meets each move, which begin at different calls; with `HUSK_FULL` all.
const STEP: u32 = 13;

/// What is there of the image's and the host's, and who else may see it.
#[track_caller]
fn judge(scene: &Scene, outcome: &Outcome, live: bool, what: &str) {
    let found = contents(scene.scratch.path());
    for text in ALL {
        let there = found.values().any(|one| one == text);
        // While programs go on, what could not be written is in the image.
        let told = live && !(outcome.failures.is_empty() && outcome.busy.is_empty());
        assert!(there || told, "{what}: {text} is lost: {outcome:#?}\n{found:#?}");
    }
    for (path, _) in found.iter().filter(|(_, text)| *text == "ours: listed") {
        let mode = fs::metadata(path).unwrap().mode() & 0o7777;
        assert!(has_list(path) || mode & 0o77 == 0, "{what}: {mode:o} {outcome:#?}");
    }
}

#[test]
fn an_adversary_beside_attributes_links_and_conflicts_reaches_nothing_outside() {
    let step = stride(STEP);
    for (number, (what, act)) in (0..).zip(MOVES.iter().chain(MORE)) {
        for (at, (live, openat2)) in (number..).zip(WAYS) {
            let (mut n, mut reached) = (1 + at % step, true);
            while reached {
                let scene = &mut scene(n);
                let before = outside(scene);
                let path = scene.path.clone();
                let outcome;
                (reached, outcome) = run_on(scene, n, live, openat2, move |_| {
                    act(&path).unwrap();
                    Ok(())
                });
                let what = format!("{what} before call {n}, live: {live}, openat2: {openat2}");
                assert_eq!(outside(scene), before, "{what}: {outcome:#?}");
                judge(scene, &outcome, live, &what);
                n += step;
            }
            assert!(n > 80, "{what}: {n} host calls");
        }
    }
}

/// Another file's list, which gives group 1 more.
fn generous() -> Vec<u8> {
    let mut list = list();
    list[4 + 2 * 8 + 2] = 6;
    list[4 + 3 * 8 + 2] = 6;
    list
}

#[test]
fn what_takes_the_name_of_a_file_gives_nobody_rights_over_what_the_image_made_of_it() {
    for (live, openat2) in WAYS {
        let scene = &mut scene(1);
        let path = scene.path.join("pub/listed");
        fs::rename(&path, path.with_extension("away")).unwrap();
        fs::write(&path, "theirs").unwrap();
        setxattr(&path, str_of(ACCESS), &generous(), XattrFlags::empty()).unwrap();
        let (_, outcome) = run_on(scene, u32::MAX, live, openat2, |_| Ok(()));
        let ours = scene.path.join("pub/listed.husk-77");
        assert_eq!(fs::read_to_string(&ours).unwrap(), "ours: listed", "{outcome:#?}");
        let mut value = [0; 256];
        assert!(getxattr(&ours, str_of(ACCESS), &mut value[..]).is_err(), "{outcome:#?}");
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o7777, 0o600);
        let notes = outcome.notes.iter().filter(|note| note.contains("access control list"));
        assert_eq!(notes.count(), 1, "{outcome:#?}");
    }
}

#[test]
fn a_list_stays_where_a_file_is_moved_and_written_back_again_and_again() {
    let scene = &mut scene(1);
    let moved = scene.path.join("pub/moved");
    scene.rename("pub/listed", "pub/moved");
    for text in ["first", "second"] {
        let inode = scene.at("pub/moved");
        scene.direct.write_at(inode, 0, text.as_bytes()).unwrap();
        let outcome = scene.bring_here(true);
        assert!(outcome.failures.is_empty(), "{outcome:#?}");
        assert!(fs::read_to_string(&moved).unwrap().starts_with(text), "{outcome:#?}");
        assert!(has_list(&moved), "{text}: {outcome:#?}");
    }
}
