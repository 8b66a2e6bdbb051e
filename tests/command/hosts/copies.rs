//! What another host keeps copies of is never seen as it was before something that it has heard of,
//! and is asked for once.

use std::fs;

use husk_tests::{Outcome, Run};

use super::host::{Host, until};
use crate::{LIMIT, run, said};

/// Round trips by the closing line.
pub fn round_trips(outcome: &Outcome) -> u64 {
    let line = said(outcome).into_iter().find_map(|line| line.strip_prefix("husk: h: "));
    let count = line.and_then(|line| line.split(", ").nth(1)?.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("a closing line: {}", outcome.shown()))
}

/// A tree with files of the host.
fn tree(host: &Host) -> std::path::PathBuf {
    let work = host.scratch.fresh("work");
    fs::create_dir_all(work.join("deep/er")).expect("a directory");
    fs::write(work.join("deep/er/old"), "host bytes\n").expect("a file");
    fs::write(work.join("plain"), "plain bytes\n").expect("a file");
    work
}

#[test]
fn each_program_sees_what_was_changed_before_it_began() {
    let Some(host) = Host::new("hosts-fresh") else { return };
    let script = "exec </dev/null
for n in 1 2 3 4 5; do
  HUSK_NODE=1 cat plain deep/er/old link made 2>&1
  HUSK_NODE=1 ls -l deep deep/er 2>&1 | wc -l
  echo $n > made; HUSK_NODE=1 cat made
  echo more $n >> plain; HUSK_NODE=1 cat plain
  chmod 60$n plain; HUSK_NODE=1 stat -c '%a %s' plain
  ln -sf plain link; HUSK_NODE=1 cat link; ln -sf made link; HUSK_NODE=1 cat link
  mv deep/er deep/est; HUSK_NODE=1 cat deep/er/old deep/est/old 2>&1; mv deep/est deep/er
  HUSK_NODE=1 perl -e 'open F, q(>made); print F qq(from there\\n); close F; rename qw(made x)'
  HUSK_NODE=1 cat made x 2>&1; cat x; rm x; HUSK_NODE=1 cat x 2>&1
  rm -r deep/er; HUSK_NODE=1 cat deep/er/old 2>&1; mkdir deep/er; echo $n > deep/er/old
  HUSK_NODE=1 cat deep/er/old; rm link
done
";
    let mut all = Vec::new();
    for on in [false, true] {
        let work = tree(&host);
        let options: &[&str] = if on { &["--on", "h"] } else { &[] };
        let outcome = run(&host.scratch, &work, host.command(options, &["bash", "-c", script]));
        assert!(!on || !outcome.stderr.contains("ran here"), "{}", outcome.shown());
        all.push((String::from_utf8_lossy(&outcome.stdout).into_owned(), outcome.status.code()));
    }
    assert_eq!(all[0], all[1]);
    assert!(all[0].0.contains("host bytes"), "{}", all[0].0);
}

/// A signal comes behind the change, on the same link.
#[test]
fn a_program_that_gets_a_signal_sees_what_was_changed_before_it_was_sent() {
    let Some(host) = Host::new("hosts-signalled") else { return };
    let work = tree(&host);
    fs::write(
        work.join("look.pl"),
        "$| = 1; my $seen = 0;
sub bytes { open my $f, '<', 'plain' or return 'none'; my $line = <$f>; chomp $line; $line }
$SIG{USR1} = sub { print bytes(), ' ', (-e 'flag' ? 'flag' : 'none'), \"\\n\"; $seen++ };
print bytes(), ' ', (-e 'flag' ? 'flag' : 'none'), \"\\n\";
select undef, undef, undef, 60 while $seen < 20;
",
    )
    .expect("a script");
    let script = "exec </dev/null
export HUSK_NODE=0
{ HUSK_NODE=1 perl look.pl & echo $! > pid; wait; } | cat > said &
lines() { until [ -e said ] && [ $(wc -l < said) -ge $1 ]; do sleep 0.01; done; }
lines 1; pid=$(cat pid)
for n in $(seq 20); do
  echo $n > new; mv new plain; if [ $((n % 2)) = 1 ]; then touch flag; else rm flag; fi
  kill -USR1 $pid; lines $((n + 1))
done; wait; cat said";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    let flag = |n: u32| if n % 2 == 1 { "flag" } else { "none" };
    let wanted: String = (1..=20).map(|n| format!("{n} {}\n", flag(n))).collect();
    let wanted = format!("plain bytes none\n{wanted}");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), wanted, "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h: 1 programs"), "{}", outcome.shown());
}

