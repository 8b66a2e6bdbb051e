//! Files of home that were fetched, by the digest of their bytes: `~/.cache/husk/files`.
//!
//! ```text
//!   files/DIGEST           bytes
//!   files/index            identity at home ─► digest; digest ─► identity here, last use;
//!                          path here ─► identity and digest of this host's own file
//! ```
//!
//! Invariants
//! 1. A file is used only if it is ours alone, and its bytes were read and have the digest in its
//!    name; that is known of it for as long as device, inode, size and both times are the same.
//!    Any other one is removed, and fetched anew.
//! 2. All files together have at most `ALL_BYTES_MAX`: those that were used longest ago go first.
//! 3. Where nothing can be kept, or there is no room, bytes are held in memory, at most
//!    `HELD_BYTES_MAX` of them, for this session.
//! 4. No file is run from here: its bytes are read.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::asks::{Digest, Identity};
use crate::digest::{bytes_of, hex};
use crate::hosts::fingerprint::known::is_ours;
use crate::hosts::session::guest::lock;

/// Most bytes of all files.
const ALL_BYTES_MAX: u64 = 4 << 30;
/// Most bytes that are held in memory.
const HELD_BYTES_MAX: u64 = 1 << 30;
/// What is known, and most bytes of it, and most of each, here and there.
const INDEX: &str = "index";
const INDEX_BYTES_MAX: u64 = 16 << 20;
const KNOWN_MAX: usize = 1 << 15;
/// Files that have changed within so many seconds are not known by their times.
const SETTLED_S: u64 = 2;
/// Two changes within so long may have the same time.
const TICK_NS: i64 = 100_000_000;
/// A use is noted anew after so many seconds.
const USED_S: u64 = 3600;
/// How names of files end that are not whole yet, and after how long nobody writes to one any more.
const PART: &str = ".part";
const PART_S: u64 = 3600;
/// Read at a time.
const PIECE: usize = 256 << 10;

/// A file that was read here.
#[derive(Serialize, Deserialize, Clone, Debug)]
struct Checked {
    identity: String,
    used_s: u64,
}

/// What is known, by text: identities at home, digests, paths here.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct Index {
    home: BTreeMap<String, String>,
    checked: BTreeMap<String, Checked>,
    own: BTreeMap<String, (String, String)>,
}

/// The files.
pub struct Store {
    /// A path that leads there whatever is mounted; `None`: nothing is kept.
    place: Option<PathBuf>,
    /// Keeps that path.
    _directory: Option<OwnedFd>,
    all_bytes_max: u64,
    /// Bytes that all files have, about; `None`: nobody has looked.
    bytes: Mutex<Option<u64>>,
    index: Mutex<(Index, bool)>,
    /// Those that this session has read.
    fresh: Mutex<BTreeMap<String, Identity>>,
    /// This host's own files that this session has read.
    fresh_own: Mutex<BTreeMap<Identity, Digest>>,
    held: Mutex<(BTreeMap<Digest, File>, u64)>,
    /// Why files cannot be kept; said once.
    pub why: Mutex<Option<String>>,
}

/// What a file becomes while it comes.
pub struct Coming {
    file: File,
    part: Option<Part>,
    digest: Sha256,
    size: u64,
}

/// A file under a name of its own, which goes with this.
struct Part {
    /// `None`: it has another name now.
    path: Option<PathBuf>,
}

impl Part {
    /// A new one in `place`.
    fn make(place: &Path) -> io::Result<(Part, File)> {
        let path = place.join(format!("{}{PART}", crate::hosts::room::random_name()));
        let mut options = File::options();
        let file = options.create_new(true).read(true).write(true).mode(0o600).open(&path)?;
        Ok((Part { path: Some(path) }, file))
    }

    /// Gives it this name, in place of what had it.
    fn rename(mut self, to: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, to)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // One that is left is removed by a later session.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

impl Store {
    /// The one in `place`, which is made if need be.
    pub fn open(place: Option<PathBuf>) -> Store {
        Store::with(place, ALL_BYTES_MAX)
    }

