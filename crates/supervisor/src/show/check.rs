//! `husk check`: can this host run Husk, and what does each missing feature cost?
//!
//! Nothing on the host changes: facts are read from /proc, or tried out and undone.

pub use husk_host::probe::{dispatched, flags_of, keep_busy};

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rustix::fs::{Access, MemfdFlags, access};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::config::state;
use crate::image::descriptors::can_be_borrowed;
use crate::named::mount::{DEVICE, helper};

/// Where the gate's table lies; memory below `vm.mmap_min_addr` cannot be mapped.
const GATE_TABLE: u64 = 0x60000;
/// Free memory below this is too little for builds.
const MEMORY_BYTES_LOW: u64 = 512 << 20;
/// Descriptors below this are too few.
const DESCRIPTORS_LOW: u64 = 256;
/// Address space an image's mappings take beside its memory.
const ADDRESS_SPACE_BYTES_MIN: u64 = 64 << 30;

/// How a fact stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Husk runs, at a cost.
    Limited,
    /// Husk does not run.
    Missing,
}

/// One fact about the host.
#[derive(Debug, Clone, Serialize)]
pub struct Fact {
    /// What was looked at.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What it costs that it is so; empty when it is well.
    pub cost: &'static str,
    /// How to get it; empty when it is well.
    pub remedy: &'static str,
}

/// All facts, and what follows.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether `husk run` works here.
    pub able: bool,
    /// The facts.
    pub facts: Vec<Fact>,
}

impl Fact {
    fn new(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        cost: &'static str,
        remedy: &'static str,
    ) -> Fact {
        let well = state == State::Ok;
        let (cost, remedy) = if well { ("", "") } else { (cost, remedy) };
        Fact { name, state, found: found.into(), cost, remedy }
    }
}

/// Looks at the host.
pub fn check() -> Report {
    let facts = vec![
        kernel_version(),
        dispatch(),
        memfd(),
        proc_mounted(),
        mmap_min_addr(),
        protection_keys(),
        fsgsbase(),
        descriptors(),
        borrowing(),
        address_space(),
        file_size(),
        free_memory(),
        copies(),
        fuse(),
    ];
    Report { able: facts.iter().all(|fact| fact.state != State::Missing), facts }
}

