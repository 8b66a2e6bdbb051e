//! Who may, where access control lists count; and the lists that new objects get.
//!
//! Most objects have no list: one bit of what is looked at anyway says so. A list is read under its
//! inode's lock, which comes late here: behind tokens, buckets and other inodes.

use husk_proto::acl;
use husk_proto::fs::{Credentials, Step};
use husk_proto::{Errno, Result};
use husk_region::{Cell, INODE, Txn};

use crate::fs::extended;
use crate::fs::inodes::{self, Birth};
use crate::state::{ino, low};

/// `Credentials::permit`, with access lists.
#[inline]
pub fn permit(txn: &mut Txn<'_>, who: &Credentials<'_>, step: &Step, want: u32) -> Result<()> {
    if step.acl { by_list(txn, who, step, want) } else { who.permit(step, want) }
}

#[cold]
#[inline(never)]
fn by_list(txn: &mut Txn<'_>, who: &Credentials<'_>, step: &Step, want: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, step.inode.number);
    txn.lock_late(cell)?;
    let mut list = [0; acl::BYTES_MAX];
    // A list that is too long gives nobody anything.
    let length = extended::copy(txn, cell, acl::ACCESS, &mut list).unwrap_or(0);
    who.permit_by_list(step, &list[..length], want)
}

/// Makes an inode in `dir`, with what it gets of that directory's default list; `mode` is the one
/// asked for, without an umask.
#[inline]
pub fn make_in(txn: &mut Txn<'_>, dir: Cell, birth: &Birth, mode: u32) -> Result<(u32, Cell)> {
    match low(txn.get(dir.word(ino::IDENT))) & ino::DEFAULT_ACL {
        0 => inodes::make(txn, birth),
        _ => make_with_lists(txn, dir, birth, mode),
    }
}

#[cold]
#[inline(never)]
fn make_with_lists(txn: &mut Txn<'_>, dir: Cell, birth: &Birth, mode: u32) -> Result<(u32, Cell)> {
    txn.lock_late(dir)?;
    let mut list = [0; acl::BYTES_MAX];
    let length = extended::copy(txn, dir, acl::DEFAULT, &mut list).ok_or(Errno::ENOSPC)?;
    let mut access = list;
    let (mode, says_more) = acl::hand_down(&mut access[..length], mode);
    let (number, cell) =
        inodes::make(txn, &Birth { mode: birth.mode & !0o777 | mode & 0o777, ..*birth })?;
    if says_more {
        extended::keep_list(txn, cell, acl::ACCESS, &access[..length])?;
    }
    if birth.kind == ino::DIRECTORY {
        extended::keep_list(txn, cell, acl::DEFAULT, &list[..length])?;
    }
    Ok((number, cell))
}

/// The access list of a locked inode that has one follows its new mode.
#[cold]
#[inline(never)]
pub fn follow_mode(txn: &mut Txn<'_>, cell: Cell, mode: u32) -> Result<()> {
    let mut list = [0; acl::BYTES_MAX];
    let length = extended::copy(txn, cell, acl::ACCESS, &mut list).ok_or(Errno::ENOSPC)?;
    acl::change_mode(&mut list[..length], mode);
    extended::keep_list(txn, cell, acl::ACCESS, &list[..length])
}
