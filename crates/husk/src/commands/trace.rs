//! `husk trace`: the system calls of an image's programs, one a line.
//!
//! ```text
//!   poll ─► calls ─► lines (text, JSON, or events for the Perfetto viewer) ─► output
//!    ▲                                                                          │
//!    └── a while, a signal, the end of the command or of the image ◄────────────'
//! ```
//!
//! The programs never wait for the output; lost records are reported.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use husk_abi::nr;
use husk_supervisor::output::failure::{Failure, STATUS_HUSK, STATUS_SIGNAL_BASE};
use husk_supervisor::output::say;
use husk_supervisor::run::request::reason;
use husk_supervisor::show::trace::chrome::Chrome;
use husk_supervisor::show::trace::show::not_recorded;
use husk_supervisor::show::trace::summary::Summary;
use husk_supervisor::show::trace::{Call, Tracer, Wish};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use crate::{ends, failed};

/// Longest time between two looks at the rings.
const WAIT_MAX_MS: u16 = 16;
/// Between two looks whether there is still somebody to trace.
const LOOK: Duration = Duration::from_millis(100);
/// Between two words about calls that were not recorded.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What was typed.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of an image, or process id of a `husk run` or of a program in it.
    pub image: String,
    /// Trace only this process, until it ends [default: all processes of the image].
    #[arg(long, short, value_name = "PID", value_parser = process_id)]
    pid: Option<u32>,
    /// Trace only these calls: names, separated by commas. The name of an old call includes its
    /// newer forms: open includes openat and openat2.
    #[arg(long = "expression", short = 'e', value_name = "CALLS", value_delimiter = ',')]
    calls: Vec<String>,
    /// Write the lines to FILE [default: standard output; with a command standard error].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print each line as a JSON document; with -c one document.
    #[arg(long)]
    json: bool,
    /// Print no calls, but at the end how often each was made, how long all of them took, and how
    /// many were answered by a ring, the host, a kernel or the process itself.
    #[arg(long = "summary-only", short = 'c', conflicts_with = "chrome")]
    counts: bool,
    /// Write a file for the Perfetto viewer (ui.perfetto.dev) instead of lines.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "json"])]
    chrome: Option<PathBuf>,
    /// Run this command in the image (which must be given by its name) and trace until it ends,
    /// with everything else in the image.
    #[arg(last = true)]
    command: Vec<String>,
}

/// What is typed as `husk trace`.
pub fn run(options: &Options) -> ExitCode {
    match trace(options) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failed(&failure),
    }
}

fn trace(options: &Options) -> Result<u8, Failure> {
    let what = || format!("cannot trace image {}", options.image);
    let calls = numbers(&options.calls)?;
    let by_descriptor = || {
        ends::by_descriptor().map_err(|problem| Failure::new(what(), reason(&problem), "try again"))
    };
    // Before tracing is on, so that a signal ends both.
    let early = options.command.is_empty().then(by_descriptor).transpose()?;
    let mut tracer = Tracer::begin(&options.image, Wish { pid: options.pid, calls })?;
    // Not before: a file that another tracer writes stays as it is.
    let mut output = Output::open(options)?;
    // The command is to have no signal blocked.
    let mut child = (!options.command.is_empty()).then(|| start(options)).transpose()?;
    let signals = early.map_or_else(by_descriptor, Ok)?;
    let ended = serve(&mut tracer, &mut output, &mut child, &signals);
    let last = tracer.end();
    let pauses = tracer.pauses();
    let written = ended.and_then(|status| {
        last.iter().try_for_each(|call| output.call(call))?;
        output.tell(tracer.not_recorded())?;
        output.close()?;
        Ok(status)
    });
    if pauses > 0 {
        say(&format!("tracing paused {pauses}x for seconds: its output was not read"));
    }
    let status = match (written, child) {
        (Ok(status), _) => status,
        // Nobody reads it any more: that is how a pipe to `head` ends.
        (Err(problem), None) if problem.kind() == io::ErrorKind::BrokenPipe => None,
        (Err(problem), child) => {
            let remedy = "check where the output goes";
            let unwritten = Failure::new("cannot write the trace", reason(&problem), remedy);
            let Some(mut child) = child else { return Err(unwritten) };
            say(&unwritten.to_string());
            let status = untraced(&mut child, &signals)
                .map_err(|problem| Failure::new(what(), reason(&problem), "try again"))?;
            // Its own status counts, unless that says that all went well.
            return Ok(Some(status_of(status))
                .filter(|status| *status != 0)
                .unwrap_or(STATUS_HUSK));
        }
    };
    if tracer.is_lost() {
        let why =
            "another process traces it now: the output of this one was not read for a long time";
        return Err(Failure::new(what(), why, "end that one, and start again"));
    }
    Ok(status.map_or(0, status_of))
}

