//! Where sockets meet Husk trees: addresses that are paths, and descriptors in messages.
//!
//! A socket's name cannot lie in a Husk tree yet, and a Husk descriptor cannot travel in a
//! message: both are refused and counted. Paths that only pass through a tree reach the host.

use crate::layout::{get16, get32, get64};
use crate::path::{Aim, Place};
use crate::{Answer, Call, Client, Host, Memory, Verdict, passing};
use husk_abi::sys::general::AT_FDCWD;
use husk_proto::descriptor::Slot;
use husk_proto::{Errno, Result, Services};

/// Not a socket.
const ENOTSOCK: Errno = Errno(88);
/// `AF_UNIX`.
const UNIX: u16 = 1;
/// Bytes of `struct sockaddr_un`.
const ADDRESS_BYTES: usize = 110;
/// Control messages looked at in one message.
const CONTROLS_MAX: usize = 16;
/// Messages looked at in one `sendmmsg`.
const MESSAGES_MAX: usize = 1024;
/// Bytes of `struct mmsghdr`.
const MMSGHDR_BYTES: usize = 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A call on a socket that leaves something to note.
    pub(crate) fn socket_then(&mut self, c: &Call, reason: u32) -> Answer {
        match self.other_kind(c, ENOTSOCK)? {
            Verdict::Pass => passing::then(c, reason),
            other => Ok(other),
        }
    }

    /// `bind`, `connect`.
    pub(crate) fn socket_address(&mut self, c: &Call, bind: bool) -> Answer {
        self.other_kind(c, ENOTSOCK)?;
        let length = c.args[2].min(ADDRESS_BYTES);
        let mut address = [0u8; ADDRESS_BYTES];
        if length < 3 || self.memory.read(c.args[1], &mut address[..length]).is_err() {
            return Ok(Verdict::Pass);
        }
        if get16(&address, 0) != UNIX || address[2] == 0 {
            return Ok(Verdict::Pass);
        }
        let text = &address[2..length];
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        let walk = &mut self.buffers.walks[0];
        walk.text[..end].copy_from_slice(&text[..end]);
        (walk.at, walk.length) = (0, end);
        let aim = if bind { Aim::PARENT } else { Aim::FOLLOW };
        match self.find_text(AT_FDCWD, 0, aim)? {
            Place::Host => Ok(Verdict::Pass),
            Place::Elsewhere => self.address_elsewhere(c),
            Place::Husk(target) => {
                if !bind {
                    target.existing()?;
                    if self.is_portal(0, &target)? {
                        return self.address_elsewhere(c);
                    }
                }
                self.refuse(c.number, Errno::EOPNOTSUPP)
            }
        }
    }

    /// The same call with the walk's text as the socket's path.
    fn address_elsewhere(&mut self, c: &Call) -> Answer {
        let text = self.buffers.walks[0].whole();
        let mut address = [0u8; ADDRESS_BYTES];
        address[0] = UNIX as u8;
        let place = address.get_mut(2..2 + text.len()).ok_or(Errno::ENAMETOOLONG)?;
        place.copy_from_slice(text);
        let length = (2 + text.len() + 1).min(ADDRESS_BYTES);
        let mut args = c.args;
        (args[1], args[2]) = (address.as_ptr() as usize, length);
        Ok(Verdict::Return(self.host.call(c.number, args)))
    }

    /// `sendmsg`.
    pub(crate) fn sendmsg(&mut self, c: &Call) -> Answer {
        if self.sends_husk(c.args[1])? {
            return self.refuse(c.number, Errno::EOPNOTSUPP);
        }
        Ok(Verdict::Pass)
    }

    /// `sendmmsg`.
    pub(crate) fn sendmmsg(&mut self, c: &Call) -> Answer {
        for index in 0..c.args[2].min(MESSAGES_MAX) {
            if self.sends_husk(c.args[1] + index * MMSGHDR_BYTES)? {
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
            self.memory.read(address + 4 * index, &mut word).is_ok()
                && matches!(self.services.slot(files, u32::from_le_bytes(word)), Slot::Husk(_))
        })
    }
}
