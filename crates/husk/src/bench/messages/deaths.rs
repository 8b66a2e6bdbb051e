//! How long others wait after a death (`husk bench nodes`): of the agent of the home, and of all
//! processes of a node.
//!
//! ```text
//!   agent   kill -9 ─► the next request of a program on node 1 is answered by another agent
//!   node    kill -9 of supervisor, keeper, program ─► its parent on node 0 has its status
//!                                                  '─► a file that it had open, and that has no
//!                                                      name, has left the image
//! ```

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;

use crate::bench::measure::pair::Worker;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::report::median;

/// What an agent calls itself.
const AGENT: &str = "husk: home";
/// The most that may be waited for an agent, and for a node.
const AGENT_MS: f64 = 500.0;
const NODE_MS: f64 = 1000.0;
/// How long an image may take to end, and between two looks.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);
/// On node 0: waits for a program on node 1, then until what that had open is gone.
const SCRIPT: &str = "free() { stat -f -c %d .; }; before=$(free)
HUSK_NODE=1 sh -c 'exec 3<>gone; rm gone; echo ready; exec sleep 1000'; echo ended
until [ $(free) = $before ]; do sleep 0.01; done; echo gone";

/// One row.
#[derive(Serialize, Debug)]
pub struct Wait {
    pub name: &'static str,
    pub median_ms: f64,
    pub longest_ms: f64,
    pub wanted_ms: f64,
}

impl Wait {
    fn of(name: &'static str, wanted_ms: f64, rounds: &[f64]) -> Wait {
        let longest_ms = rounds.iter().copied().fold(0.0, f64::max);
        Wait { name, median_ms: median(rounds.iter().copied()), longest_ms, wanted_ms }
    }

    /// Whether all were short enough.
    pub fn is_met(&self) -> bool {
        self.longest_ms <= self.wanted_ms
    }
}

/// Children of `of` that call themselves `name`.
fn children(of: u32, name: &str) -> Vec<Pid> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let all = read(format!("/proc/{of}/task/{of}/children"));
    let numbers = all.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let called = |pid: &i32| read(format!("/proc/{pid}/comm")).trim_end() == name;
    numbers.filter(called).map(Pid::from_raw).collect()
}

fn since_ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Kills the agent that a worker on node 1 asks, so many times.
pub fn of_agents(far: &mut Worker, rounds: u32) -> anyhow::Result<Wait> {
    let mut waits = Vec::new();
    for _ in 0..rounds {
        stop::check()?;
        let agents = children(far.pid(), AGENT);
        let [agent] = agents[..] else { anyhow::bail!("{} agents", agents.len()) };
        let start = Instant::now();
        kill(agent, Signal::SIGKILL)?;
        far.spend("batch", 1, "rename")?;
        waits.push(since_ms(start));
        anyhow::ensure!(!children(far.pid(), AGENT).contains(&agent), "the agent was not killed");
    }
    Ok(Wait::of("agent killed: until its next answer", AGENT_MS, &waits))
}

/// Kills all processes of node 1, so many times, each in an image of its own.
pub fn of_nodes(scratch: &Scratch, rounds: u32) -> anyhow::Result<[Wait; 2]> {
    let (mut parents, mut files) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        stop::check()?;
        let (parent_ms, file_ms) = node_dies(scratch)?;
        parents.push(parent_ms);
        files.push(file_ms);
    }
    Ok([
        Wait::of("node killed: until its parent has its status", NODE_MS, &parents),
        Wait::of("node killed: until what it had open is gone", NODE_MS, &files),
    ])
}

/// An image whose first program says something now and then.
struct Said {
    image: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Said {
    fn until(&mut self, line: &str) -> anyhow::Result<()> {
        let said = self.lines.next().context("the image has ended")??;
        anyhow::ensure!(said == line, "the image said {said:?}, not {line:?}");
        Ok(())
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        // It ends by itself, and takes along what is left of its nodes, unless something is wrong.
        let end = Instant::now() + END_MAX;
        while matches!(self.image.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(LOOK);
        }
        let _ = self.image.kill();
        let _ = self.image.wait();
    }
}

fn node_dies(scratch: &Scratch) -> anyhow::Result<(f64, f64)> {
    let mut image = super::nodes::image_of(scratch, &["--nodes", "2"]);
    image.args(["sh", "-c", &format!("cd {} && {SCRIPT}", scratch.mount.display())]);
    // Its shell says that what it waited for was killed.
    image.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut image = image.spawn()?;
    let out = image.stdout.take().context("no pipe")?;
    let mut said = Said { image, lines: BufReader::new(out).lines() };
    said.until("ready")?;
    let told = told_by(scratch, &["nodes", "--json", &said.image.id().to_string()])?;
    let node = &told[1];
    let all = told_by(scratch, &["ls", "--json"])?;
    let rows = all.as_array().context("no list")?;
    let row = rows.iter().find(|row| row["name"] == node["image"]).context("no node 1")?;
    let number = |value: &Value| value.as_i64().map(|pid| Pid::from_raw(pid as i32));
    let [supervisor, keeper] = ["pid", "keeper"].map(|who| number(&row[who]));
    let supervisor = supervisor.context("no supervisor")?;
    let programs = node["processes"].as_array().into_iter().flatten().filter_map(number);
    let others: Vec<Pid> = programs.collect();
    // It starts no other keeper meanwhile.
    kill(supervisor, Signal::SIGSTOP)?;
    let start = Instant::now();
    let all = keeper.into_iter().chain([supervisor]).chain(others);
    all.into_iter().try_for_each(|pid| kill(pid, Signal::SIGKILL))?;
    said.until("ended")?;
    let parent_ms = since_ms(start);
    said.until("gone")?;
    Ok((parent_ms, since_ms(start)))
}

fn told_by(scratch: &Scratch, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(&scratch.program).args(arguments).output()?;
    serde_json::from_slice(&output.stdout).context("husk has told nothing")
}
