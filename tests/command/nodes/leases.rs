//! Files that were opened to be read on another node, and are opened there again: the home is not
//! asked any more, and nobody can tell.

use std::fs;
use std::time::Duration;

use husk_tests::husk::husk;
use husk_tests::{Case, Length, Run, Scratch, against_native, process};

use super::deaths::kill_node;
use super::{beside_a_stopped_agent, children, images, listed, nodes, until};
use crate::run;

/// How long anything here may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Before each script: `there` runs Python on node 1.
const BEGIN: &str = r#"
import os, subprocess, sys
WORDS = '''
import ctypes, errno, fcntl, os, struct, sys
def tried(what, call):
    try:
        print(what, call(), flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
def write(name, text):
    with open(name, "w") as file: file.write(text)
def text(name):
    fd = os.open(name, os.O_RDONLY)
    try: return os.read(fd, 100)
    finally: os.close(fd)
'''
exec(WORDS)
def there(program):
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", WORDS + program], env={**os.environ, "HUSK_NODE": "1"})
"#;

/// What is compared with Linux.
const SCRIPTS: [(&str, &str); 10] = [
    (
        "an opening begins at offset 0 with its own flags, at the lowest number",
        r#"
write("file", "some text")
there('''
for flags in (0, os.O_NONBLOCK, os.O_CLOEXEC, os.O_APPEND, os.O_RDWR, os.O_PATH):
    fd = os.open("file", flags)
    seen = fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)
    tried((fd, seen), lambda: os.read(fd, 4)); tried("more", lambda: os.lseek(fd, 0, 1))
    os.close(fd); tried("closed", lambda: os.read(fd, 1)); tried("twice", lambda: os.close(fd))
one = os.open("file", 0); two = os.dup(one); os.close(one)
print(os.read(two, 2)); one = os.open("file", 0); print(one, two, os.read(one, 2), os.read(two, 2))
os.close(two); two = os.open("file", 0); print(two, os.read(two, 3), os.read(one, 3))
''')
"#,
    ),
    (
        "each opening is judged by the rights of then",
        r#"
write("file", "text"); os.chmod("file", 0o604); os.chmod(".", 0o755)
there('''
print(text("file")); os.setgroups([]); os.setegid(65534); os.seteuid(65534)
tried("others", lambda: text("file")); tried("others", lambda: text("file"))
os.seteuid(0); os.chmod("file", 0o600); os.seteuid(65534)
tried("only root", lambda: text("file")); tried("only root", lambda: text("file"))
os.seteuid(0); tried("root", lambda: text("file"))
''')
os.chmod("file", 0)
there('os.seteuid(65534); tried("nobody", lambda: text("file"))')
"#,
    ),
    (
        "a lock of one opening is in the way of the next one",
        r#"
write("file", "text")
there('''
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
os.close(os.open("file", 0)); one = os.open("file", 0); two = os.open("file", 0)
os.close(os.open("file", 0)); three = os.open("file", 0)
tried("one", lambda: fcntl.flock(one, NOW)); tried("two", lambda: fcntl.flock(two, NOW))
os.close(one); tried("two", lambda: fcntl.flock(two, NOW))
one = os.open("file", 0); tried("one", lambda: fcntl.flock(one, NOW))
tried("three", lambda: fcntl.flock(three, NOW))
fcntl.flock(two, fcntl.LOCK_UN); os.close(two); tried("three", lambda: fcntl.flock(three, NOW))
os.close(three); tried("one", lambda: fcntl.flock(one, NOW))
''')
"#,
    ),
    (
        "a lock of a process goes with any number of its file",
        r#"
write("file", "text")
there('''
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
def other():
    sys.stdout.flush()
    if os.fork() == 0:
        fd = os.open("file", os.O_RDWR); tried("other", lambda: fcntl.lockf(fd, NOW)); os._exit(0)
    os.wait()
os.close(os.open("file", 0)); fd = os.open("file", os.O_RDWR); fcntl.lockf(fd, NOW); other()
os.close(os.open("file", 0)); other()
''')
"#,
    ),
    (
        "a name that leads to another file leads there at once",
        r#"
for how in ("os.unlink('file'); write('file', 'next')",
            "write('new', 'moved'); os.rename('new', 'file')",
            "os.unlink('file'); os.symlink('target', 'file')", "os.unlink('file')"):
    if not os.path.lexists("file"): os.symlink("target", "file")
    if os.path.islink("file"): os.unlink("file")
    write("file", "first"); write("target", "of the link")
    there("for n in 1, 2: print(text('file'))"); exec(how)
    there("tried('there', lambda: text('file'))"); tried("here", lambda: text("file"))
    if os.path.lexists("file"): os.unlink("file")
    write("file", "again"); there("print(text('file'))"); there(how)
    there("tried('there', lambda: text('file'))"); tried("here", lambda: text("file"))
"#,
    ),
    (
        "what is closed by a number that is taken, by an end, or by a shell's redirection",
        r#"
for n in range(9): write("file%d" % n, "text of %d\n" % n)
there('''
one, two = os.open("file1", 0), os.open("file2", 0)
os.read(one, 5); os.dup2(two, one); print(os.read(one, 4), os.read(two, 4), text("file1"))
tried("none", lambda: os.dup2(99, one)); tried("itself", lambda: os.dup2(two, two))
print(os.read(one, 3)); os.dup2(0, two); print(os.read(one, 1), text("file2"))
if os.fork() == 0:
    three = os.open("file3", 0); os.read(three, 3); os._exit(0)
os.wait(); print(text("file3"))
if os.fork() == 0:
    four = os.open("file4", 0); os.read(four, 3); fcntl.flock(four, 2); os.kill(os.getpid(), 9)
os.wait(); print(text("file4")); four = os.open("file4", 0); fcntl.flock(four, 2)
five = os.open("file5", 0); os.read(five, 5)
os.execv("/bin/sh", ["sh", "-c", "read a <file5; read b <file5; cat file5 file6; cat <file6; "
    "echo $a $b; while read c; do echo $c; done <file7; exec <file7; read d; echo $d"])
''')
"#,
    ),
    (
        "a file that is open without a name is there until it is closed",
        r#"
write("file", "kept")
there('''
os.close(os.open("file", 0)); fd = os.open("file", 0); os.unlink("file"); write("file", "next")
print(os.read(fd, 9), text("file")); os.close(fd); print(text("file"))
''')
"#,
    ),
    (
        "more files than are kept open, by turns",
        r#"
for n in range(50): write("file%d" % n, str(n))
there('''
for turn in range(3):
    print([text("file%d" % (n * (1 + turn) % 50)) for n in range(50)])
all = [os.open("file%d" % n, 0) for n in range(50)]
print([os.read(fd, 9) for fd in all]); [os.close(fd) for fd in all]
''')
for n in range(50): os.unlink("file%d" % n)
print(os.listdir("."))
"#,
    ),
    (
        "what was read may be run, and what may be run read",
        r#"
write("program", '#!/bin/sh\necho ran\n'); os.chmod("program", 0o755)
there('print(text("program")); print(text("program"))')
fd = os.open("program", os.O_WRONLY); os.lseek(fd, 0, 2); os.write(fd, b"echo more\n"); os.close(fd)
sys.stdout.flush(); subprocess.run(["./program"])
there('sys.stdout.flush(); os.system("./program"); print(text("program"))')
"#,
    ),
    (
        "who watches a file is told of what happens from then on",
        r#"
write("file", "text"); there('print(text("file")); print(text("file"))')
c = ctypes.CDLL(None)
def told():
    seen = b""
    try: seen = os.read(queue, 4096)
    except BlockingIOError: pass
    return [hex(struct.unpack_from("iI", seen, n)[1]) for n in range(0, len(seen), 16)]
queue = c.inotify_init1(os.O_NONBLOCK); OPEN, CLOSE, READ = 0x20, 0x10, 1
print(c.inotify_add_watch(queue, b"file", OPEN | CLOSE), told())
there('print(text("file"))'); print(told())
there('print(text("file")); print(text("file"))'); print(told())
os.close(queue); there('print(text("file"))')
queue = c.inotify_init1(os.O_NONBLOCK)
print(c.inotify_add_watch(queue, b"file", OPEN | CLOSE), told())
os.rename("file", "moved"); there('print(text("moved"))'); print(told())
"#,
    ),
];

