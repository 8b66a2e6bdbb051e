//! Debian's own tests of Python (`libpython3.11-testsuite`): the same tests pass as natively.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use husk_tests::Outcome;

use crate::{Suite, data, full, tools};

const RUNNER: &str = include_str!("sources/unittests.py");
/// Natively the longest module takes 90 s, most of which it sleeps.
const LIMIT: Duration = Duration::from_secs(400);

/// What an image does not score.
type Exceptions = &'static [(&'static str, &'static str)];

/// Modules that end within some seconds.
const SHORT: &[&str] = &["os", "mmap", "select", "epoll", "shutil", "tempfile", "pathlib"];
/// Those that wait a lot; the check runs the first.
const LONG: &[&str] = &["threading", "subprocess", "signal", "poll", "multiprocessing_fork"];
/// Between virtual machines: natively they hang where there is none.
const NO_MACHINES: &[&str] = &["VSOCK"];
const NO_DNOTIFY: Exceptions = &[(
    "failed test.test_fcntl.TestFcntl.test_fcntl_64_bit",
    "F_NOTIFY of a directory of the image is refused",
)];

fn check(module: &str, left_out: &[&str], exceptions: Exceptions) {
    let python = tools::packaged("python3");
    let tests = Path::new("/usr/lib/python3.11/test").join(format!("test_{module}.py"));
    let (name, package) = ("python-suite", "libpython3.11-testsuite");
    assert!(tests.exists(), "{tests:?} is not there: apt-get install {package}");
    let runner = data::written("unittests.py", RUNNER);
    let mut argv = vec![python, runner, format!("test.test_{module}")];
    argv.extend(left_out.iter().map(|&part| part.to_owned()));
    println!("test_{module}");
    Suite { name, argv, limit: LIMIT, failures, exceptions }.check();
}

/// What did not pass, and how many were started: fewer in an image would be a loss, too.
fn failures(outcome: &Outcome) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let told: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("suite: ")).map(str::to_owned).collect();
    assert!(told.iter().any(|line| line.starts_with("started ")), "no end\n{}", outcome.shown());
    told
}

#[test]
fn short_tests_of_python_pass_in_an_image_as_natively() {
    for module in SHORT {
        check(module, &[], &[]);
    }
    check("fcntl", &[], NO_DNOTIFY);
}

#[test]
fn long_tests_of_python_pass_in_an_image_as_natively() {
    let modules = if full() { LONG } else { &LONG[..1] };
    for module in modules {
        check(module, &[], &[]);
    }
    if full() {
        check("socket", NO_MACHINES, &[]);
    }
}
