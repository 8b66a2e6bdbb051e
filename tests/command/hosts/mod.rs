//! `husk run --on`: a build on two hosts makes what it makes on one; what is in the way is said.
//!
//! What the other host is, is in `host`.

mod bench;
mod broken;
mod build;
mod copies;
mod host;
mod locks;
mod placed;
mod room;
mod spent;
mod standing;
mod started;
mod written;

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use husk_tests::tree::Tree;
use husk_tests::{Outcome, Run, process};

use crate::nodes::{AGENTS, children, project};
use crate::{LIMIT, run, said};
use host::{Host, until};

/// Files of the project that is built.
const FILES: u32 = 40;

/// How long a network is gone so that nobody gives up.
const SHORT_GAP: Duration = Duration::from_secs(5);

/// How many programs the closing line counts.
fn programs(outcome: &Outcome) -> u32 {
    let line = said(outcome).into_iter().find_map(|line| line.strip_prefix("husk: h: "));
    let count = line.and_then(|line| line.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("a closing line: {}", outcome.shown()))
}

#[test]
fn a_build_on_two_hosts_makes_what_it_makes_on_one_and_leaves_nothing_there() {
    let Some(host) = Host::new("hosts-make") else { return };
    let mut made = Vec::new();
    for on in [false, true] {
        let work = host.scratch.fresh("work");
        project(&work, FILES, "cc");
        let input = Tree::read(&work, None);
        let (options, first): (&[&str], _) = if on {
            (&["--on", "h"], "HUSK_NODE=1 cc -dumpversion >build.version; rm build.version;")
        } else {
            (&[], "")
        };
        // Until the compiler is known there, its programs may run here.
        let script = format!("exec </dev/null; {first} exec make -j8 -s");
        let outcome = run(&host.scratch, &work, host.command(options, &["bash", "-c", &script]));
        assert!(outcome.status.success() && outcome.stdout.is_empty(), "{}", outcome.shown());
        if on {
            let there = programs(&outcome);
            assert!((2..=FILES).contains(&there), "{}", outcome.shown());
            host.nothing_is_left();
        }
        made.push((Tree::read(&work, Some((outcome.started, outcome.ended))), input));
    }
    let [(one, _), (two, input)] = &made[..] else { panic!("two trees") };
    assert_eq!(one.differences(two, input, &|_| false), Vec::<String>::new());
}

#[test]
fn output_statuses_signals_directories_and_masks_go_over_hosts() {
    let Some(host) = Host::new("hosts-pipes") else { return };
    let script = "exec </dev/null; export HUSK_NODE=0
HUSK_NODE=1 seq 100000 | tail -1
HUSK_NODE=1 ls /nowhere; echo $?
HUSK_NODE=1 perl -e 'print STDERR \"err\\n\"; exit 7'; echo $?
HUSK_NODE=1 perl -e 'kill TERM => $$; sleep 9'; echo $?
mkdir -p deep/er; cd deep/er; umask 077
HUSK_NODE=1 perl -e 'open F, \">made\"; print F \"bytes\"; close F; rename \"made\", \"moved\"'
cat moved; ls -l moved | cut -c1-10; echo here > own; HUSK_NODE=1 cat own; HUSK_NODE=1 ls
A='a b' HUSK_NODE=1 perl -e 'print \"$ENV{A} @ARGV\\n\"' '' 'x  y' '*'
HUSK_NODE=1 seq 1000000 | head -1
HUSK_NODE=1 perl -e '$| = 1; for (1..300) { print \"o$_ \"; print STDERR \"e$_ \" }' 2>&1 | cksum
HUSK_NODE=1 sleep 300 & sleep 1; kill $!; wait $!; echo $?
HUSK_NODE=1 perl -e 'open F, \">>../old\" or die; print F \"more\"; close F'; cat ../old
";
    let mut all = Vec::new();
    for on in [false, true] {
        let work = host.scratch.fresh("work");
        fs::create_dir(work.join("deep")).expect("a directory");
        fs::write(work.join("deep/old"), "host bytes\n").expect("a file");
        let options: &[&str] = if on { &["--on", "h"] } else { &[] };
        let outcome = run(&host.scratch, &work, host.command(options, &["bash", "-c", script]));
        if on {
            assert_eq!(programs(&outcome), 12, "{}", outcome.shown());
        }
        all.push((String::from_utf8_lossy(&outcome.stdout).into_owned(), outcome.status.code()));
    }
    assert_eq!(all[0], all[1]);
    assert!(all[1].0.contains("143") && all[1].0.contains("host bytes\nmore"), "{}", all[1].0);
}

