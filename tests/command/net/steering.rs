//! `husk net attach`: the connections of an nginx that runs, steered and left as they were.
//!
//! Each test has a server of its own with two workers. To steer needs root; an ordinary user is
//! refused, which is a test, too.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native};
use rustix::process::Signal;
use serde_json::Value;

use super::broken::old_host;
use super::server::*;
use crate::as_nobody;

#[test]
fn every_connection_goes_to_the_worker_of_its_flow_group_until_detached() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.master.id().to_string(), "--wake-percent", "100"]);
    let even = server.answers(100, |group| group % 2 == 0);
    let odd = server.answers(100, |group| group % 2 == 1);
    assert!(all_same(&even) && all_same(&odd) && even[0] != odd[0], "{even:?} {odd:?}");
    let top = server.top();
    let pids: Vec<_> = (0..2).map(|kernel| top["kernels"][kernel]["pid"].to_string()).collect();
    assert_eq!(pids, [even[0].as_str(), odd[0].as_str()], "{top}");
    for kernel in 0..2 {
        // A client on a busy machine may ask twice for one connection.
        let syns = top["kernels"][kernel]["syns"].as_u64();
        assert!(syns.is_some_and(|syns| (100..150).contains(&syns)), "{top}");
        assert_eq!(top["kernels"][kernel]["groups"], 2048, "{top}");
    }
    let text = output(net(&["top", "--once"])).stdout;
    assert!(String::from_utf8_lossy(&text).contains(&server.place()));
    done(&["detach", &server.port.to_string()]);
    assert!(!all_same(&server.answers(100, |group| group % 2 == 0)), "still steered");
    let said = refused(net(&["detach", &server.place()]));
    assert!(said.contains("nothing is attached"), "{said}");
    let said = refused(net(&["top", &server.place(), "--once"]));
    assert!(said.contains("husk net attach"), "{said}");
}

/// A terminal with a command in it; it ends with its test.
struct Terminal(String);

impl Terminal {
    /// `name`: its server's own; one that ends has not ended yet.
    fn with(scratch: &Scratch, name: &str, command: &str) -> Terminal {
        let socket = scratch.path().join(name);
        let terminal = Terminal(socket.to_str().expect("a plain path").to_owned());
        let line = format!("{command}; echo status $?; read line");
        terminal.tmux(&["new-session", "-d", "-x", "150", "-y", "20", "sh", "-c", &line]);
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-S", &self.0]).args(words).env("TERM", "screen-256color");
        let output = tmux.output().expect("tmux");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn shows(&self, what: &str) {
        until(what, || self.tmux(&["capture-pane", "-p"]).contains(what));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.0, "kill-server"]).output();
    }
}

#[test]
fn top_shows_what_is_steered_on_a_terminal_until_a_key_or_the_end_of_steering() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.place(), "--wake-percent", "0"]);
    until("groups have moved", || {
        server.answers(200, |group| group % 2 == 0);
        server.top()["moves"].as_u64() > Some(0)
    });
    let top = server.top();
    let moved = top["moved"].as_array().expect("a list");
    let groups = moved.iter().map(|one| one["groups"].as_u64().expect("a number"));
    assert_eq!(Some(groups.sum()), top["moves"].as_u64(), "all were in the last minute: {top}");
    let said = refused(net(&["top"]));
    assert!(said.contains("not a terminal") && said.contains("--once"), "{said}");
    let scratch = Scratch::new("net-top");
    let line = format!("'{}' net top {} --interval 0.1", binary().display(), server.place());
    let terminal = Terminal::with(&scratch, "first", &line);
    terminal.shows(&format!("{}  process", server.place()));
    terminal.shows("moves/s");
    terminal.shows("q quit");
    terminal.tmux(&["send-keys", "q"]);
    terminal.shows("status 0");
    drop(terminal);
    let terminal = Terminal::with(&scratch, "second", &line);
    terminal.shows("q quit");
    done(&["detach", &server.place()]);
    terminal.shows("status 125");
    terminal.shows("`husk net attach PID` starts steering");
}

#[test]
fn angel_evens_out_what_comes_from_the_groups_of_one_worker() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.place(), "--wake-percent", "0"]);
    until("both answer as often", || {
        let answers = server.answers(200, |group| group % 2 == 0);
        let first = answers.iter().filter(|answer| **answer == answers[0]).count();
        first.max(200 - first) <= 120
    });
    let top = server.top();
    assert!(top["moves"].as_u64().is_some_and(|moves| moves > 0), "{top}");
    // Open connections are counted once a second.
    until("none is open", || server.top()["kernels"][0]["open"] == 0);
}

