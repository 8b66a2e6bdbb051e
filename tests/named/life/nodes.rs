//! Images of several nodes that stay: `husk up --nodes`, `husk exec --node`, and what becomes of
//! them when one of their processes is killed.

use std::fs;

use husk_tests::{against_native, process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Images, refusal, shown, text, until};

/// Writes on and on until it is ended.
const TICKER: &str = "echo begun > file
    (while :; do sleep 0.1; echo tick >> file; done) > /dev/null 2>&1 < /dev/null & echo $!";

fn up(images: &Images, name: &str) {
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", name, "--nodes", "2", "--memory", "128M", "--overlay", work]);
}

/// What a script on node 1 says.
fn there(images: &Images, script: &str) -> String {
    images.done(&["exec", "--node", "1", "ci", "--", "bash", "-euc", script])
}

fn rows(images: &Images, command: &str) -> Vec<Value> {
    serde_json::from_str(&images.done(&[command, "--json", "ci"])).expect("JSON")
}

#[test]
fn an_image_of_two_nodes_stays_and_shows_one_tree_and_all_its_programs() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes");
    fs::write(images.work.join("old"), "old\n").expect("a file");
    up(&images, "ci");
    assert_eq!(
        there(&images, "cat old; echo there > made; pwd > /tmp/where; umask"),
        "old\n0022\n"
    );
    let here = format!("there\n{}\n", images.work.display());
    assert_eq!(images.script("ci", "cat made /tmp/where"), here);
    let sleeper = there(&images, "sleep 67 < /dev/null > /dev/null 2>&1 & echo $!");
    let nodes = rows(&images, "nodes");
    let on: Vec<_> = nodes.iter().map(|row| row["processes"].as_array().map(Vec::len)).collect();
    assert_eq!(on, [Some(0), Some(1)], "{nodes:?}");
    let names: Vec<_> = nodes.iter().map(|row| &row["image"]).collect();
    assert_eq!(names, ["ci", "ci-1"], "{nodes:?}");
    let programs = rows(&images, "ps");
    assert_eq!(programs.len(), 1, "no agent, and the sleeper once: {programs:?}");
    assert_eq!(programs[0]["node"], 1, "{programs:?}");
    let changes = images.done(&["diff", "ci"]);
    assert!(changes.contains("made"), "{changes}");
    images.done(&["sync", "ci"]);
    assert_eq!(fs::read_to_string(images.work.join("made")).expect("synced"), "there\n");
    let line = images.refused(&["down", "ci"], 125);
    assert!(line.contains("a program runs in it: sleep"), "{line}");
    images.done(&["kill", "ci", sleeper.trim()]);
    until("nobody is left", || rows(&images, "ps").is_empty());
    there(&images, "echo last > made");
    images.down("ci");
    assert_eq!(fs::read_to_string(images.work.join("made")).expect("written"), "last\n");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn nodes_that_are_none_and_ends_of_one_node_are_refused() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes-refused");
    for wrong in ["0", "17", "1000"] {
        let line = images.refused(&["up", "ci", "--nodes", wrong], 125);
        assert!(line.contains("choose --nodes 1 to 16"), "{line}");
    }
    let line = images.refused(&["up", "ci", "--nodes", "4", "--memory", "100M"], 125);
    assert!(line.contains("choose --memory 128M or more"), "{line}");
    images.up("one");
    let line = images.refused(&["exec", "--node", "1", "one", "--", "true"], 125);
    assert!(line.contains("the image has one node"), "{line}");
    images.down("one");
    up(&images, "ci");
    let line = images.refused(&["exec", "--node", "2", "ci", "--", "true"], 125);
    assert!(line.contains("the image has nodes 0 to 1"), "{line}");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    for (wrong, why) in [("2", "HUSK_NODE=2: the image has nodes"), ("x", "HUSK_NODE=x")] {
        let mut command = images.command(husk, &["exec", "ci", "--", "true"]);
        let output = command.env("HUSK_NODE", wrong).output().expect("timeout starts");
        let line = refusal(&output, 125);
        assert!(line.contains(why), "{line}");
    }
    let mut command = images.command(husk, &["exec", "ci", "--", "sh", "-c", "echo on > chosen"]);
    assert!(command.env("HUSK_NODE", "1").status().expect("timeout starts").success());
    assert_eq!(images.script("ci", "cat chosen"), "on\n");
    let line = images.refused(&["down", "ci-1", "--force"], 125);
    assert!(line.contains("node 1 of ci") && line.contains("husk down ci"), "{line}");
    images.down("ci");
}

/// The agent of an image: a child of its supervisor.
fn agent(images: &Images) -> Option<i32> {
    let of = images.supervisor("ci");
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    let numbers = children.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let called = |pid: &i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == "husk: home")
    };
    numbers.into_iter().find(called)
}

