//! Faults happen, and supervisors do what they do then.

use husk_wire::Header;

use super::asker::{ANSWER_US, Asker, State};
use super::asks::{Ask, Heard};
use super::faults::{Event, Site};
use super::play::{Taken, World};

/// How long it takes until somebody notices, at most.
const NOTICED_US: u64 = 20_000;
/// How long the agent is stopped, at most.
const STOPPED_US: u64 = 90_000_000;
/// How long a line is cut, at most: for longer than anybody tries.
const CUT_US: u64 = 8_000_000;
/// Between two times that an agent is told of deaths.
const TOLD_AGAIN_US: u64 = 250_000;

impl World {
    fn later(&mut self, within_us: u64, event: Event) {
        let at = self.network.now_us() + 1 + self.dice.below(within_us);
        self.events.entry(at).or_default().push(event);
    }

    pub fn happens(&mut self, event: Event) -> Result<(), String> {
        if self.prints {
            println!("{} us: {event:?}", self.network.now_us());
        }
        match event {
            Event::KillAgent => self.kill_agent(),
            Event::KillAgentInside(point) => self.dies_at = Some(point),
            Event::StopAgent => {
                self.stopped = true;
                let most_us = self.dice.one(&[NOTICED_US, STOPPED_US, STOPPED_US]);
                self.later(most_us, Event::AgentGoesOn);
            }
            Event::AgentGoesOn => {
                (self.stopped, self.went_on_us) = (false, self.network.now_us());
            }
            Event::StartAgent => self.start_agent(),
            Event::BuryAgents => {
                self.home.bury_agents();
                return self.is_sound();
            }
            Event::TellDeaths => self.tell_deaths(),
            Event::KillProcess => self.kill_process(),
            Event::SlowProcess => self.slow_process(),
            Event::SlowNode => self.slow_node(),
            Event::SkewClock => self.skew_clock(),
            Event::CutLine => self.cut_line(),
            Event::CutNode => self.cut_node(),
            Event::KillNode => self.kill_node(),
            Event::StopNode => self.stop_node(),
            Event::Strange => return self.strange(),
            Event::NodeGoesOn(node) => {
                let of_it = self.askers.iter_mut().filter(|asker| asker.node == node);
                let now_us = self.network.now_us();
                for asker in of_it {
                    (asker.stopped, asker.since_us, asker.woke_us) = (false, now_us, now_us);
                }
            }
            Event::NextLife(node) => {
                self.fired.add(Site::NextLife);
                let epoch = self.dead[&node];
                self.begin_node(node, epoch, 4);
            }
        }
        Ok(())
    }

    /// The agent is killed: who waits for it notices; its supervisor starts another one.
    pub fn kill_agent(&mut self) {
        if !self.home.has_agent() {
            return;
        }
        for taken in std::mem::take(&mut self.taken) {
            let (header, _) = Header::split(&taken.message).expect("sound");
            let is_done = taken.answer.is_some();
            let site = if is_done { Site::AgentKilledBehind } else { Site::AgentKilledBefore };
            self.fired.add(site);
            self.connection_ended(taken.asker, header.sequence);
        }
        self.home.kill_agent();
        self.tree.agent_died();
        self.stopped = false;
        self.later(NOTICED_US, Event::BuryAgents);
        self.later(NOTICED_US, Event::StartAgent);
    }

    fn start_agent(&mut self) {
        if self.home.has_agent() {
            return;
        }
        self.home.start_agent();
        for (&node, &epoch) in &self.dead {
            self.fired.add(Site::DeathsTold);
            self.home.knows_dead(node, epoch);
            self.tree.bury(node, epoch);
        }
        if !self.dead.is_empty() {
            self.later(TOLD_AGAIN_US, Event::TellDeaths);
        }
    }

    /// A connection ends without an answer.
    pub fn connection_ended(&mut self, asker: Option<usize>, connection: u32) {
        if let Some(asker) = asker.map(|n| &mut self.askers[n])
            && asker.awaits(connection)
        {
            asker.state = State::Lost;
        }
    }

    fn tell_deaths(&mut self) {
        let told = self.dead.iter().map(|(node, epoch)| Ask::Dead(vec![*node], *epoch));
        self.orders.extend(told);
    }

    /// A process of a living node that runs a program, if there is one.
    fn some_process(&mut self) -> Option<usize> {
        let runs = |state| !matches!(state, State::Ended | State::Killed);
        let of: Vec<usize> = (0..self.askers.len())
            .filter(|n| runs(self.askers[*n].state) && !self.askers[*n].stopped)
            .filter(|n| self.supervisor_of(*n) != Some(*n))
            .collect();
        (!of.is_empty()).then(|| self.dice.one(&of))
    }

    /// The supervisor of a process's node: the first of its life.
    fn supervisor_of(&self, n: usize) -> Option<usize> {
        let (node, epoch) = (self.askers[n].node, self.askers[n].epoch);
        self.askers.iter().position(|asker| (asker.node, asker.epoch) == (node, epoch))
    }

