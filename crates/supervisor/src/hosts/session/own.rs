//! What runs on another host: the file of this command, without what only debuggers read.
//!
//! ```text
//!   file:  | head | segments that are loaded ... | debug information, symbols, sections |
//!   sent:  | head | segments that are loaded ... |    (the head names no sections)
//! ```
//!
//! Its digest is remembered for as long as the file is the one it was (`known`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::hosts::fingerprint::known::{Known, OWN, identity, is_settled};

/// Bytes of the head of an ELF file.
const HEAD_BYTES: usize = 64;
/// Where the head says: where segments and sections are described, how long and how many these are.
const SEGMENTS: usize = 32;
const SECTIONS: usize = 40;
const SEGMENT_BYTES: usize = 54;
const SEGMENTS_COUNT: usize = 56;
const SECTIONS_COUNT: usize = 60;
/// Where the description of a segment says: its place in the file, and its bytes there.
const SEGMENT_PLACE: usize = 8;
const SEGMENT_SIZE: usize = 32;
/// Most bytes of all descriptions.
const DESCRIPTIONS_BYTES_MAX: usize = 64 << 10;
/// Read at a time.
const PIECE: usize = 1 << 20;

/// The command as it is sent.
pub struct Own {
    file: File,
    head: [u8; HEAD_BYTES],
    /// So many bytes are sent.
    pub size: u64,
    /// And this is their digest.
    pub digest: String,
}

impl Own {
    /// That of `file`, a program.
    pub fn of(mut file: File, known: &Known) -> io::Result<Own> {
        let (head, size) = loaded(&mut file)?;
        let found = file.metadata()?;
        let identity = identity(&found);
        let digest = String::new();
        let mut own = Own { file, head, size, digest };
        if let Some(digest) = known.digest(OWN, &identity) {
            own.digest = digest;
            return Ok(own);
        }
        let mut digest = Sha256::new();
        own.each_piece(&mut |bytes| {
            digest.update(bytes);
            Ok(())
        })?;
        own.digest = hex(&digest.finalize());
        if is_settled(&found, SystemTime::now()) {
            known.note(OWN, &own.digest, &identity);
        }
        Ok(own)
    }

    /// Writes all of it, and says how many bytes after each piece.
    pub fn copy(&mut self, to: &mut impl Write, told: &dyn Fn(u64)) -> io::Result<()> {
        let mut written = 0;
        self.each_piece(&mut |bytes| {
            to.write_all(bytes)?;
            written += bytes.len() as u64;
            told(written);
            Ok(())
        })
    }

    fn each_piece(&mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        take(&self.head)?;
        self.file.seek(SeekFrom::Start(HEAD_BYTES as u64))?;
        let mut left = self.size - HEAD_BYTES as u64;
        let mut bytes = vec![0; PIECE];
        while left > 0 {
            let piece = &mut bytes[..left.min(PIECE as u64) as usize];
            self.file.read_exact(piece)?;
            take(piece)?;
            left -= piece.len() as u64;
        }
        Ok(())
    }
}

/// The head of a program as it is sent, and up to where its file is loaded.
fn loaded(file: &mut File) -> io::Result<([u8; HEAD_BYTES], u64)> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = [0; HEAD_BYTES];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut head)?;
    let place = eight(&head, SEGMENTS).ok_or_else(wrong)?;
    let each = two(&head, SEGMENT_BYTES).filter(|each| *each >= 56).ok_or_else(wrong)?;
    let all = each * two(&head, SEGMENTS_COUNT).ok_or_else(wrong)?;
    if !head.starts_with(b"\x7fELF\x02\x01") || all > DESCRIPTIONS_BYTES_MAX {
        return Err(wrong());
    }
    let mut segments = vec![0; all];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut segments)?;
    let ends = segments
        .chunks_exact(each)
        .map(|segment| eight(segment, SEGMENT_PLACE)?.checked_add(eight(segment, SEGMENT_SIZE)?));
    let ends: Option<Vec<u64>> = ends.collect();
    let described = place.checked_add(all as u64).ok_or_else(wrong)?;
    let end = ends.ok_or_else(wrong)?.into_iter().fold(described, u64::max);
    if end > file.metadata()?.len() || end < HEAD_BYTES as u64 {
        return Err(wrong());
    }
    head[SECTIONS..SECTIONS + 8].fill(0);
    head[SECTIONS_COUNT..].fill(0);
    Ok((head, end))
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn two(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    fn own(path: &str) -> io::Result<Own> {
        Own::of(File::open(path)?, &Known::nowhere())
    }

    #[test]
    fn what_is_sent_runs_is_shorter_and_has_the_digest_that_was_said() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sent");
        let mut own = own("/proc/self/exe").unwrap();
        assert!(own.size < std::fs::metadata("/proc/self/exe").unwrap().len());
        let mut options = File::options();
        options.create_new(true).write(true).mode(0o700);
        let mut copy = options.open(&path).unwrap();
        let told = std::cell::Cell::new(0);
        own.copy(&mut copy, &|written| told.set(written)).unwrap();
        drop(copy);
        assert_eq!(told.get(), own.size);
        assert_eq!(hex(&Sha256::digest(std::fs::read(&path).unwrap())), own.digest);
        let listed = Command::new(&path).arg("--list").output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let again = self::own(path.to_str().unwrap()).unwrap();
        assert_eq!((again.size, again.digest), (own.size, own.digest));
    }

    #[test]
    fn what_is_no_program_is_not_sent() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("none");
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(200);
        for bytes in [&b""[..], &[0; 64], &[b'x'; 4096], &program] {
            std::fs::write(&path, bytes).unwrap();
            assert!(own(path.to_str().unwrap()).is_err(), "{}", bytes.len());
        }
    }
}
