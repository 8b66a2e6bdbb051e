//! One seed: who acts next.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use husk_link::sim::{Faults, Network, Sim};
use husk_link::{Link as _, Unanswered};

use super::asker::{ANSWER_US, Asker, CONNECT_MAX_US, HOME, Outcome, State};
use super::asks::Ask;
use super::dice::{Dice, Known};
use super::faults::{Event, Fired, Site, plan};
use super::home::{Home, ROOT_MODE, set_clock};
use super::tree::{Made, Tree};
use crate::CALL_BYTES_MAX;
use crate::translate::object;

/// Steps that a seed may take.
const STEPS_MAX: u64 = 200_000;
/// Longest that each try of an operation may take: its time in the queue, and for its answer, each
/// twice, by a clock that runs slow.
const TRY_US_MAX: u64 = 2 * (2 * ANSWER_US + CONNECT_MAX_US);
/// Operations of all programs together, about.
const OPERATIONS: u32 = 240;

/// An operation of a program.
pub struct Operation {
    pub ask: Ask,
    /// By which connection the home did it, and what it answered.
    pub done: Vec<(u32, Outcome)>,
    /// What it has changed, if it has, and which agent did.
    pub made: Option<Made>,
    pub by: u32,
    /// Its program has been told that it failed, and it may be done later.
    pub given_up: bool,
}

/// A life of a node, and the number of a request in it.
pub type Number = (u16, u32, u32);

/// A request that a thread of the agent has accepted.
pub struct Taken {
    pub thread: usize,
    /// `None`: its supervisor's.
    pub asker: Option<usize>,
    pub ask: Ask,
    pub message: Vec<u8>,
    pub answer: Option<Vec<u8>>,
    /// Its thread is held up until then.
    pub until_us: u64,
}

/// Everything.
pub struct World {
    pub dice: Dice,
    pub network: Network,
    pub home: Home,
    pub tree: Tree,
    pub askers: Vec<Asker>,
    /// The home's ends of their wires.
    pub wires: Vec<Sim>,
    pub taken: Vec<Taken>,
    /// What the agent's supervisor asks.
    pub orders: VecDeque<Ask>,
    pub stopped: bool,
    /// When it went on last.
    pub went_on_us: u64,
    /// The next handler dies at this point.
    pub dies_at: Option<u64>,
    pub operations: BTreeMap<Number, Operation>,
    /// The last number of a request, of each life of a node.
    pub numbers: BTreeMap<(u16, u32), u32>,
    pub answered: u64,
    pub events: BTreeMap<u64, Vec<Event>>,
    /// Nodes that are dead, and the epoch after their last life.
    pub dead: BTreeMap<u16, u32>,
    /// The epoch of all nodes.
    pub epoch: u32,
    /// Holds that no living process knows: they fall with their node.
    pub unread: Vec<u64>,
    pub fired: Fired,
    pub room: Vec<u8>,
    pub prints: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Act(usize),
    Hear(usize),
    Accept(usize),
    Obey,
    Handle(usize),
    Answer(usize),
}

/// Plays a seed: what went wrong in it as was meant, or why it failed.
pub fn play(seed: u64) -> Result<Fired, String> {
    let mut world = World::new(seed);
    for _ in 0..STEPS_MAX {
        let now_us = world.network.now_us();
        if let Some(events) = world.events.first_entry().filter(|entry| *entry.key() <= now_us) {
            events.remove().into_iter().try_for_each(|event| world.happens(event))?;
            continue;
        }
        let steps = world.steps();
        if steps.is_empty() {
            match world.next_us() {
                Some(at) => world.go_to(at),
                None => return world.end().map(|()| world.fired.clone()),
            }
            continue;
        }
        let step = world.dice.one(&steps);
        world.make(step)?;
    }
    Err(format!("not through after {STEPS_MAX} steps"))
}

