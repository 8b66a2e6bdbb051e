//! The runtime put where exec would put it, and begun: this process goes on in it.
//!
//! ```text
//!   parts of the runtime's file mapped ─► how the process is described ─► `husk` unmapped ─► jump
//!        '── anything unusual: exec does it, and leaves nothing of what was mapped
//! ```
//!
//! Invariants
//! 1. What the runtime and its program find is what they would find behind an exec: memory but for
//!    the stack, the vDSO and the runtime is not mapped; the heap begins behind the runtime; the
//!    words of the command are its arguments, also for who looks at the process from outside.
//!    `/proc/PID/exe` alone names `husk`, as it is the last file that was executed.
//! 2. Nothing that cannot be left to exec has happened before `describe` has succeeded, and nothing
//!    fails after it.

use core::arch::asm;
use core::ffi::CStr;

use husk_abi::{PAGE, nr, proc};
use husk_host::calls::{open, pread, raw};
use husk_runtime::elf::{EXECUTE, HEAD_BYTES, HEADER_BYTES, Header, Segment, segments};

use crate::host::Descriptor;
use crate::join::{COMMAND, Start};

const PAGE_BYTES: u64 = PAGE as u64;
const AT_BASE: usize = 7;

/// Where the runtime lies.
struct Runtime {
    entry: u64,
    code: u64,
    code_end: u64,
    data: u64,
    end: u64,
}

/// What is mapped that is not to stay.
pub struct Room {
    /// This code: where, and how long.
    pub own: [usize; 2],
    /// The command: from where, to where.
    pub husk: [usize; 2],
}

/// Becomes the runtime behind `loader`, told `handover`, with its program's words where they are.
/// Returns where exec must do it: also where the command is not one static file at a fixed place.
pub fn settle(
    start: &Start,
    loader: &Descriptor,
    handover: usize,
    room: &Room,
) -> Option<core::convert::Infallible> {
    let [low, end] = room.husk;
    let end = end.next_multiple_of(PAGE);
    // SAFETY: asks only.
    let heap = unsafe { raw(nr::brk, [0; 6]) }.ok()?;
    let apart = heap.checked_sub(end)?;
    if start.auxiliary(AT_BASE).is_some_and(|base| base != 0) || !low.is_multiple_of(PAGE) {
        return None;
    }
    let runtime = map(&readable(loader)?)?;
    describe(start, &runtime, apart as u64)?;
    // SAFETY: nobody uses anything of the command any more; this code lies elsewhere.
    let _ = unsafe { raw(nr::munmap, [low, end - low, 0, 0, 0, 0]) };
    let stack = lay_out(start, handover);
    // SAFETY: the runtime's first instruction, with its registers as it reads them; this stack lies
    // below the program's, and stays until the program begins.
    unsafe {
        asm!(
            "xor ebp, ebp", "jmp {entry}", entry = in(reg) runtime.entry,
            in("rdi") stack, in("rsi") room.own[0], in("rdx") room.own[1], options(noreturn)
        )
    }
}

/// What a place to execute leads to, to be read.
fn readable(loader: &Descriptor) -> Option<Descriptor> {
    let path = proc::descriptor(loader.0 as u32);
    open(CStr::from_bytes_until_nul(&path).ok()?).ok().map(Descriptor)
}

/// Maps the runtime where it says.
fn map(loader: &Descriptor) -> Option<Runtime> {
    let mut head = [0; HEAD_BYTES / 2];
    let got = pread(loader.0, &mut head, 0).ok()?;
    let head = head.get(..got)?;
    let header = Header::parse(head).ok().filter(|header| !header.relocatable)?;
    let from = header.headers_offset as usize;
    let table = head.get(from..from.checked_add(header.headers * HEADER_BYTES)?)?;
    let mut runtime = Runtime { entry: header.entry, code: 0, code_end: 0, data: 0, end: 0 };
    for part in segments(table) {
        place(loader, &part)?;
        if part.flags & EXECUTE != 0 {
            (runtime.code, runtime.code_end) = (part.address, part.address + part.memory_bytes);
        }
        runtime.data = part.address;
        runtime.end = (part.address + part.memory_bytes).next_multiple_of(PAGE_BYTES);
    }
    (runtime.code..runtime.code_end).contains(&runtime.entry).then_some(runtime)
}

