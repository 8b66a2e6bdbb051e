//! Unix sockets of the image that are streams: two *lanes*, each a pipe (`pipe`), so that bytes go
//! through rings while both sides are awake, and through the host otherwise (`docs/adr/0044`).
//!
//! ```text
//!   socketpair ──► two numbers; each reads from its own lane, writes to that one's mate
//!   socket     ──► one number, with lanes whose other end is awaited
//!   connect to a node, or to an abstract name of a program of the image
//!              ──► the host's socket is bound to a name that says which lanes those are
//!   accept     ──► the name of who connected: the other end of its lanes
//!   listen, connect to anything else ──► no lanes any more
//! ```
//!
//! `streams` has the calls that move bytes, `ring_drain` what becomes of those in a ring when the
//! host is to have them.

use crate::layout::get32;
use crate::socket::addresses::DOMAIN;
use crate::socket::name::{ADDRESS_BYTES, Name, lane_of};
use crate::{After, Client, Host, Memory};
use husk_abi::nr;
use husk_abi::sys::general::{O_CLOEXEC, S_IFSOCK};
use husk_abi::sys::net::{AF_UNIX, SO_PASSCRED, SO_PASSSEC, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET};
use husk_proto::Services;
use husk_proto::descriptor::Shown;
use husk_proto::pipe::{End, Pipe};