#[test]
fn whoever_is_killed_while_it_is_up_the_image_and_its_other_node_go_on() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes-killed");
    up(&images, "ci");
    let ticker = there(&images, TICKER);
    let goes_on = |who: &str| {
        assert_eq!(there(&images, "head -1 file; echo x > by && cat by"), "begun\nx\n", "{who}");
        let lines = || images.script("ci", "wc -l < file").trim().parse::<u32>().expect("a number");
        let before = lines();
        until("it writes on", || lines() > before);
    };
    goes_on("nobody");
    images.kill_supervisor("ci");
    goes_on("the supervisor");
    let keeper = images.row("ci")["keeper"].as_i64().expect("a number");
    process::kill(keeper as i32);
    until("another keeper", || {
        ![0, keeper].contains(&images.row("ci")["keeper"].as_i64().unwrap_or(0))
    });
    images.kill_supervisor("ci");
    goes_on("keeper and then supervisor");
    let before = agent(&images).expect("an agent");
    process::kill(before);
    until("another agent", || agent(&images).is_some_and(|pid| pid != before));
    goes_on("the agent");
    images.kill_supervisor("ci-1");
    goes_on("the supervisor of node 1");
    // One that is stopped is not dead: its programs go on, with what they have open.
    let row = images.row("ci-1");
    let both = ["pid", "keeper"].map(|who| row[who].as_i64().expect("a number") as i32);
    let signal = |signal| {
        for pid in both.map(|pid| Pid::from_raw(pid).expect("a number")) {
            kill_process(pid, signal).expect("it lives");
        }
    };
    signal(Signal::STOP);
    let lines = || images.script("ci", "wc -l < file").trim().parse::<u32>().expect("a number");
    let before = lines();
    until("it writes on for a second", || lines() > before + 8);
    signal(Signal::CONT);
    goes_on("node 1 that was stopped");
    images.done(&["kill", "ci", ticker.trim()]);
    until("nobody is left", || rows(&images, "ps").is_empty());
    images.down("ci");
    let written = fs::read_to_string(images.work.join("file")).expect("written back");
    assert!(written.starts_with("begun\ntick\n"), "{written}");
}

#[test]
fn an_image_that_a_program_has_kept_has_its_nodes_again_and_one_that_nobody_has_ends_them() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes-adopted");
    up(&images, "ci");
    let ticker = images.script("ci", TICKER);
    images.kill_both("ci");
    assert_eq!(there(&images, "echo again > by; cat by"), "again\n");
    assert_eq!(images.row("ci")["state"], "up");
    images.done(&["kill", "ci", ticker.trim()]);
    until("nobody is left", || rows(&images, "ps").is_empty());
    images.kill("ci");
    until("node 1 has ended", || images.row("ci-1").is_null());
    let down = images.husk(&["down", "ci"]);
    assert!(text(&down.stderr).contains("had died"), "{}", shown(&down));
}

#[test]
fn a_node_that_is_killed_takes_its_programs_along_and_the_image_goes_on() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes-lost");
    up(&images, "ci");
    there(&images, "echo there > made");
    images.kill("ci-1");
    assert_eq!(rows(&images, "nodes")[1]["up"], false);
    let line = images.refused(&["exec", "--node", "1", "ci", "--", "true"], 125);
    assert!(line.contains("that node was killed"), "{line}");
    assert_eq!(images.script("ci", "cat made"), "there\n");
    images.down("ci");
    assert_eq!(fs::read_to_string(images.work.join("made")).expect("written"), "there\n");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

/// Blocks that are free in the image.
fn free_blocks(images: &Images) -> u64 {
    images.script("ci", "stat -f -c %f /tmp").trim().parse().expect("a number")
}

/// A program on node 1 with 8 MiB in a file that has lost its name: its number.
fn holder(images: &Images) -> i32 {
    let script = "exec 3> /tmp/big; head -c 8388608 /dev/zero >&3; rm /tmp/big
        sleep 67 < /dev/null > /dev/null 2>&1 & echo $!";
    there(images, script).trim().parse().expect("a number")
}

#[test]
fn what_a_dead_program_or_node_had_open_at_home_is_let_go_and_of_a_dead_agent_kept() {
    if against_native() {
        return;
    }
    let images = Images::new("nodes-holds");
    up(&images, "ci");
    let before = free_blocks(&images);
    for who in ["program", "agent", "node"] {
        let program = holder(&images);
        let held = free_blocks(&images);
        assert!(held + 1500 < before, "{who}: {held} of {before} blocks are free");
        match who {
            "agent" => {
                let dead = agent(&images).expect("an agent");
                process::kill(dead);
                until("another agent", || agent(&images).is_some_and(|pid| pid != dead));
                let held = free_blocks(&images);
                assert!(held + 1500 < before, "{held} of {before}: the next agent has it open");
            }
            "node" => images.kill_both("ci-1"),
            _ => {}
        }
        process::kill(program);
        until(&format!("all is let go of a {who}"), || free_blocks(&images) + 500 > before);
    }
    assert_eq!(rows(&images, "nodes")[1]["up"], false);
    images.down("ci");
}
