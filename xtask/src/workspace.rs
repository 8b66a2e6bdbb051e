//! The workspace as the static steps see it: packages from `cargo metadata`, files from the tree.
//!
//! Nothing is asked of git: the checks say the same in an unpacked archive.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is not the project's text, wherever it stands: folders, and the file that stands for the
/// first in a second work tree of git.
const FOREIGN: &[&str] = &[".git", "target", "build"];
/// Bigger files are data, not text to read.
const FILE_SIZE_MAX_BYTES: u64 = 1 << 20;

/// A package, as `cargo metadata` tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub dependencies: Vec<Dependency>,
    /// SPDX expression.
    pub license: Option<String>,
    /// Path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Libraries, programs, tests, build scripts.
    pub targets: Vec<Target>,
    /// `None` for the workspace's own.
    pub source: Option<String>,
}

/// One dependency of a package.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The other package.
    pub name: String,
    /// `None` (normal), `dev` or `build`.
    pub kind: Option<String>,
}

/// One thing that is compiled.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Target {
    /// `lib`, `bin`, `test`, `example`, `bench` or `custom-build`.
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: PathBuf,
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// Whether it has tests.
    #[serde(default)]
    pub test: bool,
    /// Without these features it is not compiled.
    #[serde(default, rename = "required-features")]
    pub features: Vec<String>,
}

impl Target {
    /// Runs under a model checker, which is compiled in.
    pub fn is_model(&self) -> bool {
        self.features.iter().any(|feature| feature == "models")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

/// One text file of the project.
#[derive(Clone, Debug)]
pub struct File {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl File {
    /// What its lines say, without comments, with their numbers.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()))
    }

    /// Ends in `.rs`.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Everything the static steps look at.
pub struct Workspace {
    /// Where it lies.
    pub root: PathBuf,
    /// Where cargo puts what it builds.
    pub target: PathBuf,
    /// All packages, the project's and others'.
    pub packages: Vec<Package>,
    /// All text files.
    pub files: Vec<File>,
}

impl Workspace {
    /// Reads metadata and files.
    pub fn load() -> Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .output()
            .context("cannot run cargo metadata")?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "cargo metadata failed:\n{complaint}");
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        let mut files = Vec::new();
        collect(&metadata.workspace_root, &metadata.workspace_root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let (root, target) = (metadata.workspace_root, metadata.target_directory);
        Ok(Self { root, target, packages: metadata.packages, files })
    }

    /// The project's own packages.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// A workspace of nothing but these, for tests.
    #[cfg(test)]
    pub fn of(packages: Vec<Package>, files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files = files.iter().map(file).collect();
        Self { root: "/w".into(), target: "/w/target".into(), packages, files }
    }

    /// `path` relative to the workspace.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// The cargo that runs us.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {folder:?}"))? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if FOREIGN.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files)?;
        } else if kind.is_file() && entry.metadata()?.len() <= FILE_SIZE_MAX_BYTES {
            // Bytes that are no text (a fixture) have no lines to check.
            let Ok(text) = String::from_utf8(fs::read(&path)?) else { continue };
            let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}
