//! Storage areas: what lies on a disk and outlives every image.
//!
//! ```text
//!   catalogue   name ─► uuid, place, size              a small file for each volume
//!     tree      objects and names                  from a snapshot and records
//!     log       records, durable in order          frames in a ring, and snapshots
//!     area      two copies of a header, then content   one pre-written extent
//!       disk    read, write, write and flush, flush    `Pwrite` (O_DIRECT) or `Sim`
//! ```
//!
//! Invariants
//! 1. An area has one user: who acquires it holds its lock until the last descriptor of it is
//!    closed, and each user has an epoch of its own, higher than all before.
//! 2. What is damaged, foreign, cut off or of a newer version is told with its place, and never
//!    changed by a look.
//! 3. A kill at any instruction leaves what was there, or what is told as half-made.
//! 4. A write or a flush that has failed is never tried again.
#![forbid(unsafe_code)]

pub mod area;
pub mod catalogue;
pub mod disk;
pub mod log;
mod problem;
pub mod tree;
mod uuid;

pub use problem::Problem;
pub use uuid::Uuid;
