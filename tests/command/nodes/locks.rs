//! Locks of files that programs on several nodes ask for: they exclude each other as on one node,
//! and go with whoever had them.

use std::time::Duration;

use husk_tests::husk::husk;
use husk_tests::{Case, Length, Run, Scratch, against_native, process};

use super::deaths::{kill_node, kill_programs};
use super::{AGENTS, children, images, until};
use crate::run;

/// How long anything here may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Before each script: `there` runs Python on node 1, and `other` does it beside this program.
const BEGIN: &str = r#"
import errno, fcntl, os, struct, subprocess, sys, time
def argv(program, *words):
    begin = "import errno, fcntl, os, struct, sys, time\n" + TRY
    return [sys.executable, "-c", begin + program, *words]
TRY = '''
def tried(what, call):
    try:
        call(); print(what, "had", flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
def lock(kind, command, start, length):
    f = struct.pack("hhqqi", kind, 0, start, length, 0)
    return struct.unpack("hhqqi", fcntl.fcntl(fd, command, f))
'''
exec(TRY)
THERE = {**os.environ, "HUSK_NODE": "1"}
def there(program, **more):
    sys.stdout.flush()
    subprocess.run(argv(program), env=THERE, **more)
def other(program):
    sys.stdout.flush()
    child = subprocess.Popen(argv(program), env=THERE, stdout=subprocess.PIPE, text=True)
    print("other:", child.stdout.readline().strip(), flush=True)
    return child
fd = os.open("file", os.O_RDWR | os.O_CREAT)
OPEN = "fd = os.open('file', os.O_RDWR)\n"
"#;

/// What is compared with Linux.
const SCRIPTS: [(&str, &str); 8] = [
    (
        "a shared table",
        r#"
there(OPEN + '''
import ctypes, signal
fcntl.lockf(fd, NOW)
CLONE, CLONE_FILES = 56, 0x400
child = ctypes.CDLL(None).syscall(CLONE, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os.execvp("true", ["true"])
os.waitpid(child, 0)
if os.fork() == 0:
    print("held", lock(fcntl.F_WRLCK, fcntl.F_GETLK, 0, 0)[0] == fcntl.F_WRLCK, flush=True)
    os._exit(0)
os.wait()
''')
"#,
    ),
    (
        "flock",
        r#"
fcntl.flock(fd, fcntl.LOCK_EX)
there(OPEN + "tried('alone', lambda: fcntl.flock(fd, NOW))")
fcntl.flock(fd, fcntl.LOCK_SH)
there(OPEN + '''
tried("shared", lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
tried("alone", lambda: fcntl.flock(fd, NOW))
''')
fcntl.flock(fd, fcntl.LOCK_UN)
there(OPEN + '''
tried("alone", lambda: fcntl.flock(fd, NOW))
two = os.dup(fd); os.close(fd); fd = two
tried("again", lambda: fcntl.flock(fd, NOW)); fcntl.lockf(fd, NOW)
''')
tried("here", lambda: fcntl.flock(fd, NOW))
"#,
    ),
    (
        "ranges",
        r#"
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 5)
there(OPEN + '''
for start, length in [(0, 5), (14, 1), (15, 9), (0, 0), (0, 6)]:
    tried((start, length), lambda: fcntl.lockf(fd, NOW, length, start))
''')
there(OPEN + '''
got = lock(fcntl.F_WRLCK, fcntl.F_GETLK, 0, 0)
print(got[0] == fcntl.F_WRLCK, got[2:4], got[4] == os.getppid())
''')
fcntl.lockf(fd, fcntl.LOCK_UN, 5, 7)
there(OPEN + '''
print(lock(fcntl.F_RDLCK, fcntl.F_GETLK, 0, 0)[:4])
tried("gap", lambda: fcntl.lockf(fd, NOW, 2, 8))
print(lock(fcntl.F_WRLCK, fcntl.F_GETLK, 0, 0)[:4])
''')
"#,
    ),
    (
        "a lock of a process goes when it closes any number of the file",
        r#"
child = other(OPEN + '''
fcntl.lockf(fd, NOW); print("has", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
os.close(os.open("file", os.O_RDONLY)); print("closed", flush=True); time.sleep(100)
''')
tried("before", lambda: fcntl.lockf(fd, NOW))
os.close(os.open("go", os.O_CREAT))
print(child.stdout.readline().strip())
tried("after", lambda: fcntl.lockf(fd, NOW))
child.kill(); child.wait()
"#,
    ),
    (
        "a lock goes when its program is killed, and whoever waits has it",
        r#"
for call in ("fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.lockf(fd, fcntl.LOCK_EX)"):
    child = other(OPEN + call + "; print('has', flush=True); time.sleep(100)")
    now = call.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB")
    tried("at once", lambda: eval(now))
    subprocess.Popen(["sh", "-c", "sleep 0.2; kill -9 %d" % child.pid])
    exec(call); print("had", child.wait())
    os.close(fd); fd = os.open("file", os.O_RDWR)
"#,
    ),
    (
        "who waits there is woken from here",
        r#"
for kind in ("flock", "lockf"):
    getattr(fcntl, kind)(fd, fcntl.LOCK_EX)
    child = other(OPEN + '''
print("waits", flush=True); fcntl.%s(fd, fcntl.LOCK_EX); print("has", flush=True)
''' % kind)
    time.sleep(0.2)
    getattr(fcntl, kind)(fd, fcntl.LOCK_UN)
    print(child.stdout.readline().strip(), child.wait())
"#,
    ),
    (
        "a lock of a process stays over exec, and is not its child's",
        r#"
child = other(OPEN + '''
fcntl.lockf(fd, NOW); os.set_inheritable(fd, True)
if os.fork() == 0:
    os.close(fd); os._exit(0)
os.wait()
os.execvp("sh", ["sh", "-c", "echo ran; sleep 100"])
''')
tried("held", lambda: fcntl.lockf(fd, NOW))
child.kill(); child.wait()
fcntl.lockf(fd, fcntl.LOCK_EX); print("free")
"#,
    ),
    (
        "a description that was handed down has one lock",
        r#"
os.set_inheritable(fd, True)
fcntl.flock(fd, fcntl.LOCK_EX)
there('''
fd = %d; tried("the same", lambda: fcntl.flock(fd, NOW)); fcntl.flock(fd, fcntl.LOCK_UN)
''' % fd, pass_fds=[fd])
there(OPEN + "tried('free', lambda: fcntl.flock(fd, NOW))")
F_OFD_SETLK = 37
fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 10, 0))
there(OPEN + '''
of = lambda start: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, 10, 0))
tried("in the way", lambda: of(5)); tried("beside", lambda: of(10))
''')
"#,
    ),
];

