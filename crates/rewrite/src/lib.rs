//! Finds the system call sites of an ELF file and makes a copy in which they call the gate.
//!
//! ```text
//!   file --elf--> code, data --bounds--> chunks --scan--> candidates, targets, stack facts
//!                                                              |
//!   copy <--store-- edits <--decide (forms, reasons)-- functions
//! ```
//!
//! Every site that is not patched is caught by the trap, 100 times slower and just as correct. So
//! there is one rule: **in doubt, leave it**.
//!
//! Invariants
//! 1. A copy has the file's length and differs from it only inside patched sites (and, in a copy
//!    of the dynamic loader, where [`cpuid`] says).
//! 2. Only `syscall` instructions reached by decoding a function from its known start to its
//!    known end are patched; raw bytes are never searched.
//! 3. Nothing may jump into a patched site but to its first byte; no function that keeps data
//!    below its stack pointer, or loads the stack pointer from elsewhere, is patched.
//! 4. Writable or non-executable memory is never patched.
//! 5. No input makes this crate panic, and all work is bounded by the length of the input.
//!
//! Not here: who asks for copies (supervisor), who maps them (runtime), what the gate does.
#![forbid(unsafe_code)]

mod bounds;
pub mod cpuid;
mod decide;
mod elf;
mod facts;
mod functions;
pub mod huge;
mod scan;
mod site;
pub mod store;
mod targets;
mod version;

pub use elf::{FILE_BYTES_MAX, Refusal};
pub use site::{
    CALL_BYTES, ENTRY_COMPARE_4095, ENTRY_COMPARE_4096, Edit, Form, GATE_TABLE, NUMBERS_MAX,
    Reason, Site, Verdict,
};
pub use store::{Identity, Outcome, Store, Unusable};

/// What is to be done to a file.
#[derive(Clone, Debug, Default)]
pub struct Patched {
    /// Every `syscall` instruction that was found, in address order.
    pub sites: Vec<Site>,
}

impl Patched {
    /// The edits that make the copy; disjoint, in file order of their sections.
    pub fn edits(&self) -> impl Iterator<Item = Edit> {
        self.sites.iter().filter_map(Site::edit)
    }

    /// Whether the copy differs from the file at all.
    pub fn is_changed(&self) -> bool {
        self.edits().next().is_some()
    }

    /// Makes the copy, in place, of the bytes this was made from.
    ///
    /// # Panics
    /// If `bytes` is shorter than those were.
    pub fn apply(&self, bytes: &mut [u8]) {
        for edit in self.edits() {
            bytes[edit.offset..][..edit.bytes().len()].copy_from_slice(edit.bytes());
        }
    }
}

/// Finds the sites of a file and decides what becomes of each.
pub fn patch(bytes: &[u8]) -> Result<Patched, Refusal> {
    let image = elf::Image::parse(bytes)?;
    Ok(Patched { sites: decide::sites(&image)? })
}

/// Makes the copy of a file in place; returns whether it differs from the file.
///
/// With a table, copies of the dynamic loader also answer `cpuid` from it, and make all the calls
/// of a start without the trap.
pub fn make_copy(bytes: &mut [u8], table: Option<&cpuid::Table>) -> Result<bool, Refusal> {
    let patched = patch(bytes)?;
    let answered = table.map_or(0, |table| cpuid::answer_and_call_from(table, bytes).answered);
    patched.apply(bytes);
    Ok(answered > 0 || patched.is_changed())
}
