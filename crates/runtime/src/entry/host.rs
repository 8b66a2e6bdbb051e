//! The calls to Linux that the narrow way needs; each `None` is a reason to leave it.

use core::ffi::CStr;

pub use husk_runtime::reach::{
    ANSWER_BYTES_MAX, Descriptor, PATIENCE_S, connect, place, receive, send,
};

use husk_abi::{PAGE, nr};
use husk_host::calls::{self, raw};
use husk_proto::entry::{DATA_BYTES_MIN, STACK_BYTES_MIN};

const CLOSE_ON_EXEC: usize = 0o2000000;

/// What `lstat` says of `path`; `stat`, if `follow`.
pub fn status(path: &CStr, follow: bool) -> Option<calls::Stat> {
    let mut status = calls::Stat::default();
    let number = if follow { nr::stat } else { nr::lstat };
    let place = (&raw mut status) as usize;
    // SAFETY: the path ends with NUL, and `status` has the kernel's layout.
    unsafe { raw(number, [path.as_ptr() as usize, place, 0, 0, 0, 0]) }.ok()?;
    Some(status)
}

/// The user on whose behalf files are opened.
pub fn user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { raw(nr::geteuid, [0; 6]) }.unwrap_or_default() as u32
}

/// The umask, read by setting it: there is one thread.
pub fn umask() -> u32 {
    let mask = set_umask(0);
    set_umask(mask);
    mask
}

/// Sets the umask; the one before.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: no memory is involved.
    unsafe { raw(nr::umask, [mask as usize, 0, 0, 0, 0, 0]) }.unwrap_or_default() as u32
}

/// The working directory, with its NUL.
pub fn here(room: &mut [u8]) -> Option<&[u8]> {
    let place = room.as_mut_ptr() as usize;
    // SAFETY: `room` is writable for its length.
    let length = unsafe { raw(nr::getcwd, [place, room.len(), 0, 0, 0, 0]) }.ok()?;
    room.get(..length.checked_sub(1)?)
}

/// The directory at `path`, to look from.
pub fn directory(path: &CStr) -> Option<Descriptor> {
    const PATH_DIRECTORY_NOFOLLOW: usize = 0o10000000 | 0o200000 | 0o400000;
    let flags = PATH_DIRECTORY_NOFOLLOW | CLOSE_ON_EXEC;
    // SAFETY: the path ends with NUL.
    unsafe { raw(nr::open, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }.ok().map(Descriptor)
}

/// The file at `path`, to read.
pub fn file(path: &CStr) -> Option<Descriptor> {
    // SAFETY: the path ends with NUL.
    unsafe { raw(nr::open, [path.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]) }
        .ok()
        .map(Descriptor)
}

/// Has the stack that the runtime is going to use, below ours, mapped at once while the supervisor
/// is at work, in place of a fault a page. Without (before Linux 5.14) they come.
pub fn fill_stack() {
    const BYTES: usize = 9 * PAGE;
    const POPULATE_WRITE: usize = 23;
    let mark = 0u8;
    let below = (&raw const mark) as usize & !(PAGE - 1);
    // SAFETY: the stack, which the host has made longer than that.
    let _ = unsafe { raw(nr::madvise, [below - BYTES, BYTES, POPULATE_WRITE, 0, 0, 0]) };
}

/// Numbers in the smallest table of descriptors that Linux makes.
pub const SMALL_TABLE: u32 = 64;

/// Whether the table of descriptors is such a one, so that none is open behind its numbers.
/// `select` looks no further than a table, and refuses numbers in it that are not open.
pub fn is_table_small() -> bool {
    const BEHIND: usize = SMALL_TABLE as usize;
    let (mut set, now) = ([0u64, 1], [0u64; 2]);
    let args = [BEHIND + 1, set.as_mut_ptr() as usize, 0, 0, now.as_ptr() as usize, 0];
    // SAFETY: a set of that many numbers, and a `struct timeval`.
    let looked = unsafe { raw(nr::select, args) };
    looked == Ok(0) && calls::is_close_on_exec(BEHIND).is_err()
}

/// How many descriptors are open; `None`: this host does not say (before Linux 6.2).
pub fn open_count() -> Option<usize> {
    let size = status(c"/proc/self/fd", true)?.size;
    usize::try_from(size).ok().filter(|count| *count > 0)
}

/// The directory at `path`, to list it.
pub fn listing(path: &CStr) -> Option<Descriptor> {
    const DIRECTORY: usize = 0o200000;
    let flags = DIRECTORY | CLOSE_ON_EXEC;
    // SAFETY: the path ends with NUL.
    unsafe { raw(nr::open, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }.ok().map(Descriptor)
}

/// Hands each name in the directory to `look`, until that says `None`.
pub fn each_name(directory: &Descriptor, mut look: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    /// Before a name: inode, offset, length of all, kind.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    let mut room = [0u8; 2048];
    loop {
        let args = [directory.0, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
        // SAFETY: `room` is writable for its length.
        let got = unsafe { raw(nr::getdents64, args) }.ok()?;
        let mut rest = room.get(..got)?;
        if rest.is_empty() {
            return Some(());
        }
        while !rest.is_empty() {
            let length = rest.get(LENGTH_AT..LENGTH_AT + 2)?;
            let (entry, next) =
                rest.split_at_checked(u16::from_le_bytes(length.try_into().ok()?).into())?;
            look(CStr::from_bytes_until_nul(entry.get(NAME_AT..)?).ok()?.to_bytes())?;
            rest = next;
        }
    }
}

/// The limit on numbers of descriptors.
pub fn numbers_end() -> Option<u64> {
    const NOFILE: usize = 7;
    limit(NOFILE)
}

/// Whether limits on stack and data leave room for what follows.
pub fn has_room() -> bool {
    const DATA: usize = 2;
    const STACK: usize = 3;
    let leaves = |resource, least| limit(resource).is_none_or(|most| most >= least);
    leaves(STACK, STACK_BYTES_MIN) && leaves(DATA, DATA_BYTES_MIN)
}

/// The limit on `resource` that holds.
fn limit(resource: usize) -> Option<u64> {
    let mut limits = [0u64; 2];
    let place = limits.as_mut_ptr() as usize;
    // SAFETY: `struct rlimit64` is two words.
    unsafe { raw(nr::prlimit64, [0, resource, 0, place, 0, 0]) }.ok()?;
    Some(limits[0])
}

/// The seals of a memfd.
pub fn seals(descriptor: &Descriptor) -> Option<usize> {
    const GET_SEALS: usize = 1034;
    // SAFETY: no memory is involved.
    unsafe { raw(nr::fcntl, [descriptor.0, GET_SEALS, 0, 0, 0, 0]) }.ok()
}

/// Becomes the program at `path`. Returns if that fails.
///
/// # Safety
/// `argv` and `envp` are lists of strings that end with 0, as exec takes them.
pub unsafe fn execute(path: &CStr, argv: *const usize, envp: *const usize) {
    let args = [path.as_ptr() as usize, argv as usize, envp as usize, 0, 0, 0];
    // SAFETY: the caller vouches for the lists.
    let _ = unsafe { raw(nr::execve, args) };
}
