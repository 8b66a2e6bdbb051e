//! No room for names, none for addresses: an error of the call, and a way out.

use husk_tests::{Scratch, Side, against_native, husk};

use crate::{run, said};

#[test]
fn an_image_full_of_names_can_still_run_rm() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("names");
    let work = scratch.fresh("work");
    let script = "
mkdir d
python3 -c '
import os
try:
    for n in range(10**6): os.symlink(\"t\" * 1000, \"d/%0200d\" % n)
except OSError as error:
    print(error.errno)
'
for n in 1 2 3 4 5 6 7 8; do (exit 0) || exit 1; done
rm -r d && mkdir d && rmdir d && echo removed";
    let outcome = run(&scratch, &work, husk(&["--memory", "32M"], &["sh", "-c", script]));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(outcome.stdout, b"28\nremoved\n", "{}", outcome.shown());
}

#[test]
fn who_met_a_full_image_is_told_however_short_the_run() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("told");
    let work = scratch.fresh("work");
    let names = "
import os
try:
    for n in range(10**6): os.symlink('t', str(n))
except OSError as error:
    print(error.errno)";
    let full = ["--memory", "32M", "--discard"];
    for _ in 0..3 {
        let outcome = run(&scratch, &work, husk(&full, &["python3", "-c", names]));
        assert_eq!(outcome.stdout, b"28\n", "{}", outcome.shown());
        let lines = said(&outcome);
        let right = lines.len() == 1 && lines[0].contains("no room for more files");
        assert!(right, "{}", outcome.shown());
    }
}

#[test]
fn a_limit_of_address_space_is_the_programs_own() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("space");
    // Its files are there whatever a program takes up to its limit, also one that follows another.
    let greedy = "
import mmap, os
held = []
try:
    while True: held.append(mmap.mmap(-1, 16 << 20))
except OSError: pass
file = os.open('late', os.O_CREAT | os.O_WRONLY)
print(os.write(file, b'late'), len(held) < 25)";
    let script = "ulimit -v 300000; echo text > made; cat made; ulimit -v
        python3 -c 'bytearray(400 << 20)' 2>&1 | tail -n 1; python3 -c \"$0\"";
    let argv = ["bash", "-c", script, greedy];
    for command in [Side::Native.command(&[], &argv), husk(&["--memory", "512M"], &argv)] {
        let work = scratch.fresh("work");
        let outcome = run(&scratch, &work, command);
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert_eq!(said, "text\n300000\nMemoryError\n4 True\n", "{}", outcome.shown());
    }
}

#[test]
fn a_full_image_loses_no_byte_of_a_pipe() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("spliced");
    let work = scratch.fresh("work");
    let script = "
import errno, os
content = bytes(range(251)) * 100
filler, target = [os.open(name, os.O_RDWR | os.O_CREAT) for name in ['filler', 'target']]
try:
    while os.write(filler, b'x' * 65536): pass
except OSError as error:
    print(errno.errorcode[error.errno])
os.ftruncate(filler, os.fstat(filler).st_size // 4096 * 4096 - 8192)
r, w = os.pipe()
os.write(w, content)
moved = 0
try:
    while True: moved += os.splice(r, target, 1 << 20)
except OSError as error:
    print(errno.errorcode[error.errno])
rest = os.read(r, 1 << 20)
print(0 < moved < len(content), os.pread(target, 1 << 20, 0) + rest == content)
os.ftruncate(filler, 0)
os.write(w, rest)
print(os.splice(r, target, 1 << 20) == len(rest), os.pread(target, 1 << 20, 0) == content)
os.ftruncate(target, 0)
";
    let command = husk(&["--memory", "32M", "--discard"], &["python3", "-c", script]);
    let outcome = run(&scratch, &work, command);
    let expected = b"ENOSPC\nENOSPC\nTrue True\nTrue True\n";
    assert_eq!(outcome.stdout, expected, "{}", outcome.shown());
}

/// A mapping takes no blocks for what nobody touches, be the file longer than the image; a touch
/// without room is SIGBUS, and the blocks go with the file, as soon as the killed child's mapping
/// has been let go of.
#[test]
fn a_mapping_longer_than_the_image_is_a_signal_only_where_there_is_no_room() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("touches");
    let work = scratch.fresh("work");
    let script = "
import mmap, os, time
fd = os.open('long', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 30)
free = os.statvfs('.').f_bfree
views = [mmap.mmap(fd, 1 << 30, prot=prot) for prot in [mmap.PROT_READ, 3]]
print(free - os.statvfs('.').f_bfree, os.fstat(fd).st_blocks)
child = os.fork()
if child == 0:
    for at in range(0, 1 << 30, 4096): views[1][at] = 1
    os._exit(0)
print(os.waitpid(child, 0)[1], os.statvfs('.').f_bfree < 600, views[0][0])
for view in views: view.close()
os.ftruncate(fd, 0)
until = time.monotonic() + 5
while abs(free - os.statvfs('.').f_bfree) >= 100 and time.monotonic() < until: time.sleep(0.01)
print(abs(free - os.statvfs('.').f_bfree) < 100)
";
    let outcome = run(&scratch, &work, husk(&["--memory", "32M"], &["python3", "-c", script]));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(outcome.stdout, b"0 0\n7 True 1\nTrue\n", "{}", outcome.shown());
}
