//! Deaths amid each kind of request: agents of the home, then all processes of the node that asks.
//! Programs that ask go on after the first, and the home goes on after the second.

use std::fs;
use std::time::Duration;

use husk_tests::husk::husk;
use husk_tests::{Run, Scratch, against_native, process};

use super::{children, images, listed, nodes, until};

/// Agents that are killed amid one kind of request.
const AGENTS: u32 = 4;
/// How long what a node made may take to be let go of.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of request, and what makes many of it, once a round.
struct Kind {
    name: &'static str,
    round: &'static str,
}

const fn kind(name: &'static str, round: &'static str) -> Kind {
    Kind { name, round }
}

/// Rounds of Python on node 1. Each fails if the request is made twice, or half.
const KINDS: &[Kind] = &[
    kind("walk", "assert os.stat('have').st_size == 3; assert not os.path.exists('none')"),
    kind("list", "assert 'have' in os.listdir('.')"),
    kind("create", "os.close(os.open('c', os.O_CREAT | os.O_EXCL)); os.unlink('c')"),
    kind("mkdir", "os.mkdir('d'); os.rmdir('d')"),
    kind("link", "os.link('have', 'l'); assert os.stat('l').st_nlink == 2; os.unlink('l')"),
    kind("rename", "os.rename('moves', 'moved'); os.rename('moved', 'moves')"),
    kind("setattr", "os.chmod('have', n % 512); os.utime('have', (n, n))"),
    kind("xattr", "os.setxattr('have', 'user.a', b'%d' % n); os.getxattr('have', 'user.a')"),
    kind("open", "open('have').close(); open('cut', 'w').close()"),
    kind("read", "assert os.pread(have, 9, 0) == b'abc'"),
    kind("write-home", "assert os.pwrite(both, b'x' * 90000, n * 7) == 90000"),
    kind("append", "assert os.write(log, b'line\\n') == 5"),
    kind("space", "os.truncate('both', n); os.posix_fallocate(both, n * 50, 9000)"),
    kind("d-io, written", "assert os.write(3, b'line\\n') == 5"),
    kind("d-io, read", "assert os.read(4, 1) == b'y'; os.lseek(4, -1, os.SEEK_CUR)"),
];

const PROGRAM: &str = "
import os, sys
have, both = os.open('have', os.O_RDONLY), os.open('both', os.O_RDWR)
log = os.open('log', os.O_WRONLY | os.O_APPEND)
n = 0
while True:
    n += 1
    ROUND
    os.write(1, b'.')
";

/// A descriptor that goes to the other node with each exec.
const PASSED: &str = "while HUSK_NODE=1 sh -c 'echo line' >&3; do printf .; done; false";

/// On node 0: who waits for the program, and goes on in the same files.
const AROUND: &str = "
printf abc > have; touch both moves cut; : > log; yes | head -c 90000 > yes
exec 3>shared 4<yes
RUNS; [ $? != 0 ] || exit 1
printf over; echo end >&3; read -n 1 y <&4
touch c d l moved; rm -rf c d l moved moves both; echo end >> log; echo end > cut
grep -vc '^line$' log shared; head -c 3 have
";

fn dies_amid(name: &str, runs: &str) {
    println!("{name}");
    let scratch = Scratch::new("nodes-amid");
    let work = scratch.fresh("work");
    let script = AROUND.replace("RUNS", runs);
    let mut command = husk(&["--nodes", "2"], &["bash", "-c", &script]);
    command.env("HUSK_IMAGES", images(&scratch));
    let running = kill_agents(name, Run::start(command, &work, scratch.path()));
    kill_node(&scratch, &running);
    let outcome = running.wait(PATIENCE).expect("it ends");
    assert!(outcome.status.success(), "{name}: {}", outcome.shown());
    let seen = String::from_utf8_lossy(&outcome.stdout);
    let end = seen.trim_start_matches('.');
    assert_eq!(end, "overlog:1\nshared:1\nabc", "{name}: {}", outcome.shown());
    assert!(outcome.stderr.contains("husk: fsck: clean"), "{name}: {}", outcome.shown());
}

/// Kills agents amid rounds of a program, which goes on after each.
fn kill_agents(name: &str, mut running: Run) -> Run {
    let goes_on = |running: &Run| {
        let before = running.stdout().len();
        until(name, || (running.stdout().len() > before).then_some(()));
    };
    goes_on(&running);
    let mut killed = 0;
    while killed < AGENTS {
        for agent in children(running.pid(), "husk: home") {
            // Somewhere in a round.
            std::thread::sleep(Duration::from_micros(u64::from(killed) * 1300 + 700));
            killed += u32::from(process::kill(agent));
            goes_on(&running);
        }
        assert!(!running.ended(), "{name}: {}", running.wait(PATIENCE).expect("it ends").shown());
    }
    running
}

