//! The supervisor is killed while everything goes on: who works, comes and goes notices nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use husk_tests::against_native;
use husk_tests::husk::binary;
use husk_tests::process::kill;

use crate::{Images, shown, text, until};

/// Kills; ten within a minute are one too many.
const KILLS: u32 = 8;

/// A round: names made and moved by several at once, a lock handed on, a child that is killed, one
/// that outlives its parent, and a line when it is over.
const WORKER: &str = r#"
round=0
while ! read -rt 0; do
    round=$((round + 1)); mkdir d$round
    for n in 1 2 3 4; do (echo $round.$n > d$round/$n; flock lock sh -c "echo $round >> log") & done
    sleep 1000 & killed=$!
    ( (echo orphan > d$round/orphan) & )
    kill -KILL $killed; wait $killed 2> /dev/null || :
    wait; mv d$round/1 d$round/one; rm d$round/2
    while [ ! -s d$round/orphan ]; do :; done
    echo $round
done
"#;

/// What a supervisor must not have lost: each round's names, bytes and lines.
const LOOK: &str = r#"
test $(ls -d d* | wc -l) = $1
for n in $(seq $1); do
    names=$(cd d$n; ls | tr '\n' ' ') bytes=$(cat d$n/one d$n/3 d$n/4 | tr '\n' ' ')
    test "$names$bytes" = "3 4 one orphan $n.1 $n.3 $n.4 "
    test $(grep -cx $n log) = 4
done
echo whole
"#;

fn worker(images: &Images) -> Child {
    let husk = binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &["exec", "ci", "--", "bash", "-uc", WORKER]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

#[test]
fn a_supervisor_that_is_killed_at_any_moment_costs_nobody_anything() {
    if against_native() {
        return;
    }
    let images = Images::new("storms");
    images.up("ci");
    let mut child = worker(&images);
    let output = child.stdout.take().expect("a pipe");
    let (over, entered) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut rounds = BufReader::new(output).lines().map(|line| line.expect("a line"));
    std::thread::scope(|scope| {
        // Who enters all the while.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let output = images.husk(&["exec", "ci", "--", "cat", "/dev/null"]);
                if !output.status.success() {
                    over.store(true, Ordering::Relaxed);
                    panic!("{}", shown(&output));
                }
                entered.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..KILLS {
            // Somewhere in a round, and sometimes before the next supervisor has settled.
            rounds.next().expect("it goes on");
            let before = images.supervisor("ci");
            kill(before);
            until("another supervisor", || {
                let row = images.row("ci");
                over.load(Ordering::Relaxed) || row["state"] == "up" && row["pid"] != before
            });
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(entered.load(Ordering::Relaxed) > KILLS, "hardly anybody entered");
    drop(child.stdin.take());
    let last = rounds.last().expect("one more");
    let ended = child.wait_with_output().expect("its status");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", text(&ended.stderr));
    let words = ["exec", "ci", "--", "bash", "-euc", LOOK, "look", &last];
    assert_eq!(images.done(&words), "whole\n");
    until("nobody is left", || images.row("ci")["processes"] == 0);
    images.done(&["fsck", "ci"]);
    assert_eq!(images.down("ci"), "");
    let count = std::fs::read_dir(&images.work).expect("the host's").count();
    assert_eq!(count, last.parse::<usize>().expect("a number") + 2, "all is on the host");
}
