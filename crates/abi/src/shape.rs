//! What the arguments of a call are, one letter each, for whoever shows them.
//!
//! | letter | argument |
//! |---|---|
//! | `p` | the address of a path |
//! | `f`, `d` | a descriptor; of a directory that a path begins at |
//! | `i`, `u` | a number, with or without a sign |
//! | `l` | an offset or a length in a file, 64 bits |
//! | `x`, `h` | an address, bits |
//! | `m` | a mode, octal |
//! | `o`, `a`, `P`, `M` | flags of open, `AT_*`, protection, flags of mmap |
//! | `r`, `w`, `s` | what access asks, whence, a signal |
//! | `c`, `C` | what fcntl does, flags of clone |

use crate::nr;

/// The arguments of call `number`; `None`: not known, all six may count.
pub const fn shape(number: usize) -> Option<&'static str> {
    match files(number) {
        Some(shape) => Some(shape),
        None => others(number),
    }
}

/// Calls on files.
const fn files(number: usize) -> Option<&'static str> {
    Some(match number {
        nr::read | nr::write => "fxu",
        nr::pread64 | nr::pwrite64 => "fxul",
        nr::readv | nr::writev => "fxu",
        nr::preadv | nr::pwritev => "fxuli",
        nr::open => "pom",
        nr::openat => "dpom",
        nr::openat2 => "dpxu",
        nr::creat | nr::mkdir | nr::chmod => "pm",
        nr::close | nr::dup | nr::fsync | nr::fdatasync | nr::fchdir | nr::syncfs => "f",
        nr::dup2 => "ff",
        nr::dup3 => "ffo",
        nr::close_range => "uux",
        nr::stat | nr::lstat | nr::statfs => "px",
        nr::fstat | nr::fstatfs => "fx",
        nr::newfstatat => "dpxa",
        nr::statx => "dpahx",
        nr::access => "pr",
        nr::faccessat => "dpr",
        nr::faccessat2 => "dpra",
        nr::readlink => "pxu",
        nr::readlinkat => "dpxu",
        nr::lseek => "flw",
        nr::rename | nr::link | nr::symlink => "pp",
        nr::renameat => "dpdp",
        nr::renameat2 => "dpdph",
        nr::linkat => "dpdpa",
        nr::symlinkat => "pdp",
        nr::unlink | nr::rmdir | nr::chdir | nr::chroot => "p",
        nr::unlinkat => "dpa",
        nr::mkdirat => "dpm",
        nr::mknod => "pmx",
        nr::mknodat => "dpmx",
        nr::fchmod => "fm",
        nr::fchmodat => "dpm",
        nr::fchmodat2 => "dpma",
        nr::chown | nr::lchown => "pii",
        nr::fchown => "fii",
        nr::fchownat => "dpiia",
        nr::truncate => "pl",
        nr::ftruncate => "fl",
        nr::fallocate => "fhll",
        nr::getdents | nr::getdents64 => "fxu",
        nr::getcwd => "xu",
        nr::fcntl => "fch",
        nr::flock => "fh",
        nr::ioctl => "fhx",
        nr::utime | nr::utimes => "px",
        nr::utimensat => "dpxa",
        nr::getxattr | nr::lgetxattr => "ppxu",
        nr::setxattr | nr::lsetxattr => "ppxux",
        nr::listxattr | nr::llistxattr => "pxu",
        nr::removexattr | nr::lremovexattr => "pp",
        nr::pipe => "x",
        nr::pipe2 => "xo",
        nr::sendfile => "ffxu",
        nr::copy_file_range => "fxfxux",
        nr::inotify_add_watch => "fpx",
        nr::inotify_rm_watch => "fi",
        _ => return None,
    })
}

/// Other calls that programs make often.
const fn others(number: usize) -> Option<&'static str> {
    Some(match number {
        nr::execve => "pxx",
        nr::execveat => "dpxxa",
        nr::exit | nr::exit_group => "i",
        nr::fork | nr::vfork | nr::getpid | nr::getppid | nr::gettid | nr::getuid => "",
        nr::getgid | nr::geteuid | nr::getegid | nr::getpgrp | nr::setsid => "",
        nr::sched_yield | nr::pause | nr::sync => "",
        nr::clone => "Cxxxx",
        nr::clone3 => "xu",
        nr::wait4 => "ixhx",
        nr::waitid => "iixhx",
        nr::kill => "is",
        nr::tkill => "is",
        nr::tgkill => "iis",
        nr::mmap => "xuPMfh",
        nr::mprotect => "xuP",
        nr::munmap => "xu",
        nr::madvise => "xui",
        nr::mremap => "xuuxx",
        nr::brk => "x",
        nr::rt_sigaction => "sxxu",
        nr::rt_sigprocmask => "ixxu",
        nr::rt_sigsuspend => "xu",
        nr::sigaltstack => "xx",
        nr::nanosleep => "xx",
        nr::clock_nanosleep => "ixxx",
        nr::clock_gettime => "ix",
        nr::gettimeofday => "xx",
        nr::poll => "xui",
        nr::futex => "xiixxu",
        nr::prlimit64 => "iixx",
        nr::getrlimit | nr::setrlimit => "ix",
        nr::getrandom => "xuh",
        nr::arch_prctl => "hx",
        nr::prctl => "ihhhh",
        nr::set_tid_address | nr::uname | nr::sysinfo | nr::times => "x",
        nr::set_robust_list => "xu",
        nr::rseq => "xuxx",
        nr::umask => "m",
        nr::getpgid | nr::getsid => "i",
        nr::setpgid => "ii",
        nr::socket => "iii",
        nr::connect | nr::bind => "fxu",
        nr::listen | nr::shutdown => "fi",
        nr::accept => "fxx",
        nr::accept4 => "fxxx",
        nr::sendto | nr::recvfrom => "fxuxxu",
        nr::sendmsg | nr::recvmsg => "fxx",
        nr::epoll_create1 => "h",
        nr::eventfd2 => "uh",
        nr::epoll_ctl => "fifx",
        nr::epoll_wait => "fxui",
        nr::memfd_create => "ph",
        nr::sched_getaffinity | nr::sched_setaffinity => "iux",
        nr::getrusage => "ix",
        _ => return None,
    })
}

/// Whether argument `n` of call `number` is the address of a text.
pub const fn is_text(number: usize, n: usize) -> bool {
    match shape(number) {
        Some(shape) => n < shape.len() && shape.as_bytes()[n] == b'p',
        None => false,
    }
}
