//! Another program whose messages `husk bench msg` measures in the same rounds: iceoryx2, which the
//! product does not depend on (`tests/peers/iceoryx2`).
//!
//! ```text
//!   husk ── a line ──► peer     what it calls itself comes first; then for each line the ns of
//!        ◄── ns ──────          64 bytes one way, both sides polling, on the same two cores
//! ```

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::bench::report::median;

/// What is looked for where no path is given.
pub const PROGRAM: &str = "husk-peer-iceoryx2";
/// How it is made.
pub const HOW: &str = "cargo install --path tests/peers/iceoryx2, or name it with --peer";
/// The most that our own way may take, times the peer's.
pub const WANTED: f64 = 0.35;
/// Longest wait for one answer.
const ANSWER_MS: u16 = 30_000;

/// A peer that runs.
pub struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    name: String,
    figures_ns: Vec<f64>,
}

/// What it took.
#[derive(Serialize, Debug)]
pub struct Figures {
    pub name: String,
    pub least_ns: f64,
    pub median_ns: f64,
    /// Our own 64 bytes one way over its, medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

impl Peer {
    /// Starts the one at `path`, or what is called `PROGRAM`, if there is one.
    pub fn start(path: Option<&Path>) -> anyhow::Result<Option<Peer>> {
        let program = path.unwrap_or(Path::new(PROGRAM));
        let mut command = Command::new(program);
        let child = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            started => started.with_context(|| format!("cannot start {}", program.display()))?,
        };
        let mut peer = Peer::of(child)?;
        peer.name = peer.answer()?;
        Ok(Some(peer))
    }

    fn of(mut child: Child) -> anyhow::Result<Peer> {
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Peer { child, orders, answers, name: String::new(), figures_ns: Vec::new() })
    }

    /// Has it measure once.
    pub fn measure(&mut self) -> anyhow::Result<()> {
        let name = self.name.clone();
        let orders = self.orders.as_mut().context("closed")?;
        orders.write_all(b"\n").with_context(|| format!("{name} has ended"))?;
        let said = self.answer()?;
        let ns = said.parse::<f64>().ok().filter(|ns| *ns > 0.0);
        self.figures_ns.push(ns.with_context(|| format!("{name} said {said:?}"))?);
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut ready = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
        anyhow::ensure!(poll(&mut ready, ANSWER_MS)? == 1, "no answer within {ANSWER_MS} ms");
        let mut line = String::new();
        anyhow::ensure!(self.answers.read_line(&mut line)? > 0, "the peer has ended");
        Ok(line.trim_end().to_owned())
    }

    /// What came of it, beside our own median.
    pub fn figures(&self, own_ns: Option<f64>) -> Figures {
        let median_ns = median(self.figures_ns.iter().copied());
        let least_ns = self.figures_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = own_ns.map(|own_ns| own_ns / median_ns.max(1.0));
        Figures { name: self.name.clone(), least_ns, median_ns, ratio }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
