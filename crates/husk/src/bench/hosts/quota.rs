//! Control groups: part of a processor for all processes of one quota host, and what they used.
//!
//! Both versions: with the first, the time used is counted by another controller, which may have a
//! hierarchy of its own. A group is also what ends its processes: whatever they call themselves and
//! wherever they are, they are in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROOT: &str = "/sys/fs/cgroup";
/// Short, so that a host with a quarter of a processor is a slow one rather than one that sleeps
/// for long: the least that Linux takes as a quota is 1 ms.
const PERIOD_US: u64 = 10_000;
/// What a group gets beside others at most, by version.
const WEIGHT: (&str, &str) = ("cpu.weight", "10000");
const SHARES: (&str, &str) = ("cpu.shares", "262144");
/// How long killed processes may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Beginning of the names of all groups.
const NAME: &str = "husk-bench-";

/// A group, and one in it for servers that are to end before the others.
pub struct Group {
    limits: PathBuf,
    counts: PathBuf,
    servers: PathBuf,
    is_unified: bool,
}

impl Group {
    /// A new one of this name, which is unique in this process, with all processors.
    pub fn new(name: &str) -> anyhow::Result<Group> {
        let root = Path::new(ROOT);
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let is_unified = controllers.split_whitespace().any(|controller| controller == "cpu");
        let needed = "no control group for processors (cgroup, controllers cpu and cpuacct)";
        let name = format!("{NAME}{}-{name}", std::process::id());
        let (limits, counts) = if is_unified {
            // Where they are on already, nothing changes.
            fs::write(root.join("cgroup.subtree_control"), "+cpu").context(needed)?;
            (root.join(&name), root.join(&name))
        } else {
            (root.join("cpu").join(&name), root.join("cpuacct").join(&name))
        };
        let group = Group { servers: limits.join("servers"), limits, counts, is_unified };
        for directory in [&group.limits, &group.counts, &group.servers] {
            fs::create_dir_all(directory).context(needed)?;
        }
        Ok(group)
    }

    /// Gives it so many per cent of a processor; `None`: all there are. Others on the machine get
    /// what is left: the quota decides, not they.
    pub fn limit(&self, percent: Option<u64>) -> anyhow::Result<()> {
        let (weight, most) = if self.is_unified { WEIGHT } else { SHARES };
        // Where it cannot be had the control tells.
        let _ = fs::write(self.limits.join(weight), most);
        let quota = percent.map(|percent| percent * PERIOD_US / 100);
        if self.is_unified {
            let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
            return Ok(fs::write(self.limits.join("cpu.max"), format!("{quota} {PERIOD_US}"))?);
        }
        fs::write(self.limits.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        let quota = quota.map_or("-1".to_owned(), |quota| quota.to_string());
        Ok(fs::write(self.limits.join("cpu.cfs_quota_us"), quota)?)
    }

    /// Processor time of all its processes so far.
    pub fn used(&self) -> anyhow::Result<Duration> {
        if !self.is_unified {
            let text = fs::read_to_string(self.counts.join("cpuacct.usage"))?;
            return Ok(Duration::from_nanos(text.trim().parse()?));
        }
        let text = fs::read_to_string(self.counts.join("cpu.stat"))?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(Duration::from_micros(usage.context("cpu.stat has no usage")?.parse()?))
    }

    /// The files that a process writes its number to, to be in it.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let mut all = vec![self.limits.join("cgroup.procs"), self.counts.join("cgroup.procs")];
        all.dedup();
        all
    }

    /// The same for a server; its time counts for the whole.
    pub fn server_entrances(&self) -> Vec<PathBuf> {
        let mut all = self.entrances();
        all[0] = self.servers.join("cgroup.procs");
        all
    }

    /// Kills its servers, and waits until they are gone.
    pub fn end_servers(&self) {
        end(&self.servers);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end(&self.servers);
        end(&self.limits);
        end(&self.counts);
        for directory in [&self.servers, &self.limits, &self.counts] {
            // One that is left has this process's number in its name.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Kills all processes of a directory of groups, a bounded time long.
fn end(directory: &Path) {
    let until = Instant::now() + GONE_MAX;
    while Instant::now() < until {
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids.into_iter().filter(|pid| *pid > 1) {
            // It may have ended this moment.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        sleep(LOOK_EVERY);
    }
}

/// Removes groups of measurements that were killed.
pub fn remove_stale() {
    for root in ["cpu", "cpuacct", ""].map(|controller| Path::new(ROOT).join(controller)) {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next()?.parse().ok());
            let is_gone = |pid: i32| !Path::new(&format!("/proc/{pid}")).exists();
            if pid.is_some_and(is_gone) {
                // One whose processes live is none of a measurement's any more.
                let _ = fs::remove_dir(entry.path().join("servers"));
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}
