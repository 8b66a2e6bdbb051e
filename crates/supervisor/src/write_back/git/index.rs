//! Parses git's index: entries, apart from the cached `stat` data of files.
//!
//! ```text
//!   "DIRC" version:32 count:32
//!   entries: ctime:64 mtime:64 dev ino mode uid gid size:32 each | object | flags:16 [:16] | path
//!   extensions: name:32 length:32 ... | checksum of all before
//! ```
//!
//! Versions 2 to 4, SHA-1 and SHA-256 (gitformat-index(5)). A split index has most of its entries
//! in another file (`split`), which the caller reads. Nothing here asks the host.

mod split;

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use super::index::split::Link;

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
/// Flags: which side of a merge.
const STAGE: u16 = 0x3000;

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
    end: usize,
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

    /// Length of the names of objects.
    fn object_bytes(self) -> usize {
        self.bytes()
    }
}

/// What an index has from another one.
#[derive(Debug)]
struct Shared {
    link: Link,
    base: Box<Index>,
    /// Positions of entries in the base that are neither deleted nor replaced.
    used: Vec<usize>,
}

/// An index that is understood as a whole.
#[derive(Debug)]
pub struct Index {
    bytes: Vec<u8>,
    checksum: Checksum,
    version: u32,
    entries: Vec<Entry>,
    /// Extensions: where they are.
    extensions: Vec<Range<usize>>,
    shared: Option<Shared>,
}

impl Index {
    /// Reads an index; `read` gives the bytes of a file beside it by its name. `None`: it is none,
    /// or of a kind that is not known here.
    pub fn parse(bytes: Vec<u8>, read: &mut dyn FnMut(&str) -> Option<Vec<u8>>) -> Option<Index> {
        let (mut index, link) = Index::parse_one(bytes)?;
        // Only zeros: it has no base.
        let Some(link) = link.filter(|link| link.base.iter().any(|&byte| byte != 0)) else {
            return Some(index);
        };
        let name: String = link.base.iter().map(|byte| format!("{byte:02x}")).collect();
        let (base, none) = Index::parse_one(read(&format!("sharedindex.{name}"))?)?;
        let fits = none.is_none() && base.checksum.object_bytes() == link.base.len();
        let sum = &base.bytes[base.bytes.len() - base.checksum.bytes()..];
        let is_named = base.checksum == Checksum::Absent || sum == link.base;
        (fits && is_named).then_some(())?;
        index.share(base, link)?;
        Some(index)
    }

