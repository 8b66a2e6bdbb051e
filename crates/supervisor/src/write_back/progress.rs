//! A progress line on a terminal, when a write-back takes longer than a second.
//!
//! A thread of its own draws: a terminal that was stopped (^S) holds up who writes to it, and the
//! write-back is not to wait for anybody to look. What is waited for at the end is only that the
//! line is gone; everything is written by then.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{
    HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};

use super::tally::Tally;
use crate::output::progress::{Onlooker, Over, Progress};

/// Shorter write-backs say nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Files, bytes, rate, and how long it will take.
const TEMPLATE: &str =
    "husk: writing back {human_pos}/{human_len} files {msg}{wide_bar} {rate} {eta}";
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
    pub fn closing(self, tally: &Tally) -> Option<String> {
        let seen = self.painter.is_some();
        (seen && tally.files + tally.removed > 0).then(|| closing_line(tally, self.began.elapsed()))
    }

    fn on(target: ProgressDrawTarget, progress: &Arc<Progress>, quiet: Duration) -> Self {
        let progress = Arc::clone(progress);
        let paint = move |over: &Over| paint(over, &progress, target, quiet);
        Self { painter: Some(Onlooker::begin(paint)), began: Instant::now() }
    }
}

fn closing_line(tally: &Tally, took: Duration) -> String {
    let Tally { files, removed, conflicts, failures } = *tally;
    let count =
        |n: u64, what: &str| format!("{} {what}{}", HumanCount(n), if n == 1 { "" } else { "s" });
    let mut line = format!("{} written back", count(files, "file"));
    if removed > 0 {
        line += &format!(", {} removed", HumanCount(removed));
    }
    line += &format!(" in {:.1} s", took.as_secs_f64());
    if conflicts > 0 {
        line += &format!("; {}", count(conflicts, "conflict"));
    }
    if failures > 0 {
        line += &format!("; {} not", HumanCount(failures));
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
        bar.set_style(style.with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
            let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
        }));
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
        let tally = Tally { files: 1203, conflicts: 2, ..Tally::default() };
        let line = closing_line(&tally, Duration::from_millis(400));
        assert_eq!(line, "1,203 files written back in 0.4 s; 2 conflicts");
        let tally = Tally { files: 1, removed: 2, ..Tally::default() };
        let line = closing_line(&tally, Duration::from_secs(1));
        assert_eq!(line, "1 file written back, 2 removed in 1.0 s");
    }

    /// A terminal that keeps what is drawn.
    #[derive(Debug)]
    struct Kept(Sender<String>);

    impl TermLike for Kept {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            let _ = self.0.send(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_says_files_bytes_and_rate() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let (drawn, seen) = channel();
        let target = ProgressDrawTarget::term_like(Box::new(Kept(drawn)));
        let progress = Arc::<Progress>::default();
        progress.set(1203, 5000);
        progress.set_bytes(3 << 20);
        let line = ProgressLine::on(target, &progress, Duration::ZERO);
        let is_whole = |text: &String| {
            text.contains("writing back 1,203/5,000 files 3.00 MiB ") && text.contains("/s ")
        };
        while !is_whole(&seen.recv_timeout(PATIENCE).expect("it is drawn")) {}
        drop(line);
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
