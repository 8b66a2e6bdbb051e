//! UDP at full rate: a socket for each receiving thread, and calls that take many datagrams.
//!
//! ```no_run
//! use husk_net::udp::{Batch, Options, listeners};
//!
//! // Thread n is pinned to core n, where `husk net tune` leads queue n of the interface.
//! let options = Options { by_core: true, ..Options::default() };
//! for socket in listeners("0.0.0.0:4433".parse().unwrap(), 2, &options)? {
//!     std::thread::spawn(move || {
//!         let mut batch = Batch::<2048>::new();
//!         loop {
//!             for datagram in batch.receive(&socket).expect("it receives") {
//!                 println!("{} bytes", datagram.len());
//!             }
//!         }
//!     });
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use husk_host::datagrams;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use crate::problem::io_error;

/// Room for packets that wait, where the host allows it.
const BUFFER_BYTES: usize = 4 << 20;

/// How sockets receive.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A packet goes to the socket whose number is that of the core it came to, so that a thread
    /// on that core finds it in its cache. Otherwise Linux spreads by a hash of the addresses.
    pub by_core: bool,
    /// Poll the device's queue for so long before sleeping (`SO_BUSY_POLL`).
    pub busy_poll_us: Option<u32>,
    /// Several datagrams of one sender and one size may come as one (`UDP_GRO`).
    pub gro: bool,
}

/// Sockets that share an address, one for each receiving thread. With port 0, all have the port
/// that the first got.
pub fn listeners(
    address: SocketAddr,
    number: usize,
    options: &Options,
) -> io::Result<Vec<UdpSocket>> {
    let mut sockets: Vec<UdpSocket> = Vec::new();
    for _ in 0..number.max(1) {
        let address = sockets.first().map_or(Ok(address), UdpSocket::local_addr)?;
        sockets.push(listener(address, options)?);
    }
    if options.by_core && sockets.len() > 1 {
        let number = sockets.len() as u32;
        datagrams::select_by_core(sockets[0].as_raw_fd(), number).map_err(io_error)?;
    }
    Ok(sockets)
}

fn listener(address: SocketAddr, options: &Options) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // Beyond `net.core.rmem_max` it needs CAP_NET_ADMIN.
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES))?;
    if let Some(us) = options.busy_poll_us {
        datagrams::set_busy_poll(socket.as_raw_fd(), us as i32).map_err(io_error)?;
    }
    if options.gro {
        datagrams::set_gro(socket.as_raw_fd()).map_err(io_error)?;
    }
    bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

/// Room for `datagrams::BATCH` datagrams of at most `SIZE` bytes; longer ones are cut.
pub struct Batch<const SIZE: usize> {
    buffers: Box<[[u8; SIZE]; datagrams::BATCH]>,
    lengths: [usize; datagrams::BATCH],
    count: usize,
}

impl<const SIZE: usize> Default for Batch<SIZE> {
    fn default() -> Self {
        Batch::new()
    }
}

impl<const SIZE: usize> Batch<SIZE> {
    /// Empty.
    pub fn new() -> Batch<SIZE> {
        let buffers = Box::new([[0; SIZE]; datagrams::BATCH]);
        Batch { buffers, lengths: [0; datagrams::BATCH], count: 0 }
    }

    /// Receives the datagrams that are there; waits for the first as the socket says.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<impl Iterator<Item = &[u8]>> {
        self.count = 0;
        let received =
            datagrams::receive_many(socket.as_raw_fd(), &mut self.buffers, &mut self.lengths);
        self.count = received.map_err(io_error)?;
        Ok(self.datagrams())
    }

    /// The datagrams that were received last.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.buffers.iter().zip(&self.lengths).take(self.count);
        all.map(|(buffer, &length)| &buffer[..length.min(SIZE)])
    }
}

/// Lets an interface of this network namespace merge packets that come (GRO), or not.
pub fn set_merging(interface: &str, on: bool) -> io::Result<()> {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    husk_host::interface::set_gro(socket.as_raw_fd(), interface, on).map_err(io_error)
}

/// Sends a datagram many times to where the socket is connected to; how often it was sent.
pub fn send_many(socket: &UdpSocket, datagram: &[u8]) -> io::Result<usize> {
    datagrams::send_many(socket.as_raw_fd(), datagram).map_err(io_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(30);

    fn client(to: &UdpSocket) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(to.local_addr().unwrap()).unwrap();
        client
    }

    #[test]
    fn sockets_of_all_threads_share_a_port_and_nothing_is_lost_between_them() {
        for by_core in [false, true] {
            let options = Options { by_core, ..Options::default() };
            let sockets = listeners("127.0.0.1:0".parse().unwrap(), 4, &options).unwrap();
            let sent: usize =
                (0..20).map(|_| send_many(&client(&sockets[0]), b"four").unwrap()).sum();
            let mut batch = Batch::<16>::new();
            let mut received = 0;
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
                while let Ok(datagrams) = batch.receive(socket) {
                    received += datagrams.inspect(|one| assert_eq!(one, b"four")).count();
                }
            }
            assert_eq!((sent, received), (20 * datagrams::BATCH, sent), "by core: {by_core}");
        }
    }

    #[test]
    fn by_core_a_packet_goes_to_the_socket_of_the_core_that_it_came_to() {
        let options = Options { by_core: true, ..Options::default() };
        let sockets = listeners("127.0.0.1:0".parse().unwrap(), 64, &options).unwrap();
        // On loopback that is the core of the sender.
        let cores = rustix::thread::sched_getaffinity(None).unwrap();
        let core = (0..64).find(|&core| cores.is_set(core)).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(core);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        for _ in 0..20 {
            assert_eq!(client(&sockets[0]).send(b"x").unwrap(), 1);
        }
        rustix::thread::sched_setaffinity(None, &cores).unwrap();
        sockets[core].set_read_timeout(Some(LIMIT)).unwrap();
        for _ in 0..20 {
            assert_eq!(sockets[core].recv(&mut [0; 8]).unwrap(), 1);
        }
    }

    #[test]
    fn datagrams_longer_than_the_room_are_cut_and_an_empty_socket_is_no_datagram() {
        let sockets = listeners("127.0.0.1:0".parse().unwrap(), 1, &Options::default()).unwrap();
        client(&sockets[0]).send(b"longer than four").unwrap();
        let mut batch = Batch::<4>::new();
        sockets[0].set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(batch.receive(&sockets[0]).unwrap().collect::<Vec<_>>(), [b"long"]);
        sockets[0].set_nonblocking(true).unwrap();
        assert!(batch.receive(&sockets[0]).is_err());
        assert_eq!(batch.datagrams().count(), 0);
    }
}
