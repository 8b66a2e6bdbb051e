//! `husk explain`: where a process of an image runs, and why there; what its threads wait for.
//!
//! The reason is stored beside its record (`husk_kernel::process::placement`), also after its end,
//! until another process takes the record; where it runs now is read from the host's `/proc`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;

use husk_proto::descriptor::{Descriptors as _, Files, Slot};
use husk_proto::epoll::Epolls as _;
use husk_proto::place::{Moment, Origin, Placement, Policy, Rule, SHOWN_ONE};
use husk_proto::process::ALONG_MAX;
use husk_proto::{Overview as _, Shortcuts as _};
use serde::Serialize;

use crate::hosts::{Running, SHADOW_NAME as SHADOW};
use crate::image::attach::Visit;
use crate::image::clock::exact_ns;
use crate::named::{self, Name, Process};
use crate::nodes::other_hosts;
use crate::output::failure::Failure;
use crate::run::launch::{PLACE_MASK, PLACE_SHIFT};
use crate::show::sockets;
use crate::show::waits::{self, Bytes, Wait};

/// Who says how a process runs that nobody has placed, in an image whose processes are.
const NOBODY: &str = "none: it has not been placed yet";

/// Generations between the shadow of a program and a process of its image, at most.
const DEPTH_MAX: u32 = 64;

/// Where a process runs, and why.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its number.
    pub pid: u32,
    /// It has not ended.
    pub runs: bool,
    /// What it calls itself; empty: it has ended.
    pub name: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// How it was placed.
    pub policy: &'static str,
    /// Who said so.
    pub said_by: &'static str,
    /// Its kernel; `None`: it has done nothing in the image yet.
    pub kernel: Option<u32>,
    /// How that came; `None`: Linux chose.
    pub placed: Option<Placed>,
    /// Where it is; `None`: it has ended.
    pub now: Option<Now>,
    /// What its threads do now.
    pub threads: Vec<Thread>,
    /// What keeps it on its node where the image has several: its next program inherits them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_by: Vec<KeptBy>,
    /// Its program runs on another host, and what it has spent on the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

/// A descriptor that does not go to another node.
#[derive(Debug, Serialize)]
pub struct KeptBy {
    /// Its number.
    pub fd: u32,
    /// What it is.
    pub is: &'static str,
}

/// A program that runs on another host.
#[derive(Debug, Serialize)]
pub struct Elsewhere {
    /// What that is called.
    pub host: String,
    /// The program, and what it has spent so far.
    #[serde(flatten)]
    pub running: Running,
}

