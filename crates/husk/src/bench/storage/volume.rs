//! `husk bench volume`: what programs make durable, in a volume and on the file system beside it.
//!
//! ```text
//!   parent --"append 1 200"--> native worker (a directory)       --"ok NS"--> parent
//!      '------"append 1 200"--> worker in an image (the volume)  --"ok NS"-------'
//! ```
//!
//! The volume's area and the directory are on one disk, whose flushes are counted for each side:
//! what is faster because it drops one would show. They take turns round by round; a ratio is the
//! median of the rounds' ratios.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};
use serde::Serialize;

use super::volume_part::{self, Part, Row};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;
use crate::bench::report::{self, median};

/// Longest wait for one answer.
const ANSWER_MS: u16 = 60_000;
/// Where measurements work: not below /tmp, which is private to an image's programs.
const BASE: &str = "/var/tmp";
/// Size of the volume, and memory of the images.
const SIZE: &str = "512M";
/// Field of the flushes in a device's `stat`.
const FLUSHES: usize = 15;

/// `husk bench volume`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 7, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rows: Vec<Measured>,
}

#[derive(Serialize, Debug)]
struct Measured {
    #[serde(flatten)]
    row: report::Row,
    /// Flushes of the disk for each repetition, natively and with the volume.
    flushes: (f64, f64),
}

/// The directories of one measurement, removed at the end, and a volume.
pub struct Site {
    place: PathBuf,
    program: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        // What cannot be removed is left where its name says whose it was.
        let _ = fs::remove_dir_all(&self.place);
    }
}

impl Site {
    /// Makes them.
    pub fn make() -> anyhow::Result<Site> {
        let place = Path::new(BASE).join(format!("husk-bench-{}", std::process::id()));
        let site = Site { program: place.join("husk"), place };
        ["native", "tree", "mount", "state", "idle"]
            .into_iter()
            .try_for_each(|name| site.directory(name).map(drop))?;
        fs::copy(std::env::current_exe()?, &site.program).context("cannot copy this command")?;
        let made = site.husk().args(["volume", "create", "bench", "--size", SIZE]).status()?;
        anyhow::ensure!(made.success(), "cannot make a volume: {made}");
        Ok(site)
    }

    /// A directory, made if it is not there.
    pub fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.place.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// This command, where it finds the volume.
    pub fn husk(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("XDG_STATE_HOME", self.place.join("state"));
        command.current_dir(self.place.join("idle"));
        command
    }

    /// A worker on the host, in `directory`.
    pub fn alone(&self, part: &str, directory: &Path) -> Command {
        let mut command = self.husk();
        command.args(["bench", part]).arg(directory);
        command
    }

    /// A worker in an image that shows `what` at `tree`, and works there.
    fn image(&self, part: &str, option: &str, what: &Path, tree: &Path) -> Command {
        let mut command = self.husk();
        command.args(["run", "--memory", SIZE, "--discard", option]).arg(what).arg("--");
        command.arg(&self.program).args(["bench", part]).arg(tree);
        command
    }

    /// A worker in an image, on the disk's own file system.
    pub fn on_disk(&self, part: &str) -> anyhow::Result<Command> {
        let (mount, disk) = (self.directory("mount")?, self.directory("native")?);
        Ok(self.image(part, "--mount", &mount, &disk))
    }

    /// A worker in an image, in the volume.
    pub fn in_volume(&self, part: &str) -> Command {
        let tree = self.place.join("tree");
        let mut named = std::ffi::OsString::from("bench:");
        named.push(&tree);
        self.image(part, "--volume", Path::new(&named), &tree)
    }
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rows = crate::bench::chosen(volume_part::ALL, |row| row.name, options.only.as_deref())?;
    let site = Site::make()?;
    let mut sides = Sides::start(&site)?;
    let machine = Machine::look(None);
    let mut measured = Vec::new();
    for row in rows {
        stop::check()?;
        measured.push(sides.measured(row, options.rounds));
    }
    let all = Report { machine, rows: measured };
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&all)?),
        false => all.print_table(),
    }
    Ok(ExitCode::SUCCESS)
}

/// Those who work.
struct Sides {
    native: Worker,
    volume: Worker,
    mount: Worker,
    /// Where the kernel counts what the disk does.
    disk: PathBuf,
}

impl Sides {
    fn start(site: &Site) -> anyhow::Result<Sides> {
        const PART: &str = "volume-part";
        let (native, mount) = (site.directory("native")?, site.directory("mount")?);
        Ok(Sides {
            native: Worker::start(site.alone(PART, &native))?,
            volume: Worker::start(site.in_volume(PART))?,
            mount: Worker::start(site.image(PART, "--mount", &mount, &mount))?,
            disk: disk_of(&site.directory("state")?)?,
        })
    }

