//! Core dumps: a program that a signal ends writes its own, into the tree, as any file of its.
//!
//! ```text
//!   limit > 0 ─► signals that dump by default have a handler (`signal::wrapped`)
//!   such a signal ─► husk_dump ─► stop: the other threads ─► file: head, memory ─► end_by(signal)
//! ```
//!
//! The host would write a core into its own directory behind a tree, also under `--discard`. So it
//! is told a limit under which it makes none (`core_dump::limit`), unless it gives cores to a
//! program or a socket (`|`, `@` in `core_pattern`): those are its own business, as on Linux.
//!
//! Invariants
//! 1. The handler runs as the program: what it does at files, it does by calls of the program's own
//!    through the gate. So the core has its rights, its directory and its room.
//! 2. One thread of a process dumps, once. A fault of that thread meanwhile ends the process.
//! 3. Every wait is bounded: for threads that do not stop, by a count.
//!
//! Not here: a fault where no handler can run (the stack is at its end, and there is no signal
//! stack) ends the program without a core; so does a child that shares memory with its creator.

mod file;
pub(crate) mod stop;

use crate::dump::stop::GateRegisters;
use crate::memory;
use crate::thread::Thread;
use crate::thread::actions::{HostAction, SIG_UNBLOCK, bit};
use crate::thread::context::Context;
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use husk_abi::sys::general::RLIMIT_CORE;
use husk_abi::{Errno, nr};
use husk_host::{calls, syscall};
use husk_runtime::core_dump;

/// Signals that make a core by default: QUIT, ILL, TRAP, ABRT, BUS, FPE, SEGV, XCPU, XFSZ, SYS.
const DUMPING: u64 =
    bit(3) | bit(4) | bit(5) | bit(6) | bit(7) | bit(8) | bit(11) | bit(24) | bit(25) | bit(31);
/// Longest `core_pattern`.
const PATTERN_BYTES: usize = 128;
/// Longest path of the private directory, with its NUL.
const PRIVATE_BYTES: usize = 128;
/// Limits below this are for no core, as on Linux.
const LEAST: u64 = 4096;

/// Whether a core would be written here.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Where the program's auxiliary vector lies.
static AUXILIARY: AtomicUsize = AtomicUsize::new(0);
/// The thread that dumps.
static DUMPER: AtomicU32 = AtomicU32::new(0);

global_asm!(
    r#"
    .text
    .globl husk_as_program
husk_as_program:
    mov eax, edi
    mov r11, rsi
    mov rdi, [r11]
    mov rsi, [r11 + 8]
    mov rdx, [r11 + 16]
    mov r10, [r11 + 24]
    mov r8, [r11 + 32]
    mov r9, [r11 + 40]
    lea rcx, [rip + 2f]
    jmp husk_enter
2:  ret
"#
);

unsafe extern "C" {
    /// Makes a call as the application does, from where no service is under way.
    fn husk_as_program(number: usize, args: &[usize; 6]) -> i64;
}

/// A call of the program's own (invariant 1): the result, or an error below 0.
fn call(number: usize, args: [usize; 6]) -> i64 {
    // SAFETY: our callers pass addresses of their own, or of what the program may read.
    unsafe { husk_as_program(number, &args) }
}

/// Whether a core is written here when `signal` ends this program.
pub fn is_due(thread: &Thread, signal: usize) -> bool {
    let guest = thread.guest.load(Relaxed);
    IS_ON.load(Relaxed) && bit(signal) & DUMPING != 0 && !guest && DUMPER.load(Relaxed) != own()
}

/// Whether such a signal needs a handler.
pub fn concerns(signal: usize) -> bool {
    IS_ON.load(Relaxed) && bit(signal) & DUMPING != 0
}

/// All of them.
pub fn signals() -> impl Iterator<Item = usize> {
    (1..=31).filter(|&signal| bit(signal) & DUMPING != 0)
}

/// Where the handler is.
pub fn handler() -> u64 {
    husk_dump as *const () as u64
}

fn own() -> u32 {
    calls::gettid()
}

/// Where the program starts: what the host was told of its limit, or is told now. True: signals
/// that dump need a handler.
pub fn begin(auxiliary: usize) -> bool {
    let Ok(limits) = exchange(0, None) else { return false };
    if limits[0] == 0 || is_elsewhere() {
        return false;
    }
    if core_dump::limit::is_the_hosts(limits)
        && exchange(0, Some(core_dump::limit::told(limits))).is_err()
    {
        return false;
    }
    AUXILIARY.store(auxiliary, Relaxed);
    note(core_dump::limit::meant(limits))
}

