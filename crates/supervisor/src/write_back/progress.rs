//! A progress line on a terminal, when a write-back takes longer than a second.
//!
//! A thread of its own draws: a terminal that was stopped (^S) holds up who writes to it, and the
//! write-back is not to wait for anybody to look. What is waited for at the end is only that the
//! line is gone; everything is written by then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Outcome;
use crate::onlooker::{Onlooker, Over, Progress};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Files, bytes, rate, and how long it will take.
const TEMPLATE: &str =
    "husk: writing back {human_pos}/{human_len} files {msg}{wide_bar} {per_sec} {eta}";
/// Between two looks at the count.
const LOOK: Duration = Duration::from_millis(100);

/// Draws how far the work is, once it has taken long enough.
pub struct ProgressLine {
    painter: Option<Onlooker>,
    began: Instant,
}

impl ProgressLine {
    /// A line about `progress`, where standard error is a terminal.
    pub fn new(progress: &Arc<Progress>) -> Self {
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Self { painter: None, began: Instant::now() };
        }
        Self::on(target, progress, QUIET)
    }

    /// Ends the line; what there is to tell of a write-back, where somebody sees it.
    pub fn closing(self, outcome: &Outcome, progress: &Progress) -> Option<String> {
        let seen = self.painter.is_some();
        // A directory that appears counts with all that is in it.
        let files = if outcome.written > 0 { progress.get().0.max(outcome.written) } else { 0 };
        (seen && files + outcome.removed > 0)
            .then(|| closing_line(files, outcome, self.began.elapsed()))
    }

    fn on(target: ProgressDrawTarget, progress: &Arc<Progress>, quiet: Duration) -> Self {
        let progress = Arc::clone(progress);
        let paint = move |over: &Over| paint(over, &progress, target, quiet);
        Self { painter: Some(Onlooker::begin(paint)), began: Instant::now() }
    }
}

fn closing_line(files: u64, outcome: &Outcome, took: Duration) -> String {
    let Outcome { removed, conflicts, failures, .. } = outcome;
    let count =
        |n: u64, what: &str| format!("{} {what}{}", HumanCount(n), if n == 1 { "" } else { "s" });
    let mut line = format!("{} written back", count(files, "file"));
    if *removed > 0 {
        line += &format!(", {} removed", HumanCount(*removed));
    }
    line += &format!(" in {:.1} s", took.as_secs_f64());
    if !conflicts.is_empty() {
        line += &format!("; {}", count(conflicts.len() as u64, "conflict"));
    }
    if !failures.is_empty() {
        line += &format!("; {} not", HumanCount(failures.len() as u64));
    }
    line
}

fn paint(over: &Over, progress: &Progress, target: ProgressDrawTarget, quiet: Duration) {
    if over.within(quiet) {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template(TEMPLATE);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    loop {
        let (done, total) = progress.get();
        if total != 0 {
            bar.set_length(total);
            bar.set_position(done);
        }
        if progress.bytes() > 0 {
            bar.set_message(format!("{} ", HumanBytes(progress.bytes())));
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
    fn the_last_line_counts_files_and_says_what_is_not_as_it_was() {
        let conflicts = vec![String::new(); 2];
        let outcome = Outcome { conflicts, ..Outcome::default() };
        let line = closing_line(1203, &outcome, Duration::from_millis(400));
        assert_eq!(line, "1,203 files written back in 0.4 s; 2 conflicts");
        let outcome = Outcome { removed: 2, ..Outcome::default() };
        let line = closing_line(1, &outcome, Duration::from_secs(1));
        assert_eq!(line, "1 file written back, 2 removed in 1.0 s");
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
