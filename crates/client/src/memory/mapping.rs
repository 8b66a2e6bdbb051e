//! `mmap` of Husk files: runs of the buffer cache, mapped one behind the other.
//!
//! ```text
//!   file     | data | hole        | data | end
//!   mapping  | run  | no page     | run  | no page past the end
//!                     └─ touched: SIGBUS ─► the runtime ─► `map_in`: a block for the hole
//! ```
//!
//! 1. The inode is pinned before its runs are asked for, and stays so until the last page of the
//!    mapping is gone (`Host::note_mapping`), so that its blocks are not given to another file.
//! 2. A hole has a block before any mapping shows it: all mappings, and all who read and write,
//!    have the same bytes from the first store on.
//! 3. Who touches a page first takes its block, be it to read, and finds SIGBUS when there is
//!    none: as on a tmpfs.
//! 4. The host maps the region, which is open for writing, whatever the file is open for: which
//!    mapping may be made one to write to is kept beside it (`Mapping::may_write`).

use crate::{Answer, Call, Client, Host, Mapping, Memory, Verdict, value};
use husk_abi::sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, O_ACCMODE, O_PATH,
    PROT_WRITE,
};
use husk_abi::{PAGE, nr};
use husk_proto::fs::{Kind, Run};
use husk_proto::{Errno, Inode, Result, Services};

/// Runs mapped with one call of the host room.
const RUNS: usize = 64;
/// A mapping to write to that is no longer has blocks at once, bytes: small ones are made to be
/// used, and a signal costs more than a block.
const FILLED_MAX: usize = 16 * PAGE;
/// `MAP_SHARED_VALIDATE`.
const SHARED_VALIDATE: u32 = 3;
/// `MAP_FIXED_NOREPLACE`.
const FIXED_NOREPLACE: usize = 0x10_0000;

