//! Pauses all transactions of a running image for a moment, without stopping processes: for `husk
//! fsck`.
//!
//! ```text
//!   hold FREEZE ─► barrier on every processor ─► wait for empty journals ─► look ─► let go
//!       whoever begins a transaction now waits before it holds anything of one
//! ```
//!
//! 1. FREEZE is a long lock: recovery lets go of it when its holder dies.
//! 2. Who waits for it holds no lock of a transaction, so those that run come to their end.
//! 3. The holder does nothing but look: no transaction, no host call that sleeps. Others wait for
//!    a runnable holder 60 s, for a sleeping one 1 s (`lock`). For the moment of a theft, who
//!    steals holds it (`steal`).
//! 4. A thread that was between its look at FREEZE and its first journal entry when the barrier
//!    came may still run one transaction. Whoever looks therefore looks again before believing
//!    something bad; who steals has a stricter rule.

use husk_abi::{Errno, nr};
use husk_host::syscall;

use crate::arena::layout::header;
use crate::arena::memory::Cell;
use crate::txn::lock::{is_locked, owner_of};
use crate::txn::session::{STATE, Session};

/// Looks at one journal before its transaction counts as stuck, 50 us each.
const LOOKS_MAX: u32 = 40_000;
const LOOK_NS: u64 = 50_000;
/// `MEMBARRIER_CMD_GLOBAL`.
const GLOBAL: usize = 1;

impl Session {
    /// Waits until no transaction runs, and lets none begin until `thaw`. `EBUSY`: somebody is
    /// stopped in the middle of one.
    pub fn freeze(&self) -> Result<(), Errno> {
        self.recover_dead()?;
        self.lock_long(Cell::at(header::FREEZE))?;
        // SAFETY: touches no memory. Without it (a sandbox) only invariant 4 gets wider.
        unsafe { syscall(nr::membarrier, [GLOBAL, 0, 0, 0, 0, 0]) };
        let idle = self.wait_idle();
        if idle.is_err() {
            self.thaw();
        }
        idle
    }

    /// Transactions may begin again.
    pub fn thaw(&self) {
        self.unlock_long(Cell::at(header::FREEZE));
    }

    fn wait_idle(&self) -> Result<(), Errno> {
        for id in 1..=self.slots_high() {
            let state = self.region.map.slot(id).word(STATE);
            let mut looks = 0;
            while self.region.load(state) != 0 {
                looks += 1;
                if looks > LOOKS_MAX {
                    return Err(Errno::EBUSY);
                }
                if looks % 200 == 0 {
                    self.recover_dead()?;
                }
                nap();
            }
        }
        Ok(())
    }

    /// Before a transaction: waits while somebody looks.
    #[cold]
    pub(crate) fn wait_thawed(&self, word: u64) -> Result<(), Errno> {
        if owner_of(word) == self.slot_if_any() {
            return Ok(());
        }
        self.wait_at_rest(Cell::at(header::FREEZE)).map(|_| ())
    }

    /// Whether a transaction may not begin.
    #[inline(always)]
    pub(crate) fn frozen(&self) -> Option<u64> {
        let word = self.region.load(Cell::at(header::FREEZE));
        is_locked(word).then_some(word)
    }
}

/// Sleeps for about as long as one look at somebody else's work takes.
pub fn nap() {
    #[cfg(feature = "models")]
    if crate::hooks::model_hooks::rest() {
        return;
    }
    let time = [0u64, LOOK_NS];
    // SAFETY: a time that lives over the call.
    unsafe { syscall(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
