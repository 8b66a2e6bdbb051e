//! The questions after a command, and the decision that the answers lead to.
//!
//! ```text
//!   summary ─► all | none | keep ──────────────────────────► decision
//!      ▲ '───► look: the patch in a pager
//!      '─────► some: patterns, or one change after the other ─► what that comes to ─► decision
//! ```
//!
//! Invariants
//! 1. Only a word that was typed writes or drops anything. Whoever has gone (end of input, Ctrl-C)
//!    has decided nothing: the image is kept.
//! 2. What is written was shown before: a choice that brings more with it (the other end of a move)
//!    is shown as it will be written, and asked for again.

use std::path::PathBuf;

use super::choice::{self, Unit};
use super::summary::{brief, rest};
use crate::differences::change::Change;

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A line, without its end.
    Line(String),
    /// Nothing, and nothing more will be.
    Gone,
}

/// Somebody who is asked.
pub trait Talk {
    /// Shows lines.
    fn say(&mut self, text: &str);
    /// Asks for a line.
    fn ask(&mut self, question: &str) -> Reply;
    /// Shows a long text, page by page.
    fn page(&mut self, text: &[u8]);
    /// Lines that are seen at once.
    fn rows(&self) -> usize;
}

/// What there is to decide about.
pub trait Changes {
    /// All changes.
    fn found(&self) -> &[Change];
    /// What would not be written, a line each.
    fn unseen(&self) -> &[String];
    /// Some of them as a patch, by their places in `found`.
    fn patch(&mut self, of: &[usize]) -> Vec<u8>;
    /// What a write-back of these paths alone comes to.
    fn with(&mut self, paths: &[PathBuf]) -> Vec<Change>;
}

/// What becomes of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// They are written back.
    All,
    /// These and what is below are; the rest is dropped.
    Some(Vec<PathBuf>),
    /// They are dropped.
    None,
    /// The image stays. `typed`: that was the answer, not the lack of one.
    Keep {
        /// It was the answer.
        typed: bool,
    },
}

const QUESTION: &str = "Write back? [a]ll, [n]one, [s]ome, [l]ook, [k]eep, [?]: ";
const HELP: &str = "\
a  write all changes back
n  write nothing back: the changes are dropped
s  choose the paths to write back; the others are dropped
l  look at the changes as a patch
k  keep the image under a name and decide later, as Ctrl-C and Ctrl-D do
";
const PATTERNS: &str = "\
Name what to write back, one path or pattern a line (* ? [a-z], ** for any directories; without /
it means a name anywhere; ! in front takes away). An empty line ends the list; an empty list asks
for each change.
";
const EACH: &str = "[y]es, [n]o, [l]ook, [a]ll the rest, [d]one, [b]ack";
const EACH_HELP: &str = "\
y  write it back
n  drop it
o  ask for each change in the directory
l  look at it as a patch
a  write it and all that follow back
d  drop it and all that follow
b  back to the first question
";

/// A step back, or a decision.
type Step<T> = Result<T, Option<Decision>>;

const GONE: Option<Decision> = Some(Decision::Keep { typed: false });

/// Asks until something is decided.
pub fn decide(talk: &mut impl Talk, changes: &mut impl Changes) -> Decision {
    loop {
        let rows = talk.rows();
        let unseen = changes.unseen().iter();
        let unseen: String = unseen.map(|line| format!("not to be written: {line}\n")).collect();
        talk.say(&(brief(changes.found(), rows) + &unseen));
        if let Some(decision) = ask(talk, changes) {
            return decision;
        }
    }
}

/// Asks about what was shown. `None`: it is to be shown again.
fn ask(talk: &mut impl Talk, changes: &mut impl Changes) -> Option<Decision> {
    loop {
        let Reply::Line(line) = talk.ask(QUESTION) else { return GONE };
        match line.as_str() {
            "a" | "all" | "y" | "yes" => return Some(Decision::All),
            "n" | "none" | "no" => return Some(Decision::None),
            "k" | "keep" => return Some(Decision::Keep { typed: true }),
            "s" | "some" => return some(talk, changes).err().flatten(),
            "l" | "look" => {
                let all: Vec<usize> = (0..changes.found().len()).collect();
                talk.page(&changes.patch(&all));
            }
            _ => talk.say(HELP),
        }
    }
}

