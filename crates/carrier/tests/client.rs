//! The client means what Linux means: the same calls on a tmpfs and through a client, every
//! answer compared.
//!
//! ```text
//!   scenario ─► Script ─┬─► Linux (a directory of a tmpfs) ──► log ─┐
//!                       └─► Client over the kernels        ──► log ─┴─► equal
//! ```
//! Nothing is written down as expectation: a scenario asks, Linux answers.

#[path = "client/model.rs"]
mod model;
#[path = "client/plain.rs"]
mod plain;
#[path = "client/scenarios.rs"]
mod scenarios;
#[path = "client/script.rs"]
mod script;
#[path = "client/system.rs"]
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
        let pad = "_".repeat("/dev/shm".len() - below.len());
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

/// Numbers open in this process.
fn open_fds() -> Vec<u32> {
    let open = |fd: &u32| plain::host(nr::fcntl, [*fd as usize, 1, 0, 0, 0, 0]) >= 0;
    (0..256).filter(open).collect()
}

fn client<S: Services>(services: S, region: i32) -> Husk<S> {
    let buffers = Box::leak(Box::new(Buffers::new()));
    let plain = plain::Plain { region };
    Husk { client: Client::new(services, plain, plain, buffers) }
}

fn run(system: &mut dyn System, root: &str, scenario: fn(&mut Script)) -> Vec<String> {
    let slash = b"/\0";
    system.call(nr::chdir, [slash.as_ptr() as usize, 0, 0, 0, 0, 0]);
    let mut script = Script::new(system, root);
    scenario(&mut script);
    script.log
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

fn compare(make: fn(&str, u32) -> Box<dyn System>) {
    plain::host(nr::umask, [0o22, 0, 0, 0, 0, 0]);
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let mut failures = String::new();
    let before = open_fds();
    for (name, scenario) in scenarios::ALL.iter().filter(|s| s.0.contains(&only)) {
        let (native, mount) = (Scratch::new(name, "/dev/shm"), Scratch::new(name, "/tmp"));
        let linux = run(&mut Linux, &native.root(), *scenario);
        tidy(&before);
        let uid = plain::host(nr::geteuid, [0; 6]) as u32;
        let mut husk = make(&mount.root(), uid);
        let husk = run(husk.as_mut(), &mount.root(), *scenario);
        tidy(&before);
        if let Some(difference) = difference(&linux, &husk) {
            failures.push_str(&format!("\n{name}:{difference}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn a_client_over_the_model_answers_as_linux_does() {
    compare(|mount, uid| {
        let model = model::Model::new(mount.as_bytes(), 0o755, uid, &open_fds(), false);
        Box::new(client(model, -1))
    });
}
