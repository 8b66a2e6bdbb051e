//! `husk net attach` of an ordinary user (cBPF): a server of their own, steered without privilege.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use husk_tests::against_native;
use rustix::process::Signal;
use serde_json::Value;

use super::broken::{Orphans, listeners, old_host};
use super::server::*;
use crate::as_nobody;

/// `husk net ARGUMENTS` of the ordinary user.
fn theirs(arguments: &[&str]) -> Command {
    as_nobody(&net(arguments))
}

/// What it says, where it works.
fn works(arguments: &[&str]) -> String {
    let output = output(theirs(arguments));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// What `husk net stat` shows of it, of the user.
fn stat(server: &Server) -> Value {
    let output = output(theirs(&["stat", &server.place(), "--json"]));
    let mut all: Value = serde_json::from_slice(&output.stdout).expect("one document");
    all[0].take()
}

/// Whether each worker answers its groups, and no others.
fn is_steered(server: &Server) -> bool {
    let even = server.answers(40, |group| group % 2 == 0);
    let odd = server.answers(40, |group| group % 2 == 1);
    all_same(&even) && all_same(&odd) && even[0] != odd[0]
}

/// No group moves.
const STILL: [&str; 2] = ["--wake-percent", "100"];

fn attach(server: &Server) -> String {
    works(&[&["attach", &server.place()], &STILL[..]].concat())
}

#[test]
fn a_user_steers_a_server_of_their_own_until_they_detach() {
    if against_native() {
        return;
    }
    let server = Server::of_nobody(&["127.0.0.1", "[::1]"]);
    let pid = server.master.id().to_string();
    let said = works(&[&["attach", &pid], &STILL[..]].concat());
    assert!(said.contains("sockets by cBPF;") && said.lines().count() == 2, "{said}");
    let six = std::net::Ipv6Addr::LOCALHOST.into();
    let even = server.answers_at(six, 40, |group| group % 2 == 0);
    assert!(is_steered(&server) && all_same(&even), "{even:?}");
    let seen = stat(&server);
    assert_eq!((&seen["way"], &seen["connections"]), (&"cbpf".into(), &Value::Null), "{seen}");
    let pids = (0..2).filter_map(|kernel| seen["kernels"][kernel]["pid"].as_i64());
    let mut pids: Vec<i64> = pids.collect();
    pids.sort_unstable();
    let workers: Vec<i64> = server.workers().iter().map(|&pid| pid.into()).collect();
    assert_eq!(pids, workers, "{seen}");
    let text = output(theirs(&["top", &server.place(), "--once"])).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("connections are not counted"), "{text}");
    let metrics = output(theirs(&["stat", "--openmetrics"])).stdout;
    let metrics = String::from_utf8_lossy(&metrics);
    let port = format!(":{}\"", server.port);
    let of_it: Vec<&str> = metrics.lines().filter(|line| line.contains(&port)).collect();
    assert!(of_it.iter().any(|line| line.starts_with("husk_net_groups{")), "{metrics}");
    assert!(!of_it.iter().any(|line| line.contains("husk_net_connections_total")), "{metrics}");
    works(&["detach", &pid]);
    assert!(!is_steered(&server));
    assert!(refused(theirs(&["detach", &pid])).contains("nothing is attached"));
}

#[test]
fn a_second_attach_is_refused_also_root_s_who_may_end_the_first() {
    if unable() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    attach(&server);
    for second in [theirs(&["attach", &server.place()]), net(&["attach", &server.place()])] {
        let said = refused(second);
        assert!(said.contains("steered already"), "{said}");
    }
    assert!(is_steered(&server));
    assert_eq!(server.top()["way"], "cbpf", "root sees it");
    done(&["detach", &server.place()]);
    assert!(!is_steered(&server));
    // The other way round.
    done(&[&["attach", &server.place()], &STILL[..]].concat());
    assert_eq!(server.top()["way"], "ebpf");
    let said = refused(theirs(&["attach", &server.place()]));
    assert!(said.contains("steered already"), "{said}");
    for command in ["stat", "detach"] {
        let said = refused(theirs(&[command, &server.place()]));
        assert!(said.contains("root steers it") && said.contains("run it as root"), "{said}");
    }
    assert!(is_steered(&server));
    done(&["detach", &server.place()]);
}

