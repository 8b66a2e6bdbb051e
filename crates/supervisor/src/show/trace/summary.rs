//! Counts of calls: what `husk trace -c` prints at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use husk_region::observe::trace::By;
use serde::Serialize;

use super::show::error;
use super::{Call, End};

/// What is counted of the calls of one name, or of all.
#[derive(Serialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it was made.
    pub calls: u64,
    /// How often it failed.
    pub errors: u64,
    /// How long those that ended took, ns.
    pub duration_ns: u64,
    /// Answered by a ring of a pipe or of a socket.
    pub by_ring: u64,
    /// By the host.
    pub by_host: u64,
    /// By a kernel of the image.
    pub by_kernel: u64,
    /// By the process itself.
    pub by_process: u64,
}

impl Count {
    fn add(&mut self, end: Option<End>) {
        self.calls += 1;
        let Some(End { result, by, duration_ns }) = end else { return };
        self.errors += u64::from(error(result).is_some());
        self.duration_ns += duration_ns;
        *match by {
            By::Ring => &mut self.by_ring,
            By::Host => &mut self.by_host,
            By::Kernel(_) => &mut self.by_kernel,
            By::Itself => &mut self.by_process,
        } += 1;
    }

    fn line(&self, name: &str) -> String {
        let Count { calls, errors, by_ring, by_host, by_kernel, by_process, .. } = self;
        let ms = self.duration_ns as f64 / 1e6;
        format!(
            "{ms:>11.3} {calls:>9} {errors:>7} {by_ring:>9} {by_host:>9} {by_kernel:>9} \
             {by_process:>9} {name}"
        )
    }
}

/// Counts by the name of the call.
#[derive(Serialize, Debug, Default)]
pub struct Summary {
    calls: BTreeMap<String, Count>,
    total: Count,
    not_recorded: u64,
}

impl Summary {
    /// One call more.
    pub fn add(&mut self, call: &Call) {
        self.calls.entry(call.name()).or_default().add(call.end);
        self.total.add(call.end);
    }

    /// How many were not recorded.
    pub fn not_recorded(&mut self, calls: u64) {
        self.not_recorded = calls;
    }

    /// For people: those that took longest first.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>11} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} CALL\n",
            "TIME ms", "CALLS", "ERRORS", "BY RING", "BY HOST", "BY KERNEL", "BY ITSELF"
        );
        let mut rows: Vec<_> = self.calls.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(count.duration_ns));
        for (name, count) in rows {
            text += &(count.line(name) + "\n");
        }
        text += &(self.total.line("total") + "\n");
        if self.not_recorded > 0 {
            let _ = writeln!(text, "{}", super::show::not_recorded(self.not_recorded));
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_abi::nr;

    fn call(number: usize, end: Option<(i64, By)>) -> Call {
        Call {
            at_ns: 0,
            pid: 7,
            tid: 7,
            program: "cat".to_owned(),
            number,
            args: [0; 6],
            texts: vec![],
            end: end.map(|(result, by)| End { result, by, duration_ns: 1_000_000 }),
        }
    }

    #[test]
    fn calls_are_counted_by_name_and_by_who_answers() {
        let mut summary = Summary::default();
        for end in [(1, By::Ring), (1, By::Ring), (-11, By::Itself), (1, By::Host)] {
            summary.add(&call(nr::read, Some(end)));
        }
        summary.add(&call(nr::openat, Some((3, By::Kernel(1)))));
        summary.add(&call(nr::exit_group, None));
        summary.not_recorded(1234);
        let text = summary.text();
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["4.000", "4", "1", "2", "1", "0", "1", "read"]);
        assert_eq!(words[4], ["5.000", "6", "1", "2", "1", "1", "1", "total"]);
        assert!(text.ends_with("... 1,234 calls were not recorded\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&summary.json()).unwrap();
        assert_eq!(json["calls"]["read"]["by_ring"], 2);
        assert_eq!((&json["total"]["calls"], &json["not_recorded"]), (&6.into(), &1234.into()));
    }
}
