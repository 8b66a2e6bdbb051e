//! Listening sockets and the processes that accept on them.
//!
//! ```text
//!   sock_diag (`diag`)      address, state, inode        of the sockets of a port
//!   /proc/PID/net/tcp{,6}   the same                     of all sockets of its network namespace
//!   /proc/PID/fd            socket:[inode]               who has one
//!   /proc/PID/fdinfo        tfd: ... ino:inode           who waits for one, in an epoll set
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_abi::Errno;
use husk_host::interface::bound_to;
use rustix::net::sockopt::{ipv6_v6only, socket_reuseport};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::diag::{Diag, LISTENS, STATES, TIME_WAIT};
use crate::groups::{GROUPS, group_of};
use crate::problem::{Problem, errno};

/// Processes of a server that are looked at.
const FAMILY_MAX: usize = 256;

/// An address that sockets listen on, in one network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Address and port.
    pub address: SocketAddr,
    /// Number of the network namespace.
    pub namespace: u64,
}

impl Place {
    /// Name of a file of it.
    pub fn file_name(&self, kind: &str) -> String {
        let address = self.address.ip().to_string().replace(':', "_");
        format!("{}-{address}-{}.{kind}", self.namespace, self.address.port())
    }

    /// The word to type for it.
    pub fn typed(&self, pid: u32) -> String {
        typed(self.namespace, self.address, pid)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The word to type for a place: its address in this network namespace, else a process of it.
pub(super) fn typed(namespace: u64, address: impl Display, pid: u32) -> String {
    let is_own = namespace == self::namespace(std::process::id());
    if is_own { address.to_string() } else { pid.to_string() }
}

/// One TCP socket of a namespace.
pub(super) struct Socket {
    pub local: SocketAddr,
    pub remote_port: u16,
    /// As Linux numbers them.
    pub state: u8,
    pub inode: u64,
}

/// A process that has sockets of a place.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: Option<u32>,
    /// Descriptors of listening sockets, by inode.
    pub holds: HashMap<u64, i32>,
    /// Inodes that it waits for.
    pub waits: HashSet<u64>,
}

/// All listening sockets in the namespace of a process; `None`: in that of this thread. A user who
/// may not ask in the namespace of another one may still read /proc.
fn listeners(pid: Option<u32>) -> Vec<Socket> {
    let asked = pid.map_or_else(Diag::here, Diag::of).and_then(|diag| diag.listening());
    asked.unwrap_or_else(|_| {
        let pid = pid.map_or("self".to_owned(), |pid| pid.to_string());
        let all = ["tcp", "tcp6"].into_iter().flat_map(|table| sockets_in(&pid, table));
        all.filter(|one| one.state == LISTENS).collect()
    })
}

/// One of the two tables. To read it takes Linux milliseconds of a processor, also where it is
/// short: it looks into every bucket of a hash table that grows with the machine's memory. A server
/// that has just answered thousands makes it tens of milliseconds.
fn sockets_in(pid: &str, table: &str) -> Vec<Socket> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    text.lines().skip(1).filter_map(socket).collect()
}

fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote_port = address(words.next()?)?.port();
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(5)?.parse().ok()?;
    Some(Socket { local, remote_port, state, inode })
}

/// `0100007F:1F90`: words of the address as numbers of this machine, the port as one.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The sockets of a place.
pub struct Seen {
    /// Inodes of listening sockets, the oldest first; none: the process or the sockets have gone.
    pub listening: Vec<u64>,
    /// Connections that are open, by flow group.
    pub open: Vec<u64>,
}

/// Looks at the sockets of a place, in the namespace of a process.
pub fn see(pid: u32, place: &Place) -> Seen {
    // IPv4 connections to a socket of IPv6 are in the table of IPv6.
    let table = if place.address.is_ipv4() { "tcp" } else { "tcp6" };
    Seen::of(sockets_in(&pid.to_string(), table), place)
}

/// Which sockets are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Listening sockets only.
    Listening,
    /// All.
    All,
}

/// The same, asked in that namespace.
pub fn ask(diag: &Diag, place: &Place, which: Which) -> io::Result<Seen> {
    let states = if which == Which::Listening { 1 << LISTENS } else { STATES };
    Ok(Seen::of(diag.sockets(place.address, states)?, place))
}

