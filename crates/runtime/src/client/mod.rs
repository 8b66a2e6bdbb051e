//! Where the runtime meets the client.

pub(crate) mod glue;
pub(crate) mod host;
pub(crate) mod nodes;
