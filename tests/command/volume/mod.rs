//! `husk volume`, as people and scripts use it.

mod disks;
mod larger;
mod policies;
mod unfit;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use husk_tests::husk::binary;
use husk_tests::{Outcome, Scratch, against_native};
use serde_json::Value;

use crate::{run, said};

/// A user with volumes of its own.
struct Room {
    scratch: Scratch,
    work: PathBuf,
}

impl Room {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let work = scratch.fresh("work");
        scratch.fresh("state");
        Self { scratch, work }
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state/husk/volumes")
    }

    fn husk(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(binary());
        command.arg("volume").args(arguments);
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        run(&self.scratch, &self.work, command)
    }

    /// One that succeeds without a word on standard error.
    fn does(&self, arguments: &[&str]) -> String {
        let outcome = self.husk(arguments);
        assert!(outcome.code() == 0 && said(&outcome).is_empty(), "{}", outcome.shown());
        String::from_utf8(outcome.stdout).expect("text")
    }

    /// One that fails with this status and one line.
    fn fails(&self, arguments: &[&str], status: i32, mentions: &[&str]) {
        let outcome = self.husk(arguments);
        let said = said(&outcome);
        assert_eq!((outcome.code(), said.len()), (status, 1), "{}", outcome.shown());
        for word in mentions {
            assert!(said[0].contains(word), "no {word} in {}", said[0]);
        }
    }
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory").count()
}

#[test]
fn a_volume_is_made_listed_checked_and_removed() {
    if against_native() {
        return;
    }
    let room = Room::new("volume");
    assert_eq!(document(&room.does(&["ls", "--json"])), Value::Array(Vec::new()));
    room.does(&["create", "data", "--size", "2M"]);
    room.does(&["create", "other", "--size", "1M", "--on", "."]);
    let table = room.does(&["ls"]);
    let words: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "SIZE", "EPOCH", "STATE", "AREA"]);
    assert_eq!(words[1][..4], ["data", "2M", "0", "free"], "{table}");
    let rows = document(&room.does(&["ls", "--json"]));
    assert_eq!(rows[1]["path"], room.work.join("other.husk-area").to_str().expect("UTF-8"));
    assert_eq!(rows[0]["size_bytes"], 2_097_152);
    room.does(&["resize", "data", "--size", "3M"]);
    assert_eq!(document(&room.does(&["ls", "--json"]))[0]["size_bytes"], 3 << 20);
    room.fails(&["resize", "data", "--size", "1K"], 125, &["cannot resize", "--size 1M to 64T"]);
    room.fails(&["resize", "none", "--size", "2M"], 125, &["none of that name"]);
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
    room.does(&["rm", "data"]);
    room.does(&["rm", "other"]);
    assert_eq!((files(&room.state()), files(&room.work)), (0, 0));
}

#[test]
fn a_damaged_volume_is_found_with_status_1_and_its_place() {
    if against_native() {
        return;
    }
    let room = Room::new("damaged");
    room.does(&["create", "data", "--size", "1M"]);
    let area = room.state().join("data.husk-area");
    let mut bytes = fs::read(&area).expect("the area");
    bytes[4096 + 33] ^= 1;
    fs::write(&area, &bytes).expect("a turned bit");
    let outcome = room.husk(&["check", "data", "--json"]);
    assert_eq!(outcome.code(), 1, "{}", outcome.shown());
    let report = document(str::from_utf8(&outcome.stdout).expect("text"));
    assert_eq!(report["findings"][0]["at_bytes"], 4096, "{report}");
    assert_eq!(room.husk(&["check", "data"]).code(), 1);
    assert!(fs::read(&area).expect("the area") == bytes, "a look has changed it");
}

#[test]
fn mistakes_with_volumes_get_one_line_and_leave_nothing() {
    if against_native() {
        return;
    }
    let room = Room::new("mistakes");
    room.fails(&["create", "data"], 125, &["--size", "--help"]);
    room.fails(&["create", "data", "--size", "1K"], 125, &["--size 1M to 64T"]);
    room.fails(&["create", "1", "--size", "1M"], 125, &["letters"]);
    room.fails(&["create", "data", "--size", "1M", "--on", "/dev/shm"], 125, &["tmpfs", "--on"]);
    room.fails(&["create", "data", "--size", "1M", "--on", "/none"], 125, &["/none", "--on"]);
    room.fails(&["check", "none"], 125, &["none of that name", "husk volume ls"]);
    room.fails(&["rm", "none"], 125, &["none of that name"]);
    room.fails(&["rm", "--forget", "none"], 125, &["none of that name"]);
    room.does(&["create", "data", "--size", "1M"]);
    room.fails(&["create", "data", "--size", "1M"], 125, &["one of that name"]);
    room.does(&["rm", "data"]);
    assert_eq!(files(&room.state()), 0);
}

