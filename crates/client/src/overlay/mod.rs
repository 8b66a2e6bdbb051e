//! The host's tree below the image's, and what may change in it.

pub(crate) mod lower;
pub(crate) mod read_only_outside;
