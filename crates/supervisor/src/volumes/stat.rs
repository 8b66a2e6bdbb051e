//! `husk volume stat`: what the log of a volume does, seen from outside of the image that uses it.
//!
//! Counters are read from the image's memory while it goes on: what belongs together may be a
//! commit apart.

use std::fmt::Write as _;

use husk_proto::Overview as _;
use husk_proto::image::MOUNTS_MAX;
use husk_proto::volume::{Counter, State as VolumeState};
use husk_storage::catalogue::{Catalogue, Row, State};
use serde::Serialize;

use super::name_of;
use crate::image::attach::Visit;
use crate::image::clock::exact_ns;
use crate::output::failure::Failure;
use crate::run::request::size;

const NS_PER_S: f64 = 1e9;
const US_PER_S: f64 = 1e6;

/// What there is to say of a volume.
#[derive(Serialize, Debug)]
pub struct Report {
    /// As the list of volumes has it.
    #[serde(flatten)]
    pub row: Row,
    /// What is done with it, where an image uses it.
    pub served: Option<Served>,
}

/// What the image that uses it has done.
#[derive(Serialize, Debug, Clone, Default)]
pub struct Served {
    /// A write has failed: nothing is made durable any more.
    pub stopped: bool,
    /// When changes are durable: `fsync`, `async=MS` or `immediate`.
    pub policy: String,
    /// For how long, s.
    pub seconds: f64,
    /// Syncs of programs that were answered.
    pub syncs: u64,
    /// Groups in which they were served.
    pub groups: u64,
    /// Writes of the log, each with a flush of the disk.
    pub flushes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Snapshots of the whole tree.
    pub checkpoints: u64,
    /// Bytes of the log that a start would replay, and how many it has room for.
    pub log_bytes: u64,
    /// See `log_bytes`.
    pub log_room_bytes: u64,
    /// Bytes that a start would read, snapshot and log, and how many they may be.
    pub held_bytes: u64,
    /// See `held_bytes`.
    pub held_room_bytes: u64,
    /// Bytes that are written of a larger area, and how many it is to have; 0: none is made.
    pub grown_bytes: u64,
    /// See `grown_bytes`.
    pub growth_bytes: u64,
    /// How many groups took less than so many microseconds, and not less than the one before; the
    /// last class is for all that took longer.
    pub took: Vec<Took>,
}

/// Groups of one class of durations.
#[derive(Serialize, Debug, Clone, Copy)]
pub struct Took {
    /// They took less.
    pub below_us: u64,
    /// How many they are.
    pub groups: u64,
}

impl Served {
    fn of(visit: &Visit, tree: u32) -> Served {
        let direct = &visit.direct;
        let count = |counter| direct.volume_counted(tree, counter);
        let classes = direct.volume_took(tree).into_iter().enumerate();
        let took = classes.map(|(class, groups)| Took { below_us: 1 << class, groups });
        let since_ns = direct.volume_name(tree).1;
        let used = count(Counter::Used);
        Served {
            stopped: direct.volume_state(tree) == VolumeState::Stopped,
            policy: direct.volume_policy(tree).to_string(),
            seconds: (exact_ns() - since_ns).max(1) as f64 / NS_PER_S,
            syncs: count(Counter::Wishes),
            groups: count(Counter::Groups),
            flushes: count(Counter::Flushes),
            written_bytes: count(Counter::Bytes),
            checkpoints: count(Counter::Checkpoints),
            log_bytes: used,
            log_room_bytes: count(Counter::Room),
            held_bytes: used + count(Counter::Snapshot),
            held_room_bytes: count(Counter::SnapshotRoom),
            grown_bytes: count(Counter::Grown),
            growth_bytes: count(Counter::Growth),
            took: took.collect(),
        }
    }

    /// What this part of all groups took less than, us; `None`: there was none.
    fn below_us(&self, part: f64) -> Option<u64> {
        let wanted = (self.groups as f64 * part).ceil() as u64;
        let mut seen = 0;
        let reached = |took: &&Took| {
            seen += took.groups;
            seen >= wanted
        };
        (wanted > 0).then(|| self.took.iter().find(reached).map(|took| took.below_us)).flatten()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.stopped {
            text += "stopped   a write to its disk has failed: nothing is made durable any more\n";
        }
        let _ = writeln!(text, "policy    {}", self.policy);
        let (log, log_room) = (size(self.log_bytes), size(self.log_room_bytes));
        let (held, held_room) = (size(self.held_bytes), size(self.held_room_bytes));
        let _ = writeln!(text, "log       {log} of {log_room}, {} checkpoints", self.checkpoints);
        let _ = writeln!(text, "fill      {held} of {held_room}");
        if self.growth_bytes > 0 {
            let (done, all) = (size(self.grown_bytes), size(self.growth_bytes));
            let _ = writeln!(text, "resize    {done} of {all} written");
        }
        let (syncs, groups) = (self.syncs, self.groups);
        let each = syncs as f64 / groups.max(1) as f64;
        let _ = writeln!(text, "syncs     {syncs}, in {groups} groups ({each:.1} a group)");
        let a_second = self.flushes as f64 / self.seconds;
        let written = size(self.written_bytes);
        let flushes = self.flushes;
        let _ = writeln!(text, "flushes   {flushes} ({a_second:.1} a second), {written}");
        for (part, name) in [(0.5, "half"), (0.9, "90 %"), (0.99, "99 %")] {
            if let Some(us) = self.below_us(part) {
                let _ = writeln!(text, "latency   {name} of the groups less than {us} us");
            }
        }
        text
    }
}