#[test]
fn a_killed_balancer_leaves_its_table_which_is_shown_and_undone() {
    if against_native() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    let is_shown = || {
        let said = refused(theirs(&["stat", &server.place()]));
        let all = output(theirs(&["stat"])).stdout;
        let all = String::from_utf8_lossy(&all);
        let line = all.lines().find(|line| line.starts_with(&server.place())).unwrap_or_default();
        [said.as_str(), line].iter().all(|text| text.contains("was killed"))
    };
    attach(&server);
    server.signal(server.balancer(), Signal::KILL);
    until("it has ended", is_shown);
    assert!(is_steered(&server), "cBPF has no clock");
    // Another takes its place, also where that is killed at once.
    attach(&server);
    assert!(is_steered(&server) && stat(&server)["balancer"].as_i64() > Some(0));
    server.signal(server.balancer(), Signal::KILL);
    until("it has ended", is_shown);
    works(&["detach", &server.place()]);
    assert!(!is_steered(&server));
    let said = refused(theirs(&["stat", &server.place()]));
    assert!(said.contains("nothing is steered"), "{said}");
    // Also after the process that was named.
    attach(&server);
    let (balancer, orphans) = (server.balancer(), Orphans(server.workers()));
    server.signal(server.master.id() as i32, Signal::KILL);
    server.signal(balancer, Signal::KILL);
    until("it has ended", || {
        refused(theirs(&["stat", &server.place()])).contains("its balancer was killed")
    });
    works(&["detach", &server.place()]);
    drop(orphans);
}

#[test]
fn root_sees_what_users_steer_and_what_root_has_undone_steers_to_nobody_any_more() {
    if unable() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    let line = |stat: Command| {
        let all = output(stat).stdout;
        let all = String::from_utf8_lossy(&all);
        all.lines().find(|line| line.starts_with(&server.place())).unwrap_or_default().to_owned()
    };
    let (of_root, of_user) = (|| line(net(&["stat"])), || line(theirs(&["stat"])));
    for end in ["detach", "attach"] {
        attach(&server);
        assert!(of_root().contains(", cbpf, "), "{}", of_root());
        server.signal(server.balancer(), Signal::KILL);
        until("both are told", || of_root() == of_user() && of_root().contains("was killed"));
        done(&[end, &server.place()]);
        assert_eq!(of_user(), "", "{end}");
        assert_eq!(of_root().is_empty(), end == "detach");
    }
    done(&["detach", &server.place()]);
    // That removes files of the killed balancer, too.
    assert!(refused(theirs(&["detach", &server.place()])).contains("nothing is attached"));
}

#[test]
fn a_signal_or_the_end_of_the_server_ends_it_in_order() {
    if against_native() {
        return;
    }
    let mut server = Server::of_nobody(LOOPBACK);
    let is_there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        attach(&server);
        let balancer = server.balancer();
        server.signal(balancer, signal);
        until("it has ended", || !is_there(balancer));
        assert!(!is_steered(&server), "{signal:?}");
        let said = refused(theirs(&["stat", &server.place()]));
        assert!(said.contains("nothing is steered"), "{said}");
    }
    attach(&server);
    let balancer = server.balancer();
    server.signal(server.master.id() as i32, Signal::TERM);
    server.master.wait().expect("its status");
    until("it has ended", || !is_there(balancer));
}

