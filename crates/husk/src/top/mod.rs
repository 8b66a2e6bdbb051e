//! `husk top`: what is going on in a live image, again and again (`screen.rs`).
//!
//! Not here: how rates come about (`husk_supervisor::show::rates`).

mod view;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::say;
use husk_supervisor::show::rates::{Frame, Watcher};
use ratatui::crossterm::event::KeyEvent;

use crate::screen::{self, Ended, Page};
use crate::{failed, shown};
use view::{Next, View};

/// Shortest time between two looks, s: more often would cost more than it shows.
const INTERVAL_MIN_S: f64 = 0.1;
/// Longest.
const INTERVAL_MAX_S: f64 = 3600.0;

/// What was typed.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of an image, or process id of a `husk run` or of a program in it.
    pub image: String,
    /// Time between two updates, in seconds (0.1 to 3600).
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print one interval and end; needs no terminal.
    #[arg(long)]
    once: bool,
    /// Print one interval as a JSON document and end.
    #[arg(long)]
    json: bool,
}

/// Seconds between two looks, as typed.
pub fn interval(typed: &str) -> Result<Duration, String> {
    let seconds = typed.parse().ok().filter(|s| (INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(s));
    let seconds = seconds.ok_or("write seconds, 0.1 to 3600")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// What is typed as `husk top`.
pub fn run(options: &Options) -> ExitCode {
    let once = options.once || options.json;
    let done = if once { print_once(options) } else { watch(options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

fn print_once(options: &Options) -> Result<bool, Failure> {
    let mut watcher = Watcher::begin(&options.image)?;
    sleep(options.interval);
    Ok(shown(&watcher.look(), options.json, Frame::text))
}

/// Whether it ended as it should.
fn watch(options: &Options) -> Result<bool, Failure> {
    let watcher = Watcher::begin(&options.image)?;
    let mut top = Top { watcher, view: View::new(&options.image, options.interval) };
    if screen::show(&mut top, &format!("cannot show image {}", options.image))? == Ended::Gone {
        say(&format!("image {} has ended", options.image));
    }
    Ok(true)
}

/// An image, and what is shown of it.
struct Top {
    watcher: Watcher,
    view: View,
}

impl Page for Top {
    fn interval(&self) -> Duration {
        self.view.interval
    }

    fn look(&mut self) -> bool {
        let goes_on = self.watcher.goes_on();
        if goes_on {
            self.view.show(self.watcher.look());
        }
        goes_on
    }

    fn draw(&mut self, canvas: &mut ratatui::Frame<'_>) {
        self.view.draw(canvas);
    }

    fn key(&mut self, key: KeyEvent) -> bool {
        match self.view.key(key) {
            Next::End => return false,
            Next::Kill(pid, signal) => self.view.told(pid, self.watcher.kill(pid, signal)),
            Next::GoOn => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("3600"), Ok(Duration::from_secs(3600)));
        for bad in ["", "0", "0.05", "-1", "nan", "inf", "1s", "3601"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
