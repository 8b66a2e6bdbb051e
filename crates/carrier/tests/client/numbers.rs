//! What is asked of both systems about descriptors, locks, times and the odd calls.

use super::script::*;
use husk_abi::nr;

pub fn duplicates(s: &mut Script) {
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

pub fn descriptor_flags(s: &mut Script) {
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

pub fn ranges(s: &mut Script) {
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

pub fn times_and_modes(s: &mut Script) {
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

pub fn record_locks(s: &mut Script) {
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

pub fn flocks(s: &mut Script) {
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

pub fn polling(s: &mut Script) {
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

pub fn copying(s: &mut Script) {
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

pub fn bad_pointers(s: &mut Script) {
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

pub fn unlinked(s: &mut Script) {
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

pub fn nameless(s: &mut Script) {
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

pub fn other_calls(s: &mut Script) {
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

pub fn leaving(s: &mut Script) {
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
    s.quiet(nr::chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
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

/// `mmap` with its answer reduced to "mapped" or the error.
fn map(s: &mut Script, what: &str, fd: i64, length: usize, prot: usize, flags: usize) -> usize {
    let offset = if what == "odd offset" { 1 } else { 0 };
    let address = s.quiet(nr::mmap, [0, length, prot, flags, fd as usize, offset]);
    let failed = (-4095..0).contains(&address);
    s.note(format!("{what}: {}", if failed { address } else { 0 }));
    if failed { 0 } else { address as usize }
}

/// Bytes go in and out of mappings through the kernel, so that a wrong page is an answer.
pub fn mapping(s: &mut Script) {
    s.file("f", &"0123456789".repeat(900));
    s.file("patch", "PATCHED");
    let (fd, patch) = (s.open("f", RW, 0), s.open("patch", RD, 0));
    let out = s.open("out", RW | CREAT, 0o600);
    let shared = map(s, "shared", fd, 12288, 3, 1);
    let private = map(s, "private", fd, 12288, 3, 2);
    for (name, at) in [("shared", shared), ("private", private)] {
        for place in [5, 4090, 8995, 9000] {
            let args = [out as usize, at + place, 20, 0, 0, 0];
            s.raw(&format!("{name} from {place}"), nr::pwrite64, args);
            s.pread(out, 20, 0);
        }
        let args = [patch as usize, at + 4092, 7, 0, 0, 0];
        s.raw(&format!("{name} into"), nr::pread64, args);
        s.pread(fd, 20, 4085);
    }
    s.pwrite(fd, "written", 100);
    s.raw("seen", nr::pwrite64, [out as usize, shared + 98, 12, 0, 0, 0]);
    s.pread(out, 12, 0);
    let (reader, writer) = (s.open("f", RD, 0), s.open("f", WR, 0));
    let (folder, only) = (s.open("", RD, 0), s.open("f", PATH, 0));
    map(s, "reader shared write", reader, 4096, 3, 1);
    map(s, "reader private write", reader, 4096, 3, 2);
    map(s, "reader shared read", reader, 4096, 1, 1);
    map(s, "writer", writer, 4096, 2, 1);
    map(s, "directory", folder, 4096, 1, 2);
    map(s, "path only", only, 4096, 1, 2);
    map(s, "no type", fd, 4096, 1, 0);
    map(s, "no length", fd, 0, 1, 1);
    map(s, "odd offset", fd, 4096, 1, 1);
    s.close(fd);
    s.on(nr::unlink, "f", 0, 0);
    s.raw("after unlink", nr::pwrite64, [out as usize, shared + 98, 12, 0, 0, 0]);
    s.pread(out, 12, 0);
}
