//! `husk stat`: counts of operations in a running image, and what it holds.
//!
//! Read without stopping programs (`husk_carrier::Seat`): counters may differ by an operation, and
//! reads that a process has not published yet (it does at its next change) are missing. The few
//! operations of the supervisor are included.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use husk_carrier::Counts;
use husk_proto::operation::{NAMES, OPERATIONS, Operation};
use husk_proto::{Fs, Overview as _};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::image::attach::Visit;
use crate::image::work::refused;
use crate::memory::full;
use crate::output::failure::Failure;
use crate::show::holds::{self, Work};

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;
/// Kernels side by side in the table.
const COLUMNS: usize = 8;

/// What one kernel has done.
#[derive(Serialize, Debug, Clone, Default)]
pub struct Kernel {
    /// Its number.
    pub kernel: u32,
    /// Threads that act for it now.
    pub threads: u32,
    /// What they and those before them have done.
    #[serde(flatten)]
    pub done: Done,
}

/// What has been done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done(pub Counts);

impl Done {
    /// How often an operation of this type was done.
    pub fn of(&self, operation: Operation) -> u64 {
        self.0.operations[operation as usize]
    }

    /// All operations.
    pub fn operations(&self) -> u64 {
        self.0.operations.iter().sum()
    }
}

impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("operations", &ByType(&self.0.operations))?;
        for (name, count) in self.others() {
            map.serialize_entry(name, &count)?;
        }
        map.end()
    }
}

impl Done {
    /// What is counted beside operations.
    pub fn others(&self) -> [(&'static str, u64); 4] {
        let Counts { transactions, waits, rollbacks, recovered, .. } = self.0;
        [
            ("transactions", transactions),
            ("waits", waits),
            ("rollbacks", rollbacks),
            ("recovered", recovered),
        ]
    }
}

struct ByType<'a>(&'a [u64; OPERATIONS]);

impl Serialize for ByType<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(NAMES.iter().zip(self.0))
    }
}

/// A call that was refused on files of the image.
#[derive(Serialize, Debug)]
pub struct Refused {
    /// Its name.
    pub call: &'static str,
    /// Its number.
    pub number: usize,
    /// How often.
    pub count: u64,
}

/// What an image holds.
#[derive(Serialize, Debug, Clone, Default)]
pub struct Holds {
    /// Most it may hold, bytes.
    pub memory_bytes: u64,
    /// What it takes of the host's memory now, its state included.
    pub memory_taken_bytes: u64,
    /// Blocks of 4 KiB.
    pub blocks: u64,
    /// Of these, free.
    pub blocks_free: u64,
    /// Inodes.
    pub inodes: u64,
    /// Of these, free.
    pub inodes_free: u64,
    /// What there is no room for now, a line each.
    pub full: Vec<String>,
}

impl Holds {
    /// As people are shown it.
    pub fn line(&self) -> String {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Holds { blocks, blocks_free, inodes, inodes_free, memory_taken_bytes, .. } = self;
        format!(
            "files {:.1} of {:.1} MiB   inodes {} of {inodes}   host {:.1} MiB",
            mebibytes((blocks - blocks_free) * BLOCK_BYTES),
            mebibytes(blocks * BLOCK_BYTES),
            inodes - inodes_free,
            mebibytes(*memory_taken_bytes),
        )
    }
}

/// What there is to see of an image.
#[derive(Serialize, Debug)]
pub struct Report {
    /// How it was found: its name, or a process.
    pub image: String,
    /// The process by which it was found: of an image with a name its supervisor.
    pub pid: u32,
    /// What each kernel has done.
    pub kernels: Vec<Kernel>,
    /// What it holds.
    #[serde(flatten)]
    pub holds: Holds,
    /// Processes of it.
    pub processes: u32,
    /// Open-file descriptions.
    pub descriptions: u64,
    /// How often a directory became one that any kernel changes.
    pub directories_widened: u64,
    /// How often it became one kernel's again.
    pub directories_narrowed: u64,
    /// Calls that were refused.
    pub unsupported: Vec<Refused>,
    /// Of a node that is not the home of its files: what its processes have asked the home for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<&'static str, u64>,
}