/// Runs a script with and without another host: what it has written, and how many went there.
fn both(host: &Host, script: &str) -> ([String; 2], u32) {
    let [here, there] = [&[][..], &["--on", "h"]].map(|options| {
        let work = host.scratch.fresh("work");
        run(&host.scratch, &work, host.command(options, &["bash", "-c", script]))
    });
    let count = programs(&there);
    ([here, there].map(|outcome| String::from_utf8_lossy(&outcome.stdout).into_owned()), count)
}

#[test]
fn files_that_give_rights_are_written_on_another_host_and_lose_them_as_here() {
    let Some(host) = Host::new("hosts-rights") else { return };
    let script = r#"exec </dev/null 2>&1; export HUSK_NODE=0; umask 0
for who in '' 'setpriv --reuid 65534 --regid 65534 --clear-groups'; do
  rm -f f; echo text >f; chmod 6777 f
  HUSK_NODE=1 $who dd if=/dev/zero of=f bs=4 count=1 conv=notrunc status=none; stat -c '%a %s' f
  chmod 6777 f; HUSK_NODE=1 $who cp /etc/hostname f; cmp /etc/hostname f; stat -c %a f
  chmod 6777 f; HUSK_NODE=1 $who truncate -s 3 f; stat -c '%a %s' f
done
python3 -c 'import os
os.setxattr("f", "security.capability", bytes([1, 0, 0, 2, 0, 4] + [0] * 14))'
HUSK_NODE=1 dd if=/dev/zero of=f bs=1 count=1 conv=notrunc status=none
python3 -c 'import os; print(os.listxattr("f"))'"#;
    let ([here, there], count) = both(&host, script);
    assert_eq!(here, there);
    assert!(here.starts_with("6777 5\n6777\n6777 3\n777 5\n777\n777 3\n"), "{here}");
    assert!(here.ends_with("[]\n"), "{here}");
    assert_eq!(count, 7);
}

#[test]
fn what_is_stored_in_a_mapping_on_another_host_is_in_the_file_at_home() {
    let Some(host) = Host::new("hosts-maps") else { return };
    let script = r#"exec </dev/null; export HUSK_NODE=0
head -c 10000 /dev/zero | tr '\0' a >f
BEGIN='import mmap, os; fd = os.open("f", os.O_RDWR); m = mmap.mmap(fd, 10000); '
HUSK_NODE=1 python3 -c "$BEGIN m[4998:5002] = b'1234'; m.flush(); print(os.pread(fd, 9, 4995))"
HUSK_NODE=1 python3 -c "$BEGIN m[0] = 66; os.kill(os.getpid(), 9)"
HUSK_NODE=1 python3 -c "$BEGIN os.pwrite(fd, b'own', 1); m[5] = 67; m.close()"
cut -c1-9 f; cksum f
export GOFLAGS=-mod=mod GOPROXY=off GO111MODULE=on
printf 'module m\n\ngo 1.18\n' >go.mod
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("built", 1+1) }\n' >main.go
go version >/dev/null || exit 0
go build -trimpath -toolexec 'env HUSK_NODE=1' -o p . && ./p && cksum p
HUSK_NODE=1 go build -trimpath -o q . && cmp p q"#;
    let ([here, there], count) = both(&host, script);
    assert_eq!(here, there);
    assert!(there.starts_with("b'aaa1234aa'\n") && there.contains("BownaCaaa\n"), "{there}");
    assert!(count >= 3, "{count}");
}