/// What a tree holds, as text: all that a volume promises to keep.
const MANIFEST: &str = r#"
import os, sys
top = sys.argv[1]
for path in [top] + sorted(os.path.join(d, n) for d, ds, fs in os.walk(top) for n in ds + fs):
    s = os.lstat(path)
    link = os.readlink(path) if os.path.islink(path) else ""
    names = sorted(os.listxattr(path, follow_symlinks=False))
    more = [(n, os.getxattr(path, n, follow_symlinks=False)) for n in names]
    data = open(path, "rb").read() if os.path.isfile(path) and not link else b""
    size = 0 if os.path.isdir(path) else s.st_size
    print(path, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, size, s.st_mtime_ns, s.st_ctime_ns,
          link, more, sum(data), data[:20])
"#;

const MAKE: &str = r#"
import os, sys
top = sys.argv[1]; os.chdir(top)
os.makedirs("a/b/c"); open("a/b/f", "w").write("hello\n"); os.link("a/b/f", "g")
os.symlink("a/b/f", "s"); os.mkfifo("p"); os.chmod("a/b/f", 0o640)
open("x" * 255, "wb").write(bytes(range(256)) * 1000)
with open("holes", "wb") as f:
    f.seek(3000000); f.write(b"end"); f.truncate(5000000)
open("short", "w").write("0123456789"); os.truncate("short", 4); os.truncate("short", 8)
os.setxattr("g", "user.one", b"1"); os.setxattr("a", "user.two", b"2" * 300)
os.chmod("a", 0o2750); os.utime("a/b/c", ns=(5, 7)); os.utime("g", ns=(1, 1234567890123456789))
os.mkdir("old"); open("old/f", "w").write("moved"); os.rename("old", "a/new")
open("gone", "w").write("x"); os.unlink("gone"); os.rename("a/new/f", "a/b/f2")
if os.getuid() == 0:
    os.chown("short", 1, 2); os.chmod("short", 0o4755)
"#;

impl Room {
    fn command(&self, memory: &str, options: &[&str], script: &str) -> Command {
        let tree = self.scratch.path().join("tree");
        fs::create_dir_all(&tree).expect("a directory");
        let tree = tree.to_str().expect("a plain path").to_owned();
        let mut command = Command::new(binary());
        command.args(["run", "--memory", memory]).args(options);
        command.arg(format!("--volume=data:{tree}"));
        command.args(["--", "python3", "-c", script, &tree]);
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command.current_dir(&self.work);
        command
    }

    fn python(&self, options: &[&str], scripts: &[&str]) -> Outcome {
        let command = self.command("64M", options, &scripts.concat());
        run(&self.scratch, &self.work, command)
    }

    fn printed(&self, scripts: &[&str]) -> String {
        let outcome = self.python(&[], scripts);
        assert!(outcome.code() == 0 && said(&outcome).is_empty(), "{}", outcome.shown());
        String::from_utf8(outcome.stdout).expect("text")
    }
}

#[test]
fn a_volume_has_its_names_bytes_modes_owners_times_attributes_and_links_again() {
    if against_native() {
        return;
    }
    let room = Room::new("again");
    room.does(&["create", "data", "--size", "16M"]);
    let made = room.printed(&[MAKE, MANIFEST]);
    assert!(made.lines().count() > 12, "{made}");
    for _ in 0..2 {
        let again = room.printed(&[MANIFEST]);
        assert_eq!(again, made);
    }
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
}

/// None of it may be read byte by byte, which would take hours.
#[test]
fn a_file_of_terabytes_that_are_holes_is_saved_by_what_it_holds() {
    if against_native() {
        return;
    }
    let room = Room::new("terabytes");
    room.does(&["create", "data", "--size", "16M"]);
    let write = "
import os, sys
os.chdir(sys.argv[1])
fd = os.open('f', os.O_CREAT | os.O_RDWR)
for at in 2 << 40, 7 << 40:
    os.pwrite(fd, b'there', at)
    os.fsync(fd)
os.pwrite(fd, b'also', 1 << 40)
os.fsync(fd)
";
    let read = "
import os, sys
os.chdir(sys.argv[1])
fd = os.open('f', os.O_RDONLY)
print(os.fstat(fd).st_size - (7 << 40))
print([os.pread(fd, 6, n << 40) for n in (1, 2, 3, 7)])
";
    assert_eq!(room.printed(&[write]), "");
    let pieces = r"[b'also\x00\x00', b'there\x00', b'\x00\x00\x00\x00\x00\x00', b'there']";
    assert_eq!(room.printed(&[read]), format!("5\n{pieces}\n"));
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
}

#[test]
fn a_full_volume_says_so_and_loses_nothing_that_was_synced() {
    if against_native() {
        return;
    }
    let room = Room::new("full");
    room.does(&["create", "data", "--size", "4M"]);
    let fill = r#"
import os, sys, errno
os.chdir(sys.argv[1])
def put(name, count):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY); os.write(fd, b"x" * count)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
put("small", 1000)
try:
    put("large", 3 << 20); print("no error")
