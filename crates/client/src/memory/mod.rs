//! Memory: mappings of files and programs.

pub(crate) mod exec;
pub(crate) mod mapping;
pub(crate) mod maps;
pub(crate) mod moving;
