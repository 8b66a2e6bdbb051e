//! `husk sync`: what has changed so far is on the host, and everything goes on.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};

use husk_tests::against_native;
use husk_tests::process::kill;

use crate::{Images, refusal, shown, text, until};

/// What the host has before, what is done to it first, and what then.
const BEFORE: &str = "mkdir -p was/in kept dropped; echo a > was/a; echo b > was/in/b;
    echo gone > gone; echo mode > mode; echo both > both; chmod 644 mode; echo out > out;
    echo x > dropped/x; echo host > only";
const FIRST: &str = "mv was moved; rm gone; rm -r dropped; chmod 600 mode; echo image >> both;
    ln both both-2; mkdir -p new/in; echo new > new/in/file; ln -s new/in link;
    touch -d @1000000000.5 new/in/file; mv out /tmp/out; echo tmp > tmp-1";
const THEN: &str =
    "mv moved/in back; mv moved was; rm both-2; mv new newer; echo more >> newer/in/file;
    rm tmp-1; mkdir tmp-1; ln -sf was link; rmdir kept; echo again > gone; mv only newer/only";

/// Both sides of a tree: names, kinds, modes, times of files, targets, bytes, hard links.
const SHOWN: &str = "find . -mindepth 1 -printf '%P %y %m %n %l ' \\( -type f -printf '%T@ ' -exec \
    md5sum {} \\; -o -printf '\\n' \\) | LC_ALL=C sort";

