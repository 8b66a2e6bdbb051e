//! A program, the supervisor and the keeper of an image are killed in every order, while the
//! program works and during a write-back: nothing is lost, and `husk ls`, `recover` and `down` say
//! what is the case.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use husk_tests::against_native;
use husk_tests::process::kill;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Images, shown, text, until};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Program,
    Supervisor,
    Keeper,
}

use Who::{Keeper, Program, Supervisor};

const ORDERS: [[Who; 3]; 6] = [
    [Program, Supervisor, Keeper],
    [Program, Keeper, Supervisor],
    [Supervisor, Program, Keeper],
    [Supervisor, Keeper, Program],
    [Keeper, Program, Supervisor],
    [Keeper, Supervisor, Program],
];

/// Writes on until it is ended; says its number.
const TICKER: &str = "echo precious > file
    (while :; do echo tick >> file; sleep 0.05; done) > /dev/null 2>&1 < /dev/null & echo $!";
/// Files of a write-back that takes long enough to be met.
const FILES: usize = 4000;

fn number(images: &Images, who: Who) -> i32 {
    let field = if who == Keeper { "keeper" } else { "pid" };
    images.row("ci")[field].as_i64().unwrap_or_default() as i32
}

/// Kills one, and waits for the next of its kind.
fn kill_one(images: &Images, who: Who, program: i32) {
    if who == Program {
        kill(program);
        return until("it is gone", || images.row("ci")["processes"] == 0);
    }
    let before = number(images, who);
    kill(before);
    until("another one", || {
        let row = images.row("ci");
        row["state"] == "up" && ![0, before].contains(&number(images, who))
    });
}

fn ticker(images: &Images) -> i32 {
    images.up("ci");
    let said = images.script("ci", TICKER);
    until("it writes", || images.script("ci", "cat file").starts_with("precious\ntick\n"));
    said.trim().parse().expect("a number")
}

#[test]
fn whoever_is_killed_first_what_a_program_has_written_stays() {
    if against_native() {
        return;
    }
    for order in ORDERS {
        let images = Images::new("orders");
        let program = ticker(&images);
        for who in order {
            kill_one(&images, who, program);
        }
        let file = images.script("ci", "cat file");
        assert!(file.starts_with("precious\ntick\n"), "{order:?}: {file}");
        assert_eq!(images.row("ci")["state"], "up", "{order:?}");
        images.down("ci");
        let written = fs::read_to_string(images.work.join("file")).expect("written back");
        assert_eq!(written, file, "{order:?}");
    }
}

/// Between two kills, in steps of this: within `GAPS` of them the next supervisor, or keeper, is
/// started, told what it needs, and on its way.
const GAP: Duration = Duration::from_micros(250);
const GAPS: u32 = 24;

#[test]
fn supervisor_and_keeper_that_are_killed_shortly_after_each_other_lose_nothing() {
    if against_native() {
        return;
    }
    let images = Images::new("gaps");
    let program = ticker(&images);
    for (order, gap) in (0..=GAPS).flat_map(|n| [true, false].map(|order| (order, GAP * n))) {
        let (supervisor, keeper) = (number(&images, Supervisor), number(&images, Keeper));
        let (first, second) = if order { (supervisor, keeper) } else { (keeper, supervisor) };
        // Who is killed is not waited for: the other one is to meet it half-way.
        let pids = [first, second].map(|pid| Pid::from_raw(pid).expect("a number"));
        kill_process(pids[0], Signal::KILL).expect("it lives");
        let since = Instant::now();
        while since.elapsed() < gap {
            std::hint::spin_loop();
        }
        kill_process(pids[1], Signal::KILL).expect("it lives");
        let mut row = serde_json::Value::Null;
        until(&format!("supervisor first: {order}, then {gap:?}, and both are replaced"), || {
            row = images.row("ci");
            let now = ["pid", "keeper"].map(|who| row[who].as_i64().unwrap_or_default() as i32);
            assert_eq!(row["last_word"], serde_json::Value::Null, "{row}");
            row["state"] == "up" && now[0] != supervisor && ![0, keeper].contains(&now[1])
        });
        let file = images.script("ci", "cat file");
        assert!(file.starts_with("precious\ntick\n"), "{order} {gap:?}: {file}");
    }
    kill_one(&images, Program, program);
    images.down("ci");
    let written = fs::read_to_string(images.work.join("file")).expect("written back");
    assert!(written.starts_with("precious\ntick\n"), "{written}");
}

