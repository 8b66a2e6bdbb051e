//! What a tree holds stays in it: what the host had there is changed in the image as on Linux, and
//! on the host when the image ends. Each case is run natively and in an image, on the same tree.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Outcome, Run, Scratch, against_native, husk};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

/// No run takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn finished(scratch: &Scratch, work: &Path, command: Command) -> Outcome {
    Run::start(command, work, scratch.path()).wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}

fn fifo(work: &Path, name: &str) {
    mknodat(CWD, work.join(name), FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("a FIFO");
}

/// A FIFO, a socket that nobody listens at, and the device `null` where it can be made.
fn specials(work: &Path) {
    fifo(work, "fifo");
    drop(UnixListener::bind(work.join("socket")).expect("a socket"));
    fs::set_permissions(work.join("socket"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let mode = Mode::from_raw_mode(0o644);
    let made = mknodat(CWD, work.join("null"), FileType::CharacterDevice, mode, makedev(1, 3));
    if made.is_err() {
        fifo(work, "null");
    }
}

const SPECIALS: &str = "
import os, stat
names = ['fifo', 'socket', 'null']
def show(name):
    s = os.lstat(name)
    print(name, oct(s.st_mode), s.st_nlink, s.st_rdev, s.st_size, s.st_mtime_ns < 10**9)
for name in names:
    show(name)
    os.chmod(name, 0o600)
    os.utime(name, ns=(5, 7))
    try: os.setxattr(name, 'user.a', b'b')
    except OSError as error: print(error.errno)
    show(name)
fd = os.open('fifo', os.O_RDWR)
os.fchmod(fd, 0o640)
print(oct(os.fstat(fd).st_mode), os.write(fd, b'through'), os.read(fd, 99))
os.utime(fd, ns=(5, 7))
os.link('socket', 'second')
os.rename('fifo', 'moved')
os.unlink('null')
os.mkdir('d')
os.rename('second', 'd/second')
for name in ['moved', 'socket', 'd/second']: show(name)
print(sorted((e.name, e.is_file()) for e in os.scandir('.')))
try: open('socket')
except OSError as error: print(error.errno)
try: os.truncate('moved', 0)
except OSError as error: print(error.errno)
";

#[test]
fn the_hosts_fifos_sockets_and_devices_are_changed_as_on_linux() {
    let argv = ["python3", "-c", SPECIALS];
    Case::new("specials", Length::Once, &argv).input(specials).check();
}

/// The host sees nothing of it before the write-back, so that `--discard` leaves all as it was.
#[test]
fn discard_leaves_the_hosts_fifos_sockets_and_devices_as_they_were() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("specials-discard");
    let work = scratch.fresh("work");
    specials(&work);
    let look = || {
        let found = fs::read_dir(&work).expect("a directory").map(|one| {
            let one = one.expect("it is there");
            let found = one.metadata().expect("it is there");
            // Bytes that pass through a FIFO change its time: it is the host's.
            let changed = found.modified().ok().filter(|_| one.file_name() != "fifo");
            (one.file_name(), found.permissions().mode(), changed)
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    };
    let before = look();
    let outcome = finished(&scratch, &work, husk(&["--discard"], &["python3", "-c", SPECIALS]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(look(), before, "{}", outcome.shown());
}

/// Inside and outside meet at the host's FIFO and at the host's socket.
#[test]
fn a_socket_of_the_host_is_reached_under_any_name_that_the_image_gives_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("specials-meet");
    let work = scratch.fresh("work");
    let listener = UnixListener::bind(work.join("socket")).expect("a socket");
    let script = "
import os, socket
os.rename('socket', 'other')
os.symlink('other', 'link')
for name in ['other', 'link', os.path.abspath('other')]:
    one = socket.socket(socket.AF_UNIX)
    one.connect(name)
    one.send(b'met')
";
    let command = husk(&["--discard"], &["python3", "-c", script]);
    let outcome = finished(&scratch, &work, command);
    assert!(outcome.status.success(), "{}", outcome.shown());
    for _ in 0..3 {
        let (mut one, _) = listener.accept().expect("a connection");
        let mut text = String::new();
        one.read_to_string(&mut text).expect("bytes");
        assert_eq!(text, "met");
    }
}

#[test]
fn a_second_name_counts_whatever_was_there_before() {
    let script = "
import os
os.link('link', 'link2', follow_symlinks=False)
os.link('fifo', 'fifo2')
os.link('file', 'file2')
for name in ['link', 'fifo', 'file']: print(os.lstat(name).st_nlink)
os.symlink('target', 'made'); os.link('made', 'made2', follow_symlinks=False)
os.mkfifo('pipe'); os.link('pipe', 'pipe2')
print(os.lstat('made').st_nlink, os.lstat('pipe').st_nlink)
os.mkdir('d'); os.rename('link2', 'd/link2'); os.unlink('fifo')
print(os.lstat('fifo2').st_nlink)
";
    let input = |work: &Path| {
        symlink("target", work.join("link")).expect("a link");
        fifo(work, "fifo");
        fs::write(work.join("file"), "text\n").expect("a file");
    };
    Case::new("second", Length::Once, &["python3", "-c", script]).input(input).check();
}

/// `CAP_CHOWN`, permitted, as `setcap cap_chown+p` writes it.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Capabilities and set-ID bits of a program are for the bytes and the owner that it had. Only root
/// may make such files.
#[test]
fn what_a_file_of_the_host_lends_goes_with_its_bytes_and_its_owner_as_on_linux() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let script = "
import os, mmap
def lent(name):
    try: kept = len(os.getxattr(name, 'security.capability'))
    except OSError as error: kept = error.errno
    return oct(os.stat(name).st_mode), kept
def change(name, how):
    before = lent(name)
    how(name)
    print(name, before, lent(name), lent(name + '.made'))
def opened(flags, act):
    def how(name):
        for one in [name, name + '.made']:
            fd = os.open(one, flags)
            act(fd)
            os.close(fd)
    return how
def both(act):
    def how(name):
        for one in [name, name + '.made']: act(one)
    return how
def store(fd):
    with mmap.mmap(fd, 4096) as area: area[0:1] = b'y'
    os.utime(fd)
names = sorted(os.listdir('.'))
for name in names:
    with open(name + '.made', 'wb') as file: file.write(b'x' * 5000)
    os.chmod(name + '.made', os.stat(name).st_mode & 0o7777)
    os.setxattr(name + '.made', 'security.capability', os.getxattr(name, 'security.capability'))
change('a', opened(os.O_WRONLY, lambda fd: os.write(fd, b'y')))
change('b', both(lambda name: os.truncate(name, 1)))
change('c', opened(os.O_WRONLY | os.O_TRUNC, lambda fd: None))
change('d', both(lambda name: os.chown(name, 1, 1)))
change('e', both(lambda name: os.chown(name, -1, -1)))
change('f', opened(os.O_RDWR, lambda fd: os.fsync(fd)))
change('g', both(lambda name: os.chmod(name, 0o755)))
change('h', opened(os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 9000)))
change('i', both(lambda name: os.utime(name, ns=(1, 2))))
change('j', opened(os.O_RDWR, lambda fd: os.ftruncate(fd, 9000)))
change('k', opened(os.O_RDWR, store))
change('l', both(lambda name: os.rename(name, name + '2') or os.rename(name + '2', name)))
";
    let input = |work: &Path| {
        for name in 'a'..='l' {
            let path = work.join(name.to_string());
            fs::write(&path, [b'x'; 5000]).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("a mode");
            let set = setxattr(&path, "security.capability", &CAPABILITY, XattrFlags::empty());
            set.expect("a capability");
        }
    };
    Case::new("lends", Length::Once, &["python3", "-c", script]).input(input).check();
}

/// `a`, `d/b`, `e/f/c`, `x` and `y` are one file.
fn links(work: &Path) {
    fs::create_dir_all(work.join("e/f")).expect("directories");
    fs::create_dir(work.join("d")).expect("a directory");
    fs::write(work.join("a"), "first\n").expect("a file");
    for name in ["d/b", "e/f/c", "x", "y"] {
        fs::hard_link(work.join("a"), work.join(name)).expect("a link");
    }
}

/// Directory `e` is not looked into by the script.
#[track_caller]
fn linked_as_on_linux(name: &'static str, script: &str) {
    let show = "
import os
def show(name):
    s = os.stat(name)
    print(name, s.st_nlink, s.st_size, oct(s.st_mode), open(name).read())
def same(one, two): print(os.path.samefile(one, two))
";
    let script = [show, script].concat();
    Case::new(name, Length::Once, &["python3", "-c", &script]).input(links).check();
}

#[test]
fn what_is_written_by_one_name_of_a_host_file_is_read_by_all() {
    linked_as_on_linux(
        "links-written",
        "
show('a')
with open('a', 'a') as file: file.write('more\\n')
show('d/b'); same('a', 'd/b')
os.chmod('x', 0o600)
os.utime('y', ns=(5, 7))
show('a'); print(os.stat('d/b').st_mtime_ns)
",
    );
}

#[test]
fn names_of_a_host_file_come_and_go_and_the_others_stay() {
    linked_as_on_linux(
        "links-named",
        "
os.unlink('a')
show('x')
os.rename('x', 'z')
os.link('z', 'd/more')
with open('d/b', 'w') as file: file.write('else\\n')
show('z'); show('y')
os.rename('y', 'd/b')
show('d/b'); same('z', 'd/b')
",
    );
}

#[test]
fn who_replaces_one_name_of_a_host_file_leaves_the_others() {
    linked_as_on_linux(
        "links-replaced",
        "
with open('new', 'w') as file: file.write('new\\n')
os.rename('new', 'a')
show('a'); show('d/b')
os.rename('d', 'moved')
os.truncate('moved/b', 2)
show('x')
os.unlink('x')
show('moved/b')
",
    );
}

#[test]
fn attributes_that_one_name_of_a_host_file_gets_are_those_of_all() {
    linked_as_on_linux("links-touched", "os.chmod('a', 0o640)\nshow('d/b')\nos.unlink('a')\n");
}

/// What is outside of the overlay is left alone, and a line says so.
#[test]
fn a_hard_link_outside_of_the_overlay_keeps_the_old_bytes_and_a_line_says_so() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("links-outside");
    let work = scratch.fresh("work");
    links(&work);
    let outside = scratch.path().join("outside");
    fs::hard_link(work.join("a"), &outside).expect("a link");
    let outcome = finished(&scratch, &work, husk(&[], &["sh", "-c", "echo more >> d/b"]));
    let line = ": 1 other hard link outside of the overlay keeps the old content";
    let told = outcome.stderr.lines().filter(|one| one.contains("husk: note:")).count();
    assert!(outcome.status.success() && outcome.stderr.contains(line), "{}", outcome.shown());
    assert_eq!(told, 1, "{}", outcome.shown());
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "first\n");
    for name in ["a", "d/b", "e/f/c", "x", "y"] {
        let text = fs::read_to_string(work.join(name)).expect("a file");
        assert_eq!(text, "first\nmore\n", "{name}: {}", outcome.shown());
    }
}

/// As root the program makes what is root's and becomes an ordinary user; else there is nothing of
/// others to try.
#[test]
fn in_a_user_namespace_a_program_has_rights_over_what_its_own_ids_own() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let scratch = Scratch::new("namespace-built");
    let program = scratch.path().join("namespace");
    build_c(include_str!("../sources/files/namespace.c"), &program);
    let program = program.to_str().expect("its name is text");
    Case::new("namespace", Length::Once, &[program]).check();
}
