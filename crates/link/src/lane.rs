//! A lane: messages one way, in order, from one writer to one reader.
//!
//! ```text
//!   writer                                         reader
//!   bytes of the slots, then the first one's       polls the number of the slot it expects
//!   number (release): the message is delivered     copies, judges, handles; `taken` = behind it
//! ```
//!
//! Invariants
//! 1. A message is delivered when the number of its first slot is written, and not before: all of
//!    it is written by then. A writer that dies earlier has sent nothing, one that dies later has.
//! 2. A number names epoch, lap and form. One of an earlier lap or life is none. Slots that go on
//!    with a message keep whatever number they had, which cannot be one of this lap.
//! 3. A slot, slab or extent is written again only when its reader is behind it.
//! 4. A reader copies what it reads before it judges it; the writer can change nothing afterwards.
//! 5. Both ends can be taken over from what is in memory: the reader's place is `taken`, the
//!    writer's the first slot from there that has no number of its lap. What was read and not
//!    yet told is read again: whoever handles it knows requests by their numbers.
//! 6. All that the other side writes is checked: numbers, forms, lengths, `taken`. A bad value ends
//!    the session (`Broken`); nothing is read or written outside the lane.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use husk_wire::{BODY_BYTES_MAX, Fault, HEADER_BYTES, Header};

use crate::layout::{INLINE_SLOTS, LaneAt, SLAB_BYTES, SLABS_MAX, SLOT_BYTES, SLOT_ROOM};
use crate::memory::Area;
use crate::pool::{Pool, View};
use crate::word::mutant;
use crate::{Body, Broken, Received, Unsent};

/// Bytes of a body in its first slot.
const FIRST: usize = SLOT_ROOM - HEADER_BYTES;
/// Longest body in slots.
pub const INLINE_BYTES: usize = FIRST + (INLINE_SLOTS - 1) * SLOT_ROOM;
const FORM_SHIFT: u32 = 40;
const EPOCH_SHIFT: u32 = 44;
const POSITION: u64 = (1 << FORM_SHIFT) - 1;
/// Epochs are told apart by so many of their bits; 0 is none.
pub(crate) const EPOCH: u32 = (1 << (64 - EPOCH_SHIFT)) - 1;
/// More than any lane lives to see: with 100 million messages a second, 22 years.
const POSITION_MAX: u64 = 1 << 56;
const FORM: u64 = 0xf << FORM_SHIFT;
/// Forms: 1 to 4 are that many slots.
const SLAB: u64 = 5;
const POOL: u64 = 6;
/// Slots after which a reader that reclaims lazily tells how far it is.
const LAZY_SLOTS: u64 = 64;

const fn number(epoch: u32, position: u64, form: u64) -> u64 {
    (epoch as u64) << EPOCH_SHIFT | form << FORM_SHIFT | position & POSITION
}

/// The form of slot `position`, if it holds a message of this lap.
#[inline(always)]
fn form_at(area: &Area<'_>, at: &LaneAt, epoch: u32, position: u64) -> Option<u64> {
    let found = area.word(slot(at, position) + SLOT_ROOM).load(Acquire);
    let lap = if mutant() == 6 { POSITION & !(at.slot_count - 1) } else { 0 };
    let expected = number(epoch, position, 0) & !lap;
    (found & !FORM & !lap == expected).then_some((found & FORM) >> FORM_SHIFT)
}

#[inline(always)]
const fn slot(at: &LaneAt, position: u64) -> usize {
    at.slots + (position & (at.slot_count - 1)) as usize * SLOT_BYTES
}

/// How many slots a message of this form takes.
const fn slots_of(form: u64) -> u64 {
    if form <= INLINE_SLOTS as u64 { form } else { 1 }
}

/// Who may use the room that is kept for replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Everybody else.
    Shared,
    /// Replies.
    Kept,
}

/// The writing end.
#[derive(Debug)]
pub struct Writer<'m> {
    area: Area<'m>,
    at: LaneAt,
    epoch: u32,
    next: u64,
    /// How far the reader was when we last looked.
    taken: u64,
    /// The position behind the message that uses a slab.
    slabs: [u64; SLABS_MAX],
    next_slab: u32,
}

impl<'m> Writer<'m> {
    /// Begins, or takes over from one that is gone.
    pub fn begin(area: Area<'m>, at: LaneAt, epoch: u32) -> Self {
        let taken = if mutant() == 5 { 0 } else { area.word(at.taken).load(Acquire) };
        let taken = taken.min(POSITION_MAX);
        let mut writer =
            Self { area, at, epoch, next: taken, taken, slabs: [0; SLABS_MAX], next_slab: 0 };
        while writer.next < taken.saturating_add(at.slot_count) {
            let Some(form) = form_at(&area, &at, epoch, writer.next) else { break };
            if !(1..=POOL).contains(&form) {
                break;
            }
            writer.next += slots_of(form);
            if form == SLAB {
                let slab = area.word(slot(&at, writer.next - 1) + HEADER_BYTES).load(Relaxed);
                writer.use_slab(slab as u32 % at.slab_count);
            }
        }
        writer
    }

