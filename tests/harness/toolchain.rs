//! What the cases need that no Debian package has under one name: Lua's sources, Go's compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the Lua sources of the `lua-src` crate lie: `*.c` and `*.h` of one release.
pub fn lua_sources() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(crate::husk::workspace()).args(["metadata", "--format-version", "1"]);
    cargo.args(["--offline", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = cargo.output().expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("its JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let lua = packages.iter().find(|package| package["name"] == "lua-src").expect("lua-src");
    let manifest = lua["manifest_path"].as_str().expect("a path");
    Path::new(manifest).with_file_name("lua-5.4.7")
}

/// Copies the regular files of `source` whose names end in one of `endings` to `target`.
pub fn copy_files(source: &Path, target: &Path, endings: &[&str]) {
    fs::create_dir_all(target).expect("a target directory");
    for entry in fs::read_dir(source).unwrap_or_else(|error| panic!("{source:?}: {error}")) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if endings.iter().any(|ending| name.ends_with(ending)) {
            fs::write(target.join(name), fs::read(&path).expect("a source")).expect("a copy");
        }
    }
}

/// Builds one Go file as a static program at `target`.
pub fn build_go(source: &str, target: &Path) {
    let directory = target.with_extension("go.d");
    fs::create_dir_all(&directory).expect("a build directory");
    fs::write(directory.join("main.go"), source).expect("the Go source");
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"].into_iter().find(|go| Path::new(go).exists());
    let mut command = Command::new(go.expect("Go is installed (apt-get install golang-go)"));
    // One cache of the compiled standard library, for these and for programs of the matrix.
    command.env("HOME", crate::run::home("own"));
    command.current_dir(&directory).args(["build", "-o"]).arg(target).arg("main.go");
    command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "");
    let output = command.output().expect("go starts");
    assert!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
}

/// Builds one C file as a program at `target`.
pub fn build_c(source: &str, target: &Path) {
    build_c_with(source, target, &[]);
}

/// The same with options of gcc.
pub fn build_c_with(source: &str, target: &Path, options: &[&str]) {
    let file = target.with_extension("c");
    fs::write(&file, source).expect("the C source");
    let mut command = Command::new("gcc");
    command
        .args(["-O1", "-Wall", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(target)
        .arg(&file);
    let output = command.output().expect("gcc is installed (apt-get install gcc)");
    assert!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
}
