//! `husk net`: what it prints, and what it says about bad input.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Outcome, Scratch, against_native};
use serde_json::Value;

use crate::{run, said};

fn net(arguments: &[&str]) -> Outcome {
    let scratch = Scratch::new("net");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.arg("net").args(arguments);
    run(&scratch, &work, command)
}

#[test]
fn a_simulation_prints_each_experiment_without_angel_and_with_it() {
    if against_native() {
        return;
    }
    let arguments = ["sim", "--kernels", "2,24", "--seconds", "2", "--seed", "3"];
    let outcome = net(&[&arguments[..], &["--json"]].concat());
    let document: Value = serde_json::from_slice(&outcome.stdout).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| (&row["experiment"], &row["kernels"])).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    let skewed = &rows[3];
    assert_eq!((&skewed["experiment"], &skewed["kernels"]), (&"skewed".into(), &24.into()));
    assert!(skewed["with"]["balanced_ms"].as_u64().is_some_and(|ms| ms <= 1000), "{skewed}");
    assert!(skewed["without"]["balanced_ms"].is_null(), "{skewed}");
    let [without, with] = ["without", "with"].map(|one| &skewed[one]["mean_ms"]);
    assert!(with.as_f64().expect("ms") < without.as_f64().expect("ms") / 10.0, "{skewed}");
    let text = net(&arguments).stdout;
    let text = String::from_utf8_lossy(&text);
    for part in
        ["even load", "all groups on one kernel", "attack on one kernel", "     24  without"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn numbers_of_kernels_out_of_reach_are_refused_with_a_line() {
    if against_native() {
        return;
    }
    for wrong in ["1", "25", "2,x"] {
        let outcome = net(&["sim", "--kernels", wrong]);
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        assert!(matches!(said(&outcome)[..], [line] if line.contains("--kernels")), "{wrong}");
    }
}
