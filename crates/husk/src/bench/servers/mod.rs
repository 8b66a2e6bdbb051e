//! `husk bench servers`: what a request costs common servers. The load generator is outside, so
//! their sockets are the host's, except in the rows where both are inside (`inside`).
//!
//! ```text
//!   first core:   server, native | server, native again | server, in an image     (Site)
//!   second core:  wrk or redis-benchmark, asks each of them in turn; wrk by its own two threads
//!                 and ten connections, or by `--connections`
//! ```
//!
//! A figure is processor time of the server for a request: of all processes below the one that was
//! started, so that of an image its supervisor counts, too. Where a server has a core of its own,
//! that is what bounds its rate, and others' work on the machine moves it less. Memory is looked at
//! in the round that does not count: of the server's processes, or of all of a row both inside.
//!
//! Invariants
//! 1. A round asks each side once; a row's ratio is the median of the rounds' quotients.
//! 2. An answer that is an error fails the row: nothing counts that did not serve what was asked.
//! 3. The row's two native servers are its control.
//! 4. Servers listen on loopback, and end with the row.

mod inside;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::bench::files::operations::Wanted;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::memory;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::processes::exec::find;
use crate::bench::report;
use crate::bench::servers::inside::{Load, Loop, Way};

/// How long a server may take until it answers, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Requests of each kind in one round of redis.
const REDIS_REQUESTS: u64 = 30_000;
/// Bytes of the page that nginx serves.
const PAGE_BYTES: usize = 600;
/// What is wanted of a server whose sockets are the host's: within 3 %.
const WANTED: Wanted = Wanted::FasterBy(0.97);

/// `husk bench servers`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row; one takes some five seconds.
    #[arg(long, default_value_t = 11, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
    /// Connections of wrk at a time [default: wrk's own, 10].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(2..=10_000))]
    connections: Option<u32>,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// One row.
struct Row {
    name: &'static str,
    wanted: Wanted,
    server: Server,
}

#[derive(Clone, Copy)]
enum Server {
    Redis,
    /// Its page lies there.
    Nginx(Page),
    /// Asked from within.
    Inside(Load),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// In no tree of the image.
    Outside,
    /// In an overlay, as the host has it.
    Unmodified,
    /// The image's own.
    Image,
}

const fn inside_row(name: &'static str, wanted: f64, load: Load) -> Row {
    Row { name, wanted: Wanted::FasterBy(wanted), server: Server::Inside(load) }
}

const ALL: &[Row] = &[
    Row { name: "redis, set and get", wanted: WANTED, server: Server::Redis },
    Row { name: "nginx, a page outside", wanted: WANTED, server: Server::Nginx(Page::Outside) },
    Row { name: "nginx, in an overlay", wanted: WANTED, server: Server::Nginx(Page::Unmodified) },
    Row { name: "nginx, of the image", wanted: WANTED, server: Server::Nginx(Page::Image) },
    inside_row("redis, both inside", 2.0, Load::redis(Way::Tcp, 50, 1, 100_000)),
    inside_row("the same, 1 connection", 2.0, Load::redis(Way::Tcp, 1, 1, 30_000)),
    inside_row("the same, 16 at a time", 1.2, Load::redis(Way::Tcp, 50, 16, 400_000)),
    inside_row("redis, both inside, unix", 1.0, Load::redis(Way::Unix, 50, 1, 100_000)),
    inside_row("nginx, both inside, keep-alive", 1.5, Load::nginx(50, true)),
    inside_row("nginx, a connection a request", 0.97, Load::nginx(50, false)),
    inside_row("PostgreSQL, both inside, TCP", 1.25, Load::Postgres(Way::Tcp, 8)),
    inside_row("PostgreSQL, TCP, 1 client", 1.25, Load::Postgres(Way::Tcp, 1)),
    inside_row("PostgreSQL, both inside, unix", 1.0, Load::Postgres(Way::Unix, 8)),
    inside_row("PostgreSQL, unix, 1 client", 1.0, Load::Postgres(Way::Unix, 1)),
    inside_row("memcached, both inside", 1.2, Load::Loop(Loop::Memcached, 50)),
    inside_row("node http, both inside", 1.2, Load::Loop(Loop::Node, 50)),
    inside_row("Go net/http, both inside", 1.2, Load::Loop(Loop::Go, 50)),
    inside_row("asyncio, both inside", 1.2, Load::Loop(Loop::Asyncio, 50)),
    inside_row("tokio, both inside", 1.2, Load::Loop(Loop::Tokio, 50)),
];

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rows: Vec<Measured>,
}

