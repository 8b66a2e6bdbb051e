//! Lock words, sequences, transactions.

use husk_region::{Cell, FIXED_WORDS, RETRY, Session};

use crate::checker::{Tries, begin, explore, go, holds_and_sees, pid_of, stop, task, world};

/// The last words of the fixed area: nothing else uses them.
fn word(session: &Session, n: u32) -> Cell {
    session.region.map.fixed(FIXED_WORDS - 16 + n)
}

fn session(who: u32) -> Session {
    // SAFETY: `world` has mapped and formatted it.
    let region = unsafe { husk_region::Region::attach() }.expect("mapped");
    Session::new(region, pid_of(who), pid_of(who))
}

/// Two who each say that they are there and then look for the other: one sees it. `step` says it.
fn each_looks_for_the_other(step: fn(&Session, Cell)) {
    begin();
    go();
    let tasks = [0, 1].map(|n| {
        task(None, move || {
            let me = session(n);
            step(&me, word(&me, n));
            me.region.load_in_order(word(&me, 1 - n))
        })
    });
    let seen = tasks.map(|task| task.join());
    stop();
    assert_ne!(seen, [Some(0), Some(0)], "neither saw the other");
}

/// The checker's own test: with plain stores x86 lets both miss each other, with swaps it does not.
#[test]
fn stores_reach_others_late_and_swaps_at_once() {
    let _world = world();
    let plain = || each_looks_for_the_other(|me, cell| me.region.store(cell, 1));
    let swap = || each_looks_for_the_other(|me, cell| assert!(me.region.swap_if(cell, 0, 1)));
    assert!(explore(Tries(200), || (), plain).is_err());
    assert_eq!(explore(Tries(500), || (), swap), Ok(()));
}

/// Three write two words together, under one lock; a reader without it sees them equal.
fn pair_of_words() {
    begin();
    go();
    let writers = [2u64, 3].map(|step| {
        task(None, move || {
            let me = session(step as u32);
            me.transact(|txn| {
                txn.lock(word(&me, 0))?;
                for n in 1..3 {
                    let value = txn.get(word(&me, n));
                    txn.set(word(&me, n), value + step);
                }
                // One that is undone: the sequence goes on all the same.
                if step == 3 && txn.get(word(&me, 3)) == 0 {
                    txn.region.store(word(&me, 3), 1);
                    return Err(RETRY);
                }
                Ok(())
            })
            .expect("written");
        })
    });
    let reader = task(None, || {
        let me = session(1);
        for _ in 0..3 {
            let look = || [1, 2].map(|n| me.region.load(word(&me, n)));
            let [one, two] = me.read(word(&me, 0), look).expect("read");
            assert_eq!(one, two, "a torn read");
        }
    });
    reader.join();
    for writer in writers {
        writer.join();
    }
    stop();
    let me = session(1);
    assert_eq!([1, 2].map(|n| me.region.load(word(&me, n))), [5, 5], "a lost write");
}

#[test]
fn a_reader_sees_all_of_a_transaction_or_nothing() {
    let _world = world();
    holds_and_sees(Tries(10_000), &[41, 42], || (), pair_of_words);
}
