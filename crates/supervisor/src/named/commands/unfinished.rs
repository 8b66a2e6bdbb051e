//! What each command about an image says of write-backs that were killed half way in its trees.
//!
//! Not of the image's own where the image is up: its next write-back finishes that one.

use std::ffi::OsStr;

use super::ask::glance;
use crate::image::attach::Visit;
use crate::named::message::Status;
use crate::named::place::Place;
use crate::named::server::sync::meant;
use crate::recovery::{self, Half};

/// A line for each of them in the trees of the image that `typed` names: a name, or the process id
/// of a `husk run` or of a program.
pub fn unfinished(typed: &OsStr) -> Vec<String> {
    let halves = recovery::halves();
    let Some(typed) = typed.to_str().filter(|_| !halves.is_empty()) else { return Vec::new() };
    match meant(typed).and_then(|name| Place::find(&name).ok()) {
        Some(place) => in_named(&place, halves),
        None => in_unnamed(typed, halves),
    }
}

/// A line for each of them anywhere.
pub fn all_unfinished() -> Vec<String> {
    recovery::halves().into_iter().map(|half| half.note).collect()
}

fn in_named(place: &Place, halves: Vec<Half>) -> Vec<String> {
    let living = glance(place);
    let goes_on = living.as_ref().is_some_and(|status| !status.discard);
    let Some(status) = living.or_else(|| place.facts()) else { return Vec::new() };
    let said = halves.into_iter().filter(|half| half.touches(&status.overlays));
    said.filter(|half| !(goes_on && is_own(half, &status))).map(|half| half.note).collect()
}

fn in_unnamed(typed: &str, halves: Vec<Half>) -> Vec<String> {
    let Ok(visit) = Visit::of(typed) else { return Vec::new() };
    let trees: Vec<_> = visit.overlays().into_iter().map(|(_, path)| path).collect();
    halves.into_iter().filter(|half| half.touches(&trees)).map(|half| half.note).collect()
}

/// Whether it is a write-back of the image with this status.
pub fn is_own(half: &Half, status: &Status) -> bool {
    status.region.is_some_and(|region| half.is_of(status.number, region.made_ns))
}
