//! Which calls leave a number lent, and files kept open (`fd_cache`).

use crate::{Call, Client, Host, Memory};
use husk_abi::nr;
use husk_abi::sys::general::{F_DUPFD, F_DUPFD_CLOEXEC};
use husk_proto::Services;

/// Calls over which a number stays lent, unless they are about it: they make no number and look at
/// none but their own.
pub(crate) const LENDING: [bool; nr::LIMIT] = those(&[
    nr::read,
    nr::write,
    nr::readv,
    nr::writev,
    nr::pread64,
    nr::sendfile,
    nr::sendto,
    nr::recvfrom,
    nr::setsockopt,
    nr::lseek,
    nr::fstat,
    nr::newfstatat,
    nr::close,
]);

/// Calls besides that change neither who asks nor the table as a whole, and name no number but in
/// the arguments that `names_spare` looks at: spares are kept over these, and over `LENDING`.
pub(crate) const KEEPING: [bool; nr::LIMIT] = those(&[
    nr::pwrite64,
    nr::getsockopt,
    nr::getsockname,
    nr::getpeername,
    nr::ftruncate,
    nr::fsync,
    nr::fdatasync,
    nr::open,
    nr::openat,
    nr::stat,
    nr::lstat,
    nr::statx,
    nr::access,
    nr::faccessat,
    nr::faccessat2,
    nr::readlink,
    nr::readlinkat,
    nr::getcwd,
    nr::getdents64,
    nr::unlink,
    nr::unlinkat,
    nr::rename,
    nr::renameat,
    nr::renameat2,
    nr::mkdir,
    nr::mkdirat,
    nr::rmdir,
    nr::ioctl,
    nr::fcntl,
    nr::socket,
    nr::bind,
    nr::listen,
    nr::connect,
    nr::accept,
    nr::accept4,
    nr::shutdown,
    nr::epoll_ctl,
    nr::epoll_wait,
    nr::epoll_pwait,
    nr::epoll_pwait2,
]);

const fn those(numbers: &[usize]) -> [bool; nr::LIMIT] {
    let mut table = [false; nr::LIMIT];
    let mut i = 0;
    while i < numbers.len() {
        table[numbers[i]] = true;
        i += 1;
    }
    table
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether a call over which spares are kept may name one of them, copy to its number, or find
    /// it in `/proc`.
    pub(crate) fn names_spare(&self, c: &Call) -> bool {
        let spares = self.numbers.spares.numbers();
        let has = |argument: usize| spares.contains(&(c.args[argument] as u32));
        let named = match c.number {
            nr::sendfile => has(0) || has(1),
            nr::epoll_ctl => has(0) || has(2),
            nr::fcntl => has(0) || matches!(c.args[1] as u32, F_DUPFD | F_DUPFD_CLOEXEC),
            _ => has(0),
        };
        let path = match c.number {
            nr::open | nr::stat | nr::lstat | nr::access | nr::readlink => c.args[0],
            nr::openat | nr::newfstatat | nr::statx | nr::readlinkat => c.args[1],
            nr::faccessat | nr::faccessat2 => c.args[1],
            _ => return named,
        };
        let mut begin = [0; 5];
        let read = path != 0 && self.memory.read(path, &mut begin).is_ok();
        named || (read && matches!(&begin, b"/proc" | b"/dev/"))
    }
}
