//! Files that are open here for other nodes.
//!
//! ```text
//!   opened in our table ─► `keep`: a hold in its place, in the region ─► its number is told
//!   given back, told to nobody, opened once more, its node is dead ─► it ends
//! ```
//!
//! Invariants
//! 1. A hold is its node's: no other node gives it back. All of a node end together when it is
//!    dead, so that files without a name go; also those that an agent before this one has made.
//! 2. Between opening and `keep` a file is open in our table, and is closed with it if we are
//!    killed.

use husk_carrier::{Direct, Hold};
use husk_proto::descriptor::{Descriptors as _, Slot};
use husk_proto::{Errno, Inode, Shortcuts as _};
use husk_wire::record::{self, Grant};
use husk_wire::{Failure, Header, message, reply, request};

use crate::agent::Agent;
use crate::planted::planted;
use crate::translate::{Handled, failure, put};

/// Whether a hold was made for a request.
pub fn is_of(hold: &Hold, asked: &Header) -> bool {
    (hold.node, hold.epoch, hold.request) == (asked.source, asked.epoch, asked.request)
}

/// What a life of a node before `epoch` had open and locked here ends.
pub fn end_of(direct: &mut Direct, node: u16, epoch: u32) {
    if !planted!(DeathKeepsHolds) {
        direct.end_holds(|_, hold| is_dead(hold, node, epoch));
    }
    // Where that fails, they stay until their places are needed, or the image ends; whoever waits
    // looks again.
    let _ = direct.drop_locks_of(node);
}

/// Whether a hold is of a life of a node before `epoch`.
fn is_dead(hold: &Hold, node: u16, epoch: u32) -> bool {
    hold.node == node && (hold.epoch < epoch || planted!(DeathOfAllLives))
}

impl Agent {
    /// Keeps number `fd` of our table for who asks: what it is, and the hold.
    pub fn keep(&mut self, asked: &Header, fd: u32) -> Result<(Inode, Grant), Failure> {
        let direct = self.direct();
        let files = direct.files();
        let Slot::Husk(description) = direct.slot(files, fd) else {
            return Err(failure(Errno::EBADF));
        };
        let inode = direct.description(description).map_err(failure)?.inode;
        let (node, epoch, request) = (asked.source, asked.epoch, asked.request);
        let hold = Hold { node, epoch, request, process: asked.behalf };
        let taken = self.direct().take_hold(files, fd, hold);
        let number = taken.map_err(|errno| {
            self.close(fd);
            failure(errno)
        })?;
        self.unheard = Some((node, number));
        // After that, so that what has no name is open all the time.
        self.close_first_tries(asked, Some(number));
        if self.sessions.is_fenced(asked) {
            // Its node was declared dead meanwhile.
            self.was_not_heard();
            return Err(Failure::Fenced);
        }
        let kinds = record::Promises::default();
        Ok((inode, Grant { number, kinds, term_ms: 0 }))
    }

    /// Closes number `fd` of our table: it is open, and nobody else closes.
    fn close(&mut self, fd: u32) {
        let direct = self.direct();
        let files = direct.files();
        let _ = direct.close(files, fd);
    }

    /// What a request that is asked again opened before is closed, but for the hold `last`: nobody
    /// has heard of it.
    pub fn close_first_tries(&mut self, asked: &Header, last: Option<u64>) {
        if asked.again && !planted!(FirstTryKept) {
            self.direct().end_holds(|name, hold| is_of(hold, asked) && Some(name) != last);
        }
    }

    fn let_go(&mut self, node: u16, number: u64, quiet: bool) {
        let fits = |hold: &Hold| hold.node == node || planted!(AnyoneReturns);
        // One that it does not have was given back before.
        let _ = self.direct().end_hold(number, quiet, fits);
    }

    /// Ends what another node does not need any more.
    pub fn give_back(
        &mut self,
        header: &Header,
        asked: request::Return<'_>,
        room: &mut [u8],
    ) -> Handled {
        for number in asked.grants.iter() {
            self.let_go(header.source, number, asked.quiet);
        }
        put::<message::Return>(header, &reply::Return {}, room)
    }

    /// Nobody has taken the answer to the request of now: who asked was killed, or has given up. A
    /// hold whose number nobody knows is let go of.
    pub fn was_not_heard(&mut self) {
        self.lock_was_not_heard();
        if let Some((node, number)) = self.unheard.take()
            && !planted!(UnheardHoldKept)
        {
            self.let_go(node, number, false);
        }
    }

    /// A node is dead, and one of its number would have this epoch.
    pub fn bury(&mut self, node: u16, epoch: u32) {
        self.sessions.fence(node, epoch);
        let direct = self.direct();
        end_of(direct, node, epoch);
        let _ = direct.forget_answers(node, epoch);
    }
}
