//! git on a repository of some thousand files.

use std::path::Path;
use std::process::Command;

use husk_tests::{Case, Length};

const SCRIPT: &str = include_str!("../sources/software/git.sh");

/// The index holds inode numbers and times, as `.git/index` does everywhere.
fn index(path: &Path) -> bool {
    path == Path::new("repo/.git/index")
}

#[test]
fn git_works_on_three_thousand_files_and_the_host_finds_them_sound() {
    Case::new("git", Length::Long, &["bash", "-euc", SCRIPT])
        .unspecified(index)
        .afterwards(|work| {
            let repository = work.join("repo");
            assert_eq!(host_git(&repository, &["fsck", "--full", "--strict"]), "");
            assert_eq!(host_git(&repository, &["status", "--porcelain"]), "");
        })
        .check();
}

/// What git on the host prints about a tree; it must end well.
pub fn host_git(repository: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(repository).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().expect("git is installed (apt-get install git)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?} on the host: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
