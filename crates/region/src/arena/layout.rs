//! The layout of the region, computed from the number of kernels and the memory size.
//!
//! Sizes are generous and sparse: what is never touched costs no memory.

use husk_abi::HUGE_BYTES;

use crate::arena::memory::{Cell, STEP_WORDS};

/// Slab class of 128-byte objects.
pub const INODE: usize = 0;
/// Slab class of 64-byte objects (one cache line).
pub const LINE: usize = 1;
/// Slab class of 576-byte objects: a word and 64 more, radix nodes and long texts.
pub const NODE: usize = 2;
/// Slab class of 64-byte objects whose word 0 is a lock word in every life.
pub const RECORD: usize = 3;
/// Number of slab classes.
pub const CLASSES: usize = 4;
/// Words of one object, by class.
pub const CLASS_WORDS: [u32; CLASSES] = [16, 8, 72, 8];
/// A bit that is in no object's number and in no free object's link: a tag with it is neither.
pub const NEVER_IN_NUMBERS: u32 = 1 << 31;

/// Most threads that run operations in one image at a time, plus one (slot 0 is nobody).
pub const SLOTS: u32 = 8192;
/// Slots whose owners stand beside what every process touches first; most images need no more.
const OWNERS_NEAR: u32 = 512;
/// Slots that lie there themselves; most images need no more at once.
const SLOTS_NEAR: u32 = 64;
/// Words of a slot: header, magazines, journal.
pub const SLOT_WORDS: u32 = 1024;
/// Words of a partition, on two cache lines: its token, a word for the room above, pools from 4.
pub const PARTITION_WORDS: u32 = 16;
/// Partitions of one kernel.
pub const PARTITIONS_PER_KERNEL: u32 = 8;
/// Most kernels in one image.
pub const KERNELS_MAX: u32 = 64;
/// Blocks of a chunk.
pub const CHUNK_BLOCKS: u32 = 1024;
/// Words of a chunk: lock, free count, 16 of bitmap.
pub const CHUNK_WORDS: u32 = 24;
/// Words for the room above (process table, image facts).
pub const FIXED_WORDS: u32 = 5 << 20;
/// Header words.
pub const HEADER_WORDS: u32 = 512;
/// Bytes for large programs in huge pages; what is never used costs nothing.
pub const PROGRAMS_BYTES: u64 = 256 << 20;
/// Words of a huge page.
const HUGE_WORDS: u32 = HUGE_BYTES as u32 / 8;
/// Words of nothing behind the last area: why, says `Cell`.
pub const MARGIN_WORDS: u32 = 256 * STEP_WORDS;

// Partitions are found by a mask; a chunk's bitmap follows its lock and count. All words of an
// object have an index, which bounds its number.
const _: () = {
    let mut class = 0;
    while class < CLASSES {
        assert!(u32::MAX / CLASS_WORDS[class] < NEVER_IN_NUMBERS);
        class += 1;
    }
    assert!(KERNELS_MAX.is_power_of_two() && PARTITIONS_PER_KERNEL.is_power_of_two());
    assert!(CHUNK_BLOCKS.is_multiple_of(64) && 2 + CHUNK_BLOCKS / 64 <= CHUNK_WORDS);
    assert!(SLOTS < 1 << 16, "a lock word has 16 bits for its owner");
};

/// First header word: says that the image is formatted.
pub const MAGIC: u64 = 0x4855_534b_0000_0008;

