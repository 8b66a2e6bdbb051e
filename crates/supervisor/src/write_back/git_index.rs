//! Parses git's index: entries, apart from the cached `stat` data of files.
//!
//! ```text
//!   "DIRC" version:32 count:32
//!   entries: ctime:64 mtime:64 dev ino mode uid gid size:32 each | object | flags:16 [:16] | path
//!   extensions: name:32 length:32 ... | checksum of all before
//! ```
//!
//! Versions 2 to 4, SHA-1 and SHA-256 (gitformat-index(5)). A split index has its entries in
//! another file, which is named after its checksum: it is left alone. Nothing here asks the host.

use std::hash::{DefaultHasher, Hash, Hasher};

use sha1::{Digest, Sha1};
use sha2::Sha256;

const HEADER_BYTES: usize = 12;
const SHA1_BYTES: usize = 20;
const SHA256_BYTES: usize = 32;
/// Where in an entry things are.
const CHANGED_AT: usize = 0;
const MODIFIED_AT: usize = 8;
const DEVICE_AT: usize = 16;
const NUMBER_AT: usize = 20;
const MODE_AT: usize = 24;
const USER_AT: usize = 28;
const GROUP_AT: usize = 32;
const SIZE_AT: usize = 36;
const OBJECT_AT: usize = 40;
/// Flags: the length of the path, and that there are more flags.
const LENGTH: u16 = 0xfff;
const MORE: u16 = 0x4000;

/// What the index remembers of a file: the lower 32 bits of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// Last status change: seconds, ns.
    pub changed: (u32, u32),
    /// Last modification: seconds, ns.
    pub modified: (u32, u32),
    /// `st_dev`.
    pub device: u32,
    /// `st_ino`.
    pub number: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Bytes.
    pub size: u32,
}

/// An entry of an index.
#[derive(Debug)]
struct Entry {
    at: usize,
    flags: (u16, u16),
    path: Vec<u8>,
}

/// How an index ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checksum {
    Sha1,
    Sha256,
    /// Zeros (`index.skipHash`).
    Absent,
}

impl Checksum {
    fn bytes(self) -> usize {
        if self == Checksum::Sha256 { SHA256_BYTES } else { SHA1_BYTES }
    }
}

/// An index that is understood as a whole.
#[derive(Debug)]
pub struct Index {
    bytes: Vec<u8>,
    checksum: Checksum,
    entries: Vec<Entry>,
}

impl Index {
    /// Reads an index. `None`: it is none, or of a kind that is not known here.
    pub fn parse(bytes: Vec<u8>) -> Option<Index> {
        if bytes.get(..4)? != b"DIRC" || bytes.len() < HEADER_BYTES + SHA1_BYTES {
            return None;
        }
        let version = get32(&bytes, 4)?;
        if !(2..=4).contains(&version) {
            return None;
        }
        let checksum = checksum_of(&bytes)?;
        let end = bytes.len().checked_sub(checksum.bytes())?;
        let (mut at, mut entries) = (HEADER_BYTES, Vec::new());
        for _ in 0..get32(&bytes, 8)? {
            let before = entries.last().map_or(&[][..], |entry: &Entry| &entry.path);
            let (entry, next) = parse_entry(&bytes[..end], at, version, checksum, before)?;
            entries.push(entry);
            at = next;
        }
        extensions_are_known(&bytes[..end], at)?;
        Some(Index { bytes, checksum, entries })
    }

