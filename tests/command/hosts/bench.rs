//! `husk bench hosts`: every row is there, and nothing of the hosts is left, however it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use husk_tests::husk::binary;
use husk_tests::{Run, Scratch, against_native};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{LIMIT, run};

/// Quota hosts are root's, and have an sshd.
fn able() -> bool {
    let sshd = Path::new("/usr/sbin/sshd").exists();
    !against_native() && sshd && rustix::process::getuid().is_root()
}

fn bench(options: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["bench", "hosts", "--json", "--files", "6"]).args(options);
    command
}

/// What it prints; its status is that of the control, which a busy machine spoils.
fn document(name: &str, options: &[&str]) -> Value {
    let scratch = Scratch::new(name);
    let work = scratch.fresh("work");
    let outcome = run(&scratch, &work, bench(options));
    serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", outcome.shown()))
}

/// Groups, directories and processes of the measurement that was this process.
fn left(pid: i32) -> Vec<PathBuf> {
    let groups = ["cpu", "cpuacct", ""].map(|part| Path::new("/sys/fs/cgroup").join(part));
    let places = groups.into_iter().chain([PathBuf::from("/var/tmp")]);
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let own = format!("husk-bench-{pid}");
    let is_own = |path: &PathBuf| path.to_string_lossy().contains(&own);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&own)
    });
    let processes: Vec<_> = processes.map(|entry| entry.path()).collect();
    entries.map(|entry| entry.path()).filter(is_own).chain(processes).collect()
}

#[test]
fn a_build_on_quota_hosts_has_a_row_for_each_tool_and_leaves_nothing() {
    if !able() {
        return;
    }
    let options = ["--rounds", "1", "--hosts", "1,2", "--quota", "100", "--jobs", "2"];
    let rest = ["--delay", "4", "--no-starts"];
    let document = document("bench-hosts", &[&options[..], &rest].concat());
    let rows = document["rows"].as_array().expect("rows");
    for name in [
        "make, 1 host",
        "husk, 1 host",
        "husk, 2 hosts",
        "husk, 2 hosts, 4 ms",
        "icecream, 2 hosts",
        "distcc, 2 hosts",
    ] {
        let row = rows.iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("no {name}: {document:#}"));
        if let Some(error) = row["error"].as_str() {
            let is_other = !name.starts_with("husk") && !name.starts_with("make");
            assert!(is_other && error.contains("apt-get install"), "{name}: {error}");
            continue;
        }
        for figure in ["wall_s", "speed_up", "home_cpu_s", "all_cpu_s"] {
            assert!(row[figure].as_f64() > Some(0.0), "{name}, {figure}: {document:#}");
        }
        // icecream sends nothing to hosts whose machine is busy.
        if !name.starts_with("icecream") {
            let is_alone = row["hosts"] == 1;
            assert_eq!(row["link_kib"].as_f64() > Some(1.0), !is_alone, "{name}: {document:#}");
        }
    }
}

#[test]
fn what_it_takes_to_begin_on_another_host_is_measured_beside_ssh() {
    if !able() {
        return;
    }
    let options = ["--rounds", "1", "--hosts", "2", "--quota", "100", "--delay", "0"];
    let document = document("bench-starts", &[&options[..], &["--only", "husk, 2"]].concat());
    for figure in ["session_ms", "ssh_ms", "true_ms", "ssh_true_ms", "true_ratio"] {
        assert!(document["starts"][figure].as_f64() > Some(0.0), "{figure}: {document:#}");
    }
}

#[test]
fn a_measurement_of_hosts_that_is_broken_off_or_killed_leaves_no_process_and_no_host() {
    if !able() {
        return;
    }
    for signal in [Signal::TERM, Signal::KILL] {
        let scratch = Scratch::new("bench-hosts-ended");
        let command = bench(&["--hosts", "2", "--rounds", "50", "--delay", "4"]);
        let bench = Run::start(command, scratch.path(), scratch.path());
        let pid = bench.pid();
        let is_building =
            || Path::new(&format!("/var/tmp/husk-bench-{pid}/project/build")).exists();
        until("a build", is_building);
        kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("a signal");
        let outcome = bench.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
        assert!(!outcome.status.success(), "{}", outcome.shown());
        if signal == Signal::TERM {
            assert_eq!(outcome.status.code(), Some(128 + 15), "{}", outcome.shown());
            assert_eq!(left(pid), Vec::<PathBuf>::new());
        }
        // One that was killed leaves names; its processes end with it.
        until("all processes end", || left(pid).iter().all(|path| !path.starts_with("/proc")));
        for place in ["/var/tmp", "/dev/shm"] {
            // One that could, has.
            let _ = fs::remove_dir_all(format!("{place}/husk-bench-{pid}"));
        }
        for path in left(pid).into_iter().filter(|path| path.is_dir()) {
            // Its groups, which are empty; the next measurement would remove them.
            let _ = fs::remove_dir(path.join("servers"));
            fs::remove_dir(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
