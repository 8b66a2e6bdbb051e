//! What a write-back knows of git's own files: its index, its packed references, its locks.

pub mod index;
pub mod inside;
pub mod lock;
pub mod refs;
pub mod restat;
