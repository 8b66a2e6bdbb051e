//! Ctrl-C during a write-back: the first prints what is left, the second stops it.
//!
//! A separate thread reads the signals, so that the write-back never waits. It can be stopped until
//! the first name on the host changes, and the image then stays; after that it runs to its end.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::output::progress::{Onlooker, Over, Progress};
use crate::output::say_over;
use crate::process::signals::Signals;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// What the host gives of one signal, bytes.
const SIGNAL_BYTES: usize = 128;
/// What somebody types, or sends, who wants it to stop.
pub const WISHES: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT];

/// Hears of signals until its end.
pub struct Interrupts {
    last: Arc<AtomicI32>,
    onlooker: Option<Onlooker>,
}

/// What one of the signals means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The n-th wish that it stops, from 1.
    Wish(u32),
    /// Whoever looked on has gone.
    Gone,
}

impl Interrupts {
    /// Begins to hear of `signals` to the work that `progress` is about.
    pub fn watch(signals: &Signals, progress: &Arc<Progress>) -> Interrupts {
        let last = Arc::<AtomicI32>::default();
        let heard = signals.descriptor.as_fd().try_clone_to_owned();
        let (known, progress) = (Arc::clone(&last), Arc::clone(progress));
        let began = Instant::now();
        let mut on = move |signal: Signal, heard| {
            known.store(signal as i32, Ordering::Relaxed);
            match heard {
                Heard::Wish(1) => say_over(&left(&progress, began.elapsed())),
                Heard::Wish(2) => progress.stop(),
                _ => {}
            }
        };
        let onlooker = heard
            .ok()
            .map(|heard| Onlooker::begin(move |over: &Over| hear(over, heard.into(), &mut on)));
        Interrupts { last, onlooker }
    }

    /// The work is over: what was the last wish for an end.
    pub fn end(mut self, signals: &Signals) -> Option<Signal> {
        drop(self.onlooker.take());
        let last = Signal::try_from(self.last.load(Ordering::Relaxed)).ok();
        signals.ending().or(last)
    }
}

/// Hears of what comes by the descriptor `signals` until the work is over.
pub fn hear(over: &Over, mut signals: std::fs::File, on: &mut dyn FnMut(Signal, Heard)) {
    let mut wishes = 0;
    loop {
        let mut bytes = [0; SIGNAL_BYTES];
        while matches!(signals.read(&mut bytes), Ok(SIGNAL_BYTES)) {
            let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as i32;
            let Ok(signal) = Signal::try_from(number) else { continue };
            if WISHES.contains(&signal) {
                wishes += 1;
                on(signal, Heard::Wish(wishes));
            } else if signal == Signal::SIGHUP {
                on(signal, Heard::Gone);
            }
        }
        if over.within(LOOK) {
            return;
        }
    }
}

/// What is left, in a line.
pub fn left(progress: &Progress, since: Duration) -> String {
    const STOPS: &str = "a second Ctrl-C stops it and keeps the image";
    let (done, total) = progress.get();
    if total == 0 {
        return format!("looking for what has changed; {STOPS}");
    }
    let rest = total.saturating_sub(done);
    let seconds = match done {
        0 => String::new(),
        done => {
            format!(", about {:.0} s", (since.as_secs_f64() * rest as f64 / done as f64).ceil())
        }
    };
    format!("changes are being written back: {rest} of {total} files left{seconds}; {STOPS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_files_and_seconds() {
        let progress = Progress::default();
        progress.set(30, 90);
        let line = left(&progress, Duration::from_secs(2));
        assert!(line.contains("60 of 90 files left, about 4 s;"), "{line}");
        progress.set(0, 90);
        assert!(left(&progress, Duration::ZERO).contains("90 of 90 files left;"));
        assert!(left(&Progress::default(), Duration::ZERO).contains("what has changed;"));
    }
}
