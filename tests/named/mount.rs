//! `husk mount`: both sides see the same at once, and nobody waits for a server that is gone.
//!
//! Where this machine cannot mount through FUSE, each test says so on standard error, past what the
//! test runner keeps to itself, and has not run.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use husk_tests::husk::binary;
use husk_tests::{against_native, process, tools};
use rustix::process::{Pid, Signal, getuid, kill_process, test_kill_process};

use crate::{Images, refusal, shown, text, until};

/// Images, and where one may be shown.
struct Shown {
    images: Images,
    at: PathBuf,
}

/// Why no test of mounts can run here.
fn lacking() -> Option<&'static str> {
    let there = Path::new("/dev/fuse").exists();
    let helper = Command::new("fusermount3").arg("-V").output().is_ok();
    match (there, getuid().is_root() || helper) {
        (false, _) => Some("there is no /dev/fuse"),
        (true, false) => Some("there is no fusermount3 (package fuse3), and this is not root"),
        (true, true) => None,
    }
}

/// Says so past what the test runner keeps to itself.
fn not_run(name: &str, why: &str) {
    let line = format!("NOT RUN: named mount {name}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

impl Shown {
    /// An image `ci` over the work directory; `None`: nothing can be tested.
    fn new(name: &str) -> Option<Shown> {
        if against_native() {
            return None;
        }
        if let Some(why) = lacking() {
            not_run(name, why);
            return None;
        }
        let images = Images::new(name);
        images.up("ci");
        let at = images.scratch.fresh("shown");
        Some(Shown { images, at })
    }

    fn at(&self) -> &str {
        self.at.to_str().expect("a plain path")
    }

    fn mount(&self) {
        self.images.done(&["mount", "ci", self.at()]);
    }

    /// The work directory as the mount shows it.
    fn work(&self) -> PathBuf {
        self.at.join(self.images.work.strip_prefix("/").expect("a path from / on"))
    }

    /// A script outside, in the work directory of the mount; its standard output.
    fn outside(&self, script: &str) -> String {
        let output = self.try_outside(script);
        assert!(output.status.success(), "{script}: {}", shown(&output));
        text(&output.stdout)
    }

    fn try_outside(&self, script: &str) -> Output {
        let mut command = self.images.command("bash", &["-euc", script]);
        command.current_dir(self.work()).output().expect("bash")
    }

    /// The same script inside.
    fn inside(&self, script: &str) -> String {
        self.images.script("ci", script)
    }

    /// The process that serves the mount.
    fn server(&self) -> i32 {
        let records = fs::read_dir(self.images.place("ci")).expect("its directory").flatten();
        let texts = records
            .filter(|entry| text(entry.file_name().as_encoded_bytes()).starts_with("mount-"))
            .map(|entry| fs::read_to_string(entry.path()).expect("a record"));
        let record = texts.last().expect("a mount");
        let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
        record["server"].as_i64().expect("a process") as i32
    }

    fn is_mounted(&self) -> bool {
        let mounts = text(&fs::read("/proc/self/mounts").expect("mounts"));
        mounts.contains(&format!(" {} fuse.husk ", self.at()))
    }

    /// The process that minds the server.
    fn minder(&self) -> i32 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server())).expect("it lives");
        let mut words = stat[stat.rfind(')').expect("a name") + 2..].split(' ');
        words.nth(1).and_then(|parent| parent.parse().ok()).expect("a parent")
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Whatever a failed test has left.
            self.images.husk(&["umount", "--force", self.at()]);
        }
    }
}

/// All there is to know of the tree in the current directory; the root's number is the mount's.
const FACTS: &str = r#"
    find . -mindepth 1 -printf '%P %y %m %n %s %b %i %U %G %T@ %C@ %l\n' | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum
    ls -la --time-style=full-iso | tail -n +4
    python3 -c 'import os
for where, directories, files in os.walk("."):
    for name in sorted(directories + files):
        path = os.path.join(where, name)
        print(path, [(x, os.getxattr(path, x, follow_symlinks=False))
                     for x in sorted(os.listxattr(path, follow_symlinks=False))])' | sort
"#;