    /// A hash of all that an index says: paths, modes, objects and flags, and nothing that a mere
    /// refresh changes.
    pub fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let (object, length) = (OBJECT_AT, self.checksum.bytes());
        for entry in &self.entries {
            (entry.flags.0 & !LENGTH, entry.flags.1).hash(&mut hasher);
            self.bytes[entry.at + MODE_AT..][..4].hash(&mut hasher);
            self.bytes[entry.at + object..][..length].hash(&mut hasher);
            entry.path.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Asks `renew` of each entry for a file or link what it is to remember instead; the whole
    /// index then, if it is another one. All else stays byte by byte.
    pub fn renewed(
        mut self,
        renew: &mut dyn FnMut(&[u8], Remembered) -> Option<Remembered>,
    ) -> Option<Vec<u8>> {
        let mut differs = false;
        for entry in &self.entries {
            let bytes = &mut self.bytes[entry.at..];
            // Regular files and links: the others are no files of the tree.
            if !matches!(get32(bytes, MODE_AT)? >> 12, 0o10 | 0o12) {
                continue;
            }
            let old = remembered(bytes)?;
            if let Some(new) = renew(&entry.path, old).filter(|new| *new != old) {
                remember(bytes, &new);
                differs = true;
            }
        }
        let end = self.bytes.len() - self.checksum.bytes();
        match self.checksum {
            Checksum::Sha1 => {
                let sum = Sha1::digest(&self.bytes[..end]);
                self.bytes[end..].copy_from_slice(&sum);
            }
            Checksum::Sha256 => {
                let sum = Sha256::digest(&self.bytes[..end]);
                self.bytes[end..].copy_from_slice(&sum);
            }
            Checksum::Absent => {}
        }
        differs.then_some(self.bytes)
    }
}

fn checksum_of(bytes: &[u8]) -> Option<Checksum> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SHA1_BYTES)?)?;
    if sum == &Sha1::digest(body)[..] {
        return Some(Checksum::Sha1);
    }
    if let Some(end) = bytes.len().checked_sub(SHA256_BYTES)
        && bytes[end..] == Sha256::digest(&bytes[..end])[..]
    {
        return Some(Checksum::Sha256);
    }
    sum.iter().all(|&byte| byte == 0).then_some(Checksum::Absent)
}

fn parse_entry(
    bytes: &[u8],
    at: usize,
    version: u32,
    checksum: Checksum,
    before: &[u8],
) -> Option<(Entry, usize)> {
    let mut here = at + OBJECT_AT + checksum.bytes();
    let first = get16(bytes, here)?;
    here += 2;
    let mut more = 0;
    if first & MORE != 0 {
        more = get16(bytes, here)?;
        here += 2;
    }
    let mut path = Vec::new();
    if version == 4 {
        let (taken, next) = varint(bytes, here)?;
        path.extend_from_slice(before.get(..before.len().checked_sub(taken)?)?);
        here = next;
    }
    let rest = bytes.get(here..)?;
    let length = rest.iter().position(|&byte| byte == 0)?;
    path.extend_from_slice(&rest[..length]);
    // One NUL at least; before version 4 as many as make the entry a multiple of eight.
    let whole = here + length + 1 - at;
    let next = if version == 4 { at + whole } else { at + whole.next_multiple_of(8) };
    Some((Entry { at, flags: (first, more), path }, next))
}

/// How git writes lengths: seven bits a byte, the highest first, each but the last one more.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

/// Whether extensions follow up to the end, none of which leads to another file.
fn extensions_are_known(bytes: &[u8], mut at: usize) -> Option<()> {
    while at < bytes.len() {
        if bytes.get(at..at + 4)? == b"link" {
            return None;
        }
        at = at.checked_add(8)?.checked_add(get32(bytes, at + 4)? as usize)?;
    }
    (at == bytes.len()).then_some(())
}

fn remembered(entry: &[u8]) -> Option<Remembered> {
    let pair = |at| Some((get32(entry, at)?, get32(entry, at + 4)?));
    Some(Remembered {
        changed: pair(CHANGED_AT)?,
        modified: pair(MODIFIED_AT)?,
        device: get32(entry, DEVICE_AT)?,
        number: get32(entry, NUMBER_AT)?,
        user: get32(entry, USER_AT)?,
        group: get32(entry, GROUP_AT)?,
        size: get32(entry, SIZE_AT)?,
    })
}

