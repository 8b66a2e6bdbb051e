//! `epoll_create`, `epoll_ctl`, `epoll_wait`: sets are the host's, their pipes as well; what the
//! host last said of some is remembered (`docs/adr/0038`).
//!
//! ```text
//!   add a read end, level-triggered, the first time ──► in the set: no climb from now on; ring
//!                                                       to the host ──► host
//!   add anything else, edges, one-shots ──► stranger in the set; a read end, or what a socket
//!                                           reads, is the host's for ever
//!   wait without sleeping ──► remembered? ─ yes ──► that
//!                                  '─ no ──► ask by what it is remembered ──► host ──► remember
//!   wait ──► host
//! ```
//!
//! In `Client::call` only waits without sleeping are looked at: what is remembered is found by
//! `fast_path`, before.

use crate::buffers::BOUNCE_BYTES;
use crate::file::data::Opened;
use crate::layout::get32;
use crate::socket::ring_drain::To;
use crate::{After, Answer, Call, Client, Host, Memory, Seen, Verdict, value};
use husk_abi::sys::general::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, F_GETFD, O_CLOEXEC, O_PATH,
};
use husk_abi::{PAGE, nr};
use husk_proto::descriptor::Shown;
use husk_proto::epoll::{EVENT_BYTES, SAID_BYTES, Set, Sight};
use husk_proto::pipe::End;
use husk_proto::{Errno, Services};

/// `EPOLLET`, `EPOLLONESHOT`, `EPOLLWAKEUP`, `EPOLLEXCLUSIVE`: what changes by being told.
const PARTICULAR: u32 = 0xf << 28;
/// Most events asked for to be remembered.
const ASKED_MAX: usize = BOUNCE_BYTES / EVENT_BYTES;
/// What the address of an event is below.
const ADDRESSES: usize = (1 << 47) - PAGE;
/// Most events that may be asked for (`EP_MAX_EVENTS`).
const EVENTS_MAX: usize = i32::MAX as usize / EVENT_BYTES;

/// A pipe end that goes, and the set that its pipe is in.
pub(crate) type Leaving = Option<(End, Option<Set>)>;

