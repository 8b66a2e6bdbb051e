//! The thirteen workloads with which Hare (Gruenwald et al., EuroSys 2015, section 5.2) was
//! measured, in sizes that take a fraction of a second: what each prepares, and what one process of
//! it does.
//!
//! Differences from theirs: the tree that is built is a small C project made here, `fsstress` is a
//! seeded mix of calls instead of the Linux Test Project's program, and the archives are made here.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use crate::bench::measure::worker::cpu_ns;

/// Names that one process makes, renames, removes.
const NAMES: u32 = 4_000;
/// Blocks that one process appends to its file.
const BLOCKS: u32 = 4_000;
const MESSAGES: u32 = 1_000;
const STRESS_STEPS: u32 = 6_000;
const SOURCES: u32 = 8;
const BLOCK: usize = 4096;

/// What one process does, in directory `.0`, as number `.1` of all.
pub type Work = fn(&Path, u32) -> anyhow::Result<()>;

/// One workload.
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// Whether several processes can also do it in one directory.
    pub shares: bool,
    /// What its ratio is to reach; 0 = nothing promised of it alone.
    pub wanted: f64,
    prepare: Work,
    run: Run,
}

enum Run {
    /// This program does it.
    Own(Work),
    /// Another program does.
    Program(&'static [&'static str]),
}

/// All, in Hare's order.
pub const ALL: &[Workload] = &[
    own("creates", nothing, creates),
    own("writes", nothing, writes),
    own("renames", creates, renames),
    own("directories", nothing, directories),
    program("rm dense", dense, &["rm", "-rf", "tree"]),
    program("rm sparse", sparse, &["rm", "-rf", "tree"]),
    program("pfind dense", dense, &["find", "tree", "-type", "f", "-name", "nothing"]),
    program("pfind sparse", sparse, &["find", "tree", "-type", "f", "-name", "nothing"]),
    program("extract", archive, &["tar", "xf", "a.tar"]),
    program("punzip", zipped, &["gzip", "-dr", "tree"]),
    own("mailbench", boxes, mailbench),
    own("fsstress", nothing, stress),
    program("build", project, &["make", "-s", "-f", "build.mk"]),
];

const fn own(name: &'static str, prepare: Work, work: Work) -> Workload {
    Workload { name, shares: true, wanted: 0.0, prepare, run: Run::Own(work) }
}

/// A workload that is another program's.
pub const fn program(name: &'static str, prepare: Work, argv: &'static [&'static str]) -> Workload {
    Workload { name, shares: false, wanted: 0.0, prepare, run: Run::Program(argv) }
}

/// The processes of a workload: none outlives it, whichever fails.
struct Parts(Vec<Child>);

impl Parts {
    /// All have done what they should.
    fn finish(mut self) -> anyhow::Result<()> {
        for part in &mut self.0 {
            let status = part.wait()?;
            anyhow::ensure!(status.success(), "{status}");
        }
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for part in &mut self.0 {
            // Both fail only for one that has been waited for.
            let _ = part.kill();
            let _ = part.wait();
        }
    }
}

/// The workload called `name`.
pub fn find(name: &str) -> anyhow::Result<&'static Workload> {
    ALL.iter()
        .chain(crate::bench::files::commands::ALL)
        .find(|one| one.name == name)
        .with_context(|| format!("no workload {name:?}"))
}

impl Workload {
    /// The same, with what its ratio is to reach.
    pub const fn wanted(self, wanted: f64) -> Workload {
        Workload { wanted, ..self }
    }

    /// Does it once with `processes` at the same time below the working directory, each in a
    /// directory of its own or all in one, on `nodes` by turns, the first on the last one; CPU and
    /// wall time in ns, from the first start to the last end.
    pub fn run(&self, processes: u32, together: bool, nodes: u32) -> anyhow::Result<(i64, u64)> {
        let _ = fs::remove_dir_all("workload");
        let place = |index| format!("workload/{}", if together { 0 } else { index });
        for index in 0..processes {
            fs::create_dir_all(place(index))?;
            (self.prepare)(Path::new(&place(index)), index).context("preparing")?;
        }
        let (before, start) = (cpu_ns()?, Instant::now());
        let mut parts = Parts(Vec::new());
        for index in 0..processes {
            let mut part = self.command(index)?;
            if nodes > 1 {
                part.env("HUSK_NODE", ((index + nodes - 1) % nodes).to_string());
            }
            let part = part.current_dir(place(index)).spawn();
            parts.0.push(part.with_context(|| format!("starting {}", self.name))?);
        }
        parts.finish().with_context(|| self.name)?;
        let spent = (cpu_ns()? - before, start.elapsed().as_nanos() as u64);
        fs::remove_dir_all("workload")?;
        Ok(spent)
    }

    /// Prepares it for one process in `dir`.
    #[cfg(test)]
    pub fn prepare_in(&self, dir: &Path) -> anyhow::Result<()> {
        (self.prepare)(dir, 0)
    }

