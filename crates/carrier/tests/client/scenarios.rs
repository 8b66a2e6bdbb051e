//! What is asked of both systems. Whatever Linux answers is the expectation.

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

fn duplicates(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    s.write(fd, "0123456789");
    let two = s.fd(nr::dup, fd, 0, 0);
    s.seek(two, 3, 0);
    s.read(fd, 2);
    s.read(two, 2);
    let high = s.fd(nr::fcntl, fd, 0, 100);
    s.fd(nr::fcntl, high, 1, 0);
    let high2 = s.fd(nr::fcntl, fd, 1030, 100);
    s.fd(nr::fcntl, high2, 1, 0);
    s.fd(nr::dup2, fd, high as usize, 0);
    s.fd(nr::dup2, fd, fd as usize, 0);
    s.fd(nr::dup3, fd, fd as usize, 0);
    s.fd(nr::dup3, fd, 120, CLOEXEC);
    s.fd(nr::fcntl, 120, 1, 0);
    s.fd(nr::dup3, fd, 121, 1);
    s.fd(nr::dup2, 900, fd as usize, 0);
    s.fd(nr::dup2, 900, 900, 0);
    s.fd(nr::dup2, fd, 1 << 30, 0);
    s.fd(nr::fcntl, fd, 0, 1 << 30);
    let null = s.open("=/dev/null", RD, 0);
    s.fd(nr::dup2, null, two as usize, 0);
    s.read(two, 5);
    s.fd(nr::dup2, fd, null as usize, 0);
    s.seek(null, 0, 1);
    s.close(fd);
    s.read(high, 3);
    let lowest = s.open("f", RD, 0);
    for fd in [two, high, high2, 120, null, lowest] {
        s.close(fd);
    }
    s.close(fd);
}

fn descriptor_flags(s: &mut Script) {
    let fd = s.open("f", RW | CREAT | CLOEXEC, 0o600);
    s.fd(nr::fcntl, fd, 1, 0);
    s.fd(nr::fcntl, fd, 2, 0);
    s.fd(nr::fcntl, fd, 1, 0);
    s.fd(nr::ioctl, fd, 0x5451, 0);
    s.fd(nr::fcntl, fd, 1, 0);
    s.fd(nr::ioctl, fd, 0x5450, 0);
    s.fd(nr::fcntl, fd, 1, 0);
    s.fd(nr::fcntl, fd, 3, 0);
    s.fd(nr::fcntl, fd, 4, 0o4000 | APPEND);
    s.fd(nr::fcntl, fd, 3, 0);
    s.fd(nr::fcntl, fd, 4, 0);
    s.fd(nr::fcntl, fd, 3, 0);
    s.fd(nr::fcntl, fd, 1032, 0);
    s.fd(nr::fcntl, fd, 999, 0);
    s.write(fd, "abcdef");
    s.seek(fd, 2, 0);
    let mut left = 0u32;
    let args = [fd as usize, 0x541b, (&raw mut left) as usize, 0, 0, 0];
    s.raw("FIONREAD", nr::ioctl, args);
    s.note(format!("{left}"));
    let mut terminal = [0u8; 64];
    let args = [fd as usize, 0x5401, terminal.as_mut_ptr() as usize, 0, 0, 0];
    s.raw("TCGETS", nr::ioctl, args);
    s.close(fd);
}

fn ranges(s: &mut Script) {
    let fds: Vec<i64> = (0..4).map(|i| s.open(&format!("f{i}"), RW | CREAT, 0o600)).collect();
    s.fd(nr::close_range, fds[1], fds[2] as usize, 0);
    for &fd in &fds {
        s.fd(nr::fcntl, fd, 1, 0);
    }
    s.fd(nr::close_range, fds[0], fds[3] as usize, 4);
    for &fd in &fds {
        s.fd(nr::fcntl, fd, 1, 0);
    }
    s.fd(nr::close_range, 5, 4, 0);
    s.fd(nr::close_range, 5, 6, 64);
    let again = s.open("f0", RD, 0);
    s.close(again);
    s.close(fds[0]);
    s.close(fds[3]);
}

