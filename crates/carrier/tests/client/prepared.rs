//! What is asked of both systems on a directory that root has filled: overlays, permissions.

use super::scenarios::Scenario;
use super::script::*;
use husk_abi::nr;
use std::path::Path;

/// Scenarios on a directory that `prepare` has filled.
pub const PREPARED: &[Scenario] = &[
    ("prepared reading", prepared_reading),
    ("prepared writing", prepared_writing),
    ("prepared names", prepared_names),
    ("prepared descriptors", prepared_descriptors),
    ("prepared locks", prepared_locks),
    ("prepared attributes", prepared_attributes),
];

/// Scenarios of an ordinary user on what root has prepared.
pub const UNPRIVILEGED: &[Scenario] = &[
    ("ordinary reading", ordinary_reading),
    ("ordinary changes", ordinary_changes),
    ("ordinary access", ordinary_access),
    ("ordinary ways closed later", ordinary_ways),
    ("ordinary owners", ordinary_owners),
    ("ordinary set-id bits", ordinary_set_id),
];

/// What the model leaves out.
pub const KERNEL_ONLY: &[&str] = &["ordinary set-id bits", "mapping"];

/// Fills a directory.
pub fn prepare(root: &Path) {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let make = |path: &str, content: &str, mode: u32| {
        let path = root.join(path);
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
    };
    let folder = |path: &str, mode: u32| {
        let path = root.join(path);
        std::fs::create_dir(&path).expect("a directory");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
    };
    std::fs::set_permissions(root, PermissionsExt::from_mode(0o777)).expect("its mode");
    folder("d", 0o755);
    folder("d/e", 0o755);
    folder("closed", 0o700);
    folder("searchable", 0o711);
    folder("listable", 0o744);
    folder("shared", 0o777);
    folder("sticky", 0o1777);
    folder("group", 0o2775);
    make("f", "content of f", 0o644);
    make("secret", "secret", 0o600);
    make("public", "public", 0o666);
    make("odd", "odd", 0o604);
    make("program", "#!/bin/true", 0o755);
    make("d/f", "deep content", 0o644);
    make("d/e/g", &"long ".repeat(40_000), 0o640);
    make("searchable/f", "found", 0o644);
    make("sticky/root", "roots", 0o666);
    make("shared/root", "roots", 0o600);
    make("own", "own", 0o400);
    chown(root.join("own"), Some(65534), Some(65534)).expect("an owner");
    make("grouped", "grouped", 0o060);
    chown(root.join("grouped"), Some(0), Some(65534)).expect("an owner");
    make("denied", "denied", 0o606);
    chown(root.join("denied"), Some(0), Some(65534)).expect("an owner");
    symlink("d/f", root.join("l")).expect("a link");
    symlink("nowhere", root.join("dangling")).expect("a link");
    std::fs::hard_link(root.join("f"), root.join("d/hard")).expect("a hard link");
    std::fs::remove_file(root.join("d/hard")).expect("and away");
}

fn prepared_reading(s: &mut Script) {
    s.list("");
    s.list("d");
    for path in ["f", "d/f", "l", "dangling", "d/e/g", "d/none", "d", "secret"] {
        s.stat(path);
        s.lstat(path);
        s.readlink(path, 64);
        s.show(path);
    }
    let fd = s.open("d/e/g", RD, 0);
    s.seek(fd, 100_000, 0);
    s.read(fd, 12);
    s.fstat(fd);
    s.write(fd, "x");
    s.pread(fd, 5, 0);
    s.fd(nr::fcntl, fd, 3, 0);
    s.fd(nr::fcntl, fd, 1, 0);
    s.close(fd);
    s.read(fd, 1);
    for flags in [PATH, NOFOLLOW, RD | DIRECTORY] {
        for path in ["f", "l", "d"] {
            let fd = s.open(path, flags, 0);
            if fd >= 0 {
                s.fstat(fd);
                s.close(fd);
            }
        }
    }
}

