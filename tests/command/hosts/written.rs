//! What a compiler on another host writes comes home at once, before anybody hears of it, and if it
//! cannot, the compiler has failed. Times of files are home's.

use std::fs;

use super::copies::round_trips;
use super::host::Host;
use crate::nodes::project;
use crate::run;

#[test]
fn a_small_compile_takes_few_round_trips_and_makes_the_same_bytes() {
    let Some(host) = Host::new("hosts-few") else { return };
    let compile = |on: bool| {
        let work = host.scratch.fresh("work");
        project(&work, 8, "cc");
        fs::create_dir(work.join("build")).expect("a directory");
        // A wish for the usual place is none.
        let script = "exec </dev/null; export TMPDIR=/tmp; for n in 0 1 2 3 4 5 6 7; do
HUSK_NODE=1 cc -O1 -c -o build/f$n.o src/f$n.c || exit; cat build/f$n.o; done | sha256sum";
        let options: &[&str] = if on { &["--on", "h"] } else { &[] };
        run(&host.scratch, &work, host.command(options, &["bash", "-c", script]))
    };
    let (here, there) = (compile(false), compile(true));
    assert_eq!(here.stdout, there.stdout, "{}", there.shown());
    assert!(there.stderr.contains("husk: h: 8 programs ran there"), "{}", there.shown());
    let each = round_trips(&there) / 8;
    assert!(each <= 14, "{each} each: {}", there.shown());
}

#[test]
fn a_compiler_whose_output_has_no_room_at_home_fails() {
    let Some(host) = Host::new("hosts-full") else { return };
    let work = host.scratch.fresh("work");
    let text: String = (0..40_000).map(|n| format!("int v{n} = {n};\n")).collect();
    fs::write(work.join("large.c"), text).expect("a file");
    let script = "exec </dev/null
HUSK_NODE=1 cc -c -o whole.o large.c; echo $?; size=$(stat -c %s whole.o); rm whole.o
dd if=/dev/zero of=fill bs=1M status=none; truncate -s -65536 fill
HUSK_NODE=1 cc -c -o half.o large.c; echo $?; rm fill
HUSK_NODE=1 cc -c -o whole.o large.c; echo $?; [ $size = $(stat -c %s whole.o) ]; echo $?";
    let mut command = host.command(&["--on", "h", "--discard"], &["bash", "-c", script]);
    command.env("HUSK_FSCK", "1");
    let outcome = run(&host.scratch, &work, command);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines: Vec<_> = said.lines().collect();
    let [first, second, third, same] = lines[..] else { panic!("{}", outcome.shown()) };
    assert_eq!((first, third, same), ("0", "0", "0"), "{}", outcome.shown());
    assert_ne!(second, "0", "{}", outcome.shown());
    assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.shown());
}

#[test]
fn files_are_not_from_the_future_if_the_clock_there_is_an_hour_ahead() {
    let Some(host) = Host::new("hosts-clock") else { return };
    host.configure("SetEnv HUSK_TEST_AHEAD_S=3600");
    let work = host.scratch.fresh("work");
    // The clock is the same one: a program there that asks it is told an hour less.
    let script = "exec </dev/null; touch now own
HUSK_NODE=1 perl -e 'utime time + 3600, time + 3600, q(now)'
HUSK_NODE=1 perl -e 'open F, q(>new); print F 1; close F; utime undef, undef, q(own)'
HUSK_NODE=1 touch touched; HUSK_NODE=1 touch -d @1000000000 old
HUSK_NODE=1 perl -e 'open F, q(>later); utime time + 9000, time + 9000, q(later)'
for file in now new own touched later; do
[ $(stat -c %Y $file) -le $(date +%s) ] && [ $(stat -c %Y $file) -ge $(($(date +%s) - 100)) ]
echo $?; done; stat -c %Y old";
    let command = host.command(&["--on", "h"], &["bash", "-c", script]);
    let outcome = run(&host.scratch, &work, command);
    let wanted = "0\n0\n0\n0\n1\n1000000000\n";
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), wanted, "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: h: 5 programs ran there"), "{}", outcome.shown());
}
