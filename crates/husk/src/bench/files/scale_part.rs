//! What the processes of `husk bench scale` do: each the same, for the same time, all together.
//!
//! ```text
//!   worker --starts--> part 0, part 1, ...   each makes what it needs and says "ready"
//!          --"go"----> all at once           each works for `TIME`, then says how often, how long
//! ```
//!
//! Starting and preparing do not count; a part ends with its standard input.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::operations::succeed;
use crate::bench::measure::worker::cpu_ns;

/// How long a process works.
const TIME: Duration = Duration::from_millis(200);
/// Bytes of a read or a write.
const BLOCK: usize = 4096;
/// Blocks of the file that is read, and of one that is appended to.
const BLOCKS: u64 = 64;
/// Names of one process in a directory.
const NAMES: usize = 64;
/// Reported times are of so many operations.
pub const OPERATIONS: u64 = 1_000;

/// Something that all processes do.
pub struct Row {
    pub name: &'static str,
    /// All in one directory, or each in one of its own.
    pub shared: bool,
    /// Repetitions between two looks at the clock.
    batch: u64,
    once: fn(&mut Part) -> anyhow::Result<()>,
}

/// All rows.
pub const ALL: &[Row] = &[
    row("create + unlink, own directories", false, 16, create_unlink),
    row("create + unlink, one directory", true, 16, create_unlink),
    row("rename, one directory", true, 16, rename),
    row("new file over an old one, one directory", true, 8, replace),
    row("mkdir + rmdir, one directory", true, 16, mkdir_rmdir),
    row("stat, one file", true, 64, |_| Ok(fs::metadata("common").map(|_| ())?)),
    row("open + close, one file", true, 16, |_| Ok(File::open("common").map(|_| ())?)),
    row("pread 4 KiB, one file", true, 16, pread),
    row("append 4 KiB, own files", true, 16, append),
    row("small file, whole life, one directory", true, 8, small_file),
    row("start of /bin/true", true, 1, |_| succeed(Command::new("/bin/true"))),
    row("gcc -c hello.c", true, 1, compile),
];

const fn row(
    name: &'static str,
    shared: bool,
    batch: u64,
    once: fn(&mut Part) -> anyhow::Result<()>,
) -> Row {
    Row { name, shared, batch, once }
}

/// The row called `name`.
pub fn find(name: &str) -> anyhow::Result<&'static Row> {
    ALL.iter().find(|row| row.name == name).with_context(|| format!("no row {name:?}"))
}

/// A process's own.
struct Part {
    index: u32,
    names: Vec<String>,
    common: File,
    appended: File,
    step: u64,
}

impl Part {
    /// Makes what the operations need, in the working directory.
    fn prepare(index: u32) -> anyhow::Result<Self> {
        let names = (0..NAMES).map(|n| format!("name-{index}-{n}")).collect();
        fs::write(format!("moved-{index}"), "")?;
        fs::write(format!("hello-{index}.c"), "int main(void) { return 0; }\n")?;
        let common = File::open("common")?;
        Ok(Self {
            index,
            names,
            common,
            appended: File::create(format!("grown-{index}"))?,
            step: 0,
        })
    }

    /// The next of its names.
    fn name(&mut self) -> &str {
        self.step += 1;
        &self.names[self.step as usize % NAMES]
    }
}

impl Row {
    /// As process `index`: says that it is ready, works from the order on, says what it has done.
    pub fn play(&self, index: u32) -> anyhow::Result<()> {
        let mut part = Part::prepare(index).context("preparing")?;
        let mut orders = std::io::stdin().lock();
        println!("ready");
        let mut order = String::new();
        if orders.read_line(&mut order)? == 0 {
            return Ok(());
        }
        let (before, start) = (cpu_ns()?, Instant::now());
        let mut count = 0;
        while start.elapsed() < TIME {
            (0..self.batch).try_for_each(|_| (self.once)(&mut part))?;
            count += self.batch;
        }
        println!("{count} {} {}", start.elapsed().as_nanos(), cpu_ns()? - before);
        Ok(())
    }

