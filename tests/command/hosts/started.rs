//! How a session starts: what is copied, and what of it is read again.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use husk_tests::Outcome;
use husk_tests::husk::binary;

use super::host::Host;
use crate::{run, said};

/// What a host runs instead of `name`.
fn instead(host: &Host, name: &str, script: &str) {
    let bin = host.home.join("bin");
    fs::create_dir_all(&bin).expect("a directory");
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// A session with a cache of its own here, and how many files were read there for it.
fn session(host: &Host) -> (Outcome, usize) {
    let reads = host.path("reads");
    let _ = fs::remove_file(&reads);
    let work = host.scratch.fresh("work");
    let mut command = host.command(&["--on", "h"], &["sh", "-c", "HUSK_NODE=1 /bin/true"]);
    command.env("XDG_CACHE_HOME", host.path("cache"));
    let outcome = run(&host.scratch, &work, command);
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert!(outcome.stderr.contains("h: 1 programs ran there"), "{}", outcome.shown());
    (outcome, fs::read_to_string(&reads).unwrap_or_default().lines().count())
}

#[test]
fn a_copy_there_is_read_once_and_again_only_if_it_has_changed() {
    let Some(host) = Host::new("hosts-known") else { return };
    let reads = host.path("reads").display().to_string();
    instead(&host, "date", "echo 0");
    instead(&host, "sha256sum", &format!("echo read >> {reads}; exec /usr/bin/sha256sum"));
    let (first, read) = session(&host);
    assert!(first.stderr.contains("copying husk to h"), "{}", first.shown());
    assert_eq!(read, 1, "what was copied");
    let copies = fs::read_dir(host.home.join(".cache/husk")).expect("a directory").flatten();
    let mut copies = copies.map(|entry| entry.path()).filter(|path| path.is_file());
    let copy = copies.next().expect("the copy");
    let found = fs::metadata(&copy).expect("the copy");
    let whole = fs::metadata(binary()).expect("the command").len();
    assert!(found.len() < whole, "what only debuggers read is not copied");
    // What has changed this moment may change again without being seen.
    assert_eq!((session(&host).1, session(&host).1), (1, 1));
    instead(&host, "date", "echo 99999999999");
    assert_eq!((session(&host).1, session(&host).1), (1, 0), "it is known now");
    let mut bytes = fs::read(&copy).expect("its bytes");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&copy, bytes).expect("another byte");
    File::open(&copy).and_then(|file| file.set_modified(found.modified()?)).expect("its time");
    let (after, read) = session(&host);
    assert!(said(&after).iter().any(|line| line.contains("was not ours")), "{}", after.shown());
    assert_eq!(read, 2, "the one that was there, and what was copied");
    host.nothing_is_left();
}

#[test]
fn what_a_host_says_of_its_copy_is_kept_only_if_it_is_an_identity() {
    let Some(host) = Host::new("hosts-lies") else { return };
    session(&host);
    instead(&host, "date", "echo 99999999999");
    let made = host.path("made");
    let command = format!("1 2 3 4.000000000 5.$(touch {})", made.display());
    for lie in [command.as_str(), "1 2 3 4 5", "1 2 3 4.000000000 5.000000000 6"] {
        instead(&host, "stat", &format!("cat <<\\.\n{lie}\n."));
        assert_eq!((session(&host).0.stderr.contains("copying"), made.exists()), (false, false));
    }
    let notes = fs::read_dir(host.path("cache/husk/hosts")).expect("notes").flatten();
    let notes: Vec<_> = notes.map(|note| note.file_name()).collect();
    let ours = ["own", "copying", "prints"];
    assert!(notes.iter().all(|note| ours.iter().any(|own| note == own)), "{notes:?}");
}
