//! Calls that go to the host and change what Husk must record: new descriptors, a new directory,
//! new credentials.
//!
//! Between the host's return and the note a number is *in transit*: in the host's table, but not in
//! ours. Other threads may open and close a Husk descriptor of that number meanwhile.
//!
//! ```text
//!   host returns N ──► note: free or the host's ──► N
//!                      note: Husk's ──► dup to M, note M ──► plug N (or, closed meanwhile, close)
//! ```
//!
//! 1. Every number the host hands out is noted before the application sees it. If Husk uses that
//!    number already, the host's moves to the lowest number free in both tables, and the hole in
//!    the host's table is plugged, so that this happens once a number.
//! 2. Only the thread that has a number in transit changes what the host has under it; `dup2` onto
//!    such a number waits until it is noted (`fd::table`).
//! 3. A call that changes something besides numbers (a file made or emptied, a connection taken,
//!    a child) is not passed while no number is free: Husk's occupy none of the host's, who would
//!    carry it out. Threads that race for the last number may yet lose what such a call gave.
//! 4. A plug is close-on-exec, and is there whenever a Husk number is marked as plugged.

use crate::layout::{STAT_BYTES, get32, get64, put};
use crate::reason::{
    ACCEPTED, ACCEPTED_CLOSE_ON_EXEC, ASK, BELOW, BELOW_CLOSE_ON_EXEC, CARRIED, CLOSE_ON_EXEC,
    CONNECTED, CONNECTED_BESIDE, DIRECTORY, DUPLICATE, EPOLL, EVENTFD, FIFO, IDENTITY, LIMIT,
    MEMBERS_WAITED, MESSAGE, MESSAGES, NAMED, NAMED_MESSAGE, OPENED, OPENED_CLOSE_ON_EXEC, PAIR,
    PIPE_READ, PIPE_WRITE, POLLED, READ_SLEPT, REST, SENDER, SOCKET, SOCKET_PAIR, STRANGER,
    TCP_CONNECTED, WATCH, WATCHER, WATCHING, then,
};
use crate::socket::messages::{
    CMSGHDR_BYTES, CONTROL_AT, CONTROL_LENGTH_AT, MESSAGE_FLAGS_AT, MESSAGES_MAX, MMSGHDR_BYTES,
    MSGHDR_BYTES, NAME_LENGTH_AT, PASSED_MAX,
};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, FD_CLOEXEC, O_CLOEXEC, O_PATH,
};
use husk_proto::descriptor::Shown;
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Files, Services};

