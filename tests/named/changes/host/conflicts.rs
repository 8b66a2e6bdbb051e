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
fn no_removal_is_announced_of_what_stays_beside_a_conflict() {
    if against_native() {
        return;
    }
    let images = Images::new("both-made");
    images.up("ci");
    images.script("ci", "mkdir -m 700 dd; echo image > dd/2");
    fs::create_dir(images.work.join("dd")).expect("a directory");
    fs::write(images.work.join("dd/1"), "host\n").expect("a file");
    let told = images.done(&["diff", "ci"]);
    assert!(told.contains("dd/2") && !told.contains("dd/1"), "{told}");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let output = images.command(husk, &["down", "ci"]).output().expect("husk");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(said.contains("to be written back") && !said.contains("removed"), "{said}");
    assert_eq!(fs::read_to_string(images.work.join("dd/1")).expect("it stays"), "host\n");
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

/// Of two images over one tree, in turn.
#[test]
fn of_two_images_over_one_tree_each_tells_what_the_other_wrote_and_nothing_is_lost() {
    if against_native() {
        return;
    }
    let images = Images::new("conflicts-two");
    let bash = |line: &str| images.command("bash", &["-euc", line]).output().expect("bash");
    assert!(bash("mkdir d; touch both gone mine-one mine-two d/both").status.success());
    images.up("one");
    images.up("two");
    let change = |name: &str, round: &str| {
        let mine = format!("{name}-{round}");
        let script = format!("for f in both d/both mine-{name} new; do echo {mine} > $f; done");
        images.script(name, &script);
    };
    let synced = |name: &str| {
        let told = images.husk(&["sync", name, "--json"]).stdout;
        let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
        assert_eq!(told["failures"].as_array().map(Vec::len), Some(0), "{told}");
        let conflicts = told["conflicts"].as_array().expect("a list").clone();
        conflicts.iter().map(|line| line.as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    change("one", "1");
    images.script("one", "rm gone");
    change("two", "1");
    images.script("two", "echo two-gone > gone");
    assert_eq!(synced("one"), [] as [String; 0]);
    let told = synced("two");
    for name in ["/both ", "/d/both ", "/new ", "/gone "] {
        assert!(told.iter().any(|line| line.contains(name)), "{name}: {told:?}");
    }
    assert_eq!(told.len(), 4, "{told:?}");
    // Each goes on with its own.
    change("one", "2");
    assert_eq!(synced("one"), [] as [String; 0]);
    change("two", "2");
    assert!(synced("two").iter().any(|line| line.contains("/both ")));
    images.husk(&["down", "two"]);
    assert_eq!(images.down("one"), "");
    let all = text(&bash("cat $(find . -type f) | sort | uniq -c | tr -s ' '").stdout);
    assert_eq!(all, " 4 one-2\n 4 two-2\n 1 two-gone\n");
    let own = text(&bash("cat both d/both new mine-one mine-two").stdout);
    assert_eq!(own, "one-2\none-2\none-2\none-2\ntwo-2\n", "{all}");
    assert_eq!(text(&bash("cat d/both.husk-* both.husk-* new.husk-* | sort -u").stdout), "two-2\n");
}

/// A user could not give it back to root.
#[test]
fn what_root_has_taken_over_meanwhile_stays_roots_and_the_images_is_beside() {
    if against_native() || !rustix::process::getuid().is_root() {
        return;
    }
    let (images, user) = (Images::new("taken-over"), Some(65534));
    // Where they may go.
    let theirs = std::env::temp_dir().join(format!("husk-taken-{}", std::process::id()));
    fs::create_dir(&theirs).expect("a directory");
    let give = |path: &std::path::Path, user| {
        std::os::unix::fs::chown(path, user, user).expect("given away");
    };
    give(&theirs, user);
    let tree = theirs.join("tree");
    fs::create_dir(&tree).expect("a directory");
    give(&tree, user);
    for name in ["written", "appended", "removed"] {
        fs::write(tree.join(name), "host\n").expect("a file");
        give(&tree.join(name), user);
    }
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let as_user = |arguments: &[&str]| {
        let to_user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", husk];
        let words: Vec<_> = to_user.into_iter().chain(arguments.to_vec()).collect();
        let mut command = images.command("setpriv", &words);
        command.env("HUSK_IMAGES", theirs.join("husk")).env("HOME", &theirs).current_dir(&tree);
        command.output().expect("setpriv")
    };
    let up = as_user(&["up", "ci", "--memory", "64M"]);
    assert!(up.status.success(), "{}", shown(&up));
    let script = "echo image > written; echo image >> appended; rm removed";
    let done = as_user(&["exec", "ci", "--", "sh", "-c", script]);
    assert!(done.status.success(), "{}", shown(&done));
    for name in ["written", "appended", "removed"] {
        give(&tree.join(name), Some(0));
    }
    for verb in ["sync", "down"] {
        let output = as_user(&[verb, "ci"]);
        let said = text(&output.stderr);
        for name in ["written", "appended", "removed"] {
            let line = format!("/tree/{name} was given to user 0 on the host meanwhile");
            let lines = said.lines().filter(|one| one.contains(&line));
            assert_eq!(lines.count(), 1, "{verb}, {name}: {}", shown(&output));
            assert_eq!(fs::read_to_string(tree.join(name)).expect("it is there"), "host\n");
        }
        let beside =
            fs::read_dir(&tree).expect("it is there").map(|one| one.expect("a name").path());
        let beside = beside.filter(|path| path.to_string_lossy().contains(".husk-"));
        let mut texts: Vec<_> =
            beside.map(|path| fs::read_to_string(path).expect("a file")).collect();
        texts.sort();
        assert_eq!(texts, ["host\nimage\n", "image\n"], "{}", shown(&output));
    }
    fs::remove_dir_all(&theirs).expect("it goes");
}
