//! The first instructions of every program: take over, put the program in memory, step aside.
//!
//! ```text
//!   host exec ─► _start ─► start: hand-over out of the environment
//!                             ─► thread block, handlers, image
//!                             ─► load: program and interpreter (or their rewritten copies)
//!                             ─► auxv as the program must see it ─► jump
//! ```
//!
//! Invariant: the program finds its stack exactly as the host would have made it; only the
//! hand-over's strings stay above, where nothing points to them but `AT_EXECFN`.

use crate::client::programs;
use crate::facts::{self, Facts, NONE, facts, kept_fds};
use crate::load::restore::{self, Inputs};
use crate::process::refusal::{self, die};
use crate::process::{exec, landlock, spawn};
use crate::thread::{self, Thread};
use crate::{dump, load, signal};
use core::arch::global_asm;
use core::ffi::CStr;
use husk_abi::{Errno, PATH_MAX, nr};
use husk_client::Program;
use husk_host::{calls, syscall};
use husk_proto::descriptor::Slot;
use husk_proto::place::Policy;
use husk_runtime::handover::{self, Handover};

global_asm!(
    ".text",
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rbx, rsp",
    "test rdi, rdi",
    "cmovnz rbx, rdi",
    "mov rdi, rbx",
    "and rsp, -16",
    "call {start}",
    "mov rsp, rbx",
    "mov rcx, rax",
    "mov rax, rdx",
    "xor edx, edx",
    "xor ebx, ebx",
    "xor esi, esi",
    "xor edi, edi",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "jmp rcx",
    start = sym start,
);

/// Exit status when there is no image to run in.
const STATUS_NO_IMAGE: usize = 125;

/// Where the program or its loader begins or goes on (here in rax), and what it finds in rax (here
/// in rdx).
#[repr(C)]
struct Begin {
    start: usize,
    result: usize,
}

/// `sp` is the stack as exec makes it. Where the narrow way of `husk exec` has done without one,
/// the stack that runs lies below it, and `left` says what of that way is still mapped.
extern "C" fn start(sp: *mut usize, left: usize, left_bytes: usize) -> Begin {
    if left_bytes != 0 {
        // SAFETY: code that nobody runs any more. If it stays, it is in nobody's way.
        unsafe { syscall(nr::munmap, [left, left_bytes, 0, 0, 0, 0]) };
    }
    let Some(mut stack) = take_over(sp) else {
        die(STATUS_NO_IMAGE, b"husk-rt starts programs inside an image; use `husk run`", b"", b"");
    };
    let thread = thread::first(stack.find(AT_HWCAP2) & FSGSBASE != 0);
    thread.in_service = 1;
    signal::install(thread);
    if let Err(errno) = thread.client.start() {
        let why: &[u8] = match errno {
            Errno::ENOMEM => b"no address space is left for it; raise the limit: ulimit -v",
            errno => refusal::message(errno),
        };
        die(STATUS_NO_IMAGE, b"cannot join the image", b": ", why);
    }
    if facts().handover.flags & handover::INITIAL != 0 {
        landlock::restrict(thread);
    }
    let program = program(thread, &mut stack);
    if facts().handover.flags & handover::INITIAL != 0 {
        thread.client.place_first();
    }
    let restored = restore::begin(thread, &program, &stack.inputs());
    let loaded = match restored.map_or_else(|| load::load(thread, &program), Ok) {
        Ok(loaded) => loaded,
        Err(errno) => die(126, facts().path.to_bytes(), b": ", refusal::message(errno)),
    };
    stack.describe(&loaded);
    if dump::begin(stack.auxv as usize) {
        signal::catch_dumps(thread);
    }
    name_thread();
    if !spawn::dispatch_calls() {
        die(STATUS_NO_IMAGE, b"this host has no Syscall User Dispatch", b"", b"");
    }
    thread.in_service = 0;
    Begin { start: loaded.start, result: loaded.result }
}

/// Opens the program: as resolved by the exec that led here, or (first exec) searched for.
fn program(thread: &mut Thread, stack: &mut Stack) -> Program {
    if facts().handover.flags & handover::INITIAL != 0 {
        if facts().handover.flags & handover::JOINS == 0 {
            hang_up_with_supervisor();
        }
        return exec::first(thread, stack.argv(), stack.envp());
    }
    let flags = facts().handover.flags;
    let opened = if flags & handover::OF_RECORD != 0 {
        thread.client.open_running()
    } else if flags & handover::HOST != 0 {
        programs::open_host(facts().path)
    } else {
        thread.client.open_program(facts().path)
    };
    match opened {
        Ok(program) => {
            keep_bequest(thread);
            program
        }
        Err(errno) => die(126, facts().path.to_bytes(), b": ", refusal::message(errno)),
    }
}

