//! Looks at many names at once, by several threads, before a plan asks for each of them.
//!
//! A look ahead is used once, by the plan that follows at once: what changes after it is found when
//! the plan is carried out, as what changes after any look of a plan.

use std::io;
use std::path::Path;

use super::{Beneath, Glance};
use crate::write_back::host::hands;

impl Beneath {
    /// Looks at all `paths`, and keeps what is there. Of others nothing is known.
    pub fn look_ahead<'p>(&self, paths: impl Iterator<Item = &'p Path>) {
        let place = |path: &'p Path| Some((path, self.at(path).ok()?));
        let places: Vec<_> = paths.filter(|path| !self.is_root(path)).filter_map(place).collect();
        let found = hands::share(&places, |(_, place)| place.glance().ok());
        let found = places.iter().zip(found);
        let kept = found.filter_map(|((path, _), found)| Some((path.as_os_str().into(), found?)));
        self.ahead.borrow_mut().extend(kept);
    }

    /// What is known of `path`, which nobody has to look at again; else as `glance`.
    pub fn known_glance(&self, path: &Path) -> io::Result<Option<Glance>> {
        let known = self.ahead.borrow().get(path.as_os_str()).copied();
        known.map_or_else(|| self.glance(path), |known| Ok(Some(known)))
    }

    /// The same, once.
    pub fn taken_glance(&self, path: &Path) -> io::Result<Option<Glance>> {
        let known = self.ahead.borrow_mut().remove(path.as_os_str());
        known.map_or_else(|| self.glance(path), |known| Ok(Some(known)))
    }

    /// Nothing is known any more.
    pub fn forget_looks(&self) {
        self.ahead.take();
    }
}
