//! What one thread has set aside and another takes, since nothing else is left.

use husk_proto::Errno;
use husk_region::{Cell, INODE, LINE, Session};

use crate::checker::{
    LAYOUT, Tries, begin, deaths, dice, go, holds_and_sees, pid_of, slots_are_shared, stop, task,
    world,
};

/// Objects that are left: as many as the two take.
const LEFT: usize = 5;
/// Blocks that are left: as many as the two take.
const BLOCKS_LEFT: usize = 4;
/// A thread dies within so many accesses.
const LIFE_MAX: u64 = 400;

fn session(who: u32) -> Session {
    // SAFETY: `world` has mapped and formatted it.
    let region = unsafe { husk_region::Region::attach() }.expect("mapped");
    let session = Session::new(region, pid_of(who), pid_of(who));
    session.slot().expect("a slot");
    session
}

fn take(me: &Session) -> Result<u32, Errno> {
    me.transact(|txn| txn.allocate(INODE))
}

fn give(me: &Session, number: u32) {
    me.transact(|txn| {
        txn.free(INODE, number);
        Ok(())
    })
    .expect("given back");
}

/// What each thread locks: no two the same.
fn own_lock(me: &Session) -> Cell {
    me.region.map.object(LINE, me.slot_if_any())
}

/// All objects are taken, but for some that the first slot has.
fn few_objects() {
    let me = session(1);
    let mut all: Vec<u32> = std::iter::from_fn(|| take(&me).ok()).collect();
    all.drain(..LEFT).for_each(|number| give(&me, number));
    me.detach();
}

fn two() -> [Session; 2] {
    begin();
    slots_are_shared();
    let two = [session(1), session(2)];
    go();
    two
}

/// Each gets as many as there are, and no two the same: none is full before all is taken.
fn objects_go_round() {
    let [one, other] = two();
    let lucky = task(None, move || {
        let first = take(&one).expect("there are more");
        give(&one, first);
        [take(&one), take(&one)].map(|taken| taken.expect("there are more")).to_vec()
    });
    let thief = task(None, move || {
        (0..LEFT - 2).map(|_| take(&other).expect("there are more")).collect::<Vec<u32>>()
    });
    let mut taken = [lucky, thief].map(|task| task.join().expect("nobody dies")).concat();
    stop();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), LEFT, "two have the same");
}

/// Takes one and gives it back, in one step.
fn turn(me: &Session) {
    let turned = me.transact(|txn| {
        txn.lock(own_lock(me))?;
        let number = txn.allocate(INODE)?;
        txn.free(INODE, number);
        Ok(())
    });
    // The other one may be dead, with its journal open, for as long as this one looks.
    assert!(matches!(turned, Ok(()) | Err(Errno::ENOSPC)), "{turned:?}");
}

/// A thief or a victim dies in the middle: what there was is there, once.
fn deaths_take_nothing_along() {
    let two = two();
    let mortal = dice(2) as usize;
    let tasks: Vec<_> = two
        .into_iter()
        .enumerate()
        .map(|(n, me)| {
            let life = (n == mortal).then(|| (n as u32 + 1, 1 + dice(LIFE_MAX)));
            task(life, move || (0..2).for_each(|_| turn(&me)))
        })
        .collect();
    for task in tasks {
        task.join();
    }
    stop();
    let boss = session(3);
    boss.recover_dead().expect("recovered");
    let mut free = Vec::new();
    boss.each_free(INODE, &mut |number| free.push(number));
    free.sort_unstable();
    let count = free.len();
    free.dedup();
    assert_eq!((count, free.len()), (LEFT, LEFT), "some are lost, or there twice");
}

/// A block of the file that `lock` stands for: chosen, filled, taken.
fn fill(me: &Session) -> u32 {
    let lock = own_lock(me);
    me.lock_long(lock).expect("locked");
    let blocks = me.blocks_ahead(1, 0).expect("there are more");
    me.transact(|txn| {
        txn.lock(own_lock(me).word(1))?;
        txn.take_blocks(blocks)
    })
    .expect("still what was filled");
    me.unlock_long(lock);
    blocks.first
}

/// All blocks are taken, but for some of the first slot's run.
fn few_blocks() {
    let me = session(1);
    let count = LAYOUT.memory_bytes as usize / 4096 - 1 - BLOCKS_LEFT;
    for _ in 0..count {
        fill(&me);
    }
    me.detach();
}

/// A run is filled by its owner and by who steals it: no block by both.
fn blocks_go_round() {
    let tasks = two().map(|me| {
        task(None, move || (0..BLOCKS_LEFT / 2).map(|_| fill(&me)).collect::<Vec<u32>>())
    });
    let mut taken = tasks.map(|task| task.join().expect("nobody dies")).concat();
    stop();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), BLOCKS_LEFT, "two have the same");
}

#[test]
fn objects_that_a_living_thread_keeps_are_taken_once_and_all() {
    let _world = world();
    holds_and_sees(Tries(1_000), &[49, 50], few_objects, objects_go_round);
}

#[test]
fn a_death_in_the_middle_of_a_theft_loses_nothing() {
    let _world = world();
    let before = deaths();
    holds_and_sees(Tries(1_000), &[4, 50], few_objects, deaths_take_nothing_along);
    assert!(deaths() - before > 100, "hardly anybody died");
}

#[test]
fn blocks_that_a_living_thread_fills_are_not_stolen_from_it() {
    let _world = world();
    holds_and_sees(Tries(1_000), &[53, 54], few_blocks, blocks_go_round);
}
