//! What file systems without a tree of their own are mounted on inside an overlay stays the host's;
//! paths that leave them again are the image's.

use std::fs;
use std::path::Path;
use std::process::Command;

use husk_tests::Scratch;

use crate::{Outcome, run};

/// `None`: only root may mount.
fn scratch(name: &str) -> Option<Scratch> {
    if !rustix::process::getuid().is_root() {
        println!("NOT RUN: only root may mount: portals");
        return None;
    }
    Some(Scratch::new(name))
}

/// Runs a script whose mounts are its own; `$1` is the command.
fn with_own_mounts(scratch: &Scratch, work: &Path, script: &str) -> Outcome {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(husk_tests::husk::binary());
    run(scratch, work, command)
}

/// In the work directory; `$1` is the command. A file system of no ordinary kind, with links
/// out of it, lies in the overlay.
const SCRIPT: &str = r#"
mount -t ramfs none tree/m || exit 99
mkdir tree/m/d
ln -s ../file tree/m/out
ln -s "$PWD/tree/only" tree/m/dangling
ln -s ../../beside tree/m/beside
"$1" run --discard --overlay tree -- sh -c '
cd tree
echo inside > m/x
echo image > m/../file
cat file m/out m/d/../../file
echo new > m/../new
mkdir dir
echo made > m/../dir/made
cat dir/made m/d/../../dir/../dir/made
echo only > only
cat m/dangling
echo more >> m/dangling
cat only
ls m/.. m/d/..
cd m
echo second > ../file
cat ../file "$PWD/../file" /proc/self/cwd/../file
mv ../new ../moved
ls ..
cat beside/of
'
echo "ended with $?"
cat tree/file tree/m/x
ls tree
"#;

const ANSWER: &str = "image image image made made only only more m/..: dir file m new only m/d/..: \
                      beside d dangling out x second second second dir file m moved only of beside \
                      ended with 0 host inside file m";

#[test]
fn paths_out_of_what_is_mounted_in_an_overlay_are_the_images() {
    let Some(scratch) = scratch("portals") else { return };
    let work = scratch.fresh("work");
    fs::create_dir_all(work.join("tree/m")).expect("a tree");
    fs::create_dir(work.join("beside")).expect("beside it");
    fs::write(work.join("beside/of"), "of beside\n").expect("a file");
    fs::write(work.join("tree/file"), "host\n").expect("a file");
    let outcome = with_own_mounts(&scratch, &work, SCRIPT);
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert_eq!(words.join(" "), ANSWER, "{}", outcome.shown());
}

/// One mount is a tree of its own in the image, one stays the host's; `$1` is the command.
const MOUNTED: &str = r#"
mkdir tree/own tree/hosts
mount -t tmpfs none tree/own || exit 99
mount -t ramfs none tree/hosts || exit 99
try='for name in own hosts; do
    for call in rmdir unlink; do $call $name 2>&1 | sed "s/.*: //"; done
    test -d $name && echo there
done'
cd tree
sh -c "$try"
"$1" run --discard -- sh -c "$try"
"#;

#[test]
fn what_something_is_mounted_on_is_not_removed() {
    let Some(scratch) = scratch("portals-mounted") else { return };
    let work = scratch.fresh("work");
    fs::create_dir(work.join("tree")).expect("a tree");
    let outcome = with_own_mounts(&scratch, &work, MOUNTED);
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    // First on Linux, then in an image.
    let kept = "Device or resource busy\nIs a directory\nthere\n";
    assert_eq!(stdout, kept.repeat(4), "{}", outcome.shown());
}

/// The same; what each of these renames answers.
const RENAMED: &str = r#"
mkdir tree/own tree/hosts tree/empty
echo f > tree/file
mount -t tmpfs none tree/own || exit 99
mount -t ramfs none tree/hosts || exit 99
try='
import errno, os
for name in "own", "hosts":
    for source, target in (("file", name), ("empty", name), (name, "new"), (name, name),
                           (name, "file"), ("none", name)):
        try:
            os.rename(source, target)
            print("done")
        except OSError as problem:
            print(errno.errorcode[problem.errno])
'
cd tree
python3 -c "$try"
"$1" run --discard -- python3 -c "$try"
"#;

#[test]
fn what_something_is_mounted_on_is_renamed_as_on_linux() {
    if !rustix::process::getuid().is_root() {
        println!("NOT RUN: only root may mount: portals");
        return;
    }
    let scratch = Scratch::new("portals-renamed");
    let work = scratch.fresh("work");
    fs::create_dir(work.join("tree")).expect("a tree");
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", RENAMED, "sh"]);
    command.arg(husk_tests::husk::binary());
    let outcome = run(&scratch, &work, command);
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    // First on Linux, then in an image.
    let answers = "EISDIR\nEBUSY\nEBUSY\ndone\nENOTDIR\nENOENT\n";
    assert_eq!(stdout, answers.repeat(4), "{}", outcome.shown());
}
