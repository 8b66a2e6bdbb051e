//! Large programs that start often are put in huge pages, and nobody sees a difference.

use std::fs;
use std::path::Path;
use std::process::Command;

use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Starts a program until its code is where it is asked for (or so often that it would have been
/// gathered), then once more; every line is shown.
/// Then replaces it by another, and does the same. `$1` is the directory, `$2` the place.
const SCRIPT: &str = r#"
start() {
    for n in $(seq 40); do
        line=$("$1"); echo "$line"; case $line in *" $2") break ;; esac
        sleep 0.03
    done
    "$1"
}
cd "$1"; start ./program "$2"; cp second next; mv next program; start ./program "$2"
"#;

fn build(target: &Path, name: &str, kind: &str) {
    let source = target.with_extension("c");
    fs::write(&source, include_str!("../sources/large.c")).expect("the source");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Werror", kind, &format!("-DNAME=\"{name}\"")]);
    let status = command.arg("-o").arg(target).arg(&source).status();
    assert!(status.expect("gcc is installed (apt-get install gcc)").success());
}

/// What the program says, start by start.
fn said(kind: &str, without: &str, place: &str) -> Vec<String> {
    let scratch = Scratch::new(&format!("gathered{kind}{without}"));
    let programs = scratch.fresh("programs");
    build(&programs.join("program"), "first", kind);
    build(&programs.join("second"), "second", kind);
    let work = scratch.fresh("work");
    let programs = programs.to_str().expect("a path of text");
    let argv = ["bash", "-euc", SCRIPT, "bash", programs, place];
    let mut command = husk(&["--discard", "--memory", "64M"], &argv);
    command.env("HUSK_WITHOUT", without).env("HUSK_FSCK", "1");
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert!(outcome.stderr.contains("fsck: clean"), "{}", outcome.shown());
    String::from_utf8_lossy(&outcome.stdout).lines().map(str::to_owned).collect()
}

/// Whether each of the two was gathered in the end, and sound before and behind.
fn expect_gathered(kind: &str) {
    let lines = said(kind, "", "gathered");
    for name in ["first", "second"] {
        let own: Vec<_> = lines.iter().filter(|line| line.starts_with(name)).collect();
        assert_eq!(own.first().map(|line| line.as_str()), Some(&*format!("{name} sound file")));
        assert_eq!(own.last().map(|line| line.as_str()), Some(&*format!("{name} sound gathered")));
        assert!(own.iter().all(|line| line.contains(" sound ")), "{lines:#?}");
    }
    let first_of_second = lines.iter().position(|line| line.starts_with("second"));
    let behind = &lines[first_of_second.expect("both ran")..];
    assert!(behind.iter().all(|line| line.starts_with("second")), "{lines:#?}");
}

#[test]
fn a_program_that_can_lie_anywhere_is_gathered_and_replaced() {
    if !against_native() {
        expect_gathered("-pie");
    }
}

#[test]
fn a_program_with_a_place_of_its_own_is_gathered_and_replaced() {
    if !against_native() {
        expect_gathered("-no-pie");
    }
}

#[test]
fn an_image_can_do_without_gathered_programs() {
    if against_native() {
        return;
    }
    let lines = said("-pie", "gathered", "file");
    assert!(
        lines.len() >= 4 && lines.iter().all(|line| line.ends_with(" sound file")),
        "{lines:?}"
    );
}
