//! `stress-ng`: its stressors of files and directories, all at the same time, each with `--verify`.

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
    "dirmany",
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

/// Files that `dirmany` makes, which has no other end than its time: fewer than the image has room
/// for beside the others, whatever an image and the machine can do in that time.
const MANY: &str = "20000";

/// What an image does not score.
const EXCEPTIONS: &[(&str, &str)] = &[];

#[test]
fn the_stressors_of_stress_ng_verify_in_an_image_as_on_tmpfs() {
    let seconds = if full() { 60 } else { 8 };
    let mut argv = words(&[&tools::packaged("stress-ng"), "--temp-path", ".", "--verify"]);
    argv.extend(words(&["--timeout", &seconds.to_string(), "--oomable"]));
    for name in STRESSORS {
        argv.extend([format!("--{name}"), "1".to_owned()]);
    }
    for name in SIZES {
        let option = if *name == "seek" || *name == "sendfile" { "size" } else { "bytes" };
        argv.extend([format!("--{name}-{option}"), "4m".to_owned()]);
    }
    argv.extend(words(&["--dirmany-ops", MANY]));
    let limit = Duration::from_secs(seconds + 60);
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
