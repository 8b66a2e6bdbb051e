//! Mappings of Husk files: which inode each one pins, so that unmapping takes the pin back, and
//! what is to be mapped where nobody has touched it yet (`page_fault`).
//!
//! Invariants
//! 1. One entry = one pin. A mapping that is cut in two pins twice; two that join pin once.
//! 2. The table is the process's; a child has a copy, whose pins its parent has counted for it
//!    before there was a child (`each_file`), with the addresses kept still.
//! 3. The lock is never held across a service, or a host call other than `table::divert`'s, which
//!    wait for nobody; a forked child clears it.
//! 4. What makes an entry, changes its addresses, or maps in a page of it, does so while it keeps
//!    the addresses still (`mmap_lock`): host and table say the same to whoever comes next.
//!
//! Not here: who takes and gives back the pins (`client::pins`), and the calls (`crate::mapping`).

use crate::stubs::table;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use husk_abi::memory::{MAP_FIXED, MAP_PRIVATE, MAP_TYPE};
use husk_abi::{Errno, PAGE};
use husk_client::Mapping;
use husk_proto::Inode;

/// Most mappings of Husk files in one process: what Linux allows of all kinds
/// (`vm.max_map_count`). Further ones are `ENOMEM`, as there.
const MAPPINGS_MAX: usize = 65_530;

/// A mapping, or what is left of one.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Addresses `start..end`.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Up to here all pages are there.
    pub solid: usize,
    /// What is pinned.
    pub inode: Inode,
    /// Where in the file it begins.
    pub offset: u64,
    /// Behind the last pages that were mapped in.
    pub next: usize,
    /// Tells it from others that lay here.
    pub birth: u32,
    /// How often pages were mapped in.
    pub touches: u32,
    /// How many pages the last time.
    pub window: u16,
    /// `PROT_*`.
    pub prot: u8,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub shape: u8,
    /// Whether it may be made one to write to.
    pub may_write: bool,
}

const EMPTY: Entry = Entry {
    start: 0,
    end: 0,
    solid: 0,
    inode: Inode { number: 0, generation: 0 },
    offset: 0,
    next: 0,
    birth: 0,
    touches: 0,
    window: 0,
    prot: 0,
    shape: 0,
    may_write: false,
};

/// Of no other entry.
fn birth() -> u32 {
    static BIRTHS: AtomicU32 = AtomicU32::new(0);
    BIRTHS.fetch_add(1, Ordering::Relaxed)
}

impl Entry {
    fn of(mapping: &Mapping, inode: Inode) -> Entry {
        let length = mapping.length.next_multiple_of(PAGE);
        Entry {
            start: mapping.address,
            end: mapping.address + length,
            solid: mapping.address + mapping.solid.min(length),
            inode,
            offset: mapping.offset,
            birth: birth(),
            prot: (mapping.prot & 7) as u8,
            shape: match mapping.flags & MAP_TYPE {
                MAP_PRIVATE => MAP_PRIVATE as u8,
                _ => 1,
            },
            may_write: mapping.may_write,
            ..EMPTY
        }
    }

    /// Whether its stores stay with the process.
    pub fn is_private(&self) -> bool {
        usize::from(self.shape) == MAP_PRIVATE
    }

    fn meets(&self, start: usize, end: usize) -> bool {
        self.start < end && start < self.end
    }

    /// Whether all its pages are there.
    pub fn is_solid(&self) -> bool {
        self.solid >= self.end
    }

    /// The part from `address` on, `length` bytes.
    pub fn part(&self, address: usize, length: usize) -> Mapping {
        Mapping {
            address,
            length,
            prot: usize::from(self.prot),
            flags: usize::from(self.shape) | MAP_FIXED,
            offset: self.offset + (address - self.start) as u64,
            solid: 0,
            may_write: self.may_write,
        }
    }

    /// Where in the file `address` lies.
    pub fn offset_of(&self, address: usize) -> u64 {
        self.offset + (address - self.start) as u64
    }

    /// Where its pages from `offset` of the file on lie; its end if there are none.
    fn past(&self, offset: u64) -> usize {
        let before = offset.saturating_sub(self.offset).min((self.end - self.start) as u64);
        self.start + before as usize
    }

    /// The same without what lies before `at`.
    fn from(self, at: usize) -> Entry {
        let offset = self.offset + (at - self.start) as u64;
        Entry { start: at, offset, solid: self.solid.max(at), ..self }
    }

    /// Whether `next` goes on where this ends.
    fn leads_to(&self, next: &Entry) -> bool {
        let kind = |entry: &Entry| (entry.inode, entry.prot, entry.shape, entry.may_write);
        kind(self) == kind(next)
            && self.end == next.start
            && self.offset + (self.end - self.start) as u64 == next.offset
    }
}

struct Table(UnsafeCell<[Entry; MAPPINGS_MAX]>);
// SAFETY: only touched with `LOCK` held.
unsafe impl Sync for Table {}

