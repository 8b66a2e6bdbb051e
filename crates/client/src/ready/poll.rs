//! `poll` and `select` with Husk files and pipes of the image in the set.
//!
//! A regular file is always ready, and so is the read end of a pipe with bytes in its ring. As soon
//! as one such is asked about, the call does not wait: the host is asked about the rest with a
//! time-out of zero, and the answers are put together. Otherwise the host waits, and every read end
//! in the set is the host's meanwhile (`docs/adr/0034`): counted as a read in flight, as many as
//! fit into an `After`, the others for ever: *pinned first, then looked at once more*. So no byte
//! goes by. A write end needs less: its writer goes to the host when the ring is full.

use crate::buffers::BOUNCE_BYTES;
use crate::layout::{get16, get32, put};
use crate::pipe::watched::{Watched, asleep};
use crate::ready::poll_bell::Rest;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{O_PATH, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};
use husk_proto::pipe::Flow;
use husk_proto::{Errno, Result, Services};

/// Bytes of `struct pollfd`.
pub(crate) const POLLFD_BYTES: usize = 8;
/// Entries handled at once.
const BATCH: usize = BOUNCE_BYTES / POLLFD_BYTES;
/// Bytes of one set in `select`.
const SET_BYTES: usize = 1024;
/// Numbers in a set as libraries make it.
const SET_NUMBERS: u32 = 1024;
/// What a read end with bytes is ready for.
pub(crate) const READABLE: u16 = (POLLIN | POLLRDNORM) as u16;
/// What a file is ready for.
const READY: u16 = (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM) as u16;

/// Rounds with a pipe that changes hands, before it is the host's for ever; and with bytes that
/// somebody else takes.
const ROUNDS_MAX: u32 = 100;

/// How a set stands.
enum Outlook {
    /// Something of Husk's is ready.
    Ready,
    /// The host's alone.
    Hosts,
    /// There are read ends of pipes with nothing in their rings.
    Quiet,
}

/// What a look at a read end has come to, before the host waits for its bytes.
#[derive(PartialEq, Eq)]
enum Sight {
    /// Nothing is in the ring, and nothing will come there meanwhile.
    Watched,
    /// There are bytes.
    Bytes,
    /// Somebody has held the ring for long: one who is stopped, perhaps.
    Held,
}