/// Looks at the image that `name` names, as `husk fsck` does.
pub fn report(name: &str) -> Result<Report, Failure> {
    Ok(of(&mut Visit::of(name)?))
}

/// What there is to see of an image that is looked at already.
pub fn of(visit: &mut Visit) -> Report {
    holds::work(&visit.direct, Work::Statistics);
    let kernels = kernels(visit);
    let sum = |operation| kernels.iter().map(|kernel| kernel.done.of(operation)).sum();
    let mut processes = 0;
    visit.direct.each_pid(&mut |_| processes += 1);
    let unsupported = refused(&visit.direct)
        .map(|(number, count)| Refused { call: husk_abi::nr::name(number), number, count })
        .collect();
    Report {
        image: visit.name().to_owned(),
        pid: visit.pid,
        holds: holds(visit),
        processes,
        descriptions: visit.direct.open_descriptions(),
        directories_widened: sum(Operation::Widen),
        directories_narrowed: sum(Operation::Narrow),
        unsupported,
        requests: visit.direct.requests_by_kind().collect(),
        kernels,
    }
}

/// What each kernel of an image has done.
pub fn kernels(visit: &Visit) -> Vec<Kernel> {
    let number = |kernel| Kernel { kernel, ..Kernel::default() };
    let mut kernels: Vec<Kernel> = (0..visit.direct.kernels()).map(number).collect();
    // Who has a seat and no record is a supervisor, or somebody who looks at the image.
    let mut programs = HashSet::new();
    visit.direct.each_pid(&mut |pid| {
        programs.insert(pid);
    });
    visit.direct.each_seat(&mut |seat| {
        let kernel = &mut kernels[seat.kernel as usize];
        kernel.threads += u32::from(programs.contains(&seat.pid));
        kernel.done.0.add(&seat.counts);
    });
    kernels
}

/// What an image holds.
pub fn holds(visit: &mut Visit) -> Holds {
    let usage = visit.direct.usage();
    Holds {
        memory_bytes: visit.layout.memory_bytes,
        memory_taken_bytes: visit.memory_taken_bytes(),
        blocks: usage.blocks,
        // Counted one by one while programs go on: never more than there are.
        blocks_free: usage.blocks_free.min(usage.blocks),
        inodes: usage.inodes,
        inodes_free: usage.inodes_free.min(usage.inodes),
        full: full::lines(&visit.direct),
    }
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "processes {}   open descriptions {}   directories widened {}, narrowed {}\n",
            self.processes, self.descriptions, self.directories_widened, self.directories_narrowed
        );
        let _ = writeln!(text, "{}", self.holds.line());
        self.holds.full.iter().for_each(|line| text += &format!("{line}\n"));
        text.push('\n');
        for some in self.kernels.chunks(COLUMNS) {
            table(&mut text, some);
        }
        for Refused { call, number, count } in &self.unsupported {
            let _ = writeln!(text, "unsupported: {call} ({number}), refused {count}x");
        }
        for (kind, count) in &self.requests {
            let _ = writeln!(text, "asked of node 0: {kind} {count}x");
        }
        text
    }
}

/// Some kernels side by side; of operations only those that somebody has done.
fn table(text: &mut String, kernels: &[Kernel]) {
    let mut row = |name: &str, of: &dyn Fn(&Kernel) -> String| {
        let _ = write!(text, "{name:<12}");
        kernels.iter().for_each(|kernel| {
            let _ = write!(text, " {:>12}", of(kernel));
        });
        text.push('\n');
    };
    row("KERNEL", &|kernel| kernel.kernel.to_string());
    row("threads", &|kernel| kernel.threads.to_string());
    row("operations", &|kernel| kernel.done.operations().to_string());
    for (n, name) in NAMES.iter().enumerate() {
        if kernels.iter().any(|kernel| kernel.done.0.operations[n] != 0) {
            row(&format!("  {name}"), &|kernel| kernel.done.0.operations[n].to_string());
        }
    }
    for (n, (name, _)) in Done::default().others().iter().enumerate() {
        row(name, &|kernel| kernel.done.others()[n].1.to_string());
    }
    text.push('\n');
}
