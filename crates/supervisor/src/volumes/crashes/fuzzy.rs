//! A checkpoint beside steps and syncs: its slices come between them, and the power goes at any
//! write of either.
//!
//! Whatever slice it is, what was promised is there. When the last one has returned, all names are.

use husk_storage::log::Refusal;

use super::*;

/// Seeds, for every change, and with `HUSK_FULL`.
const SEEDS: (u64, u64) = (300, 40_000);
/// Steps and slices of each.
const TURNS: u64 = 24;
/// Short ones: a file takes several.
const SLICE_BYTES: u64 = 1000;

/// A slice; `None`: the power went inside of it, with these names there.
fn slice(world: &mut World) -> Option<()> {
    if world.saver.fuzzy.is_none() {
        return Some(());
    }
    let is_left = world.saver.go_on(&mut world.direct, SLICE_BYTES);
    if world.saver.is_stopped() {
        return None;
    }
    assert!(!world.saver.is_behind, "there is room");
    if !is_left {
        world.promised.names = world.names();
    }
    Some(())
}

/// One step, with a sync or without. `None`: the power went inside of the sync.
fn step(world: &mut World) -> Option<()> {
    let step = STEPS_ALL[world.dice.below(STEPS_ALL.len() as u64) as usize];
    let done = world.step(step);
    let is_synced = world.dice.below(2) == 0;
    let Some(inode) = done.ok().filter(|_| is_synced) else { return Some(()) };
    world.sync(inode).then_some(())
}

/// Steps, slices, and a crash; whether a checkpoint was written beside them.
fn live(region: &OwnedFd, seed: u64) -> Result<bool, String> {
    let mut world = World::new(region, seed);
    let begins = world.dice.below(TURNS / 2);
    if world.dice.below(2) == 0 {
        world.disk.cut_after(world.dice.below(2 * TURNS));
    }
    for turn in 0..world.dice.below(TURNS) {
        let is_on = match world.dice.below(2) {
            _ if turn == begins => {
                let begun = world.saver.begin_fuzzy();
                assert!(matches!(begun, Ok(()) | Err(Refusal::Stopped)), "there is room");
                begun.ok()
            }
            0 => slice(&mut world),
            _ => step(&mut world),
        };
        if is_on.is_none() {
            let now = world.names();
            world.disk.crash();
            return world.judge(Some(&now)).map(|()| false);
        }
    }
    let is_written = world.saver.checkpoints > 1;
    world.disk.crash();
    world.judge(None).map(|()| is_written)
}

/// What was cut off while the checkpoint went on does not come back as zeros.
fn cut_meanwhile(region: &OwnedFd) -> Result<(), String> {
    let mut world = World::new(region, 1);
    for step in [Step::Create("a"), Step::Append("a"), Step::Append("a"), Step::Append("a")] {
        world.step(step).expect("it is done");
    }
    let file = world.inode("a").expect("it is there");
    assert!(world.sync(file));
    world.saver.begin_fuzzy().expect("there is room");
    world.step(Step::Append("a")).expect("it is done");
    assert!(world.sync(file));
    world.step(Step::Cut("a")).expect("it is done");
    while world.saver.go_on(&mut world.direct, SLICE_BYTES) {}
    world.disk.crash();
    let bytes = bytes_of(&world.replayed()?, id_of(file));
    match (bytes.len(), bytes.iter().filter(|&&byte| byte != b'x').count()) {
        (6000, 0) => Ok(()),
        (length, other) => Err(format!("{length} bytes, {other} that were never written")),
    }
}

/// A checkpoint that is written at once takes the place of one that has begun.
fn superseded(region: &OwnedFd) -> Result<(), String> {
    let mut world = World::new(region, 1);
    let file = world.step(Step::Create("a")).expect("a file");
    assert!(world.sync(file));
    let log = &world.saver.log;
    let mut draft = log.begin_draft(log.appended()).expect("there is room");
    log.write_draft(&mut draft, b"the old one").expect("there is room");
    world.saver.checkpoint(&mut world.direct).expect("there is room");
    let log = &world.saver.log;
    assert_eq!(log.write_draft(&mut draft, b"more"), Err(Refusal::Full));
    assert_eq!(log.end_draft(draft), Err(Refusal::Full));
    world.disk.crash();
    world.judge(None)
}

/// How many crashes there were, or the first that breaks a promise.
pub fn all(region: &OwnedFd) -> Result<u64, String> {
    let seeds = if std::env::var_os("HUSK_FULL").is_some() { SEEDS.1 } else { SEEDS.0 };
    let mut written = 0;
    for seed in 1..=seeds {
        let is_written = live(region, seed).map_err(|why| format!("beside, seed {seed}: {why}"))?;
        written += u64::from(is_written);
    }
    assert!(written > seeds / 20, "{written} of {seeds} checkpoints are written beside syncs");
    cut_meanwhile(region)?;
    superseded(region)?;
    Ok(seeds + 2)
}
