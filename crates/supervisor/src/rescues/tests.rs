use super::*;
use crate::write_back::host::identity_of;
use crate::write_back::rescue::numbers;

/// A rescue of one file, whose place is `place`.
fn rescue(base: &Path, place: &Path, before: Option<[i128; 5]>) -> Rescue {
    let path = base.join("husk-rescue-test");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(path.join("tree")).unwrap();
    fs::write(path.join("tree/f"), "saved").unwrap();
    let entry = Entry {
        place: Text::of(place),
        saved: Text::of(Path::new("tree/f")),
        kind: Kind::File,
        mode: 0o640,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified_ns: 1_000_000_000_000_000_001,
        size: 5,
        why: "no room".to_owned(),
        before,
        extended: Some(Vec::new()),
        same_as: None,
    };
    let list = serde_json::to_string(&entry).unwrap();
    fs::write(path.join(LIST), list + "\n{\"half").unwrap();
    Rescue::open(&path).unwrap()
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(scratch.path()).unwrap();
    (scratch, real)
}

#[test]
fn what_is_put_back_is_as_it_was_in_the_image_and_no_longer_saved() {
    let (_scratch, base) = scratch();
    let place = base.join("place");
    let saved = rescue(&base, &place, None);
    assert_eq!((saved.files, saved.bytes, &saved.from), (1, 5, &base));
    assert_eq!(saved.shown()[0].state, State::Ready);
    let done = saved.restore(&[]).unwrap();
    assert_eq!((done.restored, done.left.len(), done.emptied), (1, 0, true));
    let found = fs::metadata(&place).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o640, 1e9 as i64, 1));
    assert_eq!(fs::read(&place).unwrap(), b"saved");
    assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "the rescue is gone, nothing is left");
}

#[test]
fn nothing_is_overwritten_but_the_very_object_that_was_there() {
    let (_scratch, base) = scratch();
    let place = base.join("place");
    fs::write(&place, "host").unwrap();
    let before = numbers(&identity_of(&fs::metadata(&place).unwrap()));
    let mut other = before;
    other[3] -= 1;
    let changed = rescue(&base, &place, Some(other));
    assert_eq!(changed.shown()[0].state, State::Changed);
    let done = changed.restore(&[]).unwrap();
    assert_eq!((done.restored, done.left.len(), done.emptied), (0, 1, false));
    assert!(done.left[0].contains(&format!("cp {}", changed.path.join("tree/f").display())));
    assert_eq!(fs::read(&place).unwrap(), b"host");
    changed.remove().unwrap();
    // Where nothing was, somebody has made something.
    let taken = rescue(&base, &place, None);
    assert_eq!(taken.restore(&[]).unwrap().restored, 0);
    assert_eq!(fs::read(&place).unwrap(), b"host");
    taken.remove().unwrap();
    let same = rescue(&base, &place, Some(before));
    assert!(same.restore(&[PathBuf::from("/elsewhere")]).is_err());
    assert_eq!(same.restore(&[]).unwrap().restored, 1);
    assert_eq!(fs::read(&place).unwrap(), b"saved");
    assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
}

#[test]
fn what_somebody_writes_while_something_is_put_back_is_there_afterwards() {
    use crate::write_back::host::beneath::schedule;
    use rustix::io::Errno;
    for lacking in [false, true] {
        for n in 1.. {
            let (_scratch, base) = scratch();
            let place = base.join("place");
            fs::write(&place, "host").unwrap();
            let before = numbers(&identity_of(&fs::metadata(&place).unwrap()));
            let saved = rescue(&base, &place, Some(before));
            let (count, theirs) = (std::rc::Rc::new(std::cell::Cell::new(0)), place.clone());
            let seen = count.clone();
            let plan = move |call| {
                count.set(count.get() + 1);
                if count.get() == n {
                    let new = theirs.with_extension("edited");
                    fs::write(&new, "theirs").unwrap();
                    fs::rename(new, &theirs).unwrap();
                }
                if lacking && call == "renameat2" { Err(Errno::INVAL.into()) } else { Ok(()) }
            };
            let done = schedule::during(plan, || saved.restore(&[])).unwrap();
            if seen.get() < n {
                assert_eq!(fs::read(&place).unwrap(), b"saved");
                break;
            }
            assert_eq!(fs::read(&place).unwrap(), b"theirs", "call {n}, {lacking}: {done:?}");
            let own = |name: &str| name.starts_with(".husk-tmp-");
            let names = fs::read_dir(&base).unwrap().map(|one| one.unwrap().file_name());
            let left = names.filter(|name| own(&name.to_string_lossy())).count();
            assert_eq!(left, 0, "call {n}, {lacking}");
        }
    }
}

#[test]
fn what_others_may_enter_or_a_list_that_leads_out_is_none() {
    let (_scratch, base) = scratch();
    let saved = rescue(&base, &base.join("place"), None);
    fs::set_permissions(&saved.path, fs::Permissions::from_mode(0o710)).unwrap();
    assert!(Rescue::open(&saved.path).is_err());
    fs::set_permissions(&saved.path, fs::Permissions::from_mode(0o700)).unwrap();
    let list = fs::read_to_string(saved.path.join(LIST)).unwrap();
    fs::write(base.join("f"), "outside").unwrap();
    fs::write(saved.path.join(LIST), list.replace("tree/f", "../f")).unwrap();
    assert_eq!(Rescue::open(&saved.path).unwrap().files, 0);
}

#[test]
fn no_link_leads_what_is_put_back_elsewhere() {
    let (_scratch, base) = scratch();
    fs::create_dir(base.join("real")).unwrap();
    std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
    let saved = rescue(&base, &base.join("link/place"), None);
    let done = saved.restore(&[]).unwrap();
    assert_eq!((done.restored, done.left.len()), (0, 1), "{:?}", done.left);
    assert_eq!(fs::read_dir(base.join("real")).unwrap().count(), 0);
}

#[test]
fn a_directory_that_took_the_place_of_a_rescue_is_neither_emptied_nor_put_back() {
    let (_scratch, base) = scratch();
    let place = base.join("place");
    let seen = rescue(&base, &place, None);
    fs::rename(&seen.path, base.join("away")).unwrap();
    // Just as private, and with the same names.
    let other = rescue(&base, &place, None);
    assert!(seen.remove().is_err() && seen.restore(&[]).is_err());
    assert!(!place.exists());
    for there in [&base.join("away"), &other.path] {
        assert_eq!(fs::read(there.join("tree/f")).unwrap(), b"saved");
    }
    // Nor is one that others may enter.
    fs::set_permissions(&other.path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(other.remove().is_err() && other.restore(&[]).is_err());
    assert_eq!(fs::read(other.path.join("tree/f")).unwrap(), b"saved");
}
