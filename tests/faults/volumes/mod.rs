//! Everything that serves a volume is killed at once: what was acknowledged is there afterwards.
//!
//! A program makes step after step durable in one way and prints each; the last line that came out
//! is the oracle, outside of the image.

mod crowd;
mod databases;
mod resize;
mod stores;
mod table;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use husk_tests::husk::{binary, husk};
use husk_tests::run::patience;
use husk_tests::toolchain::build_c_with;
use husk_tests::{Outcome, Run, Scratch, against_native, process};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::Dice;

/// Times that one way is killed.
const ROUNDS: usize = 4;
/// The same where the log is full after four steps: most of the time is a checkpoint's.
const CHECKPOINT_ROUNDS: usize = 12;
const LIMIT: Duration = Duration::from_secs(60);

/// What a program is to do with its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    /// Go on where it was.
    Go,
    /// Say how many there are.
    Look,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Look => "look",
        }
    }
}

/// A user with a volume, and the place where it is shown.
struct Room {
    scratch: Scratch,
    tree: PathBuf,
}

impl Room {
    fn new(name: &str, size: &str) -> Self {
        let scratch = Scratch::new(name);
        let tree = scratch.fresh("tree");
        scratch.fresh("state");
        let room = Self { scratch, tree };
        let outcome = room.run(room.volume(&["create", "data", "--size", size]));
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
        room
    }

    /// The path of a file beside it.
    fn path(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn tree(&self) -> String {
        self.tree.to_str().expect("a plain path").to_owned()
    }

    fn with_state(&self, mut command: Command) -> Command {
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command
    }

    fn volume(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("volume").args(arguments);
        self.with_state(command)
    }

    /// Runs a program where the volume is shown.
    fn command(&self, memory: &str, argv: &[&str]) -> Command {
        self.command_with("fsync", memory, argv)
    }

    /// The same with a policy.
    fn command_with(&self, policy: &str, memory: &str, argv: &[&str]) -> Command {
        if against_native() {
            let mut command = Command::new(argv[0]);
            command.args(&argv[1..]);
            return command;
        }
        let volume = format!("data:{}:{policy}", self.tree());
        self.with_state(husk(&["--memory", memory, "--volume", &volume], argv))
    }

    fn run(&self, command: Command) -> Outcome {
        let (work, out) = (self.scratch.fresh("work"), self.scratch.fresh("out"));
        Run::start(command, &work, &out).wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
    }

    /// Lets it go on until it has made `steps` steps more, and kills all of it; the last step that
    /// was printed.
    fn kill_after(&self, command: Command, name: &str, steps: usize) -> u64 {
        let whole = self.printed_before_death(command, name, steps);
        whole.lines().last().map_or(0, |line| line.parse().expect("a step"))
    }

    /// The same; all whole lines that were printed.
    fn printed_before_death(&self, mut command: Command, name: &str, steps: usize) -> String {
        let (work, out) = (self.scratch.fresh("work"), self.scratch.fresh("out"));
        command.process_group(0);
        let mut run = Run::start(command, &work, &out);
        for _ in 0..6000 * patience() {
            if run.stdout().iter().filter(|&&byte| byte == b'\n').count() >= steps {
                break;
            }
            if run.ended() {
                let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
                panic!("{name}: it has ended by itself: {}", outcome.shown());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let group = Pid::from_raw(run.pid()).expect("a process");
        kill_process_group(group, Signal::KILL).expect("they are there");
        // Those with a session of their own, too.
        run.descendants().iter().for_each(|found| _ = process::kill(found.pid));
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
        let text = String::from_utf8(outcome.stdout).expect("text");
        text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned()
    }

    fn there(&self, command: Command, name: &str) -> u64 {
        let outcome = self.run(command);
        assert_eq!(outcome.code(), 0, "{name}: {}", outcome.shown());
        let text = String::from_utf8(outcome.stdout).expect("text");
        text.trim().parse().expect("a step")
    }

    fn is_clean(&self) {
        let outcome = self.run(self.volume(&["check", "data"]));
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    }
}

/// Kills one way of making durable again and again.
fn survives(ways: &[&str]) {
    survives_in("16M", ROUNDS, ways);
}

fn survives_in(size: &str, rounds: usize, ways: &[&str]) {
    survives_with("fsync", size, rounds, ways);
}

/// With a policy that makes each change durable, the program syncs nothing.
fn survives_with(policy: &str, size: &str, rounds: usize, ways: &[&str]) {
    let is_plain = policy == "immediate";
    if is_plain && against_native() {
        // Linux has no such directory, and nothing of it is killed.
        return;
    }
    let (mut dice, room) = (Dice::new(), Room::new("durable", size));
    let program = room.path("durable");
    build_c_with(include_str!("../sources/durable.c"), Path::new(&program), &[]);
    let tree = room.tree();
    for way in ways {
        let command = |verb: Verb| {
            let argv = [&program, verb.word(), way, &tree];
            let mut command = room.command_with(policy, "128M", &argv);
            if is_plain {
                command.env("PLAIN", "1");
            }
            command
        };
        let mut acknowledged = 0;
        for round in 0..rounds {
            let printed = room.kill_after(command(Verb::Go), way, 1 + dice.below(150));
            acknowledged = printed.max(acknowledged);
            let there = room.there(command(Verb::Look), way);
            assert!(there >= acknowledged, "{way}, round {round}: {acknowledged}, but {there}");
        }
    }
    room.is_clean();
}

#[test]
fn what_fsync_and_fdatasync_acknowledged_survives_the_death_of_all() {
    survives(&["fsync", "fdatasync"]);
}

#[test]
fn what_synchronous_writes_acknowledged_survives_the_death_of_all() {
    survives(&["dsync", "rwf"]);
}

#[test]
fn what_syncfs_sync_and_msync_acknowledged_survives_the_death_of_all() {
    survives(&["syncfs", "sync", "msync"]);
}

#[test]
fn what_was_acknowledged_before_and_beside_a_checkpoint_survives_the_death_of_all() {
    survives_in("2M", CHECKPOINT_ROUNDS, &["turn"]);
}

#[test]
fn the_length_of_a_file_that_grew_unwritten_survives_the_death_of_all() {
    survives(&["grow"]);
}

#[test]
fn a_replaced_file_is_the_old_one_or_the_new_one_after_the_death_of_all() {
    survives(&["replace"]);
}

#[test]
fn the_names_that_lead_to_a_synced_file_survive_the_death_of_all() {
    survives(&["names"]);
}

#[test]
fn what_an_immediate_volume_was_given_survives_the_death_of_all_without_a_sync() {
    survives_with("immediate", "16M", ROUNDS, &["fsync", "grow", "replace", "names"]);
}

#[test]
fn of_an_asynchronous_volume_the_death_of_all_takes_the_last_part_alone() {
    survives_with("async=100", "16M", 2 * ROUNDS, &["pairs"]);
}
