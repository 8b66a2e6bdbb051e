//! Calls: which ones concern Husk, who handles each, and what goes to the host.

pub(crate) mod fast_path;
pub(crate) mod passthrough;
pub(crate) mod refusals;
pub(crate) mod table;
