//! `husk refresh --follow` beside a host that replaces files again and again: what a program inside
//! sees of a file is one version of it, name, size, times and bytes; also where who follows is
//! killed again and again.

use std::fs::{self, File, FileTimes};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use husk_tests::against_native;

use crate::{Images, text, until};

/// Looks that each program takes.
const LOOKS: usize = 3000;
/// Versions that there are at least.
const VERSIONS: u64 = 1500;
/// After so many versions whoever follows is killed.
const KILL_EVERY: u64 = 250;
/// Second of version 0, as its time says.
const EPOCH_S: u64 = 1_000_000_000;
const NAMES: [&str; 3] = ["small", "large", "in/deep"];

/// Bytes of a version: a line with its number, and as many of a letter as only it has.
fn version(name: &str, number: u64) -> Vec<u8> {
    let most = if name == "large" { 300_000 } else { 3000 };
    let mut bytes = format!("{number:010}\n").into_bytes();
    let letter = b'a' + (number % 26) as u8;
    bytes.resize(bytes.len() + (number * 977 % most) as usize, letter);
    bytes
}

/// A new file with its own time takes the name, as editors and git do it.
fn replace(work: &Path, name: &str, number: u64) {
    let new = work.join(format!("{name}.new"));
    let mut file = File::create(&new).expect("a file");
    file.write_all(&version(name, number)).expect("written");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S + number);
    file.set_times(FileTimes::new().set_modified(time).set_accessed(time)).expect("a time");
    drop(file);
    fs::rename(&new, work.join(name)).expect("a new name");
}

/// Says what does not fit together, and the first and the last version of each name.
const READER: &str = "
import os, sys
LOOKS, EPOCH, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
def bytes_of(name, number):
    most = 300000 if name == 'large' else 3000
    return b'%010d\\n' % number + bytes([97 + number % 26]) * (number * 977 % most)
def number_of(facts):
    return (facts.st_mtime_ns - EPOCH * 10**9) / 10**9
seen = {name: [] for name in names}
print('ready', flush=True)
for look in range(LOOKS):
    name = names[look % len(names)]
    facts = os.stat(name)
    number = number_of(facts)
    if facts.st_size != len(bytes_of(name, int(number))) or number != int(number):
        print('stat', name, number, facts.st_size)
    fd = os.open(name, os.O_RDONLY)
    before = os.fstat(fd)
    text = os.pread(fd, 1 << 20, 0)
    after = os.fstat(fd)
    os.close(fd)
    number = int(text[:10])
    if text != bytes_of(name, number): print('bytes', name, number, len(text), text[:12])
    for facts in before, after:
        if (facts.st_size, number_of(facts)) != (len(text), number):
            print('fstat', name, number, number_of(facts), len(text), facts.st_size)
    if seen[name] and number < seen[name][-1]: print('back', name, seen[name][-1], number)
    seen[name].append(number)
print('done', *(len(set(seen[name])) for name in names))
";

fn reader(images: &Images) -> (Child, BufReader<std::process::ChildStdout>) {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let (looks, epoch) = (LOOKS.to_string(), EPOCH_S.to_string());
    let words = ["exec", "ci", "--", "python3", "-c", READER, &looks, &epoch];
    let mut command = images.command(husk, &[&words[..], &NAMES].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, said)
}

fn follow(images: &Images) -> Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let told = images.scratch.path().join("follow.err");
    let mut command = images.command(husk, &["refresh", "--follow", "ci"]);
    command.stdout(Stdio::null()).stderr(File::create(&told).expect("a file"));
    let child = command.spawn().expect("it starts");
    let said = || fs::read_to_string(&told).unwrap_or_default();
    until("it follows", || said().contains("following the host in"));
    child
}

#[test]
fn who_reads_beside_a_host_that_replaces_files_sees_one_version_of_each() {
    if against_native() {
        return;
    }
    let images = Images::new("followed");
    fs::create_dir(images.work.join("in")).expect("a directory");
    NAMES.iter().for_each(|name| replace(&images.work, name, 0));
    images.up("ci");
    let mut followed = follow(&images);
    let mut readers = [reader(&images), reader(&images)];
    let mut number = 0;
    while number < VERSIONS || readers.iter_mut().any(|(one, _)| one.try_wait().unwrap().is_none())
    {
        number += 1;
        NAMES.iter().for_each(|name| replace(&images.work, name, number));
        if number % KILL_EVERY == 0 {
            // At any moment, a change of the image's included: the next one takes over.
            followed.kill().expect("a child");
            followed.wait().expect("it ends");
            followed = follow(&images);
        }
    }
    for (mut child, said) in readers {
        let lines: Vec<String> = said.lines().map(|line| line.expect("text")).collect();
        assert!(child.wait().expect("it ends").success());
        let last = lines.last().expect("a line");
        assert!(lines.len() == 1 && last.starts_with("done "), "{lines:#?}");
        // Each program has seen that the host goes on.
        let counts = last.split(' ').skip(1).map(|count| count.parse::<u32>().expect("a number"));
        assert!(counts.clone().all(|count| count > 1), "{last}");
    }
    let expected = text(&version("large", number));
    until("the last is seen", || images.script("ci", "cat large") == expected);
    assert_eq!(images.down("ci"), "");
    assert!(followed.wait().expect("it ends").success());
    for name in NAMES {
        let left = fs::read(images.work.join(name)).expect("a file");
        assert!(left == version(name, number), "{name}");
    }
}

/// Says each event of the directory `sub`, which it never lists.
const WATCHER: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
queue = libc.inotify_init1(0)
assert libc.inotify_add_watch(queue, b'sub', 0x3c6) > 0
print('ready', flush=True)
while True:
    events = os.read(queue, 4096)
    while events:
        _, mask, _, length = struct.unpack('iIII', events[:16])
        name = events[16:16 + length].rstrip(b'\\0').decode()
        events = events[16 + length:]
        print('%x' % mask, name, flush=True)
        if name == 'last': sys.exit()
";

/// Create, modify, attrib: as Linux says them, and nothing of the directory itself.
#[test]
fn what_the_host_changes_in_a_directory_that_is_only_watched_is_told() {
    if against_native() {
        return;
    }
    let images = Images::new("watched");
    let sub = images.work.join("sub");
    fs::create_dir(&sub).expect("a directory");
    fs::write(sub.join("file"), "1").expect("a file");
    images.up("ci");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &["exec", "ci", "--", "python3", "-c", WATCHER]);
    let mut watcher = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(watcher.stdout.take().expect("its output")).lines();
    let mut next = || said.next().expect("a line").expect("text");
    assert_eq!(next(), "ready");
    let mut followed = follow(&images);
    fs::write(sub.join("came"), "new").expect("a file");
    assert_eq!(next(), "100 came");
    fs::write(sub.join("file"), "longer").expect("a file");
    assert_eq!(next(), "2 file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(sub.join("file"), mode).expect("a mode");
    assert_eq!(next(), "4 file");
    fs::write(sub.join("last"), "").expect("a file");
    assert_eq!(next(), "100 last");
    assert!(watcher.wait().expect("it ends").success());
    assert_eq!(images.down("ci"), "");
    assert!(followed.wait().expect("it ends").success());
}
