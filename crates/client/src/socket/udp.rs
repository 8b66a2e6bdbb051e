//! Datagram sockets of the Internet, set up as the image says when they are bound to a port.
//!
//! Linux spreads the packets of a port over the sockets that share it, and prefers the one whose
//! core a packet has come to. What it refuses leaves a socket as the program made it.

use husk_abi::nr;
use husk_abi::sys::net::{AF_INET, AF_INET6, SOCK_DGRAM};
use husk_proto::Services;
use husk_proto::image::Udp;

use crate::socket::addresses::{DOMAIN, SOCKET_LEVEL, TYPE};
use crate::{Client, Host, Memory};

/// `SO_REUSEPORT`, `SO_BUSY_POLL`, `SO_INCOMING_CPU`.
const REUSEPORT: usize = 15;
const BUSY_POLL: usize = 46;
const INCOMING_CPU: usize = 49;
/// Words of a mask of cores: as many as Linux has at most.
const MASK_WORDS: usize = 8192 / 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Before `bind`: one of UDP is set up.
    pub(crate) fn prepare_udp(&self, fd: usize) {
        let udp = self.services.udp();
        if udp.word() == 0 || self.socket_option(fd, TYPE) != Some(SOCK_DGRAM) {
            return;
        }
        if ![AF_INET, AF_INET6].map(Some).contains(&self.socket_option(fd, DOMAIN)) {
            return;
        }
        if udp.reuseport {
            self.set_socket_option(fd, REUSEPORT, 1);
        }
        if udp.busy_poll {
            self.set_socket_option(fd, BUSY_POLL, Udp::BUSY_POLL_US as u32);
        }
        if let Some(core) = udp.pin.then(|| self.services.udp_core()).flatten() {
            self.set_socket_option(fd, INCOMING_CPU, core);
            let mut mask = [0u64; MASK_WORDS];
            if let Some(word) = mask.get_mut(core as usize / 64) {
                *word = 1 << (core % 64);
                let at = mask.as_ptr() as usize;
                self.host.call(nr::sched_setaffinity, [0, MASK_WORDS * 8, at, 0, 0, 0]);
            }
        }
    }

    fn set_socket_option(&self, fd: usize, option: usize, value: u32) {
        let at = &raw const value as usize;
        self.host.call(nr::setsockopt, [fd, SOCKET_LEVEL, option, at, 4, 0]);
    }
}
