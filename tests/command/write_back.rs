//! What comes back to the host, and what does not.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use husk_tests::tree::Tree;
use husk_tests::{Run, Scratch, against_native, husk};

use crate::{LIMIT, run, said};

#[test]
fn discard_leaves_the_host_as_it_was() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("discard");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "precious\n").expect("a file");
    let before = Tree::read(&work, None);
    let script = "echo lost > file; mkdir d; echo x > d/x; rm file; ls";
    let outcome = run(&scratch, &work, husk(&["--discard"], &["bash", "-euc", script]));
    assert_eq!(outcome.stdout, b"d\n", "{}", outcome.shown());
    let changed = before.differences(&Tree::read(&work, None), &before, &|_: &Path| false);
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn a_mount_is_memory_and_nothing_of_it_stays() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("mount");
    let (work, mount) = (scratch.fresh("work"), scratch.fresh("mount"));
    fs::write(mount.join("covered"), "host\n").expect("a file");
    let path = mount.to_str().expect("a plain path");
    let script = "cd \"$1\"; ls; echo x > new; ls; stat -f -c %T . > /dev/null; cat new";
    let command = husk(&["--mount", path], &["bash", "-euc", script, "bash", path]);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"new\nx\n", "{}", outcome.shown());
    let names: Vec<_> = fs::read_dir(&mount).expect("the directory").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(fs::read(mount.join("covered")).expect("a file"), b"host\n");
}

/// The host's file changes while the image holds a change of its own: neither is lost.
#[test]
fn a_conflict_is_reported_and_both_versions_are_kept() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("conflict");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "both began with this\n").expect("a file");
    let script = "echo image >> file; echo ready; read -r _";
    let mut run = Run::start_piped(husk(&[], &["bash", "-c", script]), &work, scratch.path());
    for _ in 0..1000 {
        if run.stdout().starts_with(b"ready") || run.ended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(work.join("file"), "the host's, and longer than before\n").expect("a file");
    let mut input = run.stdin().expect("a pipe");
    input.write_all(b"\n").expect("it reads");
    drop(input);
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    let shown = outcome.shown();
    assert!(said(&outcome).iter().any(|line| line.contains("file")), "not reported: {shown}");
    let host = fs::read_to_string(work.join("file")).expect("the host's file");
    assert_eq!(host, "the host's, and longer than before\n");
    let kept = fs::read_dir(&work).expect("the directory").flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|text| text == "both began with this\nimage\n")
    });
    assert!(kept, "the image's version is gone: {shown}");
}

#[test]
fn the_current_directory_may_lie_below_tmp() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("below-tmp");
    let work = Path::new("/tmp").join(format!("husk-test-{}", std::process::id()));
    fs::create_dir(&work).expect("a directory below /tmp");
    fs::write(work.join("input"), "from the host\n").expect("a file");
    let script =
        "cat input > output; echo private > /tmp/husk-test-private; ls -d /tmp/husk-test-private";
    let outcome = run(&scratch, &work, husk(&[], &["bash", "-euc", script]));
    let output = fs::read(work.join("output"));
    let leaked = Path::new("/tmp/husk-test-private").exists();
    fs::remove_dir_all(&work).expect("removing it");
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(output.expect("the output"), b"from the host\n");
    assert!(!leaked, "the image's /tmp is not private");
}
