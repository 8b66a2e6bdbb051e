//! What a program has open when its exec goes on at another node: each kind of descriptor is of the
//! same use there as on one node, and only what is listed keeps the program where it is.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::husk::{binary, husk};
use husk_tests::{Case, Length, Run, Scratch, against_native, process};

use super::{AGENTS, children, until};
use crate::{run, said};

/// A kind of descriptor.
struct Kind {
    name: &'static str,
    /// What bash runs; `N sh -c ...` is on the other node.
    script: &'static str,
    /// Its program goes to that node.
    moves: bool,
}

const fn moves(name: &'static str, script: &'static str) -> Kind {
    Kind { name, script, moves: true }
}

const fn stays(name: &'static str, script: &'static str) -> Kind {
    Kind { name, script, moves: false }
}

/// Before each script: `N` runs a command on node 1, and `P` a Python program whose child is there.
const BEGIN: &str = r#"
N() { HUSK_NODE=1 "$@"; }
export BOTH='
import os, subprocess, sys
def there(program, *fds):
    """Runs Python on node 1 with these descriptors open, as A, B, C."""
    names = "".join("%s = %d\n" % pair for pair in zip("ABC", fds))
    sys.stdout.flush()
    begin = "import os, select, socket, sys\nos.system(os.environ[\"PROBE\"])\n"
    argv = [sys.executable, "-c", begin + names + program]
    env = {**os.environ, "HUSK_NODE": "1"}
    print(subprocess.run(argv, env=env, pass_fds=fds).returncode)
'
P() { python3 -c "$BOTH$1"; }
"#;

/// Inside a program on node 1, in a run that is only to show where that is.
const PROBE: &str = "head -c 26 /proc/self/environ | cut -d: -f3 >> \"$WHERE\"; ";

