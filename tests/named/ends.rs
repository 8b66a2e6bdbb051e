//! How an image ends, and what is left when its supervisor is killed.

use std::fs;
use std::process::Stdio;

use husk_tests::against_native;
use husk_tests::process::kill;

use crate::{Images, shown, text, until};

/// A command of the image that stays until its standard input ends.
fn stayer(images: &Images) -> std::process::Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let script = "echo kept > kept; exec cat";
    let mut command = images.command(husk, &["exec", "ci", "--", "sh", "-c", script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    until("it runs", || images.row("ci")["processes"] == 1);
    until("its file is there", || images.script("ci", "cat kept || true") == "kept\n");
    child
}

#[test]
fn an_image_with_programs_goes_down_only_by_force() {
    if against_native() {
        return;
    }
    let images = Images::new("programs");
    images.up("ci");
    let mut child = stayer(&images);
    let said = images.refused(&["down", "ci"], 125);
    assert!(said.contains("a program runs in it: cat (") && said.contains("--force"), "{said}");
    assert_eq!(images.script("ci", "cat kept"), "kept\n");
    let output = images.husk(&["down", "ci", "--force"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(text(&output.stderr).contains("): ended with SIGHUP"), "{}", shown(&output));
    assert!(!child.wait().expect("its status").success());
    assert_eq!(fs::read(images.work.join("kept")).expect("written back"), b"kept\n");
    assert_eq!(images.row("ci"), serde_json::Value::Null);
}

#[test]
fn what_cannot_be_written_back_is_told_to_who_takes_the_image_down() {
    if against_native() {
        return;
    }
    let images = Images::new("told");
    fs::write(images.work.join("file"), "both began with this\n").expect("a file");
    images.up("ci");
    images.script("ci", "echo image >> file");
    fs::write(images.work.join("file"), "the host's, and longer than before\n").expect("a file");
    let output = images.husk(&["down", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("husk: conflict: "), "{}", shown(&output));
    let kept = fs::read_dir(&images.work).expect("the directory").flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|text| text == "both began with this\nimage\n")
    });
    assert!(kept, "the image's version is gone");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn discarded_changes_do_not_come_back() {
    if against_native() {
        return;
    }
    let images = Images::new("discarded");
    images.up("ci");
    images.script("ci", "echo x > file");
    images.done(&["down", "ci", "--discard"]);
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", "64M", "--overlay", work, "--discard"]);
    images.script("ci", "echo x > file");
    images.down("ci");
    assert!(!images.work.join("file").exists());
}

/// A log-out, a shutdown of the machine: nothing is lost.
#[test]
fn a_supervisor_that_is_asked_to_end_writes_back() {
    if against_native() {
        return;
    }
    let images = Images::new("asked");
    images.up("ci");
    let mut child = stayer(&images);
    let pid = rustix::process::Pid::from_raw(images.supervisor("ci")).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    until("written back", || images.work.join("kept").exists());
    until("it is gone", || images.row("ci")["state"] != "up");
    assert!(!child.wait().expect("its status").success());
    // Nobody was told that a program had to be ended: it stands in the log, until somebody asks.
    until("it is dead", || images.row("ci")["state"] == "dead");
    let output = images.husk(&["down", "ci"]);
    assert!(text(&output.stderr).contains("): ended with SIGHUP"), "{}", shown(&output));
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn a_dead_image_is_listed_named_and_cleaned_up() {
    if against_native() {
        return;
    }
    let images = Images::new("dead");
    images.up("ci");
    images.script("ci", "echo lost > file");
    kill(images.supervisor("ci"));
    until("it is dead", || images.row("ci")["state"] == "dead");
    assert_eq!(images.row("ci")["memory_bytes"], 64 << 20);
    let said = images.refused(&["exec", "ci", "--", "true"], 125);
    assert!(said.contains("its supervisor has died") && said.contains("husk down ci"), "{said}");
    let said = images.refused(&["up", "ci"], 125);
    assert!(said.contains("has died") && said.contains("husk down ci"), "{said}");
    let output = images.husk(&["down", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("is lost"), "{}", shown(&output));
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    images.up("ci");
    images.down("ci");
}
