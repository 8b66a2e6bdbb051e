//! A disk in memory that fails as disks do, from a seed.
//!
//! ```text
//!   write ─► current, pending      flush ─► durable      read ◄─ current
//!                      '── crash: any part of it, by sectors ─► durable ─► current
//! ```
//!
//! Faults: the power goes at a given write or flush (`cut_after`); a write or a flush fails
//! (`fail_write`, `fail_flush`); a write ends elsewhere (`misdirect`); a bit turns (`rot`); a block
//! cannot be read until it is written (`spoil`); and, as a switch of its own because no program can
//! survive it, flushes are dropped (`drop_flushes`).
//!
//! A flush that failed loses what it was to flush: the next one says that all is well, as Linux
//! does, which marks the pages clean.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::{BLOCK, BLOCK_BYTES, Disk};

/// What is written as a whole, or not.
pub const SECTOR_BYTES: usize = 512;

/// Numbers that look random, the same ones for a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// What has been asked of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes, durable ones too.
    pub writes: u64,
    /// Flushes, and durable writes.
    pub flushes: u64,
}

/// The disk.
#[derive(Debug)]
pub struct Sim {
    state: Mutex<State>,
    size_bytes: u64,
}

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Sectors that the next flush makes durable, in the order they were written.
    pending: Vec<Sector>,
    /// The same of a flush that failed: no later one makes them durable.
    doomed: Vec<Sector>,
    spoilt: BTreeSet<u64>,
    random: Random,
    counts: Counts,
    is_off: bool,
    cut_after: Option<u64>,
    write_fails: Option<u64>,
    flush_fails: Option<u64>,
    misdirected: Option<u64>,
    drops_flushes: bool,
}

#[derive(Debug, Clone)]
struct Sector {
    at: usize,
    bytes: [u8; SECTOR_BYTES],
}

/// Whether this is the one counted down to.
fn is_due(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => left.take().is_some(),
        Some(more) => {
            *more -= 1;
            false
        }
        None => false,
    }
}

fn failed() -> io::Error {
    Errno::IO.into()
}

impl Sim {
    /// `size_bytes` zeros, durable; `seed` decides what faults do.
    pub fn new(size_bytes: u64, seed: u64) -> Self {
        assert!(size_bytes.is_multiple_of(BLOCK));
        let zeros = vec![0; size_bytes as usize];
        let state = State {
            durable: zeros.clone(),
            current: zeros,
            pending: Vec::new(),
            doomed: Vec::new(),
            spoilt: BTreeSet::new(),
            random: Random::new(seed),
            counts: Counts::default(),
            is_off: false,
            cut_after: None,
            write_fails: None,
            flush_fails: None,
            misdirected: None,
            drops_flushes: false,
        };
        Self { state: Mutex::new(state), size_bytes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes while the write or flush after `steps` others is under way.
    pub fn cut_after(&self, steps: u64) {
        self.state().cut_after = Some(steps);
    }

    /// The write after `writes` others fails; part of it may be there.
    pub fn fail_write(&self, writes: u64) {
        self.state().write_fails = Some(writes);
    }

    /// The flush after `flushes` others fails. A durable write flushes, too.
    pub fn fail_flush(&self, flushes: u64) {
        self.state().flush_fails = Some(flushes);
    }

    /// The write after `writes` others ends at another block.
    pub fn misdirect(&self, writes: u64) {
        self.state().misdirected = Some(writes);
    }

    /// From now on flushes do nothing, and say that all is well.
    pub fn drop_flushes(&self) {
        self.state().drops_flushes = true;
    }

    /// Turns a bit of the byte at `at`.
    pub fn rot(&self, at: u64, bit: u32) {
        let state = &mut *self.state();
        state.durable[at as usize] ^= 1 << bit;
        state.current[at as usize] ^= 1 << bit;
    }

    /// The block at `at` cannot be read until it is written.
    pub fn spoil(&self, at: u64) {
        self.state().spoilt.insert(at / BLOCK);
    }

    /// The power is gone and back: any part of what was not flushed is kept. Faults that have not
    /// come yet do not come any more.
    pub fn crash(&self) {
        let mut state_guard = self.state();
        let state = &mut *state_guard;
        // From nothing at all to everything.
        let kept_of_four = state.random.below(5);
        let mut unsure = std::mem::take(&mut state.doomed);
        unsure.append(&mut state.pending);
        for sector in &unsure {
            if state.random.below(4) < kept_of_four {
                state.durable[sector.at..][..SECTOR_BYTES].copy_from_slice(&sector.bytes);
            }
        }
        for sector in &unsure {
            let range = sector.at..sector.at + SECTOR_BYTES;
            state.current[range.clone()].copy_from_slice(&state.durable[range]);
        }
        drop(state_guard);
        self.come_back();
    }

    /// Who used it was killed; the power stays. Faults that have not come yet do not come any more.
    pub fn come_back(&self) {
        let state = &mut *self.state();
        state.is_off = false;
        (state.cut_after, state.write_fails, state.flush_fails) = (None, None, None);
        state.misdirected = None;
    }

    /// What has been asked of it so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }
}

impl State {
    /// One step: fails where the power is off; whether it goes now.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_off {
            return Err(failed());
        }
        self.is_off = is_due(&mut self.cut_after);
        Ok(self.is_off)
    }