/// ns of processor time for a request.
#[derive(Serialize, Debug)]
struct Measured {
    #[serde(flatten)]
    row: report::Row,
    /// The second native server against the first.
    control: f64,
    /// Requests a second: the image's over the native rate.
    rate: f64,
    /// Memory of all processes natively, with shared pages once, while they are asked; in bytes.
    native_memory_bytes: u64,
    /// The same in an image, with its supervisor.
    husk_memory_bytes: u64,
}

/// What one turn of a side showed.
#[derive(Clone, Copy, Default)]
struct Turn {
    cpu_ns: f64,
    rate: f64,
    memory_bytes: u64,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rows = crate::bench::chosen(ALL, |row| row.name, options.only.as_deref())?;
    let scratch = Scratch::create(None)?;
    let machine = Machine::look(options.guard.as_deref());
    let mut measured = Vec::new();
    for row in rows {
        stop::check()?;
        measured.push(row.measure(&scratch, options));
    }
    stop::check()?;
    let report = Report { machine, rows: measured };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print_table();
    }
    let holds = report.rows.iter().all(|row| row.row.error.is_some() || row.holds());
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Row {
    fn measure(&self, scratch: &Scratch, options: &Options) -> Measured {
        match self.rounds(scratch, options) {
            Ok(rounds) => Measured::of(self, &rounds),
            Err(error) => Measured {
                row: report::Row::failed(self.name, format!("{error:#}")),
                control: 0.0,
                rate: 0.0,
                native_memory_bytes: 0,
                husk_memory_bytes: 0,
            },
        }
    }

    /// Native, native again and in an image, round by round; of the first only memory counts.
    fn rounds(&self, scratch: &Scratch, options: &Options) -> anyhow::Result<Vec<[Turn; 3]>> {
        if let Server::Inside(load) = self.server {
            return rounds_inside(&load, scratch, options);
        }
        let cores = Cores::of_this_process()?;
        let guard = options.guard.as_deref();
        let start = |side: &str, image| {
            let site = Site::new(scratch, side)?;
            cores.first()?;
            let connections = options.connections;
            let started = Running::start(self.server, site, image, connections);
            cores.second()?;
            started.with_context(|| side.to_owned())
        };
        let sides = [start("a", None)?, start("b", None)?, start("image", Some((scratch, guard)))?];
        let mut round = |number: u32| {
            let mut turns = [Turn::default(); 3];
            for n in 0..sides.len() {
                // Each begins as often as any other.
                let n = (n + number as usize) % sides.len();
                stop::check()?;
                turns[n] = sides[n].turn(number == 0)?;
            }
            anyhow::Ok(turns)
        };
        (0..=options.rounds).map(&mut round).collect()
    }
}

/// The same of a server and who asks it on one side.
fn rounds_inside(
    load: &Load,
    scratch: &Scratch,
    options: &Options,
) -> anyhow::Result<Vec<[Turn; 3]>> {
    let image = Some((scratch, options.guard.as_deref()));
    let mut round = |number: u32| {
        let mut turns = [Turn::default(); 3];
        for n in 0..turns.len() {
            let n = (n + number as usize) % turns.len();
            stop::check()?;
            let site = Site::new(scratch, ["a", "b", "image"][n])?;
            let image = if n == 2 { image } else { None };
            let (rate, memory_bytes) = load.turn(site.port, &site.files, image, number == 0)?;
            turns[n] = Turn { cpu_ns: 1e9 / rate.max(1.0), rate, memory_bytes };
        }
        anyhow::Ok(turns)
    };
    (0..=options.rounds).map(&mut round).collect()
}

