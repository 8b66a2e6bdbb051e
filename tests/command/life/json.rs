//! What programs read: `--json` of `husk check` and `husk bench`.

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
    for word in ["dispatch", "memfd", "pkey", "fuse", "steering"] {
        assert!(text.contains(word), "nothing about {word}: {document}");
    }
}

#[test]
fn bench_names_the_machine_the_control_and_every_row() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("calls");
    let page = scratch.path().join("report");
    let page_name = page.to_str().expect("a path in UTF-8");
    let arguments = ["bench", "fs", "--json", "--seconds", "1", "--only", "stat"];
    let document = document("bench", &[&arguments[..], &["--report", page_name]].concat());
    let drawn = std::fs::read_to_string(page.join("fs.html")).expect("a page");
    for part in [">stat<", ">fstat<", "<svg", "<rect"] {
        assert!(drawn.contains(part), "no {part} in {drawn}");
    }
    assert!(!drawn.contains("http"), "it needs nothing else: {drawn}");
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

#[test]
fn a_technique_is_measured_beside_the_whole_and_drawn() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("without");
    let page = scratch.path().join("report");
    let page_name = page.to_str().expect("a path in UTF-8");
    let all = ["bench", "workloads", "--json", "--rounds", "1", "--processes", "1"];
    let more = ["--only", "creates", "--without", "rewrite", "--without", "optimistic"];
    let document = document("without", &[&all[..], &more, &["--report", page_name]].concat());
    let row = &document["rows"][0];
    assert!(row["error"].is_null(), "{row}");
    let worths = row["without"].as_array().expect("techniques");
    let names: Vec<_> = worths.iter().map(|worth| &worth["technique"]).collect();
    assert_eq!(names, ["rewrite", "optimistic"], "{row}");
    // A trap for each call costs many times what a call does.
    assert!(worths[0]["cpu_worth"].as_f64().is_some_and(|worth| worth > 1.5), "{row}");
    let drawn = std::fs::read_to_string(page.join("workloads.html")).expect("a page");
    assert!(drawn.contains("What rewrite is worth"), "{drawn}");
}

#[test]
fn scaling_is_measured_by_the_operations_that_each_process_did() {
    if against_native() {
        return;
    }
    let all = ["bench", "scale", "--json", "--rounds", "1", "--processes", "3", "--only"];
    let document = document("scale", &[&all[..], &["stat, one file"]].concat());
    let rows = document["rows"].as_array().expect("rows");
    let processes: Vec<_> = rows.iter().map(|row| row["processes"].as_u64()).collect();
    assert_eq!(processes, [Some(1), Some(2), Some(3)], "{document}");
    for row in rows {
        for side in ["native", "husk"] {
            let figure = |what| row[format!("{side}_{what}")].as_f64().expect("a figure");
            // Nobody does more than fits into the processor time that it took.
            let busy = figure("per_s") * figure("cpu_ns") / 1e9;
            assert!(busy > 0.0 && busy < 3.3, "{side}: {busy} processors: {row}");
        }
    }
    assert_eq!(rows[0]["husk_scale"].as_f64(), Some(1.0), "{document}");
}

#[test]
fn redis_is_measured_on_three_file_systems_and_its_requests_are_taken_apart() {
    if against_native() {
        return;
    }
    let all = ["bench", "redis", "--json", "--rounds", "1", "--requests", "100", "--only"];
    let document = document("redis", &[&all[..], &["always"]].concat());
    let rows = document["rows"].as_array().expect("rows");
    let clients: Vec<_> = rows.iter().map(|row| row["clients"].as_u64()).collect();
    assert_eq!(clients, [Some(1), Some(8), Some(50)], "{document}");
    for (row, side) in rows.iter().flat_map(|row| ["tmpfs", "disk", "volume"].map(|one| (row, one)))
    {
        for figure in ["per_s", "p50_ms", "p99_ms"] {
            assert!(row[side][figure].as_f64().is_some_and(|figure| figure > 0.0), "{row}");
        }
    }
    for (part, name, calls) in [(0, "SET", 5), (1, "GET", 3)] {
        let breakdown = &document["breakdowns"][part];
        assert_eq!(breakdown["request"], name, "{document}");
        // Some have a timer of the server's in between.
        let counts = breakdown["requests"].as_array().expect("the volume's, the disk's");
        let are_enough = |count: &Value| count.as_u64().is_some_and(|count| count >= 50);
        assert!(counts.len() == 2 && counts.iter().all(are_enough), "{breakdown}");
        let spans = breakdown["spans"].as_array().expect("spans");
        assert_eq!(spans.len(), 2 * calls, "{breakdown}");
    }
    let sync = &document["breakdowns"][0]["spans"][6];
    assert_eq!(sync["what"], "make it durable (fdatasync)");
    for side in ["volume_us", "disk_us", "arrakis_us"] {
        assert!(sync[side].as_f64().is_some_and(|us| us > 1.0), "{sync}");
    }
}

