//! Unix sockets that are bound to a name in a Husk tree.
//!
//! The socket is the host's; the name is a node of the tree. What the host knows instead of the
//! path lies in the image's private directory and is named after the node (`name`):
//!
//! ```text
//!   bind(fd, "run/s")  ──► node `run/s` (kind Socket, keeps the text "run/s" and the type)
//!                     └──► host: bind(fd, PRIVATE/node), open to all who can name it
//!   connect(fd, "run/s") ──► node ──► host: connect(fd, PRIVATE/node)
//!   getsockname, accept, recvfrom ... ──► the text again (`peers`)
//! ```
//!
//! Invariants
//! 1. Who reaches the host's name by a path has found the node and may write to it, as on Linux.
//! 2. A node that is gone, moved or made by `mknod` leads nowhere, or where it led before, exactly
//!    as on Linux: the socket belongs to the node, not to the path.
//! 3. No name of ours is shown to the application. The supervisor removes it once its node is gone.

use crate::layout::{STAT_MODE_AT, get32, get64, put};
use crate::path::{Aim, Last, Place};
use crate::reason;
use crate::socket::messages::{MSGHDR_BYTES, NAME_LENGTH_AT};
use crate::socket::name::{ADDRESS_BYTES, Name, PATH_AT, TEXT_MAX, UNIX};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH};
use husk_proto::fs::{Kind, Node, want};
use husk_proto::{Errno, Inode, Result, Services};

