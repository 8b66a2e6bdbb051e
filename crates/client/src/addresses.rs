//! Unix sockets whose names lie in Husk trees.
//!
//! The socket is the host's; the name is a node of the tree. What the host knows instead of the
//! path is an abstract name made of the node, which nobody outside the image can guess (but read,
//! once it is bound: `/proc/net/unix` shows it, and it has no mode; SECURITY.md):
//!
//! ```text
//!   bind(fd, "run/s")  ──► node `run/s` (kind Socket, keeps the text "run/s" and the type)
//!                     └──► host: bind(fd, \0 token inode generation "run/s")
//!   connect(fd, "run/s") ──► node ──► host: connect(fd, \0 token inode generation "run/s")
//!   getsockname, accept, recvfrom ... ──► the text again
//! ```
//!
//! Invariants
//! 1. Who reaches the abstract name by a path has found the node and may write to it, as on Linux.
//! 2. A node that is gone, moved or made by `mknod` leads nowhere, or where it led before, exactly
//!    as on Linux: the socket belongs to the node, not to the path.
//! 3. No abstract name of ours is shown to the application.

use crate::layout::{get16, get32, get64, put};
use crate::path::{Aim, Last, Place};
use crate::sockets::{MSGHDR_BYTES, NAME_LENGTH_AT};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, passing};
use husk_abi::nr;
use husk_abi::sys::general::AT_FDCWD;
use husk_proto::fs::{Kind, Node};
use husk_proto::{Errno, Inode, Result, Services};

/// `AF_UNIX`.
const UNIX: u16 = 1;
/// `SOL_SOCKET`, `SO_DOMAIN`, `SO_TYPE`.
const SOCKET_LEVEL: usize = 1;
const DOMAIN: usize = 39;
const TYPE: usize = 3;
/// Bytes of `struct sockaddr_un`.
const ADDRESS_BYTES: usize = 110;
/// Where the path stands in it.
const PATH_AT: usize = 2;
/// Bytes of a path, the NUL not counted.
const TEXT_MAX: usize = 107;
/// Where the token stands in a name of ours, after family and NUL; then the inode, then the text.
const TOKEN_AT: usize = 3;
const INODE_AT: usize = TOKEN_AT + SPELT_BYTES;
const TEXT_AT: usize = INODE_AT + SPELT_BYTES;
/// Bytes of a number as it is spelt in a name: six bits each, for `/proc/net/unix` shows them.
const SPELT_BYTES: usize = 11;
const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// Where an address stands behind a header on the application's stack.
const NAME_AT: usize = 64;

/// A `struct sockaddr_un` and its length.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; ADDRESS_BYTES],
    length: usize,
}

impl Name {
    fn of(text: &[u8]) -> Result<Name> {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[0] = UNIX as u8;
        let place = bytes.get_mut(PATH_AT..PATH_AT + text.len()).ok_or(Errno::ENAMETOOLONG)?;
        place.copy_from_slice(text);
        Ok(Name { bytes, length: (PATH_AT + text.len() + 1).min(ADDRESS_BYTES) })
    }

    /// The text of a path, up to its NUL.
    fn text(&self) -> &[u8] {
        let text = &self.bytes[PATH_AT..self.length];
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        &text[..end]
    }

    fn is_path(&self) -> bool {
        self.length > PATH_AT && get16(&self.bytes, 0) == UNIX && self.bytes[PATH_AT] != 0
    }
}

/// Where a message or a connection goes.
enum Way {
    /// As the application says.
    Same,
    /// There.
    Other(Name),
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    // ---- names that come in -------------------------------------------------------------------