#[test]
fn write_backs_are_measured_with_their_bytes_compared() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("bench-write-back");
    let place = scratch.fresh("place");
    let all = ["bench", "write-back", "--rounds", "1", "--files", "500", "--directory"];
    let arguments = [&all[..], &[place.to_str().expect("a plain path")]].concat();
    let document = document("write-back", &[&arguments[..], &["--json"]].concat());
    let rows = document["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["20,000 new files", "20,000 appended files", "untar of 3,600 files"]);
    for row in rows {
        for side in ["native", "husk"] {
            assert!(row[side]["wall_s"].as_f64().is_some_and(|s| s > 0.0), "{row}");
        }
        assert!(row["wall_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
    }
    assert_eq!(std::fs::read_dir(&place).expect("it is there").count(), 0, "it left something");
    let mut command = Command::new(binary());
    command.args(&arguments).args(["--only", "untar"]);
    let outcome = run(&scratch, &place, command);
    let table = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(table.contains("untar") && table.contains("wanted"), "{}", outcome.shown());
    // A side that makes something else is no figure.
    let tar = "#!/bin/sh\ncase $PWD in */husk-0-*/work) mkdir t; echo other > t/1;;\n\
               *) exec /usr/bin/tar \"$@\";; esac\n";
    let bin = scratch.fresh("bin");
    std::fs::write(bin.join("tar"), tar).expect("written");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("tar"), runs).expect("it can be run");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("env");
    command.arg(format!("PATH={path}")).arg(binary()).args(&arguments).args(["--only", "untar"]);
    let outcome = run(&scratch, &place, command);
    assert!(
        outcome.code() != 0 && outcome.stderr.contains("the sides differ"),
        "{}",
        outcome.shown()
    );
}

#[test]
fn commands_are_measured_against_what_is_wanted_of_them() {
    if against_native() {
        return;
    }
    let arguments = ["bench", "commands", "--json", "--rounds", "1", "--only", "du"];
    let document = document("commands", &arguments);
    let row = &document["rows"][0];
    assert!(row["error"].is_null() && row["wanted"] == 1.0, "{row}");
    assert!(row["cpu_ratio"].as_f64().is_some_and(|ratio| ratio > 0.1), "{row}");
}

#[test]
fn workloads_are_measured_on_both_sides_and_drawn() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("report");
    let page = scratch.path().join("report");
    let page_name = page.to_str().expect("a path in UTF-8");
    let all = ["bench", "workloads", "--json", "--rounds", "1", "--processes", "2"];
    let arguments = [&all[..], &["--only", "e", "--report", page_name]].concat();
    let document = document("workloads", &arguments);
    let rows = document["rows"].as_array().expect("rows");
    // Those with an e in their names; those that share a directory three times, others twice.
    let names = ["creates", "writes", "renames", "directories", "rm dense", "rm sparse"];
    let others = ["pfind dense", "pfind sparse", "extract", "mailbench", "fsstress"];
    for name in names.iter().chain(&others) {
        let of_it = rows.iter().filter(|row| row["name"] == *name);
        let places: Vec<_> = of_it.map(|row| (&row["processes"], &row["one_directory"])).collect();
        assert!([2, 3].contains(&places.len()), "{name}: {places:?}");
    }
    for row in rows {
        assert!(row["error"].is_null(), "{row}");
        for time in ["native_wall_ns", "husk_wall_ns", "native_cpu_ns", "husk_cpu_ns"] {
            assert!(row[time].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        }
    }
    let html = std::fs::read_to_string(page.join("workloads.html")).expect("the page");
    assert!(html.contains("<svg") && html.contains("mailbench, P = 2, one directory"), "{html}");
    assert!(!html.contains("http"), "it needs nothing else");
}

#[test]
fn a_row_that_is_not_there_is_refused_with_those_that_are() {
    if against_native() {
        return;
    }
    for suite in ["fs", "workloads"] {
        let scratch = Scratch::new("no-row");
        let work = scratch.fresh("work");
        let mut command = Command::new(binary());
        command.args(["bench", suite, "--only", "nonsense"]);
        let outcome = run(&scratch, &work, command);
        let said = &outcome.stderr;
        assert!(!outcome.status.success(), "{}", outcome.shown());
        assert!(said.contains("nonsense") && said.contains("rename"), "{}", outcome.shown());
        assert_eq!(said.lines().count(), 1, "{}", outcome.shown());
    }
}

#[test]
fn what_a_supervisor_holds_is_measured_for_each_kind_of_its_work() {
    /// Words of a journal: no hold changes more.
    const ENTRIES_MAX: u64 = 256;
    if against_native() {
        return;
    }
    let document = document("bench-hold", &["bench", "hold", "--json", "--seconds", "2"]);
    let row = |place: &str, work: &str| {
        let rows = document[place].as_array().expect("rows");
        rows.iter().find(|row| row["work"] == work).unwrap_or_else(|| panic!("{work}: {document}"))
    };
    for (place, work) in
        [("supervisor", "deaths"), ("supervisor", "entering"), ("visitor", "directories")]
    {
        let number = |name: &str| row(place, work)[name].as_u64().expect("a number");
        assert!(number("count") > 0 && number("entries") <= ENTRIES_MAX, "{document}");
        // How many were slow is for people to judge: a virtual machine's own waits count as ours.
        assert!(number("slow") <= number("count"), "{document}");
    }
    assert!(document["victims"].as_u64() >= Some(1), "{document}");
}
