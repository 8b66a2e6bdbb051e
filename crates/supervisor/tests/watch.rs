//! The watch waits for any child and blocks signals, so that its test is a process of its own,
//! with one thread.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use husk_supervisor::process::main_loop::{Burial, End, watch};
use husk_supervisor::process::reaper::{self, Descendants};
use husk_supervisor::process::signals::Signals;
use husk_supervisor::run::launch;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

#[derive(Default)]
struct Told {
    children: Vec<Pid>,
    ticks: u32,
}

impl Burial for Told {
    fn child(&mut self, pid: Pid) {
        self.children.push(pid);
    }
    fn tick(&mut self) {
        self.ticks += 1;
    }
}

fn run(signals: &Signals, script: &str) -> (End, Told) {
    let command = ["sh", "-c", script].map(OsString::from);
    let pid = launch::natively(Path::new("/bin/sh"), &command, &SigSet::empty()).unwrap();
    let mut told = Told::default();
    let end = watch(pid, signals, &mut told);
    assert!(told.children.contains(&pid), "the program's own death was not told");
    (end, told)
}

fn main() {
    let signals = Signals::take().unwrap();
    assert_eq!(run(&signals, "exit 7").0, End::Exit(7));
    assert_eq!(run(&signals, "kill -TERM $$").0, End::Signal(Signal::SIGTERM as i32));
    // A real-time signal, which has no name.
    assert_eq!(run(&signals, "kill -40 $$").0, End::Signal(40));
    assert!(run(&signals, "sleep 0.3").1.ticks >= 3, "no tick while the program ran");

    // A signal sent to the supervisor alone reaches the program.
    let script = "trap 'exit 9' USR1; kill -USR1 $PPID; sleep 0.1; sleep 1; sleep 1; sleep 1";
    assert_eq!(run(&signals, script).0, End::Exit(9));

    // What outlives the program is its subreaper's, and ends within the grace.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    assert_eq!(run(&signals, "sleep 30 & exit 0").0, End::Exit(0));
    let started = Instant::now();
    let mut all = Descendants { buried: |_| {}, guard: || None };
    let (who, how) = reaper::end_stragglers(&mut all).expect("sleep had to be told");
    assert!(who.contains("sleep") && how.contains("SIGHUP"), "{who}: {how}");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(reaper::descendants(std::process::id()).is_empty());

    // Deaf to everything but the kill.
    assert_eq!(run(&signals, "(trap '' HUP TERM; sleep 30; sleep 30) & sleep 0.2").0, End::Exit(0));
    let (_, how) = reaper::end_stragglers(&mut all).expect("the deaf one had to be told");
    assert!(how.contains("SIGKILL"), "{how}");
    assert!(reaper::descendants(std::process::id()).is_empty());
}
