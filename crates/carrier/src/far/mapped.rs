//! Memory that programs here map to files of the home. What only reads has a copy of its own. What
//! is written to has one copy for each process and those it has forked, which is brought home by
//! `msync`, when it is mapped no more, and when who has mapped it ends, however that is.
//!
//! ```text
//!   a copy to write to    0 .. SIZE_MAX      the bytes, as the mapping has them
//!                         HEAD               the hold that keeps it open at home, bytes copied
//!                         BEFORE ..          the bytes as they were when they were copied or saved
//! ```
//!
//! It is a file without a name, whose owner and group are number and generation of the inode at
//! home, as of a stand-in, and whose mode says what it is.
//!
//! Invariants
//! 1. Only one copy is there of a file on all nodes, and no such mapping at home: the home gives a
//!    lock for it to the hold (`LockBy::Mapping`). Others get `ENODEV`.
//! 2. Of a page the bytes from the first to the last one that the program has changed are written:
//!    what others have written before and behind them meanwhile stays.

use husk_abi::sys::general::O_RDWR;
use husk_kernel::fs::walk;
use husk_kernel::process::pins;
use husk_proto::fs::{Change, Fs as _, SetBits};
use husk_proto::{Admin as _, Errno, Inode, Result};
use husk_wire::record::{LockBy, LockMode, Range};
use husk_wire::{message, request};

use super::{BUSY_NAP_NS, Room, nap, object};
use crate::Direct;

/// Where the parts of a copy begin; files have at most so many bytes here.
const SIZE_MAX: u64 = 1 << 41;
const HEAD: u64 = SIZE_MAX;
const BEFORE: u64 = 1 << 42;
/// What a copy to be written to is known by.
const MODE: u32 = 0o602;
/// Bytes that are compared at once.
const PIECE: usize = 64 << 10;
const PAGE: usize = 4096;
/// How often one tries to have the mapping that is written through.
const TRIES: u32 = 200;

/// Copies of a process whose holds are given back at its end; others stay until its node ends.
const COPIES_MAX: usize = 32;

/// Copies, and their holds at home.
pub(super) struct Copies {
    all: [(Inode, u64); COPIES_MAX],
    count: usize,
}

/// The place of the first byte that differs, and that behind the last one.
fn changed(now: &[u8], before: &[u8]) -> Option<(usize, usize)> {
    if now == before {
        return None;
    }
    let differs = |place: &usize| now[*place] != before[*place];
    let first = (0..now.len()).find(differs)?;
    Some((first, (0..now.len()).rfind(differs)? + 1))
}

