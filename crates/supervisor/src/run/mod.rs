//! `husk run`: from the request to the exit status.
//!
//! The run ends when the program has ended. Processes that still run get a moment, then SIGHUP,
//! SIGTERM and SIGKILL (`descent`); then the overlays are written back, so that nothing changes the
//! image meanwhile.
//!
//! Exit status: the program's own; 125 when Husk failed, or when the program succeeded and not all
//! of its changes could be written back as they were. Where a signal ended the program, the same
//! one ends this process, once all that is done: a shell's loop ends with the program by Ctrl-C.

pub mod fate;
pub mod launch;
pub mod limits;
pub(crate) mod neighbours;
pub mod program;
pub mod request;
pub(crate) mod room;
pub(crate) mod shortage;
pub mod umask;
pub mod variables;
pub(crate) mod whole;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use husk_proto::place::Origin;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::config::Config;
use crate::image::descriptors::{hand_down, inherited, loader};
use crate::image::work::{
    Ended, Work, ensure_able, lift_file_size_limit, set_file_size_limit, take_signals,
};
use crate::named::Guard;
use crate::nodes;
use crate::output::failure::{Failure, STATUS_HUSK, STATUS_SIGNAL_BASE};
use crate::output::interrupts::Interrupts;
use crate::output::progress::Progress;
use crate::output::{say, say_aside, settle};
use crate::process::main_loop::{Burial, End, watch};
use crate::process::oom;
use crate::process::reaper::{self, Descendants, Programs};
use crate::process::signals::Signals;
use crate::write_back::progress::ProgressLine;
use crate::write_back::tally::Tally;
use fate::{Fate, OnFailure};
use launch::HandOver;
use program::Program;
use request::{Request, Settings};
use variables::Variables;

/// Runs a command in a new image; `runtime` is the runtime's binary. Returns the exit status,
/// unless a signal ended the command.
pub fn run(request: Request, command: &[OsString], runtime: &[u8]) -> Result<u8, Failure> {
    let config = Config::load()?;
    config.notes().for_each(|note| say(&format!("note: {note}")));
    let variables = Variables::of(&config);
    let settings = config.complete(request).settle()?;
    settings.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let all = settings.nodes.max(settings.hosts.len() as u32 + 1);
    nodes::settle_asked(std::env::var_os(nodes::NODE_NAME).as_deref(), all)?;
    let Some(typed) = command.first() else {
        return Err(Failure::new("nothing to run", "no command given", "add: -- COMMAND"));
    };
    let has_volumes = !settings.volumes.is_empty();
    if has_volumes && (settings.ask || settings.on_failure == OnFailure::Keep) {
        let why = "a kept image cannot take over volumes so far";
        let remedy = "leave out --volume, or --ask and --on-failure keep";
        return Err(Failure::new("cannot keep the image", why, remedy));
    }
    let end = match program::look(typed, &settings.mounts)? {
        Program::Image(path) => in_image(&settings, command, &variables, &path, runtime)?,
        Program::Native(path) if settings.sealed => {
            say(&program::plain_note(&path));
            in_image(&settings, command, &variables, &path, runtime)?
        }
        Program::Native(_) if settings.ask => return Err(fate::refuse_native()),
        Program::Native(path) if has_volumes => {
            let what = format!("cannot run {} with a volume", path.display());
            let why = "its calls cannot be caught, and its files would be the host's";
            return Err(Failure::new(what, why, "leave out --volume"));
        }
        Program::Native(path) => natively(command, &path)?,
    };
    Ok(end_as(end))
}

fn natively(command: &[OsString], path: &Path) -> Result<End, Failure> {
    say(&program::native_note(path));
    let signals = take_signals()?;
    let program = launch::natively(path, command, &signals.original)?;
    Ok(watch(program, &signals, &mut NoImage))
}

/// Nobody to tell of deaths.
struct NoImage;

impl Burial for NoImage {
    fn child(&mut self, _: Pid) {}
    fn tick(&mut self) {}
}