except OSError as e:
    print(errno.errorcode[e.errno])
os.unlink("large"); put("other", 1000)
"#;
    assert_eq!(room.printed(&[fill]), "ENOSPC\n");
    let look = "import os, sys\nprint(sorted(os.listdir(sys.argv[1])))\n";
    assert_eq!(room.printed(&[look]), "['other', 'small']\n");
    // What does not fit at the end is told of, with a status.
    let more = "import os, sys\nopen(sys.argv[1] + '/large', 'wb').write(b'y' * (3 << 20))\n";
    let outcome = room.python(&[], &[more]);
    let lines = said(&outcome);
    assert_eq!((outcome.code(), lines.len()), (125, 1), "{}", outcome.shown());
    for word in ["volume data: it has no room", "`husk volume resize`"] {
        assert!(lines[0].contains(word), "no {word} in {}", lines[0]);
    }
    // Of what was not synced, a part may be there.
    let rest = "import os, sys\nos.chdir(sys.argv[1])\n\
                print([os.path.getsize(f) for f in ('other', 'small')])\n";
    assert_eq!(room.printed(&[rest]), "[1000, 1000]\n");
}

#[test]
fn volumes_that_cannot_be_used_are_one_line() {
    if against_native() {
        return;
    }
    let room = Room::new("unfit");
    let refused = |options: &[&str], mentions: &[&str]| {
        let outcome = room.python(options, &["pass"]);
        let lines = said(&outcome);
        assert_eq!((outcome.code(), lines.len()), (125, 1), "{}", outcome.shown());
        for word in mentions {
            assert!(lines[0].contains(word), "no {word} in {}", lines[0]);
        }
    };
    refused(&[], &["volume data", "none of that name", "husk volume ls"]);
    room.does(&["create", "data", "--size", "128M"]);
    refused(&["--volume=data:/usr"], &["data twice"]);
    refused(&["--on-failure=keep"], &["cannot keep", "volumes"]);
    room.fails(&["rm", "none"], 125, &["none of that name"]);
    let mut user =
        room.command("64M", &[], "import sys\nprint('up', flush=True)\nsys.stdin.read()\n");
    user.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut user = user.spawn().expect("a first user");
    let mut line = String::new();
    let mut printed = BufReader::new(user.stdout.take().expect("its output"));
    printed.read_line(&mut line).expect("a line");
    assert_eq!(line, "up\n");
    refused(&[], &["cannot use volume data", &format!("process {} uses it", user.id())]);
    drop(user.stdin.take());
    user.wait().expect("its end");
    // More than the image has room for.
    let fill = "import sys\nopen(sys.argv[1] + '/f', 'wb').write(b'z' * (40 << 20))\n";
    assert_eq!(room.python(&[], &[fill]).code(), 0);
    let small = run(&room.scratch, &room.work, room.command("32M", &[], "pass"));
    assert_eq!((small.code(), said(&small).len()), (125, 1), "{}", small.shown());
    assert!(said(&small)[0].contains("more than the image"), "{}", small.shown());
}

/// Syncs a thousand times.
const SYNCS: &str = r#"
import os
file = os.open("file", os.O_RDWR | os.O_CREAT)
for n in range(1000):
    os.pwrite(file, b"x", n)
    os.fdatasync(file)
"#;

/// A sync is a wish, a write, an answer: nobody asks for the time, or wakes where nobody sleeps.
#[test]
fn a_sync_of_a_lone_program_asks_the_host_for_no_more_than_it_needs() {
    if against_native() {
        return;
    }
    let room = Room::new("lone");
    room.does(&["create", "data", "--size", "4M"]);
    let (log, tree) = (room.scratch.path().join("calls"), room.scratch.fresh("tree"));
    let tree = tree.to_str().expect("a plain path");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=clock_gettime,futex,pwritev2", "-o"]).arg(&log);
    strace.arg(binary()).args(["run", "--discard", "--volume", &format!("data:{tree}"), "--"]);
    strace.args(["sh", "-c", "cd \"$0\" && exec python3 -c \"$1\"", tree, SYNCS]);
    strace.env("XDG_STATE_HOME", room.scratch.path().join("state"));
    let outcome = run(&room.scratch, &room.work, strace);
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    let calls = fs::read_to_string(&log).expect("the calls");
    let of = |what: &str| calls.lines().filter(|line| line.contains(what)).count();
    assert!(of("pwritev2(") >= 1000, "each of them writes");
    assert!(of("clock_gettime(") < 500, "{} ask for the time", of("clock_gettime("));
    // All sleepers of a word that only one process knows: threads that wait for another's write.
    let woken = of("FUTEX_WAKE_PRIVATE, 2147483647");
    assert!(woken < 500, "{woken} wake threads where none sleep");
}
