//! `mmap` of Husk files: runs of the buffer cache, mapped one behind the other.
//!
//! The inode is pinned before its runs are asked for, and stays so until the last page of the
//! mapping is gone (`Host::note_mapping`), so that its blocks are not given to another file.
//! Limit: pages that the file gains later are not in mappings made before.

use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::PAGE;
use husk_abi::sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, O_ACCMODE, O_APPEND, O_PATH,
    PROT_WRITE,
};
use husk_proto::fs::{Kind, Run};
use husk_proto::{Errno, Inode, Result, Services};

/// Runs mapped with one call of the host room.
const RUNS: usize = 64;
/// `MAP_SHARED_VALIDATE`.
const SHARED_VALIDATE: u32 = 3;
/// `MAP_FIXED_NOREPLACE`.
const FIXED_NOREPLACE: usize = 0x10_0000;

/// What to map where.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub address: usize,
    pub length: usize,
    pub prot: usize,
    pub flags: usize,
    pub offset: u64,
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
        offset.checked_add(length).ok_or(Errno::EOVERFLOW)?;
        let access = file.flags & O_ACCMODE;
        let shared = match flags as u32 & MAP_TYPE {
            MAP_PRIVATE => false,
            MAP_SHARED | SHARED_VALIDATE => true,
            _ => return Err(Errno::EINVAL),
        };
        let writes = shared && prot as u32 & PROT_WRITE != 0;
        if access == 1 || (writes && (access != 2 || file.flags & O_APPEND != 0)) {
            return Err(Errno::EACCES);
        }
        if self.services.step(file.inode)?.kind != Kind::File {
            return Err(Errno::ENODEV);
        }
        let mapping = Mapping { address, length, prot, flags, offset: offset as u64 };
        value(self.map_inode(file.inode, mapping)? as u64)
    }

    /// Pins and maps a file of the image.
    pub(crate) fn map_inode(&mut self, inode: Inode, mapping: Mapping) -> Result<usize> {
        // Holes of a file become blocks of zeroes before they are mapped.
        self.memory.ready()?;
        self.services.pin(inode)?;
        match self.map_pinned(inode, mapping) {
            Ok(address) => {
                self.host.note_mapping(address, mapping.length, inode);
                Ok(address)
            }
            Err(errno) => {
                self.services.unpin(inode);
                Err(errno)
            }
        }
    }

    fn map_pinned(&mut self, inode: Inode, mapping: Mapping) -> Result<usize> {
        let size = self.services.attributes(inode)?.size.next_multiple_of(PAGE as u64);
        let there = size.saturating_sub(mapping.offset).min(mapping.length as u64);
        let mut start: Option<usize> = None;
        let mut done = 0;
        loop {
            let (runs, count, bytes) =
                self.some_runs(inode, mapping.offset + done, there - done)?;
            let (address, flags) = match start {
                None => (mapping.address, mapping.flags),
                Some(start) => {
                    let fixed = mapping.flags & !FIXED_NOREPLACE | MAP_FIXED as usize;
                    (start + done as usize, fixed)
                }
            };
            let length = mapping.length - done as usize;
            let mapped =
                self.host.map_cache(address, length, mapping.prot, flags, &runs[..count])?;
            let start = *start.get_or_insert(mapped);
            done += bytes;
            if done >= there || count == 0 {
                return Ok(start);
            }
        }
    }

    /// The first runs behind `offset..offset+length`: the array, how many, their bytes.
    fn some_runs(
        &mut self,
        inode: Inode,
        offset: u64,
        length: u64,
    ) -> Result<([Run; RUNS], usize, u64)> {
        let mut runs = [Run { cache_offset: 0, length: 0 }; RUNS];
        let (mut count, mut bytes) = (0, 0);
        if length == 0 {
            return Ok((runs, 0, 0));
        }
        let mut full = false;
        let result = self.services.runs(inode, offset, length, &mut |run| {
            if count == RUNS {
                full = true;
                return Err(Errno::EAGAIN);
            }
            let run_bytes = run.length.min(length - bytes);
            runs[count] = Run { cache_offset: run.cache_offset, length: run_bytes };
            count += 1;
            bytes += run_bytes;
            Ok(())
        });
        match result {
            Err(_) if full => {}
            other => other?,
        }
        Ok((runs, count, bytes))
    }
}
