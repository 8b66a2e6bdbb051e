//! Core dumps, as far as no memory is read: how a file is laid out, and whether there is one.

pub mod file;
pub mod limit;
