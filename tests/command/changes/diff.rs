//! `husk diff`: what a write-back would do, told before, and what it then does.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use husk_tests::tree::Tree;
use husk_tests::{Outcome, Run, Scratch, against_native, husk};
use serde_json::Value;

use crate::memory::fsck::ready;
use crate::{as_nobody, run, said};

/// A run that waits for the end of its input; it ends with the test, and its image with it.
struct Waiting(Option<Run>);

impl Waiting {
    fn pid(&self) -> i32 {
        self.0.as_ref().expect("it runs").pid()
    }

    fn end(&mut self) -> Option<Outcome> {
        let mut run = self.0.take()?;
        drop(run.stdin());
        Some(run.wait(crate::LIMIT).unwrap_or_else(|hang| panic!("{hang}")))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A run that has changed its overlay and waits.
struct Changed {
    scratch: Scratch,
    work: PathBuf,
    /// The directory as it was before.
    before: PathBuf,
    run: Waiting,
}

impl Changed {
    fn new(name: &str, fill: impl Fn(&Path), script: &str) -> Changed {
        Changed::with(name, fill, &[], script)
    }

    fn with(name: &str, fill: impl Fn(&Path), options: &[&str], script: &str) -> Changed {
        let scratch = Scratch::new(name);
        let work = scratch.fresh("work");
        fill(&work);
        let before = scratch.path().join("before");
        sh(scratch.path(), "cp -a work before");
        let script = format!("{script}\necho ready; read -r _ || :");
        let options = [&["--memory", "64M"], options].concat();
        let command = husk(&options, &["bash", "-euc", &script]);
        let mut run = Run::start_piped(command, &work, scratch.path());
        ready(&mut run, "ready");
        Changed { scratch, work, before, run: Waiting(Some(run)) }
    }

    /// `husk diff` of it, from a directory outside.
    fn diff(&self, options: &[&str]) -> Outcome {
        self.diff_in(self.scratch.path(), options)
    }

    fn diff_in(&self, directory: &Path, options: &[&str]) -> Outcome {
        let mut command = Command::new(husk_tests::husk::binary());
        command.args(["diff", &self.run.pid().to_string()]).args(options);
        let scratch = Scratch::new("diff");
        run(&scratch, directory, command)
    }

    fn text(&self, options: &[&str]) -> String {
        let outcome = self.diff(options);
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
        assert!(said(&outcome).is_empty(), "{}", outcome.shown());
        String::from_utf8(outcome.stdout).expect("text")
    }

    fn json(&self) -> Vec<Value> {
        serde_json::from_str(&self.text(&["--json"])).expect("JSON")
    }

    /// Lets it end, and its changes be written back.
    fn end(mut self) -> (Scratch, Outcome) {
        let outcome = self.run.end().expect("it runs");
        (self.scratch, outcome)
    }
}

/// A script of the host's, in `directory`; its output.
fn sh(directory: &Path, script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output();
    let output = output.expect("bash");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, text).expect("written");
}

fn host_side(work: &Path) {
    for name in ["kept", "changed", "gone", "moved", "mode", "dir/a", "dir/b", "old/x", "old/y/z"] {
        write(work.join(name), &format!("{name}\none\ntwo\nthree\n"));
    }
    write(work.join("spaced name"), "spaced\n");
    write(work.join("no-end"), "one\ntwo");
    fs::write(work.join("data"), b"\0\x01binary").expect("written");
    symlink("kept", work.join("link")).expect("a link");
}

const CHANGES: &str = "sed -i s/two/2/ changed; rm gone; mv moved went; chmod 755 mode; rm -r old
    mkdir -p new/in; echo new > new/in/file; mv dir turned; echo more >> turned/b
    echo more >> 'spaced name'; echo >> no-end; printf 'a\\0b' > data; ln -sfn changed link
    echo x > $'odd\"\\tname'; ln kept kept-2; mkfifo fifo";

/// Letter and path of each line but the sum.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.get(2..3) == Some(" ")).collect()
}

