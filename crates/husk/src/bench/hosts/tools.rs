//! What builds the project on several hosts: Husk, icecream, distcc; and plain make on one.
//!
//! Invariants
//! 1. All build the same files with as many jobs at once, and make the same bytes as plain make on
//!    one host does.
//! 2. What is needed once is done before the time is taken: copies of `husk`, icecream's archive of
//!    the compiler, a first compile on each host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::host::{Host, address, finish, home_address, until};
use super::project::{MADE, SAID};
use crate::bench::processes::exec::find;

/// Compiles at once on a host for icecream and distcc: one that runs, one that comes.
const SLOTS: &str = "2";
/// Files for each host that are compiled before the time is taken.
const FIRST: usize = 3;
const NET_NAME: &str = "husk-bench";

/// A way to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// make, on one host.
    Native,
    /// `husk run [--on ...] -- make`.
    Husk,
    /// Debian's icecc.
    Icecream,
    /// Debian's distcc.
    Distcc,
}

/// All of them, and what the rows call them.
pub const ALL: &[(Tool, &str)] = &[
    (Tool::Native, "make"),
    (Tool::Husk, "husk"),
    (Tool::Icecream, "icecream"),
    (Tool::Distcc, "distcc"),
];

impl Tool {
    /// What is missing here, and how to get it; `None`: nothing.
    pub fn missing(self) -> Option<String> {
        let (programs, package) = match self {
            Tool::Native | Tool::Husk => (&["make", "gcc"][..], "make gcc"),
            Tool::Icecream => (&["icecc", "iceccd", "icecc-scheduler"][..], "icecc"),
            Tool::Distcc => (&["distcc", "distccd"][..], "distcc"),
        };
        let missing = programs.iter().find(|program| find(program).is_err())?;
        Some(format!("there is no {missing}: apt-get install {package}"))
    }

    /// Whether it can be asked to build on so many hosts.
    pub fn builds_on(self, hosts: usize) -> bool {
        match self {
            Tool::Native => hosts == 1,
            Tool::Husk => true,
            Tool::Icecream | Tool::Distcc => hosts > 1,
        }
    }
}

/// Where it is built.
pub struct Site<'a> {
    /// `husk`.
    pub program: &'a Path,
    /// The project.
    pub project: &'a Path,
    /// The directory of `ssh`.
    pub bin: &'a Path,
    /// Files of the project.
    pub files: u32,
    /// Home first.
    pub hosts: Vec<&'a Host>,
    /// make's.
    pub jobs: usize,
}

/// What a build took.
pub struct Built {
    pub wall: Duration,
    pub home_cpu: Duration,
    pub all_cpu: Duration,
    pub link_bytes: u64,
    /// Compiles and links that ran on other hosts.
    pub remote: u64,
    /// The program, and what it says.
    pub made: (Vec<u8>, Vec<u8>),
}

