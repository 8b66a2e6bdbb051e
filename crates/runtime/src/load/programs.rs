//! Files of the host that are programs: opened, described, known again.

use crate::client::glue::{ExecTarget, Program};
use core::ffi::CStr;
use husk_abi::{Errno, nr};
use husk_host::calls;
use husk_proto::fs::HostIdentity;

/// What the segments of a program are mapped from.
pub struct Source {
    /// A file with its bytes.
    pub program: Program,
    /// Where they lie in that file as they do in memory, from the `HUGE_BYTES` on in which the
    /// first address is; `None`: by offset.
    pub gathered: Option<usize>,
    /// Whether the file was opened for this and is to be closed.
    pub opened: bool,
}

impl Source {
    pub fn itself(program: &Program) -> Source {
        Source { program: *program, gathered: None, opened: false }
    }
}

/// The real path of an open descriptor; its length, 0 = unknown.
pub fn descriptor_path(fd: usize, out: &mut [u8]) -> usize {
    let link = husk_abi::proc::descriptor(fd as u32);
    let args = [link.as_ptr() as usize, out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
    // SAFETY: a path with NUL and a buffer with its length.
    unsafe { calls::raw(nr::readlink, args) }.unwrap_or(0)
}

/// Opens a host file that has been found and checked before.
pub fn open_host(path: &CStr) -> Result<Program, Errno> {
    let fd = calls::open(path)?;
    Ok(described(fd, &stat_or_close(fd)?))
}

/// What the host says of an open file, which is closed where it says nothing.
pub fn stat_or_close(fd: usize) -> Result<calls::Stat, Errno> {
    calls::fstat(fd).inspect_err(|_| calls::close(fd))
}

/// The program that an open file is.
pub fn described(fd: usize, stat: &calls::Stat) -> Program {
    Program {
        unreadable: false,
        target: ExecTarget::Host(fd as u32),
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size as u64,
        identity: Some(identity_of(stat)),
        inode: None,
        path_length: 0,
    }
}

/// The bits of a mode that say the kind.
pub const S_IFMT: u32 = 0o170000;

/// Opens what `execveat(at, path, flags)` names, without an image.
pub fn host_program(at: usize, path: &[u8], flags: usize) -> Result<Program, Errno> {
    const X_OK: usize = 1;
    const AT_EACCESS: usize = 0x200;
    const AT_EMPTY_PATH: usize = 0x1000;
    const F_DUPFD_CLOEXEC: usize = 1030;
    const O_CLOEXEC: usize = 0o2000000;
    const S_IFREG: u32 = 0o100000;
    // SAFETY: the caller's path ends with NUL.
    let fd = unsafe {
        let address = path.as_ptr() as usize;
        calls::raw(nr::faccessat2, [at, address, X_OK, AT_EACCESS | flags, 0, 0])?;
        if path[0] == 0 && flags & AT_EMPTY_PATH != 0 {
            calls::raw(nr::fcntl, [at, F_DUPFD_CLOEXEC, 0, 0, 0, 0])?
        } else {
            calls::raw(nr::openat, [at, address, O_CLOEXEC, 0, 0, 0])?
        }
    };
    match calls::fstat(fd) {
        Ok(stat) if stat.mode & S_IFMT == S_IFREG => Ok(described(fd, &stat)),
        other => {
            calls::close(fd);
            Err(other.err().unwrap_or(Errno::EACCES))
        }
    }
}

/// The identity of an open host file.
pub fn identity(fd: usize) -> Option<HostIdentity> {
    Some(identity_of(&calls::fstat(fd).ok()?))
}

/// Which bytes of which file.
pub fn identity_of(stat: &calls::Stat) -> HostIdentity {
    let ns = |time: [i64; 2]| time[0] * 1_000_000_000 + time[1];
    HostIdentity {
        device: stat.device,
        inode: stat.inode,
        size: stat.size as u64,
        modified_ns: ns(stat.modified),
        changed_ns: ns(stat.changed),
    }
}
