//! Steering without privilege: a program of classic BPF with the table in its instructions,
//! attached anew for each move.
//!
//! Invariants
//! 1. A move attaches a whole program: a connection meets the table before the move or after it.
//! 2. It has no clock, so it steers until it is taken away, also where the balancer is killed.

use std::os::fd::{AsRawFd, OwnedFd};

use husk_abi::Errno;
use husk_host::cbpf;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::super::listeners::Place;
use super::super::namespace::within;
use super::order::order;
use super::take_away;
use super::tree::selector;
use crate::groups::GROUPS;
use crate::problem::Problem;

/// A table, and whether it is attached.
pub struct Cbpf {
    kernels: [u16; GROUPS],
    /// The index of each kernel's socket.
    indexes: Vec<u16>,
    /// Whether the table is not the one that is attached.
    is_stale: bool,
}

impl Cbpf {
    /// Nothing is steered yet.
    pub fn new() -> Cbpf {
        Cbpf { kernels: [0; GROUPS], indexes: Vec::new(), is_stale: false }
    }

    /// Steers among these sockets, one for each kernel. What steered before goes, also where it
    /// fails.
    pub fn steer(&mut self, pid: u32, place: &Place, kernels: &[OwnedFd]) -> Result<(), Problem> {
        let first = kernels.first().ok_or(Errno::ENOENT).map_err(refused)?;
        // With another order the table would lead elsewhere meanwhile.
        self.indexes.clear();
        take_away(first).map_err(refused)?;
        let found = fits(pid, kernels.len()).and_then(|()| order(pid, place, kernels));
        let found = found.and_then(|order| {
            self.indexes = order;
            self.attach(first)
        });
        found.inspect_err(|_| {
            // Linux chooses.
            let _ = take_away(first);
            self.indexes.clear();
        })
    }

