//! What a plain user may do with files and directories that a mode keeps even their owner from, and
//! with programs that can be run and not be read. Each case runs natively and in an image that the
//! same user starts; as root both become one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::{Outcome, Run, Scratch, husk};

/// No run takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;

/// Whether the tests run as root, who has every right.
fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// `command` as a plain user, whose home is `home`.
fn as_user(command: &Command, home: &Path) -> Command {
    let mut user = if is_root() {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        user.arg(command.get_program());
        user
    } else {
        Command::new(command.get_program())
    };
    user.args(command.get_args()).env("HOME", home).env("HUSK_FSCK", "1");
    user
}

/// A directory of the user's, in one that the user may search.
fn place(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let path = scratch.fresh(name);
    if is_root() {
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("an owner");
        for above in path.ancestors().skip(1) {
            let mode = fs::metadata(above).expect("a directory").permissions().mode();
            if mode & 0o001 == 0 {
                fs::set_permissions(above, fs::Permissions::from_mode(mode | 0o011))
                    .expect("a mode");
            }
        }
    }
    path
}

fn run(scratch: &Scratch, work: &Path, command: &Command) -> Outcome {
    let home = place(scratch, "home");
    let command = as_user(command, &home);
    Run::start(command, work, scratch.path()).wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    shell
}

/// Prepares by `made`, runs `script` natively and in an image, and what both say and leave is the
/// same.
fn the_same_for_a_user(name: &str, made: &str, script: &str) {
    let scratch = Scratch::new(name);
    let show = "chmod -R u+rwX . ; find . -type d -o -type f -size +0 -print | sort; \
                find . | sort; cat */inner 2>/dev/null; getfattr -d * 2>/dev/null";
    let mut seen = Vec::new();
    for command in [shell(script), husk(&[], &["sh", "-c", script])] {
        let work = place(&scratch, "work");
        let made = run(&scratch, &work, &shell(made));
        assert!(made.status.success(), "{}", made.shown());
        let done = run(&scratch, &work, &command);
        let left = run(&scratch, &work, &shell(show));
        let text = |outcome: &Outcome| String::from_utf8_lossy(&outcome.stdout).into_owned();
        let findings = done.stderr.lines().filter(|line| line.starts_with("husk: fsck: finding"));
        assert_eq!(findings.count(), 0, "{}", done.shown());
        seen.push((done.code(), text(&done), text(&left), done.shown()));
    }
    let (native, tested) = (&seen[0], &seen[1]);
    assert_eq!((native.0, &native.1), (tested.0, &tested.1), "{}", tested.3);
    assert_eq!(native.2, tested.2, "left on the host: {}", tested.3);
}

const MADE: &str = "
mkdir empty moved narrow later full odd
echo inner >full/inner; echo inner >odd/inner; mkdir full/sub; ln -s inner full/link
echo text >file; chmod 000 file
chmod 000 empty moved later full; chmod 311 narrow; chmod 600 odd";

/// What needs no rights in a directory itself, and what `chmod` lets its owner do.
#[test]
fn directories_without_rights_are_moved_removed_and_opened_again_by_their_owner() {
    let script = "
rmdir empty; echo $?
mv moved moved2; echo $?; rmdir moved2; echo $?
rmdir narrow; echo $?
ls later 2>/dev/null; echo $?
rmdir full 2>/dev/null; echo $?
chmod 700 full odd later; ls full odd; cat full/inner full/link odd/inner
touch later/new; ls later
cat file 2>/dev/null; echo $?; chmod 600 file; cat file; echo more >>file; cat file
stat -c '%a %n' full odd later file
";
    the_same_for_a_user("rights-of-owners", MADE, script);
}

/// Listed while its owner may read and not search it, and searched once that is allowed.
#[test]
fn a_directory_that_can_be_read_and_not_searched_keeps_its_names() {
    let script =
        "ls odd 2>/dev/null; chmod 700 odd; ls odd; cat odd/inner; mv odd/inner odd/other; ls odd";
    the_same_for_a_user("rights-to-read", MADE, script);
}

