//! `husk nodes` and `husk explain` say what programs on another host have spent on the network.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Outcome, Run};
use serde_json::Value;

use super::host::{Host, until};
use crate::{LIMIT, run, said};

/// What a command says on its standard output.
fn asked(host: &Host, words: &[&str]) -> Outcome {
    let mut command = Command::new(binary());
    command.args(words);
    let (work, output) = (host.scratch.path(), host.scratch.fresh("asked"));
    let outcome = Run::start(command, work, &output).wait(LIMIT);
    let outcome = outcome.unwrap_or_else(|hang| panic!("{hang}"));
    assert!(outcome.status.success(), "{words:?}: {}", outcome.shown());
    outcome
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

#[test]
fn round_trips_and_bytes_are_counted_for_each_program_and_add_up() {
    let Some(host) = Host::new("hosts-spent") else { return };
    let work = host.scratch.fresh("work");
    let script = "exec </dev/null; echo bytes > file
HUSK_NODE=1 cat file; HUSK_NODE=1 cat file; HUSK_NODE=1 sleep 300";
    let argv = ["bash", "-c", script];
    let running = Run::start(host.command(&["--on", "h"], &argv), &work, host.scratch.path());
    until("the last program", || host.exactly("sleep 300").is_some());
    let shadow = host.process("husk: shadow").expect("a shadow").to_string();
    let first = running.pid().to_string();
    let shown = json(&asked(&host, &["nodes", "--json", &first]));
    let there = &shown[1]["host"];
    let cat = &there["ended"]["cat"];
    assert_eq!(cat["programs"], 2, "{shown:#}");
    let kinds = cat["spent"]["kinds"].as_object().expect("kinds");
    let counted: u64 = kinds.values().filter_map(Value::as_u64).sum();
    assert_eq!(cat["spent"]["round_trips"], counted, "{shown:#}");
    assert!(kinds.contains_key("read") && counted >= 6, "{shown:#}");
    assert!(cat["spent"]["bytes"].as_u64() > Some(counted * 40), "{shown:#}");
    assert_eq!(there["running"][0]["pid"].to_string(), shadow);
    let sleep = there["running"][0]["spent"]["round_trips"].as_u64().expect("a count");
    let nobody = there["nobody"]["round_trips"].as_u64().expect("a count");
    let all = counted + sleep + nobody;
    assert_eq!(there["round_trips"], all, "{shown:#}");
    let table = asked(&host, &["nodes", &first]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains(&format!("2 x cat: {counted} round trips, ")), "{table}");
    let explained = json(&asked(&host, &["explain", "--json", &shadow]));
    assert_eq!(explained["elsewhere"]["host"], "h", "{explained:#}");
    assert_eq!(explained["elsewhere"]["spent"]["round_trips"], sleep, "{explained:#}");
    let explained = asked(&host, &["explain", &shadow]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    let line = format!("sleep runs on h; so far {sleep} round trips");
    assert!(explained.contains(&line), "{explained}");
    let sleeps = host.exactly("sleep 300").and_then(rustix::process::Pid::from_raw);
    let ended =
        rustix::process::kill_process(sleeps.expect("it runs"), rustix::process::Signal::TERM);
    ended.expect("it ends");
    let outcome = running.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    let line = said(&outcome).pop().unwrap_or_default().to_owned();
    let told = line.strip_prefix("husk: h: 3 programs ran there, ");
    let told = told.and_then(|told| told.split(' ').next()?.parse::<u64>().ok());
    // And some to end the last one.
    assert!(told.is_some_and(|told| told >= all), "{line}");
}

#[test]
fn an_image_without_other_hosts_has_none_to_show() {
    let Some(host) = Host::new("hosts-unspent") else { return };
    let work = host.scratch.fresh("work");
    let argv = ["sleep", "300"];
    let running = Run::start(host.command(&[], &argv), &work, host.scratch.path());
    until("it runs", || host.exactly("sleep 300").is_some());
    let pid = host.exactly("sleep 300").expect("it runs");
    until("it is known", || {
        let look = Command::new(binary()).args(["nodes", "--json", &pid.to_string()]).output();
        look.is_ok_and(|look| look.status.success())
    });
    let shown = json(&asked(&host, &["nodes", "--json", &pid.to_string()]));
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown:#}");
    let explained = json(&asked(&host, &["explain", "--json", &pid.to_string()]));
    assert!(explained.get("elsewhere").is_none(), "{explained:#}");
    husk_tests::process::kill(pid);
    drop(running.wait(LIMIT));
    let work = host.scratch.fresh("work");
    let after = run(&host.scratch, &work, host.command(&[], &["true"]));
    assert!(after.status.success());
}
