//! What a command about an image says of write-backs that were killed half way in its trees.
//!
//! Not of the image's own where the image is up: its next write-back finishes that one.

use std::ffi::OsStr;

use crate::named::ask::glance;
use crate::named::message::Status;
use crate::named::place::{Name, Place};
use crate::recovery::{self, Half};

/// A line for each of them in the trees of image `name`.
pub fn unfinished(name: &OsStr) -> Vec<String> {
    let halves = recovery::halves();
    let place = Name::parse(name).ok().and_then(|name| Place::find(&name).ok());
    let Some(place) = place.filter(|_| !halves.is_empty()) else { return Vec::new() };
    let living = glance(&place);
    let goes_on = living.as_ref().is_some_and(|status| !status.discard);
    let Some(status) = living.or_else(|| place.facts()) else { return Vec::new() };
    let said = halves.into_iter().filter(|half| half.touches(&status.overlays));
    said.filter(|half| !(goes_on && is_own(half, &status))).map(|half| half.note).collect()
}

/// Whether it is a write-back of the image with this status.
pub fn is_own(half: &Half, status: &Status) -> bool {
    status.region.is_some_and(|region| half.is_of(status.number, region.made_ns))
}
