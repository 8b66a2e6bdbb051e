//! Core dumps: a program that a signal ends leaves one in its directory in the image, as on Linux,
//! and nothing on the host before a write-back.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::toolchain::build_c_with;
use husk_tests::{Case, Length, Outcome, Run, Scratch, against_native, husk};
use rustix::process::{Resource, getrlimit};

/// No run takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn finished(scratch: &Scratch, work: &Path, command: Command) -> Outcome {
    Run::start(command, work, scratch.path()).wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}

/// Whether the host writes cores into working directories, and lets us have large ones.
fn have_cores() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    let most = getrlimit(Resource::Core).maximum;
    let plain = !pattern.starts_with(['|', '@']) && !pattern.contains('/');
    plain && most.is_none_or(|bytes| bytes >= 1 << 31)
}

/// `command` as one who has no limit of cores starts it.
fn without_limit(command: &Command) -> Command {
    let mut outer = Command::new("bash");
    outer.args(["-c", "ulimit -S -c unlimited; exec \"$@\"", "bash"]);
    outer.arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}

/// The program `crash` in a directory.
fn crash(work: &Path) {
    let source = include_str!("../sources/processes/crash.c");
    build_c_with(source, &work.join("crash"), &["-g", "-O0"]);
}

/// How each program ends, what is left, and what a debugger finds in it.
const LOOK: &str = "
import glob, os, re, resource, subprocess
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
def end(how):
    pid = os.fork()
    if pid == 0: os.execv('./crash', ['./crash', how])
    _, status = os.waitpid(pid, 0)
    found = glob.glob('core*')
    print(how, os.WTERMSIG(status), os.WCOREDUMP(status), len(found))
    return found
def debug(core, *orders):
    orders = [word for order in orders for word in ['-ex', order]]
    run = ['gdb', '-nx', '-q', '-batch', *orders, './crash', core]
    said = subprocess.run(run, capture_output=True, text=True)
    return said.stdout
for how in ['abort', 'segv', 'fpe', 'quit', 'trap', 'bus', 'ill']:
    for core in end(how):
        print(oct(os.stat(core).st_mode), os.stat(core).st_size > 1 << 30)
        print(os.stat(core).st_blocks * 512 < 40 << 20)
        said = debug(core, 'thread apply all bt')
        # Linux writes the other threads in any order.
        frame = re.compile(r'^#\\d+ +(?:0x[0-9a-f]+ in )?(\\w+) ', re.M)
        threads = [frame.findall(part) for part in re.split(r'(?m)^Thread \\d', said)[1:]]
        # It may be on its way to its sleep.
        print(sorted(one[one.index('sleeper') if 'sleeper' in one else 0:] for one in threads))
        print(re.findall(r'(?m)^(?:Core|Program) .*', said))
        said = debug(core, 'p kept', 'p $_siginfo.si_signo', 'p mapped[5]',
            'thread apply all -q p local')
        print(sorted(re.findall(r'(?m)^\\$\\d+ = (?:0x\\w+ )?(.*)', said)))
        os.unlink(core)
";

#[test]
fn a_debugger_finds_in_a_core_of_the_image_what_it_finds_in_one_of_linux() {
    if have_cores() {
        Case::new("dumps", Length::Once, &["python3", "-c", LOOK]).input(crash).check();
    }
}

/// Limits are the program's own, for its children, too.
const LIMITS: &str = "
import glob, os, resource, subprocess, sys
CORE = resource.RLIMIT_CORE
most = resource.getrlimit(CORE)[1]
for soft in [0, 4096, 100 << 10, 1 << 20, most]:
    resource.setrlimit(CORE, (soft, most))
    print(resource.getrlimit(CORE) == (soft, most), resource.prlimit(os.getpid(), CORE)[0] == soft)
    inner = 'import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])'
    print(subprocess.run([sys.executable, '-c', inner], capture_output=True).stdout)
    pid = os.fork()
    if pid == 0: os.execv('./crash', ['./crash', 'abort'])
    _, status = os.waitpid(pid, 0)
    for core in glob.glob('core*'):
        # Something, and hardly more than what is allowed; holes do not count.
        facts = os.stat(core)
        print(soft, open(core, 'rb').read(4), facts.st_blocks * 512 <= 2 * soft or soft == most)
        if soft == most: print(facts.st_size > 1 << 30)
        os.unlink(core)
