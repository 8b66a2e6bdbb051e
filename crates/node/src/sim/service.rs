//! What the agent does, and what its answers and the tree must be.

use husk_link::{Body, Lane, Link as _};
use husk_wire::{Failure, Header, Kind, Role};

use super::asker::{OTHER_NUMBER, Outcome, State};
use super::asks::{Ask, Heard};
use super::faults::{HELD_UP_US, Site};
use super::home::THREADS;
use super::play::{Number, Taken, World};
use super::tree::{Made, Tree, Who};
use crate::file::holds::is_of;

/// Between two comparisons of the whole tree, in answers.
const COMPARED: u64 = 64;

/// Which operation a request is a try of.
fn number_of(header: &Header) -> Number {
    (header.source, header.epoch, header.request % OTHER_NUMBER)
}

impl World {
    /// Whether a thread of the agent has nothing to do.
    pub fn has_free_thread(&self) -> bool {
        self.taken.len() < THREADS
    }

    /// One that has.
    pub fn free_thread(&self) -> usize {
        let is_free = |thread: &usize| self.taken.iter().all(|taken| taken.thread != *thread);
        (0..THREADS).find(is_free).expect("one is free")
    }

    /// A thread of the agent takes a request of a process.
    pub fn accept(&mut self, n: usize) {
        let came = self.wires[n].receive(&mut self.room).expect("sound").expect("it is there");
        let Body::Here(body) = came.body else { unreachable!("a wire has no pool") };
        let message = [&came.header.encode()[..], body].concat();
        let ask = self.operations[&number_of(&came.header)].ask.clone();
        self.wires[n].done();
        let (thread, asker, answer) = (self.free_thread(), Some(n), None);
        let held_up = self.dice.below(HELD_UP_US) * u64::from(self.dice.once_in(4));
        let until_us = self.network.now_us() + held_up;
        self.taken.push(Taken { thread, asker, ask, message, answer, until_us });
    }

    /// The same of its supervisor.
    pub fn obey(&mut self) {
        let Some(ask) = self.orders.pop_front() else { return };
        let header = Header { request: 1, ..Header::new(Kind::Epoch, Role::Request) };
        let (message, thread) = (ask.message(header), self.free_thread());
        self.taken.push(Taken { thread, asker: None, ask, message, answer: None, until_us: 0 });
    }

    /// A thread of the agent does what it was asked.
    pub fn handle(&mut self, n: usize) -> Result<(), String> {
        if let Some(point) = self.dies_at.filter(|_| self.taken[n].asker.is_some()) {
            // Each second death waits for a change of bytes.
            if point % 2 == 0 || self.taken[n].ask.changes_bytes().is_some() {
                return self.die_inside(n);
            }
        }
        let Taken { thread, asker, ask, message, .. } = &self.taken[n];
        let (header, _) = Header::split(message).expect("sound");
        let answer = self.home.answer(*thread, message, asker.is_none());
        let (reply, body) = Header::split(&answer).expect("sound");
        let said = ask.heard(&reply, body);
        let ask = ask.clone();
        let is_operation = asker.is_some();
        if self.prints {
            let (at, line, again) = (self.network.now_us(), ask.line(), header.again);
            let (node, request) = (header.source, header.request);
            println!("{at} us, node {node}, {request} again {again}: {line} {said:?}");
        }
        let right = match is_operation {
            true => self.apply(&header, &ask, &said),
            false => self.tree.apply(Who::from(&header), &ask, &said),
        };
        if said != right {
            return Err(format!("{} was answered {said:?}, not {right:?}", ask.line()));
        }
        if self.home.holds() != self.tree.holds() {
            let (open, right) = (self.home.holds(), self.tree.holds());
            return Err(format!("{open} files are open for others, not {right}"));
        }
        if said == Err(Failure::Fenced) {
            self.fired.add(Site::Fenced);
        }
        if is_operation {
            self.note_done(&header, said);
        }
        self.taken[n].answer = Some(answer);
        self.answered += 1;
        if self.answered.is_multiple_of(COMPARED) { self.compare() } else { Ok(()) }
    }