/// What a thread does now.
#[derive(Debug, Serialize)]
pub struct Thread {
    /// What it waits for.
    #[serde(flatten)]
    pub wait: Wait,
    /// How bytes of that come.
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// How a process got its kernel.
#[derive(Debug, Serialize)]
pub struct Placed {
    /// `exec` or `fork`.
    pub moment: &'static str,
    /// When, s since the epoch.
    pub at_s: f64,
    /// The core of its kernel.
    pub core: Option<u32>,
    /// Where it ran before.
    pub core_before: u32,
    /// It was made to go there.
    pub moved: bool,
    /// It is held there.
    pub pinned: bool,
    /// It has chosen its cores by itself.
    pub own_affinity: bool,
    /// Kernels it could have got; none: it may run on no core of any.
    pub allowed: Vec<u32>,
    /// What was seen of them.
    pub loads: Vec<Seen>,
}

/// A load that was seen.
#[derive(Debug, Serialize)]
pub struct Seen {
    /// Of this kernel.
    pub kernel: u32,
    /// Its core.
    pub core: Option<u32>,
    /// Processes that never wait, as far as they come to.
    pub load: f64,
}

/// Where a process is.
#[derive(Debug, Serialize)]
pub struct Now {
    /// The core it runs on, or ran on last.
    pub core: u32,
    /// Cores it may run on.
    pub cores: String,
    /// How often it went from one to another; `None`: this host does not say.
    pub migrations: Option<u64>,
}

/// Explains process `pid` of image `name`; without a name, of the one it runs in.
pub fn report(name: Option<&str>, pid: &str) -> Result<Report, Failure> {
    let refuse = |why: &str, remedy: &str| {
        Failure::new(format!("cannot explain process {pid}"), why, remedy)
    };
    let number = pid.parse::<u32>().ok().filter(|&number| number > 0);
    let listed = "`husk ps NAME` lists them";
    let number = number.ok_or_else(|| {
        // The one word may be the name of an image.
        let is_name = name.is_none() && Name::parse(OsStr::new(pid)).is_ok();
        let remedy = format!("husk explain {pid} PID; `husk ps {pid}` lists them");
        let remedy = if is_name { remedy.as_str() } else { listed };
        refuse("that is not a process id", remedy)
    })?;
    let mut visit = match name {
        Some(name) => Visit::of(name)?,
        None => {
            let image = image_of_shadow(number).unwrap_or_else(|| pid.to_owned());
            Visit::of(&image).map_err(|failure| refuse(&failure.why, listed))?
        }
    };
    let elsewhere = elsewhere(&visit, number);
    let record = visit.direct.record_of(number);
    let placed = match record {
        Some(record) => visit.direct.placement(record, number),
        None => visit.direct.placement_of(number),
    };
    if record.is_none() && placed.is_none() && elsewhere.is_none() {
        return Err(refuse("no such process runs in the image", listed));
    }
    let rule = visit.direct.place_rule();
    let is_there = record.is_some() || elsewhere.is_some();
    let process = named::process(number).filter(|_| is_there);
    let (policy, said_by) = match placed {
        Some(placed) => (placed.policy, said_by(placed.origin)),
        None => (Policy::Host, who_left_it(rule, number)),
    };
    Ok(Report {
        pid: number,
        runs: is_there,
        kernel: placed.map(|placed| placed.kernel).or_else(|| seat(&visit, number)),
        policy: policy.name(),
        said_by,
        placed: placed.map(|placed| how(&visit, &placed)),
        now: process.as_ref().and_then(|_| now(number)),
        threads: process.as_ref().map_or(Vec::new(), |_| threads(&mut visit, number)),
        name: process.as_ref().map_or(String::new(), |process| process.name.clone()),
        command: process.map_or(Vec::new(), |process| process.command),
        kept_by: record.map_or(Vec::new(), |_| kept_by(&mut visit, number)),
        elsewhere,
    })
}

/// The process that has started the image which `pid` is the shadow of a program of: it has left
/// the image, but not its family.
fn image_of_shadow(pid: u32) -> Option<String> {
    let is = |pid: u32, name: &str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).next() == Some(name.as_bytes())
    };
    let mut above = is(pid, SHADOW).then_some(pid)?;
    for _ in 0..DEPTH_MAX {
        let stat = fs::read_to_string(format!("/proc/{above}/stat")).ok()?;
        above = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()?;
        if above > 0 && !is(above, SHADOW) && Visit::begin(&above.to_string()).is_ok() {
            return Some(above.to_string());
        }
    }
    None
}

/// The host that process `pid` is a shadow of a program on.
fn elsewhere(visit: &Visit, pid: u32) -> Option<Elsewhere> {
    other_hosts(&visit.direct).into_iter().flatten().find_map(|account| {
        let running = account.running.into_iter().find(|running| running.pid == pid)?;
        Some(Elsewhere { host: account.host, running })
    })
}

