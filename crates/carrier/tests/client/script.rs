//! Calls in a row with everything they answer written down, to compare two systems.

use super::system::System;
use husk_abi::{Errno, nr};

pub const CWD: i32 = -100;
pub const RD: usize = 0;
pub const WR: usize = 1;
pub const RW: usize = 2;
pub const CREAT: usize = 0o100;
pub const EXCL: usize = 0o200;
pub const TRUNC: usize = 0o1000;
pub const APPEND: usize = 0o2000;
pub const DIRECTORY: usize = 0o200000;
pub const NOFOLLOW: usize = 0o400000;
pub const CLOEXEC: usize = 0o2000000;
pub const PATH: usize = 0o10000000;
pub const TMPFILE: usize = 0o20200000;

/// A script in the making.
pub struct Script<'a> {
    system: &'a mut dyn System,
    root: String,
    pub log: Vec<String>,
}

fn text(value: i64) -> String {
    if (-4095..0).contains(&value) {
        format!("{:?}", Errno(-value as i32))
    } else {
        value.to_string()
    }
}

impl<'a> Script<'a> {
    pub fn new(system: &'a mut dyn System, root: &str) -> Self {
        Script { system, root: root.to_string(), log: Vec::new() }
    }

    /// A path as the kernel takes it: below the root, unless it starts with `=` (as it is).
    pub fn path(&self, path: &str) -> Vec<u8> {
        let mut bytes = match path.strip_prefix('=') {
            Some(plain) => plain.as_bytes().to_vec(),
            None => format!("{}/{path}", self.root).into_bytes(),
        };
        bytes.push(0);
        bytes
    }

    /// A call whose result is written down.
    pub fn raw(&mut self, what: &str, number: usize, args: [usize; 6]) -> i64 {
        let result = self.system.call(number, args);
        self.log.push(format!("{what} = {}", text(result)));
        result
    }

    /// A call whose result is not comparable.
    pub fn quiet(&mut self, number: usize, args: [usize; 6]) -> i64 {
        self.system.call(number, args)
    }

    pub fn note(&mut self, what: String) {
        self.log.push(what);
    }

    pub fn open(&mut self, path: &str, flags: usize, mode: usize) -> i64 {
        self.openat(CWD, path, flags, mode)
    }

    pub fn openat(&mut self, dir: i32, path: &str, flags: usize, mode: usize) -> i64 {
        let bytes = self.path(path);
        let args = [dir as usize, bytes.as_ptr() as usize, flags, mode, 0, 0];
        self.raw(&format!("open {dir} {path} {flags:o} {mode:o}"), nr::openat, args)
    }

    pub fn close(&mut self, fd: i64) -> i64 {
        self.raw(&format!("close {fd}"), nr::close, [fd as usize, 0, 0, 0, 0, 0])
    }

    /// Makes a file with this content.
    pub fn file(&mut self, path: &str, content: &str) {
        let fd = self.open(path, WR | CREAT | TRUNC, 0o644);
        self.write(fd, content);
        self.close(fd);
    }

    pub fn write(&mut self, fd: i64, content: &str) -> i64 {
        let args = [fd as usize, content.as_ptr() as usize, content.len(), 0, 0, 0];
        self.raw(&format!("write {fd} {}", content.len()), nr::write, args)
    }

    pub fn pwrite(&mut self, fd: i64, content: &str, at: usize) -> i64 {
        let args = [fd as usize, content.as_ptr() as usize, content.len(), at, 0, 0];
        self.raw(&format!("pwrite {fd} {} {at}", content.len()), nr::pwrite64, args)
    }