    /// What the home must answer to a request of a program, where it has answered `said`: a change
    /// that was made before is only told of.
    fn apply(&mut self, header: &Header, ask: &Ask, said: &Outcome) -> Outcome {
        let operation = self.operations.get_mut(&number_of(header)).expect("it was asked");
        let Some(made) = &mut operation.made else {
            let is_change = self.tree.is_change(ask);
            let right = self.tree.apply(Who::from(header), ask, said);
            if let (true, Ok(heard)) = (is_change, &right) {
                operation.made = Some(Tree::made(ask, heard));
                operation.by = self.tree.agent();
            }
            return right;
        };
        let right = self.tree.apply_again(Who::from(header), ask, made, said);
        if right.is_ok() {
            let is_same = operation.by == self.tree.agent();
            self.fired.add(if is_same { Site::AnsweredBefore } else { Site::AnsweredByNext });
            if !header.again {
                self.fired.add(Site::Overtaken);
            }
        }
        right
    }

    fn note_done(&mut self, header: &Header, said: Outcome) {
        let operation = self.operations.get_mut(&number_of(header)).expect("it was asked");
        operation.done.push((header.sequence, said));
        if operation.given_up {
            self.fired.add(Site::DoneTooLate);
        }
    }

    /// Everything that can be seen at home is right.
    pub fn compare(&mut self) -> Result<(), String> {
        let (there, right) = (self.home.snapshot(), self.tree.snapshot());
        if there == right { Ok(()) } else { Err(format!("{there:#?}\nis there, not\n{right:#?}")) }
    }

    /// The structure is sound, and everything that can be seen at home is right.
    pub fn is_sound(&mut self) -> Result<(), String> {
        let found = self.home.findings();
        if found.is_empty() { self.compare() } else { Err(format!("{found:?}")) }
    }

    /// A thread of the agent sends its answer.
    pub fn answer(&mut self, n: usize) {
        let Taken { thread, asker, answer, .. } = self.taken.remove(n);
        let (Some(asker), Some(answer)) = (asker, answer) else { return };
        let (header, body) = Header::split(&answer).expect("sound");
        if self.askers[asker].awaits(header.sequence) {
            self.wires[asker].send(Lane::Reply, &header, body).expect("there is room");
            return self.home.was_heard(thread);
        }
        // Nobody is at the other end.
        self.fired.add(Site::AnswerToNobody);
        self.home.was_not_heard(thread);
        let asked = Header { source: header.target, ..header };
        let operation = &self.operations[&number_of(&asked)];
        let done = operation.done.iter().find(|done| done.0 == header.sequence);
        if let Some((_, Ok(Heard::Facts(_, _, Some(hold))))) = done {
            self.tree.close(self.askers[asker].node, *hold);
        }
    }

    /// The agent dies inside a handler. It has done all or nothing, but for bytes.
    fn die_inside(&mut self, n: usize) -> Result<(), String> {
        let point = self.dies_at.take().expect("it is to die");
        let Taken { thread, asker, ask, message, .. } = self.taken.remove(n);
        self.home.die_inside(thread, &message, point);
        let (header, _) = Header::split(&message).expect("sound");
        let before = self.operations[&number_of(&header)].made;
        let record = self.home.record(&header);
        let is_change = ask.retry().is_once() && !self.tree.is_fenced(header.source, header.epoch);
        let mut new = self.tree.clone();
        let made = match (before, record) {
            (Some(made), Some(words)) => {
                Some(self.written_on(&header, &ask, made, words, &mut new))
            }
            (None, Some(words)) if is_change => {
                self.fired.add(Site::AgentKilledAtItsEnd);
                Some(self.made(&header, &ask, words, &mut new)?)
            }
            _ => {
                // Nothing was changed, but for bytes in their places.
                self.fired.add(Site::AgentKilledInside);
                let _ = new.apply(Who::from(&header), &ask, &Err(Failure::Gone));
                before
            }
        };
        let operation = self.operations.get_mut(&number_of(&header)).expect("it was asked");
        (operation.made, operation.by) = (made, self.tree.agent());
        self.connection_ended(asker, header.sequence);
        self.kill_agent();
        self.home.bury_agents();
        self.settle_holds(&header, &ask, made);
        new.agent_died();
        if let Err(why) = self.compare() {
            let with = record.map_or("without a record", |_| "with a record");
            self.is_half(&ask, &new).map_err(|half| format!("{half} {with}: {why}"))?;
        }
        self.is_sound().map_err(|why| format!("{} was done in part: {why}", ask.line()))
    }