impl Seen {
    fn of(sockets: Vec<Socket>, place: &Place) -> Seen {
        let (mut listening, mut open) = (Vec::new(), vec![0; GROUPS]);
        for socket in sockets {
            let ip = place.address.ip();
            let here = socket.local.port() == place.address.port()
                && (ip.is_unspecified() || socket.local.ip() == ip);
            if socket.state == LISTENS {
                listening.extend((socket.local == place.address).then_some(socket.inode));
            } else if here && socket.state != TIME_WAIT {
                open[group_of(socket.remote_port)] += 1;
            }
        }
        listening.sort_unstable();
        Seen { listening, open }
    }
}

fn is_forbidden(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::PermissionDenied
}

/// Descriptors of sockets, by inode.
fn held(pid: u32) -> HashMap<u64, i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let socket = |name: PathBuf| {
        let name = name.into_os_string().into_string().ok()?;
        name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    // If one descriptor may not be read, none may.
    let names = entries.map(|entry| (fs::read_link(entry.path()), entry));
    let names = names.take_while(|(name, _)| !name.as_ref().is_err_and(is_forbidden));
    names.filter_map(|(name, entry)| Some((socket(name.ok()?)?, number(&entry)?))).collect()
}

/// Inodes in the epoll sets of a process. Of its other descriptors, of which there is one for each
/// connection, nothing is read.
fn awaited(pid: u32) -> HashSet<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_set = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|name| name == Path::new("anon_inode:[eventpoll]"))
    };
    let info = |entry: fs::DirEntry| {
        let number = entry.file_name().into_string().ok()?;
        fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()
    };
    let texts = entries.filter(is_set).filter_map(info);
    let inode = |line: &str| {
        let (_, rest) = line.strip_prefix("tfd:")?.split_once("ino:")?;
        u64::from_str_radix(rest.split_ascii_whitespace().next()?, 16).ok()
    };
    texts.flat_map(|text| text.lines().filter_map(inode).collect::<Vec<_>>()).collect()
}

/// Whether there is such a process.
pub fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The user of a process.
pub fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid())
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |text: String| -> Vec<u32> {
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    texts.flat_map(numbers).collect()
}

/// The processes of a server that have these sockets: from the eldest above each of `known` that
/// has one, down. Where a master has been killed, its workers have no common one any more. Sockets
/// that none of these has are looked for in all processes.
pub fn family(known: &[u32], inodes: &[u64]) -> Vec<Member> {
    let has_one = |pid: &u32| {
        let held = held(*pid);
        inodes.iter().any(|inode| held.contains_key(inode))
    };
    let mut pids: Vec<u32> = Vec::new();
    for &pid in known {
        let mut eldest = pid;
        while let Some(above) = parent(eldest).filter(|above| *above > 0 && has_one(above)) {
            eldest = above;
        }
        if !pids.contains(&eldest) {
            pids.push(eldest);
        }
    }
    let mut at = 0;
    while at < pids.len() && pids.len() < FAMILY_MAX {
        let below = children(pids[at]);
        pids.extend(below.into_iter().filter(|pid| !pids.contains(pid)).collect::<Vec<_>>());
        at += 1;
    }
    let member = |pid: u32| {
        let holds = held(pid).into_iter().filter(|(inode, _)| inodes.contains(inode)).collect();
        Member { pid, parent: parent(pid), holds, waits: awaited(pid) }
    };
    let mut found: Vec<Member> =
        pids.into_iter().map(member).filter(|member| !member.holds.is_empty()).collect();
    let is_held = |inode: &u64| found.iter().any(|member| member.holds.contains_key(inode));
    if !inodes.iter().all(is_held) {
        // Others that have nothing to do with them but the port.
        let known: Vec<u32> = found.iter().map(|member| member.pid).collect();
        let others = holders(&inodes.iter().copied().collect());
        let others = others.into_iter().filter(|pid| !known.contains(pid)).take(FAMILY_MAX);
        found.extend(others.map(member).filter(|member| !member.holds.is_empty()));
    }
    found
}

