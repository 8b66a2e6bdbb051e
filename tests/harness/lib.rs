//! Proof on real input: what the tests of programs, faults and the command share.
//!
//! ```text
//!   Case ── prepares a directory ──> runs the script natively ──> tree, stdout, status
//!     '──── prepares it again  ────> husk run -- the script   ──> the same, or the test fails
//! ```
//!
//! What Linux does is the expectation; nothing is written down twice. A case is therefore itself
//! tested by the native run, and `HUSK_TEST_AGAINST=native` puts a second native run in the place
//! of Husk's: a case that then fails is not deterministic.
//!
//! | variable | meaning |
//! |---|---|
//! | `HUSK_BIN` | the command to test; else it is built once into `target/husk-tests` |
//! | `HUSK_REPEAT` | runs under Husk of every case (default: 4 of short ones, 2 of long ones) |
//! | `HUSK_FULL` | the nightly length of everything: 20 runs of all cases, a minute of killing |
//! | `HUSK_SEED` | the one seed that tests with seeds play |
//! | `HUSK_TEST_AGAINST` | `native`: test the tests |
//! | `HUSK_TEST_PATIENCE` | how many times longer all may take, for emulated processors |
//! | `HUSK_TEST_OPTIONS` | further options of `husk run`, separated by spaces |
//!
//! Invariants
//! 1. Every wait is bounded; who hangs is described (state, blocked signals, wait channel), killed.
//! 2. A run leaves no process behind: all of its processes carry a marker in their environment.
//! 3. Scratch directories lie on disk below `target/`, never in a tmpfs, and are removed when the
//!    test passed.
#![forbid(unsafe_code)]

pub mod case;
pub mod husk;
pub mod process;
pub mod run;
pub mod scratch;
pub mod toolchain;
pub mod tools;
pub mod tree;

pub use case::{Case, Length};
pub use husk::{Side, against_native, husk};
pub use run::{Outcome, Run};
pub use scratch::Scratch;
