//! Ten thousand TCP connections at once, in an image as natively; 65,000 with `HUSK_FULL`.

use husk_tests::case::findings;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side};
use rustix::process::{Resource, getrlimit};

use crate::LIMIT;

/// Pairs of processes, and their connections in all, where each may have as many descriptors: for
/// every change, and with `HUSK_FULL`.
const MOST: (u64, u64) = (1, 10_000);
const FULL: (u64, u64) = (4, 65_000);
/// Descriptors that a process has beside them.
const OTHERS: u64 = 100;

#[test]
fn ten_thousand_connections_work_at_once_and_burn_nothing_while_they_wait() {
    let scratch = Scratch::new("connections");
    let program = scratch.path().join("connections");
    build_c(include_str!("sources/connections.c"), &program);
    let may = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let is_full = std::env::var_os("HUSK_FULL").is_some();
    let (pairs, most) = if is_full { FULL } else { MOST };
    let count = most.min(pairs * may.saturating_sub(OTHERS));
    let argv = [program.to_str().expect("a plain path"), &pairs.to_string(), &count.to_string()];
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let outcome = Run::start(side.command(&[], &argv), &work, scratch.path()).wait(LIMIT);
        let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        let said = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(said, format!("{count} connections: ok\n"), "{side:?}:\n{shown}");
        assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}:\n{shown}");
        assert!(side == Side::Native || findings(&outcome.stderr).is_empty(), "{shown}");
    }
}
