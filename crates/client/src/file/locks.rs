//! Advisory locks on Husk files: POSIX, open-file-description and `flock`.
//!
//! A shadow descriptor becomes a Husk descriptor first (the file is copied up), so that all
//! holders meet in one lock table.

use crate::layout::{get16, get64, put};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX,
    LOCK_NB, LOCK_SH, LOCK_UN, O_ACCMODE, O_PATH, SEEK_CUR, SEEK_END, SEEK_SET,
};
use husk_proto::lock::{Mode, Outcome, Owner, Range};
use husk_proto::{Description, Errno, Inode, Result, Services};

/// Bytes of `struct flock`.
const FLOCK_BYTES: usize = 32;
/// Longest sleep before a waiter looks again, ns.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Behind the last offset: what reaches it reaches to the end.
const OFFSETS_END: u64 = 1 << 63;
const ALL: Range = Range { start: 0, end: u64::MAX };

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The record locks of `fcntl`.
    pub(crate) fn record_lock(&mut self, c: &Call, command: u32) -> Answer {
        let Some(d) = self.described_in_image(c.args[0])? else { return Ok(Verdict::Pass) };
        let open = self.services.description(d)?;
        let mut lock = [0u8; FLOCK_BYTES];
        self.memory.read(c.args[2], &mut lock)?;
        let ofd = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
        let mode = mode_of(get16(&lock, 0));
        if command == F_GETLK && mode == Ok(Mode::Unlock) {
            return Err(Errno::EINVAL);
        }
        let range = self.lock_range(d, open.inode, &lock)?;
        let mode = mode?;
        if ofd && lock[24..28] != [0; 4] {
            return Err(Errno::EINVAL);
        }
        let owner = if ofd { Owner::Description(d) } else { Owner::Process };
        if matches!(command, F_GETLK | F_OFD_GETLK) {
            return self.test_lock(c.args[2], owner, open.inode, range, mode, lock);
        }
        let access = open.flags & O_ACCMODE;
        match mode {
            Mode::Shared if access == 1 => return Err(Errno::EBADF),
            Mode::Exclusive if access == 0 => return Err(Errno::EBADF),
            _ => {}
        }
        let wait = matches!(command, F_SETLKW | F_OFD_SETLKW);
        self.take(owner, open.inode, range, mode, wait)
    }

    fn take(&mut self, owner: Owner, inode: Inode, range: Range, mode: Mode, wait: bool) -> Answer {
        match self.services.lock(owner, inode, range, mode, wait)? {
            Outcome::Granted => value(0),
            Outcome::Blocked { .. } if !wait => Err(Errno::EAGAIN),
            Outcome::Blocked { address, value } => {
                Ok(Verdict::Wait { address, value, timeout_ns: LOOK_AGAIN_NS })
            }
        }
    }

    fn test_lock(
        &mut self,
        out: usize,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
        mut lock: [u8; FLOCK_BYTES],
    ) -> Answer {
        if mode == Mode::Unlock {
            return Err(Errno::EINVAL);
        }
        match self.services.test(owner, inode, range, mode)? {
            None => put(&mut lock, 0, (F_UNLCK as u16).to_le_bytes()),
            Some(held) => {
                let kind = if held.mode == Mode::Shared { F_RDLCK } else { F_WRLCK };
                let to_end = held.range.end == u64::MAX;
                let length = if to_end { 0 } else { held.range.end - held.range.start };
                put(&mut lock, 0, (kind as u16).to_le_bytes());
                put(&mut lock, 2, (SEEK_SET as u16).to_le_bytes());
                put(&mut lock, 8, held.range.start.to_le_bytes());
                put(&mut lock, 16, length.to_le_bytes());
                put(&mut lock, 24, held.pid.to_le_bytes());
            }
        }
        self.memory.write(out, &lock)?;
        value(0)
    }

    /// The bytes a `struct flock` names.
    fn lock_range(&mut self, d: Description, inode: Inode, lock: &[u8]) -> Result<Range> {
        let base = match u32::from(get16(lock, 2)) {
            SEEK_SET => 0,
            SEEK_CUR => self.services.offset(d)? as i64,
            SEEK_END => self.services.attributes(inode)?.size as i64,
            _ => return Err(Errno::EINVAL),
        };
        let (start, length) = (get64(lock, 8) as i64, get64(lock, 16) as i64);
        let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
        let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
        if length < 0 {
            let from = start.checked_sub(length.unsigned_abs()).ok_or(Errno::EINVAL)?;
            return Ok(Range { start: from, end: start });
        }
        match start + length as u64 {
            end if length == 0 || end == OFFSETS_END => Ok(Range { start, end: u64::MAX }),
            end if end > OFFSETS_END => Err(Errno::EOVERFLOW),
            end => Ok(Range { start, end }),
        }
    }

    /// `flock`.
    pub(crate) fn flock(&mut self, c: &Call) -> Answer {
        let operation = c.args[1] as u32;
        let Some(d) = self.described_in_image(c.args[0])? else { return Ok(Verdict::Pass) };
        let open = self.services.description(d)?;
        let mode = match operation & !LOCK_NB {
            LOCK_SH => Mode::Shared,
            LOCK_EX => Mode::Exclusive,
            LOCK_UN => Mode::Unlock,
            _ => return Err(Errno::EINVAL),
        };
        if open.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        let wait = operation & LOCK_NB == 0;
        let answer = self.take(Owner::Flock(d), open.inode, ALL, mode, wait);
        if !matches!(answer, Ok(Verdict::Return(_))) {
            // Linux gives a lock back before it asks for the other kind: a refused conversion
            // leaves none.
            self.services.lock(Owner::Flock(d), open.inode, ALL, Mode::Unlock, false)?;
        }
        answer
    }
}

fn mode_of(kind: u16) -> Result<Mode> {
    match u32::from(kind) {
        F_RDLCK => Ok(Mode::Shared),
        F_WRLCK => Ok(Mode::Exclusive),
        F_UNLCK => Ok(Mode::Unlock),
        _ => Err(Errno::EINVAL),
    }
}
