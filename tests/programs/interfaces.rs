//! What goes through pipes and unix sockets, who is told that something is ready, what signals do,
//! and what threads and processes share: programs that print what they see, natively and in an
//! image.

use husk_tests::toolchain::build_c_with;
use husk_tests::{Case, Length, Scratch};

/// Runs a program once for each of `kinds`, beside a file of the host called `given`.
fn printed(name: &'static str, source: &str, kinds: &[&str], length: Length) {
    linked(name, source, &[], kinds, length);
}

/// The same of `parts`, with connections of this kind.
fn printed_of(kind: &str, name: &'static str, source: &str, parts: &[&str]) {
    let parts: Vec<_> = parts.iter().map(|part| format!("{kind}-{part}")).collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    printed(name, source, &parts, Length::Long);
}

/// Sources behind the one that makes their connections.
macro_rules! connected {
    ($($source:literal),+) => {
        concat!(
            include_str!("sources/interfaces/connected.c"),
            $("\n", include_str!(concat!("sources/interfaces/", $source))),+
        )
    };
}

/// The same of one that is linked in its own way.
fn linked(name: &'static str, source: &str, options: &[&str], kinds: &[&str], length: Length) {
    let scratch = Scratch::new("talks-build");
    let program = scratch.path().join(name);
    build_c_with(source, &program, options);
    let program = program.to_str().expect("a plain path");
    for kind in kinds {
        println!("{name} {kind}");
        let case = Case::new(name, length, &[program, kind]);
        case.input(|work| std::fs::write(work.join("given"), "0123456789\n").expect("a file"))
            .check();
    }
}

#[test]
fn pipes_are_split_filled_measured_and_made_larger_as_on_linux() {
    printed("talks", include_str!("sources/interfaces/talks.c"), &["pipes"], Length::Long);
}

#[test]
fn unix_sockets_of_every_type_have_names_in_a_tree_and_know_their_peers() {
    let kinds = ["stream", "seqpacket", "datagrams"];
    printed("talks", include_str!("sources/interfaces/talks.c"), &kinds, Length::Long);
}

/// Everything in `lanes.c` but what moves much.
const LANES: [&str; 16] = [
    "ways",
    "sends",
    "sets",
    "sleeps",
    "times",
    "limits",
    "asks",
    "ends",
    "sent",
    "inherited",
    "apart",
    "counts",
    "gone",
    "none",
    "behind",
    "pieces",
];

#[test]
fn socket_pairs_do_what_those_of_linux_do_wherever_their_bytes_are() {
    printed("lanes", include_str!("sources/interfaces/lanes.c"), &LANES, Length::Long);
}

#[test]
fn sockets_connected_by_name_do_what_those_of_linux_do_wherever_their_bytes_are() {
    let kinds = LANES.map(|kind| format!("named-{kind}"));
    let kinds: Vec<_> = kinds.iter().map(String::as_str).chain(["names"]).collect();
    printed("lanes", include_str!("sources/interfaces/lanes.c"), &kinds, Length::Long);
}

/// But for what TCP hands over in pieces of its own, and for what only unix sockets hand over.
#[test]
fn tcp_connections_do_what_those_of_linux_do_wherever_their_bytes_are() {
    let own = ["sets", "behind", "sent"];
    let parts: Vec<_> = LANES.into_iter().filter(|part| !own.contains(part)).collect();
    printed_of("tcp", "lanes", include_str!("sources/interfaces/lanes.c"), &parts);
}

/// Everything in `eventfds.c`.
#[test]
fn eventfds_count_as_on_linux_wherever_their_count_is() {
    let parts = ["counts", "looks", "taken", "waits", "sums", "many"];
    linked(
        "eventfds",
        include_str!("sources/interfaces/eventfds.c"),
        &["-pthread"],
        &parts,
        Length::Long,
    );
}

#[test]
fn bytes_of_sockets_come_once_and_in_order_beside_sets_and_signals() {
    let kinds = ["much", "storm", "named-much", "named-storm"];
    printed("lanes", include_str!("sources/interfaces/lanes.c"), &kinds, Length::Long);
}