#[test]
fn a_file_that_is_opened_again_on_another_node_is_as_on_linux() {
    for (name, script) in SCRIPTS {
        println!("{name}");
        let script = format!("{BEGIN}{script}");
        Case::new("nodes-leases", Length::Once, &["python3", "-c", &script])
            .options(&["--nodes", "2"])
            .check();
    }
}

/// It is opened again while the agent, which would have to be asked, is stopped.
#[test]
fn a_file_is_opened_again_on_another_node_without_the_agent_of_the_home() {
    if against_native() {
        return;
    }
    let script = "
echo text > file; touch -d @1000 file; mkfifo \"$0/go\"; exec 4<>\"$0/go\"
read -r line <file; read -r line <file; echo \"$line\" > \"$0/begun\"; read -r line <&4
for n in 1 2 3; do read -r line <file || exit 1; done; echo \"$line\" > \"$0/seen\"
read -r line <&4";
    let outcome = beside_a_stopped_agent("nodes-lease-alone", script, "text\n", "text\n");
    assert!(outcome.stderr.contains("husk: fsck: clean"), "{}", outcome.shown());
}

/// Files that nobody has open any more, and that lose their last name at home, are gone soon.
#[test]
fn files_that_another_node_has_closed_go_with_their_last_name() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-lease-ends");
    let work = scratch.fresh("work");
    let script = format!(
        "{BEGIN}{}",
        r#"
import time
def left():
    found = os.statvfs("."); return found.f_bfree, found.f_ffree
def until(holds):
    end = time.monotonic() + 50
    while not holds() and time.monotonic() < end: time.sleep(0.01)
    return holds()
inodes = left()[1]; there('write("warm", "up"); print(text("warm"))'); os.unlink("warm")
print(until(lambda: left()[1] == inodes)); before = left()
for remove in ("os.unlink(name)", "write('new', ''); os.rename('new', name); os.unlink(name)"):
    for who in (exec, there):
        for n in range(9): write("file%d" % n, "x" * 9000)
        there('print(sum(len(text("file%d" % n)) for n in range(9)))')
        print(left() != before)
        who("for n in range(9): name = 'file%d' % n; " + remove)
        print(until(lambda: left() == before))
"#
    );
    let outcome = run(&scratch, &work, husk(&["--nodes", "2"], &["python3", "-c", &script]));
    let expected = format!("b'up'\nTrue\n{}", "900\nTrue\nTrue\n".repeat(4));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: fsck: clean"), "{}", outcome.shown());
}