fn prepared_writing(s: &mut Script) {
    let fd = s.open("f", RW, 0);
    s.read(fd, 7);
    s.write(fd, "XY");
    s.pread(fd, 100, 0);
    s.close(fd);
    s.show("f");
    let fd = s.open("d/f", WR | APPEND, 0);
    s.write(fd, " and more");
    s.close(fd);
    s.show("d/f");
    let fd = s.open("public", WR | TRUNC, 0);
    s.fstat(fd);
    s.write(fd, "new");
    s.close(fd);
    s.show("public");
    s.on(nr::truncate, "odd", 1, 0);
    s.show("odd");
    s.on(nr::truncate, "own", 10, 0);
    s.stat("own");
    let reader = s.open("d/e/g", RD, 0);
    s.read(reader, 5);
    let writer = s.open("d/e/g", RW, 0);
    s.pwrite(writer, "WRITTEN", 5);
    s.read(reader, 7);
    s.seek(reader, 0, 1);
    s.fstat(reader);
    s.close(reader);
    s.seek(writer, 0, 2);
    s.pread(writer, 10, 199_990);
    s.close(writer);
    s.open("f", WR | CREAT | EXCL, 0o600);
    let fd = s.open("d/new", WR | CREAT | EXCL, 0o600);
    s.write(fd, "new");
    s.close(fd);
    s.list("d");
}

fn prepared_names(s: &mut Script) {
    s.both(nr::rename, "f", "d/f2");
    s.show("d/f2");
    s.stat("f");
    s.both(nr::rename, "d", "moved");
    s.show("moved/f");
    s.show("moved/e/g");
    s.stat("d");
    s.stat("l");
    s.on(nr::unlink, "moved/f", 0, 0);
    s.on(nr::rmdir, "moved/e", 0, 0);
    s.on(nr::unlink, "moved/e/g", 0, 0);
    s.on(nr::rmdir, "moved/e", 0, 0);
    s.on(nr::rmdir, "shared", 0, 0);
    s.both(nr::link, "moved/f2", "again");
    s.stat("again");
    s.file("f", "another");
    s.show("f");
    s.both(nr::rename, "public", "odd");
    s.show("odd");
    s.both(nr::rename, "sticky", "shared");
    s.both(nr::rename, "searchable", "closed");
    s.list("closed");
    s.list("");
    s.list("moved");
}

fn prepared_descriptors(s: &mut Script) {
    let fd = s.open("f", RD, 0);
    let two = s.fd(nr::dup, fd, 0, 0);
    s.read(fd, 3);
    s.read(two, 3);
    s.fstat(two);
    s.fd(nr::dup2, fd, 50, 0);
    s.read(50, 3);
    s.fstat(50);
    let husk = s.open("mine", RW | CREAT, 0o600);
    s.write(husk, "mine");
    s.fd(nr::dup2, husk, two as usize, 0);
    s.pread(two, 10, 0);
    s.fd(nr::dup2, fd, husk as usize, 0);
    s.pread(husk, 3, 0);
    s.fd(nr::fcntl, husk, 2, 1);
    s.fd(nr::fcntl, husk, 1, 0);
    s.fd(nr::close_range, fd, 50, 0);
    s.read(50, 1);
    let folder = s.open("d", RD | DIRECTORY, 0) as i32;
    s.fstatat(folder, "=f", 0);
    s.fstatat(folder, "=../f", 0);
    let file = s.openat(folder, "=f", RD | CLOEXEC, 0);
    s.fd(nr::fcntl, file, 1, 0);
    s.fd(nr::fcntl, file, 1030, 30);
    s.fd(nr::fcntl, 30, 1, 0);
    s.fstat(30);
    s.fd(nr::fchmod, file, 0o600, 0);
    s.stat("d/f");
    s.fd(nr::fchdir, i64::from(folder), 0, 0);
    s.getcwd(4096);
    s.show("=f");
    s.on(nr::chdir, "=/", 0, 0);
}

fn prepared_locks(s: &mut Script) {
    let a = s.open("f", RD, 0);
    let b = s.open("f", RD, 0);
    s.fd(nr::flock, a, 2 | 4, 0);
    s.fd(nr::flock, b, 1 | 4, 0);
    s.read(a, 4);
    s.close(a);
    s.fd(nr::flock, b, 1 | 4, 0);
    s.fd(nr::fcntl, b, 3, 0);
    s.read(b, 4);
    s.fstat(b);
    s.close(b);
}

fn prepared_attributes(s: &mut Script) {
    s.on(nr::chmod, "f", 0o600, 0);
    s.stat("f");
    s.show("f");
    s.on(nr::chown, "f", 5, 6);
    s.stat("f");
    s.on(nr::lchown, "l", 7, 8);
    s.lstat("l");
    s.stat("d/f");
    s.on(nr::access, "program", 1, 0);
    s.on(nr::access, "f", 1, 0);
    let path = s.path("f");
    let times = [1u64, 2, 3, 4];
    let args = [CWD as usize, path.as_ptr() as usize, times.as_ptr() as usize, 0, 0, 0];
    s.raw("utimensat", nr::utimensat, args);
    s.show("f");
}