    fn use_slab(&mut self, slab: u32) {
        self.slabs[slab as usize] = self.next;
        self.next_slab = (slab + 1) % self.at.slab_count;
    }

    /// The position that the next message gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether everything that was sent has been taken.
    pub fn is_drained(&mut self) -> Result<bool, Broken> {
        self.look()?;
        Ok(self.taken == self.next)
    }

    /// Delivers a message; `header.length` is set here. Its body is in the slots, in a slab, or in
    /// the pool where it is longer (`Pool::lend` before).
    pub fn send(
        &mut self,
        header: &Header,
        body: &[u8],
        room: Room,
        pool: &mut Pool<'m>,
    ) -> Result<(), Unsent> {
        let header = Header { length: body.len() as u32, ..*header };
        if body.len() <= INLINE_BYTES {
            return self.send_inline(&header, body, room);
        }
        if body.len() <= SLAB_BYTES {
            return self.send_slab(&header, body, room);
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(Unsent::TooLong);
        }
        self.find_room(1, room)?;
        let extent = pool.lend(self.next).ok_or(Unsent::Full)?;
        pool.fill(extent, 0, body);
        self.publish_first(&header, &(extent as u64).to_le_bytes(), POOL);
        Ok(())
    }

    /// Delivers a message whose body already lies in the extent: nothing is copied.
    pub fn send_lent(&mut self, header: &Header, extent: usize, room: Room) -> Result<(), Unsent> {
        self.find_room(1, room)?;
        self.publish_first(header, &(extent as u64).to_le_bytes(), POOL);
        Ok(())
    }

    #[inline]
    fn send_inline(&mut self, header: &Header, body: &[u8], room: Room) -> Result<(), Unsent> {
        let (first, rest) = body.split_at(body.len().min(FIRST));
        let slots = 1 + rest.len().div_ceil(SLOT_ROOM) as u64;
        self.find_room(slots, room)?;
        for (part, bytes) in (1..).zip(rest.chunks(SLOT_ROOM)) {
            self.write_slot(self.next + part, &[], bytes);
            if mutant() == 4 {
                let own = number(self.epoch, self.next + part, 1);
                self.area.word(slot(&self.at, self.next + part) + SLOT_ROOM).store(own, Release);
            }
        }
        self.publish_first(header, first, slots);
        Ok(())
    }

    fn send_slab(&mut self, header: &Header, body: &[u8], room: Room) -> Result<(), Unsent> {
        self.find_room(1, room)?;
        let kept = if room == Room::Kept { 0 } else { self.at.kept_slabs };
        // They are taken and freed in turn: if the last of so many is free, all are.
        let last = ((self.next_slab + kept) % self.at.slab_count) as usize;
        if self.slabs[last] > self.taken {
            self.look()?;
            if self.slabs[last] > self.taken {
                return Err(Unsent::Full);
            }
        }
        let slab = self.next_slab;
        self.area.fill(self.at.slabs + slab as usize * SLAB_BYTES, body);
        self.publish_first(header, &u64::from(slab).to_le_bytes(), SLAB);
        self.use_slab(slab);
        Ok(())
    }

    #[inline(always)]
    fn find_room(&mut self, slots: u64, room: Room) -> Result<(), Unsent> {
        let kept = if room == Room::Kept { 0 } else { self.at.kept_slots };
        if self.fits(slots + kept) || mutant() == 2 {
            return Ok(());
        }
        self.look()?;
        if self.fits(slots + kept) { Ok(()) } else { Err(Unsent::Full) }
    }

    #[inline(always)]
    fn fits(&self, slots: u64) -> bool {
        self.next + slots - self.taken <= self.at.slot_count
    }

    /// Looks how far the reader is; what cannot be is judged (invariant 6).
    fn look(&mut self) -> Result<(), Broken> {
        let taken = self.area.word(self.at.taken).load(Acquire);
        if taken < self.taken || taken > self.next {
            return Err(Broken::Credits);
        }
        self.taken = taken;
        Ok(())
    }

    #[inline(always)]
    fn write_slot(&self, position: u64, head: &[u8], bytes: &[u8]) {
        let mut room = [0; SLOT_ROOM];
        let (start, end) = (head.len(), head.len() + bytes.len());
        room[..start].copy_from_slice(head);
        room[start..end].copy_from_slice(bytes);
        let at = slot(&self.at, position);
        for (n, word) in room.as_chunks().0.iter().enumerate() {
            self.area.word(at + 8 * n).store(u64::from_le_bytes(*word), Relaxed);
        }
    }

