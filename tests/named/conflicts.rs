//! What both sides have changed: what is said of it, and what is said to type.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use husk_tests::against_native;

use crate::{Images, shown, text};

/// Names that a shell, a terminal or a list of lines could take for something else, and one that
/// leaves no room for an ending.
fn names() -> Vec<Vec<u8>> {
    let odd: [&[u8]; 7] =
        [b"plain", b"with blank", b"it's", b"two\nlines", b"\xff\xfe", b"\x1b[31mred", b"-rf"];
    let mut names: Vec<_> = odd.iter().map(|name| name.to_vec()).collect();
    names.push(vec![b'l'; 255]);
    names
}

/// What is behind `word` in a line of what was said, as a command.
fn commands<'a>(said: &'a str, word: &str) -> Vec<&'a str> {
    let behind = |line: &'a str| line.split(word).nth(1)?.split("; take it: ").next();
    said.lines().filter(|line| line.starts_with("husk: conflict: ")).filter_map(behind).collect()
}

#[test]
fn what_a_conflict_says_to_type_works_whatever_the_name() {
    if against_native() {
        return;
    }
    let images = Images::new("conflicts");
    let file = |name: &[u8]| images.work.join(OsStr::from_bytes(name));
    for name in names() {
        fs::write(file(&name), "before\n").expect("a file");
    }
    fs::write(file(b"gone"), "before\n").expect("a file");
    fs::write(file(b"removed"), "before\n").expect("a file");
    images.up("ci");
    images.script("ci", "for file in *; do echo image > \"./$file\"; done; rm ./gone");
    for name in names() {
        fs::write(file(&name), "the host's, and longer\n").expect("a file");
    }
    fs::write(file(b"gone"), "the host's, and longer\n").expect("a file");
    fs::remove_file(file(b"removed")).expect("it was there");
    let output = images.husk(&["down", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(!said.replace('\n', "").contains(char::is_control), "{said:?}");
    let bash = |line: &str| images.command("bash", &["-c", line]).output().expect("bash");
    let compares = commands(&said, "; compare: ");
    assert_eq!(compares.len(), names().len(), "{said}");
    for line in compares {
        assert_eq!(bash(line).status.code(), Some(1), "{line}");
    }
    let takes = commands(&said, "; take it: ");
    assert_eq!(takes.len(), names().len() + 1, "{said}");
    for line in takes {
        assert!(bash(line).status.success(), "{line}");
    }
    for name in names() {
        assert_eq!(fs::read(file(&name)).expect("it is there"), b"image\n", "{name:?}");
    }
    assert_eq!(fs::read(file(b"removed")).expect("it is there"), b"image\n");
    let removes = commands(&said, "; remove it, too: ");
    assert_eq!(removes.len(), 1, "{said}");
    assert!(bash(removes[0]).status.success() && !file(b"gone").exists(), "{said}");
    let left = fs::read_dir(&images.work).expect("a directory").count();
    assert_eq!(left, names().len() + 1, "{said}");
}
