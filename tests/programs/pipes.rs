//! Pipes whose bytes go through the image do what Linux's do.
//!
//! The program passes each pipe between ring and host in every way there is (`docs/adr/0015`). It
//! checks itself: who loses a byte says so, who loses a wake-up hangs.

use std::io::Write;
use std::time::{Duration, Instant};

use husk_tests::run::patience;
use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Run, Scratch, Side, process};

/// Until all readers sleep; how long they do; until all have ended.
const BEGIN: Duration = Duration::from_secs(20);
const ASLEEP: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);
/// Processor time of all readers meanwhile, and of a supervisor: a twentieth of a core.
const BURNT_MAX: Duration = Duration::from_millis(5);
const BESIDE_MAX: Duration = Duration::from_millis(250);

/// Runs another program that checks itself, natively and in an image.
fn check_source(name: &'static str, source: &str) {
    let scratch = Scratch::new(&format!("{name}-build"));
    let program = scratch.path().join("program");
    build_c(source, &program);
    Case::new(name, Length::Long, &[program.to_str().expect("a plain path")]).check();
}

/// Runs one mode of the program, natively and in an image.
fn check(name: &'static str, mode: &str) {
    let scratch = Scratch::new(&format!("{name}-build"));
    let program = scratch.path().join("pipes");
    build_c(include_str!("sources/pipes/pipes.c"), &program);
    let argv = [program.to_str().expect("a plain path"), mode];
    Case::new(name, Length::Long, &argv).check();
}

#[test]
fn one_thread_reads_what_it_wrote() {
    check("pipes-sequence", "sequence");
}

#[test]
fn a_size_that_is_set_binds() {
    check("pipes-sizes", "sizes");
}

#[test]
fn the_last_end_that_goes_is_noticed_at_once() {
    check("pipes-ends", "ends");
}

#[test]
fn records_arrive_whole_and_in_order() {
    check("pipes-writers", "writers");
}

#[test]
fn one_byte_outstanding_never_sleeps_in_vain() {
    check("pipes-outstanding", "outstanding");
}

#[test]
fn signals_interrupt_and_restart_reads_and_writes() {
    check("pipes-storm", "storm");
}

#[test]
fn a_killed_side_is_noticed_and_leaves_whole_records() {
    check("pipes-kills", "kills");
}

#[test]
fn who_knows_that_the_reader_was_killed_writes_no_more() {
    check("pipes-buried", "buried");
}

#[test]
fn polls_of_pipes_and_others_miss_nothing() {
    check("pipes-polls", "polls");
}

#[test]
fn who_polls_many_writers_misses_no_byte_and_leaves_nothing_behind() {
    check("pipes-pollers", "pollers");
}

#[test]
fn a_call_that_a_handler_forked_in_is_counted_once() {
    check_source("pipes-begotten", include_str!("sources/pipes/begotten.c"));
}

#[test]
fn who_comes_by_name_into_a_pipe_that_one_has_alone_takes_each_byte_once() {
    check_source("pipes-intruder", include_str!("sources/pipes/intruder.c"));
}

#[test]
fn a_pipe_goes_into_sets_and_out_of_them_beside_writers_and_each_byte_comes_once() {
    check_source("pipes-withdrawn", include_str!("sources/pipes/withdrawn.c"));
}

#[test]
fn a_handler_puts_a_pipe_under_the_number_that_is_just_being_read() {
    check_source("pipes-overlaid", include_str!("sources/pipes/overlaid.c"));
}

#[test]
fn threads_share_both_ends() {
    check("pipes-threads", "threads");
}

#[test]
fn strangers_find_every_byte_in_order() {
    check("pipes-strangers", "strangers");
}

#[test]
fn two_thousand_pipes_work_at_once() {
    check("pipes-many", "many");
}

/// How many processes these are, and what all their threads have spent.
fn spent(of: impl Iterator<Item = i32>) -> (usize, Duration) {
    let pids: Vec<i32> = of.collect();
    let times = pids.iter().flat_map(|&pid| {
        process::threads(pid).into_iter().map(move |thread| {
            let path = format!("/proc/{pid}/task/{thread}/schedstat");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
        })
    });
    (pids.len(), Duration::from_nanos(times.sum()))
}

/// The readers themselves, and who watches over an image beside them.
#[test]
fn a_hundred_readers_that_wait_burn_nothing() {
    let scratch = Scratch::new("sleepers");
    let program = scratch.path().join("sleepers");
    build_c(include_str!("sources/pipes/sleepers.c"), &program);
    let argv = [program.to_str().expect("a plain path"), "100", "100"];
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let mut run = Run::start_piped(side.command(&[], &argv), &work, scratch.path());
        let end = Instant::now() + BEGIN * patience();
        while run.stdout() != b"asleep\n" {
            assert!(Instant::now() < end && !run.ended(), "{side:?}: {:?}", run.stdout());
            std::thread::sleep(Duration::from_millis(10));
        }
        let readers = || spent(run.descendants().into_iter().map(|found| found.pid));
        let first = || spent([run.pid()].into_iter()).1;
        let before = (readers(), first());
        std::thread::sleep(ASLEEP);
        let (count, burnt) = readers();
        let (burnt, beside) = (burnt - before.0.1, first() - before.1);
        // The guard of the image comes a moment after the command: who comes late is counted whole.
        assert!(count >= before.0.0 && before.0.0 > 100, "{side:?}: {count} of {}", before.0.0);
        println!("{side:?}: {burnt:?}, and {beside:?} beside them, in {ASLEEP:?}");
        assert!(burnt < BURNT_MAX, "{side:?}: {burnt:?} in {ASLEEP:?}");
        assert!(beside < BESIDE_MAX, "{side:?}: {beside:?} beside them in {ASLEEP:?}");
        run.stdin().expect("a pipe").write_all(b"x\n").expect("a reader");
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        assert_eq!(outcome.stdout, b"asleep\nall answered\n", "{side:?}: {shown}");
        assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}: {shown}");
    }
}
