//! What there is to see of an image from outside: `husk stat`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use husk_tests::against_native;
use husk_tests::husk::binary;
use serde_json::Value;

use crate::{Images, shown, text, until};

/// What `husk stat NAME --json` says.
fn stat(images: &Images, name: &str) -> Value {
    serde_json::from_str(&images.done(&["stat", name, "--json"])).expect("JSON")
}

/// A type of operation, over all kernels.
fn done(told: &Value, operation: &str) -> u64 {
    let kernels = told["kernels"].as_array().expect("a list");
    kernels.iter().map(|one| one["operations"][operation].as_u64().expect("a count")).sum()
}

fn number(told: &Value, what: &str) -> u64 {
    told[what].as_u64().unwrap_or_else(|| panic!("no number {what}: {told}"))
}

#[test]
fn what_was_done_is_counted_by_type() {
    if against_native() {
        return;
    }
    let images = Images::new("stat");
    images.up("ci");
    let before = stat(&images, "ci");
    images.script("ci", "for n in $(seq 50); do echo x > f$n; done; mv f1 g; rm f2 f3; ln g h");
    let after = stat(&images, "ci");
    let more = |operation| done(&after, operation) - done(&before, operation);
    assert!(more("create") == 50, "{after}");
    assert_eq!((more("rename"), more("remove"), more("link")), (1, 2, 1), "{after}");
    assert!(more("write") >= 50 && more("walk") >= 50, "{after}");
    assert!(more("fork") >= 3 && more("exec") >= 4, "{after}");
    let inodes = |told| number(told, "inodes") - number(told, "inodes_free");
    let blocks = |told| number(told, "blocks") - number(told, "blocks_free");
    assert_eq!((inodes(&after) - inodes(&before), blocks(&after) - blocks(&before)), (48, 48));
    let table = images.done(&["stat", "ci"]);
    assert!(table.contains("KERNEL") && table.contains("  rename"), "{table}");
    images.down("ci");
}

#[test]
fn processes_and_descriptions_are_those_there_are() {
    if against_native() {
        return;
    }
    let images = Images::new("stat-held");
    images.up("ci");
    let before = stat(&images, "ci");
    assert_eq!((number(&before, "processes"), number(&before, "descriptions")), (0, 0));
    let holder = "exec 5> a 6> b 7> c; echo ready > there; exec sleep 60";
    let husk = binary().to_str().expect("a plain path");
    let mut held = images.command(husk, &["exec", "ci", "--", "bash", "-c", holder]);
    let mut held = held.spawn().expect("husk");
    until("it holds them", || number(&stat(&images, "ci"), "descriptions") == 3);
    assert_eq!(number(&stat(&images, "ci"), "processes"), 1);
    images.done(&["kill", "ci", &process(&images, "ci"), "--signal", "KILL"]);
    held.wait().expect("its end");
    until("it is gone", || number(&stat(&images, "ci"), "processes") == 0);
    assert_eq!(number(&stat(&images, "ci"), "descriptions"), 0);
    images.down("ci");
}

/// The one process of an image.
fn process(images: &Images, name: &str) -> String {
    let list: Value = serde_json::from_str(&images.done(&["ps", name, "--json"])).expect("JSON");
    list[0]["pid"].to_string()
}

#[test]
fn refused_calls_and_wide_directories_are_counted() {
    if against_native() {
        return;
    }
    let images = Images::new("stat-refused");
    let work = images.work.to_str().expect("a plain path");
    let husk = binary().to_str().expect("a plain path");
    let mut up = images.command(husk, &["up", "ci", "--memory", "64M", "--overlay", work]);
    let up = up.env("HUSK_DIR", "wide").output().expect("husk");
    assert!(up.status.success(), "{}", shown(&up));
    let notify = "import fcntl, os; fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, 4)";
    let output = images.husk(&["exec", "ci", "--", "python3", "-c", notify]);
    assert!(text(&output.stderr).contains("Invalid argument"), "{}", shown(&output));
    images.script("ci", "mkdir d; touch d/a d/b");
    let told = stat(&images, "ci");
    assert!(number(&told, "directories_widened") >= 1, "{told}");
    assert_eq!(told["unsupported"][0]["call"], "fcntl", "{told}");
    assert_eq!(told["unsupported"][0]["count"], 1, "{told}");
    assert!(images.done(&["stat", "ci"]).contains("unsupported: fcntl (72), refused 1x"));
    images.down("ci");
}

