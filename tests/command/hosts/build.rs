//! A build on two hosts, of which one party is killed, stopped or cut off in the middle: it ends
//! with the documented status, nothing is left on either host, and the next build makes everything.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process_group};

use husk_tests::tree::Tree;
use husk_tests::{Outcome, Run, process};

use super::host::{Host, until};
use super::{FILES, programs};
use crate::nodes::project;
use crate::{LIMIT, run};

/// A build, and what happens once some of its programs run there.
struct Broken {
    host: Host,
    work: PathBuf,
    /// What it makes without another host.
    whole: Tree,
    private: Vec<PathBuf>,
}

impl Broken {
    fn new(host: Option<Host>) -> Option<Broken> {
        let host = host?;
        let work = host.scratch.fresh("work");
        project(&work, FILES, "cc");
        let outcome = run(&host.scratch, &work, host.command(&[], &["make", "-j4", "-s"]));
        assert!(outcome.status.success(), "{}", outcome.shown());
        let whole = Tree::read(&work, None);
        fs::remove_dir_all(work.join("build")).expect("what was made");
        Some(Broken { host, work, whole, private: Vec::new() })
    }

    fn begin(&mut self) -> Run {
        let mut command = self.host.command(&["--on", "h"], &["make", "-j4", "-s"]);
        // As a shell on a terminal starts it.
        command.process_group(0);
        let run = Run::start(command, &self.work, self.host.scratch.path());
        until("programs there", || self.host.process("husk: shadow").is_some());
        let processes = [Some(run.pid()), self.host.guest()];
        self.private = processes.into_iter().flatten().flat_map(private).collect();
        assert!(!self.private.is_empty(), "no directory is known");
        run
    }

    fn end(&self, run: Run) -> Outcome {
        run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
    }

    /// Nothing is left, and another build makes what is missing.
    fn goes_on(&self) {
        self.host.nothing_is_left();
        let command = self.host.command(&["--on", "h"], &["make", "-j4", "-s"]);
        let outcome = run(&self.host.scratch, &self.work, command);
        assert!(outcome.status.success(), "{}", outcome.shown());
        let made = Tree::read(&self.work, None);
        let but_times = |difference: &String| !difference.contains("modified at");
        let differences = self.whole.differences(&made, &self.whole, &|_| false);
        let differences: Vec<_> = differences.into_iter().filter(but_times).collect();
        assert_eq!(differences, Vec::<String>::new());
        self.host.nothing_is_left();
        // What a killed one could not remove the next one has.
        for private in &self.private {
            assert!(!private.exists(), "{} is left", private.display());
        }
    }
}

/// Private directories that a process has locked.
fn private(pid: i32) -> Vec<PathBuf> {
    let numbers = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = numbers.filter_map(|number| fs::read_link(number.path()).ok());
    let private = |path: PathBuf| {
        let outer = path.ancestors().find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".husk-"))
        });
        outer.map(Path::to_owned)
    };
    links.filter_map(private).collect()
}

#[test]
fn a_build_whose_guest_is_killed_fails_as_make_says_and_the_next_one_goes_on() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-guest")) else { return };
    let run = build.begin();
    assert!(process::kill(build.host.guest().expect("a guest")));
    let outcome = build.end(run);
    // Nobody had a program there that moment, or make says which was killed.
    let code = outcome.status.code();
    let fails = code == Some(2) && outcome.stderr.contains("Killed");
    assert!(fails || code == Some(0), "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    build.goes_on();
}

#[test]
fn a_build_whose_starter_is_killed_fails_as_make_says_and_the_next_one_goes_on() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-starter")) else { return };
    let run = build.begin();
    assert!(process::kill(build.host.process("serve-host").expect("a starter")));
    let outcome = build.end(run);
    let code = outcome.status.code();
    assert!(code == Some(0) || code == Some(2), "{}", outcome.shown());
    assert!(code == Some(0) || outcome.stderr.contains("Killed"), "{}", outcome.shown());
    build.goes_on();
}

#[test]
fn a_build_whose_run_is_killed_ends_on_both_hosts_and_the_next_one_goes_on() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-run")) else { return };
    let run = build.begin();
    assert!(process::kill(run.pid()));
    let _ = build.end(run);
    assert!(!build.work.join("build").exists(), "nothing was written back");
    build.goes_on();
}

#[test]
fn ctrl_c_ends_a_build_on_both_hosts_and_the_next_one_goes_on() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-key")) else { return };
    let run = build.begin();
    // To all of the group at once, as a terminal's: make starts nothing between two of them.
    let group = Pid::from_raw(run.pid()).expect("a group");
    kill_process_group(group, Signal::INT).expect("a group");
    let outcome = build.end(run);
    assert!(!outcome.status.success(), "{}", outcome.shown());
    assert!(!outcome.stderr.contains("is lost"), "{}", outcome.shown());
    build.goes_on();
}

#[test]
fn a_build_whose_network_is_cut_for_ever_ends_and_the_next_one_goes_on() {
    let Some(mut build) = Broken::new(Host::far("hosts-bcut")) else { return };
    let run = build.begin();
    let net = build.host.net.as_ref().expect("a network");
    net.cut(true);
    let outcome = build.end(run);
    let code = outcome.status.code();
    assert!(code == Some(0) || code == Some(2), "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    assert!(code == Some(0) || outcome.stderr.contains("it ends as killed"), "{}", outcome.shown());
    // What is there ends by itself: nobody can tell it.
    build.host.nothing_is_left();
    build.host.net.as_ref().expect("a network").cut(false);
    build.goes_on();
}

#[test]
fn two_builds_on_one_host_do_not_disturb_each_other_when_one_is_killed() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-two")) else { return };
    let other = build.host.scratch.fresh("other");
    project(&other, FILES, "cc");
    let output = build.host.scratch.fresh("output");
    let victim = build.begin();
    let second = build.host.command(&["--on", "h"], &["make", "-j4", "-s"]);
    let second = Run::start(second, &other, &output);
    until("two guests", || {
        let guests = build.host.processes();
        guests.iter().filter(|found| found.arguments.ends_with(" serve-guest")).count() >= 2
    });
    assert!(process::kill(victim.pid()));
    let _ = build.end(victim);
    let outcome = build.end(second);
    assert!(outcome.status.success() && !outcome.stderr.contains("lost"), "{}", outcome.shown());
    assert!(programs(&outcome) > 0, "{}", outcome.shown());
    build.goes_on();
}

#[test]
fn one_host_under_two_names_is_two_nodes_that_make_the_same() {
    let Some(mut build) = Broken::new(Host::new("hosts-build-twice")) else { return };
    let config = fs::read_to_string(build.host.path("ssh")).expect("a file");
    build.host.write("ssh", &config.replace("Host h\n", "Host h g\n"));
    let options = ["--on", "h,g"];
    let command = build.host.command(&options, &["make", "-j6", "-s"]);
    let outcome = run(&build.host.scratch, &build.work, command);
    assert!(outcome.status.success(), "{}", outcome.shown());
    for host in ["husk: h: ", "husk: g: "] {
        let line = outcome.stderr.lines().find_map(|line| line.strip_prefix(host));
        let line = line.unwrap_or_else(|| panic!("a closing line: {}", outcome.shown()));
        assert!(!line.starts_with("0 "), "{}", outcome.shown());
    }
    build.private.clear();
    build.goes_on();
}
