//! Crashes from seeds: random programs on a disk that fails, against what must be there afterwards.
//!
//! Oracle: after each crash the state is the one that the first N batches make, for some N, with
//! all that were said to be durable: by `wait`, or by a callback.
//!
//! 2,000 crashes, or with `HUSK_FULL=1` a million. One seed alone: `HUSK_SEED=N`.

use std::sync::{Arc, Mutex};

use husk_storage::Uuid;
use husk_storage::disk::sim::{Random, Sim};
use husk_storage::disk::{BLOCK, Disk};
use husk_storage::log::Log as Records;

use crate::record::{self, Kind, Operation};
use crate::state::State;
use crate::store::{Core, Options};
use crate::{Error, Lsn, committer};

const PLACE: (u64, u64) = (2 * BLOCK, 130 * BLOCK);
const UUID: Uuid = Uuid([3; 16]);
const KINDS: [Kind; 4] = [Kind::Log, Kind::Queue, Kind::Map, Kind::Counter];
/// Users of one store, one after the other.
const LIVES: u64 = 5;

/// Bugs that are planted, to see that they are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A batch is logged operation by operation.
    Torn,
    /// A callback comes when a change is logged.
    CalledEarly,
    /// A snapshot says that it covers one record more.
    SnapshotAhead,
    /// A snapshot says that it covers one record less.
    SnapshotBehind,
}

struct World {
    disk: Arc<Sim>,
    random: Random,
    epoch: u64,
    /// The states that the first 0, 1, 2, ... batches make.
    states: Vec<State>,
    /// Highest number that was said to be durable.
    durable: Arc<Mutex<u64>>,
    mutant: Option<Mutant>,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let disk = Arc::new(Sim::new(PLACE.1, seed));
        Records::format(&disk, PLACE.0, PLACE.1, UUID).unwrap();
        let states = vec![State::default()];
        Self { disk, random: Random::new(!seed), epoch: 0, states, durable: Arc::default(), mutant }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn open(&mut self) -> Result<Core, String> {
        self.epoch += 1;
        let disk: Arc<dyn Disk> = self.disk.clone();
        let core = Core::open(disk, PLACE, (UUID, self.epoch), Options::default())?;
        let last = core.log.durable().0 as usize;
        let least = *self.durable.lock().unwrap() as usize;
        if last < least {
            return Err(format!("{last} batches, {least} were durable"));
        }
        if self.states.get(last) != Some(&core.state()) {
            return Err(format!("the state is not what {last} batches make"));
        }
        self.states.truncate(last + 1);
        Ok(core)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.random.below(16) {
            0 => self.random.below(6000),
            _ => self.random.below(60),
        };
        vec![self.random.draw() as u8; length as usize]
    }

