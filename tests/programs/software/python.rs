//! Python: subprocesses, threads, temporary files, worker processes, mapped files, signals.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use husk_tests::{Case, Length, Run, Scratch, Side};

/// No run of its own here takes longer.
const LIMIT: Duration = Duration::from_secs(30);

fn python(name: &'static str, source: &'static str) -> Case {
    Case::new(name, Length::Short, &["python3", "-c", source])
}

#[test]
fn subprocess_threads_and_tempfile() {
    python("python-threads", include_str!("../sources/software/threads.py")).check();
}

#[test]
fn a_pool_of_worker_processes() {
    python("python-pool", include_str!("../sources/software/pool.py")).check();
}

#[test]
fn who_reads_less_than_there_is_room_for_is_told_of_what_comes_next() {
    python("drained", include_str!("../sources/software/drained.py")).check();
}

#[test]
fn files_through_every_door() {
    python("python-files", include_str!("../sources/software/files.py")).check();
}

#[test]
fn descriptors_of_a_host_file_are_shared_and_handed_around() {
    python("descriptions", include_str!("../sources/software/descriptions.py"))
        .input(|work| {
            for number in 0..9 {
                std::fs::write(work.join(format!("f{number}")), "a\nb\nc\n").expect("a file");
            }
        })
        .check();
}

#[test]
fn descriptors_travel_in_messages() {
    python("messages", include_str!("../sources/software/messages.py")).check();
}

#[test]
fn signals_interrupt_and_restart_calls() {
    python("python-signals", include_str!("../sources/software/signals.py")).check();
}

#[test]
fn touching_past_the_end_of_a_mapped_file_is_sigbus() {
    python("past-the-end", include_str!("../sources/software/past_the_end.py")).check();
}

#[test]
fn unix_sockets_have_names_in_the_tree() {
    python("unix-sockets", include_str!("../sources/software/unix.py")).check();
}

#[test]
fn as_many_descriptors_are_open_as_the_limit_allows() {
    python("many-descriptors", include_str!("../sources/software/many.py")).check();
}

#[test]
fn a_call_that_finds_no_number_has_done_nothing() {
    python("no-number", include_str!("../sources/software/full.py")).check();
}

#[test]
fn a_socket_of_the_host_bound_below_a_descriptor_keeps_its_name() {
    let scratch = Scratch::new("foreign-sockets");
    let work = scratch.fresh("work");
    let directory = File::open(scratch.path()).expect("a directory");
    let name = format!("/proc/self/fd/{}/1.2.sock", directory.as_raw_fd());
    let _listener = UnixListener::bind(&name).expect("a listener");
    let script = "
import socket
socket.socket(socket.AF_UNIX).bind('own')
client = socket.socket(socket.AF_UNIX)
client.connect('../1.2.sock')
print(client.getpeername())
";
    let command = Side::Husk.command(&[], &["python3", "-c", script]);
    let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT).expect("an end");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout).trim_end(), name, "{}", outcome.shown());
}