/// Who may not read a file does not read its attributes either, and its mode is set last.
#[test]
fn what_its_owner_may_not_read_has_its_attributes_nevertheless() {
    let made = "
attribute() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], b\"user.k\", b\"v\")' $1; }
for file in grown written kept closed moved over other; do echo a >$file; attribute $file; done
chmod 200 kept; chmod 0 moved; chmod 200 closed; mkdir dir shut; attribute shut; chmod 0 shut";
    let script = "
attribute() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], b\"user.j\", b\"w\")' $1; }
echo b >>grown; chmod 200 grown
echo b >written; chmod 0 written
echo b >kept; echo b >>closed; mv moved moved2; chmod 600 moved2; chmod 0 moved2
attribute other; chmod 200 other
echo a >new; attribute new; chmod 0 new
mkdir made; attribute made; chmod 0 made; attribute dir; chmod 0 dir
rm over; mkdir over; attribute over; echo c >over/inner; chmod 0 over
mv shut shut2";
    the_same_for_a_user("rights-and-attributes", made, script);
}

/// Only the host can start it, which the user is told.
#[test]
fn a_program_that_may_be_run_and_not_read_runs_natively_and_a_line_says_so() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("execute-only");
    let work = place(&scratch, "work");
    fs::copy("/bin/echo", work.join("say")).expect("a program");
    fs::set_permissions(work.join("say"), fs::Permissions::from_mode(0o711)).expect("a mode");
    fs::write(work.join("script"), "#!/bin/sh\necho read\n").expect("a script");
    fs::set_permissions(work.join("script"), fs::Permissions::from_mode(0o711)).expect("a mode");
    const EXPECTED: &str = "one\n0\ntwo\nfour\n2\n";
    let script = "./say one; echo $?; ./say two; mv say said; ./said four
./script 2>/dev/null; echo $?";
    let native = run(&scratch, &work, &shell(&script.replace("mv say said; ./said", "./say")));
    assert_eq!(String::from_utf8_lossy(&native.stdout), EXPECTED, "{}", native.shown());
    let done = run(&scratch, &work, &husk(&["--discard"], &["sh", "-c", script]));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said, EXPECTED, "{}", done.shown());
    let notes = done.stderr.lines().filter(|line| line.contains("may be run but not read"));
    assert_eq!(notes.count(), 1, "{}", done.shown());
}

/// The directories above a tree are the host's: who may not search them does not reach the tree by
/// name, from its working directory and by what it has open it does.
#[test]
fn a_tree_below_a_closed_directory_is_not_reached_by_name() {
    if !is_root() {
        return;
    }
    let script = "
        d=$PWD
        echo old > file; chmod 666 file; chmod 777 .
        as() { setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }
        try() { as sh -c \"$1\" 2>/dev/null; echo \"$2 $?\"; }
        look() {
            try \"cat $d/file\" read
            try \"echo more >> $d/file\" write
            try \"mkdir $d/made-$1\" make
            try \"ls $d\" list
            try \"cd / && cat $d/file\" elsewhere
            try 'cat file' relative
            cd ..; try 'cat ./work/file' dotted; try 'cat link/file' linked; cd work
            cat $d/file
        }
        ln -s work ../link
        chmod 700 ../..; look closed
        chmod 711 ../..; look open";
    let scratch = Scratch::new("closed");
    let sides = [shell(script), husk(&["--discard"], &["sh", "-c", script])].map(|command| {
        let above = place(&scratch, "above");
        chown(&above, Some(0), Some(0)).expect("an owner");
        let work = above.join("a/work");
        fs::create_dir_all(&work).expect("directories");
        let done = Run::start(command, &work, scratch.path()).wait(LIMIT).expect("it ends");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).expect("a mode");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        fs::remove_dir_all(above).expect("it goes");
        said
    });
    assert!(sides[0].contains("read 1") && sides[0].contains("read 0"), "{}", sides[0]);
    assert_eq!(sides[0], sides[1]);
}
