//! A `husk run` that is killed in the middle of its write-back.

use std::fs;
use std::process::Command;

use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// More files than a kill comes too late for, as a rule; the line `half` where it did not.
const KILLED: &str = r#"
cd "$WORK"; rm -rf ./*; for i in $(seq 1500); do echo old > $i; done; echo old > kept
"$HUSK" run --memory 64M -- bash -c 'for i in [0-9]*; do echo new > $i; done' > /dev/null 2>&1 &
until grep -qs Ready "$XDG_STATE_HOME"/husk/write-back/*.manifest || ! kill -0 $! 2> /dev/null
do :; done
kill -9 $! 2> /dev/null || true; wait $! || true
case $("$HUSK" recover --json) in *half*) echo half;; *) exit 0;; esac
"$HUSK" run --memory 64M -- true 2>&1 | grep -c 'husk recover forward'
# Not mounted, or moved: nothing is given up.
mv "$WORK" "$WORK.away"; "$HUSK" recover "$WAY" 2>&1 | grep -c 'nothing of this write-back'
mkdir "$WORK"; "$HUSK" recover | grep -c ' - '
"$HUSK" recover "$WAY" 2>&1 | grep -c 'nothing of this write-back'
rmdir "$WORK"; mv "$WORK.away" "$WORK"
"$HUSK" recover "$WAY" | grep -c 'write-back to'
cat [0-9]* | sort | uniq -c | tr -s ' '
ls -a | grep -c '[.]husk-tmp-' || true
"$HUSK" recover
"#;
/// Kills of which one comes in the middle.
const KILLS_MAX: u32 = 12;

#[test]
fn a_run_killed_in_its_write_back_is_finished_or_undone_as_a_whole() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("recovered");
    let (work, state) = (scratch.fresh("work"), scratch.fresh("state"));
    let binary = husk(&[], &["true"]).get_program().to_owned();
    for way in ["forward", "back"] {
        let seen = (0..KILLS_MAX).any(|_| {
            let mut command = Command::new("bash");
            command.args(["-uc", KILLED]).env("WORK", &work).env("WAY", way);
            command.env("XDG_STATE_HOME", &state).env("HUSK", &binary);
            let outcome = run(&scratch, &work, command);
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            if text.is_empty() {
                return false;
            }
            let now = |what: &str| {
                format!("half\n1\n1\n1\n1\n1\n 1500 {what}\n0\nno write-back was interrupted\n")
            };
            // Too late to undo: it says so.
            let late = way == "back" && outcome.stderr.contains("it has begun to remove");
            let right = text == now(if way == "forward" { "new" } else { "old" });
            assert!(right || late, "{way}: {}", outcome.shown());
            fs::remove_dir_all(state.join("husk/write-back")).expect("the manifests");
            right
        });
        assert!(seen, "{KILLS_MAX} kills, and none in the middle of {way}");
    }
}

/// The same kill; then each command about an image in that directory. The lines that name what to
/// type, command by command.
const TOLD: &str = r#"
cd "$WORK"; rm -rf ./*; for i in $(seq 1500); do echo old > $i; done
"$HUSK" run --memory 64M -- bash -c 'for i in [0-9]*; do echo new > $i; done' > /dev/null 2>&1 &
until grep -qs Ready "$XDG_STATE_HOME"/husk/write-back/*.manifest || ! kill -0 $! 2> /dev/null
do :; done
kill -9 $! 2> /dev/null || true; wait $! || true
case $("$HUSK" recover --json) in *half*) ;; *) exit 0;; esac
told() { echo "$1 $("$HUSK" "$@" 2>&1 > /dev/null | grep -c 'note: .*husk recover forward')"; }
told up halved --memory 64M --overlay "$WORK"
told ls; told diff halved; told sync halved --dry-run; told sync halved
told ps halved; told exec halved -- true; told cp halved:/absent absent; told refresh halved
told stat halved; told top halved --once; told metrics halved; told fsck halved; told nodes halved
told kill halved 1; told explain halved 1; told trace halved -p 1; told net ls halved
told mount halved /absent; told rescue ls
"$HUSK" run --memory 64M -- sleep 1000 2> /dev/null &
until "$HUSK" ps $! > /dev/null 2>&1; do :; done
told stat $!; told ps $!; told diff $!; kill $!; wait $! || true
"$HUSK" ls --json | tr -d ' \n' | grep -o '"half_written":\["[0-9a-f]*"\]' | wc -l
told down halved
"$HUSK" recover forward | wc -l; told ls
"#;

#[test]
fn each_command_about_a_tree_says_that_a_write_back_was_killed_in_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("halved");
    let (work, state) = (scratch.fresh("work"), scratch.fresh("state"));
    let binary = husk(&[], &["true"]).get_program().to_owned();
    let seen = (0..KILLS_MAX).any(|_| {
        let mut command = Command::new("bash");
        command.args(["-uc", TOLD]).env("WORK", &work).env("HUSK", &binary);
        command.env("XDG_STATE_HOME", &state);
        let outcome = run(&scratch, &work, command);
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let each = "up ls diff sync sync ps exec cp refresh stat top metrics fsck nodes kill \
                    explain trace net mount rescue stat ps diff";
        let each: String = each.split(' ').map(|verb| format!("{verb} 1\n")).collect();
        let wanted = format!("{each}1\ndown 1\n1\nls 0\n");
        assert!(text.is_empty() || text == wanted, "{}", outcome.shown());
        !text.is_empty()
    });
    assert!(seen, "{KILLS_MAX} kills, and none in the middle");
}

/// The line `stopped` where two signals came in time.
const STOPPED: &str = r#"
cd "$WORK"; rm -rf ./*
"$HUSK" run --memory 64M -- bash -c 'for i in $(seq 5000); do echo new > $i; done' 2> "$OUT/said" &
until ls -a | grep -q '[.]husk-tmp-' || ! kill -0 $! 2> /dev/null; do :; done
kill -TERM $!; until grep -q 'files left' "$OUT/said" || ! kill -0 $! 2> /dev/null; do :; done
kill -TERM $!; wait $!
name=$(grep -o 'image run-[0-9]*' "$OUT/said") || exit 0; name=${name#image }
echo stopped; ls -A | wc -l; "$HUSK" down "$name" > /dev/null 2>&1
cat * | sort | uniq -c | tr -s ' '; ls -a | grep -c '[.]husk-tmp-' || true
"#;

#[test]
fn a_second_signal_stops_a_write_back_and_the_image_stays() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("stopped");
    let (work, out) = (scratch.fresh("work"), scratch.fresh("out"));
    let state = scratch.fresh("state");
    let binary = husk(&[], &["true"]).get_program().to_owned();
    let seen = (0..KILLS_MAX).any(|_| {
        let mut command = Command::new("bash");
        command.args(["-uc", STOPPED]).env("WORK", &work).env("OUT", &out).env("HUSK", &binary);
        // Notes of write-backs that other tests kill name images, too.
        command.env("XDG_STATE_HOME", &state);
        let outcome = run(&scratch, &work, command);
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(text.is_empty() || text == "stopped\n0\n 5000 new\n0\n", "{}", outcome.shown());
        !text.is_empty()
    });
    assert!(seen, "{KILLS_MAX} write-backs, and none was stopped");
}
