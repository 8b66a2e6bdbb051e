//! How long a supervisor's work, and whoever looks at an image, holds what programs wait for.
//!
//! ```text
//!   image with HUSK_HOLDS=1 <- two storms: names, small and large files, in one directory
//!                           <- victims: 1,000 descriptors, 100 locks, a nameless file; killed
//!   husk sync               -> writes back what has changed so far
//!   this process            -> switches that directory to and fro, reads counters, checks all
//! ```
//!
//! A hold is measured by the clock and in processor time (`husk_region::observe::lock_hold_stats`):
//! on a machine with other work a holder may lose its core, which the clock sees and nobody can
//! help.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_supervisor::output::print;
use husk_supervisor::show::fsck;
use husk_supervisor::show::holds::{self, Row};
use husk_supervisor::show::stat;
use nix::fcntl::{FcntlArg, fcntl};
use serde::Serialize;

use super::exec::{Images, NAME};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;

const MEMORY: &str = "512M";
const STORMS: usize = 2;
/// Descriptors and locks of one that is killed.
const DESCRIPTORS: usize = 1_000;
const LOCKS: i64 = 100;
/// Bytes of a large file.
const LARGE_BYTES: u64 = 16 << 20;
/// Names that a storm makes before it removes them.
const NAMES: u32 = 200;
/// Switches of the directory, there and back, between two victims.
const SWITCHES: u32 = 20;
/// Checks of the structure.
const CHECKS: usize = 3;

/// `husk bench hold`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// How long to keep the image busy, in seconds.
    #[arg(long, default_value_t = 10, value_parser = crate::numbers::whole::<u64>(1..=600))]
    seconds: u64,
}

