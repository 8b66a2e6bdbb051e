//! Selects changes by pattern or directory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::differences::change::{Change, Verb, What};
use crate::differences::show;

/// Changes by their places in a list.
pub type Chosen = BTreeSet<usize>;

/// `*` ends at a `/`, and meets names with a dot in front.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Changes that `word` means: a path or pattern, with all that is below. Without a `/` it means a
/// name at any depth.
pub fn matching(changes: &[Change], word: &str) -> Result<Vec<usize>, String> {
    let plain = word.strip_prefix("./").unwrap_or(word);
    let whole = plain.trim_end_matches('/');
    let pattern = Pattern::new(whole).map_err(|wrong| wrong.msg.to_owned())?;
    let by_name = !whole.contains('/') && whole == plain;
    let meets = |path: &Path| match by_name {
        true => path.components().any(|part| is_met(&pattern, Path::new(part.as_os_str()))),
        false => path.ancestors().any(|above| is_met(&pattern, above)),
    };
    let concerns = |change: &Change| {
        let target = change.target();
        let absolute = whole.starts_with('/') && meets(&target);
        absolute || meets(&change.path) || change.source().is_some_and(meets)
    };
    let told = changes.iter().enumerate().filter(|(_, change)| !change.implied);
    Ok(told.filter(|(_, change)| concerns(change)).map(|(index, _)| index).collect())
}

fn is_met(pattern: &Pattern, path: &Path) -> bool {
    pattern.matches_path_with(path, OPTIONS)
}

/// Paths that stand for what is chosen. One of a directory means all that is below it, so that
/// stands for nothing if some of it is not chosen.
pub fn paths(changes: &[Change], chosen: &Chosen) -> Vec<PathBuf> {
    let is_whole = |index: usize| {
        let below = below(changes, index);
        below.clone().all(|one| changes[one].implied || chosen.contains(&one))
    };
    let whole = chosen.iter().filter(|index| is_whole(**index));
    whole.map(|index| changes[*index].target()).collect()
}

/// Adds directories of which all that appears or goes is chosen: they were asked for by parts.
pub fn complete(changes: &[Change], chosen: &mut Chosen) {
    for index in (0..changes.len()).rev().filter(|index| is_tree(&changes[*index])) {
        let mut below = below(changes, index);
        if !below.is_empty() && below.all(|one| changes[one].implied || chosen.contains(&one)) {
            chosen.insert(index);
        }
    }
}

/// Places of the changes below a directory; they follow it.
fn below(changes: &[Change], index: usize) -> Range<usize> {
    let (overlay, path) = (&changes[index].overlay, &changes[index].path);
    let is_below = |change: &&Change| change.overlay == *overlay && change.path.starts_with(path);
    let count = changes[index + 1..].iter().take_while(is_below).count();
    index + 1..index + 1 + count
}

/// What is asked for at once: a change, or a directory that appears or goes with all in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    first: usize,
    members: Vec<usize>,
}

impl Unit {
    /// Its changes.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().copied()
    }

    /// Whether its parts can be asked for.
    pub fn is_divisible(&self) -> bool {
        self.members.len() > 1
    }

    /// It in a line.
    pub fn line(&self, changes: &[Change]) -> String {
        let line = show::line(&changes[self.first]);
        match self.members.len() - 1 {
            0 => line,
            more => format!("{line}  and {more} below it"),
        }
    }
}

/// The units of a part of all changes.
pub fn units(changes: &[Change], part: Range<usize>) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut next = part.start;
    while next < part.end {
        let first = next;
        next += 1;
        if changes[first].implied {
            continue;
        }
        let mut members = vec![first];
        if is_tree(&changes[first]) {
            let verb = changes[first].verb;
            let below = below(changes, first);
            let alike = below.clone().all(|one| changes[one].verb == verb);
            if alike && below.end <= part.end {
                members.extend(below.clone());
                next = below.end;
            }
        }
        units.push(Unit { first, members });
    }
    units
}

