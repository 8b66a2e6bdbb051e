//! `poll` and `select` with Husk files and pipes of the image in the set.
//!
//! A regular file is always ready, and so is the read end of a pipe with bytes in its ring. As soon
//! as one such is asked about, the call does not wait: the host is asked about the rest with a
//! time-out of zero, and the answers are put together. Otherwise the host waits, and every read end
//! in the set is the host's from then on (`pipe`): *pinned first, then looked at once more*, so
//! that no byte goes by. A write end needs less: its writer goes to the host when the ring is full.

use crate::buffers::BOUNCE_BYTES;
use crate::layout::{get16, get32, put};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{O_PATH, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};
use husk_proto::{Errno, Result, Services};

/// Bytes of `struct pollfd`.
const POLLFD_BYTES: usize = 8;
/// Entries handled at once.
const BATCH: usize = BOUNCE_BYTES / POLLFD_BYTES;
/// Bytes of one set in `select`.
const SET_BYTES: usize = 1024;
/// What a read end with bytes is ready for.
const READABLE: u16 = (POLLIN | POLLRDNORM) as u16;
/// What a file is ready for.
const READY: u16 = (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM) as u16;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether `fd` is a Husk descriptor.
    #[inline]
    fn is_husk(&mut self, fd: u32) -> bool {
        matches!(self.described(fd as usize), Ok(Some(_)))
    }

    /// Whether a Husk descriptor stands for a place only (`O_PATH`).
    fn is_place_only(&mut self, fd: u32) -> bool {
        self.opened(fd as usize).is_ok_and(|file| file.is_some_and(|f| f.flags & O_PATH != 0))
    }

    /// `poll`, `ppoll`.
    pub(crate) fn poll(&mut self, c: &Call) -> Answer {
        let (address, count) = (c.args[0], c.args[1] as u32 as usize);
        let waits = self.poll_waits(c);
        if !self.polls_husk(address, count, waits) {
            return Ok(Verdict::Pass);
        }
        let mut ready = 0;
        let mut at = 0;
        while at < count {
            let batch = (count - at).min(BATCH);
            ready += self.poll_batch(address + at * POLLFD_BYTES, batch)?;
            at += batch;
        }
        value(ready)
    }

    /// Whether the call may sleep.
    fn poll_waits(&self, c: &Call) -> bool {
        if c.number == nr::poll { c.args[2] as i32 != 0 } else { !self.is_zero_time(c.args[2]) }
    }

    /// Whether there is a time at `address`, and it is 0.
    fn is_zero_time(&self, address: usize) -> bool {
        let mut time = [0u8; 16];
        address != 0 && self.memory.read(address, &mut time).is_ok() && time == [0; 16]
    }

    /// Whether the read end `fd` has bytes in its ring. If not, and the host is to wait for them,
    /// they will come to the host.
    fn has_bytes(&mut self, fd: u32, waits: bool) -> bool {
        let Some(end) = self.pipe_end(fd as usize) else { return false };
        if end.writes {
            self.services.pipe_leave_if_full(end.pipe);
            return false;
        }
        if waits && self.services.pipe_waiting(end.pipe) == 0 {
            return self.pin_empty(end.pipe);
        }
        self.services.pipe_waiting(end.pipe) > 0
    }

    fn polls_husk(&mut self, address: usize, count: usize, waits: bool) -> bool {
        for index in 0..count {
            let mut entry = [0u8; POLLFD_BYTES];
            if self.memory.read(address + index * POLLFD_BYTES, &mut entry).is_err() {
                return false;
            }
            let fd = get32(&entry, 0);
            let asks = get16(&entry, 4);
            if (fd as i32) < 0 || asks & READY == 0 {
                continue;
            }
            if self.is_husk(fd) || self.has_bytes(fd, waits && asks & READABLE != 0) {
                return true;
            }
        }
        false
    }

    /// Asks the host about all but Husk's, adds Husk's, stores the answers.
    fn poll_batch(&mut self, address: usize, count: usize) -> Result<u64> {
        let bytes = count * POLLFD_BYTES;
        self.memory.read(address, &mut self.buffers.bounce[..bytes])?;
        for at in (0..bytes).step_by(POLLFD_BYTES) {
            let fd = get32(&self.buffers.bounce, at);
            if fd as i32 >= 0 && self.is_husk(fd) {
                put(&mut self.buffers.bounce, at, (!fd).to_le_bytes());
            }
        }
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let raw = self.host.call(nr::poll, [bounce, count, 0, 0, 0, 0]);
        let mut ready = Errno::check(raw)?;
        for at in (0..bytes).step_by(POLLFD_BYTES) {
            let mut original = [0u8; 4];
            self.memory.read(address + at, &mut original)?;
            let entry = &mut self.buffers.bounce[at..at + POLLFD_BYTES];
            let fd = u32::from_le_bytes(original);
            let here = if get32(entry, 0) != fd { READY } else { 0 };
            if here != 0 && self.is_place_only(fd) {
                self.memory.write(address + at + 6, &(POLLNVAL as u16).to_le_bytes())?;
                ready += 1;
                continue;
            }
            let entry = &mut self.buffers.bounce[at..at + POLLFD_BYTES];
            let (asked, host) = (get16(entry, 4), get16(entry, 6));
            let here = if here == 0 && asked & READABLE != 0 && self.waiting_here(fd as usize) > 0 {
                READABLE
            } else {
                here
            };
            let entry = &mut self.buffers.bounce[at..at + POLLFD_BYTES];
            if asked & here != 0 {
                put(entry, 6, (host | asked & here).to_le_bytes());
                ready += u64::from(host == 0);
            }
            self.memory.write(address + at + 6, &[entry[6], entry[7]])?;
        }
        Ok(ready)
    }

    /// `select`, `pselect6`.
    pub(crate) fn select(&mut self, c: &Call) -> Answer {
        let count = c.args[0] as i32;
        if count <= 0 || count as usize > SET_BYTES * 8 || !self.selects_husk(c)? {
            return Ok(Verdict::Pass);
        }
        let bytes = (count as usize).div_ceil(64) * 8;
        // `bounce`: the three sets for the host, then Husk's bits of the first two.
        self.buffers.bounce[..5 * SET_BYTES].fill(0);
        let mut ready = self.split_sets(c, bytes)?;
        let base = self.buffers.bounce.as_mut_ptr() as usize;
        let set = |i: usize| if c.args[1 + i] == 0 { 0 } else { base + i * SET_BYTES };
        let zero = [0u64; 2];
        let args = [c.args[0], set(0), set(1), set(2), zero.as_ptr() as usize, 0];
        ready += Errno::check(self.host.call(nr::select, args))?;
        for i in 0..3 {
            if c.args[1 + i] == 0 {
                continue;
            }
            for byte in 0..bytes {
                let husk = if i < 2 { self.buffers.bounce[(3 + i) * SET_BYTES + byte] } else { 0 };
                self.buffers.bounce[i * SET_BYTES + byte] |= husk;
            }
            let out = &self.buffers.bounce[i * SET_BYTES..i * SET_BYTES + bytes];
            self.memory.write(c.args[1 + i], out)?;
        }
        value(ready)
    }

    /// Whether a read or write set names a Husk descriptor.
    fn selects_husk(&mut self, c: &Call) -> Result<bool> {
        let count = c.args[0] as i32 as u32;
        let waits = !self.is_zero_time(c.args[4]);
        for address in [c.args[1], c.args[2]].into_iter().filter(|&a| a != 0) {
            for word in 0..count.div_ceil(64) {
                let mut bytes = [0u8; 8];
                self.memory.read(address + word as usize * 8, &mut bytes)?;
                let mut bits = u64::from_le_bytes(bytes);
                while bits != 0 {
                    let fd = word * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    if fd < count && (self.is_husk(fd) || self.has_bytes(fd, waits)) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Whether the answer for `fd` in set `i` is known here: a file, or bytes to read in a ring.
    fn is_ready_here(&mut self, fd: u32, i: usize) -> bool {
        self.is_husk(fd) || i == 0 && self.waiting_here(fd as usize) > 0
    }

    /// Sorts the bits into the host's sets and Husk's; returns how many Husk bits are ready.
    fn split_sets(&mut self, c: &Call, bytes: usize) -> Result<u64> {
        let mut ready = 0;
        for i in 0..3 {
            if c.args[1 + i] == 0 {
                continue;
            }
            let start = i * SET_BYTES;
            self.memory.read(c.args[1 + i], &mut self.buffers.bounce[start..start + bytes])?;
            for fd in 0..c.args[0] as u32 {
                let (byte, bit) = (start + fd as usize / 8, 1u8 << (fd % 8));
                if self.buffers.bounce[byte] & bit == 0 || !self.is_ready_here(fd, i) {
                    continue;
                }
                self.buffers.bounce[byte] &= !bit;
                if i < 2 {
                    self.buffers.bounce[byte + 3 * SET_BYTES] |= bit;
                    ready += 1;
                }
            }
        }
        Ok(ready)
    }
}