    /// The first slot, and with its number the message.
    #[inline(always)]
    fn publish_first(&mut self, header: &Header, bytes: &[u8], form: u64) {
        let word = self.area.word(slot(&self.at, self.next) + SLOT_ROOM);
        let published = number(self.epoch, self.next, form);
        if mutant() == 1 {
            word.store(published, Release);
        }
        self.write_slot(self.next, &header.encode(), bytes);
        word.store(published, Release);
        self.next += slots_of(form);
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<'m> {
    area: Area<'m>,
    at: LaneAt,
    epoch: u32,
    next: u64,
    told: u64,
    /// Slots of the message that was read last and is not done.
    step: u64,
    /// Of that message, if its body is in the pool.
    view: Option<View<'m>>,
    lazy: bool,
}

impl<'m> Reader<'m> {
    /// Begins, or takes over from one that is gone. With `lazy` the writer is told how far it is
    /// every 64 slots, or when there is nothing to read; a takeover then reads up to as many again.
    pub fn begin(area: Area<'m>, at: LaneAt, epoch: u32, lazy: bool) -> Self {
        let next = area.word(at.taken).load(Acquire).min(POSITION_MAX);
        Self { area, at, epoch, next, told: next, step: 0, view: None, lazy }
    }

    /// Whether a message is there.
    #[inline(always)]
    pub fn has_message(&self) -> bool {
        form_at(&self.area, &self.at, self.epoch, self.next).is_some()
    }

    /// The next message, copied into `room`; one that does not fit there is looked at in the pool.
    /// The same again, until `done`.
    #[inline]
    pub fn receive<'r>(
        &mut self,
        room: &'r mut [u8],
        pool: &Pool<'m>,
    ) -> Result<Option<Received<'r, 'm>>, Broken> {
        let Some(form) = form_at(&self.area, &self.at, self.epoch, self.next) else {
            self.tell();
            return Ok(None);
        };
        if mutant() == 3 {
            self.area.word(self.at.taken).store(self.next + slots_of(form), Release);
        }
        let mut head = [0; SLOT_ROOM];
        self.copy_slot(self.next, &mut head);
        let (header, rest) = head.split_first_chunk().ok_or(Broken::Form)?;
        let header = Header::decode(header)?;
        let length = header.length as usize;
        let number = rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.step = slots_of(form);
        self.view = None;
        let body = match form {
            1..=4 => {
                let slots = 1 + length.saturating_sub(FIRST).div_ceil(SLOT_ROOM) as u64;
                let room = room.get_mut(..length).filter(|_| slots == form);
                let room = room.ok_or(Fault::Length)?;
                self.copy_inline(rest, room);
                Body::Here(room)
            }
            SLAB => {
                let room = room.get_mut(..length).filter(|room| room.len() <= SLAB_BYTES);
                let room = room.ok_or(Fault::Length)?;
                let slab =
                    usize::try_from(number).ok().filter(|&n| n < self.at.slab_count as usize);
                self.area.copy(self.at.slabs + slab.ok_or(Broken::Form)? * SLAB_BYTES, room);
                Body::Here(room)
            }
            POOL => {
                let view = pool.view(number, length, self.next).ok_or(Broken::Form)?;
                self.view = Some(view);
                match room.get_mut(..length) {
                    Some(room) => {
                        view.copy(0, room);
                        Body::Here(room)
                    }
                    None => Body::Pool(view),
                }
            }
            _ => return Err(Broken::Form),
        };
        Ok(Some(Received { header, body }))
    }

    #[inline(always)]
    fn copy_inline(&self, first: &[u8], room: &mut [u8]) {
        let length = room.len();
        let (start, rest) = room.split_at_mut(length.min(FIRST));
        start.copy_from_slice(&first[..start.len()]);
        for (part, room) in (1..).zip(rest.chunks_mut(SLOT_ROOM)) {
            let mut slot = [0; SLOT_ROOM];
            self.copy_slot(self.next + part, &mut slot);
            room.copy_from_slice(&slot[..room.len()]);
        }
    }

    #[inline(always)]
    fn copy_slot(&self, position: u64, into: &mut [u8; SLOT_ROOM]) {
        let at = slot(&self.at, position);
        for (n, word) in into.as_chunks_mut().0.iter_mut().enumerate() {
            *word = self.area.word(at + 8 * n).load(Relaxed).to_le_bytes();
        }
    }

    /// The message that `receive` gave last has been handled: its room may be used again.
    #[inline]
    pub fn done(&mut self) {
        if let Some(view) = self.view.take() {
            view.give_back();
        }
        self.skip();
    }

    /// The same, but its extent stays until `View::give_back`.
    pub fn done_keeping(&mut self) {
        self.view = None;
        self.skip();
    }

    #[inline(always)]
    fn skip(&mut self) {
        self.next += core::mem::take(&mut self.step);
        if !self.lazy || self.next - self.told >= LAZY_SLOTS {
            self.tell();
        }
    }

    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        if self.told != self.next {
            self.area.word(self.at.taken).store(self.next, Release);
            self.told = self.next;
        }
    }
}
