//! Which calls the gate handles, and what `serve` does with them: two tables of one byte a number,
//! `CLASSES` read by the entry code and `ways` by `serve`.

use husk_abi::nr;

/// `prctl` that installs a filter of calls.
pub const PR_SET_SECCOMP: usize = 22;

/// Numbers of calls are below this; a power of two.
pub const NUMBERS: usize = 512;
const _: () = assert!(NUMBERS.is_power_of_two());

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
/// To `service::glance`, then as `SERVE` if that does not do.
pub const GLANCE: u8 = 5;
/// Straight to the host if the descriptor is in `ThreadClient::passes`; as `GLANCE` if the last
/// call on it was passed; else as `SERVE`.
pub const HINTED: u8 = 6;
/// To `service::swift` if the descriptor was a pipe's, else as `HINTED`.
pub const SWIFT: u8 = 7;

/// Calls that the gate looks at though the client may not want them: the runtime has business of
/// its own with them, if only to keep its descriptors, memory and signals out of harm's way.
const OWN_TOO: [usize; 39] = [
    nr::mlockall,
    nr::sched_setaffinity,
    nr::rt_sigaction,
    nr::mmap,
    nr::mprotect,
    nr::pkey_mprotect,
    nr::pkey_free,
    nr::mlock,
    nr::mlock2,
    nr::getrandom,
    nr::process_vm_readv,
    nr::process_vm_writev,
    nr::munmap,
    nr::mremap,
    nr::remap_file_pages,
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
    nr::seccomp,
    nr::getrlimit,
    nr::close,
    nr::dup2,
    nr::dup3,
    nr::close_range,
    nr::fcntl,
    nr::madvise,
    nr::shmat,
    nr::ptrace,
];

/// Calls that `service::own` answers, whether the client knows them or not.
const ANSWERED: [usize; 26] = [
    nr::mlockall,
    nr::sched_setaffinity,
    nr::rt_sigaction,
    nr::clone,
    nr::clone3,
    nr::fork,
    nr::vfork,
    nr::execve,
    nr::execveat,
    nr::exit,
    nr::exit_group,
    nr::prctl,
    nr::arch_prctl,
    nr::seccomp,
    nr::getrlimit,
    nr::setrlimit,
    nr::prlimit64,
    nr::mmap,
    nr::mprotect,
    nr::pkey_mprotect,
    nr::munmap,
    nr::mremap,
    nr::remap_file_pages,
    nr::madvise,
    nr::shmat,
    nr::ptrace,
];

/// The runtime has business of its own with a call, the client perhaps too.
pub const OWN: u8 = 1;
/// A call that changes nothing, as a rule.
pub const LOOKS: u8 = 2;
/// A call that moves bytes at its descriptor's own place.
pub const MOVES: u8 = 4;
/// A call that `outside::answer` may decide without the client's handler.
pub const SHORT: u8 = 8;

/// Whether a call makes a process, a thread or a program, ends one, or changes what it may do.
pub const fn parts(number: usize) -> bool {
    matches!(
        number,
        nr::clone
            | nr::clone3
            | nr::fork
            | nr::vfork
            | nr::execve
            | nr::execveat
            | nr::exit
            | nr::exit_group
            | nr::prctl
            | nr::seccomp
            | nr::setrlimit
            | nr::prlimit64
    )
}

/// Whether a call that `parts` may leave a process where it cannot look into others, or they into
/// it.
pub const fn secludes(number: usize, [first, second, ..]: [usize; 6]) -> bool {
    const PR_SET_DUMPABLE: usize = 4;
    match number {
        nr::seccomp => true,
        nr::prctl => first == PR_SET_DUMPABLE && second != 1 || first == PR_SET_SECCOMP,
        _ => false,
    }
}

/// What `serve` does with a call: the bits above. 0 = the client is asked, with the guard open.
#[inline(always)]
pub fn ways(number: usize) -> u8 {
    WAYS[number % NUMBERS]
}

/// The same as a table, for the gate.
pub static WAYS: [u8; NUMBERS] = all_ways();

const fn all_ways() -> [u8; NUMBERS] {
    let mut table = [OWN; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        if husk_client::wants(number) {
            table[number] = 0;
        }
        number += 1;
    }
    mark(&mut table, &ANSWERED, OWN);
    mark(&mut table, &LOOKING, LOOKS);
    mark(&mut table, &[nr::read, nr::write, nr::readv, nr::writev], MOVES);
    mark(
        &mut table,
        &[nr::open, nr::openat, nr::stat, nr::newfstatat, nr::access, nr::close],
        SHORT,
    );
    table
}

const fn mark(table: &mut [u8; NUMBERS], numbers: &[usize], way: u8) {
    let mut i = 0;
    while i < numbers.len() {
        table[numbers[i]] |= way;
        i += 1;
    }
}

/// `LOOKS`: for these the guard is opened only when they store something after all.
const LOOKING: [usize; 39] = [
    nr::open,
    nr::openat,
    nr::pread64,
    nr::stat,
    nr::lstat,
    nr::fstat,
    nr::newfstatat,
    nr::statx,
    nr::access,
    nr::faccessat,
    nr::faccessat2,
    nr::readlink,
    nr::readlinkat,
    nr::getcwd,
    nr::statfs,
    nr::fstatfs,
    nr::getxattr,
    nr::lgetxattr,
    nr::fgetxattr,
    nr::getxattrat,
    nr::listxattr,
    nr::llistxattr,
    nr::flistxattr,
    nr::listxattrat,
    nr::fsync,
    nr::fdatasync,
    nr::syncfs,
    nr::sync,
    nr::msync,
    nr::sync_file_range,
    nr::fadvise64,
    nr::readahead,
    nr::epoll_wait,
    nr::epoll_pwait,
    nr::epoll_pwait2,
    nr::sendto,
    nr::recvfrom,
    nr::getsockopt,
    nr::setsockopt,
];

/// The table.
pub static CLASSES: [u8; NUMBERS] = classes();

const fn classes() -> [u8; NUMBERS] {
    let mut table = [PASS; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        if husk_client::wants(number) {
            table[number] = SERVE;
        }
        number += 1;
    }
    mark_as(&mut table, &OWN_TOO, SERVE);
    mark_as(&mut table, &husk_client::GLANCED, HINTED);
    mark_as(&mut table, &[nr::read, nr::write], SWIFT);
    mark_as(&mut table, &[nr::lseek, nr::fcntl, nr::epoll_wait], GLANCE);
    table[nr::clone] = LAUNCH;
    table[nr::fork] = LAUNCH;
    table[nr::vfork] = LAUNCH;
    table[nr::clone3] = LAUNCH;
    table[nr::rt_sigprocmask] = MASK;
    table[nr::rt_sigreturn] = SIGRETURN;
    table
}

const fn mark_as(table: &mut [u8; NUMBERS], numbers: &[usize], class: u8) {
    let mut i = 0;
    while i < numbers.len() {
        table[numbers[i]] = class;
        i += 1;
    }
}
