//! Checks the command before anything starts, so that one that cannot run is refused in one line.
//!
//! ```text
//!   typed --PATH--> file --first bytes--> ELF (class, whole, interpreter) | script | something
//! ```
//!
//! The runtime looks again inside the image and has the last word; this look only knows the host.
//! A set-user-ID program cannot run inside an image (the host would refuse it the image's memory,
//! or hand a stranger's memory to it): it runs natively, with a note.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use husk_proto::image::Cover;
use rustix::fs::{Access, access};

use crate::output::failure::{Failure, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND};
use crate::run::request::{MountPlan, reason};

/// What `execvp` searches when `PATH` is not set.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of the program headers that are looked at, at most.
const HEADERS_BYTES_MAX: usize = 64 << 10;
/// `#!` lines are cut here by Linux.
const SCRIPT_LINE_BYTES_MAX: usize = 256;
/// What is said of a command with a blank that is not there: it may be several words.
const WORDS: &str = "leave out the quotes around the whole command, or write: sh -c 'COMMAND'";
const ELF_HEADER_BYTES: usize = 64;
const ELF_CLASS_64: u8 = 2;
const ELF_MACHINE_X86_64: u16 = 62;
const PROGRAM_HEADER_BYTES: usize = 56;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const SET_ID_BITS: u32 = 0o6000;

/// How the command will run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// In the image; the file that was found on the host.
    Image(PathBuf),
    /// On the host, outside: it is set-user-ID or set-group-ID.
    Native(PathBuf),
}

/// Finds and checks the command.
pub fn look(typed: &OsStr, mounts: &[MountPlan]) -> Result<Program, Failure> {
    let path = find(typed, mounts)?;
    let what = format!("cannot run {}", path.display());
    let refuse = |why: &str, remedy: &str| {
        Failure::new(what.as_str(), why, remedy).with_status(STATUS_NOT_EXECUTABLE)
    };
    let found = fs::metadata(&path).map_err(|problem| refuse(&reason(&problem), "check it"))?;
    if found.is_dir() {
        return Err(refuse("it is a directory", "name a program"));
    }
    if !found.is_file() {
        return Err(refuse("it is not a regular file", "name a program"));
    }
    if access(&path, Access::EXEC_OK).is_err() {
        return Err(refuse("permission denied", "name a program whose mode lets you run it"));
    }
    if found.mode() & SET_ID_BITS != 0 {
        return Ok(Program::Native(path));
    }
    // A program that may be run and not read is the host's to judge.
    if let Ok(file) = File::open(&path) {
        check_format(&file, found.len(), &refuse)?;
    }
    Ok(Program::Image(path))
}

/// Whether the host gives a program other rights than its caller's: then it runs natively.
pub fn gains_rights(path: &Path) -> bool {
    const GROUP_AND_EXECUTE: u32 = 0o2010;
    let gains = |mode: u32| mode & 0o4000 != 0 || mode & GROUP_AND_EXECUTE == GROUP_AND_EXECUTE;
    let bits = fs::metadata(path).is_ok_and(|found| gains(found.mode()));
    bits || rustix::fs::getxattr(path, c"security.capability", &mut [0; 0][..]).is_ok_and(|n| n > 0)
}

/// What the user is told of such a program.
pub fn native_note(path: &Path) -> String {
    let path = path.display();
    let why = "is set-user-ID, set-group-ID or has capabilities";
    format!("note: {path} {why}: it runs natively, outside the image")
}

/// What the user is told of one where what lies outside is read-only.
pub fn plain_note(path: &Path) -> String {
    let path = path.display();
    format!("note: {path} gets no rights of its own: --read-only-outside")
}