#[test]
fn two_that_are_killed_at_once_lose_nothing_but_supervisor_and_keeper_without_a_program() {
    if against_native() {
        return;
    }
    for pair in [[Program, Supervisor], [Program, Keeper], [Supervisor, Keeper]] {
        let images = Images::new("pairs");
        let program = ticker(&images);
        let (supervisor, keeper) = (number(&images, Supervisor), number(&images, Keeper));
        match pair {
            [Supervisor, Keeper] => images.kill_both("ci"),
            [_, second] => {
                kill(program);
                kill(if second == Keeper { keeper } else { supervisor });
            }
        }
        until("both are replaced", || {
            let row = images.row("ci");
            let now = (number(&images, Supervisor), number(&images, Keeper));
            let changed = (now.0 != supervisor, now.1 != keeper);
            let wanted = (pair.contains(&Supervisor), pair.contains(&Keeper));
            row["state"] == "up" && changed == wanted && now.1 != 0
        });
        if !pair.contains(&Program) {
            kill_one(&images, Program, program);
        }
        let file = images.script("ci", "cat file");
        assert!(file.starts_with("precious\ntick\n"), "{pair:?}: {file}");
        images.down("ci");
        let written = fs::read_to_string(images.work.join("file")).expect("written back");
        assert_eq!(written, file, "{pair:?}");
    }
    let images = Images::new("both");
    images.up("ci");
    images.script("ci", "echo gone > file");
    images.kill("ci");
    let output = images.husk(&["down", "ci"]);
    let lost = "husk: image ci had died: what it had not written back is lost\n";
    assert!(text(&output.stderr).ends_with(lost), "{}", shown(&output));
    nothing_half_way(&images);
}

/// No write-back of this image is half done; those of other tests are not looked at.
fn nothing_half_way(images: &Images) {
    let told = images.done(&["recover"]);
    assert!(!told.contains(images.work.to_str().expect("a plain path")), "{told}");
}

/// A `husk down` whose write-back has begun.
fn going_down(images: &Images) -> Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &["down", "ci"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("it has begun", || temporary(images) > 0 || images.work.join("1").exists());
    child
}

fn temporary(images: &Images) -> usize {
    let names = fs::read_dir(&images.work).expect("a directory").flatten();
    names.filter(|one| one.file_name().to_string_lossy().starts_with(".husk-tmp-")).count()
}

/// Here the program is the `husk down` that waits for the end.
#[test]
fn whoever_is_killed_during_a_write_back_all_of_it_comes_to_the_host() {
    if against_native() {
        return;
    }
    for order in ORDERS {
        let images = Images::new("orders-end");
        images.up("ci");
        images.script("ci", &format!("for i in $(seq {FILES}); do echo new > $i; done"));
        let mut asker = going_down(&images);
        for who in order {
            if images.row("ci") == serde_json::Value::Null {
                break;
            }
            if who == Program {
                asker.kill().expect("it is a child");
                continue;
            }
            let before = number(&images, who);
            kill(before);
            until("another one, or the end", || {
                let row = images.row("ci");
                row == serde_json::Value::Null || ![0, before].contains(&number(&images, who))
            });
        }
        let _ = asker.wait();
        until("it has ended", || {
            let row = images.row("ci");
            if row != serde_json::Value::Null {
                images.husk(&["down", "ci"]);
            }
            row == serde_json::Value::Null
        });
        nothing_half_way(&images);
        let mut found = BTreeMap::new();
        for n in 1..=FILES {
            let content = fs::read_to_string(images.work.join(n.to_string()));
            *found.entry(content.unwrap_or_default()).or_insert(0) += 1;
        }
        assert_eq!(found, BTreeMap::from([("new\n".to_owned(), FILES)]), "{order:?}");
        assert_eq!(temporary(&images), 0, "{order:?}");
    }
}
