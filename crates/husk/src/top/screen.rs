//! The terminal: taken over, drawn to, and given back as it was, however this ends.
//!
//! Invariant: whoever leaves, by return, by a signal that is taken, or by a panic (which ends the
//! process without unwinding), restores the terminal first.

use std::io::{self, Stdout, Write};
use std::panic;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::view::View;

/// The terminal while it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it over.
    pub fn begin() -> io::Result<Screen> {
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

    /// Shows `view`.
    pub fn draw(&mut self, view: &mut View) -> io::Result<()> {
        self.terminal.draw(|frame| view.draw(frame)).map(drop)
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
