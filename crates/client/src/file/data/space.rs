//! Length and space: `truncate`, `fallocate`, and the calls that flush.

use crate::path::{Aim, plain};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_UNSHARE_RANGE, FALLOC_FL_ZERO_RANGE, MS_SYNC, O_PATH,
};
use husk_proto::fs::{Kind, Step, want};
use husk_proto::{Errno, Inode, Result, Services};

/// Largest file offset.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `truncate`.
    pub(crate) fn truncate(&mut self, c: &Call) -> Answer {
        if (c.args[1] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let size = c.args[1] as u64;
        self.on_existing(c, plain(0), Aim::FOLLOW, |client, step| client.truncate_step(step, size))
    }

    fn truncate_step(&mut self, step: Step, size: u64) -> Answer {
        match step.kind {
            Kind::Directory => return Err(Errno::EISDIR),
            Kind::File => {}
            _ => return Err(Errno::EINVAL),
        }
        self.permit(&step, want::WRITE)?;
        self.services.may_write(step.inode)?;
        self.may_grow(step.inode, size)?;
        self.make_image(step.inode, size)?;
        self.memory.ready()?;
        self.shorten(step.inode, |client| client.services.truncate(step.inode, size))?;
        value(0)
    }

    /// `ftruncate`.
    pub(crate) fn ftruncate(&mut self, c: &Call) -> Answer {
        if (c.args[1] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        if !file.writes() || self.services.step(file.inode)?.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        self.may_grow(file.inode, c.args[1] as u64)?;
        self.memory.ready()?;
        self.shorten(file.inode, |client| client.services.truncate(file.inode, c.args[1] as u64))?;
        value(0)
    }

    /// Does what may make a file shorter. Pages of its mappings past the nearer end go then, those
    /// of this process: nobody can take them from another one.
    #[inline]
    pub(crate) fn shorten<T>(
        &mut self,
        inode: Inode,
        step: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if !self.host.maps_files() {
            return self.changing(inode, step);
        }
        let old = self.services.attributes(inode)?.size;
        let done = self.changing(inode, step)?;
        let new = self.services.attributes(inode)?.size;
        if new < old {
            self.host.note_shorter(inode, new);
        }
        Ok(done)
    }

    /// `fallocate`.
    pub(crate) fn fallocate(&mut self, c: &Call) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        let (mode, offset, length) = (c.args[1] as u32, c.args[2] as i64, c.args[3] as i64);
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        if offset < 0 || length <= 0 {
            return Err(Errno::EINVAL);
        }
        if !is_space_mode(mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !file.writes() {
            return Err(Errno::EBADF);
        }
        match self.services.step(file.inode)?.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::ENODEV),
        }
        let (offset, length) = (offset as u64, length as u64);
        if offset + length > OFFSET_MAX {
            return Err(Errno::EFBIG);
        }
        let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        if !matches!(mode, 0 | FALLOC_FL_KEEP_SIZE) && mode != punch {
            // What a tmpfs does not have either.
            return Err(Errno::EOPNOTSUPP);
        }
        self.memory.ready()?;
        if mode != punch {
            self.may_grow(file.inode, offset + length)?;
        }
        let keep_size = mode == FALLOC_FL_KEEP_SIZE;
        self.changing(file.inode, |client| match mode == punch {
            true => client.services.punch(file.inode, offset, length),
            false => client.services.allocate(file.inode, offset, length, keep_size),
        })?;
        value(0)
    }

    /// `fsync`, `fdatasync`, `syncfs`: what is no volume lies in memory, there is nothing to flush.
    pub(crate) fn flush(&mut self, c: &Call) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        self.services.commit(file.inode, c.number == nr::syncfs)?;
        value(0)
    }

    /// `sync`: all volumes, then the host. Nobody is told of an error.
    #[cold]
    pub(crate) fn sync(&mut self) -> Answer {
        let _ = self.services.commit_all();
        Ok(Verdict::Pass)
    }

    /// `msync`: what a process has stored in a mapping of a file of a volume, or of another node.
    #[cold]
    pub(crate) fn msync(&mut self, c: &Call) -> Answer {
        if let Some((inode, _)) = self.host.mapped(c.args[0]) {
            self.services.save_mapped(inode)?;
        }
        if !self.services.has_volumes() || c.args[2] as u32 & MS_SYNC == 0 {
            return Ok(Verdict::Pass);
        }
        let last = c.args[0].wrapping_add(c.args[1]).wrapping_sub(1);
        let file = |address| self.host.mapped(address).map(|(inode, _)| inode);
        match (file(c.args[0]), file(last)) {
            (Some(first), Some(last)) if first == last => self.services.commit(first, false)?,
            (None, None) if !self.host.maps_files() => {}
            _ => self.services.commit_all()?,
        }
        Ok(Verdict::Pass)
    }

    /// `sync_file_range`.
    pub(crate) fn sync_file_range(&mut self, c: &Call) -> Answer {
        self.nothing_to_do(c, |args| {
            let end = (args[1] as i64).wrapping_add(args[2] as i64);
            let bad = args[3] & !7 != 0 || (args[1] as i64) < 0 || end < args[1] as i64;
            if bad { Err(Errno::EINVAL) } else { Ok(()) }
        })
    }

    /// `fadvise64`: advice about memory is taken as given.
    pub(crate) fn fadvise(&mut self, c: &Call) -> Answer {
        self.nothing_to_do(c, |args| {
            if args[3] > 5 || (args[2] as i64) < 0 { Err(Errno::EINVAL) } else { Ok(()) }
        })
    }

    /// `readahead`.
    pub(crate) fn readahead(&mut self, c: &Call) -> Answer {
        if let Some(file) = self.opened(c.args[0])? {
            let kind = self.services.step(file.inode)?.kind;
            match kind {
                _ if !file.reads() => return Err(Errno::EBADF),
                Kind::File if c.args[2] as i64 >= 0 => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        self.nothing_to_do(c, |_| Ok(()))
    }

    fn nothing_to_do(&mut self, c: &Call, check: fn(&[usize; 6]) -> Result<()>) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        check(&c.args)?;
        value(0)
    }
}

/// Whether some file system has this mode of `fallocate`: others are refused before the file is
/// looked at.
fn is_space_mode(mode: u32) -> bool {
    let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
    match mode & !FALLOC_FL_KEEP_SIZE {
        0 | FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE => true,
        FALLOC_FL_PUNCH_HOLE => keeps,
        FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE => !keeps,
        _ => false,
    }
}
