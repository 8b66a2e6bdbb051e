//! Copies file bytes from the image to the host; holes stay holes.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::FileExt;
use std::path::Path;

use husk_proto::fs::Attributes;
use husk_proto::{Errno, Inode};
use rustix::fs::SeekFrom;

use super::beneath::held::Held;
use super::beneath::{Beneath, read_exact_at, set_len, write_all_at};
use crate::write_back::Source;

/// One copy at a time; large enough that the two calls around it do not matter.
const CHUNK_BYTES: usize = 256 << 10;
/// Unit in which bytes are hashed; a divisor of `CHUNK_BYTES`.
const PAGE_BYTES: usize = 4096;
/// Copies of a file that changes while it is copied.
const TRIES: u32 = 8;
/// Longest file that is copied to memory while writers are kept out: a few ms.
const SHORT_BYTES: u64 = 4 << 20;
/// Longest file of which writers are kept out while it is looked at once more.
const HELD_BYTES: u64 = 16 << 20;

/// Writes the bytes of `inode` into a new `file`.
pub fn export<S: Source>(source: &mut S, inode: Inode, file: &File) -> io::Result<()> {
    let size = source.attributes(inode).map_err(from_errno)?.size;
    let mut buffer = vec![0; CHUNK_BYTES.min(size as usize)];
    let (mut offset, mut written) = (0, 0);
    while let Some((start, end)) = next_data(source, inode, offset, size)? {
        written = copy(source, inode, file, start, end, &mut buffer)?;
        offset = end;
    }
    if written != size { set_len(file, size) } else { Ok(()) }
}

/// A file that was copied while programs go on.
pub struct Still {
    /// What else it was at that moment.
    pub attributes: Attributes,
    /// `hash` of its bytes.
    pub content: u64,
}

/// Writes the bytes that `inode` has at one moment into a new `file`. `None`: it changes each time
/// while it is copied.
pub fn export_still<S: Source>(
    source: &mut S,
    inode: Inode,
    file: &File,
) -> io::Result<Option<Still>> {
    for _ in 0..TRIES {
        let size = source.attributes(inode).map_err(from_errno)?.size;
        if size <= SHORT_BYTES {
            match export_short(source, inode, file)? {
                Some(still) => return Ok(Some(still)),
                None => continue,
            }
        }
        export(source, inode, file)?;
        // What was written is looked at, not what was read: between them lies the host.
        let copied = hash_of_host(file)?;
        let seen = look(source, inode, size <= HELD_BYTES)?;
        match seen {
            Some((attributes, content)) if content == copied => {
                return Ok(Some(Still { attributes, content }));
            }
            _ => set_len(file, 0)?,
        }
    }
    Ok(None)
}

/// The same of a file that memory has room for. `None`: it is longer by now, or held up.
fn export_short<S: Source>(source: &mut S, inode: Inode, file: &File) -> io::Result<Option<Still>> {
    if source.keep_writers_out(inode).is_err() {
        return Ok(None);
    }
    let taken = pieces(source, inode);
    source.let_writers_in(inode);
    let (attributes, pieces) = taken?;
    if attributes.size > SHORT_BYTES {
        return Ok(None);
    }
    let (mut hasher, mut written) = (ByBytes::new(attributes.size), 0);
    for (offset, bytes) in pieces {
        write_all_at(file, &bytes, offset)?;
        hasher.add(offset, &bytes);
        written = offset + bytes.len() as u64;
    }
    if written != attributes.size {
        set_len(file, attributes.size)?;
    }
    Ok(Some(Still { attributes, content: hasher.finish() }))
}

/// Attributes and data of a file, by offset; no more than `SHORT_BYTES`.
pub type Pieces = (Attributes, Vec<(u64, Vec<u8>)>);

/// All data of a short file.
pub fn pieces<S: Source>(source: &mut S, inode: Inode) -> io::Result<Pieces> {
    let attributes = source.attributes(inode).map_err(from_errno)?;
    let size = attributes.size.min(SHORT_BYTES);
    let (mut pieces, mut offset) = (Vec::new(), 0);
    while let Some((start, end)) = next_data(source, inode, offset, size)? {
        let mut bytes = vec![0; (end - start) as usize];
        let got = source.read_at(inode, start, &mut bytes).map_err(from_errno)?;
        bytes.truncate(got);
        pieces.push((start, bytes));
        offset = end;
    }
    Ok((attributes, pieces))
}