#[test]
fn an_image_that_cannot_be_looked_at_is_told_in_one_line() {
    if against_native() {
        return;
    }
    let images = Images::new("stat-not");
    let own = std::process::id().to_string();
    for (name, why) in [
        ("absent", "there is no such image"),
        ("a/b", "no such image"),
        ("99999999", "there is no such process"),
        (&own, "that process is in no image"),
    ] {
        for options in [&["stat", name][..], &["stat", name, "--json"]] {
            let said = images.refused(options, 125);
            assert!(said.contains(&format!("image {name}")) && said.contains(why), "{said}");
        }
    }
    images.refused(&["stat"], 125);
    images.up("ci");
    images.kill("ci");
    assert!(images.refused(&["stat", "ci"], 125).contains("its supervisor has died"));
    images.husk(&["down", "ci"]);
}

/// Also the image of a `husk run`, by its number.
#[test]
fn a_throw_away_image_is_looked_at_by_its_process() {
    if against_native() {
        return;
    }
    let images = Images::new("stat-run");
    let husk = binary().to_str().expect("a plain path");
    let run = format!("exec '{husk}' run --memory 64M -- sh -c 'echo x > f; exec sleep 60'");
    // It is the shell's own number that is asked for.
    let script = format!(
        "{run} & told=; for n in $(seq 200); do sleep 0.05
        told=$('{husk}' stat $! 2>/dev/null) && [[ $told = *create* ]] && break; done
        echo \"$told\"; kill %1; wait"
    );
    let output = images.command("bash", &["-c", &script]).output().expect("bash");
    let said = text(&output.stdout);
    assert!(said.contains("processes 1 ") && said.contains("  create"), "{}", shown(&output));
}

#[test]
fn a_report_says_which_image_it_is_of_and_counts_programs_alone() {
    if against_native() {
        return;
    }
    let images = Images::new("stat-names");
    images.up("ci");
    let supervisor = images.supervisor("ci");
    let told = stat(&images, "ci");
    assert_eq!(
        (told["image"].as_str(), told["pid"].as_i64()),
        (Some("ci"), Some(supervisor.into()))
    );
    let told: Value = serde_json::from_str(&images.done(&["fsck", "ci", "--json"])).expect("JSON");
    assert_eq!(
        (told["image"].as_str(), told["pid"].as_i64()),
        (Some("ci"), Some(supervisor.into()))
    );
    let threads = || {
        let told = stat(&images, "ci");
        let kernels = told["kernels"].as_array().expect("a list").clone();
        kernels.iter().map(|one| one["threads"].as_u64().expect("a count")).sum::<u64>()
    };
    // The supervisor works for the image, too, and is none of its threads.
    assert_eq!(threads(), 0);
    let husk = binary().to_str().expect("a plain path");
    let holder = ["exec", "ci", "--", "bash", "-c", "echo x > there; exec cat"];
    let mut held = images.command(husk, &holder).stdin(Stdio::piped()).spawn().expect("husk");
    until("it has a seat", || threads() == 1);
    drop(held.stdin.take());
    held.wait().expect("it ends");
    images.down("ci");
}

