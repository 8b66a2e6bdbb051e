//! Images with a name on other hosts: `husk up --on`, `husk node add` and `remove`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use husk_tests::{Run, process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::host::{Host, until};
use crate::LIMIT;

/// An image `ci` of a host's own, and what it overlays.
struct Image<'a> {
    host: &'a Host,
    work: PathBuf,
}

impl<'a> Image<'a> {
    /// Not made yet.
    fn new(host: &'a Host) -> Image<'a> {
        Image { host, work: host.scratch.fresh("work") }
    }

    /// Begins a command of which the end is waited for later.
    fn start(&self, words: &[&str]) -> Run {
        Run::start(self.host.husk(words), &self.work, self.host.scratch.path())
    }

    /// What becomes of a command; what it starts in the background stays.
    fn husk(&self, words: &[&str]) -> Output {
        let husk = self.host.husk(words);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &LIMIT.as_secs().to_string()]);
        command.arg(husk.get_program()).args(husk.get_args());
        command.envs(husk.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(&self.work).stdin(Stdio::null()).env("LC_ALL", "C");
        command.output().expect("timeout starts")
    }

    /// The same, which must succeed.
    fn done(&self, words: &[&str]) -> Output {
        let output = self.husk(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    /// The one line of a refusal.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.husk(words);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {output:?}");
        let said = told(&output);
        let lines: Vec<_> = said.lines().filter(|line| !line.contains("copying husk")).collect();
        let [line] = lines[..] else { panic!("one line: {said}") };
        line.to_owned()
    }

    fn up(&self, more: &[&str]) {
        let work = self.work.to_str().expect("a plain path");
        self.done(&[&["up", "ci", "--memory", "128M", "--overlay", work], more].concat());
    }

    fn rows(&self, command: &str) -> Vec<Value> {
        let outcome = self.done(&[command, "--json", "ci"]);
        serde_json::from_slice(&outcome.stdout).expect("JSON")
    }

    /// The host with this number.
    fn row(&self, number: usize) -> Value {
        self.rows("nodes").get(number).cloned().unwrap_or_default()
    }

    fn is_up(&self) -> bool {
        self.row(1)["up"] == true
    }

    /// Programs that have run on the first host.
    fn programs(&self) -> u64 {
        self.row(1)["host"]["programs"].as_u64().unwrap_or(0)
    }

    fn facts(&self) -> Value {
        let listed: Value =
            serde_json::from_slice(&self.done(&["ls", "--json"]).stdout).expect("JSON");
        listed.as_array().and_then(|all| all.first()).cloned().unwrap_or_default()
    }

    /// A process of the image by what `husk ls` calls it.
    fn number(&self, who: &str) -> i32 {
        self.facts()[who].as_i64().expect("a number") as i32
    }

    /// Takes the image down, whose structure must be clean.
    fn down(&self) -> String {
        let said = told(&self.done(&["down", "ci"]));
        assert!(said.contains("husk: fsck: clean"), "{said}");
        assert_eq!(self.facts(), Value::Null);
        self.host.nothing_is_left();
        said
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        // Whatever a failed test has left.
        self.husk(&["down", "ci", "--discard", "--force"]);
    }
}

/// What a command said on standard error.
fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A script that goes on when `path` is there.
fn after(path: &Path) -> String {
    format!("until [ -e {} ]; do sleep 0.05; done", path.display())
}

#[test]
fn an_image_that_stays_runs_programs_on_another_host_and_leaves_nothing_there() {
    let Some(host) = Host::new("hosts-up") else { return };
    let image = Image::new(&host);
    fs::write(image.work.join("old"), "bytes of home\n").expect("a file");
    image.up(&["--on", "h"]);
    assert!(image.is_up());
    let script = "exec </dev/null; HUSK_NODE=1 cat old; echo new > made; HUSK_NODE=1 cat made
cd /; HUSK_NODE=1 /bin/true; exit 7";
    let output = image.husk(&["exec", "ci", "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "bytes of home\nnew\n");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(image.programs(), 2, "what is outside of the trees stays: {:#}", image.row(1));
    // What a caller has open beside the standard descriptors stays with it.
    let mut command = Command::new("bash");
    let inner = host.husk(&[]);
    command.args(["-c", "exec 7</dev/zero; exec \"$@\"", "bash"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.args(["exec", "ci", "--", "sh", "-c", "HUSK_NODE=1 /bin/true </dev/null"]);
    let status = command.current_dir(&image.work).status().expect("bash");
    assert_eq!((status.code(), image.programs()), (Some(0), 3), "{:#}", image.row(1));
    let line = image.refused(&["exec", "--node", "1", "ci", "--", "true"]);
    assert!(line.contains("HUSK_NODE=1 in a shell"), "{line}");
    let output = image.husk(&["exec", "ci", "--", "sh", "-c", "HUSK_NODE=2 /bin/true"]);
    assert!(told(&output).contains("HUSK_NODE is 2; set it to 0 to 1"), "{output:?}");
    image.done(&["sync", "ci"]);
    assert_eq!(fs::read_to_string(image.work.join("made")).expect("synced"), "new\n");
    assert!(image.down().contains("husk: h: 3 programs ran there"));
}

#[test]
fn a_host_comes_into_an_image_and_leaves_it_while_programs_run() {
    let Some(host) = Host::new("hosts-add") else { return };
    let image = Image::new(&host);
    image.up(&[]);
    let go = image.work.join("go");
    let script = format!(
        "exec </dev/null; echo begun; {}; HUSK_NODE=1 sleep 300; echo $?; HUSK_NODE=0 /bin/true",
        after(&go)
    );
    let running = image.start(&["exec", "ci", "--", "bash", "-c", &script]);
    until("it runs", || !image.rows("ps").is_empty());
    assert_eq!(image.rows("nodes").len(), 1);
    image.done(&["node", "add", "ci", "h"]);
    assert!(image.is_up());
    assert!(image.refused(&["node", "add", "ci", "h"]).contains("it is in the image already"));
    image.done(&["exec", "ci", "--", "touch", "go"]);
    until("its process there", || host.exactly("sleep 300").is_some());
    let line = image.refused(&["node", "remove", "ci", "h"]);
    assert!(line.contains("1 programs run there, as sleep") && line.contains("--force"), "{line}");
    let removed = image.done(&["node", "remove", "--force", "ci", "h"]);
    assert!(told(&removed).contains("husk: h: 1 programs ran there"), "{removed:?}");
    let outcome = running.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "begun\n137\n", "{}", outcome.shown());
    until("nobody there", || host.guest().is_none());
    assert_eq!(image.rows("nodes").len(), 1);
    let script = "exec </dev/null; HUSK_NODE=1 /bin/true";
    image.done(&["node", "add", "ci", "h"]);
    image.done(&["exec", "ci", "--", "sh", "-c", script]);
    assert_eq!(image.programs(), 1);
    assert!(image.down().contains("husk: h: 1 programs ran there"));
}

#[test]
fn another_supervisor_begins_with_the_hosts_again_and_none_is_left_behind_both_deaths() {
    let Some(host) = Host::new("hosts-resumed") else { return };
    let image = Image::new(&host);
    image.up(&["--on", "h"]);
    let go = image.work.join("go");
    let script = format!(
        "exec </dev/null; HUSK_NODE=1 sleep 300; echo $?; {}; HUSK_NODE=1 /bin/true; sleep 301",
        after(&go)
    );
    let running = image.start(&["exec", "ci", "--", "bash", "-c", &script]);
    until("its process there", || host.exactly("sleep 300").is_some());
    let (before, guest) = (image.number("pid"), host.guest());
    process::kill(before);
    until("another supervisor", || ![Value::Null, before.into()].contains(&image.facts()["pid"]));
    until("another guest", || host.guest().is_some() && host.guest() != guest && image.is_up());
    image.done(&["exec", "ci", "--", "touch", "go"]);
    until("a program there", || image.programs() == 1);
    // Its programs go on without them, and none of these is there.
    let both = ["keeper", "pid"].map(|who| image.number(who));
    // One that is stopped starts no other keeper.
    kill_process(Pid::from_raw(both[1]).expect("a number"), Signal::STOP).expect("it lives");
    for pid in both {
        process::kill(pid);
    }
    until("nobody there", || host.guest().is_none());
    until("it goes on at home", || host.exactly("sleep 301").is_some());
    process::kill(host.exactly("sleep 301").expect("it runs"));
    let outcome = running.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "137\n", "{}", outcome.shown());
    // It is up again where a program has kept it, or dead.
    image.husk(&["down", "ci", "--force"]);
    host.nothing_is_left();
}

#[test]
fn a_host_that_is_lost_is_shown_so_and_comes_back_under_its_number() {
    let Some(host) = Host::far("hosts-back") else { return };
    let image = Image::new(&host);
    image.up(&["--on", "h"]);
    let net = host.net.as_ref().expect("a network");
    net.cut(true);
    until("it is lost", || !image.is_up());
    assert_eq!(image.row(1)["image"], "h");
    let script = "exec </dev/null; HUSK_NODE=1 /bin/echo here";
    let output = image.done(&["exec", "ci", "--", "sh", "-c", script]);
    assert_eq!(output.stdout, b"here\n");
    let line = image.refused(&["node", "add", "ci", "h"]);
    assert!(line.contains("cannot use h: "), "{line}");
    net.cut(false);
    until("what was there has ended", || host.guest().is_none());
    image.done(&["node", "add", "ci", "h"]);
    image.done(&["exec", "ci", "--", "sh", "-c", script]);
    assert_eq!((image.is_up(), image.programs()), (true, 1), "{:#}", image.row(1));
    image.down();
}

#[test]
fn hosts_that_an_image_cannot_have_are_refused_in_one_line_and_it_goes_on() {
    let Some(host) = Host::new("hosts-none") else { return };
    let image = Image::new(&host);
    let work = image.work.to_str().expect("a plain path").to_owned();
    let up = |more: &[&str]| {
        let words = ["up", "ci", "--memory", "128M", "--overlay", &work];
        let line = image.refused(&[&words[..], more].concat());
        assert_eq!(image.facts(), Value::Null, "{line}");
        host.nothing_is_left();
        line
    };
    assert!(up(&["--on", "nowhere.invalid"]).contains("Could not resolve hostname"));
    assert!(up(&["--on", "h,h"]).contains("it is named twice"));
    assert!(up(&["--on", "h", "--nodes", "2"]).contains("leave out --nodes, or --on"));
    let missing = image.refused(&["node", "add", "ci", "h"]);
    assert!(missing.contains("there is no such image"), "{missing}");
    image.up(&[]);
    for (host, told) in [
        ("nowhere.invalid", "cannot use nowhere.invalid: Could not resolve hostname"),
        ("a\nb", "it is not the name of a host"),
        ("", "it is not the name of a host"),
    ] {
        let line = image.refused(&["node", "add", "ci", host]);
        assert!(line.contains(told), "{line}");
    }
    let line = image.refused(&["node", "remove", "ci", "h"]);
    assert!(
        line.contains("the image has no other hosts") || line.contains("not a host of the image"),
        "{line}"
    );
    assert_eq!(image.rows("nodes").len(), 1);
    image.down();
    image.up(&["--nodes", "2"]);
    let line = image.refused(&["node", "add", "ci", "h"]);
    assert!(line.contains("--nodes does not work with them yet"), "{line}");
    let line = image.refused(&["node", "add", "ci-1", "h"]);
    assert!(line.contains("a node of another image has none"), "{line}");
    image.down();
}

#[test]
fn programs_see_the_files_of_home_also_on_hosts_that_are_added_and_after_a_death() {
    let Some(mut host) = Host::new("hosts-uproom") else { return };
    host.serve(super::room::BARE);
    let image = Image::new(&host);
    image.up(&["--root", "home"]);
    image.done(&["node", "add", "ci", "h"]);
    let script =
        "exec </dev/null; HUSK_NODE=1 as --version >/dev/null && HUSK_NODE=1 cat /etc/passwd";
    let passwd = fs::read("/etc/passwd").expect("a file");
    let seen = || image.husk(&["exec", "ci", "--", "sh", "-c", script]);
    let output = seen();
    assert!(output.stdout == passwd, "{output:?}");
    assert_eq!(image.programs(), 2, "{:#}", image.row(1));
    let before = image.number("pid");
    assert!(process::kill(before));
    until("another supervisor", || ![Value::Null, before.into()].contains(&image.facts()["pid"]));
    until("the host is up again", || image.is_up());
    let output = seen();
    assert!(output.stdout == passwd, "{output:?}");
    assert_eq!(image.programs(), 2, "{:#}", image.row(1));
    image.down();
}