fn on_host(images: &Images, script: &str) -> String {
    let output = images.command("bash", &["-euc", script]).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

fn agree(images: &Images) {
    let (image, host) = (images.script("ci", SHOWN), on_host(images, SHOWN));
    assert_eq!(image, host);
}

fn synced(images: &Images) -> serde_json::Value {
    let synced = images.done(&["sync", "ci", "--json"]);
    serde_json::from_str(&synced).expect("JSON")
}

#[test]
fn the_host_has_what_the_image_has_each_time() {
    if against_native() {
        return;
    }
    let images = Images::new("sync");
    on_host(&images, BEFORE);
    images.up("ci");
    images.script("ci", FIRST);
    assert_eq!(images.done(&["sync", "ci"]), "");
    agree(&images);
    assert_eq!(images.script("ci", "cat /tmp/out moved/a"), "out\na\n");
    assert!(!images.work.join("out").exists());
    let again = synced(&images);
    assert_eq!((&again["written"], &again["removed"]), (&0.into(), &0.into()), "{again}");
    let before = fs::metadata(images.work.join("both")).expect("a file");
    images.script("ci", THEN);
    let then = synced(&images);
    assert_eq!(then["complete"], true, "{then}");
    assert!(then["files"].as_u64() > Some(0) && then["bytes"].as_u64() > Some(0), "{then}");
    agree(&images);
    let after = fs::metadata(images.work.join("both")).expect("a file");
    assert_eq!(after.ino(), before.ino(), "it was written once more");
    images.script("ci", "mv /tmp/out out; echo end > end; rm -r newer");
    assert_eq!(images.down("ci"), "");
    assert_eq!(
        on_host(&images, "cat out end; ls"),
        "out\nend\nback\nboth\nend\ngone\nlink\nmode\nout\ntmp-1\nwas\n"
    );
}

#[test]
fn what_the_host_changes_after_a_sync_is_kept_and_a_conflict_where_both_change_it() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-conflict");
    images.up("ci");
    images.script("ci", "echo image > one; echo image > two; mkdir d; echo image > d/three");
    images.done(&["sync", "ci"]);
    let write = |name: &str, content| fs::write(images.work.join(name), content).expect("written");
    write("one", "host\n");
    write("two", "host\n");
    write("d/late", "host\n");
    // Only the host has changed them.
    assert_eq!(images.done(&["sync", "ci"]), "");
    images.script("ci", "echo more >> one; rm -r d");
    let output = images.husk(&["sync", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("husk: conflict: ")).count(),
        2,
        "{said}"
    );
    let look = "cat one one.husk-*; cat two; ls d";
    assert_eq!(on_host(&images, look), "host\nimage\nmore\nhost\nlate\n");
    let output = images.husk(&["down", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert_eq!(on_host(&images, look), "host\nimage\nmore\nhost\nlate\n");
}

/// Runs a script in the image until its standard input ends.
fn worker(images: &Images, script: &str) -> Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &["exec", "ci", "--", "python3", "-c", script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    until("it works", || images.script("ci", "ls begun || true") == "begun\n");
    child
}

/// Rewrites a short and a long file in one call each, and appends whole lines to a log.
const WRITER: &str = "
import os, select, sys
short, long, log = (os.open(n, os.O_RDWR | os.O_CREAT, 0o644) for n in ('short', 'long', 'log'))
number = 0
while not select.select([0], [], [], 0)[0]:
    number += 1
    os.pwrite(short, (b'%08d\\n' % number) * 500, 0)
    if number % 16 == 1:
        os.pwrite(long, (b'%08d\\n' % number) * 400000, 0)
    os.lseek(log, 0, 2)
    os.write(log, b'%08d\\n' % number)
    open('name', 'w').close(); os.rename('name', 'other')
    if number == 1: open('begun', 'w').close()
";

#[test]
fn a_file_that_is_written_to_meanwhile_is_as_it_was_at_one_moment() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-running");
    images.up("ci");
    let mut child = worker(&images, WRITER);
    // Versions of a file that came to the host while it was written to: a slow machine has few in a
    // dozen of syncs, so they go on until there are enough.
    let mut seen = HashSet::new();
    for round in 0.. {
        if round >= 12 && seen.len() >= 6 {
            break;
        }
        assert!(round < 200, "hardly anything was written: {seen:?}");
        let output = images.husk(&["sync", "ci"]);
        let said = text(&output.stderr);
        let only_busy = said.lines().all(|line| line.starts_with("husk: left for the next time: "));
        assert!(only_busy, "{said}");
        for (name, lines) in [("short", 500), ("long", 400_000)] {
            let Ok(bytes) = fs::read(images.work.join(name)) else { continue };
            let (first, count) = (bytes[..9].to_vec(), bytes.len() / 9);
            assert!(bytes.chunks(9).all(|line| line == first), "{name} is torn");
            assert_eq!((count, bytes.len() % 9), (lines, 0), "{name}");
            seen.insert((name, first));
        }
        let log = fs::read_to_string(images.work.join("log")).unwrap_or_default();
        let lines: Vec<usize> =
            log.lines().map(|line| line.parse().expect("whole lines")).collect();
        assert!(lines.iter().copied().eq(1..=lines.len()), "the log is torn");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("its status").success());
    assert_eq!(images.done(&["sync", "ci"]), "");
    agree(&images);
    assert_eq!(images.down("ci"), "");
}

#[test]
fn a_supervisor_that_is_killed_in_the_middle_is_followed_by_one_that_goes_on() {
    const FILES: usize = 1000;
    if against_native() {
        return;
    }
    let images = Images::new("sync-killed");
    on_host(&images, BEFORE);
    images.up("ci");
    images.script("ci", FIRST);
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    for round in 0..4 {
        let script =
            format!("mkdir -p f; rm -f f/*; for n in $(seq {FILES}); do echo {round} > f/$n; done");
        images.script("ci", &script);
        images.script(
            "ci",
            "mv moved moved-2; mv moved-2 moved; echo x >> both; mv back was || true",
        );
        let supervisor = images.supervisor("ci");
        let mut sync = images.command(husk, &["sync", "ci"]);
        let mut sync = sync.stderr(Stdio::piped()).spawn().expect("it starts");
        let busy = || {
            let names = fs::read_dir(images.work.join("f")).or_else(|_| fs::read_dir(&images.work));
            let mut names = names.expect("a directory").flatten();
            names.any(|one| one.file_name().to_string_lossy().starts_with(".husk-tmp-"))
        };
        until("it writes", || busy() || sync.try_wait().expect("a status").is_some());
        // Each time a little later.
        (0..20 * round).for_each(|_| {
            busy();
        });
        kill(supervisor);
        let output = sync.wait_with_output().expect("its status");
        assert!(output.status.success(), "{}", shown(&output));
        assert_eq!(text(&output.stderr), "");
        agree(&images);
    }
    assert_eq!(on_host(&images, "find . -name '.husk-tmp-*' -o -name '*.husk-*'"), "");
    assert!(images.down("ci").lines().all(|line| line.contains("another one goes on")));
}

#[test]
fn who_cannot_have_a_sync_is_told_why_in_one_line() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-refused");
    let refused = |name: &str| images.refused(&["sync", name], 125);
    assert!(refused("ci").contains("there is no such image"));
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "drop", "--memory", "64M", "--overlay", work, "--discard"]);
    assert!(refused("drop").contains("--discard"), "{}", refused("drop"));
    images.down("drop");
    images.up("ci");
    images.script("ci", "mkdir d");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let start = || {
        let mut sync = images.command(husk, &["sync", "ci"]);
        sync.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    // Whoever comes while it writes: a slow machine, or a fast one, needs more to write.
    let mut seen = (false, false);
    for round in 1..=8 {
        let files = 1500 * round;
        images.script("ci", &format!("for n in $(seq {files}); do echo {round} > d/$n; done"));
        let mut first = start();
        if !writes(&images, &mut first) {
            finished(first);
            continue;
        }
        let second = start().wait_with_output().expect("its status");
        if !second.status.success() {
            assert!(refusal(&second, 125).contains("another `husk sync` is running"));
            seen.0 = true;
        }
        finished(first);
        agree(&images);
        if seen.0 {
            break;
        }
    }
    // An end waits for it.
    for round in 1..=8 {
        let files = 1500 * round;
        images
            .script("ci", &format!("for n in $(seq {files}); do echo new > d/$n; done; rm -f d/x"));
        let mut sync = start();
        seen.1 = writes(&images, &mut sync) && sync.try_wait().expect("a status").is_none();
        assert_eq!(images.down("ci"), "");
        finished(sync);
        let host = on_host(&images, "cat d/* | sort | uniq -c | tr -s ' ' | grep new");
        assert!(host.trim().ends_with("new"), "{host}");
        if seen.1 {
            break;
        }
        images.up("ci");
    }
    assert_eq!(seen, (true, true), "nothing was at it when another came");
}

