//! Words and blocks at their fixed addresses.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::arena::layout::{self, Layout, Map, header};
use crate::hooks::model_hooks::Word;

/// A lock word that somebody holds.
pub(crate) const LOCKED: u64 = 1;
/// What a lock word grows by each time it is let go.
pub(crate) const SEQUENCE_ONE: u64 = 4;

/// Where the state arena is mapped in every process: with the pipes, the runtime, its heap and what
/// is started from recordings in the same 512 GiB, which one table of the host leads to.
pub const STATE_ADDRESS: usize = 0x5400_0000_0000;
/// Where the buffer cache is mapped in every process.
pub const CACHE_ADDRESS: usize = 0x5100_0000_0000;

/// Where the arena of the home of all names is mapped in processes of other nodes of its host.
pub const HOME_STATE_ADDRESS: usize = 0x5280_0000_0000;
/// Where its cache is.
pub const HOME_CACHE_ADDRESS: usize = 0x5200_0000_0000;
/// Where the memory is in which its agent takes requests.
pub const HOME_SLOTS_ADDRESS: usize = 0x5380_0000_0000;

/// A word of the state arena: its address, the same in every process.
///
/// Why a `Cell` needs no check when it is used: it comes from a function of `Map`, which clamps
/// every number to its area, or from `word`, which goes less than `STEP_WORDS` further. The arena
/// ends in `layout::MARGIN_WORDS` of nothing, room for 256 such steps; code takes four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell(usize);

/// One more than the longest step within an object.
pub(crate) const STEP_WORDS: u32 = 4096;

impl Cell {
    /// Word `index` of the arena; the caller knows that it is inside.
    #[inline(always)]
    pub(crate) const fn at(index: u32) -> Cell {
        Cell(STATE_ADDRESS + index as usize * 8)
    }

    /// The word `index` further on, less than `STEP_WORDS`.
    #[inline(always)]
    pub const fn word(self, index: u32) -> Cell {
        assert!(index < STEP_WORDS);
        Cell(self.0 + index as usize * 8)
    }

    /// Object `number` of those of `words` that begin here.
    #[inline(always)]
    pub(crate) const fn object(self, number: u32, words: u32) -> Cell {
        Cell(self.0 + number as usize * (words as usize * 8))
    }

    /// The same word of an arena that is mapped at `address`.
    pub(crate) const fn moved_to(self, address: usize) -> Cell {
        Cell(address + (self.0 - STATE_ADDRESS))
    }

    /// Its number, for links that are kept in words.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        ((self.0 - STATE_ADDRESS) / 8) as u32
    }

    /// What `name` gave, out of the own journal.
    #[inline(always)]
    pub(crate) const fn of_name(name: u64) -> Cell {
        Cell(name as usize)
    }

    /// As a word of the region names it.
    #[inline(always)]
    pub(crate) const fn name(self) -> u64 {
        self.0 as u64
    }
}

/// Techniques that an image does without, to see what each is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u64);

impl Without {
    /// All are used.
    pub const NOTHING: Without = Without(0);
    /// Looks without a lock: names, facts and block maps are looked at under theirs.
    pub const OPTIMISTIC: Without = Without(1);
    /// Bytes copied straight to and from the buffer cache: each copy is a call of the host.
    pub const DIRECT: Without = Without(2);
    /// A part of the free objects and of the blocks for each thread: all share one.
    pub const AFFINITY: Without = Without(4);

    /// Memory for many blocks brought at once to a thread that fills one run after the other.
    pub const AHEAD: Without = Without(8);
    /// Large programs that start often, in huge pages: each start maps the host's small ones.
    pub const GATHERED: Without = Without(16);
    /// Starts from a recording: each start links its program again.
    pub const RECORDED: Without = Without(32);
    /// Rings of sockets: their bytes are the host's.
    pub const SOCKETS: Without = Without(64);
    /// Looks of other nodes at the home's memory: the home is asked each time. Leases need them.
    pub const LOOKS: Without = Without(128);
    /// Short requests to another node in its memory: each is a connection to its socket.
    pub const SLOTS: Without = Without(256);
    /// Files that a node keeps open when its programs close them: each open and close is told.
    pub const LEASES: Without = Without(512);
    /// Making a file of another node and opening it in one message: there are two.
    pub const COALESCED: Without = Without(1024);

    /// Both.
    pub const fn and(self, other: Without) -> Without {
        Without(self.0 | other.0)
    }

