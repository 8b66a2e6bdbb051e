//! The host's side: identities, temporary names, times.
//!
//! A temporary name is `.husk-tmp-<pid namespace>-<pid>-<random>`. What a write-back gives such a
//! name is either new and not yet in place, or old and already replaced: it can be removed once its
//! maker is gone, and the next write-back that touches the directory does so. `husk cp` makes such
//! names as well (`named::parcel`).
//!
//! Whoever may rename what is in a directory can give such a name to another user's directory, and
//! could not remove what is in that. So names alone say what may be removed only of what has
//! nothing below it. Directories are emptied by their identities, which are noted before anything
//! is put into them (`manifest::Line::Made`).

pub mod below;
pub mod beneath;
pub mod content;
pub mod extended;
pub(super) mod hands;
pub(super) mod lacking;
pub(super) mod numbers;
pub mod unlock;
pub(super) mod unsynced;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, Backing, HostIdentity, Imported, Kind, Rights};
use husk_proto::image::OWN_NAMES as PREFIX;
use rustix::fs::FileType;
use rustix::rand::{GetRandomFlags, getrandom};

use self::beneath::schedule::before;
use self::beneath::{Beneath, Glance};
use super::git::lock;
use super::record::manifest;
use crate::image::clock;
use crate::output::typed::typed;

/// Names that are drawn with one call.
const DRAWN_AT_ONCE: usize = 16;
/// Bits of a mode that a write, or a change of the owner, takes away.
pub const SET_ID: u32 = 0o6000;
/// Nanoseconds.
pub const NS_PER_S: i64 = 1_000_000_000;

/// Makes temporary names that no other run makes.
#[derive(Debug)]
pub struct Names {
    stem: String,
    /// Random bits that nobody has seen yet.
    drawn: Vec<u128>,
}

impl Names {
    /// Names of this process, which none of its others has.
    pub fn of_this_process() -> Self {
        let (prefix, own) = (String::from_utf8_lossy(PREFIX), &unguessable()[..16]);
        let stem = format!("{prefix}{:x}-{}-{own}-", pid_namespace(), std::process::id());
        Self { stem, drawn: Vec::new() }
    }

    /// How all of them begin.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// A path in `directory` that nobody can guess, and so at which nothing is.
    pub fn fresh(&mut self, directory: &Path) -> PathBuf {
        if self.drawn.is_empty() {
            self.drawn = drawn::<DRAWN_AT_ONCE>();
        }
        let bits = self.drawn.pop().unwrap_or_default();
        directory.join(format!("{}{bits:032x}", self.stem))
    }
}

/// 128 random bits in hexadecimal.
pub fn unguessable() -> String {
    format!("{:032x}", drawn::<1>()[0])
}

/// So many times 128 random bits.
fn drawn<const COUNT: usize>() -> Vec<u128> {
    let mut bytes = vec![[0; 16]; COUNT];
    let bits = getrandom(bytes.as_flattened_mut(), GetRandomFlags::empty());
    // Up to 256 bytes come whole, whatever happens meanwhile.
    assert_eq!(bits, Ok(COUNT * 16), "the host has random numbers");
    bytes.into_iter().map(u128::from_ne_bytes).collect()
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Removes what earlier, interrupted write-backs left in `directory`, but for directories that have
/// something in them.
pub fn remove_leftovers(beneath: &Beneath, directory: &Path) {
    let names = beneath.names(directory).unwrap_or_default();
    if !names.iter().any(|name| is_leftover(name)) {
        return;
    }
    let kept = manifest::Kept::by_this_user();
    for name in names.iter().filter(|name| is_leftover(name) && !kept.keeps(name)) {
        remove_name(beneath, &directory.join(name), &names);
    }
}

/// Removes what has names that begin with `stem` in `directory`, as `remove_leftovers` does.
pub fn remove_names(beneath: &Beneath, directory: &Path, stem: &str) {
    let names = beneath.names(directory).unwrap_or_default();
    for name in names.iter().filter(|name| name.as_bytes().starts_with(stem.as_bytes())) {
        remove_name(beneath, &directory.join(name), &names);
    }
}

/// Removes what has a temporary name; `names`: all in its directory.
fn remove_name(beneath: &Beneath, temporary: &Path, names: &[OsString]) {
    lock::release_all_of(beneath, temporary, names);
    // A leftover that cannot be removed does no harm: it stays recognisable.
    let _ = beneath.remove_shallow(temporary);
}

/// Whether `name` is a temporary name, whoever made it: no image shows it.
pub fn is_own(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX)
}

/// Whether `name` is a temporary name whose maker is gone.
pub fn is_leftover(name: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(PREFIX).and_then(|rest| std::str::from_utf8(rest).ok());
    let Some(rest) = rest else { return false };
    let mut parts = rest.split('-');
    let (Some(namespace), Some(pid)) = (parts.next(), parts.next()) else { return false };
    let ours = u64::from_str_radix(namespace, 16) == Ok(pid_namespace());
    ours && pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Identity of what was found.
pub fn identity_of(found: &fs::Metadata) -> HostIdentity {
    HostIdentity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified_ns: found.mtime() * NS_PER_S + found.mtime_nsec(),
        changed_ns: found.ctime() * NS_PER_S + found.ctime_nsec(),
    }
}

