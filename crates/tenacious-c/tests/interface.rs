//! A C program that uses the header and the library.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library that was built with this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().unwrap();
    let found = std::fs::read_dir(beside).unwrap().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libtenacious_c") && name.ends_with(".a")
    };
    let modified = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    found.filter(named).max_by_key(modified).expect("the library is built with its tests")
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn a_c_program_can_do_all_that_the_header_says_and_finds_it_again() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (program, store) = (directory.path().join("program"), directory.path().join("store"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compiler.arg("-I").arg(here.join("include")).arg(here.join("tests/program.c"));
    output(compiler.arg(library()).args(["-lpthread", "-ldl", "-lm"]));
    assert_eq!(output(Command::new(&program).arg(&store)), "done\n");
    assert_eq!(output(Command::new(&program).arg(&store).arg("again")), "again\n");
}