/// Whether a sync is seen at work before it ends.
fn writes(images: &Images, sync: &mut Child) -> bool {
    let busy = || {
        let names = fs::read_dir(images.work.join("d")).or_else(|_| fs::read_dir(&images.work));
        let mut names = names.expect("a directory").flatten();
        names.any(|one| one.file_name().to_string_lossy().starts_with(".husk-tmp-"))
    };
    let (mut seen, mut over) = (false, false);
    until("it writes, or ends", || {
        seen = seen || busy();
        over = sync.try_wait().expect("a status").is_some();
        seen || over
    });
    seen && !over
}

fn finished(sync: Child) {
    let output = sync.wait_with_output().expect("its status");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
}

/// A disk of 4 MiB below the overlay, seen by all programs of this script; then of 64.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=4m husk-test "$WORK"; cd "$WORK"; echo host > old
"$HUSK" up ci --memory 64M --overlay "$WORK"
"$HUSK" exec ci -- sh -euc 'echo image >> old; mkdir d; echo small > d/small
    head -c 8M /dev/urandom > d/big; md5sum d/big > /tmp/sum'
status=0; "$HUSK" sync ci 2> "$OUT/said" || status=$?
echo "$status $(ls -a | grep -c '[.]husk-tmp-' || true)"
"$HUSK" exec ci -- sh -euc 'md5sum --status -c /tmp/sum; cat old'
status=0; "$HUSK" sync ci 2>> "$OUT/said" || status=$?; echo "$status"
mount -o remount,size=64m "$WORK"
"$HUSK" sync ci; cat old d/small; cmp d/big <("$HUSK" exec ci -- cat d/big)
"$HUSK" exec ci -- sh -euc 'rm d/big; head -c 9M /dev/zero | tr "\0" x > last'
"$HUSK" sync ci; ls d; mount -o remount,size=10m "$WORK"
"$HUSK" exec ci -- sh -euc 'head -c 9M /dev/zero | tr "\0" y > last; echo end > end'
status=0; "$HUSK" down ci 2> "$OUT/down" || status=$?; echo "$status"
head -c 1 last; cat end
"#;

#[test]
fn a_full_disk_loses_nothing_and_a_later_sync_brings_it() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-full");
    let (out, state) = (images.scratch.fresh("out"), images.scratch.fresh("state"));
    let user = if rustix::process::getuid().is_root() { "-m" } else { "-rm" };
    let mut command = images.command("unshare", &[user, "bash", "-euc", FULL_DISK]);
    command.env("WORK", &images.work).env("OUT", &out).env("HUSK", husk_tests::husk::binary());
    let output = command.env("XDG_STATE_HOME", &state).output().expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    let expected = "125 0\nhost\nimage\n125\nhost\nimage\nsmall\nsmall\n125\nxend\n";
    assert_eq!(text(&output.stdout), expected, "{}", shown(&output));
    let said = fs::read_to_string(out.join("said")).expect("what was said");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for line in lines {
        assert!(line.starts_with("husk: not written back: ") && line.contains("/d"), "{said}");
        assert!(line.contains("no space left on device"), "{said}");
    }
    // At the end what has no room is saved elsewhere, and the old one stays.
    let said = fs::read_to_string(out.join("down")).expect("what was said");
    let saved = said.lines().find(|line| line.contains("saved as ")).expect("it is told");
    let saved = saved.rsplit_once("saved as ").expect("a path").1;
    assert_eq!(fs::read(saved).expect("it is there"), vec![b'y'; 9 << 20]);
}