/// Kills all processes of node 1; none of them starts another one.
pub fn kill_node(scratch: &Scratch, running: &Run) {
    let image = nodes(scratch, running)[1]["image"].clone();
    let row = listed(scratch, &image).expect("node 1 is listed");
    let [supervisor, keeper] = ["pid", "keeper"].map(|who| row[who].as_i64().expect("a number"));
    let pid = rustix::process::Pid::from_raw(supervisor as i32).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it lives");
    process::kill(keeper as i32);
    process::kill(supervisor as i32);
    kill_programs(running);
}

pub fn kill_programs(running: &Run) {
    for found in running.descendants() {
        let name = fs::read_to_string(format!("/proc/{}/comm", found.pid)).unwrap_or_default();
        if matches!(name.trim_end(), "python3" | "sh") {
            process::kill(found.pid);
        }
    }
}

/// Every second kind, so that two tests share them.
fn amid_each(from: usize) {
    if against_native() {
        return;
    }
    for kind in KINDS.iter().skip(from).step_by(2) {
        let program = PROGRAM.replace("ROUND", kind.round);
        dies_amid(kind.name, &format!("HUSK_NODE=1 python3 -c \"{program}\""));
    }
}

#[test]
fn agents_and_a_whole_node_are_killed_amid_each_kind_of_request() {
    amid_each(0);
}

#[test]
fn agents_and_a_whole_node_are_killed_amid_each_other_kind_of_request() {
    amid_each(1);
}

#[test]
fn agents_and_a_whole_node_are_killed_amid_programs_that_take_along_what_is_open() {
    if against_native() {
        return;
    }
    dies_amid("d-pass", PASSED);
}

/// On node 1: writes and reads a file that has no name any more.
const NAMELESS: &str = "
import os
old, new = [os.open(name, os.O_RDWR | os.O_CREAT) for name in ('old', 'new')]
os.unlink('old'); os.unlink('new')
for n in range(150): os.open('many', os.O_RDWR | os.O_CREAT); os.unlink('many')
assert os.write(old, b'x' * 90000) == 90000
n = 0
while True:
    n += 1
    line = b'%08d' % n
    assert os.pwrite(new, line, n) == 8 and os.pread(new, 8, n) == line
    assert os.pread(old, 3, n) == b'xxx' and os.fstat(old).st_nlink == 0
    os.close(os.dup(new)); os.write(1, b'.')
";

/// On node 0: the image has so many inodes as before once the files have gone.
const COUNTED: &str = "
before=$(df --output=iused .)
HUSK_NODE=1 python3 -c \"$PROGRAM\"; [ $? != 0 ] || exit 1
printf over
until [ \"$(df --output=iused .)\" = \"$before\" ]; do sleep 0.05; done
echo gone
";

#[test]
fn files_without_a_name_stay_open_on_another_node_while_agents_are_killed_and_go_with_their_holder()
{
    if against_native() {
        return;
    }
    for dies in ["a program", "a node"] {
        let scratch = Scratch::new("nodes-nameless");
        let work = scratch.fresh("work");
        let mut command = husk(&["--nodes", "2"], &["bash", "-c", COUNTED]);
        command.env("HUSK_IMAGES", images(&scratch)).env("PROGRAM", NAMELESS);
        let running = kill_agents(dies, Run::start(command, &work, scratch.path()));
        if dies == "a node" {
            kill_node(&scratch, &running);
        } else {
            kill_programs(&running);
        }
        let outcome = running.wait(PATIENCE).expect("what nobody holds is let go of");
        assert!(outcome.status.success(), "{dies}: {}", outcome.shown());
        let seen = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(seen.trim_start_matches('.'), "overgone\n", "{dies}: {}", outcome.shown());
        assert!(outcome.stderr.contains("husk: fsck: clean"), "{dies}: {}", outcome.shown());
    }
}

/// On node 1: opens a file until there is no room for what stands for it there.
const FULL: &str = "
import errno, os
open('many', 'w').close(); fds = []
try:
    while True: fds.append(os.open('many', os.O_RDONLY))
except OSError as error: print(errno.errorcode[error.errno], len(fds) > 100)
os.unlink('many')
";

#[test]
fn an_open_that_finds_no_room_on_its_node_keeps_nothing_open_at_home() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-full");
    let work = scratch.fresh("work");
    let script = "
before=$(df --output=iused .)
HUSK_NODE=1 python3 -c \"$PROGRAM\"
until [ \"$(df --output=iused .)\" = \"$before\" ]; do sleep 0.05; done
echo gone";
    let mut command = husk(&["--nodes", "2", "--memory", "64M"], &["bash", "-c", script]);
    command.env("PROGRAM", FULL);
    let outcome = Run::start(command, &work, scratch.path()).wait(PATIENCE).expect("it ends");
    let seen = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(seen, "ENFILE True\ngone\n", "{}", outcome.shown());
}
