//! Suites that come as crates: installed once, by cargo, at one version, below `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::room;

/// The version of `fsx` that is used.
pub const FSX_VERSION: &str = "0.3.2";
/// Longest time to fetch and build a crate.
const INSTALL_LIMIT_S: &str = "480";

/// The program of crate `name`, installed on the first call.
pub fn installed(name: &str, version: &str) -> PathBuf {
    let root = room().join("tools").join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        install(name, version, &root);
    }
    program.canonicalize().expect("an installed program")
}

fn install(name: &str, version: &str, root: &Path) {
    let mut cargo = Command::new("timeout");
    cargo.args(["--kill-after=5", INSTALL_LIMIT_S]);
    cargo.arg(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let which = format!("{name}@{version}");
    // Optimised they build twice as long, and are not faster at waiting for system calls.
    cargo.args(["install", "--quiet", "--locked", "--debug", "--no-track", &which, "--root"]);
    cargo.arg(root).env("CARGO_TARGET_DIR", room().join("tools/build"));
    // Not by the toolchain this workspace is pinned to alone: from outside of it.
    cargo.current_dir(room()).env("CARGO_PROFILE_DEV_DEBUG", "0");
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "cargo install {which}: {status}");
}

/// A program of a Debian package.
pub fn packaged(name: &str) -> String {
    let found = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
    let found = found.into_iter().find(|path| path.exists());
    let found = found.unwrap_or_else(|| panic!("{name} is not there: apt-get install {name}"));
    found.to_str().expect("a plain path").to_owned()
}
