//! `husk net tune`: an interface with two queues, in a network namespace of its own, tuned and set
//! back.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use husk_tests::against_native;
use husk_tests::husk::binary;
use serde_json::Value;

use crate::as_nobody;

/// No command takes longer.
const LIMIT: &str = "60";
/// Between two times at which a `tune` is killed.
const KILL_STEP: Duration = Duration::from_millis(1);
/// What `tune` changes of a veth.
const FILES: [&str; 4] = [
    "queues/rx-0/rps_cpus",
    "queues/rx-1/rps_cpus",
    "queues/tx-0/xps_cpus",
    "queues/tx-1/xps_cpus",
];

/// A network namespace with a veth `v0`, removed in the end.
struct Lab {
    name: String,
    _turn: MutexGuard<'static, ()>,
}

/// One `tune` of a host is at work at a time: another is refused.
static TURN: Mutex<()> = Mutex::new(());

impl Lab {
    /// `None`: there is nothing to test here.
    fn new(test: &str) -> Option<Lab> {
        Lab::with(test, "2")
    }

    /// With so many queues in each direction.
    fn with(test: &str, queues: &str) -> Option<Lab> {
        if against_native() || !rustix::process::getuid().is_root() {
            return None;
        }
        // One that has failed has had its turn.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab { name: format!("husk-{test}-{}", std::process::id()), _turn: turn };
        assert!(plain(&["ip", "netns", "add", &lab.name]).status.success(), "network namespaces");
        let queues = ["numrxqueues", queues, "numtxqueues", queues];
        let veth = ["type", "veth", "peer", "name", "v1"];
        lab.inside(&[&["ip", "link", "add", "v0"][..], &queues, &veth, &queues].concat());
        Some(lab)
    }

    fn output(&self, words: &[&str]) -> Output {
        plain(&[&["ip", "netns", "exec", &self.name][..], words].concat())
    }

    /// What succeeds prints.
    fn inside(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn net(&self, words: &[&str]) -> Value {
        let husk = binary();
        let husk = husk.to_str().expect("a plain path");
        let text = self.inside(&[&[husk, "net"][..], words, &["--json"]].concat());
        serde_json::from_str(&text).expect("one document")
    }

    /// The one line of a refusal.
    fn refused(&self, words: &[&str]) -> String {
        let husk = binary();
        let husk = husk.to_str().expect("a plain path");
        let output = self.output(&[&[husk, "net"][..], words].concat());
        one_line(&output)
    }

    fn values(&self) -> BTreeMap<&'static str, String> {
        let value = |file| (file, self.inside(&["cat", &format!("/sys/class/net/v0/{file}")]));
        FILES.into_iter().map(value).collect()
    }

    fn write(&self, file: &str, value: &str) {
        self.inside(&["sh", "-c", &format!("echo {value} > /sys/class/net/v0/{file}")]);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        plain(&["ip", "netns", "del", &self.name]);
    }
}

fn plain(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).args(words).output().expect("it starts")
}

fn one_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{output:?}");
    said
}

fn outcome<'a>(report: &'a Value, setting: &str) -> &'a str {
    let rows = report["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["setting"] == setting);
    row.and_then(|row| row["outcome"].as_str()).unwrap_or_else(|| panic!("{setting} in {report}"))
}

#[test]
fn an_interface_is_tuned_and_set_back_to_what_it_was() {
    let Some(lab) = Lab::new("tune") else { return };
    // What was not the default is not made the default.
    lab.write(FILES[0], "2");
    let before = lab.values();
    let dry = lab.net(&["tune", "v0", "--dry-run"]);
    assert_eq!((outcome(&dry, "gro"), lab.values()), ("would-set", before.clone()));
    let tuned = lab.net(&["tune", "v0"]);
    assert_eq!(outcome(&tuned, "rps of rx-0"), "set");
    assert_eq!(outcome(&tuned, "rx-flow-hash udp4"), "cannot", "a veth has no hash to set");
    assert_eq!(outcome(&tuned, "irq"), "cannot", "a veth has no interrupts");
    let values = lab.values();
    assert!(FILES.iter().all(|file| values[file] != before[file]), "{values:?}");
    let said = lab.refused(&["tune", "v0"]);
    assert!(said.contains("husk net untune v0"), "{said}");
    let back = lab.net(&["untune", "v0"]);
    assert_eq!((outcome(&back, "gro"), lab.values()), ("set", before));
    assert_eq!(outcome(&lab.net(&["tune", "v0", "--dry-run"]), "gro"), "would-set");
    assert!(lab.refused(&["untune", "v0"]).contains("not tuned"));
}

#[test]
fn a_value_changed_since_is_left_alone_and_a_half_done_tune_is_set_back() {
    let Some(lab) = Lab::new("foreign") else { return };
    let before = lab.values();
    lab.net(&["tune", "v0"]);
    // One that a killed run would not have reached, and one that somebody else wants.
    lab.write(FILES[0], before[FILES[0]].trim());
    lab.write(FILES[1], "3");
    let back = lab.net(&["untune", "v0"]);
    assert_eq!(outcome(&back, "rps of rx-0"), "as-wanted");
    assert_eq!(outcome(&back, "rps of rx-1"), "foreign");
    let values = lab.values();
    assert_eq!(values[FILES[1]].trim(), "3");
    for file in [FILES[0], FILES[2], FILES[3]] {
        assert_eq!(values[file], before[file], "{file}");
    }
}

