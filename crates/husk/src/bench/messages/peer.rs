//! Another program whose messages `husk bench msg` measures in the same rounds: iceoryx2, which the
//! product does not depend on (`tests/peers/iceoryx2`).
//!
//! ```text
//!   husk ── a line ──► peer     what it calls itself comes first; then for each line the ns of
//!        ◄── ns ──────          64 bytes one way, both sides polling, on the same two cores
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde::Serialize;

use crate::bench::measure::lines::Lines;
use crate::bench::report::median;

/// What is looked for where no path is given.
pub const PROGRAM: &str = "husk-peer-iceoryx2";
/// How it is made.
pub const HOW: &str = "cargo install --path tests/peers/iceoryx2, or name it with --peer";
/// The most that our own way may take, times the peer's.
pub const WANTED: f64 = 0.35;

/// A peer that runs.
pub struct Peer {
    lines: Lines,
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
        let mut lines = match Lines::start(&mut Command::new(program)) {
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            started => started.with_context(|| format!("cannot start {}", program.display()))?,
        };
        let name = answer(&mut lines)?;
        Ok(Some(Peer { lines, name, figures_ns: Vec::new() }))
    }

    /// Has it measure once.
    pub fn measure(&mut self) -> anyhow::Result<()> {
        let Peer { lines, name, .. } = self;
        lines.send("\n").with_context(|| format!("{name} has ended"))?;
        let said = answer(lines)?;
        let ns = said.parse::<f64>().ok().filter(|ns| *ns > 0.0);
        self.figures_ns.push(ns.with_context(|| format!("{name} said {said:?}"))?);
        Ok(())
    }

    /// What came of it, beside our own median.
    pub fn figures(&self, own_ns: Option<f64>) -> Figures {
        let median_ns = median(self.figures_ns.iter().copied());
        let least_ns = self.figures_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = own_ns.map(|own_ns| own_ns / median_ns.max(1.0));
        Figures { name: self.name.clone(), least_ns, median_ns, ratio }
    }
}

fn answer(lines: &mut Lines) -> anyhow::Result<String> {
    lines.answer()?.context("the peer has ended")
}
