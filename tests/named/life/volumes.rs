//! Volumes of images with a name: who has one, what a killed supervisor means for who syncs, and
//! what is said and done after a write of the log has failed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::{Images, shown, text, until};

/// Writes of an area that begin here fail once a supervisor's files may not be longer: its log.
const LOG_AT: u64 = 16 << 10;

/// Makes steps durable and prints each, for ever, or as many as it is told.
const STEPS: &str = r#"
import os, sys
fd = os.open(sys.argv[1] + "/steps", os.O_CREAT | os.O_RDWR, 0o644)
done = os.fstat(fd).st_size // 8
while len(sys.argv) < 3 or done < int(sys.argv[2]):
    done += 1
    os.pwrite(fd, b"%8d" % done, (done - 1) * 8)
    os.fsync(fd)
    print(done, flush=True)
"#;

/// Syncs files from several threads at once, and prints what each was told.
const THREADS: &str = r#"
import errno, os, sys, threading
told = []
def sync(n):
    fd = os.open("%s/file%d" % (sys.argv[1], n), os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 5000)
    try:
        os.fsync(fd)
        told.append("durable")
    except OSError as error:
        told.append(errno.errorcode[error.errno])
threads = [threading.Thread(target=sync, args=(n,)) for n in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*sorted(set(told)), len(told))
print(open(sys.argv[1] + "/steps").read().split()[-1])
"#;

struct Room {
    images: Images,
    tree: String,
}

impl Room {
    fn new(name: &str) -> Room {
        let images = Images::new(name);
        images.scratch.fresh("state");
        let tree = images.scratch.fresh("tree").to_str().expect("a plain path").to_owned();
        let room = Room { images, tree };
        room.done(&["volume", "create", "data", "--size", "16M"]);
        room
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let husk = binary().to_str().expect("a plain path");
        let mut command = self.images.command(husk, arguments);
        command.env("XDG_STATE_HOME", self.images.scratch.path().join("state"));
        command
    }

