//! A process of its own for a test: the region is mapped once in each.

use std::process::Command;

/// Set in it.
const MARK: &str = "HUSK_SIM_PROCESS";

/// Runs `body` of the test that is called so, in a process of its own.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args([test, "--exact", "--nocapture"]).env(MARK, "1").env("RUST_BACKTRACE", "0");
    let output = command.output().expect("it runs");
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    println!("{told}");
}
