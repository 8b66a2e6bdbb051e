//! Files that the image has moved, and that the host has no longer where the image saw them.

use husk_tests::against_native;

use super::refresh::on_host;
use crate::{Images, without_plan};

const TREE: &str = "mkdir d dir; echo one > one; echo two > d/two; ln d/two d/other
    echo in > dir/in; cp /bin/echo program; echo gone > gone; echo stays > stays";
const MOVES: &str = "ls -lR . > /dev/null; mv one moved; mv d/two two; mv dir whole; mv gone g
    mv program p";
/// Moved, with another name left, in a directory that is moved, and replaced by another of its
/// size and time.
const ON_HOST: &str = "mv one elsewhere; rm d/two; mv dir away; mv away d/away; mv program d/run
    touch -r gone time; rm gone; echo GONE > other; touch -r time other; rm time stays";
const READ: &str = "cat moved two whole/in; ./p run; cat g stays 2>&1 || :";
const BYTES: &str = "one\ntwo\nin\nrun\ncat: g: No such file or directory\n\
    cat: stays: No such file or directory\n";

#[test]
fn a_moved_file_is_read_by_the_name_that_the_host_has_given_it() {
    if against_native() {
        return;
    }
    let images = Images::new("moved-read");
    on_host(&images, TREE);
    images.up("ci");
    images.script("ci", MOVES);
    on_host(&images, ON_HOST);
    assert_eq!(images.script("ci", READ), BYTES);
    // What is changed begins with the host's bytes.
    images.script("ci", "echo more >> moved; echo more >> two");
    assert_eq!(on_host(&images, "cat elsewhere d/other"), "one\ntwo\n");
    images.husk(&["sync", "ci"]);
    assert_eq!(images.script("ci", "cat moved two"), "one\nmore\ntwo\nmore\n");
    assert_eq!(images.script("ci", "cat whole/in; ./p run"), "in\nrun\n");
    let said = images.husk(&["down", "ci"]);
    let said = without_plan(&String::from_utf8_lossy(&said.stderr));
    // Their bytes are where the host has moved them.
    for name in ["g", "whole/in", "p"] {
        assert!(said.contains(&format!("/{name}: ")), "{said}");
    }
    let files = "cat moved elsewhere two d/other d/away/in; ls -A whole; test ! -e p -a ! -e g";
    let kept = "one\nmore\none\ntwo\nmore\ntwo\nmore\nin\n";
    assert_eq!(on_host(&images, files), kept);
}

#[test]
fn a_moved_file_is_read_after_a_refresh_has_taken_in_its_new_name() {
    if against_native() {
        return;
    }
    let images = Images::new("moved-refreshed");
    on_host(&images, "mkdir -p a/a b/c d/e/f; echo in > b/c/d; echo x > b/x; echo x > a/x");
    images.up("ci");
    images.script("ci", "ls -lR . > /dev/null; mv b/c a/y; echo image > a/x");
    on_host(&images, "mv b a/a/a; mv a d/e/f/d");
    for command in ["refresh", "sync"] {
        images.husk(&[command, "ci"]);
    }
    let read = "find . > /dev/null; cat a/y/d d/e/f/d/a/a/c/d";
    assert_eq!(images.script("ci", read), "in\nin\n");
    images.husk(&["down", "ci"]);
}

#[test]
fn many_moved_files_are_found_at_once_and_after_a_sync() {
    if against_native() {
        return;
    }
    let images = Images::new("moved-many");
    on_host(&images, "mkdir a b c; for n in $(seq 300); do echo $n > a/$n; ln a/$n b/$n; done");
    images.up("ci");
    images.script("ci", "ls -lR . > /dev/null; for n in $(seq 300); do mv a/$n c/; done");
    on_host(&images, "rm -r a; mkdir -p x/y; mv b x/y/");
    let read = "cat $(seq -f c/%g 300) | md5sum; seq 300 | md5sum";
    for _ in 0..2 {
        let sums = images.script("ci", read);
        let (found, wanted) = sums.split_once('\n').expect("two lines");
        assert_eq!(format!("{found}\n"), wanted);
        images.husk(&["sync", "ci"]);
    }
    images.husk(&["down", "ci"]);
}
