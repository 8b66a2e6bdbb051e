//! A progress line on a terminal, when a write-back takes longer than a second.
//!
//! A thread of its own draws: a terminal that was stopped (^S) holds up who writes to it, and the
//! write-back is not to wait for anybody to look. What is waited for at the end is only that the
//! line is gone; everything is written by then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks at the count.
const LOOK: Duration = Duration::from_millis(100);

/// What the two threads share.
#[derive(Default)]
struct Count {
    done: AtomicU64,
    ended: Mutex<bool>,
    told: Condvar,
}

impl Count {
    /// Whether the work has ended, waiting for it up to `most`.
    fn ends_within(&self, most: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(ended, most, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Counts objects; draws once it has taken long enough.
pub struct Progress {
    count: Arc<Count>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// A line for `total` objects, where standard error is a terminal.
    pub fn new(total: u64) -> Self {
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Self { count: Arc::default(), painter: None };
        }
        Self::on(target, total, QUIET)
    }

    fn on(target: ProgressDrawTarget, total: u64, quiet: Duration) -> Self {
        let count = Arc::<Count>::default();
        let counted = Arc::clone(&count);
        let paint = move || paint(&counted, target, total, quiet);
        // Where no thread can be had, nothing is drawn.
        Self { count, painter: thread::Builder::new().spawn(paint).ok() }
    }

    /// One more is done.
    pub fn step(&mut self) {
        self.count.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.count.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.count.told.notify_all();
        if let Some(painter) = self.painter.take() {
            // A panic there has been printed, and costs nothing but the line.
            let _ = painter.join();
        }
    }
}

fn paint(count: &Count, target: ProgressDrawTarget, total: u64, quiet: Duration) {
    if count.ends_within(quiet) {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = ProgressStyle::with_template("husk: writing back {pos}/{len} {wide_bar} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    loop {
        bar.set_position(count.done.load(Ordering::Relaxed));
        if count.ends_within(LOOK) {
            return bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A terminal that was stopped: whoever writes waits until `go_on` is dropped.
    #[derive(Debug)]
    struct Stopped {
        reached: Sender<()>,
        go_on: Mutex<Receiver<()>>,
    }

    impl Stopped {
        fn wait(&self) -> io::Result<()> {
            let _ = self.reached.send(());
            let _ = self.go_on.lock().map(|go_on| go_on.recv());
            Ok(())
        }
    }

    impl TermLike for Stopped {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            self.wait()
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            self.wait()
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            self.wait()
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            self.wait()
        }
        fn write_line(&self, _: &str) -> io::Result<()> {
            self.wait()
        }
        fn write_str(&self, _: &str) -> io::Result<()> {
            self.wait()
        }
        fn clear_line(&self) -> io::Result<()> {
            self.wait()
        }
        fn flush(&self) -> io::Result<()> {
            self.wait()
        }
    }

    #[test]
    fn the_work_goes_on_while_the_terminal_is_stopped() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let ((reached, at), (go_on, gate), (finished, end)) = (channel(), channel(), channel());
        let target =
            ProgressDrawTarget::term_like(Box::new(Stopped { reached, go_on: Mutex::new(gate) }));
        let mut progress = Progress::on(target, 3, Duration::ZERO);
        let work = thread::spawn(move || {
            progress.step();
            at.recv_timeout(PATIENCE).expect("something is drawn");
            progress.step();
            progress.step();
            finished.send(()).expect("somebody waits");
        });
        end.recv_timeout(PATIENCE).expect("all steps were made");
        drop(go_on);
        work.join().expect("the line is gone");
    }
}
