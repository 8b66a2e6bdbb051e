//! Numbers: `close`, `dup`, `fcntl`, over Husk's descriptors and the host's.
//!
//! Invariants
//! 1. A host number is marked closed before the host closes it, so that it is never Husk's and
//!    the host's at once.
//! 2. Numbers Husk keeps in the host's table (region, loader) look closed to the application.
//! 3. `dup2` never frees its target, and whoever uses the number finds the old descriptor or the
//!    new one: one of the host's is put there on the host first, then in the table, and one of
//!    Husk's in the table first; then a plug takes the place of what the host had. A child is made
//!    before or after (`Host::keep_still`). Under a Husk number that is not plugged the host may
//!    have another thread's descriptor in transit (`call::passthrough`); `dup2` waits until that is
//!    noted.
//! 4. What was on its way by the old descriptor fails with `EBADF` on the host's plug, or in the
//!    table: it looks again at what the number is (`Client::look_again`, the runtime's
//!    `fd_race_retry`).

use crate::reason;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_DUPFD_QUERY, F_GET_SEALS, F_GETFD, F_GETFL,
    F_GETLEASE, F_GETLK, F_GETOWN, F_GETOWN_EX, F_GETPIPE_SZ, F_GETSIG, F_NOTIFY, F_OFD_GETLK,
    F_OFD_SETLK, F_OFD_SETLKW, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETOWN, F_SETOWN_EX,
    F_SETPIPE_SZ, F_SETSIG, F_UNLCK, FASYNC, O_APPEND, O_CLOEXEC, O_DIRECT, O_LARGEFILE, O_NOATIME,
    O_NONBLOCK, O_PATH,
};
use husk_proto::descriptor::{Shown, Slot};
use husk_proto::epoll::Set;
use husk_proto::fs::Kind;
use husk_proto::pipe::{End, Event};
use husk_proto::process::Sharing;
use husk_proto::watch::Instance;
use husk_proto::{Description, Errno, Result, Services};

/// Looks at a target of `dup2` that the host has reserved for another thread: first with the
/// processor handed on, then 100 us apart. Then the host decides, and may say `EBUSY`, or that is
/// the answer, if no number was free to tell by whether anything is there.
const TURNS_MAX: usize = 1064;
/// The same where another thread has a descriptor in transit there, which nobody may replace: its
/// note may be as far away as the end of a child that shares its memory. Then `EBUSY`.
const TURNS_IN_TRANSIT_MAX: usize = 50_064;
/// Of these, without sleeping.
const QUICK_TURNS: usize = 64;
/// Between two others.
const TURN_NS: u64 = 100_000;
/// Times `dup2` puts a descriptor of Husk's in its place: each time before, the host had given the
/// number to another thread meanwhile. Then `EBUSY`.
const ONTO_TRIES_MAX: usize = 1024;
/// Times a plug is closed for one `close`: each was put there by another thread meanwhile.
const PLUGS_MAX: usize = 64;
const EBUSY: i64 = Errno::EBUSY.as_return();
/// Status flags `F_SETFL` may change.
const SETTABLE: u32 = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;
/// Numbers `close_range` takes up at once.
const BATCH: usize = 64;
/// `CLOSE_RANGE_UNSHARE`.
const RANGE_UNSHARE: usize = 2;
/// `CLOSE_RANGE_CLOEXEC`.
const RANGE_CLOEXEC: usize = 4;

/// What the image keeps beside a number of the host's: of one at most.
pub(crate) struct Beside {
    end: Option<End>,
    watcher: Option<Instance>,
    set: Option<Set>,
    /// An eventfd (`ready::eventfd`).
    pub(crate) event: Option<Event>,
}

