//! Which calls the gate looks at: one byte a number, read by the entry code.

use husk_abi::nr;

/// Straight to the host.
pub const PASS: u8 = 0;
/// To `service::serve`.
pub const SERVE: u8 = 1;
/// To `service::serve`, callee-saved registers in the frame.
pub const LAUNCH: u8 = 2;
/// `rt_sigprocmask`.
pub const MASK: u8 = 3;
/// `rt_sigreturn`.
pub const SIGRETURN: u8 = 4;

/// Calls the runtime itself has business with, whatever the client wants.
const OWN: [usize; 26] = [
    nr::rt_sigaction,
    nr::mmap,
    nr::mprotect,
    nr::munmap,
    nr::mremap,
    nr::ppoll,
    nr::pselect6,
    nr::epoll_pwait,
    nr::epoll_pwait2,
    nr::rt_sigsuspend,
    nr::rt_sigtimedwait,
    nr::signalfd,
    nr::signalfd4,
    nr::execve,
    nr::execveat,
    nr::exit,
    nr::exit_group,
    nr::prctl,
    nr::arch_prctl,
    nr::close,
    nr::dup2,
    nr::dup3,
    nr::close_range,
    nr::fcntl,
    nr::madvise,
    nr::shmat,
];

/// Whether the client is asked about a call; the others the gate looks at are the runtime's own.
#[inline(always)]
pub fn is_clients(number: usize) -> bool {
    static CLIENTS: [bool; 512] = clients();
    CLIENTS[number & 511]
}

const fn clients() -> [bool; 512] {
    let mut table = [false; 512];
    let mut number = 0;
    while number < 512 {
        table[number] = crate::wire::wants(number);
        number += 1;
    }
    table
}

/// The table.
pub static CLASSES: [u8; 512] = classes();

const fn classes() -> [u8; 512] {
    let mut table = [PASS; 512];
    let mut number = 0;
    while number < 512 {
        if crate::wire::wants(number) {
            table[number] = SERVE;
        }
        number += 1;
    }
    let mut i = 0;
    while i < OWN.len() {
        table[OWN[i]] = SERVE;
        i += 1;
    }
    table[nr::clone] = LAUNCH;
    table[nr::fork] = LAUNCH;
    table[nr::vfork] = LAUNCH;
    table[nr::clone3] = LAUNCH;
    table[nr::rt_sigprocmask] = MASK;
    table[nr::rt_sigreturn] = SIGRETURN;
    table
}
