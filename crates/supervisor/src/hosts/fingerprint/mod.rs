//! Whether a program is the same on two hosts: one fingerprint of all that it starts with.
//!
//! ```text
//!   program ─► its bytes, its interpreter, its libraries and theirs
//!   a compiler's driver ─► and the parts it starts: `as`, `ld`, what is below /usr/lib/gcc;
//!                          and all headers of the system, by size and time
//! ```
//!
//! Files that were read before, and are the same, are not read again (`noted`).
//!
//! Not here: what a program opens by name while it runs (locales, plug-ins), except for headers.

pub mod here;
pub mod known;
pub mod noted;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::hosts::fingerprint::noted::{Needs, Noted};

/// Where libraries are, in the order of the dynamic linker without its cache.
const LIBRARIES: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
/// The parts of compilers.
const PARTS: &str = "/usr/lib/gcc";
/// What they start beside those.
const TOOLS: [&str; 2] = ["/usr/bin/as", "/usr/bin/ld"];
/// Where the headers are that a compiler takes without being told.
const HEADERS: [&str; 3] = ["/usr/include", "/usr/local/include", PARTS];
/// Most files of a program.
const FILES_MAX: usize = 256;
/// Largest file.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// How long who looks at headers is waited for, between two looks; and how long what was found is
/// of use to others.
const LOCK_MAX: Duration = Duration::from_secs(5);
const LOCK_LOOK: Duration = Duration::from_millis(10);
const SHARED_MAX: Duration = Duration::from_secs(60);
/// How deep the parts of compilers lie.
const DEPTH_MAX: u32 = 4;
/// How deep headers lie.
const HEADERS_DEPTH_MAX: u32 = 16;

/// A digest for each directory of headers.
type Headers = BTreeMap<PathBuf, String>;

/// The fingerprint of the program at `path`; `None`: it is none, or cannot be read.
pub fn fingerprint(path: &Path, noted: &mut Noted) -> Option<String> {
    let print = of_program(path, noted);
    noted.keep();
    print
}

fn of_program(path: &Path, noted: &mut Noted) -> Option<String> {
    let mut files = BTreeMap::new();
    add(path, &mut files, noted)?;
    if is_driver(path) {
        let mut parts: BTreeSet<PathBuf> = TOOLS.iter().map(PathBuf::from).collect();
        gather(Path::new(PARTS), 0, &mut parts);
        for part in parts.iter().filter(|part| part.exists()) {
            // A part that is no program for this machine has only its bytes.
            if add(part, &mut files, noted).is_none() {
                files.insert(part.clone(), noted.part(part, FILE_BYTES_MAX, &needs)?.digest);
            }
        }
        files.extend(
            headers(noted.shared.as_deref())?
                .iter()
                .map(|(path, digest)| (path.clone(), digest.clone())),
        );
        noted.add_driver(path);
    }
    Some(of_all(files.iter()))
}

/// One digest of paths and what is there, in their order.
fn of_all<'f>(files: impl Iterator<Item = (&'f (impl AsRef<OsStr> + 'f), &'f String)>) -> String {
    let mut all = Sha256::new();
    for (path, digest) in files {
        all.update(path.as_ref().as_encoded_bytes());
        all.update([0]);
        all.update(digest);
    }
    hex(&all.finalize())
}

/// A digest of each directory of headers; looked at once: who changes them during a session does so
/// on their own account.
fn headers(shared: Option<&Path>) -> Option<&'static Headers> {
    static FOUND: OnceLock<Option<Headers>> = OnceLock::new();
    FOUND.get_or_init(|| shared.map_or_else(find_headers, found_by_one)).as_ref()
}

fn find_headers() -> Option<Headers> {
    let mut found = BTreeMap::new();
    for place in HEADERS.map(PathBuf::from).into_iter().filter(|place| place.exists()) {
        let mut files = BTreeMap::new();
        look_at_all(&place, HEADERS_DEPTH_MAX, &mut files)?;
        found.insert(place, of_all(files.iter()));
    }
    Some(found)
}

/// The same, looked at by one of several processes that begin at once. Who has looked notes it in
/// file `shared`, and holds its lock meanwhile; one that holds it for long is not waited for.
fn found_by_one(shared: &Path) -> Option<Headers> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let Ok(mut file) = options.open(shared) else { return find_headers() };
    let until = Instant::now() + LOCK_MAX;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > until {
            return find_headers();
        }
        thread::sleep(LOCK_LOOK);
    }
    let age = file.metadata().and_then(|found| found.modified()).map(|at| at.elapsed());
    let is_new = age.is_ok_and(|age| age.is_ok_and(|age| age < SHARED_MAX));
    let mut text = String::new();
    if is_new
        && file.read_to_string(&mut text).is_ok()
        && let Ok(found) = serde_json::from_str(&text)
    {
        return Some(found);
    }
    let found = find_headers()?;
    let text = serde_json::to_vec(&found).unwrap_or_default();
    // What is not noted is looked for again.
    let _ = file.set_len(0).and_then(|()| file.write_all_at(&text, 0));
    Some(found)
}

/// What is below a directory: size and time of a file, which a package brings along; of a link,
/// where it leads. `None`: not all can be looked at.
fn look_at_all(place: &Path, depth: u32, files: &mut BTreeMap<OsString, String>) -> Option<()> {
    for entry in fs::read_dir(place).ok()? {
        let entry = entry.ok()?;
        let (path, kind) = (entry.path(), entry.file_type().ok()?);
        if kind.is_dir() {
            look_at_all(&path, depth.checked_sub(1)?, files)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).ok()?;
            files.insert(path.into(), target.display().to_string());
        } else {
            let found = entry.metadata().ok()?;
            let shown = format!("{} {}.{}", found.len(), found.mtime(), found.mtime_nsec());
            files.insert(path.into(), shown);
        }
    }
    Some(())
}