/// Bits of a socket's type that are no flags (`SOCK_TYPE_MASK`).
const TYPE_MASK: usize = 0xf;
/// `SO_PASSPIDFD`.
pub(crate) const SO_PASSPIDFD: u32 = 76;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// After `socketpair`: its numbers become ends of two lanes, where that is wanted and possible.
    #[cold]
    pub(crate) fn socket_pair_made(&mut self, after: &After) {
        let [domain, kind, _, address, ..] = after.args;
        let streams = domain == AF_UNIX as usize && kind & TYPE_MASK == SOCK_STREAM as usize;
        let mut pair = [0u8; 8];
        let wanted = streams && self.services.lanes_wanted() && self.is_in_reach();
        if !wanted || self.memory.read(address, &mut pair).is_err() {
            return;
        }
        let pair = [get32(&pair, 0), get32(&pair, 4)];
        let [Some(one), Some(other)] = pair.map(|fd| self.host_socket(fd as usize)) else { return };
        let files = self.services.files();
        // Too many, no memory: this pair stays all the host's.
        let _ = self.services.lanes_make(files, pair, [one, other]);
    }

    /// After `socket`: one that may be connected by name gets lanes before anybody can have another
    /// number of it.
    pub(crate) fn socket_made(&mut self, after: &After, result: i64) -> i64 {
        let [domain, kind, ..] = after.args;
        let noted = match u32::try_from(result) {
            Ok(fd) => self.note_opened(fd, kind & O_CLOEXEC as usize != 0, Shown::Nothing),
            Err(_) => return result,
        };
        let streams = domain == AF_UNIX as usize && kind & TYPE_MASK == SOCK_STREAM as usize;
        if noted >= 0 && streams && self.services.lanes_wanted() && self.is_in_reach() {
            let files = self.services.files();
            if let Some(host) = self.host_socket(noted as usize) {
                // Too many: this one stays all the host's.
                let _ = self.services.lane_make_one(files, noted as u32, host);
            }
        }
        if noted >= 0 {
            self.tcp_socket_made(after, noted as u32);
        }
        noted
    }

    /// After `accept`: if the socket at the other end has lanes, they are this one's as well.
    pub(crate) fn other_end_met(&mut self, fd: u32) {
        if !self.services.any_lane_awaits() || !self.is_in_reach() {
            return;
        }
        if self.socket_option(fd as usize, DOMAIN) != Some(AF_UNIX) {
            if self.is_internet(fd as usize) {
                self.tcp_end_met(fd);
            }
            return;
        }
        // What the listener asks of a connection comes with more than bytes.
        let says_more =
            |&option| self.socket_option(fd as usize, option as usize).unwrap_or(0) != 0;
        if [SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD].iter().any(says_more) {
            return;
        }
        let Some(host) = self.host_socket(fd as usize) else { return };
        let Ok(name) = self.own_name(nr::getpeername, fd as usize) else { return };
        let name = &name.bytes[..name.length.min(ADDRESS_BYTES)];
        let Some(lane) = lane_of(name, self.services.private_path()) else { return };
        let Some(pid) = self.peer_in_reach(fd as usize) else { return };
        let files = self.services.files();
        // It has gone again, or has been claimed before.
        let _ = self.services.lane_claim(files, fd, host, Pipe(lane), pid);
    }

    /// The process that has connected to a socket, if it is of the user that this one is, in every
    /// respect, or there is a lender: else one could not borrow from the other.
    fn peer_in_reach(&self, fd: usize) -> Option<u32> {
        let [pid, user, group] = self.peer_of(fd)?;
        let mut own = [0u32; 6];
        for (call, at) in [(nr::getresuid, 0), (nr::getresgid, 3)] {
            let [real, effective, saved] = [0, 1, 2].map(|n| &raw mut own[at + n] as usize);
            self.host.call(call, [real, effective, saved, 0, 0, 0]);
        }
        let own = core::hint::black_box(own);
        let same = own[..3].iter().all(|&id| id == user) && own[3..].iter().all(|&id| id == group);
        (same || self.reaches_all_users()).then_some(pid)
    }

    /// Process, user and group of who has connected to a unix socket, or listens at its other end.
    fn peer_of(&self, fd: usize) -> Option<[u32; 3]> {
        let (mut peer, mut length) = ([0u32; 3], 12u32);
        let (at, room) = (peer.as_mut_ptr() as usize, &raw mut length as usize);
        let level = SOL_SOCKET as usize;
        let told = self.host.call(nr::getsockopt, [fd, level, SO_PEERCRED as usize, at, room, 0]);
        let peer = core::hint::black_box(peer);
        (told == 0).then_some(peer)
    }

    /// Who accepts the connection is to know its lanes. A socket that has a name of its own keeps
    /// that; then who accepts finds no lanes.
    fn introduce(&mut self, fd: usize) {
        let Some(end) = self.socket_end(fd) else { return };
        if self.services.lane_mate_awaits(end.pipe) {
            self.services.lane_introduce(end.pipe);
            let name = Name::of_lane(self.services.private_path(), end.pipe.0);
            let args = [fd, name.bytes.as_ptr() as usize, name.length, 0, 0, 0];
            self.host.call(nr::bind, args);
        }
    }

    /// `connect` to a node has ended.
    pub(crate) fn connected(&mut self, fd: usize, result: i64) -> i64 {
        if result == 0 {
            self.introduce(fd);
        }
        result
    }

    /// `connect` to an abstract name has ended: the same, if a program of the image listens there.
    pub(crate) fn connected_beside(&mut self, fd: usize, result: i64) -> i64 {
        if result != 0 {
            return result;
        }
        let listener = self.peer_of(fd).map(|[pid, ..]| pid);
        if listener.is_some_and(|pid| self.services.files_of(pid).is_some()) {
            self.services.note_sockets();
            self.introduce(fd);
        } else {
            self.forget_lanes(fd);
        }
        result
    }

    /// The socket is the host's alone again: nobody of the image will be at its other end, or
    /// neither lane has a ring any more.
    pub(crate) fn forget_lanes(&mut self, fd: usize) {
        if self.socket_end(fd).is_some() {
            let files = self.services.files();
            self.services.lane_forget(files, fd as u32);
        }
    }

    /// The host's number of the socket behind a descriptor.
    pub(crate) fn host_socket(&self, fd: usize) -> Option<u64> {
        self.host_number(fd).filter(|&(kind, _)| kind == S_IFSOCK).map(|(_, number)| number)
    }

    /// The lane behind a descriptor of the host's that is a socket nobody has named in this table.
    pub(crate) fn find_lane(&mut self, fd: usize) -> Option<End> {
        let pipe = self.host_socket(fd).and_then(|host| self.services.lane_find(host))?;
        Some(End { pipe, writes: false, socket: true })
    }

    /// The pipe that a read or a write on an end goes through, as an end of that.
    #[inline(always)]
    pub(crate) fn lane(&self, end: End, writes: bool) -> Option<End> {
        if !end.socket {
            return (end.writes == writes).then_some(end);
        }
        let pipe = if writes { self.services.lane_mate(end.pipe)? } else { end.pipe };
        Some(End { pipe, writes, socket: true })
    }

    /// The socket behind a number.
    pub(crate) fn socket_end(&mut self, fd: usize) -> Option<End> {
        self.pipe_end(fd).filter(|end| end.socket)
    }
}