/// Mode, owner and group of what was found.
pub fn rights_of(found: &fs::Metadata) -> Rights {
    (found.mode() & 0o7777, found.uid(), found.gid())
}

/// Whether nothing but the status of an object may have changed.
pub fn same_content(seen: &HostIdentity, found: &HostIdentity) -> bool {
    HostIdentity { changed_ns: seen.changed_ns, ..*found } == *seen
}

/// Whether it is a file whose bytes are the image's.
pub fn has_own_bytes(attributes: &Attributes) -> bool {
    attributes.step.kind == Kind::File && attributes.backing == Backing::Image
}

/// Our rights, and the host's (`theirs`) where ours are still those of `before`.
pub fn merged_rights(ours: Rights, before: Rights, theirs: Rights) -> Rights {
    let one = |ours: u32, before: u32, theirs: u32| if ours == before { theirs } else { ours };
    (
        one(ours.0, before.0, theirs.0),
        one(ours.1, before.1, theirs.1),
        one(ours.2, before.2, theirs.2),
    )
}

/// What an image makes of an object in a directory of this device.
pub fn kind_of(found: &fs::Metadata, device: u64) -> Kind {
    match found.file_type() {
        kind if kind.is_symlink() => Kind::Symlink,
        _ if found.dev() != device => Kind::Portal,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_file() => Kind::File,
        kind if kind.is_fifo() => Kind::Fifo,
        kind if kind.is_socket() => Kind::Socket,
        kind if kind.is_char_device() => Kind::CharacterDevice,
        kind if kind.is_block_device() => Kind::BlockDevice,
        _ => Kind::Portal,
    }
}

/// As what an image imports it by this name; `target`: of a symlink.
pub fn imported<'a>(
    name: &'a OsStr,
    kind: Kind,
    found: &fs::Metadata,
    target: &'a Path,
) -> Imported<'a> {
    Imported {
        name: name.as_bytes(),
        kind,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        identity: identity_of(found),
        accessed_ns: found.atime() * NS_PER_S + found.atime_nsec(),
        born_ns: clock::born_ns(found),
        blocks_512: found.blocks(),
        links: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        device: found.rdev() as u32,
        target: target.as_os_str().as_bytes(),
    }
}

/// A FIFO, socket or device, as the host names its kind.
pub fn special_kind(kind: Kind) -> FileType {
    match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => FileType::CharacterDevice,
    }
}

/// Replaces `file` as a whole, by way of a name beside it that nobody else makes.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    before("write")?;
    fs::write(&new, content)?;
    before("rename")?;
    fs::rename(new, file)
}

/// What is at the path of a version that is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// Something that `mv -T` replaces by the other version.
    File,
    /// One of both is a directory, which `mv -T` does not replace.
    Tree,
}

impl There {
    /// Of what is there, beside which the other version is, a directory if it is a `tree`.
    pub fn of(found: Option<&Glance>, tree: bool) -> There {
        match found {
            None => There::Nothing,
            Some(found) if tree || found.directory => There::Tree,
            Some(_) => There::File,
        }
    }

    /// Of what is at two paths.
    fn at(beneath: &Beneath, target: &Path, aside: &Path) -> There {
        let at = |path| beneath.glance(path).ok().flatten();
        There::of(at(target).as_ref(), at(aside).is_some_and(|one| one.directory))
    }
}

/// Where one version is, and what to type about there being two, or about it alone.
pub fn beside_in_words(aside: &Path, target: &Path, there: There) -> String {
    let away = away(aside);
    let (aside, target) = (typed(aside), typed(target));
    let take = format!("take it: mv -T {aside} {target}");
    match there {
        There::Nothing => format!("{aside}; {take}"),
        There::File => format!("{aside}; compare: diff -r {target} {aside}; {take}"),
        There::Tree => format!(
            "{aside}; compare: diff -r {target} {aside}; take it: mv -T {target} {} && mv -T \
             {aside} {target}",
            typed(&away)
        ),
    }
}

/// The same, of what is at both paths now.
pub fn kept_in_words(beneath: &Beneath, aside: &Path, target: &Path) -> String {
    beside_in_words(aside, target, There::at(beneath, target, aside))
}

/// A name for the host's version of what the image's is `aside`.
fn away(aside: &Path) -> PathBuf {
    let name = aside.file_name().unwrap_or_default().as_bytes();
    let (ours, theirs) = (b"husk-", b"host-");
    let at = name.windows(ours.len()).rposition(|part| part == ours).unwrap_or(name.len());
    let rest = name.get(at + ours.len()..).unwrap_or_default();
    aside.with_file_name(OsStr::from_bytes(&[&name[..at], theirs, rest].concat()))
}

