//! A tree as a value, and how two of them differ.
//!
//! Times cannot be equal in two runs. They are *alike* when both were set during their run, or
//! both are the same fixed time (an untouched input, or a time a program set on purpose).

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::hash::Hasher;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Differences shown at most.
const SHOWN_MAX: usize = 20;
/// File times come from a coarse clock.
const CLOCK_SLACK: Duration = Duration::from_millis(100);

/// One object of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: u32,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    /// Hash of the bytes, or of a symlink's target.
    content: u64,
    modified_ns: i128,
    /// The first path (in order) that leads to the same inode.
    same_as: PathBuf,
}

/// A tree.
#[derive(Clone, Debug)]
pub struct Tree {
    objects: BTreeMap<PathBuf, Object>,
    /// When the run that made it began and ended; `None` of an input.
    run: Option<(i128, i128)>,
}

/// What about a path is not compared.
pub type Unspecified<'a> = &'a dyn Fn(&Path) -> bool;

impl Tree {
    /// Reads the tree below `root`, made between `started` and `ended`.
    pub fn read(root: &Path, run: Option<(SystemTime, SystemTime)>) -> Self {
        let mut objects = BTreeMap::new();
        visit(root, Path::new(""), &mut objects);
        let mut first = BTreeMap::new();
        for (path, (inode, object)) in &mut objects {
            object.same_as = first.entry(*inode).or_insert_with(|| path.clone()).clone();
        }
        let objects = objects.into_iter().map(|(path, (_, object))| (path, object)).collect();
        let run = run.map(|(from, to)| (ns(from - CLOCK_SLACK), ns(to + CLOCK_SLACK)));
        Self { objects, run }
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How `other` differs from `self`, one sentence each; paths in `unspecified` may differ in
    /// content and size. `input` is what both started from.
    pub fn differences(
        &self,
        other: &Self,
        input: &Self,
        unspecified: Unspecified<'_>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for (path, object) in &self.objects {
            match other.objects.get(path) {
                None => found.push(format!("{}: missing", path.display())),
                Some(theirs) => {
                    let skip = unspecified(path);
                    found.extend(differs(object, theirs, skip).map(|why| at(path, &why)));
                    let known = input.objects.contains_key(path);
                    found
                        .extend(self.times(object, other, theirs, known).map(|why| at(path, &why)));
                }
            }
        }
        let extra = other.objects.keys().filter(|path| !self.objects.contains_key(*path));
        found.extend(extra.map(|path| format!("{}: should not be there", path.display())));
        found.truncate(SHOWN_MAX);
        found
    }

    fn times(&self, ours: &Object, other: &Self, theirs: &Object, known: bool) -> Option<String> {
        let directory = ours.kind == DIRECTORY;
        match (self.age(ours), other.age(theirs)) {
            (None, None) => None,
            (Some(a), Some(b)) if a == b => None,
            // Write-back replaces files by renaming: the time of their directory moves on.
            (Some(_), None) if directory && known => None,
            (a, b) => Some(format!("modified {} natively, {}", age_text(a), age_text(b))),
        }
    }

    /// `None` = set during the run (archives cut such a time to the second).
    fn age(&self, object: &Object) -> Option<i128> {
        let cut = |ns: i128| ns - ns % 1_000_000_000;
        let during = |(from, to)| {
            let ns = object.modified_ns;
            (from..=to).contains(&ns) || (ns == cut(ns) && (cut(from)..=to).contains(&ns))
        };
        if self.run.is_some_and(during) { None } else { Some(object.modified_ns) }
    }
}

const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const FILE: u32 = 0o100_000;