fn remember(entry: &mut [u8], new: &Remembered) {
    let mut put = |at: usize, value: u32| entry[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(CHANGED_AT, new.changed.0);
    put(CHANGED_AT + 4, new.changed.1);
    put(MODIFIED_AT, new.modified.0);
    put(MODIFIED_AT + 4, new.modified.1);
    put(DEVICE_AT, new.device);
    put(NUMBER_AT, new.number);
    put(USER_AT, new.user);
    put(GROUP_AT, new.group);
    put(SIZE_AT, new.size);
}

fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn git(directory: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null").args(arguments);
        let output = git.output().expect("git is installed");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// Indexes that git writes, of each version and hash.
    fn made(arguments: &[&[&str]]) -> Vec<u8> {
        let scratch = tempfile::tempdir().unwrap();
        let here = scratch.path();
        git(here, arguments[0]);
        for name in ["a", "dir/b", "dir/long-name-with-a-common-part", "dir/long-name-with-b", "e"]
        {
            let path = here.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("a", here.join("link")).unwrap();
        git(here, &["add", "."]);
        arguments[1..].iter().for_each(|arguments| git(here, arguments));
        fs::read(here.join(".git/index")).unwrap()
    }

    const PLAIN: &[&str] = &["init", "-q"];

    fn kinds() -> Vec<Vec<u8>> {
        let version = |number| ["update-index", "--index-version", number];
        let (three, four) = (version("3"), version("4"));
        let intent: &[&str] = &["update-index", "--skip-worktree", "a"];
        vec![
            made(&[PLAIN]),
            made(&[PLAIN, intent, &three]),
            made(&[PLAIN, &four]),
            made(&[&["init", "-q", "--object-format=sha256"]]),
            made(&[
                PLAIN,
                &["config", "index.skipHash", "true"],
                &["update-index", "--force-write"],
            ]),
        ]
    }

    #[test]
    fn every_path_is_found_and_nothing_is_changed_where_nothing_is_renewed() {
        for bytes in kinds() {
            let mut paths = Vec::new();
            let index = Index::parse(bytes).expect("an index");
            let renewed = index.renewed(&mut |path, old| {
                paths.push(String::from_utf8(path.to_vec()).unwrap());
                assert!(old.modified.0 > 1_600_000_000 && old.size <= 40, "{old:?}");
                Some(old)
            });
            assert!(renewed.is_none());
            let all = [
                "a",
                "dir/b",
                "dir/long-name-with-a-common-part",
                "dir/long-name-with-b",
                "e",
                "link",
            ];
            assert_eq!(paths, all);
        }
    }

    #[test]
    fn what_is_renewed_is_all_that_differs_and_git_reads_it() {
        for bytes in kinds() {
            let content = Index::parse(bytes.clone()).expect("an index").content();
            let renew =
                |path: &[u8], old| (path == b"e").then_some(Remembered { number: 7, ..old });
            let new =
                Index::parse(bytes.clone()).unwrap().renewed(&mut { renew }).expect("another");
            let checksum = checksum_of(&new).expect("its checksum holds").bytes();
            let body = new.len() - checksum;
            let differ = (0..body).filter(|&at| new[at] != bytes[at]).count();
            assert!((1..=4).contains(&differ), "{differ} bytes differ");
            assert_eq!(Index::parse(new).expect("an index").content(), content);
        }
    }

    #[test]
    fn a_staged_change_is_another_content_and_a_refresh_is_none() {
        let scratch = tempfile::tempdir().unwrap();
        let here = scratch.path();
        git(here, PLAIN);
        fs::write(here.join("a"), "1").unwrap();
        git(here, &["add", "a"]);
        let content = || {
            let bytes = fs::read(here.join(".git/index")).unwrap();
            Index::parse(bytes).expect("an index").content()
        };
        let before = content();
        fs::File::open(here.join("a")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        git(here, &["update-index", "-q", "--refresh"]);
        assert_eq!(content(), before);
        fs::write(here.join("a"), "2").unwrap();
        git(here, &["add", "a"]);
        assert_ne!(content(), before);
    }

    #[test]
    fn what_is_no_whole_index_is_none() {
        let bytes = made(&[PLAIN]);
        for length in 0..bytes.len() {
            assert!(Index::parse(bytes[..length].to_vec()).is_none(), "{length}");
        }
        assert!(Index::parse(made(&[PLAIN, &["update-index", "--split-index"]])).is_none());
    }
}
