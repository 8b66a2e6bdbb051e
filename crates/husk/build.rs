//! Builds the runtime for its own target and hands it to the command, so that one `cargo build`
//! makes one file.
//!
//! ```text
//!   cargo build -p husk
//!     '-- build.rs --> cargo build -p husk-runtime --target x86_64-unknown-none
//!                        '-- OUT_DIR/runtime/.../husk-rt --include_bytes!--> husk
//! ```
//!
//! Invariants
//! 1. The inner build has its own target directory: the outer one's lock is held meanwhile.
//! 2. Nothing of the outer build's flags reaches the inner one (sanitizers, wrappers, targets).
//! 3. Same `Cargo.lock`, same toolchain.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-none";

/// Crates the runtime is made of; a change in any of them rebuilds it.
const PARTS: [&str; 8] =
    ["abi", "proto", "region", "kernel", "carrier", "client", "runtime", "host"];

/// Settings of the outer build that must not leak into the inner one (invariant 2).
const LEAKS: [&str; 8] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
];

fn main() {
    let root = workspace_root();
    watch(&root);
    if let Err(problem) = ensure_target().and_then(|()| build_runtime(&root)) {
        println!("cargo::error={problem}");
    }
}

fn workspace_root() -> PathBuf {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/husk lies two levels below the root").to_path_buf()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

fn watch(root: &Path) {
    for part in PARTS {
        let base = root.join("crates").join(part);
        for piece in ["src", "Cargo.toml", "build.rs"] {
            let path = base.join(piece);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    for piece in ["Cargo.toml", "Cargo.lock", "crates/husk/build.rs"] {
        println!("cargo::rerun-if-changed={}", root.join(piece).display());
    }
}

/// Sees to it that the toolchain in use has `TARGET`: where rustup does not install by itself
/// (`RUSTUP_AUTO_INSTALL=0`), a target named in `rust-toolchain.toml` is not added.
fn ensure_target() -> Result<(), String> {
    if target_installed()? {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["target", "add", TARGET]);
    let mut typed = format!("rustup target add {TARGET}");
    if let Ok(toolchain) = env::var("RUSTUP_TOOLCHAIN") {
        add.args(["--toolchain", &toolchain]);
        typed.push_str(&format!(" --toolchain {toolchain}"));
    }
    let added = add.output().is_ok_and(|output| output.status.success());
    if added && target_installed()? {
        return Ok(());
    }
    Err(format!("the Rust target {TARGET} is missing and could not be added; type: {typed}"))
}

fn target_installed() -> Result<bool, String> {
    let output = Command::new(variable("RUSTC"))
        .args(["--print", "sysroot"])
        .output()
        .map_err(|problem| format!("rustc --print sysroot: {problem}"))?;
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let libraries = Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib");
    Ok(libraries.read_dir().is_ok_and(|mut files| files.next().is_some()))
}

fn build_runtime(root: &Path) -> Result<(), String> {
    let output = PathBuf::from(variable("OUT_DIR")).join("runtime");
    let mut build = Command::new(variable("CARGO"));
    build
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--release"])
        .args(["--package", "husk-runtime", "--bin", "husk-rt", "--target", TARGET])
        .args(["--config", "profile.release.debug=0"])
        .args(["--config", "profile.release.lto=\"fat\""])
        .args(["--config", "profile.release.codegen-units=1", "--target-dir"])
        .arg(&output);
    for name in LEAKS {
        build.env_remove(name);
    }
    let done = build.output().map_err(|problem| format!("cargo for the runtime: {problem}"))?;
    if !done.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&done.stderr));
        return Err("the runtime did not build; its messages stand above".into());
    }
    let binary = output.join(TARGET).join("release/husk-rt");
    println!("cargo::rustc-env=HUSK_RUNTIME={}", binary.display());
    Ok(())
}
