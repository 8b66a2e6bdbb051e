//! What programs read: `--json` of `husk check` and `husk bench fs`.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native};
use serde_json::Value;

use crate::run;

/// The one JSON document that `husk ARGUMENTS` prints.
fn document(name: &str, arguments: &[&str]) -> Value {
    let scratch = Scratch::new(name);
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.args(arguments);
    let outcome = run(&scratch, &work, command);
    serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{}", outcome.shown()))
}

#[test]
fn check_says_what_the_host_can_do() {
    if against_native() {
        return;
    }
    let document = document("check", &["check", "--json"]);
    let text = document.to_string().to_lowercase();
    for word in ["dispatch", "memfd", "pkey"] {
        assert!(text.contains(word), "nothing about {word}: {document}");
    }
}

#[test]
fn bench_names_the_machine_the_control_and_every_row() {
    if against_native() {
        return;
    }
    let arguments = ["bench", "fs", "--json", "--seconds", "1", "--only", "stat"];
    let document = document("bench", &arguments);
    assert!(document["machine"]["kernel"].is_string(), "{document}");
    assert!(
        document["control"]["native_over_husk"].as_f64().is_some_and(|x| x > 0.1),
        "{document}"
    );
    let rows = document["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["stat", "fstat"], "{document}");
    for row in rows {
        assert!(row["error"].is_null(), "{row}");
        assert!(row["husk_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        assert!(row["rounds"].as_u64().is_some_and(|rounds| rounds >= 5), "{row}");
    }
    assert!(document["state"]["idle_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{document}");
}
