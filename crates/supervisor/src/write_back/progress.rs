//! A progress line on a terminal, when a write-back takes longer than a second.
//!
//! A thread of its own draws: a terminal that was stopped (^S) holds up who writes to it, and the
//! write-back is not to wait for anybody to look. What is waited for at the end is only that the
//! line is gone; everything is written by then.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::onlooker::{Onlooker, Over, Progress};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks at the count.
const LOOK: Duration = Duration::from_millis(100);

/// Draws how far the work is, once it has taken long enough.
pub struct ProgressLine {
    _painter: Option<Onlooker>,
}

impl ProgressLine {
    /// A line about `progress`, where standard error is a terminal.
    pub fn new(progress: &Arc<Progress>) -> Self {
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Self { _painter: None };
        }
        Self::on(target, progress, QUIET)
    }

    fn on(target: ProgressDrawTarget, progress: &Arc<Progress>, quiet: Duration) -> Self {
        let progress = Arc::clone(progress);
        let paint = move |over: &Over| paint(over, &progress, target, quiet);
        Self { _painter: Some(Onlooker::begin(paint)) }
    }
}

fn paint(over: &Over, progress: &Progress, target: ProgressDrawTarget, quiet: Duration) {
    if over.within(quiet) {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("husk: writing back {pos}/{len} {wide_bar} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    loop {
        let (done, total) = progress.get();
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
        let progress = Arc::<Progress>::default();
        progress.set(0, 3);
        let line = ProgressLine::on(target, &progress, Duration::ZERO);
        let work = thread::spawn(move || {
            progress.step();
            at.recv_timeout(PATIENCE).expect("something is drawn");
            progress.step();
            progress.step();
            finished.send(()).expect("somebody waits");
            drop(line);
        });
        end.recv_timeout(PATIENCE).expect("all steps were made");
        drop(go_on);
        work.join().expect("the line is gone");
    }
}
