//! Python: subprocesses, threads, temporary files, worker processes, mapped files, signals.

use husk_tests::{Case, Length};

fn python(name: &'static str, source: &'static str) -> Case {
    Case::new(name, Length::Short, &["python3", "-c", source])
}

#[test]
fn subprocess_threads_and_tempfile() {
    python("python-threads", include_str!("sources/threads.py")).check();
}

#[test]
fn a_pool_of_worker_processes() {
    python("python-pool", include_str!("sources/pool.py")).check();
}

#[test]
fn files_through_every_door() {
    python("python-files", include_str!("sources/files.py")).check();
}

#[test]
fn signals_interrupt_and_restart_calls() {
    python("python-signals", include_str!("sources/signals.py")).check();
}

#[test]
fn touching_past_the_end_of_a_mapped_file_is_sigbus() {
    python("past-the-end", include_str!("sources/past_the_end.py")).check();
}

#[test]
fn unix_sockets_have_names_in_the_tree() {
    python("unix-sockets", include_str!("sources/unix.py")).check();
}

#[test]
fn as_many_descriptors_are_open_as_the_limit_allows() {
    python("many-descriptors", include_str!("sources/many.py")).check();
}

#[test]
fn a_call_that_finds_no_number_has_done_nothing() {
    python("no-number", include_str!("sources/full.py")).check();
}
