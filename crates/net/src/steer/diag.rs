//! Sockets of one port, asked of Linux by `sock_diag` (sock_diag(7)).
//!
//! To read `/proc/net/tcp` takes Linux some forty times as long: it writes each socket as text, and
//! stops at each bucket of a table that grows with the machine's memory.
//!
//! Invariant: asked by one thread, an answer at a time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_timeout;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
    sockopt,
};

use super::listeners::Socket;
use super::namespace::within;

/// `struct nlmsghdr`, `struct inet_diag_req_v2`, `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const SOCKET_BYTES: usize = 72;
/// `SOCK_DIAG_BY_FAMILY`; `NLM_F_REQUEST` and `NLM_F_DUMP`.
const BY_FAMILY: u16 = 20;
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const INET: u8 = 2;
const INET6: u8 = 10;
const TCP: u8 = 6;
/// States of TCP: the numbers of two, and the bits of all states but TIME_WAIT.
pub(super) const LISTENS: u8 = 10;
pub(super) const TIME_WAIT: u8 = 6;
pub(super) const STATES: u32 = 0xfff & !(1 << TIME_WAIT);
/// Room for a part of an answer; Linux fills no more than this.
const ROOM: usize = 32 << 10;
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// A way to ask, in one network namespace.
pub(super) struct Diag(OwnedFd);

impl Diag {
    /// In the namespace of a process.
    pub(super) fn of(pid: u32) -> io::Result<Diag> {
        Diag::over(within(pid, Diag::socket)?)
    }

    /// In that of this thread.
    pub(super) fn here() -> io::Result<Diag> {
        Diag::over(Diag::socket()?)
    }

    fn over(socket: OwnedFd) -> io::Result<Diag> {
        set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Diag(socket))
    }

    fn socket() -> io::Result<OwnedFd> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        Ok(socket_with(family, SocketType::DGRAM, flags, Some(SOCK_DIAG))?)
    }

    /// All sockets that listen, of both families.
    pub(super) fn listening(&self) -> io::Result<Vec<Socket>> {
        // Port 0 stands for every port.
        let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        let asked = any.map(|ip| self.sockets(SocketAddr::new(ip, 0), 1 << LISTENS));
        let [mut all, six] = asked;
        if let (Ok(all), Ok(six)) = (&mut all, six) {
            all.extend(six);
        }
        all
    }

    /// The sockets of the address's family that have its port, in these states (a bit each). Those
    /// that listen alone are found in microseconds, all others in milliseconds: Linux looks into
    /// every bucket of a table that grows with the machine's memory.
    pub(super) fn sockets(&self, address: SocketAddr, states: u32) -> io::Result<Vec<Socket>> {
        let request = request(address, states);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &request, SendFlags::empty(), &kernel)?;
        let (mut found, mut room) = (Vec::new(), vec![0; ROOM]);
        loop {
            let (_, length) = recv(&self.0, &mut room[..], RecvFlags::empty())?;
            let mut rest = room.get(..length).unwrap_or_default();
            while let Some((kind, body, behind)) = message(rest) {
                match kind {
                    DONE => return Ok(found),
                    ERROR => return Err(refused(body)),
                    _ => found.extend(socket(body)),
                }
                rest = behind;
            }
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn request(address: SocketAddr, states: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &DUMP.to_ne_bytes());
    put(HEADER_BYTES, &[if address.is_ipv4() { INET } else { INET6 }, TCP]);
    put(HEADER_BYTES + 4, &states.to_ne_bytes());
    put(HEADER_BYTES + 8, &address.port().to_be_bytes());
    bytes
}

/// The first message: its kind, its body, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn refused(body: &[u8]) -> io::Error {
    let errno = body.get(..4).and_then(|four| four.try_into().ok()).map_or(0, i32::from_ne_bytes);
    io::Error::from_raw_os_error(-errno)
}

fn socket(body: &[u8]) -> Option<Socket> {
    let body: &[u8; SOCKET_BYTES] = body.get(..SOCKET_BYTES)?.try_into().ok()?;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let ip: [u8; 16] = body[8..24].try_into().ok()?;
    let ip = match body[0] {
        INET => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
        INET6 => IpAddr::V6(Ipv6Addr::from(ip)),
        _ => return None,
    };
    Some(Socket {
        local: SocketAddr::new(ip, port(4)),
        remote_port: port(6),
        state: body[1],
        inode: u64::from(u32::from_ne_bytes(body[68..72].try_into().ok()?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// A listener and a connection of this test, asked for in both ways.
    #[test]
    fn sockets_are_those_of_proc_and_no_others() {
        let diag = Diag::of(std::process::id()).expect("a socket to ask");
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let (server, _) = listener.accept().unwrap();
            let told = diag.sockets(address, STATES).unwrap();
            let mut told: Vec<_> = told
                .iter()
                .map(|one| (one.local, one.remote_port, one.state, one.inode != 0))
                .collect();
            told.sort_unstable();
            let port = client.local_addr().unwrap().port();
            assert_eq!(told, [(address, 0, LISTENS, true), (address, port, 1, true)]);
            let listening = diag.sockets(address, 1 << LISTENS).unwrap();
            assert_eq!(listening.len(), 1);
            drop((client, server));
        }
    }

    #[test]
    fn half_an_answer_is_none() {
        let mut bytes = vec![0; 20];
        bytes[..4].copy_from_slice(&40u32.to_ne_bytes());
        assert!(message(&bytes).is_none() && message(&[]).is_none());
        assert!(socket(&[INET; SOCKET_BYTES - 1]).is_none() && socket(&[7; 80]).is_none());
        bytes[..4].copy_from_slice(&8u32.to_ne_bytes());
        assert!(message(&bytes).is_none(), "shorter than its head");
    }
}