    /// Whether the last `steer` has worked.
    pub fn is_attached(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// Assigns a group to a kernel, from the next `carry_out` on.
    pub fn assign(&mut self, group: usize, kernel: usize) {
        let kernel = kernel as u16;
        self.is_stale |= self.kernels[group] != kernel;
        self.kernels[group] = kernel;
    }

    /// Attaches the table, if it has changed and steers, by one of the sockets.
    pub fn carry_out(
        &mut self,
        socket: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Problem> {
        if !self.is_stale || !self.is_attached() {
            return Ok(());
        }
        let socket = socket();
        socket.map_err(refused).and_then(|socket| self.attach(&socket))
    }

    fn attach(&mut self, socket: &OwnedFd) -> Result<(), Problem> {
        let index = |kernel: u16| self.indexes[usize::from(kernel)];
        let program = selector(&self.kernels.map(index));
        cbpf::attach_selector(socket.as_raw_fd(), &program).map_err(refused)?;
        self.is_stale = false;
        Ok(())
    }
}

/// Whether Linux takes every table of so many sockets in the network namespace of a process. It is
/// tried with a socket that is nobody's: that a move is refused later would be too late.
fn fits(pid: u32, sockets: usize) -> Result<(), Problem> {
    // No word is like another one.
    let index = |group: usize| (group.wrapping_mul(0x9e37_79b9) >> 7) % sockets;
    let program = selector(&std::array::from_fn(|group| match group {
        0 => sockets as u16 - 1,
        _ => index(group) as u16,
    }));
    let socket = within(pid, || {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        Ok(socket)
    });
    // Another namespace is told by `order`.
    let Ok(socket) = socket else { return Ok(()) };
    match cbpf::attach_selector(socket.as_raw_fd(), &program) {
        Err(Errno::ENOMEM) => {
            let why = format!(
                "a program for {sockets} sockets is longer than net.core.optmem_max allows"
            );
            let remedy = "start at most 16 processes, set net.core.optmem_max to 131072, or \
                          steer by eBPF, as root";
            Err(Problem::new("cannot steer by cBPF", why, remedy))
        }
        attached => attached.map_err(refused),
    }
}

fn refused(errno: Errno) -> Problem {
    Problem::refused("steer the connections of these sockets", errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use std::thread::scope;

    use crate::groups::group_of;
    use rustix::net::{bind, listen, socket};

    fn listener(port: u16) -> TcpListener {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        listen(&socket, 128).unwrap();
        socket.into()
    }

    /// So many listeners, and the place.
    fn listeners(count: usize) -> (Vec<TcpListener>, Place) {
        let mut all = vec![listener(0)];
        let address = all[0].local_addr().unwrap();
        all.extend((1..count).map(|_| listener(address.port())));
        (all, Place { address, namespace: 0 })
    }

    fn owned(listeners: &[TcpListener]) -> Vec<OwnedFd> {
        listeners.iter().map(|one| one.try_clone().unwrap().into()).collect()
    }

    /// Which kernel answers, and from which port it was asked.
    fn ask(address: SocketAddr) -> std::io::Result<(u16, u16)> {
        let mut stream = TcpStream::connect(address)?;
        let port = stream.local_addr()?.port();
        let mut kernel = [0; 2];
        stream.read_exact(&mut kernel)?;
        // No port waits after it.
        sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
        Ok((u16::from_ne_bytes(kernel), port))
    }

    /// Each listener answers with its number, until it is over.
    fn answer(listener: &TcpListener, kernel: usize, over: &AtomicBool) {
        for stream in listener.incoming() {
            if over.load(Relaxed) {
                return;
            }
            // The client may have gone.
            let _ = stream.and_then(|mut one| one.write_all(&(kernel as u16).to_ne_bytes()));
        }
    }

    const ATTACHED: usize = 1_000;

    #[test]
    fn no_connection_is_lost_over_a_thousand_attached_programs_and_each_goes_by_its_group() {
        let (listeners, place) = listeners(3);
        let mut way = Cbpf::new();
        (0..GROUPS).for_each(|group| way.assign(group, group % 2));
        way.steer(std::process::id(), &place, &owned(&listeners)).unwrap();
        let [asked_enough, over] = [(); 2].map(|()| AtomicBool::new(false));
        let asked = AtomicUsize::new(0);
        let (asked_enough, over, asked, address) = (&asked_enough, &over, &asked, place.address);
        scope(|scope| {
            for (kernel, listener) in listeners.iter().enumerate() {
                scope.spawn(move || answer(listener, kernel, over));
            }
            let client = || {
                while !asked_enough.load(Relaxed) {
                    let (kernel, port) = ask(address)?;
                    asked.fetch_add(1, Relaxed);
                    // Kernel 2 has those of no other, in turns.
                    let group = group_of(port) % 2;
                    assert!(usize::from(kernel) == group || kernel == 2, "{port}: {kernel}");
                }
                Ok::<_, std::io::Error>(())
            };
            let clients = [(); 2].map(|()| scope.spawn(client));
            for number in 0..ATTACHED {
                let to = |group| if number % 2 == 0 { 2 } else { group % 2 };
                (0..GROUPS).step_by(3).for_each(|group| way.assign(group, to(group)));
                way.carry_out(|| Ok(listeners[0].try_clone().unwrap().into())).unwrap();
                let wanted = asked.load(Relaxed) + 1;
                while number % 8 == 0 && asked.load(Relaxed) < wanted {
                    assert!(!clients.iter().any(|one| one.is_finished()), "a client failed");
                    std::thread::yield_now();
                }
            }
            asked_enough.store(true, Relaxed);
            let ends = clients.map(|client| client.join().unwrap().map_err(|why| why.to_string()));
            over.store(true, Relaxed);
            // Who waits for connections ends with one.
            for kernel in 0..3 {
                (0..GROUPS).for_each(|group| way.assign(group, kernel));
                way.carry_out(|| Ok(listeners[0].try_clone().unwrap().into())).unwrap();
                drop(TcpStream::connect(address).unwrap());
            }
            assert_eq!(ends, [Ok(()), Ok(())]);
        });
        assert!(asked.load(Relaxed) >= ATTACHED / 8, "{asked:?}");
    }

    #[test]
    fn where_no_order_shows_linux_chooses_and_no_table_is_attached_any_more() {
        let (listeners, place) = listeners(2);
        let (others, _) = self::listeners(1);
        let mut way = Cbpf::new();
        way.steer(std::process::id(), &place, &owned(&listeners)).unwrap();
        assert!(way.is_attached());
        // One that listens elsewhere.
        let mut wrong = owned(&listeners);
        wrong.extend(owned(&others));
        assert!(way.steer(std::process::id(), &place, &wrong).is_err());
        (0..GROUPS).for_each(|group| way.assign(group, 1));
        way.carry_out(|| panic!("nothing is to be attached")).unwrap();
        assert_eq!((way.is_attached(), take_away(&wrong[0])), (false, Ok(false)));
    }

    #[test]
    fn sixty_four_sockets_can_be_named_each_by_its_groups() {
        let (listeners, place) = listeners(64);
        let mut way = Cbpf::new();
        (0..GROUPS).for_each(|group| way.assign(group, (group * 7 + group / 64) % 64));
        way.steer(std::process::id(), &place, &owned(&listeners)).unwrap();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        for _ in 0..200 {
            let stream = TcpStream::connect(place.address).unwrap();
            let group = group_of(stream.local_addr().unwrap().port());
            let kernel = (group * 7 + group / 64) % 64;
            assert!(listeners[kernel].accept().is_ok(), "group {group} is not at kernel {kernel}");
        }
    }
}