#[test]
fn every_change_is_told_and_deletions_always_are() {
    if against_native() {
        return;
    }
    let changed = Changed::new("diff", host_side, CHANGES);
    let before = Tree::read(&changed.work, None);
    let text = changed.text(&[]);
    let expected = [
        "M  changed",
        "M  data",
        "A  fifo",
        "D  gone",
        "A  kept-2",
        "M  link",
        "m  mode  mode 0644 -> 0755",
        "A  new/",
        "A  new/in/",
        "A  new/in/file",
        "M  no-end",
        "A  \"odd\\\"\\tname\"",
        "D  old/",
        "D  old/x",
        "D  old/y/",
        "D  old/y/z",
        "M  spaced name",
        "R  dir/ -> turned/",
        "R  dir/b -> turned/b",
        "R  moved -> went",
    ];
    assert_eq!(lines(&text), expected, "{text}");
    let sum = "6 added, 5 changed, 5 removed, 3 moved, 1 with other attributes";
    assert_eq!(text.lines().last(), Some(sum), "{text}");
    let names = changed.text(&["--name-only", "-z"]);
    let mut names: Vec<_> = names.split_terminator('\0').collect();
    names.sort_unstable();
    assert!(names.contains(&"odd\"\tname") && names.contains(&"dir/b"), "{names:?}");
    assert_eq!(names.len(), expected.len() + 3, "both names of what moves: {names:?}");
    let stat = changed.text(&["--stat"]);
    let row = |name: &str| stat.lines().find(|row| row.contains(name)).expect("a row").to_owned();
    assert!(row("changed ").ends_with("| 2 +-"), "{stat}");
    assert!(row("old/y/z").ends_with("| 4 ----") && row("data").contains("Bin 8 -> 3"), "{stat}");
    let json = changed.json();
    let of = |path: &str| json.iter().find(|one| one["path"] == path).expect("a change").clone();
    assert_eq!(of("went")["change"], "moved");
    assert_eq!(of("went")["from"], "moved");
    assert_eq!(of("mode")["attributes"], serde_json::json!(["mode"]));
    assert_eq!(of("link")["new"]["target"], "changed");
    assert_eq!(of("old/y/z")["old"]["size"], 22);
    assert_eq!((&of("fifo")["kind"], json.len()), (&"fifo".into(), expected.len()));
    assert!(json.iter().all(|one| one["overlay"] == changed.work.to_str().expect("plain")));
    // Nothing has been done so far.
    let after = before.differences(&Tree::read(&changed.work, None), &before, &|_: &Path| false);
    assert!(after.is_empty(), "{after:?}");
    let (_, outcome) = changed.end();
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
}

/// What a patch cannot say (the FIFO, the bytes, the second name of a file) is left out.
const SAID_BY_PATCHES: &str = "sed -i s/two/2/ changed; rm gone; mv moved went; chmod 755 mode
    rm -r old; mkdir -p new/in; echo new > new/in/file; mv dir turned; echo more >> turned/b
    echo more >> 'spaced name'; echo >> no-end; ln -sfn changed link; echo x > $'odd\"\\tname'
    rm link; echo file > link; seq 1 500 > long; printf end > new/end";

/// The patch, taken before the end, makes of the old tree what the write-back has made.
#[test]
fn a_patch_is_what_the_write_back_does() {
    if against_native() {
        return;
    }
    let changed = Changed::new("diff-patch", host_side, SAID_BY_PATCHES);
    let patch = changed.diff(&["--patch"]);
    assert_eq!(patch.code(), 0, "{}", patch.shown());
    let before = changed.before.clone();
    let (scratch, outcome) = changed.end();
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    fs::write(scratch.path().join("the.patch"), patch.stdout).expect("written");
    let shown = "find . -mindepth 1 ! -type d -printf '%P %y %m %l\n' -type f -exec md5sum {} \\; \
        | LC_ALL=C sort";
    let want = sh(&scratch.path().join("work"), shown);
    for tool in ["git apply -p1 ../the.patch", "patch -s -p1 -i ../the.patch"] {
        let copy = scratch.path().join("copy");
        sh(scratch.path(), "rm -rf copy; cp -a before copy");
        assert!(before.is_dir());
        // The copy is in no repository, wherever these tests are.
        sh(&copy, &format!("export GIT_CEILING_DIRECTORIES=\"$PWD/..\"; {tool}"));
        assert_eq!(sh(&copy, shown), want, "{tool}");
    }
}

