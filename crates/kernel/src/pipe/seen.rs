//! Service `pipe`: what somebody who looks at an image is shown of its pipes, and of its sockets
//! with lanes.

use husk_proto::pipe::{Addresses, Pipe};
use husk_region::rings::pipes::Mode;

use crate::Kernel;
use crate::pipe::{NAMES, ring_of, tcp};

/// Which way the bytes of a lane go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through its ring.
    Ring,
    /// Through the host: the reader sleeps there, or has just been there.
    Host,
    /// Through the host, until that has none left.
    Leaving,
    /// Through the host for good.
    Pinned,
    /// Through the host: nobody of the image is known at the other end.
    Unpaired,
}

/// Which way the bytes of a lane go now.
pub fn way(lane: Pipe) -> Way {
    let Ok(ring) = ring_of(lane) else { return Way::Unpaired };
    match ring.mode() {
        None => Way::Unpaired,
        Some(_) if ring.is_pinned() => Way::Pinned,
        Some(_) if ring.is_unused() => Way::Unpaired,
        Some(Mode::Ring) => Way::Ring,
        Some(Mode::Host) => Way::Host,
        Some(Mode::Leaving | Mode::Climbing) => Way::Leaving,
    }
}

/// Bytes that wait in a lane's ring.
pub fn waiting(lane: Pipe) -> u64 {
    ring_of(lane).map_or(0, |ring| ring.waiting())
}

/// The lane that goes the other way.
pub fn mate(lane: Pipe) -> Option<Pipe> {
    ring_of(lane).ok()?.mate().map(Pipe)
}

/// The addresses of the socket that reads from a lane, if that is a TCP connection over loopback.
pub fn addresses(lane: Pipe) -> Option<Addresses> {
    tcp::addresses(lane)
}

/// Whether that socket is in an epoll set that waits for bytes of its ring.
pub fn is_in_set(lane: Pipe) -> bool {
    ring_of(lane).is_ok_and(|ring| ring.teller().is_some())
}

/// `Pipes::pipe_moved`.
pub fn moved(pipe: Pipe, writes: bool) -> u64 {
    let moved = ring_of(pipe).ok().and_then(|ring| ring.moved());
    moved.map_or(0, |(written, read)| if writes { written } else { read })
}

/// Shows each pipe and lane of an image, with the bytes that were ever written into its ring and
/// read from it.
pub fn each_ring(kernel: &Kernel, show: &mut dyn FnMut(Pipe, u64, u64)) {
    let region = &kernel.session.region;
    for number in NAMES.used(region) {
        let pipe = Pipe(NAMES.name(region, number));
        if let Some((written, read)) = ring_of(pipe).ok().and_then(|ring| ring.moved()) {
            show(pipe, written, read);
        }
    }
}
