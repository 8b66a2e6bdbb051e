//! Rewritten copies of programs: where they lie, and how they are asked for.

use husk_abi::PATH_MAX;
use husk_carrier::Direct;
use husk_host::calls;
use husk_proto::fs::HostIdentity;
use husk_proto::image::Image;

use core::ffi::CStr;

/// Asks the supervisor for a copy of `file`, which is at the path that `path` stores.
#[inline(never)]
pub fn request(
    services: &mut Direct,
    file: &HostIdentity,
    path: impl Fn(&mut [u8; PATH_MAX]) -> usize,
) {
    let mut text = [0u8; PATH_MAX];
    let length = path(&mut text);
    services.request_rewrite(file, &text[..length]);
}

/// Longest path of a copy.
const COPY_PATH_MAX: usize = 512;

/// Opens `copies_path/<device>-<inode>-<modified_ns>-<size>`.
pub fn open_copy(directory: &[u8], file: &HostIdentity) -> Option<usize> {
    let mut path = [0u8; COPY_PATH_MAX];
    let mut end = directory.len();
    path.get_mut(..end)?.copy_from_slice(directory);
    let key = [file.device, file.inode, file.modified_ns as u64, file.size];
    for (i, number) in key.into_iter().enumerate() {
        *path.get_mut(end)? = if i == 0 { b'/' } else { b'-' };
        end = hex(&mut path, end + 1, number)?;
    }
    *path.get_mut(end)? = 0;
    calls::open(CStr::from_bytes_with_nul(&path[..=end]).ok()?).ok()
}

fn hex(out: &mut [u8], at: usize, number: u64) -> Option<usize> {
    let digits = (67 - number.leading_zeros() as usize) / 4;
    let digits = digits.max(1);
    for (i, place) in out.get_mut(at..at + digits)?.iter_mut().enumerate() {
        *place = b"0123456789abcdef"[(number >> (4 * (digits - 1 - i)) & 15) as usize];
    }
    Some(at + digits)
}
