//! Every mistake gets one line that says what to do, the right status, and costs nothing.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use husk_tests::tree::Tree;
use husk_tests::{Scratch, against_native, husk};

use crate::{as_nobody, give_to_nobody, run, said};

/// One mistake.
struct Mistake {
    options: &'static [&'static str],
    argv: &'static [&'static str],
    status: i32,
    /// What the line must mention, in lower case.
    mentions: &'static [&'static str],
}

const fn program(
    argv: &'static [&'static str],
    status: i32,
    mentions: &'static [&'static str],
) -> Mistake {
    Mistake { options: &[], argv, status, mentions }
}

const fn option(options: &'static [&'static str], mentions: &'static [&'static str]) -> Mistake {
    Mistake { options, argv: &["/bin/true"], status: 125, mentions }
}

const MISTAKES: &[Mistake] = &[
    program(&["no-such-program"], 127, &["no-such-program"]),
    program(&["make -j2"], 127, &["leave out the quotes"]),
    program(&["./absent"], 127, &["absent"]),
    program(&["./directory"], 126, &["directory"]),
    program(&["./not-executable"], 126, &["not-executable"]),
    program(&["./elf32"], 126, &["elf32", "not a 64-bit"]),
    program(&["./orphan"], 127, &["orphan"]),
    program(&["./truncated"], 126, &["truncated"]),
    program(&["./no-line"], 126, &["no-line", "without a #! line", "sh script"]),
    option(&["--memory", "1M"], &["--memory", "32m"]),
    option(&["--memory", "much"], &["--memory", "512m"]),
    option(&["--memory", "1.5G"], &["--memory", "whole numbers"]),
    option(&["--memory", "257G"], &["257g", "--memory 32m to "]),
    option(&["--memory", "99999999T"], &["at most 256g"]),
    option(&["--kernels", "0"], &["--kernels"]),
    option(&["--kernels", "abc"], &["--kernels", "choose 1 to 64"]),
    option(&["--kernels", "1000"], &["--kernels"]),
    option(&["--overlay", "file"], &["file", "directory"]),
    option(&["--overlay", "absent"], &["absent"]),
    option(&["--mount", "absent"], &["absent"]),
    option(&["--overlay", "/proc"], &["/proc", "devices"]),
    option(&["--overlay", "/dev", "--discard"], &["/dev", "devices"]),
    option(&["--overlay", "/sys/kernel"], &["/sys/kernel", "devices"]),
    option(&["--mount", "/proc"], &["/proc", "host"]),
    option(&["--mount", "/proc/self/task"], &["/proc", "host"]),
    option(&["--mount", "/dev"], &["/dev", "/dev/shm"]),
    option(&["--overlay", ".", "--overlay", "../work"], &["overlay", "twice"]),
    option(&["--overlay", ".", "--mount", "."], &["an overlay and a mount"]),
];

/// Programs of every kind that cannot be started.
fn fill(work: &Path) {
    fs::create_dir(work.join("directory")).expect("a directory");
    fs::write(work.join("file"), "precious\n").expect("a file");
    executable(&work.join("elf32"), &elf32());
    executable(&work.join("orphan"), b"#!/no/such/interpreter\n");
    executable(&work.join("truncated"), &fs::read("/bin/true").expect("a program")[..100]);
    fs::write(work.join("not-executable"), "#!/bin/sh\n").expect("a script");
    executable(&work.join("no-line"), b"exit 0\n");
}

