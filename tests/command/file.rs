//! The command is one file that needs no other.

use std::process::Command;

use husk_tests::husk::binary;

/// Functions of the C library that look for modules of its own at run time: in a static program
/// they would need the very version it was built with.
const BY_MODULES: [&str; 6] =
    ["getaddrinfo", "getpwnam_r", "getpwuid_r", "getgrgid_r", "gethostbyname_r", "initgroups"];

/// What `program ARGUMENTS` says of the command, on either output.
fn said_of_the_command(program: &str, arguments: &[&str]) -> String {
    let mut asked = Command::new(program);
    let told = asked.args(arguments).arg(binary()).output().expect("it is there");
    String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned()
}

#[test]
fn the_command_needs_no_shared_library() {
    let told = said_of_the_command("ldd", &[]);
    assert!(told.contains("not a dynamic executable"), "{told}");
    let told = said_of_the_command("readelf", &["--program-headers"]);
    assert!(told.contains("LOAD") && !told.contains("INTERP"), "{told}");
}

#[test]
fn the_command_asks_nothing_that_the_c_library_has_modules_for() {
    let told = said_of_the_command("nm", &["--defined-only"]);
    let defined: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert!(defined.contains(&"main"), "these are not its symbols: {told}");
    for name in BY_MODULES {
        assert!(!defined.contains(&name), "{name} is in the command");
    }
}
