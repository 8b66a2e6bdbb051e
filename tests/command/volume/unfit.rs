//! Areas that are not as they were made, disks without room, and commands that are killed: one
//! line, the right status, and no byte that counted is lost.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;
use husk_tests::run::patience;

use super::{Room, document, files};
use crate::{run, said};

const SIZE_BYTES: u64 = 1 << 20;
/// Both copies of the header; an acquisition writes them.
const HEADER_BYTES: usize = 8192;
const BLOCK_BYTES: u64 = 4096;
/// What the volume of `Room::held` has in a file.
const TEXT: &str = "what-was-acknowledged";
/// Times that a command is killed.
const ROUNDS: u32 = 8;

impl Room {
    /// One with a volume `data` that holds `TEXT`.
    fn held(name: &str) -> Self {
        let room = Self::new(name);
        room.does(&["create", "data", "--size", "1M"]);
        let put = format!("import sys\nopen(sys.argv[1] + '/f', 'w').write('{TEXT}')\n");
        assert_eq!(room.python(&[], &[&put]).code(), 0);
        room
    }

    fn still_holds(&self) {
        let look = "import sys\nprint(open(sys.argv[1] + '/f').read())\n";
        assert_eq!(self.printed(&[look]), format!("{TEXT}\n"));
        assert_eq!(self.does(&["check", "data"]), "data: clean\n");
    }

    fn area(&self) -> std::path::PathBuf {
        self.state().join("data.husk-area")
    }

    /// A command of `husk volume` whose files may have so many KiB: a disk that is full there.
    fn limited(&self, limit_kib: u64, arguments: &[&str]) -> Command {
        let script = format!("trap '' XFSZ; ulimit -f {limit_kib}; exec \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash"]).arg(binary()).arg("volume").args(arguments);
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command
    }

    fn begun(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(binary());
        command.arg("volume").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command.spawn().expect("husk")
    }
}

/// Runs a command whose files have a quota: a call that would go beyond LIMIT fails with EDQUOT, by
/// a filter of system calls. A file system answers so to `fallocate` first, or only to a write.
/// LIMIT HAS_FALLOCATE COMMAND...
const QUOTA: &str = r#"
import ctypes, os, struct, sys
FALLOCATE, PWRITEV2, OPNOTSUPP, DQUOT = 285, 328, 95, 122
limit, has_fallocate = int(sys.argv[1]), sys.argv[2] == "yes"
ALLOW, ERRNO = 0x7fff0000, 0x00050000
of_fallocate = ERRNO | (DQUOT if has_fallocate else OPNOTSUPP)
code = [
    (0x20, 0, 0, 0),                   # number
    (0x15, 3, 0, FALLOCATE), (0x15, 0, 3, PWRITEV2),
    (0x20, 0, 0, 16 + 3 * 8), (0x35, 2, 1, limit),  # its position
    (0x06, 0, 0, of_fallocate), (0x06, 0, 0, ALLOW), (0x06, 0, 0, ERRNO | DQUOT),
]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])
"#;

fn at(file: &File, at: u64, bytes: &[u8]) {
    file.write_all_at(bytes, at).expect("it is written");
}

