//! Which way of steering this host has, asked without changing anything.

use std::fmt::Write as _;
use std::os::fd::AsRawFd;

use husk_abi::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde::Serialize;

use super::way::{Kind, Way, without_privilege};
use crate::problem::{Problem, errno};

/// Yama's setting: which processes may look into others.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// `CAP_SYS_PTRACE`.
const MAY_TRACE: u64 = 1 << 19;

/// The result of `husk net check`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `ebpf`; `cbpf`, for servers of the user's own; or `none`: Linux spreads connections by hash,
    /// and nothing moves.
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

/// Tries each thing that steering needs.
pub fn check() -> Report {
    let ebpf = Way::load(Some(Kind::Ebpf)).map(|_| ());
    let facts = vec![
        fact("programs that select a socket (eBPF sk_reuseport)", ebpf),
        fact("such programs of any user (cBPF, TCP_MD5SIG)", without_privilege()),
        fact("sockets of other processes (pidfd_getfd)", borrowed().and_then(|()| traceable())),
    ];
    let way = match facts.iter().map(|fact| fact.works).collect::<Vec<_>>()[..] {
        [true, _, true] => Kind::Ebpf.name(),
        [false, true, true] => Kind::Cbpf.name(),
        _ => "none",
    };
    Report { way, facts }
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
    got.map(|_| ()).map_err(|error| Problem::refused("borrow a descriptor", errno(error)))
}

/// Whether descriptors of processes may be borrowed that are no children.
fn traceable() -> Result<(), Problem> {
    let scope = std::fs::read_to_string(PTRACE_SCOPE).unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    match scope.trim().parse() {
        Ok(1..) if rights.unwrap_or_default() & MAY_TRACE == 0 => Err(not_traceable(scope.trim())),
        _ => Ok(()),
    }
}

fn not_traceable(scope: &str) -> Problem {
    let why = format!("kernel.yama.ptrace_scope is {scope}: nobody but root may");
    let remedy = "set it to 0, or run it as root";
    Problem::new("cannot borrow the sockets of that process", why, remedy)
}

/// Linux refuses to lend a socket of a process.
pub(super) fn not_lent(errno: Errno) -> Problem {
    let refused = Problem::refused("borrow the sockets of that process", errno);
    if errno == Errno::EPERM { traceable().err().unwrap_or(refused) } else { refused }
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
            "cbpf" => {
                "husk net attach steers servers of your own by cBPF: for moves it attaches a new \
                 program; as root it steers by eBPF\n"
            }
            _ => "husk net attach does not work: Linux spreads connections by hash\n",
        });
        text
    }
}