/// Whether the host takes `most` events at `address` for a place to store them.
#[inline(always)]
pub(crate) fn has_room(address: usize, most: i32) -> bool {
    let most = usize::try_from(most).unwrap_or(0);
    (1..=EVENTS_MAX).contains(&most) && address < ADDRESSES - most * EVENT_BYTES
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The set behind a number.
    pub(crate) fn epoll_set(&mut self, fd: usize) -> Option<Set> {
        let files = self.services.files();
        self.services.epoll_set(files, fd as u32)
    }

    /// Notes a new set of the host.
    pub(crate) fn note_set(&mut self, after: &After, result: i64) -> i64 {
        if result < 0 {
            return result;
        }
        let on_exec = after.number == nr::epoll_create1 && after.args[0] as u32 & O_CLOEXEC != 0;
        let noted = self.note_opened(result as u32, on_exec, Shown::Nothing);
        if noted >= 0 && self.services.pipes_wanted() {
            let files = self.services.files();
            // Too many: this one stays all the host's.
            let _ = self.services.epoll_make(files, noted as u32);
        }
        noted
    }

    /// Host number `fd` is about to go: the pipe end that it is, and the set of that. What nobody
    /// has read of a socket goes to the host. Where another thread may sleep in the set that it is,
    /// the pipes in that are the host's for ever.
    pub(crate) fn leaving(&mut self, fd: u32) -> Leaving {
        if !self.services.has_table_alone() {
            self.show_set(fd as usize);
        }
        let end = self.pipe_end(fd as usize)?;
        self.leave_written(fd as usize, end);
        self.leave_unread(end);
        if end.socket {
            self.count_worth(end);
            self.settle_before_close(fd, end.pipe);
            self.await_waking(end.pipe);
        }
        Some((end, self.services.epoll_of(end.pipe)))
    }

    /// The host has closed it: who waits for the pipe looks again. A call of another thread on that
    /// number keeps the end open until it returns, which nobody sees: then only the host knows.
    pub(crate) fn left(&mut self, leaving: Leaving) {
        let Some((end, before)) = leaving else { return };
        // It may have come into one meanwhile.
        for set in [before, self.services.epoll_of(end.pipe)].into_iter().flatten() {
            self.services.epoll_changed(set);
            if !self.services.has_table_alone() {
                self.services.epoll_stranger(set);
            }
        }
    }

    /// A host number is closed: here if it is a pipe's, what the host answers; or by who asks.
    pub(crate) fn close_host(&mut self, fd: u32) -> Option<i64> {
        let files = self.services.files();
        let left = self.leaving(fd);
        self.services.host_closed(files, fd);
        left?;
        let result = self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        self.left(left);
        Some(result)
    }

    /// `epoll_ctl`: files cannot be waited for, as on Linux.
    pub(crate) fn epoll_ctl(&mut self, c: &Call) -> Answer {
        let (set_file, file) = (self.opened(c.args[0])?, self.opened(c.args[2])?);
        if set_file.is_some() || file.is_some() {
            return Err(self.refused_in_set(c, set_file.is_some(), [set_file, file]));
        }
        self.give_event(c.args[2])?;
        let set = self.epoll_set(c.args[0]);
        let changes = c.args[1] as u32 != EPOLL_CTL_DEL;
        if let Some(inner) = self.epoll_set(c.args[2])
            && changes
        {
            self.set_to_host(inner);
        }
        // A write end may stay: when its ring is full, writing goes on at the host.
        let end = self.pipe_end(c.args[2]).filter(|end| !end.writes);
        if let (Some(set), Some(end)) = (set, end)
            && let Some(answer) = self.member_ctl(c, set, end)
        {
            return answer;
        }
        if c.args[1] as u32 == EPOLL_CTL_DEL {
            return self.remove_from_set(c, set, end.filter(|end| !end.socket));
        }
        if let (Some(set), Some(end)) = (set, end)
            && !end.socket
        {
            return self.change_set(c, set, end);
        }
        if let Some(set) = set {
            self.services.epoll_stranger(set);
            if self.is_like_a_tag(c) {
                self.set_to_host(set);
            }
        }
        if let Some(end) = end {
            self.surrender_to_set(c.args[2], end)?;
        }
        Ok(Verdict::Pass)
    }

    /// Why one of two descriptors that is a file is in no set, nor a set: Linux judges the event's
    /// address first, then both descriptors, then what can be waited for, then the set.
    #[cold]
    fn refused_in_set(&mut self, c: &Call, set_is_file: bool, files: [Option<Opened>; 2]) -> Errno {
        let needs_event = c.args[1] as u32 != EPOLL_CTL_DEL;
        if needs_event && self.memory.read(c.args[3], &mut [0u8; EVENT_BYTES]).is_err() {
            return Errno::EFAULT;
        }
        for (file, index) in files.iter().zip([0, 2]) {
            let is_none = match file {
                Some(file) => file.flags & O_PATH != 0,
                None => self.host_fcntl(c.args[index], F_GETFD, 0) < 0,
            };
            if is_none {
                return Errno::EBADF;
            }
        }
        match files[1] {
            Some(_) => Errno::EPERM,
            // The host knows what can be waited for.
            None if set_is_file => match self.waits_for(c.args[2]) {
                true => Errno::EINVAL,
                false => Errno::EPERM,
            },
            None => Errno::EINVAL,
        }
    }

    /// Whether the host can wait for its descriptor in a set.
    fn waits_for(&self, fd: usize) -> bool {
        let mut event = [0u8; EVENT_BYTES];
        let set = self.host.call(nr::epoll_create1, [O_CLOEXEC as usize, 0, 0, 0, 0, 0]);
        let Ok(set) = Errno::check(set) else { return true };
        let add = EPOLL_CTL_ADD as usize;
        let args = [set as usize, add, fd, event.as_mut_ptr() as usize, 0, 0];
        let added = self.host.call(nr::epoll_ctl, args);
        self.host_close(set as u32);
        added != Errno::EPERM.as_return()
    }

    fn remove_from_set(&mut self, c: &Call, set: Option<Set>, end: Option<End>) -> Answer {
        let (Some(set), Some(end)) = (set, end) else { return Ok(Verdict::Pass) };
        let result = self.host.call(c.number, c.args);
        if result == 0 {
            self.services.epoll_exit(set, end.pipe);
        }
        Ok(Verdict::Return(result))
    }

    /// Adds a read end to a set, or changes what is asked of it.
    fn change_set(&mut self, c: &Call, set: Set, end: End) -> Answer {
        let (fd, mut event) = (c.args[2], [0u8; EVENT_BYTES]);
        if self.memory.read(c.args[3], &mut event).is_err() {
            return Ok(Verdict::Pass);
        }
        let plain = get32(&event, 0) & PARTICULAR == 0;
        let adds = c.args[1] as u32 == EPOLL_CTL_ADD;
        let inside = self.services.epoll_of(end.pipe) == Some(set);
        let ours = match c.args[1] as u32 {
            EPOLL_CTL_ADD => plain && self.services.epoll_enter(set, end.pipe),
            EPOLL_CTL_MOD => plain && inside,
            _ => return Ok(Verdict::Pass),
        };
        if !ours {
            self.services.epoll_stranger(set);
            self.surrender_to_set(fd, end)?;
            return Ok(Verdict::Pass);
        }
        let event = core::hint::black_box(event);
        let args = [c.args[0], c.args[1], fd, event.as_ptr() as usize, 0, 0];
        let done = self.withdraw(fd, end.pipe, true).map(|()| self.host.call(c.number, args));
        if adds && done != Ok(0) {
            self.services.epoll_exit(set, end.pipe);
        }
        self.services.epoll_changed(set);
        done.map(Verdict::Return)
    }

    /// A read end that the image does not keep track of in its set is the host's for ever.
    fn surrender_to_set(&mut self, fd: usize, end: End) -> Result<(), Errno> {
        // Each thread of a pool comes here when it asks a one-shot anew: what is the host's already
        // needs no look at its other end.
        if end.socket && self.services.lane_is_left(end.pipe) {
            return Ok(());
        }
        self.services.pipe_pin(end.pipe);
        if end.socket {
            return self.withdraw_lane(end.pipe, To::Set);
        }
        self.withdraw(fd, end.pipe, true)
    }

    /// Who is not of the image gets a set: all in it is the host's for ever.
    pub(crate) fn show_set(&mut self, fd: usize) {
        if let Some(set) = self.epoll_set(fd) {
            self.services.epoll_show(Some(set));
        }
    }

    /// A descriptor that another process opened, perhaps: it may be any set.
    #[cold]
    pub(crate) fn meet_set(&mut self, fd: u32) {
        const NAME: &[u8] = b"anon_inode:[eventpoll]";
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd, bounce);
        if length == NAME.len() as i64 && self.buffers.bounce.starts_with(NAME) {
            self.services.epoll_show(None);
        }
    }

    /// `epoll_wait` on what `fast_path` has not answered.
    pub(crate) fn epoll_wait(&mut self, c: &Call) -> Answer {
        let [fd, address, most, timeout, ..] = c.args;
        if self.described(fd)?.is_some() {
            return Err(Errno::EINVAL);
        }
        if let Some(set) = self.epoll_set(fd) {
            let sleeps = self.may_sleep(c);
            if self.services.epoll_has_members(set)
                || sleeps && self.services.epoll_may_gain_members(set)
            {
                return self.member_wait(c, set, sleeps);
            }
        }
        let most = most as i32;
        if c.number != nr::epoll_wait || timeout as i32 != 0 || !has_room(address, most) {
            return Ok(Verdict::Pass);
        }
        let Some(set) = self.epoll_set(fd) else { return Ok(Verdict::Pass) };
        let Some(asked) = self.services.epoll_ask(set) else { return Ok(Verdict::Pass) };
        let most = (most as usize).min(ASKED_MAX);
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let found = Errno::check(self.host.call(c.number, [fd, bounce, most, 0, 0, 0]))? as usize;
        let events = &self.buffers.bounce[..found * EVENT_BYTES];
        // Without room left there may be more. What has been told goes behind what has not, so the
        // host is not to be asked twice.
        if found < most && events.len() <= SAID_BYTES {
            self.services.epoll_remember(set, asked, events);
        }
        self.memory.write(address, events)?;
        value(found as u64)
    }

    /// Whether others may put sockets with rings into the set while this thread sleeps there.
    #[inline(never)]
    fn may_gain(&mut self, fd: u32) -> bool {
        let set = self.epoll_set(fd as usize);
        set.is_some_and(|set| self.services.epoll_may_gain_members(set))
    }

    /// Whether a call may wait.
    fn may_sleep(&self, c: &Call) -> bool {
        match c.number {
            nr::epoll_pwait2 => !self.is_zero_time(c.args[3]),
            _ => c.args[3] as i32 != 0,
        }
    }

    /// Whether `epoll_wait` without a time to wait finds nothing in `fd`: the shortest look.
    #[inline(always)]
    pub fn finds_nothing(&self, fd: u32, address: usize, most: usize, timeout: usize) -> bool {
        let asks = timeout as i32 == 0 && has_room(address, most as i32);
        asks && self.services.epoll_is_quiet(fd)
    }

    /// `epoll_wait` at a glance: events to `address`, room for `most`.
    #[inline(always)]
    pub(crate) fn glance_at_set(
        &mut self,
        fd: u32,
        address: usize,
        most: usize,
        timeout: usize,
    ) -> Option<Seen> {
        let sleeps = timeout as i32 != 0;
        let room = most as i32;
        let said = match self.services.epoll_look(fd) {
            Sight::Other => return None,
            Sight::Members => return Some(Seen::Nothing),
            Sight::Quiet if !sleeps && has_room(address, room) => return Some(Seen::Value(0)),
            Sight::Unknown if !sleeps => return Some(Seen::Nothing),
            Sight::Hosts | Sight::Unknown | Sight::Quiet if sleeps && self.may_gain(fd) => {
                return Some(Seen::Nothing);
            }
            Sight::Hosts | Sight::Unknown | Sight::Quiet => return Some(Seen::Pass),
            Sight::Known(said) => said,
        };
        let length = (said.count * EVENT_BYTES).min(SAID_BYTES);
        let told =
            room >= said.count as i32 && self.memory.write(address, &said.bytes[..length]).is_ok();
        Some(if told { Seen::Value(said.count as i64) } else { Seen::Pass })
    }
}