/// A tree with all kinds of things in it.
const TREE: &str = r#"
    mkdir -p tree/d/e tree/empty; cd tree
    echo file > file; chmod 640 file; touch -d '2001-02-03 04:05:06.789' file
    : > d/nothing; chmod 400 d/nothing; seq 200000 > d/e/large; chmod 755 d/e/large
    truncate -s 8M d/hole; echo end >> d/hole
    ln -s ../file d/link; ln -s nowhere dangling; ln file d/second; mkfifo fifo
    echo x > "$(printf 'new\nline')"; echo x > "$(printf '\303\244')"; chmod 700 d/e
    python3 -c 'import os; os.setxattr("file", "user.note", b"kept")'
"#;

#[test]
fn a_tree_is_outside_what_it_is_inside() {
    let Some(shown) = Shown::new("mount-tree") else { return };
    fs::write(shown.images.work.join("hosts"), "the host's\n").expect("a file");
    shown.mount();
    shown.inside(TREE);
    let facts = format!("cd tree; {FACTS}");
    assert_eq!(shown.outside(&facts), shown.inside(&facts));
    assert_eq!(shown.outside("cat hosts tree/d/link"), "the host's\nfile\n");
    // Made outside: what cp and tar make of it, inside.
    shown.outside("cp -a tree copy; tar cf all.tar tree; mkdir out; tar xf all.tar -C out");
    let compared =
        "diff -rx fifo --no-dereference tree copy; diff -rx fifo --no-dereference tree out/tree
        stat -c '%a %s %Y %F' copy/d/hole copy/d/e/large copy/fifo; stat -c %h copy/file
        python3 -c 'import os; print(os.getxattr(\"copy/file\", \"user.note\"))'";
    assert_eq!(shown.outside(compared), shown.inside(compared));
    assert!(shown.inside("stat -c %h copy/file; stat -c %b copy/d/hole").starts_with("2\n"));
    shown.outside("rm -r copy out all.tar");
    assert_eq!(shown.inside("ls"), "hosts\ntree\n");
    shown.outside("echo changed >> hosts");
    assert_eq!(shown.inside("cat hosts"), "the host's\nchanged\n");
    assert_eq!(fs::read(shown.images.work.join("hosts")).expect("the host's"), b"the host's\n");
    assert_eq!(fs::metadata(&shown.at).expect("a joint").mode() & 0o7777, 0o555);
    shown.images.done(&["umount", shown.at()]);
    assert_eq!(shown.images.down("ci"), "");
    assert_eq!(fs::read(shown.images.work.join("hosts")).expect("it"), b"the host's\nchanged\n");
}

#[test]
fn a_repository_is_worked_on_from_both_sides() {
    let Some(shown) = Shown::new("mount-git") else { return };
    shown.mount();
    let git = "git() { command git -c user.name=n -c user.email=e -c safe.directory='*' \
               -c gc.auto=0 -c init.defaultBranch=main \"$@\"; }; ";
    let inside = |script: &str| shown.inside(&format!("{git}{script}"));
    let outside = |script: &str| shown.outside(&format!("{git}{script}"));
    inside("git init -q; seq 100 > a; mkdir d; echo b > d/b; git add .; git commit -qm inside");
    assert_eq!(outside("git status --porcelain; git log --format=%s"), "inside\n");
    outside("echo more >> a; git commit -qam outside; git gc -q; echo c > d/c");
    assert_eq!(
        inside("git status --porcelain; git log --format=%s; git fsck"),
        outside("git status --porcelain; git log --format=%s; git fsck")
    );
    assert_eq!(
        inside("git add .; git stash -q; git stash pop -q; git status --porcelain"),
        "A  d/c\n"
    );
    assert_eq!(outside("git status --porcelain"), "A  d/c\n");
    shown.images.done(&["down", "ci", "--discard"]);
}

#[test]
fn what_one_side_does_the_other_sees_at_once() {
    let Some(shown) = Shown::new("mount-both") else { return };
    shown.mount();
    let both = shown.images.scratch.path().join("both.py");
    fs::write(&both, include_str!("sources/both.py")).expect("a script");
    let words = [
        both.to_str().expect("a plain path"),
        binary().to_str().expect("a plain path"),
        "ci",
        shown.images.work.to_str().expect("a plain path"),
        shown.work().to_str().expect("a plain path"),
    ]
    .map(str::to_owned);
    let mut command = shown.images.command("python3", &[]);
    let output = command.args(words).output().expect("python3");
    assert!(output.status.success(), "{}", crate::shown(&output));
    assert!(text(&output.stdout).ends_with("apart done\n"), "{}", crate::shown(&output));
    shown.images.done(&["umount", shown.at()]);
    assert_eq!(shown.images.row("ci")["processes"], 0, "its server has ended");
    shown.images.down("ci");
}

