//! `husk top`: what is going on in a live image, again and again.
//!
//! ```text
//!   poll(terminal, signals, next look) ─► key   ─► view changes ─► draw
//!                                     ─► time  ─► look, frame  ─► draw
//!                                     ─► SIGTERM, end of image ─► terminal as it was ─► end
//! ```
//!
//! Not here: how rates come about (`husk_supervisor::rates`).

mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_supervisor::failure::{Failure, STATUS_HUSK};
use husk_supervisor::rates::{Frame, Watcher};
use husk_supervisor::say::say;
use nix::sys::signalfd::SignalFd;
use ratatui::crossterm::event::{self, Event};

use crate::{ends, failed, shown};
use screen::Screen;
use view::{Next, View};

/// Shortest time between two looks, s: more often would cost more than it shows.
const INTERVAL_MIN_S: f64 = 0.1;
/// Longest.
const INTERVAL_MAX_S: f64 = 3600.0;

/// What was typed.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of an image, or process id of a `husk run` or of a program in it.
    image: String,
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

fn interval(typed: &str) -> Result<Duration, String> {
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
    let what = || format!("cannot show image {}", options.image);
    let mut watcher = Watcher::begin(&options.image)?;
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        let why = "input or output is not a terminal";
        return Err(Failure::new(what(), why, "add --once or --json"));
    }
    let failed = |problem: io::Error| {
        let why = husk_supervisor::request::reason(&problem);
        Failure::new(what(), why, "try another terminal, or --once")
    };
    let signals = ends::by_descriptor().map_err(failed)?;
    let mut screen = Screen::begin().map_err(failed)?;
    let mut view = View::new(&options.image, options.interval);
    let ended = serve(&mut watcher, &mut screen, &mut view, &signals);
    drop(screen);
    if ended.map_err(failed)? == Ended::Image {
        say(&format!("image {} has ended", options.image));
    }
    Ok(true)
}

/// Why it is over.
#[derive(PartialEq, Eq)]
enum Ended {
    Wished,
    Image,
}

fn serve(
    watcher: &mut Watcher,
    screen: &mut Screen,
    view: &mut View,
    signals: &SignalFd,
) -> io::Result<Ended> {
    // The first figures come soon; they are of what little there was.
    let mut next = Instant::now() + view.interval.min(Duration::from_millis(200));
    view.show(watcher.look());
    loop {
        screen.draw(view)?;
        if wait(signals, next)? {
            return Ok(Ended::Wished);
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                match view.key(key) {
                    Next::End => return Ok(Ended::Wished),
                    Next::Kill(pid, signal) => view.told(pid, watcher.kill(pid, signal)),
                    Next::GoOn => {}
                }
            }
        }
        if Instant::now() >= next {
            if !watcher.goes_on() {
                return Ok(Ended::Image);
            }
            view.show(watcher.look());
            next = Instant::now() + view.interval;
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
