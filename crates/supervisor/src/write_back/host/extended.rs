//! Writes extended attributes to the host.
//!
//! What the image has taken over (or made) is set as it is there, but for what the host has changed
//! since; of a file that was only changed in its bytes, the attributes of the host's old file are
//! set on the new one. What the host refuses is said, for each object in one line.
//!
//! ```text
//!   the image's is what the host had     the host's: taken in
//!   the host's is what it had            the image's
//!   both have changed it, alike          that
//!   both have changed it                 the host's stays, and a conflict is told once
//! ```
//!
//! What the host had is known by a hash in the image (`Admin::extended_base`). While programs go
//! on, it is renewed after each write-back, once the host has been seen to have the image's.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use super::beneath::Beneath;
use super::beneath::held::{Held, names};
use crate::write_back::Source;
use husk_proto::fs::{Attributes, Backing, value_hash};
use husk_proto::{Errno, Inode, acl};

use crate::output::typed::typed;

/// Longest value that Linux has.
const LONGEST_BYTES: usize = 65536;
/// Longest value that is told to be typed.
const TYPED_BYTES_MAX: usize = 256;
/// What an owner needs to read attributes of users, and to set them.
const READ: u32 = 0o400;
const READ_WRITE: u32 = 0o600;
/// Bits of a mode.
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;

/// Names and values.
pub type Extended = Vec<(CString, Vec<u8>)>;

/// The attributes of `inode` as they are to be on the host; `None`: the host's stay as they are.
pub fn of<S: Source>(
    source: &mut S,
    inode: Inode,
    attributes: &Attributes,
) -> Result<Option<Extended>, Errno> {
    if attributes.extended == Backing::Host {
        return Ok(None);
    }
    let mut list = vec![0; source.list_extended(inode, true, &[], &mut [])?];
    source.list_extended(inode, true, &[], &mut list)?;
    let mut found = Extended::new();
    for name in names(&list) {
        let mut value = vec![0; LONGEST_BYTES];
        let length = source.extended(inode, name.to_bytes(), &mut value)?;
        value.truncate(length);
        found.push((name.to_owned(), value));
    }
    Ok(Some(found))
}

/// What an attribute of the image is to be, if its value still has the hash `seen` (0: none), and
/// what the host has.
#[derive(Debug)]
pub struct Settling {
    /// Whose.
    pub inode: Inode,
    /// Its name.
    pub name: CString,
    /// See there.
    pub seen: u64,
    /// `None`: there is none.
    pub found: Option<Vec<u8>>,
}

impl Settling {
    /// Does it. What a program has changed since stays.
    pub fn settle<S: Source>(&self, source: &mut S) {
        // One that has gone needs nothing.
        let found = self.found.as_deref();
        let _ = source.settle_extended(self.inode, self.name.to_bytes(), self.seen, found);
    }
}

/// What comes of the attributes of both sides.
#[derive(Debug, Default)]
pub struct Merged {
    /// What the host is to have.
    pub wanted: Extended,
    /// What it alone has changed: the image's from now on.
    pub taken: Vec<Settling>,
    /// What the image alone has changed.
    pub ours: Vec<CString>,
    /// What both have changed: what the image has.
    pub both: Vec<Settling>,
}

fn value<'a>(all: &'a Extended, name: &CStr) -> Option<&'a Vec<u8>> {
    all.iter().find(|(one, _)| **one == *name).map(|(_, value)| value)
}

fn hash(value: Option<&Vec<u8>>) -> u64 {
    value.map_or(0, |value| value_hash(value))
}

/// A hash of all that can be set, in whatever order.
pub fn hash_of_all(all: &Extended) -> u64 {
    let settable: BTreeSet<_> = all.iter().filter(|(name, _)| is_ours(name.to_bytes())).collect();
    let mut hasher = DefaultHasher::new();
    settable.hash(&mut hasher);
    hasher.finish()
}

/// Brings both sides together, name by name.
pub fn merge<S: Source>(
    source: &mut S,
    inode: Inode,
    ours: &Extended,
    theirs: &Extended,
) -> Result<Merged, Errno> {
    let settable = theirs.iter().filter(|(name, _)| is_ours(name.to_bytes()));
    let all: BTreeSet<&CString> = ours.iter().chain(settable).map(|(name, _)| name).collect();
    let mut merged = Merged::default();
    // In the order in which an image lists them: hashes of all say whether they are the same.
    for name in all.into_iter().rev() {
        let (our, their) = (value(ours, name), value(theirs, name));
        let (seen, found) = (hash(our), hash(their));
        let base = source.extended_base(inode, name.to_bytes())?;
        let settling = |found: Option<&Vec<u8>>| Settling {
            inode,
            name: name.clone(),
            seen,
            found: found.cloned(),
        };
        let wanted = match () {
            () if seen == found => our,
            () if seen == base => {
                merged.taken.push(settling(their));
                their
            }
            () if found == base => {
                merged.ours.push(name.clone());
                our
            }
            () => {
                merged.both.push(settling(our));
                their
            }
        };
        merged.wanted.extend(wanted.map(|value| (name.clone(), value.clone())));
    }
    Ok(merged)
}