const ALL_PATHS: [&str; 18] = [
    "f",
    "secret",
    "public",
    "odd",
    "own",
    "grouped",
    "denied",
    "closed",
    "closed/x",
    "searchable",
    "searchable/f",
    "listable",
    "listable/x",
    "shared/root",
    "sticky/root",
    "d/e/g",
    "l",
    "program",
];

fn ordinary_reading(s: &mut Script) {
    for path in ALL_PATHS {
        s.stat(path);
        s.show(path);
        for flags in [WR, RW, PATH, WR | TRUNC] {
            let fd = s.open(path, flags, 0);
            if fd >= 0 {
                s.close(fd);
            }
        }
        s.on(nr::chdir, path, 0, 0);
        s.on(nr::chdir, "=/", 0, 0);
    }
    for path in ["closed", "searchable", "listable", "shared", "sticky"] {
        let fd = s.open(path, RD, 0);
        if fd >= 0 {
            s.close(fd);
        }
    }
}

fn ordinary_changes(s: &mut Script) {
    for folder in ["d", "closed", "searchable", "shared", "sticky", "group"] {
        s.file(&format!("{folder}/new"), "new");
        s.stat(&format!("{folder}/new"));
        s.mkdir(&format!("{folder}/sub"));
        s.stat(&format!("{folder}/sub"));
        s.symlink("x", &format!("{folder}/link"));
        s.lstat(&format!("{folder}/link"));
    }
    for path in ["d/f", "searchable/f", "shared/root", "sticky/root", "d/none", "sticky/none"] {
        s.both(nr::rename, path, "shared/gone");
        s.on(nr::unlink, path, 0, 0);
        s.on(nr::rmdir, path, 0, 0);
    }
    s.both(nr::rename, "shared/new", "sticky/root");
    s.both(nr::rename, "shared/sub", "d/sub");
    s.both(nr::rename, "d/e", "shared/e");
    s.on(nr::mkdir, "d/e", 0o755, 0);
    s.on(nr::mkdir, "closed/e", 0o755, 0);
    s.open("d/f", RD | CREAT | EXCL, 0o600);
}

fn ordinary_access(s: &mut Script) {
    for path in ALL_PATHS {
        for mode in 0..8 {
            s.on(nr::access, path, mode, 0);
        }
    }
}

/// Directories that are closed and opened again after they have been walked through.
fn ordinary_ways(s: &mut Script) {
    s.mkdir("shared/a");
    s.mkdir("shared/a/b");
    s.file("shared/a/b/f", "x");
    s.on(nr::chdir, "shared", 0, 0);
    for mode in [0o755, 0o600, 0o711, 0o644, 0o100, 0o755] {
        for way in ["=a", "=a/b"] {
            s.on(nr::chmod, way, mode, 0);
            s.stat("=a/b/f");
            s.stat("=a/b/f");
            s.on(nr::access, "=a/b/f", 4, 0);
            s.on(nr::chmod, way, 0o755, 0);
            s.stat("=a/b/f");
        }
    }
    s.on(nr::chdir, "=..", 0, 0);
}

fn ordinary_owners(s: &mut Script) {
    for path in ["f", "own", "grouped", "public"] {
        s.on(nr::chmod, path, 0o644, 0);
        s.on(nr::chown, path, 65534, usize::MAX);
        s.on(nr::chown, path, usize::MAX, 65534);
        s.on(nr::chown, path, usize::MAX, 1);
        s.on(nr::chown, path, 1, 1);
        s.stat(path);
        let bytes = s.path(path);
        let (p, times) = (bytes.as_ptr() as usize, [1u64, 2, 3, 4]);
        let at = times.as_ptr() as usize;
        s.raw("set times", nr::utimensat, [CWD as usize, p, at, 0, 0, 0]);
        s.raw("touch", nr::utimensat, [CWD as usize, p, 0, 0, 0, 0]);
        s.on(nr::truncate, path, 2, 0);
    }
    s.on(nr::chmod, "own", 0o6755, 0);
    s.stat("own");
    s.file("shared/mine", "x");
    s.on(nr::chmod, "shared/mine", 0o4755, 0);
    s.stat("shared/mine");
}

fn ordinary_set_id(s: &mut Script) {
    s.file("shared/mine", "x");
    s.on(nr::chmod, "shared/mine", 0o6755, 0);
    let fd = s.open("shared/mine", WR, 0);
    s.write(fd, "y");
    s.close(fd);
    s.stat("shared/mine");
    s.on(nr::chmod, "shared/mine", 0o6755, 0);
    s.on(nr::truncate, "shared/mine", 0, 0);
    s.stat("shared/mine");
}