fn times_and_modes(s: &mut Script) {
    s.file("f", "x");
    s.symlink("f", "l");
    let set = |s: &mut Script, path: &str, a: [i64; 2], m: [i64; 2], flags: usize| {
        let (bytes, times) = (s.path(path), [a, m]);
        let args = [CWD as usize, bytes.as_ptr() as usize, times.as_ptr() as usize, flags, 0, 0];
        s.raw(&format!("utimensat {path} {a:?} {m:?}"), nr::utimensat, args);
        let mut out = [0u8; 144];
        let args = [CWD as usize, bytes.as_ptr() as usize, out.as_mut_ptr() as usize, 0x100, 0, 0];
        let followed = path == "l" && flags == 0;
        if s.quiet(nr::newfstatat, args) == 0
            && !followed
            && a[1] < 1_000_000_000
            && m[1] < 1_000_000_000
        {
            s.note(format!("  {:?}", &out[72..104]));
        }
    };
    set(s, "f", [1000, 5], [2000, 7], 0);
    set(s, "f", [-1000, 999_999_999], [1 << 33, 0], 0);
    set(s, "f", [0, 1_000_000_000], [0, 0], 0);
    set(s, "f", [0, 1_073_741_823], [0, 1_073_741_822], 0);
    set(s, "l", [7, 7], [8, 8], 0x100);
    set(s, "l", [17, 7], [18, 8], 0);
    set(s, "f", [1, 1], [1, 1], 1);
    set(s, "none", [1, 1], [1, 1], 0);
    for mode in [0o600, 0o4755, 0o2755, 0o1777, 0o7777, 0o170644] {
        s.on(nr::chmod, "f", mode, 0);
        s.stat("f");
    }
    s.on(nr::chmod, "none", 0o600, 0);
    s.on(nr::lchown, "l", 1, 1);
    s.lstat("l");
    s.on(nr::chown, "l", 3, usize::MAX);
    s.stat("f");
    let fd = s.open("f", RD, 0);
    s.fd(nr::fchmod, fd, 0o640, 0);
    s.fd(nr::fchown, fd, usize::MAX, 5);
    s.fstat(fd);
    s.close(fd);
    for mode in [0, 1, 2, 4, 7, 8] {
        s.on(nr::access, "f", mode, 0);
        s.on(nr::access, "l", mode, 0);
        s.on(nr::access, "none", mode, 0);
    }
}

fn record_locks(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    let other = s.open("f", RW, 0);
    let set = |s: &mut Script, fd: i64, command: usize, kind: u16, start: i64, length: i64| {
        let mut lock = [0u8; 32];
        lock[0..2].copy_from_slice(&kind.to_le_bytes());
        lock[8..16].copy_from_slice(&start.to_le_bytes());
        lock[16..24].copy_from_slice(&length.to_le_bytes());
        let args = [fd as usize, command, lock.as_mut_ptr() as usize, 0, 0, 0];
        s.raw(&format!("lock {fd} {command} {kind} {start} {length}"), nr::fcntl, args);
        s.note(format!("  {:?}", &lock[..24]));
    };
    set(s, fd, 6, 1, 0, 10);
    set(s, other, 6, 1, 5, 10);
    set(s, other, 5, 1, 0, 0);
    set(s, fd, 37, 1, 100, 10);
    set(s, other, 37, 1, 105, 10);
    set(s, other, 37, 0, 105, 10);
    set(s, other, 36, 0, 0, 50);
    set(s, other, 36, 0, 100, 1);
    set(s, fd, 37, 2, 100, 5);
    set(s, other, 36, 1, 0, 50);
    set(s, other, 37, 1, 95, 5);
    set(s, fd, 6, 7, 0, 0);
    set(s, fd, 6, 1, -1, 1);
    set(s, fd, 6, 1, 10, -5);
    set(s, fd, 6, 1, 10, -20);
    set(s, fd, 6, 2, 0, 0);
    let reader = s.open("f", RD, 0);
    set(s, reader, 6, 1, 0, 1);
    set(s, reader, 6, 0, 0, 1);
    for fd in [fd, other, reader] {
        s.close(fd);
    }
}

fn flocks(s: &mut Script) {
    s.file("f", "");
    let a = s.open("f", RD, 0);
    let b = s.open("f", RD, 0);
    let copy = s.fd(nr::dup, a, 0, 0);
    for (fd, operation) in [
        (a, 2),
        (b, 2 | 4),
        (b, 1 | 4),
        (copy, 1 | 4),
        (b, 1 | 4),
        (b, 2 | 4),
        (a, 8),
        (copy, 2 | 4),
        (b, 8),
        (copy, 2 | 4),
        (a, 0),
        (a, 3),
    ] {
        s.fd(nr::flock, fd, operation, 0);
    }
    s.close(a);
    s.fd(nr::flock, b, 2 | 4, 0);
    s.close(copy);
    s.fd(nr::flock, b, 2 | 4, 0);
    s.close(b);
}

