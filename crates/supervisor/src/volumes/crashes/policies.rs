//! What a crash may take with each policy of a volume, by a clock that this file sets.
//!
//! 1. `fsync`: nothing that was acknowledged.
//! 2. `async`: the last part of what was acknowledged, all of it within the policy's time. What is
//!    left is how it was at one acknowledgement.
//! 3. `immediate`: nothing at all, whoever syncs or not.

use husk_kernel::fs::unsaved;
use husk_proto::volume::Policy;
use husk_proto::{Overview as _, VolumeLog as _};
use husk_storage::log::Refusal;

use super::super::facts::inode_of;
use super::*;

/// Seeds of each policy, for every change, and with `HUSK_FULL`.
const SEEDS: (u64, u64) = (150, 20_000);
/// Steps of each.
const STEPS_EACH: u64 = 12;
const NS_PER_MS: u64 = 1_000_000;
/// So much time goes by between two steps, at most.
const PAUSE_NS: u64 = 4 * NS_PER_MS;
const ASYNC_MS: u32 = 10;
const POLICIES: [Policy; 3] = [Policy::Fsync, Policy::Async(ASYNC_MS), Policy::Immediate];

/// What was promised at an acknowledgement, and when that was.
struct Acknowledged {
    at_ns: u64,
    promised: Promised,
}

struct Life {
    world: World,
    policy: Policy,
    now_ns: Cell<u64>,
    acknowledged: Vec<Acknowledged>,
}

impl Life {
    fn new(region: &OwnedFd, policy: Policy, seed: u64) -> Life {
        let mut world = World::new(region, seed);
        world.saver.set_policy(policy);
        let tree = world.saver.tree();
        world.direct.volume_set_policy(tree, policy);
        let first = Acknowledged { at_ns: 0, promised: Promised::default() };
        Life { world, policy, now_ns: Cell::new(0), acknowledged: vec![first] }
    }

    /// Time goes by; the thread of the volume wakes when something is due. False: the power went.
    fn wait(&mut self) -> bool {
        let target_ns = self.now_ns.get() + self.world.dice.below(PAUSE_NS);
        let world = &mut self.world;
        if let Some(left_ns) = world.saver.due_in_ns(self.now_ns.get()) {
            let woken_ns = self.now_ns.get() + left_ns;
            if woken_ns <= target_ns {
                self.now_ns.set(woken_ns);
                if world.saver.pay(&mut world.direct, woken_ns).is_err() {
                    return false;
                }
            }
        }
        self.now_ns.set(target_ns);
        true
    }

    /// One step, and a sync where one is wished for or needed. `None`: the power went inside of it.
    fn step(&mut self) -> Option<()> {
        let step = STEPS_ALL[self.world.dice.below(STEPS_ALL.len() as u64) as usize];
        let done = self.world.step(step);
        let touched = unsaved::take_touched(self.world.direct.kernel());
        let is_synced = self.world.dice.below(3) > 0;
        // A cut of an empty file changes nothing.
        let may_be_none = matches!(step, Step::Look(_) | Step::Cut(_));
        if self.policy == Policy::Immediate && done.is_ok() && !may_be_none {
            assert!(touched.is_some(), "nobody hears of {step:?}");
        }
        let wish = match self.policy {
            Policy::Immediate => touched,
            _ => done.ok().filter(|_| is_synced),
        };
        let Some(inode) = wish else { return Some(()) };
        let (world, now_ns) = (&mut self.world, &self.now_ns);
        // The disk takes its time.
        let took_ns = world.dice.below(PAUSE_NS);
        let clock = || {
            now_ns.set(now_ns.get() + took_ns / 2);
            now_ns.get()
        };
        world.saver.serve(&mut world.direct, &[Some(inode)], &clock).ok()?;
        self.note(inode);
        Some(())
    }

    fn note(&mut self, inode: Inode) {
        let world = &mut self.world;
        if self.policy == Policy::Immediate {
            world.promised.synced.clear();
            for (id, _) in world.names().into_values() {
                world.promise(inode_of(id));
            }
        }
        if world.direct.is_live(inode) {
            world.promise(inode);
        }
        world.promised.names = world.names();
        let (at_ns, promised) = (self.now_ns.get(), world.promised.clone());
        self.acknowledged.push(Acknowledged { at_ns, promised });
    }