#[test]
fn fsx_finds_every_byte_through_a_mount() {
    let Some(shown) = Shown::new("mount-fsx") else { return };
    let program = tools::installed("fsx", tools::FSX_VERSION);
    let configuration = shown.images.scratch.path().join("fsx.toml");
    fs::write(&configuration, include_str!("../suites/sources/fsx.toml")).expect("a file");
    shown.mount();
    let [program, configuration] =
        [&program, &configuration].map(|path| path.to_str().expect("a plain path"));
    for seed in ["1", "2", "3"] {
        let script = format!("{program} -q -f {configuration} -N 4000 -S {seed} file");
        // Its complaint stands on standard output.
        let output = shown.try_outside(&script);
        assert!(output.status.success(), "seed {seed}: {}", crate::shown(&output));
        assert_eq!(shown.outside("sha256sum file"), shown.inside("sha256sum file"));
    }
    shown.images.down("ci");
}

#[test]
fn locks_are_each_sides_own() {
    let Some(shown) = Shown::new("mount-apart") else { return };
    shown.mount();
    let taken = "exec 9> lock; flock -n 9; ";
    let holds = format!("{taken} echo; read -r _ || true");
    let mut holder = shown.images.command("bash", &["-euc", &holds]);
    holder.current_dir(shown.work()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("bash");
    let mut byte = [0];
    std::io::Read::read_exact(&mut holder.stdout.take().expect("it"), &mut byte).expect("taken");
    assert!(!shown.try_outside(taken).status.success(), "programs outside see it");
    shown.inside(taken);
    drop(holder.stdin.take());
    holder.wait().expect("its end");
    until("nobody holds it", || shown.try_outside(taken).status.success());
    shown.images.down("ci");
}

#[test]
fn a_part_is_shown_by_its_path() {
    let Some(shown) = Shown::new("mount-part") else { return };
    shown.inside("mkdir -p /tmp/a/b; echo deep > /tmp/a/b/c; echo w > w");
    shown.images.done(&["mount", "ci:/tmp/a", shown.at()]);
    assert_eq!(fs::read(shown.at.join("b/c")).expect("it"), b"deep\n");
    fs::write(shown.at.join("new"), "new").expect("it is the image's");
    assert_eq!(shown.inside("cat /tmp/a/new"), "new");
    let other = shown.images.scratch.fresh("other");
    let other_name = other.to_str().expect("a plain path");
    shown.images.done(&["mount", "ci", other_name]);
    assert_eq!(fs::read(other.join("tmp/a/new")).expect("it"), b"new");
    let work = other.join(shown.images.work.strip_prefix("/").expect("a path from / on"));
    assert_eq!(fs::read(work.join("w")).expect("it"), b"w\n");
    // Both end with the image.
    shown.images.down("ci");
    assert!(!shown.is_mounted());
    assert_eq!([&shown.at, &other].map(|at| fs::read_dir(at).expect("it").count()), [0, 0]);
}

#[test]
fn a_killed_server_leaves_nobody_waiting_and_the_image_well() {
    let Some(shown) = Shown::new("mount-killed") else { return };
    shown.mount();
    shown.outside("echo before > file");
    let listed = shown.images.done(&["ps", "ci"]);
    assert!(listed.contains("serve-mount ci "), "{listed}");
    // Killed alone: its minder takes the mount away.
    let open = fs::File::open(shown.work().join("file")).expect("it");
    assert!(process::kill(shown.server()));
    until("the mount is gone", || !shown.is_mounted());
    assert!(open.metadata().is_err(), "nobody answers");
    assert_eq!(fs::read_dir(&shown.at).expect("what it hid").count(), 0);
    assert_eq!(shown.inside("cat file"), "before\n");
    // Killed both: nobody waits, and who comes next is told.
    shown.mount();
    let server = shown.server();
    assert!(process::kill(shown.minder()));
    assert!(process::kill(server));
    until("it has ended", || fs::read_dir(&shown.at).is_err());
    let problem = fs::read_dir(&shown.at).expect_err("nobody answers");
    assert_eq!(problem.raw_os_error(), Some(107), "{problem}");
    let said = shown.images.refused(&["mount", "ci", shown.at()], 125);
    assert!(said.contains("has lost its server; end that mount first: husk umount"), "{said}");
    shown.images.done(&["umount", shown.at()]);
    shown.mount();
    assert_eq!(shown.outside("cat file"), "before\n");
    shown.images.down("ci");
    assert_eq!(fs::read(shown.images.work.join("file")).expect("written back"), b"before\n");
}

#[test]
fn a_mount_that_nobody_serves_is_told_and_ends_with_its_image() {
    let Some(shown) = Shown::new("mount-lost") else { return };
    shown.mount();
    let server = shown.server();
    assert!(process::kill(shown.minder()) && process::kill(server));
    until("it has ended", || fs::read_dir(&shown.at).is_err());
    let line = format!("nobody answers at {}: husk umount", shown.at());
    until("it is told", || shown.images.done(&["ls"]).contains(&line));
    assert_eq!(shown.images.row("ci")["lost_mounts"], serde_json::json!([shown.at()]));
    assert_eq!(shown.images.down("ci"), "");
    assert!(!shown.is_mounted());
}

#[test]
fn an_image_that_its_mount_has_kept_goes_on() {
    let Some(shown) = Shown::new("mount-kept") else { return };
    shown.mount();
    shown.outside("echo kept > file");
    shown.images.kill_both("ci");
    // Nobody asks: the mount's minder looks.
    let facts = shown.images.place("ci").join("facts");
    let before = fs::read(&facts).expect("facts");
    until("others go on", || fs::read(&facts).is_ok_and(|now| now != before));
    assert_eq!(shown.outside("cat file"), "kept\n");
    assert_eq!(shown.images.down("ci"), "");
    assert_eq!(fs::read(shown.images.work.join("file")).expect("written back"), b"kept\n");
}

#[test]
fn a_dead_image_is_shown_no_more() {
    let Some(shown) = Shown::new("mount-dead") else { return };
    shown.mount();
    // Without its facts nobody knows its memory.
    fs::remove_file(shown.images.place("ci").join("facts")).expect("it goes");
    shown.images.kill("ci");
    until("the mount is gone", || !shown.is_mounted());
    let said = shown.images.husk(&["down", "ci"]);
    assert_eq!(said.status.code(), Some(125), "{}", crate::shown(&said));
    let said = text(&said.stderr);
    assert!(said.contains("image ci had died: what it had not written back is lost"), "{said}");
    assert!(!said.contains("another one goes on"), "{said}");
}

#[test]
fn who_ends_a_mount_by_force_ends_its_server_too() {
    let Some(shown) = Shown::new("mount-force") else { return };
    shown.mount();
    shown.outside("echo kept > file");
    let mut user = Command::new("sleep").arg("67").current_dir(shown.work()).spawn().expect("it");
    shown.images.refused(&["umount", shown.at()], 125);
    shown.images.done(&["umount", "--force", shown.at()]);
    assert!(!shown.is_mounted());
    assert_eq!(shown.images.row("ci")["processes"], 0);
    assert_eq!(shown.images.down("ci"), "");
    assert_eq!(fs::read(shown.images.work.join("file")).expect("written back"), b"kept\n");
    user.kill().expect("it lives");
    user.wait().expect("its end");
}

#[test]
fn of_several_mounts_all_end_or_none() {
    let Some(shown) = Shown::new("mount-several") else { return };
    let others: Vec<PathBuf> =
        ["a", "b", "c"].iter().map(|name| shown.images.scratch.fresh(name)).collect();
    for other in &others {
        shown.images.done(&["mount", "ci", other.to_str().expect("plain")]);
    }
    let mounted = || {
        let mounts = text(&fs::read("/proc/self/mounts").expect("mounts"));
        let at = |other: &PathBuf| mounts.contains(&format!(" {} fuse.husk ", other.display()));
        others.iter().filter(|other| at(other)).count()
    };
    for busy in &others {
        let mut user = Command::new("sleep").arg("67").current_dir(busy).spawn().expect("it");
        // Twice: that it was asked is to change nothing.
        for _ in 0..2 {
            let said = shown.images.refused(&["down", "ci"], 125);
            let why = format!("{}, where it is mounted, is in use", busy.display());
            assert!(said.contains(&why), "{said}");
            assert_eq!(mounted(), 3, "{said}");
        }
        user.kill().expect("it lives");
        user.wait().expect("its end");
    }
    let sleeper = shown.inside("sleep 67 > /dev/null 2>&1 & echo $!");
    let said = shown.images.refused(&["down", "ci"], 125);
    assert!(said.contains("a program runs in it: sleep"), "servers are no programs: {said}");
    shown.images.done(&["kill", "ci", sleeper.trim()]);
    until("it has gone", || shown.images.row("ci")["processes"] == 3);
    assert_eq!(shown.images.down("ci"), "");
    assert_eq!(mounted(), 0);
}

#[test]
fn of_two_mounts_at_one_directory_one_is_made() {
    let Some(shown) = Shown::new("mount-two") else { return };
    let husk = binary().to_str().expect("a plain path");
    for _ in 0..4 {
        let start = || {
            let mut mount = shown.images.command(husk, &["mount", "ci", shown.at()]);
            mount.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
        };
        let both = [start(), start()].map(|one| one.wait_with_output().expect("its status"));
        let (done, others): (Vec<_>, Vec<_>) =
            both.iter().partition(|output| output.status.success());
        assert_eq!(
            (done.len(), others.len()),
            (1, 1),
            "{}",
            both.map(|o| crate::shown(&o)).concat()
        );
        let said = refusal(others[0], 125);
        assert!(said.contains("husk:ci is shown there already"), "{said}");
        shown.outside("echo x > file");
        shown.images.done(&["umount", shown.at()]);
        assert!(!shown.is_mounted());
        until("its server has ended", || shown.images.row("ci")["processes"] == 0);
    }
    assert_eq!(shown.images.down("ci"), "");
}

#[test]
fn what_minds_a_mount_that_has_ended_leaves_the_next_one_alone() {
    let Some(shown) = Shown::new("mount-late") else { return };
    shown.mount();
    let minder = Pid::from_raw(shown.minder()).expect("a process");
    kill_process(minder, Signal::STOP).expect("it lives");
    shown.images.done(&["umount", shown.at()]);
    // The host gives it the device number that the last one had.
    shown.mount();
    kill_process(minder, Signal::CONT).expect("it is stopped");
    until("the first one's minder has ended", || test_kill_process(minder).is_err());
    assert!(shown.is_mounted());
    shown.outside("echo x > file");
    assert_eq!(shown.inside("cat file"), "x\n");
    assert_eq!(shown.images.down("ci"), "");
}

#[test]
fn a_directory_whose_name_is_no_text_can_be_mounted_on() {
    use std::os::unix::ffi::OsStrExt;
    let Some(shown) = Shown::new("mount-odd") else { return };
    let odd = shown.images.scratch.path().join(std::ffi::OsStr::from_bytes(b"odd \xff\n"));
    fs::create_dir(&odd).expect("a directory");
    let husk = |verb: &[&str]| {
        let mut command = shown.images.command(binary().to_str().expect("a plain path"), verb);
        command.arg(&odd).output().expect("it starts")
    };
    let mounted = husk(&["mount", "ci"]);
    assert!(mounted.status.success(), "{}", crate::shown(&mounted));
    fs::write(odd.join("tmp/made"), "x").expect("it is the image's");
    assert_eq!(shown.inside("cat /tmp/made"), "x");
    assert!(refusal(&husk(&["mount", "ci"]), 125).contains("is shown there already"));
    // Another one, whose name is text, is found beside it.
    shown.mount();
    shown.images.done(&["umount", shown.at()]);
    let ended = husk(&["umount"]);
    assert!(ended.status.success(), "{}", crate::shown(&ended));
    let again = husk(&["mount", "ci"]);
    assert!(again.status.success(), "{}", crate::shown(&again));
    assert_eq!(shown.images.down("ci"), "");
    assert_eq!(fs::read_dir(&odd).expect("what it hid").count(), 0);
}

#[test]
fn no_image_covers_what_another_one_shows() {
    let Some(shown) = Shown::new("mount-under") else { return };
    shown.inside("mkdir -p /tmp/within");
    shown.mount();
    let within = shown.at.join("tmp/within");
    let within = within.to_str().expect("a plain path");
    let why = format!("it is in {}, which shows husk:ci; name a directory", shown.at());
    for option in ["--overlay", "--mount"] {
        let said = shown.images.refused(&["up", "other", option, within], 125);
        assert!(said.contains(&why), "{said}");
    }
    let mut run = shown.images.command(binary().to_str().expect("plain"), &["run", "true"]);
    let said = refusal(&run.current_dir(within).output().expect("it starts"), 125);
    assert!(said.contains(&why), "{said}");
    let said = shown.images.refused(&["umount", "ci"], 125);
    assert!(
        said.contains(&format!(
            "that is an image; name where it is mounted: husk umount {}",
            shown.at()
        )),
        "{said}"
    );
    assert_eq!(shown.images.down("ci"), "");
}

#[test]
fn a_mount_goes_on_when_the_supervisor_is_killed() {
    let Some(shown) = Shown::new("mount-supervisor") else { return };
    shown.mount();
    shown.outside("echo 1 > file");
    shown.images.kill_supervisor("ci");
    shown.outside("echo 2 >> file; mkdir d");
    assert_eq!(shown.inside("cat file"), "1\n2\n");
    shown.images.down("ci");
    assert!(!shown.is_mounted());
    assert_eq!(fs::read(shown.images.work.join("file")).expect("written back"), b"1\n2\n");
}

#[test]
fn the_end_of_an_image_ends_its_mounts_unless_they_are_in_use() {
    let Some(shown) = Shown::new("mount-down") else { return };
    shown.mount();
    let program = shown.inside("sleep 67 > /dev/null 2>&1 & echo $!");
    let said = shown.images.refused(&["down", "ci"], 125);
    assert!(said.contains("sleep"), "{said}");
    assert!(shown.is_mounted(), "it is not to end, after all");
    shown.images.done(&["kill", "ci", program.trim()]);
    until("it has gone", || shown.images.row("ci")["processes"] == 1);
    let mut user = Command::new("sleep").arg("67").current_dir(shown.work()).spawn().expect("it");
    let said = shown.images.refused(&["down", "ci"], 125);
    let busy = format!("{}, where it is mounted, is in use", shown.at());
    assert!(said.contains(&busy), "{said}");
    let said = shown.images.refused(&["umount", shown.at()], 125);
    assert!(said.contains("it is in use; leave it, close its files, or add --force"), "{said}");
    shown.outside("echo still > file");
    let down = shown.images.husk(&["down", "ci", "--force"]);
    assert!(down.status.success(), "{}", crate::shown(&down));
    assert!(!shown.is_mounted());
    assert_eq!(fs::read(shown.images.work.join("file")).expect("written back"), b"still\n");
    user.kill().expect("it lives");
    user.wait().expect("its end");
    // A supervisor that is told to end ends the mount, too.
    shown.images.up("ci");
    shown.mount();
    let supervisor = shown.images.supervisor("ci").to_string();
    assert!(Command::new("kill").arg(&supervisor).status().expect("kill").success());
    until("the mount is gone", || !shown.is_mounted());
    until("the image is gone", || shown.images.row("ci")["state"] != "up");
    shown.images.husk(&["down", "ci"]);
}

#[test]
fn mistakes_of_a_mount_have_one_line_each() {
    let Some(shown) = Shown::new("mount-mistakes") else { return };
    let (images, at) = (&shown.images, shown.at());
    let path =
        |name: &str| images.scratch.path().join(name).to_str().expect("a plain path").to_owned();
    fs::create_dir_all(images.work.join("below")).expect("a directory");
    fs::create_dir_all(path("full/x")).expect("a directory");
    fs::write(path("file"), "x").expect("a file");
    let below = images.work.join("below");
    let below = below.to_str().expect("a plain path");
    for (arguments, why) in [
        (["mount", "nix", at], "there is no such image"),
        (["mount", "a/b", at], "no name for one"),
        (["mount", "ci:tmp", at], "that is not an absolute path; write it as NAME:/path"),
        (["mount", "ci:/usr", at], "it belongs to the host, not to the image"),
        (["mount", "ci:/tmp/none", at], "No such file or directory"),
        (["mount", "ci", &path("none")], "there is no such directory; make it: mkdir"),
        (["mount", "ci", &path("file")], "it is not a directory"),
        (["mount", "ci", &path("full")], "it is not empty"),
        (["mount", "ci", below], "which image ci overlays; name a directory outside of it"),
        (["umount", "--force", at], "no image is mounted there"),
    ] {
        let said = images.refused(&arguments, 125);
        assert!(said.to_lowercase().contains(&why.to_lowercase()), "{arguments:?}: {said}");
        assert!(!shown.is_mounted());
    }
    shown.mount();
    let said = images.refused(&["mount", "ci", at], 125);
    assert!(said.contains("husk:ci is shown there already"), "{said}");
    let within = shown.at.join("tmp/within");
    fs::create_dir(&within).expect("a directory");
    let said = images.refused(&["mount", "ci", within.to_str().expect("plain")], 125);
    assert!(said.contains("it is in what husk:ci shows"), "{said}");
    let inside =
        images.husk(&["exec", "ci", "--", binary().to_str().expect("plain"), "mount", "ci", at]);
    assert_eq!(inside.status.code(), Some(125), "{}", crate::shown(&inside));
    images.down("ci");
    let said = images.refused(&["mount", "ci", at], 125);
    assert!(said.contains("there is no such image"), "{said}");
}

/// Root's tests, of somebody who is not root: through `fusermount3`, or told that it is missing.
#[test]
fn users_mount_through_fusermount3_and_others_see_nothing() {
    let Some(shown) = Shown::new("mount-users") else { return };
    if !getuid().is_root() {
        return;
    }
    let theirs = std::env::temp_dir().join(format!("husk-mount-{}", std::process::id()));
    fs::create_dir(&theirs).expect("a directory");
    let (work, at) = (theirs.join("work"), theirs.join("at"));
    for one in [&theirs, &work, &at] {
        fs::create_dir_all(one).expect("a directory");
        std::os::unix::fs::chown(one, Some(65534), Some(65534)).expect("given away");
    }
    let [work_name, at_name] = [&work, &at].map(|path| path.to_str().expect("a plain path"));
    let husk = binary().to_str().expect("a plain path");
    let as_nobody = |words: &[&str], path: Option<&str>| {
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
        let words: Vec<_> = user.into_iter().chain(words.iter().copied()).collect();
        let mut command = shown.images.command("setpriv", &words);
        command.env("HUSK_IMAGES", theirs.join("husk")).env("HOME", &theirs).current_dir("/");
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command.output().expect("setpriv")
    };
    let up = as_nobody(&[husk, "up", "ci", "--memory", "64M", "--overlay", work_name], None);
    assert!(up.status.success(), "{}", crate::shown(&up));
    // Nothing there but what starts it.
    let bare = shown.images.scratch.fresh("bare");
    for program in ["timeout", "setpriv"] {
        std::os::unix::fs::symlink(Path::new("/usr/bin").join(program), bare.join(program))
            .expect("a link");
    }
    let without = as_nobody(&[husk, "mount", "ci", at_name], bare.to_str());
    let said = refusal(&without, 125);
    assert!(
        said.contains("there is no fusermount3") && said.contains("apt install fuse3"),
        "{said}"
    );
    let helper = Command::new("fusermount3").arg("-V").output().is_ok();
    let open = fs::metadata("/dev/fuse").expect("it").mode() & 0o6 == 0o6;
    if helper && open {
        let mounted = as_nobody(&[husk, "mount", "ci", at_name], None);
        assert!(mounted.status.success(), "{}", crate::shown(&mounted));
        let script = format!("cd {at_name}{work_name}; echo x > f; cat f; stat -c %u f");
        let told = as_nobody(&["sh", "-c", &script], None);
        assert_eq!(text(&told.stdout), "x\n65534\n", "{}", crate::shown(&told));
        assert!(fs::read_dir(&at).is_err(), "even root sees nothing");
        let ended = as_nobody(&[husk, "umount", at_name], None);
        assert!(ended.status.success(), "{}", crate::shown(&ended));
    } else {
        not_run("as a user", "no fusermount3 (package fuse3), or /dev/fuse is for root alone");
    }
    let down = as_nobody(&[husk, "down", "ci"], None);
    assert!(down.status.success(), "{}", crate::shown(&down));
    fs::remove_dir_all(&theirs).expect("it goes");
    shown.images.down("ci");
}
