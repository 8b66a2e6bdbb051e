//! Programs that start often are linked once, and nobody sees a difference.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Starts a program with other arguments each time until it is started from a recording (`$2`, or
/// so often that it would have been), then in ways in which it must be linked, and once more.
const SCRIPT: &str = r#"
cd "$1"; rest=
for n in $(seq 150); do
    line=$(MARK=$n ./program $rest) || status=$?
    echo "$status $line"; rest="$rest $n"
    case $line in *" $2 "*) break ;; esac
    sleep 0.1
done
echo again; MARK=env ./program; (exec -a /an/other/name ./program x) || true
echo apart
LD_BIND_NOW=1 ./program; GLIBC_TUNABLES=glibc.malloc.check=0 ./program; MALLOC_ARENA_MAX=2 ./program
(ulimit -S -s 4096; ./program)
cp program copy; mv copy program; ./program
true
"#;

/// Compiles something of C in `programs`.
fn compile(programs: &Path, arguments: &str) {
    let arguments = arguments.replace("HERE", programs.to_str().expect("a path of text"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Werror", "-fstack-protector-all"]).current_dir(programs);
    let status = command.args(arguments.split_whitespace()).status();
    assert!(status.expect("gcc is installed (apt-get install gcc)").success());
}

/// What it says, line by line; `kind` is how it is linked (`HERE` is where it lies).
fn said(kind: &str, without: &str, how: &str) -> Vec<String> {
    let letters = |letter: &char| letter.is_ascii_alphanumeric();
    let name: String = kind.chars().filter(letters).collect();
    let scratch = Scratch::new(&format!("recorded{name}{without}"));
    let programs = scratch.fresh("programs");
    fs::write(programs.join("began.c"), include_str!("../sources/began.c")).expect("the source");
    compile(&programs, "-shared -fPIC -o libbegan.so began.c");
    fs::write(programs.join("program.c"), include_str!("../sources/linked.c")).expect("the source");
    compile(&programs, &format!("-o program program.c {kind}"));
    let work = scratch.fresh("work");
    let programs = programs.to_str().expect("a path of text");
    let argv = ["bash", "-uc", SCRIPT, "bash", programs, how];
    let mut command = husk(&["--discard", "--memory", "64M"], &argv);
    command.env("HUSK_WITHOUT", without).env("HUSK_FSCK", "1").env_remove("MARK");
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert!(outcome.stderr.contains("fsck: clean"), "{}", outcome.shown());
    String::from_utf8_lossy(&outcome.stdout).lines().map(str::to_owned).collect()
}

/// The lines between two words.
fn between<'a>(lines: &'a [String], from: &str, to: &str) -> Vec<&'a str> {
    let behind = lines.iter().skip_while(|line| *line != from).skip(1);
    behind.take_while(|line| *line != to).map(String::as_str).collect()
}

/// Whether the clock of this machine was set back since its libraries were installed: a file that
/// has changed in the future is never part of a recording.
fn libraries_are_of_the_future() -> bool {
    let mut command = Command::new("gcc");
    let said = command.arg("-print-file-name=libc.so.6").output().expect("gcc is installed");
    let path = String::from_utf8(said.stdout).expect("a path of text");
    let changed_s = fs::metadata(path.trim()).expect("a C library").ctime();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    changed_s > now.as_secs().cast_signed()
}

/// All that a program is given holds however it is started; guards of stacks differ.
fn expect_recorded(kind: &str) {
    if libraries_are_of_the_future() {
        println!("NOT RUN: the C library has changed in the future of this clock: recordings");
        return;
    }
    let lines = said(kind, "", "recorded");
    assert!(lines.iter().all(|line| !line.contains(" at its end") || line.starts_with("sound")));
    let again = between(&lines, "again", "apart");
    let starts = |lines: &[&str]| -> Vec<String> {
        let said = lines.iter().filter(|line| !line.ends_with(" at its end"));
        said.map(|line| line.rsplit_once(' ').map_or("", |(said, _)| said).to_owned()).collect()
    };
    let wanted = ["sound recorded program env", "sound recorded name - x"];
    assert_eq!(starts(&again), wanted, "{lines:#?}");
    let ends = again.iter().filter(|line| **line == "sound at its end").count();
    assert_eq!(ends, wanted.len(), "{lines:#?}");
    let apart = starts(&between(&lines, "apart", ""));
    assert_eq!(apart, vec!["sound linked program -"; 5], "{lines:#?}");
    let canaries: BTreeSet<_> = lines.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    let said = lines.iter().filter(|line| line.contains(" program ")).count();
    assert!(canaries.len() >= said, "{lines:#?}");
}

#[test]
fn a_program_that_can_lie_anywhere_is_linked_once_and_given_all_that_it_is_given_otherwise() {
    if !against_native() {
        expect_recorded("-pie");
    }
}

#[test]
fn a_program_with_a_place_of_its_own_is_linked_once_and_given_all_that_it_is_given_otherwise() {
    if !against_native() {
        expect_recorded("-no-pie");
    }
}

#[test]
fn libraries_that_look_at_the_world_do_so_at_each_start_of_a_recording() {
    if !against_native() {
        expect_recorded("-pie -L. -lbegan -Wl,-rpath,HERE/not/there:HERE");
    }
}

#[test]
fn a_program_whose_libraries_are_found_from_where_it_is_started_is_linked_each_time() {
    if against_native() {
        return;
    }
    let lines = said("-pie -L. -lbegan -Wl,-rpath,.", "", "recorded");
    assert!(lines.iter().any(|line| line.contains("sound linked program 40 ")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains(" recorded ")), "{lines:#?}");
}

#[test]
fn a_program_that_executes_its_stack_is_linked_each_time() {
    if against_native() {
        return;
    }
    let lines = said("-Wl,-z,execstack", "", "recorded");
    assert!(lines.iter().any(|line| line.contains("sound linked program 40 ")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains(" recorded ")), "{lines:#?}");
}

#[test]
fn an_image_can_do_without_recordings() {
    if against_native() {
        return;
    }
    let lines = said("-pie", "recorded", "recorded");
    assert!(lines.iter().any(|line| line.contains("sound linked program 40 ")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains(" recorded ")), "{lines:#?}");
}
