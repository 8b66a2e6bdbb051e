//! Service `fs`: trees and bytes.

pub mod attributes;
pub mod bytes;
pub mod entries;
pub mod extended;
pub mod extent;
pub mod inodes;
pub mod list;
pub mod named;
pub mod names;
pub mod orphan;
pub mod overlay;
pub mod refresh;
pub mod rename;
pub mod share;
pub mod switch;
pub mod walk;
