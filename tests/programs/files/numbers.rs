//! What of an overlay nobody has changed has the host's numbers and times: programs that remember
//! those, as git does in its index, find all as it was, in the image and after it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use husk_tests::run::Run;
use husk_tests::{Scratch, Side, against_native};

use crate::software::git::host_git;

const LIMIT: Duration = Duration::from_secs(120);

/// Runs a script in `work` and returns its standard output.
fn told(side: Side, scratch: &Scratch, work: &Path, script: &str) -> String {
    let run = Run::start(side.command(&[], &["bash", "-euc", script]), work, scratch.path());
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert!(outcome.status.success(), "{}", outcome.shown());
    String::from_utf8(outcome.stdout).expect("text")
}

/// All that `stat` and a listing show of a tree. Access times move as it is looked at.
const SHOWN: &str = r#"
find . | LC_ALL=C sort | while read -r path; do
    stat -c '%n %f %d %i %h %u %g %s %Y %y %Z %z %W' "$path"
done
find . -type f -printf '%p %b\n' | LC_ALL=C sort
find . -printf '%p %i %D\n' | LC_ALL=C sort
ls -ai . sub | awk '{ print $1, $2 }' | grep -v ' \.\.$'
"#;

#[test]
fn what_nobody_has_changed_has_the_hosts_numbers_and_times() {
    let scratch = Scratch::new("numbers");
    let work = scratch.fresh("work");
    fs::create_dir(work.join("sub")).expect("a directory");
    for n in 0..300 {
        fs::write(work.join(format!("sub/file-{n}")), "x".repeat(n)).expect("a file");
    }
    std::os::unix::fs::symlink("sub/file-1", work.join("link")).expect("a link");
    let native = told(Side::Native, &scratch, &work, SHOWN);
    let tested = told(Side::tested(), &scratch, &work, SHOWN);
    let differ = native.lines().zip(tested.lines()).find(|(one, other)| one != other);
    assert_eq!(differ, None);
    assert_eq!(native, tested);
}

/// What the image makes has numbers that the host has not given, in one file system with the rest.
const MADE: &str = r#"
stat -c %i old gone > before; rm gone
touch new; mkdir made; touch made/in; mv old moved; echo more >> changed
find . -printf '%D\n' | sort -u | wc -l
for path in new made made/in; do test $(stat -c %i $path) -gt 1000000000000 && echo above; done
test $(stat -c %i moved) = $(head -n 1 before) && echo the same
find . -printf '%i\n' | sort | uniq -d
ls -i | awk '{ print $1 }' | sort > listed; stat -c %i * | sort | diff - listed
"#;

#[test]
fn what_an_image_makes_has_numbers_that_nothing_of_the_host_has() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("made-numbers");
    let work = scratch.fresh("work");
    for name in ["old", "gone", "changed", "listed"] {
        fs::write(work.join(name), name).expect("a file");
    }
    let said = told(Side::Husk, &scratch, &work, MADE);
    assert_eq!(said, "1\nabove\nabove\nabove\nthe same\n");
}

/// A repository with some files, all older than its index.
fn repository(work: &Path) {
    let git = |arguments: &[&str]| host_git(work, arguments);
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.email", "who@example.org"]);
    git(&["config", "user.name", "Who"]);
    fs::create_dir(work.join("dir")).expect("a directory");
    for n in 0..40 {
        let (top, below) = (format!("file-{n}"), format!("dir/file-{n}"));
        for name in [top, below] {
            let path = work.join(name);
            fs::write(&path, format!("{n}\n")).expect("a file");
            let file = fs::File::open(&path).expect("the file");
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                .expect("its time");
        }
    }
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
}

#[test]
fn a_clean_repository_is_clean_in_the_image_and_after() {
    let scratch = Scratch::new("clean");
    let work = scratch.fresh("work");
    repository(&work);
    host_git(&work, &["diff-index", "--quiet", "HEAD"]);
    let index = fs::read(work.join(".git/index")).expect("the index");
    // `status` in the image writes the index, if it finds any file that looks changed.
    let script = "git diff-index --quiet HEAD; git status --short; git diff-index --quiet HEAD";
    assert_eq!(told(Side::tested(), &scratch, &work, script), "");
    host_git(&work, &["diff-index", "--quiet", "HEAD"]);
    assert!(fs::read(work.join(".git/index")).expect("the index") == index, "it was written");
}
