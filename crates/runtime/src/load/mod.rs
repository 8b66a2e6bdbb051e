//! Puts an ELF program and its interpreter in memory, as the host's own loader would.
//!
//! Invariants
//! 1. What is mapped executable from a host file is its rewritten copy, when there is one; of a
//!    large program that starts often, its bytes in huge pages of the region's file.
//!    What a static program at fixed addresses maps, it maps as it is: that may be another program,
//!    whose code it reads, as valgrind does, and jumps to us would not be understood.
//! 2. Few calls: one read of the head, one mapping that reserves the span, one a segment.

pub(crate) mod restore;

use crate::client::programs::Source;
use crate::facts::facts;
use crate::thread::Thread;
use crate::thread::client::ThreadClient;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use husk_abi::memory::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use husk_abi::{Errno, HUGE_BYTES, PAGE, nr};
use husk_client::{ExecTarget, Program};
use husk_host::calls;
use husk_runtime::elf::{self, HEADER_BYTES, HEADERS_MAX, Header, Segment, Summary};

/// Longest path of an interpreter with its NUL (real ones have about 30 bytes).
pub const INTERPRETER_MAX: usize = 512;

/// Where a program lies and how it is to be started.
pub struct Loaded {
    /// Where to jump: the interpreter's entry, or the program's.
    pub start: usize,
    /// `AT_ENTRY`.
    pub entry: usize,
    /// `AT_PHDR`.
    pub headers_address: usize,
    /// `AT_PHNUM`.
    pub headers: usize,
    /// `AT_BASE`, 0 without an interpreter.
    pub interpreter_base: usize,
    /// What the call returned that a recorded loader goes on behind; 0: it is not recorded.
    pub result: usize,
}

/// Whether what is mapped executable here is not for the processor, as far as one can tell.
pub fn reads_code() -> bool {
    READS_CODE.load(Relaxed)
}

static READS_CODE: AtomicBool = AtomicBool::new(false);

struct Placed {
    bias: usize,
    entry: usize,
    headers_address: usize,
    headers: usize,
    interpreter: Option<(u64, u64)>,
    executable_stack: bool,
}

/// Loads `program` and what it names as interpreter.
pub fn load(thread: &mut Thread, program: &Program) -> Result<Loaded, Errno> {
    let mut head = [0u8; elf::HEAD_BYTES];
    let placed = place(thread, program, facts().path, &mut head)?;
    let mut loaded = Loaded {
        start: placed.entry,
        entry: placed.entry,
        headers_address: placed.headers_address,
        headers: placed.headers,
        interpreter_base: 0,
        result: 0,
    };
    if placed.executable_stack {
        open_stack();
    }
    if let Some((offset, bytes)) = placed.interpreter {
        let mut path = [0u8; INTERPRETER_MAX];
        let path = interpreter_path(thread, program, &head, offset, bytes, &mut path)?;
        let interpreter = thread.client.open_interpreter(path)?;
        let placed = place(thread, &interpreter, path, &mut head)?;
        thread.client.close_program(interpreter);
        loaded.start = placed.entry;
        loaded.interpreter_base = placed.bias;
    } else if placed.bias == 0 {
        READS_CODE.store(true, Relaxed);
    }
    thread.client.close_program(*program);
    Ok(loaded)
}

fn interpreter_path<'a>(
    thread: &mut Thread,
    program: &Program,
    head: &[u8],
    offset: u64,
    bytes: u64,
    out: &'a mut [u8; INTERPRETER_MAX],
) -> Result<&'a CStr, Errno> {
    let bytes = usize::try_from(bytes).map_err(|_| Errno::ENOEXEC)?;
    let path = out.get_mut(..bytes).ok_or(Errno::ENOEXEC)?;
    match head.get(offset as usize..(offset as usize).saturating_add(bytes)) {
        Some(text) => path.copy_from_slice(text),
        None if thread.client.read_program(program, path, offset)? == bytes => {}
        None => return Err(Errno::ENOEXEC),
    }
    CStr::from_bytes_until_nul(path).map_err(|_| Errno::ENOEXEC)
}

