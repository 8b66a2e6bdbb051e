//! What another host asks about this host's files, and the answers, as bytes.
//!
//! ```text
//!   list PATH after NAME        ─► entries, sorted by name: attributes, and where links lead
//!   digest PATH of IDENTITY     ─► SHA-256 of the bytes; the bytes too, if there are few
//!   read PATH of IDENTITY at N  ─► bytes
//! ```
//!
//! An identity is what `stat` says of a file: the answer is about that file, or it is `ESTALE`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use husk_abi::sys::general::{S_IFDIR, S_IFMT};
use rustix::fs::Stat;
use sha2::{Digest as _, Sha256};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;

/// A SHA-256.
pub type Digest = [u8; DIGEST_BYTES];

/// By what a file is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its bytes.
    pub size: u64,
    /// When its bytes changed, ns since 1970.
    pub modified_ns: i64,
    /// When anything of it changed.
    pub changed_ns: i64,
}

impl Identity {
    /// That of what was found.
    pub fn of(found: &Stat) -> Identity {
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000) + rest;
        Identity {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size as u64,
            modified_ns: ns(found.st_mtime, found.st_mtime_nsec as i64),
            changed_ns: ns(found.st_ctime, found.st_ctime_nsec as i64),
        }
    }

    fn words(&self) -> [u64; 5] {
        let Identity { device, inode, size, modified_ns, changed_ns } = *self;
        [device, inode, size, modified_ns as u64, changed_ns as u64]
    }

    /// As text: numbers with a space between them.
    pub fn text(&self) -> String {
        self.words().map(|word| word.to_string()).join(" ")
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How it is called.
    pub name: OsString,
    /// Its kind and its rights, as in `st_mode`.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
    /// How many names it has.
    pub links: u32,
    /// The rest of what it is known by.
    pub identity: Identity,
    /// Where it leads, if it is a symbolic link.
    pub target: OsString,
}

impl Entry {
    /// What was found under `name`.
    pub fn of(name: &OsStr, found: &Stat, target: OsString) -> Entry {
        Entry {
            name: name.to_owned(),
            mode: found.st_mode,
            owner: (found.st_uid, found.st_gid),
            links: found.st_nlink as u32,
            identity: Identity::of(found),
            target,
        }
    }

    /// Whether it is of this kind (`S_IF...`).
    pub fn is(&self, kind: u32) -> bool {
        self.mode & S_IFMT == kind
    }

    /// A number of its own: another one once its bytes may be others. A directory keeps it, and has
    /// one for each path: Linux has one name for a directory.
    pub fn number(&self, parent: u64) -> u64 {
        let mut all = Sha256::new();
        let Identity { device, inode, .. } = self.identity;
        if self.is(S_IFDIR) {
            [parent, device, inode].iter().for_each(|word| all.update(word.to_le_bytes()));
        } else {
            self.identity.words().iter().for_each(|word| all.update(word.to_le_bytes()));
            all.update(self.target.as_bytes());
        }
        let digest: Digest = all.finalize().into();
        let (first, _) = digest.split_first_chunk().expect("32 bytes");
        // Neither none nor the root's.
        u64::from_le_bytes(*first) | 1 << 63
    }
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What a directory holds behind this name.
    List(PathBuf, OsString),
    /// The digest of a file; `true`: its bytes too, if they are few.
    Digest(PathBuf, Identity, bool),
    /// Bytes of a file from an offset on.
    Read(PathBuf, Identity, u64),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It cannot be had: an errno.
    Failed(i32),
    /// Entries.
    Listing {
        /// In the order of their names.
        entries: Vec<Entry>,
        /// There are more behind these.
        more: bool,
        /// A change will be told.
        watched: bool,
    },
    /// The digest of a file, and perhaps its bytes.
    Digest(Digest, Option<Vec<u8>>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Ask {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Ask::List(path, after) => to.word(0).text(path.as_os_str()).text(after),
            Ask::Digest(path, identity, bytes) => {
                to.word(1).text(path.as_os_str()).identity(identity).word(u64::from(*bytes))
            }
            Ask::Read(path, identity, offset) => {
                to.word(2).text(path.as_os_str()).identity(identity).word(*offset)
            }
        };
        to.0
    }

    /// From bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let mut from = Reader(bytes);
        let ask = match from.word()? {
            0 => Ask::List(from.path()?, from.text()?),
            1 => Ask::Digest(from.path()?, from.identity()?, from.flag()?),
            2 => Ask::Read(from.path()?, from.identity()?, from.word()?),
            _ => return None,
        };
        from.0.is_empty().then_some(ask)
    }
}