/// The header, word by word.
pub mod header {
    /// `MAGIC`.
    pub const MAGIC: u32 = 0;
    /// Kernels.
    pub const KERNELS: u32 = 1;
    /// Bytes of buffer cache.
    pub const MEMORY: u32 = 2;
    /// While somebody holds this word, no transaction begins (`Session::freeze`).
    pub const FREEZE: u32 = 3;
    /// Techniques that are switched off (`Without`), before the first thread joins.
    pub const WITHOUT: u32 = 4;
    /// Which table of the gate the image's processes share (`trace`); 0 = none yet.
    pub const GATE: u32 = 5;
    /// What is owed to the reserve (`reserve`): nodes in the lower half, records in the upper.
    pub const OWED: u32 = 6;
    /// The recovery word.
    pub const RECOVERY: u32 = 8;
    /// Lock of the bump pointers.
    pub const BUMP_LOCK: u32 = 16;
    /// Next unused object, one word a class, then the heap's next word.
    pub const BUMP: u32 = 17;
    /// What was paid back to the reserve: nodes, records.
    pub const PAID_BACK: u32 = 22;
    /// Highest slot ever taken.
    pub const SLOTS_HIGH: u32 = 24;
    /// How often a slot was left with work in it.
    pub const LEFT_BEHIND: u32 = 25;
    /// What `LEFT_BEHIND` was before all that was finished.
    pub const LEFT_FINISHED: u32 = 26;
    /// Lowest chunk where blocks have been freed lately, plus one; 0 = none. A hint.
    pub const FREED: u32 = 32;
    /// Until when (ticks of the processor's clock) nobody asks the host for a huge page. A hint.
    pub const HUGE_PAUSE: u32 = 33;
    /// Until when (likewise) somebody writes through the region's descriptor. A hint.
    pub const DESCRIPTOR_BUSY: u32 = 40;
}

/// What an image is made of; everything else follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Kernels, 1..=`KERNELS_MAX`.
    pub kernels: u32,
    /// Bytes of buffer cache (rounded down to 4 MiB, at least 4 MiB).
    pub memory_bytes: u64,
}

/// What the first bytes of a region say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Made by this version, from this layout.
    Ours(Layout),
    /// Made by another version: its format.
    Another(u32),
    /// No region, or damaged.
    None,
}

/// The word that says which table of the gate the image's processes share; 0 = none yet.
pub const GATE_WORD: u32 = header::GATE;

/// Bytes that `read_header` needs.
pub const HEADER_BYTES: usize = 24;

/// Reads the beginning of a file that may be a region.
pub fn read_header(bytes: &[u8; HEADER_BYTES]) -> Header {
    let word = |n: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[8 * n..8 * n + 8]);
        u64::from_le_bytes(eight)
    };
    let magic = word(header::MAGIC as usize);
    if magic >> 32 != MAGIC >> 32 {
        return Header::None;
    }
    if magic != MAGIC {
        return Header::Another(magic as u32);
    }
    let kernels = word(header::KERNELS as usize);
    if kernels == 0 || kernels > KERNELS_MAX as u64 {
        return Header::None;
    }
    let memory_bytes = word(header::MEMORY as usize);
    if memory_bytes >> 44 != 0 {
        return Header::None;
    }
    Header::Ours(Layout { kernels: kernels as u32, memory_bytes })
}

/// A slab: objects of one size, numbered from 0; object 0 is never used.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// First word.
    pub base: Cell,
    /// Objects.
    pub count: u32,
}

/// First words and counts of all areas.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The arena's first word.
    pub(crate) first: Cell,
    /// Its words.
    pub(crate) limit: u32,
    /// Owner word of each of the first slots.
    owners_near: Cell,
    /// Those of all others.
    owners: Cell,
    /// The first slots.
    slots_near: Cell,
    /// All others.
    slots: Cell,
    /// Partitions.
    partitions: Cell,
    /// Number of partitions less one (a power of two).
    pub partition_mask: u32,
    /// Hash buckets, two words each: lock and head.
    buckets: Cell,
    /// Number of buckets less one.
    pub bucket_mask: u32,
    /// The slabs.
    pub classes: [Class; CLASSES],
    /// Bump heap.
    pub heap: u32,
    /// One past its last word.
    pub heap_end: u32,
    /// Chunks of blocks.
    chunks: Cell,
    /// What of each inode is in no log yet, one word each (volumes).
    unsaved: Cell,
    /// Number of chunks.
    pub chunk_count: u32,
    /// For the room above.
    fixed: Cell,
}