fn age_text(age: Option<i128>) -> String {
    age.map_or("during the run".to_owned(), |ns| {
        format!("at {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
    })
}

fn at(path: &Path, why: &str) -> String {
    format!("{}: {why}", path.display())
}

fn differs(ours: &Object, theirs: &Object, skip_content: bool) -> Option<String> {
    if (ours.kind, ours.mode) != (theirs.kind, theirs.mode) {
        let mode = |object: &Object| object.kind | object.mode;
        return Some(format!("type and mode {:o} natively, {:o}", mode(ours), mode(theirs)));
    }
    if ours.owner != theirs.owner {
        return Some(format!("owner {:?} natively, {:?}", ours.owner, theirs.owner));
    }
    if ours.same_as != theirs.same_as {
        let (a, b) = (ours.same_as.display(), theirs.same_as.display());
        return Some(format!("hard link of {a} natively, of {b}"));
    }
    if skip_content || (ours.size, ours.content) == (theirs.size, theirs.content) {
        return None;
    }
    Some(format!("content differs ({} bytes natively, {})", ours.size, theirs.size))
}

type Objects = BTreeMap<PathBuf, ((u64, u64), Object)>;

fn visit(root: &Path, path: &Path, objects: &mut Objects) {
    let full = root.join(path);
    let facts = full.symlink_metadata().unwrap_or_else(|error| panic!("{full:?}: {error}"));
    objects.insert(path.to_owned(), ((facts.dev(), facts.ino()), object(&full, &facts)));
    if facts.is_dir() {
        for entry in fs::read_dir(&full).unwrap_or_else(|error| panic!("{full:?}: {error}")) {
            visit(root, &path.join(entry.expect("an entry").file_name()), objects);
        }
    }
}

fn object(path: &Path, facts: &Metadata) -> Object {
    let kind = facts.mode() & 0o170_000;
    Object {
        kind,
        mode: facts.mode() & 0o7777,
        owner: (facts.uid(), facts.gid()),
        size: if kind == DIRECTORY { 0 } else { facts.len() },
        content: content(path, kind),
        modified_ns: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
        same_as: PathBuf::new(),
    }
}

fn content(path: &Path, kind: u32) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    match kind {
        SYMLINK => {
            hash.write(fs::read_link(path).expect("a target").as_os_str().as_encoded_bytes())
        }
        FILE => hash_file(path, &mut hash),
        _ => {}
    }
    hash.finish()
}

fn hash_file(path: &Path, hash: &mut impl Hasher) {
    let mut file = fs::File::open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).unwrap_or_else(|error| panic!("{path:?}: {error}")) {
            0 => return,
            count => hash.write(&buffer[..count]),
        }
    }
}

fn ns(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::Scratch;

    fn build(root: &Path) {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "content").unwrap();
        fs::hard_link(root.join("d/f"), root.join("g")).unwrap();
        symlink("d/f", root.join("l")).unwrap();
    }

    /// What is found after `change` was done to a copy of a tree.
    fn found(change: impl Fn(&Path)) -> Vec<String> {
        let scratch = Scratch::new("tree");
        let (ours, theirs) = (scratch.fresh("ours"), scratch.fresh("theirs"));
        let started = SystemTime::now();
        build(&ours);
        build(&theirs);
        change(&theirs);
        let read = |root| Tree::read(root, Some((started, SystemTime::now())));
        let nothing = Tree { objects: BTreeMap::new(), run: None };
        read(&ours).differences(&read(&theirs), &nothing, &|_| false)
    }

    #[test]
    fn the_same_twice_is_no_difference() {
        assert_eq!(found(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        type Change = fn(&Path);
        let changes: [(Change, &str); 8] = [
            (|root| fs::write(root.join("d/f"), "CONTENT").unwrap(), "d/f: content"),
            (|root| fs::remove_file(root.join("l")).unwrap(), "l: missing"),
            (|root| fs::write(root.join("x"), "").unwrap(), "x: should not"),
            (|root| mode(&root.join("d"), 0o700), "d: type and mode"),
            (|root| replace(root, |at| symlink("d/g", at).unwrap()), "l: content"),
            (|root| replace(root, |at| fs::write(at, "d/f").unwrap()), "l: type"),
            (|root| unlinked(&root.join("g")), "g: hard link"),
            (|root| old(&root.join("d/f")), "d/f: modified"),
        ];
        for (change, expected) in changes {
            let found = found(change);
            assert!(found.iter().any(|one| one.starts_with(expected)), "{expected}: {found:?}");
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn replace(root: &Path, by: impl Fn(&Path)) {
        fs::remove_file(root.join("l")).unwrap();
        by(&root.join("l"));
    }

    fn unlinked(path: &Path) {
        fs::remove_file(path).unwrap();
        fs::write(path, "content").unwrap();
    }

    fn old(path: &Path) {
        fs::File::open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(9)).unwrap();
    }
}