/// Attributes and a hash of the bytes as they are together; `held`: whoever writes waits. Without,
/// the times say whether somebody did. `None`: somebody did, or holds us up.
fn look<S: Source>(
    source: &mut S,
    inode: Inode,
    held: bool,
) -> io::Result<Option<(Attributes, u64)>> {
    if held && source.keep_writers_out(inode).is_err() {
        return Ok(None);
    }
    let before = source.attributes(inode);
    let content = hash(source, inode);
    let after = source.attributes(inode);
    if held {
        source.let_writers_in(inode);
    }
    let (before, after) = (before.map_err(from_errno)?, after.map_err(from_errno)?);
    let times = |one: &Attributes| (one.size, one.modified_ns, one.changed_ns);
    Ok((held || times(&before) == times(&after)).then_some((after, content?)))
}

/// The first `size` bytes of `inode`, or all there are.
pub fn read_all<S: Source>(source: &mut S, inode: Inode, size: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read_at(inode, filled as u64, &mut bytes[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A hash of the bytes of `inode`; holes are zeros.
pub fn hash<S: Source>(source: &mut S, inode: Inode) -> io::Result<u64> {
    let size = source.attributes(inode).map_err(from_errno)?.size;
    let (mut hasher, mut buffer, mut offset) = (ByBytes::new(size), vec![0; CHUNK_BYTES], 0);
    while let Some((start, end)) = next_data(source, inode, offset, size)? {
        offset = start;
        while offset < end {
            let want = buffer.len().min((end - offset) as usize);
            let got = source.read_at(inode, offset, &mut buffer[..want]).map_err(from_errno)?;
            if got == 0 {
                break;
            }
            hasher.add(offset, &buffer[..got]);
            offset += got as u64;
        }
        offset = end;
    }
    Ok(hasher.finish())
}

/// The same of a host file.
pub fn hash_of_host(file: &File) -> io::Result<u64> {
    hash_of_start(file, file.metadata()?.len())
}

/// The same of its first `size` bytes.
pub fn hash_of_start(file: &File, size: u64) -> io::Result<u64> {
    let longest = CHUNK_BYTES.min(size as usize);
    let (mut hasher, mut buffer, mut offset) = (ByBytes::new(size), vec![0; longest], 0);
    loop {
        offset = host_data(file, offset, size);
        if offset == size {
            break;
        }
        let want = longest.min((size - offset) as usize);
        match file.read_at(&mut buffer[..want], offset)? {
            0 => break,
            got => {
                hasher.add(offset, &buffer[..got]);
                offset += got as u64;
            }
        }
    }
    Ok(hasher.finish())
}

/// Hashes a file page by page; pages of zeros, and what is not there, count for nothing.
struct ByBytes {
    hasher: DefaultHasher,
}

impl ByBytes {
    fn new(size: u64) -> ByBytes {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(size);
        ByBytes { hasher }
    }

    /// Bytes at `offset`, which is the beginning of a page.
    fn add(&mut self, mut offset: u64, bytes: &[u8]) {
        for page in bytes.chunks(PAGE_BYTES) {
            if page.iter().any(|&byte| byte != 0) {
                self.hasher.write_u64(offset);
                self.hasher.write(page);
            }
            offset += page.len() as u64;
        }
    }

    fn finish(self) -> u64 {
        self.hasher.finish()
    }
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

/// The page of `offset..size` in which a host file has data again, or `size`.
fn host_data(file: &File, offset: u64, size: u64) -> u64 {
    if offset >= size {
        return size;
    }
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => page_of(data).clamp(offset, size),
        Err(rustix::io::Errno::NXIO) => size,
        // It does not tell its holes: they are read.
        Err(_) => offset,
    }
}

/// The page of `offset..size` in which the image's file or the host's has data again, or `size`.
fn data_of_either<S: Source>(
    source: &mut S,
    (inode, file): (Inode, &File),
    offset: u64,
    size: u64,
) -> u64 {
    let ours = match source.seek_data(inode, offset, true) {
        Ok(data) => page_of(data).clamp(offset, size),
        Err(Errno::ENXIO) => size,
        Err(_) => offset,
    };
    ours.min(host_data(file, offset, size))
}

fn page_of(offset: u64) -> u64 {
    offset - offset % PAGE_BYTES as u64
}

/// Copies a stretch of data; up to where.
fn copy<S: Source>(
    source: &mut S,
    inode: Inode,
    file: &File,
    start: u64,
    end: u64,
    buffer: &mut [u8],
) -> io::Result<u64> {
    let mut offset = start;
    while offset < end {
        let want = buffer.len().min((end - offset) as usize);
        let got = source.read_at(inode, offset, &mut buffer[..want]).map_err(from_errno)?;
        if got == 0 {
            break;
        }
        write_all_at(file, &buffer[..got], offset)?;
        offset += got as u64;
    }
    Ok(offset)
}

/// Whether a host `file` has the bytes of `inode`.
pub fn equal<S: Source>(source: &mut S, inode: Inode, file: File) -> io::Result<bool> {
    let size = source.attributes(inode).map_err(from_errno)?.size;
    let is_as_long = file.metadata()?.len() == size;
    Ok(is_as_long && begins_with(source, inode, &file, size)?.is_some())
}

/// Whether the image's file begins with the `size` bytes of a host `file`: a hash of them, as
/// `hash_of_start` has it.
pub fn begins_with<S: Source>(
    source: &mut S,
    inode: Inode,
    file: &File,
    size: u64,
) -> io::Result<Option<u64>> {
    let mut hasher = ByBytes::new(size);
    let longest = CHUNK_BYTES.min(size as usize);
    let (mut ours, mut theirs, mut offset) = (vec![0; longest], vec![0; longest], 0);
    if source.attributes(inode).map_err(from_errno)?.size < size {
        return Ok(None);
    }
    loop {
        offset = data_of_either(source, (inode, file), offset, size);
        if offset == size {
            return Ok(Some(hasher.finish()));
        }
        let want = longest.min((size - offset) as usize);
        let got = source.read_at(inode, offset, &mut ours[..want]).map_err(from_errno)?;
        read_exact_at(file, &mut theirs[..got], offset)?;
        if got == 0 || ours[..got] != theirs[..got] {
            return Ok(None);
        }
        hasher.add(offset, &ours[..got]);
        offset += got as u64;
    }
}

/// The same of a `start` that is in memory.
pub fn hash_if_start(file: &File, start: &[u8]) -> io::Result<Option<u64>> {
    let mut theirs = vec![0; start.len()];
    read_exact_at(file, &mut theirs, 0)?;
    let mut hasher = ByBytes::new(start.len() as u64);
    hasher.add(0, start);
    Ok((theirs == start).then(|| hasher.finish()))
}

/// The `bytes` of a file from `offset` on.
pub fn piece<S: Source>(
    source: &mut S,
    inode: Inode,
    mut offset: u64,
    bytes: usize,
) -> io::Result<Vec<u8>> {
    let (mut piece, mut filled) = (vec![0; bytes], 0);
    while filled < bytes {
        match source.read_at(inode, offset, &mut piece[filled..]).map_err(from_errno)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => (filled, offset) = (filled + got, offset + got as u64),
        }
    }
    Ok(piece)
}

/// Makes what is at `path` the same file as `origin` (a hard link), or a copy where links are not
/// possible; `None`: it is the same. Devices, FIFOs and sockets are linked or refused.
pub fn link_or_copy(beneath: &Beneath, origin: &Held, path: &Path) -> io::Result<Option<Held>> {
    let Err(problem) = beneath.link(origin, path) else { return Ok(None) };
    if origin.found().is_symlink() {
        return beneath.make_symlink(&origin.read_link()?, path).map(Some);
    }
    if !origin.found().is_file() {
        return Err(problem);
    }
    copy_of_host(beneath, origin, path).map(Some)
}

/// A file of its own with the bytes of a host file.
pub fn copy_of_host(beneath: &Beneath, origin: &Held, path: &Path) -> io::Result<Held> {
    let (mut from, mut to) = (origin.read()?, beneath.create(path)?);
    let size = from.metadata()?.len();
    let (mut offset, mut written) = (0, 0);
    while let Some((start, end)) = stretch_of_host(&from, offset, size) {
        from.seek(io::SeekFrom::Start(start))?;
        to.seek(io::SeekFrom::Start(start))?;
        // Within the kernel, where it can.
        written = start + io::copy(&mut (&from).take(end - start), &mut to)?;
        offset = end;
    }
    if written != size {
        set_len(&to, size)?;
    }
    Held::of_file(to)
}

/// The next stretch of data in `offset..size` of a host file.
pub fn stretch_of_host(file: &File, offset: u64, size: u64) -> Option<(u64, u64)> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => size,
        // It does not tell its holes: they are read.
        Err(_) => offset,
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).ok().filter(|&end| end > start);
    (start < size).then(|| (start, end.unwrap_or(size).min(size)))
}

/// An errno of the image as an I/O error.
pub fn from_errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}
