//! Policies of a volume, and two volumes in one image.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;

use super::{Room, document};
use crate::{run, said};

/// Syncs a file 500 times, then says so and waits.
const SYNCS: &str = "
import os, sys
f = os.open(sys.argv[1] + '/f', os.O_RDWR | os.O_CREAT)
for n in range(500):
    os.pwrite(f, b'x' * 10, n * 10)
    os.fdatasync(f)
print('synced', flush=True)
sys.stdin.read()
print(os.fstat(f).st_size)
";

/// A program in an image, its input and what it prints.
struct Program {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Program {
    fn begin(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("husk");
        let printed = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, printed }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.printed.read_line(&mut line).expect("a line");
        line
    }

    /// Lets it end; what else it prints.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.printed.read_to_string(&mut rest).expect("text");
        assert!(self.child.wait().expect("its end").success());
        rest
    }
}

impl Room {
    fn with_policy(&self, policy: &str, script: &str) -> Command {
        let tree = self.scratch.path().join("tree");
        std::fs::create_dir_all(&tree).expect("a directory");
        let tree = tree.to_str().expect("a plain path");
        let mut command = Command::new(binary());
        command.args(["run", "--memory", "64M", "--volume", &format!("data:{tree}{policy}")]);
        command.args(["--", "python3", "-c", script, tree]);
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command.current_dir(&self.work);
        command
    }

    /// Writes of the log, and syncs that were answered, after `SYNCS` with a policy; and what it is
    /// called.
    fn flushes(&self, policy: &str) -> (u64, u64, String) {
        let mut program = Program::begin(self.with_policy(policy, SYNCS));
        assert_eq!(program.line(), "synced\n");
        let stat = document(&self.does(&["stat", "data", "--json"]))["served"].clone();
        let text = self.does(&["stat", "data"]);
        let name = stat["policy"].as_str().expect("a policy").to_owned();
        assert!(text.contains(&format!("policy    {name}\n")), "{text}");
        assert_eq!(program.end(), "5000\n");
        let number = |field: &str| stat[field].as_u64().expect("a number");
        (number("flushes"), number("syncs"), name)
    }
}

#[test]
fn syncs_wait_for_the_disk_unless_the_policy_says_otherwise_and_the_end_saves_all() {
    if against_native() {
        return;
    }
    let room = Room::new("policies");
    room.does(&["create", "data", "--size", "8M"]);
    let size = "import os, sys\nprint(os.path.getsize(sys.argv[1] + '/f'))\n";
    for (policy, called) in [("", "fsync"), (":fsync", "fsync"), (":immediate", "immediate")] {
        let (flushes, syncs, name) = room.flushes(policy);
        assert_eq!(name, called);
        // Now and then a turn of what nobody has synced comes first.
        assert!(flushes >= 400 && syncs >= 500, "{policy}: {flushes} flushes, {syncs} syncs");
        assert_eq!(room.printed(&[size]), "5000\n");
        room.does(&["rm", "data"]);
        room.does(&["create", "data", "--size", "8M"]);
    }
    let (flushes, syncs, name) = room.flushes(":async=60000");
    assert_eq!((name.as_str(), syncs >= 500), ("async=60000", true), "{syncs}");
    // What nobody has synced is saved every five seconds.
    assert!(flushes < 250, "{flushes} flushes");
    assert_eq!(room.printed(&[size]), "5000\n");
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
}

#[test]
fn who_asks_for_everything_waits_for_the_disk_with_each_policy() {
    if against_native() {
        return;
    }
    let room = Room::new("whole");
    room.does(&["create", "data", "--size", "8M"]);
    let script = SYNCS.replace("os.fdatasync(f)", "os.sync()");
    let mut program = Program::begin(room.with_policy(":async=60000", &script));
    assert_eq!(program.line(), "synced\n");
    let stat = document(&room.does(&["stat", "data", "--json"]));
    let flushes = stat["served"]["flushes"].as_u64().expect("a number");
    assert!(flushes >= 400, "{flushes}");
    program.end();
}

#[test]
fn a_policy_that_is_none_is_one_line_and_a_colon_may_be_in_a_name() {
    if against_native() {
        return;
    }
    let room = Room::new("words");
    room.does(&["create", "data", "--size", "1M"]);
    for wrong in [":async=0", ":async=60001", ":async=soon"] {
        let outcome = run(&room.scratch, &room.work, room.with_policy(wrong, "pass"));
        let lines = said(&outcome);
        assert_eq!((outcome.code(), lines.len()), (125, 1), "{}", outcome.shown());
        assert!(lines[0].contains("choose async=1 to async=60000"), "{}", lines[0]);
    }
    let odd = room.scratch.path().join("tree:odd");
    std::fs::create_dir_all(&odd).expect("a directory");
    let outcome = run(&room.scratch, &room.work, room.with_policy(":odd", "print('it ran')"));
    assert_eq!((outcome.code(), said(&outcome).len()), (0, 0), "{}", outcome.shown());
}

/// Two volumes of one image: each has its own names, log and policy.
const BOTH: &str = "
import os, sys, errno
one, two = sys.argv[1:]
for tree in (one, two):
    with open(tree + '/name', 'w') as f:
        f.write(tree); f.flush(); os.fsync(f.fileno())
for move in (os.rename, os.link):
    try:
        move(one + '/name', two + '/other')
    except OSError as e:
        print(errno.errorcode[e.errno])
print(os.stat(one).st_dev == os.stat(one + '/name').st_dev, flush=True)
sys.stdin.read()
";

#[test]
fn two_volumes_of_an_image_are_two_file_systems_each_with_what_it_was_given() {
    if against_native() {
        return;
    }
    let room = Room::new("both");
    let trees = ["one", "two"].map(|name| room.scratch.fresh(name));
    let [one, two] = trees.each_ref().map(|path| path.to_str().expect("a plain path"));
    for name in ["first", "second"] {
        room.does(&["create", name, "--size", "2M"]);
    }
    let begin = |volumes: &[String], script: &str| {
        let mut command = Command::new(binary());
        command.args(["run", "--memory", "64M"]);
        volumes.iter().for_each(|volume| _ = command.args(["--volume", volume]));
        command.args(["--", "python3", "-c", script, one, two]);
        command.env("XDG_STATE_HOME", room.scratch.path().join("state")).current_dir(&room.work);
        command
    };
    let both = [format!("first:{one}"), format!("second:{two}:async=60000")];
    let mut program = Program::begin(begin(&both, BOTH));
    assert_eq!([(); 3].map(|()| program.line()), ["EXDEV\n", "EXDEV\n", "True\n"]);
    let policy = |name| document(&room.does(&["stat", name, "--json"]))["served"]["policy"].clone();
    assert_eq!([policy("first"), policy("second")], ["fsync", "async=60000"]);
    room.fails(&["check", "first"], 125, &["uses it"]);
    program.child.stdin.as_mut().expect("its input").write_all(b"go on").expect("it reads");
    assert_eq!(program.end(), "");
    // Each alone, and at the other's place.
    let look = "import sys\nprint(open(sys.argv[1] + '/name').read())\n";
    for (name, held) in [("first", one), ("second", two)] {
        let outcome = run(&room.scratch, &room.work, begin(&[format!("{name}:{one}")], look));
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), format!("{held}\n"));
        assert_eq!(room.does(&["check", name]), format!("{name}: clean\n"));
    }
}