impl Report {
    /// A table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let width = self.facts.iter().map(|fact| fact.name.len()).max().unwrap_or_default();
        for fact in &self.facts {
            let state = match fact.state {
                State::Ok => "ok",
                State::Limited => "limited",
                State::Missing => "MISSING",
            };
            let _ = writeln!(text, "{:<width$} {:<8} {}", fact.name, state, fact.found);
            if fact.state != State::Ok {
                let _ = writeln!(text, "{:width$} cost:      {}", "", fact.cost);
                let _ = writeln!(text, "{:width$} to get it: {}", "", fact.remedy);
            }
        }
        let verdict = if self.able { "husk runs here" } else { "husk does not run here" };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

fn borrowing() -> Fact {
    let can = can_be_borrowed();
    let found = if can { "processes may take them from each other" } else { "not to be taken" };
    Fact::new(
        "sockets' descriptors",
        if can { State::Ok } else { State::Limited },
        found,
        "bytes of unix sockets go through the host",
        "Linux 5.6, and sysctl kernel.yama.ptrace_scope=0",
    )
}

fn kernel_version() -> Fact {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let state = if version >= (5, 11) { State::Ok } else { State::Missing };
    let cost = "Syscall User Dispatch came with Linux 5.11: nothing runs without it";
    Fact::new("Linux", state, release, cost, "boot a newer kernel")
}

fn dispatch() -> Fact {
    let (state, found) = match husk_host::probe::syscall_user_dispatch() {
        Ok(()) => (State::Ok, "works".to_owned()),
        Err(errno) => (State::Missing, format!("{errno:?}")),
    };
    let cost = "calls that are not patched cannot be caught: husk run refuses to start";
    let remedy = "Linux 5.11 or newer with CONFIG_GENERIC_ENTRY on x86-64; \
                  inside a container or sandbox, allow prctl";
    Fact::new("Syscall User Dispatch", state, found, cost, remedy)
}

fn memfd() -> Fact {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let executable = rustix::fs::memfd_create(c"husk-check", flags | MemfdFlags::EXEC);
    let (state, found) = match executable {
        Ok(_) => (State::Ok, "executable and sealable".to_owned()),
        Err(rustix::io::Errno::INVAL) => match rustix::fs::memfd_create(c"husk-check", flags) {
            Ok(_) => (State::Ok, "sealable".to_owned()),
            Err(errno) => (State::Missing, errno.to_string()),
        },
        Err(errno) => (State::Missing, errno.to_string()),
    };
    let cost = "the image's memory and the runtime are memfds: nothing runs without";
    let remedy = "sysctl vm.memfd_noexec=0, and allow memfd_create in your sandbox";
    Fact::new("memfd", state, found, cost, remedy)
}

fn proc_mounted() -> Fact {
    let there = fs::metadata("/proc/self/fd").is_ok();
    let (state, found) =
        if there { (State::Ok, "mounted") } else { (State::Missing, "not mounted") };
    let cost = "programs are started through /proc/self/fd";
    Fact::new("/proc", state, found, cost, "mount -t proc proc /proc")
}

fn mmap_min_addr() -> Fact {
    let text = fs::read_to_string("/proc/sys/vm/mmap_min_addr").unwrap_or_default();
    let minimum: u64 = text.trim().parse().unwrap_or(0);
    let state = if minimum <= GATE_TABLE { State::Ok } else { State::Missing };
    let cost = "the gate's table at 0x60000 cannot be mapped: programs do not start";
    let remedy = "sysctl vm.mmap_min_addr=65536";
    Fact::new("vm.mmap_min_addr", state, minimum.to_string(), cost, remedy)
}

/// Whether the state of an image can be guarded here.
pub fn can_guard() -> bool {
    husk_host::probe::protection_key().is_ok()
}

fn protection_keys() -> Fact {
    let (state, found) = match husk_host::probe::protection_key() {
        Ok(()) => (State::Ok, "pkey_alloc works".to_owned()),
        Err(errno) => (State::Limited, format!("no pkey ({errno:?})")),
    };
    let cost = "no guard: a stray store of a program can damage the image (calls are faster)";
    let remedy = "a processor with memory protection keys (PKU), not hidden by the hypervisor";
    Fact::new("protection keys (pkey)", state, found, cost, remedy)
}

fn fsgsbase() -> Fact {
    const HWCAP2_FSGSBASE: usize = 1 << 1;
    let there = rustix::param::linux_hwcap().1 & HWCAP2_FSGSBASE != 0;
    let (state, found) =
        if there { (State::Ok, "on") } else { (State::Limited, "off: arch_prctl instead") };
    let cost = "each new thread and process makes one more call";
    let remedy = "Linux 5.9 or newer without nofsgsbase";
    Fact::new("FSGSBASE", state, found, cost, remedy)
}

fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

fn descriptors() -> Fact {
    let limit = limit(Resource::Nofile);
    let enough = limit.is_none_or(|limit| limit >= DESCRIPTORS_LOW);
    let state = if enough { State::Ok } else { State::Limited };
    let cost = "programs run out of descriptors early; two numbers are Husk's";
    Fact::new("open files (ulimit -n)", state, shown(limit), cost, "ulimit -n 1024")
}

fn address_space() -> Fact {
    let limit = limit(Resource::As);
    let enough = limit.is_none_or(|limit| limit >= ADDRESS_SPACE_BYTES_MIN);
    let state = if enough { State::Ok } else { State::Limited };
    let cost = "the image is mapped in each program and counts against this limit";
    let remedy = "ulimit -v unlimited, or a smaller --memory";
    Fact::new("address space (ulimit -v)", state, shown(limit), cost, remedy)
}

fn file_size() -> Fact {
    let limit = limit(Resource::Fsize);
    let state = if limit.is_none() { State::Ok } else { State::Limited };
    let cost = "an image cannot be larger than this";
    let remedy = "ulimit -f unlimited, or a smaller --memory";
    Fact::new("file size (ulimit -f)", state, shown(limit), cost, remedy)
}

fn free_memory() -> Fact {
    let bytes = available_bytes().unwrap_or(0);
    let state = if bytes >= MEMORY_BYTES_LOW { State::Ok } else { State::Limited };
    let cost = "what programs write stays in memory until the end";
    let found = format!("{} MiB available", bytes >> 20);
    Fact::new("memory", state, found, cost, "free some, or choose a smaller --memory")
}

fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn copies() -> Fact {
    let opened = state::copies()
        .ok_or(husk_rewrite::Unusable::Nowhere)
        .and_then(|path| husk_rewrite::Store::open(&path).map(|store| (path, store)));
    let (state, found) = match opened {
        Ok((path, _)) => (State::Ok, path.display().to_string()),
        Err(problem) => (State::Limited, problem.to_string()),
    };
    let cost = "programs are not patched: each call is trapped, 1.2 us instead of 0.1";
    let remedy = "set XDG_CACHE_HOME to a directory of yours that is not mounted noexec";
    Fact::new("rewritten copies", state, found, cost, remedy)
}

fn fuse() -> Fact {
    let (there, root) = (Path::new(DEVICE).exists(), rustix::process::geteuid().is_root());
    let open = access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok();
    let (state, found) = match (there, open, root, helper()) {
        (false, ..) => (State::Limited, format!("no {DEVICE}")),
        (true, false, ..) => (State::Limited, format!("{DEVICE}, which this user may not open")),
        (true, true, true, _) => (State::Ok, DEVICE.to_owned()),
        (true, true, false, None) => (State::Limited, format!("{DEVICE}, but no fusermount3")),
        (true, true, false, Some(helper)) => (State::Ok, format!("{DEVICE}, {}", helper.display())),
    };
    let cost = "husk mount does not work";
    let remedy = "modprobe fuse, or let the container have it; chmod 666 /dev/fuse; \
                  apt install fuse3";
    Fact::new("FUSE", state, found, cost, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_says_its_cost_and_its_remedy() {
        for fact in check().facts {
            let explained = !fact.cost.is_empty() && !fact.remedy.is_empty();
            assert_eq!(explained, fact.state != State::Ok, "{fact:?}");
            assert!(!fact.found.is_empty(), "{fact:?}");
        }
    }

    #[test]
    fn one_missing_thing_makes_the_host_unable() {
        let missing = Fact::new("x", State::Missing, "no", "nothing runs", "get it");
        let report = Report { able: false, facts: vec![missing] };
        let table = report.table();
        assert!(table.contains("MISSING") && table.contains("get it"), "{table}");
        assert!(table.ends_with("husk does not run here\n"), "{table}");
    }

    #[test]
    fn what_is_found_stands_in_one_column() {
        let fact = |name| Fact::new(name, State::Ok, "found", "", "");
        let report =
            Report { able: true, facts: vec![fact("x"), fact("a name of thirty letters long")] };
        let columns: Vec<_> = report.table().lines().map(|line| line.find("found")).collect();
        assert!(columns[0].is_some() && columns[0] == columns[1], "{columns:?}");
    }
}
