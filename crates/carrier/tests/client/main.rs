//! The client means what Linux means: the same calls on a tmpfs and through a client, every
//! answer compared.
//!
//! ```text
//!   scenario ─► Script ─┬─► Linux (a directory of a tmpfs) ──► log ─┐
//!                       └─► Client over the kernels        ──► log ─┴─► equal
//! ```
//! Nothing is written down as expectation: a scenario asks, Linux answers.

mod image;
mod model;
mod numbers;
mod plain;
mod prepared;
mod scenarios;
mod script;
#[path = "../support/mod.rs"]
mod support;
mod system;

use husk_abi::nr;
use husk_client::{Buffers, Client};
use husk_proto::Services;
use script::Script;
use std::path::{Path, PathBuf};
use system::{Husk, Linux, System};

/// Now, ns since the epoch.
pub fn clock() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock after 1970").as_nanos() as i64
}

/// A directory of its own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    /// `below` and the name are as long together on both systems.
    fn new(name: &str, below: &str) -> Scratch {
        let name = format!("husk-client-{}-{}", std::process::id(), name.replace(' ', "-"));
        let pad = "_".repeat(image::LONGEST - below.len());
        let path = Path::new(below).join(name + &pad);
        std::fs::create_dir_all(path.join("root")).expect("a scratch directory");
        Scratch(path)
    }

    fn root(&self) -> String {
        self.0.join("root").to_str().expect("a plain path").to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Numbers scripts use; the region's own lies above.
const SCRIPT_FDS: u32 = 256;

/// Numbers open in this process.
fn open_fds() -> Vec<u32> {
    let open = |fd: &u32| plain::host(nr::fcntl, [*fd as usize, 1, 0, 0, 0, 0]) >= 0;
    (0..SCRIPT_FDS).filter(open).collect()
}

fn client<S: Services>(services: S, region: i32) -> Husk<S> {
    let buffers = Box::leak(Box::new(Buffers::new()));
    let plain = plain::Plain { region };
    Husk { client: Client::new(services, plain, plain, buffers) }
}

fn run(system: &mut dyn System, root: &str, scenario: fn(&mut Script)) -> Vec<String> {
    let slash = b"/\0";
    system.call(nr::chdir, [slash.as_ptr() as usize, 0, 0, 0, 0, 0]);
    let before = open_fds();
    let mut script = Script::new(system, root);
    scenario(&mut script);
    let log = script.log;
    for fd in (0..SCRIPT_FDS).filter(|fd| !before.contains(fd)) {
        system.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
    }
    log
}

/// The first answers that differ, with what led to them.
fn difference(linux: &[String], husk: &[String]) -> Option<String> {
    let at = (0..linux.len().max(husk.len())).find(|&i| linux.get(i) != husk.get(i))?;
    let short = |line: &String| line.replace(&"/".repeat(64), "").replace(&"n".repeat(64), "");
    let before: Vec<_> = linux[at.saturating_sub(6)..at].iter().map(short).collect();
    let (linux, husk) = (linux.get(at).map(short), husk.get(at).map(short));
    Some(format!("\n    {}\n  Linux: {linux:?}\n  Husk:  {husk:?}", before.join("\n    ")))
}

/// Closes what a script left open.
fn tidy(before: &[u32]) {
    for fd in open_fds().iter().filter(|fd| !before.contains(fd)) {
        plain::host(nr::close, [*fd as usize, 0, 0, 0, 0, 0]);
    }
}

/// Which mount to make, and what for.
struct Wanted<'a> {
    mount: &'a str,
    overlay: bool,
    uid: u32,
}

type Make = fn(&Wanted) -> Box<dyn System>;

/// The host's side of a mount.
fn mounted(name: &str, overlay: bool) -> Scratch {
    Scratch::new(name, if overlay { image::OVERLAY } else { image::MEMORY })
}

/// A scenario and its two directories.
struct Case {
    scenario: scenarios::Scenario,
    overlay: bool,
    native: Scratch,
    mount: Scratch,
}

impl Case {
    /// An overlay's directories are filled before anybody lists them.
    fn new(scenario: scenarios::Scenario, overlay: bool) -> Case {
        let name = scenario.0;
        let (native, mount) = (Scratch::new(name, "/dev/shm"), mounted(name, overlay));
        if overlay {
            prepared::prepare(&native.0.join("root"));
            prepared::prepare(&mount.0.join("root"));
        }
        Case { scenario, overlay, native, mount }
    }
}

