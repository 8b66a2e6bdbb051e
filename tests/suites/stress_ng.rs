//! `stress-ng`: its stressors of files and directories, all at the same time but for one, each with
//! `--verify`.

use std::collections::BTreeSet;
use std::time::Duration;

use husk_tests::Outcome;

use crate::{Suite, full, tools, words};

/// File-system and directory stressors that an ordinary file system serves.
const STRESSORS: &[&str] = &[
    "access",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dup",
    "fallocate",
    "fcntl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "hdd",
    "inotify",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "open",
    "readahead",
    "rename",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];
/// Those that write much by default are given 4 MiB.
const SIZES: &[&str] = &["fallocate", "hdd", "iomix", "readahead", "seek", "sendfile", "sync-file"];

/// The one that makes files for two seconds, however many: it fills an image that is fast enough,
/// so it runs when the others have ended.
const FILLING: &str = "dirmany";

/// What an image does not score.
const EXCEPTIONS: &[(&str, &str)] = &[];

#[test]
fn the_stressors_of_stress_ng_verify_in_an_image_as_on_tmpfs() {
    let seconds = if full() { 60 } else { 8 };
    let program = tools::packaged("stress-ng");
    let command = |stressors: &[&str], more: &str| {
        let each: String = stressors.iter().map(|name| format!(" --{name} 1")).collect();
        format!(
            "{program} --temp-path . --verify --oomable --timeout {seconds}{each}{more} || exit 1"
        )
    };
    let size = |name: &&str| {
        let option = if ["seek", "sendfile"].contains(name) { "size" } else { "bytes" };
        format!(" --{name}-{option} 4m")
    };
    let sizes: String = SIZES.iter().map(size).collect();
    let script = [command(STRESSORS, &sizes), command(&[FILLING], "")].join("\n");
    let argv = words(&["sh", "-c", &script]);
    let limit = Duration::from_secs(2 * seconds + 60);
    let exceptions = EXCEPTIONS;
    Suite { name: "stress-ng", argv, limit, failures, exceptions }.check();
}

/// `stress-ng: fail:  [4711] fstat: ...` names a stressor; how often does not matter.
fn failures(outcome: &Outcome) -> BTreeSet<String> {
    assert!(outcome.stderr.contains("run completed in"), "it did not end\n{}", outcome.shown());
    let lines = outcome.stderr.lines().filter(|line| line.starts_with("stress-ng: fail:"));
    let after_pid = lines.filter_map(|line| line.split_once("] ")).map(|(_, text)| text);
    after_pid.filter_map(|text| text.split([':', ' ']).next()).map(str::to_owned).collect()
}
