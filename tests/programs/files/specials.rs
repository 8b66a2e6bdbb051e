//! Owner, mode, times and attributes of the host's FIFOs, sockets and devices are the image's until
//! the write-back, by whichever call they are changed. Each call is run natively and in an image.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use husk_tests::{Case, Length, Outcome, Run, Scratch, against_native, husk};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, listxattr,
    lsetxattr, makedev, mknodat, utimensat,
};

/// No run takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The ways to change something, each with a letter: the names of what it changes end in it.
const WAYS: &str = "abcdefghijklmnopqrstuv";

/// Natively and in an image, all begin with the same times.
const OLD: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 1_600_000_000, tv_nsec: 5 },
    last_modification: Timespec { tv_sec: 1_600_000_000, tv_nsec: 7 },
};

/// `fifo.a`, `socket.a`, `null.a` and a link to each, for each way.
fn specials(work: &Path) {
    let node = |name: &str, kind, device| {
        mknodat(CWD, work.join(name), kind, Mode::from_raw_mode(0o644), device)
    };
    for way in WAYS.chars() {
        let [fifo, socket, null] = ["fifo", "socket", "null"].map(|kind| format!("{kind}.{way}"));
        node(&fifo, FileType::Fifo, 0).expect("a FIFO");
        drop(UnixListener::bind(work.join(&socket)).expect("a socket"));
        // Who is not root makes no devices.
        if node(&null, FileType::CharacterDevice, makedev(1, 3)).is_err() {
            node(&null, FileType::Fifo, 0).expect("a FIFO");
        }
        for name in [fifo, socket, null] {
            let path = work.join(&name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
            let set = lsetxattr(&path, "trusted.kept", b"host", XattrFlags::empty());
            assert!(set.is_ok() || !rustix::process::getuid().is_root(), "{name}: {set:?}");
            let link = work.join(format!("to.{name}"));
            symlink(&name, &link).expect("a link");
            for one in [path, link] {
                utimensat(CWD, one, &OLD, AtFlags::SYMLINK_NOFOLLOW).expect("an old time");
            }
        }
    }
}

const CHANGES: &str = include_str!("../sources/files/specials.py");

fn argv() -> [&'static str; 3] {
    ["python3", "-c", CHANGES]
}

/// The time of the last change of the bytes, and the attributes.
fn look(work: &Path) -> Vec<String> {
    let mut seen: Vec<_> = fs::read_dir(work)
        .expect("a directory")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let facts = path.symlink_metadata().expect("its facts");
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let attributes = if facts.is_symlink() { Vec::new() } else { attributes(&path) };
            format!("{name} {}.{} {attributes:?}", facts.mtime(), facts.mtime_nsec())
        })
        .collect();
    seen.sort();
    seen
}

fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = [0u8; 1000];
    let count = listxattr(path, &mut names).expect("names of attributes");
    let names = names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = String::from_utf8_lossy(name).into_owned();
            let mut value = [0u8; 100];
            let count = lgetxattr(path, name.as_str(), &mut value).expect("a value");
            (name, value[..count].to_vec())
        })
        .collect()
}

/// Native and image: the program's own view, then owner, mode and the rest on the host afterwards.
#[test]
fn each_call_that_changes_the_hosts_special_files_does_it_as_on_linux() {
    let natively = std::cell::RefCell::new(None);
    let compare = move |work: &Path| {
        let seen = look(work);
        let mut natively = natively.borrow_mut();
        assert_eq!(&seen, natively.get_or_insert_with(|| seen.clone()));
    };
    Case::new("specials-calls", Length::Once, &argv()).input(specials).afterwards(compare).check();
}

/// All that `lstat` says, the time of the last change of status, too: nothing may reach the host.
#[test]
fn no_call_reaches_the_hosts_special_files_before_a_write_back() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("specials-kept");
    let work = scratch.fresh("work");
    specials(&work);
    let all = || {
        let mut found: Vec<_> = fs::read_dir(&work)
            .expect("a directory")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let facts = path.symlink_metadata().expect("its facts");
                let times = (facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec());
                let who = (facts.uid(), facts.gid(), facts.mode(), facts.nlink(), facts.ino());
                (path, who, times)
            })
            .collect();
        found.sort();
        (found, look(&work))
    };
    let before = all();
    let outcome = finished(&scratch, &work);
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(all(), before, "{}", outcome.shown());
}

fn finished(scratch: &Scratch, work: &Path) -> Outcome {
    let command = husk(&["--discard"], &argv());
    let run = Run::start(command, work, scratch.path());
    run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}
