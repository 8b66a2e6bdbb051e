//! `--read-only-outside`: what a program would change outside the trees fails as on a file system
//! that is mounted read-only, by whatever call and whatever name.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use husk_tests::{Outcome, Run, Scratch, Side, against_native, husk::binary};

use crate::{LIMIT, as_nobody, give_to_nobody, run, said};

/// Prints what each call says, a line each; its argument is the directory outside.
const TABLE: &str = include_str!("../sources/outside.py");

/// A directory outside, with something of each kind.
fn outside(scratch: &Scratch) -> std::path::PathBuf {
    let outside = scratch.fresh("outside");
    fs::create_dir(outside.join("dir")).expect("a directory");
    fs::write(outside.join("file"), "hello\n").expect("a file");
    fs::write(outside.join("other"), "other\n").expect("a file");
    symlink("file", outside.join("link")).expect("a link");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, outside.join("fifo"), mode).expect("a FIFO");
    outside
}

/// All that can be seen of a directory, but for when it was read.
fn digest(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for path in [directory.to_owned()].into_iter().chain(
        fs::read_dir(directory).expect("a listing").map(|entry| entry.expect("a name").path()),
    ) {
        let found = fs::symlink_metadata(&path).expect("attributes");
        let bytes = if found.is_file() { fs::read(&path).expect("bytes") } else { Vec::new() };
        lines.push(format!(
            "{path:?} {:o} {}:{} {} {}.{} {}.{} {bytes:?}",
            found.mode(),
            found.uid(),
            found.gid(),
            found.nlink(),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ));
    }
    lines.sort();
    lines
}

/// The same by a mount that is read-only, where this process may make one.
fn natively(scratch: &Scratch, outside: &Path) -> Option<Outcome> {
    let may = Command::new("unshare").args(["-m", "true"]).output().expect("unshare starts");
    if !may.status.success() {
        return None;
    }
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" &&
        exec python3 -c \"$2\" \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(outside).arg(TABLE);
    Some(run(scratch, &scratch.fresh("work"), command))
}

/// What differs from Linux: Landlock, where the host has it, refuses a FIFO outside.
fn comparable(outcome: &Outcome) -> Vec<String> {
    let text = String::from_utf8_lossy(&outcome.stdout);
    text.lines().filter(|line| !line.starts_with("open a FIFO")).map(str::to_owned).collect()
}

#[test]
fn each_call_says_outside_what_linux_says_of_a_read_only_mount() {
    if against_native() {
        return; // there is one side only
    }
    let scratch = Scratch::new("read-only");
    let directory = outside(&scratch);
    let native = natively(&scratch, &directory);
    let before = digest(&directory);
    let work = scratch.fresh("work");
    let argv = ["python3", "-c", TABLE, directory.to_str().expect("a text")];
    let inside = run(&scratch, &work, Side::Husk.command(&["--read-only-outside"], &argv));
    assert_eq!(digest(&directory), before, "the host has changed");
    let lines = comparable(&inside);
    assert!(inside.status.success() && lines.len() > 120, "{}", inside.shown());
    // These are what most programs meet, wherever the rest cannot be compared.
    for line in ["open O_WRONLY: EROFS", "mkdir: EROFS", "fchmod: EROFS", "reopen by /proc: EROFS"]
    {
        assert!(lines.iter().any(|found| found == line), "{line}\n{}", inside.shown());
    }
    match native {
        Some(native) => assert_eq!(lines, comparable(&native)),
        None => println!("NOT COMPARED: no mount can be made here"),
    }
}

#[test]
fn what_was_open_before_and_what_is_no_file_may_be_written_to() {
    let scratch = Scratch::new("sealed-output");
    let script = "
echo out
echo nothing > /dev/null
echo 500 > /proc/self/oom_score_adj && echo adjusted
echo mine > file && mv file moved && chmod 600 moved && cat moved
python3 -c '
import multiprocessing
print(multiprocessing.Pool(2).map(abs, [-1, -2]))'
mkfifo way; echo through > way & cat way; wait
echo last >> /dev/stdout
exit 3";
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let command = side.command(&["--read-only-outside"], &["sh", "-c", script]);
        let outcome = run(&scratch, &work, command);
        assert_eq!(outcome.code(), 3, "{side:?} {}", outcome.shown());
        let expected = "out\nadjusted\nmine\n[1, 2]\nthrough\nlast\n";
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{side:?}");
        assert_eq!(fs::read_to_string(work.join("moved")).expect("written back"), "mine\n");
    }
}

#[test]
fn a_set_user_id_program_runs_inside_without_its_rights() {
    if against_native() || !rustix::process::getuid().is_root() {
        println!("NOT RUN: only root can make such a program");
        return;
    }
    let scratch = Scratch::new("sealed-set-id");
    let directory = scratch.fresh("outside");
    let program = directory.join("touch");
    fs::copy("/usr/bin/touch", &program).expect("a copy");
    let work = scratch.fresh("work");
    give_to_nobody(&work);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    fs::set_permissions(&program, mode).expect("set-user-ID");
    let (new, program) = (directory.join("new"), program.display().to_string());
    let script = format!("{program} {}; {program} inside && ls inside", new.display());
    // As a program of a program, and as the first one.
    let command = Side::Husk.command(&["--read-only-outside"], &["sh", "-c", &script]);
    let outcome = run(&scratch, &work, as_nobody(&command));
    assert_eq!(outcome.stdout, b"inside\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("Read-only file system"), "{}", outcome.shown());
    let argv = [program.as_str(), new.to_str().expect("a text")];
    let command = Side::Husk.command(&["--read-only-outside"], &argv);
    let outcome = run(&scratch, &work, as_nobody(&command));
    assert!(outcome.stderr.contains("Read-only file system"), "{}", outcome.shown());
    let notes = said(&outcome);
    assert!(
        notes.iter().any(|line| line.ends_with("gets no rights of its own: --read-only-outside"))
    );
    assert!(!new.exists(), "it ran natively");
    // Nothing is kept of that by which another image would take it for one without rights. What has
    // just been made is not kept in any case.
    run(&scratch, &work, Side::Husk.command(&["--read-only-outside"], &["su", "--version"]));
    let outcome = run(&scratch, &work, Side::Husk.command(&[], &["sh", "-c", "su --version; :"]));
    assert!(outcome.stderr.contains("it runs natively"), "{}", outcome.shown());
}

#[test]
fn an_image_that_stays_is_read_only_outside_for_all_its_programs() {
    if against_native() {
        return; // there is no image
    }
    let scratch = Scratch::new("sealed-named");
    let (work, directory) = (scratch.fresh("work"), outside(&scratch));
    let before = digest(&directory);
    let script = r#"
"$1" up sealed-named --memory 64M --read-only-outside || exit 9
"$1" exec sealed-named -- sh -c "echo x > $2/new; echo y > $2/file; echo z > inside; cat inside"
"$1" ls --json | grep -c '"read_only_outside": true'
"$1" down sealed-named
cat inside"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(binary()).arg(&directory);
    let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT).expect("an end");
    assert_eq!(outcome.stdout, b"z\n1\nz\n", "{}", outcome.shown());
    assert_eq!(outcome.stderr.matches("Read-only file system").count(), 2, "{}", outcome.shown());
    assert_eq!(digest(&directory), before);
}