/// All read ends of a set, or what the first had that cannot be watched.
type Watch = core::result::Result<Watched, Sight>;

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
        if count > BATCH {
            let fits = |limit: u32| count <= limit as usize;
            self.with_limit(|_, limit| fits(limit).then_some(()).ok_or(Errno::EMFILE))
                .map_err(|_| Errno::EINVAL)?;
        }
        let again = core::mem::take(&mut self.waits.again);
        for _ in 0..ROUNDS_MAX {
            let mut waits = self.poll_waits(c);
            let outlook = self.polls_husk(address, count);
            if waits && matches!(outlook, Outlook::Quiet) {
                match self.poll_by_bell(c, count, again) {
                    Rest::Sleeps(verdict) => return Ok(verdict),
                    Rest::Bytes => continue,
                    Rest::Otherwise => {}
                }
            }
            let watch = |client: &mut Self| Ok(client.watch_polled(address, count));
            if let Some(verdict) = self.left_to_host(c, outlook, &mut waits, watch)? {
                return Ok(verdict);
            }
            let (mut ready, mut at) = (0, 0);
            while at < count {
                let batch = (count - at).min(BATCH);
                ready += self.poll_batch(address + at * POLLFD_BYTES, batch)?;
                at += batch;
            }
            // Otherwise somebody else has read what was there.
            if ready != 0 || !waits {
                return value(ready);
            }
        }
        value(0)
    }

    /// The call is the host's, as its set stands, which may have to be watched; `None`: it is
    /// answered at once, and again only if nothing is found and it still `waits`.
    #[inline(always)]
    fn left_to_host(
        &mut self,
        c: &Call,
        outlook: Outlook,
        waits: &mut bool,
        watch: impl FnOnce(&mut Self) -> Result<Watch>,
    ) -> Result<Option<Verdict>> {
        Ok(match outlook {
            Outlook::Ready => None,
            Outlook::Quiet if *waits => match watch(self)? {
                Ok(watched) => Some(asleep(c, &watched)),
                Err(sight) => {
                    *waits = sight == Sight::Bytes;
                    None
                }
            },
            Outlook::Quiet | Outlook::Hosts => Some(Verdict::Pass),
        })
    }

    /// Whether the call may sleep.
    fn poll_waits(&self, c: &Call) -> bool {
        if c.number == nr::poll { c.args[2] as i32 != 0 } else { !self.is_zero_time(c.args[2]) }
    }

    /// Whether there is a time at `address`, and it is 0.
    pub(crate) fn is_zero_time(&self, address: usize) -> bool {
        let mut time = [0u8; 16];
        address != 0 && self.memory.read(address, &mut time).is_ok() && time == [0; 16]
    }

    /// How `fd` stands, which is asked about for reading or not.
    fn outlook(&mut self, fd: u32, reads: bool) -> Outlook {
        if self.is_husk(fd) {
            return Outlook::Ready;
        }
        let Some(end) = self.pipe_end(fd as usize) else {
            if let Some(set) = self.epoll_set(fd as usize) {
                self.set_to_host(set);
            }
            // What cannot be moved is counted.
            let _ = self.give_event(fd as usize);
            return Outlook::Hosts;
        };
        if let Some(lane) = self.lane(end, true) {
            self.services.pipe_leave_if_full(lane.pipe);
        }
        if end.writes {
            return Outlook::Hosts;
        }
        match self.services.pipe_waiting(end.pipe) {
            _ if !reads => Outlook::Hosts,
            0 => Outlook::Quiet,
            _ => Outlook::Ready,
        }
    }

    /// Before the host waits for bytes at `fd`, too.
    fn watch(&mut self, fd: u32, watched: &mut Watched) -> Sight {
        let end = self.pipe_end(fd as usize).filter(|end| !end.writes);
        let Some(end) = end else { return Sight::Watched };
        for _ in 0..ROUNDS_MAX {
            if watched.count == Watched::MAX {
                break;
            }
            match self.services.pipe_watch(end.pipe) {
                Ok(Flow::Moved(_)) => return Sight::Bytes,
                Ok(Flow::Host { .. }) => {
                    watched.add(end.pipe);
                    return Sight::Watched;
                }
                Ok(Flow::Wait { address, value }) => self.sleep_on(address, value),
                Ok(Flow::Settle) => {
                    let _ = self.settle_pipe(Some(fd as usize), end);
                }
                // Its last number has been closed meanwhile.
                _ => return Sight::Watched,
            }
        }
        match (self.pin_empty(end.pipe), self.services.pipe_waiting(end.pipe)) {
            (false, _) => Sight::Watched,
            (true, 0) => Sight::Held,
            (true, _) => Sight::Bytes,
        }
    }

    /// A call that watched pipes is over, or was not made.
    pub(crate) fn unwatch(&mut self, names: &[usize; 6]) {
        for pipe in Watched::pipes(names) {
            self.services.pipe_landed(pipe, false, 0);
        }
    }

    fn polls_husk(&mut self, address: usize, count: usize) -> Outlook {
        let mut outlook = Outlook::Hosts;
        for index in 0..count {
            let Some(asked) = self.polled(address, index) else { return Outlook::Hosts };
            let (fd, asks) = asked;
            if (fd as i32) < 0 || asks & READY == 0 {
                continue;
            }
            match self.outlook(fd, asks & READABLE != 0) {
                Outlook::Ready => return Outlook::Ready,
                Outlook::Quiet => outlook = Outlook::Quiet,
                Outlook::Hosts => {}
            }
        }
        outlook
    }

    /// Descriptor and events of an entry.
    pub(crate) fn polled(&self, address: usize, index: usize) -> Option<(u32, u16)> {
        let mut entry = [0u8; POLLFD_BYTES];
        self.memory.read(address + index * POLLFD_BYTES, &mut entry).ok()?;
        Some((get32(&entry, 0), get16(&entry, 4)))
    }

    /// Watches all read ends in the set, or none.
    fn watch_polled(&mut self, address: usize, count: usize) -> Watch {
        let mut watched = Watched::default();
        for index in 0..count {
            let Some((fd, asks)) = self.polled(address, index) else { break };
            if fd as i32 >= 0 && asks & READABLE != 0 {
                let sight = self.watch(fd, &mut watched);
                if sight != Sight::Watched {
                    self.unwatch(&watched.names);
                    return Err(sight);
                }
            }
        }
        Ok(watched)
    }

    /// Asks the host about all but Husk's, adds Husk's, stores the answers.
    fn poll_batch(&mut self, address: usize, count: usize) -> Result<u64> {
        let bytes = count * POLLFD_BYTES;
        self.memory.read(address, &mut self.buffers.bounce[..bytes])?;
        for at in (0..bytes).step_by(POLLFD_BYTES) {
            let fd = get32(&self.buffers.bounce, at);
            if fd as i32 >= 0 && self.is_husk(fd) {
                put(&mut self.buffers.bounce, at, (!fd).to_le_bytes());
            } else {
                self.give_event(fd as usize)?;
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
            let reads = here == 0 && asked & READABLE != 0;
            if reads && host == 0 {
                self.note_quiet(fd as usize);
            }
            let here = if reads && self.waiting_here(fd as usize) > 0 { READABLE } else { here };
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
        if count <= 0 {
            return Ok(Verdict::Pass);
        }
        let count = self.numbers_in_use(count as u32);
        if count as usize > SET_BYTES * 8 {
            return self.select_of_many(c);
        }
        let mut args = c.args;
        args[0] = count as usize;
        self.select_among(&Call { args, ..*c })
    }

    /// Linux looks at no more of the sets than its table has, whatever the count says: some give
    /// the limit of open files, and sets of the usual size.
    fn numbers_in_use(&mut self, count: u32) -> u32 {
        if count <= SET_NUMBERS {
            return count;
        }
        let (files, mut most) = (self.services.files(), SET_NUMBERS);
        self.services.for_each(files, most, count - 1, &mut |fd, _| most = most.max(fd + 1));
        most.next_multiple_of(u64::BITS).min(count)
    }

    /// More numbers than there is room for: read ends among them are the host's for ever.
    #[cold]
    fn select_of_many(&mut self, c: &Call) -> Answer {
        let mut done = Ok(());
        self.any_selected(c, 0, |client, fd| {
            done = client.surrender(fd as usize);
            done.is_err()
        })?;
        done.map(|()| Verdict::Pass)
    }

    fn select_among(&mut self, c: &Call) -> Answer {
        for _ in 0..ROUNDS_MAX {
            let mut waits = !self.is_zero_time(c.args[4]);
            let outlook = self.selects_husk(c)?;
            let watch = |client: &mut Self| client.watch_selected(c);
            if let Some(verdict) = self.left_to_host(c, outlook, &mut waits, watch)? {
                return Ok(verdict);
            }
            let ready = self.select_at_once(c)?;
            // As in `poll`; the sets are not overwritten before.
            if ready != 0 || !waits {
                return self.show_selected(c, ready);
            }
        }
        self.show_selected(c, 0)
    }

    /// Asks the host about all but Husk's, adds Husk's. `bounce`: the three sets for the host, then
    /// Husk's bits of the first two.
    fn select_at_once(&mut self, c: &Call) -> Result<u64> {
        let bytes = set_bytes(c);
        self.buffers.bounce[..5 * SET_BYTES].fill(0);
        let ready = self.split_sets(c, bytes)?;
        let base = self.buffers.bounce.as_mut_ptr() as usize;
        let set = |i: usize| if c.args[1 + i] == 0 { 0 } else { base + i * SET_BYTES };
        let zero = [0u64; 2];
        let args = [c.args[0], set(0), set(1), set(2), zero.as_ptr() as usize, 0];
        Ok(ready + Errno::check(self.host.call(nr::select, args))?)
    }

    /// Stores the sets that are asked for.
    fn show_selected(&mut self, c: &Call, ready: u64) -> Answer {
        let bytes = set_bytes(c);
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

    /// Shows the descriptors in set `i` to `seen`, until that is true; whether it was.
    fn any_selected(
        &mut self,
        c: &Call,
        i: usize,
        mut seen: impl FnMut(&mut Self, u32) -> bool,
    ) -> Result<bool> {
        let (count, address) = (c.args[0] as i32 as u32, c.args[1 + i]);
        for word in 0..if address == 0 { 0 } else { count.div_ceil(64) } {
            let mut bytes = [0u8; 8];
            self.memory.read(address + word as usize * 8, &mut bytes)?;
            let mut bits = u64::from_le_bytes(bytes);
            while bits != 0 {
                let fd = word * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if fd < count && seen(self, fd) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn selects_husk(&mut self, c: &Call) -> Result<Outlook> {
        let mut outlook = Outlook::Hosts;
        for i in 0..2 {
            let ready = self.any_selected(c, i, |client, fd| match client.outlook(fd, i == 0) {
                Outlook::Ready => true,
                Outlook::Quiet => {
                    outlook = Outlook::Quiet;
                    false
                }
                Outlook::Hosts => false,
            })?;
            if ready {
                return Ok(Outlook::Ready);
            }
        }
        Ok(outlook)
    }

    /// Watches all read ends in the first set, or none.
    fn watch_selected(&mut self, c: &Call) -> Result<Watch> {
        let (mut watched, mut sight) = (Watched::default(), Sight::Watched);
        let found = self.any_selected(c, 0, |client, fd| {
            sight = client.watch(fd, &mut watched);
            sight != Sight::Watched
        });
        if found != Ok(false) {
            self.unwatch(&watched.names);
        }
        Ok(if found? { Err(sight) } else { Ok(watched) })
    }

    /// Whether the answer for `fd` in set `i` is known here: a file, or bytes to read in a ring.
    fn is_ready_here(&mut self, fd: u32, i: usize) -> bool {
        // What cannot be moved is counted.
        let _ = self.give_event(fd as usize);
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

/// Bytes of each of the sets of a `select` that are looked at.
fn set_bytes(c: &Call) -> usize {
    (c.args[0] as u32 as usize).div_ceil(64) * 8
}
