//! The runtime as a program: loader first, then gate and client inside the application.
//!
//! Built for `x86_64-unknown-none` (no libc, no SSE) and linked at a fixed place by `build.rs`:
//!
//!     cargo build -p husk-runtime --bin husk-rt --release --target x86_64-unknown-none
//!
//! ```text
//!   start ─► the program ─► gate ─► process ─► signal ─► mapping ─► load ─► client ─► memory
//!      first instructions    │ a call          │ a page                      │ husk_client
//!                            └─► service       └─► page_fault                └─► husk_carrier
//!   below all of them: stubs (addresses of the gate's code), thread (the block of each thread)
//! ```
//!
//! Modules import only to the right and down. What is below knows the gate's code by address alone
//! (`stubs`), and keeps the data of those above in the block of its thread (`thread`).
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod addresses;
#[cfg(target_os = "none")]
mod client;
#[cfg(target_os = "none")]
mod clock;
#[cfg(target_os = "none")]
mod detour;
#[cfg(target_os = "none")]
mod dump;
#[cfg(target_os = "none")]
mod facts;
#[cfg(target_os = "none")]
mod frame;
#[cfg(target_os = "none")]
mod gate;
#[cfg(target_os = "none")]
mod load;
#[cfg(target_os = "none")]
mod mapping;
#[cfg(target_os = "none")]
mod maps;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod process;
#[cfg(target_os = "none")]
mod signal;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod stubs;
#[cfg(target_os = "none")]
mod thread;

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
