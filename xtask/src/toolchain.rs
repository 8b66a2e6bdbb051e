//! Sees to it that the toolchain has what `rust-toolchain.toml` names.
//!
//! rustup adds what is missing by itself, except where it was told not to
//! (`RUSTUP_AUTO_INSTALL=0`): there a missing target or component is passed over in silence and
//! the build fails later. So we ask rustup ourselves, or say in one line what to type.

use crate::workspace::cargo;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the runtime runs: no operating system below it that `std` knows.
pub const RUNTIME_TARGET: &str = "x86_64-unknown-none";
/// The cargo sub-commands we need, and the components that bring them.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Adds the runtime's target and the components where they are missing.
pub fn complete() -> Result<()> {
    if !has_target() {
        add(&["target", "add", RUNTIME_TARGET])?;
    }
    for (command, component) in COMPONENTS {
        if !quiet(Command::new(cargo()).args([command, "--version"])) {
            add(&["component", "add", component])?;
        }
    }
    Ok(())
}

fn has_target() -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", RUNTIME_TARGET]);
    let Ok(output) = rustc.output() else { return false };
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}

fn add(what: &[&str]) -> Result<()> {
    println!("adding to the toolchain: rustup {}", what.join(" "));
    if !quiet(Command::new("rustup").args(what)) {
        bail!("the toolchain lacks something; type: rustup {}", what.join(" "));
    }
    Ok(())
}

fn quiet(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
