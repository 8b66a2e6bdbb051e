//! `husk ps` and `husk kill`: the processes of an image.
//!
//! The process ids come from the supervisor of a named image, or from the records of a `husk run`;
//! everything else from the host's `/proc`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::signal::Signal;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use super::ask::{look, pids};
use crate::image::attach::Visit;
use crate::named::place::Name;
use crate::nodes;
use crate::output::failure::Failure;
use crate::run::request::reason;
use husk_proto::Overview as _;

const MS_PER_S: u64 = 1000;

/// One process, as listed.
#[derive(Serialize, Debug, Clone)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Its user.
    pub user: u32,
    /// The node it runs on; `None`: the image has one.
    pub node: Option<u16>,
    /// `R`, `S`, `D`, `T`, ... as ps shows it.
    pub state: String,
    /// The kernel it counts as its own; `None`: it has done nothing in the image yet, or nobody has
    /// looked.
    pub kernel: Option<u32>,
    /// The core it runs on, or ran on last.
    pub core: u32,
    /// Its threads.
    pub threads: u32,
    /// Time it has spent on cores, ms.
    pub cpu_ms: u64,
    /// Memory of its own and shared that it has mapped in, bytes.
    pub memory_bytes: u64,
    /// What it calls itself.
    pub name: String,
    /// Its arguments.
    pub command: Vec<String>,
}

/// Who runs in the image that `name` names: its own name, or the process id of a `husk run` or of a
/// program in it; with the node, where it has several.
fn living(name: &OsStr) -> Result<HashMap<u32, Option<u16>>, Failure> {
    let typed = name.to_str().unwrap_or_default();
    if typed.parse::<u32>().is_err() {
        let name = Name::parse(name)?;
        if look(&name)?.nodes == 0 {
            return Ok(pids(&name)?.into_iter().map(|pid| (pid, None)).collect());
        }
    }
    let visit = Visit::of(typed)?;
    let mut found = HashMap::new();
    visit.direct.each_pid(&mut |pid| {
        found.insert(pid, (visit.direct.nodes() > 1).then_some(0));
    });
    for (node, image) in nodes::others(&visit.direct) {
        // One that is lost has no programs. Who has gone there has a record here, too.
        let there = Name::parse(OsStr::new(&image)).and_then(|image| pids(&image));
        found.extend(there.unwrap_or_default().into_iter().map(|pid| (pid, Some(node))));
    }
    found
        .retain(|pid, node| !husk_carrier::ended(*pid) && (node.is_none() || !nodes::serves(*pid)));
    Ok(found)
}

/// The processes of an image, by number.
pub fn processes(name: &OsStr) -> Result<Vec<Process>, Failure> {
    let living = living(name)?;
    let name = name.to_str().unwrap_or_default();
    let several = living.values().any(Option::is_some);
    let mut seats = vec![(several.then_some(0), kernels(name))];
    if several && let Ok(visit) = Visit::of(name) {
        seats.extend(
            nodes::others(&visit.direct)
                .into_iter()
                .map(|(node, image)| (Some(node), kernels(&image))),
        );
    }
    let kernel = |pid: u32, node: Option<u16>| {
        let seat = seats.iter().find(|seat| seat.0 == node)?;
        seat.1.get(&pid).copied()
    };
    // One that has ended meanwhile is none.
    let described = |(pid, node)| {
        let found = process(pid)?;
        Some(Process { kernel: kernel(pid, node), node, ..found })
    };
    let mut found: Vec<Process> = living.into_iter().filter_map(described).collect();
    found.sort_unstable_by_key(|process| process.pid);
    Ok(found)
}

/// Whose kernel which is, as far as there is one to see.
fn kernels(name: &str) -> HashMap<u32, u32> {
    let mut found = HashMap::new();
    let Ok(visit) = Visit::of(name) else { return found };
    visit.direct.each_seat(&mut |seat| {
        found.entry(seat.pid).or_insert(seat.kernel);
    });
    visit.direct.each_placed(&mut |placed| {
        found.insert(placed.pid, placed.kernel);
    });
    found
}