/// `head` gets the first bytes of the file (the rest of it is zero).
fn place(
    thread: &mut Thread,
    program: &Program,
    path: &CStr,
    head: &mut [u8; elf::HEAD_BYTES],
) -> Result<Placed, Errno> {
    let got = thread.client.read_program(program, head, 0)?;
    head[got..].fill(0);
    let header = Header::parse(&head[..got]).map_err(|_| Errno::ENOEXEC)?;
    let at = header.headers_offset as usize;
    match head[..got].get(at..at + header.headers * HEADER_BYTES) {
        Some(table) => place_segments(thread, program, path, &header, table),
        None => place_far(thread, program, path, &header),
    }
}

/// A table of program headers that lies behind the head. Apart, so that nobody else pays for its
/// frame: at start every page of stack is a fault.
#[inline(never)]
fn place_far(
    thread: &mut Thread,
    program: &Program,
    path: &CStr,
    header: &Header,
) -> Result<Placed, Errno> {
    let mut room = [0u8; HEADERS_MAX * HEADER_BYTES];
    let table = headers(&mut thread.client, program, header, &[], &mut room)?;
    place_segments(thread, program, path, header, table)
}

fn place_segments(
    thread: &mut Thread,
    program: &Program,
    path: &CStr,
    header: &Header,
    table: &[u8],
) -> Result<Placed, Errno> {
    let summary = Summary::parse(table, header.headers_offset).map_err(|_| Errno::ENOEXEC)?;
    let source = thread.client.executable(program, path.to_bytes());
    let bias = map(thread, &source, header, &summary, table)?;
    if source.opened {
        thread.client.close_program(source.program);
    }
    Ok(Placed {
        bias,
        entry: bias.wrapping_add(header.entry as usize),
        headers_address: summary.headers_address.map_or(0, |a| bias.wrapping_add(a as usize)),
        headers: header.headers,
        interpreter: summary.interpreter,
        executable_stack: summary.executable_stack,
    })
}

/// The table of program headers: usually within the head already.
pub fn headers<'a>(
    wire: &mut ThreadClient,
    program: &Program,
    header: &Header,
    head: &'a [u8],
    room: &'a mut [u8],
) -> Result<&'a [u8], Errno> {
    let bytes = header.headers * HEADER_BYTES;
    let at = header.headers_offset as usize;
    if let Some(table) = head.get(at..at + bytes) {
        return Ok(table);
    }
    let table = &mut room[..bytes];
    if wire.read_program(program, table, header.headers_offset)? != bytes {
        return Err(Errno::ENOEXEC);
    }
    Ok(table)
}

fn protection(segment: &Segment) -> usize {
    let pick = |flag: u32, prot: usize| if segment.flags & flag != 0 { prot } else { 0 };
    pick(elf::READ, PROT_READ) | pick(elf::WRITE, PROT_WRITE) | pick(elf::EXECUTE, PROT_EXEC)
}

fn map(
    thread: &mut Thread,
    source: &Source,
    header: &Header,
    summary: &Summary,
    table: &[u8],
) -> Result<usize, Errno> {
    let (bias, mapped) = match spread(source, header, summary, table) {
        Some(bias) => (bias?, 1),
        None => (reserve(source, header, summary)?, 0),
    };
    for segment in elf::segments(table).skip(mapped) {
        map_segment(thread, source, summary, bias, &segment)?;
    }
    Ok(bias)
}

/// Maps the first segment over the whole span, so that it sets the span aside in the same call.
/// `None`: the file is not of the usual kind.
fn spread(
    source: &Source,
    header: &Header,
    summary: &Summary,
    table: &[u8],
) -> Option<Result<usize, Errno>> {
    let (ExecTarget::Host(fd), Some(first)) = (source.program.target, elf::segments(table).next())
    else {
        return None;
    };
    let low = summary.low as usize;
    let constant = first.flags & elf::WRITE == 0 && first.file_bytes == first.memory_bytes;
    let at_low = first.address as usize == low && low.is_multiple_of(PAGE);
    let offset = first.offset as usize;
    let aligned = summary.align as usize <= PAGE && offset.is_multiple_of(PAGE);
    let by_offset = source.gathered.is_none();
    if !(by_offset && header.relocatable && constant && at_low && aligned && first.file_bytes > 0) {
        return None;
    }
    let span = (summary.high - summary.low) as usize;
    let args = [0, span, protection(&first), MAP_PRIVATE, fd as usize, offset];
    // SAFETY: a fresh mapping anywhere.
    Some(unsafe { calls::raw(nr::mmap, args) }.map(|base| base.wrapping_sub(low)))
}

