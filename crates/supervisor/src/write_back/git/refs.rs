//! Branches and tags of git whose file the host's git has put into `packed-refs` (`git gc`, `git
//! pack-refs`), while the image has changed them.
//!
//! The file of a reference counts before its line in `packed-refs`. So the image's file takes its
//! place again where the host has not moved the reference: its log there, as far as it goes, is the
//! image's, and ends with what is packed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::write_back::Source;
use crate::write_back::host::beneath::Beneath;
use crate::write_back::plan::derived::{bytes_at, bytes_of_image};
use husk_proto::Inode;

/// Where `packed-refs` is, and the name of the reference that `target` is the file of.
fn reference(beneath: &Beneath, target: &Path) -> Option<(PathBuf, PathBuf)> {
    let roots = target.ancestors().skip(1).filter(|above| above.ends_with("refs"));
    let mut roots = roots.filter_map(Path::parent);
    let is_file = |path: PathBuf| beneath.found(&path).ok().flatten().is_some();
    let root =
        roots.find(|root| is_file(root.join("HEAD")) && is_file(root.join("packed-refs")))?;
    Some((root.to_owned(), target.strip_prefix(root).ok()?.to_owned()))
}

/// What a reference is in the bytes of `packed-refs`.
fn packed<'a>(bytes: &'a [u8], name: &Path) -> Option<&'a [u8]> {
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#"));
    let mut named = lines.filter_map(|line| {
        let space = line.iter().position(|&byte| byte == b' ')?;
        Some((&line[..space], &line[space + 1..]))
    });
    named.find(|(_, of)| *of == name.as_os_str().as_bytes()).map(|(object, _)| object)
}

/// What a reference was after the last line of its log: the second word.
fn last(log: &[u8]) -> Option<&[u8]> {
    let line = log.strip_suffix(b"\n")?.rsplit(|&byte| byte == b'\n').next()?;
    line.split(|&byte| byte == b' ').nth(1)
}

/// Whether the host's git has only packed the reference whose file `target` was, which the image
/// has changed in its directory `dir`.
pub fn is_only_packed<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    target: &Path,
    dir: Inode,
) -> bool {
    let mut look = || {
        let (root, name) = reference(beneath, target)?;
        let all = bytes_at(beneath, &root.join("packed-refs"))?;
        let log = bytes_at(beneath, &root.join("logs").join(&name))?;
        let mut here = dir;
        for _ in name.parent()?.components() {
            here = source.parent(here).ok()?;
        }
        for part in Path::new("logs").join(&name).components() {
            here = source.lookup(here, part.as_os_str().as_bytes()).ok()?.inode;
        }
        let ours = bytes_of_image(source, here)?;
        Some(ours.starts_with(&log) && packed(&all, &name)? == last(&log)?)
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_found_among_packed_ones() {
        let all = b"# pack-refs with: peeled fully-peeled sorted\nab12 refs/heads/main\n\
            cd34 refs/tags/v1\n^ef56\n";
        assert_eq!(packed(all, Path::new("refs/heads/main")), Some(&b"ab12"[..]));
        assert_eq!(packed(all, Path::new("refs/tags/v1")), Some(&b"cd34"[..]));
        assert_eq!(packed(all, Path::new("refs/heads/mai")), None);
        assert_eq!(packed(b"", Path::new("refs/heads/main")), None);
    }

    #[test]
    fn the_end_of_a_log_is_what_the_reference_was() {
        assert_eq!(
            last(b"00 ab Who <w> 1 +0000\tcommit\nab cd Who <w> 2 +0000\tcommit\n"),
            Some(&b"cd"[..])
        );
        assert_eq!(last(b"00 ab Who"), None, "it is being written");
        assert_eq!(last(b""), None);
    }
}
