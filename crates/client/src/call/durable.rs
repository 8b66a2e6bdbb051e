//! What a call owes at its end: news to whoever waits for changes, and, in volumes with policy
//! `immediate`, that what it has changed is durable.
//!
//! ```text
//!   handler ─► owes something? ─► news; durable ─► the handler's answer
//!                  no │ ─► the answer     '─ EIO, ENOSPC: that error
//! ```
//!
//! 1. A call that owes nothing pays for one look at a word of its own thread.
//! 2. A call that fails here has done what it was asked for, as a write with `O_SYNC` has: it is in
//!    memory, and may be lost. A descriptor that it has opened is closed.
//!
//! What a process stores in a mapping is made durable by `msync` alone.

use husk_abi::nr;
use husk_proto::{Errno, Services};

use crate::{Answer, Call, Client, Host, Memory, Verdict};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Does what a call with this answer owes; the error that it returns instead, if any.
    #[inline(always)]
    pub(crate) fn fulfil(&mut self, call: &Call, answer: &Answer) -> Option<Errno> {
        if self.services.owes_anything() { self.fulfil_all(call, answer) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn fulfil_all(&mut self, call: &Call, answer: &Answer) -> Option<Errno> {
        self.tell();
        let errno = self.services.commit_changes().err()?;
        match answer {
            Ok(Verdict::Return(fd @ 0..)) if opens(call.number) => {
                // Nobody will close it who was not told its number.
                let args = [*fd as usize, 0, 0, 0, 0, 0];
                let _ = self.close(&Call { number: nr::close, args });
                Some(errno)
            }
            Ok(_) => Some(errno),
            // It has failed, and says why.
            Err(_) => None,
        }
    }
}

/// Whether the answer is a descriptor.
const fn opens(number: usize) -> bool {
    matches!(number, nr::open | nr::openat | nr::openat2 | nr::creat)
}
