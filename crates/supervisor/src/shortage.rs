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

use crate::differences::change::{Bytes, Change};
use crate::request::size;
use crate::review::dialogue::{Reply, Talk};

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

/// Bytes that a write-back of these changes makes.
pub fn bytes_of(changes: &[Change]) -> u64 {
    let new = changes.iter().filter_map(|change| change.new.as_ref());
    new.filter(|thing| matches!(thing.bytes, Bytes::Image(_))).map(|thing| thing.size).sum()
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
