//! Service `pipe`: eventfds whose count is the image's (`docs/adr/0089`).
//!
//! ```text
//!   Ours ── a call that must wait, a poll, a set, a stranger ──► Moving ──► Hosts, for good
//!    '── a count of 0: nothing to move ────────────────────────────────────────^
//! ```
//!
//! 1. An eventfd has a name (`state::numbers`: 24 bits of life, 8 of number); its state is the last
//!    word of its record, changed in transactions only.
//! 2. While the count is the image's the host has 0, and nobody sleeps at the host.
//! 3. Who moves the count says so first. Nobody else uses the host's eventfd meanwhile, so what
//!    that has tells how far somebody has come who died.

use husk_proto::pipe::{Count, Event, Given};
use husk_proto::{Errno, Files, Result};
use husk_region::{Cell, Txn};

use crate::Kernel;
use crate::image::{EVENTS, EVENTS_LIST, EVENTS_MAX};
use crate::state::fd_table;
use crate::state::numbers::Names;
use crate::state::{high, pair};

/// The eventfds.
pub(crate) const NAMES: Names = Names { list: EVENTS_LIST, records: EVENTS, number_bits: 8 };
const _: () = assert!(EVENTS_MAX == 1 << 8);

/// The word of a record with the state: two bits, a flag, the process that moves the count, the
/// count.
const STATE: u32 = 3;
const STATES: u64 = 3 << 62;
const MOVING: u64 = 1 << 62;
const HOSTS: u64 = 2 << 62;
/// `EFD_SEMAPHORE`.
const SEMAPHORE: u64 = 1 << 61;
/// Where the mover is, and how many bits that takes.
const MOVER_AT: u32 = 39;
const MOVER_BITS: u32 = 22;
/// Counts that are ours are below.
const COUNT_END: u64 = 1 << MOVER_AT;

/// The eventfd behind a table's entry.
#[inline(always)]
pub(crate) fn event_of(entry: u64) -> Option<Event> {
    (entry & fd_table::EVENT != 0).then(|| Event(high(entry)))
}

fn entry_of(event: Event) -> u64 {
    pair(event.0, 0) | fd_table::EVENT
}

/// `Pipes::event`. Most images have none.
#[inline]
pub fn event(kernel: &Kernel, files: Files, fd: u32) -> Option<Event> {
    let region = &kernel.session.region;
    NAMES.references(region, 0)?;
    event_of(fd_table::entry(region, files, fd))
}

/// `Pipes::event_make`.
pub fn make(kernel: &Kernel, files: Files, fd: u32, count: u32, semaphore: bool) -> Result<Event> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        let event = Event(NAMES.take(txn, EVENTS_MAX, 1)?);
        let kind = if semaphore { SEMAPHORE } else { 0 };
        txn.set(state_of(txn, event), kind | u64::from(count));
        fd_table::put(txn, table, fd, old | entry_of(event))?;
        Ok(event)
    })
}

/// `Pipes::event_join`.
pub fn join(kernel: &Kernel, files: Files, fd: u32, event: Event) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        hold(txn, event)?;
        fd_table::put(txn, table, fd, old | entry_of(event))
    })
}

/// One more number names an eventfd. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, event: Event) -> Result<()> {
    NAMES.hold(txn, event.0)
}

/// One number less; without any, the eventfd is gone.
pub(crate) fn release(txn: &mut Txn<'_>, event: Event) -> Result<()> {
    NAMES.release(txn, event.0)
}

/// `Pipes::event_forget`.
pub fn forget(kernel: &Kernel, files: Files, fd: u32, event: Event) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::entry(txn.region, files, fd);
        if event_of(old) != Some(event) {
            return Err(Errno::EBADF);
        }
        fd_table::put(txn, table, fd, old & !entry_of(event))?;
        release(txn, event)
    })
}

fn state_of(txn: &Txn<'_>, event: Event) -> Cell {
    NAMES.record(txn.region, event.0).word(STATE)
}

/// The state of an eventfd that lives, its record locked; and where it is.
fn locked(txn: &mut Txn<'_>, event: Event) -> Result<(Cell, u64)> {
    NAMES.lock(txn, event.0)?;
    let cell = state_of(txn, event);
    Ok((cell, txn.get(cell)))
}

/// Whose the count is, if it is not ours.
fn away(state: u64) -> Option<Count> {
    match state & STATES {
        0 => None,
        _ => Some(Count::Away),
    }
}

/// `Pipes::event_add`.
pub fn add(kernel: &Kernel, event: Event, value: u64) -> Result<Count> {
    kernel.run(|txn| {
        let (cell, state) = locked(txn, event)?;
        if let Some(away) = away(state) {
            return Ok(away);
        }
        if (state & (COUNT_END - 1)).saturating_add(value) >= COUNT_END {
            return Ok(Count::Nothing);
        }
        txn.set(cell, state + value);
        Ok(Count::Of(value))
    })
}

/// `Pipes::event_take`.
pub fn take(kernel: &Kernel, event: Event) -> Result<Count> {
    kernel.run(|txn| {
        let (cell, state) = locked(txn, event)?;
        if let Some(away) = away(state) {
            return Ok(away);
        }
        let taken = match state & (COUNT_END - 1) {
            0 => return Ok(Count::Nothing),
            _ if state & SEMAPHORE != 0 => 1,
            count => count,
        };
        txn.set(cell, state - taken);
        Ok(Count::Of(taken))
    })
}

/// `Pipes::event_give`.
pub fn give(kernel: &Kernel, event: Event, dead: u32) -> Result<Given> {
    kernel.run(|txn| {
        let (cell, state) = locked(txn, event)?;
        let (kind, count) = (state & SEMAPHORE, state & (COUNT_END - 1));
        let mover = (state >> MOVER_AT) as u32 & ((1 << MOVER_BITS) - 1);
        let own = u64::from(kernel.session.pid()) << MOVER_AT;
        match state & STATES {
            0 if count == 0 => {
                txn.set(cell, HOSTS | kind);
                Ok(Given::All)
            }
            0 => {
                txn.set(cell, MOVING | kind | own | count);
                Ok(Given::Move { count, anew: false })
            }
            MOVING if mover != dead => Ok(Given::By(mover)),
            MOVING => {
                txn.set(cell, MOVING | kind | own | count);
                Ok(Given::Move { count, anew: true })
            }
            _ => Ok(Given::All),
        }
    })
}

/// `Pipes::event_given`.
pub fn given(kernel: &Kernel, event: Event) -> Result<()> {
    kernel.run(|txn| {
        let (cell, state) = locked(txn, event)?;
        if state & STATES == MOVING {
            txn.set(cell, HOSTS | state & SEMAPHORE);
        }
        Ok(())
    })
}
