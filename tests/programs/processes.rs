//! The table of processes, and where they run: as Linux has it.

use husk_tests::{Case, Length};

#[test]
fn processes_know_wait_for_and_signal_each_other_as_natively() {
    let script = include_str!("sources/table.py");
    Case::new("table", Length::Short, &["python3", "-c", script]).check();
}

/// Whatever places a process takes no core from it, and nothing that it has chosen.
#[test]
fn placed_processes_may_run_where_they_could_natively() {
    let script = include_str!("sources/cores.py");
    for policy in ["host", "stay", "round-robin", "random", "least-loaded"] {
        let options = ["--place", policy];
        Case::new("cores", Length::Once, &["python3", "-c", script]).options(&options).check();
    }
}
