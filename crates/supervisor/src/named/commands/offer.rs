//! Shell completion of processes of an image, and of paths in one.
//!
//! Paths are listed by a program of the image, as its programs see them. An image that does not
//! answer offers nothing: completion cannot show an error.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::copy::{in_image, inside};
use super::programs::{Process, processes};
use crate::named::place::{Name, names};
use crate::output::progress::Onlooker;

/// Most that are offered: nobody reads more.
const OFFERED_MAX: usize = 1_000;
/// Most bytes of a listing.
const LISTING_BYTES_MAX: u64 = 1 << 20;
/// Longest that a listing may take: an image that hangs does not hang the shell.
const LISTING_TIME_MAX: Duration = Duration::from_secs(2);
/// The command for which a process need not be of an image that was named.
const ANYWHERE: &str = "explain";

/// Processes of the images among `words`, what has been typed so far; where none is, but that needs
/// none, of all.
pub fn numbers(words: &[OsString]) -> Vec<Process> {
    let all = names().unwrap_or_default();
    let typed =
        |name: &Name| words.iter().any(|word| word.as_os_str() == name.to_string().as_str());
    let mut meant: Vec<&Name> = all.iter().filter(|name| typed(name)).collect();
    if meant.is_empty() && words.iter().any(|word| word == ANYWHERE) {
        meant = all.iter().collect();
    }
    let of = |name: &Name| processes(OsStr::new(&name.to_string())).unwrap_or_default();
    let mut found: Vec<Process> = meant.into_iter().flat_map(of).collect();
    found.truncate(OFFERED_MAX);
    found
}

/// Words that begin with `word`: `NAME:` of images, or `NAME:PATH` in one.
pub fn paths(word: &OsStr) -> Vec<OsString> {
    let shown = word.as_bytes();
    let Some(colon) = shown.iter().position(|byte| *byte == b':') else {
        let names = names().unwrap_or_default().into_iter().map(|name| format!("{name}:"));
        let fitting = names.filter(|name| name.as_bytes().starts_with(shown));
        return fitting.map(OsString::from).collect();
    };
    let (before, path) = shown.split_at(colon + 1);
    // `NAME:` alone is no path yet.
    let name = in_image(OsStr::from_bytes(&[before, b"."].concat())).map(|found| found.0);
    let listed = name.and_then(|name| listed(&name, OsStr::from_bytes(path)));
    let lines = listed.unwrap_or_default();
    let full = |line: &[u8]| OsString::from_vec([before, line].concat());
    lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(full).collect()
}

/// What a program of the image finds below `path`, a line each.
fn listed(name: &Name, path: &OsStr) -> Option<Vec<u8>> {
    let words = ["offer".into(), "below".into(), "--".into(), path.to_owned()];
    let mut child = inside(name, &words, Stdio::null(), Stdio::piped()).ok()?;
    let asked = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok()?;
    let _patience = Onlooker::begin(move |over| {
        if !over.within(LISTING_TIME_MAX) {
            // Who has ended in this moment needs no end.
            let _ = pidfd_send_signal(&asked, Signal::KILL);
        }
    });
    let mut text = Vec::new();
    let read = child.stdout.take()?.take(LISTING_BYTES_MAX).read_to_end(&mut text);
    let ended = child.wait();
    (read.is_ok() && ended.is_ok_and(|status| status.success())).then_some(text)
}

/// Paths that begin with `path`; those of directories end with a slash.
pub fn below(path: &OsStr) -> Vec<OsString> {
    let bytes = path.as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, begun) = bytes.split_at(at);
    let looked = if directory.is_empty() { b"." } else { directory };
    let entries = fs::read_dir(Path::new(OsStr::from_bytes(looked))).into_iter().flatten();
    // Who wants to see hidden ones types the dot; no line holds two names.
    let fits = |name: &[u8]| {
        let seen = begun.starts_with(b".") || !name.starts_with(b".");
        seen && name.starts_with(begun) && !name.contains(&b'\n')
    };
    let names = entries.flatten().map(|entry| entry.file_name().into_vec());
    let mut found: Vec<_> = names.filter(|name| fits(name)).take(OFFERED_MAX).collect();
    found.sort_unstable();
    let full = |name: Vec<u8>| {
        let path = OsString::from_vec([directory, &name].concat());
        let slash: &[u8] = if Path::new(&path).is_dir() { b"/" } else { b"" };
        OsString::from_vec([path.as_bytes(), slash].concat())
    };
    found.into_iter().map(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_is_offered_with_what_was_typed_before_it() {
        let root = std::env::temp_dir().join(format!("husk-offer-{}", std::process::id()));
        fs::create_dir_all(root.join("tree")).unwrap();
        for name in ["text", ".hidden", "t\nw", "other"] {
            fs::write(root.join(name), "").unwrap();
        }
        let base = format!("{}/", root.display());
        let offered = |typed: &str| {
            let path = format!("{base}{typed}");
            let found = below(OsStr::new(&path)).into_iter();
            let names = found.map(|path| path.to_str().unwrap().replace(&base, ""));
            names.collect::<Vec<_>>()
        };
        assert_eq!(offered(""), ["other", "text", "tree/"]);
        assert_eq!(offered("t"), ["text", "tree/"]);
        assert_eq!(offered("."), [".hidden"]);
        assert_eq!(offered("tree/"), [""; 0]);
        assert_eq!(offered("none/"), [""; 0]);
        fs::remove_dir_all(&root).unwrap();
    }
}
