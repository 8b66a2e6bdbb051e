//! `husk run`: from the request to the exit status.
//!
//! The run ends when the program has ended. What is still running then is given a moment, hung
//! up, terminated, killed (`descent`), and only then are the overlays written back: nobody changes
//! the image meanwhile.
//!
//! Exit status: the program's own, 128 + n on signal n; 125 when Husk failed, or when the program
//! succeeded and not all of its changes could be written back as they were.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use husk_carrier::Direct;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::copies::Copies;
use crate::descent;
use crate::descriptors::{hand_down, inherited, loader};
use crate::failure::{Failure, STATUS_HUSK, STATUS_SIGNAL_BASE};
use crate::image::Image;
use crate::launch::{self, HandOver};
use crate::private::Private;
use crate::program::{self, Program};
use crate::punch::Punch;
use crate::request::{Request, Settings};
use crate::say::say;
use crate::signals::Signals;
use crate::variables::Variables;
use crate::watch::{Burial, End, watch};
use crate::write_back::{self, Outcome, scan::Run};

/// Calls are counted by number up to here.
const CALL_NUMBERS_END: usize = 512;

/// Runs a command in a new image; `runtime` is the runtime's binary. Returns the exit status.
pub fn run(request: Request, runtime: &[u8]) -> Result<u8, Failure> {
    let variables = Variables::read()?;
    let settings = request.settle()?;
    settings.notes.iter().for_each(|note| say(&format!("note: {note}")));
    match program::look(&settings.command[0], &settings.mounts)? {
        Program::Image(path) => in_image(&settings, &variables, &path, runtime),
        Program::Native(path) => natively(&settings, &path),
    }
}

fn take_signals() -> Result<Signals, Failure> {
    Signals::take().map_err(|errno| {
        let remedy = "allow signalfd in your sandbox";
        Failure::new("cannot watch for signals", errno.desc(), remedy)
    })
}

fn natively(settings: &Settings, path: &Path) -> Result<u8, Failure> {
    say(&program::native_note(path));
    let signals = take_signals()?;
    let program = launch::natively(path, &settings.command, &signals.original)?;
    Ok(status(watch(program, &signals, &mut NoImage)))
}

/// Nobody to tell of deaths.
struct NoImage;

impl Burial for NoImage {
    fn child(&mut self, _: Pid) {}
    fn tick(&mut self) {}
}

fn in_image(
    settings: &Settings,
    variables: &Variables,
    path: &Path,
    runtime: &[u8],
) -> Result<u8, Failure> {
    ensure_able()?;
    // First of all: from here on a write past a limit is an error, not the end.
    let signals = take_signals()?;
    let file_size = lift_file_size_limit();
    let copies = Copies::open();
    if let Some(note) = &copies.note {
        say(&format!("note: {note}"));
    }
    let mut image = Image::make(settings, variables, copies.path())?;
    let private = private_directory(&mut image.direct);
    copies.announce(&mut image.direct, path);
    become_subreaper();
    let region = hand_down(image.region.try_clone().map_err(no_descriptor)?)?;
    let loader = hand_down(loader(runtime)?)?;
    let own = [region.as_raw_fd() as u32, loader.as_raw_fd() as u32];
    let inherited: Vec<u32> = inherited().into_iter().filter(|n| !own.contains(n)).collect();
    let birth = image.prepare_birth(&inherited)?;
    let hand_over = HandOver {
        process: birth.child.0,
        region: region.as_raw_fd(),
        loader: loader.as_raw_fd(),
        guard: settings.guard,
        trap_only: variables.trap_only,
    };
    set_file_size_limit(file_size);
    let program = launch::in_image(&settings.command, hand_over, &signals.original)?;
    lift_file_size_limit();
    birth.happened(program.as_raw() as u32);
    drop((region, loader));
    let service = copies.serve();
    let punch = Punch::new(&image.direct);
    let mut work = Work { direct: &mut image.direct, region: &image.region, punch, private };
    let end = watch(program, &signals, &mut work);
    let told = descent::end_stragglers(|pid| work.child(pid));
    drop(service);
    told.iter().for_each(|line| say(line));
    finish(settings, variables, &mut image, end)
}

fn ensure_able() -> Result<(), Failure> {
    husk_host::probe::syscall_user_dispatch().map_err(|errno| {
        if errno == husk_abi::Errno::EPERM {
            let why = "an image cannot run inside an image, nor where a sandbox forbids it";
            return Failure::new(
                "cannot catch system calls",
                why,
                "leave out the inner `husk run`",
            );
        }
        let why = format!("this host has no Syscall User Dispatch ({errno:?})");
        let remedy = "it needs Linux 5.11 or newer: see `husk check`";
        Failure::new("cannot catch system calls", why, remedy)
    })
}