fn polling(s: &mut Script) {
    let mut pipe = [0i32; 2];
    s.raw("pipe2", nr::pipe2, [pipe.as_mut_ptr() as usize, 0, 0, 0, 0, 0]);
    let fd = s.open("f", RW | CREAT, 0o600);
    let mut set = [[fd as i32, 5], [pipe[0], 1], [pipe[1], 4], [900, 1], [-1, 1]];
    let args = [set.as_mut_ptr() as usize, set.len(), 0, 0, 0, 0];
    s.raw("poll", nr::poll, args);
    s.note(format!("{set:?}"));
    let mut read = [1u64 << fd | 1 << pipe[0], 0];
    let mut write = [1u64 << fd | 1 << pipe[1], 0];
    let mut time = [0u64; 2];
    let args = [
        64,
        read.as_mut_ptr() as usize,
        write.as_mut_ptr() as usize,
        0,
        time.as_mut_ptr() as usize,
        0,
    ];
    s.raw("select", nr::select, args);
    s.note(format!("{read:?} {write:?}"));
    let epoll = s.raw("epoll", nr::epoll_create1, [0; 6]);
    let event = [1u32, 0, 0];
    let args = [epoll as usize, 1, fd as usize, event.as_ptr() as usize, 0, 0];
    s.raw("epoll_ctl", nr::epoll_ctl, args);
    for fd in [fd, i64::from(pipe[0]), i64::from(pipe[1]), epoll] {
        s.close(fd);
    }
}

fn copying(s: &mut Script) {
    s.file("from", &"0123456789".repeat(5000));
    let from = s.open("from", RD, 0);
    let to = s.open("to", RW | CREAT, 0o600);
    let args = [from as usize, 0, to as usize, 0, 30_000, 0];
    s.raw("copy_file_range", nr::copy_file_range, args);
    s.seek(from, 0, 1);
    s.seek(to, 0, 1);
    let mut start = 5u64;
    let args = [to as usize, from as usize, (&raw mut start) as usize, 100_000, 0, 0];
    s.raw("sendfile", nr::sendfile, args);
    s.note(format!("{start}"));
    s.seek(from, 0, 1);
    s.fstat(to);
    s.pread(to, 20, 29_990);
    let args = [from as usize, 0, from as usize, 0, 10, 0];
    s.raw("to a reader", nr::copy_file_range, args);
    let mut pipe = [0i32; 2];
    s.raw("pipe", nr::pipe2, [pipe.as_mut_ptr() as usize, 0, 0, 0, 0, 0]);
    start = 10;
    let args = [pipe[1] as usize, from as usize, (&raw mut start) as usize, 10, 0, 0];
    s.raw("sendfile to a pipe", nr::sendfile, args);
    s.read(i64::from(pipe[0]), 100);
    for fd in [from, to, i64::from(pipe[0]), i64::from(pipe[1])] {
        s.close(fd);
    }
}

fn bad_pointers(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    s.write(fd, "content");
    s.seek(fd, 0, 0);
    s.raw("read", nr::read, [fd as usize, 1, 10, 0, 0, 0]);
    s.seek(fd, 0, 1);
    s.raw("write", nr::write, [fd as usize, 1, 10, 0, 0, 0]);
    s.raw("nothing", nr::write, [fd as usize, 1, 0, 0, 0, 0]);
    s.fstat(fd);
    s.raw("open", nr::open, [1, 0, 0, 0, 0, 0]);
    s.raw("stat", nr::stat, [1, 1, 0, 0, 0, 0]);
    s.raw("fstat", nr::fstat, [fd as usize, 1, 0, 0, 0, 0]);
    let path = s.path("f");
    s.raw("stat into", nr::stat, [path.as_ptr() as usize, 1, 0, 0, 0, 0]);
    s.raw("readlink", nr::readlink, [path.as_ptr() as usize, 1, 10, 0, 0, 0]);
    s.raw("rename", nr::rename, [path.as_ptr() as usize, 1, 0, 0, 0, 0]);
    s.raw("readv", nr::readv, [fd as usize, 1, 1, 0, 0, 0]);
    s.close(fd);
}

