//! Host paths that must stay.
//!
//! They are sorted, so that what is at or below a path comes right behind it: a question takes a
//! look for each directory above, however many there are.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Paths whose content did not make it to its new place.
#[derive(Debug, Default)]
pub struct Withheld {
    paths: BTreeSet<PathBuf>,
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl Withheld {
    /// None.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// One more.
    pub fn insert(&mut self, path: PathBuf) {
        self.paths.insert(path);
    }

    /// Whether one is at or below `path`.
    pub fn has_below(&self, path: &Path) -> bool {
        self.look();
        let from = (Bound::Included(path), Bound::Unbounded);
        self.paths.range::<Path, _>(from).next().is_some_and(|first| first.starts_with(path))
    }

    /// Whether one is at, below or above `path`.
    pub fn touches(&self, path: &Path) -> bool {
        let is_one = |above: &Path| {
            self.look();
            self.paths.contains(above)
        };
        !self.is_empty() && (self.has_below(path) || path.ancestors().any(is_one))
    }

    #[cfg(not(test))]
    fn look(&self) {}

    #[cfg(test)]
    fn look(&self) {
        self.looks.set(self.looks.get() + 1);
    }
}

impl Extend<PathBuf> for Withheld {
    fn extend<I: IntoIterator<Item = PathBuf>>(&mut self, paths: I) {
        self.paths.extend(paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_and_below_stays_and_many_cost_no_more_than_few() {
        let mut withheld = Withheld::default();
        assert!(!withheld.touches(Path::new("/t/a")) && !withheld.has_below(Path::new("/")));
        withheld.extend((0..20_000).map(|n| PathBuf::from(format!("/t/from/{n}"))));
        withheld.insert("/t/d/e".into());
        for (path, below, touches) in [
            ("/t", true, true),
            ("/t/d", true, true),
            ("/t/d/e", true, true),
            ("/t/d/e/f/g", false, true),
            ("/t/d/ef", false, false),
            ("/t/d-", false, false),
            ("/t/from/1", true, true),
            ("/t/from/1/x", false, true),
            ("/t/from/x", false, false),
        ] {
            assert_eq!(withheld.has_below(Path::new(path)), below, "{path}");
            assert_eq!(withheld.touches(Path::new(path)), touches, "{path}");
        }
        withheld.looks.set(0);
        for n in 20_000..40_000 {
            assert!(!withheld.touches(Path::new(&format!("/t/from/{n}"))));
        }
        assert!(withheld.looks.get() <= 20_000 * 6, "{} looks", withheld.looks.get());
    }
}
