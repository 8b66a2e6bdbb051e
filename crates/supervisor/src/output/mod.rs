//! What Husk prints. A standard error that takes nothing (a full disk, a reader that has gone) is
//! no reason to lose what a run has changed: nothing here panics, and only `print`, which commands
//! use for what they were asked for, ends the process.
//!
//! A terminal that was stopped (^S), or a pipe with a slow reader, blocks its writer. Code that
//! must not block prints aside: a separate thread prints, and `settle` waits for it
//! when everything is done.

pub mod failure;
pub(crate) mod interrupts;
pub(crate) mod progress;
pub mod typed;

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::signal::Signal;

/// One line to standard error, `husk: ` in front; what names bring along that a terminal would take
/// for its own is no part of it.
pub fn say(line: &str) {
    let line = format!("husk: {}\n", line.replace(char::is_control, "?"));
    // Whoever does not listen is not told.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The same where a progress line may be drawn: on a terminal, in its place.
pub fn say_over(line: &str) {
    const CLEAR_LINE: &[u8] = b"\r\x1b[K";
    if io::stderr().is_terminal() {
        let _ = io::stderr().write_all(CLEAR_LINE);
    }
    say(line);
}

static ASIDE: Mutex<Option<(Sender<String>, JoinHandle<()>)>> = Mutex::new(None);

/// The same without waiting for whoever is to read it.
pub fn say_aside(line: String) {
    let mut aside = ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    if aside.is_none() {
        let (lines, printed) = channel::<String>();
        let print = move || printed.iter().for_each(|line| say(&line));
        let printer = thread::Builder::new().spawn(print);
        *aside = printer.ok().map(|printer| (lines, printer));
    }
    if let Some((lines, _)) = &*aside {
        // It prints until this end is gone.
        let _ = lines.send(line);
    }
}

/// Waits until everything said aside is printed.
pub fn settle() {
    let aside = ASIDE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((lines, printer)) = aside {
        drop(lines);
        // A panic there has been printed.
        let _ = printer.join();
    }
}

/// `text` to standard output, all of it or an error. Where its reader has gone (`| head`), this
/// process ends by SIGPIPE, as others do, unless its caller ignores that.
pub fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes())
}

/// The same of what need not be text.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let printed = try_print_bytes(bytes);
    let unread = printed.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::BrokenPipe);
    if unread && !husk_host::early::sigpipe_was_ignored() {
        husk_host::end::end_by(Signal::SIGPIPE as i32);
    }
    printed
}

/// `text` to standard output, all of it or an error; a reader that has gone is an error like
/// another. For processes that must go on without one.
pub fn try_print(text: &str) -> io::Result<()> {
    try_print_bytes(text.as_bytes())
}

fn try_print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}
