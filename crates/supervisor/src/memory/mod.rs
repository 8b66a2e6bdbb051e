//! The memory of an image: huge pages, what goes back to the host, limits, what has run out.

pub(crate) mod control_group;
pub(crate) mod full;
pub(crate) mod gathered;
pub mod huge_pages;
pub mod punch;
