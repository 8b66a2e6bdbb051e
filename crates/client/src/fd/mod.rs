//! Descriptors: numbers, and the objects that they refer to.

pub(crate) mod fd_cache;
pub(crate) mod fd_cache_policy;
pub(crate) mod foreign_fds;
pub(crate) mod table;
