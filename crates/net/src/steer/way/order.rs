//! Which index each listening socket has in Linux's list of those that share a port.
//!
//! ```text
//!   for each index: attach a program that leads one connection to it, which is this process's own
//!                   ── a SYN that every server drops ──► whose count of dropped segments rises?
//! ```
//!
//! Nobody can read the list. A SYN with a signature (TCP MD5) is dropped by every socket that has
//! no such key, and counted: no connection comes of it, and the server learns nothing.
//!
//! Invariants
//! 1. No connection but this process's own is led anywhere: all others are left to Linux. Nobody
//!    else has its port at that address.
//! 2. The answer is an order: each socket has one index. Counts that rise for other reasons make
//!    it try again, or give up.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_abi::Errno;
use husk_host::cbpf;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    sockopt,
};

use super::super::listeners::Place;
use super::super::namespace::within;
use super::tree::prober;
use crate::problem::{Problem, errno};

/// An address of this host that nobody is likely to listen at by name.
const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 104, 117, 115);
/// So many addresses of interfaces are tried.
const ADDRESSES_MAX: usize = 4;
/// SYNs for one index, while several counts rise.
const TRIES: u32 = 12;
/// Times that all is tried.
const ROUNDS: u32 = 3;
/// A SYN to this host comes at once, or a little later on a busy one.
const COMES_WITHIN: Duration = Duration::from_millis(20);
/// `ENOPROTOOPT`: Linux is built without TCP MD5.
const NO_SIGNATURES: Errno = Errno(92);
const PAUSE: Duration = Duration::from_millis(1);

/// The index of each socket.
pub fn order(pid: u32, place: &Place, sockets: &[OwnedFd]) -> Result<Vec<u16>, Problem> {
    let what = format!("cannot steer the connections of {place}");
    if let Err(refused) = within(pid, || Ok(())) {
        let why = format!("process {pid} is in another network namespace ({refused})");
        let remedy = "run it as root, or in that namespace";
        return Err(Problem::new(what, why, remedy));
    }
    let mut why = String::new();
    for ip in addresses(pid, place) {
        let to = SocketAddr::new(ip, place.address.port());
        for _ in 0..ROUNDS {
            match round(pid, to, sockets) {
                Ok(suspects) => match ordered(suspects) {
                    Some(order) if order.len() == sockets.len() => return Ok(order),
                    _ => "the order of its sockets does not show".clone_into(&mut why),
                },
                Err(NO_SIGNATURES) => {
                    let why = "this Linux has no TCP_MD5SIG, by which cBPF finds the order of \
                               sockets";
                    return Err(Problem::new(what, why, "run it as root"));
                }
                Err(errno) => why = format!("Linux says {errno:?} to a SYN to {to}"),
            }
        }
    }
    let remedy = "see that this host can connect to that address itself (`ip link set lo up`), or \
                  steer by eBPF, as root";
    Err(Problem::new(what, why, remedy))
}

/// Where its sockets are reached from this host.
fn addresses(pid: u32, place: &Place) -> Vec<IpAddr> {
    match place.address.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => vec![LOOPBACK.into()],
        // Other sockets may listen at the first one, and these over IPv6 alone.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            let mut all = vec![Ipv6Addr::LOCALHOST.into(), LOOPBACK.into()];
            all.extend(own_addresses(pid).into_iter().map(IpAddr::from));
            all
        }
        one => vec![one],
    }
}

/// Global IPv6 addresses of interfaces in the network namespace of a process.
fn own_addresses(pid: u32) -> Vec<Ipv6Addr> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/if_inet6")).unwrap_or_default();
    // Address, number of the interface, length of the prefix, scope (0: global), flags.
    let global = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let bits = u128::from_str_radix(words.first()?, 16).ok()?;
        (*words.get(3)? == "00").then_some(Ipv6Addr::from(bits))
    };
    text.lines().filter_map(global).take(ADDRESSES_MAX).collect()
}

/// Tries the way without privilege, on sockets of this process.
pub fn without_privilege() -> Result<(), Problem> {
    let refused = |error| Problem::refused("steer sockets of this process", errno(error));
    let listener = |address: SocketAddr| {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &address)?;
        listen(&socket, 1)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((socket, address))
    };
    let (first, address) = listener((Ipv4Addr::LOCALHOST, 0).into()).map_err(refused)?;
    let (second, _) = listener(address).map_err(refused)?;
    let place = Place { address, namespace: 0 };
    order(std::process::id(), &place, &[first, second]).map(drop)
}

