//! `husk run --on-failure`: what becomes of the changes of a command that failed.

use std::process::Output;

use husk_tests::against_native;

use crate::{Images, shown, text};

/// A command of `husk run`, with this option.
fn run(images: &Images, what: &str, script: &str) -> Output {
    let work = images.work.to_str().expect("a plain path");
    let memory = ["--memory", "64M", "--overlay", work];
    let options = [&["run", "--on-failure", what][..], &memory, &["--", "sh", "-c", script]];
    images.husk(&options.concat())
}

/// What was said beside the looks at the structure.
fn said(output: &Output) -> String {
    text(&output.stderr).replace("husk: fsck: clean\n", "")
}

#[test]
fn changes_of_a_failed_command_are_written_or_dropped_as_typed() {
    if against_native() {
        return;
    }
    let images = Images::new("on-failure");
    let there = |name: &str| images.work.join(name).exists();
    let output = run(&images, "discard", "echo x > lost; exit 3");
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert_eq!(said(&output), "husk: the command failed: its changes are dropped\n");
    assert!(!there("lost"));
    let output = run(&images, "discard", "echo x > kept");
    assert!(output.status.success() && there("kept") && said(&output).is_empty());
    let output = run(&images, "write", "echo x > written; exit 3");
    assert!(output.status.code() == Some(3) && there("written") && said(&output).is_empty());
    assert!(images.refused(&["run", "--on-failure", "maybe", "--", "true"], 125).contains("keep"));
}

#[test]
fn the_image_of_a_failed_command_stays_under_a_name() {
    if against_native() {
        return;
    }
    for (script, status) in [("exit 7", Some(7)), ("kill -KILL $$", None)] {
        let images = Images::new("on-failure-keep");
        let fill = "echo before > before; mkfifo fifo; echo tmp > /tmp/note";
        let output = run(&images, "keep", &format!("{fill}; {script}"));
        assert!(status.is_none() || output.status.code() == status, "{}", shown(&output));
        assert!(!output.status.success(), "{}", shown(&output));
        let line = said(&output);
        let name = line.split(' ').find(|word| word.starts_with("run-")).expect("a name");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert_eq!(images.row(name)["state"], "up", "{line}");
        assert!(!images.work.join("before").exists());
        assert!(images.done(&["diff", name]).contains("A  before\n"));
        assert_eq!(
            images.script(name, "cat before /tmp/note; (cat fifo & echo x > fifo; wait)"),
            "before\ntmp\nx\n"
        );
        images.kill_supervisor(name);
        images.script(name, "echo after > after; rm fifo");
        images.down(name);
        for file in ["before", "after"] {
            assert!(images.work.join(file).exists(), "{file}");
        }
        assert_eq!(images.row(name), serde_json::Value::Null);
        // Who succeeds leaves nothing.
        let output = run(&images, "keep", "echo x > done");
        assert!(output.status.success() && images.work.join("done").exists());
        assert_eq!(images.done(&["ls", "--names"]), "");
    }
}

#[test]
fn what_a_file_says_of_failures_counts_and_what_becomes_of_the_changes_is_said() {
    if against_native() {
        return;
    }
    let images = Images::new("on-failure-keys");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let run = |keys: &[(&str, &str)], options: &[&str]| {
        let script = ["--", "sh", "-c", "echo x > made; exit 3"];
        let words = [&["run", "--memory", "64M"], options, &script].concat();
        let mut command = images.command(husk, &words);
        command.env_remove("HUSK_FSCK").envs(keys.iter().copied());
        let output = command.output().expect("timeout starts");
        assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
        (text(&output.stderr), std::fs::remove_file(images.work.join("made")).is_ok())
    };
    let discard = ("HUSK_ON_FAILURE", "discard");
    assert!(!run(&[discard], &[]).1);
    assert_eq!(run(&[discard], &["--on-failure", "write"]), (String::new(), true));
    // Where images cannot be kept.
    let (keep, nowhere) = (("HUSK_ON_FAILURE", "keep"), ("HUSK_IMAGES", "/proc/nowhere"));
    let (said, written) = run(&[keep, nowhere], &[]);
    assert!(written && said.ends_with("; the changes are written back\n"), "{said}");
    let (said, written) = run(&[keep, nowhere, ("HUSK_DISCARD", "1")], &[]);
    assert!(!written && said.ends_with("; the changes are dropped\n"), "{said}");
}