/// The parts of a directory: it alone where that is all, else what is in it. The directory itself
/// comes with whatever is chosen of it.
pub fn parts(changes: &[Change], unit: &Unit) -> Vec<Unit> {
    units(changes, unit.first + 1..unit.first + unit.members.len())
}

fn is_tree(change: &Change) -> bool {
    let directory = change.thing().is_some_and(|thing| thing.what == What::Directory);
    directory && matches!(change.verb, Verb::Added | Verb::Removed)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::differences::change::{Bytes, Thing};

    /// A change of `path` in the overlay `/o`: its letter, as `husk diff` shows it.
    pub fn change(letter: char, path: &str) -> Change {
        let what = if path.ends_with('/') { What::Directory } else { What::File };
        let thing = Thing {
            what,
            mode: 0o644,
            owner: (0, 0),
            size: 0,
            held: 0,
            modified_ns: 0,
            bytes: Bytes::None,
        };
        let verb = match letter {
            'A' => Verb::Added,
            'D' => Verb::Removed,
            _ => Verb::Changed,
        };
        Change {
            verb,
            overlay: PathBuf::from("/o"),
            path: PathBuf::from(path.trim_end_matches('/')),
            from: None,
            old: (verb != Verb::Added).then(|| thing.clone()),
            new: (verb != Verb::Removed).then_some(thing),
            extended: false,
            conflict: None,
            implied: false,
        }
    }

    /// A directory that goes, one that appears, and files.
    pub fn several() -> Vec<Change> {
        let all = ["A a/", "A a/b.o", "A a/c", "M a.txt", "D old/", "D old/b.o", "M src/b.o"];
        all.map(|one| change(one.as_bytes()[0].into(), &one[2..])).into()
    }

    fn matched(word: &str) -> Vec<String> {
        let all = several();
        let found = matching(&all, word).unwrap();
        found.into_iter().map(|index| all[index].path.display().to_string()).collect()
    }

    #[test]
    fn a_pattern_means_a_path_with_all_below_or_a_name_anywhere() {
        assert_eq!(matched("a"), ["a", "a/b.o", "a/c"]);
        assert_eq!(matched("./a/"), ["a", "a/b.o", "a/c"]);
        assert_eq!(matched("*.o"), ["a/b.o", "old/b.o", "src/b.o"]);
        assert_eq!(matched("a/*"), ["a/b.o", "a/c"]);
        assert_eq!(matched("/o/old"), ["old", "old/b.o"]);
        assert_eq!(matched("**/b.o"), ["a/b.o", "old/b.o", "src/b.o"]);
        assert!(matched("b").is_empty() && matching(&several(), "[").is_err());
    }

    #[test]
    fn a_directory_stands_for_its_parts_where_all_are_chosen() {
        let all = several();
        let of = |chosen: &[usize]| paths(&all, &chosen.iter().copied().collect());
        assert_eq!(of(&[0, 1, 2]), ["/o/a", "/o/a/b.o", "/o/a/c"].map(PathBuf::from));
        assert_eq!(of(&[0, 1]), [PathBuf::from("/o/a/b.o")]);
        let mut chosen = Chosen::from([5]);
        complete(&all, &mut chosen);
        assert_eq!(chosen, Chosen::from([4, 5]));
    }

    #[test]
    fn a_tree_is_asked_for_at_once_and_by_its_parts() {
        let all = several();
        let units = units(&all, 0..all.len());
        let members: Vec<Vec<usize>> = units.iter().map(|unit| unit.members().collect()).collect();
        assert_eq!(members, [vec![0, 1, 2], vec![3], vec![4, 5], vec![6]]);
        assert_eq!(units[0].line(&all), "A  a/  and 2 below it");
        let parts = parts(&all, &units[0]);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].line(&all), "A  a/b.o");
    }
}