#[test]
fn a_program_that_looks_again_and_again_sees_a_change_soon() {
    let Some(host) = Host::new("hosts-polling") else { return };
    let work = tree(&host);
    let script = "exec </dev/null
HUSK_NODE=1 perl -e 'select undef, undef, undef, 0.005 until -e \"flag\"; print \"there\\n\";
select undef, undef, undef, 0.005 while -e \"plain\"; print \"gone\\n\"' & pid=$!
sleep 0.5; touch flag; sleep 0.5; rm plain; wait $pid; echo $?";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "there\ngone\n0\n", "{}", outcome.shown());
}

/// Somebody outside of the image edits a file that a copy was made of.
#[test]
fn bytes_of_a_host_file_that_an_outsider_changes_are_asked_for_again() {
    let Some(host) = Host::new("hosts-outsider") else { return };
    let work = tree(&host);
    let script = "exec </dev/null
HUSK_NODE=1 perl -e '$| = 1; sub bytes { open my $f, q(<), q(plain) or return q(none); <$f> }
print bytes(); select undef, undef, undef, 0.01 until bytes() eq qq(OTHER bytes\\n);
print qq(seen\\n)'";
    let command = host.command(&["--on", "h"], &["bash", "-c", script]);
    let running = Run::start(command, &work, host.scratch.path());
    until("it has read the file", || {
        fs::read(host.path("stdout")).is_ok_and(|said| said == b"plain bytes\n")
    });
    fs::write(work.join("plain"), "OTHER bytes\n").expect("an edit");
    let outcome = running.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(text, "plain bytes\nseen\n", "{}", outcome.shown());
}

#[test]
fn what_nobody_changes_is_asked_for_once() {
    let Some(host) = Host::new("hosts-once") else { return };
    let cats = |count: u32| {
        let work = tree(&host);
        let script = format!(
            "exec </dev/null; for n in $(seq {count}); do \
             HUSK_NODE=1 cat deep/er/old plain; HUSK_NODE=1 ls absent/name 2>/dev/null; done"
        );
        let command = host.command(&["--on", "h"], &["bash", "-c", &script]);
        let outcome = run(&host.scratch, &work, command);
        let bytes = "host bytes\nplain bytes\n".repeat(count as usize);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), bytes, "{}", outcome.shown());
        round_trips(&outcome)
    };
    let (one, twenty) = (cats(1), cats(20));
    assert!(one > 5 && twenty <= one + 5, "{one} round trips of one, {twenty} of twenty");
}

#[test]
fn what_is_more_than_a_host_may_keep_is_asked_for_again() {
    let Some(host) = Host::new("hosts-many") else { return };
    let work = host.scratch.fresh("work");
    fs::create_dir(work.join("many")).expect("a directory");
    for number in 0..3000 {
        fs::write(work.join(format!("many/{number}")), format!("{number}\n")).expect("a file");
    }
    let script = "exec </dev/null
for n in 1 2 3; do HUSK_NODE=1 perl -e 'for (0..2999) { open F, qq(<many/$_) or die; print <F> }' |
sha256sum; echo $n > many/$n; done; seq 0 2999 | sha256sum";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| *line == lines[3]), "{}", outcome.shown());
}