    fn measured(&mut self, row: &Row, rounds: u32) -> Measured {
        match self.rounds(row, rounds) {
            Ok((times, flushes)) => {
                let each = |pick: fn(&(f64, f64)) -> f64| median(flushes.iter().map(pick));
                let flushes = (each(|both| both.0), each(|both| both.1));
                Measured { row: report::Row::of(row.name, row.wanted, 1.0, times), flushes }
            }
            Err(error) => {
                let row = report::Row::failed(row.name, format!("{error:#}"));
                Measured { row, flushes: (0.0, 0.0) }
            }
        }
    }

    /// Rounds after one that does not count: ns and flushes for each repetition, on both sides.
    fn rounds(
        &mut self,
        row: &Row,
        rounds: u32,
    ) -> anyhow::Result<(Vec<(f64, f64)>, Vec<(f64, f64)>)> {
        let (mut times, mut flushes) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let left = if row.part == Part::Unsynced { &mut self.mount } else { &mut self.native };
            let one = ask(left, row, &self.disk).context("native")?;
            let other = ask(&mut self.volume, row, &self.disk).context("husk")?;
            if round > 0 {
                times.push((one.0, other.0));
                flushes.push((one.1, other.1));
            }
        }
        Ok((times, flushes))
    }
}

/// ns, and flushes, for each repetition.
fn ask(worker: &mut Worker, row: &Row, disk: &Path) -> anyhow::Result<(f64, f64)> {
    let before = flushes(disk)?;
    let ns = worker.ask(row)?;
    Ok((ns, (flushes(disk)? - before) as f64 / row.count as f64))
}

/// The device that a directory is on, as the kernel counts it.
fn disk_of(directory: &Path) -> anyhow::Result<PathBuf> {
    let device = fs::metadata(directory)?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    Ok(format!("/sys/dev/block/{major}:{minor}/stat").into())
}

/// Flushes so far; none are counted where the disk is no device of its own.
fn flushes(disk: &Path) -> anyhow::Result<u64> {
    let Ok(text) = fs::read_to_string(disk) else { return Ok(0) };
    let field = text.split_ascii_whitespace().nth(FLUSHES);
    field.unwrap_or("0").parse().context("no count of flushes")
}

/// One side, and the pipes to it.
pub struct Worker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Worker {
    /// Starts it.
    pub fn start(mut command: Command) -> anyhow::Result<Worker> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Worker { child, answers })
    }

    /// Has it do a row once; ns for each repetition.
    fn ask(&mut self, row: &Row) -> anyhow::Result<f64> {
        Ok(self.say(row.name)?.parse()?)
    }

    /// Gives it an order; what it answers.
    pub fn say(&mut self, order: &str) -> anyhow::Result<String> {
        stop::check()?;
        let orders = self.child.stdin.as_mut().context("closed")?;
        writeln!(orders, "{order}").context("the worker has ended")?;
        let mut ready = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
        anyhow::ensure!(poll(&mut ready, ANSWER_MS)? == 1, "no answer within {ANSWER_MS} ms");
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("ok", answer)) => Ok(answer.to_owned()),
            Some(("err", why)) => anyhow::bail!("{why}"),
            _ => anyhow::bail!("the worker has ended"),
        }
    }
}

impl Drop for Worker {
    /// Closing its input ends a worker; one that does not end is killed.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..2000 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Both may fail only when it has just ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Report {
    fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}; us for each repetition, medians; flushes of the disk", machine.load);
        println!("for each; 'no sync' is compared with --mount\n");
        println!("{:<28} {:>9} {:>9} {:>8}  flushes     wanted", "", "native", "volume", "ratio");
        for Measured { row, flushes } in &self.rows {
            if let Some(error) = &row.error {
                println!("{:<28} {error}", row.name);
                continue;
            }
            let mark = row.met.map_or("", |met| if met { "ok" } else { "MISSED" });
            let us = |ns: f64| ns / 1000.0;
            print!("{:<28} {:>9.1} {:>9.1}", row.name, us(row.native_ns), us(row.husk_ns));
            print!(" {:>7.2}x  {:>4.2}, {:>4.2}", row.native_over_husk, flushes.0, flushes.1);
            println!("  {} {mark}", row.wanted);
        }
    }
}

/// Serves in `directory` until the parent closes the pipe.
pub fn serve(directory: &Path) -> anyhow::Result<()> {
    answer_orders(directory, |order| {
        let row = volume_part::ALL.iter().find(|row| row.name == order);
        row.context("no such row").and_then(Row::once).map(|ns| ns.to_string())
    })
}

/// Answers each order in `directory` until the parent closes the pipe.
pub fn answer_orders(
    directory: &Path,
    mut carry_out: impl FnMut(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    std::env::set_current_dir(directory)
        .with_context(|| format!("cannot work in {}", directory.display()))?;
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let answer = match carry_out(&line?) {
            Ok(answer) => format!("ok {answer}\n"),
            Err(error) => format!("err {}\n", format!("{error:#}").replace('\n', " ")),
        };
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}
