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
//! 1. Where anything is in the way nothing has happened, and it runs on its own node: an epoll or
//!    inotify instance, more than `ALONG_MAX` descriptors, a directory that was removed. What it
//!    has open of the image it keeps here, too, until it ends.
//! 2. A node that does not answer is left out, unless `HUSK_NODE` names it: then the exec fails, as
//!    it does where `HUSK_NODE` names no node. A program never runs on another node than was asked
//!    for because that one is not there.
//! 3. An image of one node pays for a look at one word.

use crate::client::nodes::Along;
use crate::clock;
use crate::facts::{self, facts};
use crate::memory;
use crate::process::limits;
use crate::process::loads;
use crate::process::placement;
use crate::thread::Thread;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::proc::put_decimal;
use husk_abi::{Errno, PATH_MAX, SPREAD};
use husk_host::calls;
use husk_proto::place::Policy;
use husk_proto::process::ALONG_MAX;
use husk_runtime::entry::{Joined, Newcomer, Text, joined, letter};
use husk_runtime::handover::{self, GUARD, HEAD_MAX, Handover, INITIAL, JOINS, PLAIN};
use husk_runtime::reach::{
    ANSWER_BYTES_MAX, Descriptor, PATIENCE_S, connect, place, receive, send,
};

/// The two high numbers lie below this, and above that.
const NUMBERS_END: usize = 1022;
const NUMBERS_LOW: usize = 16;
/// Room for a letter: a directory, and two lists of numbers of up to 7 digits.
const LETTER_BYTES: usize = PATH_MAX + 16 * ALONG_MAX + 256;
/// The variable that says on which node what is started runs.
pub const NODE_NAME: &[u8] = b"HUSK_NODE=";
/// Room for a hand-over.
pub const TOLD_BYTES: usize = HEAD_MAX + PATH_MAX + 2;

/// Longest value of it that is shown.
const NODE_BYTES_MAX: usize = 24;
/// Seconds that a node which was asked for may take to answer: its supervisor may be one that was
/// killed, and is started again; a host may not know the program yet.
pub const ASKED_PATIENCE_S: i64 = 10;

/// What `HUSK_NODE` says in the environment of a new program.
#[derive(Clone, Copy)]
pub enum Asked {
    /// Nothing.
    Any,
    /// A number, not yet compared with how many nodes there are.
    Node(u32),
    /// What is no number.
    Senseless([u8; NODE_BYTES_MAX]),
}

impl Asked {
    /// Looks through an environment.
    pub fn of(envp: usize) -> Asked {
        let mut at = envp;
        while at != 0 {
            let Some(text) = memory::word(at).ok().filter(|text| *text != 0) else { break };
            let mut room = [0; NODE_NAME.len() + NODE_BYTES_MAX];
            // A longer one fills the room, and has no number.
            let length = memory::read_string(text, &mut room).unwrap_or(room.len());
            if let Some(value) = room[..length].strip_prefix(NODE_NAME) {
                return Asked::read(value);
            }
            at += 8;
        }
        Asked::Any
    }

    fn read(value: &[u8]) -> Asked {
        let digits = value.iter().all(u8::is_ascii_digit);
        let number = core::str::from_utf8(value).ok().filter(|_| digits);
        match number.and_then(|number| number.parse().ok()) {
            Some(node) => Asked::Node(node),
            None => {
                let mut shown = [0; NODE_BYTES_MAX];
                shown.iter_mut().zip(value).for_each(|(to, byte)| *to = *byte);
                Asked::Senseless(shown)
            }
        }
    }

    /// The node, if one of `nodes` is asked for. `ENXIO`, and a line: there is none like that.
    pub fn settle(self, nodes: u16, program: &CStr) -> Result<Option<u64>, Errno> {
        let mut digits = [0; 10];
        let value = match &self {
            Asked::Any => return Ok(None),
            Asked::Node(node) if *node < u32::from(nodes) => return Ok(Some((*node).into())),
            Asked::Node(node) => {
                let length = put_decimal(&mut digits, *node);
                &digits[..length]
            }
            Asked::Senseless(shown) => {
                shown.split(|byte| *byte == 0 || byte.is_ascii_control()).next().unwrap_or(b"")
            }
        };
        let mut last_digits = [0; 10];
        let last = put_decimal(&mut last_digits, u32::from(nodes) - 1);
        let last = &last_digits[..last];
        refuse(program, &[b": HUSK_NODE is ", value, b"; set it to 0 to ", last, b", or unset it"]);
        Err(Errno::ENXIO)
    }
}

