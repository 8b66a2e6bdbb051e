//! Descriptor numbers that belong to the host alone. Most do, so they have fast paths. Also closes
//! shadows.

use husk_proto::{Files, Inode, Result};
use husk_region::INODE;

use crate::Kernel;
use crate::descriptor::open;
use crate::descriptor::table;
use crate::state::fd_table::{self, CLOSE_ON_EXEC, HOST, OTHER, SHADOW};
use crate::state::process;
use crate::state::tree;
use crate::state::{high, ino, live, low};

/// Whether an entry is such a number's.
#[inline(always)]
pub(crate) fn is_plain(entry: u64) -> bool {
    entry & !CLOSE_ON_EXEC == HOST
}

/// `Descriptors::is_hosts`.
#[inline(always)]
pub fn is_hosts(kernel: &Kernel, fd: u32) -> bool {
    let entry = fd_table::entry(&kernel.session.region, process::files(kernel), fd);
    !fd_table::is_husk(entry) && high(entry) == 0 && entry & OTHER == 0
}

/// `Descriptors::reads_host`.
#[inline(always)]
pub fn reads_host(kernel: &Kernel, fd: u32) -> bool {
    let region = &kernel.session.region;
    let entry = fd_table::entry(region, process::files(kernel), fd);
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

/// `Descriptors::pass_host`: lets calls on `fd` pass without a look (`Session::set_pass`), if it is
/// a plain number of the host's in a table that is this thread's alone.
#[inline(always)]
pub fn pass(kernel: &Kernel, fd: u32) {
    let (session, files) = (&kernel.session, process::files(kernel));
    let region = &session.region;
    // Whose the table is comes first: who had it as well may have changed the number before.
    session.set_pass(fd, || {
        fd_table::is_mine(session, fd_table::cell(region, files), fd_table::SHARERS)
            && is_plain(fd_table::entry(region, files, fd))
    });
}

/// `Descriptors::try_host_opened`.
#[inline(always)]
pub fn try_opened(kernel: &Kernel, fd: u32, close_on_exec: bool) -> bool {
    let free = |entry| entry == 0;
    put_alone(kernel, fd, free, HOST | fd_table::flags(close_on_exec))
}

/// `Descriptors::try_host_closed`.
#[inline(always)]
pub fn try_closed(kernel: &Kernel, fd: u32) -> bool {
    put_alone(kernel, fd, is_plain, 0) || close_shadow(kernel, fd)
}

/// The same of a shadow, of a file without locks.
fn close_shadow(kernel: &Kernel, fd: u32) -> bool {
    let files = process::files(kernel);
    let is_shadow = |entry| entry & SHADOW != 0;
    is_shadow(fd_table::entry(&kernel.session.region, files, fd))
        && table::close_with(kernel, files, fd, is_shadow, false) == Ok(Some(false))
}

/// Stores `entry` for `fd` without a transaction, if what is there `fits` and the table is this
/// thread's alone. False: nothing was stored. `fits` accepts only what nothing is to be released
/// of: free or plain.
#[inline(always)]
fn put_alone(kernel: &Kernel, fd: u32, fits: impl Fn(u64) -> bool, entry: u64) -> bool {
    let session = &kernel.session;
    let table = fd_table::cell(&session.region, process::files(kernel));
    let Some(leaf) = fd_table::leaf(&session.region, table, fd) else { return false };
    let word = leaf.word(tree::ENTRIES + fd % tree::WAYS);
    let is_mine = fd_table::is_mine(session, table, fd_table::SHARERS);
    if !is_mine || !fits(session.region.load(word)) {
        return false;
    }
    session.clear_pass(fd);
    session.put_alone(leaf, 1 << (fd % tree::WAYS), word, entry)
}

/// Number `fd` becomes `entry` if it is `old`: true. Neither has anything to hold or to release.
#[inline(always)]
pub(crate) fn swap(kernel: &Kernel, files: Files, fd: u32, old: u64, entry: u64) -> Result<bool> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        if fd_table::entry_of(txn.region, table, fd) != old {
            return Ok(false);
        }
        fd_table::put(txn, table, fd, entry).map(|()| true)
    })
}