/// The descriptors for which its next program stays on this node, the first of several.
fn kept_by(visit: &mut Visit, pid: u32) -> Vec<KeptBy> {
    let direct = &mut visit.direct;
    let mut found = Vec::new();
    let Some(files) = direct.files_of(pid).filter(|_| direct.nodes() > 1) else { return found };
    let (mut from, mut inherited) = (0, [0; 2]);
    while let Some(fd) = direct.next_number(files, from) {
        from = fd + 1;
        if direct.close_on_exec(files, fd) != Ok(false) {
            continue;
        }
        let slot = direct.slot(files, fd);
        // Those of the host, and those of the image.
        inherited[0] += usize::from(matches!(slot, Slot::Host(_)));
        inherited[1] += usize::from(!matches!(slot, Slot::Host(None)));
        let is_more = inherited.iter().any(|count| *count > ALONG_MAX);
        if is_more && found.is_empty() {
            found.push(KeptBy { fd, is: "one of more than it can take along" });
        }
        if direct.epoll_set(files, fd).is_some() {
            found.push(KeptBy { fd, is: "an epoll set" });
        } else if direct.watch_instance(files, fd).is_some() {
            found.push(KeptBy { fd, is: "an inotify instance" });
        }
    }
    found
}

/// Who says that a process without a line is left to Linux.
fn who_left_it(rule: Rule, pid: u32) -> &'static str {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut texts = environment.split(|&byte| byte == 0);
    if texts.clone().next().and_then(policy_of_command) == Some(Policy::Host as u32) {
        said_by(Origin::Command)
    } else if texts.any(|text| text == b"HUSK_PLACE=host") {
        said_by(Origin::Variable)
    } else if rule.policy == Policy::Host {
        said_by(rule.origin)
    } else {
        NOBODY
    }
}

/// Number of the policy that an option of `husk exec` gave, out of a hand-over (`launch`).
fn policy_of_command(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("HUSK_EXEC=v1:")?;
    let flags = u32::from_str_radix(text.split(':').nth(3)?, 16).ok()?;
    (flags >> PLACE_SHIFT & PLACE_MASK).checked_sub(1)
}

/// The kernel whose seat a process has.
fn seat(visit: &Visit, pid: u32) -> Option<u32> {
    let mut found = None;
    visit.direct.each_seat(&mut |seat| {
        if seat.pid == pid && found.is_none() {
            found = Some(seat.kernel);
        }
    });
    found
}

fn how(visit: &Visit, placed: &Placement) -> Placed {
    const NS_PER_S: f64 = 1e9;
    let allowed = |kernel: &u32| placed.allowed >> kernel & 1 == 1;
    let kernels = visit.direct.kernels().min(u64::BITS);
    let seen = |kernel: u32| {
        let shown = placed.loads.get(kernel as usize)?;
        let load = f64::from(*shown) / f64::from(SHOWN_ONE);
        Some(Seen { kernel, core: visit.direct.core_of(kernel), load })
    };
    Placed {
        moment: if placed.moment == Moment::Fork { "fork" } else { "exec" },
        at_s: placed.at_ns as f64 / NS_PER_S,
        core: visit.direct.core_of(placed.kernel),
        core_before: placed.from,
        moved: placed.moved,
        pinned: placed.pinned && !placed.own,
        own_affinity: placed.own,
        allowed: (0..kernels).filter(allowed).collect(),
        loads: match placed.policy {
            Policy::LeastLoaded => (0..kernels).filter_map(seen).collect(),
            _ => Vec::new(),
        },
    }
}

fn said_by(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::Configuration => "configuration",
        Origin::Image => "option of the image",
        Origin::Command => "option of the command",
        Origin::Variable => "HUSK_PLACE",
    }
}

/// What the host says; `None`: it has ended.
fn now(pid: u32) -> Option<Now> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // The name may hold spaces and brackets; the core is the 37th word behind it.
    let core = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(36)?.parse().ok()?;
    let status = read("status");
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let sched = read("sched");
    let migrations = sched.lines().find_map(|line| line.strip_prefix("se.nr_migrations"));
    let migrations = migrations.and_then(|rest| rest.trim_start_matches([' ', ':']).parse().ok());
    Some(Now { core, cores: cores.to_owned(), migrations })
}

