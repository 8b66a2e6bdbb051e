//! Hard links that the host makes while an image runs.

use husk_tests::against_native;

use super::refresh::{follow, on_host, refreshed};
use crate::{Images, shown, text, until};

/// Number of links and bytes of each file, by name.
const SHOWN: &str = "find . -type f -printf '%P %n %i ' -exec md5sum {} \\; | LC_ALL=C sort";

/// What the host makes beside, in place of, and instead of names that the image knows.
const LINKS: &str = "ln d/a d/b; ln d/a z; ln d/c e/c3; mv d/c d/c2; ln -f d/a over;
    ln two-1 e/three; rm two-2; ln first e/kept; rm first; ln changed e/changed";

#[test]
fn names_that_the_host_gives_to_a_file_lead_to_that_file_in_the_image() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-links");
    on_host(&images, "mkdir d e; for f in d/a d/c over two-1 first changed; do echo $f > $f; done");
    // Whichever of both the image has looked at first, one has gone.
    on_host(&images, "ln two-1 two-2; echo 4 > 4-1; ln 4-1 4-2");
    images.up("ci");
    images.script("ci", "ls -l . d e; echo image >> changed");
    let mut open = images.script("ci", "exec 3< d/a; cat <&3");
    assert_eq!(open, "d/a\n");
    on_host(&images, LINKS);
    on_host(&images, "rm 4-1");
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"].as_array().map(Vec::len), Some(0), "{told}");
    let same = "for pair in d/a,d/b d/a,z d/a,over d/c2,e/c3 two-1,e/three changed,e/changed; do
        test ${pair%,*} -ef ${pair#*,} || echo $pair differ; done; stat -c %h d/a d/c2 e/kept";
    assert_eq!(images.script("ci", same), "4\n2\n1\n");
    open = images.script("ci", "cat d/c2 e/c3 e/kept e/three 4-2");
    assert_eq!(open, "d/c\nd/c\nfirst\ntwo-1\n4\n");
    let each = "echo 1 >> d/b; echo 2 >> over; echo 3 >> d/c2; echo 4 >> e/three; echo 5 >> 4-2";
    images.script("ci", each);
    let bytes = images.script("ci", "cat d/a z e/c3 two-1 e/changed");
    assert_eq!(bytes, "d/a\n1\n2\nd/a\n1\n2\nd/c\n3\ntwo-1\n4\nchanged\nimage\n");
    let shown = images.script("ci", &SHOWN.replace(" %i", ""));
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, &SHOWN.replace(" %i", "")), shown);
    assert_eq!(on_host(&images, same), "4\n2\n1\n");
}

#[test]
fn names_that_the_host_gives_to_what_a_sync_has_written_lead_to_that_file() {
    if against_native() {
        return;
    }
    let images = Images::new("synced-links");
    on_host(&images, "mkdir d; echo a > d/a; echo m > d/m");
    images.up("ci");
    images.script("ci", "echo image >> d/a; echo new > d/new; mv d/m d/moved");
    images.done(&["sync", "ci"]);
    on_host(&images, "ln d/a b; ln d/new e; ln d/moved f");
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"].as_array().map(Vec::len), Some(0), "{told}");
    images.script("ci", "echo 1 >> b; echo 2 >> d/new; echo 3 >> f");
    let files = "cat d/a e d/moved; stat -c %h d/a d/new f";
    let expected = "a\nimage\n1\nnew\n2\nm\n3\n2\n2\n2\n";
    assert_eq!(images.script("ci", files), expected);
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, files), expected);
}

#[test]
fn a_followed_image_sees_hard_links_of_the_host() {
    if against_native() {
        return;
    }
    let images = Images::new("follow-links");
    on_host(&images, "mkdir d e; echo 1 > d/a; echo 1 > d/c");
    images.up("ci");
    images.script("ci", "ls -l . d e");
    let mut child = follow(&images);
    on_host(&images, "ln d/a e/b; ln d/c e/c");
    until("both are one", || images.script("ci", "stat -c %h e/* 2>&1 || :") == "2\n2\n");
    on_host(&images, "rm d/c");
    until("one has gone", || images.script("ci", "ls d") == "a\n");
    images.script("ci", "echo 2 >> e/b; echo 2 >> e/c");
    assert_eq!(images.script("ci", "cat d/a e/c"), "1\n2\n1\n2\n");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "cat d/a e/c; stat -c %h d/a e/c"), "1\n2\n1\n2\n2\n1\n");
    assert!(child.wait().expect("it ends").success());
}

/// Makes `f` a directory, with the number that it had, if nobody else has that already.
const TAKE_NUMBER: &str = "was=$(stat -c %i f); mkdir ../others; rm f
    for n in $(seq 64); do
        mkdir f; if [ $(stat -c %i f) = $was ]; then break; fi; mv f ../others/$n
    done
    [ -d f ] || mkdir f; mv c/l f/q";

#[test]
fn a_directory_of_the_host_with_the_number_of_a_moved_link_stays_with_its_links() {
    if against_native() {
        return;
    }
    let images = Images::new("taken-number");
    on_host(&images, "mkdir c; echo known > c/a; ln c/a c/l; echo file > file; ln -s file f");
    images.up("ci");
    images.script("ci", "ls -l . c; mv f link; mv file f; mv c/a x");
    on_host(&images, TAKE_NUMBER);
    for command in ["sync", "refresh", "sync", "down"] {
        let husk = husk_tests::husk::binary().to_str().expect("a plain path");
        let output = images.command(husk, &[command, "ci"]).output().expect("husk");
        let said = text(&output.stderr);
        let told = said.contains("/f changed on the host") || said.contains("/f was replaced on");
        assert!(told || command == "refresh", "{command}: {}", shown(&output));
        assert_eq!(on_host(&images, "cat f/q x"), "known\nknown\n", "{command}: {said}");
    }
}
