//! Recovers an image whose supervisor and keeper have both died, from one of its programs: that has
//! the image's memory open.
//!
//! ```text
//!   husk COMMAND ── nobody answers, a program has the memory ── starts ──► husk adopt NAME
//!        ◄── it is up ──────────────── which is a keeper, and starts ──► a supervisor
//! ```
//!
//! Invariants
//! 1. It inspects only processes of this user, and takes only memory whose device, inode
//!    and creation time are those in the image's facts.
//! 2. An adopter holds the image's lock: one at a time.
//! 3. An image that was given up, or could not be taken over, is left alone: what ended its
//!    supervisors would end the next.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::kept::Left;
use super::{Keeper, part_from_caller, partner};
use crate::image::attach;
use crate::image::descriptors::loader;
use crate::named::commands::ask::tells_of_death;
use crate::named::commands::up::{Begun, START_MAX};
use crate::named::keeper;
use crate::named::message::{line, receive, send};
use crate::named::place::{Adopted, Name, Place};
use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::reason;

/// Has the image at `place`, whose supervisor and keeper have died, go on if a program has kept its
/// memory. Whether it does.
pub fn revive(place: &Place) -> bool {
    if !is_kept(place) {
        return false;
    }
    let begun = || {
        let (_, stream) = keeper::start(&place.name, keeper::ADOPT, &[], true).ok()?;
        stream.set_read_timeout(Some(START_MAX)).ok()?;
        serde_json::from_slice::<Begun>(&receive(&stream, true).ok()?.0).ok()
    };
    let why = match begun() {
        Some(Begun::Up) => {
            say(&format!(
                "note: supervisor and keeper of image {} were killed: a program has kept it, and \
                 others go on",
                place.name
            ));
            return true;
        }
        Some(Begun::Failed(failure)) => failure.to_string(),
        None => "its new keeper was killed, or could not be started".to_owned(),
    };
    say(&format!("note: image {} is kept by a program, but: {why}", place.name));
    false
}

/// Whether a program has kept its memory, and nothing is known that is in the way (invariant 3).
pub fn is_kept(place: &Place) -> bool {
    let given_up = || place.last_word().is_some_and(|word| tells_of_death(&word));
    let known = || place.facts().and_then(|facts| facts.region);
    place.ended().is_none()
        && !given_up()
        && known().is_some_and(|known| has_memory((known.device, known.inode)))
}

/// What `husk adopt` does.
pub fn adopt(name: &OsStr, runtime: &[u8]) {
    let Ok(asker) = partner() else { return };
    let begun = part_from_caller().and_then(|()| take(&Name::parse(name)?, runtime));
    let (told, keeper) = match begun {
        Ok(keeper) => (Begun::Up, keeper),
        Err(failure) => (Begun::Failed(failure), None),
    };
    // Who has gone finds the image up.
    let _ = line(&told).and_then(|told| send(&asker, &told, &[]));
    drop(asker);
    if let Some(keeper) = keeper {
        keeper.keep();
    }
}

/// A keeper for the image, with a supervisor that begins. `None`: somebody else was faster.
fn take(name: &Name, runtime: &[u8]) -> Result<Option<Keeper>, Failure> {
    let failed = |why: String| Failure::new(format!("cannot adopt image {name}"), why, "try again");
    let unread = |problem: std::io::Error| failed(reason(&problem));
    let gone = || failed("no program has its memory any more".to_owned());
    let held = match Place::find(name)?.adopt()? {
        Adopted::Held(held) => held,
        Adopted::Supervised => return Ok(None),
        Adopted::Gone => return Err(gone()),
    };
    let status =
        held.place.facts().ok_or_else(|| failed("its record cannot be read".to_owned()))?;
    let known = status.region.ok_or_else(gone)?;
    let region = find((known.device, known.inode)).ok_or_else(gone)?;
    let loader = loader(runtime)?;
    // Nobody answers there.
    held.place.stop_listening();
    let listener = held.place.listen().map_err(unread)?;
    let (started_ns, trap_only) = (known.made_ns, known.trap_only);
    let left = Left { started_ns, trap_only, status, of_run: false };
    let lock = held.lock.as_fd().try_clone_to_owned().map_err(unread)?;
    let descriptors: Vec<OwnedFd> = vec![region.into(), loader, lock, listener.into()];
    let text = line(&left).map_err(unread)?;
    Keeper::begin(name.clone(), (text, descriptors)).map(Some)
}

/// Whether image `name` goes on, or another supervisor could take it over from a program.
pub fn goes_on(name: &Name) -> bool {
    let Ok(place) = Place::find(name) else { return false };
    let known = || place.facts().and_then(|facts| facts.region);
    place.is_held() || known().is_some_and(|known| has_memory((known.device, known.inode)))
}

/// Whether a process of this user has the memory with this device and inode open.
pub fn has_memory(known: (u64, u64)) -> bool {
    find(known).is_some()
}

/// The memory of an image, by device and inode, out of a program that has it open.
fn find(known: (u64, u64)) -> Option<File> {
    let us = rustix::process::geteuid().as_raw();
    let listing = fs::read_dir("/proc").ok()?.flatten();
    let ours = listing.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == us));
    let pids = ours.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.flat_map(attach::regions_of).find_map(|path| {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let found = file.metadata().ok()?;
        ((found.dev(), found.ino()) == known).then_some(file)
    })
}
