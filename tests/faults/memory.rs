//! No memory left: the control group of all processes of an image may have no more.
//!
//! The host ends somebody then, by SIGKILL and at any instruction: natively the writer to a tmpfs,
//! in an image the program whose file takes it. The others go on, and the memory comes back.

use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use husk_tests::case::findings;
use husk_tests::{Run, Scratch, Side, against_native};

/// What the group may have, and what a program takes that is ended.
const LIMIT_BYTES: u64 = 256 << 20;
/// No run takes longer. A group that has just about enough fetches its programs again and again.
const LIMIT: Duration = Duration::from_secs(120);
/// Where the interface of groups that limit memory may be, by the file with the limit.
const INTERFACES: [(&str, &str, &str); 3] = [
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("", "/sys/fs/cgroup", "memory.max"),
    ("", "/sys/fs/cgroup/unified", "memory.max"),
];

/// A control group with little memory, removed in the end.
struct Group(PathBuf);

impl Group {
    /// A new one below this process's own; why there is none otherwise.
    fn new(name: &str) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut why = "no interface of control groups".to_owned();
        for (controller, root, limit) in INTERFACES {
            let mine = own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                rest.split_once(':').filter(|(name, _)| *name == controller).map(|(_, path)| path)
            });
            let Some(mine) = mine else { continue };
            match Self::below(&Path::new(root).join(mine.trim_start_matches('/')), name, limit) {
                Ok(group) => return Ok(group),
                Err(error) => why = format!("{root}: {error}"),
            }
        }
        Err(why)
    }

    fn below(parent: &Path, name: &str, limit: &str) -> Result<Self, Error> {
        let path = parent.join(format!("husk-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join(limit), LIMIT_BYTES.to_string())?;
        Ok(group)
    }

    /// `command`, in this group from its first instruction.
    fn around(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        inside
    }
}

impl Drop for Group {
    /// A group can be removed once its last process has been reaped.
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

/// Who takes too much by itself is ended, and natively so is who writes too much to a nameless
/// file; what had been there is there, and there is room for as much as before once the supervisor
/// knows of the death, a moment later: until then the host would end whoever needs a page, so the
/// shell waits for that by itself, without a process.
const SCRIPT: &str = r#"
exec 9<> <(:); cd /dev/shm; mkdir husk-memory-$$; cd husk-memory-$$
echo kept > kept; mkdir d; ln kept d/other
python3 -c 'x = bytearray(600 << 20)' 2> /dev/null; echo "hog $?"
cat kept d/other; stat -c '%h %s' kept
free=$(stat -f -c %f .)
python3 -c '
import os
fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
for _ in range(600): os.write(fd, b"x" * (1 << 20))
' 2> /dev/null; echo "writer $?"; read -t 1 -u 9
for n in $(seq 2000); do [ "$(stat -f -c %f .)" -ge "$free" ] && break; done
for n in 1 2 3; do
    head -c 60000000 /dev/zero > big; stat -c '%s' big; rm big
done
mv d/other e; rmdir d; cat e; ls
cd ..; rm -r husk-memory-$$; echo "left $?"
"#;
/// What it says, but for how the writer ends: an image has less than its group and is full first.
fn said(side: Side) -> String {
    let writer = if side == Side::Native { 137 } else { 1 };
    format!(
        "hog 137\nkept\nkept\n2 5\nwriter {writer}\n60000000\n60000000\n60000000\n\
         kept\ne\nkept\nleft 0\n"
    )
}

#[test]
fn who_takes_more_than_the_control_group_has_is_ended_and_the_others_go_on() {
    let group = match Group::new("taken") {
        Ok(group) => group,
        Err(why) => return println!("no control group can be made here ({why}): not tested"),
    };
    let scratch = Scratch::new("memory-group");
    for side in [Side::Native, Side::tested()] {
        let options = ["--memory", "512M", "--mount", "/dev/shm", "--discard"];
        let work = scratch.fresh("work");
        let command = group.around(&side.command(&options, &["bash", "-c", SCRIPT]));
        let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT);
        let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), said(side), "{side:?}\n{shown}");
        assert!(outcome.left.is_empty(), "{side:?}: left running: {:?}", outcome.left);
        if side == Side::Husk {
            let note = "husk: note: the control group has 256M of memory: the image holds at most";
            assert!(outcome.stderr.contains(note), "{shown}");
            assert!(findings(&outcome.stderr).is_empty(), "{shown}");
        }
    }
}

