//! The runtime as a program: loader first, then gate and client inside the application.
//!
//! Built for `x86_64-unknown-none` (no libc, no SSE) and linked at a fixed place by `build.rs`:
//!
//!     cargo build -p husk-runtime --bin husk-rt --release --target x86_64-unknown-none
//!
//! ```text
//!   load ─► program        gate ─► gate::service ─► client ─► husk_client ─► husk_carrier
//!                           ▲          ├─► process, memory, signal
//!         signal::fault ────┘          └─► host
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod client;
#[cfg(target_os = "none")]
mod frame;
#[cfg(target_os = "none")]
mod gate;
#[cfg(target_os = "none")]
mod load;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod process;
#[cfg(target_os = "none")]
mod signal;

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
