//! Prints changes as a patch in git's format, for `git apply` and GNU `patch -p1`.
//!
//! What such a patch cannot say (owners, devices, empty directories, bytes that are no text) is a
//! line that both skip. Those of files that are no text come first: behind the head of a patch
//! without lines, git would take such a line for its body.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use similar::{Algorithm, TextDiff};

use super::change::{Change, Thing, Verb, What};
use super::content::{Content, read};
use crate::write_back::Source;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// How long a better patch of one file is looked for; one that is right is found in no time.
const SEARCH_MAX: Duration = Duration::from_secs(2);
/// Bit of a mode that git knows.
const EXECUTABLE: u32 = 0o100;

/// Writes the changes as one patch. `several`: say of which overlay each part is.
pub fn patch<S: Source>(
    source: &mut S,
    changes: &[Change],
    several: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for overlay in changes.chunk_by(|one, two| one.overlay == two.overlay) {
        if several {
            writeln!(out, "# in {}", printable(&overlay[0].overlay))?;
        }
        let mut parts = Vec::new();
        for change in overlay {
            let mut body = Vec::new();
            one(source, change, &mut body, out)?;
            parts.push(body);
        }
        parts.iter().try_for_each(|part| out.write_all(part))?;
    }
    Ok(())
}

/// One change: its part of the patch to `body`, and what goes in front of all parts to `front`.
fn one<S: Source>(
    source: &mut S,
    change: &Change,
    body: &mut dyn Write,
    front: &mut dyn Write,
) -> io::Result<()> {
    let name = printable(&change.path);
    if let Some(why) = &change.conflict {
        writeln!(front, "# conflict: {name} {why}")?;
    }
    if let Some(line) = beside(change) {
        writeln!(front, "# {name}: {line}")?;
    }
    let is_said = |thing: &Option<Thing>| {
        thing.as_ref().is_none_or(|one| matches!(one.what, What::File | What::Symlink))
    };
    let aside = change.conflict.is_some() && change.new.is_none();
    if !is_said(&change.old) || !is_said(&change.new) || aside {
        return Ok(());
    }
    // Another kind of object: one goes, another appears.
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.what != new.what
    {
        part(source, change, Some(old), None, body, front)?;
        return part(source, change, None, Some(new), body, front);
    }
    part(source, change, change.old.as_ref(), change.new.as_ref(), body, front)
}

fn part<S: Source>(
    source: &mut S,
    change: &Change,
    old: Option<&Thing>,
    new: Option<&Thing>,
    body: &mut dyn Write,
    front: &mut dyn Write,
) -> io::Result<()> {
    let before = change.source().filter(|_| change.verb == Verb::Moved).unwrap_or(&change.path);
    let (one, two) = (quoted("a/", before), quoted("b/", &change.path));
    let same = change.verb == Verb::Attributes || old.map(|t| &t.bytes) == new.map(|t| &t.bytes);
    let texts = match same {
        true => None,
        false => match (read(source, old), read(source, new)) {
            (Ok(Content::Text(old)), Ok(Content::Text(new))) => Some((old, new)),
            (Ok(old), Ok(new)) => {
                let (old, new) = (old.length(), new.length());
                return writeln!(
                    front,
                    "Binary files {one} and {two} differ ({old} -> {new} bytes)"
                );
            }
            (Err(problem), _) | (_, Err(problem)) => {
                let why = crate::run::request::reason(&problem);
                return writeln!(front, "# {}: cannot be read: {why}", printable(&change.path));
            }
        },
    };
    let texts = texts.filter(|(old, new)| old != new);
    let moved = (before != change.path).then_some((before, &*change.path));
    head(old, new, (&one, &two), moved, texts.is_none(), body)?;
    let Some((before, after)) = texts else { return Ok(()) };
    let from = if old.is_some() { &*one } else { "/dev/null" };
    let to = if new.is_some() { &*two } else { "/dev/null" };
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers).timeout(SEARCH_MAX);
    let diff = config.diff_lines(&*before, &*after);
    let mut unified = diff.unified_diff();
    unified.context_radius(CONTEXT_LINES).header(&ended(from), &ended(to)).to_writer(body)
}