    fn command(&self, index: u32) -> std::io::Result<Command> {
        let mut command = match self.run {
            Run::Program(argv) => {
                let mut command = Command::new(argv[0]);
                command.args(&argv[1..]);
                command
            }
            Run::Own(_) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "part", self.name, &index.to_string()]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// In such a process: does its part in the working directory.
    pub fn part(&self, index: u32) -> anyhow::Result<()> {
        match self.run {
            Run::Own(work) => work(Path::new("."), index),
            Run::Program(_) => anyhow::bail!("{} is another program's", self.name),
        }
    }
}

fn nothing(_: &Path, _: u32) -> anyhow::Result<()> {
    Ok(())
}

fn creates(dir: &Path, index: u32) -> anyhow::Result<()> {
    for n in 0..NAMES {
        fs::File::create_new(dir.join(format!("file-{index}-{n}")))?;
    }
    Ok(())
}

fn writes(dir: &Path, index: u32) -> anyhow::Result<()> {
    let mut file = fs::File::create_new(dir.join(format!("file-{index}")))?;
    (0..BLOCKS).try_for_each(|_| Ok(file.write_all(&[b'w'; BLOCK])?))
}

fn renames(dir: &Path, index: u32) -> anyhow::Result<()> {
    for n in 0..NAMES {
        let (one, two) = (format!("file-{index}-{n}"), format!("renamed-{index}-{n}"));
        fs::rename(dir.join(one), dir.join(two))?;
    }
    Ok(())
}

fn directories(dir: &Path, index: u32) -> anyhow::Result<()> {
    (0..NAMES).try_for_each(|n| Ok(fs::create_dir(dir.join(format!("dir-{index}-{n}")))?))
}

/// Many files in few directories.
fn dense(dir: &Path, _: u32) -> anyhow::Result<()> {
    tree(&dir.join("tree"), 8, 500)
}

/// Few files in many directories, some deep.
fn sparse(dir: &Path, _: u32) -> anyhow::Result<()> {
    let tree = dir.join("tree");
    for n in 0..1_000u32 {
        let path = tree.join(format!("{}/{}/{}/{}", n % 10, n / 10 % 10, n / 100, n));
        fs::create_dir_all(&path)?;
        fs::write(path.join("file"), "")?;
    }
    Ok(())
}

/// A tree of text files.
pub fn tree(root: &Path, directories: u32, files: u32) -> anyhow::Result<()> {
    for d in 0..directories {
        let path = root.join(d.to_string());
        fs::create_dir_all(&path)?;
        (0..files).try_for_each(|n| fs::write(path.join(n.to_string()), text(d * files + n)))?;
    }
    Ok(())
}

/// A page of text, another one for each `n`.
fn text(n: u32) -> String {
    format!("line {n} of a file that compresses well enough\n").repeat(40)
}

fn archive(dir: &Path, _: u32) -> anyhow::Result<()> {
    tree(&dir.join("tree"), 20, 60)?;
    succeed(dir, &["tar", "cf", "a.tar", "tree"])?;
    Ok(fs::remove_dir_all(dir.join("tree"))?)
}

fn zipped(dir: &Path, _: u32) -> anyhow::Result<()> {
    tree(&dir.join("tree"), 10, 60)?;
    succeed(dir, &["gzip", "-r", "tree"])
}

/// Runs a program in `dir`.
pub fn succeed(dir: &Path, argv: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(argv[0]);
    let status = command.args(&argv[1..]).current_dir(dir).stdin(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{argv:?}: {status}");
    Ok(())
}

fn boxes(dir: &Path, index: u32) -> anyhow::Result<()> {
    for name in ["tmp", "new"] {
        fs::create_dir_all(dir.join(format!("{name}-{index}")))?;
    }
    Ok(())
}

/// Messages are delivered (made beside, moved into the box), then read and removed.
fn mailbench(dir: &Path, index: u32) -> anyhow::Result<()> {
    let (made, kept) = (dir.join(format!("tmp-{index}")), dir.join(format!("new-{index}")));
    for n in 0..MESSAGES {
        let name = format!("message-{n}");
        fs::write(made.join(&name), text(n))?;
        fs::rename(made.join(&name), kept.join(&name))?;
    }
    for message in fs::read_dir(&kept)? {
        let path = message?.path();
        let mut bytes = Vec::new();
        fs::File::open(&path)?.read_to_end(&mut bytes)?;
        anyhow::ensure!(!bytes.is_empty(), "an empty message");
        fs::remove_file(path)?;
    }
    Ok(())
}

/// A seeded mix of calls on few names; what fails because of others fails.
fn stress(dir: &Path, index: u32) -> anyhow::Result<()> {
    let mut dice = u64::from(index) + 1;
    let mut below = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    for _ in 0..STRESS_STEPS {
        let (one, two) = (below(40), below(40));
        let (one, two) = (dir.join(format!("s{one}")), dir.join(format!("s{two}")));
        let _ = match below(10) {
            0 | 1 => fs::write(&one, vec![b's'; below(20_000) as usize]),
            2 => fs::read(&one).map(|_| ()),
            3 => fs::rename(&one, &two),
            4 => fs::hard_link(&one, &two),
            5 => fs::remove_file(&one),
            6 => fs::create_dir(&one),
            7 => fs::remove_dir(&one),
            8 => fs::read_dir(dir).map(|names| assert!(names.count() < 200)),
            _ => fs::metadata(&one).map(|_| ()),
        };
    }
    Ok(())
}

/// A program of several C files and its rules.
fn project(dir: &Path, _: u32) -> anyhow::Result<()> {
    let mut objects = String::new();
    for n in 0..SOURCES {
        let source = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             int part{n}(char *text) {{ return printf(\"%zu\\n\", strlen(text)) + {n}; }}\n"
        );
        fs::write(dir.join(format!("part{n}.c")), source)?;
        objects += &format!(" part{n}.o");
    }
    fs::write(dir.join("main.c"), "int part0(char *);\nint main(void) { part0(\"x\"); }\n")?;
    let rules = format!("program: main.o{objects}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O1 -c $<\n");
    Ok(fs::write(dir.join("build.mk"), rules)?)
}