/// What is done to an area, and what `husk run` says of it.
type Spoilt = (&'static str, fn(&File, &[u8]), &'static [&'static str]);

const SPOILT: &[Spoilt] = &[
    (
        "truncated",
        |file, _| file.set_len(SIZE_BYTES - BLOCK_BYTES).expect("shorter"),
        &["ends at byte 1044480", "restore it from a copy"],
    ),
    ("foreign", |file, all| at(file, 0, &vec![b'x'; all.len()]), &["is something else (byte 0)"]),
    ("empty", |file, all| at(file, 0, &vec![0; all.len()]), &["is empty", "rm --forget"]),
    (
        "without a header",
        |file, all| [100, 4196].iter().for_each(|&n| at(file, n as u64, &[!all[n]])),
        &["damaged: both copies of its header (bytes 0, 4096)"],
    ),
    (
        "without a root",
        |file, all| [8200, 12296].iter().for_each(|&n| at(file, n as u64, &[!all[n]])),
        &["byte 8192: both copies of the log's root are damaged"],
    ),
    (
        "bit-rotten",
        |file, all| {
            let found = all.windows(TEXT.len()).rposition(|bytes| bytes == TEXT.as_bytes());
            let found = found.expect("the text");
            at(file, found as u64, &[all[found] ^ 1]);
        },
        &["byte 16384: record 1 is gone, 1 was durable", "husk volume check"],
    ),
];

/// A block device over a file, if this user may have one.
struct Loop {
    device: String,
    is_attached: bool,
}

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let said = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let device = String::from_utf8(said.stdout).ok()?.trim().to_owned();
        said.status.success().then_some(Self { device, is_attached: true })
    }

    fn detach(&mut self) {
        if std::mem::take(&mut self.is_attached) {
            let done = Command::new("losetup").args(["--detach", &self.device]).status();
            assert!(done.expect("losetup").success());
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.detach();
    }
}

#[test]
fn a_volume_whose_disk_is_detached_is_told_and_kept_until_it_is_forgotten() {
    let room = Room::new("absent");
    let file = room.scratch.path().join("disk");
    File::create(&file).and_then(|file| file.set_len(2 * SIZE_BYTES)).expect("a file");
    let Some(mut disk) = Loop::over(&file) else {
        eprintln!("skipped: no loop device without root");
        return;
    };
    room.does(&["create", "data", "--size", "1M", "--on", &disk.device]);
    let whole = fs::read(&file).expect("the disk");
    disk.detach();
    let told = format!("{} has no disk", disk.device);
    let table = room.does(&["ls"]);
    assert!(table.contains("missing") && table.contains(&told), "{table}");
    let what_to_do = "attach the disk again, or forget the volume with `husk volume rm --forget`";
    for command in ["check", "rm"] {
        room.fails(&[command, "data"], 125, &[&told, what_to_do]);
    }
    assert!(fs::read(&file).expect("the disk") == whole);
    room.does(&["rm", "--forget", "data"]);
    assert!(!room.does(&["ls"]).contains("data"));
}

#[test]
fn a_spoilt_area_is_one_line_of_run_and_is_left_as_it_is() {
    if against_native() {
        return;
    }
    let room = Room::held("spoilt");
    let whole = fs::read(room.area()).expect("the area");
    for (name, spoil, mentions) in SPOILT {
        let file = File::options().write(true).open(room.area()).expect("the area");
        file.set_len(SIZE_BYTES).expect("its length");
        at(&file, 0, &whole);
        spoil(&file, &whole);
        drop(file);
        let before = fs::read(room.area()).expect("the area");
        let outcome = room.python(&[], &["print('it ran')"]);
        let lines = said(&outcome);
        assert_eq!((outcome.code(), lines.len()), (125, 1), "{name}: {}", outcome.shown());
        assert!(outcome.stdout.is_empty(), "{name}: {}", outcome.shown());
        for word in mentions.iter().chain(&["volume data"]) {
            assert!(lines[0].contains(word), "{name}: no {word} in {}", lines[0]);
        }
        assert_eq!(room.husk(&["check", "data"]).code(), 1, "{name}");
        let after = fs::read(room.area()).expect("the area");
        assert!(after[HEADER_BYTES..] == before[HEADER_BYTES..], "{name}: it was changed");
    }
    fs::write(room.area(), &whole).expect("the area");
    room.still_holds();
}

#[test]
fn a_disk_that_is_full_at_any_write_of_a_command_is_one_line_and_nothing_is_lost() {
    if against_native() {
        return;
    }
    let room = Room::held("no-room");
    let refused = |limit_kib, arguments: &[&str]| {
        let outcome = run(&room.scratch, &room.work, room.limited(limit_kib, arguments));
        let lines = said(&outcome);
        assert_eq!((outcome.code(), lines.len()), (125, 1), "{limit_kib}: {}", outcome.shown());
        assert!(lines[0].contains("file too large"), "{limit_kib}: {}", lines[0]);
    };
    for limit_kib in [4, 8, 512, 1023] {
        refused(limit_kib, &["create", "other", "--size", "1M"]);
        assert_eq!(files(&room.state()), 2, "{limit_kib}");
        refused(limit_kib, &["resize", "data", "--size", "2M"]);
        assert_eq!(files(&room.state()), 2, "{limit_kib}");
        room.still_holds();
    }
    refused(2047, &["resize", "data", "--size", "2M"]);
    room.still_holds();
    let done = run(&room.scratch, &room.work, room.limited(2048, &["resize", "data", "--size=2M"]));
    assert_eq!(done.code(), 0, "{}", done.shown());
    room.still_holds();
}

#[test]
fn a_quota_that_is_used_up_at_any_write_of_a_command_is_one_line_and_nothing_is_lost() {
    if against_native() {
        return;
    }
    let room = Room::held("quota");
    let limited = |limit_bytes: &str, fallocate, arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", QUOTA, limit_bytes, fallocate]).arg(binary());
        command.arg("volume").args(arguments);
        command.env("XDG_STATE_HOME", room.scratch.path().join("state"));
        run(&room.scratch, &room.work, command)
    };
    let whole = SIZE_BYTES.to_string();
    for (limit_bytes, fallocate) in [("0", "yes"), ("0", "no"), ("4096", "no"), (&*whole, "no")] {
        for arguments in [["create", "other", "--size", "2M"], ["resize", "data", "--size", "2M"]] {
            let outcome = limited(limit_bytes, fallocate, &arguments);
            let (lines, shown) = (said(&outcome), outcome.shown());
            assert_eq!((outcome.code(), lines.len()), (125, 1), "{limit_bytes}: {shown}");
            assert!(lines[0].contains("quota exceeded"), "{limit_bytes}: {shown}");
            assert_eq!(files(&room.state()), 2, "{limit_bytes}");
            room.still_holds();
        }
    }
    let done = limited("4294967295", "no", &["resize", "data", "--size", "2M"]);
    assert_eq!(done.code(), 0, "{}", done.shown());
    room.still_holds();
}

