//! Locks of files of the image that programs on another host ask for.

use std::fs;

use husk_tests::Outcome;

use super::host::Host;
use super::programs;
use crate::run;

/// `there` starts Python on the other host, and reads a line of what it says.
const BEGIN: &str = r#"
import errno, fcntl, os, subprocess, sys, time
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
TRIED = '''
import errno, fcntl, os, signal, sys, time
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
def tried(what, call):
    try:
        call(); print(what, "had", flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
def until(name):
    while not os.path.exists(name): time.sleep(0.02)
'''
exec(TRIED)
def there(program):
    sys.stdout.flush()
    env = {**os.environ, "HUSK_NODE": "1"}
    child = subprocess.Popen([sys.executable, "-c", TRIED + program], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, env=env)
    child.says = lambda: print("there:", child.stdout.readline().strip(), flush=True)
    return child
def ends(child):
    rest = child.stdout.read(); print("there ends:", rest, child.wait(), flush=True)
fd = os.open("file", os.O_RDWR | os.O_CREAT)
OPEN = "fd = os.open('file', os.O_RDWR)\n"
"#;

const SCRIPT: &str = r#"
fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX, 10, 5)
ends(there(OPEN + '''
tried("flock", lambda: fcntl.flock(fd, NOW)); tried("range", lambda: fcntl.lockf(fd, NOW, 9, 6))
tried("other range", lambda: fcntl.lockf(fd, NOW, 5, 0))
'''))
fcntl.flock(fd, fcntl.LOCK_UN); fcntl.lockf(fd, fcntl.LOCK_UN)

child = there(OPEN + '''
fcntl.flock(fd, NOW); fcntl.lockf(fd, NOW); print("has", flush=True); until("go")
''')
child.says()
tried("flock", lambda: fcntl.flock(fd, NOW)); tried("range", lambda: fcntl.lockf(fd, NOW))
open("go", "w").close(); fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX)
ends(child)

child = there(OPEN + '''
print("waits", flush=True); fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX)
print(os.path.exists("released"), flush=True)
''')
child.says(); time.sleep(0.3)
open("released", "w").close(); fcntl.lockf(fd, fcntl.LOCK_UN); fcntl.flock(fd, fcntl.LOCK_UN)
ends(child)

child = there(OPEN + '''
fcntl.lockf(fd, NOW); two = os.open("file", os.O_RDONLY); os.close(two)
print("closed", flush=True); until("go on")
''')
child.says(); tried("range", lambda: fcntl.lockf(fd, NOW)); fcntl.lockf(fd, fcntl.LOCK_UN)
open("go on", "w").close(); ends(child)

child = there(OPEN + '''
fcntl.lockf(fd, NOW); os.set_inheritable(fd, True)
os.execvp("perl", ["perl", "-e", '$| = 1; print "exec\\\\n"; sleep 0.1 until -e "go further"'])
''')
child.says(); tried("range", lambda: fcntl.lockf(fd, NOW)); open("go further", "w").close()
ends(child); fcntl.lockf(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_UN)

child = there(OPEN + '''
fcntl.flock(fd, NOW); fcntl.lockf(fd, NOW); print("has", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
''')
child.says(); fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX); ends(child)

child = there('''
fd = os.open("old", os.O_RDONLY); tried("old", lambda: fcntl.flock(fd, NOW))
until("end"); print(os.read(fd, 9))
''')
child.says(); old = os.open("old", os.O_RDONLY)
tried("old", lambda: fcntl.flock(old, NOW)); open("end", "w").close()
ends(child); fcntl.flock(old, fcntl.LOCK_EX)
"#;

#[test]
fn locks_of_programs_on_two_hosts_are_in_each_others_way_as_on_one() {
    let Some(host) = Host::new("hosts-locks") else { return };
    let script = format!("{BEGIN}{SCRIPT}");
    let [here, there] = [&[][..], &["--on", "h"]].map(|options: &[&str]| {
        let work = host.scratch.fresh("work");
        fs::write(work.join("old"), "of the host").expect("a file");
        run(&host.scratch, &work, host.command(options, &["python3", "-c", &script]))
    });
    let said = |outcome: &Outcome| String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(said(&here), said(&there), "{}", there.shown());
    assert!(said(&there).contains("there: has\nflock EAGAIN\nrange EAGAIN\n"), "{}", there.shown());
    assert_eq!(programs(&there), 7, "{}", there.shown());
    host.nothing_is_left();
}

#[test]
fn the_locks_of_a_host_go_when_it_is_lost() {
    let Some(host) = Host::new("hosts-lock-lost") else { return };
    let work = host.scratch.fresh("work");
    let script = format!(
        "{BEGIN}{}",
        r#"
child = there(OPEN + '''
fcntl.flock(fd, NOW); fcntl.lockf(fd, NOW); print("has", flush=True); until("never")
''')
child.says(); open("begun", "w").close()
fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX); ends(child)
"#
    );
    let command = host.command(&["--on", "h"], &["python3", "-c", &script]);
    let running = husk_tests::Run::start(command, &work, host.scratch.path());
    super::host::until("the locks", || running.stdout().starts_with(b"there: has"));
    assert!(husk_tests::process::kill(host.guest().expect("a guest")));
    let outcome = running.wait(crate::LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(outcome.stdout, b"there: has\nthere ends:  -9\n", "{}", outcome.shown());
    host.nothing_is_left();
}