/// Runs one scenario on both systems; what differs.
fn compare_one(case: &Case, make: Make) -> Option<String> {
    let before = open_fds();
    let (overlay, (name, scenario)) = (case.overlay, case.scenario);
    let ordinary = name.starts_with("ordinary");
    let (native, mount) = (case.native.root(), case.mount.root());
    let body = move || {
        if ordinary {
            become_ordinary();
        }
        let linux = run(&mut Linux, &native, scenario);
        tidy(&before);
        let uid = plain::host(nr::geteuid, [0; 6]) as u32;
        let mut husk = make(&Wanted { mount: &mount, overlay, uid });
        let husk = run(husk.as_mut(), &mount, scenario);
        tidy(&before);
        difference(&linux, &husk).map(|text| format!("\n{name}:{text}\n"))
    };
    support::joined(name, std::thread::spawn(body))
}

/// This thread becomes nobody (ids belong to threads below libc).
fn become_ordinary() {
    const NOBODY: usize = 65534;
    plain::host(nr::setgroups, [0; 6]);
    plain::host(nr::setresgid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
    plain::host(nr::setresuid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
}

/// One comparison at a time: descriptors belong to the whole process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn compare(make: Make, leave_out: &[&str]) {
    let _turn = TURN.lock();
    plain::host(nr::umask, [0o22, 0, 0, 0, 0, 0]);
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let root = plain::host(nr::geteuid, [0; 6]) == 0;
    let mut failures = String::new();
    let prepared = prepared::PREPARED.iter().chain(prepared::UNPRIVILEGED);
    // Foreign owners can only be prepared by root.
    let prepared = prepared.filter(|_| root).map(|s| (s, true));
    let all = scenarios::ALL.iter().map(|s| (s, false)).chain(prepared);
    let chosen = all.filter(|(s, _)| s.0.contains(&only) && !leave_out.contains(&s.0));
    let cases: Vec<Case> = chosen.map(|(s, overlay)| Case::new(*s, overlay)).collect();
    for case in &cases {
        failures.extend(compare_one(case, make));
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn a_client_over_the_model_answers_as_linux_does() {
    compare(
        |wanted| {
            let (mount, uid) = (wanted.mount.as_bytes(), wanted.uid);
            let model = model::Model::new(mount, 0o755, uid, &open_fds(), wanted.overlay);
            Box::new(client(model, -1))
        },
        prepared::KERNEL_ONLY,
    );
}

#[test]
fn a_client_over_the_direct_carrier_answers_as_linux_does() {
    compare(|wanted| Box::new(image::enter(wanted.mount, wanted.overlay)), &[]);
}

#[test]
fn nothing_moves_from_one_mount_to_another() {
    const EXDEV: i64 = -18;
    let _turn = TURN.lock();
    let memory = Scratch::new("two trees", image::MEMORY);
    let body = move || {
        let mut husk = image::enter(&memory.root(), false);
        let other = format!("{}/husk-client-{}", image::OTHER, std::process::id());
        let names = ["one", "two"].map(|name| format!("{}/{name}\0", memory.root()));
        let there = [format!("{other}\0"), format!("{other}/there\0")];
        let [one, two] = [0, 1].map(|n| names[n].as_ptr() as usize);
        let [folder, over] = [0, 1].map(|n| there[n].as_ptr() as usize);
        assert_eq!(husk.call(nr::mkdir, [folder, 0o755, 0, 0, 0, 0]), 0);
        assert_eq!(husk.call(nr::mknod, [one, 0o100644, 0, 0, 0, 0]), 0);
        assert_eq!(husk.call(nr::rename, [one, over, 0, 0, 0, 0]), EXDEV);
        assert_eq!(husk.call(nr::link, [one, over, 0, 0, 0, 0]), EXDEV);
        assert_eq!(husk.call(nr::link, [one, two, 0, 0, 0, 0]), 0);
        assert_eq!(husk.call(nr::unlink, [two, 0, 0, 0, 0, 0]), 0);
        assert_eq!(husk.call(nr::mknod, [over, 0o100644, 0, 0, 0, 0]), 0);
        assert_eq!(husk.call(nr::rename, [over, one, 0, 0, 0, 0]), EXDEV);
    };
    support::joined("a script", std::thread::spawn(body));
}
