//! Eventfds: the count is the image's until somebody has to wait for it, or may look at it from
//! elsewhere; from then on it is the host's (`docs/adr/0089`).
//!
//! ```text
//!   read, write ──► the count in the region          a count of 0 that is waited for, poll, a set,
//!                                                    a message, a stranger ──► given to the host
//! ```
//!
//! Invariant: nobody asks the host about an eventfd whose count is the image's.

use crate::fd::table::Beside;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, reason, value};
use core::sync::atomic::{AtomicBool, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::{EFD_SEMAPHORE, F_GETFL, O_CLOEXEC, O_NONBLOCK};
use husk_proto::descriptor::Shown;
use husk_proto::pipe::{Count, Event, Given};
use husk_proto::{Errno, Result, Services};

/// Bytes that a read gives and a write takes.
const COUNT_BYTES: usize = 8;
/// What `eventfd2` takes.
const FLAGS: u32 = EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK;
/// Looks at somebody who moves a count to the host, and what lies between two: 2 s.
const LOOKS: u32 = 2000;
const NAP_NS: u64 = 1_000_000;
/// Kinds of `ioctl` (the second byte) that name no eventfd: of terminals and all files, of sockets.
const PLAIN_KINDS: [u32; 2] = [0x54, 0x89];
/// How the host shows a count.
const COUNT_LINE: &[u8] = b"eventfd-count:";
/// How it names an eventfd.
const ID_LINE: &[u8] = b"eventfd-id:";

/// Whether this process has no eventfd whose count is the image's; at first it may have inherited
/// some.
static HAS_NONE: AtomicBool = AtomicBool::new(false);

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The eventfd behind a number, if its count may be the image's.
    #[inline]
    pub(crate) fn event(&mut self, fd: usize) -> Option<Event> {
        let files = self.services.files();
        self.services.event(files, fd as u32)
    }

    /// `eventfd`, `eventfd2`: the host's begins with 0.
    pub(crate) fn eventfd(&mut self, c: &Call, flags: u32) -> Answer {
        if !self.services.lanes_wanted() || flags & !FLAGS != 0 {
            return reason::then(c, reason::opened(flags & O_CLOEXEC != 0));
        }
        let args = [0, c.args[1], c.args[0] as u32 as usize, flags as usize, 0, 0];
        let call = After { number: c.number, args, reason: reason::EVENTFD };
        Ok(Verdict::Instead { call, room: 0 })
    }

    /// Notes a new eventfd of the host.
    pub(crate) fn note_event(&mut self, after: &After, result: i64) -> i64 {
        let [_, _, count, flags, ..] = after.args;
        if result < 0 {
            return result;
        }
        let on_exec = flags as u32 & O_CLOEXEC != 0;
        let noted = self.note_opened(result as u32, on_exec, Shown::Nothing);
        let semaphore = flags as u32 & EFD_SEMAPHORE != 0;
        let files = self.services.files();
        HAS_NONE.store(false, Ordering::Relaxed);
        if noted >= 0
            && self.services.event_make(files, noted as u32, count as u32, semaphore).is_err()
        {
            // Too many: this one is all the host's.
            self.add_at_host(noted as usize, count as u64);
        }
        noted
    }

    /// `read`, `write` and the like on an eventfd.
    pub(crate) fn event_call(&mut self, c: &Call, event: Event) -> Answer {
        let [fd, address, length, ..] = c.args;
        let changed = match c.number {
            nr::read | nr::write if length < COUNT_BYTES => return Err(Errno::EINVAL),
            nr::read => self.services.event_take(event),
            // Of more bytes some hosts take the first eight.
            nr::write if length == COUNT_BYTES => {
                let mut bytes = [0u8; COUNT_BYTES];
                self.memory.read(address, &mut bytes)?;
                let added = u64::from_le_bytes(bytes);
                if added == u64::MAX {
                    return Err(Errno::EINVAL);
                }
                self.services.event_add(event, added)
            }
            _ => Ok(Count::Away),
        };
        match changed {
            Ok(Count::Of(count)) if c.number == nr::read => {
                self.memory.write(address, &count.to_le_bytes())?;
                value(COUNT_BYTES as u64)
            }
            Ok(Count::Of(_)) => value(COUNT_BYTES as u64),
            Ok(Count::Nothing) if c.number == nr::read && self.waits_not(fd) => Err(Errno::EAGAIN),
            Ok(Count::Nothing | Count::Away) | Err(_) => {
                self.give_event(fd)?;
                Ok(Verdict::Pass)
            }
        }
    }

    fn waits_not(&self, fd: usize) -> bool {
        self.host_fcntl(fd, F_GETFL, 0) as u32 & O_NONBLOCK != 0
    }

    /// If `fd` is an eventfd, its count is the host's from now on. `EIO`: who moves it there does
    /// not go on.
    #[inline]
    pub(crate) fn give_event(&mut self, fd: usize) -> Result<()> {
        match self.event(fd) {
            Some(event) => self.give_count(fd, event),
            None => Ok(()),
        }
    }

    #[cold]
    fn give_count(&mut self, fd: usize, event: Event) -> Result<()> {
        self.give_by(fd, event)?;
        let files = self.services.files();
        // Its number has been closed meanwhile.
        let _ = self.services.event_forget(files, fd as u32, event);
        Ok(())
    }

    /// The same by any descriptor of that eventfd.
    #[cold]
    pub(crate) fn give_by(&mut self, fd: usize, event: Event) -> Result<()> {
        let mut dead = 0;
        for _ in 0..LOOKS {
            match self.services.event_give(event, dead) {
                Ok(Given::All) => return Ok(()),
                // Its life is over.
                Err(_) => return Ok(()),
                Ok(Given::Move { count, anew }) => {
                    if !anew || self.counted_by_host(fd) == 0 {
                        self.add_at_host(fd, count);
                    }
                    let _ = self.services.event_given(event);
                    return Ok(());
                }
                Ok(Given::By(pid)) if self.services.files_of(pid).is_none() => dead = pid,
                Ok(Given::By(_)) => self.nap(NAP_NS),
            }
        }
        self.refuse(nr::read, Errno::EIO)
    }

    /// An `ioctl` may tell a driver of any eventfd (`KVM_IRQFD`).
    pub(crate) fn give_to_driver(&mut self, request: u32) {
        let plain = PLAIN_KINDS.contains(&(request >> 8 & 0xff));
        if !plain && !HAS_NONE.swap(true, Ordering::Relaxed) {
            self.each_number(|client, fd| {
                // What cannot be moved is counted.
                let _ = client.give_event(fd);
            });
        }
    }

    fn add_at_host(&self, fd: usize, count: u64) {
        let bytes = core::hint::black_box(count.to_le_bytes());
        if count > 0 {
            self.host.call(nr::write, [fd, bytes.as_ptr() as usize, COUNT_BYTES, 0, 0, 0]);
        }
    }

    /// The count that the host has.
    fn counted_by_host(&self, fd: usize) -> u64 {
        self.shown_by_host(fd, shown_count).unwrap_or(0)
    }

    /// What the host shows of an eventfd.
    #[cold]
    pub(crate) fn shown_by_host(&self, fd: usize, find: fn(&[u8]) -> Option<u64>) -> Option<u64> {
        let path = husk_abi::proc::descriptor_facts(fd as u32);
        let path = core::hint::black_box(&path);
        let facts = self.host_open(path.as_ptr() as usize, O_CLOEXEC).ok()?;
        let mut text = [0u8; 512];
        let got = self.host_read(facts, text.as_mut_ptr() as usize, text.len(), 0);
        self.host_close(facts as u32);
        find(&core::hint::black_box(text)[..got.unwrap_or(0)])
    }

    /// A further number of what `kept` stands beside.
    pub(crate) fn event_joined(&mut self, kept: &Beside, fd: u32) {
        if let Some(event) = kept.event {
            HAS_NONE.store(false, Ordering::Relaxed);
            let files = self.services.files();
            // Its life is over, or somebody has closed the number.
            let _ = self.services.event_join(files, fd, event);
        }
    }

    /// `pidfd_getfd` of an eventfd: `pid` and `number` name it where it is.
    #[cold]
    pub(crate) fn give_before_taken(&mut self, c: &Call, pid: u32) -> Result<()> {
        let files = self.services.files_of(pid);
        let event = files.and_then(|files| self.services.event(files, c.args[1] as u32));
        let Some(event) = event else { return Ok(()) };
        let own = Errno::check(self.host.call(nr::pidfd_getfd, c.args))? as usize;
        let given = self.give_by(own, event);
        self.host_close(own as u32);
        given
    }
}

/// The count in what the host says of a descriptor: hexadecimal.
fn shown_count(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(line_of(text, COUNT_LINE)?, 16).ok()
}

/// Which eventfd of the host it is: decimal.
pub(crate) fn shown_id(text: &[u8]) -> Option<u64> {
    line_of(text, ID_LINE)?.parse().ok()
}

fn line_of<'a>(text: &'a [u8], head: &[u8]) -> Option<&'a str> {
    let at = text.windows(head.len()).position(|part| part == head)?;
    let line = text[at + head.len()..].split(|&byte| byte == b'\n').next()?;
    Some(core::str::from_utf8(line).ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::{shown_count, shown_id};

    #[test]
    fn a_count_is_read_from_what_the_host_shows() {
        let shown = b"pos:\t0\nflags:\t02\neventfd-count:               1f\neventfd-id: 3\n";
        assert_eq!(shown_count(shown), Some(31));
        assert_eq!(shown_count(b"pos:\t0\n"), None);
        assert_eq!(shown_id(shown), Some(3));
        assert_eq!(shown_id(b"eventfd-id: x\n"), None);
    }
}