    /// Whether `other` is among them.
    pub const fn has(self, other: Without) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The mapped region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Where everything lies.
    pub map: Map,
    layout: Layout,
    without: Without,
    /// Where the buffer cache is mapped.
    cache: usize,
    /// Bits of a lock word that keep a reader from going ahead: the lock, or (`OPTIMISTIC`) all.
    pub(crate) doubt: u64,
    /// Bits of a slot's number that say which pool it fills its magazines from: all or none.
    pub(crate) pools: u32,
}

impl Region {
    /// Writes the header of a new region (all zero so far).
    ///
    /// # Safety
    /// A region of `layout` is mapped, shared and writable: `state_bytes` at `STATE_ADDRESS`,
    /// `cache_bytes` at `CACHE_ADDRESS`; it stays so as long as any `Region` lives.
    pub unsafe fn format(layout: Layout) -> Region {
        let region = Region::of(layout, Without::NOTHING);
        let head = Cell::at(0);
        region.store(head.word(header::KERNELS), layout.kernels as u64);
        region.store(head.word(header::MEMORY), layout.memory_bytes);
        for class in 0..layout::CLASSES {
            region.store(head.word(header::BUMP + class as u32), 1);
        }
        let heap = head.word(header::BUMP + layout::CLASSES as u32);
        region.store(heap, region.map.heap as u64 + 8);
        for chunk in 0..region.map.chunk_count {
            region.store(region.map.chunk(chunk).word(1), layout::CHUNK_BLOCKS as u64);
        }
        // Block 0 is the page of zeros that holes show.
        region.store(region.map.chunk(0).word(1), layout::CHUNK_BLOCKS as u64 - 1);
        region.store(region.map.chunk(0).word(2), 1);
        region.store(head.word(header::MAGIC), layout::MAGIC);
        region
    }

    /// The region that is mapped; `None` when it is not formatted.
    ///
    /// # Safety
    /// As for `format`; at least the header page is mapped when it is called.
    pub unsafe fn attach() -> Option<Region> {
        // SAFETY: the caller vouches for the header page.
        let word = |n: u32| unsafe {
            (*((STATE_ADDRESS as *const AtomicU64).add(n as usize))).load(Ordering::Acquire)
        };
        if word(header::MAGIC) != layout::MAGIC {
            return None;
        }
        let layout =
            Layout { kernels: word(header::KERNELS) as u32, memory_bytes: word(header::MEMORY) };
        Some(Region::of(layout, Without(word(header::WITHOUT))))
    }

    /// Another region, of which arena and cache are mapped at these addresses to be read; `None`
    /// when it is not formatted, or not of this layout. Nothing of it may be changed
    /// (`Session::that_looks`).
    ///
    /// # Safety
    /// `state_bytes` are mapped at `state`, shared and readable, and `cache_bytes` at `cache`; they
    /// stay so as long as any `Region` of them lives.
    pub unsafe fn of_another(layout: Layout, state: usize, cache: usize) -> Option<Region> {
        // SAFETY: the caller vouches for the header page.
        let word = |n: u32| unsafe {
            (*((state as *const AtomicU64).add(n as usize))).load(Ordering::Acquire)
        };
        let said =
            Layout { kernels: word(header::KERNELS) as u32, memory_bytes: word(header::MEMORY) };
        if word(header::MAGIC) != layout::MAGIC || said != layout {
            return None;
        }
        let region = Region::of(layout, Without(word(header::WITHOUT)));
        Some(Region { map: region.map.at(state), cache, ..region })
    }

    fn of(layout: Layout, without: Without) -> Region {
        Region {
            map: layout.map(),
            layout,
            without,
            cache: CACHE_ADDRESS,
            doubt: if without.has(Without::OPTIMISTIC) { u64::MAX } else { LOCKED },
            pools: if without.has(Without::AFFINITY) { 0 } else { u32::MAX },
        }
    }

    /// Switches techniques off, in a new region that only the caller has joined.
    pub fn set_without(&mut self, without: Without) {
        self.store(Cell::at(header::WITHOUT), without.0);
        *self = Region::of(self.layout, without);
        if without.has(Without::OPTIMISTIC) {
            for hash in 0..=self.map.bucket_mask {
                self.doubt_new(self.map.bucket(hash));
            }
        }
    }