/// What the host says of a process; `None`: it has ended.
pub fn process(pid: u32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let stat = String::from_utf8_lossy(&stat);
    // The name may hold spaces and brackets; what follows the last bracket may not.
    let words: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    // Numbered as in proc(5), where the state is the third.
    let word = |number: usize| words.get(number - 3).copied().unwrap_or_default();
    let number = |at: usize| word(at).parse::<i64>().unwrap_or_default();
    let (ticks, page) = (clock_ticks_per_second(), page_size() as u64);
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = read("cmdline");
    let line = line.strip_suffix(b"\0").unwrap_or_default();
    let command = match line.is_empty() {
        true => Vec::new(),
        false => line.split(|&byte| byte == 0).map(text).collect(),
    };
    Some(Process {
        pid,
        parent: number(4) as i32,
        group: number(5) as i32,
        session: number(6) as i32,
        user,
        node: None,
        state: word(3).to_owned(),
        kernel: None,
        core: number(39) as u32,
        threads: number(20) as u32,
        cpu_ms: (number(14) + number(15)) as u64 * MS_PER_S / ticks.max(1),
        memory_bytes: number(24) as u64 * page,
        name: text(read("comm").trim_ascii_end()),
        command,
    })
}

impl Process {
    /// Its command on one line.
    pub fn line(&self) -> String {
        Process::line_of(&self.name, &self.command)
    }

    /// The command of a process of that name on one line.
    pub fn line_of(name: &str, command: &[String]) -> String {
        let line = if command.is_empty() { format!("[{name}]") } else { command.join(" ") };
        line.replace(char::is_control, "?")
    }
}

/// The list for people; the node is shown where there are several.
pub fn process_table(rows: &[Process]) -> String {
    let several = rows.iter().any(|row| row.node.is_some());
    let node = |text: String| if several { format!(" {text:>4}") } else { String::new() };
    let mut table = format!(
        "{:>8} {:>8} {:>8} {:>8} {:>6} STATE{} {:>6} {:>8} {:>7} COMMAND\n",
        "PID",
        "PARENT",
        "GROUP",
        "SESSION",
        "USER",
        node("NODE".to_owned()),
        "KERNEL",
        "TIME",
        "MEMORY"
    );
    for row in rows {
        let kernel = row.kernel.map_or("-".to_owned(), |kernel| kernel.to_string());
        let (command, seconds) = (row.line(), row.cpu_ms as f64 / MS_PER_S as f64);
        let memory = format!("{}M", row.memory_bytes >> 20);
        let node = node(row.node.map_or("-".to_owned(), |node| node.to_string()));
        let Process { pid, parent, group, session, user, state, .. } = row;
        let _ = writeln!(
            table,
            "{pid:>8} {parent:>8} {group:>8} {session:>8} {user:>6} {state:<5}{node} {kernel:>6} \
             {seconds:>8.2} {memory:>7} {command}"
        );
    }
    table
}

/// Sends a signal to a process of an image, and to no other.
pub fn kill(name: &OsStr, pid: &str, signal: &str) -> Result<(), Failure> {
    let shown = name.to_string_lossy();
    let refuse = |why: &str, remedy: &str| {
        Failure::new(format!("cannot signal process {pid} of image {shown}"), why, remedy)
    };
    let listed = format!("see `husk ps {shown}`");
    let signal = parse_signal(signal)
        .ok_or_else(|| refuse("there is no such signal", "name one, as TERM or 15"))?;
    let number = pid.parse().ok().filter(|&number: &i32| number > 0);
    let process = number.and_then(Pid::from_raw);
    let process = process.ok_or_else(|| refuse("that is not a process id", &listed))?;
    // Held before it is looked for: its number cannot become another's between.
    let held = pidfd_open(process, PidfdFlags::empty());
    if !living(name)?.contains_key(&(process.as_raw_nonzero().get() as u32)) {
        return Err(refuse("no such process runs in it", &listed));
    }
    let sent = held.and_then(|held| pidfd_send_signal(held, signal));
    sent.map_err(|errno| refuse(&reason(&errno.into()), &listed))
}

/// `TERM`, `sigterm` or `15`.
fn parse_signal(typed: &str) -> Option<rustix::process::Signal> {
    let name = typed.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let number = match name.parse::<i32>() {
        Ok(number) => Signal::try_from(number).ok()?,
        Err(_) => format!("SIG{name}").parse::<Signal>().ok()?,
    };
    rustix::process::Signal::from_named_raw(number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for typed in ["TERM", "sigterm", "15", "SIGTERM"] {
            assert_eq!(parse_signal(typed), Some(rustix::process::Signal::TERM), "{typed}");
        }
        for typed in ["", "SIG", "0", "99", "-9", "TERMINATE"] {
            assert_eq!(parse_signal(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_process_is_described_as_the_host_does() {
        let own = process(std::process::id()).unwrap();
        assert_eq!(own.parent, nix::unistd::getppid().as_raw());
        assert_eq!(own.command, std::env::args().collect::<Vec<_>>());
        assert!(process_table(&[own]).ends_with('\n'));
        assert!(process(u32::MAX >> 1).is_none());
    }
}
