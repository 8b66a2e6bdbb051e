//! Liveness: is the owner of a slot dead, has a process ended? Asked by waiters after a time-out,
//! by the supervisor, and by code that finds a lock or object that a dead process may have kept.

use husk_abi::nr;
use husk_host::syscall;

/// What became of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// There, but asleep.
    Alive,
    /// Stopped by a signal or a debugger, waiting for a core or for memory: it will go on.
    HeldUp,
    /// Will never run again.
    Dead,
}

/// A holder of locks: process and thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder(pub(crate) u64);

impl Holder {
    /// Of thread `tid` of process `pid`.
    #[inline(always)]
    pub fn new(pid: u32, tid: u32) -> Holder {
        Holder((pid as u64) << 32 | tid as u64)
    }

    /// The process.
    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn judge(self) -> Life {
        judge((self.0 >> 32) as u32, self.0 as u32)
    }
}

/// A lock that somebody living has: sleep while the 32-bit word at `address` is `value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Futex word.
    pub address: usize,
    /// What it was.
    pub value: u32,
}

const ESRCH: isize = -3;

/// Judges thread `tid` of process `pid`. An unreadable `/proc` counts as alive.
pub fn judge(pid: u32, tid: u32) -> Life {
    #[cfg(feature = "models")]
    if let Some(dead) = crate::hooks::model_hooks::is_dead(pid, tid) {
        return if dead { Life::Dead } else { Life::HeldUp };
    }
    if is_gone(pid, tid) {
        return Life::Dead;
    }
    match state(pid, tid) {
        letter if is_over(letter) => Life::Dead,
        b'T' | b't' | b'R' | b'D' => Life::HeldUp,
        _ => Life::Alive,
    }
}

/// Whether the host knows no such thread.
fn is_gone(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { syscall(nr::tgkill, [pid as usize, tid as usize, 0, 0, 0, 0]) == ESRCH }
}

/// Whether a thread in state `letter` will never run again.
fn is_over(letter: u8) -> bool {
    matches!(letter, b'Z' | b'X' | b'x')
}

/// Whether all of process `pid` has ended: its first thread may have, and others go on. One look
/// must say both: a thread that executes a program waits until the first one has ended and takes
/// its place, so of two looks the first may see a dead thread, and the second one thread.
pub fn ended(pid: u32) -> bool {
    #[cfg(feature = "models")]
    if let Some(dead) = crate::hooks::model_hooks::is_dead(pid, pid) {
        return dead;
    }
    if is_gone(pid, pid) {
        return true;
    }
    let (state, threads) = look(pid, pid);
    is_over(state) && threads < 2
}

/// Whether a signal has stopped the thread, not a debugger.
pub fn is_stopped(pid: u32, tid: u32) -> bool {
    state(pid, tid) == b'T'
}

fn state(pid: u32, tid: u32) -> u8 {
    look(pid, tid).0
}

/// State letter and threads of the process, from `/proc/<pid>/task/<tid>/stat`; `?` and 0 when it
/// cannot be read.
fn look(pid: u32, tid: u32) -> (u8, u32) {
    const THREADS: usize = 17;
    let mut path = Path { bytes: [0; 64], length: 0 };
    path.text(b"/proc/");
    path.number(pid);
    path.text(b"/task/");
    path.number(tid);
    path.text(b"/stat\0");
    let mut text = [0u8; 512];
    // SAFETY: the path is NUL terminated and lives over the call.
    let fd = unsafe {
        syscall(nr::openat, [usize::MAX - 99, path.bytes.as_ptr() as usize, 0o2000000, 0, 0, 0])
    };
    if fd < 0 {
        return (b'?', 0);
    }
    // SAFETY: the buffer is ours and of that length; the descriptor too.
    let length = unsafe {
        let n = syscall(nr::read, [fd as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        syscall(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        n
    };
    let text = &text[..length.clamp(0, 512) as usize];
    // The name in parentheses may hold anything, `)` included: the last one counts.
    let Some(end) = text.iter().rposition(|&byte| byte == b')') else { return (b'?', 0) };
    let mut fields = text[end + 1..].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let letter = fields.next().map_or(b'?', |field| field[0]);
    let digits = fields.nth(THREADS - 1).unwrap_or_default();
    let threads = digits.iter().fold(0u32, |sum, &digit| {
        sum.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0')))
    });
    (letter, threads)
}

struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    fn text(&mut self, text: &[u8]) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    fn number(&mut self, mut number: u32) {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[at..]);
    }
}