#[test]
fn locks_of_programs_on_two_nodes_are_in_each_others_way_as_on_linux() {
    for (name, script) in SCRIPTS {
        println!("{name}");
        let script = format!("{BEGIN}{script}");
        Case::new("nodes-locks", Length::Once, &["python3", "-c", &script])
            .options(&["--nodes", "2"])
            .check();
    }
}

/// Adds one so many times, under a lock.
const COUNTER: &str = "
import fcntl, os, sys
fd = os.open('count', os.O_RDWR)
take = fcntl.flock if sys.argv[1] == 'flock' else fcntl.lockf
for n in range(200):
    take(fd, fcntl.LOCK_EX)
    os.pwrite(fd, b'%08d' % (int(os.pread(fd, 8, 0)) + 1), 0)
    take(fd, fcntl.LOCK_UN)
";

const COUNTERS: &str = "
echo 00000000 > count
for node in 0 1 2 0 1 2; do HUSK_NODE=$node python3 -c \"$COUNTER\" $KIND & all=\"$all $!\"; done
for one in $all; do wait $one || exit 1; done; cat count";

#[test]
fn no_increment_under_a_lock_is_lost_over_nodes_while_agents_are_killed() {
    if against_native() {
        return;
    }
    for kind in ["flock", "lockf"] {
        let scratch = Scratch::new("nodes-counter");
        let work = scratch.fresh("work");
        let mut command = husk(&["--nodes", "3"], &["bash", "-c", COUNTERS]);
        command.env("COUNTER", COUNTER).env("KIND", kind);
        let mut running = Run::start(command, &work, scratch.path());
        let mut killed = 0;
        while killed < AGENTS / 2 && !running.ended() {
            for agent in children(running.pid(), "husk: home") {
                killed += u32::from(process::kill(agent));
            }
            std::thread::sleep(Duration::from_millis(70));
        }
        let outcome = running.wait(PATIENCE * 2).expect("it ends");
        assert!(outcome.status.success() && killed > 0, "{kind}, {killed}: {}", outcome.shown());
        let seen = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(seen, "00001200\n", "{kind}: {}", outcome.shown());
    }
}

