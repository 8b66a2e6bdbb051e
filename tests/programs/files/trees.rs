//! Tools that work on whole trees: tar, find, rm -r, cp -a, sed -i, install.

use std::fs;
use std::path::Path;

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Scratch};

#[test]
fn trees_survive_copying_packing_and_removing() {
    Case::new("tools", Length::Short, &["bash", "-euc", include_str!("../sources/files/tools.sh")])
        .input(|work| {
            for number in 0..40 {
                let directory = work.join(format!("host/d{}", number % 5));
                fs::create_dir_all(&directory).expect("a directory");
                let text = format!("host file {number}\n").repeat(number);
                fs::write(directory.join(format!("f{number}")), text).expect("a file");
            }
            std::os::unix::fs::symlink("d1/f1", work.join("host/link")).expect("a link");
        })
        .check();
}

/// Files of the host in a directory below the work directory's parent, for
/// `sources/files/reopened.py`.
fn fill_to_reopen(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).expect("a directory");
    let large = (0..2).map(|n| (format!("f-large{n}"), "x".repeat(60_000)));
    let files = (0..100).map(|n| (format!("f{n}"), format!("file {n} content\n")));
    for (name, content) in files.chain(large) {
        fs::write(directory.join(name), content).expect("a file");
    }
}

/// Runs `sources/files/reopened.py` on files in `directory`.
fn nobody_can_tell_that_files_are_kept_open(name: &'static str, directory: &'static str) {
    let argv = ["python3", "-c", include_str!("../sources/files/reopened.py"), directory, "f"];
    let case = Case::new(name, Length::Once, &argv);
    case.input(move |work| fill_to_reopen(&work.join(directory))).check();
}

#[test]
fn files_outside_that_are_opened_again_and_again_are_as_on_linux() {
    nobody_can_tell_that_files_are_kept_open("reopened-outside", "../outside");
}

#[test]
fn unmodified_files_of_an_overlay_that_are_opened_again_and_again_are_as_on_linux() {
    nobody_can_tell_that_files_are_kept_open("reopened-inside", "kept");
}

#[test]
fn what_a_handler_leaves_open_and_the_connection_it_delays_have_numbers_of_their_own() {
    let scratch = Scratch::new("reopening-build");
    let program = scratch.path().join("reopening");
    build_c(include_str!("../sources/files/reopening.c"), &program);
    // Outside every tree, and with an absolute name.
    let file = scratch.path().join("file");
    fs::write(&file, "file\n").expect("a file");
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    Case::new("reopening", Length::Once, &[&text(&program), &text(&file)]).check();
}
