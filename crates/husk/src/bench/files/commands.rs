//! Commands that everybody runs, on a tree of some 10,000 entries.

use std::fs;
use std::path::Path;

use super::workloads::{Workload, program, succeed, tree};

/// Directories of the tree, and files in each.
const DIRECTORIES: u32 = 400;
const FILES: u32 = 23;
/// Transactions of the database, each of its own.
const TRANSACTIONS: u32 = 2_000;

/// What the ratio is to reach of commands that change a tree, and of those that look at one.
const CHANGES: f64 = 1.5;
const LOOKS: f64 = 1.0;

/// All: those that change a tree, then those that look at one.
pub const ALL: &[Workload] = &[
    program("untar", archive, &["tar", "xf", "a.tar"]).wanted(CHANGES),
    program("cp -a", large_tree, &["cp", "-a", "tree", "copy"]).wanted(CHANGES),
    program("rm -rf", large_tree, &["rm", "-rf", "tree"]).wanted(CHANGES),
    program("git checkout", branches, &["git", "-C", "tree", "checkout", "-q", "other"])
        .wanted(CHANGES),
    program("find", large_tree, &["find", "tree", "-name", "nothing"]).wanted(LOOKS),
    program("du", large_tree, &["du", "-s", "tree"]).wanted(LOOKS),
    program("ls -lR", large_tree, &["ls", "-lR", "tree"]).wanted(LOOKS),
    program("grep -r", large_tree, &["grep", "-r", "-c", "-m1", "line", "tree"]).wanted(LOOKS),
    program("tar c", large_tree, &["tar", "cf", "a.tar", "tree"]).wanted(LOOKS),
    program("git status", branches, &["git", "-C", "tree", "status", "--short"]).wanted(LOOKS),
    program("dd 128 MiB", nothing, WRITE).wanted(LOOKS),
    program("cp 128 MiB", large_file, &["cp", "large", "copy"]).wanted(LOOKS),
    program("cat 128 MiB", large_file, &["cat", "large"]).wanted(LOOKS),
    program("sqlite", script, &["sqlite3", "base", ".read script"]).wanted(LOOKS),
];

/// A large file, by blocks of 64 KiB.
const WRITE: &[&str] = &["dd", "if=/dev/zero", "of=large", "bs=64K", "count=2048", "status=none"];

fn nothing(_: &Path, _: u32) -> anyhow::Result<()> {
    Ok(())
}

fn large_file(dir: &Path, _: u32) -> anyhow::Result<()> {
    succeed(dir, WRITE)
}

fn large_tree(dir: &Path, _: u32) -> anyhow::Result<()> {
    tree(&dir.join("tree"), DIRECTORIES, FILES)
}

fn archive(dir: &Path, index: u32) -> anyhow::Result<()> {
    large_tree(dir, index)?;
    succeed(dir, &["tar", "cf", "a.tar", "tree"])?;
    Ok(fs::remove_dir_all(dir.join("tree"))?)
}

/// The tree under version control, with a branch `other` in which half of the files are others.
fn branches(dir: &Path, index: u32) -> anyhow::Result<()> {
    large_tree(dir, index)?;
    let git = |arguments: &[&str]| {
        let name = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        succeed(dir, &[&["git", "-C", "tree"], &name[..], arguments].concat())
    };
    git(&["init", "-q", "-b", "one"])?;
    // So many loose objects would have them packed in the background.
    git(&["config", "gc.auto", "0"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "one"])?;
    git(&["checkout", "-q", "-b", "other"])?;
    for directory in (0..DIRECTORIES).step_by(2) {
        let path = dir.join("tree").join(directory.to_string());
        (0..FILES)
            .try_for_each(|n| fs::write(path.join(n.to_string()), "another\n".repeat(200)))?;
    }
    git(&["commit", "-q", "-a", "-m", "other"])?;
    git(&["checkout", "-q", "one"])
}

fn script(dir: &Path, _: u32) -> anyhow::Result<()> {
    let mut script = "create table t (number, text);\n".to_owned();
    for n in 0..TRANSACTIONS {
        script += &format!("insert into t values ({n}, 'a line of text with number {n}');\n");
    }
    Ok(fs::write(dir.join("script"), script)?)
}
