//! Service `watch`: instances of inotify, their watches and events.
//!
//! ```text
//!   fixed words  lock | cookie | highest number ever taken | instances | heads | rings
//!   instance     0 uses:32 phase:32   1 life   2, 3 queue (`queue`)   4 turn and what it is told
//!                5 watches by descriptor   6 descriptors by the host's   7 next:32 marker:32
//!                8 the marker's inode at the host   9 readers' lock
//!   heads        inode number -> chain of watches (`list`)
//!   table entry  life:24 number:8, as pipes have it
//! ```
//!
//! Invariants
//! 1. One lock guards all of it. It is taken last in a transaction, after inodes, and only where
//!    the image has a watch: a word that path walks read anyway says whether it has.
//! 2. An event is put into the queue by the transaction that it tells of (`post`).
//! 3. An instance's uses are the numbers that name it, in all tables. Without any it gets no more
//!    events, its watches are removed step by step (`finish`), and then it is free.
//! 4. There is something in the queue exactly while the instance is not `IDLE`. It is `OWED` until
//!    somebody sets out to touch the marker, `TOLD` from then on, until a reader that has read the
//!    marker takes events out. Each of these changes begins another turn, so that the supervisor
//!    sees what does not move and touches the marker once more.

pub mod list;
pub mod post;
pub mod queue;

use husk_proto::watch::{Instance, MarkerName};
use husk_proto::{Errno, Files, Result};
use husk_region::{Cell, Region, Txn};

use crate::image::{WATCH, WATCH_COUNT, WATCH_INSTANCES};
use crate::state::fd_table;
use crate::state::tree;
use crate::state::{high, low, pair};
use crate::{Kernel, TELL};

/// Most instances of one image, as many as Linux gives a user.
pub const INSTANCES_MAX: u32 = 128;
const INSTANCE_WORDS: u32 = 16;
const COOKIE: u32 = 16;
const HIGH: u32 = 24;
const RECORDS: u32 = 64;

const USES: u32 = 0;
const LIFE: u32 = 1;
const STATE: u32 = 4;
const WATCHES: u32 = 5;
const HOSTS: u32 = 6;
const NEXT: u32 = 7;
const FILE: u32 = 8;
const READER: u32 = 9;

const LIVES: u64 = 1 << 24;
const NUMBER: u32 = INSTANCES_MAX - 1;
const NUMBER_BITS: u32 = 8;
const FREE: u32 = 0;
const USED: u32 = 1;

const IDLE: u64 = 0;
const OWED: u64 = 1;
const TOLD: u64 = 2;
const TURN: u64 = 4;

const _: () = assert!(RECORDS + INSTANCES_MAX * INSTANCE_WORDS <= list::HEADS);
const _: () = assert!(INSTANCES_MAX <= 1 << NUMBER_BITS && INSTANCES_MAX.is_power_of_two());

/// Word `index` of the watches' part.
fn word(region: &Region, index: u32) -> Cell {
    region.map.fixed(WATCH + index)
}

fn record_at(region: &Region, number: u32) -> Cell {
    word(region, RECORDS + (number & NUMBER) * INSTANCE_WORDS)
}

fn number_of(instance: Instance) -> u32 {
    instance.0 & NUMBER
}

/// The record of an instance that lives, its lock held or not.
fn live(region: &Region, instance: Instance) -> Result<Cell> {
    let cell = record_at(region, instance.0);
    let same = region.load(cell.word(LIFE)) as u32 == instance.0 >> NUMBER_BITS;
    if same && high(region.load(cell.word(USES))) != 0 { Ok(cell) } else { Err(Errno::EBADF) }
}

fn name_at(region: &Region, number: u32) -> Instance {
    let life = region.load(record_at(region, number).word(LIFE)) as u32;
    Instance(life << NUMBER_BITS | number)
}

/// Takes the lock of all watches.
fn lock(txn: &mut Txn<'_>) -> Result<()> {
    txn.lock(word(txn.region, 0))
}

/// Whether the image has a watch.
#[inline(always)]
pub fn any(region: &Region) -> bool {
    region.load(region.map.fixed(WATCH_COUNT)) != 0
}

/// `Watches::watch_any`.
pub fn any_instance(region: &Region) -> bool {
    region.load(region.map.fixed(WATCH_INSTANCES)) != 0
}

fn add_to(txn: &mut Txn<'_>, index: u32, by: i64) {
    let cell = txn.region.map.fixed(index);
    let count = txn.get(cell);
    txn.set(cell, count.wrapping_add_signed(by));
}

/// The instance behind a table's entry.
#[inline]
pub(crate) fn instance_of(entry: u64) -> Option<Instance> {
    (entry & fd_table::WATCH != 0).then(|| Instance(high(entry)))
}

/// `Watches::watch_instance`.
#[inline]
pub fn instance(kernel: &Kernel, files: Files, fd: u32) -> Option<Instance> {
    instance_of(fd_table::entry(&kernel.session.region, files, fd))
}

fn entry_of(instance: Instance) -> u64 {
    pair(instance.0, 0) | fd_table::WATCH
}