/// Which holes become blocks of zeroes when they are mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// None: each does when it is touched.
    Touched,
    /// All, as long as there is room.
    IfRoom,
    /// All (`ENOSPC`).
    All,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `mmap`.
    pub(crate) fn mmap(&mut self, c: &Call) -> Answer {
        let [address, length, prot, flags, fd, offset] = c.args;
        if flags as u32 & MAP_ANONYMOUS != 0 {
            return Ok(Verdict::Pass);
        }
        let Some(file) = self.opened(fd)? else { return Ok(Verdict::Pass) };
        if offset % PAGE != 0 || length == 0 {
            return Err(Errno::EINVAL);
        }
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        let length = length.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
        offset
            .checked_add(length)
            .filter(|&end| end <= isize::MAX as usize)
            .ok_or(Errno::EOVERFLOW)?;
        let access = file.flags & O_ACCMODE;
        let shared = match flags as u32 & MAP_TYPE {
            MAP_PRIVATE => false,
            MAP_SHARED | SHARED_VALIDATE => true,
            _ => return Err(Errno::EINVAL),
        };
        let writes = shared && prot as u32 & PROT_WRITE != 0;
        let may_write = !shared || access == 2;
        if access == 1 || (writes && !may_write) {
            return Err(Errno::EACCES);
        }
        if self.services.step(file.inode)?.kind != Kind::File {
            return Err(Errno::ENODEV);
        }
        let (offset, solid) = (offset as u64, 0);
        let mapping = Mapping { address, length, prot, flags, offset, solid, may_write };
        let small = writes && length <= FILLED_MAX;
        let fill =
            if small || flags as u32 & MAP_POPULATE != 0 { Fill::IfRoom } else { Fill::Touched };
        value(self.map_inode(file.inode, mapping, fill)? as u64)
    }

    /// Pins and maps a file of the image.
    pub(crate) fn map_inode(
        &mut self,
        inode: Inode,
        mapping: Mapping,
        fill: Fill,
    ) -> Result<usize> {
        // Holes may become blocks of zeroes before they are mapped.
        self.memory.ready()?;
        if self.services.is_elsewhere(inode) {
            return self.map_elsewhere(inode, mapping, fill);
        }
        self.services.pin(inode)?;
        let shared = mapping.flags as u32 & MAP_TYPE != MAP_PRIVATE;
        let writable =
            if shared && mapping.may_write { self.services.pin_writes(inode) } else { Ok(()) };
        match writable.and_then(|()| self.map_pinned(inode, mapping, fill)) {
            Ok(mapped) => {
                self.host.note_mapping(&mapped, inode);
                Ok(mapped.address)
            }
            Err(errno) => {
                self.services.unpin(inode);
                Err(errno)
            }
        }
    }

    /// The same of a file that another node is the home of: a copy is mapped.
    #[cold]
    fn map_elsewhere(&mut self, inode: Inode, mapping: Mapping, fill: Fill) -> Result<usize> {
        let shared = mapping.flags as u32 & MAP_TYPE != MAP_PRIVATE;
        let writes = shared && mapping.prot as u32 & PROT_WRITE != 0;
        let (offset, length) = (mapping.offset, mapping.length as u64);
        let copy = match self.services.mappable(inode, offset, length, writes) {
            Err(Errno::ENODEV) => {
                self.services.count_unsupported(nr::mmap);
                return Err(Errno::ENODEV);
            }
            other => other?,
        };
        let may_write = mapping.may_write && (writes || !shared);
        let mapped = self.map_inode(copy, Mapping { may_write, ..mapping }, fill);
        self.services.unpin(copy);
        mapped
    }

    /// `mapping` as it has become: where it lies, and how far it is solid.
    fn map_pinned(&mut self, inode: Inode, mapping: Mapping, fill: Fill) -> Result<Mapping> {
        let size = self.services.attributes(inode)?.size.next_multiple_of(PAGE as u64);
        let there = size.saturating_sub(mapping.offset).min(mapping.length as u64) as usize;
        let (mut whole, mut done, mut solid) = (mapping, 0, 0);
        loop {
            let found =
                self.filled_runs(inode, mapping.offset + done as u64, there - done, fill)?;
            let runs = found.runs();
            let rest = Mapping { length: mapping.length - done, ..whole };
            let rest = if done == 0 { rest } else { rest.placed(whole.address + done) };
            let mapped = self.host.map_cache(&rest, runs)?;
            if done == 0 {
                whole.address = mapped;
            }
            for run in runs {
                if run.cache_offset.is_some() && solid == done {
                    solid += run.length as usize;
                }
                done += run.length as usize;
            }
            if done >= there || runs.is_empty() {
                return Ok(Mapping { solid, ..whole });
            }
        }
    }

    fn filled_runs(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        fill: Fill,
    ) -> Result<SomeRuns> {
        match self.some_runs(inode, offset, length, fill != Fill::Touched) {
            Err(Errno::ENOSPC) if fill == Fill::IfRoom => {
                self.some_runs(inode, offset, length, false)
            }
            other => other,
        }
    }

    /// Maps a file that is mapped already once more.
    pub fn map_anew(&mut self, inode: Inode, mapping: Mapping) -> Result<usize> {
        self.map_inode(inode, mapping, Fill::Touched)
    }

    /// Maps in pages of a pinned file that nobody has touched yet: `mapping` is a part of what was
    /// mapped, its holes are filled first, at least those of its first page. How many bytes; 0:
    /// there is no page, or no room for it.
    pub fn map_in(&mut self, inode: Inode, mapping: &Mapping) -> usize {
        let (offset, length) = (mapping.offset, mapping.length);
        let found =
            self.memory.ready().and_then(|()| match self.some_runs(inode, offset, length, true) {
                Err(Errno::ENOSPC) if length > PAGE => self.some_runs(inode, offset, PAGE, true),
                other => other,
            });
        found.and_then(|found| self.host.map_runs(mapping, found.runs())).unwrap_or(0)
    }

    /// The first runs behind `offset..offset+length`.
    fn some_runs(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        fill: bool,
    ) -> Result<SomeRuns> {
        let mut some = SomeRuns { runs: [NO_RUN; RUNS], count: 0 };
        if length == 0 {
            return Ok(some);
        }
        let (mut full, mut left) = (false, length as u64);
        let result = self.services.runs(inode, offset, left, fill, &mut |run| {
            if some.count == RUNS {
                full = true;
                return Err(Errno::EAGAIN);
            }
            let length = run.length.min(left);
            some.runs[some.count] = Run { length, ..run };
            some.count += 1;
            left -= length;
            Ok(())
        });
        match result {
            Err(_) if full => {}
            other => other?,
        }
        Ok(some)
    }
}

const NO_RUN: Run = Run { cache_offset: None, length: 0 };

/// Some runs of a file.
struct SomeRuns {
    runs: [Run; RUNS],
    count: usize,
}

impl SomeRuns {
    fn runs(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}

impl Mapping {
    /// The same at `address`, over whatever is there.
    fn placed(self, address: usize) -> Mapping {
        Mapping { address, flags: self.flags & !FIXED_NOREPLACE | MAP_FIXED as usize, ..self }
    }
}