/// The program's own limits from now on; whether that turns cores on or off.
pub fn note([soft, _]: [u64; 2]) -> bool {
    let is_on = soft >= LEAST;
    IS_ON.swap(is_on, Relaxed) != is_on
}

/// The host's limits for cores of process `pid`, which it gets `new` instead of.
pub fn exchange(pid: usize, new: Option<[u64; 2]>) -> Result<[u64; 2], Errno> {
    let mut old = [0u64; 2];
    let asked = new.as_ref().map_or(0, |limits| (&raw const *limits) as usize);
    let args = [pid, RLIMIT_CORE as usize, asked, (&raw mut old) as usize, 0, 0];
    // SAFETY: two words of ours each way.
    unsafe { calls::raw(nr::prlimit64, args) }?;
    Ok(core::hint::black_box(old))
}

/// Whether the host gives cores to a program or a socket, and may do so.
pub fn is_elsewhere() -> bool {
    let mut pattern = [0; PATTERN_BYTES];
    matches!(look(c"/proc/sys/kernel/core_pattern", &mut pattern).first(), Some(b'|' | b'@'))
}

/// The text of a small file of the host, without the end of its line.
fn look<'a>(path: &core::ffi::CStr, room: &'a mut [u8]) -> &'a [u8] {
    let Ok(fd) = calls::open(path) else { return &[] };
    let length = calls::pread(fd, room, 0).unwrap_or(0);
    calls::close(fd);
    let text = &room[..length];
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// The handler, on the stack that the host has chosen for it.
extern "C" fn husk_dump(signal: usize, info: usize, context: usize) -> ! {
    if DUMPER.compare_exchange(0, own(), SeqCst, SeqCst).is_err() {
        // Another thread has begun, and ends us with it (invariant 2).
        stop::for_ever();
    }
    if is_dumpable() {
        let mut siginfo = [0; 128];
        // What cannot be read is not there.
        let _ = memory::read(info, &mut siginfo);
        stop::others();
        if file::write(signal, &siginfo, &GateRegisters::of(Context(context))) {
            let _ = tell_host(Thread::current());
        }
    }
    end_by(signal);
}

/// Lets whoever waits for us find that there is a core (`WCOREDUMP`): only a core of the host's own
/// says so. It makes one of a page in the private directory of the image, and nowhere else.
fn tell_host(thread: &mut Thread) -> Result<(), Errno> {
    const CLONE_FS: usize = 0x200;
    let (mut pattern, mut room) = ([0; PATTERN_BYTES], [0; PRIVATE_BYTES]);
    if look(c"/proc/sys/kernel/core_pattern", &mut pattern).contains(&b'/') {
        return Ok(());
    }
    let Some(private) = thread.client.private_path(&mut room) else { return Ok(()) };
    // SAFETY: numbers, and a path with NUL.
    unsafe {
        // The other threads keep their directory until they end with us.
        calls::raw(nr::unshare, [CLONE_FS, 0, 0, 0, 0, 0])?;
        calls::raw(nr::chdir, [private.as_ptr() as usize, 0, 0, 0, 0, 0])?;
    }
    let [_, hard] = exchange(0, None)?;
    exchange(0, Some([LEAST.min(hard), hard])).map(drop)
}

/// The host's own end of a process.
fn end_by(signal: usize) -> ! {
    let (default, mask) = (HostAction::default(), bit(signal));
    let (action, set) = ((&raw const default) as usize, (&raw const mask) as usize);
    // SAFETY: an action and a mask of ours.
    unsafe {
        syscall(nr::rt_sigaction, [signal, action, 0, 8, 0, 0]);
        syscall(nr::rt_sigprocmask, [SIG_UNBLOCK, set, 0, 8, 0, 0]);
        syscall(nr::tgkill, [calls::getpid() as usize, own() as usize, signal, 0, 0, 0]);
    }
    // The first process of a PID namespace is ended by no signal of its own.
    calls::exit_group(128 + signal);
}

/// What a program has said that nobody is to read (`prctl`), is in no core.
fn is_dumpable() -> bool {
    const PR_GET_DUMPABLE: usize = 3;
    // SAFETY: passes no memory.
    unsafe { calls::raw(nr::prctl, [PR_GET_DUMPABLE, 0, 0, 0, 0, 0]) == Ok(1) }
}
