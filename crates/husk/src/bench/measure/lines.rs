//! A program that is asked by a line each time, and answers with one.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};

/// Longest wait for one answer, where nobody says otherwise.
const ANSWER_MS: u16 = 30_000;

/// The program, and the pipes to it.
pub struct Lines {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Longest wait for one answer.
    pub patience_ms: u16,
}

impl Lines {
    /// Starts it.
    pub fn start(command: &mut Command) -> io::Result<Lines> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Lines { child, orders, answers, patience_ms: ANSWER_MS })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks.
    pub fn send(&mut self, order: &str) -> anyhow::Result<()> {
        Ok(self.orders.as_mut().context("closed")?.write_all(order.as_bytes())?)
    }

    /// The next line; none: it has ended.
    pub fn answer(&mut self) -> anyhow::Result<Option<String>> {
        let mut ready = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
        let most_ms = self.patience_ms;
        anyhow::ensure!(poll(&mut ready, most_ms)? == 1, "no answer within {most_ms} ms");
        let mut line = String::new();
        let any = self.answers.read_line(&mut line)? > 0;
        Ok(any.then(|| line.trim_end().to_owned()))
    }
}

impl Drop for Lines {
    /// Closing its input ends it; what does not end is killed.
    fn drop(&mut self) {
        drop(self.orders.take());
        let end = Instant::now() + Duration::from_millis(3_000);
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Both may fail only when it has just ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
