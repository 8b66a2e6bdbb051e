//! Calls that go to the host and leave something to note: new descriptors, a new directory, new
//! credentials.
//!
//! Invariant: every number the host hands out is noted before the application sees it. If Husk
//! uses that number already, the host's moves to the lowest number free in both tables, and the
//! hole in the host's table is plugged, so that this happens once a number.

use crate::layout::{get32, get64, put};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::sys::general::{F_DUPFD, F_DUPFD_CLOEXEC, O_CLOEXEC};
use husk_proto::descriptor::Slot;
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Inode, Services};

/// The result is a descriptor, kept over exec.
const OPENED: u32 = 1;
/// The result is a descriptor, closed on exec.
const OPENED_CLOSE_ON_EXEC: u32 = 2;
/// The result is a descriptor; ask the host whether it is closed on exec.
pub(crate) const ASK: u32 = 3;
/// Two descriptors stand at the address in argument 0.
pub(crate) const PAIR: u32 = 4;
/// Two descriptors stand at the address in argument 3.
pub(crate) const SOCKET_PAIR: u32 = 5;
/// The result is a second number of argument 0.
pub(crate) const DUPLICATE: u32 = 6;
/// The host's working directory changed.
pub(crate) const DIRECTORY: u32 = 7;
/// Credentials may have changed.
pub(crate) const IDENTITY: u32 = 8;
/// The limit of descriptors may have changed.
pub(crate) const LIMIT: u32 = 9;
/// A message with descriptors may have arrived (`struct msghdr` in argument 1).
pub(crate) const MESSAGE: u32 = 10;
/// Several (`struct mmsghdr` array in argument 1).
pub(crate) const MESSAGES: u32 = 11;
/// Close-on-exec of argument 0 becomes argument 2.
pub(crate) const CLOSE_ON_EXEC: u32 = 12;

/// Moves tried for one descriptor.
const MOVES_MAX: usize = 8;
/// Descriptors in one control message (`SCM_MAX_FD`).
const PASSED_MAX: usize = 253;
/// Control messages looked at in one message.
const CONTROLS_MAX: usize = 16;
/// Bytes of `struct mmsghdr`.
const MMSGHDR_BYTES: usize = 64;

/// The reason for a call whose result is a descriptor.
pub(crate) const fn opened(close_on_exec: bool) -> u32 {
    if close_on_exec { OPENED_CLOSE_ON_EXEC } else { OPENED }
}