/// The processors that this process may use: servers get the first, who asks them the second.
struct Cores {
    all: CpuSet,
    first: CpuSet,
    second: CpuSet,
}

impl Cores {
    fn of_this_process() -> anyhow::Result<Cores> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut mine = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu).unwrap_or(false));
        let first = mine.next().context("no processor")?;
        let one = |cpu| {
            let mut set = CpuSet::new();
            set.set(cpu).map(|()| set)
        };
        Ok(Cores { all, first: one(first)?, second: one(mine.next().unwrap_or(first))? })
    }

    fn first(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(0), &self.first)?)
    }

    fn second(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(0), &self.second)?)
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.all);
    }
}

/// Where a server has its files, and listens.
struct Site {
    /// Its own, outside every tree.
    files: PathBuf,
    port: u16,
}

impl Site {
    fn new(scratch: &Scratch, side: &str) -> anyhow::Result<Site> {
        let files = scratch.disk.join(side);
        fs::create_dir_all(&files)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        Ok(Site { port: listener.local_addr()?.port(), files })
    }

    /// The command of a server that stays in the foreground; its pages are in `pages`.
    fn command(&self, server: Server, pages: &Path) -> anyhow::Result<Command> {
        let port = self.port.to_string();
        match server {
            Server::Redis | Server::Inside(_) => {
                let mut redis = Command::new(find("redis-server")?);
                redis.args(["--bind", "127.0.0.1", "--port", &port, "--loglevel", "warning"]);
                redis.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&self.files);
                Ok(redis)
            }
            Server::Nginx(_) => {
                let mut nginx = Command::new(find("nginx")?);
                let settings = self.files.join("nginx.conf");
                fs::write(&settings, self.nginx(pages))?;
                nginx.arg("-e").arg(self.files.join("errors")).arg("-p").arg(&self.files);
                nginx.arg("-c").arg(settings);
                Ok(nginx)
            }
        }
    }

    fn nginx(&self, pages: &Path) -> String {
        let (files, port, pages) = (self.files.display(), self.port, pages.display());
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let parts = kinds.map(|kind| format!("{kind}_temp_path {files}/parts;\n")).concat();
        format!(
            "daemon off;\nworker_processes 1;\npid {files}/pid;\nerror_log {files}/errors;\n\
             events {{ }}\nhttp {{\naccess_log off;\n{parts}\
             server {{ listen 127.0.0.1:{port}; root {pages}; }}\n}}\n"
        )
    }
}

/// A server that answers.
struct Running {
    child: Child,
    server: Server,
    site: Site,
    connections: Option<u32>,
}