/// Maps a part that is whole pages of the file, or none of it.
fn place(loader: &Descriptor, part: &Segment) -> Option<()> {
    const READ: usize = 1;
    const WRITE: usize = 2;
    const EXECUTABLE: usize = 4;
    const PRIVATE_FIXED: usize = 0x100002;
    const ANONYMOUS: usize = 0x20;
    let bytes = part.memory_bytes.next_multiple_of(PAGE_BYTES);
    let of_file =
        part.file_bytes == part.memory_bytes && part.file_bytes.is_multiple_of(PAGE_BYTES);
    let aligned = (part.address | part.offset).is_multiple_of(PAGE_BYTES);
    if !aligned || !(of_file || part.file_bytes == 0) {
        return None;
    }
    let may = |flag, protection| if part.flags & flag != 0 { protection } else { 0 };
    use husk_runtime::elf;
    let protection = may(elf::READ, READ) | may(elf::WRITE, WRITE) | may(elf::EXECUTE, EXECUTABLE);
    let (flags, fd, offset) = match of_file {
        true => (PRIVATE_FIXED, loader.0, part.offset as usize),
        false => (PRIVATE_FIXED | ANONYMOUS, usize::MAX, 0),
    };
    // SAFETY: replaces nothing.
    unsafe { raw(nr::mmap, [part.address as usize, bytes as usize, protection, flags, fd, offset]) }
        .is_ok_and(|placed| placed as u64 == part.address)
        .then_some(())
}

/// `struct prctl_mm_map`.
#[repr(C)]
struct Description {
    code: [u64; 2],
    data: [u64; 2],
    heap: [u64; 2],
    stack: u64,
    arguments: [u64; 2],
    variables: [u64; 2],
    auxiliary: u64,
    auxiliary_bytes: u32,
    executable: i32,
}

const _: () = assert!(size_of::<Description>() == 104);

/// Tells the host what lies where, as exec does: heap, and words that others see. A host without
/// `CONFIG_CHECKPOINT_RESTORE` has no such call.
fn describe(start: &Start, runtime: &Runtime, apart: u64) -> Option<()> {
    const PR_SET_MM: usize = 35;
    const PR_SET_MM_MAP: usize = 14;
    // As far behind as the host has put that of the command, which is random.
    let heap = runtime.end + apart;
    let (arguments, variables) = start.strings();
    let description = Description {
        code: [runtime.code, runtime.code_end],
        data: [runtime.data; 2],
        heap: [heap; 2],
        stack: start.new_stack() as u64,
        arguments,
        variables,
        auxiliary: 0,
        auxiliary_bytes: 0,
        executable: -1,
    };
    let place = (&raw const description) as usize;
    let args = [PR_SET_MM, PR_SET_MM_MAP, place, size_of::<Description>(), 0, 0];
    // SAFETY: `description` has the host's layout.
    unsafe { raw(nr::prctl, args) }.ok().map(drop)
}

/// Lays the words of the command out as exec does, with the hand-over and its name before the
/// variables; where that stack begins.
fn lay_out(start: &Start, handover: usize) -> usize {
    let count = start.count - COMMAND;
    // SAFETY: all within the words and the 0 behind them.
    unsafe {
        let first = start.words.add(COMMAND - 2);
        let name = *start.words.add(start.program);
        start.words.add(COMMAND).copy_to(first, count);
        (*first.add(count), *first.add(count + 1)) = (0, handover);
        *first.add(count + 2) = name;
        *first.sub(1) = count;
    }
    start.new_stack()
}
