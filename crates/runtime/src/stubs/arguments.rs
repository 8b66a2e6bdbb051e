//! Which arguments of a call are addresses, and how many bytes lie there: what the host is to find
//! mapped in (`page_fault`).
//!
//! Registers that a call does not use hold old addresses, so the calls that programs make most are
//! listed; of others all arguments count. What none of the lists counts is a structure of at most
//! `page_fault::STRUCTURE_BYTES`.

use crate::frame::Frame;
use crate::stubs::classes::NUMBERS;
use husk_abi::{PAGE, nr};

const NO_ADDRESSES: [usize; 88] = [
    nr::close,
    nr::lseek,
    nr::dup,
    nr::dup2,
    nr::dup3,
    nr::close_range,
    nr::fsync,
    nr::fdatasync,
    nr::syncfs,
    nr::sync_file_range,
    nr::ftruncate,
    nr::fallocate,
    nr::fchmod,
    nr::fchown,
    nr::fadvise64,
    nr::readahead,
    nr::flock,
    nr::fchdir,
    nr::umask,
    nr::socket,
    nr::listen,
    nr::shutdown,
    nr::eventfd,
    nr::eventfd2,
    nr::epoll_create,
    nr::epoll_create1,
    nr::timerfd_create,
    nr::pidfd_open,
    nr::exit,
    nr::exit_group,
    nr::fork,
    nr::vfork,
    nr::sched_yield,
    nr::msync,
    nr::brk,
    nr::shmget,
    nr::shmdt,
    nr::pause,
    nr::alarm,
    nr::getpid,
    nr::kill,
    nr::semget,
    nr::msgget,
    nr::getuid,
    nr::getgid,
    nr::geteuid,
    nr::getegid,
    nr::setpgid,
    nr::getppid,
    nr::getpgrp,
    nr::setsid,
    nr::getpgid,
    nr::getsid,
    nr::personality,
    nr::getpriority,
    nr::setpriority,
    nr::sched_getscheduler,
    nr::sched_get_priority_max,
    nr::sched_get_priority_min,
    nr::munlock,
    nr::mlockall,
    nr::munlockall,
    nr::vhangup,
    nr::sync,
    nr::iopl,
    nr::gettid,
    nr::tkill,
    nr::tgkill,
    nr::io_destroy,
    nr::timer_getoverrun,
    nr::timer_delete,
    nr::ioprio_set,
    nr::ioprio_get,
    nr::kcmp,
    nr::membarrier,
    nr::pkey_alloc,
    nr::pkey_free,
    nr::setuid,
    nr::setgid,
    nr::setreuid,
    nr::setregid,
    nr::setresuid,
    nr::setresgid,
    nr::setfsuid,
    nr::setfsgid,
    nr::setns,
    nr::unshare,
    nr::restart_syscall,
];
const FIRST: [usize; 21] = [
    nr::open,
    nr::creat,
    nr::chdir,
    nr::rmdir,
    nr::unlink,
    nr::mkdir,
    nr::mknod,
    nr::chmod,
    nr::chown,
    nr::lchown,
    nr::truncate,
    nr::access,
    nr::pipe,
    nr::pipe2,
    nr::memfd_create,
    nr::getcwd,
    nr::mlock,
    nr::mlock2,
    nr::madvise,
    nr::getrandom,
    nr::poll,
];
const SECOND: [usize; 25] = [
    nr::read,
    nr::write,
    nr::pread64,
    nr::pwrite64,
    nr::readv,
    nr::writev,
    nr::preadv,
    nr::pwritev,
    nr::preadv2,
    nr::pwritev2,
    nr::vmsplice,
    nr::getdents,
    nr::getdents64,
    nr::fstat,
    nr::fstatfs,
    nr::openat,
    nr::mkdirat,
    nr::unlinkat,
    nr::faccessat,
    nr::faccessat2,
    nr::fchmodat,
    nr::fchmodat2,
    nr::fchownat,
    nr::mknodat,
    nr::epoll_wait,
];
const FIRST_TWO: [usize; 9] = [
    nr::stat,
    nr::lstat,
    nr::statfs,
    nr::readlink,
    nr::rename,
    nr::link,
    nr::symlink,
    nr::utime,
    nr::utimes,
];
const THIRD: [usize; 2] = [nr::fcntl, nr::ioctl];
const SECOND_AND_THIRD: [usize; 5] =
    [nr::newfstatat, nr::readlinkat, nr::openat2, nr::utimensat, nr::futimesat];