try: resource.setrlimit(CORE, (2, 1))
except ValueError as error: print(error)
resource.setrlimit(CORE, (1000, 2000))
print(resource.getrlimit(CORE))
pid = os.fork()
if pid == 0: os.execv('./crash', ['./crash', 'abort'])
_, status = os.waitpid(pid, 0)
print(os.WTERMSIG(status), os.WCOREDUMP(status), glob.glob('core*'))
";

#[test]
fn a_core_is_as_large_as_its_limit_says_and_there_is_none_without() {
    if have_cores() {
        Case::new("dumps-limits", Length::Once, &["python3", "-c", LIMITS]).input(crash).check();
    }
}

/// A program may say that nobody is to read it; an old core is replaced; who catches a signal
/// leaves none.
const OTHERS: &str = "
import glob, os, resource
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
def end(how):
    pid = os.fork()
    if pid == 0: os.execv('./crash', ['./crash', how])
    _, status = os.waitpid(pid, 0)
    cores = glob.glob('core*')
    print(how, status & 127, os.WCOREDUMP(status), status >> 8)
    print([open(core, 'rb').read(4) for core in cores])
end('hidden')
end('caught')
end('abort')
for core in glob.glob('core*'):
    os.unlink(core)
    os.symlink('elsewhere', core)
end('abort')
print(os.path.lexists('elsewhere'), [os.path.islink(c) for c in glob.glob('core*')])
for core in glob.glob('core*'): os.unlink(core)
end('forked')
end('usr1')
for core in glob.glob('core*'): os.unlink(core)
os.mkdir('d'); os.chdir('d'); os.symlink('../crash', 'crash')
end('abort')
for core in glob.glob('core*'): os.unlink(core)
";

#[test]
fn what_leaves_no_core_on_linux_leaves_none_in_an_image() {
    if have_cores() {
        Case::new("dumps-others", Length::Once, &["python3", "-c", OTHERS]).input(crash).check();
    }
}

#[test]
fn a_program_that_crashes_leaves_no_core_on_the_host() {
    if against_native() || !have_cores() {
        return;
    }
    let scratch = Scratch::new("crash");
    let work = scratch.fresh("work");
    let script = "ulimit -c; sh -c 'kill -ABRT $$'; echo $?; ls | wc -l";
    let outcome =
        finished(&scratch, &work, without_limit(&husk(&["--discard"], &["bash", "-c", script])));
    assert_eq!(outcome.stdout, b"unlimited\n134\n1\n", "{}", outcome.shown());
    let left = fs::read_dir(&work).expect("a directory").count();
    assert_eq!(left, 0, "{}", outcome.shown());
}

#[test]
fn a_core_that_finds_no_room_is_none_and_nobody_is_told_of_one() {
    if against_native() || !have_cores() {
        return;
    }
    let scratch = Scratch::new("crash-full");
    let work = scratch.fresh("work");
    let script = "python3 -c 'import os; x = os.urandom(200 << 20); os.abort()'; echo $?; ls";
    let options = ["--discard", "--memory", "64M"];
    let command = without_limit(&husk(&options, &["bash", "-c", script]));
    let outcome = finished(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"134\n", "{}", outcome.shown());
    assert!(!outcome.stderr.contains("core dumped"), "{}", outcome.shown());
}

/// What lies in the image's memory is not in a core: a shell's has some hundred kilobytes.
#[test]
fn memory_of_the_image_is_kept_out_of_core_dumps() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("dumped");
    let work = scratch.fresh("work");
    let script = "
import os, re, subprocess
os.stat('/proc/self')
with open('made', 'wb') as file: file.write(b'x' * 5000)
with open('made', 'rb') as file: file.read()
# A process is not shown these rows of its own.
text = subprocess.run(['cat', f'/proc/{os.getpid()}/smaps'], capture_output=True, text=True).stdout
kept = re.split(r'\\n(?=[0-9a-f]+-[0-9a-f]+ )', text)
image = [part for part in kept if ' rw-s ' in part and 'husk-region' in part]
print(len(image) > 0, all(' dd' in part for part in image))
";
    let outcome = finished(&scratch, &work, husk(&["--discard"], &["python3", "-c", script]));
    assert_eq!(outcome.stdout, b"True True\n", "{}", outcome.shown());
}
