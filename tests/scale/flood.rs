//! Sixty-four writers and as many readers, through pipes, FIFOs and sockets.

use husk_tests::case::findings;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side};

use crate::LIMIT;

/// MiB through each of five arrangements: for every change, and with `HUSK_FULL`.
const MIB: (&str, &str) = ("16", "1024");
const SAID: &str = "one pipe: ok\none FIFO: ok\none socket: ok\npairs: ok\n";

#[test]
fn every_byte_of_sixty_four_writers_comes_once_in_its_place() {
    let scratch = Scratch::new("flood");
    let program = scratch.path().join("flood");
    build_c(include_str!("sources/flood.c"), &program);
    let mib = if std::env::var_os("HUSK_FULL").is_some() { MIB.1 } else { MIB.0 };
    let argv = [program.to_str().expect("a plain path"), "64", mib];
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let outcome = Run::start(side.command(&[], &argv), &work, scratch.path()).wait(LIMIT);
        let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), SAID, "{side:?}:\n{shown}");
        assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}:\n{shown}");
        assert!(side == Side::Native || findings(&outcome.stderr).is_empty(), "{shown}");
    }
}
