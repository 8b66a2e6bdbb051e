//! The terminal: taken over, drawn to, and given back as it was, however this ends.
//!
//! ```text
//!   poll(terminal, signals, next look) ─► key   ─► page changes ─► draw
//!                                     ─► time  ─► page looks   ─► draw
//!                                     ─► SIGTERM, nothing left ─► terminal as it was ─► end
//! ```
//!
//! Invariant: whoever leaves, by return, by a signal that is taken, or by a panic (which ends the
//! process without unwinding), restores the terminal first.

use std::io::{self, IsTerminal, Stdout, Write};
use std::os::fd::AsFd;
use std::panic;
use std::time::{Duration, Instant};

use husk_supervisor::Failure;
use nix::sys::signalfd::SignalFd;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyEvent};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

use crate::ends;

/// The first figures come soon; they are of what little there was.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// What is shown again and again, and changes by keys.
pub trait Page {
    /// Time between two looks.
    fn interval(&self) -> Duration;
    /// Looks again; whether there is still something to show.
    fn look(&mut self) -> bool;
    /// Draws all of it.
    fn draw(&mut self, canvas: &mut Frame<'_>);
    /// What a key means; whether to go on.
    fn key(&mut self, key: KeyEvent) -> bool;
}

/// Why it is over.
#[derive(PartialEq, Eq)]
pub enum Ended {
    /// By a key or a signal.
    Wished,
    /// There is nothing left to show.
    Gone,
}

/// Shows a page until it ends; `what` cannot be done where there is no terminal.
pub fn show(page: &mut impl Page, what: &str) -> Result<Ended, Failure> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        let why = "input or output is not a terminal";
        return Err(Failure::new(what, why, "add --once or --json"));
    }
    let failed = |problem: io::Error| {
        let why = husk_supervisor::run::request::reason(&problem);
        Failure::new(what, why, "try another terminal, or --once")
    };
    let signals = ends::by_descriptor().map_err(failed)?;
    let mut screen = Screen::begin().map_err(failed)?;
    let ended = serve(&mut screen, page, &signals);
    drop(screen);
    ended.map_err(failed)
}

fn serve(screen: &mut Screen, page: &mut impl Page, signals: &SignalFd) -> io::Result<Ended> {
    let mut next = Instant::now() + page.interval().min(FIRST_AFTER);
    if !page.look() {
        return Ok(Ended::Gone);
    }
    loop {
        screen.terminal.draw(|canvas| page.draw(canvas))?;
        if wait(signals, next)? {
            return Ok(Ended::Wished);
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && !page.key(key)
            {
                return Ok(Ended::Wished);
            }
        }
        if Instant::now() >= next {
            if !page.look() {
                return Ok(Ended::Gone);
            }
            next = Instant::now() + page.interval();
        }
    }
}

/// Sleeps until a key, a signal, or `next`; whether it is time to end.
fn wait(signals: &SignalFd, next: Instant) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let input = io::stdin();
    let mut watched = [
        PollFd::new(input.as_fd(), PollFlags::POLLIN),
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
    ];
    let left = next.saturating_duration_since(Instant::now());
    // Rounded up: no turn is made in vain.
    let left = left.as_millis() as i32 + 1;
    match poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
        // The terminal has another size.
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(problem) => Err(problem.into()),
        Ok(_) => {
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
            let of = |n: usize| watched[n].revents().unwrap_or(PollFlags::empty());
            Ok(of(0).intersects(gone) || !of(1).is_empty())
        }
    }
}

/// The terminal while it is ours.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it over.
    fn begin() -> io::Result<Screen> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |told| {
            give_back();
            before(told);
        }));
        enable_raw_mode()?;
        let taken = take(&mut io::stdout())
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(problem) => {
                give_back();
                Err(problem)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take(output: &mut impl Write) -> io::Result<()> {
    execute!(output, EnterAlternateScreen, Hide)
}

fn leave(output: &mut impl Write) -> io::Result<()> {
    execute!(output, LeaveAlternateScreen, Show)
}

/// As it was. A terminal that is gone needs nothing.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = leave(&mut io::stdout());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        take(&mut taken).unwrap();
        leave(&mut left).unwrap();
        assert_eq!(taken, b"\x1b[?1049h\x1b[?25l");
        assert_eq!(left, b"\x1b[?1049l\x1b[?25h");
    }
}