const KINDS: &[Kind] = &[
    moves("host file, read", "N sh -c 'PROBE cat; exec 3<in; cat <&3' < in; cat in"),
    moves(
        "host file, shared offset",
        "exec 3<in; read x <&3; echo $x; N sh -c 'PROBE read x <&3; echo $x'; read x <&3; echo $x",
    ),
    moves(
        "file, read",
        "echo new >> in; N sh -c 'PROBE cat' < in; head -c 3 in > short; N cat < short",
    ),
    moves("file, written", "N sh -c 'PROBE seq 2000' > out; N sh -c 'echo a' > out; cat out | wc"),
    moves("file, appended", "echo a > out; N sh -c 'PROBE echo b' >> out; echo c >> out; cat out"),
    moves(
        "two numbers of one description",
        "N sh -c 'PROBE echo a; echo b >&2; echo c; exec 1>&-; echo d >&2' > out 2>&1; cat out",
    ),
    moves(
        "two descriptions of one file",
        "N sh -c 'PROBE echo a; echo bb >&2; echo c' > out 2> out; cat out",
    ),
    moves(
        "shared offset, written in turns",
        "(echo a; N sh -c 'PROBE echo b; (echo c; cat in)'; echo d; N echo e) > out; cat out",
    ),
    moves(
        "shared offset, read in turns",
        "seq 100 > n; (read a; N sh -c 'PROBE read b; read c; echo $b $c'; read d; echo $a $d; \
         N head -n 1; cat) < n",
    ),
    moves(
        "shared offset, written at once",
        "w() { for n in $(seq 300); do echo $1 $n; done; }; export -f w; \
         (w a & N bash -c 'PROBE w b' & N bash -c 'w c' & wait) > out; sort -o out out; wc out",
    ),
    moves(
        "shared offset, appended at once",
        "w() { for n in $(seq 300); do echo $1 $n; done; }; export -f w; \
         (w a & N bash -c 'PROBE w b' & N bash -c 'w c' & wait) >> out; sort -o out out; wc out",
    ),
    moves(
        "shared offset, long",
        "(N sh -c 'PROBE seq 30000'; seq 5; N seq 40000) > out; md5sum < out; \
         (head -c 7 > /dev/null; N sh -c 'md5sum'; cat) < out",
    ),
    moves(
        "read and write, sought",
        "P '
fd = os.open(\"both\", os.O_RDWR | os.O_CREAT)
os.write(fd, b\"0123456789\")
os.lseek(fd, 2, 0)
there(\"print(os.read(A, 3), os.lseek(A, 1, 1), os.write(A, b\\\"xy\\\"))\", fd)
print(os.lseek(fd, 0, 1), os.read(fd, 10), os.pread(fd, 20, 0))
there(\"print(os.read(A, 3), os.lseek(A, -1, 2), os.ftruncate(A, 4), os.fstat(A).st_size)\", fd)
print(os.lseek(fd, 0, 1), os.read(fd, 10), os.pread(fd, 20, 0))
'",
    ),
    moves(
        "vectors, copies and the end",
        "P '
fd = os.open(\"v\", os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(range(100)))
os.lseek(fd, 0, 0)
there(\"a, b = bytearray(5), bytearray(9); print(os.readv(A, [a, b]), a, b)\", fd)
there(\"print(os.writev(A, [b\\\"xx\\\", b\\\"yyy\\\"]))\", fd)
there(\"r, w = os.pipe(); print(os.sendfile(w, A, None, 7))\", fd)
print(os.lseek(fd, 0, 1), os.read(fd, 100), os.read(fd, 100))
there(\"print(os.read(A, 5), os.lseek(A, 500, 0), os.read(A, 5))\", fd)
print(os.lseek(fd, 0, 1))
'",
    ),
    moves(
        "a file without a name",
        "exec 3<>gone; rm gone; echo a >&3; N sh -c 'PROBE echo b >&3; wc -c < /dev/fd/3'; \
         echo c >&3; cat /dev/fd/3 | wc -c; N sh -c 'stat -L -c %s%h /dev/fd/3'; ls",
    ),
    moves("here-document", "N sh -c 'PROBE cat' <<X\n$(seq 20000)\nX\nN cat <<< here"),
    moves(
        "temporary file",
        "P '
fd = os.open(\".\", os.O_TMPFILE | os.O_RDWR)
os.write(fd, b\"temporary\"); os.lseek(fd, 3, 0)
there(\"print(os.read(A, 4), os.fstat(A).st_nlink)\", fd)
print(os.read(fd, 20))
'",
    ),
    moves(
        "directory",
        "mkdir d; touch d/a d/b; P '
fd = os.open(\"d\", os.O_RDONLY | os.O_DIRECTORY)
there(\"print(sorted(os.listdir(A)), os.stat(\\\"a\\\", dir_fd=A).st_size)\", fd)
there(\"os.rename(\\\"a\\\", \\\"c\\\", src_dir_fd=A, dst_dir_fd=A)\", fd)
there(\"os.fchdir(A); print(sorted(os.listdir()))\", fd)
path = os.open(\"d/c\", os.O_PATH)
there(\"print(os.fstat(A).st_size)\", path)
there(\"print(os.path.basename(os.readlink(\\\"/proc/self/fd/%d\\\" % A)))\", path)
'",
    ),
    moves("pipe", "seq 100000 | N sh -c 'PROBE tail -n 1' | N cat | cat; echo ${PIPESTATUS[*]}"),
    moves(
        "FIFO",
        "mkfifo f; exec 3<>f; echo a >&3; N sh -c 'PROBE read x <&3; echo $x; echo b >&3'; \
         read x <&3; echo $x",
    ),
    moves(
        "pair of sockets",
        "P '
import socket
a, b = socket.socketpair(); a.send(b\"before\")
there(\"s = socket.socket(fileno=A); print(s.recv(9)); s.send(b\\\"back\\\")\", b.fileno())
print(a.recv(9))
'",
    ),
    moves(
        "eventfd, memory and devices",
        "P '
event, memory, null = os.eventfd(3), os.memfd_create(\"m\", 0), os.open(\"/dev/null\", os.O_RDWR)
os.write(memory, b\"memory\"); os.lseek(memory, 2, 0)
there(\"print(os.eventfd_read(A), os.eventfd_write(A, 5))\", event)
there(\"print(os.read(A, 9), os.write(B, b\\\"x\\\"))\", memory, null)
print(os.eventfd_read(event), os.lseek(memory, 0, 1))
'",
    ),
    moves(
        "terminal",
        "P '
import pty
one, other = pty.openpty()
there(\"print(os.isatty(A)); os.write(A, b\\\"typed\\\")\", other)
print(os.read(one, 9))
'",
    ),
    moves(
        "a child that outlives who was moved",
        "N sh -c 'PROBE (sleep 0.3; echo later) & echo first' > out; sleep 0.1; echo > go; \
         while ! grep -q later out; do sleep 0.05; done; cat out",
    ),
    moves(
        "hundreds of files",
        "P '
fds = [os.open(\"f%d\" % n, os.O_RDWR | os.O_CREAT) for n in range(200)]
for n, fd in enumerate(fds): os.write(fd, b\"%d\" % n)
there(\"for n in range(A, A + 200): os.write(n, b\\\"x\\\")\", *fds)
print([os.pread(fd, 9, 0) for fd in fds])
'",
    ),
    stays(
        "epoll set and watches",
        "P '
import select
poll = select.epoll(); r, w = os.pipe(); poll.register(r, select.EPOLLIN); os.write(w, b\"x\")
there(\"print(len(select.epoll.fromfd(A).poll(5)))\", poll.fileno(), r)
'",
    ),
];

fn whole(kind: &Kind, probe: &str) -> String {
    let script = kind.script.replace("PROBE ", probe);
    format!("{BEGIN}export PROBE='{probe}:'\n{script}")
}

#[test]
fn each_kind_of_descriptor_is_of_the_same_use_on_another_node() {
    for kind in KINDS {
        println!("{}", kind.name);
        let script = whole(kind, "");
        Case::new("nodes-passed", Length::Once, &["bash", "-c", &script])
            .input(|work: &Path| {
                std::fs::write(work.join("in"), "one\ntwo\nthree\n").expect("a file")
            })
            .options(&["--nodes", "2"])
            .check();
    }
}

#[test]
fn what_a_program_has_open_keeps_it_on_its_node_only_where_that_is_said() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-where");
    let place = scratch.path().join("where");
    // Of a program with nothing open: descriptors of regions of other nodes lie lower.
    let where_is = |script: &str, name: &str| {
        let work = scratch.fresh("work");
        std::fs::write(work.join("in"), "one\ntwo\nthree\n").expect("a file");
        let mut command: Command = husk(&["--nodes", "2"], &["bash", "-c", script]);
        command.env("WHERE", &place);
        let outcome = run(&scratch, &work, command);
        assert!(said(&outcome).is_empty(), "{name}: {}", outcome.shown());
        let found = std::fs::read_to_string(&place).unwrap_or_default();
        let _ = std::fs::remove_file(&place);
        found.lines().next().map(str::to_owned)
    };
    let at = |node| format!("HUSK_NODE={node} sh -c '{PROBE} :'");
    let [home, other] = [0, 1].map(|node| where_is(&at(node), "nothing"));
    assert!(home.is_some() && other.is_some() && home != other, "{home:?} {other:?}");
    for kind in KINDS {
        let expected = if kind.moves { &other } else { &home };
        assert_eq!(&where_is(&whole(kind, PROBE), kind.name), expected, "{}", kind.name);
    }
}

/// Writes lines at the offset that it shares with others.
const LINES: &str = r#"
import os, sys
for n in range(900):
    line = f"{sys.argv[1]} {n}\n".encode()
    assert os.write(1, line) == len(line)
"#;

/// Reads records of five bytes there: what one has taken, no other one gets.
const RECORDS: &str = "
import os
while record := os.read(0, 5):
    assert len(record) == 5 and os.write(1, record) == 5, record
";

#[test]
fn each_byte_at_a_shared_offset_is_written_and_read_once_whenever_the_agent_is_killed() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-offsets");
    let work = scratch.fresh("work");
    std::fs::write(work.join("lines.py"), LINES).expect("a file");
    std::fs::write(work.join("records.py"), RECORDS).expect("a file");
    let script = "
(for me in a b c; do HUSK_NODE=1 python3 lines.py $me & all=\"$all $!\"; done
for one in $all; do wait $one || exit 1; done) > all || exit 1
sort all | uniq -c | awk '$1 != 1' >&2; wc -l < all
seq -w 3000 > n
(for me in a b; do HUSK_NODE=1 python3 records.py > took$me & done; wait) < n
sort -n tooka tookb | cmp - n && echo read";
    let command = husk(&["--nodes", "2"], &["bash", "-c", script]);
    let mut running = Run::start(command, &work, scratch.path());
    let mut killed = 0;
    while killed < AGENTS && !running.ended() {
        for agent in children(running.pid(), "husk: home") {
            killed += u32::from(process::kill(agent));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let outcome = running.wait(Duration::from_secs(120)).expect("it ends");
    assert!(outcome.status.success() && killed > 4, "{killed}: {}", outcome.shown());
    let seen = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(seen, "2700\nread\n", "{killed}: {}", outcome.shown());
}

/// Each says its number, and waits.
const KEPT: [(&str, &str); 2] = [
    ("e = select.epoll(); os.set_inheritable(e.fileno(), True)", "an epoll set"),
    (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
for n in range(1100): os.set_inheritable(os.dup(0), True)",
        "one of more than it can take along",
    ),
];

#[test]
fn husk_explain_says_which_descriptor_keeps_a_program_on_its_node() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-kept");
    let images = scratch.path().join("images");
    for (opens, is) in KEPT {
        let work = scratch.fresh("work");
        let program = format!(
            "import os, resource, select, time\n{opens}\n\
             print(os.getpid(), flush=True); time.sleep(1000)"
        );
        let mut command = husk(&["--nodes", "2"], &["python3", "-c", &program]);
        command.env("HUSK_IMAGES", &images);
        let running = Run::start(command, &work, scratch.path());
        let told = until("its number", || {
            let told = String::from_utf8(running.stdout()).expect("digits");
            told.ends_with('\n').then_some(told)
        });
        let mut command = Command::new(binary());
        command.env("HUSK_IMAGES", &images);
        command.args(["explain", &running.pid().to_string(), told.trim_end()]);
        let said = String::from_utf8(command.output().expect("husk").stdout).expect("text");
        let begin = "node     0; its next program stays there: number ";
        let says = |line: &str| line.starts_with(begin) && line.ends_with(&format!(" is {is}"));
        assert!(said.lines().any(says), "{is}: {said}");
        process::kill(running.pid());
    }
}
