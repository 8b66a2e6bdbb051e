//! Memory, sleep and death as a model checker grants them to the real code.
//!
//! ```text
//!   task ─► kernel ─► region ─► Word ─┬─ who runs next?          (shuttle: PCT, or waves)
//!                                     ├─ store ─► own buffer ─► memory, some time later, in order
//!                                     ├─ swap, add: own buffer empty first
//!                                     └─ dies here?           (as by kill -9: the buffer drains)
//! ```
//!
//! 1. What is checked is the code that ships, compiled with the feature `models`. Another task may
//!    go on at every access to a word that two have accessed and one has written, in this or an
//!    earlier execution of the model; others make no difference. Each execution takes some of
//!    these words, all or few: a narrow window is met more often when there are few. The words of
//!    slots (journal, magazines) only their owner touches while it lives.
//! 2. Order is that of x86: a task's stores reach memory in order and late, loads see the own ones,
//!    a locked instruction drains. What the compiler may reorder is not modelled.
//! 3. An execution begins with the memory its model has set up: all its stores are taken back, and
//!    those of the set-up when the model is done.
//! 4. A death unwinds to the task's end. Nothing in region and kernel is dropped with an effect.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::image::Cover;
use husk_proto::{Inode, Process};
use husk_region::observe::model_hooks::{self, Memory};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, Schedule, Scheduler, Task as Runnable, TaskId};
use shuttle::{Config, FailurePersistence, Runner};

use crate::support;

pub const LAYOUT: Layout = Layout { kernels: 1, memory_bytes: 4 << 20 };
/// Stores of one task that others do not see yet, at most.
const BUFFER_MAX: usize = 24;
/// Preemptions that PCT places.
const DEPTH: usize = 4;
/// Times the executions with `HUSK_FULL`: a quarter of an hour on two cores.
const LONG: usize = 10;
/// A part of them is enough for every change; a planted bug is looked for as long as before.
const PART: usize = 3;
/// A planted bug gets so many times the executions: its search ends when it is found.
const PATIENCE: usize = 20;
const STACK_BYTES: usize = 1 << 18;
/// The seed of all schedules, unless `HUSK_SEED` names another.
const SEED: u64 = 20;
/// Process numbers of tasks: no process of the host has them.
const FIRST_PID: u32 = 0x4000_0000;

/// Carried by the unwinding of a task that dies.
struct Death;

#[derive(Default)]
struct State {
    /// Whether an execution runs; whether its tasks are being interleaved.
    recording: bool,
    active: bool,
    /// What words held before the execution.
    before: HashMap<usize, u64>,
    buffers: HashMap<usize, VecDeque<(usize, u64)>>,
    /// Accesses until a task dies, and whom that is to be.
    left: HashMap<usize, (u64, u32)>,
    dead: HashSet<u32>,
    dice: u64,
    /// One word in so many (a power of two) is where tasks switch.
    sparse: u64,
    salt: u64,
    /// Addresses that only their owner touches.
    own: std::ops::Range<usize>,
    point: Option<Arc<shuttle::sync::atomic::AtomicBool>>,
    deaths: u64,
    /// Who has accessed a word, a bit for each task; the lowest: somebody wrote.
    uses: HashMap<usize, u64>,
}

std::thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

fn with<T>(what: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| what(&mut state.borrow_mut()))
}

fn at(address: usize) -> &'static AtomicU64 {
    // SAFETY: the address of a word of the arena, which stays mapped.
    unsafe { &*(address as *const AtomicU64) }
}

fn me() -> usize {
    shuttle::current::me().into()
}

/// The next number below `bound` of the row that `dice` is in.
fn cast(dice: &mut u64, bound: u64) -> u64 {
    *dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*dice >> 33) % bound
}

impl State {
    fn below(&mut self, bound: u64) -> u64 {
        cast(&mut self.dice, bound)
    }

    fn put(&mut self, address: usize, value: u64) {
        if self.recording {
            let old = at(address).load(Ordering::Relaxed);
            self.before.entry(address).or_insert(old);
        }
        at(address).store(value, Ordering::Relaxed);
    }

    /// The oldest `count` stores of a task reach memory.
    fn drain(&mut self, task: usize, count: usize) {
        for _ in 0..count {
            let oldest = self.buffers.get_mut(&task).and_then(VecDeque::pop_front);
            let Some((address, value)) = oldest else { return };
            self.put(address, value);
        }
    }

    /// Some of the task's stores reach memory now, perhaps.
    fn drain_some(&mut self, task: usize) {
        let waiting = self.buffers.get(&task).map_or(0, VecDeque::len);
        match self.below(4) {
            _ if waiting == 0 => {}
            0 => self.drain(task, usize::MAX),
            1 => self.drain(task, 1),
            _ if waiting >= BUFFER_MAX => self.drain(task, 1),
            _ => {}
        }
    }