#[test]
fn workers_that_are_killed_or_added_have_their_own_groups_again_and_no_connection_is_lost() {
    if against_native() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    attach(&server);
    let pids = || -> Vec<i64> {
        // None fails.
        assert!(!server.answers(10, |_| true).is_empty());
        let seen = stat(&server);
        let kernels = seen["kernels"].as_array().cloned().unwrap_or_default();
        kernels.iter().filter_map(|kernel| kernel["pid"].as_i64()).collect()
    };
    let are_taken_in = |count: usize| {
        let mut there: Vec<i64> = server.workers().iter().map(|&pid| pid.into()).collect();
        let mut seen = pids();
        seen.sort_unstable();
        there.sort_unstable();
        seen.len() == count && seen == there
    };
    // All ports of a group go to one worker, and not all groups to the same.
    let go_by_group = || {
        let groups = (PORTS.start >> 4..PORTS.end >> 4).step_by(41);
        let answers: Vec<_> = groups.map(|one| server.answers(8, |group| group == one)).collect();
        let firsts: Vec<String> = answers.iter().map(|of_one| of_one[0].clone()).collect();
        answers.iter().all(|of_one| all_same(of_one)) && !all_same(&firsts)
    };
    for (workers, killed) in [(3, None), (3, Some(0)), (4, None), (4, Some(2)), (2, None)] {
        match killed {
            Some(at) => server.signal(server.workers()[at], Signal::KILL),
            None => {
                write_configuration(&server.scratch, LOOPBACK, server.port, workers);
                server.signal(server.master.id() as i32, Signal::HUP);
            }
        }
        until("the new ones are taken in", || are_taken_in(workers));
        until("each group has one worker", go_by_group);
    }
    works(&["detach", &server.place()]);
    assert!(!go_by_group(), "by hash, ports of a group go to all");
}

#[test]
fn a_worker_that_has_everything_gives_half_of_it_away() {
    if against_native() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    works(&["attach", &server.place(), "--wake-percent", "0"]);
    until("both answer as often", || {
        let answers = server.answers(200, |group| group % 2 == 0);
        let first = answers.iter().filter(|answer| **answer == answers[0]).count();
        first.max(200 - first) <= 130
    });
    let seen = stat(&server);
    assert!(seen["moves"].as_u64().is_some_and(|moves| moves > 0), "{seen}");
    works(&["detach", &server.place()]);
}

/// As those of threads are.
#[test]
fn sockets_of_one_process_are_steered_and_that_their_loads_do_not_show_is_told() {
    if unable() {
        return;
    }
    let first = listeners(0, 1);
    let address = first[0].local_addr().expect("an address");
    let _second = listeners(address.port(), 1);
    let target = address.to_string();
    let attached = output(net(&["attach", &target, "--way", "cbpf"]));
    let said = String::from_utf8_lossy(&attached.stderr).into_owned();
    assert!(attached.status.success() && said.contains("among 2 sockets by cBPF;"), "{said}");
    let seen = output(net(&["stat", &target])).stdout;
    for text in [said, String::from_utf8_lossy(&seen).into_owned()] {
        assert!(text.contains("cBPF cannot tell their loads apart"), "{text}");
    }
    done(&["detach", &target]);
}

#[test]
fn what_cannot_be_steered_without_privilege_is_told_in_one_line() {
    if against_native() {
        return;
    }
    let server = Server::of_nobody(LOOPBACK);
    let said = refused(theirs(&["attach", &server.place(), "--way", "ebpf"]));
    assert!(said.contains("run it as root"), "{said}");
    let said = refused(theirs(&["attach", "4194999"]));
    assert!(said.contains("nobody listens"), "{said}");
    assert!(!is_steered(&server), "nothing is attached");
    // One socket for all: it does not share its port.
    let path = server.scratch.path();
    let text = fs::read_to_string(path.join("conf")).expect("a configuration");
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|any| any.local_addr());
    let other = other.expect("a free port").port();
    let text =
        text.replace(" reuseport", "").replace(&format!(":{}", server.port), &format!(":{other}"));
    fs::write(path.join("conf"), text).expect("a configuration");
    server.signal(server.master.id() as i32, Signal::HUP);
    let target = format!("127.0.0.1:{other}");
    until("it listens there alone", || {
        let said = refused(theirs(&["attach", &target]));
        said.contains("SO_REUSEPORT") && said.contains("nginx")
    });
}

