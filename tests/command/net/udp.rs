//! `husk run --udp`: datagram sockets that are set up when programs bind them.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Outcome, Scratch, against_native};

use crate::{as_nobody, run, said};

/// Two sockets of one thread at one port: what the second `bind` says, and for each socket whether
/// it shares its port, its core, how long it polls, and where the thread may run after its `bind`.
const PROGRAM: &str = "
import os, socket, sys
kind = getattr(socket, sys.argv[1])
first, second = [socket.socket(socket.AF_INET, kind) for _ in range(2)]
port = 0
for one in first, second:
    try:
        one.bind(('127.0.0.1', port))
    except OSError as error:
        print(os.strerror(error.errno))
        sys.exit()
    port = one.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    told = [one.getsockopt(socket.SOL_SOCKET, option) for option in (15, 49, 46)]
    print(*told, len(cores), cores[0])
";

fn bound(options: &[&str], kind: &str) -> Outcome {
    let scratch = Scratch::new("udp-set-up");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.arg("run").args(options).args(["--", "python3", "-c", PROGRAM, kind]);
    run(&scratch, &work, command)
}

fn lines(outcome: &Outcome) -> Vec<String> {
    String::from_utf8_lossy(&outcome.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn datagram_sockets_share_a_port_where_that_is_asked_for_and_others_do_not() {
    if against_native() {
        return;
    }
    let alone = bound(&[], "SOCK_DGRAM");
    assert_eq!(lines(&alone)[1], "Address already in use", "{}", alone.shown());
    let shared = bound(&["--udp", "reuseport"], "SOCK_DGRAM");
    for line in lines(&shared) {
        assert!(line.starts_with("1 -1 "), "{}", shared.shown());
    }
    assert_eq!(lines(&shared).len(), 2, "{}", shared.shown());
    let stream = bound(&["--udp", "reuseport,pin"], "SOCK_STREAM");
    assert!(lines(&stream)[0].starts_with("0 -1 "), "{}", stream.shown());
    assert_eq!(lines(&stream)[1], "Address already in use", "{}", stream.shown());
}

#[test]
fn pinned_sockets_get_cores_by_turns_and_so_does_who_binds_them() {
    if against_native() {
        return;
    }
    let cores = std::thread::available_parallelism().expect("cores").get();
    let pinned = bound(&["--udp", "reuseport,pin"], "SOCK_DGRAM");
    let of = |line: &String| -> Vec<usize> {
        line.split(' ').map(|word| word.parse().expect("a number")).collect()
    };
    let told: Vec<Vec<usize>> = lines(&pinned).iter().map(of).collect();
    assert_eq!(told.len(), 2, "{}", pinned.shown());
    for one in &told {
        let [shares, core, _, allowed, first] = one[..] else { panic!("{}", pinned.shown()) };
        assert_eq!((shares, core, allowed), (1, first, 1), "{}", pinned.shown());
    }
    assert_eq!(told[0][1] != told[1][1], cores > 1, "{}", pinned.shown());
}

#[test]
fn what_cannot_be_set_up_is_refused_in_one_line() {
    if against_native() {
        return;
    }
    for (options, why) in [
        (&["--udp", "fast"][..], "reuseport"),
        (&["--udp", "pin", "--pin"], "--place or --pin"),
        (&["--udp", "pin", "--place", "random"], "--place or --pin"),
    ] {
        let outcome = bound(options, "SOCK_DGRAM");
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        assert!(matches!(&said(&outcome)[..], [line] if line.contains(why)), "{}", outcome.shown());
    }
    // Older hosts ask for a right to poll.
    let mut command = Command::new(binary());
    command.args(["run", "--udp", "busy-poll", "--", "true"]);
    if rustix::process::geteuid().is_root() {
        let output = as_nobody(&command).output().expect("husk");
        let said = String::from_utf8_lossy(&output.stderr);
        let refused = said.contains("CAP_NET_ADMIN") && said.lines().count() == 1;
        assert_eq!(output.status.code(), Some(if refused { 125 } else { 0 }), "{said}");
    }
}

#[test]
fn sockets_poll_where_that_is_asked_for() {
    if against_native() || !rustix::process::geteuid().is_root() {
        return;
    }
    let polling = bound(&["--udp", "reuseport,busy-poll"], "SOCK_DGRAM");
    for line in lines(&polling) {
        assert!(line.starts_with("1 -1 50 "), "{}", polling.shown());
    }
    assert_eq!(lines(&polling).len(), 2, "{}", polling.shown());
}
