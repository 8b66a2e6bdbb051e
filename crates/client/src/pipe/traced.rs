//! What `husk trace` asks about calls that move bytes: how far the ring of their descriptor is.

use crate::{Client, Host, Memory};
use husk_abi::nr;
use husk_proto::Services;

/// Whether a call writes bytes to the descriptor in its first argument, or reads some from there;
/// `None`: neither.
const fn writes(number: usize) -> Option<bool> {
    match number {
        nr::read | nr::readv | nr::recvfrom | nr::recvmsg | nr::recvmmsg => Some(false),
        nr::write | nr::writev | nr::sendto | nr::sendmsg | nr::sendmmsg | nr::sendfile => {
            Some(true)
        }
        _ => None,
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// How many bytes have gone through the ring, in the direction of call `number` on `fd`;
    /// `None`: the call moves none, or there is no ring.
    pub fn moved_by_ring(&mut self, number: usize, fd: usize) -> Option<u64> {
        let writes = writes(number)?;
        let end = self.pipe_end(fd)?;
        let lane = self.lane(end, writes)?;
        Some(self.services.pipe_moved(lane.pipe, writes))
    }
}
