//! Calls thrown at a client whose host has nothing and whose pointers lead nowhere, made from
//! bytes: a seed's, or a fuzzer's (`fuzz/`). Each gets an answer, and the structure stays sound.
#![allow(dead_code)] // each user needs a part of it

use std::sync::OnceLock;

use husk_abi::Errno;
use husk_carrier::{Direct, Directories};
use husk_client::{Buffers, Call, Client, Host, Mapping, Memory};
use husk_proto::fs::{Run, Span};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Inode, Process, Processes};

use crate::{support, world};

/// Where decisions come from: bytes, or a seed's once they are used up.
pub struct Bytes<'a> {
    pub given: &'a [u8],
    pub seed: u64,
}

impl Bytes<'_> {
    pub fn below(&mut self, bound: usize) -> usize {
        if let Some((first, rest)) = self.given.split_first() {
            self.given = rest;
            return *first as usize % bound;
        }
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) as usize % bound
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Numbers a new program has open.
pub fn open_fds() -> Vec<u32> {
    // SAFETY: a plain call.
    let open = |fd: &u32| unsafe { libc::fcntl(*fd as i32, libc::F_GETFD) } >= 0;
    (0..64).filter(open).collect()
}

/// Makes the image, once.
fn made() {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        support::image(support::LAYOUT, Cover::Memory).0.detach();
    });
}

pub fn boss() -> Direct {
    made();
    Direct::attach(support::clock, Process(0), std::process::id(), support::tid())
        .expect("attached")
}

/// A program of the image, by this clock.
pub fn direct(boss: &mut Direct, clock: fn() -> i64) -> Direct {
    let pid = std::process::id();
    let process = boss.first_process(pid, &open_fds()).expect("a record");
    Direct::attach(clock, process, pid, support::tid()).expect("attached")
}

/// A host that has nothing.
#[derive(Clone, Copy)]
pub struct Nowhere;

impl Host for Nowhere {
    type Still = ();

    fn keep_still(&self) {}

    fn call(&self, _: usize, _: [usize; 6]) -> i64 {
        -38
    }
    fn now_ns(&self) -> i64 {
        support::frozen()
    }
    fn map_cache(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENOMEM)
    }
    fn map_runs(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }
    fn note_mapping(&self, _: &Mapping, _: Inode) {}
    fn stack_room(&self, _: usize) -> usize {
        0
    }
}

/// Memory that ends: `PAGE` bytes are there, everything else faults.
#[derive(Clone, Copy)]
pub struct Fenced;

const PAGE: usize = 8192;
static ROOM: [std::sync::atomic::AtomicU8; PAGE] =
    [const { std::sync::atomic::AtomicU8::new(0) }; PAGE];

/// The part of the room at an address, if `length` bytes are there.
fn room(address: usize, length: usize) -> Result<*mut u8, Errno> {
    let start = ROOM.as_ptr() as usize;
    let end = address.checked_add(length).ok_or(Errno::EFAULT)?;
    if address < start || end > start + PAGE { Err(Errno::EFAULT) } else { Ok(address as *mut u8) }
}

impl Memory for Fenced {
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno> {
        let from = room(source, target.len())?;
        // SAFETY: inside the room, whose bytes may change; one thread uses it.
        unsafe { core::ptr::copy(from, target.as_mut_ptr(), target.len()) };
        Ok(())
    }
    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno> {
        let to = room(target, source.len())?;
        // SAFETY: as above.
        unsafe { core::ptr::copy(source.as_ptr(), to, source.len()) };
        Ok(())
    }
    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno> {
        for (n, byte) in target.iter_mut().enumerate() {
            // SAFETY: one byte inside the room.
            *byte = unsafe { *room(source.checked_add(n).ok_or(Errno::EFAULT)?, 1)? };
            if *byte == 0 {
                return Ok(n);
            }
        }
        Err(Errno::ENAMETOOLONG)
    }
    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno> {
        let to = room(target, span.length)?;
        // SAFETY: the span lies in the cache, the target in the room.
        unsafe { core::ptr::copy(span.address as *const u8, to, span.length) };
        Ok(())
    }
    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno> {
        let from = room(source, span.length)?;
        // SAFETY: as above.
        unsafe { core::ptr::copy(from, span.address as *mut u8, span.length) };
        Ok(())
    }
}

/// A number of a kind that calls stumble over.
fn odd(bytes: &mut Bytes) -> usize {
    let start = ROOM.as_ptr() as usize;
    match bytes.below(12) {
        0..=3 => start + bytes.below(40),
        4 => start + PAGE - 1 - bytes.below(20),
        5 => bytes.below(8),
        6 => 3 + bytes.below(4),
        7 => usize::MAX - bytes.below(3),
        8 => i64::MAX as usize - bytes.below(4096),
        9 => 1 << bytes.below(63),
        10 => -100isize as usize,
        _ => bytes.below(70_000),
    }
}

/// What a call was answered: its number, and the error (0 = none).
pub type Answer = (usize, i64);

/// An image in which nothing has happened, by a clock that stands still: numbers and times that
/// calls leave in memory are what other calls are given, so what an input is answered is its own
/// doing, and one that breaks something breaks it again.
pub fn start_anew() -> Direct {
    made();
    ROOM.iter().for_each(|byte| byte.store(0, std::sync::atomic::Ordering::Relaxed));
    support::format_again(support::LAYOUT, Cover::Memory, Directories::default()).0
}

/// Throws `calls` calls, or as many as there are bytes for; what was answered.
pub fn throw(given: &[u8], seed: u64, calls: usize) -> Vec<Answer> {
    let mut bytes = Bytes { given, seed: seed.wrapping_mul(husk_abi::SPREAD) };
    let mut boss = start_anew();
    let buffers = Box::into_raw(Box::new(Buffers::new()));
    let me = direct(&mut boss, support::frozen);
    // SAFETY: a box of ours, given to one client, and taken back when that is gone.
    let mut client = Client::new(me, Nowhere, Fenced, unsafe { &mut *buffers });
    let wanted: Vec<usize> = (0..512).filter(|&n| husk_client::wants(n)).collect();
    let text = b"/tmp/mount/x\0../y\0d/e/f\0\0/tmp/mount\0.";
    let mut answers = Vec::new();
    for _ in 0..calls {
        if bytes.given.is_empty() && !given.is_empty() {
            break;
        }
        let at = ROOM.as_ptr() as usize + bytes.below(30);
        let name = &text[bytes.below(text.len() - 1)..];
        Fenced.write(at, name).expect("room for a name");
        let args = [(); 6].map(|()| odd(&mut bytes));
        let call = Call { number: bytes.one(&wanted), args };
        if let husk_client::Verdict::Return(value) = client.call(call) {
            answers.push((call.number, value.clamp(-4096, 0)));
        }
    }
    client.services().exit();
    client.services().detach();
    // SAFETY: as above; the client is not used any more.
    drop(unsafe { Box::from_raw(buffers) });
    boss.detach();
    answers
}

/// The structure is whole after what `told` names.
pub fn sound(told: &str) {
    let mut boss = boss();
    let found = world::findings(&boss);
    assert!(found.is_empty(), "{told}: {found:?}");
    boss.detach();
}