/// For each index the sockets that may have it; up to the first that none has.
fn round(pid: u32, to: SocketAddr, sockets: &[OwnedFd]) -> Result<Vec<Vec<usize>>, Errno> {
    let mut all = Vec::new();
    for index in 0..sockets.len() {
        let found = suspects(pid, to, sockets, index)?;
        if found.is_empty() {
            // Nothing comes there: each more would take as long.
            return Ok(Vec::new());
        }
        all.push(found);
    }
    Ok(all)
}

fn suspects(
    pid: u32,
    to: SocketAddr,
    sockets: &[OwnedFd],
    index: usize,
) -> Result<Vec<usize>, Errno> {
    let mut suspects: Vec<usize> = (0..sockets.len()).collect();
    let mut has_come = false;
    for _ in 0..TRIES {
        let (client, port) = client(pid, to.ip())?;
        let program = prober(to.ip(), port, index as u32);
        cbpf::attach_selector(sockets[0].as_raw_fd(), &program)?;
        let before = drops(sockets)?;
        match connect(&client, &to) {
            // It is sent; no answer will come.
            Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(errno(error)),
            Ok(()) => return Ok(Vec::new()),
        }
        let risen = risen(&before, sockets)?;
        // A SYN that has not come is sent again.
        if !risen.is_empty() {
            has_come = true;
            suspects.retain(|socket| risen.contains(socket));
        }
        if has_come && suspects.len() <= 1 {
            return Ok(suspects);
        }
    }
    Ok(if has_come { suspects } else { Vec::new() })
}

/// A socket whose SYNs are dropped, and its port.
fn client(pid: u32, ip: IpAddr) -> Result<(OwnedFd, u16), Errno> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = within(pid, || Ok(socket_with(family, SocketType::STREAM, flags, None)?));
    let socket = socket.map_err(|why| Errno(why.raw_os_error().unwrap_or(Errno::EPERM.0)))?;
    cbpf::sign_segments(socket.as_raw_fd(), ip)?;
    bind(&socket, &SocketAddr::new(ip, 0)).map_err(errno)?;
    let own = SocketAddr::try_from(getsockname(&socket).map_err(errno)?).map_err(errno)?;
    Ok((socket, own.port()))
}

fn drops(sockets: &[OwnedFd]) -> Result<Vec<u32>, Errno> {
    sockets.iter().map(|socket| cbpf::drops(socket.as_raw_fd())).collect()
}

/// Sockets that have dropped something since; none after a while.
fn risen(before: &[u32], sockets: &[OwnedFd]) -> Result<Vec<usize>, Errno> {
    let end = Instant::now() + COMES_WITHIN;
    loop {
        let now = drops(sockets)?;
        let risen: Vec<usize> = (0..now.len()).filter(|&at| now[at] != before[at]).collect();
        if !risen.is_empty() || Instant::now() > end {
            return Ok(risen);
        }
        sleep(PAUSE);
    }
}

