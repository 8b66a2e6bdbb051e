//! The structures of Linux's interface that the client fills or reads, byte by byte.

use husk_abi::sys::general::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use husk_proto::fs::{Attributes, HostIdentity, Kind};

/// Bytes of `struct stat`.
pub(crate) const STAT_BYTES: usize = 144;
/// Where the number of the inode stands in it, and its kind and permission bits.
pub(crate) const STAT_INODE_AT: usize = 8;
pub(crate) const STAT_MODE_AT: usize = 24;
/// Bytes of `struct statx`.
pub(crate) const STATX_BYTES: usize = 256;
/// Where in it the mode lies.
pub(crate) const STATX_MODE_AT: usize = 28;
/// Where in it the id of the mount lies.
pub(crate) const STATX_MOUNT_AT: usize = 144;
/// Bytes of `struct statfs`.
pub(crate) const STATFS_BYTES: usize = 120;
/// Nanoseconds in a second.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;
/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_MASK: u32 = 0xfff;

/// Stores a little-endian value at `at`.
#[inline]
pub(crate) fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

/// The `u64` at `at`.
#[inline]
pub(crate) fn get64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The `u32` at `at`.
#[inline]
pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The `u16` at `at`.
#[inline]
pub(crate) fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Type bits of `st_mode`.
pub(crate) fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => S_IFDIR,
        Kind::Symlink => S_IFLNK,
        Kind::File | Kind::Portal => S_IFREG,
        Kind::Fifo => S_IFIFO,
        Kind::Socket => S_IFSOCK,
        Kind::CharacterDevice => S_IFCHR,
        Kind::BlockDevice => S_IFBLK,
    }
}

/// Seconds and nanoseconds of a time.
pub(crate) fn split_ns(ns: i64) -> (i64, i64) {
    (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS))
}

/// `struct stat`.
pub(crate) fn stat(a: &Attributes) -> [u8; STAT_BYTES] {
    let mut out = [0u8; STAT_BYTES];
    put(&mut out, 0, a.shown_device.to_le_bytes());
    put(&mut out, STAT_INODE_AT, a.shown_number.to_le_bytes());
    put(&mut out, 16, u64::from(a.links).to_le_bytes());
    // Whole words, as they are copied: a word just stored in halves takes long to load.
    let mode = u64::from(a.step.mode & 0o7777 | type_bits(a.step.kind));
    put(&mut out, STAT_MODE_AT, (mode | u64::from(a.step.uid) << 32).to_le_bytes());
    put(&mut out, 32, u64::from(a.step.gid).to_le_bytes());
    put(&mut out, 40, u64::from(a.device).to_le_bytes());
    put(&mut out, 48, a.size.to_le_bytes());
    put(&mut out, 56, 4096u64.to_le_bytes());
    put(&mut out, 64, a.blocks_512.to_le_bytes());
    for (at, ns) in [(72, a.accessed_ns), (88, a.modified_ns), (104, a.changed_ns)] {
        let (seconds, rest) = split_ns(ns);
        put(&mut out, at, seconds.to_le_bytes());
        put(&mut out, at + 8, rest.to_le_bytes());
    }
    out
}

/// `struct statx`.
pub(crate) fn statx(a: &Attributes) -> [u8; STATX_BYTES] {
    let mut out = [0u8; STATX_BYTES];
    put(&mut out, 0, STATX_MASK.to_le_bytes());
    put(&mut out, 4, 4096u32.to_le_bytes());
    put(&mut out, 16, a.links.to_le_bytes());
    put(&mut out, 20, a.step.uid.to_le_bytes());
    put(&mut out, 24, a.step.gid.to_le_bytes());
    let mode = (a.step.mode & 0o7777 | type_bits(a.step.kind)) as u16;
    put(&mut out, STATX_MODE_AT, mode.to_le_bytes());
    put(&mut out, 32, a.shown_number.to_le_bytes());
    put(&mut out, 40, a.size.to_le_bytes());
    put(&mut out, 48, a.blocks_512.to_le_bytes());
    let times = [(64, a.accessed_ns), (80, a.born_ns), (96, a.changed_ns), (112, a.modified_ns)];
    for (at, ns) in times {
        let (seconds, rest) = split_ns(ns);
        put(&mut out, at, seconds.to_le_bytes());
        put(&mut out, at + 8, (rest as u32).to_le_bytes());
    }
    let shown = u64::from(a.device);
    put(&mut out, 128, (major(shown) as u32).to_le_bytes());
    put(&mut out, 132, (minor(shown) as u32).to_le_bytes());
    put(&mut out, 136, (major(a.shown_device) as u32).to_le_bytes());
    put(&mut out, 140, (minor(a.shown_device) as u32).to_le_bytes());
    out
}

/// What `struct stat` of the host says of which object it is, and when that has changed.
pub(crate) fn identity(stat: &[u8; STAT_BYTES]) -> HostIdentity {
    let time = |at| get64(stat, at) as i64 * SECOND_NS + get64(stat, at + 8) as i64;
    HostIdentity {
        device: get64(stat, 0),
        inode: get64(stat, STAT_INODE_AT),
        size: get64(stat, 48),
        modified_ns: time(88),
        changed_ns: time(104),
    }
}

/// Shows what `struct stat` of the host says of a regular file, but for its device.
pub(crate) fn take_stat(stat: &[u8; STAT_BYTES], all: &mut Attributes) {
    let open = identity(stat);
    let (mode_and_user, group) = (get64(stat, STAT_MODE_AT), get64(stat, 32));
    all.step.mode = mode_and_user as u32 & 0o7777;
    (all.step.uid, all.step.gid) = ((mode_and_user >> 32) as u32, group as u32);
    (all.shown_number, all.size, all.links) = (open.inode, open.size, get64(stat, 16) as u32);
    (all.modified_ns, all.changed_ns) = (open.modified_ns, open.changed_ns);
    all.accessed_ns = get64(stat, 72) as i64 * SECOND_NS + get64(stat, 80) as i64;
    all.blocks_512 = get64(stat, 64);
}

/// Room that `struct stat` of the host says an object takes.
pub(crate) fn allocated_bytes(stat: &[u8; STAT_BYTES]) -> u64 {
    const BLOCKS_AT: usize = 64;
    const BLOCK_BYTES: u64 = 512;
    get64(stat, BLOCKS_AT) * BLOCK_BYTES
}

/// Major number of a `dev_t` as `stat` shows it.
pub(crate) fn major(device: u64) -> u64 {
    device >> 8 & 0xfff | device >> 32 & 0xffff_f000
}

/// Minor number.
pub(crate) fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & 0xffff_ff00
}

/// `dev_t` from major and minor.
pub(crate) fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xfff) << 8 | (major & 0xffff_f000) << 32 | minor & 0xff | (minor & 0xffff_ff00) << 12
}
