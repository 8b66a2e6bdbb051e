//! The answers of this machine's processor to `cpuid`.

use raw_cpuid::native_cpuid::cpuid_count;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::version::{HASH_START, hash};

/// Matches every subleaf.
pub const ANY: u32 = u32::MAX;
/// Most subleaves of one leaf that are kept.
const SUBLEAVES_MAX: u32 = 32;

/// One question and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// `eax` before.
    pub leaf: u32,
    /// `ecx` before, or [`ANY`].
    pub subleaf: u32,
    /// `eax`, `ebx`, `ecx`, `edx` after.
    pub answer: [u32; 4],
}

/// The constant answers of one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    entries: Vec<Entry>,
}

impl Table {
    /// Asks the processor this runs on. `None` where processors of one machine differ by design.
    pub fn measure() -> Option<Table> {
        let last = ask(0, 0)[0];
        let hybrid = last >= 7 && ask(7, 0)[3] >> 15 & 1 == 1;
        if hybrid {
            return None;
        }
        let mut table = Table { entries: Vec::new() };
        table.add(0, ANY);
        let has = |leaf| leaf <= last;
        if has(2) && ask(2, 0)[0] & 0xff == 1 {
            table.add(2, ANY);
        }
        if has(4) {
            table.add_until_empty(4);
        }
        if has(7) {
            (0..=ask(7, 0)[0].min(2)).for_each(|subleaf| table.add(7, subleaf));
        }
        if has(0xd) {
            (0..SUBLEAVES_MAX).for_each(|subleaf| table.add(0xd, subleaf));
        }
        for leaf in [0x14, 0x19, 0x24].into_iter().filter(|&leaf| has(leaf)) {
            table.add(leaf, 0);
        }
        table.add_extended();
        Some(table)
    }

    fn add_extended(&mut self) {
        let first = 0x8000_0000;
        let last = ask(first, 0)[0];
        if last < first {
            return;
        }
        self.add(first, ANY);
        for leaf in first + 1..=last.min(first + 8) {
            self.add(leaf, ANY);
        }
        if last >= first + 0x1d {
            self.add_until_empty(first + 0x1d);
        }
    }

    /// Subleaves that describe caches, up to and with the first that says there is none.
    fn add_until_empty(&mut self, leaf: u32) {
        for subleaf in 0..SUBLEAVES_MAX {
            self.add(leaf, subleaf);
            if ask(leaf, subleaf)[0] & 0x1f == 0 {
                break;
            }
        }
    }

    fn add(&mut self, leaf: u32, subleaf: u32) {
        let answer = ask(leaf, if subleaf == ANY { 0 } else { subleaf });
        self.entries.push(Entry { leaf, subleaf, answer });
    }

    /// The table with another answer to one question, to see who asks it.
    pub fn with_answer(&self, leaf: u32, subleaf: u32, answer: [u32; 4]) -> Table {
        let mut table = self.clone();
        for entry in &mut table.entries {
            if entry.leaf == leaf && (entry.subleaf == subleaf || entry.subleaf == ANY) {
                entry.answer = answer;
            }
        }
        table
    }

    /// A number that differs between machines whose answers differ.
    pub fn signature(&self) -> u64 {
        // Leaf 1 is not in the table, but its model and features are part of the machine.
        let [model, _, features, more] = ask(1, 0);
        let words = [model, features, more].map(u32::to_le_bytes);
        hash(hash(HASH_START, words.as_flattened()), &self.bytes())
    }

    /// Whether every processor this process may run on gives the same answers (invariant 1).
    pub fn holds_everywhere(&self) -> bool {
        // In a thread of its own, so that the caller's own placement is left alone.
        let own = self.clone();
        std::thread::spawn(move || own.holds_on_each()).join().unwrap_or(false)
    }

    fn holds_on_each(&self) -> bool {
        let Ok(allowed) = sched_getaffinity(None) else { return false };
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
        processors.all(|number| {
            let mut one = CpuSet::new();
            one.set(number);
            sched_setaffinity(None, &one).is_ok() && Table::measure().as_ref() == Some(self)
        })
    }

    /// The table as the lookup reads it: leaf, subleaf, eax, ebx, ecx, edx.
    pub fn bytes(&self) -> Vec<u8> {
        let words = |entry: &Entry| {
            let [eax, ebx, ecx, edx] = entry.answer;
            [entry.leaf, entry.subleaf, eax, ebx, ecx, edx]
        };
        self.entries.iter().flat_map(words).flat_map(u32::to_le_bytes).collect()
    }

    /// The entries, most asked first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

fn ask(leaf: u32, subleaf: u32) -> [u32; 4] {
    let answer = cpuid_count(leaf, subleaf);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}