/// Passes `call`, to be noted for `reason`.
pub(crate) fn then(call: &Call, reason: u32) -> Answer {
    Ok(Verdict::PassThen(After { number: call.number, args: call.args, reason }))
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Notes how a passed call ended.
    pub(crate) fn note_passed(&mut self, after: &After, result: i64) -> i64 {
        if result < 0 {
            return result;
        }
        let fd = result as u32;
        match after.reason {
            OPENED => return self.note_opened(fd, false, None),
            OPENED_CLOSE_ON_EXEC => return self.note_opened(fd, true, None),
            ASK => return self.note_asking(fd),
            DUPLICATE => return self.note_duplicate(after.args[0] as u32, fd),
            PAIR => self.note_pair(after.args[0]),
            SOCKET_PAIR => self.note_pair(after.args[3]),
            DIRECTORY => {
                let _ = self.services.set_working_directory(WorkingDirectory::Host);
            }
            IDENTITY => self.forget_identity(),
            LIMIT => self.limit = 0,
            MESSAGE => self.note_message(after.args[1]),
            MESSAGES => {
                for index in 0..(result as usize).min(1024) {
                    self.note_message(after.args[1] + index * MMSGHDR_BYTES);
                }
            }
            CLOSE_ON_EXEC => {
                let files = self.services.files();
                let (fd, on) = (after.args[0] as u32, after.args[2] & 1 != 0);
                let _ = self.services.set_close_on_exec(files, fd, on);
            }
            _ => {}
        }
        result
    }

    /// Notes a descriptor the host made (a pidfd of `clone`, say); returns the number to use.
    pub fn note_host_descriptor(&mut self, fd: u32) -> i64 {
        self.note_asking(fd)
    }

    fn note_asking(&mut self, fd: u32) -> i64 {
        let flags = self.host.call(nr::fcntl, [fd as usize, 1, 0, 0, 0, 0]);
        self.note_opened(fd, flags & 1 != 0, None)
    }

    fn note_duplicate(&mut self, source: u32, fd: u32) -> i64 {
        let files = self.services.files();
        let shows = match self.services.slot(files, source) {
            Slot::Host(shows) => shows,
            _ => None,
        };
        let flags = self.host.call(nr::fcntl, [fd as usize, 1, 0, 0, 0, 0]);
        self.note_opened(fd, flags & 1 != 0, shows)
    }

    /// Notes a new host descriptor; returns its number, another one if it had to move.
    pub(crate) fn note_opened(&mut self, fd: u32, on_exec: bool, shows: Option<Inode>) -> i64 {
        let files = self.services.files();
        let mut fd = fd;
        for _ in 0..MOVES_MAX {
            match self.services.host_opened(files, fd, on_exec, shows) {
                Ok(true) => return i64::from(fd),
                Ok(false) => match self.move_away(fd, on_exec) {
                    Ok(moved) => fd = moved,
                    Err(errno) => return errno.as_return(),
                },
                Err(errno) => {
                    self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
                    return errno.as_return();
                }
            }
        }
        self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        Errno::EMFILE.as_return()
    }

    /// Moves a host descriptor off a number of Husk's and plugs the hole.
    #[cold]
    fn move_away(&mut self, fd: u32, on_exec: bool) -> Result<u32, Errno> {
        let files = self.services.files();
        let free = self.with_limit(|client, limit| client.services.lowest_free(files, 0, limit));
        let command = if on_exec { F_DUPFD_CLOEXEC } else { F_DUPFD } as usize;
        let moved = free.and_then(|free| {
            let args = [fd as usize, command, free as usize, 0, 0, 0];
            Errno::check(self.host.call(nr::fcntl, args))
        });
        let [region, _] = self.host.kept_fds();
        if region == u32::MAX {
            self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        } else {
            let args = [region as usize, fd as usize, O_CLOEXEC as usize, 0, 0, 0];
            self.host.call(nr::dup3, args);
            self.services.plug(files, fd);
        }
        moved.map(|moved| moved as u32)
    }

    fn note_pair(&mut self, address: usize) {
        let mut pair = [0u8; 8];
        if self.memory.read(address, &mut pair).is_err() {
            return;
        }
        for at in [0, 4] {
            let moved = self.note_asking(get32(&pair, at));
            put(&mut pair, at, (moved as i32).to_le_bytes());
        }
        let _ = self.memory.write(address, &pair);
    }

    /// Notes the descriptors in the control messages of a received message.
    fn note_message(&mut self, header: usize) {
        let mut head = [0u8; 56];
        if self.memory.read(header, &mut head).is_err() {
            return;
        }
        let (mut at, left) = (get64(&head, 32) as usize, get64(&head, 40) as usize);
        let end = at.saturating_add(left);
        for _ in 0..CONTROLS_MAX {
            let mut control = [0u8; 16];
            if at == 0 || end < at + 16 || self.memory.read(at, &mut control).is_err() {
                return;
            }
            let length = get64(&control, 0) as usize;
            if length < 16 || length > end - at {
                return;
            }
            if (get32(&control, 8), get32(&control, 12)) == (1, 1) {
                self.note_passed_descriptors(at + 16, (length - 16) / 4);
            }
            at += length.next_multiple_of(8);
        }
    }

    fn note_passed_descriptors(&mut self, address: usize, count: usize) {
        for index in 0..count.min(PASSED_MAX) {
            let mut word = [0u8; 4];
            if self.memory.read(address + 4 * index, &mut word).is_err() {
                return;
            }
            let moved = self.note_asking(u32::from_le_bytes(word));
            let _ = self.memory.write(address + 4 * index, &(moved as i32).to_le_bytes());
        }
    }
}