/// The processes that accept from a listening socket: those with it in an epoll set; if there are
/// none, those that have it, except parents of others that have it (a master that only made it).
pub fn accept(family: &[Member], inode: u64) -> Vec<u32> {
    let of = |fits: &dyn Fn(&Member) -> bool| -> Vec<u32> {
        family.iter().filter(|one| fits(one)).map(|member| member.pid).collect()
    };
    let waiting = of(&|member| member.waits.contains(&inode));
    if !waiting.is_empty() {
        return waiting;
    }
    let holds = |member: &Member| member.holds.contains_key(&inode);
    let only_made_it = |pid| family.iter().any(|one| one.parent == Some(pid) && holds(one));
    of(&|member| holds(member) && !only_made_it(member.pid))
}

/// A listening socket of another process, for a moment.
pub fn borrow(family: &[Member], inode: u64) -> Result<OwnedFd, Errno> {
    let holder = family.iter().find_map(|member| Some((member.pid, *member.holds.get(&inode)?)));
    let (pid, number) = holder.ok_or(Errno::ENOENT)?;
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::ESRCH)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(errno)?;
    pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).map_err(errno)
}

/// Finds what was typed (a process, a port, or an address with a port): each place where it
/// listens, at least one, with one process that does.
pub fn find(target: &str) -> Result<Vec<(u32, Place)>, Problem> {
    let what = format!("cannot find what to steer at {target}");
    let (address, number) = (target.parse::<SocketAddr>().ok(), target.parse::<u32>().ok());
    if address.is_none() && number.is_none() {
        let why = "it is neither a process, a port nor an address";
        return Err(Problem::new(what, why, "type e.g. 4711, 8080 or 127.0.0.1:8080"));
    }
    let fits = |local: SocketAddr| match address {
        Some(address) => local == address,
        None => Some(u32::from(local.port())) == number,
    };
    let process = number.filter(|&pid| !addresses(pid, |_| true).is_empty());
    let mut found: Vec<(u32, SocketAddr)> = Vec::new();
    match (process, &holders(&listening(fits))[..]) {
        (Some(pid), []) => found.extend(addresses(pid, |_| true).into_iter().map(|at| (pid, at))),
        (None, pids @ [_, ..]) => {
            // Several servers may have one port, at addresses of their own.
            for &pid in pids {
                let mut here = addresses(pid, fits);
                here.retain(|at| found.iter().all(|(_, known)| known != at));
                found.extend(here.into_iter().map(|at| (pid, at)));
            }
        }
        (Some(_), _) => {
            let why = "there is a process and a port of that number";
            return Err(Problem::new(what, why, format!("type e.g. 127.0.0.1:{target}")));
        }
        (None, []) if is_anothers(number, fits) => {
            let why = "it is another user's, or one whose descriptors cannot be seen";
            return Err(Problem::new(what, why, "run it as root"));
        }
        (None, []) => {
            let why = "nobody listens there on TCP whose descriptors can be seen";
            let remedy = "as root, name a process or port of `ss -ltp`, and the process where it \
                          has a network namespace of its own";
            return Err(Problem::new(what, why, remedy));
        }
    }
    let place = |(pid, address)| (pid, Place { address, namespace: namespace(pid) });
    let places: Vec<_> = found.into_iter().map(place).collect();
    if places.is_empty() || places.iter().any(|(_, place)| place.namespace == 0) {
        return Err(Problem::new(what, "it has just ended", "name a server that runs"));
    }
    Ok(places)
}

/// Whether a socket listens there, or such a process exists, whose descriptors cannot be seen.
fn is_anothers(pid: Option<u32>, fits: impl Fn(SocketAddr) -> bool) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_process = pid.and_then(owner).is_some_and(|owner| owner != own);
    is_process || !listening(fits).is_empty()
}

