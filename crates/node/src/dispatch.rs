//! Which handler gets a message, and what becomes of one that breaks the rules.
//!
//! A new kind of message is declared in `husk-wire` (`messages.rs`) and gets its arm in
//! `Agent::dispatch` and its handler in `file`.

use husk_carrier::Layout;
use husk_proto::Errno;
use husk_wire::{AFAR, Failure, Fault, HEADER_BYTES, Header, Kind, Role, message, reply, request};

use crate::agent::Agent;
use crate::other_host::afar::is_refused;
use crate::planted::planted;
use crate::translate::{Handled, failure, put, take};

impl Agent {
    /// Handles a request; its answer's body is put into `room`.
    pub fn handle(&mut self, header: &Header, body: &[u8], room: &mut [u8]) -> Handled {
        (self.lends_memory, self.unheard, self.answered) = (false, None, None);
        self.unheard_lock = None;
        if header.role != Role::Request && !planted!(PostedIsDone) {
            let fault = if header.role == Role::Reply { Fault::Unasked } else { Fault::Role };
            self.sessions.refuse(header.source, fault);
            return Err(Failure::Protocol);
        }
        if self.sessions.is_fenced(header) {
            return Err(Failure::Fenced);
        }
        self.is_afar = header.source >= AFAR;
        let handled = self.dispatch(header, body, room).unwrap_or_else(|fault| {
            self.sessions.refuse(header.source, fault);
            Err(Failure::Protocol)
        });
        if handled.is_err() {
            self.was_not_heard();
            self.close_first_tries(header, None);
        }
        // Who watches what has changed is told, as by any process.
        self.client.tell();
        handled
    }

    fn dispatch(
        &mut self,
        header: &Header,
        body: &[u8],
        room: &mut [u8],
    ) -> Result<Handled, Fault> {
        Ok(match Kind::of(header.kind) {
            Some(asked) if self.is_afar && is_refused(asked) => Err(failure(Errno::EOPNOTSUPP)),
            Some(Kind::Walk) => self.walk(header, take(header, body)?, room),
            Some(Kind::ListNames) => self.list(header, take(header, body)?, room),
            Some(Kind::Above) => self.above(header, take(header, body)?, room),
            Some(Kind::Create) => self.create(header, take(header, body)?, room),
            Some(Kind::MakeDirectory) => self.make_directory(header, take(header, body)?, room),
            Some(Kind::Link) => self.link(header, take(header, body)?, room),
            Some(Kind::Remove) => self.remove(header, take(header, body)?, room),
            Some(Kind::Rename) => self.rename(header, take(header, body)?, room),
            Some(Kind::SetAttributes) => self.set_attributes(header, take(header, body)?, room),
            Some(Kind::Extended) => self.extended(header, take(header, body)?, room),
            Some(Kind::HostFile) => self.host_file(header, take(header, body)?, room),
            Some(Kind::Own) => self.own(header, take(header, body)?, room),
            Some(Kind::Room) => self.room(header, take(header, body)?, room),
            Some(Kind::Open) => self.open(header, take(header, body)?, room),
            Some(Kind::Return) => self.give_back(header, take(header, body)?, room),
            Some(Kind::Read) => self.read(header, take(header, body)?, room),
            Some(Kind::WriteHome) => self.write(header, take(header, body)?, room),
            Some(Kind::Space) => self.space(header, take(header, body)?, room),
            Some(Kind::Lock) => self.lock(header, take(header, body)?, room),
            Some(Kind::Unlock) => self.unlock(header, take(header, body)?, room),
            Some(Kind::PassDescription) => self.pass(header, take(header, body)?, room),
            Some(Kind::DescriptionIo) => self.transfer(header, take(header, body)?, room),
            Some(Kind::Epoch) => self.epoch(header, take(header, body)?, room),
            Some(Kind::Memory) => self.lend_memory(header, take(header, body)?, room),
            _ => Err(Failure::Unserved),
        })
    }

    /// Our memory, to be read by a process of another node.
    fn lend_memory(
        &mut self,
        header: &Header,
        request::Memory {}: request::Memory,
        room: &mut [u8],
    ) -> Handled {
        let memory = self.memory.as_ref().ok_or(failure(Errno::EOPNOTSUPP))?;
        let Layout { kernels, memory_bytes } = memory.1;
        self.lends_memory = true;
        put::<message::Memory>(header, &reply::Memory { kernels, memory_bytes }, room)
    }

    /// A node is dead: what it had open is closed.
    fn epoch(&mut self, header: &Header, asked: request::Epoch<'_>, room: &mut [u8]) -> Handled {
        if !self.is_supervisor && !planted!(AnyoneTellsDeaths) {
            self.sessions.refuse(header.source, Fault::Role);
            return Err(Failure::Protocol);
        }
        for node in asked.dead.iter() {
            self.bury(node, asked.epoch);
        }
        put::<message::Epoch>(header, &reply::Epoch { epoch: asked.epoch }, room)
    }
}

/// The answer to a message in `outgoing`, and its length; `None`: there is none.
pub fn reply_to(
    agent: &mut Agent,
    message: &[u8],
    is_supervisor: impl FnOnce() -> bool,
    outgoing: &mut [u8],
) -> Option<usize> {
    let (head, room) = outgoing.split_at_mut_checked(HEADER_BYTES)?;
    let reply = match Header::split(message) {
        Ok((header, body)) => {
            agent.is_supervisor = header.kind == Kind::Epoch as u16 && is_supervisor();
            let reply = agent.handle(&header, body, room);
            match reply {
                Err(_) if header.role != Role::Request => return None,
                reply => reply.unwrap_or_else(|failure| header.answer(Some(failure))),
            }
        }
        Err(fault) => {
            let known = message.first_chunk().and_then(|head| Header::decode(head).ok());
            agent.sessions.refuse(known.map_or(0, |header| header.source), fault);
            known.filter(|header| header.role == Role::Request)?.answer(Some(Failure::Protocol))
        }
    };
    head.copy_from_slice(&reply.encode());
    Some(HEADER_BYTES + reply.length as usize)
}