    /// `bind`.
    pub(crate) fn bind(&mut self, c: &Call) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        let Some(name) = self.path_given(c.args[0], c.args[1], c.args[2])? else {
            return Ok(Verdict::Pass);
        };
        match self.find_name(&name, Aim::PARENT)? {
            Place::Host => Ok(Verdict::Pass),
            Place::Elsewhere => {
                let there = Name::of(self.buffers.walks[0].whole())?;
                let args = [c.args[0], there.bytes.as_ptr() as usize, there.length, 0, 0, 0];
                Ok(Verdict::Return(self.host.call(nr::bind, args)))
            }
            Place::Husk(_) => self.bind_here(c.args[0], &name),
        }
    }

    /// Makes the node that walk 0 has found room for, and binds the socket to it.
    fn bind_here(&mut self, fd: usize, name: &Name) -> Answer {
        let target = self.found[0];
        if target.last != Last::Name {
            return Err(Errno::EADDRINUSE);
        }
        self.refuse_slash(0, &target).map_err(in_use)?;
        let kind = self.socket_option(fd, TYPE).ok_or(Errno::ENOTSOCK)? as u8;
        let (mode, bound) = (self.socket_mode(fd)?, self.own_name(nr::getsockname, fd)?);
        if bound.length > PATH_AT {
            return Err(Errno::EINVAL);
        }
        let mut text = [0; TEXT_MAX + 2];
        let length = name.text().len();
        text[..length].copy_from_slice(name.text());
        text[length] = kind;
        let mode = mode & !self.services.umask();
        let node = Node::Socket { mode, text: &text[..=length] };
        let at = self.buffers.walks[0].text.get(target.name.0..target.name.1).unwrap_or(&[]);
        let who = self.identity.credentials(&self.buffers.groups);
        let made = self.services.create(&who, target.directory, at, node).map_err(in_use)?;
        let there = self.name_of_node(made, name.text());
        let args = [fd, there.bytes.as_ptr() as usize, there.length, 0, 0, 0];
        let result = self.host.call(nr::bind, args);
        if result < 0 {
            let at = self.buffers.walks[0].text.get(target.name.0..target.name.1).unwrap_or(&[]);
            let who = self.identity.credentials(&self.buffers.groups);
            self.services.unlink(&who, target.directory, at)?;
        }
        self.services.note_sockets();
        Ok(Verdict::Return(result))
    }

    /// Permission bits of the node of a socket: those of the socket itself.
    fn socket_mode(&mut self, fd: usize) -> Result<u32> {
        const STAT_BYTES: usize = 144;
        const MODE_AT: usize = 24;
        let mut stat = [0u8; STAT_BYTES];
        let args = [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0];
        Errno::check(self.host.call(nr::fstat, args))?;
        Ok(get32(&stat, MODE_AT) & 0o777)
    }

    /// `connect`.
    pub(crate) fn connect(&mut self, c: &Call) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        self.with_name(c, c.args[1], c.args[2], |args, at, length| {
            (args[1], args[2]) = (at, length);
        })
    }

    /// `sendto`.
    pub(crate) fn sendto(&mut self, c: &Call) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        if c.args[4] == 0 {
            return Ok(Verdict::Pass);
        }
        self.with_name(c, c.args[4], c.args[5], |args, at, length| {
            (args[4], args[5]) = (at, length);
        })
    }

    /// The call with another name, put on the application's stack; or the same call.
    fn with_name(
        &mut self,
        c: &Call,
        address: usize,
        length: usize,
        change: impl Fn(&mut [usize; 6], usize, usize),
    ) -> Answer {
        let Way::Other(name) = self.way(c.args[0], address, length)? else {
            return Ok(Verdict::Pass);
        };
        let at = self.host.stack_room(ADDRESS_BYTES);
        self.memory.write(at, &name.bytes)?;
        let mut args = c.args;
        change(&mut args, at, name.length);
        let call = After { number: c.number, args, reason: passing::NOTHING };
        Ok(Verdict::Instead { call, room: ADDRESS_BYTES })
    }

    /// `sendmsg` to a name: header and name move to the application's stack if it is one of ours.
    pub(crate) fn send_to_name(&mut self, c: &Call) -> Answer {
        let mut header = [0u8; NAME_AT];
        if self.memory.read(c.args[1], &mut header[..MSGHDR_BYTES]).is_err() {
            return Ok(Verdict::Pass);
        }
        let (address, length) =
            (get64(&header, 0) as usize, get32(&header, NAME_LENGTH_AT) as usize);
        if address == 0 {
            return Ok(Verdict::Pass);
        }
        let Way::Other(name) = self.way(c.args[0], address, length)? else {
            return Ok(Verdict::Pass);
        };
        let at = self.host.stack_room(NAME_AT + ADDRESS_BYTES);
        put(&mut header, 0, (at as u64 + NAME_AT as u64).to_le_bytes());
        put(&mut header, NAME_LENGTH_AT, (name.length as u32).to_le_bytes());
        self.memory.write(at, &header)?;
        self.memory.write(at + NAME_AT, &name.bytes)?;
        let mut args = c.args;
        args[1] = at;
        let call = After { number: c.number, args, reason: passing::NOTHING };
        Ok(Verdict::Instead { call, room: NAME_AT + ADDRESS_BYTES })
    }

    /// Where the name at `address` leads.
    fn way(&mut self, fd: usize, address: usize, length: usize) -> Result<Way> {
        let Some(name) = self.path_given(fd, address, length)? else { return Ok(Way::Same) };
        match self.find_name(&name, Aim::FOLLOW)? {
            Place::Host => Ok(Way::Same),
            Place::Elsewhere => Name::of(self.buffers.walks[0].whole()).map(Way::Other),
            Place::Husk(target) => {
                let step = target.existing()?;
                if self.is_portal(0, &target)? {
                    return Name::of(self.buffers.walks[0].whole()).map(Way::Other);
                }
                self.identity.credentials(&self.buffers.groups).permit(&step, 2)?;
                if step.kind != Kind::Socket {
                    return Err(Errno::ECONNREFUSED);
                }
                let (text, kind) = self.kept_text(step.inode)?;
                if self.socket_option(fd, TYPE) != Some(u32::from(kind)) {
                    return Err(Errno::EPROTOTYPE);
                }
                Ok(Way::Other(self.name_of_node(step.inode, text.text())))
            }
        }
    }

    /// The path at `address`, if it is one, and `fd` a unix socket. All else is the host's.
    fn path_given(&mut self, fd: usize, address: usize, length: usize) -> Result<Option<Name>> {
        let mut name = Name { bytes: [0; ADDRESS_BYTES], length };
        if length > ADDRESS_BYTES || self.memory.read(address, &mut name.bytes[..length]).is_err() {
            return Ok(None);
        }
        Ok((name.is_path() && self.is_unix(fd)).then_some(name))
    }

    fn is_unix(&self, fd: usize) -> bool {
        self.socket_option(fd, DOMAIN) == Some(u32::from(UNIX))
    }

    fn socket_option(&self, fd: usize, option: usize) -> Option<u32> {
        let (mut value, mut length) = (0u32, 4u32);
        let out = &raw mut value as usize;
        let args = [fd, SOCKET_LEVEL, option, out, &raw mut length as usize, 0];
        (self.host.call(nr::getsockopt, args) == 0).then_some(value)
    }

    /// The address a node keeps, and the type of its socket. One that `mknod` made has none.
    fn kept_text(&mut self, node: Inode) -> Result<(Name, u8)> {
        let mut text = [0; TEXT_MAX + 2];
        match self.services.read_link(node, &mut text)?.min(TEXT_MAX + 1) {
            0 => Err(Errno::ECONNREFUSED),
            length => Ok((Name::of(&text[..length - 1])?, text[length - 1])),
        }
    }

    fn find_name(&mut self, name: &Name, aim: Aim) -> Result<Place> {
        let text = name.text();
        let walk = &mut self.buffers.walks[0];
        walk.text[..text.len()].copy_from_slice(text);
        (walk.at, walk.length) = (0, text.len());
        self.find_text(AT_FDCWD, 0, aim)
    }

    /// What the host knows a node as. A text that does not fit stands in the node only.
    fn name_of_node(&self, inode: Inode, text: &[u8]) -> Name {
        let mut name = Name { bytes: [0; ADDRESS_BYTES], length: TEXT_AT };
        name.bytes[0] = UNIX as u8;
        let node = u64::from(inode.generation) << 32 | u64::from(inode.number);
        put(&mut name.bytes, TOKEN_AT, spelt(self.services.socket_token()));
        put(&mut name.bytes, INODE_AT, spelt(node));
        if let Some(place) = name.bytes.get_mut(TEXT_AT..TEXT_AT + text.len()) {
            place.copy_from_slice(text);
            name.length = TEXT_AT + text.len();
        }
        name
    }

    // ---- names that go out --------------------------------------------------------------------

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
        self.show(&shown, c.args[1], c.args[2], room as usize)?;
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
        if c.args[4] == 0 || c.args[5] == 0 || !self.services.sockets() {
            return self.other_kind(c, Errno::ENOTSOCK);
        }
        self.then_name(c, passing::SENDER, c.args[5], 1)
    }

    /// `accept`: as any new descriptor, unless there are names of ours.
    pub(crate) fn accept(&mut self, c: &Call, close_on_exec: bool) -> Answer {
        if self.need_numbers(1).is_err() && self.socket_option(c.args[0], TYPE).is_some() {
            // The connection waits for a number; what is no socket is the host's to say.
            return Err(Errno::EMFILE);
        }
        let named = c.args[1] != 0 && c.args[2] != 0 && self.services.sockets();
        match (named, close_on_exec) {
            (false, _) => self.socket_then(c, passing::opened(close_on_exec)),
            (true, true) => self.then_name(c, passing::ACCEPTED_CLOSE_ON_EXEC, c.args[2], 4),
            (true, false) => self.then_name(c, passing::ACCEPTED, c.args[2], 4),
        }
    }

    /// `recvmsg`.
    pub(crate) fn recvmsg(&mut self, c: &Call) -> Answer {
        if !self.services.sockets() {
            return self.socket_then(c, passing::MESSAGE);
        }
        let length = c.args[1].saturating_add(NAME_LENGTH_AT);
        self.then_name(c, passing::NAMED_MESSAGE, length, 3)
    }

    /// A call on a socket that leaves something to note.
    pub(crate) fn socket_then(&mut self, c: &Call, reason: u32) -> Answer {
        match self.other_kind(c, Errno::ENOTSOCK)? {
            Verdict::Pass => passing::then(c, reason),
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
        if self.memory.read(address, &mut bytes[..there]).is_err() || there < TEXT_AT {
            return;
        }
        if let Some(shown) = self.shown(&bytes[..there], full) {
            // What the application gave was written to a moment ago.
            let _ = self.show(&shown, address, length, room);
        }
    }

    /// The name of the other side of a connection just accepted.
    pub(crate) fn show_accepted(&mut self, fd: usize, address: usize, length: usize, room: usize) {
        if let Ok(name) = self.own_name(nr::getpeername, fd)
            && let Some(shown) = self.shown(&name.bytes, name.length)
        {
            let _ = self.show(&shown, address, length, room);
        }
    }

    fn own_name(&mut self, number: usize, fd: usize) -> Result<Name> {
        let mut name = Name { bytes: [0; ADDRESS_BYTES], length: 0 };
        let mut length = ADDRESS_BYTES as u32;
        let args = [fd, name.bytes.as_mut_ptr() as usize, &raw mut length as usize, 0, 0, 0];
        Errno::check(self.host.call(number, args))?;
        name.length = length as usize;
        Ok(name)
    }

    /// What the application is to see for a name of `full` bytes; `None`: it is not ours.
    fn shown(&mut self, bytes: &[u8], full: usize) -> Option<Name> {
        if bytes.len() < TEXT_AT || get16(bytes, 0) != UNIX || bytes[PATH_AT] != 0 {
            return None;
        }
        if read_number(bytes, TOKEN_AT) != Some(self.services.socket_token()) {
            return None;
        }
        if full > TEXT_AT && full <= bytes.len() {
            return Name::of(&bytes[TEXT_AT..full]).ok();
        }
        let node = read_number(bytes, INODE_AT)?;
        let inode = Inode { number: node as u32, generation: (node >> 32) as u32 };
        match self.kept_text(inode) {
            Ok((name, _)) => Some(name),
            Err(_) => Name::of(&[]).ok().map(|unnamed| Name { length: PATH_AT, ..unnamed }),
        }
    }

    /// Writes as much of a name as there is room for, and its whole length.
    fn show(&mut self, name: &Name, address: usize, length: usize, room: usize) -> Result<()> {
        self.memory.write(address, &name.bytes[..name.length.min(room)])?;
        self.memory.write(length, &(name.length as u32).to_le_bytes())
    }
}

fn in_use(errno: Errno) -> Errno {
    if errno == Errno::EEXIST { Errno::EADDRINUSE } else { errno }
}

fn spelt(number: u64) -> [u8; SPELT_BYTES] {
    core::array::from_fn(|n| LETTERS[(number >> (6 * n) & 63) as usize])
}

fn read_number(bytes: &[u8], at: usize) -> Option<u64> {
    let digits = bytes.get(at..at + SPELT_BYTES)?;
    digits.iter().rev().try_fold(0u64, |number, digit| {
        let value = LETTERS.iter().position(|letter| letter == digit)?;
        Some(number << 6 | value as u64)
    })
}
