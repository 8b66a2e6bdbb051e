//! Messages on sockets: a Husk descriptor in one travels as a stand-in (`scm_rights`), and the name
//! a message goes to may lie in a Husk tree (`addresses`).
//!
//! ```text
//!   struct msghdr ─► control ─► cmsghdr (length, level, type) descriptors ...
//!                               cmsghdr ...
//! ```

use crate::layout::{get32, get64};
use crate::reason;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_proto::{Result, Services};

/// Messages looked at in one `sendmmsg` or `recvmmsg`.
pub(crate) const MESSAGES_MAX: usize = 1024;
/// Bytes of `struct mmsghdr`.
pub(crate) const MMSGHDR_BYTES: usize = 64;
/// Where it tells how many bytes were sent.
const SENT_AT: usize = 56;
/// Bytes of `struct msghdr`.
pub(crate) const MSGHDR_BYTES: usize = 56;
/// Where the length of the name stands in it.
pub(crate) const NAME_LENGTH_AT: usize = 8;
/// Where the address and the length of the control messages stand, and the flags.
pub(crate) const CONTROL_AT: usize = 32;
pub(crate) const CONTROL_LENGTH_AT: usize = 40;
pub(crate) const MESSAGE_FLAGS_AT: usize = 48;
/// Bytes of `struct cmsghdr`; what it tells of stands behind.
pub(crate) const CMSGHDR_BYTES: usize = 16;
/// Descriptors in one control message (`SCM_MAX_FD`).
pub(crate) const PASSED_MAX: usize = 253;
/// Control messages looked at in one message.
const CONTROLS_MAX: usize = 16;
/// `SOL_SOCKET`, `SCM_RIGHTS`: a control message of descriptors.
const RIGHTS: (u32, u32) = (1, 1);

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `sendmsg`.
    pub(crate) fn sendmsg(&mut self, c: &Call) -> Answer {
        if let Some(answer) = self.lane_sendmsg(c) {
            return answer;
        }
        self.surrender_carried(c.args[1])?;
        if self.sends_husk(c.args[1]) {
            return self.send_carrying(c, c.args[1], 0);
        }
        self.send_to_name(c)
    }

    /// `sendmmsg`: messages up to the first that carries a Husk descriptor or goes to a name of a
    /// tree, or that one alone.
    pub(crate) fn sendmmsg(&mut self, c: &Call) -> Answer {
        self.surrender(c.args[0])?;
        for index in 0..c.args[2].min(MESSAGES_MAX) {
            let header = c.args[1].wrapping_add(index * MMSGHDR_BYTES);
            self.surrender_carried(header)?;
            if !self.sends_husk(header) && !self.sends_to_ours(c.args[0], header) {
                continue;
            }
            if index == 0 {
                return self.send_carrying(c, header, header.wrapping_add(SENT_AT));
            }
            let mut args = c.args;
            args[2] = index;
            let call = After { number: c.number, args, reason: reason::NOTHING };
            return Ok(Verdict::Instead { call, room: 0 });
        }
        Ok(Verdict::Pass)
    }

    /// Whether a message goes to a name that the host does not know; one that leads nowhere is told
    /// of when it is the first.
    fn sends_to_ours(&mut self, fd: usize, header: usize) -> bool {
        let mut head = [0u8; MSGHDR_BYTES];
        if self.memory.read(header, &mut head).is_err() || get64(&head, 0) == 0 {
            return false;
        }
        let way = self.way(fd, get64(&head, 0) as usize, get32(&head, NAME_LENGTH_AT) as usize);
        !matches!(way, Ok(None))
    }

    /// Pipes and sockets that a message carries are the host's from now on. What cannot be moved
    /// there would be lost with the sender's number: `EIO`.
    fn surrender_carried(&mut self, header: usize) -> Result<()> {
        let mut done = Ok(());
        self.any_descriptors(header, |client, at, count| {
            for index in 0..count.min(PASSED_MAX) {
                let mut word = [0u8; 4];
                if client.memory.read(at + CMSGHDR_BYTES + 4 * index, &mut word).is_ok() {
                    let surrendered = client.surrender(u32::from_le_bytes(word) as usize);
                    done = done.and(surrendered);
                }
            }
            done.is_err()
        });
        done
    }

    /// Whether a message carries a Husk descriptor.
    fn sends_husk(&mut self, header: usize) -> bool {
        self.any_descriptors(header, |client, at, count| client.any_husk(at + CMSGHDR_BYTES, count))
    }

    /// Shows each control message of descriptors in the message at `header` (where it stands, how
    /// many it tells of) to `seen`, until that is true; whether it was. What cannot be read is the
    /// host's to refuse.
    pub(crate) fn any_descriptors(
        &mut self,
        header: usize,
        mut seen: impl FnMut(&mut Self, usize, usize) -> bool,
    ) -> bool {
        let mut head = [0u8; MSGHDR_BYTES];
        if self.memory.read(header, &mut head).is_err() {
            return false;
        }
        let mut at = get64(&head, CONTROL_AT) as usize;
        let end = at.saturating_add(get64(&head, CONTROL_LENGTH_AT) as usize);
        for _ in 0..CONTROLS_MAX {
            let mut control = [0u8; CMSGHDR_BYTES];
            let left = end.saturating_sub(at);
            if at == 0 || left < CMSGHDR_BYTES || self.memory.read(at, &mut control).is_err() {
                return false;
            }
            let length = get64(&control, 0) as usize;
            if length < CMSGHDR_BYTES || length > left {
                return false;
            }
            if is_rights(&control) && seen(self, at, (length - CMSGHDR_BYTES) / 4) {
                return true;
            }
            at = at.saturating_add(length.next_multiple_of(8));
        }
        false
    }

    fn any_husk(&mut self, address: usize, count: usize) -> bool {
        (0..count.min(PASSED_MAX)).any(|index| {
            let mut word = [0u8; 4];
            if self.memory.read(address + 4 * index, &mut word).is_err() {
                return false;
            }
            let fd = u32::from_le_bytes(word);
            !matches!(self.described(fd as usize), Ok(None))
        })
    }
}

/// Whether a control message is one of descriptors.
pub(crate) fn is_rights(control: &[u8]) -> bool {
    (get32(control, 8), get32(control, 12)) == RIGHTS
}
