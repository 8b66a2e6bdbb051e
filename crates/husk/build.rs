//! Builds the runtime for its own target and hands it to the command, and links the C library into
//! it, so that one `cargo build` makes one file.
//!
//! ```text
//!   cargo build -p husk
//!     '-- build.rs --> cargo build -p husk-runtime --target x86_64-unknown-none
//!                        |-- OUT_DIR/runtime/.../husk-rt --include_bytes!--> husk
//!                        '-- .../husk-entry --cc entry.s--> where husk begins
//! ```
//!
//! Invariants
//! 1. The inner build has its own target directory: the outer one's lock is held meanwhile. All
//!    profiles and the runtime's own tests share it; how it is built stands in `Cargo.toml`
//!    (profile `runtime`) and `.cargo/config.toml`.
//! 2. Nothing of the outer build's flags reaches the inner one (sanitizers, wrappers, targets).
//! 3. Same `Cargo.lock`, same toolchain.
//! 4. The command is linked statically where the C library's archives are there (`libc6-dev` has
//!    them); elsewhere it is linked as any other program, with a warning. Build scripts and
//!    procedural macros, which a flag for the whole build would reach, are left alone.

use std::env;
use std::fs;
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
    if let Err(why) = begin_early(&root) {
        println!("cargo::warning=`husk exec` will be slower to start: {why}");
    }
    if let Err(why) = link_statically() {
        println!("cargo::warning=the command needs the C library's shared files: {why}");
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
    let more = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "crates/husk/build.rs"];
    let linked = ["link.ld", "entry.ld", "entry.s"].map(|file| format!("crates/runtime/{file}"));
    for piece in more.map(str::to_owned).into_iter().chain(linked) {
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
    let binary = build_program(root, "husk-rt")?;
    println!("cargo::rustc-env=HUSK_RUNTIME={}", binary.display());
    Ok(())
}

/// Builds a program of the runtime's room; where it is then.
fn build_program(root: &Path, program: &str) -> Result<PathBuf, String> {
    let output = runtime_directory();
    let mut build = Command::new(variable("CARGO"));
    build
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--profile", "runtime"])
        .args(["--package", "husk-runtime", "--bin", program, "--target", TARGET, "--target-dir"])
        .arg(&output);
    for name in LEAKS {
        build.env_remove(name);
    }
    let done = build.output().map_err(|problem| format!("cargo for {program}: {problem}"))?;
    if !done.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&done.stderr));
        return Err(format!("{program} did not build; its messages stand above"));
    }
    Ok(output.join(TARGET).join("runtime").join(program))
}

/// One for all profiles and tests of a target directory: `OUT_DIR` is
/// `<target>/<profile>/build/<package>/out`.
fn runtime_directory() -> PathBuf {
    let own = PathBuf::from(variable("OUT_DIR"));
    let shared = own.ancestors().nth(4).filter(|_| own.ends_with("out"));
    shared.unwrap_or(&own).join("runtime")
}

fn linker() -> String {
    env::var("RUSTC_LINKER").unwrap_or("cc".into())
}

/// Lets the command begin in `crates/runtime/entry.s`, with the narrow way of `husk exec`.
fn begin_early(root: &Path) -> Result<(), String> {
    let bytes = build_program(root, "husk-entry")?;
    let bytes = bytes.parent().unwrap_or(root);
    let object = PathBuf::from(variable("OUT_DIR")).join("entry.o");
    let mut assemble = Command::new(linker());
    assemble.args(["-c", "-Wa,-I"]).arg(format!("-Wa,{}", bytes.display()));
    assemble.arg(root.join("crates/runtime/entry.s")).arg("-o").arg(&object);
    let done = assemble.output().map_err(|problem| format!("{}: {problem}", linker()))?;
    if !done.status.success() {
        return Err(format!("{}: {}", linker(), String::from_utf8_lossy(&done.stderr)));
    }
    println!("cargo::rustc-link-arg-bins={}", object.display());
    println!("cargo::rustc-link-arg-bins=-Wl,-e,husk_start");
    Ok(())
}

/// The C library as archives (invariant 4). rustc names shared libraries to the linker; a directory
/// that is looked into first has a script for each of them that leads to its archive. At a fixed
/// place, for a start then has nothing to relocate, which is a tenth of it.
fn link_statically() -> Result<(), String> {
    // Elsewhere archives are the rule, or have other names.
    if variable("TARGET") != "x86_64-unknown-linux-gnu" || is_static_anyway() {
        return Ok(());
    }
    let scripts = PathBuf::from(variable("OUT_DIR")).join("static");
    let write = |name: &str, text: String| {
        let path = scripts.join(format!("lib{name}.a"));
        fs::write(&path, text).map_err(|problem| format!("{}: {problem}", path.display()))
    };
    fs::create_dir_all(&scripts).map_err(|problem| format!("{}: {problem}", scripts.display()))?;
    let circle = format!("GROUP({} {} {})", archive("c")?, archive("gcc_eh")?, archive("gcc")?);
    write("c", circle.clone())?;
    write("gcc_s", circle)?;
    for name in ["m", "rt", "pthread", "dl", "util"] {
        write(name, format!("INPUT({})", archive(name)?))?;
    }
    // One part of the file and one fault fewer for each start; nothing is relocated at one.
    let whole = "-Wl,-z,norelro";
    for argument in [&format!("-L{}", scripts.display()), "-static", "-no-pie", whole] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    Ok(())
}

/// Whether whoever builds has asked for it.
fn is_static_anyway() -> bool {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    features.split(',').any(|feature| feature == "crt-static")
}

/// Where the linker has `libNAME.a`.
fn archive(name: &str) -> Result<String, String> {
    let linker = linker();
    let file = format!("lib{name}.a");
    let asked = Command::new(&linker).arg(format!("-print-file-name={file}")).output();
    let told = asked.map_err(|problem| format!("{linker}: {problem}"))?.stdout;
    let path = String::from_utf8_lossy(&told).trim().to_owned();
    // What it does not find it repeats.
    match Path::new(&path).is_absolute() && Path::new(&path).exists() {
        true => Ok(path),
        false => Err(format!("{file} is not there; it is in libc6-dev or glibc-static")),
    }
}
