//! What a file lends to who runs it: set-ID bits and `security.capability` go when it is written to
//! or given away, by whichever call. Only root may make such files.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use husk_tests::{Case, Length};
use rustix::fs::{XattrFlags, getxattr, setxattr};

/// `CAP_CHOWN`, permitted, as `setcap cap_chown+p` writes it.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Each way is tried on a file of the host (`NAME.host`) and on one that the program makes.
const WAYS: &str = include_str!("../sources/files/lent.py");

fn names() -> impl Iterator<Item = &'static str> {
    let ways = WAYS.lines().filter_map(|line| line.strip_prefix("    '"));
    ways.filter_map(|rest| rest.split_once('\'')).map(|(name, _)| name)
}

fn lending(work: &Path) {
    for name in names() {
        let path = work.join(format!("{name}.host"));
        fs::write(&path, [b'x'; 5000]).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("a mode");
        let set = setxattr(&path, "security.capability", &CAPABILITY, XattrFlags::empty());
        set.expect("a capability");
    }
    fs::write(work.join("source"), [b's'; 5000]).expect("a file");
}

/// What each file lends on the host in the end.
fn lent(work: &Path) -> Vec<String> {
    let mut found: Vec<_> = fs::read_dir(work)
        .expect("a directory")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let facts = path.symlink_metadata().expect("its facts");
            let has = getxattr(&path, "security.capability", &mut [0u8; 64][..]);
            format!("{} {:o} {} {has:?}", path.display(), facts.mode(), facts.uid())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn what_a_file_lends_goes_by_each_call_that_writes_it_or_gives_it_away_as_on_linux() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    assert!(names().count() > 20);
    let natively = RefCell::new(None);
    let compare = move |work: &Path| {
        let seen = lent(work);
        let mut natively = natively.borrow_mut();
        assert_eq!(&seen, natively.get_or_insert_with(|| seen.clone()));
    };
    let argv = ["python3", "-c", WAYS];
    Case::new("lent", Length::Once, &argv).input(lending).afterwards(compare).check();
}