impl Running {
    /// Starts it, natively or in an image of its own, and waits until it answers.
    fn start(
        server: Server,
        site: Site,
        image: Option<(&Scratch, Option<&str>)>,
        connections: Option<u32>,
    ) -> anyhow::Result<Running> {
        let outside = site.files.join("pages");
        fs::create_dir_all(&outside)?;
        fs::write(outside.join("page"), [b'p'; PAGE_BYTES])?;
        let mut command = match image {
            None => site.command(server, &outside)?,
            Some((scratch, guard)) => inside(server, &site, &outside, scratch, guard)?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut running = Running { child, server, site, connections };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, running.site.port)).is_err() {
            let ended = running.child.try_wait()?;
            anyhow::ensure!(ended.is_none(), "{command:?} has ended");
            anyhow::ensure!(Instant::now() < end, "no answer within {PATIENCE:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(running)
    }

    /// Asks for a while; `weighs`: looks at its memory then.
    fn turn(&self, weighs: bool) -> anyhow::Result<Turn> {
        let (before, began) = (cpu_ns(self.child.id())?, Instant::now());
        let requests = match self.server {
            Server::Redis | Server::Inside(_) => ask_redis(self.site.port)?,
            Server::Nginx(_) => ask_nginx(self.site.port, self.connections)?,
        };
        anyhow::ensure!(requests > 0, "nothing was answered");
        let wall_s = began.elapsed().as_secs_f64();
        let cpu_ns = (cpu_ns(self.child.id())? - before) as f64 / requests as f64;
        let memory_bytes = if weighs { memory::tree_bytes(self.child.id())? } else { 0 };
        Ok(Turn { cpu_ns, rate: requests as f64 / wall_s, memory_bytes })
    }

    /// Asks the server to end, in its own words: signals that end a measurement are blocked in it.
    fn ask_to_end(&self) {
        // One that does not listen any more, or has ended, is killed, or needs no word.
        let _ = match self.server {
            Server::Redis | Server::Inside(_) => {
                TcpStream::connect((Ipv4Addr::LOCALHOST, self.site.port))
                    .and_then(|mut stream| stream.write_all(b"SHUTDOWN NOSAVE\r\n"))
                    .map_err(anyhow::Error::from)
            }
            // It is not waited for yet, so the number is its own.
            Server::Nginx(_) => {
                kill(Pid::from_raw(self.child.id() as i32), Signal::SIGQUIT).map_err(Into::into)
            }
        };
    }
}

/// Processor time of all threads of a process, and of all that it has started.
pub fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in threads(pid)? {
        let times = fs::read_to_string(thread.join("schedstat"))?;
        sum += times.split(' ').next().context("no times")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Kills a process and all that it has started.
pub fn kill_all(child: &mut Child) {
    let name = |thread: &PathBuf| thread.file_name()?.to_str()?.parse().ok();
    let all = threads(child.id()).unwrap_or_default();
    for process in all.iter().filter_map(name) {
        // A thread's number is its process's to a signal; both may have ended meanwhile.
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
    let _ = child.wait();
}

/// `/proc/PID/task/TID` of all threads of a process, and of all that it has started.
fn threads(pid: u32) -> anyhow::Result<Vec<PathBuf>> {
    let (mut all, mut processes) = (Vec::new(), vec![pid]);
    while let Some(pid) = processes.pop() {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let children = fs::read_to_string(thread.path().join("children"))?;
            processes.extend(children.split_whitespace().flat_map(str::parse::<u32>));
            all.push(thread.path());
        }
    }
    Ok(all)
}

/// A process, and all that it has started and that have not ended.
pub fn processes(pid: u32) -> anyhow::Result<Vec<u32>> {
    let (mut all, mut index) = (vec![pid], 0);
    while let Some(&pid) = all.get(index) {
        index += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
    }
    Ok(all)
}

impl Drop for Running {
    /// Ends it in order, that what it began is removed; what does not end is killed.
    fn drop(&mut self) {
        self.ask_to_end();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        kill_all(&mut self.child);
    }
}

/// A server in an image of its own.
fn inside(
    server: Server,
    site: &Site,
    outside: &Path,
    scratch: &Scratch,
    guard: Option<&str>,
) -> anyhow::Result<Command> {
    let page = match server {
        Server::Redis | Server::Inside(_) => Page::Outside,
        Server::Nginx(page) => page,
    };
    let own = page == Page::Image;
    let command = site.command(server, if own { &scratch.mount } else { outside })?;
    let mut image = Command::new(&scratch.program);
    image.env("HUSK_CONFIG", "none").current_dir(&scratch.idle);
    image.args(["run", "--discard", "--memory", "1G", "--mount"]).arg(&scratch.mount);
    image.args(guard.map(|guard| format!("--guard={guard}")));
    if page == Page::Unmodified {
        image.args(["--overlay", ".", "--overlay"]).arg(outside);
    }
    image.arg("--");
    if own {
        let copied = "chmod 755 \"$1\" && cp \"$0\" \"$1\" && shift && exec \"$@\"";
        image.args(["sh", "-c", copied]).arg(outside.join("page")).arg(&scratch.mount);
    }
    image.arg(command.get_program()).args(command.get_args());
    Ok(image)
}

/// Asks for a second; how many answers came.
fn ask_nginx(port: u16, connections: Option<u32>) -> anyhow::Result<u64> {
    let mut wrk = Command::new(find("wrk")?);
    wrk.args(connections.map(|connections| format!("-c{connections}")));
    let said = said(wrk.args(["-d", "1s", &format!("http://127.0.0.1:{port}/page")]))?;
    let failed = ["Non-2xx", "Socket errors"].iter().any(|words| said.contains(words));
    anyhow::ensure!(!failed, "not all was answered:\n{said}");
    let line = said.lines().find(|line| line.contains(" requests in "));
    let count = line.and_then(|line| line.split_whitespace().next());
    Ok(count.with_context(|| format!("wrk said {said:?}"))?.parse()?)
}

/// Asks so often; all is answered, or it is an error.
fn ask_redis(port: u16) -> anyhow::Result<u64> {
    let mut benchmark = Command::new(find("redis-benchmark")?);
    benchmark.args(["-p", &port.to_string(), "-n", &REDIS_REQUESTS.to_string()]);
    let said = said(benchmark.args(["-c", "16", "-t", "set,get", "-q"]))?;
    let answered = said.matches("requests per second").count();
    anyhow::ensure!(answered >= 2 && !said.contains("rror"), "redis-benchmark said {said:?}");
    Ok(2 * REDIS_REQUESTS)
}

/// What a command prints, which must succeed.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(said)
}

impl Measured {
    /// The first round tells of memory alone.
    fn of(row: &Row, rounds: &[[Turn; 3]]) -> Measured {
        let ([native, _, image], rounds) =
            rounds.split_first().map_or(([Turn::default(); 3], rounds), |(one, all)| (*one, all));
        let [native_memory_bytes, husk_memory_bytes] = [native, image].map(|one| one.memory_bytes);
        let times = rounds.iter().map(|[native, _, image]| (native.cpu_ns, image.cpu_ns));
        let quotients = |pick: fn(&[Turn; 3]) -> f64| report::median(rounds.iter().map(pick));
        Measured {
            row: report::Row::of(row.name, row.wanted, 1.0, times.collect()),
            control: quotients(|[native, control, _]| native.cpu_ns / control.cpu_ns.max(1.0)),
            rate: quotients(|[native, _, image]| image.rate / native.rate.max(1.0)),
            native_memory_bytes,
            husk_memory_bytes,
        }
    }

    /// Whether two native servers read the same.
    fn holds(&self) -> bool {
        (self.control - 1.0).abs() <= 0.10
    }
}

impl Report {
    fn print_table(&self) {
        let Machine { cpu, cores, kernel, load, guard } = &self.machine;
        println!("{cpu}, {cores} cores, Linux {kernel}");
        println!("load {load:.1}, guard {guard}; ns of processor time a request, medians");
        println!("(both inside: ns a request, by the rate that who asks prints)");
        println!("memory: MiB of all processes natively, and in an image with its supervisor\n");
        println!(
            "{:<32} {:>10} {:>10} {:>8}  control   rate       memory  wanted",
            "", "native", "husk", "ratio"
        );
        for Measured { row, control, rate, native_memory_bytes, husk_memory_bytes } in &self.rows {
            let [native, husk] = [native_memory_bytes, husk_memory_bytes]
                .map(|&bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
            row.print(&format!("{control:>7.3} {rate:>6.3} {native:>5} {husk:>6} "));
        }
        if self.rows.iter().any(|row| row.row.error.is_none() && !row.holds()) {
            println!("\nA control is not 1.0: this machine was too busy, measure again.");
        }
    }
}