    /// Looks at what a crash has left; `is_inside`: it came inside of a step.
    fn judge(mut self, is_inside: bool) -> Result<(), String> {
        let now = is_inside.then(|| self.world.names());
        self.world.disk.crash();
        // A write that the power ends may have begun in time.
        let last_ns = self.acknowledged.last().map_or(0, |one| one.at_ns);
        let end_ns = if is_inside { last_ns } else { self.now_ns.get() };
        let most_ns = match self.policy {
            Policy::Async(ms) => u64::from(ms) * NS_PER_MS,
            _ => 0,
        };
        let mut last = Ok(());
        while let Some(one) = self.acknowledged.pop() {
            self.world.promised = one.promised;
            last = self.world.judge(now.as_ref());
            if last.is_ok() {
                return Ok(());
            }
            // It is taken: it must not be older.
            let age_ns = end_ns - one.at_ns;
            if age_ns > most_ns || most_ns == 0 {
                let (policy, why) = (self.policy, last.unwrap_err());
                return Err(format!("{policy}, {} us old: {why}", age_ns / 1000));
            }
        }
        last
    }
}

fn live(region: &OwnedFd, policy: Policy, seed: u64) -> Result<(), String> {
    let mut life = Life::new(region, policy, seed);
    let cut = (life.world.dice.below(2) == 0).then(|| life.world.dice.below(2 * STEPS_EACH));
    if let Some(writes) = cut {
        life.world.disk.cut_after(writes);
    }
    for _ in 0..life.world.dice.below(STEPS_EACH) {
        if !life.wait() {
            return life.judge(true);
        }
        if life.step().is_none() {
            return life.judge(true);
        }
    }
    life.judge(false)
}

/// A journal and a file that it is about, each synced in turn: what is left of the file is never
/// ahead of the journal.
fn journal_first(region: &OwnedFd, seed: u64) -> Result<(), String> {
    let mut life = Life::new(region, Policy::Async(ASYNC_MS), seed);
    let world = &mut life.world;
    let made = [Step::Create("a"), Step::Create("b")].map(|step| world.step(step));
    let [journal, data] = made.map(|inode| inode.expect("a file"));
    world.disk.cut_after(world.dice.below(6));
    'power: while life.now_ns.get() < 20 * PAUSE_NS {
        for (step, inode) in [(Step::Append("a"), journal), (Step::Append("b"), data)] {
            let is_on = life.wait();
            let world = &mut life.world;
            world.step(step).expect("it is done");
            let clock = || life.now_ns.get();
            let served = world.saver.serve(&mut world.direct, &[Some(inode)], &clock);
            if !is_on || served.is_err() {
                break 'power;
            }
        }
    }
    life.world.disk.crash();
    let tree = life.world.replayed()?;
    let [journal, data] = [journal, data].map(|inode| bytes_of(&tree, id_of(inode)).len());
    match data <= journal && journal <= data + 3000 {
        true => Ok(()),
        false => Err(format!("{journal} bytes of a journal, {data} of what it is about")),
    }
}

/// A write that fails after the acknowledgement is told to whoever syncs next.
fn failed_late(region: &OwnedFd) -> Result<(), String> {
    let mut life = Life::new(region, Policy::Async(ASYNC_MS), 1);
    let world = &mut life.world;
    let inode = world.step(Step::Create("a")).expect("a file");
    let now_ns = Cell::new(0);
    let clock = || now_ns.get();
    let serve = |world: &mut World| world.saver.serve(&mut world.direct, &[Some(inode)], &clock);
    let first = serve(world);
    world.disk.fail_write(0);
    now_ns.set(u64::from(ASYNC_MS) * NS_PER_MS);
    let late = world.saver.pay(&mut world.direct, now_ns.get());
    let told = (first, late, serve(world));
    match told {
        (Ok(()), Err(Refusal::Stopped), Err(Refusal::Stopped)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// How many crashes there were, or the first that takes too much.
pub fn all(region: &OwnedFd) -> Result<u64, String> {
    let seeds = if std::env::var_os("HUSK_FULL").is_some() { SEEDS.1 } else { SEEDS.0 };
    for seed in 1..=seeds {
        for policy in POLICIES {
            live(region, policy, seed).map_err(|why| format!("seed {seed}: {why}"))?;
        }
        journal_first(region, seed).map_err(|why| format!("seed {seed}: {why}"))?;
    }
    failed_late(region)?;
    Ok(seeds * (POLICIES.len() as u64 + 1))
}