    /// Starts `processes` of it below the working directory: CPU time of one process, and time all
    /// together take, for `OPERATIONS` repetitions, in ns.
    pub fn run(&self, processes: u32) -> anyhow::Result<(i64, u64)> {
        let _ = fs::remove_dir_all("scale");
        let mut parts = Vec::new();
        for index in 0..processes {
            let place = format!("scale/{}", if self.shared { 0 } else { index });
            fs::create_dir_all(&place)?;
            let common = format!("{place}/common");
            if !fs::exists(&common)? {
                fs::write(common, vec![b'c'; BLOCKS as usize * BLOCK])?;
            }
            parts.push(Playing::start(self.name, index, &place)?);
        }
        for part in &mut parts {
            anyhow::ensure!(part.line()? == "ready", "a process of {} is not ready", self.name);
        }
        for part in &mut parts {
            part.orders.write_all(b"go\n").context("a process ended")?;
        }
        let (mut rate, mut count, mut cpu) = (0.0, 0.0, 0.0);
        for part in &mut parts {
            let line = part.line()?;
            let words = line.split(' ').map(|word| Ok(word.parse::<f64>()?));
            let [done, wall_ns, cpu_ns] = words.collect::<anyhow::Result<Vec<_>>>()?[..] else {
                anyhow::bail!("a process of {} said {line:?}", self.name);
            };
            rate += done / wall_ns.max(1.0);
            count += done;
            cpu += cpu_ns;
        }
        drop(parts);
        fs::remove_dir_all("scale")?;
        let operations = OPERATIONS as f64;
        Ok(((cpu / count.max(1.0) * operations) as i64, (operations / rate) as u64))
    }
}

/// A process that plays; none outlives its worker.
struct Playing {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Playing {
    fn start(name: &str, index: u32, place: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "scale-part", name, &index.to_string()]).current_dir(place);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("no pipe")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, orders, answers })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        // Both fail only for one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn create_unlink(part: &mut Part) -> anyhow::Result<()> {
    let name = part.name();
    drop(File::create_new(name)?);
    Ok(fs::remove_file(name)?)
}

/// There and back: two renames would count as one, so it goes one way each time.
fn rename(part: &mut Part) -> anyhow::Result<()> {
    let (one, other) = (format!("moved-{}", part.index), format!("other-{}", part.index));
    part.step += 1;
    let (from, to) = if part.step % 2 == 1 { (one, other) } else { (other, one) };
    Ok(fs::rename(from, to)?)
}

/// As programs save: the new bytes beside, then over the old ones.
fn replace(part: &mut Part) -> anyhow::Result<()> {
    let (new, old) = (format!("new-{}", part.index), format!("moved-{}", part.index));
    fs::write(&new, [b'r'; BLOCK])?;
    Ok(fs::rename(new, old)?)
}

fn mkdir_rmdir(part: &mut Part) -> anyhow::Result<()> {
    let name = part.name();
    fs::create_dir(name)?;
    Ok(fs::remove_dir(name)?)
}

fn pread(part: &mut Part) -> anyhow::Result<()> {
    part.step += 1;
    let mut buffer = [0; BLOCK];
    let at = part.step % BLOCKS * BLOCK as u64;
    Ok(part.common.read_exact_at(&mut buffer, at)?)
}

fn append(part: &mut Part) -> anyhow::Result<()> {
    let at = part.step % BLOCKS;
    if at == 0 {
        part.appended.set_len(0)?;
    }
    part.step += 1;
    Ok(part.appended.write_all_at(&[b'a'; BLOCK], at * BLOCK as u64)?)
}

fn small_file(part: &mut Part) -> anyhow::Result<()> {
    let name = part.name();
    fs::write(name, [b's'; BLOCK])?;
    let mut buffer = [0; BLOCK];
    File::open(name)?.read_exact(&mut buffer)?;
    Ok(fs::remove_file(name)?)
}

fn compile(part: &mut Part) -> anyhow::Result<()> {
    let source = format!("hello-{}.c", part.index);
    let mut command = Command::new("gcc");
    command.args(["-c", &source]);
    succeed(command)
}