/// Whether it is called like a compiler, which starts others.
pub fn is_driver(path: &Path) -> bool {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ["gcc", "g++", "clang", "c++", "gfortran"].iter().any(|driver| name.contains(driver))
}

/// Programs below the directory of a compiler's parts.
fn gather(place: &Path, depth: u32, parts: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() && depth < DEPTH_MAX {
            gather(&path, depth + 1, parts);
        } else if fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
            && parts.len() < FILES_MAX
        {
            parts.insert(path);
        }
    }
}

/// Adds a program, its interpreter and its libraries.
fn add(path: &Path, files: &mut BTreeMap<PathBuf, String>, noted: &mut Noted) -> Option<()> {
    let mut next = vec![path.to_owned()];
    while let Some(path) = next.pop() {
        if files.contains_key(&path) {
            continue;
        }
        (files.len() < FILES_MAX).then_some(())?;
        let part = noted.part(&path, FILE_BYTES_MAX, &needs)?;
        let (interpreter, needed) = part.needs?;
        files.insert(path, part.digest);
        next.extend(interpreter);
        for library in needed {
            let places = LIBRARIES.iter().map(|place| Path::new(place).join(&library));
            // One that is elsewhere is not compared: the two are then not known to be the same.
            next.push(places.into_iter().find(|place| place.exists())?);
        }
    }
    Some(())
}

/// The interpreter and the names of the libraries of an ELF file.
fn needs(bytes: &[u8]) -> Option<Needs> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let (mut interpreter, mut needed) = (None, Vec::new());
    for segment in header.program_headers(endian, bytes).ok()? {
        if segment.p_type(endian) == PT_INTERP {
            let text = segment.data(endian, bytes).ok()?.strip_suffix(b"\0")?;
            interpreter = Some(PathBuf::from(std::str::from_utf8(text).ok()?));
        }
        if segment.p_type(endian) != PT_DYNAMIC {
            continue;
        }
        let sections = header.sections(endian, bytes).ok()?;
        let Some((entries, link)) = sections.dynamic(endian, bytes).ok()? else { continue };
        let strings = sections.strings(endian, bytes, link).ok()?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            let name = entry.string(endian, strings).ok()?;
            needed.push(std::str::from_utf8(name).ok()?.to_owned());
        }
    }
    Some((interpreter, needed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::fingerprint::known::Known;

    fn fingerprint(path: &Path) -> Option<String> {
        super::fingerprint(path, &mut Noted::begin(Known::nowhere()))
    }

    #[test]
    fn a_program_has_a_fingerprint_and_another_one_when_a_byte_changes() {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("true");
        fs::copy("/bin/true", &copy).unwrap();
        let first = fingerprint(&copy).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(fingerprint(&copy), Some(first.clone()));
        let mut bytes = fs::read(&copy).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&copy, bytes).unwrap();
        assert_ne!(fingerprint(&copy), Some(first));
    }

    #[test]
    fn names_sizes_times_and_links_of_headers_count() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let print = || {
            let mut files = BTreeMap::new();
            look_at_all(place.path(), 2, &mut files).map(|()| of_all(files.iter()))
        };
        let mut seen = vec![print().unwrap()];
        let mut another = |what: &str| {
            let now = print().unwrap();
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        fs::create_dir_all(at("sys/deep")).unwrap();
        fs::write(at("sys/deep/a.h"), "#define A 1\n").unwrap();
        another("a new one");
        fs::write(at("sys/deep/a.h"), "#define A 22\n").unwrap();
        another("another size");
        let file = fs::File::open(at("sys/deep/a.h")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        another("another time");
        fs::rename(at("sys/deep/a.h"), at("sys/deep/b.h")).unwrap();
        another("another name");
        std::os::unix::fs::symlink("sys/deep/b.h", at("b.h")).unwrap();
        another("a link");
        fs::create_dir_all(at("sys/deep/deeper")).unwrap();
        assert_eq!(print(), None, "deeper than is read");
    }

    #[test]
    fn one_looks_at_headers_for_all_who_begin_at_once() {
        let place = tempfile::tempdir().unwrap();
        let shared = place.path().join("headers");
        let found = found_by_one(&shared);
        assert_eq!(found, find_headers());
        let told = BTreeMap::from([(PathBuf::from("/a"), "digest".to_owned())]);
        fs::write(&shared, serde_json::to_vec(&told).unwrap()).unwrap();
        assert_eq!(found_by_one(&shared), Some(told), "another one's");
        let file = File::options().write(true).open(&shared).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * SHARED_MAX).unwrap();
        assert_eq!(found_by_one(&shared), found, "too old");
        fs::write(&shared, "{").unwrap();
        assert_eq!(found_by_one(&shared), found, "half of one");
        assert_eq!(found_by_one(&place.path().join("none/headers")), found);
    }

    #[test]
    fn what_is_no_program_has_none() {
        let place = tempfile::tempdir().unwrap();
        let text = place.path().join("text");
        fs::write(&text, "#!/bin/sh\n").unwrap();
        assert_eq!(fingerprint(&text), None);
        assert_eq!(fingerprint(place.path()), None);
        assert_eq!(fingerprint(&place.path().join("none")), None);
    }
}
