//! The rows of `/proc/self/maps`, where the host has to be asked what lies where.

use husk_abi::{Errno, PAGE, nr};
use husk_host::calls;

/// Mappings at most, a bound: Linux has 65,530.
const ROWS_MAX: usize = 1 << 20;

/// Where a mapping lies, and its row: `start-end rights ... name`.
pub struct Row<'a> {
    /// Its first address.
    pub start: usize,
    /// The first address behind it.
    pub end: usize,
    /// All of the row.
    pub text: &'a [u8],
}

impl<'a> Row<'a> {
    fn of(text: &'a [u8]) -> Option<Row<'a>> {
        let mut parts = text.split(|&byte| byte == b'-' || byte == b' ');
        let start = address(parts.next()?)?;
        let end = address(parts.next()?)?;
        Some(Row { start, end, text })
    }
}

/// A number in hexadecimal digits.
fn address(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

/// Calls `step` with each row. A mapping may go while this runs.
pub fn each_row(step: &mut dyn FnMut(Row<'_>) -> Result<(), Errno>) -> Result<(), Errno> {
    let maps = calls::open(c"/proc/self/maps")?;
    let result = rows_of(maps, step);
    calls::close(maps);
    result
}

fn rows_of(maps: usize, step: &mut dyn FnMut(Row<'_>) -> Result<(), Errno>) -> Result<(), Errno> {
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
