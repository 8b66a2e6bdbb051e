//! `husk exec NAME -- COMMAND...` before the C library has started.
//!
//! ```text
//!   husk_start (entry.s) ─► enter: name, place ─► ask to join ─► high numbers ─┬─► settle
//!                              |                    where the host cannot do that └─► execve
//!                              '── anything unusual: everything is as it was, and the whole
//!                                  command does it again, or says why it cannot
//! ```
//!
//! A start of the C library asks the processor some thirty questions that a virtual machine answers
//! by leaving the guest: more than all that `husk exec` has to do.
//!
//! Invariants
//! 1. It does what `husk_supervisor::named::enter` does, or nothing: who returns from here has no
//!    descriptor more than before, and the words of its command are where they were. A record that
//!    the supervisor has made for it by then goes when it asks again, or ends.
//! 2. It says nothing: mistakes are the whole command's to tell.
//! 3. No call waits for more than `PATIENCE_S`.
//! 4. Nothing here needs thread-local memory, the C library, or memory to write to but the stack.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod host;
#[cfg(target_os = "none")]
mod join;
#[cfg(target_os = "none")]
mod settle;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("husk-entry: built for the host only so that tools can read it; see crates/husk");
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    husk_host::calls::write(2, b"husk: bug in the narrow way of exec: please report it\n");
    husk_host::calls::exit_group(125)
}