fn threads(visit: &mut Visit, pid: u32) -> Vec<Thread> {
    let files = visit.direct.files_of(pid);
    let mut thread = |mut wait: Wait| {
        let waits_for = files.zip(wait.fd);
        let bytes =
            waits_for.map_or(Bytes::default(), |(files, fd)| bytes(visit, files, fd, &wait));
        if wait.lane.is_some() && !bytes.reads {
            // A poll of the program's own that looks like one.
            wait.fd = None;
        }
        Thread { bytes, wait }
    };
    waits::of(pid).into_iter().map(&mut thread).collect()
}

/// How bytes come to a thread that waits for number `fd`.
fn bytes(visit: &mut Visit, files: Files, fd: u32, wait: &Wait) -> Bytes {
    let end = visit.direct.pipe_end(files, fd);
    let by_ring = end.is_some_and(|end| sockets::is_by_ring(end.pipe));
    if let Some(lane) = wait.lane {
        let reads = end.is_some_and(|end| end.socket && end.pipe.0 == lane);
        return Bytes { by_ring: reads && by_ring, by_bell: reads, reads, ring_sockets: 0 };
    }
    let Some(set) = visit.direct.epoll_set(files, fd) else {
        return Bytes { by_ring, ..Bytes::default() };
    };
    let ring_sockets = sockets::by_ring_in(visit, set);
    let by_bell = ring_sockets > 0 && visit.direct.epoll_bell(set) != 0;
    Bytes { by_ring: ring_sockets > 0, ring_sockets, by_bell, reads: false }
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let line = Process::line_of(&self.name, &self.command);
        let mut text = match self.runs {
            true => format!("process {}: {line}\n", self.pid),
            false => format!("process {}, which has ended\n", self.pid),
        };
        let _ = writeln!(text, "policy   {} ({})", self.policy, self.said_by);
        let kernel = self.kernel.map_or("none yet".to_owned(), |kernel| kernel.to_string());
        match &self.placed {
            None => {
                let _ = writeln!(
                    text,
                    "kernel   {kernel}: that of the slot it took; Linux chooses the core"
                );
            }
            Some(placed) => placed.write(&mut text, &kernel),
        }
        if let Some(now) = &self.now {
            let often = now.migrations.map(|n| format!("; went to another one {n} times"));
            let often = often.unwrap_or_default();
            let _ =
                writeln!(text, "now      on core {}, may run on {}{often}", now.core, now.cores);
        }
        for KeptBy { fd, is } in &self.kept_by {
            let _ = writeln!(text, "node     0; its next program stays there: number {fd} is {is}");
        }
        if let Some(Elsewhere { host, running }) = &self.elsewhere {
            let (name, spent) = (&running.name, running.spent.text());
            let _ = writeln!(text, "host     {name} runs on {host}; so far {spent}");
        }
        for thread in &self.threads {
            let _ = writeln!(text, "         {}", thread.wait.line(&thread.bytes));
        }
        text
    }
}

impl Placed {
    fn write(&self, text: &mut String, kernel: &str) {
        let core = match (self.core, self.allowed.is_empty()) {
            (Some(core), false) => format!("on core {core}, one of {}", list(&self.allowed)),
            _ => "whose core it may not run on".to_owned(),
        };
        let _ = writeln!(text, "kernel   {kernel}, {core}");
        let ago = (exact_ns() as f64 / 1e9 - self.at_s).max(0.0);
        let from = self.core_before;
        let how = match (self.moved, self.pinned) {
            (true, true) => format!("moved from core {from} and held there"),
            (false, true) => "it ran there, and is held there".to_owned(),
            (true, false) => format!("moved from core {from}; Linux may move it on"),
            (false, false) => format!("it ran on core {from}; Linux may move it"),
        };
        let _ = writeln!(text, "placed   at {}, {ago:.1} s ago: {how}", self.moment);
        if self.own_affinity {
            let _ = writeln!(text, "affinity set by the program itself, or by who started it");
        }
        if !self.loads.is_empty() {
            let seen = self.loads.iter().map(|seen| format!("{}: {:.2}", seen.kernel, seen.load));
            let seen = seen.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "loads    {seen}  (as seen then)");
        }
    }
}