const FIRST_THREE: [usize; 1] = [nr::execve];
const SECOND_AND_FOURTH: [usize; 3] = [nr::linkat, nr::renameat, nr::renameat2];
const SECOND_AND_FIFTH: [usize; 1] = [nr::statx];

const ADDRESSES: [u8; NUMBERS] = {
    let mut table = [0b11_1111; NUMBERS];
    mark(&mut table, &NO_ADDRESSES, 0b0);
    mark(&mut table, &FIRST, 0b1);
    mark(&mut table, &SECOND, 0b10);
    mark(&mut table, &FIRST_TWO, 0b11);
    mark(&mut table, &THIRD, 0b100);
    mark(&mut table, &SECOND_AND_THIRD, 0b110);
    mark(&mut table, &FIRST_THREE, 0b111);
    mark(&mut table, &SECOND_AND_FOURTH, 0b1010);
    mark(&mut table, &SECOND_AND_FIFTH, 0b10010);
    table
};

const fn mark(table: &mut [u8; NUMBERS], numbers: &[usize], which: u8) {
    let mut i = 0;
    while i < numbers.len() {
        table[numbers[i]] = which;
        i += 1;
    }
}

/// Which arguments of a call may be addresses, one bit each.
pub const fn addresses(number: usize) -> u8 {
    static TABLE: [u8; NUMBERS] = ADDRESSES;
    TABLE[number % NUMBERS]
}

/// Bytes behind argument `i` of a call, where another argument counts them.
pub fn bytes_at(frame: &Frame, i: usize) -> usize {
    const LONGEST: usize = 1 << 31;
    let [first, second, third, ..] = frame.args;
    let next = frame.args.get(i + 1).copied().unwrap_or(0);
    let bytes = match (frame.number, i) {
        (nr::select | nr::pselect6, 1..=3) => first as u32 as usize / 8 + 8,
        (nr::getgroups | nr::setgroups, 1) => (first as u32 as usize).saturating_mul(4),
        (nr::sched_getaffinity | nr::sched_setaffinity, 2) => second as u32 as usize,
        (nr::io_getevents | nr::io_pgetevents, 3) => third.saturating_mul(32),
        (nr::msgsnd | nr::msgrcv, 1) => third.saturating_add(8),
        (nr::mincore, 2) => second / PAGE + 1,
        (nr::move_pages, 2) => second.saturating_mul(8),
        (nr::move_pages, 3 | 4) => second.saturating_mul(4),
        (number, i) => next.saturating_mul(unit(number, i)),
    };
    bytes.min(LONGEST)
}

/// Bytes of what is counted; 0: the next argument does not count.
fn unit(number: usize, i: usize) -> usize {
    match (number, i) {
        (nr::read | nr::write | nr::pread64 | nr::pwrite64 | nr::recvfrom | nr::sendto, 1)
        | (nr::getdents | nr::getdents64 | nr::readlink | nr::listxattr | nr::llistxattr, 1)
        | (nr::flistxattr, 1)
        | (nr::readlinkat | nr::getxattr | nr::lgetxattr | nr::fgetxattr, 2)
        | (nr::setxattr | nr::lsetxattr | nr::fsetxattr, 2)
        | (nr::getcwd | nr::madvise | nr::mlock | nr::mlock2 | nr::getrandom, 0) => 1,
        (nr::syslog | nr::modify_ldt | nr::sched_getattr | nr::bpf, 1)
        | (nr::mq_timedsend | nr::mq_timedreceive, 1)
        | (nr::add_key | nr::keyctl, 2)
        | (nr::setsockopt, 3) => 1,
        (nr::semop | nr::semtimedop, 1) => 6,
        (nr::poll | nr::ppoll, 0) => 8,
        (nr::futex_waitv, 0) => 24,
        (nr::epoll_wait | nr::epoll_pwait | nr::epoll_pwait2, 1) => 12,
        (nr::readv | nr::writev | nr::preadv | nr::pwritev | nr::preadv2 | nr::pwritev2, 1)
        | (nr::vmsplice | nr::process_vm_readv | nr::process_vm_writev, 1)
        | (nr::process_vm_readv | nr::process_vm_writev, 3) => 16,
        (nr::sendmmsg | nr::recvmmsg, 1) => 64,
        _ => 0,
    }
}