    pub fn read(&mut self, fd: i64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; length];
        let args = [fd as usize, bytes.as_mut_ptr() as usize, length, 0, 0, 0];
        let count = self.raw(&format!("read {fd} {length}"), nr::read, args);
        bytes.truncate(count.max(0) as usize);
        self.log.push(format!("  {:?}", String::from_utf8_lossy(&bytes)));
        bytes
    }

    pub fn pread(&mut self, fd: i64, length: usize, at: usize) {
        let mut bytes = vec![0u8; length];
        let args = [fd as usize, bytes.as_mut_ptr() as usize, length, at, 0, 0];
        let count = self.raw(&format!("pread {fd} {length} {at}"), nr::pread64, args);
        bytes.truncate(count.max(0) as usize);
        self.log.push(format!("  {:?}", String::from_utf8_lossy(&bytes)));
    }

    /// Shows a whole file.
    pub fn show(&mut self, path: &str) {
        let fd = self.open(path, RD, 0);
        if fd >= 0 {
            self.read(fd, 4096);
            self.close(fd);
        }
    }

    pub fn seek(&mut self, fd: i64, by: i64, whence: usize) -> i64 {
        let args = [fd as usize, by as usize, whence, 0, 0, 0];
        self.raw(&format!("lseek {fd} {by} {whence}"), nr::lseek, args)
    }

    /// Mode, links, owner, size of what a path names.
    pub fn stat(&mut self, path: &str) {
        self.fstatat(CWD, path, 0);
    }

    pub fn lstat(&mut self, path: &str) {
        self.fstatat(CWD, path, 0x100);
    }

    pub fn fstatat(&mut self, dir: i32, path: &str, flags: usize) {
        let bytes = self.path(path);
        let mut out = [0u8; 144];
        let args = [dir as usize, bytes.as_ptr() as usize, out.as_mut_ptr() as usize, flags, 0, 0];
        let result = self.raw(&format!("stat {dir} {path} {flags:x}"), nr::newfstatat, args);
        if result == 0 {
            self.log.push(shape(&out));
        }
    }

    pub fn fstat(&mut self, fd: i64) {
        let mut out = [0u8; 144];
        let args = [fd as usize, out.as_mut_ptr() as usize, 0, 0, 0, 0];
        if self.raw(&format!("fstat {fd}"), nr::fstat, args) == 0 {
            self.log.push(shape(&out));
        }
    }

    /// A call with one path and up to two numbers.
    pub fn on(&mut self, number: usize, path: &str, a: usize, b: usize) -> i64 {
        let bytes = self.path(path);
        let what = format!("{} {path} {a:o} {b:o}", nr::name(number));
        self.raw(&what, number, [bytes.as_ptr() as usize, a, b, 0, 0, 0])
    }

    /// A call with two paths and a number.
    pub fn both(&mut self, number: usize, source: &str, target: &str) -> i64 {
        let (s, t) = (self.path(source), self.path(target));
        let what = format!("{} {source} {target}", nr::name(number));
        self.raw(&what, number, [s.as_ptr() as usize, t.as_ptr() as usize, 0, 0, 0, 0])
    }

    pub fn rename2(&mut self, source: &str, target: &str, flags: usize) -> i64 {
        let (s, t) = (self.path(source), self.path(target));
        let cwd = CWD as usize;
        let args = [cwd, s.as_ptr() as usize, cwd, t.as_ptr() as usize, flags, 0];
        self.raw(&format!("renameat2 {source} {target} {flags}"), nr::renameat2, args)
    }

    /// `target` is stored as it is.
    pub fn symlink(&mut self, target: &str, path: &str) -> i64 {
        let (t, p) = (self.path(&format!("={target}")), self.path(path));
        let args = [t.as_ptr() as usize, p.as_ptr() as usize, 0, 0, 0, 0];
        self.raw(&format!("symlink {target} {path}"), nr::symlink, args)
    }

    pub fn readlink(&mut self, path: &str, room: usize) {
        let bytes = self.path(path);
        let mut out = vec![0u8; room];
        let args = [bytes.as_ptr() as usize, out.as_mut_ptr() as usize, room, 0, 0, 0];
        let length = self.raw(&format!("readlink {path} {room}"), nr::readlink, args);
        out.truncate(length.max(0) as usize);
        let shown = String::from_utf8_lossy(&out).replace(&self.root, "ROOT");
        self.log.push(format!("  {shown}"));
    }

    pub fn mkdir(&mut self, path: &str) -> i64 {
        self.on(nr::mkdir, path, 0o755, 0)
    }

    /// Sorted names and types of a directory.
    pub fn list(&mut self, path: &str) {
        let fd = self.open(path, RD | DIRECTORY, 0);
        if fd < 0 {
            return;
        }
        let mut names = Vec::new();
        let mut out = vec![0u8; 512];
        for _ in 0..1000 {
            let args = [fd as usize, out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
            let length = self.quiet(nr::getdents64, args);
            if length <= 0 {
                names.push(format!("end {}", text(length)));
                break;
            }
            let mut at = 0;
            while at < length as usize {
                let size = usize::from(u16::from_le_bytes([out[at + 16], out[at + 17]]));
                let name = &out[at + 19..at + size];
                let end = name.iter().position(|&b| b == 0).expect("an end");
                names.push(format!("{} {}", String::from_utf8_lossy(&name[..end]), out[at + 18]));
                at += size;
            }
        }
        names.sort();
        self.log.push(format!("  {names:?}"));
        self.close(fd);
    }

    pub fn getcwd(&mut self, room: usize) {
        let mut out = vec![0u8; room];
        let args = [out.as_mut_ptr() as usize, room, 0, 0, 0, 0];
        let result = self.quiet(nr::getcwd, args);
        let shown = if result > 0 {
            String::from_utf8_lossy(&out[..result as usize - 1]).replace(&self.root, "ROOT")
        } else {
            text(result)
        };
        self.log.push(format!("getcwd {room} = {shown}"));
    }

    pub fn fd(&mut self, number: usize, fd: i64, a: usize, b: usize) -> i64 {
        let what = format!("{} {fd} {a:x} {b:x}", nr::name(number));
        self.raw(&what, number, [fd as usize, a, b, 0, 0, 0])
    }
}

fn shape(out: &[u8; 144]) -> String {
    let word = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().expect("four"));
    let long = |at: usize| u64::from_le_bytes(out[at..at + 8].try_into().expect("eight"));
    let mode = word(24);
    let size = if mode & 0o170000 == 0o040000 { 0 } else { long(48) };
    format!("  mode {mode:o} links {} uid {} gid {} size {size}", long(16), word(28), word(32))
}
