//! A program on another host, and the process that stands for it here.
//!
//! ```text
//!   exec ─► shadow (here) ─ job ─► process (there)
//!             '── fate, output ◄──────'
//! ```
//!
//! `apart`: which descriptors a program has from outside; `temporary`: its directory for temporary
//! files there.

pub mod apart;
pub mod job;
pub mod process;
pub mod shadow;
pub mod temporary;
