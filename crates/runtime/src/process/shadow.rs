//! An exec whose program runs on another host: this process becomes its shadow.
//!
//! ```text
//!   exec on node 0 ── may go? ──► most room? ──► starter of that host: same program, a place?
//!        ──► pipes are the host's from now on ──► execve(husk, as a shadow), the talk with the
//!            starter as its standard input
//! ```
//!
//! What may go: a program outside of all trees that is no script, no shell and no make, in a
//! directory of a tree, with all three standard descriptors open, of which the first gives nothing
//! (`/dev/null`, or a pipe that has ended), and no others but what `husk run` was started with. So
//! whoever could take tokens of a jobserver, or the input of somebody else, stays. It goes if its
//! parent has other children that run, and where most room is; `HUSK_NODE` says otherwise.
//!
//! Invariants
//! 1. Where anything is in the way nothing has happened, and it runs here. A host that `HUSK_NODE`
//!    names may take longer: a program that is new there is compared first.
//! 2. An image without other hosts pays for a look at one word.

use crate::client::nodes::Along;
use crate::process::elsewhere::ASKED_PATIENCE_S;
use crate::process::exec::{area, copy_words, count, start_natively};
use crate::process::loads;
use crate::thread::Thread;
use core::ffi::CStr;
use husk_abi::proc::put_decimal;
use husk_abi::sys::general::{S_IFCHR, S_IFIFO, S_IFMT};
use husk_abi::{PATH_MAX, nr};
use husk_client::{ExecTarget, Program};
use husk_host::calls::{self, raw};
use husk_proto::process::ALONG_MAX;
use husk_runtime::entry::Text;
use husk_runtime::reach::{Descriptor, PATIENCE_S, connect, send};

/// Nodes of other hosts have numbers from this on; an image that has some says so many more.
pub const AFAR: u16 = 0x100;
/// Most hosts that a program asks for a place.
const ASKED_MAX: u32 = 2;
/// What shadows are called.
const SHADOW: &CStr = c"husk: shadow";
/// Words before the program's own.
const WORDS: usize = 4;
/// Bytes of a note about a descriptor: number, device, inode. And of all notes.
const APART_ENTRY: usize = 24;
const APART_BYTES: usize = APART_ENTRY * 64;
/// `/dev/null`.
const NULL_DEVICE: u64 = 1 << 8 | 3;
/// Programs that start others, which are then placed, and share a jobserver with them.
const STAY: [&[u8]; 14] = [
    b"sh", b"bash", b"dash", b"zsh", b"ksh", b"busybox", b"make", b"gmake", b"ninja", b"cmake",
    b"ctest", b"env", b"sudo", b"ssh",
];

/// Becomes the shadow of `program` on another host, if this exec is to go there; returns if not.
#[inline(never)]
pub fn become_shadow(
    thread: &mut Thread,
    nodes: u16,
    (program, path): (&Program, &CStr),
    argv: usize,
    asked: Option<u64>,
    envp: usize,
) -> Option<()> {
    let (mut numbers, mut place) = ([0; ALONG_MAX], [0; PATH_MAX]);
    if !may_go(thread, program, path.to_bytes()) {
        return None;
    }
    if asked == Some(0) {
        loads::note(thread, 0);
        return None;
    }
    let mut passed = [0; ALONG_MAX];
    let along = thread.client.takes_along(&mut numbers, &mut passed, &mut place).ok()?;
    let Along { numbers, passed: [], here, umask } = along else { return None };
    let standard = numbers.iter().all(|number| *number <= 2) || are_apart(thread, numbers);
    // Who has closed one of the three is told so by Linux, and not that it is empty.
    let whole = [0, 1, 2].iter().all(|number| numbers.contains(number));
    if here.is_empty() || !standard || !whole || !is_silent() {
        return None;
    }
    let talk = placed(thread, u64::from(nodes - AFAR), asked, path.to_bytes())?;
    let (mut digits, mut here_room) = ([0; 11], [0; PATH_MAX + 1]);
    put_decimal(first_ten(&mut digits), umask);
    let umask = CStr::from_bytes_until_nul(&digits).ok()?;
    here_room.get_mut(..here.len())?.copy_from_slice(here);
    let here = CStr::from_bytes_until_nul(&here_room).ok()?;
    let own = [SHADOW, umask, here, path].map(|text| text.as_ptr() as usize);
    let arguments = count(argv).ok()?;
    let array = area(thread, WORDS + arguments + 1).ok()?;
    array[..WORDS].copy_from_slice(&own);
    copy_words(&mut array[WORDS..], argv, arguments).ok()?;
    array[WORDS + arguments] = 0;
    let array = array.as_ptr() as usize;
    execute(thread, &talk, array, envp)
}

fn first_ten(digits: &mut [u8; 11]) -> &mut [u8; 10] {
    digits.first_chunk_mut().expect("ten of eleven")
}

/// Whether it is a program of the host, outside of all trees, that starts nothing by a jobserver.
fn may_go(thread: &mut Thread, program: &Program, path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    matches!(program.target, ExecTarget::Host(_))
        && path.starts_with(b"/")
        && !STAY.contains(&name)
        && thread.client.outside_mounts(path)
}