impl Answer {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Answer::Failed(errno) => to.word(0).word(*errno as u64),
            Answer::Listing { entries, more, watched } => {
                to.word(1).word(u64::from(*more)).word(u64::from(*watched));
                to.word(entries.len() as u64);
                for entry in entries {
                    let Entry { name, mode, owner, links, identity, target } = entry;
                    to.text(name).text(target).identity(identity);
                    [*mode, owner.0, owner.1, *links].iter().for_each(|word| {
                        to.word(u64::from(*word));
                    });
                }
                &mut to
            }
            Answer::Digest(digest, None) => to.word(2).bytes(digest),
            Answer::Digest(digest, Some(bytes)) => to.word(3).bytes(digest).bytes(bytes),
            Answer::Bytes(bytes) => to.word(4).bytes(bytes),
        };
        to.0
    }

    /// From bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut from = Reader(bytes);
        let told = match from.word()? {
            0 => Answer::Failed(i32::try_from(from.word()?).ok().filter(|errno| *errno > 0)?),
            1 => {
                let (more, watched, count) = (from.flag()?, from.flag()?, from.word()?);
                // Each has more bytes: what is said to be more is not there.
                (count <= from.0.len() as u64).then_some(())?;
                let entries = (0..count).map(|_| from.entry()).collect::<Option<_>>()?;
                Answer::Listing { entries, more, watched }
            }
            2 => Answer::Digest(from.digest()?, None),
            3 => Answer::Digest(from.digest()?, Some(from.rest()?.to_vec())),
            4 => Answer::Bytes(from.rest()?.to_vec()),
            _ => return None,
        };
        from.0.is_empty().then_some(told)
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u64) -> &mut Writer {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &OsStr) -> &mut Writer {
        self.bytes(text.as_bytes())
    }

    fn identity(&mut self, identity: &Identity) -> &mut Writer {
        for word in identity.words() {
            self.word(word);
        }
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn small(&mut self) -> Option<u32> {
        self.word()?.try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        self.word().filter(|word| *word <= 1).map(|word| word == 1)
    }

    fn rest(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    fn digest(&mut self) -> Option<Digest> {
        self.rest()?.try_into().ok()
    }

    /// Without a NUL.
    fn text(&mut self) -> Option<OsString> {
        let bytes = self.rest().filter(|bytes| !bytes.contains(&0))?;
        Some(OsString::from_vec(bytes.to_vec()))
    }

    fn path(&mut self) -> Option<PathBuf> {
        self.text().map(PathBuf::from).filter(|path| is_plain(path))
    }

    fn identity(&mut self) -> Option<Identity> {
        let words: Vec<_> = (0..5).map(|_| self.word()).collect::<Option<_>>()?;
        let [device, inode, size, modified, changed] = words[..] else { return None };
        let (modified_ns, changed_ns) = (modified as i64, changed as i64);
        Some(Identity { device, inode, size, modified_ns, changed_ns })
    }

    fn entry(&mut self) -> Option<Entry> {
        let name = self.text().filter(|name| is_name(name))?;
        let (target, identity) = (self.text()?, self.identity()?);
        let (mode, owner) = (self.small()?, (self.small()?, self.small()?));
        Some(Entry { name, mode, owner, links: self.small()?, identity, target })
    }
}

/// Whether it can stand in a directory.
fn is_name(name: &OsStr) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/')
}

/// Whether a path begins at the root and goes down with each of its names.
pub fn is_plain(path: &Path) -> bool {
    path.as_os_str() == "/"
        || path.as_os_str().as_bytes().strip_prefix(b"/").is_some_and(|rest| {
            rest.split(|byte| *byte == b'/').all(|name| is_name(OsStr::from_bytes(name)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { device: 1, inode: 2, size: 3, modified_ns: -4, changed_ns: 5 }
    }

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.into(),
            mode: 0o100_644,
            owner: (0, 7),
            links: 1,
            identity: identity(),
            target: OsString::new(),
        }
    }

    fn asks() -> Vec<Ask> {
        vec![
            Ask::List("/".into(), "".into()),
            Ask::Digest("/usr/bin/cc".into(), identity(), true),
            Ask::Read("/a".into(), identity(), 7),
        ]
    }

    fn told() -> Vec<Answer> {
        let entries = vec![entry("a"), entry("b c")];
        vec![
            Answer::Failed(2),
            Answer::Listing { entries, more: true, watched: false },
            Answer::Digest([7; 32], None),
            Answer::Digest([7; 32], Some(b"bytes".to_vec())),
            Answer::Bytes(vec![]),
        ]
    }

    #[test]
    fn questions_and_answers_are_read_as_they_were_written_and_half_of_one_is_refused() {
        for ask in asks() {
            let bytes = ask.encode();
            assert_eq!(Ask::decode(&bytes), Some(ask));
            (0..bytes.len()).for_each(|length| assert_eq!(Ask::decode(&bytes[..length]), None));
        }
        for told in told() {
            let bytes = told.encode();
            assert_eq!(Answer::decode(&bytes), Some(told));
            (0..bytes.len()).for_each(|length| assert_eq!(Answer::decode(&bytes[..length]), None));
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_read_and_never_more() {
        let mut all: Vec<_> = asks().iter().map(Ask::encode).collect();
        all.extend(told().iter().map(Answer::encode));
        for bytes in all {
            for at in 0..bytes.len() {
                for value in [0, 1, 0x2f, 0x7f, 0xff] {
                    let mut wrong = bytes.clone();
                    wrong[at] = value;
                    if let Some(ask) = Ask::decode(&wrong) {
                        assert_eq!(ask.encode(), wrong);
                    }
                    if let Some(told) = Answer::decode(&wrong) {
                        assert_eq!(told.encode(), wrong);
                    }
                }
            }
        }
    }

    #[test]
    fn paths_that_lead_up_or_are_not_plain_are_none() {
        for plain in ["/", "/usr", "/usr/bin/..a"] {
            assert!(is_plain(Path::new(plain)), "{plain}");
        }
        for wrong in ["", "usr", "/usr/", "//usr", "/usr/../etc", "/./usr"] {
            assert!(!is_plain(Path::new(wrong)), "{wrong}");
            assert_eq!(Ask::decode(&Ask::List(wrong.into(), "".into()).encode()), None);
        }
    }

    #[test]
    fn a_file_that_has_changed_has_another_number_and_a_directory_keeps_its_own() {
        let (file, mut other) = (entry("a"), entry("b"));
        assert_eq!(file.number(1), other.number(2), "two names of one file");
        other.identity.changed_ns += 1;
        assert_ne!(file.number(1), other.number(1));
        let directory = Entry { mode: 0o40_755, ..file };
        let later = Entry { mode: 0o40_755, ..other };
        assert_eq!(directory.number(1), later.number(1));
        assert_ne!(directory.number(1), directory.number(2), "mounted twice");
    }
}