/// Ends a command at some moment between its first byte and its end.
fn kill_at(mut child: Child, round: u32, has_begun: impl Fn() -> bool) {
    for _ in 0..20_000 * patience() {
        if has_begun() || child.try_wait().expect("ours").is_some() {
            break;
        }
        std::thread::yield_now();
    }
    // Later and later.
    (0..1_u64 << (2 * round)).for_each(|_| std::hint::spin_loop());
    child.kill().expect("ours");
    child.wait().expect("its end");
}

#[test]
fn a_create_that_is_killed_leaves_what_says_so_and_can_be_removed() {
    if against_native() {
        return;
    }
    let room = Room::new("killed-create");
    for round in 0..ROUNDS {
        let child = room.begun(&["create", "data", "--size", "32M"]);
        kill_at(child, round, || room.state().join("data.json").exists());
        let rows = document(&room.does(&["ls", "--json"]));
        let state = rows[0]["state"].as_str().unwrap_or("none");
        assert!(["none", "half-made", "free", "missing"].contains(&state), "{round}: {rows}");
        if state == "half-made" {
            let outcome = room.python(&[], &["pass"]);
            assert_eq!((outcome.code(), said(&outcome).len()), (125, 1), "{}", outcome.shown());
        }
        if state != "none" {
            room.does(&["rm", "data"]);
        }
        room.does(&["create", "data", "--size", "1M"]);
        room.does(&["rm", "data"]);
        assert_eq!(document(&room.does(&["ls", "--json"])).as_array().map(Vec::len), Some(0));
        assert!(!room.area().exists(), "{round}");
    }
}

#[test]
fn a_resize_that_is_killed_leaves_the_old_size_or_the_new_one_with_all_that_was_held() {
    if against_native() {
        return;
    }
    let room = Room::held("killed-resize");
    let beside = room.state().join("data.husk-area.new");
    for round in 0..ROUNDS {
        let size = ["32M", "16M"][round as usize % 2];
        let child = room.begun(&["resize", "data", "--size", size]);
        kill_at(child, round, || beside.exists());
        let rows = document(&room.does(&["ls", "--json"]));
        let size_bytes = rows[0]["size_bytes"].as_u64().expect("a size");
        assert!([1 << 20, 16 << 20, 32 << 20].contains(&size_bytes), "{round}: {rows}");
        room.still_holds();
    }
    room.does(&["resize", "data", "--size", "2M"]);
    room.still_holds();
    assert!(!beside.exists());
}