/// The head of one file's part; nothing where it would say nothing.
fn head(
    old: Option<&Thing>,
    new: Option<&Thing>,
    (one, two): (&str, &str),
    moved: Option<(&Path, &Path)>,
    without_lines: bool,
    body: &mut dyn Write,
) -> io::Result<()> {
    let modes = (old.map(mode), new.map(mode));
    if without_lines && moved.is_none() && modes.0 == modes.1 {
        return Ok(());
    }
    // One that appears or goes has one name, on both sides.
    writeln!(body, "diff --git {one} {two}")?;
    match modes {
        (None, Some(mode)) => writeln!(body, "new file mode {mode}")?,
        (Some(mode), None) => writeln!(body, "deleted file mode {mode}")?,
        (Some(old), Some(new)) if old != new => writeln!(body, "old mode {old}\nnew mode {new}")?,
        _ => {}
    }
    let Some((from, to)) = moved else { return Ok(()) };
    if without_lines {
        writeln!(body, "similarity index 100%")?;
    }
    writeln!(body, "rename from {}\nrename to {}", quoted("", from), quoted("", to))
}

/// What no patch says of a change.
fn beside(change: &Change) -> Option<String> {
    let mut said = Vec::new();
    let thing = change.thing()?;
    if !matches!(thing.what, What::File | What::Symlink) {
        let verb = match change.verb {
            Verb::Added => "added",
            Verb::Changed => "changed",
            Verb::Removed => "removed",
            Verb::Moved => "moved",
            Verb::Attributes => "attributes",
        };
        said.push(format!("{} {verb}", thing.name()));
        said.extend(change.source().map(|from| format!("from {}", printable(from))));
    }
    said.extend(attributes(change, true));
    (!said.is_empty()).then(|| said.join(", "))
}

/// Attributes that change, in words. `beyond_git`: but for those that a patch says.
pub fn attributes(change: &Change, beyond_git: bool) -> Vec<String> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Vec::new() };
    let says = |kind: &&str| match *kind {
        "mode" => !beyond_git || new.what != What::File || (old.mode ^ new.mode) != 0o111,
        // Who changes bytes changes the time.
        "times" => change.verb == Verb::Attributes,
        _ => true,
    };
    let attributes = change.attributes();
    let said = attributes.iter().filter(|kind| says(kind)).map(|kind| match *kind {
        "mode" => format!("mode {:04o} -> {:04o}", old.mode, new.mode),
        "owner" => {
            let ((uid, gid), (user, group)) = (old.owner, new.owner);
            format!("owner {uid}:{gid} -> {user}:{group}")
        }
        "times" => "modification time".to_owned(),
        _ => "extended attributes".to_owned(),
    });
    said.collect()
}

/// A mode as git has it.
fn mode(thing: &Thing) -> &'static str {
    match thing.what {
        What::Symlink => "120000",
        _ if thing.mode & EXECUTABLE != 0 => "100755",
        _ => "100644",
    }
}

/// A name with blanks ends with a tab, so that `patch` knows where.
fn ended(name: &str) -> String {
    if name.contains(' ') && !name.starts_with('"') { format!("{name}\t") } else { name.to_owned() }
}

/// A name as git writes it: in quotes, where it could be taken for something else.
pub fn quoted(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: u8| byte >= b' ' && byte != 0x7f && byte != b'"' && byte != b'\\';
    if let Some(text) = path.to_str().filter(|_| bytes.iter().all(|&byte| plain(byte))) {
        return format!("{prefix}{text}");
    }
    let mut name = format!("\"{prefix}");
    for &byte in bytes {
        match byte {
            b'\n' => name.push_str("\\n"),
            b'\t' => name.push_str("\\t"),
            b'"' => name.push_str("\\\""),
            b'\\' => name.push_str("\\\\"),
            byte if plain(byte) && byte < 0x80 => name.push(byte.into()),
            byte => name.push_str(&format!("\\{byte:03o}")),
        }
    }
    name.push('"');
    name
}

/// A path on one line, for people.
pub fn printable(path: &Path) -> String {
    quoted("", path)
}
