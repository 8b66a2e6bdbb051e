//! System calls: which ones Husk handles, by which method, and which go to the host.

pub(crate) mod durable;
pub(crate) mod fast_path;
pub(crate) mod passthrough;
pub(crate) mod refusals;
pub(crate) mod table;