impl Layout {
    /// Where everything lies.
    pub fn map(&self) -> Map {
        let chunk_count = self.chunk_count();
        let memory = chunk_count as u64 * CHUNK_BLOCKS as u64 * 4096;
        let inodes = (memory / 4096).clamp(8192, 1 << 23) as u32;
        // Each name may take a node, and 64 slots of a directory one more.
        let nodes = inodes + inodes / 32 + 4096;
        let counts = [inodes, inodes * 2 + 16384, nodes, inodes / 2 + 16384];
        let buckets = (memory / 16384).next_power_of_two().clamp(1 << 14, 1 << 21) as u32;
        let kernels = self.kernels.clamp(1, KERNELS_MAX);
        let partitions = (kernels * PARTITIONS_PER_KERNEL).next_power_of_two();
        let mut next = Cursor(HEADER_WORDS);
        // What every process touches first, within sixteen pages, then the first slots and records:
        // within the first huge page.
        let partition_base = next.take(partitions, PARTITION_WORDS);
        let owners_near = next.take(OWNERS_NEAR, 1);
        let slots_near = next.take(SLOTS_NEAR, SLOT_WORDS);
        let fixed = next.take(FIXED_WORDS, 1);
        let slots = next.take(SLOTS - SLOTS_NEAR, SLOT_WORDS);
        let owners = next.take(SLOTS - OWNERS_NEAR, 1);
        let bucket_base = next.take(buckets, 2);
        // The first objects of a slab are those that every process touches: a huge page for them.
        let classes = [INODE, LINE, NODE, RECORD].map(|class| {
            let words = CLASS_WORDS[class];
            next = Cursor(next.0.next_multiple_of(HUGE_WORDS));
            Class { base: next.take(counts[class], words), count: counts[class] }
        });
        let heap = next.take(inodes, 16).index();
        let heap_end = next.0;
        let chunks = next.take(chunk_count, CHUNK_WORDS);
        let unsaved = next.take(inodes, 1);
        Map {
            first: Cell::at(0),
            limit: next.0,
            owners_near,
            owners,
            slots_near,
            slots,
            partitions: partition_base,
            partition_mask: partitions - 1,
            buckets: bucket_base,
            bucket_mask: buckets - 1,
            classes,
            heap,
            heap_end,
            chunks,
            unsaved,
            chunk_count,
            fixed,
        }
    }

    /// Chunks of 4 MiB.
    fn chunk_count(&self) -> u32 {
        (self.memory_bytes / (CHUNK_BLOCKS as u64 * 4096)).clamp(1, 1 << 20) as u32
    }

    /// Bytes of the state arena, a multiple of 2 MiB.
    pub fn state_bytes(&self) -> u64 {
        ((self.map().limit + MARGIN_WORDS) as u64 * 8).next_multiple_of(HUGE_BYTES as u64)
    }

    /// Bytes of the buffer cache.
    pub fn cache_bytes(&self) -> u64 {
        self.chunk_count() as u64 * CHUNK_BLOCKS as u64 * 4096
    }

    /// Bytes that are mapped of the region: arena, then cache, then pipes.
    pub fn total_bytes(&self) -> u64 {
        self.state_bytes() + self.cache_bytes() + self.pipes_bytes()
    }

    /// Offset of the area for gathered programs, which no process maps as a whole.
    pub fn programs_offset(&self) -> u64 {
        self.total_bytes().next_multiple_of(HUGE_BYTES as u64)
    }

    /// Bytes of the file behind the region, whole pages: what is mapped of it, gathered programs,
    /// traces.
    pub fn file_bytes(&self) -> u64 {
        self.trace_offset() + self.trace_bytes()
    }

    /// Offsets of the huge pages that every process touches: the header with the first slots and
    /// records, and the first objects of each slab.
    pub fn first_touched(&self) -> [u64; 1 + CLASSES] {
        let classes = self.map().classes;
        let slab = |n: usize| classes[n].base.index() as u64 * 8;
        core::array::from_fn(|n| if n == 0 { 0 } else { slab(n - 1) })
    }

