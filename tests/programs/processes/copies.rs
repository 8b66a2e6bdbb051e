//! Where copies of programs are kept for a user whose home is another's, or who has none. As root:
//! each test is a user of its own number.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use husk_tests::{Scratch, against_native, husk};

/// Numbers that no user has.
const USERS: u32 = 1_900_000_000;
const NOTE: &str = "husk: note: no rewritten copies, calls will be slower: ";

/// A user, and a directory of theirs.
struct User {
    number: u32,
    work: PathBuf,
    /// Root's home, as it were.
    closed: String,
    _scratch: Scratch,
}

impl User {
    /// `None`: only root can become another.
    fn new(name: &str, test: u32) -> Option<User> {
        if against_native() || !rustix::process::getuid().is_root() {
            return None;
        }
        let number = USERS + test * 10_000_000 + std::process::id();
        let scratch = Scratch::new(name);
        for above in scratch.path().ancestors() {
            let mode = fs::metadata(above).expect("a directory").permissions().mode();
            fs::set_permissions(above, fs::Permissions::from_mode(mode | 0o011)).expect("a mode");
        }
        let work = scratch.fresh("work");
        chown(&work, Some(number), Some(number)).expect("an owner");
        let closed = scratch.fresh("closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("a mode");
        let closed = closed.to_str().expect("a plain path").to_owned();
        Some(User { number, work, closed, _scratch: scratch })
    }

    /// Their cache beside those of others.
    fn cache(&self) -> PathBuf {
        PathBuf::from(format!("/var/tmp/husk-cache-{}", self.number))
    }

    /// A script in an image of theirs.
    fn image(&self, home: Option<&str>, script: &str) -> Command {
        let image = husk(&[], &["sh", "-c", script]);
        let mut command = Command::new("timeout");
        let id = self.number;
        command.args(["60", "setpriv", &format!("--reuid={id}"), &format!("--regid={id}")]);
        command.arg("--clear-groups").arg(image.get_program()).args(image.get_args());
        command.env_remove("XDG_CACHE_HOME").env_remove("HOME").current_dir(&self.work);
        command.envs(home.map(|home| ("HOME", home))).stdin(Stdio::null());
        command
    }

    fn run(&self, home: Option<&str>) -> Output {
        let output = self.image(home, "echo ran").output().expect("timeout");
        assert_eq!(output.stdout, b"ran\n", "{output:?}");
        output
    }

    fn forget(&self) {
        let _ = fs::remove_dir_all(self.cache());
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.forget();
    }
}

fn said(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().find_map(|line| line.strip_prefix(NOTE)).map(str::to_owned)
}

/// The copies in a cache.
fn copies(cache: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let all = list(&cache.join("husk/copies")).into_iter().flat_map(|version| list(&version));
    let is_copy = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    all.filter(is_copy).collect()
}

#[test]
fn who_has_no_home_of_their_own_has_copies_of_programs() {
    let Some(user) = User::new("copies-no-home", 1) else { return };
    for home in [Some(&*user.closed), Some("/nonexistent"), None] {
        user.forget();
        let output = user.run(home);
        assert_eq!(said(&output), None, "{home:?}");
        assert!(!copies(&user.cache()).is_empty(), "{home:?}: {output:?}");
        let mode = fs::metadata(user.cache()).expect("a cache").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{home:?}");
    }
    // A home that can be used is.
    user.forget();
    let home = user.work.to_str().expect("a plain path");
    assert_eq!(said(&user.run(Some(home))), None);
    assert!(!copies(&user.work.join(".cache")).is_empty() && !user.cache().exists());
}

#[test]
fn a_cache_that_another_may_have_made_is_not_used() {
    let Some(user) = User::new("copies-squatted", 2) else { return };
    let (cache, own) = (user.cache(), Some(user.number));
    let elsewhere = user.work.join("elsewhere");
    let made = |owner, mode| {
        fs::create_dir(&cache).expect("a directory");
        chown(&cache, owner, owner).expect("an owner");
        fs::set_permissions(&cache, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    for case in ["another's", "open", "entered", "link", "dangling", "file"] {
        match case {
            "another's" => made(Some(0), 0o777),
            "open" => made(own, 0o722),
            "entered" => made(own, 0o755),
            "link" => {
                fs::create_dir(&elsewhere).expect("a directory");
                fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).expect("a mode");
                chown(&elsewhere, own, own).expect("an owner");
                symlink(&elsewhere, &cache).expect("a link");
            }
            "dangling" => symlink(user.work.join("new"), &cache).expect("a link"),
            _ => fs::write(&cache, "").expect("a file"),
        }
        let output = user.run(Some(&user.closed));
        let place = if cache.is_dir() { &cache } else { &user.work };
        let left = fs::read_dir(place).expect("a directory").count();
        let whole = place == &cache;
        assert_eq!(left, if whole { 0 } else { usize::from(elsewhere.exists()) }, "{case}");
        let _ = fs::remove_file(&cache);
        user.forget();
        let why = format!("{}/.cache/husk/copies: permission denied", user.closed);
        assert_eq!(said(&output), Some(why), "{case}: {output:?}");
    }
}

#[test]
fn copies_that_another_puts_there_once_the_cache_was_removed_are_not_run() {
    let Some(user) = User::new("copies-replaced", 3) else { return };
    let script = "echo ready; read go; ls /proc/self/fd >list; echo $?; wc -l <list";
    let mut command = user.image(Some(&user.closed), script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut image = command.spawn().expect("timeout");
    let copied = || !copies(&user.cache()).is_empty();
    let mut out = image.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    std::io::Read::read_exact(&mut out, &mut ready).expect("it runs");
    assert!(copied());
    for copy in copies(&user.cache()) {
        // All of it would be run.
        let junk = vec![0xf4; fs::metadata(&copy).expect("a copy").len() as usize];
        fs::remove_file(&copy).expect("it goes");
        fs::write(&copy, junk).expect("another one");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o555)).expect("a mode");
    }
    image.stdin.take().expect("a pipe").write_all(b"go\n").expect("it listens");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).expect("its output");
    let ended = image.wait_with_output().expect("its end");
    assert!(ended.status.success(), "{rest} {ended:?}");
    assert!(rest.starts_with("0\n"), "{rest} {ended:?}");
}