fn in_image(
    settings: &Settings,
    command: &[OsString],
    variables: &Variables,
    path: &Path,
    runtime: &[u8],
) -> Result<End, Failure> {
    ensure_able()?;
    let terminal = fate::terminal(settings)?;
    let signals = take_signals()?;
    let file_size = lift_file_size_limit();
    let mut work = Work::make(settings, variables, Some(path))?;
    become_subreaper();
    let base = format!("run-{}", std::process::id());
    work.begin_nodes(settings, &base, std::process::id())?;
    let region = hand_down(work.image.region.try_clone().map_err(no_descriptor)?)?;
    let loader = hand_down(loader(runtime)?)?;
    let own = [region.as_raw_fd() as u32, loader.as_raw_fd() as u32];
    let inherited: Vec<u32> = inherited().into_iter().filter(|n| !own.contains(n)).collect();
    let birth = work.image.prepare_birth(&inherited)?;
    let hand_over = HandOver {
        process: birth.child.0,
        region: region.as_raw_fd(),
        loader: loader.as_raw_fd(),
        guard: settings.guard,
        trap_only: variables.trap_only,
        joins: false,
        place: (settings.rule.origin == Origin::Image).then_some(settings.rule.policy),
    };
    if let Some(signal) = signals.ending() {
        return Ok(End::Signal(signal as i32));
    }
    let guard = Guard::begin(settings, &work, loader.as_fd());
    work.offer();
    set_file_size_limit(file_size);
    let started = oom::giving_way(|| launch::in_image(command, hand_over, &signals.original));
    let program = started?;
    lift_file_size_limit();
    birth.happened(program.as_raw() as u32);
    drop((region, loader));
    work.serve();
    let end = watch(program, &signals, &mut work);
    // What came while it lived was for it.
    signals.ending();
    work.look_for_room();
    // What works for the image in the background is no straggler.
    work.rest();
    let told = end_programs(&mut work, guard.as_ref());
    if let Some((who, how)) = told {
        say_aside(format!("{who} outlived the program: {how}"));
    }
    let asked = (terminal.as_ref(), &signals);
    let (discard, chosen) = match fate::decide(end, settings, runtime, &mut work, asked) {
        Fate::Written(chosen) => (false, chosen),
        Fate::Dropped => (true, Vec::new()),
        Fate::Stays { undecided } => {
            // What it has made is its successor's.
            std::mem::forget(work);
            return Ok(if undecided { incomplete(end) } else { end });
        }
    };
    let (ended, signal) =
        finish_or_keep(settings, runtime, work, (discard, &chosen), &signals, guard);
    if let Some(signal) = signal {
        return Ok(End::Signal(signal as i32));
    }
    Ok(if ended.complete { end } else { incomplete(end) })
}

/// Ends the image, or keeps it under a name where nothing could be written back, or was not to be.
fn finish_or_keep(
    settings: &Settings,
    runtime: &[u8],
    mut work: Work,
    (discard, chosen): (bool, &[PathBuf]),
    signals: &Signals,
    mut guard: Option<Guard>,
) -> (Ended, Option<Signal>) {
    let (ended, signal) = finish(&mut work, discard, chosen, signals, &mut guard);
    if !ended.outcome.untouched {
        return (ended, signal);
    }
    match fate::kept(settings, runtime, &work) {
        Ok(line) => {
            say(&format!("nothing is written back: {line}"));
            // What it has made is its successor's.
            std::mem::forget(work);
            (ended, signal)
        }
        Err(failure) => {
            say(&format!("{failure}; the changes are written back"));
            (finish(&mut work, discard, chosen, signals, &mut guard).0, signal)
        }
    }
}

/// Ends the image, and tells how that went; the signal that wanted an end meanwhile.
fn finish(
    work: &mut Work,
    discard: bool,
    chosen: &[PathBuf],
    signals: &Signals,
    guard: &mut Option<Guard>,
) -> (Ended, Option<Signal>) {
    let progress = Arc::<Progress>::default();
    let interrupts = Interrupts::watch(signals, &progress);
    let line = ProgressLine::new(&progress);
    let ended = work.finish(discard, chosen, &progress, None);
    if !ended.outcome.untouched {
        // What was written back is not to be kept.
        drop(guard.take());
    }
    let closing = line.closing(&Tally::of(&ended.outcome, &progress));
    let signal = interrupts.end(signals);
    settle();
    ended.lines.iter().for_each(|line| say(line));
    closing.iter().for_each(|line| say(line));
    (ended, signal)
}

/// The end of a run that has not done all of its own part.
fn incomplete(end: End) -> End {
    if end == End::Exit(0) { End::Exit(STATUS_HUSK.into()) } else { end }
}

/// Ends what outlives the first program, on all nodes, and the other nodes; who it was, and how.
fn end_programs(work: &mut Work, guard: Option<&Guard>) -> Option<(String, String)> {
    let aside = work.workers();
    let (buried, guard) = (|pid| work.child(pid), || guard.and_then(Guard::pid));
    let told = match aside.is_empty() {
        true => reaper::end_stragglers(&mut Descendants { buried, guard }),
        false => reaper::end_stragglers(&mut Programs { buried, aside }),
    };
    work.end_nodes();
    told
}

/// A descriptor of the image could not be had.
pub fn no_descriptor(problem: std::io::Error) -> Failure {
    let remedy = "raise the limit on open files: ulimit -n 1024";
    Failure::new("cannot open the image", request::reason(&problem), remedy)
}

/// Whoever loses its parent becomes our child. Where that is refused, orphans go to init: they
/// are then not ended with the run.
fn become_subreaper() {
    if nix::sys::prctl::set_child_subreaper(true).is_err() {
        say("note: cannot become a subreaper: background processes may outlive the run");
    }
}

/// Ends this process by the signal that ended the program. Returns the exit status where it exited,
/// or where the signal does not end us (the first process of a name space): 128 + n.
fn end_as(end: End) -> u8 {
    match end {
        End::Exit(status) => status as u8,
        End::Signal(signal) => {
            husk_host::end::end_by(signal);
            STATUS_SIGNAL_BASE + signal as u8
        }
    }
}