/// `Watches::watch_make`.
pub fn make(kernel: &Kernel, files: Files, fd: u32) -> Result<Instance> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        lock(txn)?;
        let instance = begin(txn)?;
        fd_table::put(txn, table, fd, old | entry_of(instance))?;
        Ok(instance)
    })
}

/// A free number in a new life, named once.
fn begin(txn: &mut Txn<'_>) -> Result<Instance> {
    let top = txn.get(word(txn.region, HIGH)) as u32;
    let is_free = |&number: &u32| low(txn.get(record_at(txn.region, number))) == FREE;
    let number = (0..top).find(is_free).unwrap_or(top);
    if number >= INSTANCES_MAX {
        return Err(Errno::EMFILE);
    }
    if number == top {
        txn.set(word(txn.region, HIGH), number as u64 + 1);
    }
    let cell = record_at(txn.region, number);
    let life = ((txn.get(cell.word(LIFE)) + 1) % LIVES).max(1);
    txn.set(cell.word(USES), pair(1, USED));
    txn.set(cell.word(LIFE), life);
    let turn = txn.get(cell.word(STATE)) & !(TURN - 1);
    txn.set(cell.word(STATE), turn + TURN + IDLE);
    txn.set(cell.word(NEXT), pair(1, 0));
    txn.set(cell.word(FILE), 0);
    queue::begin(txn, cell);
    add_to(txn, WATCH_INSTANCES, 1);
    Ok(Instance((life as u32) << NUMBER_BITS | number))
}

/// `Watches::watch_mark`.
pub fn mark(kernel: &Kernel, instance: Instance, marker: u32, file: u64) -> Result<()> {
    kernel.run(|txn| {
        lock(txn)?;
        let cell = live(txn.region, instance)?;
        let next = high(txn.get(cell.word(NEXT)));
        txn.set(cell.word(NEXT), pair(next, marker));
        txn.set(cell.word(FILE), file);
        Ok(())
    })
}

/// `Watches::watch_marker`.
pub fn marker(kernel: &Kernel, instance: Instance) -> u32 {
    let region = &kernel.session.region;
    live(region, instance).map_or(0, |cell| low(region.load(cell.word(NEXT))))
}

fn numbers(region: &Region) -> core::ops::Range<u32> {
    0..(region.load(word(region, HIGH)) as u32).min(INSTANCES_MAX)
}

/// `Watches::watch_find`.
pub fn find(kernel: &Kernel, file: u64) -> Option<Instance> {
    let region = &kernel.session.region;
    let mut all = numbers(region).map(|number| name_at(region, number));
    all.find(|&instance| live(region, instance).is_ok_and(|cell| is_file(region, cell, file)))
}

fn is_file(region: &Region, cell: Cell, file: u64) -> bool {
    file != 0 && region.load(cell.word(FILE)) == file
}

/// `Watches::watch_join`.
pub fn join(kernel: &Kernel, files: Files, fd: u32, instance: Instance) -> Result<()> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let old = fd_table::plain_host(txn, files, fd)?;
        hold(txn, instance)?;
        fd_table::put(txn, table, fd, old | entry_of(instance))
    })
}

/// One more number names an instance. `EBADF`: its life is over.
pub(crate) fn hold(txn: &mut Txn<'_>, instance: Instance) -> Result<()> {
    lock(txn)?;
    let cell = live(txn.region, instance)?;
    let uses = txn.get(cell.word(USES));
    txn.set(cell.word(USES), uses + (1 << 32));
    Ok(())
}

/// One number less; without any, the instance ends.
pub(crate) fn release(txn: &mut Txn<'_>, instance: Instance) -> Result<()> {
    lock(txn)?;
    let cell = live(txn.region, instance)?;
    let uses = txn.get(cell.word(USES));
    txn.set(cell.word(USES), uses - (1 << 32));
    if high(uses) > 1 {
        return Ok(());
    }
    if is_empty(txn.region, cell) {
        end(txn, cell);
    } else {
        txn.set_pending(pair(number_of(instance) + 1, 0));
    }
    Ok(())
}

fn is_empty(region: &Region, cell: Cell) -> bool {
    region.load(cell.word(WATCHES)) == 0 && region.load(cell.word(HOSTS)) == 0
}

fn end(txn: &mut Txn<'_>, cell: Cell) {
    txn.set(cell.word(USES), pair(0, FREE));
    add_to(txn, WATCH_INSTANCES, -1);
}

/// Removes what is left of an instance that nobody names, as the slot's `pending` word says.
#[cold]
pub(crate) fn finish(kernel: &Kernel) -> Result<()> {
    loop {
        let work = high(kernel.session.pending()?);
        if work == 0 {
            return Ok(());
        }
        kernel.session.transact(|txn| {
            lock(txn)?;
            let cell = record_at(txn.region, work - 1);
            list::forget_step(txn, cell)?;
            if is_empty(txn.region, cell) {
                end(txn, cell);
                txn.set_pending(0);
            }
            Ok(())
        })?;
    }
}