/// The same where a panic is a reason, too.
pub fn play_caught(seed: u64) -> Result<Fired, String> {
    catch_unwind(AssertUnwindSafe(|| play(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Err(text.or(panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    })
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed);
        let network = Network::new(seed, Faults { delay_us: (1, 100), ..Faults::none(0) });
        let mut home = Home::new();
        home.start_agent();
        let tree = Tree::new(object(home.root), ROOT_MODE);
        let events = plan(&mut dice);
        if dice.once_in(4) {
            network.set_room(HOME, 1 + dice.below(2) as usize);
        }
        let mut world = World {
            dice,
            network,
            home,
            tree,
            askers: Vec::new(),
            wires: Vec::new(),
            taken: Vec::new(),
            orders: VecDeque::new(),
            stopped: false,
            went_on_us: 0,
            dies_at: None,
            operations: BTreeMap::new(),
            numbers: BTreeMap::new(),
            answered: 0,
            events,
            dead: BTreeMap::new(),
            epoch: 0,
            unread: Vec::new(),
            fired: Fired::default(),
            room: vec![0; CALL_BYTES_MAX],
            prints: std::env::var_os("HUSK_SEED").is_some(),
        };
        let many = 2 + world.dice.below(63) as u16;
        let nodes = if seed.is_multiple_of(10) { many } else { 2 + world.dice.below(4) as u16 };
        for node in 1..=nodes {
            world.begin_node(node, 0, nodes);
        }
        world
    }

    /// A life of a node begins: its supervisor, which closes what its dead had open, and programs.
    pub fn begin_node(&mut self, node: u16, epoch: u32, nodes: u16) {
        self.add_process(node, epoch, 0);
        let most = if nodes > 8 { 1 } else { 3 };
        let processes = 1 + self.dice.below(most);
        let each = (OPERATIONS / u32::from(nodes) / processes as u32).max(4);
        for _ in 0..processes {
            self.add_process(node, epoch, each);
        }
    }

    fn add_process(&mut self, node: u16, epoch: u32, operations: u32) {
        let wire = 1 + self.askers.len() as u16;
        let own = Dice::new(self.dice.below(u64::MAX >> 33));
        let (known, network) = (Known::new(object(self.home.root)), &self.network);
        self.askers.push(Asker::new(network, (node, epoch, wire), known, own, operations));
        self.wires.push(network.link(HOME, wire));
    }

    fn steps(&self) -> Vec<Step> {
        let now_us = self.network.now_us();
        let accepts = self.home.has_agent() && !self.stopped && self.has_free_thread();
        let mut steps = Vec::new();
        for (n, asker) in self.askers.iter().enumerate() {
            if asker.next_us().is_some_and(|at| at <= now_us) {
                steps.push(Step::Act(n));
            }
            if asker.has_answer() {
                steps.push(Step::Hear(n));
            }
            if accepts && self.wires[n].has_message() {
                steps.push(Step::Accept(n));
            }
        }
        if accepts && !self.orders.is_empty() {
            steps.push(Step::Obey);
        }
        let taken = if self.stopped { &[] } else { &self.taken[..] };
        for (n, taken) in taken.iter().enumerate().filter(|(_, taken)| taken.until_us <= now_us) {
            steps.push(if taken.answer.is_some() { Step::Answer(n) } else { Step::Handle(n) });
        }
        steps
    }

    fn next_us(&self) -> Option<u64> {
        let now_us = self.network.now_us();
        let acts = self.askers.iter().filter_map(Asker::next_us);
        let events = self.events.keys().copied();
        let held_up = self.taken.iter().map(|taken| taken.until_us);
        acts.chain(events)
            .chain(held_up)
            .chain(self.network.next_us())
            .filter(|at| *at > now_us)
            .min()
    }

    fn go_to(&mut self, us: u64) {
        self.network.go_to(us);
        set_clock(us);
    }

    fn make(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Act(n) => self.act(n)?,
            Step::Hear(n) => {
                let outcome = self.askers[n].take();
                outcome.map_or(Ok(()), |outcome| self.finish(n, outcome))?;
            }
            Step::Accept(n) => self.accept(n),
            Step::Obey => self.obey(),
            Step::Handle(n) => self.handle(n)?,
            Step::Answer(n) => self.answer(n),
        }
        Ok(())
    }

    /// A process does what it does without a message.
    fn act(&mut self, n: usize) -> Result<(), String> {
        let now_us = self.network.now_us();
        let asker = &mut self.askers[n];
        let outcome = match asker.state {
            State::Idle(_) => {
                let request = self.numbers.entry((asker.node, asker.epoch)).or_default();
                *request += 1;
                asker.begin(*request, now_us);
                let (ask, done, made, given_up) = (asker.ask.clone(), Vec::new(), None, false);
                let operation = Operation { ask, done, made, by: 0, given_up };
                self.operations.insert(asker.number(), operation);
                None
            }
            State::Trying(..) => {
                let outcome = asker.send(now_us);
                if matches!(asker.state, State::Trying(..)) {
                    self.fired.add(Site::QueueFull);
                }
                outcome.inspect(|_| self.fired.add(Site::QueueStayedFull))
            }
            State::Waiting(since_us) => {
                let last_us = self.went_on_us.max(asker.woke_us);
                if !self.stopped && last_us < since_us {
                    return Err(format!("{} has no answer, for no reason", asker.ask.line()));
                }
                self.fired.add(Site::AgentStopped);
                if asker.patience_us != ANSWER_US {
                    self.fired.add(Site::SkewedClock);
                }
                if asker.ask.retry().is_once() {
                    self.fired.add(Site::ToldUnknown);
                }
                asker.unanswered(Unanswered::Late, now_us)
            }
            State::Lost => {
                let is_change = asker.ask.retry().is_once();
                self.fired.add(if is_change { Site::ChangeAskedAgain } else { Site::AskedAgain });
                asker.unanswered(Unanswered::Lost, now_us)
            }
            State::Ended | State::Killed => None,
        };
        let Some(outcome) = outcome else { return Ok(()) };
        let number = self.askers[n].number();
        self.operations.get_mut(&number).expect("it was asked").given_up = true;
        self.note_unread(n);
        if let Ask::Return(holds) = &self.askers[n].ask {
            // What the home is not told, it keeps until the node ends.
            self.unread.extend(holds);
        }
        self.askers[n].finish(&outcome, now_us);
        self.in_time(n)
    }

    /// A process has heard what came of its operation.
    fn finish(&mut self, n: usize, outcome: Outcome) -> Result<(), String> {
        let asker = &mut self.askers[n];
        let operation = &self.operations[&asker.number()];
        let done = operation.done.iter().find(|done| done.0 == asker.connection);
        if done.map(|done| &done.1) != Some(&outcome) {
            let (ask, done) = (operation.ask.line(), &operation.done);
            return Err(format!("{ask} heard {outcome:?}, and was done so: {done:?}"));
        }
        asker.finish(&outcome, self.network.now_us());
        self.in_time(n)
    }

    fn in_time(&self, n: usize) -> Result<(), String> {
        let asker = &self.askers[n];
        let took_us = self.network.now_us() - asker.since_us;
        let tries = u64::from(asker.tries) + 1;
        if took_us <= tries * TRY_US_MAX || asker.stopped {
            return Ok(());
        }
        Err(format!("{} took {took_us} us", asker.ask.line()))
    }
}
