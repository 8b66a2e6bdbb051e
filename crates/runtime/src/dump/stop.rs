//! The other threads of a program that dumps: each is stopped, and says what its registers are.
//!
//! SIGSYS is blocked by nobody and has our handler: sent with a code of its own, it makes a thread
//! note its registers and sleep until the process ends. A thread in a service goes on, for it may
//! hold what the dump needs, and is asked again; one that never leaves its service is not shown.

use super::own;
use crate::addresses;
use crate::frame::Detour;
use crate::stubs;
use crate::thread::actions::SIGSYS;
use crate::thread::context::{Context, Register};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use husk_abi::nr;
use husk_host::{calls, syscall};
use husk_runtime::core_dump::file::{FLOATS_BYTES, REGISTERS, Thread};

/// `si_code` of such a signal.
const STOP: i32 = -0x1d;
/// Threads more than these are not shown.
pub const THREADS_MAX: usize = 256;
/// Times that threads are asked, each `TURN_NS` after the one before.
const TURNS: usize = 200;
const TURN_NS: usize = 500_000;

struct Place {
    tid: AtomicU32,
    context: AtomicUsize,
    base: AtomicUsize,
}

#[unsafe(link_section = ".bss.large")]
static PLACES: [Place; THREADS_MAX] = [const {
    Place { tid: AtomicU32::new(0), context: AtomicUsize::new(0), base: AtomicUsize::new(0) }
}; THREADS_MAX];
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Stops all threads but this one.
pub fn others() {
    IS_ASKED.store(true, SeqCst);
    for _ in 0..TURNS {
        let mut missing = false;
        each(|tid| {
            if tid != own() && !is_stopped(tid) && TAKEN.load(SeqCst) < THREADS_MAX {
                missing |= ask(tid);
            }
        });
        if !missing {
            break;
        }
        sleep([0, TURN_NS]);
    }
}

fn is_stopped(tid: u32) -> bool {
    PLACES.iter().any(|place| place.tid.load(SeqCst) == tid)
}

fn ask(tid: u32) -> bool {
    let mut info = [0u32; 32];
    (info[0], info[2]) = (SIGSYS as u32, STOP as u32);
    let args = [calls::getpid() as usize, tid as usize, SIGSYS, (&raw const info) as usize, 0, 0];
    // SAFETY: a whole siginfo, for a process of our own.
    unsafe { calls::raw(nr::rt_tgsigqueueinfo, args) }.is_ok()
}

/// Whether a signal is one of these; if the thread is in no service, it stays here.
pub fn is_meant(signal: usize, code: i32, context: Context, in_service: bool) -> bool {
    if signal != SIGSYS || code != STOP || !IS_ASKED.load(SeqCst) {
        return false;
    }
    if in_service {
        return true;
    }
    if let Some(place) = PLACES.get(TAKEN.fetch_add(1, SeqCst)) {
        place.context.store(context.0, Relaxed);
        place.base.store(base() as usize, Relaxed);
        place.tid.store(own(), SeqCst);
    }
    for_ever();
}

/// Sleeps until the process ends.
pub fn for_ever() -> ! {
    loop {
        sleep([1, 0]);
    }
}

fn sleep(time: [usize; 2]) {
    // SAFETY: a time of ours.
    unsafe { syscall(nr::nanosleep, [(&raw const time) as usize, 0, 0, 0, 0, 0]) };
}

fn base() -> u64 {
    const ARCH_GET_FS: usize = 0x1003;
    let mut base = 0u64;
    // SAFETY: a word of ours.
    unsafe { syscall(nr::arch_prctl, [ARCH_GET_FS, (&raw mut base) as usize, 0, 0, 0, 0]) };
    core::hint::black_box(base)
}

