//! Directories: names, the tokens that guard them, listings, rename.

pub mod entries;
pub mod list;
pub mod names;
pub mod rename;
pub mod share;
pub mod switch;