/// Says once in this process why `program` does not run.
fn refuse(program: &CStr, why: &[&[u8]]) {
    // A shell looks for a program in one directory after the other.
    static SAID_BY: AtomicU32 = AtomicU32::new(0);
    let pid = calls::getpid();
    if SAID_BY.swap(pid, Relaxed) == pid {
        return;
    }
    let mut room = [0; PATH_MAX + 160];
    let mut line = Text::new(&mut room);
    line.put(b"husk: cannot run ").put(program.to_bytes());
    for part in why {
        line.put(part);
    }
    if let Some(line) = line.put(b"\n").whole() {
        calls::write(2, line);
    }
}

/// The node to run on, if it is another than this; `asked` is one of `nodes`.
pub fn chosen(thread: &mut Thread, nodes: u16, asked: Option<u64>) -> Option<u16> {
    let node = match (asked, placement::over_nodes(thread.client.place_rule())) {
        (Some(node), _) => node,
        (None, Policy::Stay) => 0,
        (None, _) if !loads::has_siblings(thread) => 0,
        (None, Policy::Random) => {
            let seed = clock::now_ns() as u64 ^ u64::from(calls::getpid()) << 32;
            (seed.wrapping_mul(SPREAD) >> 32) % u64::from(nodes)
        }
        (None, _) => thread.client.next_node_turn() % u64::from(nodes),
    };
    u16::try_from(node).ok().filter(|node| (1..nodes).contains(node))
}

/// All that the other node has given.
pub struct Ready {
    joined: Joined,
    region: Descriptor,
    /// The runtime to become.
    pub loader: Descriptor,
}

/// Has the supervisor of a node take this process in. `None`: something is in the way, or the node
/// does not answer and was not `asked` for. `EHOSTDOWN`, and a line: it was.
#[inline(never)]
pub fn join(
    thread: &mut Thread,
    node: u16,
    asked: bool,
    program: &CStr,
) -> Result<Option<Ready>, Errno> {
    let (mut numbers, mut passed) = ([0; ALONG_MAX], [0; ALONG_MAX]);
    let mut place_room = [0; PATH_MAX];
    let along = thread.client.takes_along(&mut numbers, &mut passed, &mut place_room);
    let Ok(Along { numbers: inherited, passed, here, umask }) = along else { return Ok(None) };
    let here = (!here.is_empty()).then_some(here);
    let newcomer = Newcomer { pid: calls::getpid(), inherited, passed, umask, here };
    let mut room = [0; LETTER_BYTES];
    let mut text = Text::new(&mut room);
    let Some(letter) = letter(&newcomer, &mut text) else { return Ok(None) };
    let patience_s = if asked { ASKED_PATIENCE_S } else { PATIENCE_S };
    let mut digits = [0; 10];
    let length = put_decimal(&mut digits, node.into());
    let number = &digits[..length];
    if let Some((joined, region, loader)) = admitted(thread, number, letter, patience_s) {
        let Some(free) = free_numbers() else { return Ok(None) };
        let placed = place(&region, free[0]).zip(place(&loader, free[1]));
        return Ok(placed.map(|(region, loader)| Ready { joined, region, loader }));
    }
    if !asked {
        return Ok(None);
    }
    let why = b": it has ended or does not answer; see `husk nodes`, or set HUSK_NODE=0";
    refuse(program, &[b" on node ", number, why]);
    Err(Errno::EHOSTDOWN)
}

/// What the supervisor of the node with this number answers to a letter.
fn admitted(
    thread: &mut Thread,
    number: &[u8],
    letter: &[u8],
    patience_s: i64,
) -> Option<(Joined, Descriptor, Descriptor)> {
    let mut room = [0; 128];
    let private = thread.client.private_path(&mut room)?.to_bytes();
    let mut path_room = [0; 160];
    let mut path = Text::new(&mut path_room);
    path.put(private).put(b"node").put(number).put(b"/socket\0");
    let path = CStr::from_bytes_with_nul(path.whole()?).ok()?;
    let socket = connect(path, patience_s)?;
    send(&socket, letter)?;
    let mut room = [0; ANSWER_BYTES_MAX];
    let (answer, [region, loader]) = receive(&socket, &mut room)?;
    Some((joined(answer)?, region, loader))
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
