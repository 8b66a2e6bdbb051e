//! The arena: where everything lies, words, objects and blocks, and who has which set aside.

pub(crate) mod blocks;
pub(crate) mod layout;
pub(crate) mod magazine;
pub(crate) mod memory;
pub(crate) mod reserve;
pub(crate) mod steal;
