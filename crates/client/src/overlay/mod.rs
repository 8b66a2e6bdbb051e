//! The host's tree below an overlay, and read-only mode outside of the trees.

pub(crate) mod lower;
pub(crate) mod read_only_outside;