/// The index of each socket, from the sockets that may have each index, by elimination.
fn ordered(mut suspects: Vec<Vec<usize>>) -> Option<Vec<u16>> {
    let mut order = vec![None; suspects.len()];
    for _ in 0..order.len() {
        let index = suspects.iter().position(|those| those.len() == 1)?;
        let socket = suspects[index][0];
        order[socket] = Some(index as u16);
        suspects.iter_mut().for_each(|those| those.retain(|&one| one != socket));
    }
    order.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn listener(address: SocketAddr) -> OwnedFd {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &address).unwrap();
        listen(&socket, 16).unwrap();
        socket
    }

    fn place(listener: &impl AsFd) -> Place {
        let address = getsockname(listener).unwrap();
        Place { address: SocketAddr::try_from(address).unwrap(), namespace: 0 }
    }

    /// Linux appends, and puts the last one where one goes.
    #[test]
    fn the_order_is_linux_s_own_and_nobody_is_connected() {
        for any in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let address: SocketAddr = any.parse().unwrap();
            if TcpListener::bind(address).is_err() {
                continue;
            }
            let mut sockets = vec![listener(address)];
            let place = place(&sockets[0]);
            sockets.extend((0..4).map(|_| listener(place.address)));
            let found = |sockets: &[OwnedFd]| order(std::process::id(), &place, sockets);
            assert_eq!(found(&sockets).unwrap(), [0, 1, 2, 3, 4], "{any}");
            drop(sockets.remove(1));
            assert_eq!(found(&sockets).unwrap(), [0, 2, 3, 1], "{any}");
            for socket in sockets {
                let accepted = TcpListener::from(socket).accept();
                assert!(accepted.is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock));
            }
        }
    }

    /// At `::1` another server takes what comes, and over IPv4 nobody is there.
    #[test]
    fn the_order_shows_where_others_listen_at_the_loopback_address() {
        let only_six = |address: SocketAddr| {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            sockopt::set_ipv6_v6only(&socket, true)?;
            bind(&socket, &address)?;
            listen(&socket, 16)?;
            rustix::io::Result::Ok(socket)
        };
        let pid = std::process::id();
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let Ok(first) = only_six(any) else { return };
        if own_addresses(pid).is_empty() {
            return;
        }
        let place = place(&first);
        let _other = only_six((Ipv6Addr::LOCALHOST, place.address.port()).into()).unwrap();
        let sockets = [first, only_six(place.address).unwrap()];
        assert_eq!(order(pid, &place, &sockets).unwrap(), [0, 1]);
    }

    const FOUND: usize = 400;

    /// A socket whose queue is full drops all that come, and counts them.
    #[test]
    fn the_order_shows_while_other_sockets_drop_what_comes() {
        let first = listener("127.0.0.1:0".parse().unwrap());
        let place = place(&first);
        let sockets: Vec<_> =
            [first].into_iter().chain((0..3).map(|_| listener(place.address))).collect();
        sockets.iter().for_each(|socket| listen(socket, 0).unwrap());
        let over = AtomicBool::new(false);
        // Nothing else is done meanwhile: without more SYNs for an index there is no order.
        let flood = || {
            let mut open = Vec::new();
            let mut number = 0;
            while !over.load(Relaxed) {
                let family = AddressFamily::INET;
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let client = socket_with(family, SocketType::STREAM, flags, None).unwrap();
                // What does not fit waits, and is sent again.
                let _ = connect(&client, &place.address);
                number += 1;
                if open.len() < 64 {
                    open.push(client);
                } else {
                    open[number % 64] = client;
                }
            }
        };
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(flood)));
            let end = Instant::now() + Duration::from_secs(30);
            while drops(&sockets).unwrap().contains(&0) && Instant::now() < end {
                sleep(PAUSE);
            }
            let before = drops(&sockets).unwrap();
            let found: Vec<_> =
                (0..FOUND).map(|_| order(std::process::id(), &place, &sockets)).collect();
            over.store(true, Relaxed);
            assert!(before.iter().all(|&count| count > 0), "{before:?}");
            let right = found.iter().filter(|order| **order == Ok(vec![0, 1, 2, 3])).count();
            let wrong = found.iter().filter(|order| order.is_ok()).count() - right;
            assert_eq!(wrong, 0, "{found:?}");
            assert_eq!(right, FOUND, "{found:?}");
        });
    }

    #[test]
    fn sockets_that_are_not_all_there_have_no_order() {
        let one = listener("127.0.0.1:0".parse().unwrap());
        let place = place(&one);
        let (two, _three) = (listener(place.address), listener(place.address));
        let other = listener("127.0.0.1:0".parse().unwrap());
        // It listens elsewhere.
        assert!(order(std::process::id(), &place, &[one, two, other]).is_err());
    }

    #[test]
    fn counts_that_rise_for_other_reasons_are_told_apart_or_there_is_no_order() {
        assert_eq!(ordered(vec![vec![1], vec![0]]), Some(vec![1, 0]));
        assert_eq!(ordered(vec![vec![0, 2], vec![1, 2], vec![2]]), Some(vec![0, 1, 2]));
        assert_eq!(ordered(vec![vec![0, 1], vec![0, 1]]), None);
        assert_eq!(ordered(vec![vec![0], vec![0]]), None);
        assert_eq!(ordered(vec![vec![], vec![0, 1]]), None);
    }
}
