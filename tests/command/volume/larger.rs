//! A volume gets larger while an image uses it.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};

use husk_tests::against_native;

use super::{Room, document};

/// Syncs step after step until somebody says that it is enough, and tells how many there were.
const STEPS: &str = r#"
import os, sys, threading
os.chdir(sys.argv[1])
enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), enough.set())).start()
fd, done = os.open("steps", os.O_CREAT | os.O_RDWR), 0
while done == 0 or not enough.is_set():
    done += 1
    os.pwrite(fd, b"%8d" % done, (done - 1) * 8)
    os.fsync(fd)
    if done == 1:
        print("up", flush=True)
print(done, flush=True)
"#;

/// Syncs more than there is room for; when it is told to, once more.
const FULL: &str = r#"
import errno, os, sys
fd = os.open(sys.argv[1] + "/large", os.O_CREAT | os.O_WRONLY)
os.write(fd, bytes(range(1, 256)) * 12345)
try:
    os.fsync(fd)
except OSError as e:
    print(errno.errorcode[e.errno], flush=True)
sys.stdin.readline()
os.fsync(fd)
print("durable", flush=True)
"#;

/// A program in an image.
struct Program {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Program {
    fn begin(room: &Room, script: &str) -> Program {
        let mut command = room.command("64M", &[], script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("husk");
        let printed = BufReader::new(child.stdout.take().expect("its output"));
        Program { child, printed }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.printed.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("it reads");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }
}

#[test]
fn a_volume_in_use_gets_larger_and_its_syncs_go_on() {
    if against_native() {
        return;
    }
    let room = Room::new("larger");
    room.does(&["create", "data", "--size", "16M"]);
    let mut program = Program::begin(&room, STEPS);
    assert_eq!(program.line(), "up");
    let served = |what: &str| {
        let report = document(&room.does(&["stat", "data", "--json"]));
        report["served"][what].as_u64().unwrap_or_else(|| panic!("{what}: {report}"))
    };
    let (room_before, flushes) = (served("held_room_bytes"), served("flushes"));
    for size in ["24M", "48M", "48M"] {
        assert_eq!(room.does(&["resize", "data", "--size", size]), "");
    }
    let row = document(&room.does(&["ls", "--json"]))[0].clone();
    assert_eq!((&row["size_bytes"], &row["state"]), (&(48 << 20).into(), &"in-use".into()));
    assert!(served("held_room_bytes") > 2 * room_before);
    assert!(served("flushes") >= flushes && served("growth_bytes") == 0);
    let only = ["can only get larger than its 48M", "end what uses it"];
    room.fails(&["resize", "data", "--size", "32M"], 125, &only);
    room.fails(&["resize", "data", "--size", "1K"], 125, &["--size 1M to 64T"]);
    room.fails(&["check", "data"], 125, &[&format!("process {} uses it", program.child.id())]);
    program.tell();
    let done: u64 = program.line().parse().expect("a number");
    program.end();
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
    let look = "import os, sys\nprint(os.path.getsize(sys.argv[1] + '/steps') // 8)\n";
    assert_eq!(room.printed(&[look]), format!("{done}\n"));
    // Nobody uses it now.
    room.does(&["resize", "data", "--size", "32M"]);
    assert_eq!(room.printed(&[look]), format!("{done}\n"));
    assert_eq!(fs::read_dir(room.state()).expect("the directory").count(), 2);
}

#[test]
fn a_full_volume_in_use_has_room_once_it_is_larger() {
    if against_native() {
        return;
    }
    let room = Room::new("room");
    room.does(&["create", "data", "--size", "4M"]);
    let mut program = Program::begin(&room, FULL);
    assert_eq!(program.line(), "ENOSPC");
    let fit = ["what it holds does not fit; choose more --size"];
    room.fails(&["resize", "data", "--size", "5M"], 125, &fit);
    room.does(&["resize", "data", "--size", "16M"]);
    program.tell();
    assert_eq!(program.line(), "durable");
    program.end();
    let look = "import sys\nprint(sum(open(sys.argv[1] + '/large', 'rb').read()))\n";
    let sum = (1..256).sum::<u64>() * 12345;
    assert_eq!(room.printed(&[look]), format!("{sum}\n"));
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
}