/// What to type for an object that is `found` at `path` to have the `wanted` attributes of the
/// image, which were these `before`; nothing, if it has them.
pub fn given_in_words(
    path: &Path,
    wanted: &Attributes,
    before: &HostIdentity,
    found: &fs::Metadata,
) -> String {
    let (owner, mode) = ((wanted.step.uid, wanted.step.gid), wanted.step.mode & 0o7777);
    let mut commands = changes(path, (owner, mode), (owner_of(found), found.mode() & 0o7777));
    if ![before.modified_ns, identity_of(found).modified_ns].contains(&wanted.modified_ns) {
        let (seconds, rest) =
            (wanted.modified_ns.div_euclid(NS_PER_S), wanted.modified_ns.rem_euclid(NS_PER_S));
        commands.push(format!("touch -h -d @{seconds}.{rest:09} {}", typed(path)));
    }
    or_nothing("; take the image's: ", &commands)
}

/// The same for mode and owner that the host's object has, to be given to the image's.
pub fn hosts_in_words(path: &Path, ours: &Attributes, found: &fs::Metadata) -> String {
    let ours = ((ours.step.uid, ours.step.gid), ours.step.mode & 0o7777);
    let commands = changes(path, (owner_of(found), found.mode() & 0o7777), ours);
    or_nothing("; take the host's: ", &commands)
}

fn owner_of(found: &fs::Metadata) -> (u32, u32) {
    (found.uid(), found.gid())
}

/// Owner before mode: a change of the owner takes set-ID bits away.
fn changes(path: &Path, wanted: ((u32, u32), u32), there: ((u32, u32), u32)) -> Vec<String> {
    let ((uid, gid), mode) = wanted;
    let path = typed(path);
    let owner = (wanted.0 != there.0).then(|| format!("chown -h {uid}:{gid} {path}"));
    let changed = wanted.1 != there.1 || owner.is_some() && mode & SET_ID != 0;
    let mode = changed.then(|| format!("chmod {mode:04o} {path}"));
    owner.into_iter().chain(mode).collect()
}

fn or_nothing(before: &str, commands: &[String]) -> String {
    if commands.is_empty() { String::new() } else { format!("{before}{}", commands.join(" && ")) }
}

/// Bytes of a path as the image names it.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Whether there is a directory, not a link to one.
pub fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_is_what_a_dead_process_of_this_namespace_made() {
        let here = pid_namespace();
        assert!(is_leftover(OsStr::new(&format!(".husk-tmp-{here:x}-4294967294-1"))));
        assert!(!is_leftover(OsStr::new(&format!(".husk-tmp-{here:x}-{}-1", std::process::id()))));
        assert!(!is_leftover(OsStr::new(&format!(".husk-tmp-{:x}-4294967294-1", here + 1))));
        assert!(!is_leftover(OsStr::new(".husk-tmp-")));
        assert!(!is_leftover(OsStr::new("husk")));
    }

    /// `mv -T` does not replace a directory that has something in it, nor one kind by another.
    #[test]
    fn what_is_advised_of_two_versions_can_be_typed_whatever_they_are() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for (n, (ours, theirs)) in
            [(false, false), (true, true), (true, false), (false, true)].into_iter().enumerate()
        {
            let (target, aside) = (at(&format!("t {n}")), at(&format!("t {n}.husk-77")));
            for (path, tree, text) in [(&target, theirs, "host"), (&aside, ours, "image")] {
                let file = if tree { path.join("in") } else { path.clone() };
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let there = if ours || theirs { There::Tree } else { There::File };
            let told = beside_in_words(&aside, &target, there);
            let (_, command) = told.split_once("take it: ").unwrap();
            let status = std::process::Command::new("sh").arg("-c").arg(command).status();
            assert!(status.unwrap().success(), "{command}");
            let found = fs::read_to_string(if ours { target.join("in") } else { target });
            assert_eq!(found.unwrap(), "image", "{command}");
            if ours || theirs {
                assert!(at(&format!("t {n}.host-77")).exists(), "{command}");
            }
        }
    }

    #[test]
    fn leftovers_go_but_for_what_is_in_directories() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |what: &str| scratch.path().join(what);
        let left = |what: &str| at(&format!(".husk-tmp-{:x}-4294967294-{what}", pid_namespace()));
        fs::create_dir(left("empty")).unwrap();
        fs::write(left("file"), b"x").unwrap();
        fs::write(at("mine"), b"x").unwrap();
        // Another user can give this name to any directory in a directory that is open to all.
        fs::create_dir_all(left("full").join("below")).unwrap();
        fs::write(left("full").join("precious"), b"x").unwrap();
        remove_leftovers(&Beneath::new([scratch.path()]), scratch.path());
        assert!(!left("empty").exists() && !left("file").exists());
        assert!(at("mine").exists());
        assert!(left("full").join("below").exists() && left("full").join("precious").exists());
    }
}
