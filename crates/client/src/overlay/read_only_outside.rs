//! `--read-only-outside`: calls that would change the host outside the trees fail with `EROFS`.
//!
//! ```text
//!   handler ─► the host is to do it ─► sealed? ─► would it change something? ─► EROFS
//!                                        no │           │ no: `/proc/PID`, a terminal, a device
//!                                           └───────────┴─► the host
//! ```
//!
//! What a text leads to is asked from the host, by a descriptor that is only a place (`O_PATH`),
//! and judged by the real path behind it, so that links, `..` and `/proc/self/fd` make no
//! difference. Errors that Linux finds before it looks whether it may write come first: a file that
//! is missing, a name that is taken.
//!
//! Invariants
//! 1. Nothing here costs an image that is not sealed more than one look at a word, on the way to a
//!    call of the host that changes something.
//! 2. A descriptor that is open for writing keeps what it was opened for: it was inherited, or
//!    leads to what may be written to.
//!
//! This is a net, not a border: a program that changes a path between this look and the host's
//! gets past it. Behind it the runtime puts Landlock, where the host has it (`husk_runtime`).

use crate::layout::{STAT_MODE_AT, get32};
use crate::path::Base;
use crate::path::magic_links::Proc;
use crate::{Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, F_GETFL, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL,
    O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC, PROC_SUPER_MAGIC, S_IFBLK, S_IFDIR, S_IFMT,
    S_IFREG,
};
use husk_proto::{Errno, Result, Services};

const HERE: usize = AT_FDCWD as usize;
/// `open_tree`'s wish for a mount of its own.
const OPEN_TREE_CLONE: usize = 1;
/// `bpf`'s command that makes a name.
const BPF_OBJ_PIN: usize = 6;
/// `W_OK`.
const WANTS_WRITE: usize = 2;
/// Types of `ioctl` requests that change attributes of files, or whole file systems: `f`, `X`, and
/// that of btrfs.
const CHANGING_TYPES: [u32; 3] = [0x66, 0x58, 0x94];
/// Of these, what only looks: `FS_IOC_GETFLAGS` (and that of 32 bits), `FS_IOC_FIEMAP`,
/// `FS_IOC_FSGETXATTR`, `FS_IOC_GETFSLABEL`, `FS_IOC_MEASURE_VERITY`.
const LOOKING: [u32; 6] =
    [0x8008_6601, 0x8004_6601, 0xc020_660b, 0x801c_581f, 0x8100_9431, 0xc004_6686];
/// `FS_IOC_SETVERSION`.
const SETVERSION: u32 = 0x4008_7602;

/// An object of the host.
#[derive(Clone, Copy)]
struct Object {
    kind: u32,
    /// No file outside: it may be written to, and its attributes changed.
    free: bool,
}

