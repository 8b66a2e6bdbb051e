//! User and group numbers of a user namespace, and what they are in the image.
//!
//! The image has the numbers of the namespace that it was started in. A process in another one is
//! shown its own numbers, and has capabilities over what is owned by ids that its namespace maps.

/// Most ranges of one map that are kept. What lies in further ones counts as not mapped.
pub const RANGES_MAX: usize = 8;

/// What a namespace shows in place of an id that it does not map (`overflowuid`).
pub const NOBODY: u32 = 65534;

/// A `uid_map` or `gid_map`: ranges of inner number, outer number, count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    ranges: [[u32; 3]; RANGES_MAX],
    count: usize,
}

impl IdMap {
    /// No id is mapped.
    pub const NONE: IdMap = IdMap { ranges: [[0; 3]; RANGES_MAX], count: 0 };

    /// Of the text in `/proc/self/uid_map`.
    pub fn parse(text: &[u8]) -> IdMap {
        let mut map = IdMap::NONE;
        for line in text.split(|&byte| byte == b'\n') {
            let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
            let mut next = || core::str::from_utf8(words.next()?).ok()?.parse::<u32>().ok();
            let words = (next(), next(), next());
            let (Some(inner), Some(outer), Some(count)) = words else { continue };
            if let Some(range) = map.ranges.get_mut(map.count) {
                *range = [inner, outer, count];
                map.count += 1;
            }
        }
        map
    }

    fn through(&self, id: u32, from: usize, to: usize) -> Option<u32> {
        let ranges = self.ranges.iter().take(self.count);
        let mut found = ranges.filter_map(|range| {
            let offset = id.checked_sub(range[from])?;
            if offset < range[2] { range[to].checked_add(offset) } else { None }
        });
        found.next()
    }

    /// What an id of the namespace is in the image.
    pub fn outer(&self, inner: u32) -> Option<u32> {
        self.through(inner, 0, 1)
    }

    /// What the namespace shows for an id of the image, if it maps it.
    pub fn inner(&self, outer: u32) -> Option<u32> {
        self.through(outer, 1, 0)
    }
}

/// Both maps of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Of users.
    pub uids: IdMap,
    /// Of groups.
    pub gids: IdMap,
}

impl Namespace {
    /// Nothing is mapped.
    pub const NONE: Namespace = Namespace { uids: IdMap::NONE, gids: IdMap::NONE };

    /// Whether both maps have been written.
    pub fn is_whole(&self) -> bool {
        self.uids.count > 0 && self.gids.count > 0
    }

    /// Whether capabilities in it count for what `uid` and `gid` of the image own.
    #[cold]
    #[inline(never)]
    pub fn has(&self, uid: u32, gid: u32) -> bool {
        self.uids.inner(uid).is_some() && self.gids.inner(gid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_up_in_all_ranges_both_ways() {
        let map = IdMap::parse(b"     0   1000     1\n   1   100000   65536\n");
        assert_eq!(
            [0, 1, 65536, 65537].map(|id| map.outer(id)),
            [Some(1000), Some(100_000), Some(165_535), None]
        );
        assert_eq!([1000, 100_002, 0].map(|id| map.inner(id)), [Some(0), Some(3), None]);
        assert_eq!(IdMap::parse(b"").outer(0), None);
    }
}
