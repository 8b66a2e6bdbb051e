//! A progress line on a terminal, when a write-back takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);

/// Counts objects; draws once it has taken long enough.
pub struct Progress {
    started: Instant,
    total: u64,
    done: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A line for `total` objects.
    pub fn new(total: u64) -> Self {
        Self { started: Instant::now(), total, done: 0, bar: None }
    }

    /// One more is done.
    pub fn step(&mut self) {
        self.done += 1;
        if self.bar.is_none() && self.started.elapsed() >= QUIET {
            self.bar = Some(bar(self.total));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Hidden by itself where standard error is no terminal.
fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("husk: writing back {pos}/{len} {wide_bar} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
