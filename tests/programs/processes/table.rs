//! The table of processes, and where they run: as Linux has it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Scratch};

#[test]
fn processes_know_wait_for_and_signal_each_other_as_natively() {
    let script = include_str!("../sources/processes/table.py");
    Case::new("table", Length::Short, &["python3", "-c", script]).check();
}

/// Whatever places a process takes no core from it, and nothing that it has chosen.
#[test]
fn placed_processes_may_run_where_they_could_natively() {
    let script = include_str!("../sources/processes/cores.py");
    for policy in ["host", "stay", "round-robin", "random", "least-loaded"] {
        let options = ["--place", policy];
        Case::new("cores", Length::Once, &["python3", "-c", script]).options(&options).check();
    }
}

/// A program that checks itself, in C, run once for each of `words`.
fn program(name: &'static str, source: &str, words: &[&str], length: Length) {
    let scratch = Scratch::new("processes-build");
    let path = scratch.path().join(name);
    build_c(source, &path);
    let path = path.to_str().expect("a plain path");
    for word in words {
        println!("{name} {word}");
        let script = "\"$@\"; echo $?";
        Case::new(name, length, &["sh", "-c", script, "sh", path, word]).check();
    }
}

#[test]
fn locks_threads_rights_limits_and_descriptors_are_as_on_linux() {
    program("asked", include_str!("../sources/processes/asked.c"), &[""], Length::Long);
}

#[test]
fn a_timer_of_200_us_ends_or_restarts_every_call_that_sleeps_as_on_linux() {
    program("blocked", include_str!("../sources/processes/blocked.c"), &[""], Length::Long);
}

/// Each child is stopped before its first instruction; the threads' are as they come.
#[test]
fn a_child_keeps_what_it_has_mapped_whatever_its_parent_does_before_it_runs() {
    let words = ["unmaps", "ends", "runs", "threads"];
    program("inherited", include_str!("../sources/processes/inherited.c"), &words, Length::Long);
}

#[test]
fn a_number_that_changes_hands_between_image_and_host_is_always_there() {
    let words = ["threads", "rivals", "children"];
    program("replaced", include_str!("../sources/processes/replaced.c"), &words, Length::Long);
}

#[test]
fn the_next_call_on_a_number_sees_what_its_only_thread_has_just_made_of_it() {
    let words = ["alone", "beyond", "threads"];
    program("handed", include_str!("../sources/processes/handed.c"), &words, Length::Long);
}

#[test]
fn a_program_that_filters_its_calls_goes_on() {
    let kinds = ["allowed", "strict", "refused", "trapped", "wrong"];
    program("filters", include_str!("../sources/processes/filters.c"), &kinds, Length::Long);
}

#[test]
fn calls_that_find_no_number_and_no_process_say_so_as_on_linux() {
    let scratch = Scratch::new("limited-build");
    let path = scratch.path().join("limited");
    build_c(include_str!("../sources/processes/limited.c"), &path);
    let no_program = path.with_extension("text");
    std::fs::write(&no_program, "neither ELF nor a script\n").expect("a file");
    std::fs::set_permissions(&no_program, Permissions::from_mode(0o755)).expect("it may run");
    let path = path.to_str().expect("a plain path");
    for kind in ["files", "others", "processes", "threads"] {
        println!("limited {kind}");
        Case::new("limited", Length::Long, &[path, kind])
            .input(|work| std::fs::write(work.join("given"), "0123456789\n").expect("a file"))
            .check();
    }
}

#[test]
fn a_signal_that_comes_while_a_program_begins_is_neither_blocked_nor_left_waiting() {
    program("overtaken", include_str!("../sources/processes/overtaken.c"), &["once"], Length::Once);
}

#[test]
fn an_instance_of_inotify_ends_whatever_watches_it_has_had() {
    program("rewatched", include_str!("../sources/processes/rewatched.c"), &[""], Length::Long);
}

#[test]
fn signals_on_a_signal_stack_come_while_pages_of_a_mapping_are_touched() {
    let words =
        ["", "bus", "touches", "stack", "stack bus", "stack touches", "stack disarmed touches"];
    program("mapped", include_str!("../sources/processes/mapped.c"), &words, Length::Long);
}

#[test]
fn a_child_of_vfork_that_asks_to_be_traced_stops_at_its_program() {
    program("traced", include_str!("../sources/processes/traced.c"), &[""], Length::Short);
}

#[test]
fn the_maps_of_a_program_name_the_files_that_it_has_mapped() {
    let script = include_str!("../sources/processes/maps.py");
    Case::new("maps", Length::Once, &["python3", "-c", script]).check();
}