/// Chooses paths. `Ok` never: what is chosen is a decision, too.
fn some(talk: &mut impl Talk, changes: &mut impl Changes) -> Step<()> {
    let chosen = match by_patterns(talk, changes.found())? {
        Some(chosen) => chosen,
        None => one_by_one(talk, changes)?,
    };
    let paths = choice::paths(changes.found(), &chosen);
    if paths.is_empty() {
        talk.say("Nothing is chosen.\n");
        return Err(None);
    }
    let taken = changes.with(&paths);
    talk.say(&format!("To be written back:\n{}", brief(&taken, talk.rows())));
    talk.say(&rest(changes.found(), &taken));
    loop {
        let Reply::Line(line) = talk.ask("Do that? [y]es, [n]o: ") else { return Err(GONE) };
        match line.as_str() {
            "y" | "yes" => return Err(Some(Decision::Some(paths))),
            "n" | "no" | "b" => return Err(None),
            _ => {}
        }
    }
}

/// Chooses by patterns, changes by their places. `None`: no pattern was typed.
fn by_patterns(talk: &mut impl Talk, changes: &[Change]) -> Step<Option<choice::Chosen>> {
    talk.say(PATTERNS);
    let mut chosen = None;
    loop {
        let Reply::Line(line) = talk.ask("path or pattern: ") else { return Err(GONE) };
        if line.is_empty() {
            return Ok(chosen);
        }
        let (word, away) = match line.strip_prefix('!') {
            Some(word) => (word, true),
            None => (line.as_str(), false),
        };
        match choice::matching(changes, word) {
            Err(why) => talk.say(&format!("{word}: {why}\n")),
            Ok(found) if found.is_empty() => talk.say(&format!("{word}: no change matches\n")),
            Ok(found) => {
                let all = chosen.get_or_insert_with(choice::Chosen::new);
                let count = found.len();
                for index in found {
                    if away {
                        all.remove(&index)
                    } else {
                        all.insert(index)
                    };
                }
                let what = if away { "taken away" } else { "chosen" };
                talk.say(&format!("{what}: {count}; {} in all\n", all.len()));
            }
        }
    }
}

/// Asks for one change after the other.
fn one_by_one(talk: &mut impl Talk, changes: &mut impl Changes) -> Step<choice::Chosen> {
    let mut chosen = choice::Chosen::new();
    let mut open: Vec<Unit> = choice::units(changes.found(), 0..changes.found().len());
    open.reverse();
    while let Some(unit) = open.pop() {
        let question = format!("{}\n{}: ", unit.line(changes.found()), each(&unit));
        loop {
            let Reply::Line(line) = talk.ask(&question) else { return Err(GONE) };
            match line.as_str() {
                "y" | "yes" => chosen.extend(unit.members()),
                "n" | "no" => {}
                "a" | "all" => {
                    chosen.extend(unit.members());
                    open.drain(..).for_each(|unit| chosen.extend(unit.members()));
                }
                "d" | "done" => open.clear(),
                "b" | "back" => return Err(None),
                "o" | "open" if unit.is_divisible() => {
                    let parts = choice::parts(changes.found(), &unit);
                    open.extend(parts.into_iter().rev());
                }
                "l" | "look" => {
                    let members: Vec<usize> = unit.members().collect();
                    talk.page(&changes.patch(&members));
                    continue;
                }
                _ => {
                    talk.say(EACH_HELP);
                    continue;
                }
            }
            break;
        }
    }
    choice::complete(changes.found(), &mut chosen);
    Ok(chosen)
}