    /// Of what it was asked to open or give back, some may have been.
    fn settle_holds(&mut self, header: &Header, ask: &Ask, made: Option<Made>) {
        let opened = match (ask, made) {
            (Ask::Open(object, _), _) => Some(*object),
            (_, Some(Made::Whole(object))) => object,
            _ => None,
        };
        if let Some(object) = opened {
            let holds = self.home.holds_of(|hold| is_of(hold, header));
            self.tree.settle(Who::from(header), object, &holds);
            self.unread.extend(holds);
        }
        if let Ask::Return(numbers) = ask {
            let left = self.home.holds_of(|hold| hold.node == header.source);
            let gone = numbers.iter().filter(|number| !left.contains(number));
            gone.for_each(|number| self.tree.close(header.source, *number));
        }
    }

    /// It was made before. Of a write, more is written now; `new`: all of it.
    fn written_on(
        &mut self,
        header: &Header,
        ask: &Ask,
        made: Made,
        words: [u64; 2],
        new: &mut Tree,
    ) -> Made {
        let (who, mut whole) = (Who::from(header), made);
        let (Ask::Write(object, _, bytes), Made::Bytes(offset, count)) = (ask, made) else {
            return made;
        };
        let _ = new.apply_again(who, ask, &mut whole, &Err(Failure::Gone));
        let more = bytes[count as usize..words[1] as usize].to_vec();
        let more = Ask::Write(*object, offset + count, more);
        let _ = self.tree.apply(who, &more, &Err(Failure::Gone));
        Made::Bytes(words[0], words[1])
    }

    /// There is a record: all was done that it tells of; `new`: all that was asked for.
    fn made(
        &mut self,
        header: &Header,
        ask: &Ask,
        words: [u64; 2],
        new: &mut Tree,
    ) -> Result<Made, String> {
        let made = ask.made().and_then(|(dir, name)| self.home.named(dir, name));
        let said = made.map_or(Err(Failure::Gone), |made| Ok(Heard::made(made)));
        let who = Who::from(header);
        let whole = new.apply(who, ask, &said);
        let whole = whole.map_err(|why| format!("{why:?} has a record: {}", ask.line()))?;
        let Ask::Write(object, _, bytes) = ask else {
            let _ = self.tree.apply(who, ask, &said);
            return Ok(Tree::made(ask, &whole));
        };
        let bytes = bytes[..words[1] as usize].to_vec();
        let _ = self.tree.apply(who, &Ask::Write(*object, words[0], bytes), &said);
        Ok(Made::Bytes(words[0], words[1]))
    }

    /// Bytes were written in their place, between those of the tree and of `new`.
    fn is_half(&mut self, ask: &Ask, new: &Tree) -> Result<(), String> {
        let left = || format!("{} has left something else", ask.line());
        let file = ask.changes_bytes().ok_or_else(left)?;
        let bytes = self.home.bytes_of(file).ok_or_else(left)?;
        if self.tree.take_half(new, file, bytes) { Ok(()) } else { Err(left()) }
    }

    /// All programs are through: nothing is left of them.
    pub fn end(&mut self) -> Result<(), String> {
        let is_over = |state| matches!(state, State::Ended | State::Killed);
        if let Some(asker) = self.askers.iter().find(|asker| !is_over(asker.state)) {
            return Err(format!("{:?} waits for ever, {:?}", asker.ask, asker.state));
        }
        self.is_sound()?;
        // What was in the queue of a process that was killed, nobody has heard.
        let left: Vec<u64> = self.tree.all_holds().collect();
        if let Some(hold) = left.iter().find(|hold| !self.unread.contains(hold)) {
            return Err(format!("hold {hold} is nobody's"));
        }
        self.home.kill_agent();
        self.home.bury_agents();
        self.is_sound()?;
        self.home.end_holds();
        self.tree.end_holds();
        self.home.clear();
        let (room, right) = (self.home.room_left(), self.home.room);
        if room != right {
            return Err(format!("{room:?} blocks and inodes are free, not {right:?}"));
        }
        Ok(())
    }
}