#[test]
fn workers_that_are_killed_or_added_are_taken_in_without_a_lost_connection() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.place()]);
    write_configuration(&server.scratch, LOOPBACK, server.port, 3);
    server.signal(server.master.id() as i32, Signal::HUP);
    let pids = || -> Vec<i64> {
        assert!(!server.answers(10, |_| true).is_empty());
        let top = server.top();
        let kernels = top["kernels"].as_array().expect("kernels");
        kernels.iter().filter_map(|kernel| kernel["pid"].as_i64()).collect()
    };
    let workers = || -> Vec<i64> { server.workers().iter().map(|&pid| pid.into()).collect() };
    let is_taken_in = || {
        let (mut seen, mut there) = (pids(), workers());
        seen.sort_unstable();
        there.sort_unstable();
        seen.len() == 3 && seen == there
    };
    until("a third worker accepts", is_taken_in);
    server.signal(server.workers()[0], Signal::KILL);
    until("another one has its place", is_taken_in);
    write_configuration(&server.scratch, LOOPBACK, server.port, 1);
    server.signal(server.master.id() as i32, Signal::HUP);
    until("one is left", || pids().len() == 1);
    assert!(all_same(&server.answers(100, |_| true)));
}

#[test]
fn a_balancer_that_is_killed_leaves_the_choice_to_linux_and_nothing_to_undo_by_hand() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&["attach", &server.place(), "--wake-percent", "100"]);
    assert!(all_same(&server.answers(50, |group| group % 2 == 0)));
    server.signal(server.balancer(), Signal::KILL);
    until("Linux chooses", || !all_same(&server.answers(50, |group| group % 2 == 0)));
    // Another may take its place, also where that is killed at once.
    done(&["attach", &server.place(), "--wake-percent", "100"]);
    assert!(all_same(&server.answers(50, |group| group % 2 == 0)));
    server.signal(server.balancer(), Signal::KILL);
    done(&["detach", &server.place()]);
    assert!(!all_same(&server.answers(100, |group| group % 2 == 0)));
    assert!(refused(net(&["detach", &server.place()])).contains("nothing is attached"));
}

#[test]
fn a_server_at_several_addresses_is_steered_at_each_also_over_ipv6() {
    if unable() {
        return;
    }
    let server = Server::at(&["127.0.0.1", "[::1]"]);
    let six = format!("[::1]:{}", server.port);
    let both = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let steered = |ip| {
        let even = server.answers_at(ip, 50, |group| group % 2 == 0);
        let odd = server.answers_at(ip, 50, |group| group % 2 == 1);
        all_same(&even) && all_same(&odd) && even[0] != odd[0]
    };
    done(&["attach", &server.master.id().to_string(), "--wake-percent", "100"]);
    assert!(both.into_iter().all(steered));
    let stat = output(net(&["stat", &six, "--json"])).stdout;
    let stat: Value = serde_json::from_slice(&stat).expect("one document");
    assert_eq!((&stat[0]["address"], &stat[0]["connections"]), (&six.as_str().into(), &100.into()));
    let metrics = output(net(&["stat", &server.port.to_string(), "--openmetrics"])).stdout;
    let metrics = String::from_utf8(metrics).expect("text");
    for place in [&server.place(), &six] {
        let line = format!("husk_net_connections_total{{address=\"{place}\",namespace=\"");
        let found = metrics.lines().find(|one| one.starts_with(&line));
        let count = found.and_then(|one| one.rsplit(' ').next()?.parse::<u32>().ok());
        // 100, and perhaps the one that looked whether the server is there.
        assert!(count.is_some_and(|count| (100..103).contains(&count)), "{line} in {metrics}");
    }
    // One of the two is steered already: the other begins.
    done(&["detach", &server.place()]);
    assert!(!steered(both[0]) && steered(both[1]));
    done(&["attach", &server.port.to_string(), "--wake-percent", "100"]);
    assert!(both.into_iter().all(steered));
    let said = refused(net(&["attach", &server.port.to_string()]));
    assert!(said.contains("already") && said.contains(&server.place()), "{said}");
    done(&["detach", &server.port.to_string()]);
    assert!(!steered(both[0]) && !steered(both[1]));
}

