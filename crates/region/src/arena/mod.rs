//! The arena: its layout, and how its words are read and written.

pub(crate) mod layout;
pub(crate) mod memory;
