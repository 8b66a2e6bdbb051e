//! Messages on sockets: a Husk descriptor cannot travel in one yet (refused and counted), and the
//! name a message goes to may lie in a Husk tree (`addresses`).

use crate::layout::{get32, get64};
use crate::{Answer, Call, Client, Host, Memory, Verdict};
use husk_proto::descriptor::Slot;
use husk_proto::{Errno, Result, Services};

/// Control messages looked at in one message.
const CONTROLS_MAX: usize = 16;
/// Messages looked at in one `sendmmsg`.
const MESSAGES_MAX: usize = 1024;
/// Bytes of `struct mmsghdr`.
const MMSGHDR_BYTES: usize = 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `sendmsg`.
    pub(crate) fn sendmsg(&mut self, c: &Call) -> Answer {
        if self.sends_husk(c.args[1])? {
            return self.refuse(c.number, Errno::EOPNOTSUPP);
        }
        self.send_to_name(c)
    }

    /// `sendmmsg`.
    pub(crate) fn sendmmsg(&mut self, c: &Call) -> Answer {
        for index in 0..c.args[2].min(MESSAGES_MAX) {
            if self.sends_husk(c.args[1].wrapping_add(index * MMSGHDR_BYTES))? {
                return self.refuse(c.number, Errno::EOPNOTSUPP);
            }
        }
        Ok(Verdict::Pass)
    }

    /// Whether a message carries a Husk descriptor. What cannot be read is the host's to refuse.
    fn sends_husk(&mut self, header: usize) -> Result<bool> {
        let mut head = [0u8; 56];
        if self.memory.read(header, &mut head).is_err() {
            return Ok(false);
        }
        let (mut at, length) = (get64(&head, 32) as usize, get64(&head, 40) as usize);
        let end = at.saturating_add(length);
        for _ in 0..CONTROLS_MAX {
            let mut control = [0u8; 16];
            if at == 0 || end < at + 16 || self.memory.read(at, &mut control).is_err() {
                return Ok(false);
            }
            let length = get64(&control, 0) as usize;
            if length < 16 || length > end - at {
                return Ok(false);
            }
            let passes = (get32(&control, 8), get32(&control, 12)) == (1, 1);
            if passes && self.any_husk(at + 16, (length - 16) / 4) {
                return Ok(true);
            }
            at += length.next_multiple_of(8);
        }
        Ok(false)
    }

    fn any_husk(&mut self, address: usize, count: usize) -> bool {
        let files = self.services.files();
        (0..count).any(|index| {
            let mut word = [0u8; 4];
            if self.memory.read(address + 4 * index, &mut word).is_err() {
                return false;
            }
            let fd = u32::from_le_bytes(word);
            // What of a pipe cannot be moved stays for readers of the image; counted.
            let _ = self.surrender(fd as usize);
            matches!(self.services.slot(files, fd), Slot::Husk(_))
        })
    }
}
