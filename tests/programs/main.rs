//! Programs in an image do what they do on Linux: small ones that print what they see, and real
//! software.
//!
//! ```text
//!   conformance   each file call as Linux answers it: by itself, in random sequences, in races
//!   files/        trees of the host: rights, owners, links, numbers, lists, write-back
//!   memory        mappings, limits, shadows of sanitizers
//!   pipes         bytes and wake-ups of pipes
//!   interfaces    sockets, poll and epoll, signals, what threads and processes share
//!   processes/    the table of processes, programs and their copies, core dumps
//!   software/     lua's build, git, Go, Python, bash, sqlite
//!   sources/      the scripts, by the same nouns: readable, and runnable by themselves
//! ```
//!
//! Each test states its case and what about it may differ.
#![forbid(unsafe_code)]

mod conformance;
mod files;
mod interfaces;
mod memory;
mod pipes;
mod processes;
mod software;