impl Beside {
    /// Whether only this node knows of it.
    pub(crate) fn stays(&self) -> bool {
        self.watcher.is_some() || self.set.is_some()
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether Husk keeps `fd` for itself.
    #[inline]
    pub(crate) fn is_kept(&self, fd: u32) -> bool {
        self.host.kept_fds().contains(&fd) && fd != u32::MAX
    }

    /// Whether the program sees nothing under `fd`, where Husk has something.
    fn is_hidden(&mut self, fd: u32) -> bool {
        self.is_kept(fd) || self.is_bell(fd)
    }

    /// The number that `step` gives a description, other than those Husk keeps for itself.
    #[inline]
    pub(crate) fn new_number(
        &mut self,
        step: impl FnMut(&mut Self, u32) -> Result<u32>,
    ) -> Result<u32> {
        let new = self.with_limit(step)?;
        self.make_way(new)?;
        if self.is_kept(new) { self.past_kept(new) } else { Ok(new) }
    }

    /// Moves a description off the numbers that Husk keeps, which are the host's in the table from
    /// then on, and so not met again.
    #[cold]
    fn past_kept(&mut self, mut new: u32) -> Result<u32> {
        let files = self.services.files();
        for _ in self.host.kept_fds() {
            let close_on_exec = self.services.close_on_exec(files, new)?;
            let moved = self.with_limit(|client, limit| {
                client.services.duplicate(files, new, 0, limit, close_on_exec)
            });
            self.services.host_replaces(files, new, false, Shown::Nothing)?;
            new = moved?;
            if !self.is_kept(new) {
                return Ok(new);
            }
        }
        Err(Errno::EMFILE)
    }

    /// `close`.
    pub(crate) fn close(&mut self, c: &Call) -> Answer {
        let fd = c.args[0] as u32;
        if self.services.glance(fd).is_none() {
            return self.close_other(fd);
        }
        let files = self.services.files();
        if self.services.close(files, fd)? {
            self.host_close(fd);
            self.close_husk(fd)?;
        }
        value(0)
    }

    /// Closes what one look does not show to be Husk's.
    #[inline(never)]
    fn close_other(&mut self, fd: u32) -> Answer {
        if self.is_bell(fd) {
            return Err(Errno::EBADF);
        }
        if self.try_host_closed(fd) {
            return Ok(Verdict::Pass);
        }
        let files = self.services.files();
        if self.services.is_hosts(fd) && !self.is_kept(fd) {
            self.services.host_closed(files, fd);
            return Ok(Verdict::Pass);
        }
        match self.services.slot(files, fd) {
            Slot::Husk(_) => {
                self.close_husk(fd)?;
                value(0)
            }
            _ if self.is_kept(fd) => Err(Errno::EBADF),
            Slot::Host(_) => Ok(self.close_host(fd).map_or(Verdict::Pass, Verdict::Return)),
            Slot::Free => Ok(Verdict::Pass),
        }
    }

    #[inline(never)]
    fn close_husk(&mut self, fd: u32) -> Result<()> {
        let files = self.services.files();
        for _ in 0..PLUGS_MAX {
            if !self.services.close(files, fd)? {
                return Ok(());
            }
            self.host_close(fd);
        }
        Err(Errno::EIO)
    }

    /// `close_range`.
    pub(crate) fn close_range(&mut self, c: &Call) -> Answer {
        let (first, last, flags) = (c.args[0] as u32, c.args[1] as u32, c.args[2]);
        if first > last || flags & !(RANGE_UNSHARE | RANGE_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & RANGE_UNSHARE != 0 {
            self.part(c, Sharing { files: true, context: false })?;
        }
        self.close_noted(first, last, flags & RANGE_CLOEXEC != 0)?;
        let mut start = first;
        let mut kept = self.bells();
        let own = self.host.kept_fds();
        kept[..own.len()].copy_from_slice(&own);
        kept.sort_unstable();
        for fd in kept.into_iter().filter(|&fd| fd != u32::MAX) {
            if (start..=last).contains(&fd) {
                if fd > start {
                    self.host_close_range(start, fd - 1, flags)?;
                }
                start = fd + 1;
            }
        }
        if start <= last {
            self.host_close_range(start, last, flags)?;
        }
        value(0)
    }

    fn host_close_range(&self, first: u32, last: u32, flags: usize) -> Result<()> {
        let args = [first as usize, last as usize, flags, 0, 0, 0];
        Errno::check(self.host.call(nr::close_range, args)).map(|_| ())
    }

    /// Closes (or marks) all noted numbers of a range, `BATCH` at a time.
    fn close_noted(&mut self, first: u32, last: u32, mark_only: bool) -> Result<()> {
        let files = self.services.files();
        let mut next = first;
        loop {
            let mut batch = [(0u32, Slot::Free); BATCH];
            let mut count = 0;
            self.services.for_each(files, next, last, &mut |fd, slot| {
                if count < BATCH {
                    batch[count] = (fd, slot);
                    count += 1;
                }
            });
            for &(fd, slot) in &batch[..count] {
                match slot {
                    _ if self.is_kept(fd) => {}
                    _ if mark_only => self.services.set_close_on_exec(files, fd, true)?,
                    Slot::Husk(_) => match self.close_husk(fd) {
                        // Another thread was faster.
                        Ok(()) | Err(Errno::EBADF) => {}
                        Err(errno) => return Err(errno),
                    },
                    Slot::Host(_) => drop(self.close_host(fd)),
                    Slot::Free => {}
                }
            }
            if count < BATCH || batch[count - 1].0 == last {
                return Ok(());
            }
            next = batch[count - 1].0 + 1;
        }
    }

    /// `dup`.
    pub(crate) fn dup(&mut self, c: &Call) -> Answer {
        self.duplicate_from(c, 0, false)
    }

    /// The lowest free number from `minimum` on for argument 0.
    fn duplicate_from(&mut self, c: &Call, minimum: usize, close_on_exec: bool) -> Answer {
        let (fd, files) = (c.args[0] as u32, self.services.files());
        if !self.is_husks(fd) {
            return if self.is_hidden(fd) {
                Err(Errno::EBADF)
            } else {
                reason::then(c, reason::DUPLICATE)
            };
        }
        if minimum >= self.descriptor_limit() as usize {
            self.numbers.forget_limit();
            if minimum >= self.descriptor_limit() as usize {
                return Err(Errno::EINVAL);
            }
        }
        let new = self.new_number(|client, limit| {
            client.services.duplicate(files, fd, minimum as u32, limit, close_on_exec)
        })?;
        value(u64::from(new))
    }

    /// `dup2`.
    pub(crate) fn dup2(&mut self, c: &Call) -> Answer {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        if fd == target {
            let files = self.services.files();
            return match self.services.slot(files, fd) {
                Slot::Husk(_) => value(u64::from(fd)),
                _ if self.is_hidden(fd) => Err(Errno::EBADF),
                _ => Ok(Verdict::Pass),
            };
        }
        self.duplicate_to(c, false)
    }

    /// `dup3`.
    pub(crate) fn dup3(&mut self, c: &Call) -> Answer {
        let flags = c.args[2] as u32;
        if flags & !O_CLOEXEC != 0 || c.args[0] as u32 == c.args[1] as u32 {
            return Err(Errno::EINVAL);
        }
        self.duplicate_to(c, flags != 0)
    }

    fn duplicate_to(&mut self, c: &Call, close_on_exec: bool) -> Answer {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        let files = self.services.files();
        if self.is_hidden(fd) || self.is_kept(target) {
            return Err(Errno::EBADF);
        }
        self.make_way(target)?;
        match self.services.slot(files, fd) {
            Slot::Husk(_) => self.husk_onto(fd, target, close_on_exec),
            Slot::Host(_) | Slot::Free => self.host_onto(c, close_on_exec),
        }
    }

    /// Husk's `fd` also at `target`.
    fn husk_onto(&mut self, fd: u32, target: u32, close_on_exec: bool) -> Answer {
        if target >= self.descriptor_limit() {
            return Err(Errno::EBADF);
        }
        let files = self.services.files();
        for _ in 0..ONTO_TRIES_MAX {
            let left = self.leaving(target);
            let done = match self.services.slot(files, target) {
                Slot::Host(_) => self.husk_over_host(fd, target, close_on_exec),
                _ => self.services.duplicate_to(files, fd, target, close_on_exec, false),
            };
            self.left(left);
            match done {
                // The host has given the number to another thread meanwhile.
                Err(Errno::EBUSY) => {}
                result => return result.and_then(|()| value(u64::from(target))),
            }
        }
        Err(Errno::EBUSY)
    }

    /// Husk's `fd` in the place of the host's `target`.
    fn husk_over_host(&mut self, fd: u32, target: u32, close_on_exec: bool) -> Result<()> {
        let files = self.services.files();
        if !self.services.has_table_alone() {
            // What the host has there is this thread's in transit from now on.
            let _still = self.host.keep_still();
            self.services.duplicate_to(files, fd, target, close_on_exec, true)?;
            self.fill(target);
            return Ok(());
        }
        // Before the table: who waits for what was there is told when it is gone.
        if !self.put_plug(target) {
            self.services.host_closed(files, target);
            self.host_close(target);
            return Err(Errno::EBUSY);
        }
        let done = self.services.duplicate_to(files, fd, target, close_on_exec, true);
        if done.is_err() {
            self.services.host_closed(files, target);
            self.host_close(target);
        }
        self.services.plug(files, target);
        done
    }

    /// What the image keeps beside host number `fd`, for all numbers of what that is.
    pub(crate) fn kept_beside(&mut self, fd: usize) -> Beside {
        let (end, watcher) = (self.pipe_end(fd), self.watcher(fd));
        Beside { end, watcher, set: self.epoll_set(fd), event: self.event(fd) }
    }

    /// Host number `fd` is one more of what `kept` stands beside. Notes fail only when somebody
    /// closed one of the numbers meanwhile.
    pub(crate) fn joined(&mut self, kept: Beside, fd: u32) {
        let files = self.services.files();
        if let Some(end) = kept.end {
            let _ = self.services.pipe_join(files, fd, end);
        }
        self.event_joined(&kept, fd);
        self.watcher_joined(kept.watcher, fd);
        if let Some(set) = kept.set {
            let _ = self.services.epoll_join(files, fd, set);
        }
    }

    /// The host's descriptor in argument 0 also at argument 1.
    fn host_onto(&mut self, c: &Call, close_on_exec: bool) -> Answer {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        let files = self.services.files();
        // A source that is closed leaves the target as it is.
        Errno::check(self.host_fcntl(fd as usize, F_GETFD, 0))?;
        let left = self.leaving(target);
        // Nobody puts one of Husk's there meanwhile.
        let alone = self.services.has_table_alone();
        let still = (!alone).then(|| self.host.keep_still());
        let (raw, still) = match self.services.slot(files, target) {
            _ if self.is_husks(fd) => (None, still),
            Slot::Host(_) => (Some(self.host.call(c.number, c.args)), still),
            _ => {
                drop(still);
                self.host_into_gap(c, close_on_exec)
            }
        };
        let Some(raw) = raw else {
            drop(still);
            self.left(left);
            return self.husk_onto(fd, target, close_on_exec);
        };
        Errno::check(raw)?;
        let kept = self.kept_beside(fd as usize);
        let replaced = self.services.host_replaces(files, target, close_on_exec, Shown::Like(fd));
        self.left(left);
        match replaced {
            Ok(()) => {
                self.joined(kept, target);
                value(u64::from(target))
            }
            Err(errno) => {
                self.fill(target);
                Err(errno)
            }
        }
    }

    /// The same where the host has nothing but a plug, or what another thread has in transit; and
    /// what keeps children from being made until the table has it, too. Nothing: another thread has
    /// put one of Husk's in the place of the source.
    #[cold]
    fn host_into_gap(&mut self, c: &Call, close_on_exec: bool) -> (Option<i64>, Option<H::Still>) {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        let files = self.services.files();
        let command = if close_on_exec { F_DUPFD_CLOEXEC } else { F_DUPFD } as usize;
        for turn in 0..TURNS_IN_TRANSIT_MAX {
            let alone = self.services.has_table_alone();
            let still = (!alone).then(|| self.host.keep_still());
            if self.is_husks(fd) {
                return (None, still);
            }
            if self.services.plugged(files, target) {
                return (Some(self.host.call(c.number, c.args)), still);
            }
            // Takes the number only if the host has nothing there.
            let args = [fd as usize, command, target as usize, 0, 0, 0];
            let got = Errno::check(self.host.call(nr::fcntl, args));
            match got {
                Ok(got) if got == u64::from(target) => return (Some(i64::from(target)), still),
                Ok(got) => self.host_close(got as u32),
                // It has something there, and nothing is free above.
                Err(Errno::EMFILE) => {}
                // The call itself says what is wrong.
                Err(_) => return (Some(self.host.call(c.number, c.args)), still),
            }
            if matches!(self.services.slot(files, target), Slot::Host(_)) {
                return (Some(self.host.call(c.number, c.args)), still);
            }
            if turn >= TURNS_MAX && !self.is_in_transit(target) {
                let full = got == Err(Errno::EMFILE);
                let said = if full { EBUSY } else { self.host.call(c.number, c.args) };
                return (Some(said), still);
            }
            drop(still);
            self.pause(turn);
        }
        (Some(EBUSY), None)
    }

    /// Whether the host has something that no thread has noted yet, and some other will: not in a
    /// child that has got a copy of what was in transit in its parent.
    fn is_in_transit(&self, fd: u32) -> bool {
        !self.services.has_table_alone() && self.host_fcntl(fd as usize, F_GETFD, 0) >= 0
    }

    pub(crate) fn pause(&self, turn: usize) {
        if turn < QUICK_TURNS {
            self.host.call(nr::sched_yield, [0; 6]);
        } else {
            self.nap(TURN_NS);
        }
    }

    /// `fcntl`.
    pub(crate) fn fcntl(&mut self, c: &Call) -> Answer {
        let (fd, command, argument) = (c.args[0] as u32, c.args[1] as u32, c.args[2]);
        let files = self.services.files();
        match command {
            F_DUPFD => return self.duplicate_from(c, argument, false),
            F_DUPFD_CLOEXEC => return self.duplicate_from(c, argument, true),
            _ => {}
        }
        if let Some(description) = self.described(fd as usize)? {
            return self.fcntl_husk(c, description);
        }
        match self.services.slot(files, fd) {
            _ if self.is_hidden(fd) => Err(Errno::EBADF),
            Slot::Host(Some(_)) if is_lock(command) => self.record_lock(c, command),
            Slot::Host(None) if matches!(command, F_SETLK | F_SETLKW) => {
                self.forgo_spares();
                Ok(Verdict::Pass)
            }
            Slot::Host(_) if lets_host_in(command, argument) => {
                self.surrender(fd as usize)?;
                Ok(Verdict::Pass)
            }
            Slot::Host(_) if command == F_SETFD => reason::then(c, reason::CLOSE_ON_EXEC),
            _ => Ok(Verdict::Pass),
        }
    }

    fn fcntl_husk(&mut self, c: &Call, description: Description) -> Answer {
        let (fd, command, argument) = (c.args[0] as u32, c.args[1] as u32, c.args[2]);
        let files = self.services.files();
        match command {
            F_GETFD => value(u64::from(self.services.close_on_exec(files, fd)?)),
            F_SETFD => {
                self.services.set_close_on_exec(files, fd, argument & 1 != 0)?;
                value(0)
            }
            _ => self.fcntl_description(c, description, command),
        }
    }

    fn fcntl_description(&mut self, c: &Call, d: Description, command: u32) -> Answer {
        let flags = self.services.description(d)?.flags & !O_CLOEXEC;
        match command {
            F_GETFL => value(u64::from(shown_flags(flags))),
            F_DUPFD_QUERY => {
                let files = self.services.files();
                match self.services.slot(files, c.args[2] as u32) {
                    Slot::Husk(other) => value(u64::from(other == d)),
                    Slot::Host(_) => value(0),
                    Slot::Free => Err(Errno::EBADF),
                }
            }
            _ if flags & O_PATH != 0 => Err(Errno::EBADF),
            F_SETFL => self.set_status(d, flags, c.args[2] as u32 & SETTABLE),
            _ if is_lock(command) => self.record_lock(c, command),
            // Files send no signals: whoever is to get them is taken note of nowhere.
            F_GETOWN | F_SETOWN | F_SETOWN_EX | F_GETSIG | F_SETSIG => value(0),
            F_GETOWN_EX => {
                let (nobody, process) = (0u32, 1u32);
                let owner = u64::from(nobody) << 32 | u64::from(process);
                self.memory.write(c.args[2], &owner.to_le_bytes())?;
                value(0)
            }
            F_GETLEASE => value(u64::from(F_UNLCK)),
            F_NOTIFY if c.args[2] == 0 => value(0),
            F_NOTIFY => match self.services.description(d)?.inode {
                inode if self.services.step(inode)?.kind == Kind::Directory => {
                    self.refuse(c.number, Errno::EINVAL)
                }
                _ => Err(Errno::ENOTDIR),
            },
            // As a tmpfs's files, which cannot be sealed.
            F_GET_SEALS => match self.services.description(d)?.inode {
                inode if self.services.step(inode)?.kind == Kind::File => value(1),
                _ => Err(Errno::EINVAL),
            },
            F_ADD_SEALS => Err(Errno::EPERM),
            F_SETPIPE_SZ | F_GETPIPE_SZ => Err(Errno::EBADF),
            _ => self.refuse(c.number, Errno::EINVAL),
        }
    }

    /// `F_SETFL`: of `flags`, those that may be set become `wanted`.
    fn set_status(&mut self, d: Description, flags: u32, wanted: u32) -> Answer {
        let inode = self.services.description(d)?.inode;
        if wanted & !flags & O_NOATIME != 0 {
            let step = self.services.step(inode)?;
            self.credentials().permit_no_times(&step)?;
        }
        let direct = wanted & O_DIRECT != 0;
        if direct && self.services.step(inode)?.kind == Kind::Directory {
            return Err(Errno::EINVAL);
        }
        self.services.set_flags(d, flags & !SETTABLE | wanted)?;
        value(0)
    }
}

/// What `F_GETFL` shows of a description's flags.
#[inline(always)]
pub(crate) fn shown_flags(flags: u32) -> u32 {
    let flags = flags & !O_CLOEXEC;
    if flags & O_PATH != 0 { flags } else { flags | O_LARGEFILE }
}

/// Whether a pipe is all the host's after this: another size, packets, signals on readiness.
fn lets_host_in(command: u32, argument: usize) -> bool {
    let special = argument as u32 & (O_DIRECT | FASYNC) != 0;
    command == F_SETPIPE_SZ || command == F_SETFL && special
}

fn is_lock(command: u32) -> bool {
    const LOCKS: [u32; 6] = [F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW];
    LOCKS.contains(&command)
}