#[test]
fn an_image_takes_a_quarter_of_what_its_control_group_has_and_is_full_before_that_is() {
    if against_native() {
        return;
    }
    let group = match Group::new("quarter") {
        Ok(group) => group,
        Err(why) => return println!("no control group can be made here ({why}): not tested"),
    };
    let scratch = Scratch::new("memory-quarter");
    let work = scratch.fresh("work");
    let script = "cd /tmp; head -c 300000000 /dev/zero > big; echo $?; s=$(stat -c %s big)
        echo $((s > 40000000)) $((s < 70000000)); rm big; echo back > big; cat big";
    let mut command = Command::new(husk_tests::husk::binary());
    command.args(["run", "--discard", "--", "bash", "-c", script]).env("HUSK_FSCK", "1");
    let outcome = Run::start(group.around(&command), &work, scratch.path()).wait(LIMIT);
    let outcome = outcome.unwrap_or_else(|hang| panic!("{hang}"));
    let shown = outcome.shown();
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "1\n1 1\nback\n", "{shown}");
    assert!(findings(&outcome.stderr).is_empty(), "{shown}");
}

#[test]
fn the_programs_of_a_run_are_ended_before_its_supervisor() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("memory-scores");
    let work = scratch.fresh("work");
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("a score");
    let own: i32 = own.trim().parse().expect("a number");
    // The first program, one that it starts, and who holds the image: it has the score of programs
    // while it starts one.
    let script = format!(
        "cd /proc; cat self/oom_score_adj $$/oom_score_adj
        for n in $(seq 500); do
            read score < $PPID/oom_score_adj; [ $score -le {own} ] && break; sleep 0.01
        done; echo $score"
    );
    let mut command = Command::new(husk_tests::husk::binary());
    command.args(["run", "--discard", "--", "sh", "-c", &script]);
    let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT);
    let outcome = outcome.unwrap_or_else(|hang| panic!("{hang}"));
    let scores: Vec<i32> = String::from_utf8_lossy(&outcome.stdout)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let [child, first, holder] = scores[..] else { panic!("{}", outcome.shown()) };
    assert_eq!([child, first], [(own + 300).min(1000); 2], "{}", outcome.shown());
    assert!(holder <= own, "{holder}, {own} before");
}

/// In the group are the shell, keeper and supervisor of the image, its programs, and each hog.
const NAMED: &str = r#"
export HUSK_IMAGES=$PWD/../images/husk
who() { "$HUSK" ls --json | python3 -c 'import json, sys
keys = ["state", "pid", "keeper", "processes"]
print(*[[one[key] for key in keys] for one in json.load(sys.stdin)])'; }
"$HUSK" up ci --memory 64M --overlay "$PWD" 2> /dev/null
"$HUSK" exec ci -- sh -c 'echo kept > kept; (trap "" HUP; exec sleep 1000) > /dev/null 2>&1 &'
before=$(who)
for n in 1 2 3; do
    "$HUSK" exec ci -- python3 -c 'x = bytearray(600 << 20)' 2> /dev/null; echo "hog $?"
    "$HUSK" exec ci -- sh -c 'python3 -c "x = bytearray(600 << 20)"; echo "inner $?"' 2> /dev/null
    "$HUSK" exec ci -- sh -c "echo $n >> kept; cat kept"
done
for n in $(seq 500); do [ "$(who)" = "$before" ] && break; done
[ "$(who)" = "$before" ] && echo the same || echo "$before, $(who)"
"$HUSK" down ci --force > /dev/null 2>&1; echo "down $?"; cat kept
"#;

#[test]
fn a_hog_in_a_named_image_loses_its_process_and_the_image_stays() {
    if against_native() {
        return;
    }
    let group = match Group::new("named") {
        Ok(group) => group,
        Err(why) => return println!("no control group can be made here ({why}): not tested"),
    };
    let scratch = Scratch::new("memory-named");
    let work = scratch.fresh("work");
    scratch.fresh("images");
    let mut command = Command::new("bash");
    command.args(["-c", NAMED]).env("HUSK", husk_tests::husk::binary());
    let outcome = Run::start(group.around(&command), &work, scratch.path()).wait(LIMIT);
    let outcome = outcome.unwrap_or_else(|hang| panic!("{hang}"));
    let turn = |n: u32| {
        let kept: String = (1..=n).map(|n| format!("{n}\n")).collect();
        format!("hog 137\ninner 137\nkept\n{kept}")
    };
    let all = [turn(1), turn(2), turn(3)].concat();
    let expected = format!("{all}the same\ndown 0\nkept\n1\n2\n3\n");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
}