/// Raises our limit on file sizes as far as allowed (the image is one file to the host, and what
/// is written back was not bounded in the image); returns the limit before, for the program.
fn lift_file_size_limit() -> Rlimit {
    let before = getrlimit(Resource::Fsize);
    set_file_size_limit(Rlimit { current: before.maximum, maximum: before.maximum });
    before
}

fn set_file_size_limit(limit: Rlimit) {
    // Within the hard limit: cannot fail. If it did, large files would be reported as such.
    let _ = setrlimit(Resource::Fsize, limit);
}

fn no_descriptor(problem: std::io::Error) -> Failure {
    let remedy = "raise the limit on open files: ulimit -n 1024";
    Failure::new("cannot open the image", crate::request::reason(&problem), remedy)
}

/// Whoever loses its parent becomes our child. Where that is refused, orphans go to init: they
/// are then not ended with the run.
fn become_subreaper() {
    if nix::sys::prctl::set_child_subreaper(true).is_err() {
        say("note: cannot become a subreaper: background processes may outlive the run");
    }
}

/// Where FIFOs and unix sockets lead. Without it FIFOs are names only and sockets get none, which
/// concerns few.
fn private_directory(direct: &mut Direct) -> Option<Private> {
    let mut set = |private: Private| direct.set_private_path(&private.path()).map(|()| private);
    let made = Private::make().map_err(|problem| crate::request::reason(&problem));
    match made.and_then(|private| set(private).map_err(|errno| format!("{errno:?}"))) {
        Ok(private) => Some(private),
        Err(why) => {
            say(&format!(
                "note: no directory in /dev/shm or /tmp ({why}): \
                 in this image FIFOs cannot be opened and unix sockets not be bound"
            ));
            None
        }
    }
}

/// The supervisor's work while programs run: it buries the dead and gives memory back.
struct Work<'a> {
    direct: &'a mut Direct,
    region: &'a OwnedFd,
    punch: Punch,
    private: Option<Private>,
}

impl Burial for Work<'_> {
    fn child(&mut self, pid: Pid) {
        // What cannot be released now is found again at the next tick.
        let _ = self.direct.reap(pid.as_raw() as u32);
    }

    fn tick(&mut self) {
        // What cannot be recovered now is found again at the next tick.
        let _ = self.direct.scan_dead();
        self.punch.tick(self.direct, self.region);
        if let Some(private) = &mut self.private {
            private.tick(self.direct);
        }
    }
}

fn finish(
    settings: &Settings,
    variables: &Variables,
    image: &mut Image,
    end: End,
) -> Result<u8, Failure> {
    // Several rounds: releasing what one dead process held may take more than one.
    for _ in 0..8 {
        if matches!(image.direct.scan_dead(), Ok(0)) {
            break;
        }
    }
    if variables.check {
        structure_check(&image.direct);
    }
    if variables.trace {
        print_unsupported(&image.direct);
    }
    let status = status(end);
    if settings.discard {
        return Ok(status);
    }
    let run = Run { number: std::process::id(), started_ns: image.started_ns };
    let overlays = image.overlays();
    let outcome = write_back::write_back(&mut image.direct, run, &overlays);
    report(&outcome);
    Ok(if status == 0 && !outcome.is_complete() { STATUS_HUSK } else { status })
}

fn report(outcome: &Outcome) {
    for conflict in &outcome.conflicts {
        say(&format!("conflict: {conflict}"));
    }
    for failure in &outcome.failures {
        say(&format!("not written back: {failure}"));
    }
}

fn print_unsupported(direct: &Direct) {
    for number in 0..CALL_NUMBERS_END {
        let count = direct.unsupported(number);
        if count != 0 {
            let name = husk_abi::nr::name(number);
            say(&format!("unsupported: {name} ({number}), refused {count}x"));
        }
    }
}

fn structure_check(direct: &Direct) {
    let mut scratch = vec![0; husk_carrier::scratch_words(direct.kernel())];
    let findings = husk_carrier::check(direct.kernel(), &mut scratch, &mut |finding| {
        say(&format!("fsck: finding: {finding:?}"));
    });
    if findings == 0 {
        say("fsck: clean");
    }
}

fn status(end: End) -> u8 {
    match end {
        End::Exit(status) => status as u8,
        End::Signal(signal) => STATUS_SIGNAL_BASE + signal as u8,
    }
}
