//! The counters of an image as OpenMetrics 1.0 text.
//!
//! <https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>

use std::fmt::Write as _;

use husk_proto::operation::NAMES;

use crate::show::stat::{Refused, Report};

/// What a text in this form is said to be.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One family of metrics after the other.
struct Writer<'a> {
    image: &'a str,
    text: String,
}

impl Writer<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if name.ends_with("_bytes") {
            let _ = writeln!(self.text, "# UNIT {name} bytes");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let _ = write!(self.text, "{name}{{image=\"{}\"", escaped(self.image));
        for (label, is) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(is));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counters beside operations, in the order of `Done::others`.
const COUNTERS: [(&str, &str); 4] = [
    ("husk_transactions", "Transactions that have changed something."),
    ("husk_waits", "Tokens and locks that were not free at once."),
    ("husk_rollbacks", "Transactions undone: they failed, or had to start again."),
    ("husk_recovered", "Journals of killed threads that were completed or undone."),
];

/// `report` on the image called `image`.
pub fn text(image: &str, report: &Report) -> String {
    let mut out = Writer { image, text: String::new() };
    out.family("husk_operations", "counter", "Operations that kernels have done, by type.");
    for kernel in &report.kernels {
        let number = kernel.kernel.to_string();
        for (name, count) in NAMES.iter().zip(kernel.done.0.operations) {
            let labels = [("kernel", number.as_str()), ("operation", *name)];
            out.sample("husk_operations_total", &labels, count);
        }
    }
    for (n, (name, help)) in COUNTERS.into_iter().enumerate() {
        out.family(name, "counter", help);
        for kernel in &report.kernels {
            let number = kernel.kernel.to_string();
            let count = kernel.done.others()[n].1;
            out.sample(&format!("{name}_total"), &[("kernel", number.as_str())], count);
        }
    }
    out.family("husk_threads", "gauge", "Threads that act for a kernel now.");
    for kernel in &report.kernels {
        let number = kernel.kernel.to_string();
        out.sample("husk_threads", &[("kernel", number.as_str())], kernel.threads.into());
    }
    holdings(&mut out, report);
    out.family("husk_unsupported_calls", "counter", "Calls refused on files of the image.");
    for Refused { call, number, count } in &report.unsupported {
        let number = number.to_string();
        let labels = [("call", *call), ("number", number.as_str())];
        out.sample("husk_unsupported_calls_total", &labels, *count);
    }
    out.text + "# EOF\n"
}

fn holdings(out: &mut Writer<'_>, report: &Report) {
    let holds = &report.holds;
    out.gauge("husk_memory_limit_bytes", "Memory limit of the image.", holds.memory_bytes);
    let taken = "Memory of the host in use, including the image's own tables.";
    out.gauge("husk_memory_taken_bytes", taken, holds.memory_taken_bytes);
    out.gauge("husk_blocks", "Blocks of 4 KiB for files.", holds.blocks);
    out.gauge("husk_blocks_free", "Of these, free.", holds.blocks_free);
    out.gauge("husk_inodes", "Inodes.", holds.inodes);
    out.gauge("husk_inodes_free", "Of these, free.", holds.inodes_free);
    out.gauge("husk_open_descriptions", "Open-file descriptions.", report.descriptions);
    out.gauge("husk_processes", "Processes of the image.", report.processes.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\n");
    }
}
