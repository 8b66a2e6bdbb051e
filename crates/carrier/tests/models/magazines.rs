//! Free objects, from hand to hand.

use husk_region::{LINE, Session};

use crate::checker::{Tries, begin, go, holds_and_sees, pid_of, stop, task, world};

/// Slots whose pool is the same: partitions are as many as eight.
const SHARING: [u32; 2] = [1, 9];
/// More than a magazine holds and is refilled with.
const TAKEN: usize = 34;

fn session(who: u32) -> Session {
    // SAFETY: `world` has mapped and formatted it.
    let region = unsafe { husk_region::Region::attach() }.expect("mapped");
    let session = Session::new(region, pid_of(who), pid_of(who));
    session.slot().expect("a slot");
    session
}

fn take(me: &Session) -> u32 {
    me.transact(|txn| txn.allocate(LINE)).expect("a line")
}

fn give(me: &Session, line: u32) {
    me.transact(|txn| {
        txn.free(LINE, line);
        Ok(())
    })
    .expect("given back");
}

/// A pool that two slots share, with objects in it.
fn set_up() {
    let sessions: Vec<Session> = (1..=SHARING[1]).map(session).collect();
    let lines: Vec<u32> = (0..90).map(|_| take(&sessions[0])).collect();
    lines.into_iter().for_each(|line| give(&sessions[0], line));
    take(&sessions[8]);
    sessions.iter().for_each(Session::detach);
}

/// Two take from one pool and give to it: nothing is taken twice.
fn one_pool() {
    begin();
    let sessions: Vec<Session> = (1..=SHARING[1]).map(session).collect();
    let mut users: Vec<Session> =
        sessions.into_iter().filter(|one| SHARING.contains(&one.slot_if_any())).collect();
    go();
    let tasks = [users.remove(0), users.remove(0)].map(|me| {
        task(None, move || {
            let mut lines: Vec<u32> = (0..TAKEN).map(|_| take(&me)).collect();
            for _ in 0..3 {
                give(&me, lines.remove(0));
            }
            lines.push(take(&me));
            lines
        })
    });
    let mut lines = tasks.map(|task| task.join().expect("nobody dies")).concat();
    stop();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "two have the same");
}

#[test]
fn an_object_of_a_shared_pool_has_one_owner() {
    let _world = world();
    holds_and_sees(Tries(1_000), &[44], set_up, one_pool);
}