#[test]
fn a_closed_standard_descriptor_is_closed_and_not_empty() {
    let Some(host) = Host::new("hosts-closed") else { return };
    let script = "exec </dev/null 2>&1; export HUSK_NODE=1
cat <&-; perl -e 'syswrite(STDOUT, 1) or print STDERR $!' >&-; cat";
    let ([here, there], count) = both(&host, script);
    assert_eq!(here, there);
    assert!(there.starts_with("cat: -: Bad file descriptor\n"), "{there}");
    assert_eq!(count, 1);
}

#[test]
fn hosts_that_cannot_be_used_are_refused_in_one_line_and_nothing_is_left() {
    let Some(mut host) = Host::new("hosts-refused") else { return };
    let home = host.home.display().to_string();
    host.configure("Host h\nPort 1");
    assert!(host.refused().contains("Connection refused; see whether `ssh h true` works"));
    host.configure("");
    let keys = fs::read_to_string(host.path("authorized")).expect("a file");
    host.write("authorized", "");
    assert!(host.refused().contains("Permission denied"));
    host.write("authorized", &keys);
    let known = fs::read_to_string(host.path("known")).expect("a file");
    host.write("known", &format!("h {}", fs::read_to_string(host.path("userkey.pub")).unwrap()));
    host.configure("");
    assert!(host.refused().contains("Host key verification failed"));
    host.write("known", &known);
    host.serve(&format!("mount -t tmpfs -o noexec home {home}"));
    assert!(host.refused().contains("Permission denied"));
    host.serve(&format!("mount -t tmpfs -o size=1m home {home}"));
    assert!(host.refused().contains("No space left on device"));
    host.serve(&format!(
        "mkdir -p {home}/bin; printf '#!/bin/sh\\necho Linux riscv64\\n' > {home}/bin/uname; \
         chmod 755 {home}/bin/uname"
    ));
    assert!(host.refused().contains("Linux riscv64 is not served"));
}

#[test]
fn wrong_names_and_what_is_not_served_with_hosts_are_refused_with_a_line() {
    let Some(host) = Host::new("hosts-options") else { return };
    let work = host.scratch.fresh("work");
    for (options, told) in [
        (&["--on", "h,h"][..], "it is named twice"),
        (&["--on=-oProxyCommand=touch made"], "it is not the name of a host"),
        (&["--on", "h,"], "it is not the name of a host"),
        (&["--on", "h", "--nodes", "2"], "leave out --nodes, or --on"),
        (&["--on", "h", "--read-only-outside"], "leave out --read-only-outside"),
    ] {
        let outcome = run(&host.scratch, &work, host.command(options, &["true"]));
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        let [line] = said(&outcome)[..] else { panic!("one line: {}", outcome.shown()) };
        assert!(line.contains(told), "{line}");
    }
    assert!(!work.join("made").exists());
}

#[test]
fn a_copy_that_was_tampered_with_is_replaced_and_never_run() {
    let Some(host) = Host::new("hosts-tampered") else { return };
    let work = host.scratch.fresh("work");
    let argv = ["sh", "-c", "HUSK_NODE=1 /bin/true </dev/null"];
    assert_eq!(programs(&host.run(&work, &argv)), 1);
    let cache = host.home.join(".cache/husk");
    let copy = fs::read_dir(&cache).unwrap().flatten().map(|entry| entry.path());
    let copy = copy.into_iter().find(|path| path.is_file()).expect("the copy");
    let marked = format!("#!/bin/sh\ntouch {}\n", host.path("ran").display());
    fs::write(&copy, marked).expect("writing");
    let outcome = host.run(&work, &argv);
    assert_eq!(programs(&outcome), 1);
    assert!(said(&outcome).iter().any(|line| line.contains("was not ours")), "{}", outcome.shown());
    assert!(!host.path("ran").exists());
    assert!(fs::metadata(&copy).expect("the copy").len() > 1 << 20);
}

#[test]
fn programs_that_are_not_the_same_there_run_here() {
    let Some(mut host) = Host::new("hosts-different") else { return };
    let other = host.path("other");
    fs::copy("/usr/bin/true", &other).expect("a copy");
    let mut bytes = fs::read(&other).expect("its bytes");
    bytes.push(0);
    fs::write(&other, bytes).expect("other bytes");
    host.serve(&format!("mount --bind {} /usr/bin/true", other.display()));
    let work = host.scratch.fresh("work");
    let outcome = host.run(&work, &["sh", "-c", "HUSK_NODE=1 /usr/bin/true </dev/null"]);
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(programs(&outcome), 0);
    let told =
        "1 ran here because it does not have the same program (--root home lets them run there)";
    assert!(outcome.stderr.contains(told), "{}", outcome.shown());
}

