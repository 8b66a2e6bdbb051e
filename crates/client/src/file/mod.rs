//! Files: opening, bytes, attributes, names.

pub(crate) mod acl;
pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod directory;
pub(crate) mod flags;
pub(crate) mod limit;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod seek;
pub(crate) mod space;
pub(crate) mod statfs;
mod straight_copy;
pub(crate) mod times;
pub(crate) mod transfer;
pub(crate) mod xattr;