    fn with(place: Option<PathBuf>, all_bytes_max: u64) -> Store {
        let opened = place.ok_or_else(|| "there is no place for it".to_owned()).and_then(|place| {
            open_own(&place).map_err(|problem| crate::run::request::reason(&problem))
        });
        let (directory, why) = match opened {
            Ok(directory) => (Some(directory), None),
            Err(why) => (None, Some(why)),
        };
        let place = directory
            .as_ref()
            .map(|directory| PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())));
        let index = place.as_deref().and_then(read_index).unwrap_or_default();
        if let Some(place) = &place {
            remove_parts(place);
        }
        Store {
            place,
            _directory: directory,
            all_bytes_max,
            bytes: Mutex::default(),
            index: Mutex::new((index, false)),
            fresh: Mutex::default(),
            fresh_own: Mutex::default(),
            held: Mutex::default(),
            why: Mutex::new(why),
        }
    }

    /// The digest of the file at home with this identity, if an earlier session has asked for it.
    pub fn digest(&self, identity: &Identity) -> Option<Digest> {
        bytes_of(lock(&self.index).0.home.get(&identity.text())?)
    }

    /// Home has said so.
    pub fn note_digest(&self, identity: &Identity, digest: &Digest) {
        // One that has just changed may change again within the same tick of the clock.
        if is_settled(identity) {
            let (index, is_new) = &mut *lock(&self.index);
            bounded(&mut index.home).insert(identity.text(), hex(digest));
            *is_new = true;
        }
    }

    /// The file with this digest; `None`: there is none that can be used.
    pub fn get(&self, digest: &Digest, size: u64) -> Option<File> {
        if let Some(held) = lock(&self.held).0.get(digest) {
            return held.try_clone().ok();
        }
        let name = hex(digest);
        let path = self.place.as_ref()?.join(&name);
        let mut options = File::options();
        options.read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let mut file = options.open(&path).ok()?;
        let found = file.metadata().ok()?;
        let identity = Identity::of(&fstat(&file).ok()?);
        let is_known = lock(&self.fresh).get(&name) == Some(&identity) || {
            let index = lock(&self.index);
            index.0.checked.get(&name).is_some_and(|known| known.identity == identity.text())
        };
        let is_whole = found.is_file()
            && is_ours(&found)
            && found.len() == size
            && (is_known || digest_all(&mut file).is_ok_and(|(now, _)| now == *digest));
        if !is_whole {
            // It is fetched anew.
            let _ = fs::remove_file(&path);
            return None;
        }
        self.used(name, &identity);
        Some(file)
    }

    fn used(&self, name: String, identity: &Identity) {
        bounded(&mut lock(&self.fresh)).insert(name.clone(), *identity);
        let (index, is_new) = &mut *lock(&self.index);
        let checked = Checked { identity: identity.text(), used_s: now_s() };
        let is_noted = index.checked.get(&name).is_some_and(|known| {
            known.identity == checked.identity && known.used_s + USED_S > checked.used_s
        });
        if is_settled(identity) && !is_noted {
            bounded(&mut index.checked).insert(name, checked);
            *is_new = true;
        }
    }

    /// The file with this digest, if this host's own one at `path` is that; `own` is it, opened.
    pub fn own(&self, path: &Path, mut own: File) -> Option<(Digest, File)> {
        let identity = Identity::of(&fstat(&own).ok()?);
        let path = path.to_str().map(str::to_owned);
        let fresh = lock(&self.fresh_own).get(&identity).copied();
        let known = fresh.or_else(|| {
            let index = lock(&self.index);
            let (known, digest) = index.0.own.get(path.as_ref()?)?;
            (*known == identity.text()).then(|| bytes_of(digest))?
        });
        let digest = match known {
            Some(digest) => digest,
            None => digest_all(&mut own).ok()?.0,
        };
        if fresh.is_none() && !(0..=TICK_NS).contains(&age_ns(&identity)) {
            bounded(&mut lock(&self.fresh_own)).insert(identity, digest);
        }
        if let Some(path) = path.filter(|_| known.is_none() && is_settled(&identity)) {
            let (index, is_new) = &mut *lock(&self.index);
            bounded(&mut index.own).insert(path, (identity.text(), hex(&digest)));
            *is_new = true;
        }
        Some((digest, own))
    }

    /// Begins with a file of so many bytes.
    pub fn begin(&self, size: u64) -> io::Result<Coming> {
        self.make_room(size);
        let made = self.place.as_ref().map(|place| {
            let (part, file) = Part::make(place)?;
            // Now, and not when half of it is there.
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size.max(1))
                .and_then(|()| rustix::fs::ftruncate(&file, size))
                .or_else(|errno| match errno {
                    rustix::io::Errno::OPNOTSUPP => Ok(()),
                    errno => Err(errno),
                })?;
            Ok((file, Some(part)))
        });
        let (file, part) = match made {
            Some(Ok(made)) => made,
            other => {
                if let Some(Err(problem)) = other {
                    let problem: io::Error = problem;
                    let why = crate::run::request::reason(&problem);
                    lock(&self.why).get_or_insert(why);
                }
                let held = lock(&self.held).1;
                if held.saturating_add(size) > HELD_BYTES_MAX {
                    return Err(rustix::io::Errno::NOSPC.into());
                }
                (memfd_create(c"husk: file", MemfdFlags::CLOEXEC)?.into(), None)
            }
        };
        Ok(Coming { file, part, digest: Sha256::new(), size: 0 })
    }

    /// Keeps what has come, if it has this digest; else it is another file.
    pub fn end(&self, coming: Coming, digest: &Digest) -> io::Result<File> {
        let Coming { file, part, digest: got, size } = coming;
        let is_right = Digest::from(got.finalize()) == *digest;
        let Some(part) = part else {
            if !is_right {
                return Err(rustix::io::Errno::STALE.into());
            }
            let (held, bytes) = &mut *lock(&self.held);
            *bytes += size;
            held.insert(*digest, file.try_clone()?);
            return Ok(file);
        };
        let name = hex(digest);
        match (is_right, &self.place) {
            (true, Some(place)) => part.rename(&place.join(&name))?,
            _ => return Err(rustix::io::Errno::STALE.into()),
        }
        self.used(name, &Identity::of(&fstat(&file)?));
        Ok(file)
    }

    /// Removes those that were used longest ago until there is room for so many bytes.
    fn make_room(&self, size: u64) {
        let Some(place) = &self.place else { return };
        let mut bytes_now = lock(&self.bytes);
        if let Some(bytes) = bytes_now.as_mut().filter(|bytes| **bytes + size <= self.all_bytes_max)
        {
            *bytes += size;
            return;
        }
        let index = lock(&self.index).0.checked.clone();
        let mut all: Vec<_> = fs::read_dir(place)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name != INDEX))
            .filter_map(|entry| {
                let found = entry.metadata().ok()?;
                let known = index.get(entry.file_name().to_str()?).map(|known| known.used_s);
                Some((known.unwrap_or(found.mtime() as u64), found.len(), entry.path()))
            })
            .collect();
        let mut bytes: u64 = all.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + size;
        all.sort();
        for (_, length, path) in all {
            if bytes > self.all_bytes_max && fs::remove_file(path).is_ok() {
                bytes -= length;
            }
        }
        *bytes_now = Some(bytes);
    }

    /// Keeps what is known for later sessions, with what others have noted meanwhile.
    pub fn keep(&self) {
        let Some(place) = &self.place else { return };
        let (index, is_new) = &mut *lock(&self.index);
        if !std::mem::take(is_new) {
            return;
        }
        let mut all = read_index(place).unwrap_or_default();
        all.home.extend(index.home.clone());
        all.checked.extend(index.checked.clone());
        all.own.extend(index.own.clone());
        all.checked.retain(|name, _| place.join(name).exists());
        if all.home.len().max(all.own.len()).max(all.checked.len()) > KNOWN_MAX {
            all = index.clone();
        }
        let text = serde_json::to_vec(&all).unwrap_or_default();
        if text.len() as u64 > INDEX_BYTES_MAX {
            return;
        }
        // What fails costs time later, and no more.
        let _ = Part::make(place).and_then(|(part, mut file)| {
            file.write_all(&text)?;
            part.rename(&place.join(INDEX))
        });
    }
}