    /// Notes an access; whether it matters to others.
    fn note(&mut self, task: usize, address: usize, writes: bool) -> bool {
        let uses = self.uses.entry(address).or_default();
        *uses |= 2 << task | u64::from(writes);
        let matters = *uses & 1 == 1 && (*uses >> 1).count_ones() > 1;
        let taken = (address as u64 ^ self.salt).wrapping_mul(husk_abi::SPREAD) >> 40;
        matters && taken.is_multiple_of(self.sparse)
    }

    /// Whether the task dies at this access.
    fn dies(&mut self, task: usize) -> bool {
        let Some((left, who)) = self.left.get_mut(&task) else { return false };
        *left -= 1;
        if *left > 0 {
            return false;
        }
        let who = *who;
        self.left.remove(&task);
        self.drain(task, usize::MAX);
        self.dead.insert(who);
        self.deaths += 1;
        true
    }
}

/// Before an access of a task: it may die, others may run, stores may become visible.
fn step(address: usize, writes: bool) {
    let (active, own) = with(|state| (state.active, state.own.contains(&address)));
    if !active {
        return;
    }
    let task = me();
    if with(|state| state.dies(task)) {
        resume_unwind(Box::new(Death));
    }
    if !own && with(|state| state.note(task, address, writes)) {
        let early = with(|state| state.below(2) == 0);
        if early {
            with(|state| state.drain_some(task));
        }
        switch();
        if !early {
            with(|state| state.drain_some(task));
        }
    }
}

fn switch() {
    let point = with(|state| state.point.clone());
    if let Some(point) = point {
        point.load(Ordering::Relaxed);
    }
}

struct Watched;

impl Memory for Watched {
    fn load(&self, word: &AtomicU64) -> u64 {
        let address = word as *const AtomicU64 as usize;
        step(address, false);
        with(|state| {
            let task = if state.active { me() } else { return word.load(Ordering::Relaxed) };
            let mine = state.buffers.get(&task);
            let latest = mine.and_then(|mine| mine.iter().rev().find(|store| store.0 == address));
            latest.map_or_else(|| word.load(Ordering::Relaxed), |store| store.1)
        })
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        let address = word as *const AtomicU64 as usize;
        step(address, true);
        with(|state| {
            if state.active && !state.own.contains(&address) {
                state.buffers.entry(me()).or_default().push_back((address, value));
            } else {
                state.put(address, value);
            }
        });
    }

    fn change(&self, word: &AtomicU64, to: &mut dyn FnMut(u64) -> Option<u64>) -> u64 {
        let address = word as *const AtomicU64 as usize;
        step(address, true);
        with(|state| {
            if state.active {
                state.drain(me(), usize::MAX);
            }
            let old = word.load(Ordering::Relaxed);
            if let Some(new) = to(old) {
                state.put(address, new);
            }
            old
        })
    }

    fn rest(&self) -> bool {
        let active = with(|state| {
            if state.active {
                state.drain(me(), usize::MAX);
            }
            state.active
        });
        if active {
            shuttle::hint::spin_loop();
        }
        active
    }

    fn is_dead(&self, pid: u32, _: u32) -> Option<bool> {
        with(|state| (pid >= FIRST_PID).then(|| state.dead.contains(&pid)))
    }
}

/// The arena of this test program, for one test at a time, and the root of its tree.
pub fn world() -> (MutexGuard<'static, Option<Inode>>, Inode) {
    static WORLD: Mutex<Option<Inode>> = Mutex::new(None);
    static WATCHED: &dyn Memory = &Watched;
    let mut world = WORLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let root = *world.get_or_insert_with(|| {
        let (mut boss, root) =
            support::shared_image(LAYOUT, Cover::Memory, Directories::ByContention);
        boss.detach();
        model_hooks::install(&WATCHED);
        root
    });
    let boss = Direct::attach(support::frozen, Process(0), FIRST_PID, FIRST_PID).expect("attached");
    let map = &boss.kernel().session.region.map;
    let word = |cell| boss.kernel().session.region.futex_address(cell);
    let own = word(map.slot(0))..word(map.fixed(0));
    with(|state| state.own = own);
    (world, root)
}

/// In a model, before anything runs at once: no interleaving, but taken back at the end.
pub fn begin() {
    let dice = shuttle::rand::thread_rng().next_u64();
    end();
    with(|state| {
        state.recording = true;
        state.dice = dice;
        state.salt = dice;
        state.sparse = 1 << state.below(4);
        state.point = Some(Arc::new(shuttle::sync::atomic::AtomicBool::new(false)));
    });
}

/// After `begin`, where tasks touch each other's slots.
pub fn slots_are_shared() {
    with(|state| state.own = 0..0);
}

/// From here on tasks run at once.
pub fn go() {
    with(|state| state.active = true);
}

/// All tasks have ended: one looks at what they have left.
pub fn stop() {
    with(|state| {
        let tasks: Vec<usize> = state.buffers.keys().copied().collect();
        tasks.into_iter().for_each(|task| state.drain(task, usize::MAX));
        state.active = false;
    });
}

/// Memory is what it was before the execution.
fn end() {
    with(|state| {
        for (address, value) in std::mem::take(&mut state.before) {
            at(address).store(value, Ordering::Relaxed);
        }
        let (own, uses) = (state.own.clone(), std::mem::take(&mut state.uses));
        *state = State { own, uses, deaths: state.deaths, ..State::default() };
    });
}