    /// Says which table of the gate the image's processes share, if nobody has.
    pub fn set_gate(&self, identity: u64) {
        self.swap_if(Cell::at(header::GATE), 0, identity);
    }

    /// What is switched off.
    pub fn without(&self) -> Without {
        self.without
    }

    /// A lock word that nobody has held is none that readers could doubt: it is made so.
    pub(crate) fn doubt_new(&self, cell: Cell) {
        if self.load(cell) == 0 {
            self.store(cell, SEQUENCE_ONE);
        }
    }

    /// Kernels of the image.
    pub fn kernels(&self) -> u32 {
        self.layout.kernels.clamp(1, layout::KERNELS_MAX)
    }

    /// What it was made from.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    #[inline(always)]
    pub(crate) fn atomic(&self, cell: Cell) -> &Word {
        debug_assert!(self.offset_words(cell) < self.map.limit as usize, "outside the arena");
        // SAFETY: inside the arena or its margin (see `Cell`), which are mapped (attach, format,
        // of_another);
        // all access is atomic.
        unsafe { &*(cell.0 as *const Word) }
    }

    fn offset_words(&self, cell: Cell) -> usize {
        (cell.0 - self.map.first.0) / 8
    }

    /// Address of the low half of a word, for futex calls.
    pub fn futex_address(&self, cell: Cell) -> usize {
        self.atomic(cell) as *const Word as usize
    }

    /// Low half of a word, as futex calls see it.
    pub fn futex_value(&self, cell: Cell) -> u32 {
        // SAFETY: the word is inside the arena; a little-endian word begins with its low half.
        unsafe { (*(self.futex_address(cell) as *const AtomicU32)).load(Ordering::Acquire) }
    }

    /// The word that a word of the region names (`Cell::name`).
    pub(crate) fn named(&self, name: u64) -> Cell {
        let offset = (name as usize).wrapping_sub(STATE_ADDRESS);
        assert!(offset.is_multiple_of(8) && offset / 8 < self.map.limit as usize, "no such word");
        Cell(name as usize)
    }

    /// Reads a word.
    #[inline(always)]
    pub fn load(&self, cell: Cell) -> u64 {
        self.atomic(cell).load(Ordering::Acquire)
    }

    /// Reads a word in one order with all compare-and-swaps: of two threads that each swap one word
    /// and then read the other's, at least one sees the other.
    #[inline(always)]
    pub fn load_in_order(&self, cell: Cell) -> u64 {
        self.atomic(cell).load(Ordering::SeqCst)
    }

    /// Writes a word that nobody can reach yet, or that needs no undoing. Everything else goes
    /// through `Txn::set`.
    #[inline(always)]
    pub fn store(&self, cell: Cell, value: u64) {
        self.atomic(cell).store(value, Ordering::Release);
    }

    /// Replaces `old` by `new`; whether it was `old`.
    #[inline(always)]
    pub fn swap_if(&self, cell: Cell, old: u64, new: u64) -> bool {
        self.atomic(cell).compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Adds to a counter that needs no undoing; the value before.
    pub fn add(&self, cell: Cell, amount: u64) -> u64 {
        self.atomic(cell).fetch_add(amount, Ordering::Relaxed)
    }

    /// Blocks of the buffer cache, block 0 included.
    pub fn block_count(&self) -> u32 {
        self.map.chunk_count * layout::CHUNK_BLOCKS
    }

    /// Where a block is mapped; of an impossible number, the page of zeros.
    #[inline(always)]
    pub fn block_address(&self, block: u32) -> usize {
        let block = if block < self.block_count() { block } else { 0 };
        self.cache + block as usize * 4096
    }

    /// Bytes stored in words that never change any more.
    pub fn text(&self, cell: Cell, length: usize) -> &[u8] {
        assert!(self.offset_words(cell) + length.div_ceil(8) <= self.map.limit as usize);
        // SAFETY: inside the arena; the caller's words are written once, before anybody looks.
        unsafe { core::slice::from_raw_parts(self.futex_address(cell) as *const u8, length) }
    }

    /// Zeroes bytes `from..to` of a block the caller owns.
    pub fn zero_block(&self, block: u32, from: usize, to: usize) {
        assert!(from <= to && to <= 4096 && block != 0 && block < self.block_count());
        // SAFETY: inside the mapped cache; raw bytes, never referenced by Rust.
        unsafe {
            core::ptr::write_bytes((self.block_address(block) + from) as *mut u8, 0, to - from)
        }
    }
}