    /// A random batch that fits the state.
    fn batch(&mut self, state: &State) -> Vec<Vec<u8>> {
        let mut operations = Vec::new();
        let mut put = |operation: &Operation<'_>| {
            let mut bytes = Vec::new();
            record::encode(operation, &mut bytes);
            operations.push(bytes);
        };
        let next = state.next_structure();
        if (next as usize) < KINDS.len() {
            put(&Operation::Create { kind: KINDS[next as usize], name: &[next as u8] });
            return operations;
        }
        for _ in 0..=self.random.below(3) {
            let (bytes, key) = (self.bytes(), [self.random.below(9) as u8]);
            match self.random.below(7) {
                0 => put(&Operation::Append { log: 0, entry: &bytes }),
                1 => put(&Operation::Trim { log: 0, before: self.random.below(200) }),
                2 => put(&Operation::Push { queue: 1, item: &bytes }),
                3 => {
                    let number = self.random.below(100);
                    put(&Operation::Done { queue: 1, number });
                }
                4 => put(&Operation::Insert { map: 2, key: &key, value: &bytes }),
                5 => put(&Operation::Remove { map: 2, key: &key }),
                _ => put(&Operation::Add { counter: 3, by: self.random.draw() as i8 as i64 }),
            }
        }
        operations
    }

    /// Commits a batch; whether the store goes on.
    fn commit(&mut self, core: &Core, operations: &[Vec<u8>]) -> Result<Option<Lsn>, ()> {
        let whole = operations.concat();
        let mut after = core.state();
        let done = match self.is(Mutant::Torn) {
            true => {
                operations.iter().map(|one| core.commit(one)).last().unwrap_or(Err(Error::Full))
            }
            false => core.commit(&whole),
        };
        match done {
            Ok(lsn) => {
                after.replay(&whole).expect("it was committed");
                self.states.push(after);
                if lsn.0 as usize != self.states.len() - 1 && self.mutant.is_none() {
                    panic!("batch {} has number {}", self.states.len() - 1, lsn.0);
                }
                Ok(Some(lsn))
            }
            Err(Error::Stopped) => Err(()),
            Err(_) => Ok(None),
        }
    }

    /// Works until something fails or it is enough.
    fn work(&mut self, core: &Core) {
        for _ in 0..self.random.below(24) {
            let operations = self.batch(&core.state());
            let Ok(done) = self.commit(core, &operations) else { return };
            let Some(lsn) = done else { continue };
            let says = Arc::clone(&self.durable);
            let say = move |result: Result<(), Error>| {
                let mut durable = says.lock().unwrap();
                *durable = (*durable).max(if result.is_ok() { lsn.0 } else { 0 });
            };
            match self.random.below(6) {
                0 | 1 if core.log.wait(lsn).is_ok() => say(Ok(())),
                2 if self.is(Mutant::CalledEarly) => say(Ok(())),
                2 | 3 => core.errands.add(lsn, Box::new(say)),
                4 => {
                    let _ = core.log.wait(Lsn(self.random.below(lsn.0 + 1)));
                    committer::call_due(core);
                }
                _ => {}
            }
            if self.random.below(10) == 0 && self.checkpoint(core).is_err() {
                return;
            }
        }
        committer::call_due(core);
        if self.random.below(4) == 0 && core.log.finish().is_ok() {
            *self.durable.lock().unwrap() = core.log.durable().0;
        }
    }

    fn checkpoint(&self, core: &Core) -> Result<(), Error> {
        let last = core.log.appended().0;
        let (shown, said) = match self.mutant {
            Some(Mutant::SnapshotAhead) if last > 0 => (last - 1, last),
            Some(Mutant::SnapshotBehind) if last > 0 => (last, last - 1),
            _ => return core.checkpoint(),
        };
        let bytes = self.states[shown as usize].snapshot();
        Ok(core.log.checkpoint(Lsn(said), |to| to.write(&bytes))?)
    }

    fn plan_fault(&mut self) {
        let after = self.random.below(24);
        match self.random.below(6) {
            0..3 => self.disk.cut_after(after),
            3 => self.disk.fail_write(after),
            4 => self.disk.fail_flush(after / 2),
            _ => {}
        }
    }
}

/// How many crashes a seed was good for, or what is wrong.
fn live(seed: u64, mutant: Option<Mutant>) -> Result<u64, String> {
    let mut world = World::new(seed, mutant);
    let told = |why: String| format!("HUSK_SEED={seed}: {why}");
    for _ in 0..LIVES {
        let core = world.open().map_err(told)?;
        world.plan_fault();
        world.work(&core);
        drop(core);
        match world.random.below(4) {
            0 => world.disk.come_back(),
            _ => world.disk.crash(),
        }
    }
    world.open().map_err(told)?;
    Ok(LIVES)
}

#[test]
fn after_any_crash_a_store_is_what_its_first_batches_make_with_all_that_were_durable() {
    if let Some(seed) = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        live(seed, None).unwrap();
        return;
    }
    let wanted = if std::env::var_os("HUSK_FULL").is_some() { 1_000_000 } else { 2_000 };
    let (mut crashes, mut seed) = (0, 0);
    while crashes < wanted {
        crashes += live(seed, None).unwrap();
        seed += 1;
    }
    println!("{crashes} crashes from {seed} seeds");
}

#[test]
fn every_planted_bug_is_found() {
    for mutant in [Mutant::Torn, Mutant::CalledEarly, Mutant::SnapshotAhead, Mutant::SnapshotBehind]
    {
        let found = (0..2_000).find(|&seed| {
            std::panic::catch_unwind(|| live(seed, Some(mutant)))
                .map_or(true, |lived| lived.is_err())
        });
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}