#[unsafe(link_section = ".bss.large")]
static TABLE: Table = Table(UnsafeCell::new([EMPTY; MAPPINGS_MAX]));
#[unsafe(link_section = ".bss.hot")]
static COUNT: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".bss.hot")]
static LOCK: AtomicBool = AtomicBool::new(false);
/// All pages that may not be mapped in yet lie between these; both 0: there are none.
#[unsafe(link_section = ".bss.hot")]
static LOW: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".bss.hot")]
pub static HIGH: AtomicUsize = AtomicUsize::new(0);

fn locked<R>(step: impl FnOnce(&mut [Entry; MAPPINGS_MAX], &AtomicUsize) -> R) -> R {
    while LOCK.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    // SAFETY: the lock is ours; services are not interrupted by handlers.
    let result = step(unsafe { &mut *TABLE.0.get() }, &COUNT);
    LOCK.store(false, Ordering::Release);
    result
}

/// Whether some page may not be mapped in yet.
#[inline(always)]
pub fn has_untouched() -> bool {
    HIGH.load(Ordering::Relaxed) != 0
}

/// Between which addresses they lie.
pub fn untouched() -> Range<usize> {
    LOW.load(Ordering::Relaxed)..HIGH.load(Ordering::Relaxed)
}

/// With the lock held.
fn widen(entry: &Entry) {
    if entry.is_solid() {
        return;
    }
    let low = LOW.load(Ordering::Relaxed);
    if !has_untouched() {
        table::divert(true);
    }
    if !has_untouched() || entry.solid < low {
        LOW.store(entry.solid, Ordering::Relaxed);
    }
    HIGH.fetch_max(entry.end, Ordering::Relaxed);
}

/// With the lock held: something of an entry has gone, or is there now. Who looks between the two
/// stores finds all that is left as well.
fn narrow(rest: &[Entry]) {
    if !has_untouched() {
        return;
    }
    let (mut low, mut high) = (usize::MAX, 0);
    for entry in rest.iter().filter(|entry| !entry.is_solid()) {
        (low, high) = (low.min(entry.solid), high.max(entry.end));
    }
    HIGH.store(high, Ordering::Relaxed);
    LOW.store(if high == 0 { 0 } else { low }, Ordering::Relaxed);
    if high == 0 {
        table::divert(false);
    }
}

/// What became of an entry.
#[derive(PartialEq, Eq)]
pub enum Noted {
    /// It is one of the table's.
    Kept,
    /// It continues another one, whose pin is enough.
    Joined,
    /// The table is full.
    Full,
}

/// Notes a mapping and its pin.
pub fn note(mapping: &Mapping, inode: Inode) -> Noted {
    let entry = Entry::of(mapping, inode);
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        let joined = table[..used].iter().position(|before| before.leads_to(&entry));
        let Some(place) = table.get_mut(joined.unwrap_or(used)) else { return Noted::Full };
        // Before it is in the table: a child that is forked between the two looks for it.
        widen(&entry);
        if joined.is_none() {
            *place = entry;
            count.store(used + 1, Ordering::Relaxed);
            return Noted::Kept;
        }
        if place.is_solid() {
            place.solid = entry.solid;
        }
        place.end = entry.end;
        Noted::Joined
    })
}

/// Calls `step` with each file that is mapped, in how many entries, and whether it may be written
/// to through one; with one again where entries of others lie between its own. While the addresses
/// are kept still, or nobody else is there.
pub fn each_file(mut step: impl FnMut(Inode, u32, bool) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut from = 0;
    while let Some((inode, count, writes)) = run_of_one(from) {
        step(inode, count, writes)?;
        from += count as usize;
    }
    Ok(())
}

/// The entries of one file from number `from` on.
fn run_of_one(from: usize) -> Option<(Inode, u32, bool)> {
    locked(|table, count| {
        let rest = table.get(from..count.load(Ordering::Relaxed))?;
        let inode = rest.first()?.inode;
        let same = rest.iter().take_while(|entry| entry.inode == inode);
        Some(same.fold((inode, 0, false), |(inode, count, writes), entry| {
            (inode, count + 1, writes || entry.may_write && !entry.is_private())
        }))
    })
}

/// In a forked child: nobody else has what a thread of its parent may have had.
pub fn settle_child() {
    // A store would cost the child a copy of the page, and its parent another.
    if LOCK.load(Ordering::Relaxed) {
        LOCK.store(false, Ordering::Relaxed);
    }
    if has_untouched() || table::is_open() {
        // The lock's last holder may have stayed behind with it.
        table::divert(has_untouched());
        locked(|table, count| narrow(&table[..count.load(Ordering::Relaxed)]));
    }
}

/// What one step asks of the services.
pub enum Step {
    Unpin(Inode),
    Pin(Inode),
    Done,
}

/// Cuts one entry in two at `at`.
pub fn split(at: usize) -> Step {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        let found = table[..used].iter().position(|entry| entry.start < at && at < entry.end);
        let Some(i) = found.filter(|_| used < MAPPINGS_MAX) else { return Step::Done };
        table[used] = table[i].from(at);
        table[i].end = at;
        count.store(used + 1, Ordering::Relaxed);
        Step::Pin(table[i].inode)
    })
}