/// A descriptor that was only left for us to open the program by, since that has no name, becomes
/// one that we keep: `/proc/self/exe` leads there.
#[cold]
fn keep_bequest(thread: &mut Thread) {
    let Some(number) = facts().path.to_bytes().strip_prefix(husk_abi::proc::DESCRIPTORS) else {
        return;
    };
    let left = number.iter().fold(0, |sum, &digit| sum * 10 + usize::from(digit - b'0'));
    let mut path = [0u8; PATH_MAX];
    let length = programs::descriptor_path(left, &mut path[..PATH_MAX - 1]);
    let kept = copy_high(thread, left);
    calls::close(left);
    let mut given = [0u8; PATH_MAX];
    let name = facts().given.to_bytes();
    given[..name.len().min(PATH_MAX - 1)].copy_from_slice(&name[..name.len().min(PATH_MAX - 1)]);
    if length > 0 {
        facts::set_path(&path, &given);
    }
    // SAFETY: only called from `start`, before other threads.
    unsafe { facts::set_program_fd(kept.map(|fd| fd as u32)) };
}

/// Another number of a host descriptor that no exec keeps, as high as one is free below those that
/// Husk keeps.
fn copy_high(thread: &mut Thread, fd: usize) -> Option<usize> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    let [region, loader, _] = kept_fds();
    for number in (0..region.min(loader)).rev() {
        if thread.client.slot(number) != Slot::Free {
            continue;
        }
        let args = [fd, F_DUPFD_CLOEXEC, number as usize, 0, 0, 0];
        // SAFETY: a second number for a descriptor of our own.
        let copy = unsafe { calls::raw(nr::fcntl, args) }.ok()?;
        if copy == number as usize {
            return Some(copy);
        }
        calls::close(copy);
    }
    None
}

/// The first program is told when its supervisor is killed: nobody writes its changes back then.
/// It keeps this across exec, its children do not have it, and it may change it as any program.
fn hang_up_with_supervisor() {
    const PR_SET_PDEATHSIG: usize = 1;
    const SIGHUP: usize = 1;
    // SAFETY: passes no memory.
    unsafe { syscall(nr::prctl, [PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0, 0]) };
}

/// Bytes of a thread's name, with its NUL.
const COMM_BYTES: usize = 16;

fn name_thread() {
    const PR_SET_NAME: usize = 15;
    let of_file = facts().handover.flags & handover::OF_FILE != 0;
    let path = if of_file { facts().path } else { facts().given }.to_bytes_with_nul();
    let from = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let name = path[from..].strip_suffix(b" (deleted)\0").filter(|_| of_file);
    let name = name.unwrap_or(&path[from..]);
    let mut short = [0u8; COMM_BYTES];
    let length = name.len().min(COMM_BYTES - 1);
    short[..length].copy_from_slice(&name[..length]);
    // SAFETY: a string with NUL.
    unsafe { syscall(nr::prctl, [PR_SET_NAME, short.as_ptr() as usize, 0, 0, 0, 0]) };
}

const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const AT_BASE: usize = 7;
const AT_ENTRY: usize = 9;
const AT_PLATFORM: usize = 15;
const AT_SECURE: usize = 23;
const AT_RANDOM: usize = 25;
const AT_HWCAP2: usize = 26;
/// The bit there that lets programs read and set the FS and GS base themselves.
const FSGSBASE: usize = 2;
const AT_EXECFN: usize = 31;
const AT_SYSINFO_EHDR: usize = 33;

/// The stack the host made: argc, argv, 0, environment, 0, auxv.
struct Stack {
    argv: *mut usize,
    envp: *mut usize,
    auxv: *mut [usize; 2],
    /// Whether the environment says something to the loader or the C library's start.
    tells_loader: bool,
}

/// Whether a variable that begins like this means something before the program begins.
fn is_for_loader(head: u64) -> bool {
    const LOADER: u64 = u64::from_le_bytes(*b"LD_\0\0\0\0\0");
    const MEMORY: u64 = u64::from_le_bytes(*b"MALLOC_\0");
    const LIBRARY: u64 = u64::from_le_bytes(*b"GLIBC_TU");
    head << 40 == LOADER << 40 || head << 8 == MEMORY << 8 || head == LIBRARY
}

