//! A second way to a balancer: a name in the network namespace of its server (an abstract unix
//! socket). It is the same for all that see the server, also where another /run is mounted.
//!
//! Anybody in that namespace may take a name, so who is at the other end is looked at: root, or the
//! user of this process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::listeners::Place;
use super::namespace::within;

fn address(place: &Place) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("husk-net/{place}"))
}

/// Whether root, or the user of this process, is at the other end.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let trusted = |uid: rustix::process::Uid| uid.is_root() || uid == geteuid();
    socket_peercred(stream).is_ok_and(|peer| trusted(peer.uid))
}

/// The way to the balancer of a place where a process of its server is `pid`.
pub(super) fn call(pid: u32, place: &Place) -> io::Result<UnixStream> {
    let stream = within(pid, || UnixStream::connect_addr(&address(place)?))?;
    if is_trusted(&stream) { Ok(stream) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// What has come of an attempt to take the name of a place.
pub(super) enum Taken {
    /// It is this process's.
    Own(UnixListener),
    /// Another balancer has it.
    Others,
    /// It cannot be had: without privilege, or a stranger has it.
    None,
}

/// Takes the name of a place.
pub(super) fn take(pid: u32, place: &Place) -> Taken {
    let bound = within(pid, || {
        let door = UnixListener::bind_addr(&address(place)?)?;
        door.set_nonblocking(true)?;
        Ok(door)
    });
    match bound {
        Ok(door) => Taken::Own(door),
        Err(why) if why.kind() == io::ErrorKind::AddrInUse && call(pid, place).is_ok() => {
            Taken::Others
        }
        Err(_) => Taken::None,
    }
}
