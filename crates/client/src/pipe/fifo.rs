//! Opening FIFOs of a tree: bytes and waiting are the host's.
//!
//! ```text
//!   open("run/f") ──► node `run/f` (permission, times, names) ── pinned
//!                └──► host: open("PRIVATE/NUMBER.GENERATION"), waits for the other side
//!                      └──► host descriptor that shows the node, as a shadow shows a file
//! ```
//!
//! Invariants
//! 1. The host's FIFO is made when its node is first opened, open to all who can name it, and under
//!    its name at once so: who may open it, the node says.
//! 2. Whoever opens has the node pinned, so that it is not another's meanwhile. The supervisor
//!    removes the host's FIFO once the node is gone.
//!
//! Limit: bytes that pass do not change the times of the node.

use crate::reason;
use crate::{After, Answer, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::proc::put_decimal;
use husk_abi::sys::general::{AT_FDCWD, F_GETFL, F_SETFL, O_CLOEXEC, O_NOATIME, S_IFIFO};
use husk_proto::descriptor::Shown;
use husk_proto::fs::RENAME_NOREPLACE;
use husk_proto::{Errno, Inode, Result, Services};

/// Bytes of a path in the private directory or in `/proc`, NUL and name of a draft included.
const PATH_BYTES: usize = 128;
/// Where anybody may read and write.
const OPEN_TO_ALL: usize = 0o666;

/// A host path, NUL-terminated.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Text {
    pub(crate) fn new(directory: &[u8]) -> Text {
        let mut bytes = [0; PATH_BYTES];
        bytes[..directory.len()].copy_from_slice(directory);
        Text { bytes, length: directory.len() }
    }

    /// The same with a name behind it.
    pub(crate) fn then(mut self, name: &[u8]) -> Text {
        self.bytes[self.length..][..name.len()].copy_from_slice(name);
        self.length += name.len();
        self
    }

    /// The same with a dot and a number, or only the number behind a slash.
    pub(crate) fn with(mut self, number: u32) -> Text {
        if self.bytes[self.length - 1] != b'/' {
            self.bytes[self.length] = b'.';
            self.length += 1;
        }
        self.length += put_decimal(&mut self.bytes[self.length..], number);
        self
    }

    pub(crate) fn address(&self) -> usize {
        self.bytes.as_ptr() as usize
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Opens the FIFO `inode`, which the caller may open so.
    #[inline(never)]
    pub(crate) fn open_fifo(&mut self, inode: Inode, flags: u32) -> Answer {
        self.need_numbers(1)?;
        let directory = self.services.private_path();
        if directory.is_empty() {
            return self.refuse(nr::openat, Errno::EOPNOTSUPP);
        }
        let path = Text::new(directory).with(inode.number).with(inode.generation);
        self.services.pin(inode)?;
        let at = self.host.stack_room(PATH_BYTES);
        let there = self.stand_behind(&path).and_then(|()| self.memory.write(at, &path.bytes));
        if let Err(errno) = there {
            self.services.unpin(inode);
            return Err(errno);
        }
        let (number, generation) = (inode.number as usize, inode.generation as usize);
        // Who may leave its times alone, the node says: the host is told when the FIFO is open.
        let (later, at_once) = ((flags & O_NOATIME) as usize, (flags & !O_NOATIME) as usize);
        let args = [AT_FDCWD as usize, at, at_once, later, number, generation];
        let call = After { number: nr::openat, args, reason: reason::FIFO };
        Ok(Verdict::Instead { call, room: PATH_BYTES })
    }

    /// Makes the host's FIFO unless it is there: a draft that everybody may use gets the name.
    fn stand_behind(&self, path: &Text) -> Result<()> {
        let here = AT_FDCWD as usize;
        if self.host.call(nr::faccessat, [here, path.address(), 0, 0, 0, 0]) == 0 {
            return Ok(());
        }
        let draft = path.with(self.host.call(nr::gettid, [0; 6]) as u32);
        let at = draft.address();
        let made = self.host.call(nr::mknodat, [here, at, S_IFIFO as usize, 0, 0, 0]);
        if made < 0 && made != Errno::EEXIST.as_return() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.host.call(nr::fchmodat, [here, at, OPEN_TO_ALL, 0, 0, 0]);
        let args = [here, at, here, path.address(), RENAME_NOREPLACE as usize, 0];
        let named = self.host.call(nr::renameat2, args);
        if named < 0 {
            self.host.call(nr::unlinkat, [here, at, 0, 0, 0, 0]);
        }
        match Errno::check(named) {
            Ok(_) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether what a host descriptor shows is a FIFO, a socket or a device: all but names and
    /// attributes is the host's.
    #[cold]
    pub(crate) fn is_special(&mut self, inode: Inode) -> bool {
        self.services.step(inode).is_ok_and(|step| step.kind.is_special())
    }

    /// Notes what became of the host's `open`.
    pub(crate) fn note_fifo(&mut self, after: &After, result: i64) -> i64 {
        let [_, _, flags, later, number, generation] = after.args;
        let inode = Inode { number: number as u32, generation: generation as u32 };
        let close_on_exec = flags as u32 & O_CLOEXEC != 0;
        if result >= 0 && later != 0 {
            let fd = result as usize;
            let shown = self.host_fcntl(fd, F_GETFL, 0).max(0) as usize;
            self.host_fcntl(fd, F_SETFL, shown | later);
        }
        let noted = match result {
            0.. => self.note_opened(result as u32, close_on_exec, Shown::Node(inode)),
            failed => failed,
        };
        self.services.unpin(inode);
        noted
    }
}
