//! A network interface, tuned for UDP at full rate and set back exactly.
//!
//! ```text
//!   tune:    device ─► plan ─► what differs ─► record (on disk) ─► set, one after the other
//!   untune:  record ─► each value: still ours? ─► set back ─► record goes
//! ```
//!
//! Invariants
//! 1. Everything that will be changed is on record, with its old and its new value, before the
//!    first change: whatever instruction `tune` ends at, `untune` sets everything back.
//! 2. A value that is neither the old nor the new one was changed by another program: it is left
//!    alone, with a line.
//! 3. The record goes only when every value is as before, changed by another program, or of a
//!    device that has gone.
//!
//! The record is in `/run`: a restart of the machine takes both the settings and the record away.
//!
//! Not here: options of a program's sockets (`SO_BUSY_POLL`, a socket for each thread).

mod carry;
#[cfg(test)]
mod fake;
mod linux;
mod plan;
mod setting;

use std::fmt::Write as _;

use serde::Serialize;

use crate::problem::Problem;
pub use setting::{KINDS, Kind};

/// What happened to one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its name.
    pub setting: String,
    /// Its value before and after; the value that is wanted, in a dry run.
    pub before: Option<String>,
    /// After.
    pub after: Option<String>,
    /// What was done.
    pub outcome: Outcome,
    /// Why not, where it was not.
    pub why: Option<String>,
}

/// What was done with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has its new value.
    Set,
    /// It would get it, were this not a dry run.
    WouldSet,
    /// It had the value already.
    AsWanted,
    /// The device or Linux cannot.
    Cannot,
    /// Another program has changed it since: it was left alone.
    Foreign,
    /// The device has gone.
    Gone,
}

/// What was done with an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Its name.
    pub interface: String,
    /// Setting by setting.
    pub rows: Vec<Row>,
}

impl Report {
    /// A table for people; a setting that was not set has the reason in its line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let value = |value: &Option<String>| value.clone().unwrap_or("-".to_owned());
            let (before, after) = (value(&row.before), value(&row.after));
            let what = match row.outcome {
                Outcome::Set => format!("{before} -> {after}"),
                Outcome::WouldSet => format!("{before} -> {after} (dry run)"),
                Outcome::AsWanted => format!("{before} (no change)"),
                Outcome::Cannot => "not set".to_owned(),
                Outcome::Foreign => format!("{before} (left alone)"),
                Outcome::Gone => "gone".to_owned(),
            };
            let why = row.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let _ = writeln!(text, "{:<20} {what}{why}", row.setting);
        }
        text
    }
}

/// Which parts, and whether to change anything.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only these; if empty, all. If one that is named cannot be set, that is an error.
    pub only: Vec<Kind>,
    /// Change nothing.
    pub dry_run: bool,
}

/// Tunes an interface of this network namespace.
pub fn tune(interface: &str, options: &Options) -> Result<Report, Problem> {
    if options.dry_run {
        return carry::dry_run(&linux::Linux::look(interface)?, options);
    }
    carry::tune(&mut linux::Linux::hold(interface)?, options)
}

/// Sets an interface back.
pub fn untune(interface: &str) -> Result<Report, Problem> {
    carry::untune(&mut linux::Linux::hold(interface)?)
}