#[test]
fn paths_choose_and_the_status_tells_on_request() {
    if against_native() {
        return;
    }
    let changed = Changed::new("diff-paths", host_side, CHANGES);
    let absolute = changed.work.join("new");
    for paths in [&["new"][..], &["./new/../new"], &[absolute.to_str().expect("plain")]] {
        assert_eq!(changed.text(&[&["--name-only"], paths].concat()), "new\nnew/in\nnew/in/file\n");
    }
    // From within the overlay, from where one is.
    let outcome = changed.diff_in(&changed.work.join("old"), &["--name-only", "y", "x"]);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "old/x\nold/y\nold/y/z\n");
    assert_eq!(changed.text(&["kept", "absent"]), "");
    assert_eq!(changed.diff(&["--exit-code", "kept"]).code(), 0);
    assert_eq!(changed.diff(&["--exit-code", "gone"]).code(), 1);
    let refused = |options: &[&str], status: i32, why: &str| {
        let outcome = changed.diff(options);
        assert_eq!(outcome.code(), status, "{}", outcome.shown());
        let right = said(&outcome).len() == 1 && outcome.stderr.contains(why);
        assert!(right && outcome.stdout.is_empty(), "{}", outcome.shown());
    };
    refused(&["/etc/passwd"], 125, "it is in no overlay of the image");
    refused(&["--stat", "--json"], 125, "cannot be used with");
    refused(&["-z"], 125, "--name-only");
    for (image, why) in [("absent", "no such image"), ("1", "in no image"), ("x y", "no such")] {
        let mut command = Command::new(husk_tests::husk::binary());
        command.args(["diff", image]);
        let outcome = run(&changed.scratch, changed.scratch.path(), command);
        assert_eq!((outcome.code(), said(&outcome).len()), (125, 1), "{}", outcome.shown());
        assert!(outcome.stderr.contains(why), "{}", outcome.shown());
    }
}

#[test]
fn conflicts_are_marked_before_they_happen() {
    if against_native() {
        return;
    }
    let script = "echo image >> changed; rm gone; chmod 600 mode; echo mine > both; rm -r dir";
    let changed = Changed::new("diff-conflict", host_side, script);
    sh(&changed.work, "echo host >> changed; echo host >> gone; echo host > both; echo x > dir/c");
    let text = changed.text(&[]);
    for line in [
        "M! both  conflict: appeared on the host meanwhile",
        "M! changed  conflict: changed on the host meanwhile",
        "D! gone  conflict: changed on the host meanwhile",
        "m  mode  mode 0644 -> 0600",
        "D  dir/a",
        "D  dir/b",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("D! dir/  conflict: ")), "{text}");
    assert!(!text.contains("dir/c\n"), "{text}");
    let json = changed.json();
    let conflicts = json.iter().filter(|one| !one["conflict"].is_null()).count();
    assert_eq!(conflicts, 4, "{json:?}");
    let (scratch, outcome) = changed.end();
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    assert_eq!(outcome.stderr.matches("husk: conflict: ").count(), 4, "{}", outcome.shown());
    assert!(scratch.path().join("work/dir/c").exists());
}

#[test]
fn several_overlays_are_told_apart() {
    if against_native() {
        return;
    }
    let outer = Scratch::new("diff-several");
    let other = outer.fresh("other");
    fs::write(other.join("theirs"), "x\n").expect("written");
    let script = format!("rm {}/theirs; echo x > ours", other.display());
    let options = ["--overlay", ".", "--overlay", other.to_str().expect("plain")];
    let changed = Changed::with("diff-two", |_| {}, &options, &script);
    let text = changed.text(&[]);
    let heads = text.lines().filter(|line| line.starts_with("in /")).count();
    assert!(heads == 2 && text.contains("D  theirs") && text.contains("A  ours"), "{text}");
    let one = changed.text(&[other.to_str().expect("plain")]);
    assert_eq!(one, "D  theirs\n1 removed\n");
    let patch = changed.text(&["--patch"]);
    assert!(patch.contains(&format!("# in {}\n", other.display())), "{patch}");
}

/// An image that has changed nothing has no differences, whatever was read in it.
#[test]
fn what_was_only_read_is_no_difference() {
    if against_native() {
        return;
    }
    let script = "cat changed link dir/* > /dev/null; ls -lR > /dev/null; : >> kept; chmod 644 mode
        cp -p gone copy; mv copy gone; mkdir new; rmdir new";
    let changed = Changed::new("diff-read", host_side, script);
    assert_eq!(changed.text(&[]), "");
    assert_eq!(changed.json(), Vec::<Value>::new());
    assert_eq!(changed.diff(&["--exit-code", "--patch"]).code(), 0);
}

#[test]
fn another_user_is_told_nothing() {
    if against_native() || !rustix::process::getuid().is_root() {
        return;
    }
    let changed = Changed::new("diff-user", host_side, "rm gone");
    fs::set_permissions(changed.scratch.path(), fs::Permissions::from_mode(0o755)).expect("open");
    let mut command = Command::new(husk_tests::husk::binary());
    command.args(["diff", &changed.run.pid().to_string()]);
    let outcome = run(&changed.scratch, changed.scratch.path(), as_nobody(&command));
    assert_eq!((outcome.code(), said(&outcome).len()), (125, 1), "{}", outcome.shown());
    assert!(outcome.stderr.contains("another user's") && outcome.stdout.is_empty());
}