impl Coming {
    /// More of it.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// Removes what sessions have left that were killed.
fn remove_parts(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_part = entry.file_name().to_str().is_some_and(|name| name.ends_with(PART));
        let is_old = || {
            let found = entry.metadata().ok();
            found.is_some_and(|found| now_s().saturating_sub(found.mtime().max(0) as u64) > PART_S)
        };
        if is_part && is_old() {
            // Another session may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A directory that nobody else can write to.
fn open_own(place: &Path) -> io::Result<OwnedFd> {
    // If it cannot be made it is not there.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(place);
    let directory = File::open(place).map_err(|problem| made.err().unwrap_or(problem))?;
    let found = directory.metadata()?;
    if !found.is_dir() || !is_ours(&found) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(directory.into())
}

/// What is known, with room for one more: it is found out again where there is none.
fn bounded<K: Ord, T>(known: &mut BTreeMap<K, T>) -> &mut BTreeMap<K, T> {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known
}

/// How long ago a file has changed.
fn age_ns(identity: &Identity) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as i64).saturating_sub(identity.changed_ns)
}

fn is_settled(identity: &Identity) -> bool {
    now_s().saturating_sub((identity.changed_ns / 1_000_000_000).max(0) as u64) > SETTLED_S
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// The digest of all bytes, and how many there are.
fn digest_all(file: &mut File) -> io::Result<(Digest, u64)> {
    file.rewind()?;
    let (mut digest, mut bytes, mut size) = (Sha256::new(), vec![0; PIECE], 0);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok((digest.finalize().into(), size)),
            count => {
                digest.update(&bytes[..count]);
                size += count as u64;
            }
        }
    }
}

