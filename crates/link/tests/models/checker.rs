//! Memory, sleep and death as a model checker grants them to the real code.
//!
//! 1. Another task may go on at every access to a shared word.
//! 2. Order is that of x86: a task's stores reach memory in order and late, loads see the own ones,
//!    a locked instruction or a fence drains. What the compiler may reorder is not modelled.
//! 3. A death unwinds to the task's end; its stores reach memory, as after kill -9. Nothing in the
//!    crate is dropped with an effect on shared memory.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use husk_link::word::{self, Memory as Watches};
use husk_link::{Area, Memory};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// Stores of one task that others do not see yet, at most.
const BUFFER_MAX: usize = 24;
/// Preemptions that PCT places.
const DEPTH: usize = 4;
/// Times the executions with `HUSK_FULL`.
const LONG: usize = 20;
/// A planted bug gets so many times the executions: its search ends when it is found.
const PATIENCE: usize = 10;
const STACK_BYTES: usize = 1 << 18;
/// The seed of all schedules, unless `HUSK_SEED` names another.
const SEED: u64 = 20;
pub const MEMORY_BYTES: usize = 1 << 16;
/// Rests after which somebody who waits for another has waited in vain.
const RESTS_MAX: u32 = 2_000;

/// Carried by the unwinding of a task that dies.
struct Death;

#[derive(Default)]
struct State {
    active: bool,
    buffers: HashMap<usize, VecDeque<(usize, u64)>>,
    /// Accesses until a task dies.
    left: HashMap<usize, u64>,
    dice: u64,
    point: Option<Arc<shuttle::sync::atomic::AtomicBool>>,
}

std::thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

fn with<T>(what: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| what(&mut state.borrow_mut()))
}

fn at(address: usize) -> &'static AtomicU64 {
    // SAFETY: the address of a word of the memory below, which stays mapped.
    unsafe { &*(address as *const AtomicU64) }
}

fn me() -> usize {
    shuttle::current::me().into()
}

impl State {
    fn below(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.dice >> 33) % bound
    }

    /// The oldest `count` stores of a task reach memory.
    fn drain(&mut self, task: usize, count: usize) {
        for _ in 0..count {
            let oldest = self.buffers.get_mut(&task).and_then(VecDeque::pop_front);
            let Some((address, value)) = oldest else { return };
            at(address).store(value, Ordering::Relaxed);
        }
    }

    fn drain_some(&mut self, task: usize) {
        let waiting = self.buffers.get(&task).map_or(0, VecDeque::len);
        match self.below(4) {
            0 => self.drain(task, usize::MAX),
            1 => self.drain(task, 1),
            _ if waiting >= BUFFER_MAX => self.drain(task, 1),
            _ => {}
        }
    }

    fn dies(&mut self, task: usize) -> bool {
        let Some(left) = self.left.get_mut(&task) else { return false };
        *left -= 1;
        let dies = *left == 0;
        if dies {
            self.left.remove(&task);
            self.drain(task, usize::MAX);
        }
        dies
    }
}

/// Before an access of a task: it may die, others may run, stores may become visible.
fn step() -> bool {
    if !with(|state| state.active) {
        return false;
    }
    let task = me();
    if with(|state| state.dies(task)) {
        resume_unwind(Box::new(Death));
    }
    with(|state| state.drain_some(task));
    switch();
    true
}

fn switch() {
    let point = with(|state| state.point.clone());
    if let Some(point) = point {
        point.load(Ordering::Relaxed);
    }
}

struct Watched;

impl Watches for Watched {
    fn load(&self, word: &AtomicU64) -> u64 {
        let address = word as *const AtomicU64 as usize;
        if !step() {
            return word.load(Ordering::Relaxed);
        }
        with(|state| {
            let mine = state.buffers.get(&me());
            let latest = mine.and_then(|mine| mine.iter().rev().find(|store| store.0 == address));
            latest.map_or_else(|| word.load(Ordering::Relaxed), |store| store.1)
        })
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        if !step() {
            return word.store(value, Ordering::Relaxed);
        }
        let address = word as *const AtomicU64 as usize;
        with(|state| state.buffers.entry(me()).or_default().push_back((address, value)));
    }

    fn swap(&self, word: &AtomicU64, to: &mut dyn FnMut(u64) -> u64) -> u64 {
        if step() {
            with(|state| state.drain(me(), usize::MAX));
        }
        let old = word.load(Ordering::Relaxed);
        word.store(to(old), Ordering::Relaxed);
        old
    }

    fn fence(&self) {
        if step() {
            with(|state| state.drain(me(), usize::MAX));
        }
    }

    fn rest(&self) {
        rest();
    }
}

/// Time passes: stores become visible, others run.
pub fn rest() {
    if with(|state| state.active) {
        with(|state| state.drain(me(), usize::MAX));
        shuttle::hint::spin_loop();
    }
}

/// Rests until `there` gives something.
pub fn wait_for<T>(mut there: impl FnMut() -> Option<T>) -> T {
    for _ in 0..RESTS_MAX {
        if let Some(found) = there() {
            return found;
        }
        rest();
    }
    panic!("waited in vain")
}

/// The memory of this test program, for one test at a time.
pub fn world() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static WATCHED: &dyn Watches = &Watched;
    word::install(&WATCHED);
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub fn memory() -> &'static Memory {
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    MEMORY.get_or_init(|| Memory::create(c"model", MEMORY_BYTES).expect("memory"))
}

pub fn area() -> Area<'static> {
    memory().area()
}

/// In a model, before anything runs: memory is zero, tasks run at once from here on.
pub fn begin() {
    area().clear();
    let dice = shuttle::rand::thread_rng().next_u64();
    let point = Some(Arc::new(shuttle::sync::atomic::AtomicBool::new(false)));
    with(|state| *state = State { active: true, dice, point, ..State::default() });
}

/// All tasks have ended.
pub fn end() {
    with(|state| *state = State::default());
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

/// Starts `body` as a task of its own, which dies at its access number `dies` (0: it does not).
pub fn task<T: Send + 'static>(dies: u64, body: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    Task(shuttle::thread::spawn(move || {
        if dies > 0 {
            with(|state| state.left.insert(me(), dies));
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

/// Runs a model under both schedulers; what went wrong first, if anything.
fn explore(tries: usize, model: fn()) -> Result<(), String> {
    let tries = if std::env::var_os("HUSK_FULL").is_some() { tries * LONG } else { tries };
    let seed = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let result = run(PctScheduler::new_from_seed(seed, DEPTH, tries), model)
        .and_then(|()| run(RandomScheduler::new_from_seed(seed, tries), model));
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
pub fn holds_and_sees(tries: usize, bugs: &[u64], model: fn()) {
    assert_eq!(explore(tries, model), Ok(()));
    for &bug in bugs {
        word::mutate(bug);
        let seen = explore(tries * PATIENCE, model);
        word::mutate(0);
        println!("planted {bug}: {seen:?}");
        assert!(seen.is_err(), "planted bug {bug} was not seen");
    }
}