fn status_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let number = status.code().map(|code| code as u8);
    let signal = status.signal().map(|signal| STATUS_SIGNAL_BASE.wrapping_add(signal as u8));
    number.or(signal).unwrap_or(STATUS_HUSK)
}

/// Calls that C libraries make in the place of older ones, behind the older name.
const NEWER: [&[&str]; 24] = [
    &["open", "openat", "openat2"],
    &["creat", "openat", "openat2"],
    &["stat", "newfstatat", "statx"],
    &["lstat", "newfstatat", "statx"],
    &["fstat", "newfstatat", "statx"],
    &["access", "faccessat", "faccessat2"],
    &["mkdir", "mkdirat"],
    &["mknod", "mknodat"],
    &["unlink", "unlinkat"],
    &["rmdir", "unlinkat"],
    &["rename", "renameat", "renameat2"],
    &["link", "linkat"],
    &["symlink", "symlinkat"],
    &["readlink", "readlinkat"],
    &["chmod", "fchmodat"],
    &["chown", "fchownat"],
    &["getdents", "getdents64"],
    &["dup2", "dup3"],
    &["pipe", "pipe2"],
    &["poll", "ppoll"],
    &["select", "pselect6"],
    &["epoll_wait", "epoll_pwait", "epoll_pwait2"],
    &["fork", "vfork", "clone", "clone3"],
    &["accept", "accept4"],
];

/// The numbers of calls; strace's `trace=` before them means nothing more.
fn numbers(names: &[String]) -> Result<Vec<usize>, Failure> {
    let number = |name: &str| (0..nr::LIMIT).find(|number| nr::name(*number) == name);
    let mut found = Vec::new();
    for name in names {
        let name = name.strip_prefix("trace=").unwrap_or(name);
        let own = number(name).filter(|_| name != "?").ok_or_else(|| {
            let what = format!("cannot trace {name}");
            Failure::new(what, "there is no such system call", "see `man 2 syscalls`")
        })?;
        let newer = NEWER.iter().find(|row| row[0] == name).map_or(&[][..], |row| &row[1..]);
        found.extend([own].into_iter().chain(newer.iter().filter_map(|name| number(name))));
    }
    Ok(found)
}

/// The command goes on without being traced; how it ended. The first signal is handed on to it.
fn untraced(child: &mut Child, signals: &SignalFd) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = wait(signals, WAIT_MAX_MS)? {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(child.id() as i32), signal);
        }
    }
}

fn process_id(typed: &str) -> Result<u32, String> {
    typed.parse().map_err(|_| "not a process id; `husk ps` lists them".to_owned())
}

/// Runs the command in the image, as `husk exec` does.
fn start(options: &Options) -> Result<Child, Failure> {
    let husk = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("husk"));
    let mut command = Command::new(husk);
    command.arg("exec").arg(&options.image).arg("--").args(&options.command);
    husk_supervisor::run::umask::with_callers(|| command.spawn()).map_err(|problem| {
        let what = format!("cannot run {}", options.command[0]);
        Failure::new(what, reason(&problem), "try again")
    })
}

