//! Writes extended attributes to the host.
//!
//! What the image has taken over (or made) is set exactly as it is there; of a file that was only
//! changed in its bytes, the attributes of the host's old file are set on the new one. What the
//! host refuses is said, for each object in one line.

use std::ffi::{CStr, CString};
use std::io;

use super::Source;
use super::beneath::held::{Held, names};
use husk_proto::fs::{Attributes, Backing};
use husk_proto::{Errno, Inode, acl};

/// Longest value that Linux has.
const LONGEST_BYTES: usize = 65536;
/// What an owner needs to read attributes of users, and to set them.
const READ: u32 = 0o400;
const READ_WRITE: u32 = 0o600;

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

fn about(name: &CStr, problem: io::Error) -> io::Error {
    let why = super::reason(&problem);
    io::Error::new(problem.kind(), format!("extended attribute {}: {why}", name.to_string_lossy()))
}