fn read_index(place: &Path) -> Option<Index> {
    let file = File::open(place.join(INDEX)).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && is_ours(found))?;
    (found.len() <= INDEX_BYTES_MAX).then_some(())?;
    serde_json::from_reader(file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn fetched(store: &Store, bytes: &[u8]) -> Digest {
        let digest = Sha256::digest(bytes).into();
        let mut coming = store.begin(bytes.len() as u64).unwrap();
        coming.add(bytes).unwrap();
        store.end(coming, &digest).unwrap();
        digest
    }

    fn got(store: &Store, digest: &Digest, size: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = store.get(digest, size as u64)?;
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }

    fn names(place: &Path) -> usize {
        fs::read_dir(place).unwrap().count()
    }

    #[test]
    fn what_was_fetched_is_there_in_the_next_session_and_what_is_tampered_with_is_not() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("files");
        let digest = fetched(&Store::open(Some(at.clone())), b"bytes");
        let path = at.join(hex(&digest));
        assert_eq!(got(&Store::open(Some(at.clone())), &digest, 5).unwrap(), b"bytes");
        fs::write(&path, b"other").unwrap();
        let store = Store::open(Some(at.clone()));
        assert_eq!(got(&store, &digest, 5), None);
        assert!(!path.exists(), "it is fetched anew");
        fetched(&store, b"bytes");
        assert_eq!(got(&store, &digest, 5).unwrap(), b"bytes");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(got(&store, &digest, 5), None, "others can write to it");
        assert_eq!(names(&at), 0);
    }

    #[test]
    fn what_is_not_what_was_said_is_not_kept() {
        let place = tempfile::tempdir().unwrap();
        for at in [Some(place.path().join("files")), None] {
            let store = Store::open(at);
            let mut coming = store.begin(5).unwrap();
            coming.add(b"other").unwrap();
            let digest = Sha256::digest(b"bytes").into();
            assert!(store.end(coming, &digest).is_err());
            assert_eq!(got(&store, &digest, 5), None);
        }
        assert_eq!(names(&place.path().join("files")), 0);
    }

    #[test]
    fn what_does_not_come_whole_leaves_no_file_and_what_a_killed_session_has_left_goes() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("files");
        let store = Store::open(Some(at.clone()));
        drop(store.begin(5).unwrap());
        assert_eq!(names(&at), 0);
        for (name, age_s) in [("a.part", 2 * PART_S), ("b.part", 0)] {
            let file = File::create(at.join(name)).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age_s)).unwrap();
        }
        Store::open(Some(at.clone()));
        assert!(!at.join("a.part").exists() && at.join("b.part").exists());
    }

    #[test]
    fn what_is_known_has_a_bound() {
        let store = Store::open(None);
        let one = |inode| Identity { inode, size: 5, changed_ns: 7, ..Identity::default() };
        for inode in 0..KNOWN_MAX as u64 + 9 {
            store.note_digest(&one(inode), &[7; 32]);
        }
        assert!(lock(&store.index).0.home.len() <= KNOWN_MAX);
        assert_eq!(store.digest(&one(KNOWN_MAX as u64 + 8)), Some([7; 32]));
    }

    #[test]
    fn where_others_can_write_or_nothing_can_be_kept_bytes_are_held_for_the_session() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
        for at in [Some(place.path().to_owned()), Some("/proc/none".into()), None] {
            let store = Store::open(at);
            assert!(lock(&store.why).is_some());
            let digest = fetched(&store, b"bytes");
            assert_eq!(got(&store, &digest, 5).unwrap(), b"bytes");
            store.keep();
        }
        assert_eq!(names(place.path()), 0);
    }

    #[test]
    fn those_that_were_used_longest_ago_make_room() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("files");
        let store = Store::with(Some(at.clone()), 10);
        let first = fetched(&store, b"1234");
        let second = fetched(&store, b"5678");
        let older = File::options().write(true).open(at.join(hex(&second))).unwrap();
        older.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let third = fetched(&store, b"90ab");
        assert_eq!(got(&store, &second, 4), None);
        assert!(got(&store, &first, 4).is_some() && got(&store, &third, 4).is_some());
    }

    #[test]
    fn digests_are_known_by_identity_until_a_file_changes_and_rubbish_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("files");
        let store = Store::open(Some(at.clone()));
        let old = Identity { size: 5, changed_ns: 7, ..Identity::default() };
        store.note_digest(&old, &[7; 32]);
        store.note_digest(&Identity { changed_ns: i64::MAX, ..old }, &[8; 32]);
        store.keep();
        let again = Store::open(Some(at.clone()));
        assert_eq!(again.digest(&old), Some([7; 32]));
        assert_eq!(again.digest(&Identity { changed_ns: 8, ..old }), None);
        assert_eq!(again.digest(&Identity { changed_ns: i64::MAX, ..old }), None, "it is new");
        fs::write(at.join(INDEX), "{").unwrap();
        assert_eq!(Store::open(Some(at)).digest(&old), None);
    }

    #[test]
    fn a_file_of_this_host_is_read_once_as_long_as_it_is_the_same() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(Some(place.path().join("files")));
        let own = || store.own(Path::new("/bin/true"), File::open("/bin/true").unwrap()).unwrap().0;
        let digest: Digest = Sha256::digest(fs::read("/bin/true").unwrap()).into();
        assert_eq!((own(), own()), (digest, digest));
        assert!(lock(&store.index).0.own.contains_key("/bin/true"));
    }
}
