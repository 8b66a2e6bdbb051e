//! Service `flight`: open-file descriptions in flight in messages (`SCM_RIGHTS`).
//!
//! ```text
//!   fixed words  list: 0 lock  1 slots ever used
//!                slot: 0 name of the flight, 0 = free  1 description
//! ```
//!
//! 1. A flight holds its description like a number does, and is one of its references.
//! 2. Slots change under the list's lock, taken after a table's and before a description's.

use husk_proto::flight::Flight;
use husk_proto::{Errno, Files, Result};
use husk_region::{Cell, Region, Txn};

use crate::descriptor::open;
use crate::image::{FLIGHTS, FLIGHTS_LIST, FLIGHTS_MAX};
use crate::state::fd_table;
use crate::state::high;
use crate::{Kernel, no_room};

const USED: u32 = 1;
const DESCRIPTION: u32 = 1;
const SLOT_WORDS: u32 = 2;

fn slot(region: &Region, index: u32) -> Cell {
    region.map.fixed(FLIGHTS + index * SLOT_WORDS)
}

fn list(region: &Region) -> Cell {
    region.map.fixed(FLIGHTS_LIST)
}

/// The slot with this name among those that were ever used.
fn find(region: &Region, name: u64) -> Option<u32> {
    let used = region.load(list(region).word(USED)) as u32;
    (0..used.min(FLIGHTS_MAX)).find(|&index| region.load(slot(region, index)) == name)
}

/// `Flights::fly`.
pub fn fly(kernel: &Kernel, files: Files, fd: u32, flight: Flight) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let description = high(fd_table::husk(txn, table, fd)?);
        let list = list(txn.region);
        txn.lock(list)?;
        let index = match find(txn.region, 0) {
            Some(index) => index,
            None => {
                let used = txn.get(list.word(USED));
                if used >= u64::from(FLIGHTS_MAX) {
                    return Err(Errno::ETOOMANYREFS);
                }
                txn.set(list.word(USED), used + 1);
                used as u32
            }
        };
        open::hold(txn, description)?;
        let slot = slot(txn.region, index);
        txn.set(slot.word(DESCRIPTION), description.into());
        txn.set(slot, flight.0);
        Ok(())
    })
}

/// The slot of a flight, its list locked.
fn locked(txn: &mut Txn<'_>, flight: Flight) -> Result<Cell> {
    txn.lock(list(txn.region))?;
    let index = find(txn.region, flight.0).ok_or(Errno::ENOENT)?;
    Ok(slot(txn.region, index))
}

/// `Flights::land`.
pub fn land(
    kernel: &Kernel,
    files: Files,
    flight: Flight,
    limit: u32,
    close_on_exec: bool,
) -> Result<u32> {
    let landed = kernel.run_reserved(|txn| {
        let table = fd_table::lock(txn, files)?;
        let slot = locked(txn, flight)?;
        let description = txn.get(slot.word(DESCRIPTION)) as u32;
        let fd = fd_table::lowest_free_of(txn.region, table, 0, limit)?;
        open::hold(txn, description)?;
        fd_table::put(txn, table, fd, fd_table::husk_entry(description, close_on_exec))?;
        Ok(fd)
    });
    landed.map_err(no_room(Errno::ENOMEM))
}

/// `Flights::end_flight`.
pub fn end(kernel: &Kernel, flight: Flight) -> Result<()> {
    let region = &kernel.session.region;
    let index = find(region, flight.0).ok_or(Errno::ENOENT)?;
    let description = region.load(slot(region, index).word(DESCRIPTION)) as u32;
    open::drop_locks(kernel, description)?;
    open::wake_after(kernel, fd_table::husk_entry(description, false), || {
        kernel.run(|txn| {
            let slot = locked(txn, flight)?;
            txn.set(slot, 0);
            open::release(txn, description)
        })
    })
}

/// `Flights::flight`.
pub fn at(region: &Region, index: u32) -> Option<Option<Flight>> {
    let used = region.load(list(region).word(USED)) as u32;
    let name = (index < used.min(FLIGHTS_MAX)).then(|| region.load(slot(region, index)))?;
    Some((name != 0).then_some(Flight(name)))
}

/// Calls `emit` with the description of each flight, for the checker.
pub(crate) fn each(region: &Region, emit: &mut dyn FnMut(u32)) {
    let used = region.load(list(region).word(USED)) as u32;
    for slot in (0..used.min(FLIGHTS_MAX)).map(|index| slot(region, index)) {
        if region.load(slot) != 0 {
            emit(region.load(slot.word(DESCRIPTION)) as u32);
        }
    }
}