/// A whole 32-bit program: one segment, and `exit(0)` behind its headers.
fn elf32() -> Vec<u8> {
    const AT: u32 = 0x0804_8000;
    const CODE: [u8; 9] = [0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80];
    const HEADERS: u32 = 52 + 32;
    let size = HEADERS + CODE.len() as u32;
    let mut bytes = b"\x7fELF\x01\x01\x01".to_vec();
    bytes.resize(16, 0);
    // An executable of the 386, version 1.
    bytes.extend([2, 0, 3, 0, 1, 0, 0, 0]);
    for word in [AT + HEADERS, 52, 0, 0] {
        bytes.extend(u32::to_le_bytes(word));
    }
    for half in [52u16, 32, 1, 40, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    for word in [1, 0, AT, AT, size, size, 5, 0x1000] {
        bytes.extend(u32::to_le_bytes(word));
    }
    bytes.extend(CODE);
    bytes
}

fn executable(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn every_mistake_gets_one_line_and_costs_nothing() {
    if against_native() {
        return natively();
    }
    let scratch = Scratch::new("mistakes");
    let work = scratch.fresh("work");
    fill(&work);
    let before = Tree::read(&work, None);
    let wrong: Vec<String> =
        MISTAKES.iter().filter_map(|one| wrong(&scratch, &work, one)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lost = before.differences(&Tree::read(&work, None), &before, &|_: &Path| false);
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// The statuses are those of `env`, which is asked here; only that libc hands a file of a strange
/// format to the shell, whose status is then its own.
fn natively() {
    let scratch = Scratch::new("mistakes");
    let work = scratch.fresh("work");
    fill(&work);
    let strange = |one: &Mistake| ["./elf32", "./truncated", "./no-line"].contains(&one.argv[0]);
    for mistake in MISTAKES.iter().filter(|one| one.status != 125 && !strange(one)) {
        let mut env = std::process::Command::new("env");
        env.args(mistake.argv);
        let outcome = run(&scratch, &work, env);
        assert_eq!(outcome.code(), mistake.status, "env {:?}", mistake.argv);
    }
}

/// What is wrong with the answer to a mistake, in a sentence.
fn wrong(scratch: &Scratch, work: &Path, mistake: &Mistake) -> Option<String> {
    let outcome = run(scratch, work, husk(mistake.options, mistake.argv));
    let asked = format!("{:?} {:?}", mistake.options, mistake.argv);
    let lines = said(&outcome);
    if outcome.code() != mistake.status {
        let shown = outcome.shown();
        return Some(format!(
            "{asked}: status {}, not {}\n{shown}",
            outcome.code(),
            mistake.status
        ));
    }
    let others = outcome.stderr.lines().filter(|line| !line.starts_with("husk: ")).count();
    if lines.len() != 1 || others != 0 {
        return Some(format!("{asked}: not one line:\n{}", outcome.stderr));
    }
    let line = lines[0].to_lowercase();
    let missing = mistake.mentions.iter().find(|word| !line.contains(*word))?;
    Some(format!("{asked}: does not mention {missing:?}: {line}"))
}

/// What `husk ARGUMENTS` says, run in a directory with a file: its status and standard error.
fn husk_says(arguments: &[&str], before: &str) -> (i32, String) {
    let scratch = Scratch::new("says");
    let work = scratch.fresh("work");
    fill(&work);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$@\""), "sh"]);
    command.arg(husk_tests::husk::binary()).args(arguments);
    let outcome = run(&scratch, &work, command);
    (outcome.code(), outcome.stderr)
}

#[test]
fn mistakes_of_the_other_commands_get_one_line_too() {
    if against_native() {
        return;
    }
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["fsck"], 2, &["<image>", "husk fsck --help"]),
        (&["fsck", "1", "2"], 2, &["husk fsck --help"]),
        (&["fsck", "--loud", "1"], 2, &["--loud"]),
        (&["run"], 125, &["<command>", "husk run --help"]),
        (&["nonsense"], 125, &["nonsense", "husk --help"]),
        (&["run", "--memory", "a\nb", "true"], 125, &["a?b", "not a size", "husk run --help"]),
        (&["recover", "ls", "absent"], 125, &["absent", "no such write-back"]),
        (&["trace", "ci", "-p", "x"], 125, &["'x'", "not a process id", "husk trace --help"]),
        (&["volume", "create", "v"], 125, &["--size", "husk volume create --help"]),
        (&["bench", "fs", "--tmpfs", "directory", "--only", "stat"], 125, &["directory", "tmpfs"]),
        (&["bench", "fs", "--tmpfs", "absent", "--only", "stat"], 125, &["absent"]),
        (&["bench", "pipes", "--only", "absent"], 125, &["absent", "one thread"]),
        (&["bench", "msg", "--only", "absent"], 125, &["absent", "one way"]),
        (&["bench", "hosts", "--only", "absent"], 125, &["absent", "husk, 4 hosts"]),
        (&["bench", "hosts", "--hosts", "0"], 125, &["--hosts"]),
        (&["bench", "workloads", "--only", "creates", "--report", "absent/d"], 125, &["absent/d"]),
    ];
    for (arguments, status, mentions) in cases {
        let (code, said) = husk_says(arguments, ":");
        assert_eq!((code, said.lines().count()), (*status, 1), "{arguments:?}: {said}");
        for word in *mentions {
            assert!(said.to_lowercase().contains(word), "{arguments:?}: no {word:?} in {said}");
        }
    }
}

#[test]
fn who_types_no_command_is_shown_those_there_are() {
    if against_native() {
        return;
    }
    for (arguments, word) in [(&[][..], "fsck"), (&["bench"], "workloads")] {
        let (status, said) = husk_says(arguments, ":");
        assert_eq!(status, 125, "{said}");
        assert!(said.contains("Usage: husk") && said.contains(word), "{said}");
    }
}

#[test]
fn a_limit_on_address_space_is_named_as_what_is_in_the_way() {
    if against_native() {
        return;
    }
    let (status, said) = husk_says(&["run", "--memory", "4G", "--", "true"], "ulimit -v 2000000");
    assert_eq!(status, 125, "{said}");
    assert!(said.contains("ulimit -v") && said.contains("less --memory"), "{said}");
}