    /// The same, each second time one whose request is being served or whose answer is on the way.
    fn some_asker(&mut self) -> Option<usize> {
        let any = self.some_process()?;
        let is_served = |n: &usize| {
            let asker = &self.askers[*n];
            let done = self.operations.get(&asker.number()).map(|operation| &operation.done);
            let is_done = done.is_some_and(|done| done.iter().any(|it| it.0 == asker.connection));
            let is_taken = self.taken.iter().any(|taken| taken.asker == Some(*n));
            let may = !asker.stopped && self.supervisor_of(*n) != Some(*n);
            may && matches!(asker.state, State::Waiting(_)) && (is_done || is_taken)
        };
        let served: Vec<usize> = (0..self.askers.len()).filter(is_served).collect();
        let takes = !served.is_empty() && self.dice.once_in(2);
        Some(if takes { self.dice.one(&served) } else { any })
    }

    /// Kills one; what it had open is given back by its node's supervisor.
    fn kill_process(&mut self) {
        let Some(n) = self.some_asker() else { return };
        self.fired.add(Site::ProcessKilled);
        self.die(n);
        let open = std::mem::take(&mut self.askers[n].known.open);
        let supervisor = self.supervisor_of(n).expect("it has one");
        self.askers[supervisor].inherit(open, self.network.now_us());
    }

    fn die(&mut self, n: usize) {
        self.note_unread(n);
        self.askers[n].state = State::Killed;
    }

    /// An answer that is in a process's queue, or on the way there, is not read any more.
    pub fn note_unread(&mut self, n: usize) {
        let asker = &self.askers[n];
        let Some(operation) = self.operations.get(&asker.number()) else { return };
        for (_, outcome) in &operation.done {
            if let Ok(Heard::Facts(_, _, Some(hold))) = outcome
                && !asker.known.open.iter().any(|(known, _)| known == hold)
            {
                self.unread.push(*hold);
                self.fired.add(Site::AnswerUnread);
            }
        }
    }

    fn slow_process(&mut self) {
        let Some(n) = self.some_process() else { return };
        self.fired.add(Site::SlowProcess);
        self.network.slow(1 + n as u16, 1 + self.dice.below(NOTICED_US));
    }

    /// All processes of some living node.
    fn some_node(&mut self) -> Option<(u16, Vec<usize>)> {
        let n = self.some_process()?;
        let of = |asker: &Asker| (asker.node, asker.epoch);
        let one = of(&self.askers[n]);
        let all = (0..self.askers.len()).filter(|n| of(&self.askers[*n]) == one);
        Some((one.0, all.collect()))
    }

    /// All messages of a node take long.
    fn slow_node(&mut self) {
        let Some((_, processes)) = self.some_node() else { return };
        self.fired.add(Site::SlowNode);
        let more_us = 1 + self.dice.below(NOTICED_US);
        processes.into_iter().for_each(|n| self.network.slow(1 + n as u16, more_us));
    }

    /// A node's clock runs up to twice as fast or as slow as the home's.
    fn skew_clock(&mut self) {
        let Some((_, processes)) = self.some_node() else { return };
        let patience_us = ANSWER_US / 2 + self.dice.below(ANSWER_US * 3 / 2);
        processes.into_iter().for_each(|n| self.askers[n].patience_us = patience_us);
    }

    /// The line to one process is cut, and mended at once.
    fn cut_line(&mut self) {
        if let Some(n) = self.some_asker() {
            self.cut(n, 0);
        }
    }

    /// The line to all processes of a node is cut for a while.
    fn cut_node(&mut self) {
        let Some((_, processes)) = self.some_node() else { return };
        self.fired.add(Site::NodeCut);
        let for_us = self.dice.below(CUT_US);
        processes.into_iter().for_each(|n| self.cut(n, for_us));
    }

    /// What is on its way to a process and from it is lost, but for what a thread of the agent has
    /// taken. It notices.
    fn cut(&mut self, n: usize, for_us: u64) {
        let asker = &mut self.askers[n];
        asker.cut_until_us = self.network.now_us() + for_us;
        if let State::Waiting(_) = asker.state {
            self.fired.add(Site::LineCut);
            let done = self.operations.get(&asker.number()).map(|operation| &operation.done);
            let is_answered = |taken: &Taken| taken.asker == Some(n) && taken.answer.is_some();
            let connection = asker.connection;
            if done.is_some_and(|done| done.iter().any(|done| done.0 == connection))
                && !self.taken.iter().any(is_answered)
            {
                self.fired.add(Site::AnswerCut);
            }
            self.askers[n].state = State::Lost;
        }
        self.network.crash(1 + n as u16);
    }

    fn kill_node(&mut self) {
        let Some((node, processes)) = self.some_node() else { return };
        self.fired.add(Site::NodeKilled);
        processes.into_iter().for_each(|n| self.die(n));
        self.is_dead(node);
    }

    /// A node is dead for the home. It may have another life.
    fn is_dead(&mut self, node: u16) {
        self.epoch += 1;
        self.dead.insert(node, self.epoch);
        self.later(NOTICED_US, Event::TellDeaths);
        if self.dice.once_in(2) {
            self.later(TOLD_AGAIN_US, Event::NextLife(node));
        }
    }

    fn stop_node(&mut self) {
        let Some((node, processes)) = self.some_node() else { return };
        processes.into_iter().for_each(|n| self.askers[n].stopped = true);
        self.is_dead(node);
        self.later(STOPPED_US, Event::NodeGoesOn(node));
    }
}