/// What runs in the image.
#[derive(clap::ValueEnum, Debug, Clone, Copy)]
pub enum Part {
    /// Changes names and files until its standard input ends.
    Storm,
    /// Holds much, says so, and waits to be killed.
    Victim,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    limit_us: f64,
    /// In the supervisor.
    supervisor: Vec<Row>,
    /// In a process that looks at the image.
    visitor: Vec<Row>,
    victims: u32,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let images = Images::new()?;
    let here = images.path.to_str().context("a path that is no text")?;
    let mut up = images.command(&images.husk, &["up", NAME, "--memory", MEMORY, "--overlay", here]);
    let status = up.env("HUSK_HOLDS", "1").status().context("cannot start husk")?;
    anyhow::ensure!(status.success(), "husk up: {status}");
    holds::measure();
    let supervisor = supervisor(&images)?;
    let machine = Machine::look(None);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let storms: Vec<Child> =
        (0..STORMS).map(|n| part(&images, "storm", n)).collect::<anyhow::Result<_>>()?;
    let mut victims = 0;
    while Instant::now() < end {
        stop::check()?;
        kill_one(&images)?;
        victims += 1;
        // What changes meanwhile is not its mistake; what it holds is measured.
        images.command(&images.husk, &["sync", NAME]).output().context("husk sync")?;
        holds::switch_directory(&supervisor, SWITCHES).map_err(told)?;
        stat::report(&supervisor).map_err(told)?;
    }
    for _ in 0..CHECKS {
        let found = fsck::check(&supervisor).map_err(told)?;
        anyhow::ensure!(found.status() == 0, "{}", found.text());
    }
    for mut storm in storms {
        drop(storm.stdin.take());
        let status = storm.wait()?;
        anyhow::ensure!(status.success(), "a storm: {status}");
    }
    let visitor = holds::rows();
    let down = images.command(&images.husk, &["down", NAME]).output().context("husk down")?;
    let said = String::from_utf8_lossy(&down.stderr);
    anyhow::ensure!(down.status.success(), "husk down: {said}");
    let supervisor = said.lines().filter_map(|line| line.parse().ok()).collect();
    let limit_us = holds::LIMIT_NS as f64 / 1e3;
    let report = Report { machine, limit_us, supervisor, visitor, victims };
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn told(failure: husk_supervisor::Failure) -> anyhow::Error {
    anyhow::anyhow!("{failure}")
}

/// The number of the image's supervisor.
fn supervisor(images: &Images) -> anyhow::Result<String> {
    let path = images.path.join("husk").join(NAME).join("facts");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let facts: serde_json::Value = serde_json::from_str(&text)?;
    Ok(facts["pid"].as_u64().context("no supervisor")?.to_string())
}

/// A part of the measurement, in the image.
fn part(images: &Images, part: &str, number: usize) -> anyhow::Result<Child> {
    let husk = images.husk.to_str().context("a path that is no text")?;
    let name = format!("{part}.{number}");
    let words = ["exec", NAME, "--", husk, "bench", "hold-part", part, &name];
    let mut command: Command = images.command(&images.husk, &words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().context("cannot start a part")
}

/// Starts a victim and kills it once it holds everything.
fn kill_one(images: &Images) -> anyhow::Result<()> {
    let mut victim = part(images, "victim", 0)?;
    let mut line = String::new();
    let output = victim.stdout.take().context("no pipe")?;
    BufReader::new(output).read_line(&mut line)?;
    victim.kill()?;
    victim.wait()?;
    anyhow::ensure!(line == "ready\n", "a victim said {line:?}");
    Ok(())
}

impl Part {
    /// Does it, with files that begin with `name`.
    pub fn run(self, name: &Path) -> anyhow::Result<()> {
        match self {
            Part::Storm => storm(name),
            Part::Victim => victim(name),
        }
    }
}

fn storm(name: &Path) -> anyhow::Result<()> {
    let name = name.to_str().context("a name that is no text")?;
    let ended = std::thread::spawn(|| {
        let mut rest = Vec::new();
        // An input that cannot be read has ended, too.
        let _ = std::io::stdin().read_to_end(&mut rest);
    });
    while !ended.is_finished() {
        for n in 0..NAMES {
            fs::write(format!("{name}.{n}"), b"some bytes")?;
            fs::rename(format!("{name}.{n}"), format!("{name}.{n}.moved"))?;
        }
        let large = File::create(format!("{name}.large"))?;
        large.set_len(LARGE_BYTES)?;
        fill(&large, LARGE_BYTES / 4)?;
        for n in 0..NAMES {
            fs::remove_file(format!("{name}.{n}.moved"))?;
        }
        fs::remove_file(format!("{name}.large"))?;
    }
    Ok(())
}

/// Writes `bytes` bytes.
fn fill(file: &File, bytes: u64) -> anyhow::Result<()> {
    let block = vec![7; 1 << 20];
    for at in (0..bytes).step_by(block.len()) {
        file.write_all_at(&block, at)?;
    }
    Ok(())
}

fn victim(name: &Path) -> anyhow::Result<()> {
    let name = name.to_str().context("a name that is no text")?;
    let open = |name: &str| {
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(name)
    };
    let large = open(&format!("{name}.large"))?;
    fs::remove_file(format!("{name}.large"))?;
    fill(&large, LARGE_BYTES)?;
    let files: Vec<File> =
        (0..DESCRIPTORS).map(|n| open(&format!("{name}.{n}"))).collect::<Result<_, _>>()?;
    for n in 0..LOCKS {
        lock(&files[0], 2 * n)?;
    }
    let mut output = std::io::stdout();
    output.write_all(b"ready\n")?;
    output.flush()?;
    loop {
        std::thread::park();
    }
}

/// Locks one byte of a file.
fn lock(file: &File, at: i64) -> anyhow::Result<()> {
    const WRITE: i16 = 1;
    let range = nix::libc::flock { l_type: WRITE, l_whence: 0, l_start: at, l_len: 1, l_pid: 0 };
    fcntl(file, FcntlArg::F_SETLK(&range)).with_context(|| format!("fd {}", file.as_raw_fd()))?;
    Ok(())
}

impl Report {
    fn table(&self) -> String {
        let Machine { cpu, cores, kernel, load, guard } = &self.machine;
        let mut text =
            format!("{cpu}, {cores} cores, Linux {kernel}\nload {load:.1}, guard {guard}\n\n");
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>12} {:>12} {:>8} {:>9} {:>9}",
            "work", "holds", "longest us", "its CPU us", "entries", "over 50", "in CPU"
        );
        for row in self.supervisor.iter().chain(&self.visitor) {
            let Row { work, count, longest_us, longest_cpu_us, entries, late, slow } = row;
            let _ = writeln!(
                text,
                "{work:<12} {count:>9} {longest_us:>12.1} {longest_cpu_us:>12.1} {entries:>8} \
                 {late:>9} {slow:>9}"
            );
        }
        let _ = writeln!(text, "\n{} programs were killed; wanted: nothing over 50", self.victims);
        text
    }
}
