//! `pjdfstest`: what POSIX says of each call on names, 398 tests.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use husk_tests::scratch::room;

use crate::{Suite, tools};

const VERSION: &str = "0.2.2";
const CONFIGURATION: &str = include_str!("sources/pjdfstest.toml");

/// What an image does not score.
const EXCEPTIONS: &[(&str, &str)] =
    &[("rmdir::ebusy", "mount(2) knows the host's tree, not the image's")];

#[test]
fn pjdfstest_scores_in_an_image_what_it_scores_on_tmpfs() {
    let program = tools::installed("pjdfstest", VERSION);
    let configuration = room().join("tools/pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION).expect("a configuration");
    let argv = [program.to_str(), Some("-c"), configuration.to_str(), Some("-p"), Some(".")];
    let suite = Suite {
        name: "pjdfstest",
        argv: argv.map(|word| word.expect("a plain path").to_owned()).to_vec(),
        limit: Duration::from_secs(60),
        failures: |outcome| {
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert!(text.contains(" passed, "), "it did not end\n{}", outcome.shown());
            let failed = text.lines().filter_map(|line| line.trim_end().strip_suffix("FAILED"));
            failed.map(|name| name.trim().to_owned()).collect::<BTreeSet<_>>()
        },
        exceptions: EXCEPTIONS,
    };
    suite.check();
}
