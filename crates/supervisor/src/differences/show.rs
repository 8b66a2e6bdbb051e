//! Prints changes: a line each, a summary, line counts by file, names, JSON.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use similar::{Algorithm, ChangeTag, TextDiff};

use super::change::{Change, Verb, What};
use super::content::{Content, read};
use super::patch::{attributes, printable};
use crate::write_back::Source;

/// Removed paths that one line names.
const REMOVED_MAX: usize = 5;
/// Widest bar of `stat`.
const BAR_MAX: usize = 40;
/// How long the smallest difference of one file is looked for.
const SEARCH_MAX: Duration = Duration::from_secs(1);

/// The changes that are told of by themselves.
pub fn told(changes: &[Change]) -> impl Iterator<Item = &Change> {
    changes.iter().filter(|change| !change.implied)
}

/// A line each, and their sum. `several`: say of which overlay each part is.
pub fn list(changes: &[Change], several: bool) -> String {
    let mut text = String::new();
    let mut overlay: Option<&Path> = None;
    for change in told(changes) {
        if several && overlay.replace(&change.overlay) != Some(&*change.overlay) {
            let _ = writeln!(text, "in {}:", printable(&change.overlay));
        }
        text += &(line(change) + "\n");
    }
    if let Some(sum) = sum(changes) {
        text += &(sum + "\n");
    }
    text
}

/// One change: a letter as git has it, `!` where it is a conflict, and the path.
pub fn line(change: &Change) -> String {
    let letter = match change.verb {
        Verb::Added => 'A',
        Verb::Changed if is_other_kind(change) => 'T',
        Verb::Changed => 'M',
        Verb::Removed => 'D',
        Verb::Moved => 'R',
        Verb::Attributes => 'm',
    };
    let mark = if change.conflict.is_some() { '!' } else { ' ' };
    let mut text = format!("{letter}{mark} {}", name(change));
    if let Some((old, new)) = change.old.as_ref().zip(change.new.as_ref())
        && is_other_kind(change)
    {
        let _ = write!(text, "  {} -> {}", old.name(), new.name());
    }
    let attributes = attributes(change, false).join(", ");
    if !attributes.is_empty() {
        let _ = write!(text, "  {attributes}");
    }
    if let Some(why) = &change.conflict {
        let _ = write!(text, "  conflict: {why}");
    }
    text
}

/// The path, and where it was.
fn name(change: &Change) -> String {
    let directory = change.thing().is_some_and(|thing| thing.what == What::Directory);
    let slash = if directory { "/" } else { "" };
    match change.source() {
        Some(from) => {
            format!("{}{slash} -> {}{slash}", printable(from), printable(&change.path))
        }
        None => format!("{}{slash}", printable(&change.path)),
    }
}

fn is_other_kind(change: &Change) -> bool {
    let pair = change.old.as_ref().zip(change.new.as_ref());
    pair.is_some_and(|(old, new)| old.what != new.what)
}

