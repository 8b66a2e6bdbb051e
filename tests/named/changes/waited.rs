//! What whoever waits for a write-back sees on a terminal, and Ctrl-C there.

use std::fs;

use husk_tests::against_native;
use husk_tests::husk::{binary, workspace};

use crate::{Images, text};

/// Enough that a write-back is still at work when Ctrl-C comes; tries, where it is not.
const FILES: usize = 6000;
const TRIES_MAX: usize = 10;

fn change(round: &str) -> String {
    format!("for n in $(seq {FILES}); do echo {round} > f$n; done")
}

/// What is said on a terminal where Ctrl-C is typed so often, and how the command ended.
fn interrupted(images: &Images, times: usize, supervisor: i32, words: &[&str]) -> (String, String) {
    let driver = workspace().join("tests/named/sources/interrupt.py");
    let (times, supervisor) = (times.to_string(), supervisor.to_string());
    let work = images.work.to_str().expect("a plain path");
    let husk = binary().to_str().expect("a plain path");
    let driver = [driver.to_str().expect("a plain path"), &times, &supervisor, work, husk];
    let mut command = images.command("python3", &[&driver[..], words].concat());
    let said = text(&command.output().expect("python3").stdout);
    let (said, end) = said.trim_end().rsplit_once('\n').expect("an end");
    (said.to_owned(), end.to_owned())
}

/// Files of the image that are on the host with this content.
fn written(images: &Images, round: &str) -> usize {
    let names = (1..=FILES).map(|n| images.work.join(format!("f{n}")));
    let wanted = format!("{round}\n");
    names.filter(|name| fs::read(name).is_ok_and(|got| got == wanted.as_bytes())).count()
}

fn temporary(images: &Images) -> usize {
    let names = fs::read_dir(&images.work).expect("a directory").flatten();
    names.filter(|name| name.file_name().to_string_lossy().starts_with(".husk-tmp-")).count()
}

#[test]
fn one_ctrl_c_says_what_is_left_and_the_write_back_goes_on_to_a_closing_line() {
    if against_native() {
        return;
    }
    for words in [&["sync", "ci"][..], &["down", "ci"]] {
        let images = Images::new("waited-once");
        images.up("ci");
        images.script("ci", "echo image > both");
        fs::write(images.work.join("both"), "host\n").expect("it can be written");
        images.script("ci", &change("first"));
        let (said, end) = interrupted(&images, 1, images.supervisor("ci"), words);
        assert_eq!(end, "exit -2 typed 1", "{said}");
        assert_eq!(said.matches("a second Ctrl-C stops it").count(), 1, "{said}");
        let closing = said.lines().find(|line| line.contains("6,001 files written back in "));
        assert!(closing.is_some_and(|line| line.ends_with(" s; 1 conflict")), "{said}");
        assert_eq!((written(&images, "first"), temporary(&images)), (FILES, 0), "{said}");
    }
}

#[test]
fn a_second_ctrl_c_stops_a_sync_or_an_end_and_the_next_one_brings_it_all() {
    if against_native() {
        return;
    }
    for verb in ["sync", "down"] {
        let images = Images::new("waited-twice");
        images.up("ci");
        let stopped = (0..TRIES_MAX).any(|round| {
            let round = format!("round {round}");
            images.script("ci", &change(&round));
            let (said, end) = interrupted(&images, 2, images.supervisor("ci"), &[verb, "ci"]);
            if !said.contains("stopped") {
                assert_eq!(written(&images, &round), FILES, "{said}");
                if verb == "down" {
                    images.up("ci");
                }
                return false;
            }
            assert_eq!(end, "exit -2 typed 2", "{said}");
            assert_eq!(said.matches("a second Ctrl-C stops it").count(), 1, "{said}");
            assert_eq!((written(&images, &round), temporary(&images)), (0, 0), "{said}");
            assert_eq!(images.row("ci")["state"], "up", "{said}");
            images.script("ci", "echo goes on > later");
            images.done(&[verb, "ci"]);
            assert_eq!((written(&images, &round), temporary(&images)), (FILES, 0));
            assert_eq!(fs::read(images.work.join("later")).expect("it"), b"goes on\n");
            true
        });
        assert!(stopped, "{verb}: {TRIES_MAX} write-backs, and none was stopped");
    }
}

#[test]
fn a_second_ctrl_c_stops_the_write_back_of_a_run_and_its_image_stays() {
    if against_native() {
        return;
    }
    let images = Images::new("waited-run");
    let stopped = (0..TRIES_MAX).any(|round| {
        let round = format!("round {round}");
        let script = change(&round);
        let words = ["run", "--memory", "64M", "--", "bash", "-c", &script];
        let (said, end) = interrupted(&images, 2, 0, &words);
        assert_eq!(end, "exit -2 typed 2", "{said}");
        let Some(name) = said.split("image run-").nth(1).and_then(|rest| rest.split(' ').next())
        else {
            assert_eq!(written(&images, &round), FILES, "{said}");
            return false;
        };
        assert_eq!((written(&images, &round), temporary(&images)), (0, 0), "{said}");
        images.done(&["down", &format!("run-{name}")]);
        assert_eq!((written(&images, &round), temporary(&images)), (FILES, 0));
        true
    });
    assert!(stopped, "{TRIES_MAX} write-backs, and none was stopped");
}
