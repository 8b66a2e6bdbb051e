//! The region's protocols, and the kernels on them, under a model checker: the code that ships,
//! every interleaving of its accesses to shared words as likely as the schedulers can make it.
//!
//! ```text
//!   words         lock words, sequences, transactions        directories  removal, modes, readers
//!   lives         deaths, recovery, burial                   magazines    free objects
//!   files         bytes and attributes of what goes away      thefts       what slots set aside
//! ```
//!
//! Each model says what it holds against, and must fail with each bug planted in it. `HUSK_SEED=n`
//! takes other schedules, `HUSK_FULL` more of them.

mod checker;
mod directories;
mod files;
mod lives;
mod magazines;
#[path = "../support/mod.rs"]
mod support;
mod thefts;
mod words;
#[path = "../support/world.rs"]
mod world;
