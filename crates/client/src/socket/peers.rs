//! Socket names that an application reads: its own, its peers', a sender's.
//!
//! The host knows a name of a Husk tree by the name of its node (`addresses`); here that
//! becomes the text again, in place, after the host has written it.

use crate::layout::{get32, get64};
use crate::reason;
use crate::socket::addresses::TYPE;
use crate::socket::messages::{MESSAGES_MAX, MMSGHDR_BYTES, MSGHDR_BYTES, NAME_LENGTH_AT};
use crate::socket::name::{ADDRESS_BYTES, Name, PATH_AT, may_be_lanes, node_of};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_proto::{Errno, Result, Services};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `getsockname`, `getpeername`.
    pub(crate) fn name_shown(&mut self, c: &Call) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        if !self.services.sockets() {
            return Ok(Verdict::Pass);
        }
        let Ok(name) = self.own_name(c.number, c.args[0]) else { return Ok(Verdict::Pass) };
        let Some(shown) = self.shown(&name.bytes, name.length) else { return Ok(Verdict::Pass) };
        let mut room = [0u8; 4];
        self.memory.read(c.args[2], &mut room)?;
        let room = i32::from_le_bytes(room);
        if room < 0 {
            return Err(Errno::EINVAL);
        }
        self.show(&shown, 0, c.args[1], c.args[2], room as usize)?;
        Ok(Verdict::Return(0))
    }

    /// `accept`, `recvfrom`, `recvmsg`: `length` is where the room for the name is given, which
    /// the host overwrites; it is kept in argument `keep` of what is noted.
    pub(crate) fn then_name(
        &mut self,
        c: &Call,
        reason: u32,
        length: usize,
        keep: usize,
    ) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        let mut room = [0u8; 4];
        if length != 0 && self.memory.read(length, &mut room).is_err() {
            return Ok(Verdict::Pass);
        }
        let mut args = c.args;
        args[keep] = u32::from_le_bytes(room) as usize;
        Ok(Verdict::PassThen(After { number: c.number, args, reason }))
    }

    /// `recvfrom`: a name is asked for, and there are names of ours.
    pub(crate) fn recvfrom(&mut self, c: &Call) -> Answer {
        if let Some(answer) = self.lane_recvfrom(c) {
            return answer;
        }
        if c.args[4] == 0 || c.args[5] == 0 || !self.services.sockets() {
            return self.other_kind(c, Errno::ENOTSOCK);
        }
        self.then_name(c, reason::SENDER, c.args[5], 1)
    }

    /// `accept`: as any new descriptor, unless there are names of ours.
    pub(crate) fn accept(&mut self, c: &Call, close_on_exec: bool) -> Answer {
        if self.need_numbers(1).is_err() && self.socket_option(c.args[0], TYPE).is_some() {
            // The connection waits for a number; what is no socket is the host's to say.
            return Err(Errno::EMFILE);
        }
        let named = c.args[1] != 0 && c.args[2] != 0;
        match (named, close_on_exec) {
            (false, true) => self.socket_then(c, reason::ACCEPTED_CLOSE_ON_EXEC),
            (false, false) => self.socket_then(c, reason::ACCEPTED),
            (true, true) => self.then_name(c, reason::ACCEPTED_CLOSE_ON_EXEC, c.args[2], 4),
            (true, false) => self.then_name(c, reason::ACCEPTED, c.args[2], 4),
        }
    }

    /// `recvmsg`.
    pub(crate) fn recvmsg(&mut self, c: &Call) -> Answer {
        if let Some(answer) = self.lane_recvmsg(c) {
            return answer;
        }
        if !self.services.sockets() {
            return self.socket_then(c, reason::MESSAGE);
        }
        let length = c.args[1].saturating_add(NAME_LENGTH_AT);
        self.then_name(c, reason::NAMED_MESSAGE, length, 3)
    }

    /// `recvmmsg`: the least room that is given for a name is what each has, for the host
    /// overwrites them all.
    pub(crate) fn recvmmsg(&mut self, c: &Call) -> Answer {
        self.surrender(c.args[0])?;
        match self.other_kind(c, Errno::ENOTSOCK)? {
            Verdict::Pass => {}
            other => return Ok(other),
        }
        let mut args = c.args;
        args[5] = if self.services.sockets() { self.least_room(c.args[1], c.args[2]) } else { 0 };
        Ok(Verdict::PassThen(After { number: c.number, args, reason: reason::MESSAGES }))
    }

    /// The least room for a name in `count` messages at `messages`; 0: no name is asked for.
    fn least_room(&mut self, messages: usize, count: usize) -> usize {
        let mut least = usize::MAX;
        for index in 0..count.min(MESSAGES_MAX) {
            let mut head = [0u8; MSGHDR_BYTES];
            let header = messages.saturating_add(index * MMSGHDR_BYTES);
            if self.memory.read(header, &mut head).is_err() {
                break;
            }
            if get64(&head, 0) != 0 {
                least = least.min(get32(&head, NAME_LENGTH_AT) as usize);
            }
        }
        if least == usize::MAX { 0 } else { least }
    }

    /// A call on a socket that leaves something to note.
    pub(crate) fn socket_then(&mut self, c: &Call, reason: u32) -> Answer {
        match self.other_kind(c, Errno::ENOTSOCK)? {
            Verdict::Pass => reason::then(c, reason),
            other => Ok(other),
        }
    }

    /// Shows the text of a name of ours that the host has written at `address`, for which there
    /// were `room` bytes and whose length stands at `length`.
    pub(crate) fn show_received(&mut self, address: usize, length: usize, room: usize) {
        let (mut word, mut bytes) = ([0u8; 4], [0u8; ADDRESS_BYTES]);
        if self.memory.read(length, &mut word).is_err() {
            return;
        }
        let full = u32::from_le_bytes(word) as usize;
        let there = full.min(room).min(ADDRESS_BYTES);
        if self.memory.read(address, &mut bytes[..there]).is_err() {
            return;
        }
        if may_be_lanes(&bytes[..there], full, self.services.private_path()) {
            // Of a sender without a name Linux says nothing at all.
            let _ = self.memory.write(length, &[0; 4]);
            return;
        }
        if let Some(shown) = self.shown(&bytes[..there], full) {
            // What the application gave was written to a moment ago.
            let _ = self.show(&shown, full, address, length, room);
        }
    }

    /// The name of the other side of a connection just accepted.
    pub(crate) fn show_accepted(&mut self, fd: usize, address: usize, length: usize, room: usize) {
        if let Ok(name) = self.own_name(nr::getpeername, fd)
            && let Some(shown) = self.shown(&name.bytes, name.length)
        {
            let _ = self.show(&shown, name.length, address, length, room);
        }
    }

    pub(crate) fn own_name(&mut self, number: usize, fd: usize) -> Result<Name> {
        let mut name = Name::empty(0);
        let mut length = ADDRESS_BYTES as u32;
        let args = [fd, name.bytes.as_mut_ptr() as usize, &raw mut length as usize, 0, 0, 0];
        Errno::check(self.host.call(number, args))?;
        name.length = length as usize;
        Ok(name)
    }

    /// What the application is to see for a name of `full` bytes; `None`: it is not ours.
    fn shown(&mut self, bytes: &[u8], full: usize) -> Option<Name> {
        let private = self.services.private_path();
        if may_be_lanes(bytes, full, private) {
            return Some(Name { length: PATH_AT, ..Name::of(&[]).ok()? });
        }
        let (inode, text) = node_of(bytes, private)?;
        match (self.kept_text(inode), text) {
            (Ok((name, _)), _) => Some(name),
            // The node is gone. Of a name that was cut nothing is sure.
            (Err(_), Some(text)) if full <= bytes.len() => Some(text),
            (Err(_), _) => Name::of(&[]).ok().map(|unnamed| Name { length: PATH_AT, ..unnamed }),
        }
    }

    /// Writes as much of a name as there is room for, and its whole length, over one of `full`
    /// bytes: some programs (PostgreSQL) look behind the end.
    fn show(
        &mut self,
        name: &Name,
        full: usize,
        address: usize,
        length: usize,
        room: usize,
    ) -> Result<()> {
        let mut bytes = [0; ADDRESS_BYTES + 1];
        bytes[..ADDRESS_BYTES].copy_from_slice(&name.bytes);
        let whole = name.length + usize::from(name.is_unended());
        self.memory.write(address, &bytes[..whole.max(full).min(bytes.len()).min(room)])?;
        self.memory.write(length, &(whole as u32).to_le_bytes())
    }
}
