//! The calls to Linux that the narrow way needs; each `None` is a reason to leave it.

use core::ffi::CStr;

use husk_abi::{PAGE, nr};
use husk_host::calls::{self, raw};
use husk_proto::entry::{DATA_BYTES_MIN, STACK_BYTES_MIN};

/// Seconds that connecting, and the answer, may take.
const PATIENCE_S: i64 = 1;
/// Most bytes of an answer that is understood here.
pub const ANSWER_BYTES_MAX: usize = 256;
const CLOSE_ON_EXEC: usize = 0o2000000;
const AF_UNIX: u16 = 1;
const SOL_SOCKET: usize = 1;

/// A descriptor that is closed with the scope, or by exec.
pub struct Descriptor(pub usize);

impl Drop for Descriptor {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

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
    // SAFETY: no memory is involved.
    let set = |mask| unsafe { raw(nr::umask, [mask, 0, 0, 0, 0, 0]) }.unwrap_or_default();
    let mask = set(0);
    set(mask);
    mask as u32
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

/// Room for the path of a socket, with its NUL.
pub const ADDRESS_BYTES: usize = 108;

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; ADDRESS_BYTES],
}

/// A connection to the socket at `path` on which nothing waits for long.
pub fn connect(path: &CStr) -> Option<Descriptor> {
    const STREAM: usize = 1;
    const TIMEOUTS: [usize; 2] = [20, 21];
    // SAFETY: no memory is involved.
    let socket = unsafe { raw(nr::socket, [AF_UNIX.into(), STREAM | CLOSE_ON_EXEC, 0, 0, 0, 0]) };
    let socket = Descriptor(socket.ok()?);
    let patience = [PATIENCE_S, 0];
    for option in TIMEOUTS {
        let place = patience.as_ptr() as usize;
        // SAFETY: a `struct timeval` of 16 bytes.
        unsafe { raw(nr::setsockopt, [socket.0, SOL_SOCKET, option, place, 16, 0]) }.ok()?;
    }
    let mut address = Address { family: AF_UNIX, path: [0; ADDRESS_BYTES] };
    let bytes = path.to_bytes_with_nul();
    address.path.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let place = (&raw const address) as usize;
    // SAFETY: `address` has the kernel's layout, and is longer than what is said.
    unsafe { raw(nr::connect, [socket.0, place, 2 + bytes.len(), 0, 0, 0]) }.ok()?;
    Some(socket)
}

/// Sends all of `letter`.
pub fn send(socket: &Descriptor, letter: &[u8]) -> Option<()> {
    const NOSIGNAL: usize = 0x4000;
    let args = [socket.0, letter.as_ptr() as usize, letter.len(), NOSIGNAL, 0, 0];
    // SAFETY: `letter` is readable for its length.
    let sent = unsafe { raw(nr::sendto, args) }.ok()?;
    (sent == letter.len()).then_some(())
}

/// `struct msghdr` and `struct iovec`.
#[repr(C)]
struct Message {
    name: usize,
    name_bytes: usize,
    vectors: usize,
    vector_count: usize,
    control: usize,
    control_bytes: usize,
    flags: usize,
}

/// `struct cmsghdr` with two descriptors.
#[repr(C, align(8))]
#[derive(Default)]
struct Control {
    length: usize,
    level: u32,
    kind: u32,
    descriptors: [u32; 2],
}

const _: () = assert!(size_of::<Message>() == 56 && size_of::<Control>() == 24);

/// An answer, and the two descriptors that came with it.
pub fn receive<'a>(
    socket: &Descriptor,
    room: &'a mut [u8; ANSWER_BYTES_MAX],
) -> Option<(&'a [u8], [Descriptor; 2])> {
    const CONTROL_BYTES: usize = size_of::<Control>();
    const MESSAGE_CLOSE_ON_EXEC: usize = 0x4000_0000;
    const RIGHTS: u32 = 1;
    let mut control = Control::default();
    let vector = [room.as_mut_ptr() as usize, room.len()];
    let mut message = Message {
        name: 0,
        name_bytes: 0,
        vectors: vector.as_ptr() as usize,
        vector_count: 1,
        control: (&raw mut control) as usize,
        control_bytes: CONTROL_BYTES,
        flags: 0,
    };
    let args = [socket.0, (&raw mut message) as usize, MESSAGE_CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the message leads to `room` and `control`, writable for the lengths it says.
    let got = unsafe { raw(nr::recvmsg, args) }.ok()?;
    // What the host could not place is not there, as where a limit on descriptors is reached.
    let carried = control.length.saturating_sub(16) / 4;
    let rights = control.level == SOL_SOCKET as u32 && control.kind == RIGHTS;
    let [region, loader] = control.descriptors.map(|number| Descriptor(number as usize));
    if !rights || carried != 2 {
        // One that did come is closed; numbers that are none of ours are not.
        (carried < 2).then(|| core::mem::forget(loader));
        (carried < 1).then(|| core::mem::forget(region));
        return None;
    }
    Some((room.get(..got)?, [region, loader]))
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

/// Puts `descriptor` under `number`, which exec does not close.
pub fn place(descriptor: &Descriptor, number: usize) -> Option<Descriptor> {
    // SAFETY: no memory is involved; nothing is open under that number.
    unsafe { raw(nr::dup3, [descriptor.0, number, 0, 0, 0, 0]) }.ok().map(Descriptor)
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
