//! `husk net`: what it prints, and what it says about bad input.

mod broken;
mod plain;
mod server;
mod steering;
mod tuning;
mod udp;

use std::fs;
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
    let scratch = Scratch::new("net-report");
    let page = scratch.path().to_str().expect("a plain path");
    let outcome = net(&[&arguments[..], &["--json", "--report", page]].concat());
    let drawn = fs::read_to_string(scratch.path().join("net-sim.html")).expect("a page");
    assert_eq!(drawn.matches("<svg").count(), 6, "{drawn}");
    assert!(drawn.contains("all groups on one kernel, 24 kernels"), "{drawn}");
    let nowhere = net(&[&arguments[..], &["--report", "no/such/place"]].concat());
    assert!(matches!(said(&nowhere)[..], [line] if line.contains("no/such/place")));
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
        let told = ["--kernels", "choose a whole number from 2 to 24"];
        let is_told = |line: &str| told.iter().all(|part| line.contains(part));
        assert!(matches!(said(&outcome)[..], [line] if is_told(line)), "{}", outcome.shown());
    }
}

#[test]
fn ways_of_receiving_udp_are_measured_beside_each_other_with_what_is_lost() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("udp");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.args(["bench", "udp", "--rounds", "1", "--json"]);
    let outcome = run(&scratch, &work, command);
    // 1: two rounds of the same differed, as on a busy machine.
    assert!(matches!(outcome.status.code(), Some(0 | 1)), "{}", outcome.shown());
    let document: Value = serde_json::from_slice(&outcome.stdout).expect("one document");
    for (table, rows, figure) in [("throughput", 8, "received_per_s"), ("latency", 5, "p50_us")] {
        let found = document[table].as_array().expect("rows");
        assert_eq!(found.len(), rows, "{document}");
        for row in found {
            assert!(row[figure].as_f64().is_some_and(|figure| figure > 0.0), "{row}");
            let lost = row["lost_percent"].as_f64().expect("what is lost");
            assert!((0.0..=100.0).contains(&lost), "{row}");
        }
        assert_eq!(found[0]["over_default"], 1.0, "{document}");
    }
}

#[test]
fn ways_of_accepting_are_measured_beside_each_other_and_only_angel_moves_groups() {
    if server::unable() {
        return;
    }
    let scratch = Scratch::new("accept");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.args(["bench", "net", "--rounds", "1", "--only", "nginx, attacked", "--json"]);
    command.args(["--report", "."]);
    let outcome = run(&scratch, &work, command);
    let drawn = fs::read_to_string(work.join("net.html")).expect("a page");
    // A course of each way in both rows, with values in it, and moves.
    assert_eq!(drawn.matches("<path fill=none").count(), 12, "{drawn}");
    assert!(drawn.contains('L') && drawn.contains("<rect"), "{drawn}");
    // 1: two turns of the same differed, as on a busy machine.
    assert!(matches!(outcome.status.code(), Some(0 | 1)), "{}", outcome.shown());
    let document: Value = serde_json::from_slice(&outcome.stdout).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    let of = |way: &str| rows.iter().find(|row| row["way"] == way).expect("a row of each way");
    assert_eq!(rows.len(), 12, "{document}");
    for row in rows {
        assert!(row["requests_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        // At a constant rate, a machine that becomes busier is asked for too much, and one that was
        // busier before for too little.
        let is_paced = row["row"] == "nginx, attacked, paced";
        assert!(row["failed"] == 0 || is_paced, "{row}");
        let is_angel = row["way"] == "groups, Angel" || row["way"] == "groups, cBPF";
        let moves = row["moves"] != 0;
        assert!(moves == is_angel || (is_paced && is_angel), "{row}");
    }
    // Two workers, of which one has everything.
    assert_eq!(of("groups, no moves")["worst_over_mean"], 2.0, "{document}");
    assert!(of("groups, Angel")["worst_over_mean"].as_f64() < Some(2.0), "{document}");
    // One rate for all ways, from what was measured.
    let [paced] = &document["paced"].as_array().expect("rates")[..] else { panic!("{document}") };
    let figure = |name: &str| paced[name].as_f64().expect("a figure");
    assert_eq!(paced["row"], "nginx, attacked, paced");
    assert!(figure("one_carries_per_s") > 0.0, "{paced}");
    let part = figure("requests_per_s") / figure("all_carry_per_s");
    assert!((part - 0.75).abs() < 1e-6, "{paced}");
    assert!(figure("sent_late_ms") >= 0.0 && document["skipped_s"] == 1.0, "{document}");
}

#[test]
fn a_server_with_many_processes_for_each_socket_is_measured_likewise() {
    if server::unable() {
        return;
    }
    let scratch = Scratch::new("accept-many");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.args(["bench", "net", "--rounds", "1", "--only", "apache, attacked", "--json"]);
    let outcome = run(&scratch, &work, command);
    assert!(matches!(outcome.status.code(), Some(0 | 1)), "{}", outcome.shown());
    let document: Value = serde_json::from_slice(&outcome.stdout).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12, "{document}");
    for row in rows {
        let is_paced = row["row"] == "apache, attacked, paced";
        assert!(row["failed"] == 0 || is_paced, "{row}");
        let worst = row["worst_over_mean"].as_f64();
        match row["way"].as_str().expect("a way") {
            "groups, no moves" => assert_eq!(worst, Some(2.0), "{row}"),
            "groups, Angel" => {
                assert!(is_paced || worst < Some(2.0) && row["moves"] != 0, "{row}");
            }
            "groups, cBPF" => assert!(is_paced || row["moves"] != 0, "{row}"),
            // Who answers a request is known of those that eBPF counts alone.
            _ => assert_eq!((worst, &row["moves"]), (None, &0.into()), "{row}"),
        }
    }
}

#[test]
fn who_may_not_steer_is_told_by_the_bench_in_one_line() {
    if against_native() {
        return;
    }
    let mut command = Command::new(binary());
    command.args(["bench", "net"]);
    let said = server::refused(crate::as_nobody(&command));
    assert!(said.contains("husk net check"), "{said}");
}

#[test]
fn what_is_no_row_number_or_directory_of_the_bench_is_told_with_what_there_is() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("bench-net");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "").expect("a file");
    let directory = "name a directory that can be made or written to";
    for (wrong, remedy) in [
        (["--only", "nope"], "there are nginx, even | "),
        (["--rounds", "x"], "choose a whole number from 1 to 100;"),
        (["--rounds", "0"], "choose a whole number from 1 to 100;"),
        (["--report", "no/such/place"], directory),
        (["--report", "file"], directory),
    ] {
        let mut command = Command::new(binary());
        command.args(["bench", "net"]).args(wrong);
        let outcome = run(&scratch, &work, command);
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        let [line] = &said(&outcome)[..] else { panic!("{}", outcome.shown()) };
        assert!(line.contains(wrong[1]) && line.contains(remedy), "{line}");
        assert!(!line.contains("`husk check`"), "that says nothing of it: {line}");
    }
}

#[test]
fn where_no_namespace_can_be_made_nothing_is_measured_and_one_line_says_so() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("udp");
    let work = scratch.fresh("work");
    // In a user namespace that may have no network namespace.
    let limit = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" bench udp";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", limit]).arg(binary());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
    assert!(matches!(said(&outcome)[..], [line] if line.contains("namespace")), "{outcome:?}");
}
