//! `husk bench write-back`: commands that change many files, with the write-back, beside the same
//! commands outside and a `sync` of their file system. On disk, in turn.
//!
//! Each round has a directory of its own: a file system is slow where many files have just been
//! removed. All go at the end.

use std::fmt::Write as _;
use std::fs;
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

/// Memory of an image.
const MEMORY: &str = "2G";
const MAKE: &str = "for d in $(seq $((FILES / 500))); do mkdir -p t/$d; \
                    for i in $(seq 500); do echo $d-$i > t/$d/$i; done; done";
const APPEND: &str = "for f in t/*/*; do echo n >> $f; done";
const UNTAR: &str = "tar xf ../a.tar";

/// `husk bench write-back`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// How many rounds of each row.
    #[arg(long, default_value_t = 3, value_parser = crate::numbers::whole::<u32>(1..=100))]
    rounds: u32,
    /// Also 200,000 new files, and as many appended ones.
    #[arg(long)]
    many: bool,
    /// Directory to work in, on a disk.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    directory: PathBuf,
    /// How many files each row has, a multiple of 500 [default: as its name says].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(500..=1_000_000))]
    files: Option<u32>,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

struct Case {
    name: &'static str,
    files: u32,
    /// What is there before, on both sides.
    before: Option<&'static str>,
    command: &'static str,
    wanted: f64,
    many: bool,
}

const ALL: &[Case] = &[
    Case {
        name: "20,000 new files",
        files: 20_000,
        before: None,
        command: MAKE,
        wanted: 1.5,
        many: false,
    },
    Case {
        name: "20,000 appended files",
        files: 20_000,
        before: Some(MAKE),
        command: APPEND,
        wanted: 2.5,
        many: false,
    },
    Case {
        name: "untar of 3,600 files",
        files: 3_500,
        before: None,
        command: UNTAR,
        wanted: 1.2,
        many: false,
    },
    Case {
        name: "200,000 new files",
        files: 200_000,
        before: None,
        command: MAKE,
        wanted: 1.5,
        many: true,
    },
    Case {
        name: "200,000 appended files",
        files: 200_000,
        before: Some(MAKE),
        command: APPEND,
        wanted: 2.5,
        many: true,
    },
];

/// What one side took.
#[derive(Serialize, Debug, Clone, Copy)]
struct Took {
    wall_s: f64,
    cpu_s: f64,
}

#[derive(Serialize, Debug)]
struct Row {
    name: &'static str,
    native: Took,
    husk: Took,
    /// Husk's over the native one's: medians of the rounds' quotients.
    wall_ratio: f64,
    cpu_ratio: f64,
    wanted: f64,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rows: Vec<Row>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let chosen = crate::bench::chosen(ALL, |case| case.name, options.only.as_deref())?;
    let scratch = Scratch::make(&options.directory)?;
    let mut rows = Vec::new();
    for case in chosen.into_iter().filter(|case| options.many || !case.many) {
        let case = &Case { files: options.files.unwrap_or(case.files), ..*case };
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            stop::check()?;
            let sides = ["native", "husk"].map(|side| format!("{side}-{}-{round}", rows.len()));
            let native = scratch.side(case, &sides[0], false)?;
            stop::check()?;
            let husk = scratch.side(case, &sides[1], true)?;
            scratch.compare(case, &sides)?;
            rounds.push((native, husk));
        }
        rows.push(row(case, &rounds));
    }
    let report = Report { machine: Machine::look(None), rows };
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn row(case: &Case, rounds: &[(Took, Took)]) -> Row {
    let of = |figure: fn(&(Took, Took)) -> f64| median(rounds.iter().map(figure));
    Row {
        name: case.name,
        native: Took { wall_s: of(|one| one.0.wall_s), cpu_s: of(|one| one.0.cpu_s) },
        husk: Took { wall_s: of(|one| one.1.wall_s), cpu_s: of(|one| one.1.cpu_s) },
        wall_ratio: of(|one| one.1.wall_s / one.0.wall_s),
        cpu_ratio: of(|one| one.1.cpu_s / one.0.cpu_s),
        wanted: case.wanted,
    }
}

/// Where it works; removed with all that was made.
struct Scratch {
    path: PathBuf,
    husk: PathBuf,
}

impl Scratch {
    fn make(directory: &Path) -> anyhow::Result<Scratch> {
        let path = directory.join(format!("husk-bench-write-back-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let husk = std::env::current_exe().context("cannot find this command")?;
        Ok(Scratch { path, husk })
    }

    /// One side of a round, in a directory of its own. What was there before is on the disk.
    fn side(&self, case: &Case, name: &str, inside: bool) -> anyhow::Result<Took> {
        let base = self.path.join(name);
        let work = base.join("work");
        fs::create_dir_all(&work)?;
        if case.command == UNTAR {
            self.shell(&base, case, MAKE)?;
            self.shell(&base, case, "tar cf a.tar t && sync -f .")?;
        }
        if let Some(before) = case.before {
            self.shell(&work, case, &format!("{before}; sync -f ."))?;
        }
        let (cpu, began) = (children_us()?, Instant::now());
        match inside {
            false => self.shell(&work, case, &format!("{}; sync -f .", case.command))?,
            true => {
                let mut husk = Command::new(&self.husk);
                husk.args(["run", "--memory", MEMORY, "--", "bash", "-c", case.command]);
                husk.env("HUSK_CONFIG", "none");
                succeed(husk.current_dir(&work), case)?;
            }
        }
        let wall_s = began.elapsed().as_secs_f64();
        let cpu_s = (children_us()? - cpu) as f64 / 1e6;
        Ok(Took { wall_s, cpu_s })
    }

    /// Both sides have made the same, to the byte.
    fn compare(&self, case: &Case, sides: &[String; 2]) -> anyhow::Result<()> {
        let [native, husk] = sides;
        let command = format!("diff -r --no-dereference {native}/work {husk}/work >&2");
        self.shell(&self.path, case, &command).context("the sides differ")
    }

    fn shell(&self, directory: &Path, case: &Case, command: &str) -> anyhow::Result<()> {
        succeed(Command::new("bash").args(["-c", command]).current_dir(directory), case)
    }
}

fn succeed(command: &mut Command, case: &Case) -> anyhow::Result<()> {
    command.env("FILES", case.files.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("cannot start a command")?;
    anyhow::ensure!(status.success(), "{}: {status}", case.name);
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left where its name says whose it was.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Report {
    fn table(&self) -> String {
        let Machine { cpu, cores, kernel, load, .. } = &self.machine;
        let mut text = format!("{cpu}, {cores} cores, Linux {kernel}\nload {load:.1}; medians\n\n");
        let _ = writeln!(
            text,
            "{:<24} {:>9} {:>9} {:>7} {:>7} {:>8}",
            "", "native s", "husk s", "wall", "CPU", "wanted"
        );
        for Row { name, native, husk, wall_ratio, cpu_ratio, wanted } in &self.rows {
            let _ = writeln!(
                text,
                "{name:<24} {:>9.2} {:>9.2} {wall_ratio:>7.2} {cpu_ratio:>7.2} {wanted:>8.1}",
                native.wall_s, husk.wall_s
            );
        }
        text
    }
}