/// `SOL_SOCKET`, `SO_DOMAIN`, `SO_TYPE`.
pub(crate) const SOCKET_LEVEL: usize = 1;
pub(crate) const DOMAIN: usize = 39;
pub(crate) const TYPE: usize = 3;
/// Permissions of what stands behind a node.
const OPEN_TO_ALL: usize = 0o777;
/// Where an address stands behind a header on the application's stack.
const NAME_AT: usize = 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `bind`.
    pub(crate) fn bind(&mut self, c: &Call) -> Answer {
        self.surrender(c.args[0])?;
        self.other_kind(c, Errno::ENOTSOCK)?;
        let Some(name) = self.path_given(c.args[0], c.args[1], c.args[2])? else {
            self.prepare_udp(c.args[0]);
            return Ok(Verdict::Pass);
        };
        match self.find_name(&name, Aim::PARENT)? {
            Place::Host => {
                self.may_bind()?;
                Ok(Verdict::Pass)
            }
            Place::Elsewhere => {
                self.may_bind()?;
                let there = Name::of(self.buffers.walks[0].whole())?;
                Ok(Verdict::Return(self.bind_host(c.args[0], &there)))
            }
            Place::Husk(_) => self.bind_here(c.args[0], &name),
        }
    }

    /// Makes the node that walk 0 has found room for, and binds the socket to it.
    fn bind_here(&mut self, fd: usize, name: &Name) -> Answer {
        let target = *self.paths.found(0);
        if target.last != Last::Name {
            return Err(Errno::EADDRINUSE);
        }
        self.refuse_slash(0, &target).map_err(in_use)?;
        let kind = self.socket_option(fd, TYPE).ok_or(Errno::ENOTSOCK)? as u8;
        let (mode, bound) = (self.socket_mode(fd)?, self.own_name(nr::getsockname, fd)?);
        if bound.length > PATH_AT {
            return Err(Errno::EINVAL);
        }
        let mut text = [0; TEXT_MAX + 1];
        let length = name.text().len();
        text[..length].copy_from_slice(name.text());
        text[length] = kind;
        // Here Linux applies the umask whether there is a default list or not.
        let mode = mode & !self.services.umask();
        let node = Node::Socket { mode, text: &text[..=length] };
        let at = self.buffers.walks[0].name(&target);
        let who = self.identity.credentials(&self.buffers.groups);
        let made = self.services.create(&who, target.directory, at, node).map_err(in_use)?;
        let result = self.bind_behind(fd, made, name.text());
        if result < 0 {
            let at = self.buffers.walks[0].name(&target);
            let who = self.identity.credentials(&self.buffers.groups);
            self.services.unlink(&who, target.directory, at)?;
        }
        self.services.note_sockets();
        Ok(Verdict::Return(result))
    }

    /// Binds to what stands behind a node.
    fn bind_behind(&mut self, fd: usize, node: Inode, text: &[u8]) -> i64 {
        if self.services.private_path().is_empty() {
            self.services.count_unsupported(nr::bind);
            return Errno::EOPNOTSUPP.as_return();
        }
        let private = self.services.private_path();
        let directory = Name::of(private).unwrap_or(Name::empty(PATH_AT));
        let (here, at) = (AT_FDCWD as usize, directory.bytes[PATH_AT..].as_ptr() as usize);
        let flags = (O_PATH | O_DIRECTORY | O_CLOEXEC) as usize;
        let own = self.host.call(nr::openat, [here, at, flags, 0, 0, 0]);
        let Ok(own) = u32::try_from(own) else { return own };
        let result = self.bind_host(fd, &Name::to_bind(own, private, node, text));
        self.host_close(own);
        if result >= 0 {
            // Whatever the umask is: the node says who may.
            let there = Name::of_node(private, node, text);
            let at = there.bytes[PATH_AT..].as_ptr() as usize;
            self.host.call(nr::fchmodat, [here, at, OPEN_TO_ALL, 0, 0, 0]);
        }
        result
    }

    /// Where a node leads. One that nobody has bound anything to: `ECONNREFUSED`.
    fn behind(&self, node: Inode, text: &[u8]) -> Result<Name> {
        let private = self.services.private_path();
        let there = Name::of_node(private, node, text);
        let at = there.bytes[PATH_AT..].as_ptr() as usize;
        match self.host.call(nr::faccessat, [AT_FDCWD as usize, at, 0, 0, 0, 0]) {
            0 => Ok(there),
            _ => Err(Errno::ECONNREFUSED),
        }
    }

    /// What the host knows the socket as.
    fn bind_host(&self, fd: usize, name: &Name) -> i64 {
        self.host.call(nr::bind, [fd, name.bytes.as_ptr() as usize, name.length, 0, 0, 0])
    }

    /// Permission bits of the node of a socket: those of the socket itself.
    fn socket_mode(&mut self, fd: usize) -> Result<u32> {
        Ok(get32(&self.host_stat(fd)?, STAT_MODE_AT) & 0o777)
    }

    /// `connect`.
    pub(crate) fn connect(&mut self, c: &Call) -> Answer {
        self.other_kind(c, Errno::ENOTSOCK)?;
        if let Some(answer) = self.tcp_connect(c) {
            return answer;
        }
        let answer = self.with_name(c, c.args[1], c.args[2], |args, at, length| {
            (args[1], args[2]) = (at, length);
        });
        match answer {
            Ok(Verdict::Instead { mut call, room }) if self.leads_to_node(call.args[1]) => {
                call.reason = reason::CONNECTED;
                Ok(Verdict::Instead { call, room })
            }
            Ok(Verdict::Pass) if self.is_abstract(c.args[0], c.args[1], c.args[2]) => {
                reason::then(c, reason::CONNECTED_BESIDE)
            }
            Ok(Verdict::Pass) => {
                self.forget_lanes(c.args[0]);
                answer
            }
            _ => answer,
        }
    }

    /// Whether the name at `address` is an abstract one, and `fd` a socket with lanes.
    fn is_abstract(&mut self, fd: usize, address: usize, length: usize) -> bool {
        let mut name = [0u8; PATH_AT + 2];
        length >= name.len()
            && self.memory.read(address, &mut name).is_ok()
            && name == [UNIX.to_le_bytes()[0], UNIX.to_le_bytes()[1], 0, name[PATH_AT + 1]]
            && self.socket_end(fd).is_some()
            && self.is_unix(fd)
    }

    /// Whether the name at `address`, which the host is to be given, is a node's.
    fn leads_to_node(&self, address: usize) -> bool {
        let private = self.services.private_path();
        let mut there = [0u8; ADDRESS_BYTES];
        let there = &mut there[..PATH_AT + private.len()];
        self.memory.read(address, there).is_ok() && &there[PATH_AT..] == private
    }

    /// `listen`.
    pub(crate) fn listen(&mut self, c: &Call) -> Answer {
        self.forget_lanes(c.args[0]);
        self.other_kind(c, Errno::ENOTSOCK)
    }

    /// `sendto`.
    pub(crate) fn sendto(&mut self, c: &Call) -> Answer {
        if let Some(answer) = self.lane_sendto(c) {
            return answer;
        }
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
        let Some(name) = self.way(c.args[0], address, length)? else {
            return Ok(Verdict::Pass);
        };
        let at = self.host.stack_room(ADDRESS_BYTES);
        self.memory.write(at, &name.bytes)?;
        let mut args = c.args;
        change(&mut args, at, name.length);
        let call = After { number: c.number, args, reason: reason::NOTHING };
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
        let Some(name) = self.way(c.args[0], address, length)? else {
            return Ok(Verdict::Pass);
        };
        let at = self.host.stack_room(NAME_AT + ADDRESS_BYTES);
        put(&mut header, 0, (at as u64 + NAME_AT as u64).to_le_bytes());
        put(&mut header, NAME_LENGTH_AT, (name.length as u32).to_le_bytes());
        self.memory.write(at, &header)?;
        self.memory.write(at + NAME_AT, &name.bytes)?;
        let mut args = c.args;
        args[1] = at;
        let call = After { number: c.number, args, reason: reason::NOTHING };
        Ok(Verdict::Instead { call, room: NAME_AT + ADDRESS_BYTES })
    }

    /// Where the name at `address` leads, if not where it says.
    pub(crate) fn way(&mut self, fd: usize, address: usize, length: usize) -> Result<Option<Name>> {
        let Some(name) = self.path_given(fd, address, length)? else { return Ok(None) };
        match self.find_name(&name, Aim::FOLLOW)? {
            Place::Host => Ok(None),
            Place::Elsewhere => Name::of(self.buffers.walks[0].whole()).map(Some),
            Place::Husk(target) => {
                let step = target.existing()?;
                if self.is_portal(0, &target)? {
                    return Name::of(self.buffers.walks[0].whole()).map(Some);
                }
                self.permit(&step, want::WRITE)?;
                if step.kind != Kind::Socket {
                    return Err(Errno::ECONNREFUSED);
                }
                if self.services.attributes(step.inode)?.origin.is_some() {
                    // The host's, which the host finds.
                    let end = self.buffers.walks[0].length;
                    self.portal_text(0, step.inode, end)?;
                    return Name::of(self.buffers.walks[0].whole()).map(Some);
                }
                let (text, kind) = self.kept_text(step.inode)?;
                if self.socket_option(fd, TYPE) != Some(u32::from(kind)) {
                    return Err(Errno::EPROTOTYPE);
                }
                self.behind(step.inode, text.text()).map(Some)
            }
        }
    }

    /// The path at `address`, if it is one, and `fd` a unix socket. All else is the host's.
    fn path_given(&mut self, fd: usize, address: usize, length: usize) -> Result<Option<Name>> {
        let mut name = Name::empty(length);
        if length > ADDRESS_BYTES || self.memory.read(address, &mut name.bytes[..length]).is_err() {
            return Ok(None);
        }
        Ok((name.is_path() && self.is_unix(fd)).then_some(name))
    }

    fn is_unix(&self, fd: usize) -> bool {
        self.socket_option(fd, DOMAIN) == Some(u32::from(UNIX))
    }

    pub(crate) fn socket_option(&self, fd: usize, option: usize) -> Option<u32> {
        let (mut value, mut length) = (0u32, 4u32);
        let out = &raw mut value as usize;
        let args = [fd, SOCKET_LEVEL, option, out, &raw mut length as usize, 0];
        (self.host.call(nr::getsockopt, args) == 0).then_some(value)
    }

    /// The address a node keeps, and the type of its socket. One that `mknod` made has none.
    pub(crate) fn kept_text(&mut self, node: Inode) -> Result<(Name, u8)> {
        let mut text = [0; TEXT_MAX + 1];
        match self.services.read_link(node, &mut text)?.min(text.len()) {
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
}

fn in_use(errno: Errno) -> Errno {
    if errno == Errno::EEXIST { Errno::EADDRINUSE } else { errno }
}
