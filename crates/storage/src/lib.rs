//! Storage areas: data on a disk that outlives every image.
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
//! 1. An area has one user at a time, who holds its lock until the last descriptor of the area is
//!    closed. Each user has an epoch, higher than all before.
//! 2. An area that is damaged, foreign, cut off or of another version is reported with its place.
//!    Reading never changes it.
//! 3. A kill at any instruction leaves the old state, or one that is reported as half made.
//! 4. A failed write or flush is never retried.
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
