//! What speaks nonsense over the link, and hosts that are none: one line, and nothing is left.

use std::fs;

use super::host::Host;
use crate::{run, said};

/// A frame as `crates/supervisor/src/hosts/session/stream.rs` has it.
fn frame(kind: u8, channel: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(&channel.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const WELCOME: u8 = 2;
const REQUEST: u8 = 5;
const OUTPUT: u8 = 13;
const STATUS: u8 = 15;

fn welcome() -> Vec<u8> {
    frame(WELCOME, 0, b"{\"processors\":4}")
}

/// What is said by a host that says exactly `bytes`, and is silent then until it is left.
fn says(host: &Host, bytes: &[u8]) {
    fs::write(host.path("bytes"), bytes).expect("a file");
    let bytes = host.path("bytes").display().to_string();
    // The way back stays open.
    host.ssh_is(&format!("cat {bytes}; exec 4>&1; exec cat > /dev/null"));
}

#[test]
fn what_is_no_guest_is_refused_in_one_line() {
    let Some(host) = Host::new("hosts-nonsense") else { return };
    let mut noise = b"go\n".to_vec();
    noise.extend((0..9999u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
    for (said, told) in [
        (&b"Welcome to this host!\n"[..], "its shell says"),
        (&b"refused it is closed\n"[..], "it is closed"),
        (&[b'x'; 5000], "ssh has ended without a reason"),
        (&noise, "husk there ended at once"),
        (
            &[&b"go\n"[..], &frame(WELCOME, 0, b"{\"processors\":")].concat(),
            "its messages are not valid",
        ),
        (
            &[&b"go\n"[..], &frame(WELCOME, 0, b"{\"processors\":-1}")].concat(),
            "its messages are not valid",
        ),
        (&[&b"go\n"[..], &[0xff, 0xff, 0xff, 0xff, WELCOME, 0, 0, 0, 0]].concat(), "at once"),
        (&[&b"go\n"[..], &frame(STATUS, 0, &[0, 0])].concat(), "husk there ended at once"),
    ] {
        says(&host, said);
        let line = host.refused();
        assert!(line.contains(told), "{told}: {line}");
    }
}

/// A session that begins well; then come `bytes`.
fn then(host: &Host, bytes: &[u8]) -> husk_tests::Outcome {
    says(host, &[&b"go\n"[..], &welcome(), bytes].concat());
    let work = host.scratch.fresh("work");
    // What the guest says is to be heard before the end.
    let script = "exec </dev/null; for n in 1 2 3 4 5 6 7 8 9; do /bin/echo $n; done > out; cat out
        sleep 1";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["sh", "-c", script]));
    assert_eq!(outcome.stdout, b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "{}", outcome.shown());
    assert_eq!(outcome.status.code(), Some(0), "{}", outcome.shown());
    assert_eq!(fs::read(work.join("out")).expect("a file"), outcome.stdout);
    host.nothing_is_left();
    outcome
}

#[test]
fn a_guest_that_breaks_the_protocol_is_lost_and_harms_nobody() {
    let Some(host) = Host::new("hosts-hostile") else { return };
    let request = |channel, message: &[u8]| frame(REQUEST, channel, message);
    let flood: Vec<u8> = (0..4000).flat_map(|n| request(n, &[0; 200])).collect();
    let unknown = frame(99, 0, b"");
    let long = [0xff, 0xff, 0xff, 0x7f, OUTPUT, 0, 0, 0, 0];
    let short = request(1, b"abc");
    let wrong = frame(STATUS, 7, &[9, 9]);
    let own = frame(1, 0, b"{}");
    for bytes in [&flood[..], &unknown, &long, &short, &wrong, &own] {
        let outcome = then(&host, bytes);
        assert!(outcome.stderr.contains("husk: h is lost"), "{bytes:?}: {}", outcome.shown());
    }
}

#[test]
fn what_a_guest_says_of_nobody_is_ignored_and_messages_of_noise_are_refused() {
    let Some(host) = Host::new("hosts-noise") else { return };
    let mut bytes = frame(OUTPUT, 77, b"for nobody");
    bytes.extend(frame(STATUS, 78, &[0; 6]));
    let mut header = b"HK\x01\x00\x10\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00".to_vec();
    header.extend([0xff; 24]);
    for (number, message) in [&[][..], &[0; 40], &[0xff; 40], &header].into_iter().enumerate() {
        bytes.extend(frame(REQUEST, number as u32, &[&[0; 4], message].concat()));
    }
    let outcome = then(&host, &bytes);
    assert!(!outcome.stderr.contains("h is lost"), "{}", outcome.shown());
}

/// The other way: what comes to the guest is nonsense from some byte on.
#[test]
fn a_guest_that_hears_nonsense_ends_and_leaves_nothing() {
    let Some(host) = Host::new("hosts-deaf") else { return };
    let work = host.scratch.fresh("work");
    assert!(host.run(&work, &["true"]).status.success(), "its copy of the command is there");
    let (config, pipe) = (host.path("ssh").display().to_string(), host.path("pipe"));
    let pipe = pipe.display();
    let spoiled = |good: &str| {
        host.ssh_is(&format!(
            "rm -f {pipe}; mkfifo {pipe}; exec 3<&0
(dd bs=1 count={good}; head -c 5000 /dev/zero | tr '\\0' '\\377'; exec cat > /dev/null) \
    <&3 >{pipe} 2>/dev/null &
exec /usr/bin/ssh -F {config} \"$@\" <{pipe} 3<&-"
        ));
    };
    for (good, told) in [("0", "husk there ended at once"), ("50", "it has another version")] {
        spoiled(good);
        let line = host.refused();
        assert!(line.contains(told), "{line}");
    }
    // The first words of a session have a length that depends on names: some of the jobs' follow.
    spoiled("20000");
    let script = "exec </dev/null; for n in 1 2 3 4 5 6 7 8 9; do
HUSK_NODE=1 /bin/echo $n $(head -c 9000 /dev/zero | tr '\\0' x) > /dev/null; done; /bin/echo over";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["sh", "-c", script]));
    assert_eq!(outcome.stdout, b"over\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    host.nothing_is_left();
}

#[test]
fn unknown_hosts_cut_networks_and_too_many_hosts_are_refused_in_one_line() {
    let Some(host) = Host::far("hosts-unknown") else { return };
    host.configure("Host h\nHostName nowhere.invalid");
    assert!(host.refused().contains("Could not resolve hostname nowhere.invalid"));
    host.configure("");
    host.net.as_ref().expect("a network").cut(true);
    let line = host.refused();
    assert!(line.contains("Connection timed out") || line.contains("No route to host"), "{line}");
    let work = host.scratch.fresh("work");
    let many: Vec<_> = (0..200).map(|number| format!("h{number}")).collect();
    let command = host.command(&["--on", &many.join(",")], &["touch", "made"]);
    let outcome = run(&host.scratch, &work, command);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
    let [line] = said(&outcome)[..] else { panic!("one line: {}", outcome.shown()) };
    assert!(line.contains("200 hosts: an image has at most 64"), "{line}");
    assert!(!work.join("made").exists());
}
