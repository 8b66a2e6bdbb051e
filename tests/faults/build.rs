//! Processes of a running build are killed; the next build is as good as any.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use husk_tests::case::findings;
use husk_tests::toolchain::{copy_files, lua_sources};
use husk_tests::tree::Tree;
use husk_tests::{Run, Scratch, Side, process};

use crate::{Dice, await_line, killing_time};

const MAKEFILE: &str = include_str!("../programs/sources/software/lua.mk");
const MAIN: &str = include_str!("../programs/sources/software/lua-main.c");
const DRIVER: &str = include_str!("sources/killed-build.sh");
/// Between two deaths.
const PAUSE: Duration = Duration::from_millis(40);

#[test]
fn a_build_after_killed_builds_is_as_good_as_any() {
    let scratch = Scratch::new("killed-build");
    let native = killed_build(&scratch, Side::Native);
    let tested = killed_build(&scratch, Side::tested());
    let differences = native.differences(&tested, &native, &|_: &Path| false);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn prepare(work: &Path) {
    copy_files(&lua_sources(), work, &[".c", ".h"]);
    fs::write(work.join("Makefile"), MAKEFILE).expect("a makefile");
    fs::write(work.join("main.c"), MAIN).expect("a main program");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for entry in fs::read_dir(work).expect("the sources").flatten() {
        let file = fs::File::open(entry.path()).expect("a source");
        file.set_modified(old).expect("an old time");
    }
}

fn killed_build(scratch: &Scratch, side: Side) -> Tree {
    let work = scratch.fresh("work");
    prepare(&work);
    let stop = scratch.path().join("stop");
    // Of the run before, if there was one.
    let _ = fs::remove_file(&stop);
    let stop_path = stop.to_str().expect("a plain path");
    let command = side.command(&[], &["bash", "-uc", DRIVER, "bash", stop_path]);
    let mut run = Run::start_piped(command, &work, scratch.path());
    let driver: i32 = await_line(&mut run, "ready").parse().expect("a process id");
    let killed = kill_at_random(&run, driver);
    fs::write(&stop, "").expect("the stop file");
    await_line(&mut run, "stopping");
    kill_rest(&run, driver);
    let mut input = run.stdin().expect("a pipe");
    input.write_all(b"go on\n").expect("the driver reads");
    drop(input);
    let limit = killing_time() + Duration::from_secs(90);
    let outcome = run.wait(limit).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
    println!("{side:?}: {killed} killed");
    let shown = outcome.shown();
    assert!(killed >= 20, "{side:?}: only {killed} killed\n{shown}");
    assert!(outcome.status.success(), "{side:?}:\n{shown}");
    assert!(outcome.left.is_empty(), "{side:?}: left running: {:?}", outcome.left);
    if side == Side::Husk {
        assert!(findings(&outcome.stderr).is_empty(), "{shown}");
    }
    Tree::read(&work, Some((outcome.started, outcome.ended)))
}

fn kill_at_random(run: &Run, driver: i32) -> u32 {
    let mut dice = Dice::new();
    let mut killed = 0;
    let end = Instant::now() + killing_time();
    while Instant::now() < end {
        let mut victims = run.descendants();
        victims.retain(|victim| victim.pid != driver);
        if !victims.is_empty() && process::kill(victims[dice.below(victims.len())].pid) {
            killed += 1;
        }
        std::thread::sleep(PAUSE);
    }
    killed
}

/// Orphans of killed compilers would write into the last build.
fn kill_rest(run: &Run, driver: i32) {
    for _ in 0..100 {
        let mut rest = run.descendants();
        rest.retain(|found| found.pid != driver);
        if rest.is_empty() {
            return;
        }
        for found in rest {
            process::kill(found.pid);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("processes that cannot be killed: {:?}", run.descendants());
}
