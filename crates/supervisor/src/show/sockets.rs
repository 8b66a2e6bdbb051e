//! `husk net ls`: the connected stream sockets of an image, who has their ends, and which way their
//! bytes go.
//!
//! Read without stopping anybody, as `husk stat` does: what belongs together may be a moment apart.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use husk_kernel::pipe::lanes::each_socket;
use husk_kernel::pipe::seen::{self, Way};
use husk_proto::Shortcuts as _;
use husk_proto::epoll::Set;
use husk_proto::pipe::Pipe;
use serde::Serialize;

use crate::image::attach::Visit;
use crate::output::failure::Failure;

/// How ::1 is noted as an address.
const LOOPBACK_6: u32 = 1;
/// Holders of one end that a line names.
const NAMED_MAX: usize = 3;

/// A process and its number of a socket.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Descriptor number.
    pub fd: u32,
}

/// One direction of a socket.
#[derive(Serialize, Debug)]
pub struct Direction {
    /// `ring` or `host`.
    pub by: &'static str,
    /// Bytes that wait in the ring.
    pub waiting_bytes: u64,
    /// Why not through the ring.
    pub why: Option<&'static str>,
}

/// One end of a connection.
#[derive(Serialize, Debug)]
pub struct Socket {
    /// `tcp` or `unix`.
    pub kind: &'static str,
    /// Who has it.
    pub holders: Vec<Holder>,
    /// Who has the other end; empty: nobody of the image, as far as is known.
    pub peers: Vec<Holder>,
    /// Own address, of TCP.
    pub local: Option<SocketAddr>,
    /// The other end's.
    pub remote: Option<SocketAddr>,
    /// What is read here.
    pub reads: Direction,
    /// What is written here.
    pub writes: Direction,
    /// Whether it is in an epoll set that is told of its ring.
    pub in_set: bool,
}

/// What `husk net ls` says.
#[derive(Serialize, Debug)]
pub struct Report {
    /// What the image was found by.
    pub image: String,
    /// Sockets that can use rings.
    pub sockets: Vec<Socket>,
    /// Numbers of all other sockets: listeners, datagrams, connections with programs outside.
    pub others: usize,
    /// Why none of the image's sockets can.
    pub none_because: Option<&'static str>,
}

/// What says so: a setting, or the host.
const HOSTS_ALL: &str = "no socket of this image uses shared memory: sockets or pipes are set to \
                         `host` for it, or this host lets no process take another one's socket";

/// Looks at the image that `name` names.
pub fn report(name: &str) -> Result<Report, Failure> {
    Ok(of(&Visit::of(name)?))
}

fn of(visit: &Visit) -> Report {
    let mut ends: BTreeMap<u32, Vec<Holder>> = BTreeMap::new();
    let mut known = HashSet::new();
    each_socket(visit.direct.kernel(), &mut |pid, fd, lane| {
        if known.insert((pid, fd)) {
            ends.entry(lane.0).or_default().push(Holder { pid, fd });
        }
    });
    let others = visit.pids().into_iter().flat_map(sockets_of);
    let others = others.filter(|number| !known.contains(number)).count();
    let sockets = ends.keys().map(|&lane| socket(Pipe(lane), &ends)).collect();
    let none_because = (!visit.direct.lanes_wanted()).then_some(HOSTS_ALL);
    Report { image: visit.name().to_owned(), sockets, others, none_because }
}

fn socket(lane: Pipe, ends: &BTreeMap<u32, Vec<Holder>>) -> Socket {
    let holders = |lane: Pipe| ends.get(&lane.0).cloned().unwrap_or_default();
    let mate = seen::mate(lane);
    let addresses = seen::addresses(lane);
    Socket {
        kind: if addresses.is_some() { "tcp" } else { "unix" },
        holders: holders(lane),
        peers: mate.map(holders).unwrap_or_default(),
        local: addresses.map(|both| address(both.own)),
        remote: addresses.map(|both| address(both.peer)),
        reads: direction(Some(lane)),
        writes: direction(mate),
        in_set: seen::is_in_set(lane),
    }
}

fn address((bits, port): (u32, u16)) -> SocketAddr {
    match bits {
        LOOPBACK_6 => (Ipv6Addr::LOCALHOST, port).into(),
        bits => (Ipv4Addr::from(bits), port).into(),
    }
}

/// Whether bytes for whoever reads from this pipe or socket go through shared memory.
pub fn is_by_ring(lane: Pipe) -> bool {
    seen::way(lane) == Way::Ring
}

/// Sockets in a set whose bytes go through shared memory.
pub fn by_ring_in(visit: &Visit, set: Set) -> u32 {
    let mut lanes = HashSet::new();
    each_socket(visit.direct.kernel(), &mut |_, _, lane| {
        if visit.direct.lane_set(lane) == Some(set) && is_by_ring(lane) {
            lanes.insert(lane.0);
        }
    });
    lanes.len() as u32
}

fn direction(lane: Option<Pipe>) -> Direction {
    let way = lane.map_or(Way::Unpaired, seen::way);
    let why = match way {
        Way::Ring => None,
        Way::Host => Some("the reader sleeps, or has slept, in a system call"),
        Way::Leaving => Some("the host has the bytes that come first"),
        Way::Pinned => Some("an option, a message or another use needs the host, for good"),
        Way::Unpaired => Some("the other end is not known in the image"),
    };
    Direction {
        by: if way == Way::Ring { "ring" } else { "host" },
        waiting_bytes: lane.map_or(0, seen::waiting),
        why,
    }
}

/// Numbers of a process that are sockets, as the host shows them.
fn sockets_of(pid: u32) -> Vec<(u32, u32)> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let sockets = listing.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
    });
    let numbers = sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.map(|fd| (pid, fd)).collect()
}

impl Report {
    /// A line for each socket.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for socket in &self.sockets {
            let (own, other) = (names(&socket.holders), names(&socket.peers));
            let _ = write!(text, "{} {own} <-> {other}", socket.kind);
            if let (Some(local), Some(remote)) = (socket.local, socket.remote) {
                let _ = write!(text, ", {local} <-> {remote}");
            }
            let _ = write!(text, ": {}; ", told("reads", &socket.reads));
            let _ = writeln!(text, "{}", told("writes", &socket.writes));
        }
        let others = self.others;
        let _ = writeln!(text, "other sockets, which are the host's: {others}");
        if let Some(why) = self.none_because {
            let _ = writeln!(text, "{why}");
        }
        text
    }
}

fn told(what: &str, way: &Direction) -> String {
    let waiting = match way.waiting_bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes wait"),
    };
    match way.why {
        None => format!("{what} by ring{waiting}"),
        Some(why) => format!("{what} by the host ({why}){waiting}"),
    }
}

fn names(holders: &[Holder]) -> String {
    let name = |holder: &Holder| format!("{}:{}", holder.pid, holder.fd);
    let mut names: Vec<String> = holders.iter().take(NAMED_MAX).map(name).collect();
    if holders.len() > NAMED_MAX {
        names.push(format!("{} more", holders.len() - NAMED_MAX));
    }
    if names.is_empty() { "unknown".to_owned() } else { names.join(", ") }
}
