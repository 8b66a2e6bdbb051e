//! Decides what to do with the changes when the command of a `husk run` has ended.
//!
//! ```text
//!   failed? ─ on_failure ─► dropped | kept under a name
//!      └─ --ask ─► review ─► all | some | none | kept under a name
//!      └─ otherwise ─► written back, or with --discard dropped
//!   to be written: room? ─ no ─► shortage: asked, or kept under a name
//! ```
//!
//! Invariants
//! 1. Of one who asks to be asked, nothing is written or dropped without an answer. Where the image
//!    cannot be kept under a name either, this process keeps it until it can be.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::image::work::Work;
use crate::named;
use crate::output::failure::Failure;
use crate::output::{say, settle};
use crate::process::main_loop::End;
use crate::process::signals::Signals;
use crate::review::Review;
use crate::review::dialogue::{Decision, Talk};
use crate::review::terminal::{Desk, Terminal};
use crate::run::request::Settings;
use crate::run::room;
use crate::run::shortage::{self, Answer};

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

/// Decides. `terminal`: where to ask, if that was wished for.
pub fn decide(
    end: End,
    settings: &Settings,
    runtime: &[u8],
    work: &mut Work,
    (terminal, signals): (Option<&Terminal>, &Signals),
) -> Fate {
    let asked = terminal.map(|terminal| (terminal, signals));
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
    let fate = match asked {
        None => of_discard,
        Some((terminal, signals)) => {
            settle();
            ask(settings, runtime, work, &mut Desk::begin(terminal, signals))
        }
    };
    match fate {
        Fate::Written(paths) => written(paths, settings, runtime, work, signals),
        other => other,
    }
}

/// What is to be written finds room, or somebody decides.
fn written(
    paths: Vec<PathBuf>,
    settings: &Settings,
    runtime: &[u8],
    work: &mut Work,
    signals: &Signals,
) -> Fate {
    let mut terminal = None;
    loop {
        if work.finds_room() {
            return Fate::Written(paths);
        }
        let bytes = Review::begin(work).bytes(&paths);
        let Some(overlay) = work.lacks_room(bytes) else { return Fate::Written(paths) };
        let told = shortage::told(&overlay, bytes);
        if terminal.is_none() {
            settle();
            terminal = Terminal::open().ok().filter(Terminal::is_in_front);
        }
        let take = |path: &Path| takes(path, bytes);
        let answer = terminal
            .as_ref()
            .map(|terminal| shortage::ask(&mut Desk::begin(terminal, signals), &told, take));
        match answer {
            Some(Answer::Retry) => {}
            Some(Answer::Discard) => return Fate::Dropped,
            Some(Answer::Into(base)) => {
                work.save_in(base);
                return Fate::Written(paths);
            }
            None | Some(Answer::Keep) => match kept(settings, runtime, work) {
                Ok(line) => {
                    say(&format!("{told}: {line}"));
                    return Fate::Stays { undecided: true };
                }
                Err(failure) if answer.is_none() => {
                    say(&format!("{told}; {failure}; what fits is written back"));
                    return Fate::Written(paths);
                }
                Err(failure) => {
                    say(&failure.to_string());
                    // Whoever has gone is not asked in a circle.
                    sleep(AGAIN);
                }
            },
        }
    }
}

/// Whether a directory takes what is not written.
fn takes(path: &Path, bytes: u64) -> Result<(), String> {
    match fs::metadata(path) {
        Err(problem) => Err(crate::run::request::reason(&problem)),
        Ok(found) if !found.is_dir() => Err("it is not a directory".to_owned()),
        Ok(_) if !room::takes(path, bytes) => Err("no room, or no permission".to_owned()),
        Ok(_) => Ok(()),
    }
}

/// Gives the image to a keeper and a supervisor; the line that says how to go on.
pub fn kept(settings: &Settings, runtime: &[u8], work: &Work) -> Result<String, Failure> {
    let kept = named::leave(settings, runtime, work);
    settle();
    let name = kept?;
    Ok(named::keeps(&name))
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