/// How the name of the variable begins that says how a program wants to be placed, and how it ends.
const PLACE_NAME: u64 = u64::from_le_bytes(*b"HUSK_PLA");
const PLACE_REST: &[u8] = b"CE=";

/// What that variable says.
fn wish(text: &[u8]) -> Option<Policy> {
    text.get(8..)?.strip_prefix(PLACE_REST).and_then(Policy::parse)
}

/// Reads the hand-over and removes it. `None`: there is none.
fn take_over(sp: *mut usize) -> Option<Stack> {
    // SAFETY: the host's layout of a new stack, which nobody else uses yet.
    unsafe {
        let argv = sp.add(1);
        let envp = argv.add(*sp + 1);
        if *envp == 0 {
            return None;
        }
        let text = CStr::from_ptr(*envp as *const i8);
        let (handover, at) = Handover::parse(text.to_bytes())?;
        let path = CStr::from_ptr((*envp + at) as *const i8);
        let named = handover.flags & handover::GIVEN != 0 && *envp.add(1) != 0;
        let given = if named { CStr::from_ptr(*envp.add(1) as *const i8) } else { path };
        let taken = 1 + usize::from(named);
        let (mut end, mut place, mut tells_loader) = (envp, None, false);
        while *end != 0 {
            // Eight bytes lie behind the last string of all, too.
            let head = (*end as *const u64).read_unaligned();
            tells_loader |= is_for_loader(head);
            if head == PLACE_NAME {
                // The first counts, as for getenv.
                place = place.or_else(|| wish(CStr::from_ptr(*end as *const i8).to_bytes()));
            }
            end = end.add(1);
        }
        let auxv = end.add(1).cast::<[usize; 2]>();
        let mut last = auxv;
        while (*last)[0] != 0 {
            last = last.add(1);
        }
        let words = last.add(1).cast::<usize>().offset_from(envp.add(taken)) as usize;
        core::ptr::copy(envp.add(taken), envp, words);
        let auxv = auxv.cast::<usize>().sub(taken).cast::<[usize; 2]>();
        let stack = Stack { argv, envp, auxv, tells_loader };
        let vdso = stack.find(AT_SYSINFO_EHDR);
        facts::set(Facts { handover, path, given, vdso, place, program_fd: NONE });
        Some(stack)
    }
}

impl Stack {
    fn argv(&self) -> usize {
        self.argv as usize
    }

    fn envp(&self) -> usize {
        self.envp as usize
    }

    fn find(&self, kind: usize) -> usize {
        let mut at = self.auxv;
        // SAFETY: the vector ends with kind 0.
        unsafe {
            while (*at)[0] != 0 {
                if (*at)[0] == kind {
                    return (*at)[1];
                }
                at = at.add(1);
            }
        }
        0
    }

    fn inputs(&self) -> Inputs {
        // SAFETY: the host's layout of a new stack: the arguments end with 0.
        let (count, first) = unsafe { (*self.argv.sub(1), *self.argv) };
        let text = match first {
            0 => c"",
            // SAFETY: an argument, with NUL.
            first => unsafe { CStr::from_ptr(first as *const i8) },
        };
        let slash = text.to_bytes().iter().rposition(|&byte| byte == b'/');
        Inputs {
            stack: self.argv as usize - 8,
            count,
            environment: self.envp as usize,
            auxiliary: self.auxv as usize,
            random: self.find(AT_RANDOM),
            platform: self.find(AT_PLATFORM),
            first: [first, first + slash.map_or(0, |at| at + 1)],
            secure: self.find(AT_SECURE) != 0 || first == 0,
            tells_loader: self.tells_loader,
        }
    }

    /// Lets the auxiliary vector describe the program instead of us.
    fn describe(&mut self, loaded: &load::Loaded) {
        let mut at = self.auxv;
        // SAFETY: as in `find`.
        unsafe {
            while (*at)[0] != 0 {
                let value = match (*at)[0] {
                    AT_PHDR => loaded.headers_address,
                    AT_PHENT => husk_runtime::elf::HEADER_BYTES,
                    AT_PHNUM => loaded.headers,
                    AT_BASE => loaded.interpreter_base,
                    AT_ENTRY => loaded.entry,
                    // The GS base is ours: programs ask for this bit before they set it.
                    AT_HWCAP2 => (*at)[1] & !FSGSBASE,
                    AT_EXECFN => facts().given.as_ptr() as usize,
                    _ => (*at)[1],
                };
                (*at)[1] = value;
                at = at.add(1);
            }
        }
    }
}