/// Moves tried for one descriptor; each lost one was won by another thread, or leads further up.
const MOVES_MAX: usize = 1024;
/// `MSG_CTRUNC`.
const CONTROL_CUT: u32 = 8;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Notes how a passed call ended.
    pub(crate) fn note_passed(&mut self, after: &After, result: i64) -> i64 {
        if after.reason >= PIPE_READ {
            return match after.reason {
                FIFO => self.note_fifo(after, result),
                CARRIED => self.carried(after, result),
                EPOLL => self.note_set(after, result),
                EVENTFD => self.note_event(after, result),
                SOCKET => self.socket_made(after, result),
                CONNECTED => self.connected(after.args[0], result),
                CONNECTED_BESIDE => self.connected_beside(after.args[0], result),
                REST => after.args[4] as i64 + result.max(0),
                TCP_CONNECTED => self.tcp_connected(after, result),
                MEMBERS_WAITED => self.members_waited(after, result),
                POLLED => self.polled_by_bell(after, result),
                READ_SLEPT => self.read_slept(after, result),
                WATCHING => {
                    self.unwatch(&after.args);
                    result
                }
                _ => self.pipe_landed(after, result),
            };
        }
        if result < 0 {
            return result;
        }
        let fd = result as u32;
        match after.reason {
            OPENED => return self.note_opened(fd, false, Shown::Nothing),
            OPENED_CLOSE_ON_EXEC => return self.note_opened(fd, true, Shown::Nothing),
            BELOW => return self.note_below(after, fd, false),
            BELOW_CLOSE_ON_EXEC => return self.note_below(after, fd, true),
            ASK => return self.note_asking(fd),
            STRANGER => {
                self.meet_stranger(fd as usize);
                return self.note_stranger(fd);
            }
            WATCHER => return self.note_watcher(after, fd),
            WATCH => return self.note_watch(after.args[0], fd),
            DUPLICATE => return self.note_duplicate(after, fd),
            ACCEPTED => return self.note_accepted(after, fd, false),
            ACCEPTED_CLOSE_ON_EXEC => return self.note_accepted(after, fd, true),
            SENDER => self.show_received(after.args[4], after.args[5], after.args[1]),
            PAIR => return self.note_pipe(after),
            SOCKET_PAIR => return self.note_socket_pair(after),
            DIRECTORY => {
                let _ = self.services.set_working_directory(WorkingDirectory::Host);
            }
            NAMED => self.note_named(after),
            IDENTITY => self.forget_identity(),
            LIMIT => {
                self.numbers.forget_limit();
                crate::file::data::limit::forget(&self.host);
            }
            MESSAGE => self.note_message(after.args[1]),
            NAMED_MESSAGE => {
                self.note_message(after.args[1]);
                self.show_sender(after.args[1], after.args[3]);
            }
            MESSAGES => self.note_messages(after, result as usize),
            CLOSE_ON_EXEC => self.note_close_on_exec(after.args[0] as u32, after.args[2] & 1 != 0),
            _ => {}
        }
        result
    }

    fn note_messages(&mut self, after: &After, count: usize) {
        for index in 0..count.min(MESSAGES_MAX) {
            let header = after.args[1] + index * MMSGHDR_BYTES;
            self.note_message(header);
            if after.args[5] != 0 {
                self.show_sender(header, after.args[5]);
            }
        }
    }

    fn note_close_on_exec(&mut self, fd: u32, on: bool) {
        let (files, age) = (self.services.files(), self.services.outside_age());
        let outlying = self.services.is_outlying(fd);
        let _ = self.services.set_close_on_exec(files, fd, on);
        if outlying {
            // The number is what it was.
            self.services.note_outlying(fd, age);
        }
    }

    fn note_below(&mut self, after: &After, fd: u32, on_exec: bool) -> i64 {
        let noted = self.note_opened(fd, on_exec, Shown::Nothing);
        self.pass_outlying_on(after.args[0] as u32, noted);
        noted
    }

    /// The same in a child that a handler made during the call: what was counted before it is the
    /// parent's, which goes on with the call as well.
    #[cold]
    pub(crate) fn note_inherited(&mut self, after: &After, result: i64) -> i64 {
        match after.reason {
            PIPE_READ | PIPE_WRITE => crate::pipe::with_done(after, result),
            WATCHING => result,
            POLLED => self.polled_here(after, result),
            READ_SLEPT => self.read_slept_here(after, result),
            _ => self.note_passed(after, result),
        }
    }

    /// `EMFILE` unless `count` numbers are free, as far as one can say before they are taken.
    #[inline]
    pub(crate) fn need_numbers(&mut self, count: u32) -> Result<(), Errno> {
        if count == 1 && self.has_number() {
            return Ok(());
        }
        let (files, mut from) = (self.services.files(), 0);
        for _ in 0..count {
            from = self.free_number(files, from)? + 1;
        }
        Ok(())
    }

    /// The lowest number from `from` on that is free, and not one that Husk keeps.
    #[inline]
    pub(crate) fn free_number(&mut self, files: Files, mut from: u32) -> Result<u32, Errno> {
        loop {
            let free =
                self.with_limit(|client, limit| client.services.lowest_free(files, from, limit))?;
            if !self.is_kept(free) {
                return Ok(free);
            }
            from = free + 1;
        }
    }

    /// `EMFILE` if the process can have no further descriptor: before a child with a pidfd is made.
    pub fn need_descriptor(&mut self) -> Result<(), Errno> {
        self.need_numbers(1)
    }

    /// Passes a call that makes or changes what it opens.
    pub(crate) fn then_opened(&mut self, c: &Call, reason: u32) -> Answer {
        self.need_numbers(1)?;
        then(c, reason)
    }

    /// Passes a call that makes a pair.
    pub(crate) fn then_pair(&mut self, c: &Call, reason: u32) -> Answer {
        self.need_numbers(2)?;
        then(c, reason)
    }

    /// Passes a call after which the process may be somebody else.
    pub(crate) fn then_identity(&mut self, c: &Call) -> Answer {
        if !self.keeps_identity(c) && !self.stays_in_reach() {
            self.forgo_lanes();
        }
        then(c, IDENTITY)
    }

    /// The same of one after which it may have other name spaces.
    pub(crate) fn then_apart(&mut self, c: &Call) -> Answer {
        self.forgo_lanes();
        then(c, IDENTITY)
    }

    /// Notes a descriptor the host made (a pidfd of `clone`, say); returns the number to use.
    pub fn note_host_descriptor(&mut self, fd: u32) -> i64 {
        self.note_asking(fd)
    }

    fn note_accepted(&mut self, after: &After, fd: u32, close_on_exec: bool) -> i64 {
        let fd = self.note_opened(fd, close_on_exec, Shown::Nothing);
        if fd >= 0 {
            self.other_end_met(fd as u32);
        }
        if fd >= 0 && after.args[1] != 0 && after.args[2] != 0 {
            self.show_accepted(fd as usize, after.args[1], after.args[2], after.args[4]);
        }
        fd
    }

    /// The name in a received message's header.
    fn show_sender(&mut self, header: usize, room: usize) {
        let mut name = [0u8; 8];
        if self.memory.read(header, &mut name).is_ok() && get64(&name, 0) != 0 {
            let length = header.saturating_add(NAME_LENGTH_AT);
            self.show_received(get64(&name, 0) as usize, length, room);
        }
    }

    fn note_asking(&mut self, fd: u32) -> i64 {
        let on_exec = self.closes_on_exec(fd);
        self.note_opened(fd, on_exec, Shown::Nothing)
    }

    fn note_duplicate(&mut self, after: &After, fd: u32) -> i64 {
        let source = after.args[0] as u32;
        let fd = match self.past_plug(after, fd) {
            Ok(fd) => fd,
            Err(answer) => return answer,
        };
        let kept = self.kept_beside(source as usize);
        let by_fcntl = after.number == nr::fcntl;
        let on_exec = by_fcntl && after.args[1] as u32 == F_DUPFD_CLOEXEC;
        let from = if by_fcntl { after.args[2] as u32 } else { 0 };
        let noted = self.note_from(from, fd, on_exec, Shown::Like(source));
        if noted >= 0 {
            self.joined(kept, noted as u32);
            self.pass_outlying_on(source, noted);
        }
        noted
    }

    /// `fd`, or, where another thread had put one of Husk's in the place of what was to be
    /// duplicated, and the host has duplicated its plug, the call once more.
    fn past_plug(&mut self, after: &After, mut fd: u32) -> Result<u32, i64> {
        let call = Call { number: after.number, args: after.args };
        for _ in 0..MOVES_MAX {
            if self.services.has_table_alone() || !self.is_plug(fd) {
                return Ok(fd);
            }
            self.host_close(fd);
            match self.dispatch(&call) {
                Ok(Verdict::Return(value)) => return Err(value),
                Err(errno) => return Err(errno.as_return()),
                Ok(_) => {}
            }
            let again = Errno::check(self.host.call(call.number, call.args));
            fd = again.map_err(Errno::as_return)? as u32;
        }
        self.host_close(fd);
        Err(Errno::EBADF.as_return())
    }

    /// Whether a descriptor of the host's is a second number of a plug.
    fn is_plug(&self, fd: u32) -> bool {
        let flags = self.host_fcntl(fd as usize, F_GETFL, 0);
        let [_, text, _] = self.host.kept_fds();
        let place =
            |fd: u32| self.host_stat(fd as usize).map(|stat| [get64(&stat, 0), get64(&stat, 8)]);
        flags > 0 && flags as u32 & O_PATH != 0 && place(fd) == place(text)
    }

    /// Notes a new host descriptor; returns its number, another one if it had to move.
    pub(crate) fn note_opened(&mut self, fd: u32, on_exec: bool, shows: Shown) -> i64 {
        self.note_from(0, fd, on_exec, shows)
    }

    /// The same where no number below `from` will do.
    fn note_from(&mut self, from: u32, fd: u32, on_exec: bool, shows: Shown) -> i64 {
        if shows == Shown::Nothing && self.services.try_host_opened(fd, on_exec) {
            return i64::from(fd);
        }
        let files = self.services.files();
        match self.services.host_opened(files, fd, on_exec, shows) {
            Ok(true) => i64::from(fd),
            Ok(false) => {
                let moved = self.move_away(from, fd, on_exec, shows);
                self.fill(fd);
                moved.map_or_else(Errno::as_return, i64::from)
            }
            Err(errno) => {
                self.host_close(fd);
                errno.as_return()
            }
        }
    }

    /// Another number, from `from` on, for a host descriptor under one of Husk's; noted.
    #[cold]
    fn move_away(
        &mut self,
        mut from: u32,
        fd: u32,
        on_exec: bool,
        shows: Shown,
    ) -> Result<u32, Errno> {
        let files = self.services.files();
        for _ in 0..MOVES_MAX {
            let free =
                self.with_limit(|client, limit| client.services.lowest_free(files, from, limit))?;
            let moved = self.host_copy(fd, free, on_exec).map_err(|_| Errno::EMFILE)?;
            match self.services.host_opened(files, moved, on_exec, shows) {
                Ok(true) => return Ok(moved),
                Ok(false) => from = moved + 1,
                Err(errno) => {
                    self.host_close(moved);
                    return Err(errno);
                }
            }
            self.host_close(moved);
        }
        Err(Errno::EMFILE)
    }

    /// Puts a plug where this thread has a host descriptor in transit, or nothing if the number is
    /// not Husk's any more.
    #[cold]
    pub(crate) fn fill(&mut self, fd: u32) {
        let files = self.services.files();
        if !self.put_plug(fd) || !self.services.plug(files, fd) {
            self.host_close(fd);
        }
    }

    /// The host has a link in `/proc` for Husk's `fd`, too, from now on, for what is done to such a
    /// link itself; unless it has no number left, or something of another thread's in transit.
    #[cold]
    pub(crate) fn show_link(&mut self, fd: u32) {
        let files = self.services.files();
        if !self.is_husks(fd) || self.services.plugged(files, fd) {
            return;
        }
        self.services.unguard();
        let _still = (!self.services.has_table_alone()).then(|| self.host.keep_still());
        // Takes the number only if the host has nothing there.
        let [_, text, _] = self.host.kept_fds();
        let put = self.host_fcntl(text as usize, F_DUPFD_CLOEXEC, fd as usize);
        let Ok(put) = Errno::check(put) else { return };
        if put as u32 != fd || !self.services.plug(files, fd) {
            self.host_close(put as u32);
        }
    }

    /// Replaces the host's descriptor `fd` by a plug; whether there is one now. A plug is another
    /// number of the runtime's sealed text, which is kept as a place and no more (`O_PATH`):
    /// whoever gets at it past us (a request handed to the host, `/proc/PID/fd`, another thread in
    /// the middle of a `dup2`) can write nothing, and reads nothing of the image.
    pub(crate) fn put_plug(&self, fd: u32) -> bool {
        let [_, text, _] = self.host.kept_fds();
        let args = [text as usize, fd as usize, O_CLOEXEC as usize, 0, 0, 0];
        self.host.call(nr::dup3, args) >= 0
    }

    /// `fcntl` on a descriptor of the host's.
    pub(crate) fn host_fcntl(&self, fd: usize, command: u32, argument: usize) -> i64 {
        self.host.call(nr::fcntl, [fd, command as usize, argument, 0, 0, 0])
    }

    /// Opens the path at an address on the host.
    pub(crate) fn host_open(&self, path: usize, flags: u32) -> Result<usize, Errno> {
        let args = [AT_FDCWD as usize, path, flags as usize, 0, 0, 0];
        Errno::check(self.host.call(nr::openat, args)).map(|fd| fd as usize)
    }

    /// Reads from a descriptor of the host's at an offset.
    pub(crate) fn host_read(
        &self,
        fd: usize,
        target: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize, Errno> {
        let args = [fd, target, length, offset as usize, 0, 0];
        Errno::check(self.host.call(nr::pread64, args)).map(|count| count as usize)
    }

    /// A copy of a descriptor of the host's, at the first number from `from` on that it has free.
    fn host_copy(&self, fd: u32, from: u32, on_exec: bool) -> Result<u32, Errno> {
        let command = if on_exec { F_DUPFD_CLOEXEC } else { F_DUPFD };
        Errno::check(self.host_fcntl(fd as usize, command, from as usize)).map(|copy| copy as u32)
    }

    /// `struct stat` of a descriptor of the host's.
    pub(crate) fn host_stat(&self, fd: usize) -> Result<[u8; STAT_BYTES], Errno> {
        let mut stat = [0u8; STAT_BYTES];
        let args = [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0];
        Errno::check(self.host.call(nr::fstat, args))?;
        Ok(core::hint::black_box(stat))
    }

    pub(crate) fn closes_on_exec(&self, fd: u32) -> bool {
        self.host_fcntl(fd as usize, F_GETFD, 0) as u32 & FD_CLOEXEC != 0
    }

    /// Closes a descriptor of the host's.
    pub(crate) fn host_close(&self, fd: u32) {
        self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
    }

    fn note_pipe(&mut self, after: &After) -> i64 {
        let noted = self.note_pair(after, after.args[0]);
        if noted == 0 {
            self.pipe_made(after);
        }
        noted
    }

    #[cold]
    fn note_socket_pair(&mut self, after: &After) -> i64 {
        let noted = self.note_pair(after, after.args[3]);
        if noted == 0 {
            self.socket_pair_made(after);
        }
        noted
    }

    /// Notes both descriptors of a pair, or neither.
    fn note_pair(&mut self, after: &After, address: usize) -> i64 {
        let mut pair = [0u8; 8];
        if self.memory.read(address, &mut pair).is_err() {
            return 0;
        }
        // `SOCK_CLOEXEC` is the same bit, and stands in the same place.
        let on_exec = after.number != nr::pipe && after.args[1] as u32 & O_CLOEXEC != 0;
        match self.pair_noted(get32(&pair, 0), get32(&pair, 4), on_exec) {
            Ok((first, second)) => {
                put(&mut pair, 0, first.to_le_bytes());
                put(&mut pair, 4, second.to_le_bytes());
                let _ = self.memory.write(address, &pair);
                0
            }
            Err(errno) => errno.as_return(),
        }
    }

    /// The numbers of a pair: on Linux the first has the lower one. Each is noted, or closed.
    fn pair_noted(&mut self, first: u32, second: u32, on_exec: bool) -> Result<(u32, u32), Errno> {
        let files = self.services.files();
        match self.services.host_opened(files, first, on_exec, Shown::Nothing) {
            Ok(true) => {
                let second = Errno::check(self.note_opened(second, on_exec, Shown::Nothing));
                Ok((first, second.inspect_err(|_| self.unnote(first))? as u32))
            }
            Ok(false) => {
                let pair = self.pair_moved(first, second, on_exec);
                self.fill(first);
                pair
            }
            Err(errno) => {
                self.host_close(first);
                self.host_close(second);
                Err(errno)
            }
        }
    }

    /// The numbers of a pair whose first one is Husk's, and stays open here: that of the second is
    /// the lowest that is free, unless it is Husk's, too. Then the first takes it, and the second
    /// moves.
    #[cold]
    fn pair_moved(&mut self, first: u32, second: u32, on_exec: bool) -> Result<(u32, u32), Errno> {
        let files = self.services.files();
        match self.services.host_opened(files, second, on_exec, Shown::Nothing) {
            Ok(true) => {
                let moved = self.move_away(0, second, on_exec, Shown::Nothing);
                let moved = moved.inspect_err(|_| self.unnote(second))?;
                let flags = if on_exec { O_CLOEXEC } else { 0 };
                let args = [first as usize, second as usize, flags as usize, 0, 0, 0];
                Errno::check(self.host.call(nr::dup3, args)).inspect_err(|_| {
                    self.unnote(second);
                    self.unnote(moved);
                })?;
                Ok((second, moved))
            }
            Ok(false) => {
                let lower = self.move_away(0, first, on_exec, Shown::Nothing);
                let pair = lower.and_then(|lower| {
                    let higher = self.move_away(0, second, on_exec, Shown::Nothing);
                    Ok((lower, higher.inspect_err(|_| self.unnote(lower))?))
                });
                self.fill(second);
                pair
            }
            Err(errno) => {
                self.host_close(second);
                Err(errno)
            }
        }
    }

    /// Closes a descriptor of the host's that was noted.
    fn unnote(&mut self, fd: u32) {
        let files = self.services.files();
        self.services.host_closed(files, fd);
        self.host_close(fd);
    }

    /// Notes the descriptors in the control messages of a received message.
    fn note_message(&mut self, header: usize) {
        self.any_descriptors(header, |client, at, count| {
            let noted = client.note_passed_descriptors(at + CMSGHDR_BYTES, count);
            if noted < count {
                client.cut(header, at, noted);
            }
            false
        });
    }

    /// Returns how many found a number, and stand at `address` from now on; those from the first
    /// that did not are closed.
    fn note_passed_descriptors(&mut self, address: usize, count: usize) -> usize {
        let (mut noted, count) = (0, count.min(PASSED_MAX));
        let mut words = [0u8; 4 * PASSED_MAX];
        if self.memory.read(address, &mut words[..4 * count]).is_err() {
            return count;
        }
        let lifted = count > 1 && self.lift_apart(&mut words, count);
        for index in 0..count {
            let fd = get32(&words, 4 * index);
            let fd = if lifted { self.set_down(fd) } else { fd };
            let moved = self.note_stranger(fd);
            if moved < 0 {
                // As on Linux, none of those behind it arrives.
                (index + 1..count).for_each(|index| self.drop_received(get32(&words, 4 * index)));
                break;
            }
            let _ = self.memory.write(address + 4 * noted, &(moved as i32).to_le_bytes());
            noted += 1;
        }
        noted
    }

    /// Closes a host descriptor just received, also where its number is Husk's.
    #[cold]
    fn drop_received(&mut self, fd: u32) {
        if self.is_husks(fd) { self.fill(fd) } else { self.host_close(fd) }
    }

    /// Moves the host descriptors `words`, just received, above the numbers that they are to have,
    /// if one of theirs is Husk's: each may take the lowest free one then, in their order, as on
    /// Linux. Whether they are there: not so where no numbers are left above.
    #[cold]
    fn lift_apart(&mut self, words: &mut [u8; 4 * PASSED_MAX], count: usize) -> bool {
        let received = *words;
        let numbers = || (0..count).map(|index| get32(&received, 4 * index));
        if !numbers().any(|fd| self.is_husks(fd)) {
            return false;
        }
        let mut above = numbers().max().map_or(0, |highest| highest + 1);
        let (files, mut next) = (self.services.files(), 0);
        for _ in 0..count {
            let Ok(free) = self.free_number(files, next) else { break };
            next = free + 1;
            above = above.max(next);
        }
        for (index, fd) in numbers().enumerate() {
            let Ok(high) = self.copy_received(fd, above) else {
                (0..index).for_each(|index| self.host_close(get32(words, 4 * index)));
                *words = received;
                return false;
            };
            put(words, 4 * index, high.to_le_bytes());
        }
        numbers().for_each(|fd| self.drop_received(fd));
        true
    }

    /// Moves a descriptor that `lift_apart` has moved to the lowest number that is free.
    #[cold]
    fn set_down(&mut self, high: u32) -> u32 {
        let files = self.services.files();
        let low = self.free_number(files, 0).and_then(|free| self.copy_received(high, free));
        low.inspect(|_| self.host_close(high)).unwrap_or(high)
    }

    /// A copy of a descriptor just received, from number `from` on.
    fn copy_received(&self, fd: u32, from: u32) -> Result<u32, Errno> {
        self.host_copy(fd, from, self.closes_on_exec(fd))
    }

    /// Ends the control messages of a received message behind `count` descriptors of the one at
    /// `at`, and says so (`MSG_CTRUNC`), as Linux does where descriptors find no number. Theirs is
    /// the last one, but for a sender's pidfd, which goes with them.
    #[cold]
    fn cut(&mut self, header: usize, at: usize, count: usize) {
        let mut head = [0u8; MSGHDR_BYTES];
        if self.memory.read(header, &mut head).is_err() {
            return;
        }
        let length = if count == 0 { 0 } else { CMSGHDR_BYTES + 4 * count };
        let end = at + length.next_multiple_of(8);
        let whole = end - get64(&head, CONTROL_AT) as usize;
        put(&mut head, CONTROL_LENGTH_AT, (whole as u64).to_le_bytes());
        let flags = get32(&head, MESSAGE_FLAGS_AT) | CONTROL_CUT;
        put(&mut head, MESSAGE_FLAGS_AT, flags.to_le_bytes());
        if count != 0 {
            let _ = self.memory.write(at, &(length as u64).to_le_bytes());
        }
        let _ = self.memory.write(header, &head);
    }
}
