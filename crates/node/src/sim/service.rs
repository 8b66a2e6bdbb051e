//! What the agent does, and what its answers and the tree must be.

use husk_link::{Body, Lane, Link as _};
use husk_wire::{Failure, Header, Kind, Retry, Role};

use super::asker::{Outcome, State};
use super::asks::Heard;
use super::faults::Site;
use super::home::THREADS;
use super::play::{Taken, World};

/// Between two comparisons of the whole tree, in answers.
const COMPARED: u64 = 64;

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
        let ask = self.operations[&came.header.request].ask.clone();
        self.wires[n].done();
        let (thread, asker, answer) = (self.free_thread(), Some(n), None);
        self.taken.push(Taken { thread, asker, ask, message, answer });
    }

    /// The same of its supervisor.
    pub fn obey(&mut self) {
        let Some(ask) = self.orders.pop_front() else { return };
        let header = Header { request: 1, ..Header::new(Kind::Epoch, Role::Request) };
        let (message, thread) = (ask.message(header), self.free_thread());
        self.taken.push(Taken { thread, asker: None, ask, message, answer: None });
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
        let right = self.tree.apply((header.source, header.epoch), ask, &said);
        if self.prints {
            let (at, line) = (self.network.now_us(), ask.line());
            println!("{at} us, node {}, {}: {line} {said:?}", header.source, header.request);
        }
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
        if asker.is_some() {
            self.note_done(&header, said)?;
        }
        self.taken[n].answer = Some(answer);
        self.answered += 1;
        if self.answered.is_multiple_of(COMPARED) { self.compare() } else { Ok(()) }
    }

    fn note_done(&mut self, header: &Header, said: Outcome) -> Result<(), String> {
        let operation = self.operations.get_mut(&header.request).expect("it was asked");
        operation.done.push((header.sequence, said));
        let (ask, done) = (&operation.ask, &operation.done);
        if done.len() > 1 && ask.retry() != Retry::Idempotent {
            return Err(format!("{} was done more than once: {done:?}", ask.line()));
        }
        if operation.given_up {
            self.fired.add(Site::DoneTooLate);
        }
        Ok(())
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
            return self.wires[asker].send(Lane::Reply, &header, body).expect("there is room");
        }
        // Nobody is at the other end.
        self.fired.add(Site::AnswerToNobody);
        self.home.was_not_heard(thread);
        let operation = &self.operations[&header.request];
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
        self.connection_ended(asker, header.sequence);
        self.kill_agent();
        self.home.bury_agents();
        self.tree.bury_agents();
        if self.compare().is_ok() {
            self.fired.add(Site::AgentKilledInside);
            return self.is_sound();
        }
        let before = self.tree.clone();
        let made = ask.made().and_then(|(dir, name)| self.home.named(dir, name));
        let said = made.map_or(Err(Failure::Gone), |made| Ok(Heard::made(made)));
        let outcome = self.tree.apply((header.source, header.epoch), &ask, &said);
        if self.compare().is_err()
            && let Some(file) = ask.changes_bytes()
            && let Some(bytes) = self.home.bytes_of(file)
        {
            // Bytes are written in their place.
            let new = std::mem::replace(&mut self.tree, before);
            if !self.tree.take_half(&new, file, bytes) {
                return Err(format!("{} has left bytes of something else", ask.line()));
            }
        }
        self.fired.add(Site::AgentKilledAtItsEnd);
        self.note_done(&header, outcome)?;
        self.is_sound().map_err(|why| format!("{} was done in part: {why}", ask.line()))
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
        self.tree.bury_agents();
        self.is_sound()?;
        self.home.clear();
        let (room, right) = (self.home.room_left(), self.home.room);
        if room != right {
            return Err(format!("{room:?} blocks and inodes are free, not {right:?}"));
        }
        Ok(())
    }
}
