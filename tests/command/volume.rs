//! `husk volume`, as people and scripts use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Outcome, Scratch, against_native};
use serde_json::Value;

use crate::{run, said};

/// A user with volumes of its own.
struct Room {
    scratch: Scratch,
    work: PathBuf,
}

impl Room {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let work = scratch.fresh("work");
        scratch.fresh("state");
        Self { scratch, work }
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state/husk/volumes")
    }

    fn husk(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(binary());
        command.arg("volume").args(arguments);
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        run(&self.scratch, &self.work, command)
    }

    /// One that succeeds without a word on standard error.
    fn does(&self, arguments: &[&str]) -> String {
        let outcome = self.husk(arguments);
        assert!(outcome.code() == 0 && said(&outcome).is_empty(), "{}", outcome.shown());
        String::from_utf8(outcome.stdout).expect("text")
    }

    /// One that fails with this status and one line.
    fn fails(&self, arguments: &[&str], status: i32, mentions: &[&str]) {
        let outcome = self.husk(arguments);
        let said = said(&outcome);
        assert_eq!((outcome.code(), said.len()), (status, 1), "{}", outcome.shown());
        for word in mentions {
            assert!(said[0].contains(word), "no {word} in {}", said[0]);
        }
    }
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory").count()
}

#[test]
fn a_volume_is_made_listed_checked_and_removed() {
    if against_native() {
        return;
    }
    let room = Room::new("volume");
    assert_eq!(document(&room.does(&["ls", "--json"])), Value::Array(Vec::new()));
    room.does(&["create", "data", "--size", "2M"]);
    room.does(&["create", "other", "--size", "1M", "--on", "."]);
    let table = room.does(&["ls"]);
    let words: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "SIZE", "EPOCH", "STATE", "AREA"]);
    assert_eq!(words[1][..4], ["data", "2M", "0", "free"], "{table}");
    let rows = document(&room.does(&["ls", "--json"]));
    assert_eq!(rows[1]["path"], room.work.join("other.husk-area").to_str().expect("UTF-8"));
    assert_eq!(rows[0]["size_bytes"], 2_097_152);
    assert_eq!(room.does(&["check", "data"]), "data: clean\n");
    room.does(&["rm", "data"]);
    room.does(&["rm", "other"]);
    assert_eq!((files(&room.state()), files(&room.work)), (0, 0));
}

#[test]
fn a_damaged_volume_is_found_with_status_1_and_its_place() {
    if against_native() {
        return;
    }
    let room = Room::new("damaged");
    room.does(&["create", "data", "--size", "1M"]);
    let area = room.state().join("data.husk-area");
    let mut bytes = fs::read(&area).expect("the area");
    bytes[4096 + 33] ^= 1;
    fs::write(&area, &bytes).expect("a turned bit");
    let outcome = room.husk(&["check", "data", "--json"]);
    assert_eq!(outcome.code(), 1, "{}", outcome.shown());
    let report = document(str::from_utf8(&outcome.stdout).expect("text"));
    assert_eq!(report["findings"][0]["at_bytes"], 4096, "{report}");
    assert_eq!(room.husk(&["check", "data"]).code(), 1);
    assert!(fs::read(&area).expect("the area") == bytes, "a look has changed it");
}

#[test]
fn mistakes_with_volumes_get_one_line_and_leave_nothing() {
    if against_native() {
        return;
    }
    let room = Room::new("mistakes");
    room.fails(&["create", "data"], 125, &["--size", "--help"]);
    room.fails(&["create", "data", "--size", "1K"], 125, &["--size 1M to 64T"]);
    room.fails(&["create", "1", "--size", "1M"], 125, &["letters"]);
    room.fails(&["create", "data", "--size", "1M", "--on", "/dev/shm"], 125, &["tmpfs", "--on"]);
    room.fails(&["create", "data", "--size", "1M", "--on", "/none"], 125, &["/none", "--on"]);
    room.fails(&["check", "none"], 125, &["none of that name", "husk volume ls"]);
    room.fails(&["rm", "none"], 125, &["none of that name"]);
    room.fails(&["rm", "--forget", "none"], 125, &["none of that name"]);
    room.does(&["create", "data", "--size", "1M"]);
    room.fails(&["create", "data", "--size", "1M"], 125, &["one of that name"]);
    room.does(&["rm", "data"]);
    assert_eq!(files(&room.state()), 0);
}
