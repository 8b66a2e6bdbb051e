//! What becomes of the changes when the command of a `husk run` has ended.
//!
//! ```text
//!   failed? ─ on_failure ─► dropped | kept under a name
//!      └─ --ask ─► review ─► all | some | none | kept under a name
//!      └─ otherwise ─► written back, or with --discard dropped
//! ```
//!
//! Invariants
//! 1. Of one who asks to be asked, nothing is written or dropped without an answer. Where the image
//!    cannot be kept under a name either, this process keeps it until it can be.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::failure::Failure;
use crate::named;
use crate::request::Settings;
use crate::review::Review;
use crate::review::dialogue::{Decision, Talk};
use crate::review::terminal::{Desk, Terminal};
use crate::say::{say, settle};
use crate::signals::Signals;
use crate::watch::End;
use crate::work::Work;

/// Before it is tried again to give an image away.
const AGAIN: Duration = Duration::from_secs(1);
/// What is said of whoever asks to be asked where that is not possible.
const CANNOT_ASK: &str = "cannot ask what to write back";

/// What becomes of the changes of a command that failed: its status is not 0, or a signal ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// They are written back, as always.
    #[default]
    Write,
    /// They are dropped.
    Discard,
    /// The image stays, under a name.
    Keep,
}

impl OnFailure {
    /// All, in the order of `NAMES`.
    pub const ALL: [OnFailure; 3] = [OnFailure::Write, OnFailure::Discard, OnFailure::Keep];
    /// As they are typed.
    pub const NAMES: [&str; 3] = ["write", "discard", "keep"];
}

/// What becomes of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// These paths are written back with what is below; all, where none is named.
    Written(Vec<PathBuf>),
    /// They are dropped.
    Dropped,
    /// The image stays. `undecided`: somebody was asked, and did not answer.
    Stays {
        /// Somebody was asked, and did not answer.
        undecided: bool,
    },
}

/// The terminal for `--ask`, before anything is started.
pub fn terminal(settings: &Settings) -> Result<Option<Terminal>, Failure> {
    if !settings.ask {
        return Ok(None);
    }
    let refuse = |why: &str, remedy: &str| Err(Failure::new(CANNOT_ASK, why, remedy));
    if settings.discard {
        return refuse("with --discard nothing is written back", "leave out one of the two");
    }
    if !settings.has_overlay() {
        return refuse("there is no overlay: changes go to the host", "name one: --overlay DIR");
    }
    match Terminal::open() {
        Ok(terminal) => Ok(Some(terminal)),
        Err(_) => {
            let remedy = "leave out --ask; --on-failure keep or `husk up` let you look later";
            refuse("there is no terminal", remedy)
        }
    }
}

/// A program that runs outside of the image writes at once.
pub fn refuse_native() -> Failure {
    let why = "this program runs outside of the image and changes files at once";
    Failure::new(CANNOT_ASK, why, "leave out --ask")
}

/// Decides. `terminal`: where to ask.
pub fn decide(
    end: End,
    settings: &Settings,
    runtime: &[u8],
    work: &mut Work,
    asked: Option<(&Terminal, &Signals)>,
) -> Fate {
    let failed = end != End::Exit(0);
    let of_discard = if settings.discard { Fate::Dropped } else { Fate::Written(Vec::new()) };
    match settings.on_failure {
        OnFailure::Discard if failed && !settings.discard => {
            say("the command failed: its changes are dropped");
            return Fate::Dropped;
        }
        OnFailure::Keep if failed => match kept(settings, runtime, work) {
            Ok(line) => {
                say(&format!("the command failed: {line}"));
                return Fate::Stays { undecided: false };
            }
            Err(failure) if asked.is_some() => say(&failure.to_string()),
            Err(failure) => {
                let what = if settings.discard { "dropped" } else { "written back" };
                say(&format!("{failure}; the changes are {what}"));
                return of_discard;
            }
        },
        _ => {}
    }
    let Some((terminal, signals)) = asked else { return of_discard };
    settle();
    ask(settings, runtime, work, &mut Desk::begin(terminal, signals))
}

/// Gives the image to a keeper and a supervisor; the line that says how to go on.
fn kept(settings: &Settings, runtime: &[u8], work: &Work) -> Result<String, Failure> {
    let kept = named::leave(settings, runtime, work);
    settle();
    let name = kept?;
    Ok(format!(
        "image {name} keeps its changes; `husk diff {name}` shows them, \
         `husk down {name}` writes them back, with --discard it drops them"
    ))
}

/// `--ask`.
fn ask(settings: &Settings, runtime: &[u8], work: &mut Work, talk: &mut impl Talk) -> Fate {
    loop {
        let mut review = Review::begin(work);
        if review.is_empty() {
            return Fate::Written(Vec::new());
        }
        let typed = match review.decide(talk) {
            Decision::All => return Fate::Written(Vec::new()),
            Decision::Some(paths) => return Fate::Written(paths),
            Decision::None => return Fate::Dropped,
            Decision::Keep { typed } => typed,
        };
        match kept(settings, runtime, work) {
            Ok(line) => say(&line),
            Err(failure) if typed => {
                talk.say(&format!("{failure}\n"));
                continue;
            }
            Err(failure) => hold_out(&failure, settings, runtime, work),
        }
        return Fate::Stays { undecided: !typed };
    }
}

/// Invariant 1.
fn hold_out(failure: &Failure, settings: &Settings, runtime: &[u8], work: &Work) {
    let pid = std::process::id();
    say(&format!(
        "{failure}; process {pid} keeps the changes until that works: `husk diff {pid}` shows them"
    ));
    loop {
        sleep(AGAIN);
        if let Ok(line) = kept(settings, runtime, work) {
            return say(&line);
        }
    }
}