/// Sets the span aside; returns what is added to the file's addresses.
fn reserve(source: &Source, header: &Header, summary: &Summary) -> Result<usize, Errno> {
    let span = (summary.high - summary.low) as usize;
    let low = summary.low as usize;
    let anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    let none = -1isize as usize;
    if !header.relocatable {
        let flags = anonymous | MAP_FIXED_NOREPLACE;
        // SAFETY: a fresh mapping that replaces nothing.
        unsafe { calls::raw(nr::mmap, [low, span, 0, flags, none, 0]) }
            .map_err(|_| Errno::ENOMEM)?;
        return Ok(0);
    }
    let align = source.gathered.map_or(PAGE, |_| HUGE_BYTES).max(summary.align as usize);
    let skew = low & (align - 1);
    let extra = if align > PAGE { align + skew } else { 0 };
    // SAFETY: a fresh mapping anywhere.
    let at = unsafe { calls::raw(nr::mmap, [0, span + extra, 0, anonymous, none, 0]) }?;
    let base = at.next_multiple_of(align) + skew;
    if base > at {
        // SAFETY: our own surplus.
        let _ = unsafe { calls::raw(nr::munmap, [at, base - at, 0, 0, 0, 0]) };
    }
    let surplus = at + span + extra - (base + span);
    if surplus > 0 {
        // SAFETY: as above.
        let _ = unsafe { calls::raw(nr::munmap, [base + span, surplus, 0, 0, 0, 0]) };
    }
    Ok(base.wrapping_sub(low))
}

fn map_segment(
    thread: &mut Thread,
    source: &Source,
    summary: &Summary,
    bias: usize,
    segment: &Segment,
) -> Result<(), Errno> {
    let prot = protection(segment);
    let address = bias.wrapping_add(segment.address as usize);
    let start = address & !(PAGE - 1);
    let skew = address - start;
    let file_end = address + segment.file_bytes as usize;
    let memory_end = address + segment.memory_bytes as usize;
    if segment.file_bytes > 0 {
        let length = file_end - start;
        let low = summary.low as usize & !(HUGE_BYTES - 1);
        let by_address = |at| at + (segment.address as usize - low);
        let offset = source.gathered.map_or(segment.offset as usize, by_address) - skew;
        thread.client.map_file(&source.program, start, length, prot, offset)?;
    }
    let mapped_end = if segment.file_bytes > 0 { file_end.next_multiple_of(PAGE) } else { start };
    if memory_end > file_end && prot & PROT_WRITE != 0 && mapped_end > file_end {
        let end = segment.offset + segment.file_bytes;
        if end.saturating_sub(1) & !(PAGE as u64 - 1) >= source.program.size {
            // The file was cut off: this page is SIGBUS.
            return Err(Errno::ENOEXEC);
        }
        // SAFETY: the tail of the page just mapped, private and writable.
        unsafe { core::ptr::write_bytes(file_end as *mut u8, 0, mapped_end - file_end) };
    }
    if memory_end > mapped_end {
        let length = memory_end - mapped_end;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        let none = -1isize as usize;
        // SAFETY: inside the reserved span.
        unsafe { calls::raw(nr::mmap, [mapped_end, length, prot, flags, none, 0]) }?;
    }
    Ok(())
}

/// An executable stack, as old programs ask for it.
fn open_stack() {
    const PROT_GROWSDOWN: usize = 0x0100_0000;
    let here = 0u8;
    let page = (&raw const here) as usize & !(PAGE - 1);
    let prot = PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN;
    // SAFETY: widens the protection of the stack we stand on.
    let _ = unsafe { calls::raw(nr::mprotect, [page, PAGE, prot, 0, 0, 0]) };
}
