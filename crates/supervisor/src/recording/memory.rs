//! Reads the memory of a stopped process: areas, private pages, bytes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::unistd::Pid;

use super::{PAGE, Refusal};
use crate::write_back::host::path_of;

/// Longest text that is read.
const TEXT_BYTES_MAX: usize = 4096;

/// A line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    /// As for `mmap`.
    pub protection: u32,
    pub offset: u64,
    /// Empty: no file.
    pub path: PathBuf,
}

impl Area {
    pub const WRITE: u32 = 2;
    pub const EXECUTE: u32 = 4;

    /// Whether its bytes come from a file.
    pub fn is_of_file(&self) -> bool {
        self.path.is_absolute()
    }
}

/// What a process has mapped.
pub fn areas(pid: Pid) -> Result<Vec<Area>, Refusal> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| area(line).ok_or_else(|| Refusal::of("its memory cannot be read"))).collect()
}

fn area(line: &[u8]) -> Option<Area> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let (range, rights, offset) = (next()?, next()?, next()?);
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let bit = |letter: char, bit| if rights.contains(letter) { bit } else { 0 };
    let (_device, _inode) = (next()?, next()?);
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    Some(Area {
        start: hex(start)?,
        end: hex(end)?,
        protection: bit('r', 1) | bit('w', Area::WRITE) | bit('x', Area::EXECUTE),
        offset: hex(offset)?,
        path: path_of(path),
    })
}

/// Reads and writes a process.
pub struct Memory {
    bytes: File,
    pages: File,
}

impl Memory {
    pub fn of(pid: Pid) -> Result<Memory, Refusal> {
        let bytes = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(Memory { bytes, pages: File::open(format!("/proc/{pid}/pagemap"))? })
    }

    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Refusal> {
        Ok(self.bytes.read_exact_at(out, address)?)
    }

    /// As much as there is.
    pub fn read_some(&self, address: u64, out: &mut [u8]) -> Result<usize, Refusal> {
        Ok(self.bytes.read_at(out, address)?)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Refusal> {
        Ok(self.bytes.write_all_at(bytes, address)?)
    }

    pub fn word(&self, address: u64) -> Result<u64, Refusal> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// A text without the NUL at its end.
    pub fn text(&self, address: u64) -> Result<Vec<u8>, Refusal> {
        let mut text = vec![0; TEXT_BYTES_MAX];
        let length = self.read_some(address, &mut text)?;
        let end = text[..length].iter().position(|&byte| byte == 0);
        text.truncate(end.ok_or_else(|| Refusal::of("a text without an end"))?);
        Ok(text)
    }

    /// Whether each page of an area is the process's own: it was stored to.
    pub fn own_pages(&self, area: &Area) -> Result<Vec<bool>, Refusal> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let count = ((area.end - area.start) / PAGE) as usize;
        let mut entries = vec![0; count * 8];
        self.pages.read_exact_at(&mut entries, area.start / PAGE * 8)?;
        let own = |entry: u64| entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0;
        Ok(entries.chunks(8).map(|bytes| own(word_of(bytes))).collect())
    }
}

/// Eight bytes (or fewer) as a word.
pub fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
