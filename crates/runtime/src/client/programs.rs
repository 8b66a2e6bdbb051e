//! Programs: opened, described, known again, read and mapped.

use crate::memory::guard;
use crate::thread::client::ThreadClient;
use core::ffi::CStr;
use husk_abi::memory::{MAP_FIXED, MAP_PRIVATE};
use husk_abi::{Errno, PATH_MAX, nr};
use husk_client::{ExecTarget, Program};
use husk_host::{calls, syscall};
use husk_proto::descriptor::Descriptors;
use husk_proto::fs::HostIdentity;
use husk_proto::process::Processes;
use husk_proto::{Inode, Shortcuts as _};

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

/// Maps a host file's bytes at a fixed place inside a reserved span.
pub fn map_host(
    fd: usize,
    start: usize,
    length: usize,
    prot: usize,
    offset: usize,
) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_FIXED;
    // SAFETY: inside the reserved span.
    unsafe { calls::raw(nr::mmap, [start, length, prot, flags, fd, offset]) }.map(|_| ())
}

impl ThreadClient {
    /// Opens a program by path, as the loader does.
    pub fn open_program(&mut self, path: &CStr) -> Result<Program, Errno> {
        self.open_to_execute(calls::AT_FDCWD, path.to_bytes_with_nul(), 0)
    }

    /// Opens the program that the process record names, as the loader does.
    #[cold]
    pub fn open_running(&mut self) -> Result<Program, Errno> {
        let _open = guard::open();
        self.served().ok_or(Errno::ENOENT)?.open_running()
    }

    /// Opens an interpreter: directly, when this image knows that its path leads into no tree.
    pub fn open_interpreter(&mut self, path: &CStr) -> Result<Program, Errno> {
        const EXECUTABLE_FILE: u32 = 0o100_111;
        if self.known_outside(path.to_bytes()) {
            let fd = calls::open(path)?;
            let stat = stat_or_close(fd)?;
            if stat.mode & (S_IFMT | 0o111) == EXECUTABLE_FILE {
                return Ok(described(fd, &stat));
            }
            calls::close(fd);
        }
        self.open_program(path)
    }

    fn known_outside(&mut self, path: &[u8]) -> bool {
        let _open = guard::open();
        self.served().is_some_and(|served| served.services().known_outside(path))
    }

    /// Opens what `execveat(at, path, flags)` names; `path` ends with NUL.
    pub fn open_to_execute(
        &mut self,
        at: usize,
        path: &[u8],
        flags: usize,
    ) -> Result<Program, Errno> {
        let _open = guard::open();
        let address = path.as_ptr() as usize;
        match self.served() {
            Some(served) => served.open_program(at as i32, address, flags as u32),
            None => host_program(at, path, flags),
        }
    }

    /// Whether an open descriptor is closed by exec.
    pub fn closes_on_exec(&mut self, fd: u32) -> bool {
        const F_GETFD: usize = 1;
        let _open = guard::open();
        let known = self.served().and_then(|served| {
            let services = served.services();
            let files = services.files();
            services.close_on_exec(files, fd).ok()
        });
        // SAFETY: passes no memory.
        let hosts = || unsafe { syscall(nr::fcntl, [fd as usize, F_GETFD, 0, 0, 0, 0]) } & 1 != 0;
        known.unwrap_or_else(hosts)
    }

    /// The real path of the program just opened, or `given`.
    pub fn path_of(&mut self, program: &Program, given: &[u8], out: &mut [u8; PATH_MAX]) {
        let found = self.client.as_ref().map_or(&b""[..], |c| c.program_text(program));
        if let (true, ExecTarget::Host(fd)) = (found.is_empty(), program.target) {
            let length = descriptor_path(fd as usize, &mut out[..PATH_MAX - 1]);
            out[length] = 0;
            if length > 0 {
                return;
            }
        }
        let text = if found.is_empty() { given } else { found };
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len()).min(PATH_MAX - 1);
        out[..end].copy_from_slice(&text[..end]);
        out[end] = 0;
    }

    /// Whether a real path lies outside every tree of the image.
    pub fn outside_mounts(&mut self, path: &[u8]) -> bool {
        let _open = guard::open();
        let Some(served) = self.served() else { return true };
        let services = served.services();
        (0..services.mounts()).all(|i| {
            let rest = path.strip_prefix(services.mount(i).path);
            !rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// Whether what lies outside them is read-only.
    pub fn outside_is_sealed(&mut self) -> bool {
        let _open = guard::open();
        self.served().is_some_and(|served| served.services().outside_is_sealed())
    }

    /// This process runs a file from now on, to which nobody can write then; what it ran before.
    pub fn set_program(&mut self, inode: Option<Inode>) -> Result<Option<Inode>, Errno> {
        let _open = guard::open();
        self.served().map_or(Ok(None), |served| served.services().set_program(inode))
    }

    /// Reads a program's bytes.
    pub fn read_program(
        &mut self,
        program: &Program,
        out: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => calls::pread(fd as usize, out, offset),
            (_, Some(served)) => served.read_program(program, offset, out),
            _ => Err(Errno::EBADF),
        }
    }

    /// Maps a program's bytes at a fixed place inside a reserved span.
    pub fn map_file(
        &mut self,
        program: &Program,
        start: usize,
        length: usize,
        prot: usize,
        offset: usize,
    ) -> Result<(), Errno> {
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => map_host(fd as usize, start, length, prot, offset),
            (_, Some(served)) => {
                let length = length.next_multiple_of(husk_abi::PAGE);
                let flags = MAP_PRIVATE | MAP_FIXED;
                served.map_program(program, start, length, prot, flags, offset as u64)?;
                self.keep_noted()
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Lets a program go.
    pub fn close_program(&mut self, program: Program) {
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => calls::close(fd as usize),
            (_, Some(served)) => served.close_program(program),
            _ => {}
        }
    }
}
