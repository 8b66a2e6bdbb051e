//! Sockets: names, messages, bytes.

pub(crate) mod addresses;
pub(crate) mod lanes;
pub(crate) mod messages;
pub(crate) mod name;
pub(crate) mod peers;
pub(crate) mod ring_drain;
pub(crate) mod scm_rights;
pub(crate) mod streams;
pub(crate) mod tcp;
