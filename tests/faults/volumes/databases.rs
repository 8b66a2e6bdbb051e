//! Programs that people trust with data, killed together with all that serves them: each
//! transaction that was acknowledged is there afterwards, whole, and the volume is clean.

use std::fs;
use std::process::Command;

use husk_tests::against_native;

use super::{Room, Verb};
use crate::Dice;

/// Times that each of them is killed: for every change, and with `HUSK_FULL`.
const ROUNDS: (usize, usize) = (3, 40);
/// Steps at most before a kill: enough for a log that fills up.
const STEPS_MAX: usize = 300;

fn rounds() -> usize {
    if std::env::var_os("HUSK_FULL").is_some() { ROUNDS.1 } else { ROUNDS.0 }
}

/// Kills it again and again; `command` begins where it was, or says how far it came. Each death may
/// cost it `lost` of its last steps.
pub fn survives(room: &Room, (name, lost): (&str, u64), command: impl Fn(Verb) -> Command) {
    let (mut dice, mut acknowledged) = (Dice::new(), 0);
    for round in 0..rounds() {
        let printed = room.kill_after(command(Verb::Go), name, 1 + dice.below(STEPS_MAX));
        acknowledged = printed.max(acknowledged);
        room.is_clean();
        let there = room.there(command(Verb::Look), name);
        let least = acknowledged.saturating_sub(lost);
        assert!(there >= least, "{name}, round {round}: {acknowledged}, but {there}");
        acknowledged = there;
    }
    room.is_clean();
}

/// With the ledger in Python.
fn keeps(name: &str, ways: &[(&str, u64)]) {
    let room = Room::new(name, "16M");
    let program = room.path("ledger.py");
    fs::write(&program, include_str!("../sources/ledger.py")).expect("a program");
    for &(way, lost) in ways {
        survives(&room, (way, lost), |verb| {
            room.command("128M", &["python3", &program, verb.word(), way, &room.tree()])
        });
    }
}

#[test]
fn what_sqlite_acknowledged_with_a_write_ahead_log_survives_the_death_of_all() {
    keeps("wal", &[("wal", 0)]);
}

#[test]
fn what_sqlite_acknowledged_with_a_rollback_journal_survives_the_death_of_all() {
    keeps("journal", &[("delete", 0), ("truncate", 0), ("persist", 0)]);
}

#[test]
fn sqlite_that_does_not_sync_the_end_of_its_journal_loses_one_transaction_at_most() {
    keeps("unsynced", &[("delete-full", 1)]);
}

#[test]
fn an_update_of_a_package_is_there_or_is_not_after_the_death_of_all() {
    keeps("package", &[("package", 0)]);
}

#[test]
fn what_postgresql_acknowledged_survives_the_death_of_all() {
    if against_native() {
        // A server that loses its client and the shell goes on there, and so does its lock.
        return;
    }
    let room = Room::new("postgres", "384M");
    let script = room.path("postgres.sh");
    fs::write(&script, include_str!("../sources/postgres.sh")).expect("a script");
    survives(&room, ("postgres", 0), |verb| {
        room.command("512M", &["bash", &script, verb.word(), &room.tree()])
    });
}

#[test]
fn what_redis_acknowledged_with_appendfsync_always_survives_the_death_of_all() {
    if against_native() {
        return;
    }
    let room = Room::new("redis", "16M");
    let program = room.path("redis.py");
    fs::write(&program, include_str!("../sources/redis.py")).expect("a program");
    survives(&room, ("redis", 0), |verb| {
        room.command("128M", &["python3", &program, verb.word(), &room.tree()])
    });
}
