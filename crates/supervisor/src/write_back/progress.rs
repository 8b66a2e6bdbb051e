//! A progress line on a terminal, when a write-back takes longer than a second.
//!
//! A thread of its own draws: a terminal that was stopped (^S) holds up who writes to it, and the
//! write-back is not to wait for anybody to look. What is waited for at the end is only that the
//! line is gone; everything is written by then.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::onlooker::{Onlooker, Over, Tally};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks at the count.
const LOOK: Duration = Duration::from_millis(100);

/// Draws how far the work is, once it has taken long enough.
pub struct Progress {
    _painter: Option<Onlooker>,
}

impl Progress {
    /// A line about `tally`, where standard error is a terminal.
    pub fn new(tally: &Arc<Tally>) -> Self {
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Self { _painter: None };
        }
        Self::on(target, tally, QUIET)
    }

    fn on(target: ProgressDrawTarget, tally: &Arc<Tally>, quiet: Duration) -> Self {
        let tally = Arc::clone(tally);
        let paint = move |over: &Over| paint(over, &tally, target, quiet);
        Self { _painter: Some(Onlooker::begin(paint)) }
    }
}

fn paint(over: &Over, tally: &Tally, target: ProgressDrawTarget, quiet: Duration) {
    if over.within(quiet) {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("husk: writing back {pos}/{len} {wide_bar} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    loop {
        let (done, total) = tally.get();
        if total != 0 {
            bar.set_length(total);
            bar.set_position(done);
        }
        if over.within(LOOK) {
            return bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

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
        let tally = Arc::<Tally>::default();
        tally.set(0, 3);
        let progress = Progress::on(target, &tally, Duration::ZERO);
        let work = thread::spawn(move || {
            tally.step();
            at.recv_timeout(PATIENCE).expect("something is drawn");
            tally.step();
            tally.step();
            finished.send(()).expect("somebody waits");
            drop(progress);
        });
        end.recv_timeout(PATIENCE).expect("all steps were made");
        drop(go_on);
        work.join().expect("the line is gone");
    }
}
