//! A second way to a balancer: a name in the network namespace of its server (an abstract unix
//! socket). It is the same for all that see the server, also where another /run is mounted.
//!
//! Every process in that namespace may take a name, so the user at the other end is checked: root,
//! or the user of this process; for root, also the user of the server, who may steer it, too.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::listeners::{Place, owner};
use super::namespace::within;

fn name(place: &Place) -> String {
    format!("husk-net/{place}")
}

/// Connects at once or not at all: the socket may be a stranger's that accepts no connection.
pub(super) fn connected(address: &SocketAddrUnix) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether root, or the user of this process, is at the other end.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let trusted = |uid: rustix::process::Uid| uid.is_root() || uid == geteuid();
    socket_peercred(stream).is_ok_and(|peer| trusted(peer.uid))
}

/// Whether this user is at the other end.
pub(super) fn is_of(stream: &UnixStream, user: u32) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.as_raw() == user)
}

/// The error for an ordinary user who calls root's balancer.
pub(super) const ROOTS: io::ErrorKind = io::ErrorKind::ResourceBusy;

/// The way to the balancer of a place where a process of its server is `pid`.
pub(super) fn call(pid: u32, place: &Place) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name(place).as_bytes())?;
    let stream = within(pid, || connected(&address))?;
    let is_roots = socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
    if is_roots && !geteuid().is_root() {
        return Err(io::Error::new(ROOTS, "root steers it"));
    }
    let is_owner_s = || owner(pid).is_some_and(|owner| is_of(&stream, owner));
    let is_fine = is_trusted(&stream) || (geteuid().is_root() && is_owner_s());
    if is_fine { Ok(stream) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// The result of an attempt to take the name of a place.
pub(super) enum Taken {
    /// It is this process's.
    Own(UnixListener),
    /// Another balancer has it.
    Others,
    /// It cannot be had: without privilege, or a stranger has it.
    None,
}

/// Whether the holder of the name is a balancer.
fn is_others(pid: u32, place: &Place) -> bool {
    call(pid, place).map_or_else(|why| why.kind() == ROOTS, |_| true)
}

/// Takes the name of a place.
pub(super) fn take(pid: u32, place: &Place) -> Taken {
    let bound = within(pid, || {
        let address = SocketAddr::from_abstract_name(name(place))?;
        let door = UnixListener::bind_addr(&address)?;
        door.set_nonblocking(true)?;
        Ok(door)
    });
    match bound {
        Ok(door) => Taken::Own(door),
        Err(why) if why.kind() == io::ErrorKind::AddrInUse && is_others(pid, place) => {
            Taken::Others
        }
        Err(_) => Taken::None,
    }
}