fn each(unit: &Unit) -> String {
    let open = if unit.is_divisible() { "[o]pen, " } else { "" };
    format!("{open}{EACH}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::choice::tests::several;

    /// Somebody who answers from a list, and then no more.
    struct Script {
        answers: Vec<&'static str>,
        seen: String,
        pages: usize,
    }

    impl Talk for Script {
        fn say(&mut self, text: &str) {
            self.seen += text;
        }

        fn ask(&mut self, question: &str) -> Reply {
            self.seen += question;
            match self.answers.is_empty() {
                true => Reply::Gone,
                false => Reply::Line(self.answers.remove(0).to_owned()),
            }
        }

        fn page(&mut self, text: &[u8]) {
            self.pages += 1;
            self.seen += &String::from_utf8_lossy(text);
        }

        fn rows(&self) -> usize {
            24
        }
    }

    /// `several`; a choice brings nothing with it.
    struct Fixed(Vec<Change>);

    impl Changes for Fixed {
        fn found(&self) -> &[Change] {
            &self.0
        }

        fn unseen(&self) -> &[String] {
            &[]
        }

        fn patch(&mut self, of: &[usize]) -> Vec<u8> {
            format!("patch of {}\n", of.len()).into_bytes()
        }

        fn with(&mut self, paths: &[PathBuf]) -> Vec<Change> {
            let is_in = |change: &&Change| paths.iter().any(|p| change.target().starts_with(p));
            self.0.iter().filter(is_in).cloned().collect()
        }
    }

    fn decided(answers: &[&'static str]) -> (Decision, Script) {
        let mut script = Script { answers: answers.to_vec(), seen: String::new(), pages: 0 };
        let decision = decide(&mut script, &mut Fixed(several()));
        assert!(script.answers.is_empty(), "{:?} left: {}", script.answers, script.seen);
        (decision, script)
    }

    fn some(paths: &[&str]) -> Decision {
        Decision::Some(paths.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn only_words_decide() {
        assert_eq!(decided(&["a"]).0, Decision::All);
        assert_eq!(decided(&["", "what", "?", "none"]).0, Decision::None);
        assert_eq!(decided(&["keep"]).0, Decision::Keep { typed: true });
    }

    #[test]
    fn whoever_goes_keeps_the_image_wherever_it_was_asked() {
        let before: [&[&str]; 7] =
            [&[], &["?"], &["l"], &["s"], &["s", "a"], &["s", "", "y"], &["s", "*.o", "", "what"]];
        for answers in before {
            assert_eq!(decided(answers).0, Decision::Keep { typed: false }, "{answers:?}");
        }
    }

    #[test]
    fn paths_are_chosen_by_patterns_and_shown_before_they_are_written() {
        let (decision, script) = decided(&["s", "*.o", "!old", "nothing", "", "y"]);
        assert_eq!(decision, some(&["/o/a/b.o", "/o/src/b.o"]));
        assert!(script.seen.contains("nothing: no change matches\n"), "{}", script.seen);
        let shown = "To be written back:\nA  a/b.o\nM  src/b.o\n1 added, 1 changed\n";
        assert!(script.seen.contains(shown), "{}", script.seen);
        let dropped = "to be dropped: 2 added, 1 changed, 2 removed (removed: old/, old/b.o)\n";
        assert!(script.seen.contains(dropped), "{}", script.seen);
        assert_eq!(decided(&["s", "*.o", "", "n", "n"]).0, Decision::None);
    }

    #[test]
    fn each_change_is_asked_for_and_a_tree_at_once_or_by_its_parts() {
        let (decision, script) = decided(&["s", "", "l", "o", "y", "n", "n", "y", "n", "y"]);
        assert_eq!(decision, some(&["/o/a/b.o", "/o/old", "/o/old/b.o"]), "{}", script.seen);
        assert_eq!(script.pages, 1);
        assert!(script.seen.contains("patch of 3\n"), "{}", script.seen);
        let (decision, _) = decided(&["s", "", "n", "a", "y"]);
        assert_eq!(decision, some(&["/o/a.txt", "/o/old", "/o/old/b.o", "/o/src/b.o"]));
        assert_eq!(decided(&["s", "", "d", "n"]).0, Decision::None);
        assert_eq!(decided(&["s", "", "b", "a"]).0, Decision::All);
    }
}
