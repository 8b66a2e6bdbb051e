//! Service `fs`: trees and bytes.

pub mod attributes;
pub mod bytes;
pub mod directory;
pub mod extended;
pub mod extent;
pub mod inodes;
pub mod named;
pub mod orphan;
pub mod overlay;
pub mod refresh;
pub(crate) mod rights;
pub mod shared;
pub mod unsaved;
pub mod walk;
