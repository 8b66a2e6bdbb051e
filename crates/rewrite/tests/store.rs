//! The store on disk: what is made, what is refused, and what a crash may leave behind.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_rewrite::store::Unusable;
use husk_rewrite::{Identity, Outcome, Store, make_copy};
use support::{SHARED, assemble, function};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("scratch directory") }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("cache/copies")
    }

    fn open(&self) -> Store {
        Store::open(&self.root()).expect("open store")
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).expect("write file");
        path
    }
}

fn identity(path: &Path) -> Identity {
    Identity::of(&fs::metadata(path).expect("metadata"))
}

fn library() -> Vec<u8> {
    assemble(&function("mov $39,%eax; syscall; ret"), SHARED)
}

/// Asks until the file is old enough.
fn ensure(store: &Store, path: &Path) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let outcome = store.ensure(path, &identity(path));
        let young = outcome == Outcome::Refused("changed a moment ago".into());
        if !young || Instant::now() > deadline {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn names(store: &Store) -> Vec<String> {
    let entries = fs::read_dir(store.copies_path()).expect("list");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("entry").file_name();
    entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect()
}

#[test]
fn a_library_gets_a_copy_under_its_key() {
    let (place, bytes) = (Place::new(), library());
    let (store, path) = (place.open(), place.file("lib.so", &bytes));
    assert_eq!(ensure(&store, &path), Outcome::Ready);
    let id = identity(&path);
    let key = format!(
        "{:x}-{:x}-{:x}-{:x}",
        id.device,
        id.inode,
        id.modified_ns,
        fs::metadata(&path).unwrap().len()
    );
    let copy = fs::read(store.copies_path().join(&key)).expect("the copy");
    let mut expected = bytes.clone();
    assert!(make_copy(&mut expected, None).expect("patch"));
    assert!(copy == expected && copy != bytes);
    assert_eq!(names(&store), [key], "no draft is left");
    assert_eq!(store.entries().expect("entries"), [(id, Outcome::Ready)]);
    assert_eq!(place.open().ensure(&path, &id), Outcome::Ready, "found again");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").mode() & 0o777
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn copies_are_read_only_and_reached_by_those_who_may_run_them() {
    let place = Place::new();
    let alone = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.directory.path(), alone).expect("chmod");
    let (store, path) = (place.open(), place.file("lib.so", &library()));
    assert_eq!(ensure(&store, &path), Outcome::Ready);
    let searched = if is_root() { 0o711 } else { 0o700 };
    assert_eq!(mode(&place.root()), searched);
    assert_eq!(mode(store.copies_path()), searched);
    assert_eq!(mode(&store.copies_path().join(identity(&path).key())), 0o500);
}

/// Root's programs may become other users: these map a copy of what they can read, and of nothing
/// else.
#[test]
fn other_users_read_copies_of_what_they_can_read() {
    let place = Place::new();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    open(place.directory.path(), 0o755).expect("chmod");
    // As an older version left it.
    fs::create_dir_all(place.root()).expect("mkdir");
    open(&place.root(), 0o700).expect("chmod");
    let store = place.open();
    fs::create_dir(place.directory.path().join("closed")).expect("mkdir");
    let readable = if is_root() { 0o555 } else { 0o500 };
    let files =
        [("lib.so", 0o644, readable), ("secret.so", 0o640, 0o500), ("run.so", 0o711, 0o500)];
    for (name, source, copy) in files.into_iter().chain([("closed/lib.so", 0o644, 0o500)]) {
        let path = place.file(name, &library());
        open(&path, source).expect("chmod");
        open(&place.directory.path().join("closed"), 0o700).expect("chmod");
        assert_eq!(ensure(&store, &path), Outcome::Ready);
        assert_eq!(mode(&store.copies_path().join(identity(&path).key())), copy, "{name}");
    }
    let searched = if is_root() { 0o711 } else { 0o700 };
    assert_eq!((mode(&place.root()), mode(store.copies_path())), (searched, searched));
}

#[test]
fn a_file_without_sites_is_marked_and_not_looked_at_again() {
    let place = Place::new();
    let store = place.open();
    for (name, bytes) in
        [("script", &b"#!/bin/sh\n"[..]), ("lib.so", &assemble(&function("ret"), SHARED))]
    {
        let path = place.file(name, bytes);
        let id = identity(&path);
        assert_eq!(ensure(&store, &path), Outcome::Plain);
        let marker = store.copies_path().join(format!("{}.plain", id.key()));
        assert_eq!(fs::metadata(marker).expect("marker").len(), 0);
        fs::remove_file(&path).expect("remove");
        assert_eq!(store.ensure(&path, &id), Outcome::Plain, "without reading it");
    }
    assert!(store.entries().expect("entries").iter().all(|entry| entry.1 == Outcome::Plain));
}

#[test]
fn another_file_than_asked_for_is_refused() {
    let place = Place::new();
    let (store, path) = (place.open(), place.file("lib.so", &library()));
    let right = identity(&path);
    let wrong = [
        Identity { inode: right.inode + 1, ..right },
        Identity { device: right.device + 1, ..right },
        Identity { modified_ns: right.modified_ns - 1, ..right },
        Identity { size: right.size - 1, ..right },
    ];
    for identity in wrong {
        assert!(matches!(store.ensure(&path, &identity), Outcome::Refused(_)), "{identity:?}");
    }
    assert_eq!(names(&store), Vec::<String>::new());
}

#[test]
fn a_file_changed_a_moment_ago_is_refused_until_it_settles() {
    let place = Place::new();
    let (store, path) = (place.open(), place.file("lib.so", &library()));
    // Written again at once, so that the metadata are younger than the limit.
    fs::write(&path, library()).expect("write again");
    let first = store.ensure(&path, &identity(&path));
    assert_eq!(first, Outcome::Refused("changed a moment ago".into()));
    assert_eq!(ensure(&store, &path), Outcome::Ready);
}

#[test]
fn directories_devices_and_missing_files_are_refused() {
    let place = Place::new();
    let store = place.open();
    for path in ["/", "/dev/null"] {
        let path = Path::new(path);
        assert!(matches!(store.ensure(path, &identity(path)), Outcome::Refused(_)));
    }
    let gone = place.file("gone", b"");
    let id = identity(&gone);
    fs::remove_file(&gone).expect("remove");
    assert!(matches!(store.ensure(&gone, &id), Outcome::Refused(_)));
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let place = Place::new();
    let root = place.root();
    for mode in [0o770, 0o702] {
        fs::create_dir_all(&root).expect("make directory");
        fs::set_permissions(&root, PermissionsExt::from_mode(mode)).expect("chmod");
        assert!(matches!(Store::open(&root), Err(Unusable::Open(_))), "{mode:o}");
    }
}

#[test]
fn somebody_elses_directory_is_refused() {
    let place = Place::new();
    let mut foreign = PathBuf::from("/usr");
    if fs::metadata(place.directory.path()).expect("metadata").uid() == 0 {
        foreign = place.root();
        fs::create_dir_all(&foreign).expect("make directory");
        std::os::unix::fs::chown(&foreign, Some(65534), None).expect("chown");
    }
    assert!(matches!(Store::open(&foreign), Err(Unusable::Foreign(_))));
}

#[test]
fn what_a_crash_left_is_removed_when_the_store_is_opened() {
    let place = Place::new();
    let (store, path) = (place.open(), place.file("lib.so", &library()));
    assert_eq!(ensure(&store, &path), Outcome::Ready);
    let copies = store.copies_path().to_owned();
    fs::write(copies.join("1-2-3-100"), b"short").expect("a torn copy");
    fs::write(copies.join(".1-2-3-4.1.0"), b"young").expect("a draft somebody may be writing");
    let old = copies.join(".1-2-3-5.1.0");
    fs::write(&old, b"old").expect("an abandoned draft");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let file = fs::File::options().write(true).open(&old).expect("open");
    file.set_modified(long_ago).expect("set time");
    let store = place.open();
    let mut left = names(&store);
    left.sort();
    let mut expected = [".1-2-3-4.1.0".to_owned(), identity(&path).key()];
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(store.entries().expect("entries").len(), 1);
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let place = Place::new();
    let bytes = library();
    let store = place.open().with_bytes_max(bytes.len() as u64 * 2);
    let paths: Vec<PathBuf> =
        (0..3).map(|number| place.file(&format!("lib{number}.so"), &bytes)).collect();
    for (age, path) in paths.iter().enumerate() {
        assert_eq!(ensure(&store, path), Outcome::Ready);
        let copy = store.copies_path().join(identity(path).key());
        if age < 2 {
            // The first was used more recently than the second.
            let seconds = 1_000_000 * (2 - age as u64);
            let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            let times = fs::FileTimes::new().set_accessed(time).set_modified(time);
            fs::File::open(copy).expect("open").set_times(times).expect("set times");
        }
    }
    let there = |path: &Path| store.copies_path().join(identity(path).key()).exists();
    assert_eq!(paths.iter().map(|p| there(p)).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn many_at_once_make_one_complete_copy() {
    let place = Place::new();
    let (store, path) = (place.open(), place.file("lib.so", &library()));
    std::thread::sleep(Duration::from_millis(150));
    let id = identity(&path);
    std::thread::scope(|scope| {
        let asks = (0..8).map(|_| scope.spawn(|| store.ensure(&path, &id))).collect::<Vec<_>>();
        for ask in asks {
            assert_eq!(ask.join().expect("no panic"), Outcome::Ready);
        }
    });
    assert_eq!(names(&store), [id.key()]);
}

#[test]
fn only_the_one_spelling_of_a_key_is_read() {
    let id = Identity { device: 0xfe01, inode: 7, modified_ns: -1, size: 0xabc };
    assert_eq!(id.key(), "fe01-7-ffffffffffffffff-abc");
    assert_eq!(Identity::from_key(&id.key()), Some(id));
    for other in ["", "1-2-3", "1-2-3-4-5", "01-2-3-4", "A-2-3-4", "+1-2-3-4", "1-2-3-4.plain"] {
        assert_eq!(Identity::from_key(other), None, "{other}");
    }
}
