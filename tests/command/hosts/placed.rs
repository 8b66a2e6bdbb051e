//! Which programs go to another host: those that run beside others, to the host with most room.

use super::host::Host;
use super::programs;
use crate::nodes::project;
use crate::run;

#[test]
fn a_program_begins_where_fewer_run() {
    let Some(host) = Host::new("hosts-room") else { return };
    let work = host.scratch.fresh("work");
    // Each notes where it runs before it begins, and the first of three that it has begun.
    let script = "exec </dev/null; HUSK_NODE=1 seq 9 9
begins='$| = 1; open F, q(>), $ARGV[0]; sleep 300'
for node in 1 0; do
for n in 1 2 3; do HUSK_NODE=$node perl -e \"$begins\" on$node$n & all=\"$all $!\"; done
for n in 1 2 3; do until [ -e on$node$n ]; do HUSK_NODE=0 sleep 0.05; done; done
for n in 1 2 3 4; do seq $n $n; done
kill $all; wait; all=; done";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(said, "9\n1\n2\n3\n4\n1\n2\n3\n4\n", "{}", outcome.shown());
    // One that is named, three that sleep there, four while as many sleep here.
    assert_eq!(programs(&outcome), 8, "{}", outcome.shown());
}

#[test]
fn jobs_that_make_starts_by_a_shell_go_and_parts_of_pipelines_stay() {
    let Some(host) = Host::new("hosts-shells") else { return };
    let work = host.scratch.fresh("work");
    project(&work, 20, "true && cc");
    let script = "exec </dev/null; HUSK_NODE=1 cc -dumpversion > version; exec make -j6 -s";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert!(programs(&outcome) > 2, "{}", outcome.shown());
    let script = "exec </dev/null; HUSK_NODE=1 seq 9 9 | cat
for n in 1 2 3 4; do seq $n $n; done | cat";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!((&said[..], programs(&outcome)), ("9\n1\n2\n3\n4\n", 1), "{}", outcome.shown());
}