/// Whether all but the standard descriptors come from outside of the image: they are the same ones
/// that its first program was started with.
#[cold]
fn are_apart(thread: &mut Thread, numbers: &[u32]) -> bool {
    let (mut room, mut path_room, mut noted) = ([0; 128], [0; 160], [0; APART_BYTES]);
    let Some(private) = thread.client.private_path(&mut room) else { return false };
    let mut path = Text::new(&mut path_room);
    path.put(private.to_bytes()).put(b"apart\0");
    let path = path.whole().and_then(|path| CStr::from_bytes_with_nul(path).ok());
    let Some(Ok(fd)) = path.map(calls::open) else { return false };
    let got = calls::pread(fd, &mut noted, 0).unwrap_or(0);
    calls::close(fd);
    numbers.iter().filter(|number| **number > 2).all(|number| {
        let Ok(found) = calls::fstat(*number as usize) else { return false };
        let wanted = [u64::from(*number), found.device, found.inode].map(u64::to_le_bytes);
        noted[..got].chunks_exact(APART_ENTRY).any(|entry| entry == wanted.as_flattened())
    })
}

/// Whether nothing can be read from standard input.
fn is_silent() -> bool {
    const IN: u64 = 1;
    const HANG_UP: u64 = 16;
    let Ok(found) = calls::fstat(0) else { return false };
    match found.mode & S_IFMT {
        S_IFCHR => found.rdev == NULL_DEVICE,
        S_IFIFO => {
            let (mut watched, at_once) = (IN << 32, [0usize; 2]);
            let args = [(&raw mut watched) as usize, 1, at_once.as_ptr() as usize, 0, 0, 0];
            // SAFETY: a `struct pollfd` and a `struct timespec`.
            let ready = unsafe { raw(nr::ppoll, args) };
            ready == Ok(1) && watched >> 48 & (IN | HANG_UP) == HANG_UP
        }
        _ => false,
    }
}

/// A place on another host: of `hosts`, the one that is `asked` for, else one with more room than
/// this one has, if jobs run beside each other. `None`: it runs here.
fn placed(thread: &mut Thread, hosts: u64, asked: Option<u64>, path: &[u8]) -> Option<Descriptor> {
    if let Some(host) = asked {
        let talk = ask(thread, host, path, true)?;
        loads::note(thread, host);
        return Some(talk);
    }
    if !loads::has_siblings(thread) {
        return None;
    }
    let mut refused = 0;
    for _ in 0..ASKED_MAX {
        let host = loads::take_turn(thread, refused);
        if !(1..=hosts).contains(&host) {
            return None;
        }
        if let Some(talk) = ask(thread, host, path, false) {
            return Some(talk);
        }
        refused |= 1 << host;
    }
    loads::note(thread, 0);
    None
}

/// Asks the starter of `host` for a place, and waits for it if the host was `named`; the talk goes
/// on with the shadow.
fn ask(thread: &mut Thread, host: u64, path: &[u8], named: bool) -> Option<Descriptor> {
    let (mut room, mut path_room, mut digits) = ([0; 128], [0; 160], [0; 10]);
    let private = thread.client.private_path(&mut room)?.to_bytes();
    let length = put_decimal(&mut digits, host as u32);
    let mut socket = Text::new(&mut path_room);
    socket.put(private).put(b"host").put(&digits[..length]).put(b"\0");
    let (patience_s, first) = if named { (ASKED_PATIENCE_S, b"W") } else { (PATIENCE_S, b"A") };
    let talk = connect(CStr::from_bytes_with_nul(socket.whole()?).ok()?, patience_s)?;
    let mut room = [0; PATH_MAX + 2];
    let mut question = Text::new(&mut room);
    send(&talk, question.put(first).put(path).put(b"\0").whole()?)?;
    let mut answer = [0u8; 1];
    let args = [talk.0, answer.as_mut_ptr() as usize, 1, 0, 0, 0];
    // SAFETY: one byte, writable.
    let got = unsafe { raw(nr::recvfrom, args) };
    (got == Ok(1) && answer == *b"Y").then_some(talk)
}

/// Becomes the shadow; returns if that fails.
fn execute(thread: &mut Thread, talk: &Descriptor, argv: usize, envp: usize) -> Option<()> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    let mut room = [0; 128];
    let mut path_room = [0; 160];
    let private = thread.client.private_path(&mut room)?.to_bytes();
    let mut path = Text::new(&mut path_room);
    let path = path.put(private).put(b"shadow\0").whole()?;
    // SAFETY: no memory is involved.
    let before = unsafe { raw(nr::fcntl, [0, F_DUPFD_CLOEXEC, 16, 0, 0, 0]) }.ok().map(Descriptor);
    // SAFETY: as above; exec leaves the number open.
    unsafe { raw(nr::dup3, [talk.0, 0, 0, 0, 0, 0]) }.ok()?;
    let empty = [0usize];
    let envp = if envp == 0 { empty.as_ptr() as usize } else { envp };
    start_natively(thread, None, path.as_ptr() as usize, argv, envp);
    match before {
        // SAFETY: the descriptor that was there before.
        Some(before) => unsafe { raw(nr::dup3, [before.0, 0, 0, 0, 0, 0]) }.ok().map(|_| ()),
        None => {
            calls::close(0);
            None
        }
    }
}