fn unlinked(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    s.write(fd, "still here");
    s.on(nr::unlink, "f", 0, 0);
    s.fstat(fd);
    s.pread(fd, 20, 0);
    s.write(fd, "!");
    s.stat("f");
    s.file("f", "another");
    s.pread(fd, 20, 0);
    s.close(fd);
    s.mkdir("d");
    let folder = s.open("d", RD, 0) as i32;
    s.on(nr::rmdir, "d", 0, 0);
    s.fstat(i64::from(folder));
    s.fstatat(folder, "=x", 0);
    s.openat(folder, "=x", WR | CREAT, 0o600);
    s.close(i64::from(folder));
}

fn nameless(s: &mut Script) {
    let fd = s.open("", RW | TMPFILE, 0o640);
    s.write(fd, "from nowhere");
    s.fstat(fd);
    let (from, to) = (s.path(&format!("=/proc/self/fd/{fd}")), s.path("named"));
    let cwd = CWD as usize;
    let args = [cwd, from.as_ptr() as usize, cwd, to.as_ptr() as usize, 0x400, 0];
    s.raw("linkat", nr::linkat, args);
    s.fstat(fd);
    s.close(fd);
    s.show("named");
    s.open("", RD | TMPFILE, 0o600);
    s.open("named", RW | TMPFILE, 0o600);
    s.open("none", RW | TMPFILE, 0o600);
    let lost = s.open("", RW | TMPFILE, 0o600);
    s.close(lost);
    s.list("");
}

fn other_calls(s: &mut Script) {
    let fd = s.open("f", RW | CREAT, 0o600);
    for number in [nr::fsync, nr::fdatasync, nr::syncfs] {
        s.fd(number, fd, 0, 0);
    }
    s.raw("sync_file_range", nr::sync_file_range, [fd as usize, 0, 0, 2, 0, 0]);
    s.raw("sync bad", nr::sync_file_range, [fd as usize, 0, 0, 99, 0, 0]);
    s.raw("fadvise", nr::fadvise64, [fd as usize, 0, 0, 3, 0, 0]);
    s.raw("fadvise bad", nr::fadvise64, [fd as usize, 0, 0, 77, 0, 0]);
    s.fd(nr::getsockname, fd, 0, 0);
    s.fd(nr::listen, fd, 1, 0);
    s.fd(nr::accept, fd, 0, 0);
    s.on(nr::mknod, "made", 0o100644, 0);
    s.stat("made");
    s.on(nr::mknod, "made", 0o100644, 0);
    s.on(nr::mknod, "untyped", 0o600, 0);
    s.stat("untyped");
    let mut out = [0u8; 120];
    let args = [fd as usize, out.as_mut_ptr() as usize, 0, 0, 0, 0];
    s.raw("fstatfs", nr::fstatfs, args);
    s.note(format!("{:?}", &out[..4]));
    let none = s.path("none");
    let args = [none.as_ptr() as usize, out.as_mut_ptr() as usize, 0, 0, 0, 0];
    s.raw("statfs none", nr::statfs, args);
    s.close(fd);
}

fn leaving(s: &mut Script) {
    s.mkdir("d");
    s.file("d/f", "inside");
    s.symlink("/", "root");
    s.symlink("/proc/self", "proc");
    s.stat("root");
    s.stat("root/proc/self/status");
    s.stat("proc/status");
    s.readlink("proc/cwd", 4096);
    s.stat("../../../../../proc/self/status");
    s.on(nr::chdir, "d", 0, 0);
    s.stat("=../../../../../../proc/self/status");
    s.on(nr::chdir, "=root/..", 0, 0);
    s.on(nr::chdir, "=../root/proc", 0, 0);
    s.getcwd(4096);
    let root = s.path("");
    let text = String::from_utf8_lossy(&root[..root.len() - 2]).into_owned();
    s.on(nr::chdir, "=/", 0, 0);
    let relative = text.trim_start_matches('/');
    s.quiet(nr::chdir, [b"/\0".as_ptr() as usize, 0, 0, 0, 0, 0]);
    let slash = s.open("=/", RD | DIRECTORY, 0) as i32;
    let mut path = format!("{relative}/d/f").into_bytes();
    path.push(0);
    let mut out = [0u8; 144];
    let (p, o) = (path.as_ptr() as usize, out.as_mut_ptr() as usize);
    s.raw("stat from the root directory", nr::newfstatat, [slash as usize, p, o, 0, 0, 0]);
    s.raw("stat relative to the root", nr::stat, [p, o, 0, 0, 0, 0]);
    s.both(nr::rename, "d/f", "=/proc/x");
    s.close(i64::from(slash));
}
