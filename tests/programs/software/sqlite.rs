//! sqlite3: a database file, its journal, and two processes that lock each other out.

use std::path::Path;

use husk_tests::{Case, Length};

/// Two writers interleave differently every time; the dump that is printed is in order.
fn database(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("two.db"))
}

#[test]
fn one_process_writes_the_same_database() {
    Case::new(
        "sqlite",
        Length::Short,
        &["bash", "-euc", include_str!("../sources/software/sqlite.sh")],
    )
    .check();
}

#[test]
fn two_processes_lock_each_other_out() {
    let script = include_str!("../sources/software/sqlite-two.sh");
    for mode in ["delete", "truncate", "wal"] {
        Case::new("sqlite-two", Length::Short, &["bash", "-euc", script, "bash", mode])
            .unspecified(database)
            .check();
    }
}
