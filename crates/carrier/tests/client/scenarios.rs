//! What is asked of both systems. Whatever Linux answers is the expectation.

use super::numbers::*;
use super::script::*;
use husk_abi::nr;

/// A scenario and its name.
pub type Scenario = (&'static str, fn(&mut Script));

pub const ALL: &[Scenario] = &[
    ("opening", opening),
    ("opening odd ends", opening_odd_ends),
    ("reading and writing", reading_and_writing),
    ("vectors", vectors),
    ("holes", holes),
    ("appending", appending),
    ("directories", directories),
    ("removing", removing),
    ("renaming", renaming),
    ("renaming directories", renaming_directories),
    ("exchanging", exchanging),
    ("linking", linking),
    ("symbolic links", symbolic_links),
    ("link circles", link_circles),
    ("long names", long_names),
    ("odd paths", odd_paths),
    ("working directory", working_directory),
    ("directories met before", directories_met_before),
    ("directory descriptors", directory_descriptors),
    ("magic links", magic_links),
    ("duplicates", duplicates),
    ("descriptor flags", descriptor_flags),
    ("ranges of descriptors", ranges),
    ("times and modes", times_and_modes),
    ("record locks", record_locks),
    ("flock", flocks),
    ("polling", polling),
    ("copying inside", copying),
    ("bad pointers", bad_pointers),
    ("unlinked but open", unlinked),
    ("nameless files", nameless),
    ("other calls", other_calls),
    ("leaving the tree", leaving),
    ("mapping", mapping),
];

fn opening(s: &mut Script) {
    s.file("a", "hello");
    s.mkdir("d");
    for flags in [RD, WR, RW, 3] {
        for more in [0, CREAT, CREAT | EXCL, DIRECTORY, TRUNC, PATH, NOFOLLOW, CREAT | DIRECTORY] {
            for path in ["a", "d", "none", "a/", "d/", "none/", "a/x", "none/x", "d/.", "d/.."] {
                let fd = s.open(path, flags | more, 0o640);
                if fd >= 0 {
                    s.fstat(fd);
                    s.fd(nr::fcntl, fd, 3, 0);
                    s.close(fd);
                }
                let new = if path.ends_with('/') { "gone" } else { path };
                if new == "none" {
                    s.on(nr::unlink, "none", 0, 0);
                }
            }
            s.file("a", "hello");
        }
    }
}

fn opening_odd_ends(s: &mut Script) {
    s.symlink("a", "good");
    s.symlink("missing", "dangling");
    s.file("a", "x");
    for flags in [RD, RD | NOFOLLOW, WR | CREAT, WR | CREAT | EXCL, PATH | NOFOLLOW, PATH] {
        for path in ["good", "dangling", "good/", "dangling/"] {
            let fd = s.open(path, flags, 0o600);
            if fd >= 0 {
                s.fstat(fd);
                s.close(fd);
            }
        }
    }
    s.list("");
    s.open("", RD | CREAT, 0o600);
    s.open("=", RD, 0);
    s.on(nr::creat, "made", 0o664, 0);
    s.stat("made");
}

fn reading_and_writing(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    s.write(fd, "0123456789");
    s.read(fd, 5);
    s.seek(fd, 2, 0);
    s.read(fd, 4);
    s.read(fd, 100);
    s.read(fd, 100);
    s.pread(fd, 3, 1);
    s.pread(fd, 3, 100);
    s.pwrite(fd, "ab", 20);
    s.pread(fd, 40, 0);
    s.seek(fd, -5, 0);
    s.seek(fd, -5, 1);
    s.seek(fd, -5, 2);
    s.seek(fd, 1 << 40, 0);
    s.read(fd, 1);
    s.seek(fd, 0, 9);
    s.fd(nr::ftruncate, fd, 4, 0);
    s.fstat(fd);
    s.fd(nr::ftruncate, fd, 8, 0);
    s.pread(fd, 40, 0);
    s.fd(nr::ftruncate, fd, usize::MAX, 0);
    s.on(nr::truncate, "f", 2, 0);
    s.on(nr::truncate, "none", 2, 0);
    s.fstat(fd);
    s.close(fd);
    s.read(fd, 1);
    let reader = s.open("f", RD, 0);
    s.write(reader, "x");
    s.pwrite(reader, "x", 0);
    s.fd(nr::ftruncate, reader, 1, 0);
    s.close(reader);
    let writer = s.open("f", WR, 0);
    s.read(writer, 1);
    s.close(writer);
    let folder = s.open("", RD, 0);
    s.read(folder, 10);
    s.write(folder, "x");
    s.fd(nr::ftruncate, folder, 1, 0);
    s.close(folder);
    s.on(nr::truncate, "", 1, 0);
}

fn vectors(s: &mut Script) {
    let fd = s.open("v", RW | CREAT, 0o600);
    let parts = ["one", "", "twotwo", "three"];
    let list: Vec<[usize; 2]> = parts.iter().map(|p| [p.as_ptr() as usize, p.len()]).collect();
    let args = [fd as usize, list.as_ptr() as usize, list.len(), 0, 0, 0];
    s.raw("writev none", nr::writev, [args[0], args[1], 0, 0, 0, 0]);
    s.raw("writev", nr::writev, args);
    s.raw("pwritev", nr::pwritev, [args[0], args[1], args[2], 10, 0, 0]);
    s.pread(fd, 100, 0);
    let mut out = [[0u8; 5]; 4];
    let places: Vec<[usize; 2]> = out.iter_mut().map(|o| [o.as_mut_ptr() as usize, 5]).collect();
    s.raw("preadv", nr::preadv, [fd as usize, places.as_ptr() as usize, 4, 1, 0, 0]);
    s.note(format!("{out:?}"));
    s.raw("readv too many", nr::readv, [fd as usize, places.as_ptr() as usize, 1025, 0, 0, 0]);
    let bad = [[1usize, usize::MAX]];
    s.raw("readv negative", nr::readv, [fd as usize, bad.as_ptr() as usize, 1, 0, 0, 0]);
    s.seek(fd, 0, 0);
    s.raw("preadv2 -1", nr::preadv2, [args[0], places.as_ptr() as usize, 1, usize::MAX, 0, 0]);
    s.seek(fd, 0, 1);
    s.raw("preadv2 flags", nr::preadv2, [args[0], places.as_ptr() as usize, 1, 0, 0, 0x8000]);
    s.close(fd);
}

fn holes(s: &mut Script) {
    let fd = s.open("h", RW | CREAT, 0o600);
    s.pwrite(fd, "end", 100_000);
    s.seek(fd, 0, 3);
    s.seek(fd, 0, 4);
    s.seek(fd, 100_003, 3);
    s.seek(fd, 100_003, 4);
    s.seek(fd, 99_000, 4);
    s.seek(fd, -1, 3);
    s.pread(fd, 4, 50_000);
    s.raw("fallocate", nr::fallocate, [fd as usize, 0, 0, 200_000, 0, 0]);
    s.fstat(fd);
    s.raw("keep", nr::fallocate, [fd as usize, 1, 0, 400_000, 0, 0]);
    s.fstat(fd);
    s.raw("punch", nr::fallocate, [fd as usize, 3, 98_304, 4096, 0, 0]);
    s.pread(fd, 4, 100_000);
    s.raw("bad length", nr::fallocate, [fd as usize, 0, 0, 0, 0, 0]);
    s.raw("bad offset", nr::fallocate, [fd as usize, 0, usize::MAX, 1, 0, 0]);
    s.raw("punch alone", nr::fallocate, [fd as usize, 2, 0, 1, 0, 0]);
    s.close(fd);
}

fn appending(s: &mut Script) {
    s.file("log", "first");
    let fd = s.open("log", WR | APPEND, 0);
    s.write(fd, "second");
    s.seek(fd, 0, 1);
    s.seek(fd, 0, 0);
    s.write(fd, "third");
    s.pwrite(fd, "X", 0);
    s.fd(nr::fcntl, fd, 4, 0);
    s.pwrite(fd, "Y", 0);
    s.fd(nr::fcntl, fd, 3, 0);
    s.close(fd);
    s.show("log");
}

fn directories(s: &mut Script) {
    for name in ["one", "two", "three"] {
        s.mkdir(name);
    }
    for index in 0..60 {
        s.file(&format!("one/file-{index}"), "");
    }
    s.list("one");
    s.list("");
    s.stat("");
    s.stat("one");
    s.mkdir("one");
    s.mkdir("one/file-1");
    s.mkdir("one/file-1/x");
    s.mkdir("none/x");
    s.mkdir(".");
    s.mkdir("..");
    s.mkdir("one/.");
    s.mkdir("one/..");
    s.mkdir("four/");
    s.mkdir("=");
    s.stat("four");
    s.on(nr::mkdir, "sticky", 0o7777, 0);
    s.stat("sticky");
    s.fd(nr::umask, 0, 0, 0);
    s.on(nr::mkdir, "open", 0o777, 0);
    s.stat("open");
    s.fd(nr::umask, 0o22, 0, 0);
    let file = s.open("one/file-1", RD, 0);
    let mut out = [0u8; 64];
    let args = [file as usize, out.as_mut_ptr() as usize, 64, 0, 0, 0];
    s.raw("getdents64 of a file", nr::getdents64, args);
    s.close(file);
    let folder = s.open("one", RD, 0);
    let args = [folder as usize, out.as_mut_ptr() as usize, 8, 0, 0, 0];
    s.raw("getdents64 small", nr::getdents64, args);
    s.close(folder);
}

fn removing(s: &mut Script) {
    s.mkdir("d");
    s.mkdir("d/sub");
    s.file("f", "x");
    s.symlink("d", "link");
    s.symlink("f", "flink");
    for path in [
        "d", "f", "none", "f/", "d/", "link/", "flink/", "none/", ".", "..", "d/.", "d/..", "f/x",
        "none/x",
    ] {
        s.on(nr::unlink, path, 0, 0);
        s.lstat(path);
        s.file("f", "x");
        s.on(nr::rmdir, path, 0, 0);
    }
    s.on(nr::unlink, "=", 0, 0);
    s.on(nr::rmdir, "link", 0, 0);
    s.on(nr::unlink, "link", 0, 0);
    s.on(nr::rmdir, "d/sub/", 0, 0);
    s.on(nr::rmdir, "d", 0, 0);
    let path = s.path("f");
    s.raw("bad flag", nr::unlinkat, [CWD as usize, path.as_ptr() as usize, 1, 0, 0, 0]);
    s.list("");
}

fn renaming(s: &mut Script) {
    for name in ["a", "b", "c"] {
        s.file(name, name);
    }
    s.mkdir("d");
    s.both(nr::rename, "a", "b");
    s.show("b");
    s.both(nr::rename, "a", "b");
    s.both(nr::rename, "b", "b");
    s.both(nr::rename, "b", "d");
    s.both(nr::rename, "d", "b");
    s.both(nr::rename, "b", "d/b");
    s.both(nr::rename, "d/b", "x/");
    s.both(nr::rename, "d/b/", "x");
    s.both(nr::rename, "d/b", "d/b/c");
    s.both(nr::rename, "none", "d/.");
    s.both(nr::rename, "d/.", "x");
    s.both(nr::rename, "d/..", "x");
    s.both(nr::rename, "c", "d/.");
    s.both(nr::rename, "c", "d/..");
    s.both(nr::rename, "c", "=");
    s.both(nr::link, "c", "c2");
    s.both(nr::rename, "c", "c2");
    s.stat("c");
    s.rename2("c", "d/b", 1);
    s.rename2("c", "new", 1);
    s.rename2("new", "x", 3);
    s.rename2("new", "x", 64);
    s.symlink("d", "dl");
    s.both(nr::rename, "dl", "d/dl2");
    s.both(nr::rename, "d/dl2", "new");
    s.lstat("new");
    s.list("");
    s.list("d");
}

fn renaming_directories(s: &mut Script) {
    for path in ["a", "a/b", "a/b/c", "e", "full"] {
        s.mkdir(path);
    }
    s.file("full/x", "");
    s.both(nr::rename, "a", "a/b/c/d");
    s.both(nr::rename, "a/b", "a");
    s.both(nr::rename, "a/b", "full");
    s.both(nr::rename, "a/b", "e");
    s.both(nr::rename, "full", "full/x");
    s.both(nr::rename, "e/", "f/");
    s.stat("a");
    s.stat("f");
    s.stat("f/c/../..");
    s.rename2("a", "f", 2);
    s.rename2("f/c", "f", 2);
    s.rename2("f", "f/c", 2);
    s.list("");
    s.list("a");
}

fn exchanging(s: &mut Script) {
    s.file("f", "file");
    s.mkdir("d");
    s.file("d/x", "inside");
    s.rename2("f", "d", 2);
    s.stat("f");
    s.show("d");
    s.rename2("f", "none", 2);
    s.rename2("none", "f", 2);
    s.rename2("d/", "f/", 2);
    s.list("f");
    s.stat("");
}

fn linking(s: &mut Script) {
    s.file("a", "content");
    s.mkdir("d");
    s.both(nr::link, "a", "d/b");
    s.stat("a");
    s.both(nr::link, "a", "d/b");
    s.both(nr::link, "d", "e");
    s.both(nr::link, "d", "a");
    s.both(nr::link, "none", "e");
    s.both(nr::link, "a", "e/");
    s.both(nr::link, "a", "d/");
    s.both(nr::link, "a/", "e");
    s.both(nr::link, "a", "none/e");
    s.symlink("a", "l");
    s.both(nr::link, "l", "l2");
    s.lstat("l2");
    let (from, to) = (s.path("l"), s.path("l3"));
    let cwd = CWD as usize;
    let args = [cwd, from.as_ptr() as usize, cwd, to.as_ptr() as usize, 0x400, 0];
    s.raw("linkat follow", nr::linkat, args);
    s.lstat("l3");
    s.raw("linkat bad", nr::linkat, [args[0], args[1], args[2], args[3], 1, 0]);
    s.on(nr::unlink, "a", 0, 0);
    s.stat("d/b");
    s.show("d/b");
}

fn symbolic_links(s: &mut Script) {
    s.mkdir("d");
    s.file("d/f", "deep");
    s.symlink("d", "l");
    s.symlink("d/f", "lf");
    s.symlink("", "empty");
    s.symlink("../d", "d/up");
    s.symlink("x", "d");
    s.symlink("x", "new/");
    s.symlink("x", "none/x");
    for path in ["l", "lf", "l/f", "d/up/up/f", "l/", "lf/", "d/none", "lf/x"] {
        s.stat(path);
        s.lstat(path);
        s.readlink(path, 100);
    }
    s.readlink("l", 1);
    s.readlink("lf", 2);
    s.readlink("lf", 0);
    s.readlink("d", 10);
    s.on(nr::chmod, "lf", 0o600, 0);
    s.stat("d/f");
    s.on(nr::rmdir, "l", 0, 0);
    s.mkdir("l/sub");
    s.list("d");
}

fn link_circles(s: &mut Script) {
    s.symlink("b", "a");
    s.symlink("a", "b");
    s.symlink("self", "self");
    for path in ["a", "b", "self", "self/x"] {
        s.stat(path);
        s.lstat(path);
        s.open(path, WR | CREAT, 0o600);
    }
    s.file("l0", "end");
    for index in 1..=41 {
        s.symlink(&format!("l{}", index - 1), &format!("l{index}"));
    }
    s.stat("l40");
    s.stat("l41");
    s.show("l40");
}

fn long_names(s: &mut Script) {
    for length in [254, 255, 256, 300] {
        let name = "n".repeat(length);
        s.file(&name, "x");
        s.stat(&name);
        s.mkdir(&format!("{name}/x"));
        s.on(nr::unlink, &name, 0, 0);
    }
    s.mkdir("d");
    s.file("d/f", "x");
    let room = 4096 - s.path("d/f").len();
    for more in [0usize, 1, 2] {
        let slashes = "/".repeat(room + more);
        s.stat(&format!("d/{slashes}f"));
    }
    s.symlink(&"t".repeat(4095), "long");
    s.symlink(&"t".repeat(4096), "longer");
    s.lstat("long");
    s.stat("long");
}

fn odd_paths(s: &mut Script) {
    s.mkdir("d");
    s.mkdir("d/e");
    s.file("d/f", "x");
    for path in [
        "d//e",
        "d/./e",
        "d/e/../f",
        "d/e/../../d/f",
        "d/f/..",
        "d/f/.",
        "d/e/.",
        "d/../d/../d",
        "./d",
        "././d/.",
        "d/e/../../../../../../../../../..",
        "d/none/..",
    ] {
        s.stat(path);
    }
    s.stat("=");
    for byte in [1u8, b' ', b'\n', 0x7f] {
        let name = format!("d/{}", byte as char);
        s.file(&name, "odd");
        s.stat(&name);
    }
    s.list("d");
}

fn working_directory(s: &mut Script) {
    s.mkdir("d");
    s.mkdir("d/e");
    s.file("d/f", "x");
    s.on(nr::chdir, "d", 0, 0);
    s.getcwd(4096);
    s.getcwd(3);
    s.getcwd(0);
    s.stat("=f");
    s.stat("=e/../f");
    s.stat("=.");
    s.stat("=..");
    s.on(nr::chdir, "=e", 0, 0);
    s.getcwd(4096);
    s.stat("=../f");
    s.on(nr::chdir, "=../f", 0, 0);
    s.on(nr::chdir, "=none", 0, 0);
    s.on(nr::chdir, "=", 0, 0);
    let fd = s.open("=..", RD, 0);
    s.fd(nr::fchdir, fd, 0, 0);
    s.getcwd(4096);
    let file = s.open("=f", RD, 0);
    s.fd(nr::fchdir, file, 0, 0);
    s.close(file);
    s.close(fd);
    s.on(nr::chdir, "=/proc/self", 0, 0);
    s.stat("=status");
    s.on(nr::chdir, "d/e", 0, 0);
    s.on(nr::rmdir, "d/e", 0, 0);
    s.getcwd(4096);
    s.file("=lost", "x");
    s.stat("=.");
    s.on(nr::chdir, "=/", 0, 0);
    s.getcwd(4096);
}

/// Looks twice at what lies in directories, before and after each change of the way there.
fn directories_met_before(s: &mut Script) {
    s.mkdir("d");
    s.mkdir("d/e");
    s.mkdir("other");
    s.file("d/e/f", "first");
    s.file("other/f", "other's");
    s.on(nr::chdir, "", 0, 0);
    let dir = s.open("d", RD, 0);
    let twice = |s: &mut Script| {
        for _ in 0..2 {
            s.show("d/e/f");
            for path in ["=d/e/f", "=d//e/f", "=d/f", "=./d/e/f", "=d/e/../f", "=f", "=e/f"] {
                s.show(path);
            }
            s.fstatat(dir as i32, "=e/f", 0);
            s.fstatat(dir as i32, "=f", 0);
        }
    };
    twice(s);
    s.both(nr::rename, "=d/e", "=d/moved");
    twice(s);
    s.rename2("=other", "=d/e", 0);
    twice(s);
    s.rename2("=d/moved", "=d/e", 2);
    twice(s);
    s.both(nr::rename, "=d", "=gone");
    twice(s);
    s.mkdir("=d");
    s.mkdir("=d/e");
    s.file("=d/e/f", "second");
    twice(s);
    s.on(nr::unlink, "=d/e/f", 0, 0);
    s.on(nr::rmdir, "=d/e", 0, 0);
    twice(s);
    s.symlink("../gone/e", "=d/e");
    twice(s);
    s.on(nr::unlink, "=d/e", 0, 0);
    s.file("=d/e", "a file");
    twice(s);
    s.on(nr::unlink, "=d/e", 0, 0);
    s.mkdir("=d/e");
    s.file("=d/e/f", "third");
    twice(s);
    s.on(nr::chdir, "=d", 0, 0);
    twice(s);
    s.on(nr::chdir, "=..", 0, 0);
}

fn directory_descriptors(s: &mut Script) {
    s.mkdir("d");
    s.file("d/f", "x");
    let fd = s.open("d", RD | DIRECTORY, 0) as i32;
    s.fstatat(fd, "=f", 0);
    s.fstatat(fd, "=", 0);
    s.fstatat(fd, "=", 0x1000);
    s.fstatat(fd, "=..", 0);
    s.fstatat(fd, "=f", 0x8000);
    let made = s.openat(fd, "=new", WR | CREAT, 0o600);
    s.close(made);
    let file = s.open("d/f", RD, 0) as i32;
    s.fstatat(file, "=x", 0);
    s.fstatat(file, "=", 0x1000);
    s.fstatat(999, "=x", 0);
    s.fstatat(999, "=/", 0);
    let path = s.path("=sub");
    s.raw("mkdirat", nr::mkdirat, [fd as usize, path.as_ptr() as usize, 0o700, 0, 0, 0]);
    s.list("d");
    let only = s.open("d", PATH, 0) as i32;
    s.fstatat(only, "=f", 0);
    s.read(i64::from(only), 1);
    s.fd(nr::fchmod, i64::from(only), 0o700, 0);
    s.fd(nr::fchdir, i64::from(only), 0, 0);
    s.getcwd(4096);
    s.on(nr::chdir, "=/", 0, 0);
    for fd in [fd, file, only] {
        s.close(i64::from(fd));
    }
}

fn magic_links(s: &mut Script) {
    s.file("f", "content");
    s.mkdir("d");
    s.file("d/x", "inside");
    let file = s.open("f", RD, 0);
    let folder = s.open("d", RD, 0);
    s.read(file, 3);
    s.show(&format!("=/proc/self/fd/{file}"));
    s.show(&format!("=/dev/fd/{file}"));
    s.stat(&format!("=/proc/self/fd/{file}"));
    s.stat(&format!("=/proc/self/fd/{folder}/x"));
    s.stat(&format!("=/proc/thread-self/fd/{folder}/../f"));
    s.readlink(&format!("=/proc/self/fd/{folder}"), 4096);
    s.on(nr::chdir, "d", 0, 0);
    s.readlink("=/proc/self/cwd", 4096);
    s.stat("=/proc/self/cwd/x");
    s.on(nr::chdir, "=/", 0, 0);
    s.stat("=/proc/self/fd/900");
    s.close(file);
    s.close(folder);
}
