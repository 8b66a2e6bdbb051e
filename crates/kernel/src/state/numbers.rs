//! Numbers that are used again and again, each time in a new life, and counted: of pipes, of
//! epoll sets and of eventfds.
//!
//! ```text
//!   fixed words  list:   0 lock  1 first free  2 highest used
//!                record: 0 lock  1 references:32 next free:32  2 life  3 its owner's
//!   name         life | number, what a table's entry carries
//! ```
//!
//! The references of a number are what names it, in all tables; who has none is free.

use husk_proto::{Errno, Result};
use husk_region::{Cell, Region, Txn};

use crate::state::{high, low, pair};

const FREE: u32 = 1;
const HIGH: u32 = 2;
const USES: u32 = 1;
const LIFE: u32 = 2;
const RECORD_WORDS: u32 = 4;

/// The numbers of one kind.
pub(crate) struct Names {
    /// The fixed word where the list begins.
    pub(crate) list: u32,
    /// And the records.
    pub(crate) records: u32,
    /// Bits of a name that are its number; the others are its life.
    pub(crate) number_bits: u32,
}

impl Names {
    /// The number of a name.
    pub(crate) fn number(&self, name: u32) -> u32 {
        name & ((1 << self.number_bits) - 1)
    }

    /// The record of a name's number.
    pub(crate) fn record(&self, region: &Region, name: u32) -> Cell {
        region.map.fixed(self.records + self.number(name) * RECORD_WORDS)
    }

    pub(crate) fn list(&self, region: &Region) -> Cell {
        region.map.fixed(self.list)
    }

    /// The name of a number in the life it is in.
    pub(crate) fn name(&self, region: &Region, number: u32) -> u32 {
        let life = region.load(self.record(region, number).word(LIFE)) as u32;
        life << self.number_bits | number
    }

    /// References of `number`; `None` past the last one that was ever used.
    pub(crate) fn references(&self, region: &Region, number: u32) -> Option<u32> {
        let high_water = region.load(self.list(region).word(HIGH));
        let used = (number as u64) < high_water;
        used.then(|| high(region.load(self.record(region, number).word(USES))))
    }

    /// The numbers with references.
    pub(crate) fn used(&self, region: &Region) -> impl Iterator<Item = u32> {
        (0..1 << self.number_bits)
            .map_while(|number| Some((number, self.references(region, number)?)))
            .filter(|&(_, references)| references > 0)
            .map(|(number, _)| number)
    }

    /// A free number in a new life, named `references` times. `ENFILE`: all `most` are in use.
    pub(crate) fn take(&self, txn: &mut Txn<'_>, most: u32, references: u32) -> Result<u32> {
        let list = self.list(txn.region);
        txn.lock(list)?;
        let free = txn.get(list.word(FREE)) as u32;
        let number = if free != 0 {
            let next = low(txn.get(self.record(txn.region, free - 1).word(USES)));
            txn.set(list.word(FREE), next as u64);
            free - 1
        } else {
            let next = txn.get(list.word(HIGH));
            if next >= most as u64 {
                return Err(Errno::ENFILE);
            }
            txn.set(list.word(HIGH), next + 1);
            next as u32
        };
        let cell = self.record(txn.region, number);
        let lives = 1 << (u32::BITS - self.number_bits);
        let life = ((txn.get(cell.word(LIFE)) + 1) % lives).max(1);
        txn.set(cell.word(LIFE), life);
        txn.set(cell.word(USES), pair(references, 0));
        Ok((life as u32) << self.number_bits | number)
    }

    /// Locks the record of a name. `EBADF`: that life is over.
    #[inline]
    pub(crate) fn lock(&self, txn: &mut Txn<'_>, name: u32) -> Result<()> {
        let cell = self.record(txn.region, name);
        txn.lock(cell)?;
        let life = txn.get(cell.word(LIFE)) as u32;
        let over = high(txn.get(cell.word(USES))) == 0 || life != name >> self.number_bits;
        if over { Err(Errno::EBADF) } else { Ok(()) }
    }

    /// One reference more. `EBADF`: that life is over.
    pub(crate) fn hold(&self, txn: &mut Txn<'_>, name: u32) -> Result<()> {
        self.lock(txn, name)?;
        let cell = self.record(txn.region, name).word(USES);
        let uses = txn.get(cell);
        txn.set(cell, uses + (1 << 32));
        Ok(())
    }

    /// Whether a name has one reference, its record locked.
    pub(crate) fn is_last(&self, txn: &Txn<'_>, name: u32) -> bool {
        high(txn.get(self.record(txn.region, name).word(USES))) == 1
    }

    /// One reference less; without any, the number is free.
    pub(crate) fn release(&self, txn: &mut Txn<'_>, name: u32) -> Result<()> {
        let cell = self.record(txn.region, name);
        txn.lock(cell)?;
        let uses = high(txn.get(cell.word(USES)));
        if uses > 1 {
            txn.set(cell.word(USES), pair(uses - 1, 0));
            return Ok(());
        }
        let list = self.list(txn.region);
        txn.lock(list)?;
        let free = txn.get(list.word(FREE)) as u32;
        txn.set(cell.word(USES), pair(0, free));
        txn.set(list.word(FREE), self.number(name) as u64 + 1);
        Ok(())
    }
}