/// What there is to say of volume `name`.
pub fn report(name: &str) -> Result<Report, Failure> {
    let (rows, _) = Catalogue::of_user()?.list()?;
    let Some(row) = rows.into_iter().find(|row| row.name == name) else {
        let what = format!("cannot look at volume {name}");
        let why = "there is none of that name";
        return Err(Failure::new(what, why, "`husk volume ls` lists them"));
    };
    let user = row.holder_pid.filter(|_| row.state == State::InUse);
    let served = user.and_then(|pid| served(pid, name));
    Ok(Report { row, served })
}

/// What is done with it by the image of process `pid`; `None`: that has none, or no such volume.
fn served(pid: u32, name: &str) -> Option<Served> {
    let (visit, tree) = tree_of(pid, name)?;
    Some(Served::of(&visit, tree))
}

/// The image of process `pid`, and which of its trees the volume is.
pub fn tree_of(pid: u32, name: &str) -> Option<(Visit, u32)> {
    let visit = Visit::of(&pid.to_string()).ok()?;
    let direct = &visit.direct;
    let is_it = |tree: &u32| {
        direct.volume_state(*tree) != VolumeState::None && name_of(&visit.direct, *tree) == name
    };
    let tree = (0..MOUNTS_MAX as u32).find(is_it)?;
    Some((visit, tree))
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let (name, bytes) = (&self.row.name, size(self.row.size_bytes));
        let user = match (&self.row.why, self.row.holder_pid) {
            (Some(why), _) => why.clone(),
            (None, Some(pid)) if self.row.state == State::InUse => format!("used by {pid}"),
            _ => "not in use".to_owned(),
        };
        let served = self.served.as_ref().map(Served::text).unwrap_or_default();
        format!("volume    {name}, {bytes}, {user}\n{served}")
    }

    /// For OpenMetrics.
    pub fn metrics(&self) -> String {
        let mut out = Metrics { name: &self.row.name, text: String::new() };
        out.gauge("size_bytes", "Bytes of its area.", self.row.size_bytes);
        let served = self.served.clone().unwrap_or_default();
        out.gauge("served", "An image uses it.", u64::from(self.served.is_some()));
        out.gauge("stopped", "A write to its disk has failed.", u64::from(served.stopped));
        out.counter("syncs", "Syncs of programs that were answered.", served.syncs);
        out.counter("flushes", "Writes of the log, each with a flush.", served.flushes);
        out.counter("written_bytes", "Bytes of these.", served.written_bytes);
        out.counter("checkpoints", "Snapshots of the whole tree.", served.checkpoints);
        out.gauge("log_bytes", "Bytes that a start would replay.", served.log_bytes);
        out.gauge("log_room_bytes", "Bytes that the log has room for.", served.log_room_bytes);
        out.gauge("held_bytes", "Bytes of snapshot and log.", served.held_bytes);
        out.gauge("held_room_bytes", "Bytes that these may be.", served.held_room_bytes);
        out.took(&served);
        out.text + "# EOF\n"
    }
}

/// One family after the other; names of volumes need no escapes.
struct Metrics<'a> {
    name: &'a str,
    text: String,
}

impl Metrics<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# TYPE husk_volume_{name} {kind}");
        if name.ends_with("_bytes") {
            let _ = writeln!(self.text, "# UNIT husk_volume_{name} bytes");
        }
        let _ = writeln!(self.text, "# HELP husk_volume_{name} {help}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        let _ = writeln!(self.text, "husk_volume_{name}{{volume=\"{}\"}} {value}", self.name);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        let _ = writeln!(self.text, "husk_volume_{name}_total{{volume=\"{}\"}} {value}", self.name);
    }

    /// How long groups took. Their sum is not kept.
    fn took(&mut self, served: &Served) {
        self.family("group_seconds", "histogram", "How long it took to serve a group of syncs.");
        let (name, mut seen) = (self.name, 0);
        let classes = served.took.len().saturating_sub(1);
        for took in &served.took[..classes] {
            seen += took.groups;
            let le = took.below_us as f64 / US_PER_S;
            let labels = format!("volume=\"{name}\",le=\"{le}\"");
            let _ = writeln!(self.text, "husk_volume_group_seconds_bucket{{{labels}}} {seen}");
        }
        let all: u64 = served.took.iter().map(|took| took.groups).sum();
        let labels = format!("volume=\"{name}\",le=\"+Inf\"");
        let _ = writeln!(self.text, "husk_volume_group_seconds_bucket{{{labels}}} {all}");
        let _ = writeln!(self.text, "husk_volume_group_seconds_count{{volume=\"{name}\"}} {all}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_groups_is_below_the_class_that_it_ends_in() {
        let classes = [0, 6, 3, 1].into_iter().enumerate();
        let took = classes.map(|(class, groups)| Took { below_us: 1 << class, groups });
        let served = Served { groups: 10, took: took.collect(), ..Served::default() };
        let found = [0.5, 0.6, 0.61, 0.9, 0.99].map(|part| served.below_us(part));
        assert_eq!(found, [Some(2), Some(2), Some(4), Some(4), Some(8)]);
        assert_eq!(Served::default().below_us(0.5), None);
    }
}