impl Site<'_> {
    fn home(&self) -> &Host {
        self.hosts[0]
    }

    /// Does what is needed once: a few compiles for each host.
    pub fn prepare(&self, tool: Tool) -> anyhow::Result<()> {
        self.clear()?;
        let count = (FIRST * self.hosts.len()).min(self.files as usize);
        let targets: Vec<_> = (0..count).map(|n| format!("{MADE}/f{n}.o")).collect();
        self.make(tool, &targets)?;
        self.clear()
    }

    /// Builds once.
    pub fn build(&self, tool: Tool) -> anyhow::Result<Built> {
        let served = self.serve(tool);
        let built = served.and_then(|()| self.measure(tool));
        for host in &self.hosts {
            host.group.end_servers();
        }
        built
    }

    fn measure(&self, tool: Tool) -> anyhow::Result<Built> {
        if matches!(tool, Tool::Icecream | Tool::Distcc) {
            // What they keep they lose with their servers.
            self.prepare(tool)?;
        }
        self.clear()?;
        let (before, said) = (self.spent()?, self.said(tool));
        let (output, wall) = self.make(tool, &[])?;
        let after = self.spent()?;
        let remote = match tool {
            Tool::Husk => programs(&output),
            _ => self.said(tool).saturating_sub(said),
        };
        let made = [self.project.join(MADE).join("program"), self.project.join(SAID)]
            .map(|path| fs::read(&path).with_context(|| format!("no {}", path.display())));
        let [program, words] = made;
        Ok(Built {
            wall,
            home_cpu: after.0 - before.0,
            all_cpu: after.1 - before.1,
            link_bytes: after.2 - before.2,
            remote,
            made: (program?, words?),
        })
    }

    fn clear(&self) -> anyhow::Result<()> {
        let made = self.project.join(MADE);
        if made.exists() {
            fs::remove_dir_all(made)?;
        }
        Ok(())
    }

    /// Processor time of home, of all, and bytes on the links.
    fn spent(&self) -> anyhow::Result<(Duration, Duration, u64)> {
        let home = self.home().group.used()?;
        let (mut all, mut bytes) = (home, 0);
        for host in &self.hosts[1..] {
            all += host.group.used()?;
            bytes += host.link_bytes()?;
        }
        Ok((home, all, bytes))
    }

    /// Runs make; what it said on standard error.
    fn make(&self, tool: Tool, targets: &[String]) -> anyhow::Result<(String, Duration)> {
        let mut command = self.command(tool);
        command.args(["make", "-s", &format!("-j{}", self.jobs)]).args(targets);
        match tool {
            Tool::Icecream => drop(command.arg("CC=icecc gcc")),
            Tool::Distcc => drop(command.arg("CC=distcc gcc")),
            Tool::Native | Tool::Husk => {}
        }
        let (output, wall) = finish(command)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = || errors.lines().last().unwrap_or_default();
        anyhow::ensure!(output.status.success(), "the build fails ({}): {}", output.status, last());
        Ok((errors, wall))
    }

    fn command(&self, tool: Tool) -> Command {
        let home = self.home();
        let own = home.files.display();
        if tool == Tool::Husk {
            return self.husk(self.hosts.len() - 1, &[]);
        }
        let mut command = home.command(self.project, "env");
        if tool == Tool::Icecream {
            command.arg(format!("ICECC_TEST_SOCKET={}", self.socket()));
        }
        if tool == Tool::Distcc {
            let hosts =
                (1..self.hosts.len()).map(|index| format!("{}/{SLOTS},lzo ", address(index)));
            command.arg(format!("DISTCC_HOSTS={}localhost/1", hosts.collect::<String>()));
            command.arg(format!("DISTCC_DIR={own}/distcc"));
        }
        command
    }

    /// `husk run` on so many other hosts.
    pub fn husk(&self, others: usize, options: &[&str]) -> Command {
        let mut command = self.home().command(self.project, "env");
        let path = std::env::var("PATH").unwrap_or_default();
        command.arg(format!("PATH={}:{path}", self.bin.display())).arg("HUSK_CONFIG=none");
        command.arg(self.program).args(["run", "--memory", "512M"]).args(options);
        if others > 0 {
            let hosts: Vec<_> = self.hosts[1..=others].iter().map(|host| &host.name[..]).collect();
            command.args(["--on", &hosts.join(",")]);
        }
        command.arg("--");
        command
    }

    fn socket(&self) -> String {
        format!("{}/iceccd.socket", self.home().servers().display())
    }

    fn log(&self, host: &Host, tool: Tool) -> PathBuf {
        let name = if tool == Tool::Icecream { "iceccd.log" } else { "distccd.log" };
        host.servers().join(name)
    }

    /// Starts the servers of a tool, and waits until they are there.
    fn serve(&self, tool: Tool) -> anyhow::Result<()> {
        match tool {
            Tool::Icecream => self.serve_icecream(),
            Tool::Distcc => self.serve_distcc(),
            Tool::Native | Tool::Husk => Ok(()),
        }
    }

    fn serve_icecream(&self) -> anyhow::Result<()> {
        let scheduler = self.home().servers().join("scheduler.log");
        let path = |path: &Path| path.display().to_string();
        // What is left of the ones before is not theirs.
        let _ = fs::remove_file(&scheduler);
        let words = ["-n", NET_NAME, "-l", &path(&scheduler), "-vvv"];
        self.home().serve("icecc-scheduler", &words)?;
        for (index, host) in self.hosts.iter().enumerate() {
            let log = self.log(host, Tool::Icecream);
            let _ = fs::remove_file(&log);
            let (cache, socket) = (path(&host.servers().join("icecc")), self.socket());
            let name = home_address(index.max(1));
            let socket = format!("ICECC_TEST_SOCKET={socket}");
            let own = ["iceccd", "-n", NET_NAME, "-s", &name, "-m", SLOTS, "-N", &host.name];
            let words = ["-b", &cache, "-l", &path(&log), "-vvv"];
            // Only home's takes compiles from programs.
            let socket = (index == 0).then_some(&socket[..]);
            let words: Vec<_> = socket.into_iter().chain(own).chain(words).collect();
            host.serve("env", &words)?;
        }
        until("icecream's servers", || {
            let text = fs::read_to_string(&scheduler).unwrap_or_default();
            Ok(text.lines().filter(|line| line.contains("login ")).count() >= self.hosts.len())
        })
    }

    fn serve_distcc(&self) -> anyhow::Result<()> {
        fs::create_dir_all(self.home().files.join("distcc"))?;
        for (index, host) in self.hosts.iter().enumerate().skip(1) {
            let log = self.log(host, Tool::Distcc);
            let _ = fs::remove_file(&log);
            let (log, own) = (log.display().to_string(), address(index));
            let words = ["--daemon", "--no-detach", "--allow", "10.94.0.0/16", "--jobs", SLOTS];
            let rest = ["--listen", &own, "--log-file", &log, "--log-level", "info"];
            host.serve("distccd", &[&words[..], &rest].concat())?;
        }
        until("distcc's servers", || {
            let listens = |host: &&Host| {
                let text = fs::read_to_string(self.log(host, Tool::Distcc)).unwrap_or_default();
                text.contains("listening on")
            };
            Ok(self.hosts.iter().skip(1).all(listens))
        })
    }

    /// Compiles that the servers of other hosts say they have done.
    fn said(&self, tool: Tool) -> u64 {
        let word = match tool {
            Tool::Icecream => "remote compile for file",
            Tool::Distcc => "COMPILE_OK",
            Tool::Native | Tool::Husk => return 0,
        };
        let count = |host: &&Host| {
            let text = fs::read_to_string(self.log(host, tool)).unwrap_or_default();
            text.lines().filter(|line| line.contains(word)).count() as u64
        };
        self.hosts.iter().skip(1).map(count).sum()
    }
}

/// What the closing lines of `husk run` count.
fn programs(said: &str) -> u64 {
    let count = |line: &str| {
        let (_, rest) = line.strip_prefix("husk: h")?.split_once(": ")?;
        rest.split_once(" programs ran there")?.0.parse::<u64>().ok()
    };
    said.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn closing_lines_are_added_up_and_others_are_not() {
        let said =
            "husk: h1: 7 programs ran there, 9 round trips, 4 KiB; 3 ran here because it was busy
husk: h2: 12 programs ran there, 9 round trips, 4 KiB
husk: h3 is lost: programs that ran there end as killed, and all others run here
make: 9 programs ran there";
        assert_eq!(super::programs(said), 19);
    }
}
