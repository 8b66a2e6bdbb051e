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

use crate::onlooker::{Onlooker, Over, Progress};
use crate::say::say;
use crate::signals::Signals;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// What the host gives of one signal, bytes.
const SIGNAL_BYTES: usize = 128;
/// What somebody types, or sends, who wants it to stop.
const WISHES: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT];

/// Hears of signals until its end.
pub struct Interrupts {
    last: Arc<AtomicI32>,
    onlooker: Option<Onlooker>,
}

impl Interrupts {
    /// Begins to hear of `signals` to the work that `progress` is about.
    pub fn watch(signals: &Signals, progress: &Arc<Progress>) -> Interrupts {
        let last = Arc::<AtomicI32>::default();
        let heard = signals.descriptor.as_fd().try_clone_to_owned();
        let (known, progress) = (Arc::clone(&last), Arc::clone(progress));
        let onlooker = heard.ok().map(|heard| {
            Onlooker::begin(move |over: &Over| hear(over, heard.into(), &known, &progress))
        });
        Interrupts { last, onlooker }
    }

    /// The work is over: what was the last wish for an end.
    pub fn end(mut self, signals: &Signals) -> Option<Signal> {
        drop(self.onlooker.take());
        let last = Signal::try_from(self.last.load(Ordering::Relaxed)).ok();
        signals.ending().or(last)
    }
}

fn hear(over: &Over, mut signals: std::fs::File, last: &AtomicI32, progress: &Progress) {
    let (began, mut wishes) = (Instant::now(), 0);
    loop {
        let mut bytes = [0; SIGNAL_BYTES];
        while matches!(signals.read(&mut bytes), Ok(SIGNAL_BYTES)) {
            let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as i32;
            let Ok(signal) = Signal::try_from(number) else { continue };
            let wish = WISHES.contains(&signal);
            if wish || signal == Signal::SIGHUP {
                last.store(number, Ordering::Relaxed);
            }
            wishes += u32::from(wish);
            match wishes {
                1 if wish => say(&left(progress, began.elapsed())),
                2 => progress.stop(),
                _ => {}
            }
        }
        if over.within(LOOK) {
            return;
        }
    }
}

/// What is left, in a line.
fn left(progress: &Progress, since: Duration) -> String {
    let (done, total) = progress.get();
    let rest = total.saturating_sub(done);
    let seconds = match done {
        0 => String::new(),
        done => {
            format!(", about {:.0} s", (since.as_secs_f64() * rest as f64 / done as f64).ceil())
        }
    };
    format!(
        "changes are being written back: {rest} of {total} files left{seconds}; a second Ctrl-C \
         stops it and keeps the image"
    )
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
    }
}