/// Reads files on node 1, and removes them here once it is told to.
const READ_AND_REMOVED: &str = r#"
free() { stat -f -c %d .; }
before=$(free); mkfifo "$0/go"; exec 4<>"$0/go"
for n in 1 2 3 4 5 6 7 8; do head -c 9000 /dev/zero > file$n; done
HUSK_NODE=1 cat file? | wc -c
echo ready; read -r line <&4
rm file?; end=$((SECONDS + 50))
until [ $(free) = $before ] || [ $SECONDS -gt $end ]; do sleep 0.01; done
[ $(free) = $before ] && echo gone"#;

/// Whoever is killed: what a node kept open, or its death, is not forgotten.
#[test]
fn files_that_another_node_has_closed_go_whoever_is_killed() {
    if against_native() {
        return;
    }
    for dies in ["the agent", "the node's supervisor", "the node"] {
        let scratch = Scratch::new("nodes-lease-deaths");
        let (work, told) = (scratch.fresh("work"), scratch.fresh("told"));
        let go = told.join("go");
        let path = told.to_str().expect("a plain path");
        let argv = ["bash", "-c", READ_AND_REMOVED, path];
        let mut command = husk(&["--nodes", "2"], &argv);
        command.env("HUSK_IMAGES", images(&scratch));
        let running = Run::start(command, &work, scratch.path());
        until("the files are read", || running.stdout().ends_with(b"ready\n").then_some(()));
        match dies {
            "the agent" => children(running.pid(), "husk: home").into_iter().for_each(|agent| {
                process::kill(agent);
            }),
            "the node" => kill_node(&scratch, &running),
            _ => {
                let image = nodes(&scratch, &running)[1]["image"].clone();
                let row = listed(&scratch, &image).expect("node 1 is listed");
                process::kill(row["pid"].as_i64().expect("a number") as i32);
            }
        }
        fs::write(&go, "\n").expect("it is read");
        let outcome = running.wait(PATIENCE).expect("it ends");
        let seen = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(seen, "72000\nready\ngone\n", "{dies}: {}", outcome.shown());
        assert!(outcome.stderr.contains("husk: fsck: clean"), "{dies}: {}", outcome.shown());
    }
}