/// Takes one entry that meets `start..end` out, or what of it lies there.
pub fn cut(start: usize, end: usize) -> Step {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        for i in 0..used {
            let entry = table[i];
            if !entry.meets(start, end) {
                continue;
            }
            if entry.start >= start && entry.end <= end {
                table[i] = table[used - 1];
                count.store(used - 1, Ordering::Relaxed);
                narrow(&table[..used - 1]);
                return Step::Unpin(entry.inode);
            }
            if entry.start < start {
                table[i].end = start;
                if entry.end > end && used < MAPPINGS_MAX {
                    table[used] = entry.from(end);
                    count.store(used + 1, Ordering::Relaxed);
                    return Step::Pin(entry.inode);
                }
            } else {
                table[i] = entry.from(end);
            }
        }
        narrow(&table[..used]);
        Step::Done
    })
}

/// Notes a new protection of the entries that meet `start..end`, at whose ends they are split.
pub fn set_protection(start: usize, end: usize, prot: usize) {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        for entry in table[..used].iter_mut().filter(|entry| entry.meets(start, end)) {
            entry.prot = (prot & 7) as u8;
        }
    });
}

/// Joins the entry at `address` with the one that goes on where it ends, before `end`.
pub fn join_next(address: usize, end: usize) -> Step {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        let found = table[..used].iter().position(|entry| entry.meets(address, address + 1));
        let Some(i) = found.filter(|i| table[*i].end < end) else { return Step::Done };
        let next = table[..used].iter().position(|next| table[i].leads_to(next));
        let Some(next) = next else { return Step::Done };
        let taken = table[next];
        if table[i].is_solid() {
            table[i].solid = taken.solid;
        }
        table[i].end = taken.end;
        widen(&table[i]);
        table[next] = table[used - 1];
        count.store(used - 1, Ordering::Relaxed);
        Step::Unpin(taken.inode)
    })
}

/// Where in `start..end` the first pages lie that may not be written to.
pub fn first_kept(start: usize, end: usize) -> Option<usize> {
    locked(|table, count| {
        let used = &table[..count.load(Ordering::Relaxed)];
        let kept = used.iter().filter(|entry| !entry.may_write && entry.meets(start, end));
        kept.map(|entry| entry.start.max(start)).min()
    })
}

/// The entry at `address`.
pub fn at(address: usize) -> Option<Entry> {
    locked(|table, count| {
        let used = &table[..count.load(Ordering::Relaxed)];
        used.iter().find(|entry| entry.meets(address, address + 1)).copied()
    })
}

/// The entry at `address`, or the next one above.
pub fn at_or_after(address: usize) -> Option<Entry> {
    locked(|table, count| {
        let used = &table[..count.load(Ordering::Relaxed)];
        let above = used.iter().filter(|entry| entry.end > address);
        above.min_by_key(|entry| entry.start).copied()
    })
}

/// Whether an entry lies in `start..end`.
pub fn meets(start: usize, end: usize) -> bool {
    locked(|table, count| {
        let used = &table[..count.load(Ordering::Relaxed)];
        used.iter().any(|entry| entry.meets(start, end))
    })
}

/// Notes that pages of an entry were mapped in: `pages`, of a window of so many.
pub fn note_touch(birth: u32, pages: Range<usize>, window: usize) {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        for entry in table[..used].iter_mut().filter(|entry| entry.birth == birth) {
            (entry.next, entry.window) = (pages.end, window as u16);
            entry.touches = entry.touches.saturating_add(1);
        }
    });
    note_there(birth, pages);
}

/// The pages of a file from `offset` on that an entry maps, the first such entry from number
/// `from` on: noted as if nobody had touched them. And the number behind it; while addresses are
/// kept still, entries keep theirs.
pub fn shorten_next(inode: Inode, offset: u64, from: usize) -> Option<(Mapping, usize)> {
    locked(|table, count| {
        let used = &mut table[..count.load(Ordering::Relaxed)];
        let mut rest = used.iter_mut().enumerate().skip(from);
        let (number, entry) =
            rest.find(|(_, entry)| entry.inode == inode && entry.past(offset) < entry.end)?;
        let at = entry.past(offset);
        entry.solid = entry.solid.min(at);
        (entry.birth, entry.next, entry.window) = (birth(), 0, 0);
        widen(entry);
        Some((entry.part(at, entry.end - at), number + 1))
    })
}

/// Notes that pages of an entry are there: nobody looks for those before its first gap again.
pub fn note_there(birth: u32, pages: Range<usize>) {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        let mut raised = false;
        for entry in table[..used].iter_mut().filter(|entry| entry.birth == birth) {
            if pages.contains(&entry.solid) {
                entry.solid = pages.end;
                raised = true;
            }
        }
        if raised {
            narrow(&table[..used]);
        }
    });
}

/// Where a range of whole pages ends.
pub fn end_of(start: usize, length: usize) -> usize {
    start.saturating_add(length.saturating_add(PAGE - 1) & !(PAGE - 1))
}

/// Whether there is any entry.
#[inline(always)]
pub fn is_empty() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}