#[test]
fn where_yama_lets_nobody_borrow_the_line_names_its_setting() {
    if unable() {
        return;
    }
    const EPERM: i32 = 1;
    let server = Server::of_nobody(LOOPBACK);
    let scope = "mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && \
                 echo 1 > /proc/sys/kernel/yama/ptrace_scope && exec \"$@\"";
    let within = |arguments: &[&str]| {
        let whole = old_host("pidfd_getfd", EPERM, &theirs(arguments));
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", scope, "sh"]).arg(whole.get_program());
        unshare.args(whole.get_args());
        unshare
    };
    let said = refused(within(&["attach", &server.place()]));
    assert!(said.contains("kernel.yama.ptrace_scope is 1"), "{said}");
    let check = output(within(&["check", "--json"]));
    let report: Value = serde_json::from_slice(&check.stdout).expect("one document");
    assert_eq!((check.status.code(), &report["way"]), (Some(125), &"none".into()), "{report}");
    let check = output(theirs(&["check"]));
    let text = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success() && text.contains("servers of your own by cBPF"), "{text}");
}

#[test]
fn a_balancer_that_cannot_name_all_sockets_any_more_undoes_its_table_and_ends() {
    if unable() {
        return;
    }
    let server = Server::start();
    done(&[&["attach", &server.place(), "--way", "cbpf"], &STILL[..]].concat());
    assert!(is_steered(&server));
    let balancer = server.balancer();
    let more = listeners(server.port, 63);
    until("it has ended", || !fs::exists(format!("/proc/{balancer}")).unwrap_or(true));
    drop(more);
    assert!(!is_steered(&server), "its table is still there");
}

/// A command in the network namespace of a server.
fn beside(server: &Server, command: &Command) -> Command {
    let mut nsenter = Command::new("nsenter");
    nsenter.arg(format!("--net=/proc/{}/ns/net", server.master.id()));
    nsenter.arg(command.get_program()).args(command.get_args());
    nsenter
}

#[test]
fn a_server_in_another_network_namespace_is_told_in_one_line() {
    if unable() {
        return;
    }
    let server = Server::of_nobody_apart("true", 2);
    let pid = server.master.id().to_string();
    let attach = |target: &str| theirs(&[&["attach", target], &STILL[..]].concat());
    let mut said = String::new();
    until("it listens", || {
        said = refused(attach(&pid));
        !said.contains("nobody listens")
    });
    assert!(said.contains("another network namespace") && said.contains("root"), "{said}");
    assert!(output(beside(&server, &attach(&server.place()))).status.success());
    assert!(output(beside(&server, &theirs(&["detach", &pid]))).status.success());
}

#[test]
fn more_sockets_than_a_program_may_name_are_refused_and_sixteen_are_not() {
    if unable() {
        return;
    }
    // What Linux had before 6.7.
    let setup = "echo 20480 > /proc/sys/net/core/optmem_max";
    let unshared = Command::new("unshare").args(["--net", "sh", "-c", setup]).output();
    if !unshared.expect("unshare").status.success() {
        // One setting for the whole host: not ours.
        return;
    }
    for (workers, fits) in [(16, true), (17, false)] {
        let server = Server::of_nobody_apart(setup, workers);
        let attach = || beside(&server, &theirs(&["attach", &server.place()]));
        until("they listen", || {
            let listening = output(beside(&server, Command::new("ss").args(["-ltn"])));
            let listening = String::from_utf8_lossy(&listening.stdout).into_owned();
            listening.matches(&server.place()).count() == workers
        });
        if fits {
            let attached = output(attach());
            assert!(attached.status.success(), "{attached:?}");
            let workers = |workers: usize| {
                write_configuration(&server.scratch, LOOPBACK, server.port, workers);
                server.signal(server.master.id() as i32, Signal::HUP);
            };
            let trouble = || {
                let stat = beside(&server, &theirs(&["stat", &server.place()]));
                String::from_utf8_lossy(&output(stat).stdout).into_owned()
            };
            workers(17);
            until("it says why", || {
                trouble().contains("by hash for now: a program for 17 sockets")
            });
            workers(16);
            until("it steers again", || !trouble().contains("by hash"));
        } else {
            let said = refused(attach());
            assert!(said.contains("17 sockets") && said.contains("optmem_max"), "{said}");
        }
        let detach = beside(&server, &theirs(&["detach", &server.place()]));
        assert_eq!(output(detach).status.success(), fits);
    }
}
