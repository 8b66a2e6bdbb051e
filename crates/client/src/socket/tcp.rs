//! TCP within the host between programs of the image: the connection is the host's, its bytes take
//! two lanes (`lanes`, `docs/adr/0061`).
//!
//! ```text
//!   socket   ──► lanes, whose other end is awaited
//!   connect  ──► posted, first where to, then both addresses: of loopback, or one and the same
//!   accept   ──► the addresses of the connection, reversed, are posted? ──► borrow that socket:
//!                it has them, in our network ──► its lanes' other end
//!   both differ, listen ──► no lanes any more
//! ```
//!
//! Two sockets that live in one network never share a pair of addresses; so the one that is
//! borrowed, and has the reverse of ours, is at our other end.

use crate::layout::{STAT_BYTES, get32, put};
use crate::reason;
use crate::socket::addresses::DOMAIN;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use core::sync::atomic::{AtomicU32, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC, O_NONBLOCK};
use husk_abi::sys::net::{
    AF_INET, AF_INET6, IPPROTO_TCP, SO_SNDBUF, SOCK_STREAM, SOL_SOCKET, TCP_CORK, TCP_NODELAY,
};
use husk_proto::pipe::{Addresses, Delays, End, Pipe, Posted};
use husk_proto::{Errno, Services};

/// Where `struct stat` has the owner.
const STAT_OWNER_AT: usize = 28;
/// Bytes of `struct sockaddr_in6`.
const NAME_BYTES: usize = 28;
/// `SO_NETNS_COOKIE`.
const NETWORK: usize = 71;
/// `TCP_CORK`, `TCP_MD5SIG`, `TCP_REPAIR`, `TCP_FASTOPEN_CONNECT`, `TCP_ULP`: after these bytes go
/// otherwise, or not at once.
const PARTICULAR: [u32; 5] = [TCP_CORK, 14, 19, 30, 31];
/// Looks for the rest of what somebody posts who connects right now.
const POST_LOOKS: u32 = 50;
/// Room for a ring's bytes in an empty socket, as `SO_SNDBUF` says it.
const LEAST_BUFFER: u32 = 262_144;
/// Connections in a row that were not worth their lanes; then one of so many gets some.
const SHORT_MOST: u32 = 8;
const TRIED_EVERY: u32 = 16;

/// Connections of this process in a row that ended after a few reads, and those passed over since.
static SHORT: AtomicU32 = AtomicU32::new(0);

/// Whether the next connection is to get lanes.
fn is_worth_it() -> bool {
    let short = SHORT.load(Ordering::Relaxed);
    if short < SHORT_MOST {
        return true;
    }
    SHORT.fetch_add(1, Ordering::Relaxed);
    short.is_multiple_of(TRIED_EVERY)
}

/// An IPv4 address, or ::1, which is 1, and a port. An IPv4 address in IPv6 is what it is.
fn address_of(name: &[u8; NAME_BYTES], length: usize) -> Option<(u32, u16)> {
    let port = u16::from_be_bytes([name[2], name[3]]);
    let four = |at: usize| u32::from_be_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]);
    let v6 = &name[8..24];
    let address = match u32::from(u16::from_le_bytes([name[0], name[1]])) {
        AF_INET if length >= 16 => four(4),
        AF_INET6 if length >= NAME_BYTES && v6[..10] == [0; 10] && v6[10..12] == [0xff; 2] => {
            four(20)
        }
        AF_INET6 if length >= NAME_BYTES && v6[..15] == [0; 15] && v6[15] == 1 => {
            return Some((1, port));
        }
        _ => return None,
    };
    Some((address, port))
}