/// Traces until it is over; how the command ended.
fn serve(
    tracer: &mut Tracer,
    output: &mut Output,
    child: &mut Option<Child>,
    signals: &SignalFd,
) -> io::Result<Option<ExitStatus>> {
    let (mut wait_ms, mut looked, mut told) = (1, Instant::now(), Instant::now());
    let mut signalled = false;
    loop {
        // Before the last look: what it did is in the rings by then.
        let status = child.as_mut().map(Child::try_wait).transpose()?.flatten();
        let calls = tracer.poll();
        if tracer.is_lost() && child.is_none() {
            return Ok(None);
        }
        calls.iter().try_for_each(|call| output.call(call))?;
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            output.tell(tracer.not_recorded())?;
        }
        output.flush()?;
        if status.is_some() {
            return Ok(status);
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if !tracer.goes_on() && child.is_none() {
                return Ok(None);
            }
        }
        wait_ms = if calls.is_empty() { (2 * wait_ms).clamp(1, WAIT_MAX_MS) } else { 0 };
        let Some(signal) = wait(signals, wait_ms)? else { continue };
        match child {
            Some(child) if !signalled => {
                // It ends, and with it this.
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
                signalled = true;
            }
            _ => return Ok(None),
        }
    }
}

/// Sleeps; the signal that came meanwhile.
fn wait(signals: &SignalFd, wait_ms: u16) -> io::Result<Option<Signal>> {
    let mut watched = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::from(wait_ms)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(problem) => return Err(problem.into()),
    }
    let found = signals.read_signal()?;
    Ok(found.and_then(|found| Signal::try_from(found.ssi_signo as i32).ok()))
}

/// How calls are written.
enum Form {
    Text,
    Json,
    Chrome(Chrome),
    /// Nothing but counts, in JSON or for people.
    Counts(Summary, bool),
}

/// Where they go.
struct Output {
    to: BufWriter<Box<dyn Write>>,
    form: Form,
    told: u64,
}

impl Output {
    fn open(options: &Options) -> Result<Output, Failure> {
        let to: Box<dyn Write> = match (&options.chrome, &options.output) {
            (Some(path), _) | (None, Some(path)) => Box::new(create(path)?),
            _ if options.command.is_empty() => Box::new(io::stdout()),
            _ => Box::new(io::stderr()),
        };
        let form = match (&options.chrome, options.json) {
            (Some(_), _) => Form::Chrome(Chrome::default()),
            (None, json) if options.counts => Form::Counts(Summary::default(), json),
            (None, true) => Form::Json,
            (None, false) => Form::Text,
        };
        Ok(Output { to: BufWriter::new(to), form, told: 0 })
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        match &mut self.form {
            Form::Text => writeln!(self.to, "{}", call.line()),
            Form::Json => writeln!(self.to, "{}", call.json()),
            Form::Chrome(chrome) => self.to.write_all(chrome.add(call).as_bytes()),
            Form::Counts(summary, _) => {
                summary.add(call);
                Ok(())
            }
        }
    }

    /// Tells how many calls were not recorded, when there are more.
    fn tell(&mut self, calls: u64) -> io::Result<()> {
        if calls <= self.told {
            return Ok(());
        }
        let more = calls - std::mem::replace(&mut self.told, calls);
        match &mut self.form {
            Form::Text => writeln!(self.to, "{}", not_recorded(more)),
            Form::Json => writeln!(self.to, "{{\"not_recorded\":{more}}}"),
            Form::Chrome(_) => {
                say(&not_recorded(more));
                Ok(())
            }
            Form::Counts(summary, _) => {
                summary.not_recorded(calls);
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn close(&mut self) -> io::Result<()> {
        match &self.form {
            Form::Chrome(chrome) => self.to.write_all(chrome.end().as_bytes())?,
            Form::Counts(summary, true) => writeln!(self.to, "{}", summary.json())?,
            Form::Counts(summary, false) => self.to.write_all(summary.text().as_bytes())?,
            Form::Text | Form::Json => {}
        }
        self.to.flush()
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|problem| {
        let what = format!("cannot write to {}", path.display());
        Failure::new(what, reason(&problem), "name another file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_names() {
        let typed =
            |names: &[&str]| numbers(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(typed(&["trace=read", "openat"]).unwrap(), [nr::read, nr::openat]);
        let opens = [nr::open, nr::openat, nr::openat2];
        assert_eq!(typed(&["open"]).unwrap(), opens, "as C libraries make them");
        for row in NEWER {
            assert_eq!(typed(&[row[0]]).unwrap().len(), row.len(), "{row:?}");
        }
        for bad in ["", "?", "opne"] {
            assert!(typed(&[bad]).is_err(), "{bad}");
        }
    }
}
