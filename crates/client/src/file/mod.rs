//! Files: opening, bytes, attributes, names.

pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod directory;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod statfs;