/// Kills the host's end in the middle of a program there.
#[test]
fn a_host_that_is_lost_ends_its_programs_as_killed_and_all_others_run_here() {
    let Some(host) = Host::new("hosts-lost") else { return };
    let work = host.scratch.fresh("work");
    let script = "exec </dev/null; HUSK_NODE=1 sleep 300; echo $?; HUSK_NODE=1 /bin/echo here";
    let argv = ["bash", "-c", script];
    let run = Run::start(host.command(&["--on", "h"], &argv), &work, host.scratch.path());
    until("a program there", || host.process("husk: shadow").is_some());
    until("its process", || host.exactly("sleep 300").is_some());
    assert!(process::kill(host.guest().expect("a guest")));
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "137\nhere\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    assert!(outcome.stderr.contains("1 were lost with it"), "{}", outcome.shown());
    host.nothing_is_left();
}

#[test]
fn nothing_is_left_there_when_the_starter_is_killed() {
    let Some(host) = Host::new("hosts-killed") else { return };
    let work = host.scratch.fresh("work");
    let argv = ["bash", "-c", "exec </dev/null; HUSK_NODE=1 sleep 300"];
    let run = Run::start(host.command(&["--on", "h"], &argv), &work, host.scratch.path());
    until("a program there", || host.process("husk: shadow").is_some());
    process::kill(run.pid());
    let _ = run.wait(LIMIT);
    host.nothing_is_left();
}

/// A build, while the network is gone for a time in which nobody gives up.
#[test]
fn a_network_that_is_gone_for_seconds_costs_a_build_nothing_but_time() {
    let Some(host) = Host::far("hosts-gap") else { return };
    let work = host.scratch.fresh("work");
    project(&work, FILES, "cc");
    let run = Run::start(
        host.command(&["--on", "h"], &["make", "-j4", "-s"]),
        &work,
        host.scratch.path(),
    );
    until("a program there", || host.process("husk: shadow").is_some());
    let net = host.net.as_ref().expect("a network");
    net.cut(true);
    std::thread::sleep(SHORT_GAP);
    net.cut(false);
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert!(outcome.status.success() && !outcome.stderr.contains("lost"), "{}", outcome.shown());
    assert!(programs(&outcome) > 0);
    host.nothing_is_left();
}

/// A build with a program there that writes without an end, so that all pipes on the way are full.
#[test]
fn a_network_that_is_cut_ends_what_runs_there_on_both_sides() {
    let Some(host) = Host::far("hosts-cut") else { return };
    let work = host.scratch.fresh("work");
    let script = "exec </dev/null
(HUSK_NODE=1 seq 1000000000 >/dev/null; echo $?) & (HUSK_NODE=1 sleep 300; echo $?) & wait
HUSK_NODE=1 /bin/echo here";
    let argv = ["bash", "-c", script];
    let run = Run::start(host.command(&["--on", "h"], &argv), &work, host.scratch.path());
    until("the programs there", || {
        host.exactly("sleep 300").is_some() && host.exactly("seq 1000000000").is_some()
    });
    let net = host.net.as_ref().expect("a network");
    net.cut(true);
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "137\n137\nhere\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    // What is there ends by itself: nobody can tell it.
    host.nothing_is_left();
}

/// The host does not answer, and nobody knows yet whether it has the same program.
/// Changes of names and attributes, each of which fails if it is made twice.
const CHANGES: &str = "use Fcntl;
for (1..500) {
    mkdir 'd' or die \"mkdir $!\";
    sysopen F, 'd/f', O_CREAT | O_EXCL | O_WRONLY, 0400 or die \"create $!\"; close F;
    link 'd/f', 'g' or die \"link $!\"; rename 'g', 'd/g' or die \"rename $!\";
    chmod 0600, 'd/f' or die \"chmod $!\"; truncate 'd/f', 9 or die \"truncate $!\";
    symlink 'to', 'g' or die \"symlink $!\"; unlink 'g' or die \"unlink $!\";
    unlink \"d/$_\" or die \"unlink $!\" for 'f', 'g'; rmdir 'd' or die \"rmdir $!\";
}
print 'through'";

