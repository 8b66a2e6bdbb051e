//! Unsafe code has addresses: `region`, `carrier`, `link`, `runtime`, `host`, `tenacious-c` (what C
//! calls), and nowhere else.
//!
//! Invariants
//! 1. The libraries and programs of any other package forbid unsafe code; its tests, examples and
//!    build scripts have none.
//! 2. Every unsafe block and impl of these says why it is sound, in a `// SAFETY:` comment.
//! 3. What runs inside an application or decides for a kernel is `no_std`.
//! 4. Every package takes the workspace's lints.

use super::finding::Finding;
use crate::workspace::{File, Package, Target, Workspace};

/// Where unsafe code may live.
const UNSAFE: &[&str] = &[
    "husk-region",
    "husk-carrier",
    "husk-runtime",
    "husk-host",
    "husk-link",
    "husk-node",
    "tenacious-c",
];
/// Kinds of targets that are shipped.
const SHIPPED: &[&str] = &["lib", "bin"];
/// What must do without `std`, in its library at least.
const NO_STD: &[&str] =
    &["husk-abi", "husk-proto", "husk-kernel", "husk-client", "husk-region", "husk-wire"];
/// How far above an unsafe block its argument may begin, in lines.
const REASON_DISTANCE_LINES: usize = 12;

/// Checks all packages of the project.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.members().flat_map(|package| check_package(workspace, package)).collect()
}

fn check_package(workspace: &Workspace, package: &Package) -> Vec<Finding> {
    let manifest = workspace.relative(&package.manifest_path);
    let folder = manifest.trim_end_matches("Cargo.toml");
    let mut findings = Vec::new();
    if !has_workspace_lints(workspace.file(&manifest)) {
        findings.push(Finding::new(&manifest, 0, "needs `[lints] workspace = true`"));
    }
    if UNSAFE.contains(&package.name.as_str()) {
        findings.extend(sources(workspace, folder).flat_map(unexplained));
    } else {
        findings.extend(roots(workspace, package).filter_map(unforbidden));
        let shipped = format!("{folder}src/");
        let beside = sources(workspace, folder).filter(|file| !file.path.starts_with(&shipped));
        findings.extend(beside.filter(|file| !forbids(file)).flat_map(unsafe_here));
    }
    if NO_STD.contains(&package.name.as_str()) {
        let library = manifest.replace("Cargo.toml", "src/lib.rs");
        findings.extend(workspace.file(&library).and_then(with_std));
    }
    findings
}

/// The Rust files below `folder`.
fn sources<'a>(workspace: &'a Workspace, folder: &'a str) -> impl Iterator<Item = &'a File> {
    let below = workspace.files.iter().filter(move |file| file.path.starts_with(folder));
    below.filter(|file| file.is_rust())
}

/// Root files of libraries and programs.
fn roots<'a>(workspace: &'a Workspace, package: &'a Package) -> impl Iterator<Item = &'a File> {
    let shipped = |target: &&Target| target.kind.iter().any(|kind| SHIPPED.contains(&&**kind));
    let paths = package.targets.iter().filter(shipped).map(|target| &target.src_path);
    paths.filter_map(|path| workspace.file(&workspace.relative(path)))
}

fn has_workspace_lints(manifest: Option<&File>) -> bool {
    manifest.is_some_and(|file| file.text.contains("[lints]\nworkspace = true"))
}

fn forbids(root: &File) -> bool {
    root.text.lines().any(|line| line == "#![forbid(unsafe_code)]")
}

fn unforbidden(root: &File) -> Option<Finding> {
    (!forbids(root)).then(|| Finding::new(&root.path, 0, "needs `#![forbid(unsafe_code)]`"))
}

fn with_std(library: &File) -> Option<Finding> {
    let without = ["#![no_std]", "#![cfg_attr(not(test), no_std)]"];
    let pure = library.text.lines().any(|line| without.contains(&line));
    (!pure).then(|| Finding::new(&library.path, 0, "needs `#![no_std]`"))
}

/// Unsafe blocks and impls without a reason. Text, not syntax: it sees inside macros too.
fn unexplained(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let opens =
        |code: &str| code.contains("unsafe {") || code.trim_start().starts_with("unsafe impl");
    let explained = |line: usize| {
        let reach = line.saturating_sub(REASON_DISTANCE_LINES);
        lines[reach..line].iter().any(|line| line.contains("// SAFETY:"))
    };
    file.code()
        .filter(|&(line, code)| opens(code) && !explained(line))
        .map(|(line, _)| Finding::new(&file.path, line, "unsafe without a `// SAFETY:` comment"))
        .collect()
}

/// Unsafe code of any form, in a file that should have none.
fn unsafe_here(file: &File) -> Vec<Finding> {
    let forms =
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe(", "unsafe trait"];
    file.code()
        .filter(|(_, code)| forms.iter().any(|form| code.contains(form)))
        .map(|(line, _)| Finding::new(&file.path, line, "unsafe code outside of its rooms"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(name: &str, source: &str) -> Vec<String> {
        check_both(name, source, "")
    }

    /// The findings about a package with this library and this test.
    fn check_both(name: &str, source: &str, beside: &str) -> Vec<String> {
        let package = Package {
            name: name.into(),
            dependencies: Vec::new(),
            license: None,
            manifest_path: "/w/crates/one/Cargo.toml".into(),
            targets: vec![Target {
                kind: vec!["lib".into()],
                src_path: "/w/crates/one/src/lib.rs".into(),
                ..Target::default()
            }],
            source: None,
        };
        let files = [
            ("crates/one/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/one/src/lib.rs", source),
            ("crates/one/tests/all.rs", beside),
        ];
        let workspace = Workspace::of(vec![package], &files);
        check(&workspace).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_safe_room_that_does_not_forbid_unsafe_is_found() {
        assert_eq!(
            check_one("husk-rewrite", "fn f() {}\n"),
            ["crates/one/src/lib.rs: needs `#![forbid(unsafe_code)]`"]
        );
        assert_eq!(check_one("husk-rewrite", "#![forbid(unsafe_code)]\n"), Vec::<String>::new());
    }

    #[test]
    fn a_test_of_a_safe_room_with_unsafe_code_is_found() {
        let beside = "// no unsafe { here\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            check_both("husk-rewrite", "#![forbid(unsafe_code)]\n", beside),
            ["crates/one/tests/all.rs:3: unsafe code outside of its rooms"]
        );
    }

    #[test]
    fn an_unsafe_block_without_a_reason_is_found() {
        let bad = "fn f() {\n    unsafe { g() }\n}\n";
        let good = "fn f() {\n    // SAFETY: g has no conditions.\n    unsafe { g() }\n}\n";
        assert_eq!(
            check_one("husk-host", bad),
            ["crates/one/src/lib.rs:2: unsafe without a `// SAFETY:` comment"]
        );
        assert_eq!(check_one("husk-host", good), Vec::<String>::new());
    }

    #[test]
    fn a_pure_room_with_std_is_found() {
        assert_eq!(
            check_one("husk-kernel", "#![forbid(unsafe_code)]\n"),
            ["crates/one/src/lib.rs: needs `#![no_std]`"]
        );
    }

    #[test]
    fn a_package_without_the_workspace_lints_is_found() {
        let file = File { path: "a".into(), text: "[lints.rust]\n".into() };
        assert!(!has_workspace_lints(Some(&file)));
    }
}
