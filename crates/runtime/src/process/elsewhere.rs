//! An exec that goes on at another node of the image.
//!
//! ```text
//!   exec on node 0 ── chosen? ──► what it takes along ──► letter to the supervisor of node N
//!        ◄── its region, a runtime, a record ──'
//!        ──► pipes are the host's from now on ──► execveat(that runtime), as `husk exec` does
//! ```
//!
//! It stays the same process of the host: number, parent, group, terminal, and who waits for it.
//! The record on node 0 stays until its end, as that of a program that runs natively.
//!
//! Invariants
//! 1. Where anything is in the way nothing has happened, and it runs on its own node: a descriptor
//!    that is a file of the image, or an epoll or inotify instance; a directory that was removed; a
//!    supervisor that does not answer.
//! 2. An image of one node pays for a look at one word.

use crate::facts::{self, facts};
use crate::process::limits;
use crate::thread::Thread;
use core::ffi::CStr;
use husk_abi::proc::put_decimal;
use husk_abi::{PATH_MAX, nr};
use husk_host::{calls, syscall};
use husk_runtime::entry::{Joined, Newcomer, Text, joined, letter};
use husk_runtime::handover::{self, GUARD, HEAD_MAX, Handover, INITIAL, JOINS, PLAIN};
use husk_runtime::reach::{ANSWER_BYTES_MAX, Descriptor, connect, place, receive, send};

/// Most descriptors that a program takes along.
pub(super) const NUMBERS_MAX: usize = 64;
/// The two high numbers lie below this, and above that.
const NUMBERS_END: usize = 1022;
const NUMBERS_LOW: usize = 16;
/// Room for a letter: a directory, and numbers.
const LETTER_BYTES: usize = PATH_MAX + 1024;
/// The variable that says on which node what is started runs.
pub const NODE_NAME: &[u8] = b"HUSK_NODE=";
/// Room for a hand-over.
pub const TOLD_BYTES: usize = HEAD_MAX + PATH_MAX + 2;

/// The node to run on, if it is another than this.
pub fn chosen(thread: &mut Thread, nodes: u16, asked: Option<u64>) -> Option<u16> {
    let node = match asked {
        Some(node) => node,
        None if has_siblings() => thread.client.next_node_turn() % u64::from(nodes),
        None => 0,
    };
    u16::try_from(node).ok().filter(|node| (1..nodes).contains(node))
}

/// Whether its parent has other children that run: jobs beside each other are spread, one after the
/// other they stay. A host that does not say counts as yes.
pub(super) fn has_siblings() -> bool {
    // SAFETY: no memory is involved.
    let parent = unsafe { syscall(nr::getppid, [0; 6]) } as u32;
    let mut digits = [0; 10];
    let length = put_decimal(&mut digits, parent);
    let (mut room, number) = ([0; 64], &digits[..length]);
    let mut text = Text::new(&mut room);
    text.put(b"/proc/").put(number).put(b"/task/").put(number).put(b"/children\0");
    let Some(path) = text.whole().and_then(|path| CStr::from_bytes_with_nul(path).ok()) else {
        return true;
    };
    let Ok(fd) = calls::open(path) else { return true };
    let mut children = [0; 64];
    let got = calls::pread(fd, &mut children, 0).unwrap_or(0);
    calls::close(fd);
    children[..got].iter().filter(|byte| **byte == b' ').count() > 1
}

/// All that the other node has given.
pub struct Ready {
    joined: Joined,
    region: Descriptor,
    /// The runtime to become.
    pub loader: Descriptor,
}

/// Has the supervisor of a node take this process in.
pub fn join(thread: &mut Thread, node: u16) -> Option<Ready> {
    let (mut numbers, mut place_room) = ([0; NUMBERS_MAX], [0; PATH_MAX]);
    let along = thread.client.takes_along(&mut numbers, &mut place_room);
    let (many, here, umask) = along.ok()?;
    let mut room = [0; 128];
    let private = thread.client.private_path(&mut room)?.to_bytes();
    let (mut digits, mut path_room) = ([0; 10], [0; 160]);
    let length = put_decimal(&mut digits, node.into());
    let mut path = Text::new(&mut path_room);
    path.put(private).put(b"node").put(&digits[..length]).put(b"/socket\0");
    let socket = connect(CStr::from_bytes_with_nul(path.whole()?).ok()?)?;
    let pid = calls::getpid();
    let here = (!here.is_empty()).then_some(here);
    let newcomer = Newcomer { pid, inherited: numbers.get(..many)?, umask, here };
    let mut room = [0; LETTER_BYTES];
    send(&socket, letter(&newcomer, &mut Text::new(&mut room))?)?;
    let mut room = [0; ANSWER_BYTES_MAX];
    let (answer, [region, loader]) = receive(&socket, &mut room)?;
    let joined = joined(answer)?;
    let free = free_numbers()?;
    let (region, loader) = (place(&region, free[0])?, place(&loader, free[1])?);
    Some(Ready { joined, region, loader })
}

/// The two highest numbers under which nothing is open, and which are none of ours.
fn free_numbers() -> Option<[usize; 2]> {
    let kept = facts::kept_fds();
    let end = NUMBERS_END.min(kept.iter().map(|fd| *fd as usize).min()?);
    let numbers = (NUMBERS_LOW..end).rev();
    let mut free = numbers.filter(|number| calls::is_close_on_exec(*number).is_err());
    Some([free.next()?, free.next()?])
}

/// The first variable of the environment there.
pub fn handover<'a>(
    room: &'a mut [u8; TOLD_BYTES],
    ready: &Ready,
    path: &[u8],
) -> Option<&'a CStr> {
    let Joined { process, guard, trap_only } = ready.joined;
    let placing = 7 << handover::PLACE_SHIFT;
    let flags = facts().handover.flags & placing | INITIAL | JOINS | limits::flag();
    let flags = flags | if guard { GUARD } else { 0 } | if trap_only { PLAIN } else { 0 };
    let (region_fd, loader_fd) = (ready.region.0 as i32, ready.loader.0 as i32);
    let mut head = [0; HEAD_MAX];
    let length = Handover { process, region_fd, loader_fd, flags }.head(&mut head);
    let mut all = Text::new(room);
    all.put(head.get(..length)?);
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    if !path.contains(&b'/') {
        // A name alone is looked for in PATH there.
        all.put(b"./");
    }
    let length = all.put(path).put(b"\0").whole()?.len();
    CStr::from_bytes_with_nul(room.get(..length)?).ok()
}
