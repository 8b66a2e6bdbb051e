//! `mlockall`: the memory of the program is locked, and not that of the image.
//!
//! ```text
//!   MCL_CURRENT ─► each mapping of the process that is not ours, by mlock2
//!   MCL_FUTURE  ─► the host's: what is ours is mapped before
//! ```
//!
//! The host would lock the whole image, its free memory too: as much as `--memory` says.
//!
//! Not here: `munlockall`, which the host serves.

use crate::addresses;
use crate::frame::{Answer, Frame};
use crate::maps;
use crate::memory::region;
use husk_abi::{Errno, nr};
use husk_host::calls;

const CURRENT: usize = 1;
const FUTURE: usize = 2;
const ON_FAULT: usize = 4;
/// `MLOCK_ONFAULT`.
const LATER: usize = 1;
/// Programs have memory below this.
const MEMORY_END: usize = 0x7fff_ffff_f000;

/// Serves the call.
pub fn serve(frame: &Frame) -> Answer {
    let flags = frame.args[0];
    if flags & CURRENT == 0 || flags & !(CURRENT | FUTURE | ON_FAULT) != 0 {
        if flags & FUTURE != 0 {
            let _ = region::need_cache();
        }
        return Answer::PASSED;
    }
    Answer::value(match lock(flags) {
        Ok(()) => 0,
        Err(errno) => errno.as_return(),
    })
}

fn lock(flags: usize) -> Result<(), Errno> {
    if flags & FUTURE != 0 {
        let _ = region::need_cache();
        // SAFETY: passes no memory.
        unsafe { calls::raw(nr::mlockall, [flags & !CURRENT, 0, 0, 0, 0, 0])? };
    }
    let result = lock_current(flags & ON_FAULT != 0);
    if result.is_err() {
        // All or nothing.
        // SAFETY: passes no memory.
        let _ = unsafe { calls::raw(nr::munlockall, [0; 6]) };
    }
    result
}

fn lock_current(on_fault: bool) -> Result<(), Errno> {
    let mut bytes = 0;
    each_row(&mut |row| {
        bytes += (row.end - row.start) as u64;
        Ok(())
    })?;
    let too_many = bytes > limit();
    each_row(&mut |row| match row.lock(on_fault) {
        // It is gone, or cannot be brought in as a whole (past the end of a file): `mlockall` goes
        // on there, too.
        Err(Errno::ENOMEM) if !too_many => Ok(()),
        Err(Errno::EAGAIN) => Ok(()),
        other => other,
    })
}

/// Calls `step` with each row that is the program's.
fn each_row(step: &mut dyn FnMut(Row) -> Result<(), Errno>) -> Result<(), Errno> {
    maps::each_row(&mut |row| Row::of(&row).map_or(Ok(()), &mut *step))
}

/// What is the program's.
struct Row {
    start: usize,
    end: usize,
    /// Nobody may touch it: there is nothing to bring in.
    closed: bool,
}

impl Row {
    fn of(row: &maps::Row<'_>) -> Option<Row> {
        let &maps::Row { start, end, text } = row;
        let rights = text.iter().position(|&byte| byte == b' ')? + 1;
        let closed = text.get(rights..rights + 3)? == b"---";
        (end <= MEMORY_END && !addresses::covers(start, end - start)).then_some(Row {
            start,
            end,
            closed,
        })
    }

    fn lock(&self, on_fault: bool) -> Result<(), Errno> {
        let how = if on_fault || self.closed { LATER } else { 0 };
        let args = [self.start, self.end - self.start, how, 0, 0, 0];
        // SAFETY: changes nothing that the process can see of its memory.
        unsafe { calls::raw(nr::mlock2, args) }.map(|_| ())
    }
}

/// Bytes that may be locked, where nobody has the right to lock more.
fn limit() -> u64 {
    const RLIMIT_MEMLOCK: usize = 8;
    let mut limit = [u64::MAX; 2];
    let args = [0, RLIMIT_MEMLOCK, 0, (&raw mut limit) as usize, 0, 0];
    // SAFETY: room for a `struct rlimit`.
    let _ = unsafe { calls::raw(nr::prlimit64, args) };
    core::hint::black_box(limit)[0]
}
