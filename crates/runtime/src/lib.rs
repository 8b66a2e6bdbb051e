//! The code inside the application: the part that is plain logic, and tested on the host.
//!
//! `main.rs` is the program (loader, gate, signals, threads); it is built for
//! `x86_64-unknown-none` only and holds all that touches registers and memory.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

pub mod core_dump;
pub mod elf;
pub mod entry;
pub mod handover;
#[allow(unsafe_code)]
pub mod reach;
pub mod script;
