//! `husk ps` and `husk kill`: the processes of a named image.
//!
//! The supervisor says who they are; what they are is the host's to say (`/proc`).

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use crate::descent::state_and_parent;
use crate::failure::Failure;
use crate::named::ask::pids;
use crate::named::place::Name;
use crate::request::reason;

/// One process, as listed.
#[derive(Serialize, Debug, Clone)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: i32,
    /// `R`, `S`, `D`, `T`, ... as ps shows it.
    pub state: String,
    /// What it calls itself.
    pub name: String,
    /// Its arguments.
    pub command: Vec<String>,
}

/// The processes of an image, by number.
pub fn processes(name: &OsStr) -> Result<Vec<Process>, Failure> {
    let mut pids = pids(&Name::parse(name)?)?;
    pids.sort_unstable();
    // One that has ended meanwhile is none.
    Ok(pids.into_iter().filter_map(process).collect())
}

/// What the host says of a process; `None`: it has ended.
pub fn process(pid: u32) -> Option<Process> {
    let (state, parent) = state_and_parent(pid as i32)?;
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = read("cmdline");
    let line = line.strip_suffix(b"\0").unwrap_or_default();
    let command = match line.is_empty() {
        true => Vec::new(),
        false => line.split(|&byte| byte == 0).map(text).collect(),
    };
    Some(Process { pid, parent, state, name: text(read("comm").trim_ascii_end()), command })
}

impl Process {
    /// Its command on one line.
    pub fn line(&self) -> String {
        let command = match self.command.is_empty() {
            true => format!("[{}]", self.name),
            false => self.command.join(" "),
        };
        command.replace(char::is_control, "?")
    }
}

/// The list for people.
pub fn process_table(rows: &[Process]) -> String {
    let mut table = format!("{:>8} {:>8} STATE COMMAND\n", "PID", "PARENT");
    for row in rows {
        let command = row.line();
        let _ = writeln!(table, "{:>8} {:>8} {:<5} {command}", row.pid, row.parent, row.state);
    }
    table
}

/// Sends a signal to a process of an image, and to no other.
pub fn kill(name: &OsStr, pid: &str, signal: &str) -> Result<(), Failure> {
    let name = Name::parse(name)?;
    let refuse = |why: &str, remedy: &str| {
        Failure::new(format!("cannot signal process {pid} of image {name}"), why, remedy)
    };
    let listed = format!("see `husk ps {name}`");
    let signal = parse_signal(signal)
        .ok_or_else(|| refuse("there is no such signal", "name one, as TERM or 15"))?;
    let number = pid.parse().ok().filter(|&number: &i32| number > 0);
    let process = number.and_then(Pid::from_raw);
    let process = process.ok_or_else(|| refuse("that is no number of a process", &listed))?;
    // Held before it is looked for: its number cannot become another's between.
    let held = pidfd_open(process, PidfdFlags::empty());
    if !pids(&name)?.contains(&(process.as_raw_nonzero().get() as u32)) {
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