/// Words at which tasks were interleaved.
fn shared() -> usize {
    let matters = |uses: &&u64| **uses & 1 == 1 && (**uses >> 1).count_ones() > 1;
    with(|state| state.uses.values().filter(matters).count())
}

/// Deaths so far.
pub fn deaths() -> u64 {
    with(|state| state.deaths)
}

/// The host's number of process `who`.
pub fn pid_of(who: u32) -> u32 {
    FIRST_PID + who
}

/// A number below `bound`, of this execution.
pub fn dice(bound: u64) -> u64 {
    with(|state| state.below(bound))
}

/// A task; `None` when it died.
pub struct Task<T>(shuttle::thread::JoinHandle<Option<T>>);

impl<T> Task<T> {
    pub fn join(self) -> Option<T> {
        self.0.join().expect("a task's own failure ends the execution")
    }
}

/// Starts `body` as a task of its own. With `(who, left)`, process `who` dies at access `left` of
/// it.
pub fn task<T: Send + 'static>(
    life: Option<(u32, u64)>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Task<T> {
    Task(shuttle::thread::spawn(move || {
        if let Some((who, left)) = life {
            with(|state| state.left.insert(me(), (left, pid_of(who))));
        }
        let result = catch_unwind(AssertUnwindSafe(body));
        // It does not end with its last store visible.
        switch();
        with(|state| {
            state.left.remove(&me());
            state.drain(me(), usize::MAX);
        });
        match result {
            Ok(value) => Some(value),
            Err(cause) if cause.is::<Death>() => None,
            Err(cause) => resume_unwind(cause),
        }
    }))
}

/// The way into the image of process `who`, with a slot.
pub fn attach(who: u32) -> Direct {
    let direct = Direct::attach(support::frozen, Process(0), pid_of(who), pid_of(who));
    let direct = direct.expect("attached");
    direct.kernel().session.slot().expect("a slot");
    direct
}

/// Executions under each scheduler.
#[derive(Clone, Copy)]
pub struct Tries(pub usize);

/// Goes on with one task for a while, then with any other: for how long differs from execution to
/// execution.
struct Waves {
    left: usize,
    dice: u64,
    /// Goes on but once in so many steps.
    length: u64,
}

impl Waves {
    fn below(&mut self, bound: u64) -> u64 {
        cast(&mut self.dice, bound)
    }
}

impl Scheduler for Waves {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.length = 2 << self.below(5);
        Some(Schedule::new(self.dice))
    }

    fn next_task(
        &mut self,
        runnable: &[&Runnable],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        let goes_on = !yields && self.below(self.length) != 0;
        let current = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        if let Some(current) = current.filter(|_| goes_on) {
            return Some(current);
        }
        let others: Vec<TaskId> =
            runnable.iter().map(|task| task.id()).filter(|id| Some(*id) != current).collect();
        let chosen = self.below(others.len().max(1) as u64) as usize;
        others.get(chosen).copied().or(current)
    }

    fn next_u64(&mut self) -> u64 {
        self.below(u64::MAX >> 33) << 31 ^ self.below(u64::MAX >> 33)
    }
}

/// Runs a model under both schedulers, after its `set_up`; what went wrong first, if anything.
pub fn explore(Tries(tries): Tries, set_up: fn(), model: fn()) -> Result<(), String> {
    let tries = if std::env::var_os("HUSK_FULL").is_some() { tries * LONG } else { tries };
    let seed = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    with(|state| {
        state.uses.clear();
        state.recording = true;
    });
    set_up();
    let before = with(|state| std::mem::take(&mut state.before));
    let result = run(PctScheduler::new_from_seed(seed, DEPTH, tries), model)
        .and_then(|()| run(Waves { left: tries, dice: seed, length: 1 }, model));
    end();
    with(|state| state.before = before);
    end();
    result
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) -> Result<(), String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    let failed = catch_unwind(AssertUnwindSafe(|| runner.run(model))).err();
    failed.map_or(Ok(()), |cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(text.unwrap_or_else(|| "a failure without words".to_owned()))
    })
}

/// The model holds; with each of `bugs` planted, it does not.
pub fn holds_and_sees(tries: Tries, bugs: &[u64], set_up: fn(), model: fn()) {
    let start = std::time::Instant::now();
    let few = if std::env::var_os("HUSK_FULL").is_some() { tries.0 } else { tries.0 / PART };
    assert_eq!(explore(Tries(few), set_up, model), Ok(()));
    println!("holds, {:?}, {} words matter", start.elapsed(), shared());
    for &bug in bugs {
        let start = std::time::Instant::now();
        husk_region::observe::kill::mutate(bug);
        let seen = explore(Tries(tries.0 * PATIENCE), set_up, model);
        husk_region::observe::kill::mutate(0);
        println!("planted {bug}, {:?}: {seen:?}", start.elapsed());
        assert!(seen.is_err(), "planted bug {bug} was not seen");
    }
}
