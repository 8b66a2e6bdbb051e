//! Numbers of the host's that nothing of the image stands behind: most of them, so they have short
//! ways of their own.

use husk_proto::{Files, Inode, Result};
use husk_region::INODE;

use crate::Kernel;
use crate::descriptor::open;
use crate::descriptor::table::{self, CLOSE_ON_EXEC, HOST, OTHER, SHADOW};
use crate::process;
use crate::state::{high, ino, live, low};

/// Whether an entry is such a number's.
#[inline(always)]
pub(crate) fn is_plain(entry: u64) -> bool {
    entry & !CLOSE_ON_EXEC == HOST
}

/// `Descriptors::is_hosts`.
#[inline(always)]
pub fn is_hosts(kernel: &Kernel, fd: u32) -> bool {
    let entry = table::entry(&kernel.session.region, process::files(kernel), fd);
    !table::is_husk(entry) && high(entry) == 0 && entry & OTHER == 0
}

/// `Descriptors::reads_host`.
#[inline(always)]
pub fn reads_host(kernel: &Kernel, fd: u32) -> bool {
    let region = &kernel.session.region;
    let entry = table::entry(region, process::files(kernel), fd);
    if entry & SHADOW == 0 {
        return false;
    }
    let inode = region.map.object(INODE, open::inode_number(region, high(entry)));
    low(region.load(inode.word(ino::IDENT))) & ino::HOST != 0
}

/// `Fs::has_host_bytes`.
#[inline(always)]
pub fn has_host_bytes(kernel: &Kernel, inode: Inode) -> bool {
    let region = &kernel.session.region;
    let host = |cell| low(region.load(cell)) & ino::HOST != 0;
    live(region, inode).is_ok_and(|cell| host(cell.word(ino::IDENT)))
}

/// Number `fd` becomes `entry` if it is `old`: true. Neither has anything to hold or to release.
#[inline(always)]
pub(crate) fn swap(kernel: &Kernel, files: Files, fd: u32, old: u64, entry: u64) -> Result<bool> {
    kernel.run(|txn| {
        let table = table::lock(txn, files)?;
        if table::entry_of(txn.region, table, fd) != old {
            return Ok(false);
        }
        table::put(txn, table, fd, entry).map(|()| true)
    })
}
