//! How an image ends, and what is left when its supervisor is killed.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use husk_tests::against_native;
use husk_tests::process::kill;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::{Images, shown, text, until};

/// A command of the image that stays until its standard input ends.
fn stayer(images: &Images) -> std::process::Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let script = "echo kept > kept; exec cat";
    let mut command = images.command(husk, &["exec", "ci", "--", "sh", "-c", script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    until("it runs", || images.row("ci")["processes"] == 1);
    until("its file is there", || images.script("ci", "cat kept || true") == "kept\n");
    child
}

#[test]
fn an_image_with_programs_goes_down_only_by_force() {
    if against_native() {
        return;
    }
    let images = Images::new("programs");
    images.up("ci");
    let mut child = stayer(&images);
    let said = images.refused(&["down", "ci"], 125);
    assert!(said.contains("a program runs in it: cat (") && said.contains("--force"), "{said}");
    assert_eq!(images.script("ci", "cat kept"), "kept\n");
    let output = images.husk(&["down", "ci", "--force"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(text(&output.stderr).contains("): ended with SIGHUP"), "{}", shown(&output));
    assert!(!child.wait().expect("its status").success());
    assert_eq!(fs::read(images.work.join("kept")).expect("written back"), b"kept\n");
    assert_eq!(images.row("ci"), serde_json::Value::Null);
}

#[test]
fn what_both_sides_change_is_a_conflict_and_what_is_opened_is_seen_whole() {
    if against_native() {
        return;
    }
    let images = Images::new("meanwhile");
    let file = |name: &str| images.work.join(name);
    for name in ["longer", "both", "removed"] {
        fs::write(file(name), "first look\n").expect("a file");
    }
    images.up("ci");
    images.script("ci", "ls -l; echo ours >> both");
    fs::write(file("longer"), "the host's, and longer than before\n").expect("a file");
    fs::write(file("both"), "less\n").expect("a file");
    fs::write(file("removed"), "changed\n").expect("a file");
    fs::write(file("new"), "").expect("a file");
    let seen = images.script("ci", "stat -c %s longer; cat longer; stat -c %s longer; ls");
    let old = "11\nthe host's, and longer than before\n35\nboth\nlonger\nremoved\n";
    assert_eq!(seen, old);
    images.script("ci", "rm removed; echo ours >> longer");
    let output = images.husk(&["down", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("conflict: ")).count(), 2, "{said}");
    assert!(!said.contains("not written back"), "{said}");
    assert_eq!(fs::read_to_string(file("both")).expect("the host's"), "less\n");
    let longer = fs::read_to_string(file("longer")).expect("both");
    assert_eq!(longer, "the host's, and longer than before\nours\n");
}

#[test]
fn what_cannot_be_written_back_is_told_to_who_takes_the_image_down() {
    if against_native() {
        return;
    }
    let images = Images::new("told");
    fs::write(images.work.join("file"), "both began with this\n").expect("a file");
    images.up("ci");
    images.script("ci", "echo image >> file");
    fs::write(images.work.join("file"), "the host's, and longer than before\n").expect("a file");
    let output = images.husk(&["down", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("husk: conflict: "), "{}", shown(&output));
    let kept = fs::read_dir(&images.work).expect("the directory").flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|text| text == "both began with this\nimage\n")
    });
    assert!(kept, "the image's version is gone");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn discarded_changes_do_not_come_back() {
    if against_native() {
        return;
    }
    let images = Images::new("discarded");
    images.up("ci");
    images.script("ci", "echo x > file");
    images.done(&["down", "ci", "--discard"]);
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", "64M", "--overlay", work, "--discard"]);
    images.script("ci", "echo x > file");
    images.down("ci");
    assert!(!images.work.join("file").exists());
}

/// A log-out, a shutdown of the machine: nothing is lost.
#[test]
fn a_supervisor_that_is_asked_to_end_writes_back() {
    if against_native() {
        return;
    }
    let images = Images::new("asked");
    for asked in [Signal::TERM, Signal::HUP, Signal::INT] {
        images.up("ci");
        let mut child = stayer(&images);
        signal(images.supervisor("ci"), asked);
        until("written back", || images.work.join("kept").exists());
        assert!(!child.wait().expect("its status").success());
        // Nobody was told that a program had to be ended: it is kept until somebody asks.
        until("it has ended", || images.row("ci")["state"] == "ended");
        let output = images.husk(&["down", "ci"]);
        assert!(output.status.success(), "{}", shown(&output));
        assert!(text(&output.stderr).contains("): ended with SIGHUP"), "{}", shown(&output));
        assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
        fs::remove_file(images.work.join("kept")).expect("it was there");
    }
}

/// A terminal that is closed hangs up what runs in it; the image, and who ignores that, go on.
#[test]
fn a_log_out_hangs_commands_up_and_leaves_the_image_alone() {
    if against_native() {
        return;
    }
    let images = Images::new("log-out");
    images.up("ci");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    // A terminal whose shell starts both and waits.
    let script = format!(
        "{husk} exec ci -- sh -c 'echo $$ > plain; exec sleep 600' &
        nohup {husk} exec ci -- sh -c 'echo $$ > immune; exec sleep 600' > /dev/null 2>&1 &
        wait"
    );
    let mut terminal = images.command("script", &["-qec", &script, "/dev/null"]);
    let mut terminal =
        terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("script");
    until("both run", || images.script("ci", "cat plain immune || true").lines().count() == 2);
    let told = images.script("ci", "cat plain immune");
    let numbers: Vec<i64> = told.lines().map(|line| line.parse().expect("a number")).collect();
    // `timeout` has one child, which holds the terminal.
    let listed = format!("/proc/{0}/task/{0}/children", terminal.id());
    let holder = fs::read_to_string(listed).expect("a child").trim().parse().expect("a number");
    kill(holder);
    terminal.wait().expect("its end");
    let running = || -> Vec<i64> {
        let list: serde_json::Value =
            serde_json::from_str(&images.done(&["ps", "ci", "--json"])).expect("JSON");
        let rows = list.as_array().expect("a list").iter();
        rows.filter_map(|row| row["pid"].as_i64()).collect()
    };
    until("the plain one was hung up", || running() == numbers[1..]);
    assert_eq!(images.script("ci", "echo fine"), "fine\n");
    images.done(&["kill", "ci", &numbers[1].to_string()]);
    until("nobody is left", || running().is_empty());
    assert_eq!(images.down("ci"), "");
    assert!(images.work.join("plain").exists());
}

#[test]
fn a_dead_image_is_listed_named_and_cleaned_up() {
    if against_native() {
        return;
    }
    let images = Images::new("dead");
    images.up("ci");
    images.script("ci", "echo lost > file");
    images.kill("ci");
    assert_eq!(images.row("ci")["memory_bytes"], 64 << 20);
    let said = images.refused(&["exec", "ci", "--", "true"], 125);
    assert!(said.contains("its supervisor has died") && said.contains("husk down ci"), "{said}");
    let said = images.refused(&["up", "ci"], 125);
    assert!(said.contains("has died") && said.contains("husk down ci"), "{said}");
    let output = images.husk(&["down", "ci"]);
    assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
    assert!(text(&output.stderr).contains("is lost"), "{}", shown(&output));
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    images.up("ci");
    images.down("ci");
}

#[test]
fn a_killed_supervisor_is_replaced_and_nothing_is_lost() {
    if against_native() {
        return;
    }
    let images = Images::new("replaced");
    images.up("ci");
    let mut child = stayer(&images);
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    images.script("ci", "mkfifo fifo; echo t > /tmp/t");
    let holder = "echo held > told; read -r _ < fifo; echo released > told";
    let mut holder =
        images.command(husk, &["exec", "ci", "--", "flock", "lock", "sh", "-c", holder]);
    let mut holder = holder.spawn().expect("it starts");
    until("the lock is held", || images.script("ci", "cat told || true") == "held\n");
    for _ in 0..3 {
        images.kill_supervisor("ci");
        assert_eq!(images.script("ci", "cat kept /tmp/t told"), "kept\nt\nheld\n");
        assert_eq!(images.row("ci")["processes"].as_i64(), Some(3));
        assert!(
            !images.husk(&["exec", "ci", "--", "flock", "-n", "lock", "true"]).status.success()
        );
        let refused = images.refused(&["down", "ci"], 125);
        assert!(refused.contains("programs run in it: "), "{refused}");
    }
    images.script("ci", "echo > fifo; flock lock cat told > last");
    assert!(holder.wait().expect("its status").success());
    // Nobody has to ask for what happens between a kill and the next supervisor.
    husk_tests::process::kill(images.supervisor("ci"));
    assert_eq!(images.script("ci", "cat last"), "released\n");
    drop(child.stdin.take());
    assert!(child.wait().expect("its status").success());
    assert_eq!(images.down("ci"), "");
    assert_eq!(fs::read(images.work.join("last")).expect("written back"), b"released\n");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn a_keeper_that_is_killed_is_replaced_and_the_list_says_so() {
    if against_native() {
        return;
    }
    let images = Images::new("unkept");
    images.up("ci");
    images.script("ci", "echo x > file");
    let keeper = || images.row("ci")["keeper"].as_i64().expect("a number") as i32;
    for _ in 0..2 {
        let before = keeper();
        kill(before);
        until("another keeper", || ![0, before].contains(&keeper()));
        let note = format!("its keeper was killed: process {} keeps it now", keeper());
        assert!(images.done(&["ls"]).contains(&note));
        assert_eq!(images.row("ci")["note"], note);
        images.kill_supervisor("ci");
        assert_eq!(images.row("ci")["keeper"], keeper());
        assert_eq!(images.script("ci", "cat file"), "x\n");
    }
    assert_eq!(images.down("ci"), "");
    assert_eq!(fs::read(images.work.join("file")).expect("written back"), b"x\n");
}

#[test]
fn an_image_whose_supervisors_die_again_and_again_is_given_up() {
    if against_native() {
        return;
    }
    let images = Images::new("given-up");
    images.up("ci");
    for _ in 0..10 {
        images.kill_supervisor("ci");
    }
    kill(images.supervisor("ci"));
    let why = "the image is given up: 11 supervisors were killed in 60 s";
    until("it is dead", || images.row("ci")["last_word"] == why);
    assert_eq!(images.row("ci")["state"], "dead");
    assert!(images.done(&["ls"]).contains(why));
    assert!(images.refused(&["up", "ci"], 125).contains(why));
    let output = images.husk(&["down", "ci"]);
    let said = text(&output.stderr);
    // What it has borne before is none of its death.
    let lost = "image ci had died: what it had not written back is lost";
    assert_eq!(said, format!("husk: {why}\nhusk: {lost}\n"));
}

/// Stops a process, or lets it go on.
fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a number");
    rustix::process::kill_process(pid, signal).expect("a signal");
}

#[test]
fn nobody_waits_for_long_for_a_supervisor_that_is_stopped() {
    if against_native() {
        return;
    }
    let images = Images::new("stopped");
    images.up("ci");
    images.script("ci", "seq 3000 | split -l 1 -a 4 - f");
    let supervisor = images.supervisor("ci");
    signal(supervisor, rustix::process::Signal::STOP);
    std::thread::scope(|scope| {
        for arguments in [&["down", "ci"][..], &["exec", "ci", "--", "true"], &["ps", "ci"]] {
            let images = &images;
            scope.spawn(move || {
                let said = images.refused(arguments, 125);
                assert!(said.contains(&format!("(process {supervisor}) is stopped")), "{said}");
                assert!(said.contains(&format!("kill -CONT {supervisor}")), "{said}");
            });
        }
    });
    signal(supervisor, rustix::process::Signal::CONT);
    // Who gave up has not ended it behind everybody's back.
    assert_eq!(images.script("ci", "ls | wc -l"), "3000\n");
    // Stopped while it writes back, likewise.
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut down = images.command(husk, &["down", "ci"]);
    let down = down.stderr(Stdio::piped()).spawn().expect("it starts");
    until("it writes back", || fs::read_dir(&images.work).expect("a directory").count() > 0);
    signal(supervisor, rustix::process::Signal::STOP);
    let output = down.wait_with_output().expect("its status");
    let said = crate::refusal(&output, 125);
    assert!(said.contains("is stopped; let it go on: kill -CONT"), "{said}");
    signal(supervisor, rustix::process::Signal::CONT);
    until("it has ended", || images.row("ci")["state"] != "busy");
    let written = fs::read_dir(&images.work).expect("a directory").count();
    assert_eq!(written, 3000);
}

/// One letter after another, all there before the supervisor hears any of them.
#[test]
fn who_asks_behind_a_refused_end_is_answered() {
    if against_native() {
        return;
    }
    let images = Images::new("behind");
    images.up("ci");
    let mut child = stayer(&images);
    let pid = rustix::process::Pid::from_raw(images.supervisor("ci")).expect("a number");
    let place = fs::File::open(images.place("ci")).expect("its directory");
    let socket = format!("/proc/self/fd/{}/socket", place.as_raw_fd());
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("a signal");
    let asked = [r#"{"Down":{"discard":false,"force":false}}"#, r#""Look""#, r#""Look""#];
    let asked = asked.map(|ask| {
        let mut stream = UnixStream::connect(&socket).expect("its queue has room");
        writeln!(stream, r#"{{"version":"another","ask":{ask}}}"#).expect("sent");
        stream
    });
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("a signal");
    let told = asked.map(|mut stream| {
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("an answer");
        told
    });
    assert!(told[0].contains("a program runs in it: cat ("), "{told:?}");
    assert!(told[1..].iter().all(|told| told.starts_with(r#"{"Look":"#)), "{told:?}");
    drop(child.stdin.take());
    assert!(child.wait().expect("its status").success());
    assert_eq!(images.down("ci"), "");
}

/// An image with many files, and its end, stopped while they are written back.
fn stopped_in_the_middle(images: &Images, files: usize) -> (std::process::Child, i32) {
    images.up("ci");
    images.script("ci", &format!("for n in $(seq {files}); do echo $n > f$n; done"));
    let supervisor = images.supervisor("ci");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut down = images.command(husk, &["down", "ci"]);
    let down = down.stderr(Stdio::piped()).spawn().expect("it starts");
    until("it writes back", || fs::read_dir(&images.work).expect("a directory").count() > 0);
    signal(supervisor, rustix::process::Signal::STOP);
    let whole = (1..=files).filter(|n| images.work.join(format!("f{n}")).exists()).count();
    assert!(whole < files, "all of {files} files were written before it was stopped: take more");
    (down, supervisor)
}

/// Files of the image that are not on the host as they were.
fn lost(images: &Images, files: usize) -> usize {
    let whole = |n: &usize| {
        let text = fs::read(images.work.join(format!("f{n}")));
        text.is_ok_and(|text| text == format!("{n}\n").as_bytes())
    };
    files - (1..=files).filter(whole).count()
}

/// What the host has before, and what the image makes of it.
const BEFORE: &str = "mkdir -p was/in kept; touch was/a was/in/b gone; echo mode > mode;
    echo both > both; chmod 644 mode";
const CHANGES: &str = "mv was moved; rm gone; chmod 600 mode; echo image >> both; ln both both-2;
    mkdir -p new/in; echo new > new/in/file";

/// Whatever was on its way to the host when the supervisor died arrives, once; who asked for it
/// waits for that.
#[test]
fn an_end_that_was_interrupted_is_gone_on_with() {
    const FILES: usize = 3000;
    if against_native() {
        return;
    }
    let mut placed = 0;
    for round in 0..8 {
        let images = Images::new(&format!("interrupted-{round}"));
        assert!(images.command("sh", &["-euc", BEFORE]).status().expect("sh").success());
        images.up("ci");
        images.script("ci", CHANGES);
        images.script("ci", &format!("for n in $(seq {FILES}); do echo $n > f$n; done"));
        fs::write(images.work.join("both"), "the host's, and longer\n").expect("written");
        let (supervisor, there) = (images.supervisor("ci"), || FILES - lost(&images, FILES));
        let husk = husk_tests::husk::binary().to_str().expect("a plain path");
        let mut down = images.command(husk, &["down", "ci"]);
        let down = down.stderr(Stdio::piped()).spawn().expect("it starts");
        until("it puts files in their places", || first_of(&images.work));
        signal(supervisor, rustix::process::Signal::STOP);
        placed = there();
        kill(supervisor);
        let next = || images.row("ci")["pid"].as_i64().filter(|next| *next as i32 != supervisor);
        until("another one goes on, or has ended", || {
            images.row("ci") == serde_json::Value::Null || next().is_some()
        });
        // Once more, wherever it is by now.
        let _ = next().map(|next| kill(next as i32));
        let output = down.wait_with_output().expect("its status");
        let said = text(&output.stderr);
        assert!(said.contains("husk: fsck: clean\n") && !said.contains(" lost"), "{said}");
        assert_eq!(images.row("ci"), serde_json::Value::Null);
        assert_eq!(lost(&images, FILES), 0);
        written_once(&images.work, &said);
        if placed > 0 && placed < FILES {
            return;
        }
    }
    panic!("never interrupted while files took their places; {placed} were there the last time");
}

/// Whether the first of many files is in its place; looks often.
fn first_of(work: &std::path::Path) -> bool {
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(1);
    while std::time::Instant::now() < soon {
        let mut names = fs::read_dir(work).expect("a directory").flatten();
        if names.any(|entry| entry.file_name().to_string_lossy().starts_with('f')) {
            return true;
        }
    }
    false
}

/// All of `CHANGES` is there, and nothing twice but what the host had changed.
fn written_once(work: &std::path::Path, said: &str) {
    let names = fs::read_dir(work).expect("a directory").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('f')).collect();
    names.sort();
    let aside = names.iter().find(|name| name.starts_with("both.husk-")).expect("the image's");
    assert_eq!(names, ["both", "both-2", aside, "kept", "mode", "moved", "new"], "{said}");
    assert!(work.join("moved/a").exists() && work.join("moved/in/b").exists());
    assert_eq!(fs::read(work.join("new/in/file")).expect("it"), b"new\n");
    assert_eq!(fs::read(work.join(aside)).expect("it"), b"both\nimage\n");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(work.join("mode")).expect("it"));
    assert_eq!(mode & 0o777, 0o600);
    let conflicts = said.lines().filter(|line| line.contains("conflict: ")).count();
    assert_eq!(conflicts, 1, "{said}");
}

#[test]
fn who_takes_an_image_down_once_more_learns_how_it_ended() {
    const FILES: usize = 3000;
    if against_native() {
        return;
    }
    let images = Images::new("told-late");
    let (mut down, supervisor) = stopped_in_the_middle(&images, FILES);
    // `timeout` passes it on.
    signal(down.id() as i32, rustix::process::Signal::TERM);
    down.wait().expect("its status");
    signal(supervisor, rustix::process::Signal::CONT);
    until("it has ended", || images.row("ci")["state"] == "ended");
    assert_eq!(lost(&images, FILES), 0);
    let said = images.refused(&["up", "ci"], 125);
    assert!(said.contains("has ended") && said.contains("husk down ci"), "{said}");
    // All is there, and that is what the next one says.
    assert_eq!(images.down("ci"), "");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

#[test]
fn an_image_that_died_in_the_middle_of_its_end_says_so() {
    if against_native() {
        return;
    }
    let images = Images::new("half");
    let keeper = || images.row("ci")["keeper"].as_i64().expect("a number") as i32;
    let (mut down, supervisor) = stopped_in_the_middle(&images, 3000);
    kill(keeper());
    kill(supervisor);
    let output = images.husk(&["down", "ci"]);
    down.wait().expect("its status");
    let said = down.stderr.take().map(|mut said| {
        let mut told = text(&output.stderr);
        said.read_to_string(&mut told).expect("text");
        told
    });
    let said = said.expect("what both said");
    assert!(said.contains("died while it was written back: what is not there is lost"), "{said}");
    assert_eq!(images.row("ci"), serde_json::Value::Null);
}

#[test]
fn the_end_of_an_image_whose_directory_is_gone_leaves_the_next_of_its_name_alone() {
    if against_native() {
        return;
    }
    let images = Images::new("orphaned");
    images.up("ci");
    let first = images.supervisor("ci");
    let orphan = Pid::from_raw(first).expect("a number");
    // It would make it again.
    kill_process(orphan, Signal::STOP).expect("it lives");
    fs::remove_dir_all(images.place("ci")).expect("it goes");
    images.up("ci");
    assert_ne!(images.supervisor("ci"), first);
    kill_process(orphan, Signal::CONT).expect("it lives");
    kill_process(orphan, Signal::TERM).expect("it lives");
    until("the first one has ended", || test_kill_process(orphan).is_err());
    assert_eq!(images.script("ci", "echo here"), "here\n");
    images.down("ci");
}