const HOLDER: &str = "
import fcntl, os, time
one, two = os.open('one', os.O_RDWR | os.O_CREAT), os.open('two', os.O_RDWR | os.O_CREAT)
fcntl.flock(one, fcntl.LOCK_EX); fcntl.lockf(two, fcntl.LOCK_EX)
print('has', flush=True); time.sleep(1000)
";

const WAITER: &str = "
import fcntl, os
one, two = os.open('one', os.O_RDWR), os.open('two', os.O_RDWR)
fcntl.flock(one, fcntl.LOCK_EX); fcntl.lockf(two, fcntl.LOCK_EX); print('had')
";

#[test]
fn locks_go_with_their_program_or_its_whole_node_also_where_another_agent_serves() {
    if against_native() {
        return;
    }
    for dies in ["a program", "a node"] {
        let scratch = Scratch::new("nodes-lock-death");
        let work = scratch.fresh("work");
        let script = "HUSK_NODE=1 python3 -c \"$HOLDER\"; exec python3 -c \"$WAITER\"";
        let mut command = husk(&["--nodes", "2"], &["bash", "-c", script]);
        command.env("HUSK_IMAGES", images(&scratch));
        command.env("HOLDER", HOLDER).env("WAITER", WAITER);
        let running = Run::start(command, &work, scratch.path());
        until("the locks", || running.stdout().starts_with(b"has").then_some(()));
        for agent in children(running.pid(), "husk: home") {
            process::kill(agent);
        }
        if dies == "a node" {
            kill_node(&scratch, &running);
        } else {
            kill_programs(&running);
        }
        let outcome = running.wait(PATIENCE).expect("who waits has the locks");
        assert!(outcome.status.success(), "{dies}: {}", outcome.shown());
        let seen = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(seen, "has\nhad\n", "{dies}: {}", outcome.shown());
        assert!(outcome.stderr.contains("husk: fsck: clean"), "{dies}: {}", outcome.shown());
    }
}

#[test]
fn a_file_of_the_host_that_another_node_only_reads_is_locked_as_one_of_the_image() {
    if against_native() {
        return;
    }
    let script = format!(
        "{BEGIN}{}",
        r#"
READ = "fd = os.open('old', os.O_RDONLY)\n"
child = other(READ + '''
tried("flock", lambda: fcntl.flock(fd, NOW)); sys.stdin.read()
''')
fd = os.open("old", os.O_RDONLY)
tried("here", lambda: fcntl.flock(fd, NOW))
there(READ + "tried('there', lambda: fcntl.flock(fd, NOW)); print(os.read(fd, 9))")
child.kill(); child.wait()
tried("here", lambda: fcntl.flock(fd, fcntl.LOCK_EX))
there(READ + '''
tried("there", lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
print(fcntl.fcntl(fd, 37, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 1, 0))[:2])
''')
"#
    );
    let script =
        script.replace("stdout=subprocess.PIPE, text", "stdin=subprocess.PIPE, stdout=-1, text");
    let scratch = Scratch::new("nodes-lock-read");
    let work = scratch.fresh("work");
    std::fs::write(work.join("old"), "of the host").expect("a file");
    let outcome = run(&scratch, &work, husk(&["--nodes", "2"], &["python3", "-c", &script]));
    let expected = "other: flock had\nhere EAGAIN\nthere EAGAIN\nb'of the ho'\nhere had\n\
        there EAGAIN\nb'\\x00\\x00'\n";
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: fsck: clean"), "{}", outcome.shown());
}

#[test]
fn sqlite_databases_are_written_from_all_nodes() {
    let script = "
sqlite3 d.db 'create table t(b text);' || exit 1
for i in 1 2 3 4; do
  (for j in 1 2 3 4 5 6 7 8; do
     HUSK_NODE=$((i % 3)) sqlite3 -cmd '.timeout 30000' d.db \\
       \"insert into t values('$i-$j');\" || echo failed
   done) &
done; wait
sqlite3 d.db 'select count(*), count(distinct b) from t; pragma integrity_check;'
sqlite3 d.db 'select b from t order by b'; rm d.db";
    if !against_native() && std::process::Command::new("sqlite3").arg("-version").output().is_err()
    {
        println!("no sqlite3 here");
        return;
    }
    Case::new("nodes-sqlite", Length::Once, &["bash", "-c", script])
        .options(&["--nodes", "3"])
        .check();
}