/// Calls `step` with the number of each thread.
fn each(mut step: impl FnMut(u32)) {
    const O_DIRECTORY: usize = 0o200000;
    let path = c"/proc/self/task".as_ptr() as usize;
    let args = [calls::AT_FDCWD, path, O_DIRECTORY, 0, 0, 0];
    // SAFETY: a path with NUL.
    let Ok(fd) = (unsafe { calls::raw(nr::openat, args) }) else { return };
    let mut room = [0u8; 1024];
    loop {
        let args = [fd, (&raw mut room) as usize, room.len(), 0, 0, 0];
        // SAFETY: a room of ours.
        let Ok(length @ 1..) = (unsafe { calls::raw(nr::getdents64, args) }) else { break };
        let mut rest = &core::hint::black_box(&room)[..length];
        while let Some((entry, name)) = rest.split_at_checked(19) {
            let bytes = usize::from(u16::from_le_bytes([entry[16], entry[17]]));
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
            if number != 0 {
                step(number);
            }
            rest = rest.get(bytes..).unwrap_or(&[]);
        }
    }
    calls::close(fd);
}

/// All other threads as they stopped, in the order of their numbers.
pub fn stopped() -> impl Iterator<Item = GateRegisters> {
    let next = |after: u32| {
        let later = PLACES.iter().filter(move |place| place.tid.load(SeqCst) > after);
        later.min_by_key(|place| place.tid.load(SeqCst))
    };
    let number = |place: &&'static Place| place.tid.load(SeqCst);
    let all = core::iter::successors(next(0), move |place| next(number(place)));
    all.map(|place| GateRegisters {
        tid: place.tid.load(Relaxed),
        context: Context(place.context.load(Relaxed)),
        base: place.base.load(Relaxed) as u64,
    })
}

/// What a handler has found of a thread.
pub struct GateRegisters {
    tid: u32,
    context: Context,
    base: u64,
}

impl GateRegisters {
    /// Of this thread.
    pub fn of(context: Context) -> GateRegisters {
        GateRegisters { tid: own(), context, base: base() }
    }

    /// The thread as the program knows it: a call that is under way has just been made.
    pub fn shown(&self) -> Thread {
        // Where each register of `user_regs_struct` is in a ucontext.
        const FOUND_AT: [usize; 17] = [7, 6, 5, 4, 10, 11, 3, 2, 1, 0, 13, 14, 12, 9, 8, 13, 16];
        const STATE_AT: usize = 224;
        let context = self.context.0;
        // SAFETY: the host put a ucontext there for a handler that does not end.
        let word = |at: usize| unsafe { *((context + at) as *const u64) };
        let register = |index: usize| word(40 + 8 * index);
        let mut registers = [0; REGISTERS];
        for (to, from) in registers.iter_mut().zip(FOUND_AT) {
            *to = register(from);
        }
        // Number of a call: none is started again.
        registers[15] = u64::MAX;
        let segments = register(18);
        registers[17] = segments & 0xffff;
        registers[18] = register(17);
        registers[19] = register(15);
        registers[20] = segments >> 48;
        registers[21] = self.base;
        if let Some([rip, rsp]) = called_from(self.context) {
            (registers[16], registers[19]) = (rip as u64, rsp as u64);
        }
        let mut floats = [0; FLOATS_BYTES];
        let state = word(STATE_AT) as usize;
        if state != 0 {
            // SAFETY: the host saves these bytes there, if it saves any.
            floats = unsafe { *(state as *const [u8; FLOATS_BYTES]) };
        }
        Thread { tid: self.tid, registers, mask: self.context.mask(), floats }
    }
}

/// Where the program goes on, and its stack pointer, while the gate has a call of its.
fn called_from(context: Context) -> Option<[usize; 2]> {
    let (rip, rsp) = (context.get(Register::Rip), context.get(Register::Rsp));
    let (start, end) = addresses::text();
    if !(start..end).contains(&rip) {
        return None;
    }
    // SAFETY: so many words lie on the application's stack at these places of the gate.
    let word = |at: usize| unsafe { *((rsp + at) as *const usize) };
    let label = |label: unsafe extern "C" fn()| label as *const () as usize;
    let sleeps = [label(stubs::husk_detour_done), label(stubs::husk_detour_asked)];
    let passes = (&raw const stubs::husk_passes) as usize..(&raw const stubs::husk_serves) as usize;
    if sleeps.contains(&rip) {
        let original = offset_of!(Detour, original);
        return Some([word(original + 56), word(original + 64)]);
    }
    if rip == (&raw const stubs::husk_passed) as usize {
        return Some([word(8), rsp + 16 + 128]);
    }
    passes.contains(&rip).then(|| [word(0), rsp + 8])
}
