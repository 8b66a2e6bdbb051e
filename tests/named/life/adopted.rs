//! An image that has lost supervisor and keeper, but not its programs; and what all of these are
//! called, and whom Linux ends first.

use std::fs;

use husk_tests::against_native;

use crate::{Images, shown, text, until};

/// Writes on and on until it is ended.
const TICKER: &str = "echo precious > file; mkfifo pipe
    (while :; do sleep 0.1; echo tick >> file; done) > /dev/null 2>&1 < /dev/null & echo $!";

#[test]
fn an_image_goes_on_that_one_of_its_programs_has_kept() {
    if against_native() {
        return;
    }
    let images = Images::new("adopted");
    images.up("ci");
    images.script("ci", TICKER);
    for command in [&["ls"][..], &["exec", "ci", "--", "cat", "file"], &["ps", "ci"]] {
        images.kill_both("ci");
        let output = images.husk(command);
        assert!(output.status.success(), "{command:?}: {}", shown(&output));
        let note = "note: supervisor and keeper of image ci were killed: a program has kept it";
        assert!(text(&output.stderr).contains(note), "{command:?}: {}", shown(&output));
        assert_eq!(images.row("ci")["state"], "up");
        until("it writes on", || images.script("ci", "cat file").starts_with("precious\ntick\n"));
        assert_eq!(images.script("ci", "echo through > pipe & cat pipe"), "through\n");
    }
    // What was adopted is kept like any other.
    images.kill_supervisor("ci");
    images.kill_both("ci");
    let output = images.husk(&["up", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("it is up already"), "{}", shown(&output));
    images.kill_both("ci");
    let down = images.husk(&["down", "ci", "--force"]);
    assert!(down.status.success(), "{}", shown(&down));
    let written = fs::read_to_string(images.work.join("file")).expect("written back");
    assert!(written.starts_with("precious\ntick\n"), "{written}");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn what_another_image_has_in_memory_is_not_taken_for_a_dead_ones() {
    if against_native() {
        return;
    }
    let images = Images::new("not-adopted");
    images.up("dead");
    images.up("other");
    let ticker = images.script("other", TICKER);
    images.kill("dead");
    assert_eq!(images.row("dead")["state"], "dead");
    let place = |name: &str| images.place(name).join("facts");
    // Not even where its facts name the other's: that was made at another time.
    let facts = fs::read_to_string(place("other")).expect("facts");
    let mut facts: serde_json::Value = serde_json::from_str(&facts).expect("JSON");
    facts["region"]["made_ns"] = 1.into();
    fs::write(place("dead"), facts.to_string()).expect("written");
    until("it is given up", || {
        let row = images.row("dead");
        let told = row["last_word"].as_str().unwrap_or_default().to_owned();
        row["state"] == "dead" && told.contains("its memory is another image's")
    });
    assert!(images.script("other", "cat file").starts_with("precious\n"));
    images.done(&["kill", "other", ticker.trim()]);
    images.husk(&["down", "dead"]);
    until("nobody is left", || images.row("other")["processes"] == 0);
    images.down("other");
}

#[test]
fn supervisor_and_keeper_are_called_by_their_image_and_end_after_programs() {
    if against_native() {
        return;
    }
    let images = Images::new("called");
    images.up("ci");
    let program = images.script("ci", "sleep 67 > /dev/null 2>&1 & echo $!");
    let read = |pid: &str, file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
    };
    let score = |pid: &str| read(pid, "oom_score_adj").trim().parse::<i32>().expect("a number");
    let check = || {
        for who in ["pid", "keeper"] {
            let pid = images.row("ci")[who].to_string();
            assert_eq!(read(&pid, "comm"), "husk: ci\n");
            assert_eq!(read(&pid, "cmdline"), "husk: ci\0");
            assert!(score(&pid) < score(program.trim()), "{who}");
        }
    };
    check();
    images.kill_supervisor("ci");
    check();
    let keeper = || images.row("ci")["keeper"].as_i64().expect("a number") as i32;
    let before = keeper();
    husk_tests::process::kill(before);
    until("another keeper", || ![0, before].contains(&keeper()));
    check();
    images.done(&["down", "ci", "--force"]);
}
