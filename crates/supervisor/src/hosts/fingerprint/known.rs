//! Digests of files that were read before: `~/.cache/husk/hosts`, one note for each.
//!
//! ```text
//!   NAME: | digest | device inode size mtime ctime |    of our own file, and of that on each host
//! ```
//!
//! Invariants
//! 1. A note is of use only for a file of which device, inode, size and both times are the same to
//!    the nanosecond: whoever writes to a file changes its ctime, and cannot set it.
//! 2. What was noted is kept on this host, also about files on others: who can write to the file
//!    there cannot write to its note.
//! 3. Files that have changed within the last seconds are not noted: a second change might fall
//!    into the same tick of the clock.
//! 4. Where there is no note, or none can be written, files are read.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::config::state;
use crate::digest::hex;

/// The note of our own file.
pub const OWN: &str = "own";
/// Longest note.
const NOTE_BYTES_MAX: u64 = 512;
/// A file that has changed within so long is not noted.
const SETTLED_S: i64 = 2;
/// Digits of a digest; of those in a note's name.
const DIGEST_DIGITS: usize = 64;
const NAME_DIGITS: usize = 32;
/// What an identity consists of.
const PARTS: usize = 5;

/// All notes of this user.
pub struct Known(Option<PathBuf>);

impl Known {
    /// Where they are.
    pub fn find() -> Known {
        Known(state::copies().map(|copies| copies.with_file_name("hosts")))
    }

    /// They are in `place`.
    #[cfg(test)]
    pub fn at(place: PathBuf) -> Known {
        Known(Some(place))
    }

    /// None are kept.
    #[cfg(test)]
    pub fn nowhere() -> Known {
        Known(None)
    }

    /// The digest of the file that has this identity.
    pub fn digest(&self, name: &str, identity: &str) -> Option<String> {
        let (digest, known) = self.read(name)?;
        (known == identity).then_some(digest)
    }

    /// The identity of the file that has this digest.
    pub fn identity(&self, name: &str, digest: &str) -> Option<String> {
        let (known, identity) = self.read(name)?;
        (known == digest).then_some(identity)
    }

    /// Notes it, in place of what was there. What fails costs time later, and no more.
    pub fn note(&self, name: &str, digest: &str, identity: &str) {
        if is_identity(identity) {
            self.replace(name, &format!("{digest} {identity}\n"));
        }
    }

    /// Puts a text in place of what was there.
    pub fn replace(&self, name: &str, text: &str) {
        let Some(place) = self.place() else { return };
        let part = place.join(format!("{name}.{}.part", std::process::id()));
        let written = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&part)
            .and_then(|mut note| note.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, place.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
    }