#[test]
fn who_runs_in_a_throw_away_image_is_listed_and_signalled_by_its_number() {
    if against_native() {
        return;
    }
    let images = Images::new("ps-run");
    let husk = binary().to_str().expect("a plain path");
    let mut run = std::process::Command::new(husk);
    run.args(["run", "--memory", "64M", "--", "sh", "-c", "sleep 61 & echo $!; wait"]);
    let mut run = run.current_dir(&images.work).stdout(Stdio::piped()).spawn().expect("husk");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let (image, sleeper) = (run.id().to_string(), line.trim());
    until("it sleeps", || images.done(&["ps", &image]).contains("sleep 61"));
    let rows: Value = serde_json::from_str(&images.done(&["ps", &image, "--json"])).expect("JSON");
    let pids: Vec<_> =
        rows.as_array().expect("rows").iter().map(|row| row["pid"].clone()).collect();
    assert!(pids.contains(&sleeper.parse::<u32>().expect("a number").into()), "{rows}");
    // By a program of it, too.
    assert!(images.done(&["ps", sleeper]).contains("sleep 61"));
    let said = images.refused(&["down", &image], 125);
    assert!(said.contains("a `husk run` ends with its command; kill"), "{said}");
    let own = std::process::id().to_string();
    assert!(images.refused(&["ps", &own], 125).contains("that process is in no image"));
    assert!(images.refused(&["kill", &image, &own], 125).contains("no such process runs in it"));
    images.done(&["kill", &image, sleeper]);
    assert!(run.wait().expect("it ends").code().is_some());
}

#[test]
fn what_the_threads_of_a_process_wait_for_is_shown() {
    if against_native() {
        return;
    }
    let images = Images::new("waits");
    images.up("ci");
    let script = "import os, select, socket, threading
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen()
held = threading.Lock()
held.acquire()
waits = select.epoll()
open('pid', 'w').write(str(os.getpid()))
for work in (listener.accept, waits.poll, held.acquire):
    threading.Thread(target=work, daemon=True).start()
open('fds', 'w').write('%d %d' % (listener.fileno(), waits.fileno()))
os.read(0, 1)
";
    let mut command = std::process::Command::new(binary());
    command.args(["exec", "ci", "--", "python3", "-c", script]).current_dir(&images.work);
    command.env("HUSK_IMAGES", images.all()).env("HOME", husk_tests::run::home("own"));
    let mut program = command.stdin(Stdio::piped()).spawn().expect("husk");
    until("it is ready", || images.script("ci", "cat fds 2> /dev/null || true").contains(' '));
    let [pid, fds] = ["cat pid", "cat fds"].map(|script| images.script("ci", script));
    let (listener, set) = fds.trim().split_once(' ').expect("two numbers");
    let wanted = [
        format!("sleeps in accept4({listener}), in the host"),
        format!("sleeps in epoll_wait({set}), in the host"),
        "sleeps in futex, on a word of the program's own memory".to_owned(),
        "sleeps in read(0), in the host".to_owned(),
    ];
    let mut said = String::new();
    until("all sleep", || {
        said = images.done(&["explain", "ci", pid.trim()]);
        wanted.iter().all(|line| said.contains(line))
    });
    let told: Value =
        serde_json::from_str(&images.done(&["explain", pid.trim(), "--json"])).expect("JSON");
    let threads = told["threads"].as_array().expect("a list");
    assert_eq!(threads.len(), 4, "{told}\n{said}");
    assert!(threads.iter().any(|one| one["sleeps"] == "program" && one["call"] == "futex"));
    drop(program.stdin.take());
    assert!(program.wait().expect("it ends").success());
    images.down("ci");
}

#[test]
fn hints_lead_to_what_helps() {
    if against_native() {
        return;
    }
    let images = Images::new("hints");
    images.up("ci");
    let said = images.refused(&["down", "nope"], 125);
    assert!(said.ends_with("`husk ls` lists your images\n"), "{said}");
    let said = images.refused(&["exec", "nope", "--", "true"], 125);
    assert!(said.ends_with("or make it: husk up nope\n"), "{said}");
    let said = images.refused(&["explain", "ci"], 125);
    assert!(said.contains("husk explain ci PID; `husk ps ci` lists them"), "{said}");
    images.down("ci");
}