#[test]
fn changes_of_a_program_there_are_made_once_whenever_the_agent_is_killed() {
    let Some(host) = Host::new("hosts-once") else { return };
    let work = host.scratch.fresh("work");
    fs::write(work.join("changes.pl"), CHANGES).expect("a file");
    let script = "HUSK_NODE=1 perl changes.pl; ls";
    let command = host.command(&["--on", "h"], &["sh", "-c", script]);
    let mut running = Run::start(command, &work, host.scratch.path());
    let mut killed = 0;
    while killed < AGENTS && !running.ended() {
        for agent in children(running.pid(), "husk: home") {
            killed += u32::from(process::kill(agent));
        }
        // The session takes a while to begin, and the program runs longer than that.
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = running.wait(LIMIT).expect("it ends");
    assert_eq!(outcome.stdout, b"throughchanges.pl\n", "{}", outcome.shown());
    assert_eq!(programs(&outcome), 1, "{}", outcome.shown());
    assert!(killed > 2, "{killed}");
}

#[test]
fn programs_that_are_not_compared_yet_run_here_unless_the_host_is_named() {
    let Some(host) = Host::new("hosts-unknown") else { return };
    let work = host.scratch.fresh("work");
    let script = "echo 0; read go; exec </dev/null
HUSK_NODE=0 sleep 300 & for n in 1 2 3 4; do seq $n $n; done; kill $!; wait; HUSK_NODE=1 seq 5 5";
    let command = host.command(&["--on", "h"], &["bash", "-c", script]);
    let mut run = Run::start_piped(command, &work, host.scratch.path());
    until("it runs", || run.stdout() == b"0\n");
    let guest = host.guest().and_then(Pid::from_raw).expect("the one to stop");
    kill_process(guest, Signal::STOP).expect("it stops");
    drop(run.stdin());
    until("its programs have run", || run.stdout().starts_with(b"0\n1\n2\n3\n4\n"));
    kill_process(guest, Signal::CONT).expect("it goes on");
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout),
        "0\n1\n2\n3\n4\n5\n",
        "{}",
        outcome.shown()
    );
    assert!(
        outcome.stderr.contains("ran here because they were not compared yet"),
        "{}",
        outcome.shown()
    );
    assert_eq!(programs(&outcome), 1, "{}", outcome.shown());
}

/// Stops the process that `find` finds until the other side has given up.
fn stop(name: &str, find: impl Fn(&Host) -> Option<i32>, given_up: impl Fn(&Host) -> bool) {
    let Some(host) = Host::new(name) else { return };
    let work = host.scratch.fresh("work");
    let script = "exec </dev/null; HUSK_NODE=1 sleep 300; echo $?; HUSK_NODE=1 /bin/echo here";
    let argv = ["bash", "-c", script];
    let run = Run::start(host.command(&["--on", "h"], &argv), &work, host.scratch.path());
    until("its process", || host.exactly("sleep 300").is_some());
    let stopped = find(&host).and_then(Pid::from_raw).expect("the one to stop");
    kill_process(stopped, Signal::STOP).expect("it stops");
    until("the other side gives up", || given_up(&host));
    kill_process(stopped, Signal::CONT).expect("it goes on");
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "137\nhere\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h is lost"), "{}", outcome.shown());
    host.nothing_is_left();
}

#[test]
fn a_host_that_is_stopped_is_lost_and_ends_what_is_left_when_it_wakes() {
    // Its program goes on, and is nobody's.
    stop("hosts-asleep", Host::guest, |host| host.process("husk: shadow").is_none());
}

#[test]
fn a_starter_that_is_stopped_finds_its_programs_ended_when_it_wakes() {
    let starter = |host: &Host| host.process("serve-host");
    stop("hosts-starter", starter, |host| host.exactly("sleep 300").is_none());
}
