//! File bytes from the image to the host, holes kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use husk_proto::{Errno, Inode};

use super::Source;

/// One copy at a time; large enough that the two calls around it do not matter.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes the bytes of `inode` into the new file `path` (mode 0600); returns it, not yet synced.
pub fn export<S: Source>(source: &mut S, inode: Inode, path: &Path) -> io::Result<File> {
    let size = source.attributes(inode).map_err(from_errno)?.size;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while let Some((start, end)) = next_data(source, inode, offset, size)? {
        copy(source, inode, &file, start, end, &mut buffer)?;
        offset = end;
    }
    file.set_len(size)?;
    Ok(file)
}

/// The next stretch of data in `offset..size`.
fn next_data<S: Source>(
    source: &mut S,
    inode: Inode,
    offset: u64,
    size: u64,
) -> io::Result<Option<(u64, u64)>> {
    if offset >= size {
        return Ok(None);
    }
    let start = match source.seek_data(inode, offset, true) {
        Err(Errno::ENXIO) => return Ok(None),
        other => other.map_err(from_errno)?,
    };
    let end = source.seek_data(inode, start, false).map_err(from_errno)?;
    Ok((start < size).then_some((start, end.min(size).max(start + 1))))
}

fn copy<S: Source>(
    source: &mut S,
    inode: Inode,
    file: &File,
    start: u64,
    end: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut offset = start;
    while offset < end {
        let want = buffer.len().min((end - offset) as usize);
        let got = source.read_at(inode, offset, &mut buffer[..want]).map_err(from_errno)?;
        if got == 0 {
            return Ok(());
        }
        file.write_all_at(&buffer[..got], offset)?;
        offset += got as u64;
    }
    Ok(())
}

/// Whether the host file at `path` has the bytes of `inode`.
pub fn equal<S: Source>(source: &mut S, inode: Inode, path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut ours = vec![0; CHUNK_BYTES];
    let mut theirs = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let got = source.read_at(inode, offset, &mut ours).map_err(from_errno)?;
        if got == 0 {
            return Ok(file.read(&mut theirs)? == 0);
        }
        match file.read_exact(&mut theirs[..got]) {
            Err(problem) if problem.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        if ours[..got] != theirs[..got] {
            return Ok(false);
        }
        offset += got as u64;
    }
}

/// Makes `target` the same file as `origin` (a hard link), or a copy where links are not possible.
/// Devices, FIFOs and sockets are linked or refused.
pub fn link_or_copy(origin: &Path, target: &Path) -> io::Result<()> {
    let Err(problem) = fs::hard_link(origin, target) else { return Ok(()) };
    let found = fs::symlink_metadata(origin)?;
    if found.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(origin)?, target);
    }
    if !found.is_file() {
        return Err(problem);
    }
    // `copy` follows no link here: `origin` is a file. It keeps holes where the host can.
    fs::copy(origin, target).map(|_| ())
}

/// An errno of the image as an I/O error.
pub fn from_errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}
