//! What entering an image costs: `husk exec NAME -- true` beside the same start outside, and
//! `husk up`.
//!
//! Rounds of three: a native start, one in the image, another native one as the control; all three
//! are started alike and waited for by this process. Time is wall time, for others work for a start
//! in an image, too; what the started process itself took of a core stands beside it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::Context;
use husk_supervisor::output::print;
use serde::Serialize;

use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;
use crate::bench::measure::worker::children_us;
use crate::bench::report::median;
use crate::bench::unable;

/// Names of the image, within a directory of images that is its own.
pub const NAME: &str = "bench";
const MEMORY: &str = "256M";
/// How often an image is made.
const UPS: usize = 5;
/// Starts that do not count: what is read for the first time.
const WARM_UP: usize = 20;
/// What the control may read.
const CONTROL: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// `husk bench exec`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// How many starts of each kind.
    #[arg(long, default_value_t = 500, value_parser = crate::numbers::whole::<u32>(1..=100_000))]
    rounds: u32,
}

/// Medians of starts of one kind.
#[derive(Serialize, Debug, Clone, Copy)]
struct Start {
    wall_us: f64,
    cpu_us: f64,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    native: Start,
    husk_exec: Start,
    control: Start,
    /// The image's time over the native one's.
    wall_ratio: f64,
    cpu_ratio: f64,
    /// 1.0 on a quiet machine.
    control_ratio: f64,
    wanted_ratio: f64,
    husk_up_ms: f64,
    wanted_up_ms: f64,
}

/// A directory of images, removed with what is in it.
pub struct Images {
    /// The directory.
    pub path: PathBuf,
    /// This command.
    pub husk: PathBuf,
}

impl Images {
    /// None yet.
    pub fn new() -> anyhow::Result<Images> {
        let path = PathBuf::from(format!("/var/tmp/husk-bench-exec-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let husk = std::env::current_exe().context("cannot find this command")?;
        Ok(Images { path, husk })
    }

    /// `program WORDS`, with these images and none of the user's configuration.
    pub fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.path).env("HUSK_IMAGES", self.path.join("husk"));
        command.env("HUSK_CONFIG", "none").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// `husk WORDS`, which must succeed; how long it took, ms.
    fn husk(&self, words: &[&str]) -> anyhow::Result<f64> {
        let began = Instant::now();
        let status = self.command(&self.husk, words).status().context("cannot start husk")?;
        anyhow::ensure!(status.success(), "husk {}: {status}", words.join(" "));
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }

    fn up(&self) -> anyhow::Result<f64> {
        let here = self.path.to_str().context("a path that is no text")?;
        self.husk(&["up", NAME, "--memory", MEMORY, "--mount", here])
    }

    fn down(&self) -> anyhow::Result<()> {
        self.husk(&["down", NAME, "--discard", "--force"]).map(drop)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if self.path.join("husk").join(NAME).exists() {
            // What cannot be ended is found in its directory.
            let _ = self.down();
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let images = Images::new()?;
    let mut ups = Vec::new();
    for n in 0..UPS {
        ups.push(images.up()?);
        if n + 1 < UPS {
            images.down()?;
        }
    }
    let program = find("true")?;
    let typed = program.to_str().context("a path that is no text")?;
    let native = || images.command(&program, &[]);
    let entered = || images.command(&images.husk, &["exec", NAME, "--", typed]);
    let mut starts = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..WARM_UP + options.rounds as usize {
        stop::check()?;
        let all = [start(native())?, start(entered())?, start(native())?];
        if round >= WARM_UP {
            starts.iter_mut().zip(all).for_each(|(kind, one)| kind.push(one));
        }
    }
    let [native, husk_exec, control] = starts.map(|kind| Start {
        wall_us: median(kind.iter().map(|one| one.wall_us)),
        cpu_us: median(kind.iter().map(|one| one.cpu_us)),
    });
    let report = Report {
        machine: Machine::look(None),
        native,
        husk_exec,
        control,
        wall_ratio: husk_exec.wall_us / native.wall_us,
        cpu_ratio: husk_exec.cpu_us / native.cpu_us,
        control_ratio: control.wall_us / native.wall_us,
        wanted_ratio: 1.3,
        husk_up_ms: median(ups.into_iter()),
        wanted_up_ms: 150.0,
    };
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    let holds = CONTROL.contains(&report.control_ratio);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    fn table(&self) -> String {
        let Machine { cpu, cores, kernel, load, guard } = &self.machine;
        let mut text = format!(
            "{cpu}, {cores} cores, Linux {kernel}\nload {load:.1}, guard {guard}; medians\n\n"
        );
        let _ = writeln!(
            text,
            "{:<24} {:>10} {:>10} {:>8} {:>8}",
            "", "wall us", "CPU us", "wall", "CPU"
        );
        let rows = [
            ("true", self.native),
            ("husk exec NAME -- true", self.husk_exec),
            ("control: true", self.control),
        ];
        for (name, Start { wall_us, cpu_us }) in rows {
            let (wall, cpu) = (wall_us / self.native.wall_us, cpu_us / self.native.cpu_us);
            let _ =
                writeln!(text, "{name:<24} {wall_us:>10.0} {cpu_us:>10.0} {wall:>8.2} {cpu:>8.2}");
        }
        let _ = writeln!(text, "\nwanted: husk exec at most {:.1}", self.wanted_ratio);
        let (up, wanted) = (self.husk_up_ms, self.wanted_up_ms);
        let _ = writeln!(text, "husk up: {up:.0} ms, wanted at most {wanted:.0}");
        text
    }
}

/// Starts `command` and waits for it.
fn start(mut command: Command) -> anyhow::Result<Start> {
    let (cpu, began) = (children_us()?, Instant::now());
    let status = command.status().context("cannot start a command")?;
    let wall_us = began.elapsed().as_secs_f64() * 1e6;
    anyhow::ensure!(status.success(), "{:?}: {status}", command.get_program());
    Ok(Start { wall_us, cpu_us: (children_us()? - cpu) as f64 })
}

/// The file that `name` is in PATH, or where Debian has servers.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    let all = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut files = all.map(|directory| directory.join(name));
    let package = match name {
        "nginx" => "nginx-light",
        "redis-benchmark" => "redis-tools",
        "ssh" | "ssh-keygen" => "openssh-client",
        "sshd" => "openssh-server",
        other => other,
    };
    let remedy = format!("install it (Debian: `apt-get install {package}`)");
    let missing = || unable(format!("there is no {name}"), remedy);
    Ok(files.find(|file| file.is_file()).ok_or_else(missing)?)
}
