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
use crate::memory::region;
use husk_abi::{Errno, PAGE, nr};
use husk_host::calls;

const CURRENT: usize = 1;
const FUTURE: usize = 2;
const ON_FAULT: usize = 4;
/// `MLOCK_ONFAULT`.
const LATER: usize = 1;
/// Programs have memory below this.
const MEMORY_END: usize = 0x7fff_ffff_f000;
/// Mappings at most, a bound: Linux has 65,530.
const ROWS_MAX: usize = 1 << 20;

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

/// Calls `step` with what each row of the maps names. A row may go while this runs.
fn each_row(step: &mut dyn FnMut(Row) -> Result<(), Errno>) -> Result<(), Errno> {
    let maps = calls::open(c"/proc/self/maps")?;
    let result = rows_of(maps, step);
    calls::close(maps);
    result
}

fn rows_of(maps: usize, step: &mut dyn FnMut(Row) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut rows = [0u8; 4 * PAGE];
    let (mut start, mut end) = (0, 0);
    for _ in 0..ROWS_MAX {
        let Some(length) = rows[start..end].iter().position(|&byte| byte == b'\n') else {
            rows.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            let room = &mut rows[end..];
            let args = [maps, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
            // SAFETY: `room` is writable for its length.
            match unsafe { calls::raw(nr::read, args)? } {
                0 => return Ok(()),
                more => end += more,
            }
            continue;
        };
        if let Some(row) = Row::of(&rows[start..start + length]) {
            step(row)?;
        }
        start += length + 1;
    }
    Ok(())
}

/// `start-end rights ...`.
struct Row {
    start: usize,
    end: usize,
    /// Nobody may touch it: there is nothing to bring in.
    closed: bool,
}

impl Row {
    fn of(row: &[u8]) -> Option<Row> {
        let mut parts = row.split(|&byte| byte == b'-' || byte == b' ');
        let start = address(parts.next()?)?;
        let end = address(parts.next()?)?;
        let rights = row.iter().position(|&byte| byte == b' ')? + 1;
        let closed = row.get(rights..rights + 3)? == b"---";
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

fn address(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}
