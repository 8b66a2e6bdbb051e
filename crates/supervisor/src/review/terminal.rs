//! The controlling terminal, on which questions are asked even if standard descriptors are files.
//!
//! Invariants
//! 1. What was typed before a question does not answer it (`take_back`).
//! 2. A command that was killed may leave the terminal in raw mode, or to another process group:
//!    both are as before the command when something is asked.
//! 3. Ctrl-C, the end of input, a hang-up and SIGTERM are one answer: `Reply::Gone`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::getpgrp as group;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, tcsetpgrp,
};

use super::dialogue::{Reply, Talk};
use crate::process::signals::{Signals, Wish};
use crate::run::launch;

/// The terminal of this process, whatever its standard descriptors are.
const TERMINAL: &str = "/dev/tty";
/// What shows long texts where `PAGER` names nothing.
const PAGER: &str = "if [ -n \"$PAGER\" ]; then eval \"$PAGER\"; \
    elif command -v less > /dev/null; then LESS=${LESS-FRX} less; \
    elif command -v more > /dev/null; then more; else cat; fi";
/// Lines of a terminal that does not say how many it has.
const ROWS: usize = 24;

/// A terminal as it was before a command ran.
pub struct Terminal {
    file: File,
    before: Termios,
    in_front: bool,
}

impl Terminal {
    /// This process's.
    pub fn open() -> io::Result<Terminal> {
        let file = File::options().read(true).write(true).open(TERMINAL)?;
        let before = tcgetattr(&file)?;
        let in_front = tcgetpgrp(&file) == Ok(group());
        Ok(Terminal { file, before, in_front })
    }

    /// Whether somebody can be asked there at once.
    pub fn is_in_front(&self) -> bool {
        self.in_front
    }

    /// Invariants 1 and 2.
    fn take_back(&self) {
        if !self.in_front {
            // A job in the background is stopped when it reads, as any other.
            return;
        }
        // Whoever is not in front is stopped otherwise.
        let blocked = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        // A terminal that has gone is found by the question.
        let _ = tcsetpgrp(&self.file, group());
        let _ = tcsetattr(&self.file, OptionalActions::Now, &self.before);
        let _ = tcflush(&self.file, QueueSelector::IFlush);
        let _ = blocked.map(|mask| mask.thread_set_mask());
    }
}

/// Stops this process as Ctrl-Z does, so that its shell says 148; returns once it is continued.
fn stop() {
    husk_host::end::stop_by(Signal::SIGTSTP as i32);
}

/// A terminal at which somebody is asked now.
pub struct Desk<'a> {
    terminal: &'a Terminal,
    signals: &'a Signals,
}

impl<'a> Desk<'a> {
    /// Begins to ask; no command is at the terminal any more.
    pub fn begin(terminal: &'a Terminal, signals: &'a Signals) -> Desk<'a> {
        terminal.take_back();
        Desk { terminal, signals }
    }

    /// Whether somebody has asked for an end. Stops as others do where that was asked for.
    fn is_ended(&mut self, question: &str) -> bool {
        while let Some(wish) = self.signals.wish() {
            match wish {
                Wish::End => return true,
                Wish::Stop => {
                    // Returns once somebody has continued us.
                    stop();
                    self.say(question);
                }
            }
        }
        false
    }

    fn show(&mut self, text: &[u8]) -> io::Result<()> {
        let mut input = File::from(memfd_create("husk-changes", MemfdFlags::CLOEXEC)?);
        input.write_all(text)?;
        io::Seek::rewind(&mut input)?;
        let script = ["sh", "-c", PAGER].map(Into::into);
        let terminal = self.terminal.file.as_fd();
        let mask = &self.signals.original;
        let pid = launch::shown_by(&script, input.as_fd(), terminal, mask)?;
        loop {
            match waitpid(pid, Some(WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Stopped(..)) => {
                    // One job: it is stopped and continued as a whole.
                    stop();
                    let _ = kill(pid, Signal::SIGCONT);
                }
                Err(nix::Error::EINTR) => {}
                _ => break,
            }
        }
        // Keys such as Ctrl-C were for it.
        while self.signals.wish().is_some() {}
        Ok(())
    }
}

impl Talk for Desk<'_> {
    fn say(&mut self, text: &str) {
        // A terminal that has gone is found by the question.
        let _ = (&self.terminal.file).write_all(text.as_bytes());
    }

    fn ask(&mut self, question: &str) -> Reply {
        self.say(question);
        let mut line = Vec::new();
        loop {
            let (file, signals) = (&self.terminal.file, &self.signals.descriptor);
            let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut watched = [of(file.as_fd()), of(signals.as_fd())];
            // An interrupted wait is repeated.
            let _ = poll(&mut watched, None);
            let typed = !watched[0].revents().is_empty();
            if self.is_ended(question) {
                self.say("\n");
                return Reply::Gone;
            }
            let mut bytes = [0; 4096];
            match typed.then(|| (&self.terminal.file).read(&mut bytes)) {
                None => continue,
                Some(Ok(0)) => {
                    self.say("\n");
                    return Reply::Gone;
                }
                Some(Ok(count)) => line.extend_from_slice(&bytes[..count]),
                Some(Err(problem)) if problem.kind() == io::ErrorKind::Interrupted => {}
                Some(Err(_)) => return Reply::Gone,
            }
            if line.last() == Some(&b'\n') {
                return Reply::Line(String::from_utf8_lossy(&line).trim().to_owned());
            }
        }
    }

    fn page(&mut self, text: &[u8]) {
        if let Err(problem) = self.show(text) {
            let why = crate::run::request::reason(&problem);
            self.say(&format!("cannot start a pager: {why}\n"));
            self.say(&String::from_utf8_lossy(text));
        }
        self.terminal.take_back();
    }

    fn rows(&self) -> usize {
        let size = tcgetwinsize(&self.terminal.file).map(|size| size.ws_row as usize);
        size.ok().filter(|rows| *rows > 0).unwrap_or(ROWS)
    }
}