    fn husk(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("timeout starts")
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.husk(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        text(&output.stdout)
    }

    fn fails(&self, arguments: &[&str], mentions: &[&str]) {
        let output = self.husk(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
        for word in mentions {
            assert!(said.contains(word), "no {word:?}: {said}");
        }
    }

    fn up(&self) {
        self.up_with("fsync");
    }

    fn up_with(&self, policy: &str) {
        let volume = format!("data:{}:{policy}", self.tree);
        self.done(&["up", "ci", "--memory", "64M", "--discard", "--volume", &volume]);
    }

    fn python(&self, script: &str, more: &[&str]) -> Command {
        let words = ["exec", "ci", "--", "python3", "-c", script, &self.tree];
        self.command(&[&words[..], more].concat())
    }

    fn printed(&self, script: &str, more: &[&str]) -> String {
        let output = self.python(script, more).output().expect("timeout starts");
        assert!(output.status.success(), "{}", shown(&output));
        text(&output.stdout)
    }

    fn stat(&self) -> Value {
        serde_json::from_str(&self.done(&["volume", "stat", "data", "--json"])).expect("JSON")
    }
}

#[test]
fn a_volume_of_an_image_with_a_name_has_one_user_and_is_in_the_next_image_as_it_was() {
    if against_native() {
        return;
    }
    let room = Room::new("volumes");
    assert_eq!(room.stat()["served"], Value::Null);
    room.up();
    assert_eq!(room.printed(STEPS, &["40"]).lines().last(), Some("40"));
    let volume = format!("data:{}", room.tree);
    let supervisor = room.images.supervisor("ci");
    let uses = format!("process {supervisor} uses it");
    room.fails(&["up", "other", "--memory", "64M", "--volume", &volume], &[&uses]);
    room.fails(&["run", "--memory", "64M", "--volume", &volume, "--", "true"], &[&uses]);
    room.fails(&["volume", "rm", "data"], &[&uses]);
    room.fails(&["volume", "check", "data"], &[&uses]);
    let served = room.stat()["served"].clone();
    let number = |what: &str| served[what].as_u64().unwrap_or_else(|| panic!("{what}: {served}"));
    assert!(number("syncs") == 40 && number("groups") == 40 && number("flushes") >= 40);
    assert!(number("log_bytes") > 0 && number("log_bytes") < number("log_room_bytes"));
    assert_eq!(served["stopped"], false);
    assert!(room.done(&["volume", "stat", "data"]).contains("syncs     40, in 40 groups (1.0"));
    let metrics = room.done(&["volume", "stat", "data", "--openmetrics"]);
    assert!(metrics.contains("husk_volume_syncs_total{volume=\"data\"} 40\n"), "{metrics}");
    assert!(
        metrics.ends_with(
            "le=\"+Inf\"} 40\nhusk_volume_group_seconds_count\
                               {volume=\"data\"} 40\n# EOF\n"
        ),
        "{metrics}"
    );
    room.done(&["down", "ci"]);
    assert_eq!(room.done(&["volume", "check", "data"]), "data: clean\n");
    room.up();
    assert_eq!(room.printed(STEPS, &["41"]), "41\n");
    room.done(&["down", "ci"]);
}

#[test]
fn who_syncs_waits_for_the_next_supervisor_and_what_was_acknowledged_survives_the_death_of_all() {
    if against_native() {
        return;
    }
    let room = Room::new("followed");
    room.up();
    let mut steps = room.python(STEPS, &[]);
    let mut steps =
        steps.env("OF", &room.tree).stdout(Stdio::piped()).spawn().expect("timeout starts");
    let mut lines = BufReader::new(steps.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("it goes on").expect("text").parse().expect("a step");
    for _ in 0..3 {
        while next() % 50 != 49_u64 {}
        room.images.kill_supervisor("ci");
        // Those that were under way when it died, and some that are not.
        (0..20).for_each(|_| _ = next());
    }
    let epoch = room.stat()["epoch"].as_u64().expect("a number");
    assert!(epoch >= 4, "{epoch}");
    let mut last = next();
    for found in husk_tests::process::marked(&format!("OF={}", room.tree)) {
        husk_tests::process::kill(found.pid);
    }
    room.images.kill("ci");
    steps.wait().expect("its end");
    last = lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().unwrap_or(last);
    // What is left of it is in nobody's way.
    room.husk(&["down", "ci"]);
    until("nobody has the volume", || room.husk(&["volume", "check", "data"]).status.success());
    room.up();
    let look = "import os, sys\nprint(os.path.getsize(sys.argv[1] + '/steps') // 8)\n";
    let there: u64 = room.printed(look, &[]).trim().parse().expect("a step");
    assert!(there >= last, "{there} of {last}");
    room.done(&["down", "ci"]);
}

#[test]
fn the_next_supervisor_has_the_policy_and_what_was_acknowledged_before_it_was_durable() {
    if against_native() {
        return;
    }
    let room = Room::new("policy");
    let served = |what: &str| room.stat()["served"][what].clone();
    for (policy, step) in [("async=60000", 200), ("immediate", 400)] {
        room.up_with(policy);
        room.printed(STEPS, &[&step.to_string()]);
        let flushes = served("flushes").as_u64().expect("a number");
        assert_eq!(served("policy"), policy);
        assert_eq!(flushes < 100, policy != "immediate", "{policy}: {flushes}");
        room.images.kill_supervisor("ci");
        assert_eq!(room.printed(STEPS, &[&(step + 1).to_string()]), format!("{}\n", step + 1));
        assert_eq!(served("policy"), policy);
        room.done(&["down", "ci"]);
        assert_eq!(room.done(&["volume", "check", "data"]), "data: clean\n");
    }
    room.up();
    assert_eq!(room.printed(STEPS, &["402"]), "402\n");
    assert_eq!(served("policy"), "fsync");
    room.done(&["down", "ci"]);
}

#[test]
fn after_a_failed_write_syncs_get_eio_reads_go_on_and_it_is_told() {
    if against_native() {
        return;
    }
    let room = Room::new("stopped");
    room.up();
    room.printed(STEPS, &["5"]);
    let supervisor = Pid::from_raw(room.images.supervisor("ci")).expect("a number");
    let limit = Rlimit { current: Some(LOG_AT), maximum: Some(LOG_AT) };
    prlimit(Some(supervisor), Resource::Fsize, limit).expect("a process of ours");
    for _ in 0..2 {
        assert_eq!(room.printed(THREADS, &[]), "EIO 8\n5\n");
    }
    let told = "volume data: a write to its disk has failed: nothing is made durable any more";
    assert!(room.done(&["ls"]).contains(told), "{}", room.done(&["ls"]));
    assert!(room.done(&["ls", "--json"]).contains(told));
    assert_eq!(room.stat()["served"]["stopped"], true);
    // The next supervisor tries nothing again, though its own writes would not fail.
    room.images.kill_supervisor("ci");
    assert_eq!(room.printed(THREADS, &[]), "EIO 8\n5\n");
    assert!(room.done(&["ls"]).contains(told));
    let down = room.husk(&["down", "ci"]);
    assert_eq!(down.status.code(), Some(125), "{}", shown(&down));
    assert!(text(&down.stderr).contains("volume data: "), "{}", shown(&down));
    assert_eq!(room.done(&["volume", "check", "data"]), "data: clean\n");
    room.up();
    assert_eq!(room.printed(STEPS, &["6"]), "6\n");
    room.done(&["down", "ci"]);
}

#[test]
fn a_resize_without_room_changes_nothing_and_one_whose_supervisor_is_killed_goes_on() {
    if against_native() {
        return;
    }
    let room = Room::new("larger");
    room.up();
    room.printed(STEPS, &["5"]);
    let supervisor = Pid::from_raw(room.images.supervisor("ci")).expect("a number");
    let limit = |most| {
        let limit = Rlimit { current: most, maximum: None };
        prlimit(Some(supervisor), Resource::Fsize, limit).expect("a process of ours");
    };
    limit(Some(20 << 20));
    room.fails(&["volume", "resize", "data", "--size", "64M"], &["cannot resize", "too large"]);
    assert_eq!(room.printed(STEPS, &["6"]), "6\n");
    limit(None);
    let areas = room.images.scratch.path().join("state/husk/volumes");
    let beside = areas.join("data.husk-area.new");
    assert!(!beside.exists());
    let mut resize = room.command(&["volume", "resize", "data", "--size", "256M"]);
    let mut resize = resize.spawn().expect("timeout starts");
    until("it is made", || beside.exists());
    room.images.kill_supervisor("ci");
    assert!(resize.wait().expect("its end").success());
    assert_eq!(room.stat()["size_bytes"], 256 << 20);
    assert!(!beside.exists());
    assert_eq!(room.printed(STEPS, &["7"]), "7\n");
    room.images.kill_supervisor("ci");
    assert_eq!(room.printed(STEPS, &["8"]), "8\n");
    room.done(&["down", "ci"]);
    assert_eq!(room.done(&["volume", "check", "data"]), "data: clean\n");
}