/// Where a process listens.
fn addresses(pid: u32, fits: impl Fn(SocketAddr) -> bool) -> Vec<SocketAddr> {
    let held = held(pid);
    if held.is_empty() {
        return Vec::new();
    }
    let all = listeners(Some(pid));
    let own = all.iter().filter(|one| held.contains_key(&one.inode));
    let mut found: Vec<_> = own.map(|one| one.local).filter(|&local| fits(local)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn namespace(pid: u32) -> u64 {
    let name = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
    let name = name.to_string_lossy();
    name.trim_start_matches("net:[").trim_end_matches(']').parse().unwrap_or_default()
}

/// Listening sockets of this network namespace.
fn listening(fits: impl Fn(SocketAddr) -> bool) -> HashSet<u64> {
    let all = listeners(None);
    let wanted = all.iter().filter(|one| fits(one.local));
    wanted.map(|socket| socket.inode).collect()
}

/// Processes that have one of these sockets.
fn holders(inodes: &HashSet<u64>) -> Vec<u32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_one = |pid: &u32| held(*pid).keys().any(|inode| inodes.contains(inode));
    let mut pids: Vec<u32> = pids.filter(has_one).collect();
    pids.sort_unstable();
    pids
}

/// Several sockets may share a port only with `SO_REUSEPORT`.
pub fn shares_its_port(socket: &OwnedFd) -> bool {
    socket_reuseport(socket).unwrap_or(false)
}

/// Linux chooses only among sockets that are alike in this: the interface that they are bound to
/// (`SO_BINDTODEVICE`), and whether they take IPv6 alone.
pub fn are_one_group(sockets: &[OwnedFd]) -> bool {
    let of = |socket: &OwnedFd| {
        // Linux before 5.1 does not have the first option; IPv4 does not have the second.
        (bound_to(socket.as_raw_fd()).unwrap_or(0), ipv6_v6only(socket).unwrap_or(false))
    };
    sockets.windows(2).all(|two| of(&two[0]) == of(&two[1]))
}

/// Time that the threads of a process have run, in nanoseconds.
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Connections that have come to the network namespace of a process, of all servers there.
pub fn passive_opens(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/snmp")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, figures) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "PassiveOpens")?;
    figures.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_line_of_proc_net_tcp_is_a_socket() {
        let line = "   1: 0100007F:1F90 0200007F:A001 01 00000000:00000000 00:00000000 00000000  \
                    65534        0 4711 1 0000000000000000 100 0 0 10 0";
        let socket = socket(line).expect("a socket");
        assert_eq!(socket.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((socket.remote_port, socket.state, socket.inode), (40961, 1, 4711));
    }

    #[test]
    fn what_listens_is_found_and_no_connection_is() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let address = listener.local_addr().unwrap();
            let _client = TcpStream::connect(address).unwrap();
            let _server = listener.accept().unwrap();
            for pid in [None, Some(std::process::id())] {
                let all = listeners(pid);
                let here: Vec<_> = all.iter().filter(|one| one.local == address).collect();
                assert_eq!(here.len(), 1, "{address}");
                assert_eq!((here[0].state, here[0].remote_port), (LISTENS, 0));
            }
        }
    }

    #[test]
    fn addresses_of_both_families_are_read_and_others_are_not() {
        let six = address("00000000000000000000000001000000:0050");
        assert_eq!(six, Some("[::1]:80".parse().unwrap()));
        assert_eq!(address("0100007F"), None);
        assert_eq!(address("7F:0050"), None);
        assert_eq!(address("0100007F:xyz"), None);
    }

    #[test]
    fn a_place_is_named_by_its_address_here_and_by_a_process_elsewhere() {
        let address = "127.0.0.1:80".parse().unwrap();
        let here = Place { address, namespace: namespace(std::process::id()) };
        let elsewhere = Place { address, namespace: here.namespace + 1 };
        assert_eq!((&*here.typed(7), &*elsewhere.typed(7)), ("127.0.0.1:80", "7"));
    }

    #[test]
    fn who_waits_for_a_socket_accepts_from_it_or_who_has_it_from_a_parent() {
        let member = |pid, parent, holds: &[u64], waits: &[u64]| Member {
            pid,
            parent: Some(parent),
            holds: holds.iter().map(|&inode| (inode, 0)).collect(),
            waits: waits.iter().copied().collect(),
        };
        let family = [
            member(1, 0, &[5, 6, 8], &[]),
            member(2, 1, &[5, 6], &[6]),
            member(3, 1, &[7, 8], &[]),
            member(4, 1, &[8], &[]),
        ];
        let found = [5, 6, 7, 8, 9].map(|inode| accept(&family, inode));
        assert_eq!(found, [vec![2], vec![2], vec![3], vec![3, 4], vec![]]);
    }
}