    /// The same of one file, and what it says of another one.
    fn parse_one(bytes: Vec<u8>) -> Option<(Index, Option<Link>)> {
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
            let entry = parse_entry(&bytes[..end], at, version, checksum, before)?;
            at = entry.end;
            entries.push(entry);
        }
        let extensions = extensions(&bytes[..end], at)?;
        let link = extensions.iter().find(|at| bytes[(*at).clone()].starts_with(split::LINK));
        let link = match link {
            Some(at) => Some(Link::parse(&bytes[at.start + 8..at.end], checksum)?),
            None => None,
        };
        let shared = None;
        Some((Index { bytes, checksum, version, entries, extensions, shared }, link))
    }

    /// Takes in the entries of the `base`.
    fn share(&mut self, base: Index, link: Link) -> Option<()> {
        (link.replaced.len() <= self.entries.len()).then_some(())?;
        for (entry, &position) in self.entries.iter_mut().zip(&link.replaced) {
            entry.path.is_empty().then_some(())?;
            entry.path.clone_from(&base.entries.get(position)?.path);
        }
        let gone: HashSet<_> = link.deleted.iter().chain(&link.replaced).collect();
        let used = (0..base.entries.len()).filter(|position| !gone.contains(position)).collect();
        self.shared = Some(Shared { link, base: Box::new(base), used });
        Some(())
    }

    /// All entries with the bytes of each.
    fn all(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let own = self.entries.iter().map(|entry| (entry, &self.bytes[entry.at..entry.end]));
        let others = self.shared.iter().flat_map(|shared| {
            let base = &shared.base;
            let entries = shared.used.iter().map(|&position| &base.entries[position]);
            entries.map(|entry| (entry, &base.bytes[entry.at..entry.end]))
        });
        own.chain(others)
    }

    /// A hash of all that an index says: paths, modes, objects and flags, and nothing that a mere
    /// refresh changes.
    pub fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let length = self.checksum.object_bytes();
        let mut all: Vec<_> = self.all().collect();
        all.sort_by_key(|(entry, _)| (&entry.path, entry.flags.0 & STAGE));
        for (entry, bytes) in all {
            (entry.flags.0 & !LENGTH, entry.flags.1).hash(&mut hasher);
            bytes[MODE_AT..][..4].hash(&mut hasher);
            bytes[OBJECT_AT..][..length].hash(&mut hasher);
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
            differs |= renew_entry(&mut self.bytes[entry.at..entry.end], &entry.path, renew)?;
        }
        let more = match &self.shared {
            Some(shared) => shared.renewed(self.version, renew)?,
            None => Vec::new(),
        };
        if !more.is_empty() {
            self.bytes = self.with_replaced(more)?;
            differs = true;
        }
        self.sign();
        differs.then_some(self.bytes)
    }

    /// The bytes of a split index with more entries in the place of those of its base; its
    /// checksum is not right yet.
    fn with_replaced(&self, more: Vec<(usize, Vec<u8>)>) -> Option<Vec<u8>> {
        let Shared { link, .. } = self.shared.as_ref()?;
        let (replacing, rest) = self.entries.split_at_checked(link.replaced.len())?;
        let bytes_of = |entry: &Entry| self.bytes[entry.at..entry.end].to_vec();
        let mut all: BTreeMap<usize, Vec<u8>> = more.into_iter().collect();
        all.extend(link.replaced.iter().copied().zip(replacing.iter().map(bytes_of)));
        // Version 3 is version 2 with more flags.
        let count = u32::try_from(all.len() + rest.len()).ok()?;
        let mut bytes = self.bytes[..4].to_vec();
        bytes.extend(self.version.max(3).to_be_bytes());
        bytes.extend(count.to_be_bytes());
        all.values().for_each(|entry| bytes.extend(entry));
        rest.iter().for_each(|entry| bytes.extend(bytes_of(entry)));
        let (base, deleted) = (link.base.clone(), link.deleted.clone());
        let link = Link { base, deleted, replaced: all.into_keys().collect() };
        for at in &self.extensions {
            match &self.bytes[at.start..at.start + 4] {
                name if name == split::LINK => bytes.extend(link.written()?),
                // They say where entries and extensions are.
                b"EOIE" | b"IEOT" => {}
                _ => bytes.extend(&self.bytes[at.clone()]),
            }
        }
        bytes.resize(bytes.len() + self.checksum.bytes(), 0);
        Some(bytes)
    }

    /// Sets the checksum.
    fn sign(&mut self) {
        let end = self.bytes.len() - self.checksum.bytes();
        let (body, sum) = self.bytes.split_at_mut(end);
        match self.checksum {
            Checksum::Sha1 => sum.copy_from_slice(&Sha1::digest(body)),
            Checksum::Sha256 => sum.copy_from_slice(&Sha256::digest(body)),
            Checksum::Absent => {}
        }
    }
}

impl Shared {
    /// What is to replace entries of the base, by their positions.
    fn renewed(
        &self,
        version: u32,
        renew: &mut dyn FnMut(&[u8], Remembered) -> Option<Remembered>,
    ) -> Option<Vec<(usize, Vec<u8>)>> {
        let mut more = Vec::new();
        for &position in &self.used {
            let entry = &self.base.entries[position];
            let mut bytes = self.base.bytes[entry.at..entry.end].to_vec();
            if renew_entry(&mut bytes, &entry.path, renew)? {
                more.push((position, split::without_path(&bytes, version, self.base.checksum)?));
            }
        }
        Some(more)
    }
}

