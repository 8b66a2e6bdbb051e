//! Pipes whose bytes go through the image do what Linux's do.
//!
//! The program passes each pipe between ring and host in every way there is (`docs/adr/0015`). It
//! checks itself: who loses a byte says so, who loses a wake-up hangs.

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Scratch};

/// Runs one mode of the program, natively and in an image.
fn check(name: &'static str, mode: &str) {
    let scratch = Scratch::new(&format!("{name}-build"));
    let program = scratch.path().join("pipes");
    build_c(include_str!("sources/pipes.c"), &program);
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
    let scratch = Scratch::new("pipes-begotten-build");
    let program = scratch.path().join("begotten");
    build_c(include_str!("sources/begotten.c"), &program);
    let program = program.to_str().expect("a plain path");
    Case::new("pipes-begotten", Length::Long, &[program]).check();
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
