//! Whether `/proc` shows the numbers of this PID namespace.

use std::fs;

use crate::problem::Problem;

/// Refuses a `/proc` of another PID namespace: a number there is another process than the one that
/// was meant.
pub(super) fn check() -> Result<(), Problem> {
    let own = std::process::id().to_string();
    let shown = fs::read_link("/proc/self").ok();
    if shown.is_some_and(|shown| shown.as_os_str() == own.as_str()) {
        return Ok(());
    }
    Err(Problem::new(
        "cannot tell processes apart",
        "/proc is missing, or that of another PID namespace",
        "run it where `readlink /proc/self` works: `mount -t proc proc /proc`, or outside",
    ))
}
