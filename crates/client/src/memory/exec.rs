//! Programs: finding one, reading its headers, mapping its segments. For the loader.
//!
//! A program is a host descriptor (host files, and overlay files still on the host), or an inode
//! of the image, pinned while it is being loaded.

use crate::Mapping;
use crate::memory::mapping::Fill;
use crate::path::{Aim, Place, Target};
use crate::{Client, Host, Memory};
use husk_abi::sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, F_DUPFD_CLOEXEC, F_GETFL, O_CLOEXEC,
    O_NOFOLLOW, O_NONBLOCK, O_PATH, RESOLVE_NO_SYMLINKS, X_OK,
};
use husk_abi::{PATH_MAX, nr};
use husk_proto::fs::{Backing, HostIdentity, Kind, Step, want};
use husk_proto::{Errno, Inode, Result, Services};

/// Where a program's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecTarget {
    /// A host descriptor (close-on-exec, not noted in the application's table).
    Host(u32),
    /// A file of the image, pinned.
    Husk(Inode),
}

/// A program found and opened.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its bytes.
    pub target: ExecTarget,
    /// Permission bits, set-id bits among them.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes.
    pub size: u64,
    /// Key of the rewritten copy, for host files.
    pub identity: Option<HostIdentity>,
    /// The inode that shows it, if it lies in a tree of the image.
    pub inode: Option<Inode>,
    /// Length of the absolute real path (`Client::program_text`); 0 = it has none.
    pub path_length: usize,
    /// Who asks may run it and not read it: only the host can start it, and the descriptor says
    /// which it is, no more (`O_PATH`).
    pub unreadable: bool,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Finds, checks and opens a program as `execveat(directory, path, ..., flags)` would: `path`
    /// is the address of a NUL-terminated string. Its real path is then in `program_text`.
    pub fn open_program(&mut self, directory: i32, path: usize, flags: u32) -> Result<Program> {
        if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
            return Err(Errno::EINVAL);
        }
        let aim = Aim {
            follow: flags & AT_SYMLINK_NOFOLLOW == 0,
            empty: flags & AT_EMPTY_PATH != 0,
            ..Aim::default()
        };
        match self.find_at(directory, path, 0, aim)? {
            Place::Husk(target) => {
                target.existing()?;
                if self.is_portal(0, &target)? {
                    return self.open_host_program(AT_FDCWD, flags);
                }
                self.open_husk_program(&target)
            }
            Place::Elsewhere => self.open_host_program(AT_FDCWD, flags),
            Place::Host => self.open_host_program(directory, flags),
        }
    }

    fn open_husk_program(&mut self, target: &Target) -> Result<Program> {
        let step = target.existing()?;
        match step.kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::File => {}
            _ => return Err(Errno::EACCES),
        }
        self.permit(&step, want::EXECUTE)?;
        self.services.may_run(step.inode)?;
        let mut program = self.open_image_program(&step)?;
        program.path_length = match self.target_path(target) {
            Err(Errno::ENOENT) => self.path_of_removed(step.inode),
            other => other.unwrap_or(0),
        };
        Ok(program)
    }

    /// Opens what the process record says that this process runs, found and judged before.
    pub fn open_running(&mut self) -> Result<Program> {
        let inode = self.services.program().ok_or(Errno::ENOENT)?;
        let step = self.services.step(inode)?;
        self.open_image_program(&step)
    }

    fn open_image_program(&mut self, step: &Step) -> Result<Program> {
        let attributes = self.services.attributes(step.inode)?;
        let mut unreadable = false;
        let (target_kind, identity) = match (attributes.backing, attributes.origin) {
            (Backing::Host, Some(origin)) => {
                let (owner, flags) = (step.uid, O_NOFOLLOW | O_CLOEXEC);
                let opened = match self.open_owned(owner, origin, flags) {
                    Err(Errno::EACCES) if self.permit(step, want::READ).is_ok() => {
                        self.open_fetched(step.inode, flags)
                    }
                    Err(Errno::ENOENT | Errno::ENOTDIR) => {
                        self.open_moved(step.inode, origin, flags)
                    }
                    other => other,
                };
                let fd = match opened {
                    Err(Errno::EACCES) => {
                        unreadable = true;
                        self.open_origin(origin, O_NOFOLLOW | O_PATH | O_CLOEXEC)?
                    }
                    other => other?,
                };
                let identity = self.host_fact(fd, None)?.identity;
                (ExecTarget::Host(fd as u32), Some(identity))
            }
            _ => {
                self.services.pin(step.inode)?;
                (ExecTarget::Husk(step.inode), None)
            }
        };
        Ok(Program {
            target: target_kind,
            mode: step.mode,
            uid: step.uid,
            gid: step.gid,
            size: attributes.size,
            identity,
            inode: Some(step.inode),
            path_length: 0,
            unreadable,
        })
    }

    /// The absolute path of a named target into `link`.
    pub(crate) fn target_path(&mut self, target: &Target) -> Result<usize> {
        if target.name.1 == 0 {
            return self.path_of(target.inode()?);
        }
        let length = self.path_of(target.directory)?;
        let name = self.buffers.walks[0].name(target);
        let end = length + 1 + name.len();
        if end > PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.buffers.link[length] = b'/';
        self.buffers.link[length + 1..end].copy_from_slice(name);
        Ok(end)
    }
    /// Another number of what `fd` is; one that names a file only is opened.
    fn program_of(&self, fd: u32) -> i64 {
        if self.host_fcntl(fd as usize, F_GETFL, 0) as u32 & O_PATH == 0 {
            return self.host_fcntl(fd as usize, F_DUPFD_CLOEXEC, 0);
        }
        let link = core::hint::black_box(husk_abi::proc::descriptor(fd));
        let how = (O_CLOEXEC | O_NONBLOCK) as usize;
        self.host.call(nr::openat, [AT_FDCWD as usize, link.as_ptr() as usize, how, 0, 0, 0])
    }

    fn open_host_program(&mut self, directory: i32, flags: u32) -> Result<Program> {
        let path = self.buffers.walks[0].for_host();
        let check = (AT_EACCESS | flags) as usize;
        let args = [directory as usize, path, X_OK as usize, check, 0, 0];
        Errno::check(self.host.call(nr::faccessat2, args))?;
        let empty = flags & AT_EMPTY_PATH != 0 && self.buffers.walks[0].length == 0;
        let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 { O_NOFOLLOW } else { 0 };
        let named = self.open_as_named(directory, path);
        let fd = if empty {
            self.program_of(directory as u32)
        } else if let Ok(fd) = named {
            fd as i64
        } else {
            let how = (O_CLOEXEC | O_NONBLOCK | nofollow) as usize;
            self.host.call(nr::openat, [directory as usize, path, how, 0, 0, 0])
        };
        let mut unreadable = false;
        let fd = match Errno::check(fd) {
            Err(Errno::EACCES) if !empty => {
                unreadable = true;
                let how = (O_CLOEXEC | O_PATH | nofollow) as usize;
                Errno::check(self.host.call(nr::openat, [directory as usize, path, how, 0, 0, 0]))?
            }
            other => other?,
        } as usize;
        let fact = self.host_fact(fd, None);
        let fact = match fact {
            Ok(fact) if fact.kind == Kind::File => fact,
            other => {
                self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
                return Err(other.err().unwrap_or(Errno::EACCES));
            }
        };
        let length = match named {
            Ok(_) => {
                let text = self.buffers.walks[0].whole();
                self.buffers.link[..text.len()].copy_from_slice(text);
                text.len()
            }
            Err(_) => {
                let out = self.buffers.link.as_mut_ptr() as usize;
                self.descriptor_path(fd as u32, out).max(0) as usize
            }
        };
        Ok(Program {
            target: ExecTarget::Host(fd as u32),
            mode: fact.mode,
            uid: fact.uid,
            gid: fact.gid,
            size: fact.identity.size,
            identity: Some(fact.identity),
            inode: None,
            path_length: length.min(PATH_MAX),
            unreadable,
        })
    }

    /// Opens a program whose path is the one it is named by, at address `path`: no link on the way,
    /// and each part a name. To ask `/proc` for the path of a descriptor makes the host build what
    /// it shows there of a process: a start of a small program pays a tenth of its time for that.
    fn open_as_named(&self, directory: i32, path: usize) -> Result<usize> {
        let text = self.buffers.walks[0].whole();
        let names = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        let mut parts = text.split(|byte| *byte == b'/');
        let absolute = directory == AT_FDCWD && parts.next() == Some(b"");
        if !absolute || text.len() >= PATH_MAX || !parts.all(names) {
            return Err(Errno::ENOENT);
        }
        let how = [u64::from(O_CLOEXEC | O_NONBLOCK), 0, u64::from(RESOLVE_NO_SYMLINKS)];
        let how = core::hint::black_box(how);
        let args = [directory as usize, path, how.as_ptr() as usize, size_of_val(&how), 0, 0];
        Errno::check(self.host.call(nr::openat2, args)).map(|fd| fd as usize)
    }

    /// The real path found by the last `open_program`; valid until the next call of any kind.
    pub fn program_text(&self, program: &Program) -> &[u8] {
        &self.buffers.link[..program.path_length]
    }

    /// Reads up to `out.len()` bytes at `offset`; fewer only at the end of the file.
    pub fn read_program(
        &mut self,
        program: &Program,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        match program.target {
            ExecTarget::Host(fd) => {
                self.host_read(fd as usize, out.as_mut_ptr() as usize, out.len(), offset)
            }
            ExecTarget::Husk(inode) => {
                let memory = &self.memory;
                let mut place = out.as_mut_ptr() as usize;
                self.services.read(inode, offset, out.len(), &mut |span| {
                    memory.copy_out(span, place)?;
                    place += span.length;
                    Ok(())
                })
            }
        }
    }

    /// Maps bytes of a program as `mmap` would (`offset` and `length` page aligned).
    pub fn map_program(
        &mut self,
        program: &Program,
        address: usize,
        length: usize,
        prot: usize,
        flags: usize,
        offset: u64,
    ) -> Result<usize> {
        match program.target {
            ExecTarget::Host(fd) => {
                let args = [address, length, prot, flags, fd as usize, offset as usize];
                Errno::check(self.host.call(nr::mmap, args)).map(|address| address as usize)
            }
            ExecTarget::Husk(inode) => {
                let (solid, may_write) = (0, true);
                let mapping = Mapping { address, length, prot, flags, offset, solid, may_write };
                // The loader and the host clear what lies behind a program's data: nobody can be
                // asked then.
                self.map_inode(inode, mapping, Fill::All)
            }
        }
    }

    /// Lets a program go; what is mapped stays mapped.
    pub fn close_program(&mut self, program: Program) {
        match program.target {
            ExecTarget::Host(fd) => {
                self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
            }
            ExecTarget::Husk(inode) => self.services.unpin(inode),
        }
    }
}
