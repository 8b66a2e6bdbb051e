//! The connection between runtime and client.

pub(crate) mod glue;
pub(crate) mod host;
pub(crate) mod nodes;