/// The host has what the image has of these objects, as far as it is seen to: what it changes from
/// now on is its own. `changed`: what the image has changed, and may have removed.
pub fn settle<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    objects: &[(PathBuf, Inode)],
    changed: &HashMap<Inode, Vec<CString>>,
) -> Result<(), Errno> {
    for (path, inode) in objects {
        let Ok(attributes) = source.attributes(*inode) else { continue };
        let Some(ours) = of(source, *inode, &attributes)? else { continue };
        let removed = changed.get(inode).into_iter().flatten();
        let names: BTreeSet<&CString> = ours.iter().map(|(name, _)| name).chain(removed).collect();
        let mut left = Vec::new();
        for name in names {
            let base = source.extended_base(*inode, name.to_bytes())?;
            left.extend((base != hash(value(&ours, name))).then_some(name));
        }
        if left.is_empty() {
            continue;
        }
        // What cannot be looked at is compared the next time.
        let Ok(Some(held)) = beneath.hold_if_there(path) else { continue };
        let Ok(theirs) = even_unreadable(&held) else { continue };
        for name in left {
            let (our, their) = (value(&ours, name), value(&theirs, name));
            if our == their {
                let (seen, found) = (hash(our), our.cloned());
                Settling { inode: *inode, name: name.clone(), seen, found }.settle(source);
            }
        }
    }
    Ok(())
}

/// Sets `wanted` on what is `held` and removes others. Goes on after a refusal, and tells the
/// first.
pub fn set(held: &Held, wanted: &Extended) -> io::Result<()> {
    // What was just made has nothing that somebody set.
    if wanted.is_empty() && held.is_made() {
        return Ok(());
    }
    let present = held.extended()?;
    let mut refused = Ok(());
    for (name, value) in wanted {
        if !present.contains(&(name.clone(), value.clone())) {
            let done = held.set_one(name, value);
            refused = refused.and(done.map_err(|problem| about(name, problem)));
        }
    }
    for (name, _) in &present {
        if is_ours(name.to_bytes()) && !wanted.iter().any(|(kept, _)| kept == name) {
            let done = held.remove_one(name);
            refused = refused.and(done.map_err(|problem| about(name, problem)));
        }
    }
    refused
}

/// The same on what its mode may deny to its owner for the moment.
pub fn set_even_closed(held: &Held, wanted: &Extended) -> io::Result<()> {
    match set(held, wanted) {
        Err(problem) if is_denied(&problem) => held.opened_for(READ_WRITE, || set(held, wanted))?,
        other => other,
    }
}

/// The mode where an access control list is not known: rights of the group may be those that the
/// list gives others at most, and are not the group's.
pub fn without_list(mode: u32) -> u32 {
    mode & (!GROUP | (mode & OTHERS) << 3)
}

/// What is there, also where its owner may not read it.
pub fn even_unreadable(held: &Held) -> io::Result<Extended> {
    match held.extended() {
        Err(problem) if is_denied(&problem) => held.opened_for(READ, || held.extended())?,
        other => other,
    }
}

fn is_denied(problem: &io::Error) -> bool {
    problem.kind() == io::ErrorKind::PermissionDenied
}

/// Takes the access control lists from what was just made that its directory handed down.
pub fn forget_lists(held: &Held) -> io::Result<()> {
    for (name, _) in held.extended()? {
        if acl::is_list(name.to_bytes()) {
            held.remove_one(&name).map_err(|problem| about(&name, problem))?;
        }
    }
    Ok(())
}

/// Whether an attribute is there because somebody set it; labels come by themselves.
fn is_ours(name: &[u8]) -> bool {
    let kinds: [&[u8]; 3] = [b"user.", b"trusted.", b"security.capability"];
    acl::is_list(name) || kinds.iter().any(|kind| name.starts_with(kind))
}

/// What to type for what is at `path` to have this value of the image, or none. Of a long one
/// nothing.
pub fn in_words(path: &Path, name: &CStr, value: Option<&[u8]>) -> String {
    let (name, path) = (name.to_string_lossy(), typed(path));
    let hex = |value: &[u8]| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match value {
        Some(value) if value.len() > TYPED_BYTES_MAX => String::new(),
        Some(value) => {
            format!("; take the image's: setfattr -h -n {name} -v 0x{} {path}", hex(value))
        }
        None => format!("; take the image's: setfattr -h -x {name} {path}"),
    }
}

fn about(name: &CStr, problem: io::Error) -> io::Error {
    let why = crate::write_back::reason(&problem);
    io::Error::new(problem.kind(), format!("extended attribute {}: {why}", name.to_string_lossy()))
}
