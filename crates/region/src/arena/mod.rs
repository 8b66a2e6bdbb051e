//! The arena: where everything lies, and how its words are read and written.

pub(crate) mod layout;
pub(crate) mod memory;