/// A link below a directory that was moved and written back is there: its name is taken.
#[test]
fn names_below_a_directory_that_has_moved_on_the_host_too_are_taken() {
    if against_native() {
        return;
    }
    let images = Images::new("taken");
    on_host(&images, "mkdir -p was/lib; ln -s lib was/link; ln -s me@host:1 was/lock");
    images.up("ci");
    images.script("ci", "mv was now");
    assert_eq!(images.done(&["sync", "ci"]), "");
    let script = "mkdir -p now/link; set -C
        for name in link lock; do mkdir now/$name || mknod now/$name p || : > now/$name ||
            ln -sT x now/$name || echo $name; done 2> /dev/null; readlink now/link now/lock";
    assert_eq!(images.script("ci", script), "link\nlock\nlib\nme@host:1\n");
    assert_eq!(images.down("ci"), "");
    assert_eq!(
        on_host(&images, "readlink now/link now/lock; ls now"),
        "lib\nme@host:1\nlib\nlink\nlock\n"
    );
}

/// FIFOs, sockets and devices of the host are the host's by their new names, too; links are links.
#[test]
fn what_is_no_file_is_moved_on_the_host_and_goes_on_to_be_the_hosts() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-specials");
    let device = if rustix::process::getuid().is_root() { "mknod d/null c 1 3" } else { ":" };
    let make = format!(
        "mkdir -p d/in; mkfifo d/fifo d/in/fifo top; ln -s fifo d/link; {device}
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"d/socket\")'"
    );
    let on_host = |script: &str| {
        let output = images.command("bash", &["-euc", script]).output().expect("bash");
        assert!(output.status.success(), "{}", shown(&output));
        text(&output.stdout)
    };
    let look = "find . -printf '%P %y %m %l\n' | LC_ALL=C sort";
    on_host(&make);
    images.up("ci");
    // Bytes that have passed through them are no change of others.
    images.script("ci", "ls d d/in");
    on_host("for one in d/in/fifo top; do timeout 20 cat $one & echo used > $one; wait; done");
    for (script, fifo) in [("mv d D; mv top D/top", "D/in/fifo"), ("mv D/in in", "in/fifo")] {
        images.script("ci", script);
        let inside = images.script("ci", look);
        for _ in 0..2 {
            let output = images.husk(&["sync", "ci"]);
            assert!(
                output.status.success() && !text(&output.stderr).contains("needed"),
                "{output:?}"
            );
            assert_eq!(on_host(look), inside);
        }
        // Bytes of a program inside reach one outside.
        let reader = images.command("timeout", &["20", "cat", fifo]);
        let reader = { reader }.stdout(std::process::Stdio::piped()).spawn().expect("timeout");
        images.script("ci", &format!("echo through > {fifo}"));
        let read = reader.wait_with_output().expect("it ends");
        assert_eq!(text(&read.stdout), "through\n");
        images.script("ci", "test ! -e D/null || echo gone > D/null");
    }
    assert_eq!(images.down("ci"), "");
    assert!(on_host("ls D").contains("socket\ntop\n"));
}

/// What a sync wrote and the host has removed stays removed; what is new since is written.
#[test]
fn a_directory_that_the_host_removes_after_a_sync_is_made_again_for_what_is_new_in_it() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-removed");
    on_host(&images, "mkdir -p d/in again whole; echo host > d/host; echo host > again/host");
    images.up("ci");
    let first = "echo first > d/first; echo first > d/in/first; mkdir made; echo first > made/first
        echo first > again/first; echo first > changed; echo first > whole/first";
    images.script("ci", first);
    images.done(&["sync", "ci"]);
    on_host(&images, "rm -r d made again whole changed");
    images.script(
        "ci",
        "echo second > d/in/second; echo second > made/second; rm -r again; mkdir again
         echo second > again/second",
    );
    let look = "find . -type f -exec grep . {} + | LC_ALL=C sort; ls -A";
    let files = |more: &str| {
        format!(
            "./again/second:second\n./d/in/second:second\n{more}./made/second:second\n\
             again\nd\nmade\n"
        )
    };
    for _ in 0..2 {
        images.done(&["sync", "ci"]);
        assert_eq!(on_host(&images, look), files(""));
    }
    // Once more, and what was written the second time is gone, too.
    on_host(&images, "rm -r d made again");
    images.script("ci", "echo third > d/third; echo third > made/third");
    images.done(&["sync", "ci"]);
    let third = "./d/third:third\n./made/third:third\nd\nmade\n";
    assert_eq!(on_host(&images, look), third);
    // What the image has changed of what a sync wrote, and the host removed, is kept beside.
    images.script("ci", "echo changed >> d/first");
    let output = images.husk(&["down", "ci"]);
    let said = text(&output.stderr);
    assert!(said.contains("/d/first was removed on the host meanwhile"), "{said}");
    assert_eq!(on_host(&images, "cat d/first.husk-*; cat d/third"), "first\nchanged\nthird\n");
}