#[test]
fn an_interface_that_has_another_name_is_found_and_one_that_has_gone_is_no_error() {
    let Some(lab) = Lab::new("gone") else { return };
    let before = lab.values();
    lab.net(&["tune", "v0"]);
    lab.inside(&["ip", "link", "set", "v0", "name", "other"]);
    lab.net(&["untune", "v0"]);
    lab.inside(&["ip", "link", "set", "other", "name", "v0"]);
    assert_eq!(lab.values(), before);
    lab.net(&["tune", "v0"]);
    lab.inside(&["ip", "link", "del", "v0"]);
    let back = lab.net(&["untune", "v0"]);
    assert_eq!(outcome(&back, "gro"), "gone");
}

#[test]
fn what_was_asked_for_by_name_and_cannot_be_is_refused_and_changes_nothing() {
    let Some(lab) = Lab::new("only") else { return };
    let before = lab.values();
    for (only, mentions) in [("rps,rx-flow-hash", "rx-flow-hash"), ("irq", "interrupt")] {
        let said = lab.refused(&["tune", "v0", "--only", only]);
        assert!(said.contains(mentions) && said.contains("v0"), "{said}");
    }
    assert_eq!(lab.values(), before);
    let report = lab.net(&["tune", "v0", "--only", "rps"]);
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(2), "{report}");
    lab.net(&["untune", "v0"]);
}

#[test]
fn an_interface_with_one_queue_is_tuned_as_far_as_that_goes() {
    let Some(lab) = Lab::with("one", "1") else { return };
    let rps = || lab.inside(&["cat", "/sys/class/net/v0/queues/rx-0/rps_cpus"]);
    let before = rps();
    let said = lab.refused(&["tune", "v0", "--only", "xps"]);
    assert!(said.contains("one transmit queue"), "{said}");
    let tuned = lab.net(&["tune", "v0"]);
    assert_eq!((outcome(&tuned, "xps"), outcome(&tuned, "rps of rx-0")), ("cannot", "set"));
    assert_ne!(rps(), before);
    lab.net(&["untune", "v0"]);
    assert_eq!(rps(), before);
}

#[test]
fn a_tune_that_is_killed_at_any_time_is_set_back_exactly() {
    let Some(lab) = Lab::new("killed") else { return };
    let before = lab.values();
    let mut undone = 0;
    for step in 0..20 {
        let mut tune = Command::new("ip");
        tune.args(["netns", "exec", &lab.name]).arg(binary()).args(["net", "tune", "v0"]);
        let mut tune = tune.stdout(Stdio::null()).spawn().expect("it starts");
        // `ip` becomes the command, so that it is this process that is killed.
        sleep(KILL_STEP * step);
        let _ = tune.kill();
        tune.wait().expect("its status");
        let husk = binary();
        let back = lab.output(&[husk.to_str().expect("a plain path"), "net", "untune", "v0"]);
        undone += usize::from(back.status.success());
        assert_eq!(lab.values(), before, "killed at {step}");
        assert!(lab.refused(&["untune", "v0"]).contains("not tuned"));
    }
    assert!(undone > 0, "none was killed after it began");
}

#[test]
fn a_namespace_that_comes_after_a_tuned_one_is_tuned_afresh() {
    let Some(lab) = Lab::new("reused") else { return };
    lab.net(&["tune", "v0"]);
    let number = || lab.inside(&["readlink", "/proc/self/ns/net"]);
    let first = number();
    // Linux gives the number to the next one, as soon as the first has gone for good.
    for _ in 0..200 {
        assert!(plain(&["ip", "netns", "del", &lab.name]).status.success());
        sleep(Duration::from_millis(50));
        assert!(plain(&["ip", "netns", "add", &lab.name]).status.success());
        if number() == first {
            break;
        }
    }
    lab.inside(&["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    assert!(lab.refused(&["untune", "v0"]).contains("not tuned"));
    lab.net(&["tune", "v0"]);
    lab.net(&["untune", "v0"]);
}

#[test]
fn what_cannot_be_tuned_is_refused_with_a_line() {
    if against_native() {
        return;
    }
    let husk = binary();
    let husk = husk.to_str().expect("a plain path");
    let long = "an-interface-of-a-long-name";
    for (wrong, mentions) in [("nope", "no interface"), ("../lo", "no name"), (long, "no name")] {
        let said = one_line(&plain(&[husk, "net", "tune", wrong, "--dry-run"]));
        assert!(said.contains(mentions) && said.contains(wrong), "{said}");
    }
    let mut tune = Command::new(husk);
    tune.args(["net", "tune", "lo"]);
    let said = one_line(&as_nobody(&tune).output().expect("it starts"));
    assert!(said.contains("root"), "{said}");
}

/// Ends a namespace with its test.
struct Other(String);

impl Drop for Other {
    fn drop(&mut self) {
        plain(&["ip", "netns", "del", &self.0]);
    }
}

#[test]
fn an_interface_of_another_namespace_is_not_tuned_though_it_has_the_same_name_and_number() {
    let Some(lab) = Lab::new("other-sys") else { return };
    let other = Other(format!("{}-b", lab.name));
    assert!(plain(&["ip", "netns", "add", &other.0]).status.success());
    let index = lab.inside(&["cat", "/sys/class/net/v0/ifindex"]);
    let inside = ["ip", "-n", &other.0, "link", "add", "v0", "index", index.trim()];
    let veth = ["numrxqueues", "2", "numtxqueues", "2", "type", "veth", "peer", "name", "v1"];
    assert!(plain(&[&inside[..], &veth].concat()).status.success());
    // In that namespace, with the /sys of the first one.
    let net = format!("--net=/run/netns/{}", other.0);
    let husk = binary().to_str().expect("a plain path");
    let output = lab.output(&["nsenter", &net, husk, "net", "tune", "v0", "--dry-run"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(one_line(&output).contains("/sys shows another network namespace"), "{output:?}");
}