/// `Watches::watch_lock`.
pub fn lock_readers(kernel: &Kernel, instance: Instance) -> Result<()> {
    let cell = record_at(&kernel.session.region, instance.0);
    kernel.session.lock_long(cell.word(READER))
}

/// `Watches::watch_unlock`.
pub fn unlock_readers(kernel: &Kernel, instance: Instance) {
    let cell = record_at(&kernel.session.region, instance.0);
    kernel.session.unlock_long(cell.word(READER));
}

// ---- who is told, and who is not --------------------------------------------------------------

/// Begins another turn of an instance.
fn turn(txn: &mut Txn<'_>, cell: Cell, state: u64) {
    let old = txn.get(cell.word(STATE));
    txn.set(cell.word(STATE), (old & !(TURN - 1)) + TURN + state);
}

/// Something is in the queue: whoever is told so will be, once the transaction is through.
fn owe(txn: &mut Txn<'_>, cell: Cell) {
    if txn.get(cell.word(STATE)) & (TURN - 1) == IDLE {
        turn(txn, cell, OWED);
    }
    if txn.get(cell.word(STATE)) & (TURN - 1) == OWED {
        txn.session.note(TELL);
    }
}

/// `Watches::watch_owes`.
#[inline(always)]
pub fn owes(kernel: &Kernel) -> bool {
    kernel.session.attention() & TELL != 0
}

/// `Watches::watch_owed`.
#[cold]
pub fn owed(kernel: &Kernel) -> Option<Instance> {
    kernel.session.forget(TELL);
    let found = kernel.run(|txn| {
        lock(txn)?;
        let region = txn.region;
        let is_owed = |number: &u32| {
            let state = region.load(record_at(region, *number).word(STATE));
            state & (TURN - 1) == OWED
        };
        let Some(number) = numbers(region).find(is_owed) else { return Ok(None) };
        turn(txn, record_at(region, number), TOLD);
        Ok(Some(name_at(region, number)))
    });
    // Who cannot tell leaves it to the supervisor.
    let found = found.ok().flatten();
    if found.is_some() {
        kernel.session.note(TELL);
    }
    found
}

/// `Watches::watch_untold`.
pub fn untold(kernel: &Kernel, instance: Instance) {
    let _ = kernel.run(|txn| {
        lock(txn)?;
        let cell = live(txn.region, instance)?;
        if txn.get(cell.word(STATE)) & (TURN - 1) == TOLD {
            turn(txn, cell, OWED);
        }
        Ok(())
    });
    // Not this thread's to try again.
    kernel.session.forget(TELL);
}

/// Calls `emit` with each instance that has something in its queue, its turn, and the name of its
/// marker: for the supervisor.
pub fn each_waiting(kernel: &Kernel, emit: &mut dyn FnMut(u32, u64, MarkerName)) {
    let region = &kernel.session.region;
    for number in numbers(region) {
        let cell = record_at(region, number);
        let state = region.load(cell.word(STATE));
        if state & (TURN - 1) != IDLE && high(region.load(cell.word(USES))) != 0 {
            emit(number, state, MarkerName::new(name_at(region, number)));
        }
    }
}

/// Whether an instance lives: for the supervisor.
pub fn lives(kernel: &Kernel, instance: Instance) -> bool {
    live(&kernel.session.region, instance).is_ok()
}

// ---- for the checker ----------------------------------------------------------------------------

/// What the checker sees of an instance.
pub(crate) struct View {
    pub uses: u32,
    pub phase: u32,
    pub idle: bool,
    pub cell: Cell,
}

/// Instance `number`; `None` past the last one.
pub(crate) fn view(region: &Region, number: u32) -> Option<View> {
    let cell = record_at(region, number);
    let uses = region.load(cell.word(USES));
    let idle = region.load(cell.word(STATE)) & (TURN - 1) == IDLE;
    let view = View { uses: high(uses), phase: low(uses), idle, cell };
    numbers(region).contains(&number).then_some(view)
}

/// Number of an instance, for the checker.
pub(crate) fn number(instance: Instance) -> u32 {
    number_of(instance)
}

/// The lock of all watches and an instance's of its readers, for the checker.
pub(crate) fn locks(region: &Region, number: u32) -> [Cell; 2] {
    [word(region, 0), record_at(region, number).word(READER)]
}

/// Both trees of an instance: watches by descriptor, descriptors by the host's.
pub(crate) fn trees(region: &Region, cell: Cell) -> [u64; 2] {
    [region.load(cell.word(WATCHES)), region.load(cell.word(HOSTS))]
}

/// Calls `emit` with each word of a tree.
pub(crate) fn each_word(region: &Region, root: u64, emit: &mut dyn FnMut(u64, u64)) {
    let mut from = 0;
    while let Some((node, base)) = tree::next_leaf(region, root, from) {
        for way in 0..tree::WAYS as u64 {
            let word = region.load(tree::entry(region, node, way, 0));
            if word != 0 {
                emit(base + way, word);
            }
        }
        from = base + tree::WAYS as u64;
    }
}
