//! Real software in an image does what it does on Linux.
//!
//! One file per kind of software; each test states its case and what about it may differ. The
//! scripts lie in `sources/`, readable and runnable by themselves.
#![forbid(unsafe_code)]

mod build;
mod conformance;
mod copies;
mod dumps;
mod files;
mod git;
mod golang;
mod interfaces;
mod kept;
mod lent;
mod lists;
mod memory;
mod numbers;
mod pipes;
mod processes;
mod python;
mod rights;
mod shell;
mod specials;
mod sqlite;