/// Whether a connection stays on this host: its ends have loopback addresses, or the same one.
fn stays_here(one: u32, other: u32) -> bool {
    let is_loopback = |address: u32| address == 1 || address >> 24 == 127;
    one == other || is_loopback(one) && is_loopback(other)
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// After `socket`: one of TCP gets lanes before anybody can have another number of it.
    pub(crate) fn tcp_socket_made(&mut self, after: &After, fd: u32) {
        let [domain, kind, protocol, ..] = after.args;
        let internet = [AF_INET as usize, AF_INET6 as usize].contains(&domain);
        let flags = (O_CLOEXEC | O_NONBLOCK) as usize;
        let tcp = internet
            && kind & !flags == SOCK_STREAM as usize
            && [0, IPPROTO_TCP as usize].contains(&protocol);
        if tcp && self.services.lanes_wanted() && self.is_in_reach() && is_worth_it() {
            let files = self.services.files();
            if let Some(host) = self.host_socket(fd as usize) {
                // Too many: this one stays all the host's.
                let _ = self.services.lane_make_one(files, fd, host);
            }
        }
    }

    /// `connect` of a socket whose other end is awaited, to what may be this host. `None`: no such.
    pub(crate) fn tcp_connect(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let (mut name, length) = ([0u8; NAME_BYTES], c.args[2].min(NAME_BYTES));
        self.memory.read(c.args[1], &mut name[..length]).ok()?;
        let (address, port) = address_of(&name, length)?;
        if !self.services.lane_mate_awaits(end.pipe) || self.services.lane_is_tcp(end.pipe) {
            return Some(Ok(Verdict::Pass));
        }
        self.services.lane_introduce(end.pipe);
        let to = Addresses { own: (0, 0), peer: (address, port) };
        self.services.lane_post(end.pipe, Some(&to), false);
        Some(reason::then(c, reason::TCP_CONNECTED))
    }

    /// The host has connected the socket, or is about to.
    pub(crate) fn tcp_connected(&mut self, after: &After, result: i64) -> i64 {
        let Some(end) = self.socket_end(after.args[0]) else { return result };
        let begun = [0, Errno::EINPROGRESS.as_return(), Errno::EINTR.as_return()];
        let to = self.tcp_name(nr::getpeername, after.args[0]).or_else(|| self.named_in(after));
        let own = self.tcp_name(nr::getsockname, after.args[0]);
        match (own, to) {
            (Some(own), Some(peer)) if begun.contains(&result) && stays_here(own.0, peer.0) => {
                self.services.lane_post(end.pipe, Some(&Addresses { own, peer }), true);
            }
            (Some(own), Some(_)) if begun.contains(&result) && own.0 != 0 => {
                self.services.lane_post(end.pipe, None, false);
                self.forget_lanes(after.args[0]);
            }
            _ => self.services.lane_post(end.pipe, None, false),
        }
        result
    }

    /// Where a `connect` goes.
    fn named_in(&self, after: &After) -> Option<(u32, u16)> {
        let (mut name, length) = ([0u8; NAME_BYTES], after.args[2].min(NAME_BYTES));
        self.memory.read(after.args[1], &mut name[..length]).ok()?;
        address_of(&name, length)
    }

    /// A name of a socket, if it is one that connections within a host may have.
    fn tcp_name(&self, number: usize, fd: usize) -> Option<(u32, u16)> {
        let (mut name, mut length) = ([0u8; NAME_BYTES], NAME_BYTES as u32);
        let args = [fd, name.as_mut_ptr() as usize, &raw mut length as usize, 0, 0, 0];
        let told = self.host.call(number, args);
        let (name, length) = core::hint::black_box((name, length));
        if told == 0 { address_of(&name, length as usize) } else { None }
    }

    fn tcp_addresses(&self, fd: usize) -> Option<Addresses> {
        let own = self.tcp_name(nr::getsockname, fd)?;
        Some(Addresses { own, peer: self.tcp_name(nr::getpeername, fd)? })
    }

    /// After `accept`: if the other end has lanes, they are this one's as well.
    pub(crate) fn tcp_end_met(&mut self, fd: u32) {
        let own = self.tcp_addresses(fd as usize);
        let Some(own) = own.filter(|ends| stays_here(ends.own.0, ends.peer.0)) else { return };
        if !is_worth_it() {
            return;
        }
        let other = Addresses { own: own.peer, peer: own.own };
        let Some((lane, pid)) = self.tcp_posted(&other) else { return };
        let enough = self.socket_option(fd as usize, SO_SNDBUF as usize).unwrap_or(0);
        let reaches = self.is_of_our_user(pid) || self.reaches_all_users();
        if enough < LEAST_BUFFER || !reaches {
            return;
        }
        let network = self.network_of(fd as usize);
        let proved = self.with_borrowed(lane, |client, peer| {
            let same = client.tcp_addresses(peer) == Some(other)
                && network.is_some()
                && client.network_of(peer) == network
                && client.socket_option(peer, SO_SNDBUF as usize).unwrap_or(0) >= LEAST_BUFFER;
            same.then(|| client.set_no_delay(peer))
        });
        let Ok(Some(peers_delay)) = proved else { return };
        let Some(host) = self.host_socket(fd as usize) else { return };
        let files = self.services.files();
        if self.services.lane_claim(files, fd, host, lane, pid).is_err() {
            return;
        }
        let own_delay = self.set_no_delay(fd as usize);
        let Some(end) = self.socket_end(fd as usize) else { return };
        self.services.lane_post(end.pipe, Some(&own), true);
        let delays = |nagle| Delays { nagle, cork: false };
        self.services.lane_delays(end.pipe, delays(own_delay));
        self.services.lane_delays(lane, delays(peers_delay));
    }

    /// The lane of the socket that has these addresses, and the process that connects it. Who is
    /// about to say them is waited for a little.
    fn tcp_posted(&mut self, addresses: &Addresses) -> Option<(Pipe, u32)> {
        for _ in 0..POST_LOOKS {
            match self.services.lane_posted(addresses) {
                Posted::Lane(lane, pid) => return Some((lane, pid)),
                Posted::Soon => {
                    self.host.call(nr::sched_yield, [0; 6]);
                }
                Posted::Nobody => return None,
            }
        }
        None
    }

    /// Whether a process is of the user that this one is: else it borrows from us by the lender.
    fn is_of_our_user(&self, pid: u32) -> bool {
        let mut own = [0u32; 3];
        let [real, effective, saved] = [0, 1, 2].map(|n| &raw mut own[n] as usize);
        self.host.call(nr::getresuid, [real, effective, saved, 0, 0, 0]);
        let own = core::hint::black_box(own);
        let owner = self.host_owner(pid);
        own.iter().all(|&id| Some(id) == owner)
    }

    /// Whose a process is, as the host shows it.
    fn host_owner(&self, pid: u32) -> Option<u32> {
        let mut path = *b"/proc/\0\0\0\0\0\0\0\0\0\0\0";
        let (mut digits, mut left) = (1, pid / 10);
        while left > 0 {
            (digits, left) = (digits + 1, left / 10);
        }
        left = pid;
        for at in (6..6 + digits).rev() {
            path[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        let mut stat = [0u8; STAT_BYTES];
        let (path, stat_at) = (core::hint::black_box(path), stat.as_mut_ptr() as usize);
        let args = [AT_FDCWD as usize, path.as_ptr() as usize, stat_at, 0, 0, 0];
        let told = self.host.call(nr::newfstatat, args);
        (told == 0).then(|| get32(&core::hint::black_box(stat), STAT_OWNER_AT))
    }

    /// Namespace of the network that a socket is in.
    fn network_of(&self, fd: usize) -> Option<u64> {
        let (mut cookie, mut length) = (0u64, 8u32);
        let (at, room) = (&raw mut cookie as usize, &raw mut length as usize);
        let level = SOL_SOCKET as usize;
        let told = self.host.call(nr::getsockopt, [fd, level, NETWORK, at, room, 0]);
        let cookie = core::hint::black_box(cookie);
        (told == 0).then_some(cookie)
    }

    /// What goes to the host is not to wait there for what has gone by a ring to be answered.
    /// Whether it would have.
    fn set_no_delay(&self, fd: usize) -> bool {
        let (mut old, mut length, one) = (0u32, 4u32, 1u32);
        let (level, option) = (IPPROTO_TCP as usize, TCP_NODELAY as usize);
        let (at, room) = (&raw mut old as usize, &raw mut length as usize);
        self.host.call(nr::getsockopt, [fd, level, option, at, room, 0]);
        let old = core::hint::black_box(old);
        if old == 0 {
            self.host.call(nr::setsockopt, [fd, level, option, &raw const one as usize, 4, 0]);
        }
        core::hint::black_box(one);
        old == 0
    }

    /// `setsockopt` on TCP. `None`: the host's, as it is.
    pub(crate) fn tcp_set_option(&mut self, c: &Call) -> Option<Answer> {
        if c.args[1] != IPPROTO_TCP as usize {
            return None;
        }
        let end = self.socket_end(c.args[0]).filter(|end| self.services.lane_is_tcp(end.pipe));
        let option = c.args[2] as u32;
        let end = end.filter(|end| self.services.lane_is_claimed(end.pipe));
        match end {
            Some(end) if [TCP_NODELAY, TCP_CORK].contains(&option) => self.set_delay(c, end),
            _ if PARTICULAR.contains(&option) => self.surrender(c.args[0]).err().map(Err),
            _ => None,
        }
    }

    /// What a ring has is there at once, so this is only remembered: the host would hold back what
    /// it is given to wake a reader.
    fn set_delay(&mut self, c: &Call, end: End) -> Option<Answer> {
        let (mut wanted, mut delays) = ([0u8; 4], self.services.lane_delay(end.pipe));
        if c.args[4] < 4 || self.memory.read(c.args[3], &mut wanted).is_err() {
            return None;
        }
        let on = wanted != [0; 4];
        match c.args[2] as u32 {
            TCP_CORK if self.services.lane_is_pinned(end.pipe) => return None,
            TCP_CORK => delays.cork = on,
            _ => delays.nagle = !on,
        }
        self.services.lane_delays(end.pipe, delays);
        Some(Ok(Verdict::Return(0)))
    }

    /// `getsockopt`.
    pub(crate) fn get_option(&mut self, c: &Call) -> Answer {
        let asked = (c.args[1] == IPPROTO_TCP as usize).then_some(c.args[2] as u32);
        let asked = asked.filter(|option| [TCP_NODELAY, TCP_CORK].contains(option));
        let end = if asked.is_some() { self.socket_end(c.args[0]) } else { None };
        let delays = end.map_or(Delays::default(), |end| self.services.lane_delay(end.pipe));
        let told = match asked {
            Some(TCP_NODELAY) if delays.nagle => Some(0u32),
            Some(TCP_CORK) if delays.cork => Some(1),
            _ => None,
        };
        if let Some(told) = told {
            let mut room = [0u8; 4];
            self.memory.read(c.args[4], &mut room)?;
            let length = get32(&room, 0).min(4) as usize;
            self.memory.write(c.args[3], &told.to_le_bytes()[..length])?;
            put(&mut room, 0, (length as u32).to_le_bytes());
            self.memory.write(c.args[4], &room)?;
            return Ok(Verdict::Return(0));
        }
        self.other_kind(c, Errno::ENOTSOCK)
    }

    /// Whether the socket is one of the internet's.
    pub(crate) fn is_internet(&self, fd: usize) -> bool {
        let domain = self.socket_option(fd, DOMAIN);
        domain == Some(AF_INET) || domain == Some(AF_INET6)
    }

    /// A number of a TCP socket is about to go: whether its lanes were worth it. While others have
    /// it, as the child that a server has started for the connection, the connection goes on.
    pub(crate) fn count_worth(&self, end: End) {
        if !self.services.lane_is_claimed(end.pipe) || !self.services.lane_is_tcp(end.pipe) {
            return;
        }
        if self.services.lane_was_used(end.pipe) {
            SHORT.store(0, Ordering::Relaxed);
        } else if self.services.lane_is_last(end.pipe) {
            SHORT.fetch_add(1, Ordering::Relaxed);
        }
    }
}