impl Direct {
    /// What memory here maps of a far inode; pinned.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_mappable(
        &mut self,
        inode: Inode,
        (offset, length): (u64, u64),
        writes: bool,
    ) -> Result<Inode> {
        let known = self.copy_of(inode);
        if !writes && known.is_none() {
            return self.far_copy(inode, offset, length);
        }
        if let Some(copy) = known {
            pins::pin(&self.kernel, copy)?;
            return self.copied(inode, copy);
        }
        // In this order: whoever cleans up after us finds the hold before there is a lock.
        let copy = self.new_copy(inode)?;
        let locked = self.far_hold(inode, O_RDWR).and_then(|hold| {
            self.note(copy, hold, 0).inspect_err(|_| self.far_give_back(&[hold]))?;
            self.lock_to_map(inode, hold)
        });
        locked.inspect_err(|_| self.far_unpin(copy))?;
        self.copied(inode, copy)
    }

    /// The copy that this process has mapped to write to it.
    fn copy_of(&mut self, inode: Inode) -> Option<Inode> {
        let is_its =
            |me: &Direct, own| me.is_copy(own) && me.home_of(own).is_ok_and(|home| home == inode);
        let mut found = None;
        self.each_pinned(&mut |me, own| {
            if found.is_none() && is_its(me, own) {
                found = Some(own);
            }
        });
        found
    }

    fn each_pinned(&mut self, emit: &mut dyn FnMut(&mut Direct, Inode)) {
        let (mut from, mut some) = (0, [Inode { number: 0, generation: 0 }; COPIES_MAX]);
        while let Ok(count @ 1..) = pins::pinned(&self.kernel, from, &mut some) {
            some[..count].iter().for_each(|own| emit(self, *own));
            from += count;
        }
    }

    fn is_copy(&self, own: Inode) -> bool {
        walk::step(&self.kernel, own).is_ok_and(|step| step.mode == MODE)
    }

    /// Asks home for the one mapping of a file that is written through.
    fn lock_to_map(&mut self, inode: Inode, hold: u64) -> Result<()> {
        self.until_unmapped(|me| Ok(hold != 0 && me.has_lock(inode, hold)?))
    }

    /// Tries to map a file to write to it, for a while: whose mapping is in the way may have been
    /// killed a moment ago.
    pub(crate) fn until_unmapped(
        &mut self,
        mut attempt: impl FnMut(&mut Direct) -> Result<bool>,
    ) -> Result<()> {
        for _ in 0..TRIES {
            if attempt(self)? {
                return Ok(());
            }
            if self.scan_dead().is_ok_and(|count| count == 0) {
                nap(BUSY_NAP_NS);
            }
        }
        Err(Errno::ENODEV)
    }

    fn has_lock(&mut self, inode: Inode, owner: u64) -> Result<bool> {
        let (range, mode) = (Range { start: 0, length: 0 }, LockMode::Exclusive);
        let (object, by, waits) = (object(inode), LockBy::Mapping, false);
        let asked = request::Lock { object, owner, range, mode, waits, by };
        let said = self.ask::<message::Lock>(&asked, &mut [0; 128], &mut [0; 128])?;
        Ok(said.is_granted)
    }

    /// An empty copy, pinned.
    fn new_copy(&mut self, inode: Inode) -> Result<Inode> {
        let change = Change { mode: Some(MODE), ..Change::default() };
        let copy = self.standing_for(inode, MODE, change)?;
        let noted = self.note(copy, 0, 0);
        if noted.is_err() {
            let _ = pins::unpin(&self.kernel, copy);
        }
        noted.map(|()| copy)
    }

    fn note(&mut self, copy: Inode, hold: u64, copied: u64) -> Result<()> {
        let words = [hold, copied].map(u64::to_le_bytes);
        self.write_whole(copy, HEAD, words.as_flattened())
    }

    /// The hold of a copy at home, and how many bytes were copied.
    fn noted(&mut self, copy: Inode) -> Result<(u64, u64)> {
        let mut bytes = [0; 16];
        self.read_at(copy, HEAD, &mut bytes)?;
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        Ok((word(0), word(8)))
    }

    /// `copy` with all bytes that there are at home. Where that fails it is pinned once less.
    fn copied(&mut self, inode: Inode, copy: Inode) -> Result<Inode> {
        self.copy_more(inode, copy).inspect_err(|_| self.far_unpin(copy))?;
        Ok(copy)
    }

    fn copy_more(&mut self, inode: Inode, copy: Inode) -> Result<()> {
        let size = self.far_look(inode, None, None)?.0.size;
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let (hold, mut at) = self.noted(copy)?;
        let mut room = Room::of(PIECE)?;
        while at < size {
            let most = (size - at).min(PIECE as u64) as usize;
            let count = self.read_at(inode, at, &mut room.bytes()[..most])?;
            if count == 0 {
                break;
            }
            // Holes stay holes.
            for (page, bytes) in (0..).zip(room.bytes()[..count].chunks(PAGE)) {
                if bytes.iter().any(|byte| *byte != 0) {
                    let place = at + page * PAGE as u64;
                    self.write_whole(copy, place, bytes)?;
                    self.write_whole(copy, BEFORE + place, bytes)?;
                }
            }
            at += count as u64;
        }
        self.note(copy, hold, at)
    }

    fn write_whole(&mut self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(inode, offset + done as u64, &bytes[done..])? {
                0 => return Err(Errno::ENOSPC),
                count => done += count,
            }
        }
        Ok(())
    }

    /// `Fs::save_mapped`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_save_mapped(&mut self, copy: Inode) -> Result<()> {
        if self.is_copy(copy) { self.save(copy) } else { Ok(()) }
    }

    /// Writes home what was stored in a copy.
    fn save(&mut self, copy: Inode) -> Result<()> {
        let inode = self.home_of(copy)?;
        // What is stored behind the end is not the file's.
        let size = self.far_look(inode, None, None)?.0.size.min(SIZE_MAX);
        let (mut now, mut before) = (Room::of(PIECE)?, Room::of(PIECE)?);
        let set_bits = core::mem::replace(&mut self.kernel.set_bits, SetBits::All);
        let (mut at, mut done) = (0, Ok(()));
        while done.is_ok() {
            at = match self.seek_data(copy, at, true) {
                Ok(next) if next < size => next - next % PAGE as u64,
                _ => break,
            };
            let count = (size - at).min(PIECE as u64) as usize;
            let (now, before) = (&mut now.bytes()[..count], &mut before.bytes()[..count]);
            done = self.save_piece((inode, copy), at, now, before);
            at += count as u64;
        }
        self.kernel.set_bits = set_bits;
        done
    }

    fn save_piece(
        &mut self,
        (inode, copy): (Inode, Inode),
        at: u64,
        now: &mut [u8],
        before: &mut [u8],
    ) -> Result<()> {
        self.read_at(copy, at, now)?;
        self.read_at(copy, BEFORE + at, before)?;
        let (mut from, mut to) = (0, 0);
        for start in (0..now.len()).step_by(PAGE) {
            let page = start..now.len().min(start + PAGE);
            let Some((first, last)) = changed(&now[page.clone()], &before[page]) else { continue };
            // Those that go on where the last ones end are written with them.
            if start + first != to {
                self.save_bytes((inode, copy), at, &now[..to], from)?;
                from = start + first;
            }
            to = start + last;
        }
        self.save_bytes((inode, copy), at, &now[..to], from)
    }

    /// Writes `bytes`, which are those from `at` on, from the one with this place on.
    fn save_bytes(
        &mut self,
        (inode, copy): (Inode, Inode),
        at: u64,
        bytes: &[u8],
        from: usize,
    ) -> Result<()> {
        let (place, bytes) = (at + from as u64, &bytes[from..]);
        if bytes.is_empty() {
            return Ok(());
        }
        self.write_whole(inode, place, bytes)?;
        self.write_whole(copy, BEFORE + place, bytes)
    }

    /// `Processes::unpin`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_unpin(&mut self, own: Inode) {
        let hold = self.is_copy(own).then(|| {
            // Whoever asks whether it could be written calls `msync`.
            let _ = self.save(own);
            self.let_go(own, false)
        });
        let _ = pins::unpin(&self.kernel, own);
        if let Some(hold @ 1..) = hold
            && walk::step(&self.kernel, own).is_err()
        {
            self.far_give_back(&[hold]);
        }
    }

    /// Gives back the hold of a copy that only this process has, before it is gone: nobody would
    /// find it. The hold that is left; 0: none.
    fn let_go(&mut self, copy: Inode, all: bool) -> u64 {
        let hold = self.noted(copy).map_or(0, |noted| noted.0);
        if hold != 0 && pins::is_last(&self.kernel, copy, all) == Ok(true) {
            self.far_give_back(&[hold]);
            return 0;
        }
        hold
    }

    /// Writes home what this process has stored in copies, before it has them no more.
    pub(super) fn far_save_all(&mut self) -> Copies {
        let nobody = (Inode { number: 0, generation: 0 }, 0);
        let mut copies = Copies { all: [nobody; COPIES_MAX], count: 0 };
        self.each_pinned(&mut |me, own| {
            if !me.is_copy(own) {
                return;
            }
            let _ = me.save(own);
            if let Some(place) = copies.all.get_mut(copies.count) {
                *place = (own, me.let_go(own, true));
                copies.count += 1;
            }
        });
        copies
    }

    /// Gives back the holds of those that nobody has mapped any more.
    pub(super) fn far_unmapped(&mut self, copies: &Copies) {
        for (own, hold) in &copies.all[..copies.count] {
            if walk::step(&self.kernel, *own).is_err() {
                self.far_give_back(&[*hold]);
            }
        }
    }
}
