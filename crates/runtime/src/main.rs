//! The runtime as a program: loader first, then gate and client inside the application.
//!
//! Built for `x86_64-unknown-none` (no libc, no SSE) and linked at a fixed place by `build.rs`:
//!
//!     cargo build -p husk-runtime --bin husk-rt --release --target x86_64-unknown-none
//!
//! ```text
//!   start ─► load ─► program        gate ─► service ─► wire ─► husk_client ─► husk_carrier
//!                                     ▲        ├─► exec, spawn, signal, actions, mappings, ...
//!                            fault ───┘        └─► host
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod actions;
#[cfg(target_os = "none")]
mod again;
#[cfg(target_os = "none")]
mod apart;
#[cfg(target_os = "none")]
mod arguments;
#[cfg(target_os = "none")]
mod classes;
#[cfg(target_os = "none")]
mod clock;
#[cfg(target_os = "none")]
mod copies;
#[cfg(target_os = "none")]
mod elsewhere;
#[cfg(target_os = "none")]
mod exec;
#[cfg(target_os = "none")]
mod fault;
#[cfg(target_os = "none")]
mod filters;
#[cfg(target_os = "none")]
mod gate;
#[cfg(target_os = "none")]
mod guard;
#[cfg(target_os = "none")]
mod image;
#[cfg(target_os = "none")]
mod limits;
#[cfg(target_os = "none")]
mod load;
#[cfg(target_os = "none")]
mod mappings;
#[cfg(target_os = "none")]
mod masks;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod mortal;
#[cfg(target_os = "none")]
mod outside;
#[cfg(target_os = "none")]
mod place;
#[cfg(target_os = "none")]
mod programs;
#[cfg(target_os = "none")]
mod protect;
#[cfg(target_os = "none")]
mod region;
#[cfg(target_os = "none")]
mod remap;
#[cfg(target_os = "none")]
mod restore;
#[cfg(target_os = "none")]
mod sealed;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod side;
#[cfg(target_os = "none")]
mod signal;
#[cfg(target_os = "none")]
mod spawn;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod still;
#[cfg(target_os = "none")]
mod table;
#[cfg(target_os = "none")]
mod thread;
#[cfg(target_os = "none")]
mod touch;
#[cfg(target_os = "none")]
mod trace;
#[cfg(target_os = "none")]
mod wire;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("husk-rt: built for the host only so that tools can read it; see crates/husk");
}

/// A bug of ours: one line, then the end of this process (the operation is rolled back).
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    struct Line;
    impl Write for Line {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            husk_host::calls::write(2, text.as_bytes());
            Ok(())
        }
    }
    let _ = writeln!(Line, "husk: bug in the runtime: {info}");
    husk_host::calls::exit_group(134)
}