impl Object {
    /// What Linux refuses to open for writing in a file system that is read-only. Bytes written to
    /// a disk are as good as bytes written to its files.
    fn holds_bytes(self) -> bool {
        !self.free && matches!(self.kind, S_IFREG | S_IFBLK)
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// What a handler has answered: `EROFS` instead, if the host is to change what is sealed.
    #[inline(always)]
    pub(crate) fn sealed(&mut self, c: &Call, answer: Answer) -> Answer {
        match answer {
            Ok(Verdict::Pass | Verdict::PassThen(_)) if self.services.outside_is_sealed() => {
                self.may_pass(c)?;
                answer
            }
            other => other,
        }
    }

    /// Whether the host may make a call with the application's arguments, or with texts of ours.
    #[cold]
    #[inline(never)]
    pub(crate) fn may_pass(&mut self, c: &Call) -> Result<()> {
        let a = &c.args;
        match c.number {
            nr::chmod | nr::chown | nr::utime | nr::utimes => self.may_change(HERE, a[0], true),
            nr::truncate => self.may_truncate(a[0]),
            nr::setxattr | nr::removexattr => self.may_change(HERE, a[0], true),
            nr::lchown | nr::lsetxattr | nr::lremovexattr => self.may_change(HERE, a[0], false),
            nr::fchmodat => self.may_change(a[0], a[1], true),
            nr::futimesat if a[1] == 0 => self.may_change_open(a[0]),
            nr::futimesat => self.may_change(a[0], a[1], true),
            nr::utimensat if a[1] == 0 => self.may_change_open(a[0]),
            nr::utimensat | nr::fchmodat2 => self.may_change_flagged(a[0], a[1], a[3]),
            nr::fchownat => self.may_change_flagged(a[0], a[1], a[4]),
            nr::setxattrat | nr::removexattrat => self.may_change_flagged(a[0], a[1], a[2]),
            nr::file_setattr => self.may_change_flagged(a[0], a[1], a[4]),
            nr::fchmod | nr::fchown | nr::fsetxattr | nr::fremovexattr => {
                self.may_change_open(a[0])
            }
            nr::ioctl if changes_attributes(a[1] as u32) => self.may_change_open(a[0]),
            nr::mkdir | nr::mknod => self.may_name(0, HERE, a[0]),
            nr::mkdirat | nr::mknodat => self.may_name(0, a[0], a[1]),
            nr::symlink => self.may_name(0, HERE, a[1]),
            nr::symlinkat => self.may_name(0, a[1], a[2]),
            nr::link => self.may_link((HERE, a[0]), (HERE, a[1]), 0),
            nr::linkat => self.may_link((a[0], a[1]), (a[2], a[3]), a[4]),
            nr::unlink | nr::rmdir => self.may_take(0, HERE),
            nr::unlinkat => self.may_take(0, a[0]),
            nr::rename => self.may_move(HERE, HERE),
            nr::renameat | nr::renameat2 => self.may_move(a[0], a[2]),
            nr::access if a[1] & WANTS_WRITE != 0 => self.may_say_writable(HERE, a[0], 0),
            nr::faccessat if a[2] & WANTS_WRITE != 0 => self.may_say_writable(a[0], a[1], 0),
            nr::faccessat2 if a[2] & WANTS_WRITE != 0 => self.may_say_writable(a[0], a[1], a[3]),
            nr::bpf if a[0] == BPF_OBJ_PIN => Err(Errno::EROFS),
            nr::open_tree if a[2] & OPEN_TREE_CLONE == 0 => Ok(()),
            nr::mount | nr::umount2 | nr::pivot_root | nr::move_mount | nr::mount_setattr => {
                Err(Errno::EPERM)
            }
            nr::open_tree | nr::fsopen | nr::fsmount | nr::fspick => Err(Errno::EPERM),
            nr::swapon | nr::swapoff | nr::acct | nr::quotactl | nr::quotactl_fd => {
                Err(Errno::EPERM)
            }
            nr::open_by_handle_at if writes(a[2] as u32) => Err(Errno::EROFS),
            _ => Ok(()),
        }
    }

    /// Whether the host may open what is at `path`, from `directory`, with these flags.
    #[inline(always)]
    pub(crate) fn may_open(&mut self, directory: usize, path: usize, flags: u32) -> Result<()> {
        match writes(flags) && self.services.outside_is_sealed() {
            true => self.may_open_to_write(directory, path, flags),
            false => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn may_open_to_write(&mut self, directory: usize, path: usize, flags: u32) -> Result<()> {
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        if follow && self.is_open_to_write(0) {
            return Ok(());
        }
        match self.object_at(directory, path, follow) {
            // It is there already, which is what the host says.
            Ok(_) if exclusive => Ok(()),
            Ok(object) if flags & O_TMPFILE == O_TMPFILE => {
                if object.kind == S_IFDIR {
                    Err(Errno::EROFS)
                } else {
                    Ok(())
                }
            }
            Ok(object) if opens_bytes(flags) && object.holds_bytes() => Err(Errno::EROFS),
            Ok(_) => Ok(()),
            Err(Errno::ENOENT) if flags & O_CREAT != 0 => self.may_change_names(0, directory),
            Err(errno) => Err(errno),
        }
    }

    /// Whether walk `w` is the link of a descriptor that this process has open for writing.
    fn is_open_to_write(&self, w: usize) -> bool {
        let Some((Proc::Fd(fd), rest)) = self.magic_name(w) else { return false };
        rest == self.buffers.walks[w].length && self.writes_through(fd as usize)
    }

    fn writes_through(&self, fd: usize) -> bool {
        let flags = self.host_fcntl(fd, F_GETFL, 0);
        flags >= 0 && flags as u32 & O_PATH == 0 && flags as u32 & O_ACCMODE != O_RDONLY
    }

    /// The same of a name where a walk with resolve flags stands.
    pub(crate) fn may_open_there(
        &mut self,
        directory: usize,
        name: usize,
        flags: u32,
    ) -> Result<()> {
        if !writes(flags) || !self.services.outside_is_sealed() {
            return Ok(());
        }
        let there = self.object_at(directory, name, false);
        match flags & O_CREAT != 0 && matches!(there, Err(Errno::ENOENT)) {
            true if self.object(directory)?.free => Ok(()),
            true => Err(Errno::EROFS),
            false => self.may_open_to_write(directory, name, flags),
        }
    }

    /// Whether a socket may be bound to a name of the host, whose text walk 0 has.
    pub(crate) fn may_bind(&mut self) -> Result<()> {
        if !self.services.outside_is_sealed() {
            return Ok(());
        }
        let path = self.buffers.walks[0].for_host();
        match self.may_name(0, HERE, path) {
            Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
            other => other,
        }
    }

    /// Whether attributes of what is at `path` may change.
    fn may_change(&mut self, directory: usize, path: usize, follow: bool) -> Result<()> {
        let object = self.object_at(directory, path, follow)?;
        if object.free { Ok(()) } else { Err(Errno::EROFS) }
    }

    fn may_truncate(&mut self, path: usize) -> Result<()> {
        match self.object_at(HERE, path, true)? {
            // What else there may be, the host refuses.
            Object { kind: S_IFREG, free: false } => Err(Errno::EROFS),
            _ => Ok(()),
        }
    }

    fn may_change_flagged(&mut self, directory: usize, path: usize, flags: usize) -> Result<()> {
        let flags = flags as u32;
        let ours = path == self.buffers.walks[0].text.as_ptr() as usize;
        let empty =
            flags & AT_EMPTY_PATH != 0 && !ours && (path == 0 || self.memory.peek(path)? == 0);
        match empty {
            true if directory as i32 == AT_FDCWD => {
                self.may_change(HERE, c".".as_ptr() as usize, true)
            }
            true if self.object(directory)?.free => Ok(()),
            true => Err(Errno::EROFS),
            false => self.may_change(directory, path, flags & AT_SYMLINK_NOFOLLOW == 0),
        }
    }

    /// Whether attributes of what a descriptor shows may change: not those of what is open for
    /// reading only.
    fn may_change_open(&mut self, fd: usize) -> Result<()> {
        let flags = self.host_fcntl(fd, F_GETFL, 0);
        let judged = flags >= 0 && flags as u32 & (O_PATH | O_ACCMODE) == O_RDONLY;
        match judged && !self.object(fd)?.free {
            true => Err(Errno::EROFS),
            false => Ok(()),
        }
    }

    /// `access` with `W_OK`.
    fn may_say_writable(&mut self, directory: usize, path: usize, flags: usize) -> Result<()> {
        let flags = flags as u32;
        if flags & AT_EMPTY_PATH != 0 {
            return self.may_change_flagged(directory, path, flags as usize);
        }
        let object = self.object_at(directory, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
        let sealed = object.holds_bytes() || !object.free && object.kind == S_IFDIR;
        if sealed { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Whether the host may make a name, which walk `w` has the text of.
    fn may_name(&mut self, w: usize, directory: usize, path: usize) -> Result<()> {
        match self.object_at(directory, path, false) {
            Ok(object) if object.free => Ok(()),
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => self.may_change_names(w, directory),
            Err(errno) => Err(errno),
        }
    }

    fn may_link(&mut self, from: (usize, usize), to: (usize, usize), flags: usize) -> Result<()> {
        // A descriptor needs no name to be there.
        if flags & AT_EMPTY_PATH as usize == 0 {
            self.object_at(from.0, from.1, false)?;
        }
        self.may_name(1, to.0, to.1)
    }

    /// Whether the host may take a name away, which walk `w` has the text of.
    fn may_take(&mut self, w: usize, directory: usize) -> Result<()> {
        // What is no name it refuses itself.
        if self.ends_in_dots(w) { Ok(()) } else { self.may_change_names(w, directory) }
    }

    fn may_move(&mut self, from: usize, to: usize) -> Result<()> {
        let from = self.may_take(0, from);
        match (from, self.may_take(1, to)) {
            (Err(Errno::EROFS), Ok(())) if self.ends_in_dots(1) => Ok(()),
            (Ok(()) | Err(Errno::EROFS), Err(errno)) if errno != Errno::EROFS => Err(errno),
            (from, to) => from.and(to),
        }
    }

    /// Whether walk `w` ends in no name.
    fn ends_in_dots(&self, w: usize) -> bool {
        let text = self.buffers.walks[w].whole();
        let last = text.split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
        last.is_none_or(|name| matches!(name, b"." | b".."))
    }

    /// Whether the directory of the name that walk `w` has the text of may get or lose names: what
    /// is wrong with it comes first.
    fn may_change_names(&mut self, w: usize, directory: usize) -> Result<()> {
        let end = self.buffers.walks[w].directory_length();
        let bare = !self.buffers.walks[w].whole().contains(&b'/');
        let base = Base { directory: directory as i32, joined: 0 };
        if bare {
            return Err(Errno::EROFS);
        }
        let fd = self.ask_at(w, end, base, |host, directory, name| {
            let flags = O_PATH | O_DIRECTORY | husk_abi::sys::general::O_CLOEXEC;
            host.call(nr::openat, [directory, name, flags as usize, 0, 0, 0])
        });
        let object = self.look_and_close(Errno::check(fd)? as usize)?;
        if object.free { Ok(()) } else { Err(Errno::EROFS) }
    }

    /// What the host has at `path`, from `directory`.
    fn object_at(&mut self, directory: usize, path: usize, follow: bool) -> Result<Object> {
        let flags = if follow { 0 } else { O_NOFOLLOW };
        let fd = self.open_place(directory, path, flags, 0)?;
        self.look_and_close(fd)
    }

    fn look_and_close(&mut self, fd: usize) -> Result<Object> {
        let object = self.object(fd);
        self.host_close(fd as u32);
        object
    }

    /// What a descriptor of the host shows.
    fn object(&mut self, fd: usize) -> Result<Object> {
        let kind = get32(&self.host_stat(fd)?, STAT_MODE_AT) & S_IFMT;
        Ok(Object { kind, free: self.is_free(fd)? })
    }

    /// Whether it is no file outside: nameless, a terminal, or of a process.
    fn is_free(&mut self, fd: usize) -> Result<bool> {
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd as u32, base);
        let length = Errno::check(length)? as usize;
        let path = &self.buffers.base[..length];
        if !path.starts_with(b"/") || path.starts_with(b"/memfd:") || path.starts_with(b"/dev/pts/")
        {
            return Ok(true);
        }
        let of_process = path.strip_prefix(b"/proc/").and_then(<[u8]>::first);
        Ok(of_process.is_some_and(u8::is_ascii_digit) && self.is_of_proc(fd))
    }

    fn is_of_proc(&self, fd: usize) -> bool {
        let mut about = [0u64; crate::layout::STATFS_BYTES / 8];
        let said = self.host.call(nr::fstatfs, [fd, about.as_mut_ptr() as usize, 0, 0, 0, 0]);
        said == 0 && core::hint::black_box(about)[0] == u64::from(PROC_SUPER_MAGIC)
    }

    /// Whether the host may make the call with the text of walk 0 in place of the path at `spot`.
    #[inline]
    pub(crate) fn may_call_elsewhere(&mut self, call: &Call) -> Result<()> {
        if self.services.outside_is_sealed() { self.may_pass(call) } else { Ok(()) }
    }
}

/// Whether a call may change something at the host, and goes there with a verdict.
pub(crate) const fn changes(number: usize) -> bool {
    matches!(
        number,
        nr::truncate
            | nr::ioctl
            | nr::access
            | nr::faccessat
            | nr::faccessat2
            | nr::chmod
            | nr::fchmod
            | nr::fchmodat
            | nr::fchmodat2
            | nr::chown
            | nr::lchown
            | nr::fchown
            | nr::fchownat
            | nr::utime
            | nr::utimes
            | nr::futimesat
            | nr::utimensat
            | nr::setxattr
            | nr::lsetxattr
            | nr::fsetxattr
            | nr::removexattr
            | nr::lremovexattr
            | nr::fremovexattr
            | nr::setxattrat
            | nr::removexattrat
            | nr::file_setattr
            | nr::mkdir
            | nr::mkdirat
            | nr::rmdir
            | nr::unlink
            | nr::unlinkat
            | nr::rename
            | nr::renameat
            | nr::renameat2
            | nr::link
            | nr::linkat
            | nr::symlink
            | nr::symlinkat
            | nr::mknod
            | nr::mknodat
            | nr::open_by_handle_at
            | nr::mount
            | nr::umount2
            | nr::pivot_root
            | nr::open_tree
            | nr::fspick
            | nr::move_mount
            | nr::mount_setattr
            | nr::swapon
            | nr::swapoff
            | nr::acct
            | nr::quotactl
            | nr::quotactl_fd
            | nr::fsopen
            | nr::fsmount
            | nr::bpf
    )
}

/// Whether an open with these flags may change something.
fn writes(flags: u32) -> bool {
    let tmpfile = O_TMPFILE & !O_DIRECTORY;
    flags & O_PATH == 0 && flags & (O_ACCMODE | O_TRUNC | O_CREAT | tmpfile) != O_RDONLY
}

/// Whether it may change bytes of what is there.
fn opens_bytes(flags: u32) -> bool {
    flags & (O_ACCMODE | O_TRUNC) != O_RDONLY
}

/// Whether an `ioctl` changes attributes of a file.
pub(crate) fn changes_attributes(request: u32) -> bool {
    let kind = request >> 8 & 0xff;
    (CHANGING_TYPES.contains(&kind) || request == SETVERSION) && !LOOKING.contains(&request)
}