/// The file `typed` names, as `execvp` finds it.
fn find(typed: &OsStr, mounts: &[MountPlan]) -> Result<PathBuf, Failure> {
    let missing = |why: &str, remedy: &str| {
        let what = format!("cannot run {}", typed.to_string_lossy());
        Failure::new(what, why, remedy).with_status(STATUS_NOT_FOUND)
    };
    if typed.is_empty() {
        return Err(missing("the name is empty", "name a program"));
    }
    if typed.as_bytes().contains(&b'/') {
        let path = PathBuf::from(typed);
        if let Some(mount) = hidden_by(&path, mounts) {
            let why = format!("{} is empty inside the image", mount.display());
            let remedy =
                format!("move it elsewhere, or add --overlay {} --overlay .", mount.display());
            return Err(missing(&why, &remedy));
        }
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(problem) if problem.kind() == std::io::ErrorKind::PermissionDenied => {
                let refused = missing("permission denied", "check the modes of its directories");
                Err(refused.with_status(STATUS_NOT_EXECUTABLE))
            }
            Err(problem) => {
                let blank = typed.as_bytes().contains(&b' ');
                let refused =
                    missing(&reason(&problem), if blank { WORDS } else { "check the path" });
                let there = problem.kind() != std::io::ErrorKind::NotFound;
                Err(if there { refused.with_status(STATUS_NOT_EXECUTABLE) } else { refused })
            }
        };
    }
    let blank = typed.as_bytes().contains(&b' ');
    let remedy = if blank { WORDS } else { "check the name, or give its path" };
    search(typed).ok_or_else(|| missing("not found in PATH", remedy))
}

/// First executable file in `PATH`, else the first that is there.
fn search(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let found = || {
        env::split_paths(&path)
            .map(|directory| match directory.as_os_str().is_empty() {
                true => Path::new(".").join(name),
                false => directory.join(name),
            })
            .filter(|candidate| candidate.is_file())
    };
    found().find(|candidate| access(candidate, Access::EXEC_OK).is_ok()).or_else(|| found().next())
}

/// The memory mount that hides `path` from the image, if one does.
fn hidden_by<'a>(path: &Path, mounts: &'a [MountPlan]) -> Option<&'a Path> {
    let directory = fs::canonicalize(path.parent()?.join("")).or_else(|_| env::current_dir());
    let directory = directory.ok()?;
    let deepest = mounts
        .iter()
        .filter(|mount| directory.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.as_os_str().len())?;
    (deepest.cover == Cover::Memory).then_some(&deepest.path)
}

type Refuse<'a> = dyn Fn(&str, &str) -> Failure + 'a;

fn check_format(file: &File, size: u64, refuse: &Refuse<'_>) -> Result<(), Failure> {
    let mut head = [0; SCRIPT_LINE_BYTES_MAX];
    let got = file.read_at(&mut head, 0).map_err(|p| refuse(&reason(&p), "check the file"))?;
    let head = &head[..got];
    if head.starts_with(b"#!") {
        return check_script(head, refuse);
    }
    if head.starts_with(b"\x7fELF") {
        return check_elf(file, head, size, refuse);
    }
    // A shell would run it by itself; the host would not.
    if !head.is_empty() && !head.contains(&0) {
        return Err(refuse("it is a script without a #! line", "add one, or write: sh SCRIPT"));
    }
    Ok(())
}

fn check_script(head: &[u8], refuse: &Refuse<'_>) -> Result<(), Failure> {
    let line = head[2..].split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len());
    let interpreter = Path::new(OsStr::from_bytes(&line[..end]));
    check_interpreter(interpreter, "correct its first line", refuse)
}

fn check_interpreter(path: &Path, remedy: &str, refuse: &Refuse<'_>) -> Result<(), Failure> {
    let shown = path.display();
    if !path.is_file() {
        let missing = refuse(&format!("its interpreter {shown} is missing"), remedy);
        return Err(missing.with_status(STATUS_NOT_FOUND));
    }
    if access(path, Access::EXEC_OK).is_err() {
        return Err(refuse(&format!("its interpreter {shown} is not executable"), remedy));
    }
    Ok(())
}