    /// Offset of the buffer cache in the region memfd.
    pub fn cache_offset(&self) -> u64 {
        self.state_bytes()
    }
}

/// Hands out areas one behind the other, each on a page of its own.
struct Cursor(u32);

impl Cursor {
    fn take(&mut self, count: u32, words: u32) -> Cell {
        let base = self.0;
        self.0 = (base + count * words).next_multiple_of(512);
        Cell::at(base)
    }
}

impl Map {
    /// Object `number` of `class`; a number out of range gives object 0 (a reader that follows a
    /// stale link stays inside the slab and finds out by the sequence).
    #[inline(always)]
    pub fn object(&self, class: usize, number: u32) -> Cell {
        let slab = &self.classes[class];
        let number = if number < slab.count { number } else { 0 };
        slab.base.object(number, CLASS_WORDS[class])
    }

    /// Number of the object of `class` that `cell` lies in.
    #[inline(always)]
    pub fn number_of(&self, class: usize, cell: Cell) -> u32 {
        (cell.index() - self.classes[class].base.index()) / CLASS_WORDS[class]
    }

    /// Owner word of slot `id`.
    #[inline(always)]
    pub fn owner(&self, id: u32) -> Cell {
        match id % SLOTS {
            near if near < OWNERS_NEAR => self.owners_near.object(near, 1),
            far => self.owners.object(far - OWNERS_NEAR, 1),
        }
    }

    /// First word of slot `id`.
    #[inline(always)]
    pub fn slot(&self, id: u32) -> Cell {
        match id % SLOTS {
            near if near < SLOTS_NEAR => self.slots_near.object(near, SLOT_WORDS),
            far => self.slots.object(far - SLOTS_NEAR, SLOT_WORDS),
        }
    }

    /// First word of a partition: its token.
    #[inline(always)]
    pub fn partition(&self, index: u32) -> Cell {
        self.partitions.object(index & self.partition_mask, PARTITION_WORDS)
    }

    /// A bucket: lock word, then head.
    #[inline(always)]
    pub fn bucket(&self, hash: u32) -> Cell {
        self.buckets.object(hash & self.bucket_mask, 2)
    }

    /// A chunk: lock word, free blocks, bitmap (1 = taken).
    #[inline(always)]
    pub fn chunk(&self, index: u32) -> Cell {
        self.chunks.object(index % self.chunk_count, CHUNK_WORDS)
    }

    /// What of an inode is in no log yet: a word of the room above.
    #[inline(always)]
    pub fn unsaved(&self, inode: u32) -> Cell {
        let number = if inode < self.classes[INODE].count { inode } else { 0 };
        self.unsaved.object(number, 1)
    }

    /// Word `index` of the fixed area of the room above.
    #[inline(always)]
    pub fn fixed(&self, index: u32) -> Cell {
        assert!(index < FIXED_WORDS, "outside the fixed area");
        self.fixed.object(index, 1)
    }

    /// Word `index` of the arena, for heap references.
    #[inline(always)]
    pub fn heap(&self, index: u32) -> Cell {
        let inside = index >= self.heap && index < self.heap_end;
        self.first.object(if inside { index } else { self.heap }, 1)
    }

    /// The same of an arena that is mapped at `address`.
    pub(crate) fn at(mut self, address: usize) -> Map {
        let areas = [
            &mut self.first,
            &mut self.owners_near,
            &mut self.owners,
            &mut self.slots_near,
            &mut self.slots,
            &mut self.partitions,
            &mut self.buckets,
            &mut self.chunks,
            &mut self.unsaved,
            &mut self.fixed,
        ];
        let slabs = self.classes.iter_mut().map(|class| &mut class.base);
        areas.into_iter().chain(slabs).for_each(|area| *area = area.moved_to(address));
        self
    }
}
