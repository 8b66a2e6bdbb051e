//! Volumes with policy `immediate`: what a call has changed is durable before it returns.
//!
//! ```text
//!   handler ─► has changed something there? ─► durable ─► the handler's answer
//!                   no │ ─► the answer             '─ EIO, ENOSPC: that error
//! ```
//!
//! 1. A call that changes nothing in such a volume pays for one look at a word of its own thread.
//! 2. A call that fails here has done what it was asked for, as a write with `O_SYNC` has: it is in
//!    memory, and may be lost. A descriptor that it has opened is closed.
//!
//! What a process stores in a mapping is made durable by `msync` alone.

use husk_abi::nr;
use husk_proto::{Result, Services};

use crate::{Answer, Call, Client, Host, Memory, Verdict};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The answer of a call that may have changed a volume.
    #[inline(always)]
    pub(crate) fn durable(&mut self, number: usize, answer: Answer) -> Answer {
        if self.services.changes_owe() { self.make_durable(number, answer) } else { answer }
    }

    #[cold]
    #[inline(never)]
    fn make_durable(&mut self, number: usize, answer: Answer) -> Answer {
        let saved: Result<()> = self.services.commit_changes();
        let (Err(errno), Ok(verdict)) = (saved, &answer) else { return answer };
        if let Verdict::Return(fd @ 0..) = verdict
            && opens(number)
        {
            // Nobody will close it who was not told its number.
            let _ = self.close(&Call { number: nr::close, args: [*fd as usize, 0, 0, 0, 0, 0] });
        }
        Err(errno)
    }
}

/// Whether the answer is a descriptor.
const fn opens(number: usize) -> bool {
    matches!(number, nr::open | nr::openat | nr::openat2 | nr::creat)
}

/// Whether a call may change bytes, names or attributes.
pub(crate) const fn changes(number: usize) -> bool {
    is_of_bytes(number) || opens(number) || is_of_names(number) || is_of_attributes(number)
}

const fn is_of_bytes(number: usize) -> bool {
    matches!(
        number,
        nr::write
            | nr::pwrite64
            | nr::writev
            | nr::pwritev
            | nr::pwritev2
            | nr::sendfile
            | nr::copy_file_range
            | nr::splice
            | nr::truncate
            | nr::ftruncate
            | nr::fallocate
    )
}

const fn is_of_names(number: usize) -> bool {
    matches!(
        number,
        nr::mkdir
            | nr::mkdirat
            | nr::rmdir
            | nr::unlink
            | nr::unlinkat
            | nr::rename
            | nr::renameat
            | nr::renameat2
            | nr::link
            | nr::linkat
            | nr::symlink
            | nr::symlinkat
            | nr::mknod
            | nr::mknodat
            | nr::bind
    )
}

const fn is_of_attributes(number: usize) -> bool {
    matches!(
        number,
        nr::chmod
            | nr::fchmod
            | nr::fchmodat
            | nr::fchmodat2
            | nr::chown
            | nr::lchown
            | nr::fchown
            | nr::fchownat
            | nr::utime
            | nr::utimes
            | nr::futimesat
            | nr::utimensat
            | nr::setxattr
            | nr::lsetxattr
            | nr::fsetxattr
            | nr::setxattrat
            | nr::removexattr
            | nr::lremovexattr
            | nr::fremovexattr
            | nr::removexattrat
    )
}
