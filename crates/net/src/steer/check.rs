//! Which way of steering this host has, asked without changing anything.

use std::fmt::Write as _;
use std::os::fd::AsRawFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde::Serialize;

use super::way::Way;
use crate::problem::Problem;

/// What there is.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `ebpf`, or `none`: Linux spreads connections by hash, and nothing moves.
    pub way: &'static str,
    /// What was tried.
    pub facts: Vec<Fact>,
}

/// One thing that steering needs.
#[derive(Debug, Clone, Serialize)]
pub struct Fact {
    /// What was tried.
    pub name: &'static str,
    /// Whether it works.
    pub works: bool,
    /// What was found, and what to do.
    pub found: String,
}

/// Tries what steering needs.
pub fn check() -> Report {
    let facts = vec![
        fact("programs that select a socket (eBPF sk_reuseport)", Way::load().map(|_| ())),
        fact("sockets of other processes (pidfd_getfd)", borrowed()),
    ];
    let all = facts.iter().all(|fact| fact.works);
    Report { way: if all { "ebpf" } else { "none" }, facts }
}

fn fact(name: &'static str, tried: Result<(), Problem>) -> Fact {
    let works = tried.is_ok();
    let found = match tried {
        Ok(()) => "works".to_owned(),
        Err(problem) => format!("{}; {}", problem.why, problem.remedy),
    };
    Fact { name, works, found }
}

fn borrowed() -> Result<(), Problem> {
    let own = std::fs::File::open("/dev/null");
    let number = own.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty());
    let got = pidfd.and_then(|pidfd| pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()));
    let errno = |error: rustix::io::Errno| husk_abi::Errno(error.raw_os_error());
    got.map(|_| ()).map_err(|error| Problem::refused("borrow a descriptor", errno(error)))
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for fact in &self.facts {
            let state = if fact.works { "ok" } else { "MISSING" };
            let _ = writeln!(text, "{:<50} {state:<8} {}", fact.name, fact.found);
        }
        text.push_str(match self.way {
            "ebpf" => "husk net attach steers by eBPF: a move of a flow group is one store\n",
            _ => "husk net attach does not work: Linux spreads connections by hash\n",
        });
        text
    }
}