    /// Where the write to `at` ends.
    fn place(&mut self, at: u64, length: usize) -> usize {
        if !is_due(&mut self.misdirected) {
            return at as usize;
        }
        let blocks = (self.current.len() - length) / BLOCK_BYTES + 1;
        self.random.below(blocks as u64) as usize * BLOCK_BYTES
    }

    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<usize> {
        let goes = self.step()?;
        self.counts.writes += 1;
        let fails = is_due(&mut self.write_fails);
        let at = self.place(at, from.len());
        for (index, bytes) in from.chunks_exact(SECTOR_BYTES).enumerate() {
            if fails && self.random.below(2) == 0 {
                continue;
            }
            let sector =
                Sector { at: at + index * SECTOR_BYTES, bytes: bytes.try_into().expect("512") };
            self.current[sector.at..][..SECTOR_BYTES].copy_from_slice(&sector.bytes);
            self.spoilt.remove(&((sector.at / BLOCK_BYTES) as u64));
            if fails { self.doomed.push(sector) } else { self.pending.push(sector) }
        }
        if goes || fails { Err(failed()) } else { Ok(at) }
    }

    /// Makes the pending sectors of `range` durable, or loses them.
    fn flush(&mut self, range: std::ops::Range<usize>) -> io::Result<()> {
        self.counts.flushes += 1;
        if self.drops_flushes {
            return Ok(());
        }
        let within = |sector: &Sector| range.contains(&sector.at);
        let (flushed, rest) = std::mem::take(&mut self.pending).into_iter().partition(within);
        self.pending = rest;
        if is_due(&mut self.flush_fails) {
            self.doomed.extend::<Vec<Sector>>(flushed);
            return Err(failed());
        }
        for sector in &flushed {
            self.durable[sector.at..][..SECTOR_BYTES].copy_from_slice(&sector.bytes);
        }
        // What a failed flush left of the same sectors is overwritten.
        let at: BTreeSet<usize> = match self.doomed.is_empty() {
            true => return Ok(()),
            false => flushed.iter().map(|sector| sector.at).collect(),
        };
        self.doomed.retain(|sector| !at.contains(&sector.at));
        Ok(())
    }
}

impl Disk for Sim {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let blocks = at / BLOCK..(at + into.len() as u64).div_ceil(BLOCK);
        if state.is_off || state.spoilt.range(blocks).next().is_some() {
            return Err(failed());
        }
        into.copy_from_slice(&state.current[at as usize..][..into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.state().write(at, from).map(|_| ())
    }

    fn write_durable(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let state = &mut *self.state();
        let at = state.write(at, from)?;
        state.flush(at..at + from.len())
    }

    fn flush(&self) -> io::Result<()> {
        let state = &mut *self.state();
        if state.step()? {
            return Err(failed());
        }
        state.flush(0..self.size_bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Aligned;

    fn filled(byte: u8) -> Aligned {
        let mut blocks = Aligned::zeroed(BLOCK_BYTES);
        blocks.fill(byte);
        blocks
    }

    fn content(disk: &Sim, at: u64) -> Aligned {
        let mut blocks = Aligned::zeroed(BLOCK_BYTES);
        disk.read(at, &mut blocks).unwrap();
        blocks
    }

    #[test]
    fn what_is_flushed_survives_and_what_is_not_may_tear() {
        let (mut torn, mut lost, mut kept) = (0, 0, 0);
        for seed in 0..200 {
            let disk = Sim::new(4 * BLOCK, seed);
            disk.write(0, &filled(1)).unwrap();
            disk.flush().unwrap();
            disk.write_durable(BLOCK, &filled(2)).unwrap();
            disk.write(2 * BLOCK, &filled(3)).unwrap();
            disk.crash();
            assert!(content(&disk, 0).iter().all(|&byte| byte == 1));
            assert!(content(&disk, BLOCK).iter().all(|&byte| byte == 2));
            match content(&disk, 2 * BLOCK).iter().filter(|&&byte| byte == 3).count() {
                0 => lost += 1,
                BLOCK_BYTES => kept += 1,
                part => torn += usize::from(part.is_multiple_of(SECTOR_BYTES)),
            }
        }
        assert!(torn > 0 && lost > 0 && kept > 0 && torn + lost + kept == 200);
    }

    #[test]
    fn a_flush_that_failed_and_is_tried_again_says_that_all_is_well_and_loses() {
        let lost = (0..100).filter(|&seed| {
            let disk = Sim::new(BLOCK, seed);
            disk.fail_flush(0);
            disk.write(0, &filled(1)).unwrap();
            assert!(disk.flush().is_err());
            assert!(disk.flush().is_ok());
            disk.crash();
            content(&disk, 0).contains(&0)
        });
        assert!(lost.count() > 10);
    }

    #[test]
    fn every_fault_comes_when_it_is_due() {
        let disk = Sim::new(8 * BLOCK, 1);
        disk.fail_write(1);
        disk.write(0, &filled(1)).unwrap();
        assert!(disk.write(0, &filled(2)).is_err());
        disk.spoil(BLOCK);
        assert!(disk.read(BLOCK, &mut filled(0)).is_err());
        disk.write(BLOCK, &filled(3)).unwrap();
        assert!(content(&disk, BLOCK).contains(&3));
        disk.rot(BLOCK, 7);
        assert_eq!(content(&disk, BLOCK)[0], 3 ^ 128);
        disk.cut_after(0);
        assert!(disk.write(0, &filled(1)).is_err());
        assert!(disk.read(0, &mut filled(0)).is_err() && disk.flush().is_err());
        disk.crash();
        disk.drop_flushes();
        disk.write_durable(2 * BLOCK, &filled(4)).unwrap();
        assert_eq!(disk.counts().flushes, 1);
    }
}
