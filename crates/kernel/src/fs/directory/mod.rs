//! Directories: their names, who may change them, listings.

pub mod entries;
pub mod list;
pub mod names;
pub mod rename;
pub mod share;
pub mod switch;
