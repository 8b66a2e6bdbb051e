//! Commands that are killed (SIGKILL) at any moment: `husk up`, `refresh`, `recover`, and those
//! that adopt an image whose supervisor and keeper are dead. What comes after them finds all as it
//! was, or done. A `husk run` whose guard, keeper and supervisor are killed in any order is kept.
//!
//! The moments are spread over the time that a command takes. None of them may go wrong.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use husk_tests::against_native;
use husk_tests::husk::binary;
use husk_tests::process::kill;

use crate::{Images, shown, text, until};

/// Moments of each kind.
const KILLS: u32 = 16;

/// `husk WORDS`, as a child that can be killed itself.
fn started(images: &Images, words: &[&str]) -> Child {
    let mut command = std::process::Command::new(binary());
    command.args(words).current_dir(&images.work).stdin(Stdio::null());
    command.env("HUSK_IMAGES", images.all()).env("HOME", husk_tests::run::home("own"));
    command.env("LC_ALL", "C").env("XDG_STATE_HOME", images.scratch.path().join("state"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

/// How long such a command takes when nobody kills it.
fn taken(images: &Images, words: &[&str]) -> Duration {
    let since = Instant::now();
    let _ = started(images, words).wait();
    since.elapsed()
}

/// Kills it after a share of the time that it takes.
fn cut(mut child: Child, taken: Duration, share: u32) {
    let end = Instant::now() + taken * share / KILLS;
    while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
        std::hint::spin_loop();
    }
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn an_up_that_is_killed_leaves_an_image_or_none_and_the_next_one_makes_it() {
    if against_native() {
        return;
    }
    let images = Images::new("cut-up");
    let work = images.work.to_str().expect("a plain path");
    fs::write(images.work.join("file"), "host\n").expect("a file");
    let up = ["up", "ci", "--memory", "64M", "--overlay", work];
    let whole = taken(&images, &up);
    images.done(&["down", "ci", "--discard"]);
    for share in 0..KILLS {
        cut(started(&images, &up), whole, share);
        // What is left of it goes by itself, which the next one may meet.
        until("the next one makes it", || {
            let next = images.husk(&up);
            let said = text(&next.stderr);
            let met = said.contains("it is up already") || said.contains("has died; clean up");
            assert!(next.status.success() || met, "{share}: {}", shown(&next));
            images.row("ci")["state"] == "up"
        });
        assert_eq!(images.script("ci", "cat file; echo x > new; cat new"), "host\nx\n", "{share}");
        images.done(&["down", "ci", "--discard"]);
        assert_eq!(images.done(&["ls", "--names"]), "", "{share}");
        until("nobody is left", || left(&images).is_empty());
    }
}

/// Processes that are called by an image of this directory.
fn left(images: &Images) -> Vec<String> {
    let ours = format!("HUSK_IMAGES={}", images.all().display());
    let of_ours = |entry: fs::DirEntry| {
        let path = entry.path();
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        let named = words.starts_with(b"husk: ");
        let variables = fs::read(path.join("environ")).unwrap_or_default();
        let is = variables.split(|byte| *byte == 0).any(|one| one == ours.as_bytes());
        (named && is).then(|| path.display().to_string())
    };
    fs::read_dir("/proc").expect("/proc").flatten().filter_map(of_ours).collect()
}

#[test]
fn a_refresh_that_is_killed_leaves_files_of_before_or_after_and_the_next_one_ends_it() {
    if against_native() {
        return;
    }
    const FILES: usize = 400;
    let images = Images::new("cut-refresh");
    let write = |round: u32| {
        for n in 0..FILES {
            let size = (n + round as usize) % 50;
            let bytes = format!("{round:05}{}\n", "x".repeat(size));
            let new = images.work.join("new");
            fs::write(&new, bytes).expect("a file");
            fs::rename(new, images.work.join(format!("{n:04}"))).expect("a name");
        }
    };
    write(0);
    images.up("ci");
    let all = "cat *";
    let on_host = || {
        let all = (0..FILES).map(|n| images.work.join(format!("{n:04}")));
        all.map(|path| fs::read_to_string(path).expect("a file")).collect::<String>()
    };
    assert_eq!(images.script("ci", all), on_host());
    let refresh = ["refresh", "ci"];
    write(1);
    let whole = taken(&images, &refresh);
    for share in 0..KILLS {
        write(share + 2);
        let asker = started(&images, &refresh);
        if share % 2 == 1 {
            // The process that takes the changes in.
            let end = Instant::now() + whole * share / KILLS;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            images.kill_supervisor("ci");
        }
        cut(asker, whole, share);
        let sizes = images.script("ci", SIZES);
        assert_eq!(sizes, "", "{share}");
        images.done(&refresh);
        assert_eq!(images.script("ci", all), on_host(), "{share}");
    }
    let before = on_host();
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(), before);
}

/// Who opens a file sees the whole of it from then on.
const SIZES: &str = "for f in *; do n=$(wc -c < $f); test $(stat -c %s $f) = $n; done";

/// Writes on until it is ended.
const TICKER: &str = "echo precious > file
    (while :; do sleep 0.05; echo tick >> file; done) > /dev/null 2>&1 < /dev/null &";

#[test]
fn who_is_killed_while_it_adopts_an_image_leaves_it_to_the_next() {
    if against_native() {
        return;
    }
    let images = Images::new("cut-adoption");
    images.up("ci");
    images.script("ci", TICKER);
    until("it writes", || images.script("ci", "cat file").starts_with("precious\ntick\n"));
    images.kill_both("ci");
    let adopt = ["exec", "ci", "--", "cat", "file"];
    let whole = taken(&images, &adopt);
    for share in 0..KILLS {
        images.kill_both("ci");
        cut(started(&images, &adopt), whole, share);
        // Who finds another one that begins waits, and on a busy machine is told to try again.
        let mut output = images.husk(&adopt);
        until("it is adopted", || {
            let again = text(&output.stderr).contains("it is just starting");
            if again {
                output = images.husk(&adopt);
            }
            !again
        });
        let right = text(&output.stdout).starts_with("precious\ntick\n");
        assert!(output.status.success() && right, "{share}: {}", shown(&output));
        let row = images.row("ci");
        assert!(row["state"] == "up" && row["keeper"] != 0, "{share}: {row}");
    }
    images.done(&["down", "ci", "--force"]);
    let written = fs::read_to_string(images.work.join("file")).expect("written back");
    assert!(written.starts_with("precious\ntick\n"), "{written}");
}

/// A write-back that nobody goes on with: run, guard and all are killed once it is noted.
fn half(images: &Images, files: usize) -> bool {
    let state = images.scratch.path().join("state");
    for n in 0..files {
        fs::write(images.work.join(n.to_string()), "old\n").expect("a file");
    }
    let script = format!("for i in $(seq 0 {}); do echo new > $i; done", files - 1);
    let mut run = started(images, &["run", "--memory", "64M", "--", "bash", "-c", &script]);
    let ready = || {
        let all = fs::read_dir(state.join("husk/write-back")).into_iter().flatten().flatten();
        all.map(|one| fs::read(one.path()).unwrap_or_default())
            .any(|bytes| bytes.windows(5).any(|word| word == b"Ready"))
    };
    until("it is noted, or over", || ready() || !matches!(run.try_wait(), Ok(None)));
    let _ = run.kill();
    let _ = run.wait();
    text(&recover(images, &["--json"]).stdout).contains("half")
}

fn recover(images: &Images, words: &[&str]) -> std::process::Output {
    let husk = binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &[&["recover"], words].concat());
    command.env("XDG_STATE_HOME", images.scratch.path().join("state")).output().expect("it starts")
}

#[test]
fn a_recover_that_is_killed_is_ended_by_the_next_one() {
    if against_native() {
        return;
    }
    const FILES: usize = 1500;
    let mut met = 0;
    for (share, way) in (0..KILLS).zip(["forward", "back"].into_iter().cycle()) {
        let images = Images::new("cut-recover");
        if !half(&images, FILES) {
            continue;
        }
        met += 1;
        // A whole one takes about a tenth of a second here.
        for _ in 0..3 {
            cut(started(&images, &["recover", way]), Duration::from_millis(80), share);
        }
        let output = recover(&images, &[way]);
        let late = text(&output.stderr).contains("it has begun to remove");
        if late {
            recover(&images, &["forward"]);
        }
        let nothing = recover(&images, &[]);
        let told = text(&nothing.stdout);
        assert!(told.contains("no write-back was interrupted"), "{share}: {}", shown(&nothing));
        let all: Vec<_> = (0..FILES)
            .map(|n| fs::read_to_string(images.work.join(n.to_string())).expect("a file"))
            .collect();
        let wanted = if way == "back" && !late { ["old\n", "new\n"] } else { ["new\n", "new\n"] };
        let whole = wanted.iter().any(|one| all.iter().all(|text| text == one));
        assert!(whole, "{share} {way}: {}", shown(&output));
        let names = fs::read_dir(&images.work).expect("a directory").flatten();
        let other = names.filter(|one| one.file_name().to_string_lossy().starts_with('.')).count();
        assert_eq!(other, 0, "{share} {way}: temporary files are left");
    }
    assert!(met >= 3, "{met} write-backs were met in the middle");
}

/// Who is killed after a run, one after the other, each when the one before has been replaced.
const ORDERS: [&[&str]; 5] =
    [&["pid", "keeper"], &["keeper", "pid"], &["pid", "pid"], &["keeper", "keeper"], &[]];

#[test]
fn a_run_is_kept_whoever_of_its_guard_keeper_and_supervisor_is_killed_after_it() {
    if against_native() {
        return;
    }
    for order in ORDERS {
        let images = Images::new("cut-run");
        let script = format!("trap '' HUP; {TICKER} exec sleep 100");
        let mut run = started(&images, &["run", "--memory", "64M", "--", "sh", "-c", &script]);
        let name = format!("run-{}", run.id());
        let guard = format!("husk: {name}");
        until("it has a guard", || guard_of(&guard).is_some());
        let number = |who: &str| images.row(&name)[who].as_i64().unwrap_or_default() as i32;
        run.kill().expect("it is a child");
        let _ = run.wait();
        until("it is kept", || images.row(&name)["state"] == "up");
        until("it has a keeper", || number("keeper") != 0);
        for who in order {
            let before = number(who);
            kill(before);
            until("another one", || {
                images.row(&name)["state"] == "up" && ![0, before].contains(&number(who))
            });
        }
        let file = images.script(&name, "cat file");
        assert!(file.starts_with("precious\n"), "{order:?}: {file}");
        images.done(&["down", &name, "--force"]);
        let written = fs::read_to_string(images.work.join("file")).expect("written back");
        assert!(written.starts_with(&file), "{order:?}: {written}");
    }
}

/// The guard of a run, once it has the memory.
fn guard_of(name: &str) -> Option<i32> {
    fs::read_dir("/proc").expect("/proc").flatten().find_map(|entry| {
        let path = entry.path();
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        let named = words.starts_with(name.as_bytes()) && words.get(name.len()) == Some(&0);
        let has = named.then(|| fs::read_dir(path.join("fd")).ok())??.flatten().any(|fd| {
            let target = fs::read_link(fd.path()).unwrap_or_default();
            target.to_string_lossy().contains("husk-region")
        });
        has.then(|| entry.file_name().to_string_lossy().parse().ok())?
    })
}