    /// Whether nobody else has taken this turn; it is held as long as the result.
    pub fn turn(&self, name: &str) -> Option<File> {
        let path = self.place()?.join(name);
        let lock = File::options().create(true).append(true).mode(0o600).open(path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(lock)
    }

    /// The directory, made if need be.
    fn place(&self) -> Option<&PathBuf> {
        let place = self.0.as_ref()?;
        // If it cannot be made it is not there.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(place);
        is_ours(&fs::symlink_metadata(place).ok()?).then_some(place)
    }

    /// So much of what was put there, if nobody else can have written it.
    pub fn text(&self, name: &str, bytes_max: u64) -> Option<String> {
        let note = File::open(self.0.as_ref()?.join(name)).ok()?;
        let found = note.metadata().ok().filter(|found| found.is_file() && is_ours(found));
        found?;
        let mut text = String::new();
        note.take(bytes_max).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn read(&self, name: &str) -> Option<(String, String)> {
        let text = self.text(name, NOTE_BYTES_MAX)?;
        let (digest, identity) = text.strip_suffix('\n')?.split_once(' ')?;
        (is_digest(digest) && is_identity(identity))
            .then(|| (digest.to_owned(), identity.to_owned()))
    }
}

/// Nobody but this user and root can have written it.
pub fn is_ours(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What the file of a host is noted under.
pub fn name_of(host: &str) -> String {
    let mut name = hex(&Sha256::digest(host));
    name.truncate(NAME_DIGITS);
    name
}

/// Whether a text is an identity: another host has said so, and it goes into a shell's script. Not
/// all hosts know parts of seconds.
pub fn is_identity(text: &str) -> bool {
    let parts: Vec<_> = text.split(' ').collect();
    let number = |text: &str| {
        (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let time = |text: &str| {
        text.split_once('.').is_some_and(|(seconds, rest)| {
            number(seconds.trim_start_matches('-')) && number(rest) && rest.len() == 9
        })
    };
    parts.len() == PARTS
        && parts[..3].iter().all(|part| number(part))
        && parts[3..].iter().all(|part| time(part))
}

/// By what a file is known.
pub fn identity(found: &Metadata) -> String {
    format!(
        "{} {} {} {}.{:09} {}.{:09}",
        found.dev(),
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec()
    )
}

/// Whether it has not changed for some time (invariant 3).
pub fn is_settled(found: &Metadata, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_secs() as i64 - found.ctime() > SETTLED_S
}

/// The same of a file on another host, by its identity and the clock there.
pub fn was_settled(identity: &str, now_s: &str) -> bool {
    let changed = identity.rsplit(' ').next().and_then(|time| time.split('.').next());
    let changed = changed.and_then(|seconds| seconds.parse::<i64>().ok());
    let now_s = now_s.parse::<i64>().ok();
    now_s.zip(changed).is_some_and(|(now, then)| now.saturating_sub(then) > SETTLED_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const IDENTITY: &str = "65024 7 123 1700000000.000000001 1700000000.123456789";

    #[test]
    fn a_note_holds_for_one_digest_of_one_file() {
        let place = tempfile::tempdir().unwrap();
        let known = Known(Some(place.path().join("deep/hosts")));
        let (digest, other) = ("a".repeat(64), "b".repeat(64));
        assert_eq!(known.digest(OWN, IDENTITY), None);
        known.note(OWN, &digest, IDENTITY);
        assert_eq!(known.digest(OWN, IDENTITY), Some(digest.clone()));
        assert_eq!(known.identity(OWN, &digest).as_deref(), Some(IDENTITY));
        let later = IDENTITY.replace("123456789", "123456790");
        assert_eq!((known.digest(OWN, &later), known.identity(OWN, &other)), (None, None));
        known.note(OWN, &other, &later);
        assert_eq!(known.digest(OWN, &later), Some(other));
        let files = fs::read_dir(place.path().join("deep/hosts")).unwrap().count();
        assert_eq!(files, 1, "nothing else is left");
    }

    #[test]
    fn what_others_could_have_written_is_no_note() {
        let place = tempfile::tempdir().unwrap();
        let known = Known(Some(place.path().to_owned()));
        let digest = "a".repeat(64);
        known.note(OWN, &digest, IDENTITY);
        let note = place.path().join(OWN);
        fs::set_permissions(&note, fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(known.digest(OWN, IDENTITY), None);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::remove_file(&note).unwrap();
        known.note(OWN, &digest, IDENTITY);
        assert!(!note.exists());
        assert!(known.turn("copying").is_none());
    }

    #[test]
    fn identities_are_numbers_and_nothing_that_a_shell_would_run() {
        assert!(is_identity(IDENTITY));
        let own = File::open("/proc/self/exe").unwrap().metadata().unwrap();
        assert!(is_identity(&identity(&own)));
        for wrong in [
            "",
            "65024 7 123 1700000000 1700000000",
            "65024 7 123 1700000000.000000001 1700000000.1",
            "65024 7 123 1700000000.000000001",
            "65024 7 $(x) 1700000000.000000001 1700000000.123456789",
            "65024 7 123 1700000000.000000001 1700000000.12345678\"",
            "65024  7 123 1700000000.000000001 1700000000.123456789",
        ] {
            assert!(!is_identity(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_settled() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let changed = file.ctime() as u64;
        assert!(!is_settled(&file, at(changed)) && !is_settled(&file, at(changed + 2)));
        assert!(is_settled(&file, at(changed + 3)));
        assert!(was_settled(IDENTITY, "1700000003") && !was_settled(IDENTITY, "1700000002"));
        assert!(!was_settled(IDENTITY, "x") && !was_settled("", "1700000003"));
    }

    #[test]
    fn one_at_a_time_has_a_turn() {
        let place = tempfile::tempdir().unwrap();
        let known = Known(Some(place.path().to_owned()));
        let first = known.turn("copying");
        assert!(first.is_some() && known.turn("copying").is_none());
        drop(first);
        assert!(known.turn("copying").is_some());
    }
}
