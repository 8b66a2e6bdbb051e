//! Decides, before anything is written, what a `husk run` does if there is no room for its changes.
//!
//! ```text
//!   changes ─► bytes ─► room? ─ yes ─► write-back
//!                         └ no ─► a terminal? ─ yes ─► retry | other directory | keep | discard
//!                                     └ no ───► the image stays under a name
//! ```
//!
//! Invariants
//! 1. Whoever does not answer keeps the image, as in a review.

use std::path::{Path, PathBuf};

use crate::differences::change::{Bytes, Change, What};
use crate::review::dialogue::{Reply, Talk};
use crate::run::request::size;

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Look again.
    Retry,
    /// What does not fit is saved in this directory.
    Into(PathBuf),
    /// The image stays.
    Keep,
    /// The changes are dropped.
    Discard,
}

const QUESTION: &str = "[r]etry, [o]ther directory, [k]eep under a name, [d]iscard: ";
const HELP: &str = "\
r  look again, when there is room
o  write back what fits, and save the rest in a directory of your choice
k  keep the image under a name, as Ctrl-C and Ctrl-D do; nothing is written
d  drop the changes
";

/// Bytes that a write-back of these changes makes at least: a file that has become longer may get
/// its end alone (`write_back::grow`), and holes take no room.
pub fn bytes_of(changes: &[Change]) -> u64 {
    changes.iter().filter_map(bytes_at_least).sum()
}

fn bytes_at_least(change: &Change) -> Option<u64> {
    let new = change.new.as_ref().filter(|new| matches!(new.bytes, Bytes::Image(_)))?;
    let old = change.old.as_ref().filter(|old| old.what == What::File && old.size < new.size);
    Some((new.size - old.map_or(0, |old| old.size)).min(new.held))
}

/// What there is no room for, in words.
pub fn told(overlay: &Path, bytes: u64) -> String {
    format!("no room for {} in {}", about(bytes), overlay.display())
}

fn about(bytes: u64) -> String {
    if bytes < 1 << 20 { size(bytes.next_multiple_of(1024)) } else { format!("{}M", bytes >> 20) }
}

/// Asks what becomes of changes that find no room. `take`: whether a directory takes the rest.
pub fn ask(talk: &mut impl Talk, told: &str, take: impl Fn(&Path) -> Result<(), String>) -> Answer {
    talk.say(&format!("{told}\n"));
    loop {
        let Reply::Line(line) = talk.ask(QUESTION) else { return Answer::Keep };
        match line.as_str() {
            "r" | "retry" => return Answer::Retry,
            "k" | "keep" => return Answer::Keep,
            "d" | "discard" => return Answer::Discard,
            "o" | "other" => {
                let Reply::Line(line) = talk.ask("directory: ") else { return Answer::Keep };
                let path = PathBuf::from(&line);
                match take(&path) {
                    _ if line.is_empty() => {}
                    Ok(()) => return Answer::Into(path),
                    Err(why) => talk.say(&format!("{line}: {why}\n")),
                }
            }
            _ => talk.say(HELP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differences::change::{Thing, Verb};
    use husk_proto::Inode;

    struct Script(Vec<&'static str>, String);

    impl Talk for Script {
        fn say(&mut self, text: &str) {
            self.1 += text;
        }

        fn ask(&mut self, _: &str) -> Reply {
            match self.0.is_empty() {
                true => Reply::Gone,
                false => Reply::Line(self.0.remove(0).to_owned()),
            }
        }

        fn page(&mut self, _: &[u8]) {}

        fn rows(&self) -> usize {
            24
        }
    }

    fn thing(size: u64, held: u64, bytes: Bytes) -> Thing {
        let (what, mode, owner, modified_ns) = (What::File, 0o644, (0, 0), 0);
        Thing { what, mode, owner, size, held, modified_ns, bytes }
    }

    #[test]
    fn what_grows_needs_room_for_its_end_and_holes_need_none() {
        let image =
            |size, held| Some(thing(size, held, Bytes::Image(Inode { number: 1, generation: 0 })));
        let host = |size| Some(thing(size, size, Bytes::Host(PathBuf::new())));
        let cases = [
            (None, image(9000, 9216), 9000),
            (host(8000), image(9000, 9216), 1000),
            (host(9000), image(9000, 9216), 9000),
            (None, image(1 << 30, 4096), 4096),
            (host(9000), None, 0),
            (None, host(9000), 0),
        ];
        for (old, new, bytes) in cases {
            let (verb, overlay, path) = (Verb::Changed, PathBuf::new(), PathBuf::new());
            let (from, extended, conflict, implied) = (None, false, None, false);
            let change =
                Change { verb, overlay, path, from, old, new, extended, conflict, implied };
            assert_eq!(bytes_of(std::slice::from_ref(&change)), bytes, "{change:?}");
        }
    }

    #[test]
    fn only_a_word_drops_anything_and_who_goes_keeps_the_image() {
        let take = |path: &Path| match path == Path::new("/fits") {
            true => Ok(()),
            false => Err("no room".to_owned()),
        };
        let answers: [(&[&'static str], Answer); 7] = [
            (&["r"], Answer::Retry),
            (&["x", "", "discard"], Answer::Discard),
            (&["k"], Answer::Keep),
            (&[], Answer::Keep),
            (&["o"], Answer::Keep),
            (&["o", "/full", "o", "", "o", "/fits"], Answer::Into("/fits".into())),
            (&["?"], Answer::Keep),
        ];
        for (typed, answer) in answers {
            let mut script = Script(typed.to_vec(), String::new());
            assert_eq!(ask(&mut script, "no room", take), answer, "{typed:?}");
            assert!(script.0.is_empty() && script.1.starts_with("no room\n"));
        }
    }
}
