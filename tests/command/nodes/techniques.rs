//! What programs on another node save themselves can be switched off, each alone, and measured.

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use husk_tests::husk::{binary, husk};
use husk_tests::{Run, Scratch, against_native, process};
use serde_json::Value;

use super::{beside_an_agent, images, nodes, socket_of, until};
use crate::run;

/// How long anything here may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a program does what it does.
const TIMES: u64 = 500;
/// What it may ask of the home besides: its start, its end.
const AROUND: u64 = 100;

/// How many requests a program on node 1 sends that does `what` `TIMES` times with each number.
fn requests(what: &str, without: &str) -> u64 {
    let scratch = Scratch::new("node-techniques");
    let work = scratch.fresh("work");
    let done = scratch.path().join("done");
    let script = format!(
        "import os, time\nopen('file', 'w').write('text')\nfor n in range({TIMES}): {what}\n\
         open('{}', 'w')\ntime.sleep(1000)",
        done.display()
    );
    let argv = ["sh", "-c", "HUSK_NODE=1 exec python3 -c \"$0\"", &script];
    let mut command = husk(&["--nodes", "2", "--discard"], &argv);
    command.env("HUSK_IMAGES", images(&scratch)).env("HUSK_WITHOUT", without);
    let running = Run::start(command, &work, scratch.path());
    until("all that it does", || done.exists().then_some(()));
    let rows = nodes(&scratch, &running);
    let [program] = &rows[1]["processes"].as_array().expect("programs")[..] else {
        panic!("one program: {rows:?}")
    };
    assert!(process::kill(program.as_i64().expect("a number") as i32), "it ran until then");
    running.wait(PATIENCE).expect("it ends");
    rows[1]["requests"].as_u64().expect("a number")
}

#[test]
fn each_technique_of_nodes_saves_messages_and_can_be_switched_off() {
    if against_native() {
        return;
    }
    let opened = "os.close(os.open('file', os.O_RDONLY))";
    let made = "os.close(os.open(f'new{n}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o400))";
    // What is done, the technique, and how many messages each time takes with it and without.
    let cases =
        [("os.stat('file')", "looks", 0, 2), (opened, "leases", 0, 2), (made, "coalesced", 2, 3)];
    for (what, technique, with, without) in cases {
        let seen = [requests(what, ""), requests(what, technique)];
        for (seen, wanted) in seen.into_iter().zip([with, without]) {
            let (least, most) = (wanted * TIMES, wanted * TIMES + AROUND);
            assert!((least..most).contains(&seen), "{technique}: {seen}, {least} to {most}");
        }
    }
}

/// Where requests do not go through memory, nothing can be asked while the agent's socket is gone.
#[test]
fn without_slots_requests_go_to_the_socket() {
    if against_native() {
        return;
    }
    let script = r#"
begins='my ($told) = @ARGV; sub say { open F, ">", "$told/$_[0]"; print F $_[1]; close F }
open GO, "+<", "$told/go"; mkdir "first" or die $!; say("begun", "begun\n"); my $line = <GO>;
say("seen", mkdir("second") ? "made\n" : "not made\n"); $line = <GO>'
mkfifo "$0/go"; exec perl -e "$begins" "$0""#;
    for (without, seen) in [("leases", "made\n"), ("slots", "not made\n")] {
        let socket = OnceCell::<PathBuf>::new();
        beside_an_agent(
            ("node-without-slots", without),
            script,
            ("begun\n", seen),
            &|agent| {
                let path = socket.get_or_init(|| socket_of(agent));
                fs::rename(path, path.with_extension("away")).expect("nobody else moves it");
            },
            &|_| {
                let path = socket.get().expect("it was moved");
                fs::rename(path.with_extension("away"), path).expect("nobody else moves it");
            },
        );
    }
}

#[test]
fn workloads_are_measured_on_two_nodes_with_and_without_a_technique() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("bench-nodes");
    let (work, page) = (scratch.fresh("work"), scratch.path().join("report"));
    let mut command = Command::new(binary());
    command.args(["bench", "nodes", "--workloads", "--only", "creates", "--rounds", "3"]);
    command.args(["--without", "coalesced", "--json", "--report"]).arg(&page);
    // The status tells of the control, which a busy machine may move.
    let outcome = run(&scratch, &work, command);
    let document: Value = serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", outcome.shown()));
    let rows = document["workloads"].as_array().expect("workloads");
    let names: Vec<_> = rows.iter().map(|row| (&row["processes"], &row["one_directory"])).collect();
    let place = |processes: u32, one: bool| (Value::from(processes), Value::from(one));
    let places = [place(1, false), place(2, false), place(2, true)];
    assert_eq!(names, places.each_ref().map(|place| (&place.0, &place.1)), "{document}");
    for row in rows {
        let figures = ["one_ms", "two_ms", "ratio", "control"];
        assert!(figures.iter().all(|name| row[name].as_f64() > Some(0.0)), "{row}");
        // One of its processes is on the other node, whichever: 4,000 are made and closed there.
        assert!(row["requests"].as_f64().is_some_and(|sent| sent >= 8_000.0), "{row}");
        let kinds = row["kinds"].as_object().expect("kinds");
        let sent = ["create", "return"].map(|kind| kinds.get(kind).and_then(Value::as_f64));
        assert_eq!(sent, [Some(4_000.0); 2], "{row}");
        let all: f64 = kinds.values().filter_map(Value::as_f64).sum();
        assert!(all < 8_100.0, "each is counted once: {row}");
        assert_eq!(row["without"][0][0], "coalesced", "{row}");
    }
    let drawn = fs::read_to_string(page.join("nodes.html")).expect("a page");
    assert!(drawn.contains("What coalesced is worth"), "{drawn}");
}

/// Another program that measures messages takes part, whatever it is; a peer that is no such
/// program is an error, and nobody needs one.
#[test]
fn messages_are_measured_beside_a_peer() {
    use std::os::unix::fs::PermissionsExt as _;
    if against_native() {
        return;
    }
    let scratch = Scratch::new("bench-peer");
    let work = scratch.fresh("work");
    let measure = |script: &str| {
        let peer = scratch.path().join("peer");
        fs::write(&peer, script).expect("written");
        fs::set_permissions(&peer, fs::Permissions::from_mode(0o755)).expect("it can be run");
        let mut command = Command::new(binary());
        command.args(["bench", "msg", "--rounds", "3", "--only", "one way, awake", "--json"]);
        command.arg("--peer").arg(&peer);
        run(&scratch, &work, command)
    };
    let outcome = measure(
        "#!/bin/sh\necho some peer\nn=1\nwhile read -r x; do n=$((n * 10)); echo $n; done\n",
    );
    let document: Value = serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", outcome.shown()));
    let peer = &document["peer"];
    let figures = ["least_ns", "median_ns"].map(|name| peer[name].as_f64());
    assert_eq!((&peer["name"], figures), (&Value::from("some peer"), [Some(10.0), Some(100.0)]));
    let rows = document["rows"].as_array().expect("rows");
    let own = rows.iter().find(|row| row["name"] == "64 B one way, awake").expect("our own");
    let own_ns = own["median_ns"].as_f64().expect("a figure");
    assert!((peer["ratio"].as_f64().expect("a ratio") - own_ns / 100.0).abs() < 0.01, "{document}");
    let wrong = measure("#!/bin/sh\necho some peer\nread -r x; echo soon\n");
    let [line] = crate::said(&wrong)[..] else { panic!("one line: {}", wrong.shown()) };
    assert!(line.contains("some peer said \"soon\""), "{line}");
}
