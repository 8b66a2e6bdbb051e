//! Answers `cpuid` from a table in copies of the dynamic loader.
//!
//! glibc's loader asks the processor some 70 questions at every start of a program. On a virtual
//! machine each is an exit to the hypervisor of 1 to 1.4 us: a quarter of the time of `/bin/true`.
//! The answers do not change while the machine runs, so a copy can carry them.
//!
//! ```text
//!   text   ... cpuid; mov; and ...        becomes   jmp stub; nop
//!   slack  | table | lookup | stub: [call lookup]; mov; and; jmp back | ...
//! ```
//!
//! The slack is what the last page of the text has behind its end: mapped, executable, unused.
//!
//! The same way the loader's few calls leave the trap that have no form of their own (`decide`):
//! from the slack they reach the gate with the red zone stepped over. Each start makes four.
//!
//! Invariants
//! 1. Only answers that are the same on every processor of the machine are in the table. Questions
//!    it does not know (leaf 1 and 0xb: they name the processor) go to the processor.
//! 2. `lookup` clobbers what `cpuid` clobbers and nothing else: flags are kept, the red zone is
//!    stepped over.
//! 3. The instructions moved along are such that nothing jumps to, and none changes control flow
//!    but by direct jumps.
//!    A call is moved only when its number is known, and needs not its own stack (`clone`, `exit`).
//! 4. The table's signature is part of the copy's path: another machine never uses the copy.

mod patch;
mod table;

pub use patch::{Cost, answer_and_call_from, answer_from, is_loader};
pub use table::{ANY, Entry, Table};
