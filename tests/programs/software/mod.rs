//! Real software, one file per kind.

mod build;
pub mod git;
mod golang;
mod python;
mod shell;
mod sqlite;
