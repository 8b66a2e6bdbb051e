//! What goes wrong in a seed, when; and whether each kind of it has happened.

use std::collections::BTreeMap;

use super::dice::Dice;

/// A place where something goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Site {
    /// The agent was killed with a request that it had not begun with.
    AgentKilledBefore,
    /// Inside a handler: nothing of it was done.
    AgentKilledInside,
    /// Inside a handler: all of it was done, or some of its bytes were written.
    AgentKilledAtItsEnd,
    /// Between doing and answering.
    AgentKilledBehind,
    /// A program was told that its change may have been made or not.
    ToldUnknown,
    /// What is harmless was asked again; a change was.
    AskedAgain,
    ChangeAskedAgain,
    /// A change was answered from its record: after its agent had been killed; by the same agent.
    AnsweredByNext,
    AnsweredBefore,
    /// A first try was done after the second one.
    Overtaken,
    /// The line to a process was cut; with its answer on the way; to a whole node, for a while.
    LineCut,
    AnswerCut,
    NodeCut,
    /// An answer took longer than anybody waits.
    AgentStopped,
    /// What nobody waited for any more was done all the same.
    DoneTooLate,
    /// The agent's queue was full for a while; for longer than anybody tries.
    QueueFull,
    QueueStayedFull,
    /// A process's messages took long; all of a node's.
    SlowProcess,
    SlowNode,
    /// A node's clock ran fast or slow, and a time was over by it.
    SkewedClock,
    /// A process was killed; while it waited; with the answer in its queue.
    ProcessKilled,
    AnswerToNobody,
    AnswerUnread,
    /// A node was killed.
    NodeKilled,
    /// A node was stopped, declared dead, and went on.
    Fenced,
    /// A node of the same number came after it.
    NextLife,
    /// Another agent was told of deaths by its supervisor.
    DeathsTold,
    /// A stranger broke the rules; or asked for what is not to be had.
    Broken,
    Refused,
}

/// All of them.
pub const SITES: [Site; 29] = [
    Site::AgentKilledBefore,
    Site::AgentKilledInside,
    Site::AgentKilledAtItsEnd,
    Site::AgentKilledBehind,
    Site::ToldUnknown,
    Site::AskedAgain,
    Site::ChangeAskedAgain,
    Site::AnsweredByNext,
    Site::AnsweredBefore,
    Site::Overtaken,
    Site::LineCut,
    Site::AnswerCut,
    Site::NodeCut,
    Site::AgentStopped,
    Site::DoneTooLate,
    Site::QueueFull,
    Site::QueueStayedFull,
    Site::SlowProcess,
    Site::SlowNode,
    Site::SkewedClock,
    Site::ProcessKilled,
    Site::AnswerToNobody,
    Site::AnswerUnread,
    Site::NodeKilled,
    Site::Fenced,
    Site::NextLife,
    Site::DeathsTold,
    Site::Broken,
    Site::Refused,
];

/// How often each has happened.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Fired(BTreeMap<Site, u64>);

impl Fired {
    /// Once more.
    pub fn add(&mut self, site: Site) {
        *self.0.entry(site).or_default() += 1;
    }

    /// Those of another run, too.
    pub fn and(&mut self, other: &Fired) {
        for (site, count) in &other.0 {
            *self.0.entry(*site).or_default() += count;
        }
    }

    /// Those that have not happened.
    pub fn missing(&self) -> Vec<Site> {
        SITES.into_iter().filter(|site| !self.0.contains_key(site)).collect()
    }
}

/// Something that is to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    KillAgent,
    /// It dies inside the next handler, at this point.
    KillAgentInside(u64),
    StopAgent,
    AgentGoesOn,
    StartAgent,
    /// The supervisor cleans up after agents that are dead.
    BuryAgents,
    /// It tells the agent of all deaths.
    TellDeaths,
    KillProcess,
    SlowProcess,
    SlowNode,
    SkewClock,
    CutLine,
    CutNode,
    KillNode,
    /// A node is stopped, and declared dead.
    StopNode,
    /// Somebody sends what no honest node does.
    Strange,
    NodeGoesOn(u16),
    /// Another life of a node begins.
    NextLife(u16),
}

/// Longest time until a fault, of those in which programs run mostly.
const SOON_US: u64 = 60_000;
/// How long a thread of the agent is held up with a request, at most.
pub const HELD_UP_US: u64 = 500;
/// Points of a handler at which it may die.
const POINTS: u64 = 60;

/// Strange messages in each second seed.
const STRANGE: u32 = 20;

/// The faults of a seed; none in each fourth.
pub fn plan(dice: &mut Dice) -> BTreeMap<u64, Vec<Event>> {
    let mut plan: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    let count = [0, 3, 6, 12][dice.below(4) as usize];
    for _ in 0..count {
        let event = match dice.below(15) {
            0 | 1 => Event::KillAgent,
            2 | 3 | 13 | 14 => Event::KillAgentInside(1 + dice.below(POINTS)),
            4 | 8 => Event::StopAgent,
            5 => Event::KillProcess,
            6 => dice.one(&[Event::KillNode, Event::SlowProcess]),
            7 => Event::StopNode,
            9 | 10 => Event::CutLine,
            11 => dice.one(&[Event::CutNode, Event::SlowNode]),
            _ => dice.one(&[Event::SkewClock, Event::CutLine]),
        };
        plan.entry(dice.below(SOON_US)).or_default().push(event);
    }
    if dice.once_in(2) {
        for _ in 0..STRANGE {
            plan.entry(dice.below(2 * SOON_US)).or_default().push(Event::Strange);
        }
    }
    plan
}