/// Whether what an entry remembers is another thing now.
fn renew_entry(
    bytes: &mut [u8],
    path: &[u8],
    renew: &mut dyn FnMut(&[u8], Remembered) -> Option<Remembered>,
) -> Option<bool> {
    // Regular files and links: the others are no files of the tree.
    if !matches!(get32(bytes, MODE_AT)? >> 12, 0o10 | 0o12) {
        return Some(false);
    }
    let old = remembered(bytes)?;
    let new = renew(path, old).filter(|new| *new != old);
    if let Some(new) = &new {
        remember(bytes, new);
    }
    Some(new.is_some())
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
) -> Option<Entry> {
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
    let end = if version == 4 { at + whole } else { at + whole.next_multiple_of(8) };
    (end <= bytes.len()).then_some(Entry { at, end, flags: (first, more), path })
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

/// Where extensions are, which follow up to the end.
fn extensions(bytes: &[u8], mut at: usize) -> Option<Vec<Range<usize>>> {
    let mut all = Vec::new();
    while at < bytes.len() {
        let end = at.checked_add(8)?.checked_add(get32(bytes, at + 4)? as usize)?;
        all.push(at..end);
        at = end;
    }
    (at == bytes.len()).then_some(all)
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
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn git(directory: &Path, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null").args(arguments);
        let output = git.output().expect("git is installed");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// An index that git has written, and what is beside it.
    struct Written {
        scratch: tempfile::TempDir,
        bytes: Vec<u8>,
        beside: HashMap<String, Vec<u8>>,
    }

    impl Written {
        fn of(scratch: tempfile::TempDir) -> Written {
            let files = fs::read_dir(scratch.path().join(".git")).unwrap().map(Result::unwrap);
            let files = files.filter(|one| one.file_type().unwrap().is_file());
            let name = |one: &fs::DirEntry| one.file_name().into_string().unwrap();
            let mut beside: HashMap<_, _> =
                files.map(|one| (name(&one), fs::read(one.path()).unwrap())).collect();
            Written { bytes: beside.remove("index").unwrap(), beside, scratch }
        }

        fn parse(&self, bytes: Vec<u8>) -> Option<Index> {
            Index::parse(bytes, &mut |name| self.beside.get(name).cloned())
        }

        fn index(&self) -> Index {
            self.parse(self.bytes.clone()).expect("an index")
        }

        fn is_split(&self) -> bool {
            self.index().shared.is_some()
        }
    }

    /// Indexes that git writes, of each version and hash.
    fn made(arguments: &[&[&str]]) -> Written {
        let scratch = tempfile::tempdir().unwrap();
        let here = scratch.path();
        git(here, arguments[0]);
        let long = ["dir/long-name-with-a-common-part", "dir/long-name-with-b"];
        for name in ["a", "dir/b", long[0], long[1], "e"] {
            let path = here.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("a", here.join("link")).unwrap();
        git(here, &["add", "."]);
        arguments[1..].iter().for_each(|arguments| git(here, arguments).truncate(0));
        Written::of(scratch)
    }

    const PLAIN: &[&str] = &["init", "-q"];
    const SHA256: &[&str] = &["init", "-q", "--object-format=sha256"];
    const THREE: &[&str] = &["update-index", "--index-version", "3"];
    const FOUR: &[&str] = &["update-index", "--index-version", "4"];
    const SPLIT: &[&str] = &["update-index", "--split-index"];
    const SKIP: &[&str] = &["update-index", "--skip-worktree", "a"];
    const KEEP_SPLIT: &[&str] = &["config", "splitIndex.maxPercentChange", "100"];
    const OTHER_MODE: &[&str] = &["update-index", "--chmod=+x", "dir/b"];
    const LESS: &[&str] = &["rm", "-q", "--cached", "e"];
    const MORE_AGAIN: &[&str] = &["update-index", "--add", "e"];

    fn kinds() -> Vec<Written> {
        let unsigned: &[&str] = &["config", "index.skipHash", "true"];
        let write: &[&str] = &["update-index", "--force-write"];
        vec![
            made(&[PLAIN]),
            made(&[PLAIN, SKIP, THREE]),
            made(&[PLAIN, FOUR]),
            made(&[SHA256]),
            made(&[PLAIN, unsigned, write]),
            made(&[PLAIN, SPLIT]),
            made(&[PLAIN, KEEP_SPLIT, FOUR, SPLIT, OTHER_MODE]),
            made(&[PLAIN, KEEP_SPLIT, SKIP, SPLIT, OTHER_MODE, LESS, MORE_AGAIN]),
            made(&[SHA256, KEEP_SPLIT, SPLIT, OTHER_MODE, LESS, MORE_AGAIN]),
        ]
    }

    #[test]
    fn every_path_is_found_and_nothing_is_changed_where_nothing_is_renewed() {
        let mut split = 0;
        for one in kinds() {
            let mut paths = Vec::new();
            split += u32::from(one.is_split());
            let renewed = one.index().renewed(&mut |path, old| {
                paths.push(String::from_utf8(path.to_vec()).unwrap());
                assert!(old.modified.0 > 1_600_000_000 && old.size <= 40, "{old:?}");
                Some(old)
            });
            assert!(renewed.is_none());
            paths.sort();
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
        assert_eq!(split, 4);
    }

    #[test]
    fn what_is_renewed_is_all_that_differs_and_git_reads_it() {
        for one in kinds() {
            let content = one.index().content();
            let before = git(one.scratch.path(), &["ls-files", "--stage", "--debug"]);
            for name in ["a", "dir/b", "dir/long-name-with-b", "e"] {
                let renew = |path: &[u8], old| {
                    (path == name.as_bytes()).then_some(Remembered { number: 7, ..old })
                };
                let new = one.index().renewed(&mut { renew }).expect("another");
                let checksum = checksum_of(&new).expect("its checksum holds").bytes();
                let body = new.len() - checksum;
                if !one.is_split() {
                    let differ = (0..body).filter(|&at| new[at] != one.bytes[at]).count();
                    assert!((1..=4).contains(&differ), "{differ} bytes differ");
                }
                let index = one.parse(new.clone()).expect("an index");
                assert_eq!(index.content(), content);
                fs::write(one.scratch.path().join(".git/index"), new).unwrap();
                let after = git(one.scratch.path(), &["ls-files", "--stage", "--debug"]);
                // The flags say also what git would write anew, which depends on when it wrote.
                let kept = |text: &str| -> Vec<String> {
                    let lines = text.lines().map(|line| line.split("flags:").next());
                    lines.flatten().map(|line| line.trim().to_owned()).collect()
                };
                let (old, new) = (kept(&before), kept(&after));
                let lines = old.iter().zip(&new).filter(|(old, new)| old != new);
                let lines: Vec<_> = lines.map(|(_, new)| new).collect();
                assert!(matches!(lines[..], [line] if line.ends_with("ino: 7")), "{lines:?}");
            }
        }
    }

    /// What the index in a directory says.
    fn content_in(here: &Path) -> u64 {
        let read = |name: &str| fs::read(here.join(".git").join(name)).ok();
        Index::parse(read("index").unwrap(), &mut { read }).expect("an index").content()
    }

    #[test]
    fn a_staged_change_is_another_content_and_a_refresh_is_none() {
        for arguments in [&[][..], &[KEEP_SPLIT, SPLIT]] {
            let scratch = tempfile::tempdir().unwrap();
            let here = scratch.path();
            git(here, PLAIN);
            for name in ["a", "b", "c"] {
                fs::write(here.join(name), "1").unwrap();
            }
            git(here, &["add", "."]);
            let whole = content_in(here);
            arguments.iter().for_each(|arguments| git(here, arguments).truncate(0));
            assert_eq!(content_in(here), whole);
            fs::File::open(here.join("a")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            git(here, &["update-index", "-q", "--refresh"]);
            assert_eq!(content_in(here), whole);
            fs::write(here.join("a"), "2").unwrap();
            git(here, &["add", "a"]);
            let staged = content_in(here);
            assert_ne!(staged, whole);
            git(here, &["rm", "-q", "--cached", "b"]);
            assert_ne!(content_in(here), staged);
        }
    }

    #[test]
    fn what_is_no_whole_index_is_none() {
        for one in [made(&[PLAIN]), made(&[PLAIN, SPLIT])] {
            for length in 0..one.bytes.len() {
                assert!(one.parse(one.bytes[..length].to_vec()).is_none(), "{length}");
            }
        }
        let mut split = made(&[PLAIN, SPLIT]);
        let other = made(&[PLAIN, FOUR]).bytes;
        split.beside.values_mut().for_each(|bytes| bytes.clone_from(&other));
        assert!(split.parse(split.bytes.clone()).is_none(), "its base is another one");
        split.beside.clear();
        assert!(split.parse(split.bytes.clone()).is_none(), "its base is gone");
    }
}
