//! The handlers of messages on files: names and attributes, bytes, locks, and what is open for
//! other nodes.

pub(crate) mod bytes;
pub(crate) mod holds;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod passed;