#[test]
fn limits_that_leave_no_room_are_named() {
    if against_native() {
        return;
    }
    let run = ["run", "--memory", "64M", "--", "true"];
    for (limit, option) in
        [("-s 40", "-s"), ("-s 255", "-s"), ("-d 4000", "-d"), ("-d 32767", "-d")]
    {
        let (status, said) = husk_says(&run, &format!("ulimit -S {limit}"));
        assert_eq!((status, said.lines().count()), (125, 1), "{limit}: {said}");
        assert!(said.contains(&format!("raise the limit: ulimit {option} ")), "{limit}: {said}");
    }
    for limit in ["-s 256", "-d 32768"] {
        let (status, said) = husk_says(&run, &format!("ulimit -S {limit}"));
        assert_eq!(status, 0, "{limit}: {said}");
    }
}

#[test]
fn a_guard_that_cannot_be_had_is_refused_only_when_it_was_asked_for() {
    if against_native() {
        return;
    }
    let keys = fs::read_to_string("/proc/cpuinfo").expect("facts").contains(" ospke");
    let run = |options: &[&str]| husk_says(&[&["run"], options, &["--", "true"]].concat(), ":");
    assert_eq!(run(&["--memory", "64M"]).0, 0);
    let (status, said) = run(&["--memory", "64M", "--guard", "on"]);
    assert_eq!(status, if keys { 0 } else { 125 }, "{said}");
    assert!(keys || said.contains("husk check") && said.lines().count() == 1, "{said}");
}

/// Only root can take the places away, in a mount namespace of its own.
#[test]
fn without_a_place_for_fifos_and_sockets_the_user_is_told_and_all_else_works() {
    if against_native() || !rustix::process::getuid().is_root() {
        return;
    }
    let scratch = Scratch::new("no-place");
    let work = scratch.fresh("work");
    let script = "mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o ro none /tmp &&
        exec \"$@\"";
    let inner = husk(&[], &["sh", "-c", "echo kept > file; mkfifo fifo; exec 2>&-; exec <> fifo"]);
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(fs::read(work.join("file")).expect("written back"), b"kept\n");
    assert_ne!(outcome.code(), 0, "a FIFO was opened: {}", outcome.shown());
    let told = |line: &&str| line.contains("note: no directory in /dev/shm or /tmp (read-only");
    assert_eq!(said(&outcome).iter().filter(|line| told(line)).count(), 1, "{}", outcome.shown());
}

#[test]
fn an_overlay_without_permission_is_refused() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("permission");
    let work = scratch.fresh("work");
    let closed = work.join("closed");
    fs::create_dir(&closed).expect("a directory");
    fs::write(closed.join("file"), "precious\n").expect("a file");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("its mode");
    let command = husk(&["--overlay", "closed"], &["/bin/true"]);
    let outcome = run(&scratch, &work, as_nobody(&command));
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    assert!(matches!(said(&outcome)[..], [line] if line.contains("closed")), "{}", outcome.stderr);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert_eq!(fs::read(closed.join("file")).expect("still there"), b"precious\n");
}

/// A program that gains rights by exec cannot be served by memory its caller may write.
#[test]
fn a_setuid_program_runs_natively_with_a_note() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("setuid");
    let work = scratch.fresh("work");
    give_to_nobody(&work);
    let command = husk(&[], &["/bin/su", "--version"]);
    let outcome = run(&scratch, &work, as_nobody(&command));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert!(outcome.stdout.starts_with(b"su "), "{}", outcome.shown());
    let lines = said(&outcome);
    assert!(lines.iter().any(|line| line.contains("set")), "no note: {}", outcome.stderr);
}

/// Whoever started it: the user is told, the program that reads another's errors is not.
#[test]
fn each_setuid_program_is_told_of_once_and_not_among_its_own_errors() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("setuid-inside");
    let work = scratch.fresh("work");
    give_to_nobody(&work);
    let script = "for i in 1 2 3; do su --version && newgrp --help; done >/dev/null 2>errors
        ! grep husk errors";
    let command = husk(&[], &["sh", "-c", script]);
    let outcome = run(&scratch, &work, as_nobody(&command));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    let told = |name| said(&outcome).iter().filter(|line| line.contains(name)).count();
    assert_eq!(
        (told("/su is set-user-ID"), told("/newgrp is set-user-ID")),
        (1, 1),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_word_that_is_no_text_is_no_subcommand() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("no-text");
    let work = scratch.fresh("work");
    let mut command = std::process::Command::new(husk_tests::husk::binary());
    command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    assert!(outcome.stderr.contains("see `husk --help`"), "{}", outcome.shown());
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.shown());
}