/// How many of each; `None`: there are none.
pub fn sum(changes: &[Change]) -> Option<String> {
    let count = |verb| told(changes).filter(|change| change.verb == verb).count();
    let parts = [
        (count(Verb::Added), "added"),
        (count(Verb::Changed), "changed"),
        (count(Verb::Removed), "removed"),
        (count(Verb::Moved), "moved"),
        (count(Verb::Attributes), "with other attributes"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count != 0);
    let parts: Vec<_> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    let conflicts = told(changes).filter(|change| change.conflict.is_some()).count();
    let conflicts = match conflicts {
        0 => String::new(),
        1 => "; 1 conflict".to_owned(),
        count => format!("; {count} conflicts"),
    };
    (!parts.is_empty()).then(|| parts.join(", ") + &conflicts)
}

/// The same in one line with what goes, as far as there is room for that.
pub fn sum_with_removed(changes: &[Change]) -> Option<String> {
    let sum = sum(changes)?;
    let removed = told(changes).filter(|change| change.verb == Verb::Removed);
    let mut names: Vec<String> = removed.map(name).collect();
    let more = names.len().saturating_sub(REMOVED_MAX);
    names.truncate(REMOVED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let removed = format!(" (removed: {}{more})", names.join(", "));
    Some(if names.is_empty() { sum } else { sum + &removed })
}

/// Paths alone, each ended by `end`: a line feed, with names quoted where they must be, or a NUL.
pub fn names(changes: &[Change], nul: bool) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut text = Vec::new();
    let mut add = |path: &Path| match nul {
        true => text.extend(path.as_os_str().as_bytes().iter().chain([&0])),
        false => text.extend((printable(path) + "\n").bytes()),
    };
    for change in told(changes) {
        // What goes is told, also where it goes by a move.
        if let Some(from) = change.source() {
            add(from);
        }
        add(&change.path);
    }
    text
}

/// Lines that come and go, by file, as `git diff --stat` has them.
pub fn stat<S: Source>(source: &mut S, changes: &[Change]) -> String {
    let rows: Vec<(String, Lines)> =
        told(changes).map(|change| (name(change), lines(source, change))).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let count = |lines: &Lines| match lines {
        Lines::Text(added, removed) => added + removed,
        _ => 0,
    };
    let most = rows.iter().map(|(_, lines)| count(lines)).max().unwrap_or_default();
    let digits = most.to_string().len();
    let (mut added, mut removed, mut text) = (0, 0, String::new());
    for (name, lines) in &rows {
        let _ = match lines {
            Lines::Text(plus, minus) => {
                (added, removed) = (added + plus, removed + minus);
                let bar = bar(*plus, *minus, most);
                let row = format!(" {name:<width$} | {:>digits$} {bar}", plus + minus);
                writeln!(text, "{}", row.trim_end())
            }
            Lines::Binary(old, new) => {
                writeln!(text, " {name:<width$} | Bin {old} -> {new} bytes")
            }
            Lines::Unseen(why) => writeln!(text, " {name:<width$} | cannot be read: {why}"),
        };
    }
    if !rows.is_empty() {
        let _ = writeln!(text, " {} changed, +{added} -{removed} lines", rows.len());
    }
    if let Some(sum) = sum(changes) {
        let _ = writeln!(text, " {sum}");
    }
    text
}

/// What `stat` says of a change.
enum Lines {
    Text(usize, usize),
    Binary(u64, u64),
    Unseen(String),
}

fn lines<S: Source>(source: &mut S, change: &Change) -> Lines {
    let same = change.verb == Verb::Attributes || change.conflict.is_some() && change.new.is_none();
    if same {
        return Lines::Text(0, 0);
    }
    match (read(source, change.old.as_ref()), read(source, change.new.as_ref())) {
        (Ok(Content::Text(old)), Ok(Content::Text(new))) => {
            let mut config = TextDiff::configure();
            config.algorithm(Algorithm::Myers).timeout(SEARCH_MAX);
            let diff = config.diff_lines(&*old, &*new);
            let count = |tag| diff.iter_all_changes().filter(|one| one.tag() == tag).count();
            Lines::Text(count(ChangeTag::Insert), count(ChangeTag::Delete))
        }
        (Ok(old), Ok(new)) => Lines::Binary(old.length(), new.length()),
        (Err(problem), _) | (_, Err(problem)) => {
            Lines::Unseen(crate::run::request::reason(&problem))
        }
    }
}

/// A bar of plus and minus signs, in proportion where it would be too long.
fn bar(added: usize, removed: usize, most: usize) -> String {
    let scaled = |count: usize| match most > BAR_MAX {
        true => (count * BAR_MAX).div_ceil(most),
        false => count,
    };
    "+".repeat(scaled(added)) + &"-".repeat(scaled(removed))
}

/// One JSON document: an object a change.
pub fn json(changes: &[Change]) -> io::Result<String> {
    let changes: Vec<_> = told(changes).collect();
    Ok(serde_json::to_string_pretty(&changes)? + "\n")
}