/// A test for each kind of connection: they run beside each other.
macro_rules! for_each_kind {
    ($(fn $test:ident() = $checks:ident;)+) => {
        mod pair {
            $(#[test] fn $test() { super::$checks("pair"); })+
        }
        mod named {
            $(#[test] fn $test() { super::$checks("named"); })+
        }
        mod tcp {
            $(#[test] fn $test() { super::$checks("tcp"); })+
        }
    };
}

for_each_kind! {
    fn sockets_between_processes_of_different_users_lose_nothing_and_tell_of_ends() = users;
    fn event_loops_are_told_what_linux_tells() = loops;
    fn who_sleeps_in_sets_and_polls_is_woken_and_programs_do_not_meet_what_wakes_them() = bells;
    fn reads_that_wait_are_woken_and_begin_and_end_as_on_linux() = reads;
    fn files_are_sent_into_connections_in_order_with_other_bytes() = sends;
    fn options_ends_and_flags_of_connections_are_those_of_linux() = options;
    fn connections_are_closed_shut_taken_and_spliced_by_others_as_on_linux() = warmed;
    fn sets_masks_and_small_buffers_of_connections_are_those_of_linux() = members;
    fn every_byte_of_connections_comes_where_rings_room_or_readers_are_missing() = plenty;
}

fn users(kind: &str) {
    printed("users", include_str!("sources/interfaces/users.c"), &[kind], Length::Long);
}

/// Everything in `loops.c`.
fn loops(kind: &str) {
    let parts =
        ["levels", "changes", "sleeps", "shares", "ends", "turns", "threads", "rearmed", "pools"];
    printed_of(kind, "loops", include_str!("sources/interfaces/loops.c"), &parts);
}

/// Sides that sleep before nearly every byte.
fn bells(kind: &str) {
    let parts = [
        "turns", "numbers", "many", "children", "threads", "several", "times", "ends", "kills",
        "jumps", "words", "over", "limits", "leaves",
    ];
    printed_of(kind, "bells", connected!("waits.c", "bells.c"), &parts);
}

/// Reads that wait before nearly every byte.
fn reads(kind: &str) {
    let parts = [
        "turns",
        "beside",
        "floods",
        "wholes",
        "blocks",
        "signals",
        "limits",
        "asides",
        "ends",
        "readers",
        "kills",
        "heirs",
        "jumps",
        "stops",
        "strangers",
    ];
    printed_of(kind, "reads", connected!("waits.c", "reads.c"), &parts);
}

/// Everything in `sends.c`.
fn sends(kind: &str) {
    let parts = ["offsets", "refusals", "ends", "full", "waits", "again", "sleepers", "served"];
    printed_of(kind, "sends", connected!("sends.c"), &parts);
}

fn options(kind: &str) {
    let parts = ["resets", "error", "halves", "marks", "pressure", "stops", "messages"];
    printed_of(kind, "options", connected!("options.c"), &parts);
}

/// What others do to connections whose bytes are in rings, and calls without a buffer.
fn warmed(kind: &str) {
    let mut parts =
        vec!["closes", "shuts", "splices", "relays", "refused", "steals", "changed", "names"];
    // Others are asked for a password by `su`.
    parts.extend(rustix::process::geteuid().is_root().then_some("natives"));
    printed_of(kind, "warmed", connected!("waits.c", "warmed.c"), &parts);
}

/// Several sets of an end, masks of signals, small buffers.
fn members(kind: &str) {
    let parts = ["several", "crowds", "shared", "masks", "buffers"];
    printed_of(kind, "members", connected!("waits.c", "members.c"), &parts);
}

/// Full backlogs, what TCP tells of itself, connections that nobody uses (`queues.c`).
#[test]
fn connections_wait_for_room_tell_of_themselves_and_rest_as_on_linux() {
    for kind in ["pair", "named", "tcp"] {
        let mut parts = vec!["idle"];
        parts.extend((kind != "pair").then_some("backlog"));
        parts.extend((kind == "tcp").then_some("states"));
        printed_of(kind, "queues", connected!("queues.c"), &parts);
    }
}

/// More connections than rings, no room in the image, sides that are stopped for 2 s (10 s with
/// `HUSK_FULL`), peers that never read.
fn plenty(kind: &str) {
    let pause = if std::env::var_os("HUSK_FULL").is_some() { "10" } else { "2" };
    let scratch = Scratch::new("plenty-build");
    let program = scratch.path().join("plenty");
    build_c_with(connected!("waits.c", "plenty.c"), &program, &[]);
    let program = program.to_str().expect("a plain path");
    for part in ["rings", "room", "numbers", "pauses", "unread"] {
        let part = format!("{kind}-{part}");
        println!("plenty {part}");
        let case = Case::new("plenty", Length::Long, &[program, &part]);
        case.options(&["--memory", "32M"]).environment("PAUSE_S", pause).check();
    }
}

#[test]
fn descriptors_of_all_kinds_travel_and_what_finds_no_room_is_gone() {
    printed("talks", include_str!("sources/interfaces/talks.c"), &["rights", "room"], Length::Long);
}

#[test]
fn whoever_waits_for_a_mix_of_descriptors_is_told_of_each() {
    let kinds = ["ways", "epolls", "nested", "exclusive", "counters", "signals", "counts"];
    printed("ready", include_str!("sources/interfaces/ready.c"), &kinds, Length::Long);
}

#[test]
fn a_set_of_pipes_that_is_asked_again_and_again_tells_what_linux_does() {
    let kinds = ["levels", "many", "once", "inherited", "sent", "room"];
    printed("sets", include_str!("sources/interfaces/sets.c"), &kinds, Length::Long);
}

#[test]
fn whoever_hears_of_a_write_or_a_death_finds_it_in_the_set() {
    printed(
        "sets",
        include_str!("sources/interfaces/sets.c"),
        &["threads", "children"],
        Length::Long,
    );
}

#[test]
fn what_another_thread_is_in_when_an_end_or_a_set_is_closed_is_seen() {
    printed("sets", include_str!("sources/interfaces/sets.c"), &["held", "closed"], Length::Long);
}

#[test]
fn who_waits_burns_nothing() {
    printed("ready", include_str!("sources/interfaces/ready.c"), &["idle"], Length::Once);
}

#[test]
fn handlers_run_nest_jump_and_are_queued_as_on_linux() {
    let kinds = ["flags", "queues", "jumping", "traps", "contexts", "groups"];
    printed("handled", include_str!("sources/interfaces/handled.c"), &kinds, Length::Long);
}

#[test]
fn a_handler_on_a_stack_of_its_own_calls_files_while_others_come_to_it() {
    printed("handled", include_str!("sources/interfaces/handled.c"), &["stacked"], Length::Long);
}

#[test]
fn a_signal_that_comes_in_the_middle_of_a_call_finds_handlers_of_all_kinds() {
    printed("handled", include_str!("sources/interfaces/handled.c"), &["deferred"], Length::Long);
}

#[test]
fn threads_and_children_share_locks_files_and_places_as_on_linux() {
    printed(
        "shares",
        include_str!("sources/interfaces/shares.c"),
        &["locks", "cloned"],
        Length::Long,
    );
}

#[test]
fn mappings_are_cut_moved_and_protected_and_made_code_runs() {
    printed(
        "shares",
        include_str!("sources/interfaces/shares.c"),
        &["mapped", "code"],
        Length::Long,
    );
}

#[test]
fn a_million_descriptors_may_be_open_and_proc_shows_them() {
    printed(
        "shares",
        include_str!("sources/interfaces/shares.c"),
        &["descriptors", "shown"],
        Length::Long,
    );
}

#[test]
fn descriptors_get_the_numbers_that_linux_gives_them_whoever_has_those_beside() {
    printed("lowest", include_str!("sources/interfaces/lowest.c"), &["all"], Length::Long);
}

#[test]
fn who_runs_the_code_of_others_itself_finds_it_as_it_is() {
    let source = include_str!("sources/interfaces/interprets.c");
    linked(
        "interprets",
        source,
        &["-static", "-no-pie"],
        &["numbers", "clock", "data", "unforked", "beside", "code"],
        Length::Long,
    );
}

#[test]
fn who_is_killed_while_it_makes_processes_has_nothing_open_or_locked_any_more() {
    let kinds = ["fork", "raw", "clone3", "vfork"];
    printed("midfork", include_str!("sources/interfaces/midfork.c"), &kinds, Length::Long);
}

#[test]
fn a_handler_of_faults_makes_calls_with_addresses_good_and_bad() {
    let source = include_str!("sources/interfaces/faulted.c");
    printed("faulted", source, &["beside", "apart"], Length::Long);
}

#[test]
fn calls_for_descriptors_of_another_kind_are_answered_as_on_linux() {
    printed("misfits", include_str!("sources/interfaces/misfits.c"), &["all"], Length::Long);
}