fn check_elf(file: &File, head: &[u8], size: u64, refuse: &Refuse<'_>) -> Result<(), Failure> {
    let truncated = || refuse("the file is truncated", "build or copy it again");
    if head.len() < ELF_HEADER_BYTES {
        return Err(truncated());
    }
    if head[4] != ELF_CLASS_64 || u16_at(head, 18) != Some(ELF_MACHINE_X86_64) {
        let remedy = "build it for x86-64";
        return Err(refuse("it is not a 64-bit x86-64 program", remedy));
    }
    let (offset, count) = (u64_at(head, 32), u16_at(head, 56).map(usize::from));
    let (Some(offset), Some(count)) = (offset, count) else { return Err(truncated()) };
    let mut headers = vec![0; (count * PROGRAM_HEADER_BYTES).min(HEADERS_BYTES_MAX)];
    file.read_exact_at(&mut headers, offset).map_err(|_| truncated())?;
    for header in headers.chunks_exact(PROGRAM_HEADER_BYTES) {
        check_program_header(file, header, size, &truncated, refuse)?;
    }
    Ok(())
}

fn check_program_header(
    file: &File,
    header: &[u8],
    size: u64,
    truncated: &dyn Fn() -> Failure,
    refuse: &Refuse<'_>,
) -> Result<(), Failure> {
    let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let (Some(offset), Some(length)) = (u64_at(header, 8), u64_at(header, 32)) else {
        return Err(truncated());
    };
    if matches!(kind, PT_LOAD | PT_INTERP) && offset.checked_add(length).is_none_or(|e| e > size) {
        return Err(truncated());
    }
    if kind != PT_INTERP || length == 0 || length > 4096 {
        return Ok(());
    }
    let mut path = vec![0; length as usize];
    file.read_exact_at(&mut path, offset).map_err(|_| truncated())?;
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(path));
    check_interpreter(path, "install the C library it was built for", refuse)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn failure(path: &Path) -> Failure {
        look(path.as_os_str(), &[]).unwrap_err()
    }

    #[test]
    fn a_program_of_the_host_is_found_in_path() {
        let Program::Image(path) = look(OsStr::new("sh"), &[]).unwrap() else {
            panic!("sh is not set-user-ID")
        };
        assert!(path.is_absolute() && path.ends_with("sh"));
    }

    #[test]
    fn what_cannot_run_says_why_with_the_status_env_gives() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        std::os::unix::fs::symlink("loop", at.join("loop")).unwrap();
        let cases: [(PathBuf, u8, &str); 9] = [
            (at.join("none"), 127, "no such file"),
            (at.join("loop"), 126, "too many levels of symbolic links"),
            (file(at, "file", b"", 0o755).join("none"), 126, "not a directory"),
            (at.to_owned(), 126, "directory"),
            (file(at, "plain", b"#!/bin/sh\n", 0o644), 126, "permission denied"),
            (file(at, "short", b"\x7fELF\x02\x01", 0o755), 126, "truncated"),
            (file(at, "script", b"#! /no/such/shell -e\n", 0o755), 127, "/no/such/shell"),
            (file(at, "elf32", &elf(1), 0o755), 126, "64-bit"),
            (file(at, "cut", &elf(2), 0o755), 126, "truncated"),
        ];
        for (path, status, why) in cases {
            let failure = failure(&path);
            assert_eq!(failure.status, status, "{failure}");
            assert!(failure.to_string().contains(why), "{failure}");
            assert_eq!(failure.to_string().lines().count(), 1);
        }
        assert_eq!(failure(Path::new("no-such-program-anywhere")).status, 127);
    }

    /// An ELF header that promises a program header behind the end of the file.
    fn elf(class: u8) -> Vec<u8> {
        let mut head = vec![0; ELF_HEADER_BYTES];
        head[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        head[18] = 62;
        head[32] = 64;
        head[56] = 1;
        head
    }

    #[test]
    fn a_set_user_id_program_runs_natively() {
        let scratch = tempfile::tempdir().unwrap();
        let path = file(scratch.path(), "su", b"#!/bin/sh\n", 0o4755);
        assert_eq!(look(path.as_os_str(), &[]), Ok(Program::Native(path)));
    }

    #[test]
    fn a_program_below_a_memory_mount_is_not_there() {
        let scratch = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(scratch.path()).unwrap();
        let path = file(&real, "tool", b"#!/bin/sh\n", 0o755);
        let mounts = [MountPlan { path: real.clone(), cover: Cover::Memory }];
        let hidden = look(path.as_os_str(), &mounts).unwrap_err();
        assert!(hidden.to_string().contains("empty inside the image"), "{hidden}");
    }
}