#[test]
fn a_second_attach_is_refused_and_a_balancer_ends_with_its_server() {
    if unable() {
        return;
    }
    let mut server = Server::start();
    done(&["attach", &server.place()]);
    let said = refused(net(&["attach", &server.place()]));
    assert!(said.contains("already") && said.contains("husk net detach"), "{said}");
    let balancer = server.balancer();
    server.signal(server.master.id() as i32, Signal::TERM);
    server.master.wait().expect("its status");
    until("the balancer has gone", || !fs::exists(format!("/proc/{balancer}")).unwrap_or(true));
    let said = refused(net(&["detach", &server.place()]));
    assert!(said.contains("nobody listens"), "{said}");
}

#[test]
fn a_listener_that_does_not_share_its_port_is_refused_and_left_alone() {
    if unable() {
        return;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    let said = refused(net(&["attach", &address.to_string()]));
    assert!(said.contains("SO_REUSEPORT") && said.contains("nginx"), "{said}");
    TcpStream::connect(address).expect("it listens");
    listener.accept().expect("it accepts");
}

#[test]
fn who_has_no_privilege_is_told_and_told_what_to_do() {
    if against_native() {
        return;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let address = listener.local_addr().expect("its address").to_string();
    if rustix::process::getuid().is_root() {
        for target in [&address, &std::process::id().to_string()] {
            let said = refused(as_nobody(&net(&["attach", target])));
            assert!(said.contains("another user's") && said.contains("as root"), "{said}");
        }
    }
    let said = refused(as_nobody(&net(&["attach", &address, "--way", "other"])));
    assert!(said.contains("neither ebpf nor cbpf"), "{said}");
}

#[test]
fn a_check_of_the_host_says_by_which_way_it_steers_or_what_is_lost() {
    if unable() {
        return;
    }
    let fact = |mut check: Command| -> Value {
        let text = check.args(["check", "--json"]).output().expect("husk").stdout;
        let report: Value = serde_json::from_slice(&text).expect("one document");
        let facts = report["facts"].as_array().expect("facts");
        let found = facts.iter().find(|fact| fact["name"] == "steering of connections");
        found.unwrap_or_else(|| panic!("steering in {report}")).clone()
    };
    let steers = fact(Command::new(binary()));
    assert_eq!((&steers["state"], &steers["found"]), (&"ok".into(), &"works, by ebpf".into()));
    let own = fact(as_nobody(&Command::new(binary())));
    assert_eq!(own["state"], "ok", "{own}");
    assert!(own["found"].as_str().is_some_and(|found| found.contains("by cbpf")), "{own}");
    let not = fact(old_host("pidfd_getfd", 38, &Command::new(binary())));
    assert_eq!((&not["state"], &not["remedy"]), (&"limited".into(), &"sudo husk net check".into()));
    assert!(not["cost"].as_str().is_some_and(|cost| cost.contains("by hash")), "{not}");
}

#[test]
fn what_is_no_target_is_refused_with_a_line() {
    if against_native() {
        return;
    }
    for (wrong, mentions) in [("nginx", "neither"), ("127.0.0.1:1", "nobody listens")] {
        let said = refused(net(&["attach", wrong]));
        assert!(said.contains(mentions) && said.contains(wrong), "{said}");
    }
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    if unable() {
        return;
    }
    let server = Server::start();
    for command in ["attach", "detach"] {
        let said = refused(apart(&["--pid", "--fork"], "true", &[command, &server.place()]));
        assert!(said.contains("another PID namespace") && said.contains("mount -t proc"), "{said}");
    }
    assert!(!all_same(&server.answers(100, |group| group % 2 == 0)), "nothing is attached");
}

#[test]
fn a_server_in_a_container_is_steered_by_its_process_number() {
    if unable() {
        return;
    }
    let container = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let server = Server::within(&container, LOOPBACK);
    let pid = server.nginx().expect("nginx").to_string();
    done(&["attach", &pid, "--wake-percent", "100"]);
    let [even, odd] = [0, 1].map(|rest| server.answers(50, |group| group % 2 == rest));
    assert!(all_same(&even) && all_same(&odd) && even[0] != odd[0], "{even:?} {odd:?}");
    done(&["detach", &pid]);
    assert!(!all_same(&server.answers(100, |group| group % 2 == 0)));
}
