//! Records of children that do not run yet, and what becomes of these if the parent dies.
//!
//! ```text
//!   creator:  record, AWAITED ─► host's clone ──────────────► note ─► RUNNING
//!   host:                            └ told = number, child runs
//!   child:                                                └─► enter ─► RUNNING
//! ```
//!
//! Invariants
//! 1. Which process the child is, the host writes into `told`, if at all before the call of the
//!    creator ends, however that ends. So when that thread is gone there is a child, or there will
//!    be none.
//! 2. As long as that thread may be there and the host is to write, the record is nobody else's:
//!    time alone releases none.
//! 3. Where the host was not asked to write (`UNTOLD`), an embryo whose parent died is kept
//!    `EMBRYO_NS`: its child may be on its way.

use husk_proto::{Process, Result};
use husk_region::Cell;

use crate::Kernel;
use crate::process::creator;
use crate::state::process::{BORN, DYING, EMBRYO, PARENT, RUNNING, STATE, TOLD, record};
use crate::state::{high, low, pair};

/// The host will not say which process a child is.
const UNTOLD: u32 = 0;
/// It has not said so yet.
pub(crate) const AWAITED: u32 = u32::MAX;

/// How long an untold embryo without a parent may still find its child: many times what a process
/// waits for a processor. Its files and locks are kept as long.
const EMBRYO_NS: i64 = 10_000_000_000;

/// Where the host is to write which process the child of an embryo is: 32 bits.
pub fn told_at(kernel: &Kernel, child: Process) -> Cell {
    record(&kernel.session.region, child.0).word(TOLD)
}

/// Whether the host has said it, as far as its creator can tell now that there is a child: the
/// record may be another's by now.
pub fn was_told(kernel: &Kernel, child: Process) -> bool {
    let (region, cell) = (&kernel.session.region, told_at(kernel, child));
    let mine = region.load(record(region, child.0).word(PARENT)) == creator(kernel);
    !(mine && region.load(cell) == pair(kernel.session.pid(), AWAITED))
}

/// The host will not say which process the child of an embryo is.
pub fn set_untold(kernel: &Kernel, child: Process) -> Result<()> {
    kernel.run(|txn| {
        let cell = record(txn.region, child.0);
        txn.lock(cell)?;
        let told = high(txn.get(cell.word(TOLD)));
        txn.set(cell.word(TOLD), pair(told, UNTOLD));
        Ok(())
    })
}

/// Who will come of an embryo.
pub(crate) enum Expected {
    /// Nobody.
    Nobody,
    /// This host process, which is there or was.
    Child(u32),
    /// Nobody knows yet.
    Unknown,
}

/// `None`: it is none, but perhaps a process.
pub(crate) fn expected(
    kernel: &Kernel,
    cell: Cell,
    now_ns: i64,
    gone: &dyn Fn(u32, u32) -> bool,
) -> Result<Option<Expected>> {
    let region = &kernel.session.region;
    let state = region.load(cell.word(STATE));
    let dying = match high(state) {
        EMBRYO => false,
        // Somebody was taking it back.
        DYING if low(state) == 0 => true,
        _ => return Ok(None),
    };
    let told = last_word(kernel, cell, gone)?;
    if region.load(cell.word(STATE)) != state {
        // Its creator had died half-way.
        return Ok(Some(Expected::Unknown));
    }
    let orphan = low(region.load(cell.word(PARENT))) == 0;
    let untold = low(region.load(cell.word(TOLD))) == UNTOLD;
    let waited = now_ns.saturating_sub(region.load(cell.word(BORN)) as i64) > EMBRYO_NS;
    Ok(Some(match told {
        Some(_) if dying => Expected::Nobody,
        Some(AWAITED) => Expected::Nobody,
        Some(child) if child != UNTOLD => Expected::Child(child),
        _ if orphan && (dying || untold && waited) => Expected::Nobody,
        _ => Expected::Unknown,
    }))
}

/// What the host has said of an embryo's child, now that the thread that made the embryo is gone
/// and what it left half-made is settled; `None` while it is there. What is made and cancelled
/// meanwhile is not mixed up: it has another creator, or is of the same one, who is as dead.
fn last_word(kernel: &Kernel, cell: Cell, gone: &dyn Fn(u32, u32) -> bool) -> Result<Option<u32>> {
    let region = &kernel.session.region;
    let look = || {
        let word = |index| region.load(cell.word(index));
        kernel.session.read(cell, || (word(TOLD), high(word(PARENT))))
    };
    let (before, thread) = look()?;
    if !gone(high(before), thread) {
        return Ok(None);
    }
    kernel.session.recover_where(|pid, tid| (pid, tid) == (high(before), thread))?;
    let (told, again) = look()?;
    Ok(((high(told), again) == (high(before), thread)).then_some(low(told)))
}

/// An embryo's child, which its creator cannot note any more, is judged like any other process from
/// now on; how many that were.
pub(crate) fn note_told(kernel: &Kernel, cell: Cell, child: u32) -> Result<u32> {
    kernel.run(|txn| {
        txn.lock(cell)?;
        // It may be another child's by now.
        let is_its = low(txn.get(cell.word(TOLD))) == child;
        let waits = is_its && txn.get(cell.word(STATE)) == pair(EMBRYO, 0);
        if waits {
            txn.set(cell.word(STATE), pair(RUNNING, child));
        }
        Ok(u32::from(waits))
    })
}
